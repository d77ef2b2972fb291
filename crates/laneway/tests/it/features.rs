//! What was built into the binary: it tells its Cargo features, and what is not in says how to
//! build it. `cargo xtask features` asks the same of the default binary.

use crate::rig::watched::Watched;
use crate::rig::{has_feature, laneway};

#[test]
fn the_version_and_the_doctor_tell_the_same_features() {
    assert_eq!(has_feature("kernel"), cfg!(feature = "kernel"));
    assert_eq!(has_feature("af-xdp"), cfg!(feature = "af-xdp"));
    assert_eq!(has_feature("research"), cfg!(feature = "research"));
    let doctor = laneway(&["doctor", "kernel"]);
    let told = String::from_utf8_lossy(&doctor.stdout);
    for name in ["kernel", "af-xdp", "rdma", "research"] {
        let start = format!("feature {name}: ");
        let line = told.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{name} in {told}"));
        assert_eq!(line.contains(": built in ("), has_feature(name), "{line}");
        assert_ne!(line.contains(&format!("--features {name}")), has_feature(name), "{line}");
    }
}

#[test]
fn the_metrics_of_a_server_tell_its_features() {
    let server = Watched::start(&["-t", "1"]);
    let scrape = server.scrape();
    let info = scrape.samples.keys().find(|series| series.starts_with("laneway_build_info{"));
    let info = info.expect("a server tells what it is");
    let names = info.split("features=\"").nth(1).and_then(|rest| rest.split('"').next());
    let names = names.unwrap_or_else(|| panic!("no features in {info}"));
    for name in ["kernel", "af-xdp", "rdma"] {
        assert_eq!(names.split('+').any(|own| own == name), has_feature(name), "{info}");
    }
}

/// With `--print-config` nothing is served, and what a start refuses is refused all the same.
#[test]
fn a_flag_that_is_not_in_is_refused_before_anything_else_is_said_of_it() {
    for (feature, flags) in [
        ("kernel", &["--kernel-lane", "lo"][..]),
        ("kernel", &["--steer", "-U", "-1"]),
        ("af-xdp", &["--af-xdp", "lo"]),
        ("rdma", &["--rdma", "rxe0"]),
    ] {
        let output = laneway(&[&["serve", "--print-config"][..], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let is_refused = !has_feature(feature);
        assert_eq!(output.status.code() == Some(71), is_refused, "{flags:?}: {said}");
        let why = format!("{}: built without the feature `{feature}`; build with", flags[0]);
        assert_eq!(said.contains(&why), is_refused, "{flags:?}: {said}");
    }
}

#[test]
fn a_study_is_there_or_names_the_feature_that_has_it() {
    let output = laneway(&["bench", "adapt", "--help"]);
    let said = String::from_utf8_lossy(&output.stderr);
    match has_feature("research") {
        true => assert!(output.status.success(), "{said}"),
        false => {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("without the feature `research`"), "{said}");
            assert!(said.contains("--features research"), "{said}");
        }
    }
    // What is no study is the load generator's, in every build.
    assert!(laneway(&["bench", "--help"]).status.success());
}
