//! The designs against each other: first each one's peak, by a closed loop; then, by an open loop,
//! all of them at shares of the best peak, or at one share while the share of large requests or
//! the size of the largest value grows (Minos §6, in small: figure 3 and the two sweeps).
//!
//! Four workers share one CPU, so this shows what a request costs in each design and who waits for
//! whom within it, not how it scales. A design that falls behind at a load has no latency there,
//! nor has a run that the client's one thread could not keep its schedule in, twice.

use super::{CPU, Picture, picture};
use laneway_load::pairs::definition::{self, Definition};
use laneway_load::pairs::{self, Options, Patience, Round};
use laneway_load::plot::Log;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The designs and the flags of each.
const DESIGNS: [(&str, &str); 5] = [
    ("lanes", "--design lanes"),
    ("minos", "--design minos"),
    ("hkh", "--design hkh --access crew"),
    ("hkh-ws", "--design hkh-ws"),
    ("sho", "--design sho"),
];
/// Of the best peak, up to what one client thread can keep a schedule of.
const SHARES: [u32; 4] = [10, 20, 35, 50];
/// The workload, by UDP to queues that the client chooses; what a sweep changes is told behind it.
const LOAD: &str = "--udp --keys-large 200 --s-large 500000 --p-large 0.125 --late-max 10";
/// Of the best peak, where it is not the load that is swept: so that the heaviest mix, with three
/// times the bytes, is still served.
const SHARE_OF_SWEEPS: u32 = 25;
/// Percentages of large requests (Minos §6.2 "varying p_L").
const P_LARGE: [&str; 5] = ["0.0625", "0.125", "0.25", "0.5", "0.75"];
/// Largest values, KB (Minos §6.2 "varying s_L").
const S_LARGE_KB: [&str; 4] = ["250", "500", "750", "1000"];
/// Share of GETs where nothing else is asked for.
pub const GET_SHARE: &str = "0.95";
const ROUNDS: usize = 3;
/// No run is made again, and no round begun, that would end later than this.
const ALLOWED: Duration = Duration::from_mins(20);

/// What grows from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Requests a second.
    Load,
    /// The share of large requests.
    PLarge,
    /// The size of the largest value.
    SLarge,
}

impl Sweep {
    /// What is drawn.
    pub const fn pictures(self) -> &'static [Picture] {
        match self {
            Sweep::Load => const { &pictures("load (% of the best design's peak)") },
            Sweep::PLarge => const { &pictures("large requests (%)") },
            Sweep::SLarge => const { &pictures("largest value (KB)") },
        }
    }

    /// Places on the horizontal axis, and the flags for each, where the best peak is so many
    /// requests a second.
    fn points(self, best: f64) -> Vec<(String, String)> {
        let rate = |share: u32| format!("--rate {:.0}", best * f64::from(share) / 100.0);
        let at = |point: &str, flags: String| {
            (point.to_owned(), format!("{} {flags}", rate(SHARE_OF_SWEEPS)))
        };
        match self {
            Sweep::Load => SHARES.iter().map(|&share| (share.to_string(), rate(share))).collect(),
            Sweep::PLarge => {
                P_LARGE.iter().map(|percent| at(percent, format!("--p-large {percent}"))).collect()
            }
            Sweep::SLarge => {
                S_LARGE_KB.iter().map(|kb| at(kb, format!("--s-large {kb}000"))).collect()
            }
        }
    }
}

const fn pictures(x: &'static str) -> [Picture; 4] {
    const US: &str = "p99 (us)";
    let log = Log::Vertical;
    [
        picture("small-p99", "/quiet/small/p99", ["Small requests", x, US], log),
        picture("large-p99", "/quiet/large/p99", ["Large requests", x, US], log),
        picture("small-p50", "/quiet/small/p50", ["Small requests", x, "median (us)"], log),
        picture("cpu", CPU, ["Server CPU per request", x, "us"], log),
    ]
}

