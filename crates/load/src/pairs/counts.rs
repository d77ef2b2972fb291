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
use crate::admin::{Stats, number};
use serde_json::json;
use std::time::Instant;

/// What parts of a server have counted since it started, those that its command switches on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Of the lane in the kernel: GETs in all, and those that it answered.
    lane: Option<[u64; 2]>,
    /// Of the data folder: items that were read from it, and their bytes.
    tier: Option<[u64; 2]>,
    /// When it was asked.
    at: Instant,
}

/// Asks a server for the counts so far.
pub fn counts(definition: &ServerDefinition, server: &Server) -> Result<Counts, String> {
    read(definition, |words| ask_stats(server, words))
}

fn read(
    definition: &ServerDefinition,
    ask: impl Fn(&str) -> Result<Stats, String>,
) -> Result<Counts, String> {
    let (command, at) = (words(&definition.command), Instant::now());
    let count = |stats: &str, what: &str| {
        let value = number::<u64>(&ask(stats)?, what);
        let (name, stats) = (&definition.name, format!("stats {stats}"));
        value.ok_or_else(|| format!("server {name}: its `{}` tells no {what}", stats.trim_end()))
    };
    let has = |flag: &str| command.iter().any(|word| word == flag);
    let mut counts = Counts { lane: None, tier: None, at };
    if has("--kernel-lane") {
        counts.lane = Some([count("", "cmd_get")?, count("kernel", "hits")?]);
    }
    if has("--data-dir") {
        let of = |what| count("tier", what);
        counts.tier = Some([of("items_brought_in")?, of("bytes_brought_in")?]);
    }
    Ok(counts)
}

/// Puts what was counted during a run beside what it measured.
pub fn put(before: &Counts, after: &Counts, measured: &mut Measured) {
    let during = |before: Option<[u64; 2]>, after: Option<[u64; 2]>| {
        let (before, after) = before.zip(after)?;
        Some([after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])])
    };
    if let Some([gets, answered]) = during(before.lane, after.lane) {
        let share = answered as f64 / gets.max(1) as f64;
        measured["lane"] = json!({ "gets": gets, "answered": answered, "share": share });
    }
    if let Some([items, bytes]) = during(before.tier, after.tier) {
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let megabytes = bytes as f64 / 1e6;
        measured["tier"] = json!({
            "items_read": items,
            "mb_read": megabytes,
            "mb_read_per_s": megabytes / seconds.max(1e-9),
            "seconds": seconds,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The counts of a server with this command that tells these lines, whatever it is asked.
    fn told(command: &str, lines: &[(&str, &str)]) -> Result<Counts, String> {
        let (name, command) = ("one".into(), command.into());
        let definition = ServerDefinition { name, command, ..Default::default() };
        read(&definition, |_| {
            Ok(lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
        })
    }

    #[test]
    fn it_is_the_command_that_asks_for_a_part_which_must_tell() {
        let lines =
            [("items_brought_in", "2"), ("bytes_brought_in", "3"), ("cmd_get", "7"), ("hits", "4")];
        for (command, lane, tier) in [
            ("{laneway} serve --kernel-lane lo", Some([7, 4]), None),
            ("{laneway} serve --data-dir {data} -t 4", None, Some([2, 3])),
            ("memcached", None, None),
        ] {
            let counts = told(command, &lines).expect("it tells");
            assert_eq!((counts.lane, counts.tier), (lane, tier), "{command}");
        }
        for (command, lines, words) in [
            ("--kernel-lane lo", ("cmd_get", "7"), "`stats kernel` tells no hits"),
            ("--kernel-lane lo", ("hits", "7"), "`stats` tells no cmd_get"),
            ("--data-dir x", ("tier", "no"), "`stats tier` tells no items_brought_in"),
        ] {
            let why = told(command, &[lines]).expect_err(words);
            assert_eq!(why, format!("server one: its {words}"));
        }
    }

    #[test]
    fn what_a_part_counted_is_of_the_run() {
        let at = Instant::now();
        let before = Counts { lane: Some([100, 90]), tier: Some([5, 1_000_000]), at };
        let at = at + Duration::from_secs(4);
        let after = Counts { lane: Some([300, 140]), tier: Some([25, 9_000_000]), at };
        let mut measured = json!({ "requests": 1 });
        put(&before, &after, &mut measured);
        let lane = json!({ "gets": 200, "answered": 50, "share": 0.25 });
        let tier =
            json!({ "items_read": 20, "mb_read": 8.0, "mb_read_per_s": 2.0, "seconds": 4.0 });
        assert_eq!(measured, json!({ "requests": 1, "lane": lane, "tier": tier }));
        // A run in which nothing came.
        put(&after, &after, &mut measured);
        assert_eq!(measured["lane"]["share"], 0.0);
        assert_eq!(measured["tier"]["mb_read_per_s"], 0.0);
    }
}
