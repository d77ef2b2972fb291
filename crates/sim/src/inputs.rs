//! What arrives, from files: service times that were measured, traces, and workloads.
//!
//! A file of service times is text: a line for each kind of request, `item_bytes nanos` or
//! `item_bytes nanos weight`, fields separated by blanks or commas; a weight is 1 where none is
//! given, so a plain list of samples and a histogram are both such files. Empty lines and what
//! follows a `#` mean nothing. A trace is one of Twitter's, read by the load generator's own
//! reader; its requests come in their order, over and over, at the rate that is asked for, for its
//! clock has whole seconds only. A workload is one of the load generator's by its name, drawn by
//! its own code, or a TOML file; what that leaves out is the paper's default:
//!
//! ```toml
//! rate = 3e6                 # requests per second
//! large_percent = 0.125      # of values from 1500 bytes up to large_bytes_max
//! large_bytes_max = 500000
//! get_share = 0.95
//! sizes = [[100, 90.0], [4096, 9.9], [1000000, 0.1]]   # instead: item bytes and weight
//! keys = 100000              # that small requests are for, where keys have owners
//! zipf = 0.99                # the exponent of their popularity
//! ```

use crate::workload::{Keys, Measured, Mix, Replayed, Sizes};
use laneway_load::trace::Trace;
use laneway_load::workload::named::named;
use laneway_load::workload::{LARGE_BYTES_MIN, Operation, Workload};
use laneway_policy::ITEM_BYTES_MAX;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Longest service time of a file: a second.
const NANOS_MAX: u64 = 1_000_000_000;

/// Most keys, and the steepest popularity: the load generator's.
pub const KEYS_MAX: u64 = u32::MAX as u64;
/// Beyond it all requests are for one key.
pub const ZIPF_MAX: f64 = 10.0;

/// Files that were read, by flag and name.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    known: HashMap<(&'static str, String), Described>,
}

/// What a file or a name says of what arrives.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Sizes and shares.
    pub mix: Mix,
    /// Requests per second, if it says how many.
    pub rate: Option<f64>,
}

impl From<Sizes> for Described {
    fn from(sizes: Sizes) -> Described {
        Described { mix: Mix { sizes, ..Mix::etc() }, rate: None }
    }
}

impl Inputs {
    /// The sizes of a file of service times.
    pub fn service_file(&mut self, path: &str) -> Result<Sizes, String> {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
            let sizes = text.and_then(|text| service_times(&text));
            sizes.map_err(|error| format!("--service-file {path}: {error}"))
        };
        Ok(self.once("service-file", path, |path| Ok(read(path)?.into()))?.mix.sizes)
    }

    /// The sizes of a trace.
    pub fn trace(&mut self, path: &str) -> Result<Sizes, String> {
        let read = |path: &str| Trace::open(Path::new(path), 1.0).map(|trace| replayed(&trace));
        Ok(self.once("trace", path, |path| Ok(read(path)?.into()))?.mix.sizes)
    }

    /// A workload of the load generator by its name, or what a TOML file says of one.
    pub fn workload(&mut self, name: &str) -> Result<Described, String> {
        self.once("workload", name, workload)
    }

    fn once(
        &mut self,
        flag: &'static str,
        path: &str,
        read: impl FnOnce(&str) -> Result<Described, String>,
    ) -> Result<Described, String> {
        let key = (flag, path.to_owned());
        if let Some(described) = self.known.get(&key) {
            return Ok(described.clone());
        }
        let described = read(path)?;
        self.known.insert(key, described.clone());
        Ok(described)
    }
}

fn workload(name: &str) -> Result<Described, String> {
    let why = match named(name) {
        Ok(options) => return Ok(Sizes::Named(Arc::new(Workload::new(options)?)).into()),
        Err(why) => why,
    };
    if !name.contains(['.', '/']) && !Path::new(name).exists() {
        let why = why.trim_start_matches("--workload ");
        return Err(format!("--workload {why}; or give a TOML file"));
    }
    let text = std::fs::read_to_string(name).map_err(|error| error.to_string());
    let described = text.and_then(|text| described(&text));
    described.map_err(|error| format!("--workload {name}: {error}"))
}

