//! The operator's question: how many workers does this workload need to keep its p99 within an
//! SLO, what p99 is to be expected then, and how much headroom is left? Answered by the default
//! design on a machine with the wire that is given.
//!
//! The workload is a TOML file; what it leaves out is the paper's default:
//!
//! ```toml
//! rate = 3e6                 # requests per second
//! large_percent = 0.125      # of values from 1500 bytes up to large_bytes_max
//! large_bytes_max = 500000
//! get_share = 0.95
//! sizes = [[100, 90.0], [4096, 9.9], [1000000, 0.1]]   # instead: item bytes and weight
//! ```

use super::minos_slo::{highest_within, within};
use super::{Figure, MEGA, Setup, bare, wire_name};
use crate::machine::{Machine, WORKERS_MAX};
use crate::row::Row;
use crate::stats::{Estimate, US};
use crate::study::{Point, Study};
use crate::workload::{Mix, Sizes};
use laneway_policy::{Design, ITEM_BYTES_MAX};
use serde::Deserialize;
use std::fmt::Write;

/// What is to be planned for.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What arrives.
    pub mix: Mix,
    /// Requests per second.
    pub rate: f64,
    /// p99 is to be at most so much, in microseconds.
    pub slo_us: f64,
}

impl Default for Question {
    fn default() -> Self {
        Question { mix: Mix::etc(), rate: 3e6, slo_us: 50.0 }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rate: Option<f64>,
    large_percent: Option<f64>,
    large_bytes_max: Option<u64>,
    get_share: Option<f64>,
    sizes: Option<Vec<(u64, f64)>>,
}

/// The workload that this text describes; the error says what is wrong with it.
pub fn read_question(text: &str) -> Result<Question, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut question = Question::default();
    let within = |name: &str, value: f64, low: f64, high: f64| {
        if (low..=high).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{name} = {value}: must be from {low} to {high}"))
        }
    };
    if let Some(rate) = file.rate {
        question.rate = within("rate", rate, 1.0, 1e9)?;
    }
    if let Some(percent) = file.large_percent {
        question.mix.large_percent = within("large_percent", percent, 0.0, 100.0)?;
    }
    if let Some(share) = file.get_share {
        question.mix.get_share = within("get_share", share, 0.0, 1.0)?;
    }
    if let Some(bytes) = file.large_bytes_max {
        within("large_bytes_max", bytes as f64, 1500.0, ITEM_BYTES_MAX.0 as f64)?;
        question.mix.sizes = Sizes::Etc { large_bytes_max: bytes };
    }
    if let Some(rows) = file.sizes {
        question.mix.sizes = counted(&rows)?;
    }
    Ok(question)
}

fn counted(rows: &[(u64, f64)]) -> Result<Sizes, String> {
    let total: f64 = rows.iter().map(|(_, weight)| weight).sum();
    if rows.is_empty() || !(total > 0.0 && total.is_finite()) {
        return Err("sizes: needs at least one row [bytes, weight] with a weight above 0".into());
    }
    let mut below = 0.0;
    let mut sizes = Vec::new();
    for &(bytes, weight) in rows {
        if !(1..=ITEM_BYTES_MAX.0).contains(&bytes) || weight < 0.0 {
            return Err(format!(
                "sizes: [{bytes}, {weight}]: bytes must be from 1 to {ITEM_BYTES_MAX}, and the \
                 weight at least 0"
            ));
        }
        below += weight;
        sizes.push((bytes as u32, (below / total * f64::from(u32::MAX)) as u32));
    }
    Ok(Sizes::Counted(sizes))
}

fn point(setup: &Setup, workers: u16, requests: u64) -> Point {
    let mut machine: Machine = bare(setup, Design::Lanes, workers);
    machine.nic = Some(setup.nic);
    machine.network = setup.network;
    let question = &setup.question;
    Point {
        row: Row::of("plan"),
        machine,
        mix: question.mix.clone(),
        rate: question.rate,
        requests,
    }
}

