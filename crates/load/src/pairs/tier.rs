//! What a server read from its data folder during a run: without it a run says nothing of reading
//! from a disk, for all of it may have been in memory.
//!
//! By the server's own `stats tier`, asked before the run and after it, never during it; so the
//! run's warm-up counts, too. Megabytes are of 1 000 000 bytes of values.

use super::Measured;
use super::balance::ask_stats;
use super::definition::ServerDefinition;
use super::server::{Server, words};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// What a server has counted since it started, and when it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    items: u64,
    bytes: u64,
    at: Instant,
}

/// What a server has counted so far, where its command says that it has a data folder.
pub fn counts(definition: &ServerDefinition, server: &Server) -> Result<Option<Counts>, String> {
    if !words(&definition.command).iter().any(|word| word == "--data-dir") {
        return Ok(None);
    }
    let stats = ask_stats(server, "tier")?;
    read(&definition.name, &stats, Instant::now()).map(Some)
}

fn read(name: &str, stats: &BTreeMap<String, String>, at: Instant) -> Result<Counts, String> {
    let count = |what: &str| {
        let value = stats.get(what).and_then(|value| value.parse().ok());
        value.ok_or_else(|| format!("server {name}: its `stats tier` tells no {what}"))
    };
    Ok(Counts { items: count("items_brought_in")?, bytes: count("bytes_brought_in")?, at })
}

/// Puts what was read during the run beside what it measured.
pub fn put((before, after): (Counts, Counts), measured: &mut Measured) {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let items = after.items.saturating_sub(before.items);
    let megabytes = after.bytes.saturating_sub(before.bytes) as f64 / 1e6;
    measured["tier"] = json!({
        "items_read": items,
        "mb_read": megabytes,
        "mb_read_per_s": if seconds == 0.0 { 0.0 } else { megabytes / seconds },
        "seconds": seconds,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn stats(lines: &[(&str, &str)]) -> BTreeMap<String, String> {
        lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn what_was_read_is_of_the_run() {
        let began = Instant::now();
        let counts = |items, bytes, s| Counts { items, bytes, at: began + Duration::from_secs(s) };
        let mut measured = json!({ "requests": 1 });
        put((counts(5, 1_000_000, 1), counts(25, 9_000_000, 5)), &mut measured);
        let expected = json!({
            "items_read": 20, "mb_read": 8.0, "mb_read_per_s": 2.0, "seconds": 4.0,
        });
        assert_eq!(measured["tier"], expected);
        assert_eq!(measured["requests"], 1);
        put((counts(25, 9, 5), counts(25, 9, 5)), &mut measured);
        assert_eq!(measured["tier"]["mb_read_per_s"], 0.0);
    }

    #[test]
    fn a_server_that_tells_nothing_is_an_error() {
        let at = Instant::now();
        let lines = [("items_brought_in", "7"), ("bytes_brought_in", "90")];
        assert_eq!(read("one", &stats(&lines), at), Ok(Counts { items: 7, bytes: 90, at }));
        let none = read("one", &stats(&[("tier", "no")]), at);
        let words = "server one: its `stats tier` tells no items_brought_in";
        assert!(none.is_err_and(|told| told == words));
    }
}
