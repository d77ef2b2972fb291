//! Which of a bug's runs found it when this was last asked: it is tried before the others, because
//! most changes leave most runs as they were. Where it finds nothing all are tried, as ever, so
//! that what is shown stays the same: there is a run that finds the bug.
//!
//! A file has a line for each bug: the place of that run among the bug's runs, from 0, and the
//! name.

use laneway_vopr::swarm::Swarm;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

/// By the name of the bug, the place among its runs of the one that found it.
#[derive(Default)]
pub struct Hints(Mutex<BTreeMap<String, usize>>);

impl Hints {
    /// Those of a file; none where there is no file, or where it holds something else.
    pub fn read(file: Option<&Path>) -> Hints {
        let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let hint = |line: &str| {
            let (place, name) = line.split_once(' ')?;
            Some((name.to_owned(), place.parse().ok()?))
        };
        Hints(Mutex::new(text.lines().filter_map(hint).collect()))
    }

    /// Writes them to the file.
    pub fn write(&self, file: Option<&Path>) -> std::io::Result<()> {
        let Some(file) = file else { return Ok(()) };
        let places = self.0.lock().expect("nobody panics inside");
        let lines = places.iter().map(|(name, place)| format!("{place} {name}\n"));
        std::fs::write(file, lines.collect::<String>())
    }

    /// A run that `fails`, and how: the one that did so last if it still does, or else the first.
    pub fn found<R, I: Iterator<Item = Swarm>>(
        &self,
        name: &str,
        runs: impl Fn() -> I,
        fails: impl Fn(&Swarm) -> Option<R>,
    ) -> Option<(Swarm, R)> {
        let place = self.0.lock().expect("nobody panics inside").get(name).copied();
        let hinted = place.and_then(|place| runs().nth(place));
        let again = hinted.and_then(|swarm| fails(&swarm).map(|how| (swarm, how)));
        if again.is_some() {
            return again;
        }
        let mut numbered = runs().enumerate();
        let (place, swarm, how) =
            numbered.find_map(|(place, swarm)| fails(&swarm).map(|how| (place, swarm, how)))?;
        self.0.lock().expect("nobody panics inside").insert(name.to_owned(), place);
        Some((swarm, how))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn what_found_it_last_is_tried_first_and_all_the_others_where_it_finds_nothing() {
        let hints = Hints::default();
        let tried = RefCell::new(Vec::new());
        let found = |bad: u64| {
            tried.borrow_mut().clear();
            let runs = || (10..20).map(Swarm::draw);
            let found = hints.found("Bug", runs, |swarm| {
                tried.borrow_mut().push(swarm.seed);
                (swarm.seed == bad).then_some(())
            });
            (found.map(|(swarm, ())| swarm.seed), tried.borrow().clone())
        };
        assert_eq!(found(12), (Some(12), vec![10, 11, 12]));
        assert_eq!(found(12), (Some(12), vec![12]));
        assert_eq!(found(11), (Some(11), vec![12, 10, 11]));
        let all: Vec<u64> = [11].into_iter().chain(10..20).collect();
        assert_eq!(found(99), (None, all));
    }

    #[test]
    fn hints_are_read_as_they_were_written_and_other_files_hold_none() {
        let file = std::env::temp_dir().join(format!("laneway-hints-{}", std::process::id()));
        let places = |hints: &Hints| hints.0.lock().expect("nobody panics").clone();
        assert!(places(&Hints::read(Some(&file))).is_empty());
        let hints = Hints(Mutex::new([("a bug".to_owned(), 7), ("B".to_owned(), 0)].into()));
        hints.write(Some(&file)).expect("written");
        assert_eq!(places(&Hints::read(Some(&file))), places(&hints));
        std::fs::write(&file, "7\nx y\n").expect("written");
        assert!(places(&Hints::read(Some(&file))).is_empty());
        std::fs::remove_file(&file).expect("it was there");
        assert!(hints.write(None).is_ok());
    }
}
