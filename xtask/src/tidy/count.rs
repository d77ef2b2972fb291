//! Counts the lines of the repository by what they are for (`cargo xtask tidy --count`).

use super::code::is_test_path;
use super::{RULES, Source, Tree};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The order of the table.
const ROWS: &[&str] = &["product", "research", "load generator", "simulation", "tools"];

/// Lines of one kind: those outside tests, with comments and blank lines; those of them that hold
/// code; lines of unit tests inside the same files; and lines of files that are tests, examples or
/// benches as a whole. A line of code has more than spaces and comments on it.
type Lines = [usize; 4];

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

fn row(text: &mut String, name: &str, [written, code, unit, tests]: Lines) {
    let _ = writeln!(text, "{name:<18}{written:>9}{code:>9}{unit:>9}{tests:>9}");
}

fn of(tree: &Tree, mut wanted: impl FnMut(&Source) -> bool) -> Lines {
    let each = tree.rust().filter(|file| wanted(file)).map(lines);
    each.fold([0; 4], |sum, file| std::array::from_fn(|at| sum[at] + file[at]))
}

/// What a file is for; nothing where it is not counted.
pub fn kind_of(file: &Source) -> Option<&'static str> {
    let mut kinds = RULES.kinds.iter();
    let found = kinds.find(|(prefix, _)| file.path.starts_with(prefix));
    found.map(|(_, kind)| kind.as_str())
}

fn lines(file: &Source) -> Lines {
    let all = file.text.lines().count();
    let aside = |part: &str| file.path.contains(&format!("/{part}/"));
    if is_test_path(&file.path) || aside("examples") || aside("benches") {
        return [0, 0, 0, all];
    }
    let unit = (1..=all).filter(|&line| file.code.is_test(line)).count();
    let code = file.code.lines();
    let code = code.filter(|(line, text)| !text.trim().is_empty() && !file.code.is_test(*line));
    [all - unit, code.count(), unit, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_kind() {
        let text = "//! Says.\n\nfn f() {} // one\n\n#[cfg(test)]\nmod tests {\n}\n";
        let file = Source::new("crates/server/src/a.rs", text);
        assert_eq!(lines(&file), [4, 1, 3, 0]);
        let test = Source::new("crates/server/tests/a.rs", text);
        assert_eq!(lines(&test), [0, 0, 0, 7]);
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
