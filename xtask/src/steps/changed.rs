//! What a change needs to have tested: the crates that it touches, those that depend on them, and
//! the paths by which the other steps are chosen.
//!
//! Paths come from git: what differs from a commit, committed or not, and new files. Crates and who
//! depends on whom come from `cargo metadata`. A file that a crate's tests read from outside the
//! crate counts as its own ([`READ`]).

use super::list::{Scope, Step};
use crate::features;
use crate::process::{self, git};
use crate::tidy::code::is_test_path;
use serde_json::Value;
use std::collections::BTreeSet;

/// What every build hangs on.
const ALL: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo/", ".ci/"];
/// Where else tests read, and the crates whose tests these are.
const READ: &[(&str, &str)] = &[
    ("README.md", "laneway"),
    ("README.md", "xtask"),
    ("docs/", "laneway"),
    ("docs/", "xtask"),
    ("packaging/", "laneway"),
    ("packaging/systemd/", "laneway-kernel"),
    ("packaging/", "xtask"),
    ("bench/", "laneway-load"),
    ("bench/", "xtask"),
    ("fuzz/Cargo.toml", "xtask"),
    ("deny.toml", "xtask"),
];

/// A crate of the workspace.
pub struct Package {
    name: String,
    /// From the root, with `/` at its end.
    folder: String,
    /// The names of what it depends on, its tests included.
    depends_on: Vec<String>,
    /// Whether there are doc tests to be run.
    is_library: bool,
}

/// What a change touches.
#[derive(Debug, PartialEq)]
pub struct Change {
    paths: Vec<String>,
    /// The crates whose tests are run, with the flag `-p` before each.
    packages: Vec<String>,
    /// Those of them that are libraries.
    libraries: Vec<String>,
    /// Whether something has changed on which every build hangs.
    is_all: bool,
}

impl Change {
    /// What has changed since a commit, and the crates that depend on it if these are wanted.
    pub fn since(commit: Option<&str>, with_dependants: bool) -> Result<Change, String> {
        let commit = match commit {
            Some(commit) => git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")])?,
            // Of a branch all of it; where there is no `main`, what is not committed.
            None => {
                git(&["merge-base", "HEAD", "main"]).or_else(|_| git(&["rev-parse", "HEAD"]))?
            }
        };
        let mut paths = git(&["diff", "--name-only", "--no-renames", commit.trim()])?;
        paths += &git(&["ls-files", "--others", "--exclude-standard"])?;
        let paths = paths.lines().map(str::to_owned).collect();
        Ok(Change::of(paths, &packages(&metadata()?)?, with_dependants))
    }

