//! `laneway top` tells what the other ways tell, and ends with an error where it cannot.

use crate::rig::watched::Watched;
use crate::rig::{Scratch, ask, laneway, set, stats};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const LARGE: usize = 200_000;

fn top(flags: &[&str]) -> Output {
    laneway(&[&["top"], flags].concat())
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("errors are text")
}

/// The words of the line that begins so.
fn line<'a>(picture: &'a str, first: &str) -> Vec<&'a str> {
    let found = picture.lines().find(|line| line.trim_start().starts_with(first));
    found.unwrap_or_else(|| panic!("no {first} in {picture}")).split_whitespace().collect()
}

#[test]
fn one_picture_agrees_with_stats_and_metrics_under_load() {
    let server = Watched::start(&["-t", "2", "--threshold", "32k"]);
    let mut stream = server.client();
    ask(&mut stream, &set("big", &[b'x'; LARGE]), b"STORED\r\n");
    ask(&mut stream, b"set small 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let over = &over;
        let client = scope.spawn(move || {
            while !over.load(SeqCst) {
                for _ in 0..50 {
                    ask(&mut stream, b"get small\r\n", b"END\r\n");
                }
                ask(&mut stream, b"get big\r\n", b"END\r\n");
            }
            // A transfer is counted behind its last byte, and before the next request.
            ask(&mut stream, b"mn\r\n", b"MN\r\n");
        });
        let place = server.process.places()[0];
        let output = top(&["--server", place, "--once", "--interval", "0.3"]);
        over.store(true, SeqCst);
        client.join().expect("the client is answered");
        output
    });
    assert!(output.status.success(), "{}", told(&output));
    let picture = String::from_utf8(output.stdout).expect("a picture is text");
    // Of a lane's line: its name, its rate and six times.
    for lane in ["small", "large"] {
        let words = line(&picture, lane);
        assert!(words[1].parse::<f64>().is_ok_and(|rate| rate > 0.0), "{picture}");
        let units = words.iter().filter(|word| ["us", "ms", "s"].contains(word)).count();
        assert_eq!(units, 6, "{picture}");
    }
    assert!(picture.contains("large from 32 KiB on"), "{picture}");
    assert!(picture.contains("127.0.0.1") && picture.contains("items 2"), "{picture}");
    assert!(picture.contains("hits 100.0 %"), "{picture}");
    // The requests are over: three ways tell the same number of them.
    let buckets = |lane: &str| {
        let stats = stats(&mut server.client(), "buckets");
        let name = format!("STAT get:{lane}:whole_ns:");
        let lines = stats.lines().filter_map(|line| line.strip_prefix(&name));
        let counts = lines.filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    let scrape = server.scrape();
    for lane in ["small", "large"] {
        let latency = server.stat("latency", &format!("get:{lane}:count"));
        assert_eq!(buckets(lane), latency);
        let name =
            format!("laneway_request_duration_seconds_count{{operation=\"get\",lane=\"{lane}\"}}");
        assert_eq!(scrape.samples.get(&name).copied(), Some(latency as f64), "{name}");
    }
}

#[test]
fn it_says_why_it_cannot_and_what_to_do() {
    for (flags, status, words) in [
        (&["--server", "127.0.0.1:1", "--once"][..], 1, "is a server running there?"),
        (&["--interval", "0"], 2, "from 0.1 to 3600"),
        (&[], 2, "--once"),
        (&["--login", "/nonexistent/login", "--once"], 1, "/nonexistent/login"),
    ] {
        let output = top(flags);
        assert_eq!(output.status.code(), Some(status), "{flags:?}");
        assert!(told(&output).contains(words), "{flags:?}: {}", told(&output));
    }
}

#[test]
fn a_login_is_shown_to_a_server_that_asks_for_one() {
    let login = Scratch::file_of("top", "ann:right\n");
    let file = login.path();
    let server = Watched::start(&["-Y", file]);
    let place = server.process.places()[0];
    let without = top(&["--server", place, "--once", "--interval", "0.1"]);
    let with = top(&["--server", place, "--once", "--interval", "0.1", "--login", file]);
    std::fs::write(file, "ann:wrong\n").expect("there is room");
    let wrong = top(&["--server", place, "--once", "--interval", "0.1", "--login", file]);
    assert_eq!(without.status.code(), Some(1));
    assert!(told(&without).contains("--login FILE"), "{}", told(&without));
    assert!(with.status.success(), "{}", told(&with));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(told(&wrong).contains("authentication failure"), "{}", told(&wrong));
}
