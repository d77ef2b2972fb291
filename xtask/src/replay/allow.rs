//! The cases in which memcached leaves a script for good, tests-external/replay-allow.toml.

use super::play::Wrong;
use crate::process;

/// Where the list stands.
pub const PATH: &str = "tests-external/replay-allow.toml";

/// One allowed departure.
pub struct Difference {
    case: String,
    expected: String,
    memcached: String,
    /// Whether it was needed.
    used: bool,
}

/// The list.
pub struct Allowed {
    differences: Vec<Difference>,
}

impl Allowed {
    /// Reads the file.
    pub fn read() -> Result<Allowed, String> {
        let path = process::root().join(PATH);
        let text = std::fs::read_to_string(path).map_err(|e| format!("{PATH}: {e}"))?;
        Allowed::parse(&text)
    }

    fn parse(text: &str) -> Result<Allowed, String> {
        let table: toml::Table = text.parse().map_err(|e| format!("{PATH}: {e}"))?;
        let entries = table.get("difference").and_then(|d| d.as_array()).cloned();
        let mut differences = Vec::new();
        for entry in entries.unwrap_or_default() {
            let word = |name: &str| {
                let value = entry.get(name).and_then(|value| value.as_str());
                value.map(String::from).ok_or_else(|| format!("{PATH}: an entry lacks `{name}`"))
            };
            if word("reason")?.trim().is_empty() {
                return Err(format!("{PATH}: {}: an empty reason", word("case")?));
            }
            differences.push(Difference {
                case: word("case")?,
                expected: word("expected")?,
                memcached: word("memcached")?,
                used: false,
            });
        }
        Ok(Allowed { differences })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.differences.len()
    }

    /// Whether this departure is allowed; notes that its entry is needed.
    pub fn allows(&mut self, case: &str, wrong: &Wrong) -> bool {
        let fits = |d: &&mut Difference| {
            let begins = match d.memcached.as_str() {
                "" => wrong.got.is_empty(),
                memcached => wrong.got.starts_with(memcached),
            };
            d.case == case && d.expected == wrong.expected && begins
        };
        match self.differences.iter_mut().find(fits) {
            Some(difference) => {
                difference.used = true;
                true
            }
            None => false,
        }
    }

    /// The entries for played cases that were not needed, and those for cases that are gone.
    pub fn stale<'a>(&'a self, was_played: impl Fn(&str) -> bool + 'a) -> Vec<&'a str> {
        let stale = self.differences.iter().filter(|d| !d.used && was_played(&d.case));
        stale.map(|d| d.case.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[difference]]\ncase = \"a.txt: b\"\nexpected = \"MN\"\n\
                        memcached = \"ERROR\"\nreason = \"why\"\n";

    fn wrong(expected: &str, got: &str) -> Wrong {
        Wrong { line: 1, expected: expected.into(), got: got.into(), closed: false }
    }

    #[test]
    fn an_entry_allows_its_own_departure_and_no_other() {
        let mut allowed = Allowed::parse(TEXT).expect("a good list");
        assert!(!allowed.allows("a.txt: c", &wrong("MN", "ERROR\\r\\n")));
        assert!(!allowed.allows("a.txt: b", &wrong("EN", "ERROR\\r\\n")));
        assert!(!allowed.allows("a.txt: b", &wrong("MN", "MN\\r\\n")));
        assert_eq!(allowed.stale(|_| true), ["a.txt: b"]);
        assert!(allowed.allows("a.txt: b", &wrong("MN", "ERROR\\r\\n")));
        assert!(allowed.stale(|_| true).is_empty());
    }

    #[test]
    fn an_entry_gives_its_reason() {
        assert!(Allowed::parse(&TEXT.replace("why", " ")).is_err());
        assert!(Allowed::parse(&TEXT.replace("reason", "because")).is_err());
    }
}