    fn of(paths: Vec<String>, packages: &[Package], with_dependants: bool) -> Change {
        let is_all = paths.iter().any(|path| ALL.iter().any(|place| path.starts_with(place)));
        let is_touched = |package: &&Package| {
            let read = READ.iter().filter(|(_, reader)| *reader == package.name);
            let mut places = read.map(|(place, _)| *place).chain([package.folder.as_str()]);
            is_all || places.any(|place| paths.iter().any(|path| path.starts_with(place)))
        };
        let touched = packages.iter().filter(is_touched).map(|package| package.name.as_str());
        let touched = match with_dependants {
            true => and_dependants(touched.collect(), packages),
            false => touched.collect(),
        };
        let flags = |is_wanted: fn(&Package) -> bool| -> Vec<String> {
            let chosen = packages.iter().filter(|package| is_wanted(package));
            let names = chosen.map(|package| package.name.as_str());
            let names = names.filter(|name| touched.contains(name));
            names.flat_map(|name| ["-p".to_owned(), name.to_owned()]).collect()
        };
        let (chosen, libraries) = (flags(|_| true), flags(|package| package.is_library));
        Change { paths, packages: chosen, libraries, is_all }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// What is typed for a step after `cargo`, if the change needs it.
    pub fn line(&self, step: &Step) -> Option<String> {
        let of_packages = |flags: &[String]| {
            let is_needed = !flags.is_empty();
            is_needed.then(|| step.line.replace("--workspace", &flags.join(" ")))
        };
        match &step.scope {
            Scope::Always => Some(super::of_whole(step)),
            Scope::Packages => of_packages(&[&self.packages[..], &self.features()[..]].concat()),
            Scope::Libraries => of_packages(&self.libraries),
            Scope::Paths(places) => self.needs(step, places).then(|| super::of_whole(step)),
        }
    }

    /// Of the set that all tests are built with what the crates tested here have, with its flag:
    /// without it the tests of the lane in the kernel would not be there.
    fn features(&self) -> Vec<String> {
        let is_ours = |feature: &&str| {
            let of = feature.split('/').next();
            self.packages.iter().any(|name| Some(name.as_str()) == of)
        };
        let ours: Vec<&str> = features::tested().split(',').filter(is_ours).collect();
        if ours.is_empty() { Vec::new() } else { vec!["--features".to_owned(), ours.join(",")] }
    }

    fn needs(&self, step: &Step, places: &[String]) -> bool {
        let mut words = step.line.split(' ');
        let task = words.next().filter(|word| *word == "xtask").and(words.next());
        // The task itself: a file of this name, or a folder.
        let task = task.map(|name| format!("xtask/src/{}", name.replace('-', "_")));
        let is_task = |path: &str| {
            let rest = task.as_ref().and_then(|task| path.strip_prefix(task.as_str()));
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        // The crates' own tests are other steps, unless a place names them.
        let is_in = |path: &str, place: &str| {
            path.starts_with(place) && (!is_test_path(path) || place.contains("/tests/"))
        };
        let is_named = |path: &str| places.iter().any(|place| is_in(path, place));
        self.is_all || self.paths.iter().any(|path| is_task(path) || is_named(path))
    }
}

/// These crates and all that depend on them, through others too.
fn and_dependants<'a>(mut names: BTreeSet<&'a str>, all: &'a [Package]) -> BTreeSet<&'a str> {
    loop {
        let depends =
            |package: &&Package| package.depends_on.iter().any(|name| names.contains(&**name));
        let more = all.iter().filter(depends).map(|package| package.name.as_str());
        let more: Vec<&str> = more.collect();
        let before = names.len();
        names.extend(more);
        if names.len() == before {
            return names;
        }
    }
}

fn metadata() -> Result<String, String> {
    let words = ["metadata", "--quiet", "--no-deps", "--format-version", "1"];
    process::printed(process::cargo().args(words))
}

/// The crates of the workspace, as `cargo metadata --no-deps` tells them.
fn packages(metadata: &str) -> Result<Vec<Package>, String> {
    let wrong = |what: &str| format!("cargo metadata: {what}");
    let told: Value = serde_json::from_str(metadata).map_err(|e| wrong(&e.to_string()))?;
    let root = told["workspace_root"].as_str().ok_or_else(|| wrong("no root"))?;
    let list = told["packages"].as_array().ok_or_else(|| wrong("no packages"))?;
    let each = list.iter().map(|package| {
        let name = package["name"].as_str()?;
        let folder = package["manifest_path"].as_str()?.strip_prefix(root)?;
        let folder = folder.trim_start_matches('/').strip_suffix("Cargo.toml")?;
        // What has no path is somebody else's.
        let ours = package["dependencies"].as_array()?.iter().filter(|one| one["path"].is_string());
        let depends_on = ours.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
        let mut targets = package["targets"].as_array()?.iter();
        let is_library = targets.any(|target| target["doctest"] == true);
        Some(Package { name: name.to_owned(), folder: folder.to_owned(), depends_on, is_library })
    });
    each.collect::<Option<Vec<Package>>>().ok_or_else(|| wrong("a package lacks something"))
}

#[cfg(test)]
mod tests {
    use super::super::list::STEPS;
    use super::*;

    /// `wire`, `store`, `server`, which depends on both, and the program over it.
    const TOLD: &str = r#"{"workspace_root": "/r", "packages": [
        {"name": "laneway-wire", "manifest_path": "/r/crates/wire/Cargo.toml",
         "targets": [{"doctest": false}, {"doctest": true}], "dependencies": [{"name": "libc"}]},
        {"name": "laneway-store", "manifest_path": "/r/crates/store/Cargo.toml",
         "targets": [{"doctest": true}], "dependencies": []},
        {"name": "laneway-server", "manifest_path": "/r/crates/server/Cargo.toml",
         "targets": [{"doctest": true}], "dependencies": [
             {"name": "laneway-wire", "path": "/r/crates/wire"},
             {"name": "laneway-store", "path": "/r/crates/store"}]},
        {"name": "laneway", "manifest_path": "/r/crates/laneway/Cargo.toml",
         "targets": [{"doctest": false}],
         "dependencies": [{"name": "laneway-server", "path": "/r/crates/server"}]}]}"#;

    fn change(paths: &[&str], with_dependants: bool) -> Change {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Change::of(paths, &packages(TOLD).expect("whole"), with_dependants)
    }

