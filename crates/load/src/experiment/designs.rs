//! The designs against each other: first each one's peak, by a closed loop; then all of them at
//! shares of the best peak, by an open loop (Minos §6, figure 3, in small).
//!
//! Four workers share one CPU, so this shows what a request costs in each design and who waits for
//! whom within it, not how it scales. A design that falls behind at a load has no latency there.

use super::Picture;
use crate::pairs::definition::{self, Definition};
use crate::pairs::{self, Options, Round};
use crate::plot::{Chart, Log};
use std::fmt::Write as _;

/// The designs and the flags of each.
const DESIGNS: [(&str, &str); 5] = [
    ("lanes", "--design lanes"),
    ("minos", "--design minos"),
    ("hkh", "--design hkh --access crew"),
    ("hkh-ws", "--design hkh-ws"),
    ("sho", "--design sho"),
];
/// Of the best peak.
const SHARES: [u32; 4] = [25, 50, 75, 90];
/// The workload, by UDP to queues that the client chooses.
const LOAD: &str = "--udp --keys-large 200 --s-large 500000 --p-large 0.125";
const ROUNDS: usize = 3;
const CPU: &str = "/server/cpu_us_per_request";

/// What is drawn.
pub const PICTURES: &[Picture] = &[
    picture("small-p99", "/quiet/small/p99", "Small requests", "p99 (us)"),
    picture("large-p99", "/quiet/large/p99", "Large requests", "p99 (us)"),
    picture("small-p50", "/quiet/small/p50", "Small requests", "median (us)"),
    picture("cpu", CPU, "Server CPU per request", "us"),
];

const fn picture(
    name: &'static str,
    value: &'static str,
    title: &'static str,
    y_label: &'static str,
) -> Picture {
    let x_label = "load (% of the best design's peak)";
    Picture { name, value, chart: Chart { title, x_label, y_label, log: Log::Vertical } }
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
         pairs = {pairs}\nno_misses = true\noverload_counts = true\nlate_share_max = 0.05\n\
         load = \"{load}\"\n"
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

/// Measures the peaks, then the designs at shares of the best.
pub fn measure(
    pairs: Option<usize>,
    options: &Options,
) -> Result<(Definition, Vec<Round>), String> {
    let pairs = pairs.unwrap_or(ROUNDS);
    let closed = [("100", "--closed --depth 8 --duration 2")];
    let peaks = definition::parse(&definition(&DESIGNS, &closed, LOAD, 1))?;
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
    let points: Vec<(String, String)> = SHARES
        .iter()
        .map(|share| (share.to_string(), format!("--rate {:.0}", best * f64::from(*share) / 100.0)))
        .collect();
    let points: Vec<(&str, &str)> =
        points.iter().map(|(x, flags)| (x.as_str(), flags.as_str())).collect();
    let load = format!("{LOAD} --duration 4");
    let mut sweep = definition::parse(&definition(&DESIGNS, &points, &load, pairs))?;
    sweep.about = format!("{}; best peak {best:.0}/s", sweep.about);
    let rounds = pairs::collect(&sweep, options)?.rounds;
    Ok((sweep, rounds))
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
        assert!(made.overload_counts);
    }
}
