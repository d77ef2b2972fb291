//! What parts of a server counted during a run: how many hot keys it found, what share of the GETs
//! its lane in the kernel answered, what it read from its data folder. Without that a run says
//! nothing of the part, however good its latencies are: all may have come from elsewhere.
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
    /// The figures that a report has of the counts.
    told: fn(&Run) -> Result<Measured, String>,
}

const PARTS: [Part; 3] = [
    Part {
        place: "hot",
        is_asked_for: is_hot,
        counts: &[("hotkeys", "found"), ("hotkeys", "moved"), ("hotkeys", "slots")],
        told: hot,
    },
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

/// The counts that a part made during a run.
#[derive(Debug)]
struct Run {
    /// In the order of [`Part::counts`].
    during: Vec<u64>,
    /// The same since the server started.
    since_start: Vec<u64>,
    took: Duration,
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

/// Puts what was counted during the run of server `name` beside what it measured.
pub fn put(
    name: &str,
    before: &Counts,
    after: &Counts,
    measured: &mut Measured,
) -> Result<(), String> {
    let took = after.at.duration_since(before.at);
    for ((part, before), after) in PARTS.iter().zip(&before.parts).zip(&after.parts) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        let during = after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before));
        let run = Run { during: during.collect(), since_start: after.clone(), took };
        measured[part.place] = (part.told)(&run).map_err(|why| format!("server {name}: {why}"))?;
    }
    Ok(())
}

/// Whether a server's command has `--hot`, and not `--hot off`.
fn is_hot(words: &[String]) -> bool {
    let rule = words.iter().enumerate().find_map(|(place, word)| match word.as_str() {
        "--hot" => words.get(place + 1).map(String::as_str),
        _ => word.strip_prefix("--hot="),
    });
    rule.is_some_and(|rule| rule != "off")
}

/// An error where nothing has been hot since the server started: what carries over is found once.
fn hot(run: &Run) -> Result<Measured, String> {
    let [found, moved, slots] = run.during[..] else { unreachable!("three counts") };
    if run.since_start[0] == 0 {
        return Err(format!(
            "found 0 hot keys in {} slots, so the run shows nothing of them; lower \
             --hot-threshold, raise --slot-requests, or have it run longer",
            run.since_start[2]
        ));
    }
    // What KeySched calls scheduling: a key is given to a worker, anew or at a slot's end.
    Ok(json!({ "found": found, "moved": moved, "placed": found + moved, "slots": slots }))
}

fn lane(run: &Run) -> Result<Measured, String> {
    let [gets, answered] = run.during[..] else { unreachable!("two counts") };
    let share = if gets == 0 { 0.0 } else { answered as f64 / gets as f64 };
    Ok(json!({ "gets": gets, "answered": answered, "share": share }))
}

