//! The admin endpoint of a running server: `/metrics`, `stats` and what clients did agree, and
//! nobody who misbehaves shuts the others out.

use crate::rig::watched::Watched;
use crate::rig::{HERE, Process, SIZES, Scratch, ask, read_to, refused, set};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

const LARGE: usize = 1_000_000;

/// So many requests of each kind, and one at the end whose answer says that all are counted.
fn load(stream: &mut TcpStream, name: &str, rounds: usize) {
    let value = vec![b'v'; LARGE];
    for round in 0..rounds {
        ask(stream, &set(&format!("{name}{round}"), b"value"), b"STORED\r\n");
        ask(stream, format!("get {name}{round}\r\n").as_bytes(), b"END\r\n");
        ask(stream, format!("get no{name}\r\n").as_bytes(), b"END\r\n");
        if round % 10 == 0 {
            ask(stream, &set(&format!("big{name}"), &value), b"STORED\r\n");
            ask(stream, format!("get big{name}\r\n").as_bytes(), b"END\r\n");
        }
    }
    ask(stream, b"nonsense\r\n", b"ERROR\r\n");
    ask(stream, b"mn\r\n", b"MN\r\n");
}

#[test]
fn a_scrape_tells_how_much_of_its_thread_the_ones_before_have_taken() {
    let server = Watched::start(&["-t", "1"]);
    let [before, after] = [(); 2].map(|()| server.scrape().samples);
    let name = "laneway_admin_cpu_seconds_total";
    assert!(before[name] < after[name], "{} and {}", before[name], after[name]);
    let of_process = ["user", "system"]
        .map(|mode| after[&format!("laneway_process_cpu_seconds_total{{mode=\"{mode}\"}}")]);
    // Each mode is told in whole microseconds.
    let most = of_process.iter().sum::<f64>() + 2e-6;
    assert!(after[name] <= most, "{} of {of_process:?}", after[name]);
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn metrics_and_stats_agree_under_load_and_with_what_clients_did() {
    const CLIENTS: u64 = 4;
    const ROUNDS: u64 = 200;
    let server = Watched::start(&["-t", "2", "-m", "256", "--threshold", "32k"]);
    let before = server.scrape();
    let over = AtomicBool::new(false);
    let scrapes = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut scrapes = vec![server.scrape()];
            while !over.load(SeqCst) {
                scrapes.push(server.scrape());
            }
            scrapes
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut stream = server.client();
                let name = format!("c{client}-");
                scope.spawn(move || load(&mut stream, &name, ROUNDS as usize))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("it is served"));
        over.store(true, SeqCst);
        scraper.join().expect("it scrapes")
    });
    scrapes.iter().try_fold(&before, |before, scrape| {
        scrape.grew_from(before);
        scrape.histograms_are_whole();
        Some(scrape)
    });
    let after = server.scrape();
    after.grew_from(scrapes.last().expect("there is one"));
    let (small, large) = (CLIENTS * ROUNDS, CLIENTS * ROUNDS / 10);
    let requests = "laneway_request_duration_seconds_count";
    for (series, value) in [
        ("laneway_get_hits_total{lane=\"small\"}", small),
        ("laneway_get_hits_total{lane=\"large\"}", large),
        ("laneway_get_misses_total", small),
        (&format!("{requests}{{operation=\"get\",lane=\"small\"}}"), 2 * small),
        (&format!("{requests}{{operation=\"get\",lane=\"large\"}}"), large),
        (&format!("{requests}{{operation=\"set\",lane=\"small\"}}"), small),
        (&format!("{requests}{{operation=\"set\",lane=\"large\"}}"), large),
        ("laneway_errors_total{cause=\"malformed_request\"}", CLIENTS),
        ("laneway_items", small + CLIENTS),
        ("laneway_threshold_bytes{domain=\"0\"}", 32 << 10),
        ("laneway_ready", 1),
    ] {
        assert_eq!(after.value(series), value, "{series}");
    }
    for (series, family, name) in [
        ("laneway_commands_total{command=\"get\"}", "", "cmd_get"),
        ("laneway_commands_total{command=\"set\"}", "", "cmd_set"),
        ("laneway_get_misses_total", "", "get_misses"),
        ("laneway_items_stored_total", "", "total_items"),
        ("laneway_items_bytes", "", "bytes"),
        ("laneway_memory_limit_bytes", "", "limit_maxbytes"),
        ("laneway_memory_bytes{arena=\"index\"}", "", "hash_bytes"),
        ("laneway_evictions_total", "", "evictions"),
        (
            "laneway_worker_requests_total{worker=\"0\",lane=\"large\"}",
            "lanes",
            "worker:0:requests_large",
        ),
        (
            "laneway_worker_requests_total{worker=\"1\",lane=\"large\"}",
            "lanes",
            "worker:1:requests_large",
        ),
    ] {
        assert_eq!(after.value(series), server.stat(family, name), "{series}");
    }
    assert_eq!(server.stat("latency", "get:large:count"), large);
    ask(&mut server.client(), b"stats reset\r\n", b"RESET\r\n");
    server.scrape().grew_from(&after);
    assert!(after.value("laneway_process_resident_memory_bytes") > LARGE as u64);
}

