//! The walks of a request in ARCHITECTURE.md: a cell of a fenced block that names a file is
//! followed by what happens there. The file exists, and it has each function that stands before
//! a colon.
//!
//! Cells are two spaces apart. A file is one of `crates/server/src`, or of the crate that its cell
//! names (`store's many.rs`). Words that stand below others in their column are about the same
//! file. What the functions do, and in which order, is not checked.

use super::words::push;
use super::{Finding, Source, Tree};
use std::collections::BTreeMap;

const PAGE: &str = "ARCHITECTURE.md";
/// The crate of a file whose cell names none.
const ROOM: &str = "server";

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    let Some(page) = tree.file(PAGE) else { return };
    // The file that the words in a column are about.
    let mut files: BTreeMap<usize, String> = BTreeMap::new();
    let mut fenced = false;
    for (index, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            files.clear();
        } else if fenced {
            step(tree, page, (index + 1, line), &mut files, found);
        }
    }
}

fn step(
    tree: &Tree,
    page: &Source,
    (line, text): (usize, &str),
    files: &mut BTreeMap<usize, String>,
    found: &mut Vec<Finding>,
) {
    let mut named = None;
    for (column, cell) in cells(text) {
        if let Some(path) = path(cell) {
            if tree.file(&path).is_none() {
                push(found, "walk", page, line, format!("{path}: there is no such file"));
            }
            named = Some(path);
            continue;
        }
        if let Some(path) = named.take() {
            files.insert(column, path);
        }
        let Some(file) = files.get(&column).and_then(|path| tree.file(path)) else { continue };
        for name in functions(cell).filter(|name| !has(file, name)) {
            push(found, "walk", page, line, format!("{} has no function {name}", file.path));
        }
    }
}

/// The cells of a line, each with the byte at which it begins.
fn cells(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = 0;
    line.split("  ").filter_map(move |piece| {
        let cell = piece.trim_start();
        let column = next + piece.len() - cell.len();
        next += piece.len() + "  ".len();
        (!cell.is_empty()).then_some((column, cell))
    })
}

/// Where the file is that a cell names.
fn path(cell: &str) -> Option<String> {
    let (room, file) = cell.split_once("'s ").unwrap_or((ROOM, cell));
    let is_file = file.ends_with(".rs") && !file.contains(' ');
    is_file.then(|| format!("crates/{room}/src/{file}"))
}

/// `a`, `b` and `c` of "a, b: they do this; c: it does that".
fn functions(cell: &str) -> impl Iterator<Item = &str> {
    let heads = cell.split("; ").filter_map(|part| part.split_once(": "));
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    heads.flat_map(|(names, _)| names.split(", ")).filter(move |name| name.chars().all(is_name))
}

fn has(file: &Source, function: &str) -> bool {
    ["(", "<"].iter().any(|open| file.text.contains(&format!("fn {function}{open}")))
}
