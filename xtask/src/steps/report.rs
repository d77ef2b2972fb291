//! What the steps of `cargo xtask test` came to: the table, the last line, and what is read in
//! their output. This module knows cargo's test runners and nothing of how steps run.

use crate::outcome::SKIPPED_PREFIX;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How one step came out.
pub struct Row {
    pub name: &'static str,
    pub result: &'static str,
    pub took: Duration,
    pub note: String,
    /// What tests within the step say that they left out: `test: why`.
    pub skips: Vec<String>,
}

/// The last line: nothing that was skipped looks like a pass.
pub fn verdict(rows: &[Row]) -> String {
    let of = |result| rows.iter().filter(move |row| row.result == result);
    let names: Vec<&str> = of("skipped").map(|row| row.name).collect();
    let inside: usize = rows.iter().map(|row| row.skips.len()).sum();
    let skipped = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let tests = match inside {
        0 => String::new(),
        _ => format!(", {inside} tests skipped within steps"),
    };
    let (passed, failed) = (of("passed").count(), of("failed").count());
    format!("{passed} passed, {failed} failed, {} skipped{skipped}{tests}", names.len())
}

pub fn summary(rows: &[Row], took: Duration) {
    println!("\n{:<14} {:<8} {:>8}  note", "step", "result", "time");
    for row in rows {
        println!("{:<14} {:<8} {:>8}  {}", row.name, row.result, seconds(row.took), row.note);
    }
    println!("{:<14} {:<8} {:>8}", "all", "", seconds(took));
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.result == "skipped") {
        let reason = row.note.trim_start_matches(SKIPPED_PREFIX);
        reasons.entry(reason).or_default().push(row.name);
    }
    for (reason, names) in reasons {
        println!("skipped: {} ({reason})", names.join(", "));
    }
    for row in rows {
        row.skips.iter().for_each(|skip| println!("skipped within {}: {skip}", row.name));
    }
    println!();
}

pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// What cargo's test runners tell of each failed test, wherever in the output.
pub fn failing_tests(lines: &[&str]) -> Vec<String> {
    const LINES_EACH_MAX: usize = 25;
    let mut told = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            let ends = |line: &&&str| line.starts_with("---- ") || **line == "failures:";
            let section = lines[at + 1..].iter().take_while(|line| !ends(line));
            told.push(line.to_string());
            told.extend(section.take(LINES_EACH_MAX).map(|line| line.to_string()));
        }
    }
    told
}

/// What tests that passed say they could not try here, each once.
pub fn skips(text: &str) -> Vec<String> {
    // Behind a runner's dots there may be no end of line.
    let told = text.lines().filter_map(|line| line.split_once(SKIPPED_PREFIX));
    let each: BTreeSet<&str> = told.map(|(_, why)| why.trim()).collect();
    each.into_iter().map(str::to_owned).collect()
}

/// The sum of what cargo's test runners say, if it was they who ran.
pub fn tested(text: &str) -> Option<String> {
    let mut sums = [0_u64; 3];
    let results = text.lines().filter_map(|line| line.strip_prefix("test result: "));
    let mut binaries = 0;
    for line in results {
        binaries += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        for (sum, word) in sums.iter_mut().zip(["passed;", "failed;", "ignored;"]) {
            let at = words.iter().position(|w| *w == word);
            *sum += at.and_then(|at| words[at - 1].parse::<u64>().ok()).unwrap_or(0);
        }
    }
    let [passed, failed, ignored] = sums;
    let told = format!("{passed} tests passed, {failed} failed, {ignored} ignored");
    (0 < binaries).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_several_test_binaries_are_added_up() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\nnoise\n\
                    test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured\n";
        assert_eq!(tested(text).as_deref(), Some("15 tests passed, 1 failed, 2 ignored"));
        assert_eq!(tested("Finished in 3 s\n"), None);
    }

    #[test]
    fn what_is_skipped_is_told_and_counted_in_the_last_line() {
        let text = "..SKIPPED: region: no nodes\nok\nSKIPPED: region: no nodes\nSKIPPED: b: c\n";
        assert_eq!(skips(text), ["b: c", "region: no nodes"]);
        let row = |name, result, skips| Row {
            name,
            result,
            took: Duration::ZERO,
            note: String::new(),
            skips,
        };
        let rows = [
            row("tests", "passed", skips(text)),
            row("peers", "skipped", Vec::new()),
            row("loom", "failed", Vec::new()),
        ];
        let told = "1 passed, 1 failed, 1 skipped (peers), 2 tests skipped within steps";
        assert_eq!(verdict(&rows), told);
        assert_eq!(verdict(&rows[2..]), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_failed_test_is_told_wherever_it_stands() {
        let lines =
            ["ok", "failures:", "", "---- a::b stdout ----", "why", "failures:", "    a::b", "ok"];
        assert_eq!(failing_tests(&lines), ["---- a::b stdout ----", "why"]);
    }
}