#[test]
fn every_cause_of_an_error_is_told_by_all_that_tells_of_errors() {
    let server = Watched::start(&["-t", "1"]);
    let scrape = server.scrape();
    let causes: BTreeSet<&str> = scrape
        .samples
        .keys()
        .filter_map(|series| {
            series.strip_prefix("laneway_errors_total{cause=\"")?.strip_suffix("\"}")
        })
        .collect();
    assert!(causes.len() >= 12, "{causes:?}");
    let state: serde_json::Value =
        serde_json::from_str(&server.get("/api/state").1).expect("it is JSON");
    let told = state["errors"].as_object().expect("it tells of errors");
    assert_eq!(told.keys().map(String::as_str).collect::<BTreeSet<_>>(), causes);
    let page = server.get("/").1;
    for cause in causes {
        assert!(page.contains(&format!("{cause}: \"")), "the dashboard has no row for {cause}");
    }
}

#[test]
fn a_server_that_stops_is_not_ready_and_finishes_what_it_has_begun() {
    let server = Watched::start(&["--drain-ms", "100000", "-I", "32m", "-m", "128"]);
    assert_eq!(server.get("/readyz"), (200, "ready\n".to_owned()));
    let mut reader = server.client();
    let bytes = 30 << 20;
    let set = [format!("set big 0 0 {bytes}\r\n").into_bytes(), vec![b'x'; bytes]].concat();
    reader.write_all(&set).expect("it reads");
    ask(&mut reader, b"\r\n", b"STORED\r\n");
    reader.write_all(b"get big\r\n").expect("it reads");
    assert_eq!(reader.peek(&mut [0]).expect("the reply begins"), 1);
    server.process.signal("TERM");
    let refused = loop {
        match server.get("/readyz") {
            (200, _) => thread::yield_now(),
            other => break other,
        }
    };
    assert_eq!(refused.0, 503);
    assert!(refused.1.contains("stopping"), "{}", refused.1);
    assert_eq!(server.get("/healthz").0, 200, "it is well all the same");
    assert_eq!(server.scrape().value("laneway_ready"), 0);
    let reply = read_to(&mut reader, b"END\r\n");
    assert!(reply.len() > bytes);
    drop(reader);
    assert_eq!(server.process.end().code(), Some(0));
}

#[test]
fn what_is_not_there_is_told_and_nothing_can_be_changed() {
    let server = Watched::start(&[]);
    for (line, status, told) in [
        ("GET /", 200, "<!doctype html>"),
        ("GET /api/state", 200, "\"threshold_bytes\""),
        ("GET /metrics/", 404, "there is /, /metrics"),
        ("GET /../etc/passwd", 404, "nothing is here"),
        ("POST /metrics", 405, "ask with GET"),
        ("DELETE /", 405, "ask with GET"),
        ("GET /metrics?x=y", 200, "# EOF"),
    ] {
        let (answered, head, body) = server.request(line);
        assert_eq!(answered, status, "{line}: {head}");
        assert!(body.contains(told), "{line}: {body}");
        assert_eq!(head.contains("allow: GET, HEAD"), status == 405, "{head}");
    }
    let (status, head, body) = server.request("HEAD /metrics");
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: "), "{head}");
}

