//! `laneway bench`: the load generator and, with the feature `research`, the studies made with it.
//! Both live in crates of their own and know no server of ours.

use std::ffi::OsString;
use std::process::ExitCode;

/// The studies, as they are called on the command line.
#[cfg(any(test, not(feature = "research")))]
pub const STUDIES: [&str; 6] =
    ["adapt", "verbs", "interception", "designs", "designs-p-large", "designs-s-large"];

/// Runs with these arguments, `bench` itself not among them.
#[cfg(feature = "research")]
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    laneway_studies::command::main(args)
}

/// The same in a build without the studies, which says so where one is asked for.
#[cfg(not(feature = "research"))]
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let first = args.first().and_then(|word| word.to_str());
    if let Some(study) = first.filter(|word| STUDIES.contains(word)) {
        eprintln!(
            "laneway bench {study}: built without the feature `research`; build with `cargo build \
             --release --features research`"
        );
        return ExitCode::from(crate::STATUS_USAGE);
    }
    laneway_load::command::main(args.into_iter())
}

#[cfg(all(test, feature = "research"))]
mod tests {
    use laneway_studies::experiment::Experiment;

    #[test]
    fn every_study_is_listed_for_builds_that_have_none() {
        for name in super::STUDIES {
            let is_command = ["adapt", "verbs"].contains(&name);
            assert!(is_command || Experiment::named(name).is_some(), "{name}");
        }
    }
}
