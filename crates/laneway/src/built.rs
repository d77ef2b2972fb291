//! What was built into this binary: Cargo features, as `laneway --version -v`, `laneway doctor` and
//! the error of a command that is not here tell them.

use laneway_server::built::{self, Feature};

/// The feature of the papers' experiments and figures.
pub const RESEARCH: Feature = Feature {
    name: "research",
    is_in: cfg!(feature = "research"),
    for_what: "bench adapt, designs, interception, verbs; sim's figures of papers",
};

/// What leaves something out: it is told of where it is in alone, since nobody is to build it who
/// does not measure.
const UNOBSERVED: Feature = Feature {
    name: "unobserved",
    is_in: !built::OBSERVES,
    for_what: "to measure: no statistics, and no limits of clients",
};

/// All of them.
pub fn features() -> Vec<Feature> {
    let lacks = (!built::OBSERVES).then_some(UNOBSERVED);
    built::FEATURES.into_iter().chain([RESEARCH]).chain(lacks).collect()
}

/// One line: the names of those that are in.
pub fn told() -> String {
    format!("features: {}", built::names(&features()))
}

/// A line for each, with what to do where it is not in.
pub fn lines() -> Vec<String> {
    let line = |feature: Feature| match feature.is_in {
        true => format!("feature {}: built in ({})", feature.name, feature.for_what),
        false => format!(
            "feature {}: not built in; cargo build --release --features {} has it ({})",
            feature.name, feature.name, feature.for_what
        ),
    };
    features().into_iter().map(line).collect()
}
