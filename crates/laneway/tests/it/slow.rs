//! The log of slow and large requests, and `stats large`, of the binary.

use crate::rig::{Process, ask, read_to, refused, set, stat, stats};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SLOW: Duration = Duration::from_millis(20);
const BIG: usize = 8 << 20;

fn start(flags: &[&str]) -> Process {
    Process::here(&[&["-t", "1", "-m", "256", "-I", "16m"], flags].concat())
}

fn set_big(client: &mut TcpStream, key: &str) {
    assert_eq!(ask(client, &set(key, &vec![b'x'; BIG]), b"\r\n"), b"STORED\r\n");
}

/// A client that takes nothing of a reply for longer than is slow.
fn ask_and_dawdle(client: &mut TcpStream, another: &mut TcpStream) {
    client.write_all(b"get big\r\n").expect("it takes a line");
    let asked = Instant::now();
    while asked.elapsed() < 2 * SLOW {
        assert_eq!(ask(another, b"mn\r\n", b"\r\n"), b"MN\r\n", "nobody waits for it");
    }
    assert!(read_to(client, b"END\r\n").len() > BIG);
}

#[test]
fn a_slow_request_is_logged_with_its_times_and_only_told_its_key_where_asked() {
    for (flags, has_key) in [(&[][..], false), (&["--log-keys"][..], true)] {
        let common = ["--slow-ms", "20", "--log-format", "json", "--threshold", "100000"];
        let mut server = start(&[&common, flags].concat());
        let (mut client, mut another) = (server.connect(), server.connect());
        set_big(&mut client, "big");
        ask_and_dawdle(&mut client, &mut another);
        server.await_log(r#""operation":"get""#);
        let line = server.said.lines().find(|line| line.contains(r#""operation":"get""#));
        let line: serde_json::Value =
            serde_json::from_str(line.expect("it is there")).expect("JSON");
        assert_eq!((&line["message"], &line["lane"]), (&"slow request".into(), &"large".into()));
        assert_eq!(line["bytes"], BIG as u64 + 3);
        let micros = |name: &str| line[name].as_u64().expect(name);
        let took = micros("wait_us") + micros("service_us") + micros("drain_us");
        assert!(took + 2 >= SLOW.as_micros() as u64, "{line}");
        let local = client.local_addr().expect("it is connected").to_string();
        assert_eq!(line["client"], format!("tcp:{local}"));
        assert_eq!(line["key"].as_str(), has_key.then_some("big"), "{line}");
        let stats = stats(&mut another, "large");
        assert!(stats.contains("STAT slow_us 20000.0\r\n"), "{stats}");
        assert_eq!(stats.contains(":key big\r\n"), has_key, "{stats}");
        server.stop();
    }
}

#[test]
fn large_requests_are_logged_at_vvv_and_none_by_itself() {
    for (flags, is_logged) in [(&[][..], false), (&["-vvv"][..], true)] {
        let mut server = start(flags);
        set_big(&mut server.connect(), "big");
        if is_logged {
            server.await_log("large request");
        }
        server.signal("TERM");
        let said = server.said.clone() + &server.rest();
        assert_eq!(said.contains("request operation=set"), is_logged, "{said}");
    }
}

#[test]
fn a_log_that_nobody_takes_keeps_no_server_from_stopping() {
    let server = start(&["--slow-ms", "1", "--log-keys", "--threshold", "100000"]);
    server.shorten_log();
    let key = "k".repeat(250);
    let mut another = server.connect();
    set_big(&mut another, &key);
    // More lines than the pipe takes.
    for _ in 0..20 {
        let mut client = server.connect();
        client.write_all(format!("get {key}\r\n").as_bytes()).expect("it takes a line");
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_millis(3) {
            assert_eq!(ask(&mut another, b"mn\r\n", b"\r\n"), b"MN\r\n", "nobody waits for it");
        }
        read_to(&mut client, b"END\r\n");
    }
    let stats = stats(&mut another, "large");
    // On a busy machine others were slow, too.
    assert_eq!(stats.matches(":operation get\r\n").count(), 20, "{stats}");
    drop(another);
    server.stop();
}

#[test]
fn a_log_that_nobody_takes_holds_up_no_worker_and_says_later_what_it_lacks() {
    // More lines than the pipe takes and than wait: one for each connection that opens, by the
    // worker.
    const CONNECTIONS: usize = 1300;
    let mut server = start(&["-vvv"]);
    server.await_log("settings: ");
    server.shorten_log();
    for _ in 0..CONNECTIONS {
        assert_eq!(ask(&mut server.connect(), b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
    assert!(stat(&mut server.connect(), "", "log_lines_dropped") > 0);
    server.await_log("lines of the log were dropped: its reader does not keep up");
    server.stop();
}

#[test]
fn nothing_is_no_time_that_a_request_may_take() {
    refused(&["--slow-ms", "0"], 2, "--slow-ms 0: must be at least 1");
}
