//! Words that may stand in some rooms only: threads, sleeps. Where clocks may be read, what is
//! unsafe and what is unfinished, rustc and clippy find (clippy.toml, the lints of the workspace).

use super::{Finding, RULES, Source, Tree};

const THREAD_WORDS: &[&str] =
    &["thread::spawn", "thread::scope", "thread::Builder", "thread::park", "thread::sleep"];

/// How a test begins that is not run.
const IGNORED: &str = "#[ignore";

/// Folders that only one machine has. In two halves, so that this file does not find itself.
const MACHINE_PATHS: &[(&str, &str)] =
    &[("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/"), ("/tmp/tar", "get")];

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        threads(file, found);
        ignored(file, found);
    }
    for file in &tree.files {
        machine_paths(file, found);
    }
}

/// Note what one line of a file has, or with line 0 the whole file.
pub fn push(
    found: &mut Vec<Finding>,
    rule: &'static str,
    file: &Source,
    line: usize,
    text: impl Into<String>,
) {
    let subject = file.path.clone();
    found.push(Finding { rule, subject, line, text: text.into() });
}

fn threads(file: &Source, found: &mut Vec<Finding>) {
    let is_allowed = RULES.threads.iter().any(|place| file.path.starts_with(place));
    for (line, text) in file.code.lines() {
        let Some(word) = THREAD_WORDS.iter().find(|word| text.contains(**word)) else { continue };
        let test = file.code.is_test(line);
        let sleeps = *word == "thread::sleep";
        if test && sleeps {
            push(found, "sleep", file, line, "a test never sleeps; wait for what it needs");
        } else if !test && !is_allowed {
            push(found, "thread", file, line, format!("{word}: only in {:?}", RULES.threads));
        }
    }
}

fn ignored(file: &Source, found: &mut Vec<Finding>) {
    for (line, _) in file.code.lines().filter(|(_, text)| text.contains(IGNORED)) {
        push(found, "ignored", file, line, "a test that is not run proves nothing");
    }
}

fn machine_paths(file: &Source, found: &mut Vec<Finding>) {
    for (index, text) in file.text.lines().enumerate() {
        for (head, tail) in MACHINE_PATHS {
            let path = format!("{head}{tail}");
            let begins = |at: usize| {
                let before = text[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-*}/".contains(c))
            };
            if text.match_indices(&path).any(|(at, _)| begins(at)) {
                push(found, "machine-path", file, index + 1, format!("{path} is this machine's"));
            }
        }
    }
}
