//! A comparison that never was, for the tests of its parts: two rounds of three servers, of which
//! one fell behind, and one was asked for less than it could give.

use crate::cpu::Machine;
use crate::pairs::definition::{self, Definition};
use crate::pairs::record::{Record, SCHEMA};
use crate::pairs::statistics::judge_what_is_there;
use crate::pairs::{Measured, Round};
use serde_json::json;

const DEFINITION: &str = include_str!("example.toml");

fn open(rate: f64, p99: f64) -> Measured {
    json!({
        "mode": {"open": {"rate_per_s": rate}},
        "requests": {"offered_per_s": rate, "answered_per_s": rate, "on_time_share": 0.9995},
        "latency_us": {"small": {"p50": p99 / 2.0, "p99": p99 * 1.1}, "large": {"p99": p99 * 9.0}},
        "quiet": {
            "small": {"p50": p99 / 2.0, "p90": p99 * 0.8, "p99": p99},
            "large": {"p50": 1.0, "p90": 2.0, "p99": p99 * 8.0},
            "laps": 30, "laps_quiet": 29,
        },
        "distribution": {
            "small": [[0.5, p99 / 2.0], [0.99, p99]],
            "large": [[0.5, p99 * 4.0]],
        },
        "server": {"cpu_us_per_request": 9.0, "cpus_busy": 0.4, "kept_waiting_ms": 1.5},
        "client": {"kept_waiting_ms": 0.5, "stolen_ms": 0.0},
        "verdict": {"refused": null, "fell_behind": false},
    })
}

fn behind(rate: f64) -> Measured {
    let mut measured = open(rate, 1.0);
    for field in ["latency_us", "quiet", "distribution"] {
        measured[field] = Measured::Null;
    }
    measured["requests"]["answered_per_s"] = json!(rate * 0.6);
    measured["verdict"] = json!({"refused": "the server fell behind", "fell_behind": true});
    measured
}

fn closed(busy: f64, cpu_us: f64) -> Measured {
    let mut measured = open(1e5, 60.0);
    measured["mode"] = json!({"closed": {"depth": 16}});
    (measured["quiet"], measured["distribution"]) = (Measured::Null, Measured::Null);
    measured["server"] = json!({"cpu_us_per_request": cpu_us, "cpus_busy": busy});
    measured
}

/// It.
pub fn record() -> Record {
    let definition = definition::parse(DEFINITION).expect("good");
    let round = |laneway_p99: f64| {
        Round::from(
            [
                ("laneway @ 1000", open(1_000.0, laneway_p99)),
                ("memcached @ 1000", open(1_000.0, 160.0)),
                ("laneway @ 2000", open(2_000.0, 100.0)),
                ("memcached @ 2000", behind(2_000.0)),
                ("laneway @ 16 in flight", closed(0.99, 1.25)),
                ("floor @ 16 in flight", closed(0.5, 0.5)),
                ("laneway @ memory", json!({"beyond_bytes_per_item": 44.0, "items": 1_000_000})),
            ]
            .map(|(name, measured)| (name.to_owned(), measured)),
        )
    };
    let rounds = vec![round(80.0), round(90.0), round(80.0)];
    put_together(definition, rounds)
}

fn put_together(definition: Definition, rounds: Vec<Round>) -> Record {
    let figures = judge_what_is_there(&definition.figures, &rounds);
    Record {
        schema: SCHEMA.into(),
        id: "example".into(),
        ended: "2026-01-02T03:04:05Z".into(),
        commit: "0123456789ab".into(),
        machine: Machine {
            cpu_model: "A CPU".into(),
            cpus: 2,
            kernel: "6.1".into(),
            halt_poll_ns: None,
        },
        client: "laneway bench".into(),
        versions: [("laneway".to_owned(), "1.6.45 (laneway)".to_owned())].into(),
        real_time: Some(true),
        definition,
        good: true,
        figures,
        made: None,
        rounds,
    }
}

/// A comparison beside a noisy neighbour that never was: the p99 of each server's small requests
/// during it, 50 µs before and after; one without a p99 has ended. Two slices a part, of which the
/// last one during it was disturbed.
pub fn beside_a_neighbour(servers: &[(&str, Option<f64>)]) -> Record {
    const LOAD: &str = "--workload noisy-1to10mb --rate 10000 --p-large-steps 0,0.4,0";
    let part = |p99: f64, moved: f64, disturbed: u64| {
        json!({
            "small": {"p50": p99 / 2.0, "p99": p99, "p99_9": p99 * 2.0},
            "large_megabytes_per_s": moved,
            "disturbed": disturbed,
        })
    };
    let mut text = "about = \"a neighbour\"\n".to_owned();
    let mut round = Round::new();
    for (name, during) in servers {
        text += &format!(
            "[[server]]\nname = \"{name}\"\ncommand = \"{name} -p {{port}}\"\n\
             [[run]]\nname = \"{name} @ noisy neighbour\"\nserver = \"{name}\"\nload = \"{LOAD}\"\n"
        );
        let slices = |during: f64| {
            let p99 = [50.0, 50.0, during, during, 50.0, 50.0].into_iter().enumerate();
            let slice = |(at, p99)| json!({"small_p99": p99, "disturbed": at == 3});
            p99.map(slice).collect::<Vec<_>>()
        };
        let measured = match during {
            Some(p99) => json!({"phases": {
                "slice_s": 0.25,
                "parts": [part(50.0, 0.0, 0), part(*p99, 200.0, 1), part(50.0, 0.0, 0)],
                "slices": slices(*p99),
            }}),
            None => json!({"doubt": "FAILED: it has ended"}),
        };
        round.insert(format!("{name} @ noisy neighbour"), measured);
    }
    if servers.len() > 1 {
        text += "[[figure]]\nname = \"small p99 beside a neighbour\"\n\
                 value = \"/phases/parts/1/small/p99\"\nof = \"laneway @ noisy neighbour\"\n\
                 over = \"memcached @ noisy neighbour\"\n";
    } else {
        text = format!("figure = []\n{text}");
    }
    put_together(definition::parse(&text).expect("good"), vec![round])
}