/// What is wrong with a TOML text and where, in one line.
pub fn wrong_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.split('\n').count();
    format!("TOML line {line}: {}", error.message().replace('\n', " "))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rate: Option<f64>,
    large_percent: Option<f64>,
    large_bytes_max: Option<u64>,
    get_share: Option<f64>,
    sizes: Option<Vec<(u64, f64)>>,
    keys: Option<u64>,
    zipf: Option<f64>,
}

/// The workload that this TOML text describes; the error says what is wrong with it, and where.
pub fn described(text: &str) -> Result<Described, String> {
    let file: File = toml::from_str(text).map_err(|error| wrong_toml(text, &error))?;
    let within = |name: &str, value: Option<f64>, low: f64, high: f64| match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(format!("{name} = {value}: must be from {low} to {high}"))
        }
        value => Ok(value),
    };
    let mut mix = Mix::etc();
    let percent = within("large_percent", file.large_percent, 0.0, 100.0)?;
    mix.large_percent = percent.unwrap_or(mix.large_percent);
    mix.get_share = within("get_share", file.get_share, 0.0, 1.0)?.unwrap_or(mix.get_share);
    let (least, most) = (LARGE_BYTES_MIN as f64, ITEM_BYTES_MAX.0 as f64);
    let largest = within("large_bytes_max", file.large_bytes_max.map(|n| n as f64), least, most)?;
    if let Some(rows) = file.sizes {
        if percent.is_some() || largest.is_some() {
            return Err("sizes: has its own large ones; leave out large_percent and \
                        large_bytes_max"
                .into());
        }
        mix.sizes = counted(&rows)?;
    } else if let Some(bytes) = largest {
        mix.sizes = Sizes::Etc { large_bytes_max: bytes as u64 };
    }
    let count = within("keys", file.keys.map(|n| n as f64), 1.0, KEYS_MAX as f64)?;
    let zipf_exponent = within("zipf", file.zipf, 0.0, ZIPF_MAX)?;
    let keys = Keys::default();
    mix.keys = Some(Keys {
        count: count.map_or(keys.count, |count| count as u64),
        zipf_exponent: zipf_exponent.unwrap_or(keys.zipf_exponent),
    });
    Ok(Described { mix, rate: within("rate", file.rate, 1.0, 1e9)? })
}

fn counted(rows: &[(u64, f64)]) -> Result<Sizes, String> {
    for &(bytes, weight) in rows {
        if !(1..=ITEM_BYTES_MAX.0).contains(&bytes) || !(0.0..=1e18).contains(&weight) {
            return Err(format!(
                "sizes: [{bytes}, {weight}]: bytes must be from 1 to {ITEM_BYTES_MAX}, and the \
                 weight from 0 to 1e18"
            ));
        }
    }
    let total: f64 = rows.iter().map(|(_, weight)| weight).sum();
    if total <= 0.0 {
        return Err("sizes: needs at least one row [bytes, weight] with a weight above 0".into());
    }
    let mut below = 0.0;
    let row = |&(bytes, weight): &(u64, f64)| {
        below += weight;
        (bytes as u32, (below / total * f64::from(u32::MAX)) as u32)
    };
    Ok(Sizes::Counted(rows.iter().map(row).collect()))
}

/// Sizes and service times of a file's text; the error says the line.
pub fn service_times(text: &str) -> Result<Sizes, String> {
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let cells = line.split(|c: char| c.is_whitespace() || c == ',');
        let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
        if !cells.is_empty() {
            rows.push(row(&cells).map_err(|error| format!("line {number}: {error}"))?);
        }
    }
    if rows.is_empty() {
        return Err("no rows; a row is: item_bytes nanos, or item_bytes nanos weight".to_owned());
    }
    Ok(Sizes::Measured(Arc::new(Measured::new(&rows))))
}