#[test]
fn malformed_http_is_refused_and_others_are_served() {
    let server = Watched::start(&[]);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(20_000));
    for garbage in [
        "get key\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\0\u{1}\u{2}\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: x\r\nContent-Length: 3\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &long,
        &many,
    ] {
        let mut stream = server.admin();
        // It may close before it has read all of it.
        let _ = stream.write_all(garbage.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let shown: String = garbage.chars().take(40).collect();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
        assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()), "after {shown}");
    }
    // A page elsewhere whose name leads here.
    let mut page = server.admin();
    let request = b"GET /api/state HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n";
    page.write_all(request).expect("it reads");
    let mut answer = String::new();
    page.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("threshold"), "{answer}");
    // Half a request, and the end.
    let mut half = server.admin();
    half.write_all(b"GET /metr").expect("it reads");
    half.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    let _ = half.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"));
    assert_eq!(server.get("/healthz").0, 200);
}

#[test]
fn a_thousand_idle_connections_and_readers_that_do_not_read_shut_nobody_out() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4096).min(hard), hard).expect("it may be raised");
    let server = Watched::start(&[]);
    let idle: Vec<TcpStream> = (0..1_000).map(|_| server.admin()).collect();
    assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()));
    let ask_for_all = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2_000);
    let deaf: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = server.admin();
            stream.set_nonblocking(true).expect("it can be");
            // As much as it takes: it stops reading while nobody reads its answers.
            let _ = stream.write(ask_for_all.as_bytes());
            stream
        })
        .collect();
    let scrape = server.scrape();
    assert!(scrape.value("laneway_ready") == 1 && scrape.value("laneway_connections") == 0);
    ask(&mut server.client(), b"mn\r\n", b"MN\r\n");
    // Of those that only hold a connection the oldest are gone.
    let mut first = &idle[0];
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)), "it was closed");
    drop((idle, deaf));
    assert_eq!(server.get("/readyz").0, 200);
}

#[test]
fn what_a_data_folder_holds_is_told_by_metrics_as_by_stats() {
    let folder = Scratch::new("metrics");
    let server = Watched::start(&[&["--data-dir", folder.path()], &SIZES[..]].concat());
    let mut client = server.client();
    for (key, bytes) in [("small", 100), ("large", 100_000)] {
        ask(&mut client, &set(key, &vec![b'x'; bytes]), b"STORED\r\n");
    }
    let scrape = server.scrape();
    scrape.histograms_are_whole();
    for (series, name) in [
        ("laneway_tier_medium_bytes{medium=\"log\"}", "log_bytes"),
        ("laneway_tier_medium_bytes{medium=\"ssd\"}", "ssd_bytes"),
        ("laneway_tier_used_bytes{medium=\"log\"}", "log_bytes_used"),
        ("laneway_tier_live_bytes{medium=\"log\"}", "log_bytes_live"),
        ("laneway_tier_live_bytes{medium=\"ssd\"}", "large_bytes_live"),
        ("laneway_tier_migration_backlog_bytes", "migration_backlog_bytes"),
        ("laneway_tier_split_bytes", "split_bytes"),
        ("laneway_tier_user_written_bytes_total", "user_bytes_written"),
        ("laneway_tier_written_bytes_total{medium=\"ssd\"}", "ssd_bytes_written"),
        ("laneway_tier_flush_duration_seconds_count{medium=\"log\"}", "log_flushes"),
        ("laneway_tier_flush_duration_seconds_count{medium=\"ssd\"}", "ssd_flushes"),
    ] {
        assert_eq!(scrape.value(series), server.stat("tier", name), "{series}");
    }
    let (used, all) = (server.stat("tier", "log_bytes_used"), server.stat("tier", "log_bytes"));
    assert!(0 < used && used < all, "{used} of {all}");
    server.process.stop();
}

#[test]
fn where_the_endpoint_cannot_be_is_told() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = held.local_addr().expect("it is bound").to_string();
    let address = "must be an address and a port";
    for (place, status, told) in [
        ("11280", 2, "must be an address and a port, such as 127.0.0.1:11280"),
        ("nowhere.invalid:1", 2, address),
        ("", 2, address),
        (&taken, 71, "choose another address with --admin"),
    ] {
        let said = refused(&[&HERE[..], &["--admin", place]].concat(), status, told);
        assert!(said.contains(place), "{place}: {said}");
    }
}

#[test]
fn an_address_that_others_reach_is_warned_of_once() {
    for (address, warnings) in [("0.0.0.0:0", 1), ("127.0.0.1:0", 0)] {
        let process = Process::here(&["--admin", address]);
        let count = process.said.matches("without a password").count();
        assert_eq!(count, warnings, "{}", process.said);
        process.stop();
    }
}
