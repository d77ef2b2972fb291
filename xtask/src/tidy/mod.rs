//! Greps for what ARCHITECTURE.md says must never appear where.
//!
//! A rule is a function from the tree to findings; the tests plant one violation for each rule in a
//! tree that lies in memory. Reads text, not types: a rule can be fooled by who wants to, and is
//! there for who forgets. Sizes and use cycles may be excepted in tidy-exceptions.txt, a list that
//! only shrinks; nothing else may.

pub mod code;
mod cycles;
mod exceptions;
mod licences;
mod pages;
mod rooms;
mod sizes;
#[cfg(test)]
mod tests;
mod words;

use crate::figures;
use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use code::Code;
use std::collections::BTreeMap;
use std::process::Command;

pub const HELP: &str = "\
Check the invariants of ARCHITECTURE.md in the text of every file.

usage: cargo xtask tidy

Where `unsafe`, threads and sleeps may appear; who may know whom; no use cycles between the
files of a crate; functions to 70 lines, files to 600 (tests apart), 100 columns; no path of one
machine; the tables of figures in README and docs/figures.md as bench/record has them, what is stale
marked; links, headings and tasks that pages name, the list of pages in docs/SUMMARY.md, and the
program's words in docs/troubleshooting.md; licence and source of every package that is built in.
Exceptions to sizes and cycles stand in xtask/tidy-exceptions.txt, which only shrinks.";

/// One file: its path from the root with `/`, and its text.
struct Source {
    path: String,
    text: String,
    code: Code,
}

impl Source {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Source {
        let (path, text) = (path.into(), text.into());
        let code = match path.ends_with(".rs") {
            true => Code::of(&path, &text),
            false => Code::default(),
        };
        Source { path, text, code }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// `store` for crates/store/src/index.rs, `xtask` for xtask/src/main.rs.
    fn room(&self) -> &str {
        let mut parts = self.path.split('/');
        match (parts.next(), parts.next()) {
            (Some("crates"), Some(name)) => name,
            (Some(top), Some(_)) => top,
            _ => "",
        }
    }
}

/// All the text of the repository.
struct Tree {
    files: Vec<Source>,
}

impl Tree {
    fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.is_rust())
    }

    fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// One thing that is not as it should be.
#[derive(Debug, PartialEq)]
struct Finding {
    rule: &'static str,
    /// What an exception would name: a file, a function of a file, a cycle.
    subject: String,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    /// What is compared with an exception; 1 for a rule that only counts.
    measure: usize,
    text: String,
}

/// The rules that tidy-exceptions.txt may name.
const EXCEPTABLE: &[&str] = &["function-lines", "file-lines", "line-columns", "cycle"];

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    if let Some(argument) = parser.next()? {
        return Err(Failure::Usage(argument.unexpected().to_string()));
    }
    let tree = read_tree()?;
    let allowed = tree.file(exceptions::PATH).map_or("", |file| &file.text);
    let mut all = findings(&tree);
    licences::check(&packages()?, &mut all)?;
    let complaints = exceptions::apply(all, allowed);
    for complaint in &complaints {
        println!("{complaint}");
    }
    match complaints.len() {
        0 => passed(format!("{} files are tidy", tree.files.len())),
        count => Err(Failure::Failed(format!("{count} places are not tidy"))),
    }
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    words::check(tree, &mut found);
    sizes::check(tree, &mut found);
    rooms::check(tree, &mut found);
    cycles::check(tree, &mut found);
    pages::check(tree, &mut found);
    tables(tree, &mut found);
    found
}

/// The tables of figures are made from the records.
fn tables(tree: &Tree, found: &mut Vec<Finding>) {
    let texts = |folder: &'static str| {
        tree.files.iter().filter_map(move |file| {
            file.path.strip_prefix(folder).map(|name| (name, file.text.as_str()))
        })
    };
    let ages = figures::has_history().then_some(figures::behind as fn(&str) -> Option<u32>);
    for path in [figures::README, figures::FIGURES] {
        let Some(file) = tree.file(path) else { continue };
        let (definitions, records) = (texts(figures::DEFINITIONS), texts(figures::RECORDS));
        if let Some(text) = figures::complaint(path, &file.text, definitions, records, ages) {
            let subject = file.path.clone();
            found.push(Finding { rule: "figures", subject, line: 0, measure: 1, text });
        }
    }
}

/// Findings of one rule on one subject, together.
fn grouped(findings: Vec<Finding>) -> BTreeMap<(&'static str, String), Vec<Finding>> {
    let mut groups: BTreeMap<_, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        groups.entry((finding.rule, finding.subject.clone())).or_default().push(finding);
    }
    groups
}

/// What cargo would build on this machine, as its JSON tells it.
fn packages() -> Result<String, String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = process::cargo();
    cargo.args(["metadata", "--quiet", "--format-version", "1", "--locked", "--filter-platform"]);
    let output = cargo.arg(platform).output().map_err(|e| format!("cannot start cargo: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Everything that git tracks or would track: a new file is checked before it is committed.
fn read_tree() -> Result<Tree, String> {
    let mut git = Command::new("git");
    git.current_dir(process::root());
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let (status, text) = process::capture(&mut git)?;
    if !status.success() {
        return Err(format!("tidy reads the list of files from git: {}", text.trim()));
    }
    let mut paths: Vec<&str> = text.lines().collect();
    paths.sort_unstable();
    paths.dedup();
    let read = |path: &str| {
        // What is not UTF-8 is not text; what is gone was deleted and not yet committed.
        let text = std::fs::read_to_string(process::root().join(path)).ok()?;
        Some(Source::new(path, text))
    };
    Ok(Tree { files: paths.into_iter().filter_map(read).collect() })
}
