//! Fuzzes definitions of benchmarks: arbitrary text as TOML. What is accepted has a server and a
//! plan for each of its runs, and says its bounds without a panic.

#![no_main]

use laneway_load::pairs::definition::{Kind, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    // A plan opens the trace that it names.
    if text.contains("trace") {
        return;
    }
    let Ok(definition) = parse(text) else { return };
    assert!(definition.pairs > 0 && !definition.runs.is_empty());
    for run in definition.runs.iter().filter(|run| definition.kind_of(run) != Kind::Program) {
        assert_eq!(definition.server(run).name, run.server);
        definition.plan(run).expect("it was planned when it was read");
    }
    for figure in &definition.figures {
        let _ = (figure.bounds(), figure.is_ratio(), figure.runs().count());
    }
});
