//! The data folder of the real server: restarts, kill -9, full media. (Whose it is, its media and
//! its tools: `tier_folder`.)

use crate::rig::watched::Watched;
use crate::rig::{Process, SIZES, Scratch, ask, connect, laneway, set, stat, stats, text};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Output;

/// `laneway serve` of this folder.
pub fn serve(folder: &Scratch, flags: &[&str]) -> Process {
    Process::here(&[&["--data-dir", folder.path()], &SIZES[..], flags].concat())
}

/// A value that tells which write it comes from, in every part.
pub fn value(version: u64, bytes: usize) -> Vec<u8> {
    format!("{version:08}.").bytes().cycle().take(bytes).collect()
}

pub fn get(stream: &mut TcpStream, key: &str) -> Option<Vec<u8>> {
    let got = ask(stream, format!("get {key}\r\n").as_bytes(), b"END\r\n");
    if got == b"END\r\n" {
        return None;
    }
    let head = got.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    Some(got[head..got.len() - b"\r\nEND\r\n".len()].to_vec())
}

pub fn tool(folder: &Scratch, command: &str, flags: &[&str]) -> Output {
    laneway(&[&[command, folder.path()], flags].concat())
}

/// Stores 300 items, one in ten of them large.
fn store_all(client: &mut TcpStream) {
    for (key, value) in stored() {
        assert_eq!(ask(client, &set(&key, &value), b"\r\n"), b"STORED\r\n");
    }
}

/// What it stores is there.
fn assert_all(client: &mut TcpStream) {
    stored().for_each(|(key, value)| assert!(get(client, &key) == Some(value), "{key}"));
}

fn stored() -> impl Iterator<Item = (String, Vec<u8>)> {
    let bytes = |number: u64| if number.is_multiple_of(10) { 50_000 } else { 300 };
    (0..300).map(move |number| (format!("k{number}"), value(number, bytes(number))))
}

#[test]
fn an_index_in_persistent_memory_is_found_after_a_kill_and_checked_by_the_tools() {
    let folder = Scratch::new("fair");
    let emulated = ["--pm-backend", "emu", "--unsafe-volatile-pm", "--pm-size", "64m"];
    let server = serve(&folder, &[&emulated[..], &["--pm-index", "fair"]].concat());
    let mut client = server.connect();
    store_all(&mut client);
    assert!(stats(&mut client, "tier").contains("STAT scrub yes\r\nSTAT scrub_passes 0\r\n"));
    server.kill();
    let unscrubbed = [&emulated[..], &["--scrub-every", "off"]].concat();
    let server = serve(&folder, &unscrubbed);
    assert!(server.said.contains("300 items"), "{}", server.said);
    let mut client = server.connect();
    assert!(stats(&mut client, "tier").contains("STAT scrub no\r\n"));
    assert_all(&mut client);
    server.stop();
    let server = serve(&folder, &emulated);
    let stats = stats(&mut server.connect(), "tier");
    for line in ["STAT index fair", "STAT recovery_items 300", "STAT recovery_entries_read 0"] {
        assert!(stats.contains(line), "{line}: {stats}");
    }
    server.stop();
    let checked = tool(&folder, "fsck", &emulated);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let scanned = tool(&folder, "scan", &emulated);
    assert_eq!(text(&scanned.stdout).lines().count(), 300);
    let refused = tool(&folder, "fsck", &[&emulated[..], &["--pm-index", "btree"]].concat());
    assert!(text(&refused.stderr).contains("made with fair"), "{}", text(&refused.stderr));
}

/// Sets twice what the SSD takes, and gives back the first refusal.
fn fill_twice(client: &mut TcpStream) -> Option<Vec<u8>> {
    (0..TWICE).find_map(|number| {
        let request = set(&format!("k{number}"), &value(number, FILLING_BYTES));
        let told = ask(client, &request, b"\r\n");
        (told != b"STORED\r\n").then_some(told)
    })
}

const FILLING_BYTES: usize = 100_000;
const TWICE: u64 = 2 * (32 << 20) / FILLING_BYTES as u64;

