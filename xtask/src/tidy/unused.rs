//! Public items of the product that only tests use. rustc takes whatever is public for somebody's,
//! so no lint tells that it is dead.
//!
//! An item is used by nobody if its name stands only where such items are declared. Text is read,
//! not types: who shares its name with something that is used passes. The harness of the server's
//! tests (`rig`), examples, fuzz targets and benchmarks are users like any other.

use super::code::{is_word, line_of, word_positions};
use super::count::kind_of;
use super::words::push;
use super::{Finding, RULES, Source, Tree};
use std::collections::{BTreeMap, HashMap};

const KINDS: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "union"];

/// Where those stand that stay.
const OWN: &str = "xtask/src/tidy/rules.toml";

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
        let is_allowed = RULES.unused.contains_key(*name);
        let what = match (counts[name] == places.len(), is_allowed) {
            (true, false) => "is public, and nobody but a test uses it",
            (false, true) => "is used: `unused` of tidy/rules.toml need not have it",
            _ => continue,
        };
        for (file, line) in places {
            push(found, "unused-public", file, *line, format!("`{name}` {what}"));
        }
    }
    let Some(own) = tree.file(OWN) else { return };
    for name in RULES.unused.keys().filter(|name| !declared.contains_key(name.as_str())) {
        push(found, "unused-public", own, 0, format!("`{name}` is gone: take it out"));
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
