//! Counts the lines of the repository by what they are for (`cargo xtask tidy --count`).

use super::code::is_test_path;
use super::{Source, Tree};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What a file's lines serve, by the first entry whose path begins the file's.
const KINDS: &[(&str, &str)] = &[
    ("crates/sim/", "research"),
    ("crates/studies/", "research"),
    ("crates/load/", "load generator"),
    ("crates/rig/", "simulation"),
    ("crates/vopr/", "simulation"),
    ("crates/certs/", "tools"),
    ("crates/", "product"),
    ("xtask/", "tools"),
    ("bench/", "tools"),
    ("fuzz/", "tools"),
];

/// The order of the table.
const ROWS: &[&str] = &["product", "research", "load generator", "simulation", "tools"];

/// Lines of one kind. A line of code has more than spaces and comments on it.
#[derive(Default, Clone, Copy, Debug, PartialEq)]
pub struct Lines {
    /// Lines outside tests, with comments and blank lines.
    written: usize,
    /// Those of them that hold code.
    code: usize,
    /// Lines of unit tests inside the same files.
    unit: usize,
    /// Lines of files that are tests, examples or benches as a whole.
    tests: usize,
}

impl Lines {
    fn add(&mut self, other: Lines) {
        self.written += other.written;
        self.code += other.code;
        self.unit += other.unit;
        self.tests += other.tests;
    }
}

/// The table of one tree: a row for each kind, the product's crates beneath it.
pub fn table(tree: &Tree) -> String {
    let mut text = format!("{:<18}{:>9}{:>9}{:>9}{:>9}\n", "", "lines", "code", "unit", "tests");
    for kind in ROWS {
        row(&mut text, kind, of(tree, |file| kind_of(file) == Some(kind)));
        if *kind == "product" {
            let product = |file: &Source| kind_of(file) == Some("product");
            let files = tree.rust().filter(|file| product(file));
            for name in files.map(Source::room).collect::<BTreeSet<&str>>() {
                let lines = of(tree, |file| product(file) && file.room() == name);
                row(&mut text, &format!("  {name}"), lines);
            }
        }
    }
    row(&mut text, "all", of(tree, |file| kind_of(file).is_some()));
    let pages = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let pages: usize = pages.map(|file| file.text.lines().count()).sum();
    let _ = writeln!(text, "{:<18}{pages:>9}", "pages (.md)");
    text
}

fn row(text: &mut String, name: &str, lines: Lines) {
    let Lines { written, code, unit, tests } = lines;
    let _ = writeln!(text, "{name:<18}{written:>9}{code:>9}{unit:>9}{tests:>9}");
}

fn of(tree: &Tree, mut wanted: impl FnMut(&Source) -> bool) -> Lines {
    let mut sum = Lines::default();
    for file in tree.rust().filter(|file| wanted(file)) {
        sum.add(lines(file));
    }
    sum
}

/// What a file is for; nothing where it is not counted.
pub fn kind_of(file: &Source) -> Option<&'static str> {
    KINDS.iter().find(|(prefix, _)| file.path.starts_with(prefix)).map(|(_, kind)| *kind)
}

fn lines(file: &Source) -> Lines {
    let all = file.text.lines().count();
    let aside = |part: &str| file.path.contains(&format!("/{part}/"));
    if is_test_path(&file.path) || aside("examples") || aside("benches") {
        return Lines { tests: all, ..Lines::default() };
    }
    let unit = (1..=all).filter(|&line| file.code.is_test(line)).count();
    let code = file.code.lines();
    let code = code.filter(|(line, text)| !text.trim().is_empty() && !file.code.is_test(*line));
    Lines { written: all - unit, code: code.count(), unit, tests: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_kind() {
        let text = "//! Says.\n\nfn f() {} // one\n\n#[cfg(test)]\nmod tests {\n}\n";
        let file = Source::new("crates/server/src/a.rs", text);
        assert_eq!(lines(&file), Lines { written: 4, code: 1, unit: 3, tests: 0 });
        let test = Source::new("crates/server/tests/a.rs", text);
        assert_eq!(lines(&test), Lines { tests: 7, ..Lines::default() });
        let rival = Source::new("crates/studies/src/rivals/a.rs", text);
        assert_eq!((kind_of(&file), kind_of(&rival)), (Some("product"), Some("research")));
        assert_eq!(kind_of(&Source::new("docs/a.rs", text)), None);
        let table = table(&Tree { files: vec![file, test, rival] });
        let row = |name: &str| {
            let line = table.lines().find(|line| line.trim_start().starts_with(name))?;
            Some(line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(row("server"), Some(["4", "1", "3", "7"].map(str::to_owned).to_vec()));
        assert_eq!(row("all"), Some(["8", "2", "6", "7"].map(str::to_owned).to_vec()));
    }
}
