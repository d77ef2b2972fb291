//! No two files of a crate may use each other, not even through a third.
//!
//! A file and the files below it are one nest: what a file takes from the one it is nested in is no
//! edge, or every `mod.rs` that holds a type for its parts would be a cycle. Neighbours have none.
//! Reads paths (`crate::a::B`, `super::c`, `child::d`, use-trees), not types. A name that a file
//! only re-exports leads on to where it comes from, and a `pub use` is no use. Tests are left out.
//! A path is followed to the file of its longest prefix.
//!
//! A file may give methods to a type of another file. Whoever calls one uses that file, though no
//! path says so: in [`METHODS_COUNTED`] a call by a name that only one file gives to somebody
//! else's type, and no type has where it is declared, is an edge, too.

use super::code::{is_word, word_positions};
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;

/// Crates where method calls count, too. The others have such cycles still.
const METHODS_COUNTED: &[&str] = &["crates/server"];

/// The non-test files of one crate, by module path.
#[derive(Default)]
struct Modules {
    files: BTreeMap<Path, Module>,
    counts_methods: bool,
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
        modules.counts_methods = METHODS_COUNTED.contains(&root.as_str());
        for cycle in cycles(&modules.edges()) {
            let names: Vec<&str> = cycle.iter().map(|p| modules.files[p].file.as_str()).collect();
            let below = |name: &&str| name.trim_start_matches(&format!("{root}/src/")).to_string();
            let names: Vec<String> = names.iter().map(below).collect();
            found.push(Finding {
                rule: "cycle",
                subject: format!("{root} {}", names.join(" ")),
                line: 0,
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
        let given = self.given_methods();
        for (path, module) in &self.files {
            let targets = self.uses(path, &module.code).into_iter();
            let used = targets.filter(|(public, _)| !public).map(|(_, target)| self.owner(target));
            let called = called(&module.code).filter_map(|name| given.get(name)?.clone());
            let used = used.chain(called.filter(|owner| owner != path));
            let used = used.filter(|owner| !path.starts_with(owner)).collect();
            edges.insert(path.clone(), used);
        }
        edges
    }

    /// The file that gives a method of this name to a type of another file; `None` where that is
    /// not the only method of its name.
    fn given_methods(&self) -> BTreeMap<&str, Option<Path>> {
        let mut given: BTreeMap<&str, Option<Path>> = BTreeMap::new();
        for (path, module) in self.files.iter().filter(|_| self.counts_methods) {
            for (kind, name) in methods(&module.code) {
                let is_own = declares(&module.code, kind);
                let file = (!is_own).then(|| path.clone());
                given.entry(name).and_modify(|known| *known = None).or_insert(file);
            }
        }
        given
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

/// The methods of a file's own `impl` blocks, each with the name of the block's type. A block's
/// first line and its last begin where a line does, and so does no other within it.
fn methods(code: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut block = None;
    for line in code.lines() {
        if line.starts_with("impl") {
            block = (!line.contains(" for ")).then(|| type_of(line));
        } else if line.starts_with('}') {
            block = None;
        } else if let (Some(kind), Some(at)) = (block, word_positions(line, "fn").first()) {
            let name = line[at + "fn".len()..].trim_start();
            let end = name.find(|c: char| !is_word(c)).unwrap_or(name.len());
            if line.starts_with("    ") && !line.starts_with("     ") && end > 0 {
                found.push((kind, &name[..end]));
            }
        }
    }
    found
}

/// The type of `impl<A: B<C>> path::Type<A> {`.
fn type_of(line: &str) -> &str {
    let mut depth = 0;
    let mut rest = &line["impl".len()..];
    if rest.starts_with('<') {
        let end = rest.char_indices().find(|(at, c)| {
            let is_arrow = *at > 0 && rest[..*at].ends_with('-');
            depth += i32::from(*c == '<') - i32::from(*c == '>' && !is_arrow);
            depth == 0
        });
        rest = end.map_or("", |(at, _)| &rest[at + 1..]);
    }
    let path = rest.trim_start();
    let end = path.find(|c: char| !is_word(c) && c != ':').unwrap_or(path.len());
    path[..end].rsplit("::").next().unwrap_or_default()
}

/// Whether the file says what the type is.
fn declares(code: &str, name: &str) -> bool {
    word_positions(code, name).into_iter().any(|at| {
        let before = code[..at].trim_end();
        ["struct", "enum", "union", "trait"].iter().any(|word| before.ends_with(word))
    })
}

/// Names that are called as methods or by a path: `.name(`, `::name(`.
fn called(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices(['(', '<']).filter_map(|(at, _)| {
        let before = code[..at].trim_end_matches("::");
        let start = before.rfind(|c: char| !is_word(c)).map_or(0, |last| last + 1);
        let is_call = before[..start].ends_with('.') || before[..start].ends_with("::");
        (is_call && start < before.len()).then(|| &before[start..])
    })
}