#[test]
fn a_full_ssd_refuses_by_default_and_with_a_flag_evicts_for_ever() {
    let folder = Scratch::new("when-full");
    let flags = ["--ssd-size", "32m", "-m", "8"];
    let mut server = Watched::start(&[&["--data-dir", folder.path()][..], &SIZES, &flags].concat());
    let mut client = server.process.connect();
    let refused = fill_twice(&mut client).expect("twice as much does not fit");
    assert!(text(&refused).contains("the SSD has no room for"), "{}", text(&refused));
    server.process.await_log("a write was refused: ");
    let scrape = server.scrape();
    for (cause, count) in [("full", 1), ("memory", 0), ("failed", 0)] {
        let series = format!("laneway_tier_refused_writes_total{{cause=\"{cause}\"}}");
        assert_eq!(scrape.value(&series), count, "{cause}");
    }
    server.process.stop();
    let server = serve(&folder, &[&flags[..], &["--when-full", "evict"]].concat());
    let mut client = server.connect();
    assert_eq!(fill_twice(&mut client), None);
    let stats = stats(&mut client, "tier");
    assert!(stats.contains("STAT when_full evict\r\n"), "{stats}");
    assert!(!stats.contains("STAT evicted_items_large 0\r\n"), "{stats}");
    assert!(stats.contains("STAT writes_refused 0\r\n"), "{stats}");
    server.kill();
    let server = serve(&folder, &[&flags[..], &["--when-full", "evict"]].concat());
    let mut client = server.connect();
    let mut held = 0;
    for number in 0..TWICE {
        if let Some(got) = get(&mut client, &format!("k{number}")) {
            assert!(got == value(number, FILLING_BYTES), "key {number}");
            held += 1;
        }
    }
    assert!(TWICE / 4 < held && held < TWICE, "{held} of {TWICE}");
    server.stop();
    let checked = tool(&folder, "fsck", &[]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

#[test]
fn more_fits_where_values_are_compressed_and_they_are_read_with_and_without() {
    let line = |number: u64| format!("a line of the value of k{number}; ").into_bytes();
    let value =
        |number: u64| -> Vec<u8> { line(number).into_iter().cycle().take(FILLING_BYTES).collect() };
    let folder = Scratch::new("compress");
    let flags = ["--ssd-size", "32m", "-m", "8"];
    let server = serve(&folder, &[&flags[..], &["--compress", "lz4"]].concat());
    let mut client = server.connect();
    for number in 0..TWICE {
        let told = ask(&mut client, &set(&format!("k{number}"), &value(number)), b"\r\n");
        assert_eq!(text(&told), "STORED\r\n", "twice as much as the SSD holds");
    }
    assert_eq!(stat(&mut client, "tier", "compressed_values"), TWICE);
    let from = stat(&mut client, "tier", "compressed_from_bytes");
    assert_eq!(from, TWICE * FILLING_BYTES as u64);
    assert!(stat(&mut client, "tier", "compressed_to_bytes") < from / 4);
    let used = 32 * 1024 * 1024 - stat(&mut client, "tier", "ssd_bytes_free");
    assert!(stat(&mut client, "tier", "large_bytes_live") < used, "what is current is in use");
    server.kill();
    for flags in [&flags[..], &[&flags[..], &["--compress", "lz4"]].concat()[..]] {
        let server = serve(&folder, flags);
        let mut client = server.connect();
        for number in 0..TWICE {
            let got = get(&mut client, &format!("k{number}"));
            assert!(got == Some(value(number)), "key {number}");
        }
        server.stop();
    }
    let checked = tool(&folder, "fsck", &[]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

#[test]
fn a_compaction_gains_room_and_loses_nothing() {
    let folder = Scratch::new("compact");
    let server = serve(&folder, &["--pm-size", "64m", "--ssd-size", "64m"]);
    let mut client = server.connect();
    let bytes = |number: u64| if number.is_multiple_of(10) { 50_000 } else { 3000 };
    for round in 0..4 {
        for number in 0..2000_u64 {
            let request = set(&format!("k{number}"), &value(number + round, bytes(number)));
            assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
        }
    }
    let before = stat(&mut client, "tier", "log_bytes_used");
    server.stop();
    let compacted = tool(&folder, "compact", &[]);
    let told = text(&compacted.stderr);
    assert!(compacted.status.success(), "{told}");
    assert!(told.contains(" of log and SSD were in use, and "), "{told}");
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    let now = stat(&mut client, "tier", "log_bytes_used");
    assert!(now < before, "{now} of {before} bytes of the log");
    for number in 0..2000_u64 {
        assert!(get(&mut client, &format!("k{number}")) == Some(value(number + 3, bytes(number))));
    }
    server.stop();
    assert_eq!(tool(&folder, "compact", &["--repair"]).status.code(), Some(2));
    let missing = Scratch::new("compact-none");
    assert_eq!(tool(&missing, "compact", &[]).status.code(), Some(74));
}

#[test]
fn a_restart_finds_everything_at_once_in_both_forms() {
    for workers in ["1", "4"] {
        let folder = Scratch::new(&format!("warm-{workers}"));
        let server = serve(&folder, &["-t", workers]);
        assert!(server.said.contains(": made"), "{}", server.said);
        let mut client = server.connect();
        store_all(&mut client);
        server.stop();
        let server = serve(&folder, &["-t", workers]);
        assert!(server.said.contains("300 items"), "{}", server.said);
        let mut client = server.connect();
        assert_all(&mut client);
        let tier = stats(&mut client, "tier");
        for line in [
            "STAT tier yes",
            "STAT durability ack",
            "STAT items_large 30",
            "STAT recovery_items 300",
        ] {
            assert!(tier.contains(line), "{line}: {tier}");
        }
        let general = stats(&mut client, "");
        assert!(general.contains("STAT get_misses 0\r\n"), "{general}");
        assert!(general.contains("STAT get_hits 300\r\n"), "{general}");
        server.stop();
    }
}

/// What one client knows: acknowledged versions, and what was under way when the server died.
#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<String, (u64, usize)>,
    perhaps: Option<(String, (u64, usize))>,
}

/// Writes until the server is gone or has taken enough. Returns whether it is gone.
fn write_on(stream: &mut TcpStream, known: &mut Known, name: u64, round: u64, enough: u64) -> bool {
    let mut buffer = [0; 64];
    for number in 0..enough {
        let version = round * 100_000 + number;
        let key = format!("c{name}k{}", version * 7 % 23);
        let bytes =
            if version.is_multiple_of(5) { 5000 + (version % 7) as usize * 9000 } else { 200 };
        known.perhaps = Some((key.clone(), (version, bytes)));
        if stream.write_all(&set(&key, &value(version, bytes))).is_err() {
            return true;
        }
        let mut read = stream.read(&mut buffer);
        while matches!(&read, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
            read = stream.read(&mut buffer);
        }
        match read {
            Ok(8) => assert_eq!(&buffer[..8], b"STORED\r\n"),
            Ok(0) | Err(_) => return true,
            Ok(bytes) => panic!("{}", text(&buffer[..bytes])),
        }
        known.acknowledged.insert(key, (version, bytes));
        known.perhaps = None;
    }
    false
}

fn verify(server: &Process, known: &mut Known, name: u64, round: u64) {
    let mut client = server.connect();
    for slot in 0..23 {
        let key = format!("c{name}k{slot}");
        let found = get(&mut client, &key);
        let is = |version: &(u64, usize)| found == Some(value(version.0, version.1));
        let before = known.acknowledged.get(&key);
        let perhaps = known.perhaps.as_ref().filter(|(other, _)| *other == key);
        if let Some((_, version)) = perhaps
            && is(version)
        {
            known.acknowledged.insert(key, *version);
            continue;
        }
        let as_before = match before {
            Some(version) => is(version),
            None => found.is_none(),
        };
        let head = found.as_deref().map(|found| text(&found[..found.len().min(20)]));
        assert!(as_before, "round {round}: {key} should be {before:?}, and is {head:?}");
    }
    known.perhaps = None;
}

#[test]
fn kill_9_at_any_time_loses_no_acknowledged_write() {
    const ROUNDS: u64 = 8;
    const CLIENTS: u64 = 4;
    let folder = Scratch::new("kill");
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    for round in 0..ROUNDS {
        let server = serve(&folder, &["-t", "2", "-m", "16"]);
        for (name, known) in known.iter_mut().enumerate() {
            verify(&server, known, name as u64, round);
        }
        // One client decides when the server dies; the others find out.
        let streams: Vec<TcpStream> = known.iter().map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            for (name, (mut stream, known)) in streams.into_iter().zip(&mut known).enumerate() {
                let enough = if name == 0 { 40 + round * 13 } else { 1_000_000 };
                others.push(
                    scope.spawn(move || write_on(&mut stream, known, name as u64, round, enough)),
                );
            }
            let first = others.remove(0);
            assert!(!first.join().expect("no panic"), "it lives until it is killed");
            server.kill();
            for other in others {
                assert!(other.join().expect("no panic"));
            }
        });
    }
    let server = serve(&folder, &[]);
    for (name, known) in known.iter_mut().enumerate() {
        verify(&server, known, name as u64, ROUNDS);
    }
    server.stop();
    let checked = tool(&folder, "fsck", &[]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

fn resp(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend([format!("${}\r\n", arg.len()).as_bytes(), arg, b"\r\n"].concat());
    }
    bytes
}

/// What a Redis client was told is stored outlives a kill, by the port of both protocols and by
/// that of RESP alone, and so does the end of an item.
#[test]
fn what_redis_clients_store_is_found_after_a_kill() {
    let folder = Scratch::new("resp");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.expect("there is a free port").port().to_string();
    let server = serve(&folder, &["--resp", &port]);
    let mut both = server.connect();
    let mut alone = connect(&server.place("resp:"));
    for number in 0..100_u64 {
        let bytes = if number % 10 == 0 { 50_000 } else { 300 };
        let (key, value) = (format!("k{number}"), value(number, bytes));
        let set = resp(&[b"SET", key.as_bytes(), &value, b"EXAT", b"4000000000"]);
        let stream = if number % 2 == 0 { &mut both } else { &mut alone };
        assert_eq!(ask(stream, &set, b"\r\n"), b"+OK\r\n");
    }
    assert_eq!(ask(&mut both, &resp(&[b"INCRBY", b"n", b"41"]), b"\r\n"), b":41\r\n");
    assert_eq!(ask(&mut alone, &resp(&[b"DEL", b"k1", b"k2"]), b"\r\n"), b":2\r\n");
    server.kill();
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    for number in 0..100_u64 {
        let bytes = if number % 10 == 0 { 50_000 } else { 300 };
        let key = format!("k{number}");
        let (wanted, end) = match number {
            1 | 2 => (b"$-1\r\n".to_vec(), b":-2\r\n".to_vec()),
            _ => {
                let head = format!("${bytes}\r\n");
                let value = [head.as_bytes(), &value(number, bytes), b"\r\n"].concat();
                (value, b":4000000000\r\n".to_vec())
            }
        };
        client.write_all(&resp(&[b"GET", key.as_bytes()])).expect("it is sent");
        let mut got = vec![0; wanted.len()];
        client.read_exact(&mut got).expect("it is answered");
        assert!(got == wanted, "{key}");
        assert_eq!(ask(&mut client, &resp(&[b"EXPIRETIME", key.as_bytes()]), b"\r\n"), end);
    }
    assert_eq!(ask(&mut client, &resp(&[b"INCR", b"n"]), b"\r\n"), b":42\r\n");
    let mut memcached = server.connect();
    assert_eq!(get(&mut memcached, "n").as_deref(), Some(&b"42"[..]));
    server.stop();
}
