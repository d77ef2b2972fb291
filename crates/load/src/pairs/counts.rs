//! What parts of a server counted during a run: what share of the GETs its lane in the kernel
//! answered, what it read from its data folder. Without that a run says nothing of the part,
//! however good its latencies are: all may have come from elsewhere.
//!
//! By the server's own `stats`, asked before the run and after it, never during it; so the run's
//! warm-up counts, too. Megabytes are of 1 000 000 bytes of values.

use super::Measured;
use super::balance::ask_stats;
use super::definition::ServerDefinition;
use super::server::{Server, words};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A part of a server that counts.
struct Part {
    /// Where its counts stand beside what a run measured.
    place: &'static str,
    /// Whether the words of a server's command ask for it.
    is_asked_for: fn(&[String]) -> bool,
    /// Its counts: which `stats` tell each, and by what name.
    counts: &'static [(&'static str, &'static str)],
    /// The figures that a report has of what was counted during a run, and of how long that took.
    told: fn(&[u64], Duration) -> Measured,
}

const PARTS: [Part; 2] = [
    Part {
        place: "lane",
        is_asked_for: |words| words.iter().any(|word| word == "--kernel-lane"),
        counts: &[("", "cmd_get"), ("kernel", "hits")],
        told: lane,
    },
    Part {
        place: "tier",
        is_asked_for: |words| words.iter().any(|word| word == "--data-dir"),
        counts: &[("tier", "items_brought_in"), ("tier", "bytes_brought_in")],
        told: tier,
    },
];

/// The counts that the parts of a server tell since it started, and the time of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    parts: Vec<Option<Vec<u64>>>,
    at: Instant,
}

/// Asks a server for the counts so far of those parts that its command switches on.
pub fn counts(definition: &ServerDefinition, server: &Server) -> Result<Counts, String> {
    read(definition, Instant::now(), |words| ask_stats(server, words))
}

fn read(
    definition: &ServerDefinition,
    at: Instant,
    ask: impl Fn(&str) -> Result<BTreeMap<String, String>, String>,
) -> Result<Counts, String> {
    let command = words(&definition.command);
    let mut parts = Vec::new();
    for part in &PARTS {
        if !(part.is_asked_for)(&command) {
            parts.push(None);
            continue;
        }
        let mut told = BTreeMap::new();
        for (words, _) in part.counts {
            if !told.contains_key(words) {
                told.insert(words, ask(words)?);
            }
        }
        let count = |(words, what): &(&str, &str)| {
            let value = told[words].get(*what).and_then(|value| value.parse().ok());
            let stats = format!("stats {words}");
            let (name, stats) = (&definition.name, stats.trim_end());
            value.ok_or_else(|| format!("server {name}: its `{stats}` tells no {what}"))
        };
        parts.push(Some(part.counts.iter().map(count).collect::<Result<_, _>>()?));
    }
    Ok(Counts { parts, at })
}

/// Puts what was counted during a run beside what it measured.
pub fn put(before: &Counts, after: &Counts, measured: &mut Measured) {
    let took = after.at.duration_since(before.at);
    for ((part, before), after) in PARTS.iter().zip(&before.parts).zip(&after.parts) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        let during = after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before));
        measured[part.place] = (part.told)(&during.collect::<Vec<u64>>(), took);
    }
}

fn lane(during: &[u64], _took: Duration) -> Measured {
    let [gets, answered] = during[..] else { unreachable!("two counts") };
    let share = if gets == 0 { 0.0 } else { answered as f64 / gets as f64 };
    json!({ "gets": gets, "answered": answered, "share": share })
}

fn tier(during: &[u64], took: Duration) -> Measured {
    let [items, bytes] = during[..] else { unreachable!("two counts") };
    let (seconds, megabytes) = (took.as_secs_f64(), bytes as f64 / 1e6);
    json!({
        "items_read": items,
        "mb_read": megabytes,
        "mb_read_per_s": if seconds == 0.0 { 0.0 } else { megabytes / seconds },
        "seconds": seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The parts of a server with this command that tells these counts, and what it was asked.
    fn asked(command: &str, lines: &[(&str, &str)]) -> (Result<Counts, String>, Vec<String>) {
        let (name, command) = ("one".into(), command.into());
        let definition = ServerDefinition { name, command, ..Default::default() };
        let asked = RefCell::new(Vec::new());
        let told = read(&definition, Instant::now(), |words| {
            asked.borrow_mut().push(words.to_owned());
            Ok(lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
        });
        (told, asked.into_inner())
    }

    #[test]
    fn it_is_the_command_that_asks_for_a_part_and_it_is_asked_once() {
        let lines =
            [("items_brought_in", "2"), ("bytes_brought_in", "3"), ("cmd_get", "7"), ("hits", "4")];
        for (command, parts, questions) in [
            ("{laneway} serve --kernel-lane lo", [Some(vec![7, 4]), None], &["", "kernel"][..]),
            ("{laneway} serve --data-dir {data} -t 4", [None, Some(vec![2, 3])], &["tier"]),
            ("memcached", [None, None], &[]),
            ("", [None, None], &[]),
        ] {
            let (told, asked) = asked(command, &lines);
            assert_eq!(told.expect("it tells").parts, parts, "{command}");
            assert_eq!(asked, questions, "{command}");
        }
    }

    #[test]
    fn what_a_part_counted_is_of_the_run() {
        let began = Instant::now();
        let ended = began + Duration::from_secs(4);
        let lane = json!({ "gets": 200, "answered": 50, "share": 0.25 });
        let tier = json!({
            "items_read": 20, "mb_read": 8.0, "mb_read_per_s": 2.0, "seconds": 4.0,
        });
        for (part, before, after, expected) in
            [(0, [100, 90], [300, 140], lane), (1, [5, 1_000_000], [25, 9_000_000], tier)]
        {
            let of = |counts: [u64; 2], at: Instant| {
                let mut parts = vec![None; PARTS.len()];
                parts[part] = Some(counts.to_vec());
                Counts { parts, at }
            };
            let mut measured = json!({ "requests": 1 });
            let after = of(after, ended);
            put(&of(before, began), &after, &mut measured);
            assert_eq!(measured[PARTS[part].place], expected);
            assert_eq!(measured["requests"], 1);
            // And nothing of a run in which nothing came.
            put(&after, &after, &mut measured);
            let share = measured.pointer("/lane/share").or(measured.pointer("/tier/mb_read_per_s"));
            assert!(share.is_none_or(|share| *share == 0.0), "{measured}");
        }
    }

    #[test]
    fn a_server_that_tells_nothing_is_an_error() {
        for (command, lines, words) in [
            ("--kernel-lane lo", ("cmd_get", "7"), "`stats kernel` tells no hits"),
            ("--kernel-lane lo", ("hits", "7"), "`stats` tells no cmd_get"),
            ("--data-dir x", ("tier", "no"), "`stats tier` tells no items_brought_in"),
        ] {
            let (told, _) = asked(command, &[lines]);
            assert_eq!(told.expect_err(words), format!("server one: its {words}"));
        }
    }
}