fn row(cells: &[&str]) -> Result<(u32, u64, f64), String> {
    let (bytes, nanos, weight) = match *cells {
        [bytes, nanos] => (bytes, nanos, "1"),
        [bytes, nanos, weight] => (bytes, nanos, weight),
        _ => return Err(format!("{} fields; a row has two or three", cells.len())),
    };
    let whole = |name: &str, text: &str, high: u64| {
        let number = text.parse().ok().filter(|number| (1..=high).contains(number));
        number.ok_or_else(|| format!("{name} {text:?}: must be a whole number from 1 to {high}"))
    };
    let bytes = whole("item_bytes", bytes, ITEM_BYTES_MAX.0)? as u32;
    let nanos = whole("nanos", nanos, NANOS_MAX)?;
    let number = weight.parse().ok().filter(|weight| (1e-9..=1e18).contains(weight));
    let weight =
        number.ok_or_else(|| format!("weight {weight:?}: must be a number from 1e-9 to 1e18"))?;
    Ok((bytes, nanos * 1_000, weight))
}

/// The requests of a trace: a GET weighs what its key's item does, and so does what writes one; of
/// a deletion there is the key alone.
fn replayed(trace: &Trace) -> Sizes {
    let request = |ask: &laneway_load::workload::Ask| {
        let item = trace.items[ask.key.0 as usize];
        let value = if ask.operation == Operation::Delete { 0 } else { item.value_bytes };
        let bytes = (u64::from(item.key_bytes) + u64::from(value)).clamp(1, ITEM_BYTES_MAX.0);
        Replayed { bytes: bytes as u32, put: ask.operation != Operation::Get, key: ask.key.0 }
    };
    Sizes::Trace(trace.arrivals.iter().map(|arrival| request(&arrival.ask)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Costs;
    use crate::stats::US;
    use crate::workload::{Draw, Mix};
    use laneway_load::random::Random;

    #[test]
    fn a_list_of_samples_and_a_histogram_are_the_same_distribution() {
        let list = "# samples\n100 500\n100,500\n 100\t500 # again\n\n5000 9000\n";
        let list = service_times(list).expect("good");
        let histogram = service_times("100 500 3\n5000 9000 1").expect("good");
        assert_eq!(list.mean_service(), Some(2_625_000.0));
        assert_eq!(histogram.mean_service(), list.mean_service());
        let drawn = |sizes: Sizes| {
            let mut draw = Draw::new(&Mix { sizes, ..Mix::etc() });
            let mut random = Random::new(1);
            let mut large = 0_u32;
            for _ in 0..100_000 {
                let drawn = draw.draw(&mut random);
                let service = if drawn.large { 9_000_000 } else { 500_000 };
                assert_eq!(Costs::MINOS.of(&drawn), service, "whatever the costs");
                large += u32::from(drawn.large);
            }
            large
        };
        for sizes in [list, histogram] {
            assert!(drawn(sizes).abs_diff(25_000) < 700);
        }
    }

    #[test]
    fn a_wrong_file_of_service_times_says_the_line() {
        for (text, words) in [
            ("", "no rows; a row is: item_bytes nanos"),
            ("# nothing\n\n", "no rows"),
            ("100 500\n100", "line 2: 1 fields; a row has two or three"),
            ("100 500 1 1", "line 1: 4 fields"),
            ("0 500", "line 1: item_bytes \"0\": must be a whole number from 1 to"),
            ("100 fast", "line 1: nanos \"fast\""),
            ("100 2000000000", "line 1: nanos \"2000000000\": must be a whole number from 1 to"),
            ("100 500 0", "line 1: weight \"0\""),
            ("100 500 nan", "line 1: weight \"nan\""),
        ] {
            let error = service_times(text).expect_err(text);
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_workload_file_is_read() {
        let found = described("rate = 1e5\nsizes = [[100, 3], [5000, 1]]\nzipf = 0").expect("fits");
        assert_eq!(found.rate, Some(1e5));
        let keys = Keys { zipf_exponent: 0.0, ..Keys::default() };
        assert_eq!(found.mix.keys, Some(keys));
        let quarter = u32::MAX / 4;
        let Sizes::Counted(rows) = found.mix.sizes else { panic!("counted sizes") };
        assert_eq!(rows[0], (100, 3 * quarter + 2));
        let found = described("").expect("the paper's");
        assert_eq!((found.rate, &found.mix.sizes), (None, &Mix::etc().sizes));
    }

    #[test]
    fn a_wrong_workload_says_what_and_where_in_one_line() {
        for (text, words) in [
            ("rate = 0", "rate = 0: must be from 1"),
            ("rate = nan", "rate = NaN: must be from 1"),
            ("large_percent = 101", "large_percent = 101"),
            ("large_bytes_max = 1499", "large_bytes_max = 1499: must be from 1500"),
            ("get_share = 1.5", "get_share = 1.5: must be from 0 to 1"),
            ("sizes = []", "at least one row"),
            ("sizes = [[100, 0], [200, 0]]", "at least one row"),
            ("sizes = [[0, 1]]", "sizes: [0, 1]: bytes must be from 1"),
            ("sizes = [[100, -1]]", "sizes: [100, -1]"),
            ("sizes = [[100, nan]]", "sizes: [100, NaN]"),
            ("sizes = [[100, 1]]\nlarge_percent = 1", "leave out large_percent"),
            ("keys = 0", "keys = 0: must be from 1"),
            ("zipf = -1", "zipf = -1: must be from 0 to 10"),
            ("rate = 5\np_l = 3", "line 2: unknown field `p_l`"),
            ("rate = 5\nsizes = [[100, 1], [2", "line 2: "),
        ] {
            let error = described(text).expect_err(text);
            assert!(error.contains(words) && error.lines().count() == 1, "{text}: {error}");
        }
    }

    #[test]
    fn a_name_is_the_load_generators_and_what_has_none_is_told() {
        let mut inputs = Inputs::default();
        let twitter = inputs.workload("twitter-4").expect("published");
        let Sizes::Named(workload) = &twitter.mix.sizes else { panic!("drawn by its own code") };
        assert_eq!(workload.options(), &named("twitter-4").expect("published"));
        for (name, words) in [
            ("twitter-99", "--workload twitter-99: there are clusters 1 to 54; or give a TOML"),
            ("twitter-5", "--workload twitter-5: its "),
            ("fb-all", "--workload fb-all: there are etc "),
            ("", "--workload : there are etc "),
            ("no/such/file", "--workload no/such/file: "),
            ("nothing.toml", "--workload nothing.toml: "),
        ] {
            let error = inputs.workload(name).expect_err(name);
            assert!(error.starts_with(words), "{name}: {error}");
        }
    }

    #[test]
    fn a_trace_comes_in_its_order_over_and_over() {
        let rows = "1,a,20,0,1,get,0\n1,b,30,5000,1,set,0\n2,a,20,70,2,set,0\n2,b,30,0,1,delete,0";
        let trace = Trace::read(rows.as_bytes(), 1.0).expect("good");
        let sizes = replayed(&trace);
        let mut draw = Draw::new(&Mix { sizes, ..Mix::etc() });
        let mut random = Random::new(1);
        let drawn: Vec<_> = (0..5).map(|_| draw.draw(&mut random)).collect();
        let seen: Vec<_> = drawn.iter().map(|one| (one.bytes, one.put, one.large)).collect();
        let rows = [(90, false, false), (5030, true, true), (90, true, false), (30, true, false)];
        assert_eq!(seen[..4], rows);
        assert_eq!(seen[4], rows[0]);
        assert_eq!([drawn[0].key, drawn[1].key, drawn[3].key], [Some(0), Some(1), Some(1)]);
        let mix = Mix { sizes: draw.sizes().clone(), ..Mix::etc() };
        for (requests, packets) in [(1, 1), (2, 5), (3, 6), (4, 7), (6, 12), (9, 15)] {
            let mean = Costs::UNIT.mean_service_of(&mix, requests);
            assert_eq!(mean * requests as f64, f64::from(packets) * US as f64, "{requests}");
        }
    }
}
