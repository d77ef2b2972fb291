//! What share of a run's GETs the lane in the kernel answered, where a server has one: without it a
//! run of a mix says nothing of the lane.
//!
//! By the server's own `stats`, asked before the run and after it, never during it.

use super::Measured;
use super::balance::ask_stats;
use super::definition::ServerDefinition;
use super::server::{Server, words};
use serde_json::json;
use std::collections::BTreeMap;

/// What a server has counted since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    gets: u64,
    answered: u64,
}

/// What a server has counted so far, where its command says that it has a lane in the kernel.
pub fn counts(definition: &ServerDefinition, server: &Server) -> Result<Option<Counts>, String> {
    if !words(&definition.command).iter().any(|word| word == "--kernel-lane") {
        return Ok(None);
    }
    let (general, lane) = (ask_stats(server, "")?, ask_stats(server, "kernel")?);
    read(&definition.name, &general, &lane).map(Some)
}

fn read(
    name: &str,
    general: &BTreeMap<String, String>,
    lane: &BTreeMap<String, String>,
) -> Result<Counts, String> {
    let count = |stats: &BTreeMap<String, String>, what: &str| {
        let value = stats.get(what).and_then(|value| value.parse().ok());
        value.ok_or_else(|| format!("server {name}: its stats tell no {what}"))
    };
    Ok(Counts { gets: count(general, "cmd_get")?, answered: count(lane, "hits")? })
}

/// Puts what was counted during the run beside what it measured.
pub fn put((before, after): (Counts, Counts), measured: &mut Measured) {
    let gets = after.gets.saturating_sub(before.gets);
    let answered = after.answered.saturating_sub(before.answered);
    let share = if gets == 0 { 0.0 } else { answered as f64 / gets as f64 };
    measured["lane"] = json!({ "gets": gets, "answered": answered, "share": share });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(lines: &[(&str, &str)]) -> BTreeMap<String, String> {
        lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_share_is_of_the_gets_of_the_run() {
        let counts = |gets, answered| Counts { gets, answered };
        let mut measured = json!({ "requests": 1 });
        put((counts(100, 90), counts(300, 140)), &mut measured);
        assert_eq!(measured["lane"], json!({ "gets": 200, "answered": 50, "share": 0.25 }));
        assert_eq!(measured["requests"], 1);
        put((counts(300, 140), counts(300, 140)), &mut measured);
        assert_eq!(measured["lane"]["share"], 0.0);
    }

    #[test]
    fn a_server_that_tells_nothing_is_an_error() {
        let told = read("one", &stats(&[("cmd_get", "7")]), &stats(&[("hits", "5")]));
        assert_eq!(told, Ok(Counts { gets: 7, answered: 5 }));
        let none = read("one", &stats(&[("cmd_get", "7")]), &stats(&[("kernel_lane", "no")]));
        assert!(none.is_err_and(|words| words == "server one: its stats tell no hits"));
    }
}
