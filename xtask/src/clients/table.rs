//! The table of docs/clients.md: what each client's script said at its end.

use super::list::{CLIENTS, Client};
use crate::{Failure, process};

const BEGIN: &str = "<!-- cargo xtask clients --write -->\n";
const END: &str = "<!-- end -->\n";
const HEAD: &str =
    "| client | language | version | protocols | what to know |\n|---|---|---|---|---|\n";

/// A line of the table.
pub struct Row {
    name: &'static str,
    is_pinned: bool,
    line: String,
}

impl Row {
    /// Of what its script said: `NAME VERSION (PROTOCOLS): N checks`.
    pub fn of(client: &'static Client, said: &str) -> Result<Row, String> {
        let (version, protocols) = parts(&client.name, said)
            .ok_or_else(|| format!("{}: it said {said:?}", client.name))?;
        let Client { name, language, is_debians, advice, .. } = client;
        let from = if *is_debians { " (Debian's)" } else { "" };
        let line = format!("| {name} | {language} | {version}{from} | {protocols} | {advice} |\n");
        Ok(Row { name, is_pinned: !is_debians, line })
    }
}

fn parts<'a>(name: &str, said: &'a str) -> Option<(&'a str, &'a str)> {
    let (version, rest) = said.strip_prefix(name)?.strip_prefix(' ')?.split_once(" (")?;
    let (protocols, checks) = rest.split_once("): ")?;
    checks.ends_with(" checks").then_some((version, protocols))
}

/// Writes these rows into the table; or fails where a pinned one is not in it as it is.
pub fn keep(rows: &[Row], write: bool) -> Result<(), Failure> {
    let path = process::root().join("docs").join("clients.md");
    let text = process::read(&path)?;
    let fresh = with(&text, rows).ok_or_else(|| format!("{}: no table", path.display()))?;
    if write {
        return Ok(process::write(&path, fresh)?);
    }
    let stale: Vec<&str> = rows
        .iter()
        .filter(|row| row.is_pinned && !text.contains(&row.line))
        .map(|row| row.name)
        .collect();
    match stale.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "docs/clients.md does not say what came out for {}: cargo xtask clients --write",
            stale.join(", ")
        ))),
    }
}

/// The text with these rows in its table, in the order of the list; others stay as they are.
fn with(text: &str, rows: &[Row]) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    let old = |name: &str| table.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let lines =
        CLIENTS.iter().filter_map(|client| match rows.iter().find(|row| row.name == client.name) {
            Some(row) => Some(row.line.clone()),
            None => old(&client.name).map(|line| format!("{line}\n")),
        });
    let lines: String = lines.collect();
    Some(format!("{before}{BEGIN}{HEAD}{lines}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_s_last_line_is_a_row_or_an_error() {
        let npm = "memcached (npm)";
        for (name, said, expected) in [
            (npm, "memcached (npm) 2.2.2 (text): 328 checks", Some(("2.2.2", "text"))),
            ("dalli", "dalli 3.0.6 (binary, meta): 5 checks", Some(("3.0.6", "binary, meta"))),
            ("dalli", "dalli 3.0.6 (binary): failed", None),
            ("dalli", "no such file", None),
        ] {
            assert_eq!(parts(name, said), expected);
        }
    }

    #[test]
    fn a_row_takes_its_place_and_the_others_stay() {
        let client = |name: &str| CLIENTS.iter().find(|client| client.name == name).unwrap();
        let row = |name: &str, version: &str| {
            Row::of(client(name), &format!("{name} {version} (text): 1 checks")).unwrap()
        };
        let text = format!("a\n{BEGIN}{END}b\n");
        let two = with(&text, &[row("dalli", "1"), row("memjs", "1")]).unwrap();
        let memjs = two.find("| memjs |").unwrap();
        assert!(memjs < two.find("| dalli |").unwrap());
        let newer = with(&two, &[row("memjs", "2")]).unwrap();
        assert!(newer.contains("| memjs | JavaScript | 2 | text |"), "{newer}");
        assert!(newer.contains("| 1 (Debian's) | text |"), "{newer}");
        assert!(newer.starts_with("a\n") && newer.ends_with("b\n"));
        assert_eq!(with("no table", &[]), None);
    }
}
