//! No two files of a crate may use each other, not even through a third.
//!
//! A file and the files below it are one nest: what a file takes from the one it is nested in is no
//! edge, or every `mod.rs` that holds a type for its parts would be a cycle. Neighbours have none.
//! Reads paths (`crate::a::B`, `super::c`, `child::d`, use-trees), not types: a method call on a
//! value is no edge. A name that a file only re-exports leads on to where it comes from, and a
//! `pub use` is no use. Tests are left out. A path is followed to the file of its longest prefix.

use super::code::{is_word, word_positions};
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;

/// The non-test files of one crate, by module path.
#[derive(Default)]
struct Modules {
    files: BTreeMap<Path, Module>,
}

struct Module {
    file: String,
    code: String,
    /// Names that this file re-exports, and the full path of each.
    exports: BTreeMap<String, Path>,
}

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for file in tree.rust() {
        let Some((root, below)) = file.path.split_once("/src/") else { continue };
        if super::code::is_test_path(&file.path) || below.starts_with("bin/") {
            continue;
        }
        let code = file.code.without_tests();
        let module = Module { file: file.path.clone(), code, exports: BTreeMap::new() };
        crates.entry(root.into()).or_default().files.insert(module_path(below), module);
    }
    for (root, mut modules) in crates {
        modules.read_exports();
        for cycle in cycles(&modules.edges()) {
            let names: Vec<&str> = cycle.iter().map(|p| modules.files[p].file.as_str()).collect();
            let below = |name: &&str| name.trim_start_matches(&format!("{root}/src/")).to_string();
            let names: Vec<String> = names.iter().map(below).collect();
            found.push(Finding {
                rule: "cycle",
                subject: format!("{root} {}", names.join(" ")),
                line: 0,
                measure: names.len(),
                text: "these files use each other".into(),
            });
        }
    }
}

/// `a/b.rs` and `a/b/mod.rs` are `[a, b]`; `lib.rs` and `main.rs` are `[]`.
fn module_path(below: &str) -> Path {
    let stem = below.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem {
        "lib" | "main" | "mod" => Vec::new(),
        _ => stem.split('/').map(String::from).collect(),
    }
}

impl Modules {
    fn read_exports(&mut self) {
        let mut all = Vec::new();
        for (path, module) in &self.files {
            for (public, target) in self.uses(path, &module.code) {
                if let (true, Some(name)) = (public, target.last()) {
                    all.push((path.clone(), name.clone(), target.clone()));
                }
            }
        }
        for (path, name, target) in all {
            if let Some(module) = self.files.get_mut(&path) {
                module.exports.insert(name, target);
            }
        }
    }

    /// Which file uses which.
    fn edges(&self) -> BTreeMap<Path, BTreeSet<Path>> {
        let mut edges: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (path, module) in &self.files {
            let targets = self.uses(path, &module.code).into_iter();
            let used = targets.filter(|(public, _)| !public).map(|(_, target)| self.owner(target));
            let used = used.filter(|owner| !path.starts_with(owner)).collect();
            edges.insert(path.clone(), used);
        }
        edges
    }

    /// The file a path leads to, through re-exports.
    fn owner(&self, mut target: Path) -> Path {
        // A chain of re-exports is short; the bound is against two that name each other.
        for _ in 0..8 {
            let mut held = target.len();
            while 0 < held && !self.files.contains_key(&target[..held]) {
                held -= 1;
            }
            let Some(module) = self.files.get(&target[..held]) else { break };
            let next = target.get(held).and_then(|name| module.exports.get(name));
            match next {
                Some(next) if *next != target => target = next.clone(),
                _ => {
                    target.truncate(held);
                    return target;
                }
            }
        }
        target.clear();
        target
    }

    /// Every path into this crate in the code of `here`, and whether it stands in a `pub use`.
    fn uses(&self, here: &Path, code: &str) -> Vec<(bool, Path)> {
        let mut found = Vec::new();
        let mut starts: Vec<(String, Path)> = vec![("crate".into(), Vec::new())];
        starts.push(("self".into(), here.clone()));
        if let Some((_, parent)) = here.split_last() {
            starts.push(("super".into(), parent.to_vec()));
        }
        for child in self.files.keys().filter(|path| path.len() == here.len() + 1) {
            if child.starts_with(here) {
                starts.push((child[here.len()].clone(), child.clone()));
            }
        }
        for (word, base) in starts {
            for at in word_positions(code, &word) {
                let before = code[..at].trim_end();
                let rest = &code[at + word.len()..];
                let inside = before.ends_with("::") || before.ends_with('.');
                if inside || !rest.starts_with("::") {
                    continue;
                }
                let public = before.ends_with("use") && is_public(before.trim_end_matches("use"));
                for tail in use_tree(&rest[2..]).0 {
                    found.push((public, joined(&base, &tail)));
                }
            }
        }
        found
    }
}

/// Whether what stands before a `use` makes it a re-export: `pub`, `pub(crate)` and the like.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let word = match before.strip_suffix(')') {
        Some(head) => head.rsplit_once('(').map_or("", |(head, _)| head),
        None => before,
    };
    word.ends_with("pub")
}

fn joined(base: &Path, tail: &[String]) -> Path {
    let mut path = base.clone();
    for name in tail {
        match name.as_str() {
            "super" => {
                path.pop();
            }
            "self" => {}
            _ => path.push(name.clone()),
        }
    }
    path
}

/// The paths of `a::{b, c::d}`, and how many bytes of `text` they take.
fn use_tree(text: &str) -> (Vec<Path>, usize) {
    let skipped = text.len() - text.trim_start().len();
    let body = &text[skipped..];
    if let Some(inside) = body.strip_prefix('{') {
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            let (paths, length) = use_tree(&inside[at..]);
            all.extend(paths);
            at += length;
            // `as other`, spaces and commas up to the next name or the end of the group.
            match inside[at..].find([',', '}']) {
                Some(offset) if inside[at + offset..].starts_with(',') => at += offset + 1,
                Some(offset) => return (all, skipped + 1 + at + offset + 1),
                None => return (all, text.len()),
            }
        }
    }
    let name: String = body.chars().take_while(|c| is_word(*c)).collect();
    let mut length = skipped + name.len();
    if name.is_empty() {
        return (vec![Vec::new()], length);
    }
    let Some(rest) = text[length..].strip_prefix("::") else {
        return (vec![vec![name]], length);
    };
    let (tails, taken) = use_tree(rest);
    length += 2 + taken;
    let whole = |tail: Path| [vec![name.clone()], tail].concat();
    (tails.into_iter().map(whole).collect(), length)
}

/// The groups of files that can reach each other.
fn cycles(edges: &BTreeMap<Path, BTreeSet<Path>>) -> Vec<Vec<Path>> {
    let reach: BTreeMap<&Path, BTreeSet<&Path>> =
        edges.keys().map(|from| (from, reachable(edges, from))).collect();
    let mut groups: Vec<Vec<Path>> = Vec::new();
    for path in edges.keys() {
        let known = groups.iter().any(|group| group.contains(path));
        if known || !reach[path].contains(path) {
            continue;
        }
        let both = |other: &&Path| reach[path].contains(*other) && reach[*other].contains(path);
        groups.push(edges.keys().filter(both).cloned().collect());
    }
    groups
}

fn reachable<'a>(edges: &'a BTreeMap<Path, BTreeSet<Path>>, from: &Path) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Path> = edges[from].iter().collect();
    while let Some(path) = next.pop() {
        if found.insert(path) {
            next.extend(&edges[path]);
        }
    }
    found
}
