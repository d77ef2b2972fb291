//! Public items of the product that only tests use. rustc takes whatever is public for somebody's,
//! so no lint tells that it is dead.
//!
//! An item is used by nobody if its name stands only where such items are declared. Text is read,
//! not types: who shares its name with something that is used passes. The harness of the server's
//! tests (`rig`), examples, fuzz targets and benchmarks are users like any other.

use super::code::{is_word, line_of, word_positions};
use super::count::kind_of;
use super::words::push;
use super::{Finding, Source, Tree};
use std::collections::{BTreeMap, HashMap};

const KINDS: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "union"];

/// Such items that stay, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("connect_udp", "the library's: a way to connect where nobody listens on TCP"),
    ("try_frame", "the kernel's verdict on a frame, without an interface that it comes by"),
    ("would_lead", "the same of the program that leads packets past the stack"),
    ("verified_instructions", "the verifier's count, which tests hold below its limit"),
    ("MARK_MAX", "a number that the C source repeats, and that a test compares"),
    ("plus_seconds", "time passes in tests alone; a server reads its clock"),
    ("buffer_bytes", "what is left of buffers, to find one that was never given back"),
    ("shared_with", "the count of lines that two threads share, which a test bounds"),
    ("connect_from", "a client of the transport in memory, which servers have in tests alone"),
    ("refuse_watching", "a fault of the transport in memory"),
];
/// Where they stand.
const OWN: &str = "xtask/src/tidy/unused.rs";

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    let codes: Vec<(&Source, String)> =
        tree.rust().map(|file| (file, file.code.without_tests())).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut declared: BTreeMap<&str, Vec<(&Source, usize)>> = BTreeMap::new();
    for (file, code) in &codes {
        code.split(|c| !is_word(c)).for_each(|word| *counts.entry(word).or_default() += 1);
        if kind_of(file) == Some("product") {
            for (name, line) in public_items(code) {
                declared.entry(name).or_default().push((*file, line));
            }
        }
    }
    for (name, places) in &declared {
        let is_allowed = ALLOWED.iter().any(|(allowed, _)| allowed == name);
        let what = match (counts[name] == places.len(), is_allowed) {
            (true, false) => "is public, and nobody but a test uses it",
            (false, true) => "is used: ALLOWED of tidy/unused.rs need not have it",
            _ => continue,
        };
        for (file, line) in places {
            push(found, "unused-public", file, *line, format!("`{name}` {what}"));
        }
    }
    let Some(own) = tree.file(OWN) else { return };
    for (name, _) in ALLOWED.iter().filter(|(name, _)| !declared.contains_key(name)) {
        push(found, "unused-public", own, 0, format!("`{name}` is gone: take it out of ALLOWED"));
    }
}

/// The names of items that are public without bounds, and their lines.
fn public_items(code: &str) -> impl Iterator<Item = (&str, usize)> {
    word_positions(code, "pub").into_iter().filter_map(move |at| {
        let mut words = code[at + "pub".len()..].split_whitespace().peekable();
        let mut kind = words.next()?;
        while matches!(kind, "unsafe" | "async") || (kind, words.peek()) == ("const", Some(&"fn")) {
            kind = words.next()?;
        }
        let name = words.next()?.split(|c| !is_word(c)).next()?;
        (KINDS.contains(&kind) && !name.is_empty()).then(|| (name, line_of(code, at)))
    })
}
