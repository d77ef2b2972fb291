//! Pages of Markdown: a link leads to a file and a heading that there are, the book's list has
//! every page of docs/, what stands behind `cargo xtask` is a task, and what troubleshooting.md
//! quotes stands in the program's source.
//!
//! Headings are named as GitHub and mdBook name them. Links to other sites are not followed.

use super::code::{is_test_path, line_of};
use super::words::push;
use super::{Finding, Source, Tree};
use crate::{SUBCOMMANDS, process};
use std::collections::BTreeMap;

/// The book's list of its pages.
const SUMMARY: &str = "docs/SUMMARY.md";
const PAGES: &str = "docs/";
const TASK: &str = "cargo xtask";
/// The page whose tables begin with words of the program's.
const SYMPTOMS: &str = "docs/troubleshooting.md";
/// What stands in such words for what differs.
const ELLIPSIS: &str = "...";

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        links(tree, page, found);
        tasks(page, found);
    }
    summary(tree, found);
    quotes(tree, found);
}

fn links(tree: &Tree, page: &Source, found: &mut Vec<Finding>) {
    for (line, text) in prose(&page.text) {
        for target in targets(text) {
            if let Some(why) = broken(tree, page, target) {
                push(found, "link", page, line, format!("{target}: {why}"));
            }
        }
    }
}

/// The lines outside of fenced blocks, each with its number from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Where the links of a line lead; what stands in code is none.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let pieces = line.split('`').step_by(2);
    let behind = pieces.flat_map(|piece| piece.split("](").skip(1));
    behind.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn broken(tree: &Tree, page: &Source, target: &str) -> Option<&'static str> {
    if target.contains(':') {
        return None; // another site, or mail
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => page.path.clone(),
        path => joined(&page.path, path),
    };
    let Some(file) = tree.file(&path) else {
        // A folder is no file of the tree, and a picture is no text.
        let is_there = process::root().join(&path).exists();
        return (!is_there).then_some("there is no such file");
    };
    let is_there = anchor.is_empty()
        || !path.ends_with(".md")
        || anchors(&file.text).iter().any(|own| own == anchor);
    (!is_there).then_some("the page has no such heading")
}

/// The path from the root of what a page names from its own folder.
fn joined(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// What links call the headings of a page; the second of one name has `-1` behind it.
fn anchors(text: &str) -> Vec<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        let Some((marks, heading)) = line.split_once(' ') else { continue };
        if marks.is_empty() || marks.contains(|c: char| c != '#') {
            continue;
        }
        let kept = |c: char| match c {
            ' ' => Some('-'),
            c => (c.is_alphanumeric() || "-_".contains(c)).then_some(c),
        };
        let name: String = heading.trim().to_lowercase().chars().filter_map(kept).collect();
        let before = times.entry(name.clone()).or_default();
        anchors.push(match *before {
            0 => name,
            count => format!("{name}-{count}"),
        });
        *before += 1;
    }
    anchors
}

fn tasks(page: &Source, found: &mut Vec<Finding>) {
    for (at, _) in page.text.match_indices(TASK) {
        let rest = &page.text[at + TASK.len()..];
        let Some(rest) = rest.strip_prefix([' ', '\n']) else { continue };
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        // A placeholder begins with a capital, and a flag is none of a task's.
        let is_task = name.is_empty()
            || name.starts_with('-')
            || name == "help"
            || SUBCOMMANDS.iter().any(|task| task.name == name);
        if !is_task {
            let line = line_of(&page.text, at);
            push(found, "task", page, line, format!("{TASK} {name}: there is no such task"));
        }
    }
}

fn summary(tree: &Tree, found: &mut Vec<Finding>) {
    let Some(summary) = tree.file(SUMMARY) else { return };
    for page in tree.files.iter().filter(|file| file.path != SUMMARY) {
        let Some(name) = page.path.strip_prefix(PAGES) else { continue };
        if name.ends_with(".md") && !summary.text.contains(&format!("]({name})")) {
            push(found, "book", page, 0, format!("{SUMMARY} does not list it"));
        }
    }
}

fn quotes(tree: &Tree, found: &mut Vec<Finding>) {
    let Some(page) = tree.file(SYMPTOMS) else { return };
    let product = |file: &&Source| file.path.starts_with("crates/") && !is_test_path(&file.path);
    let sources: Vec<String> = tree.rust().filter(product).map(|file| whole(&file.text)).collect();
    for (line, text) in prose(&page.text).filter(|(_, text)| text.starts_with('|')) {
        let cell = text.split('|').nth(1).unwrap_or_default();
        let quoted = cell.split('`').skip(1).step_by(2).flat_map(|span| span.split(ELLIPSIS));
        for words in quoted.map(str::trim).filter(|words| !words.is_empty()) {
            if !sources.iter().any(|source| source.contains(words)) {
                push(found, "quote", page, line, format!("no program says {words:?}"));
            }
        }
    }
}

/// A source whose strings are whole that go on in the next line.
fn whole(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |before, piece| before + piece.trim_start())
}