fn tier(run: &Run) -> Result<Measured, String> {
    let [items, bytes] = run.during[..] else { unreachable!("two counts") };
    let (seconds, megabytes) = (run.took.as_secs_f64(), bytes as f64 / 1e6);
    Ok(json!({
        "items_read": items,
        "mb_read": megabytes,
        "mb_read_per_s": if seconds == 0.0 { 0.0 } else { megabytes / seconds },
        "seconds": seconds,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Target;
    use crate::dialect::Dialect;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn definition(command: &str) -> ServerDefinition {
        ServerDefinition {
            name: "one".into(),
            command: command.into(),
            address: None,
            dialect: Dialect::Text,
            spins: false,
            tls: false,
        }
    }

    /// The counts of a server that has only the part of this number.
    fn of(part: usize, counts: &[u64], at: Instant) -> Counts {
        let mut parts = vec![None; PARTS.len()];
        parts[part] = Some(counts.to_vec());
        Counts { parts, at }
    }

    #[test]
    fn it_is_the_command_that_asks_for_a_part() {
        for (command, asked) in [
            ("{laneway} serve --design hkh --hot default -t 4", [true, false, false]),
            ("{laneway} serve --hot=keysched-2018", [true, false, false]),
            ("{laneway} serve --hot off", [false; 3]),
            ("{laneway} serve --hot-threshold 5", [false; 3]),
            ("{laneway} serve --kernel-lane lo", [false, true, false]),
            ("{laneway} serve --data-dir {data} --hot default", [true, false, true]),
            ("memcached", [false; 3]),
            ("", [false; 3]),
        ] {
            let words = words(command);
            assert_eq!(
                PARTS.each_ref().map(|part| (part.is_asked_for)(&words)),
                asked,
                "{command}"
            );
        }
    }

    #[test]
    fn what_a_part_counted_is_of_the_run() {
        let (began, ended) = {
            let began = Instant::now();
            (began, began + Duration::from_secs(4))
        };
        let hot = json!({ "found": 0, "moved": 11, "placed": 11, "slots": 8 });
        let lane = json!({ "gets": 200, "answered": 50, "share": 0.25 });
        let tier = json!({
            "items_read": 20, "mb_read": 8.0, "mb_read_per_s": 2.0, "seconds": 4.0,
        });
        for (part, before, after, expected) in [
            // What carries over need not be found again.
            (0, vec![7, 1, 1], vec![7, 12, 9], hot),
            (1, vec![100, 90], vec![300, 140], lane),
            (2, vec![5, 1_000_000], vec![25, 9_000_000], tier),
        ] {
            let mut measured = json!({ "requests": 1 });
            let (before, after) = (of(part, &before, began), of(part, &after, ended));
            put("one", &before, &after, &mut measured).expect("something was counted");
            assert_eq!(measured[PARTS[part].place], expected);
            assert_eq!(measured["requests"], 1);
            // And nothing of a run in which nothing came.
            put("one", &after, &after, &mut measured).expect("nothing is no error");
            let share = measured.pointer("/lane/share").or(measured.pointer("/tier/mb_read_per_s"));
            assert!(share.is_none_or(|share| *share == 0.0), "{measured}");
        }
    }

    #[test]
    fn who_found_nothing_is_refused() {
        let (mut measured, at) = (json!({ "latency_us": 1 }), Instant::now());
        let none = put("one", &of(0, &[0, 0, 1], at), &of(0, &[0, 0, 9], at), &mut measured);
        assert!(none.is_err_and(|words| words.starts_with("server one: found 0 hot keys in 9")));
        assert_eq!(measured.get("hot"), None);
    }

    #[test]
    fn only_who_has_a_part_is_asked_of_it_and_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("who asks");
            let mut question = [0; 64];
            let bytes = stream.read(&mut question).expect("a question");
            assert_eq!(&question[..bytes], b"stats hotkeys\r\n");
            let answer =
                "STAT hot default\r\nSTAT slots 4\r\nSTAT found 2\r\nSTAT moved 3\r\nEND\r\n";
            stream.write_all(answer.as_bytes()).expect("it listens");
        });
        let server = Server::elsewhere(Target::Tcp(address));
        let none = counts(&definition("serve"), &server).expect("nobody is asked");
        assert_eq!(none.parts, [const { None }; 3]);
        let told = counts(&definition("serve --hot default"), &server).expect("it tells");
        assert_eq!(told.parts, [Some(vec![2, 3, 4]), None, None]);
    }

    #[test]
    fn a_server_that_tells_nothing_is_an_error() {
        let told = |command: &str, lines: &[(&str, &str)]| {
            let stats: BTreeMap<String, String> =
                lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            read(&definition(command), Instant::now(), |_| Ok(stats.clone())).map(|told| told.parts)
        };
        let none = |told: Result<_, String>, words: &str| {
            assert_eq!(told.expect_err(words), format!("server one: its {words}"));
        };
        none(told("--hot default", &[("hot", "off")]), "`stats hotkeys` tells no found");
        none(told("--kernel-lane lo", &[("cmd_get", "7")]), "`stats kernel` tells no hits");
        none(told("--kernel-lane lo", &[("hits", "7")]), "`stats` tells no cmd_get");
        none(told("--data-dir x", &[("tier", "no")]), "`stats tier` tells no items_brought_in");
        let lines = [("items_brought_in", "7"), ("bytes_brought_in", "90")];
        assert_eq!(told("--data-dir x", &lines), Ok(vec![None, None, Some(vec![7, 90])]));
    }
}
