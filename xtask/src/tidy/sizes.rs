//! Functions, files and lines stay small; tests may be long.

use super::code::Function;
use super::words::push;
use super::{Finding, Source, Tree};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const LINE_COLUMNS_MAX: usize = 100;
/// What is written by hand in lines; tables of Markdown are not.
const COLUMN_SUFFIXES: &[&str] = &[".rs", ".sh", ".c", ".h", ".py"];

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        functions(file, found);
        file_lines(file, found);
    }
    for file in &tree.files {
        if COLUMN_SUFFIXES.iter().any(|suffix| file.path.ends_with(suffix)) {
            columns(file, found);
        }
    }
}

fn functions(file: &Source, found: &mut Vec<Finding>) {
    for function in file.code.functions() {
        let Function { name, line, lines } = function;
        if FUNCTION_LINES_MAX < lines && !file.code.is_test(line) {
            let text = format!("{name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
            push(found, "function-lines", file, line, text);
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
