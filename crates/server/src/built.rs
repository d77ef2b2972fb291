//! Which ways in that need more than sockets this build has: Cargo features, so that whoever wants
//! none of them builds without clang, and without code that never runs.

/// A Cargo feature of the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Its name, as `cargo build --features` takes it.
    pub name: &'static str,
    /// Whether this build has it.
    pub is_in: bool,
    /// What needs it.
    pub for_what: &'static str,
}

/// Those of the server. Shared memory is in every build: it needs no library, no compiler and no
/// right, and RDMA is built on the same slots.
pub const FEATURES: [Feature; 3] = [
    Feature {
        name: "kernel",
        is_in: cfg!(feature = "kernel"),
        for_what: "serve --kernel-lane, --steer",
    },
    Feature { name: "af-xdp", is_in: cfg!(feature = "af-xdp"), for_what: "serve --af-xdp" },
    Feature {
        name: "rdma",
        is_in: laneway_rdma::HAS_VERBS,
        for_what: "serve --rdma, bench --transport rdma",
    },
];

/// Whether what only operators read is recorded: counters, latencies, samples of keys, totals by
/// client, large and slow requests, events that are watched. Always, but in a build that is held
/// against this one to see what that costs a request (feature `unobserved`): there whatever records
/// is empty, and limits of clients and `--hot`, which read some of these counts, do not work.
pub const OBSERVES: bool = !cfg!(feature = "unobserved");

/// The names of those that are in, in one word: `kernel+rdma`, or `none`.
pub fn names(features: &[Feature]) -> String {
    let names: Vec<&str> =
        features.iter().filter(|feature| feature.is_in).map(|feature| feature.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join("+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_what_is_in_make_one_word() {
        let feature = |name, is_in| Feature { name, is_in, for_what: "" };
        let some = [feature("a", true), feature("b", false), feature("c", true)];
        assert_eq!(names(&some), "a+c");
        assert_eq!(names(&some[1..2]), "none");
    }
}
