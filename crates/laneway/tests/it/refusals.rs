//! A server that cannot start says what is missing and what to change, in one line, and ends with
//! a status that tells a wrong machine from a wrong command line.

use crate::rig::{BINARY, HERE, Scratch, laneway, text};
use std::process::Command;

/// What the last line says and the status of `laneway serve` with these flags, after a shell has
/// set these limits.
fn refused(limits: &str, flags: &[&str]) -> (String, Option<i32>) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits} exec \"$0\" serve \"$@\""), BINARY]).args(flags);
    let output = shell.output().expect("there is a shell");
    let said = text(&output.stderr);
    assert!(!said.contains("panicked") && !said.contains("ready on"), "{said}");
    (said.lines().last().unwrap_or_default().to_owned(), output.status.code())
}

#[test]
fn what_the_machine_does_not_give_is_named_with_the_way_out() {
    let precious = Scratch::file_of("precious", "precious");
    let file = precious.path();
    let nowhere = format!("{file}/door");
    // 100 connections, 3 descriptors of the worker, 2 of its queue, and 64 beside.
    let both: [&str; 6] = ["-c", "100", "-t", "1", "-U", "11211"];
    let rows: [(&str, &[&str], i32, &[&str]); 9] = [
        ("", &["-s", &nowhere], 71, &["cannot listen on", &nowhere, "-s"]),
        ("", &["--shm", &nowhere], 71, &["cannot listen on", &nowhere, "another path with --shm"]),
        ("", &["--shm", file], 71, &["not a socket", file, "another path with --shm"]),
        // TEST-NET-1 is nobody's.
        ("", &["-l", "192.0.2.1"], 71, &["cannot listen on 192.0.2.1", "-l"]),
        ("", &["--data-dir", &nowhere], 74, &["--data-dir", &nowhere]),
        ("ulimit -v 400000;", &["-m", "4096", "-t", "1"], 71, &["cannot reserve memory", "-m"]),
        ("ulimit -n 20;", &["-t", "64"], 71, &["no descriptor is left", "fewer with --workers"]),
        ("ulimit -n 64;", &["-t", "1"], 71, &["no descriptor is left", "ulimit -n"]),
        ("ulimit -n 64;", &both, 71, &["(UDP takes 2); allow 169 (ulimit -n,"]),
    ];
    for (limits, flags, status, told) in rows {
        let (said, ended) = refused(limits, &[&HERE[..], flags].concat());
        assert_eq!(ended, Some(status), "{limits} {flags:?}: {said}");
        assert!(told.iter().all(|words| said.contains(words)), "{limits} {flags:?}: {said}");
    }
    assert_eq!(std::fs::read(file).expect("it is there"), b"precious");
}

#[test]
fn a_plan_ends_with_0_where_it_has_an_answer_1_where_there_is_none_and_2_where_none_was_asked() {
    let quick = ["--requests", "5000", "--seeds", "1", "--nic-gbit", "none"];
    for (flags, status, told) in [
        (&["--rate", "1e6", "--json"][..], 0, "\"workers\":"),
        (&["--rate", "1e6", "--design", "lanes,hkh", "--slo-us", "0.1"], 1, "--slo-us"),
        (&["--rate", "-1"], 2, "--rate -1: must be a number from 1 to"),
        (&["--trace", "/no/such/file"], 2, "--trace /no/such/file: "),
    ] {
        let output = laneway(&[&["sim", "plan"], &quick[..], flags].concat());
        assert_eq!(output.status.code(), Some(status), "{flags:?}");
        let said = if status == 0 { &output.stdout } else { &output.stderr };
        let said = String::from_utf8_lossy(said);
        // Behind what was asked wrongly stands where to read how to ask.
        let said = said.strip_suffix("try laneway sim plan --help\n").unwrap_or(&said);
        assert!(said.lines().all(|line| line.contains(told)), "{flags:?}: {said}");
        assert_eq!(said.lines().count(), if status == 2 { 1 } else { 2 }, "{flags:?}: {said}");
    }
}