/// The least number of workers up to the most a machine has for which `holds`, if any.
fn fewest(mut holds: impl FnMut(u16) -> bool) -> Option<u16> {
    let (mut below, mut enough) = (0, 1);
    while !holds(enough) {
        below = enough;
        if enough == WORKERS_MAX {
            return None;
        }
        enough = (2 * enough).min(WORKERS_MAX);
    }
    while enough - below > 1 {
        let middle = (below + enough) / 2;
        if holds(middle) {
            enough = middle;
        } else {
            below = middle;
        }
    }
    Some(enough)
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let question = &setup.question;
    let slo = question.slo_us;
    let requests = study.effort.pick(150_000, 1_000_000);
    let row = Row::of("plan")
        .with("design", "lanes")
        .with("way", setup.way)
        .with("wire", wire_name(Some(setup.nic)))
        .with("rate_mops", question.rate / MEGA)
        .with("slo_us", slo);
    let workers = fewest(|workers| {
        study.say(&format!("plan: does it hold with {workers} workers?"));
        let point = point(setup, workers, requests);
        let slo_ps = Some((slo * US as f64) as u64);
        study.each_seed().all(|seed| within(&study.one_until(&point, seed, slo_ps), slo))
    });
    let Some(workers) = workers else {
        study.say("");
        return Figure { rows: vec![row.with("workers", 0_u64)], charts: Vec::new() };
    };
    let mut rows = Vec::new();
    let more = (workers + workers.div_ceil(4)).min(WORKERS_MAX);
    for workers in [workers, more] {
        study.say(&format!("plan: up to what rate does it hold with {workers} workers?"));
        let point = point(setup, workers, requests);
        let measured = study.all_seeds(&point);
        let most = highest_within(study, &point.machine, &point.mix, slo, requests / 3);
        let most = Estimate::of(&most).mean.max(question.rate);
        let row = row.clone().with("workers", workers);
        let row = row.with("headroom", most / question.rate - 1.0).with("mops_max", most / MEGA);
        rows.push(measured.row(row, study.seed));
    }
    study.say("");
    Figure { rows, charts: Vec::new() }
}

/// Why there is no answer, and what to change; `None` if there is one.
pub(super) fn refusal(rows: &[Row], setup: &Setup) -> Option<String> {
    rows.iter().find(|row| row.number("workers") == Some(0.0))?;
    let Question { rate, slo_us, mix } = &setup.question;
    let us = |ps: f64| ps / US as f64;
    Some(format!(
        "plan: {WORKERS_MAX} workers do not keep p99 within {slo_us} us at {} Mops: raise --slo-us \
         (without any load a request takes {:.1} us on average), lower --rate, or widen the wire \
         (--nic-gbit {}; replies alone are {:.1} Gb/s)",
        rate / MEGA,
        us(setup.costs.mean_service(mix) + setup.network as f64),
        setup.nic.gigabits,
        rate * reply_bits(mix) / 1e9,
    ))
}

/// The answer in words.
pub(super) fn answer(rows: &[Row], setup: &Setup) -> String {
    let Question { rate, slo_us, mix } = &setup.question;
    let wire = setup.nic.gigabits;
    let cpu = setup.costs.mean_service(mix) / US as f64;
    let mut text = format!(
        "{} Mops with p99 within {slo_us} us; a request costs {cpu:.2} us of CPU on average \
         ({}), the wire carries {wire} Gb/s.\n",
        rate / MEGA,
        setup.way,
    );
    for row in rows {
        let number = |name: &str| row.number(name).unwrap_or(f64::NAN);
        let workers = number("workers");
        if workers == 0.0 {
            let _ = writeln!(text, "  {WORKERS_MAX} workers do not suffice.");
            continue;
        }
        let _ = writeln!(
            text,
            "  {workers} workers: p99 {:.1} us, of large requests {:.0} us; CPU {:.0} % busy, wire \
             {:.0} %; the SLO holds up to {:.3} Mops, headroom {:.0} %.",
            number("p99"),
            number("large_p99"),
            100.0 * number("cpu_busy"),
            100.0 * number("wire_busy"),
            number("mops_max"),
            100.0 * number("headroom"),
        );
    }
    text
}

/// Bits of a reply on the wire, on average, headers not counted.
fn reply_bits(mix: &Mix) -> f64 {
    super::scale::mean_bytes(mix) * 8.0 * mix.get_share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_file_is_read_and_refused_with_a_reason() {
        let question = read_question("rate = 1e5\nsizes = [[100, 3], [5000, 1]]").expect("fits");
        assert_eq!(question.rate, 1e5);
        let quarter = u32::MAX / 4;
        let Sizes::Counted(rows) = question.mix.sizes else { panic!("counted sizes") };
        assert_eq!(rows[0], (100, 3 * quarter + 2));
        for (text, words) in [
            ("rate = 0", "rate = 0: must be from 1"),
            ("large_percent = 101", "large_percent = 101"),
            ("sizes = []", "at least one row"),
            ("sizes = [[0, 1]]", "bytes must be from 1"),
            ("p_l = 3", "unknown field"),
        ] {
            let error = read_question(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn the_fewest_workers_are_found() {
        for wanted in [1, 2, 3, 5, 33, 64] {
            assert_eq!(fewest(|workers| workers >= wanted), Some(wanted));
        }
        assert_eq!(fewest(|_| false), None);
    }
}
