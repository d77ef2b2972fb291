//! redis-py's own tests, those that tests-external/redis/suite.txt picks.
//!
//! A test that must fail and passes is told as well: the list would say what is not so.

use crate::{process, python};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What is expected of a picked test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    Passes,
    Fails,
    Either,
}

const LISTS: [(&str, Wanted); 3] =
    [("[passes]", Wanted::Passes), ("[fails]", Wanted::Fails), ("[either]", Wanted::Either)];

/// Runs the picked tests against the server at `port`; a line of what came out.
pub fn run(python: &Path, glue: &Path, port: u16) -> Result<String, String> {
    let text = process::read(glue.join("suite.txt"))?;
    let picked = parse(&text)?;
    let suite = python::sources(python, "redis", &glue.join("sdist.txt"))?;
    let names = process::scratch_dir("redis")?.join("picked.txt");
    let lines: String = picked.iter().map(|(test, _)| format!("{test}\n")).collect();
    process::write(&names, lines)?;
    let mut command = Command::new(python);
    command.current_dir(suite).args(["-m", "pytest", "-c"]).arg(glue.join("pytest.ini"));
    command.args(["--rootdir", ".", "-p", "no:cacheprovider", "-q", "-rA", "--tb=line"]);
    command.arg("--redis-url").arg(format!("redis://127.0.0.1:{port}/0"));
    // The summary's lines are cut at so many columns, and a test's name must be whole.
    command.arg(format!("@{}", names.display())).env("COLUMNS", "400");
    let (status, text) = process::capture(&mut command)?;
    let passed: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("PASSED ")).map(str::trim).collect();
    let judged = judge(&picked, &passed);
    if judged.is_err() {
        print!("{text}");
    }
    // 0: all passed, 1: some did not. Anything else: it did not run.
    match status.code() {
        Some(0 | 1) => judged,
        _ => {
            print!("{text}");
            Err(format!("pytest ended with {}", process::told(status)))
        }
    }
}

/// What each test did, beside what the lists want of it.
fn judge(picked: &[(&str, Wanted)], passed: &BTreeSet<&str>) -> Result<String, String> {
    let of = |wanted: Wanted, does_pass: bool| -> Vec<&str> {
        let rows = picked.iter().filter(|row| row.1 == wanted);
        rows.map(|row| row.0).filter(|test| passed.contains(test) == does_pass).collect()
    };
    let (worse, better) = (of(Wanted::Passes, false), of(Wanted::Fails, true));
    if !worse.is_empty() {
        return Err(format!("of redis-py's tests must pass and do not: {}", worse.join(", ")));
    }
    if !better.is_empty() {
        return Err(format!(
            "suite.txt says that these fail, and they pass: {}",
            better.join(", ")
        ));
    }
    let failing = of(Wanted::Fails, false).len() + of(Wanted::Either, false).len();
    Ok(format!("{} of redis-py's own tests, {failing} fail for known causes", passed.len()))
}

fn parse(text: &str) -> Result<Vec<(&str, Wanted)>, String> {
    let mut list = None;
    let mut picked: Vec<(&str, Wanted)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some((_, wanted)) = LISTS.iter().find(|(title, _)| *title == line) {
            list = Some(*wanted);
            continue;
        }
        let wanted = list.ok_or_else(|| format!("suite.txt: `{line}` is on no list"))?;
        if !line.contains("::") || picked.iter().any(|(test, _)| *test == line) {
            return Err(format!("suite.txt: `{line}` is no test, or listed twice"));
        }
        picked.push((line, wanted));
    }
    Ok(picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[passes]\na::one\n[fails]\n# why\na::two\n[either]\n# why\na::three\n";

    #[test]
    fn a_list_says_what_is_wanted_of_a_test() {
        let wanted =
            [("a::one", Wanted::Passes), ("a::two", Wanted::Fails), ("a::three", Wanted::Either)];
        assert_eq!(parse(TEXT).expect("a good list"), wanted);
        assert!(parse("a::one\n").is_err(), "a test on no list");
        assert!(parse("[passes]\none\n").is_err(), "no test");
        assert!(parse("[passes]\na::one\n[fails]\na::one\n").is_err(), "on two lists");
    }

    #[test]
    fn tests_that_do_not_as_listed_are_told() {
        let picked = parse(TEXT).expect("a good list");
        let judged = |passed: &[&str]| judge(&picked, &passed.iter().copied().collect());
        let told = judged(&["a::one"]).expect("as listed");
        assert_eq!(told, "1 of redis-py's own tests, 2 fail for known causes");
        assert!(judged(&["a::one", "a::three"]).is_ok());
        assert!(judged(&[]).is_err_and(|why| why.ends_with("do not: a::one")));
        assert!(judged(&["a::one", "a::two"]).is_err_and(|why| why.ends_with("pass: a::two")));
    }
}
