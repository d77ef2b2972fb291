//! Words that may stand in some rooms only: `unsafe`, clocks, threads, sleeps, loose ends.

use super::code::word_positions;
use super::{Finding, Source, Tree};

/// The rooms that may say `unsafe`; every other crate forbids it.
const UNSAFE_ROOMS: &[&str] = &["sync", "store", "rdma", "xdp", "transport", "tier", "kernel"];
/// Beyond those, outside the product: calls of a rival's library, and of io_uring to measure it.
const UNSAFE_PLACES: &[&str] = &["bench/tier/src/engine/rocksdb/", "bench/io-probe/"];

/// Where time may be read: the server's own clock, and the programs around it.
const CLOCK_PLACES: &[&str] = &[
    "crates/server/src/clock.rs",
    "crates/client/src/blocking.rs",
    "crates/client/examples/",
    "crates/kernel/examples/",
    "crates/tier/examples/",
    "crates/load/",
    "crates/sim/",
    "crates/studies/",
    "crates/vopr/src/main.rs",
    "crates/vopr/src/planted.rs",
    "crates/laneway/",
    "bench/",
    "xtask/",
];
const CLOCK_WORDS: &[&str] =
    &["Instant::now", "SystemTime::now", "UNIX_EPOCH", "clock_gettime", "_rdtsc"];
/// The rooms whose tests may not read a clock either.
const CLOCKLESS_ROOMS: &[&str] =
    &["policy", "wire", "sync", "store", "tier", "rdma", "xdp", "transport", "tls"];

/// Where threads may be started.
const THREAD_PLACES: &[&str] = &[
    "crates/admin/src/lib.rs",
    "crates/server/src/boot",
    "crates/tier/src/ahead.rs",
    "crates/tier/src/background.rs",
    "crates/tier/src/reads.rs",
    "crates/kernel/examples/",
    "crates/tier/examples/",
    "crates/load/",
    "crates/sim/",
    "crates/studies/",
    "crates/vopr/src/main.rs",
    "crates/vopr/src/planted.rs",
    "crates/laneway/",
    "bench/",
    "xtask/",
];
const THREAD_WORDS: &[&str] =
    &["thread::spawn", "thread::scope", "thread::Builder", "thread::park", "thread::sleep"];

/// Loose ends that never get committed.
const LOOSE_WORDS: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// Folders that only one machine has. In two halves, so that this file does not find itself.
const MACHINE_PATHS: &[(&str, &str)] =
    &[("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/"), ("/tmp/tar", "get")];

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        unsafe_code(file, found);
        clocks(file, found);
        threads(file, found);
        loose_ends(file, found);
    }
    for file in &tree.files {
        machine_paths(file, found);
    }
}

/// Note what one line of a file has, or with line 0 the whole file.
pub fn push(
    found: &mut Vec<Finding>,
    rule: &'static str,
    file: &Source,
    line: usize,
    text: impl Into<String>,
) {
    let subject = file.path.clone();
    found.push(Finding { rule, subject, line, measure: 1, text: text.into() });
}

fn unsafe_code(file: &Source, found: &mut Vec<Finding>) {
    if UNSAFE_ROOMS.contains(&file.room()) || is_in(file, UNSAFE_PLACES) {
        return;
    }
    for (line, text) in file.code.lines() {
        if !word_positions(text, "unsafe").is_empty() {
            push(found, "unsafe", file, line, format!("unsafe outside {UNSAFE_ROOMS:?}"));
        }
    }
    let tail = file.path.strip_prefix("crates/").unwrap_or(&file.path);
    let below = tail.split_once('/').map_or("", |(_, below)| below);
    let root = matches!(below, "src/lib.rs" | "src/main.rs") || below.starts_with("src/bin/");
    if root && file.room() != "fuzz" && !file.code.text.contains("#![forbid(unsafe_code)]") {
        push(found, "forbid-unsafe", file, 0, "must say #![forbid(unsafe_code)]");
    }
}

fn is_in(file: &Source, places: &[&str]) -> bool {
    places.iter().any(|place| file.path.starts_with(place))
}

fn clocks(file: &Source, found: &mut Vec<Finding>) {
    if is_in(file, CLOCK_PLACES) {
        return;
    }
    for (line, text) in file.code.lines() {
        let exempt = file.code.is_test(line) && !CLOCKLESS_ROOMS.contains(&file.room());
        if let Some(word) = CLOCK_WORDS.iter().find(|word| text.contains(**word))
            && !exempt
        {
            let told =
                format!("{word}: only {CLOCK_PLACES:?} read a clock; take the time as given");
            push(found, "clock", file, line, told);
        }
    }
}

fn threads(file: &Source, found: &mut Vec<Finding>) {
    for (line, text) in file.code.lines() {
        let Some(word) = THREAD_WORDS.iter().find(|word| text.contains(**word)) else { continue };
        let test = file.code.is_test(line);
        let sleeps = *word == "thread::sleep";
        if test && sleeps {
            push(found, "sleep", file, line, "a test never sleeps; wait for what it needs");
        } else if !test && !is_in(file, THREAD_PLACES) {
            push(found, "thread", file, line, format!("{word}: only in {THREAD_PLACES:?}"));
        }
    }
}

fn loose_ends(file: &Source, found: &mut Vec<Finding>) {
    for (line, text) in file.code.lines() {
        for word in LOOSE_WORDS.iter().filter(|word| text.contains(**word)) {
            push(found, "loose-end", file, line, format!("{word} is not left behind"));
        }
    }
}

fn machine_paths(file: &Source, found: &mut Vec<Finding>) {
    for (index, text) in file.text.lines().enumerate() {
        for (head, tail) in MACHINE_PATHS {
            let path = format!("{head}{tail}");
            let begins = |at: usize| {
                let before = text[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-*}/".contains(c))
            };
            if text.match_indices(&path).any(|(at, _)| begins(at)) {
                push(found, "machine-path", file, index + 1, format!("{path} is this machine's"));
            }
        }
    }
}
