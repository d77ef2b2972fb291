//! Greps for what ARCHITECTURE.md says must never appear where.
//!
//! A rule is a function from the tree to findings; the tests plant one violation for each rule in a
//! tree that lies in memory. Reads text, not types: a rule can be fooled by who wants to, and is
//! there for who forgets. Nothing is excepted but prose.

pub mod code;
mod count;
mod cycles;
mod licences;
mod pages;
mod prose;
mod rooms;
mod sizes;
#[cfg(test)]
mod tests;
mod unused;
mod walks;
mod words;

use crate::drawings;
use crate::figures;
use crate::outcome::{Failure, Outcome, passed};
use crate::process::{self, git};
use code::Code;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use words::push;

/// One file: its path from the root with `/`, and its text.
struct Source {
    path: String,
    text: String,
    code: Code,
}

impl Source {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Source {
        let (path, text) = (path.into(), text.into());
        let code = if path.ends_with(".rs") { Code::of(&path, &text) } else { Code::default() };
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

/// The lists of `rules.toml`, each of which is argued for there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    alone: Vec<String>,
    threads: Vec<String>,
    kinds: Vec<(String, String)>,
    knows: BTreeMap<String, Vec<String>>,
    unused: BTreeMap<String, String>,
}

static RULES: LazyLock<Rules> =
    LazyLock::new(|| toml::from_str(include_str!("rules.toml")).expect("tidy's rules"));

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
    /// A file, a package, the files of a cycle.
    subject: String,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    text: String,
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

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut counts, mut commit) = (false, None);
    flags!(parser, {
        Long("count") => counts = true,
        Value(name) if counts && commit.is_none() => commit = Some(name.string()?),
    });
    if counts {
        return count(commit.as_deref());
    }
    let tree = read_tree()?;
    let mut all = findings(&tree);
    licences::check(&packages()?, &mut all)?;
    all.iter().for_each(|finding| println!("{}", finding.told()));
    match all.len() {
        0 => passed(format!("{} files are tidy", tree.files.len())),
        count => Err(Failure::Failed(format!("{count} places are not tidy"))),
    }
}

/// Prints how many lines there are of which kind, in the working tree or in a commit.
fn count(commit: Option<&str>) -> Outcome {
    let tree = commit.map_or_else(read_tree, read_commit)?;
    let mut found = Vec::new();
    unread(&tree, &mut found);
    if let Some(finding) = found.first() {
        return Err(Failure::Failed(finding.told()));
    }
    print!("{}", count::table(&tree));
    passed(format!("{} files are counted", tree.files.len()))
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    unread(tree, &mut found);
    words::check(tree, &mut found);
    sizes::check(tree, &mut found);
    rooms::check(tree, &mut found);
    cycles::check(tree, &mut found);
    unused::check(tree, &mut found);
    pages::check(tree, &mut found);
    walks::check(tree, &mut found);
    prose::check(tree, &mut found);
    tables(tree, &mut found);
    pictures(tree, &mut found);
    found
}

/// In a file that is no Rust, words of comments and literals would count as code.
fn unread(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust().filter(|file| file.code.is_unread) {
        push(found, "tokens", file, 0, "it cannot be read as Rust");
    }
}

/// Each drawing is what its text makes, byte for byte.
fn pictures(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.path.starts_with(drawings::FOLDER)) {
        let complaint = if let Some(name) = file.path.strip_suffix(".txt") {
            let present = tree.file(&format!("{name}.svg")).map(|picture| &picture.text);
            match drawings::svg(&file.text) {
                Ok(made) if present == Some(&made) => None,
                Ok(_) => Some("its SVG is not what it makes: `cargo xtask drawings`".to_owned()),
                Err(why) => Some(why),
            }
        } else {
            let source = file.path.strip_suffix(".svg").map(|name| format!("{name}.txt"));
            let has_source = source.is_some_and(|path| tree.file(&path).is_some());
            (!has_source).then(|| "no text makes this drawing".to_owned())
        };
        if let Some(text) = complaint {
            push(found, "drawing", file, 0, text);
        }
    }
}

/// The tables of figures are made from the records.
fn tables(tree: &Tree, found: &mut Vec<Finding>) {
    let texts = |folder: &str| -> figures::Texts {
        let name = |file: &Source| Some(file.path.strip_prefix(folder)?.to_owned());
        tree.files.iter().filter_map(|file| Some((name(file)?, file.text.clone()))).collect()
    };
    let (definitions, records) = (texts(figures::DEFINITIONS), texts(figures::RECORDS));
    let ages = figures::has_history().then_some(figures::behind as fn(&str) -> Option<u32>);
    for path in [figures::README, figures::FIGURES] {
        let Some(file) = tree.file(path) else { continue };
        let measured = (&definitions, &records);
        if let Some(text) = figures::complaint(path, &file.text, measured, ages) {
            push(found, "figures", file, 0, text);
        }
    }
}

/// What cargo would build on this machine, with every feature, as its JSON tells it.
fn packages() -> Result<String, String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = process::cargo();
    cargo.args(["metadata", "--quiet", "--format-version", "1", "--locked", "--all-features"]);
    process::printed(cargo.args(["--filter-platform", &platform]))
}

/// Everything that git tracks or would track: a new file is checked before it is committed.
fn read_tree() -> Result<Tree, String> {
    let text = git(&["ls-files", "--cached", "--others", "--exclude-standard"])?;
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

/// The tree of a commit, as git has it.
fn read_commit(commit: &str) -> Result<Tree, String> {
    let paths = git(&["ls-tree", "-r", "--name-only", commit])?;
    let wanted = paths.lines().filter(|path| path.ends_with(".rs") || path.ends_with(".md"));
    let read = |path: &str| Ok(Source::new(path, git(&["show", &format!("{commit}:{path}")])?));
    Ok(Tree { files: wanted.map(read).collect::<Result<_, String>>()? })
}