    fn steps(paths: &[&str]) -> Vec<&'static str> {
        let change = change(paths, true);
        let always = |step: &&Step| matches!(step.scope, Scope::Always);
        let needed = STEPS.iter().filter(|step| !always(step) && change.line(step).is_some());
        needed.map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn who_depends_on_a_changed_crate_is_tested_with_it_if_that_is_wanted() {
        let chosen = |paths: &[&str], all| change(paths, all).packages.join(" ");
        assert_eq!(chosen(&["crates/store/src/a.rs"], false), "-p laneway-store");
        let all = "-p laneway-store -p laneway-server -p laneway";
        assert_eq!(chosen(&["crates/store/src/a.rs"], true), all);
        assert_eq!(chosen(&["crates/laneway/src/main.rs"], true), "-p laneway");
        assert_eq!(chosen(&["docs/install.md"], false), "-p laneway");
        assert_eq!(chosen(&["LICENSE"], true), "");
        let every = "-p laneway-wire -p laneway-store -p laneway-server -p laneway";
        assert_eq!(chosen(&["Cargo.lock"], false), every);
        // The program has no doc tests, and cargo refuses to look for them.
        let libraries = change(&["crates/server/src/a.rs"], true).libraries;
        assert_eq!(libraries.join(" "), "-p laneway-server");
    }

    #[test]
    fn a_path_chooses_the_steps_that_it_can_break() {
        assert_eq!(steps(&["LICENSE"]), [""; 0]);
        let of_tests = ["build of tests", "tests", "documentation"];
        assert_eq!(steps(&["docs/kernel.md"]), of_tests);
        assert_eq!(steps(&["xtask/src/loom.rs"]), ["loom", "loom canaries"]);
        assert_eq!(steps(&["xtask/src/observe_cost.rs"]), ["observe cost"]);
        let redis = ["redis-py", "Redis' clients"];
        assert_eq!(steps(&["xtask/src/redis/suite.rs"]), redis);
        let wire = steps(&["crates/wire/src/frame.rs"]);
        for name in ["tests", "doc tests", "fuzz", "fuzz binary", "vopr", "replay"] {
            assert!(wire.contains(&name), "{name} of {wire:?}");
        }
        for name in ["loom", "fuzz tier", "tier bench", "package"] {
            assert!(!wire.contains(&name), "{name} of {wire:?}");
        }
        // What only a test says breaks no program.
        let test = steps(&["crates/wire/tests/it/binary.rs"]);
        assert_eq!(test, ["build of tests", "tests", "doc tests", "documentation"]);
        assert!(steps(&["crates/server/tests/hot/alone.rs"]).contains(&"histories"));
        let always = STEPS.iter().filter(|step| matches!(step.scope, Scope::Always)).count();
        assert_eq!(steps(&["Cargo.lock"]).len() + always, STEPS.len());
    }

    #[test]
    fn a_step_takes_the_packages_in_the_place_of_the_workspace() {
        let change = change(&["crates/laneway/src/main.rs"], true);
        let line = |name: &str| {
            let step = STEPS.iter().find(|step| step.name == name).expect("a step");
            change.line(step)
        };
        let of_all = features::tested().split(',').next().expect("the program's own");
        let tests = format!("test -p laneway --features {of_all} --tests --no-fail-fast");
        assert_eq!(line("tests"), Some(tests));
        assert_eq!(line("doc tests"), None);
        for step in STEPS.iter() {
            let of_packages = matches!(step.scope, Scope::Packages | Scope::Libraries);
            assert!(!of_packages || step.line.contains("--workspace"), "{}", step.name);
        }
    }

    #[test]
    fn every_place_of_the_tables_is_there() {
        let of_steps = STEPS.iter().filter_map(|step| match &step.scope {
            Scope::Paths(places) => Some(places),
            _ => None,
        });
        let of_tables = ALL.iter().chain(READ.iter().map(|(place, _)| place)).copied();
        let places = of_steps.flatten().map(String::as_str).chain(of_tables);
        for place in places {
            assert!(process::root().join(place).exists(), "{place}");
        }
    }

    #[test]
    fn crates_are_read_from_what_cargo_tells() {
        assert!(packages(r#"{"packages": []}"#).is_err());
        // Ours, with what it tells today.
        let ours = packages(&metadata().expect("cargo")).expect("as it is read");
        let server = ours.iter().find(|one| one.name == "laneway-server").expect("there");
        assert_eq!(server.folder, "crates/server/");
        assert!(server.depends_on.contains(&"laneway-store".to_owned()) && server.is_library);
    }
}
