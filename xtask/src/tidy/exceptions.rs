//! The list of excepted findings, which may only shrink.
//!
//! An entry holds exactly the measure of today: who makes it worse fails, and who makes it better
//! must lower the entry or take it out. No entry is added beyond ENTRIES_MAX, which goes down too.

use super::{EXCEPTABLE, Finding, grouped};
use std::collections::BTreeMap;

/// Where the list stands.
pub const PATH: &str = "xtask/tidy-exceptions.txt";
/// How many entries there are. Lower it with every entry that goes; never raise it.
pub const ENTRIES_MAX: usize = 0;

/// What remains to complain about, one line each.
pub fn apply(findings: Vec<Finding>, list: &str) -> Vec<String> {
    apply_at_most(findings, list, ENTRIES_MAX)
}

/// As `apply`, with a given length of the list.
pub fn apply_at_most(findings: Vec<Finding>, list: &str, entries_max: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut entries = read(list, &mut complaints);
    if entries.len() != entries_max {
        let count = entries.len();
        complaints.push(format!("{PATH}: has {count} entries, and ENTRIES_MAX is {entries_max}"));
    }
    for ((rule, subject), group) in grouped(findings) {
        let measure = group.iter().map(|f| f.measure).max().unwrap_or(0).max(group.len());
        match entries.remove(&(rule.to_string(), subject.clone())) {
            Some(allowed) if allowed == measure => {}
            Some(allowed) if measure < allowed => complaints
                .push(format!("{PATH}: stale: {rule} {subject} is {measure} now, not {allowed}")),
            Some(_) | None => complaints.extend(group.iter().map(Finding::told)),
        }
    }
    complaints.extend(
        entries.keys().map(|(rule, subject)| format!("{PATH}: stale: {rule} {subject} is gone")),
    );
    complaints
}

fn read(list: &str, complaints: &mut Vec<String>) -> BTreeMap<(String, String), usize> {
    let mut entries = BTreeMap::new();
    for (index, line) in list.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let entry = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [rule, ref subject @ .., measure] if EXCEPTABLE.contains(&rule) => {
                measure.parse().ok().map(|measure| ((rule.into(), subject.join(" ")), measure))
            }
            _ => None,
        };
        match entry {
            Some((key, measure)) => {
                entries.insert(key, measure);
            }
            None => complaints.push(format!(
                "{PATH}:{}: `rule subject measure` expected, with a rule of {EXCEPTABLE:?}",
                index + 1
            )),
        }
    }
    entries
}

impl Finding {
    /// As one line: what, where, why.
    fn told(&self) -> String {
        match self.line {
            0 => format!("{}: {}: {}", self.subject, self.rule, self.text),
            line => format!("{}:{line}: {}: {}", self.subject, self.rule, self.text),
        }
    }
}