/// The text of a definition: each design at each of `points`, which are a place on the horizontal
/// axis and the flags for it.
pub fn definition(
    designs: &[(&str, &str)],
    points: &[(&str, &str)],
    load: &str,
    pairs: usize,
) -> String {
    let mut out = format!(
        "about = \"UDP, default workload, 4 workers on one CPU: the designs by load\"\n\
         pairs = {pairs}\nno_misses = true\nlate_share_max = 0.1\n\
         quiet_laps_share_min = 0.2\nload = \"{load}\"\n"
    );
    for (name, flags) in designs {
        let _ = writeln!(
            out,
            "[[server]]\nname = \"{name}\"\ncommand = \"{{laneway}} serve -l 127.0.0.1 -p {{port}} \
             -U 0 --udp-base {{port}} -m {{memory}} -t 4 -I 8m {flags}\""
        );
    }
    for (x, flags) in points {
        for (name, _) in designs {
            let _ = writeln!(
                out,
                "[[run]]\nname = \"{name} @ {x}\"\nserver = \"{name}\"\nload = \"{flags}\""
            );
        }
    }
    let (first, x) = (designs[0].0, points[0].0);
    let _ = writeln!(
        out,
        "[[figure]]\nname = \"answered\"\nvalue = \"/requests/answered_per_s\"\n\
         of = \"{first} @ {x}\""
    );
    out
}

/// Measures the peaks, then the designs along the sweep. `get_share`: share of GETs.
pub fn measure(
    sweep: Sweep,
    get_share: &str,
    pairs: Option<usize>,
    options: &Options,
) -> Result<(Definition, Vec<Round>), String> {
    let pairs = pairs.unwrap_or(ROUNDS);
    let load = format!("{LOAD} --get-share {get_share}");
    let closed = [("100", "--closed --depth 8 --duration 2")];
    let peaks = definition::parse(&definition(&DESIGNS, &closed, &load, 1))?;
    let rounds = pairs::collect(&peaks, options)?.rounds;
    let peak = |(name, _): &(&str, &str)| {
        let values = super::values(&format!("{name} @ 100"), "/requests/answered_per_s", &rounds);
        values.last().copied().unwrap_or(0.0)
    };
    let best = DESIGNS.iter().map(peak).fold(0.0, f64::max);
    if best < 1.0 {
        return Err("no design answered anything".into());
    }
    for design in &DESIGNS {
        eprintln!("{:<8} peak {:.0} requests/s", design.0, peak(design));
    }
    let points = sweep.points(best);
    let points: Vec<(&str, &str)> =
        points.iter().map(|(x, flags)| (x.as_str(), flags.as_str())).collect();
    let load = format!("{load} --duration 4");
    let mut made = definition::parse(&definition(&DESIGNS, &points, &load, pairs))?;
    made.about = format!("{}; {get_share} GETs, best peak {best:.0}/s", made.about);
    let options =
        Options { patience: Patience::Until(Instant::now() + ALLOWED), ..options.clone() };
    let mut rounds = vec![Round::new(); pairs];
    // Values of another size are another set of data: those points come one after the other.
    let at_once = if sweep == Sweep::SLarge { 1 } else { points.len() };
    for points in points.chunks(at_once) {
        let part = definition::parse(&definition(&DESIGNS, points, &load, pairs))?;
        let collected = pairs::collect(&part, &options)?;
        if let Some(failure) = collected.failures.into_iter().next() {
            return Err(failure);
        }
        rounds.iter_mut().zip(collected.rounds).for_each(|(round, more)| round.extend(more));
    }
    Ok((made, rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_is_a_good_definition() {
        let points = [("25", "--rate 1000"), ("50", "--rate 2000")];
        let made = definition::parse(&definition(&DESIGNS, &points, LOAD, 3)).expect("good");
        assert_eq!((made.servers.len(), made.runs.len(), made.pairs), (5, 10, 3));
        assert_eq!(made.runs[6].name, "minos @ 50");
        assert!(made.late_share_max > 0.05 && made.quiet_laps_share_min < 0.5);
    }

    #[test]
    fn every_sweep_has_its_points_and_its_own_axis() {
        let flags = |sweep: Sweep| {
            let points = sweep.points(100_000.0);
            let flags: Vec<String> =
                points.iter().map(|(x, flags)| format!("{x}: {flags}")).collect();
            flags.join(", ")
        };
        assert!(flags(Sweep::Load).starts_with("10: --rate 10000, 20: --rate 20000"));
        let percents = flags(Sweep::PLarge);
        assert!(percents.starts_with("0.0625: --rate 25000 --p-large 0.0625, "), "{percents}");
        assert!(percents.ends_with("0.75: --rate 25000 --p-large 0.75"), "{percents}");
        let sizes = flags(Sweep::SLarge);
        assert!(sizes.starts_with("250: --rate 25000 --s-large 250000, "), "{sizes}");
        assert!(sizes.ends_with("1000: --rate 25000 --s-large 1000000"), "{sizes}");
        let axis = |sweep: Sweep| sweep.pictures()[0].chart.x_label;
        assert_ne!(axis(Sweep::PLarge), axis(Sweep::SLarge));
    }
}
