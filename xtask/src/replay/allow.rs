//! The cases in which memcached leaves a script for good, tests-external/replay-allow.toml.

use super::play::Wrong;
use crate::process;
use serde::Deserialize;

/// Where the list stands.
pub const PATH: &str = "tests-external/replay-allow.toml";

/// One allowed departure.
#[derive(Deserialize)]
pub struct Difference {
    case: String,
    /// The version of memcached that it speaks of; none means every one.
    version: Option<String>,
    expected: String,
    memcached: String,
    reason: String,
    /// The versions that needed it.
    #[serde(skip)]
    used: Vec<String>,
}

impl Difference {
    fn speaks_of(&self, version: &str) -> bool {
        self.version.as_deref().is_none_or(|own| own == version)
    }
}

/// The list.
#[derive(Default, Deserialize)]
pub struct Allowed {
    #[serde(default, rename = "difference")]
    differences: Vec<Difference>,
}

impl Allowed {
    /// Reads the file.
    pub fn read() -> Result<Allowed, String> {
        Allowed::parse(&process::read(process::root().join(PATH))?)
    }

    fn parse(text: &str) -> Result<Allowed, String> {
        let allowed: Allowed = toml::from_str(text).map_err(|e| format!("{PATH}: {e}"))?;
        match allowed.differences.iter().find(|entry| entry.reason.trim().is_empty()) {
            Some(entry) => Err(format!("{PATH}: {}: an empty reason", entry.case)),
            None => Ok(allowed),
        }
    }

    /// How many entries speak of a version.
    pub fn count(&self, version: &str) -> usize {
        self.differences.iter().filter(|difference| difference.speaks_of(version)).count()
    }

    /// Whether this departure of a version is allowed; notes that its entry is needed.
    pub fn allows(&mut self, version: &str, case: &str, wrong: &Wrong) -> bool {
        let fits = |d: &&mut Difference| {
            let begins = match d.memcached.as_str() {
                "" => wrong.got.is_empty(),
                memcached => wrong.got.starts_with(memcached),
            };
            d.case == case && d.speaks_of(version) && d.expected == wrong.expected && begins
        };
        match self.differences.iter_mut().find(fits) {
            Some(difference) => {
                difference.used.push(version.to_owned());
                true
            }
            None => false,
        }
    }

    /// The entries that a version did not need, also those for cases that are gone.
    pub fn stale(&self, version: &str) -> Vec<&str> {
        let unused = |d: &&Difference| d.speaks_of(version) && !d.used.iter().any(|v| v == version);
        self.differences.iter().filter(unused).map(|d| d.case.as_str()).collect()
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
        for (case, expected, got, is_allowed) in [
            ("a.txt: c", "MN", "ERROR\\r\\n", false),
            ("a.txt: b", "EN", "ERROR\\r\\n", false),
            ("a.txt: b", "MN", "MN\\r\\n", false),
            ("a.txt: b", "MN", "ERROR\\r\\n", true),
        ] {
            assert_eq!(allowed.stale("1.6.45"), ["a.txt: b"]);
            assert_eq!(allowed.allows("1.6.45", case, &wrong(expected, got)), is_allowed, "{got}");
        }
        assert!(allowed.stale("1.6.45").is_empty());
        assert_eq!(allowed.stale("1.6.18"), ["a.txt: b"], "the other needs it, too");
        // One of another version, and those without a reason.
        let one = TEXT.replace("reason", "version = \"1.6.18\"\nreason");
        let mut allowed = Allowed::parse(&one).expect("a good list");
        assert!(!allowed.allows("1.6.45", "a.txt: b", &wrong("MN", "ERROR\\r\\n")));
        assert!(allowed.stale("1.6.45").is_empty() && !allowed.stale("1.6.18").is_empty());
        assert!(Allowed::parse(&TEXT.replace("why", " ")).is_err());
        assert!(Allowed::parse(&TEXT.replace("reason", "because")).is_err());
    }
}
