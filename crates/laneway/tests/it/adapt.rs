//! `laneway bench adapt` against servers that it starts from this very binary.
//!
//! How soon the plan follows is judged by `--check` where nobody else uses the machine; here it is
//! only that it does, at all.

use crate::rig::{Scratch, laneway, text};

fn adapt(flags: &[&str]) -> (bool, String, String) {
    let output = laneway(&[&["bench", "adapt"], flags].concat());
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn large_workers_come_as_large_requests_do() {
    let folder = Scratch::new("adapt-it");
    let run = "--design minos --p-large 0,0.75 --epochs 4 --epoch-requests 2000 --keys 2000 --out";
    let flags: Vec<&str> = run.split(' ').chain([folder.path()]).collect();
    let (good, table, said) = adapt(&flags);
    assert!(good, "{said}");
    assert!(table.contains("| minos | 0.75 | "), "{table}");
    assert!(table.contains("\nminos: "), "{table}");
    let csv = std::fs::read_to_string(folder.file("adapt.csv")).expect("it was written");
    let large = |row: &str| row.split(',').nth(6).and_then(|cell| cell.parse::<u16>().ok());
    let most = csv.lines().skip(1).filter_map(large).max();
    // The rule asks for 4 of 8; a thin epoch may ask for a few more or fewer.
    assert!(most.is_some_and(|workers| (2..=6).contains(&workers)), "{csv}");
    for name in ["adapt-workers.svg", "adapt-threshold.svg"] {
        let picture = std::fs::read_to_string(folder.file(name)).expect("it was written");
        assert!(picture.contains("minos: "), "{name}");
    }
}

#[test]
fn a_wrong_flag_is_told_before_anything_starts() {
    let (good, _, said) = adapt(&["--workers", "2"]);
    assert!(!good && said.contains("--workers 2: must be in 3..=64"), "{said}");
}
