//! Comparisons for the tests of this module's parts: one that was made, and one beside a noisy
//! neighbour that never was.

use crate::pairs::definition;
use crate::pairs::record::Record;
use crate::pairs::statistics::judge_what_is_there;
use crate::pairs::{Measured, Round};
use crate::phases::{InParts, PartOf, SliceOf};
use crate::report::quantiles::Quantiles;
use serde_json::json;

/// The first comparison of bench/record, as if memcached had fallen behind at 60 000 requests a
/// second.
pub fn record() -> Record {
    const RECORDS: &str = include_str!("../../../../bench/record/compare.jsonl");
    let line = RECORDS.lines().next().expect("there is one");
    let mut record = Record::parse(line).expect("good");
    for round in &mut record.rounds {
        let run = round.get_mut("memcached @ 60000").expect("there");
        (run["latency_us"], run["quiet"]) = (Measured::Null, Measured::Null);
        run["verdict"] = json!({"refused": "the server fell behind", "fell_behind": true});
    }
    record
}

/// A comparison beside a noisy neighbour that never was, of servers such as `laneway=80 redis=-`:
/// the p99 of the small requests of each during it, 50 µs before and after; one without a p99 has
/// ended. Two slices a part, of which the last one during it was disturbed.
pub fn beside_a_neighbour(servers: &str) -> Record {
    const LOAD: &str = "--workload noisy-1to10mb --rate 10000 --p-large-steps 0,0.4,0";
    let part = |p99: f64, large_megabytes_per_s: f64, disturbed: u64| {
        let small = Quantiles { p50: p99 / 2.0, p99, p99_9: p99 * 2.0, ..Quantiles::default() };
        PartOf { small, large_megabytes_per_s, disturbed }
    };
    let mut text = "about = \"a neighbour\"\n".to_owned();
    let mut round = Round::new();
    for (name, during) in servers.split(' ').filter_map(|one| one.split_once('=')) {
        text += &format!(
            "[[server]]\nname = \"{name}\"\ncommand = \"{name} -p {{port}}\"\n\
             [[run]]\nname = \"{name} @ noisy neighbour\"\nserver = \"{name}\"\nload = \"{LOAD}\"\n"
        );
        let measured = match during.parse::<f64>() {
            Ok(p99) => {
                let parts = vec![part(50.0, 0.0, 0), part(p99, 200.0, 1), part(50.0, 0.0, 0)];
                let each = [50.0, 50.0, p99, p99, 50.0, 50.0].into_iter().enumerate();
                let slice = |(at, small_p99)| SliceOf { small_p99, disturbed: at == 3 };
                let told = InParts { parts, slice_s: 0.25, slices: each.map(slice).collect() };
                json!({ "phases": told })
            }
            Err(_) => json!({"doubt": "FAILED: it has ended"}),
        };
        round.insert(format!("{name} @ noisy neighbour"), measured);
    }
    if servers.contains(' ') {
        text += "[[figure]]\nname = \"small p99 beside a neighbour\"\n\
                 value = \"/phases/parts/1/small/p99\"\nof = \"laneway @ noisy neighbour\"\n\
                 over = \"memcached @ noisy neighbour\"\n";
    } else {
        text = format!("figure = []\n{text}");
    }
    let (definition, rounds) = (definition::parse(&text).expect("good"), vec![round]);
    let figures = judge_what_is_there(&definition.figures, &rounds);
    Record { definition, figures, rounds, ..record() }
}
