//! Files and lines stay small; tests may be long. Long functions are clippy's (`too_many_lines`).

use super::words::push;
use super::{Finding, Source, Tree};

const FILE_LINES_MAX: usize = 600;
const LINE_COLUMNS_MAX: usize = 100;
/// What is written by hand in lines; tables of Markdown are not.
const COLUMN_SUFFIXES: &[&str] = &[".rs", ".sh", ".c", ".h", ".py"];

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        file_lines(file, found);
    }
    for file in &tree.files {
        if COLUMN_SUFFIXES.iter().any(|suffix| file.path.ends_with(suffix)) {
            columns(file, found);
        }
    }
}

fn file_lines(file: &Source, found: &mut Vec<Finding>) {
    let lines = file.code.lines().filter(|(line, _)| !file.code.is_test(*line)).count();
    if FILE_LINES_MAX < lines {
        let text = format!("{lines} lines besides its tests, at most {FILE_LINES_MAX}");
        push(found, "file-lines", file, 0, text);
    }
}

fn columns(file: &Source, found: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if LINE_COLUMNS_MAX < columns {
            let text = format!("{columns} columns, at most {LINE_COLUMNS_MAX}");
            push(found, "line-columns", file, index + 1, text);
        }
    }
}
