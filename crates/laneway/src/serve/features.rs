//! Flags whose Cargo feature this build lacks. They are looked at before anything else that a flag
//! may need, so that nobody adds what belongs to it and is refused all the same.

use crate::flags::{self, Flags};
use laneway_server::built::Feature;

/// What building a feature takes beside Rust.
const CLANG: &str = ", which needs clang (Debian: apt-get install clang)";

/// Why a build with these features serves nobody by these flags, and how to build one that does.
pub fn refused(flags: &Flags, features: &[Feature]) -> Option<String> {
    let kernel = "kernel-lane kernel-lane-hook kernel-lane-memory kernel-lane-peers \
        kernel-lane-rate steer";
    let needs = [
        ("kernel", kernel),
        ("af-xdp", "af-xdp af-xdp-copy af-xdp-busy-poll"),
        ("rdma", "rdma rdma-port rdma-clients rdma-slots"),
    ];
    let is_absent = |name: &str| features.iter().any(|one| one.name == name && !one.is_in);
    let mut lacking = needs.into_iter().filter(|(name, _)| is_absent(name));
    let (flag, name) =
        lacking.find_map(|(name, parts)| Some((flags::first_given(flags, parts)?, name)))?;
    let takes = if name == "rdma" { "" } else { CLANG };
    let why = format!(
        "{flag}: built without the feature `{name}`; build with `cargo build --release --features \
         {name}`{takes}, or leave the flag out"
    );
    Some(flags::placed(flags, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Asked;
    use laneway_server::built::FEATURES;
    use std::ffi::OsString;

    fn refused_by(line: &str, is_in: bool) -> Option<String> {
        let features = FEATURES.map(|feature| Feature { is_in, ..feature });
        refused(&flags::typed(line), &features)
    }

    #[test]
    fn a_flag_whose_feature_is_not_in_is_named_whatever_else_it_needs() {
        for (line, flag, name) in [
            ("--kernel-lane lo", "--kernel-lane", "kernel"),
            ("--kernel-lane-hook xdp", "--kernel-lane-hook", "kernel"),
            ("--kernel-lane-memory 4", "--kernel-lane-memory", "kernel"),
            ("--kernel-lane-peers ::/0", "--kernel-lane-peers", "kernel"),
            ("--kernel-lane-rate 1", "--kernel-lane-rate", "kernel"),
            ("-U 5000 --steer", "--steer", "kernel"),
            ("--af-xdp lo", "--af-xdp", "af-xdp"),
            ("--af-xdp-copy", "--af-xdp-copy", "af-xdp"),
            ("--af-xdp-busy-poll", "--af-xdp-busy-poll", "af-xdp"),
            ("--rdma rxe0:zero", "--rdma", "rdma"),
            ("--rdma-port 3", "--rdma-port", "rdma"),
            ("--rdma-clients 3", "--rdma-clients", "rdma"),
            ("--rdma-slots 3", "--rdma-slots", "rdma"),
        ] {
            let told = refused_by(line, false).expect(line);
            let start = format!("{flag}: built without the feature `{name}`; build with `cargo ");
            assert!(told.starts_with(&start), "{told}");
            assert!(told.contains(&format!("--features {name}`")), "{told}");
            assert_eq!(refused_by(line, true), None, "{line}");
        }
        assert_eq!(refused_by("-U 5000 --steer=no --shm door", false), None);
    }

    #[test]
    fn where_the_flag_was_given_is_told() {
        let set = [("LANEWAY_STEER", "yes")]
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let Ok(Asked::Serve(flags)) = flags::read([], set) else { panic!("it is a switch") };
        let features = FEATURES.map(|feature| Feature { is_in: false, ..feature });
        let told = refused(&flags, &features).expect("it is given");
        assert!(told.ends_with("(steer is given by LANEWAY_STEER)"), "{told}");
    }
}
