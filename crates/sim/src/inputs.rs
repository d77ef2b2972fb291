//! What arrives, from files: service times that were measured, and traces.
//!
//! A file of service times is text: a line for each kind of request, `item_bytes nanos` or
//! `item_bytes nanos weight`, fields separated by blanks or commas; a weight is 1 where none is
//! given, so a plain list of samples and a histogram are both such files. Empty lines and what
//! follows a `#` mean nothing. A trace is one of Twitter's, read by the load generator's own
//! reader; its requests come in their order, over and over, at the rate that is asked for, for its
//! clock has whole seconds only.

use crate::workload::{Measured, Replayed, Sizes};
use laneway_load::trace::replay::Trace;
use laneway_load::workload::Operation;
use laneway_policy::ITEM_BYTES_MAX;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Longest service time of a file: a second.
const NANOS_MAX: u64 = 1_000_000_000;

/// Files that were read, by flag and name.
#[derive(Debug, Default)]
pub struct Inputs {
    known: HashMap<(&'static str, String), Sizes>,
}

impl Inputs {
    /// The sizes of a file of service times.
    pub fn service_file(&mut self, path: &str) -> Result<Sizes, String> {
        self.once("service-file", path, |path| {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
            let sizes = text.and_then(|text| service_times(&text));
            sizes.map_err(|error| format!("--service-file {path}: {error}"))
        })
    }

    /// The sizes of a trace.
    pub fn trace(&mut self, path: &str) -> Result<Sizes, String> {
        self.once("trace", path, |path| Trace::open(Path::new(path), 1.0).map(|t| replayed(&t)))
    }

    fn once(
        &mut self,
        flag: &'static str,
        path: &str,
        read: impl FnOnce(&str) -> Result<Sizes, String>,
    ) -> Result<Sizes, String> {
        let key = (flag, path.to_owned());
        if let Some(sizes) = self.known.get(&key) {
            return Ok(sizes.clone());
        }
        let sizes = read(path)?;
        self.known.insert(key, sizes.clone());
        Ok(sizes)
    }
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
        let (key, value) = (trace.items.key_bytes(ask.key), trace.items.value_bytes(ask.key));
        let value = if ask.operation == Operation::Delete { 0 } else { value };
        let bytes = (key as u64 + value).clamp(1, ITEM_BYTES_MAX.0);
        Replayed { bytes: bytes as u32, put: ask.operation != Operation::Get }
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
        let mix = Mix { sizes: draw.sizes().clone(), ..Mix::etc() };
        for (requests, packets) in [(1, 1), (2, 5), (3, 6), (4, 7), (6, 12), (9, 15)] {
            let mean = Costs::UNIT.mean_service_of(&mix, requests);
            assert_eq!(mean * requests as f64, f64::from(packets) * US as f64, "{requests}");
        }
    }
}
