//! The data folder of the real server: restarts, kill -9, the lock, the flags, the tools.

use crate::rig::watched::Watched;
use crate::rig::{BINARY, Process, ask};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// How long an answer may take before the test says the server hangs. Never waited out when all
/// is well.
const HANG: Duration = Duration::from_secs(60);
/// Small media: a start makes them.
const SIZES: [&str; 4] = ["--pm-size", "32m", "--ssd-size", "64m"];

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a temporary folder has a plain name")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(folder: &Folder, flags: &[&str]) -> Server {
        let own = ["-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
        let process = Process::serve(&[&own, &SIZES[..], flags].concat());
        let address = process.places()[0].parse().expect("it listens on TCP");
        Server { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(HANG)).expect("a time-out can be set");
        stream
    }

    fn kill(self) {
        self.process.kill();
    }

    fn stop(self) {
        self.process.stop();
    }
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// A value that tells which write it comes from, in every part.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    format!("{version:08}.").bytes().cycle().take(bytes).collect()
}

fn get(stream: &mut TcpStream, key: &str) -> Option<Vec<u8>> {
    let got = ask(stream, format!("get {key}\r\n").as_bytes(), b"END\r\n");
    if got == b"END\r\n" {
        return None;
    }
    let head = got.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    Some(got[head..got.len() - b"\r\nEND\r\n".len()].to_vec())
}

fn tool(folder: &Folder, command: &str, flags: &[&str]) -> Output {
    let ran = Command::new(BINARY).arg(command).arg(folder.path()).args(flags).output();
    ran.expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_index_in_persistent_memory_is_found_after_a_kill_and_checked_by_the_tools() {
    let folder = Folder::new("fair");
    let emulated = ["--pm-backend", "emu", "--unsafe-volatile-pm", "--pm-size", "64m"];
    let server = Server::start(&folder, &[&emulated[..], &["--pm-index", "fair"]].concat());
    let mut client = server.connect();
    for number in 0..300_u64 {
        let bytes = if number % 10 == 0 { 50_000 } else { 300 };
        let request = set(&format!("k{number}"), &value(number, bytes));
        assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
    }
    let told = |client: &mut TcpStream| text(&ask(client, b"stats tier\r\n", b"END\r\n"));
    assert!(told(&mut client).contains("STAT scrub yes\r\nSTAT scrub_passes 0\r\n"));
    server.kill();
    let unscrubbed = [&emulated[..], &["--scrub-every", "off"]].concat();
    let server = Server::start(&folder, &unscrubbed);
    assert!(server.process.said.contains("300 items"), "{}", server.process.said);
    let mut client = server.connect();
    assert!(told(&mut client).contains("STAT scrub no\r\n"));
    for number in 0..300_u64 {
        let bytes = if number % 10 == 0 { 50_000 } else { 300 };
        assert!(get(&mut client, &format!("k{number}")) == Some(value(number, bytes)));
    }
    server.stop();
    let server = Server::start(&folder, &emulated);
    let stats = text(&ask(&mut server.connect(), b"stats tier\r\n", b"END\r\n"));
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
    let folder = Folder::new("when-full");
    let flags = ["--ssd-size", "32m", "-m", "8"];
    let mut server = Watched::start(&[&["--data-dir", folder.path()][..], &SIZES, &flags].concat());
    let mut client = server.client();
    client.set_read_timeout(Some(HANG)).expect("a time-out can be set");
    let refused = fill_twice(&mut client).expect("twice as much does not fit");
    assert!(text(&refused).contains("the SSD has no room for"), "{}", text(&refused));
    server.process.await_log("a write was refused: ");
    let scrape = server.scrape();
    for (cause, count) in [("full", 1), ("memory", 0), ("failed", 0)] {
        let series = format!("laneway_tier_refused_writes_total{{cause=\"{cause}\"}}");
        assert_eq!(scrape.value(&series), count, "{cause}");
    }
    server.process.stop();
    let server = Server::start(&folder, &[&flags[..], &["--when-full", "evict"]].concat());
    let mut client = server.connect();
    assert_eq!(fill_twice(&mut client), None);
    let stats = text(&ask(&mut client, b"stats tier\r\n", b"END\r\n"));
    assert!(stats.contains("STAT when_full evict\r\n"), "{stats}");
    assert!(!stats.contains("STAT evicted_items_large 0\r\n"), "{stats}");
    assert!(stats.contains("STAT writes_refused 0\r\n"), "{stats}");
    server.kill();
    let server = Server::start(&folder, &[&flags[..], &["--when-full", "evict"]].concat());
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

/// The number that `stats tier` tells under this name.
fn told(client: &mut TcpStream, name: &str) -> u64 {
    let stats = text(&ask(client, b"stats tier\r\n", b"END\r\n"));
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {stats}"))
}

#[test]
fn more_fits_where_values_are_compressed_and_they_are_read_with_and_without() {
    let line = |number: u64| format!("a line of the value of k{number}; ").into_bytes();
    let value =
        |number: u64| -> Vec<u8> { line(number).into_iter().cycle().take(FILLING_BYTES).collect() };
    let folder = Folder::new("compress");
    let flags = ["--ssd-size", "32m", "-m", "8"];
    let server = Server::start(&folder, &[&flags[..], &["--compress", "lz4"]].concat());
    let mut client = server.connect();
    for number in 0..TWICE {
        let told = ask(&mut client, &set(&format!("k{number}"), &value(number)), b"\r\n");
        assert_eq!(text(&told), "STORED\r\n", "twice as much as the SSD holds");
    }
    assert_eq!(told(&mut client, "compressed_values"), TWICE);
    let from = told(&mut client, "compressed_from_bytes");
    assert_eq!(from, TWICE * FILLING_BYTES as u64);
    assert!(told(&mut client, "compressed_to_bytes") < from / 4);
    let used = 32 * 1024 * 1024 - told(&mut client, "ssd_bytes_free");
    assert!(told(&mut client, "large_bytes_live") < used, "what is current is in use");
    server.kill();
    for flags in [&flags[..], &[&flags[..], &["--compress", "lz4"]].concat()[..]] {
        let server = Server::start(&folder, flags);
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
    let folder = Folder::new("compact");
    let server = Server::start(&folder, &["--pm-size", "64m", "--ssd-size", "64m"]);
    let mut client = server.connect();
    let bytes = |number: u64| if number.is_multiple_of(10) { 50_000 } else { 3000 };
    for round in 0..4 {
        for number in 0..2000_u64 {
            let request = set(&format!("k{number}"), &value(number + round, bytes(number)));
            assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
        }
    }
    let stats = text(&ask(&mut client, b"stats tier\r\n", b"END\r\n"));
    server.stop();
    let compacted = tool(&folder, "compact", &[]);
    let told = text(&compacted.stderr);
    assert!(compacted.status.success(), "{told}");
    assert!(told.contains(" of log and SSD were in use, and "), "{told}");
    let server = Server::start(&folder, &[]);
    let mut client = server.connect();
    let after = text(&ask(&mut client, b"stats tier\r\n", b"END\r\n"));
    let number = |stats: &str, name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.and_then(|text| text.parse::<u64>().ok()).expect("it is told")
    };
    let (before, now) = (number(&stats, "log_bytes_used"), number(&after, "log_bytes_used"));
    assert!(now < before, "{now} of {before} bytes of the log");
    for number in 0..2000_u64 {
        assert!(get(&mut client, &format!("k{number}")) == Some(value(number + 3, bytes(number))));
    }
    server.stop();
    assert_eq!(tool(&folder, "compact", &["--repair"]).status.code(), Some(2));
    let missing = Folder::new("compact-none");
    assert_eq!(tool(&missing, "compact", &[]).status.code(), Some(74));
}

#[test]
fn a_restart_finds_everything_at_once_in_both_forms() {
    for workers in ["1", "4"] {
        let folder = Folder::new(&format!("warm-{workers}"));
        let server = Server::start(&folder, &["-t", workers]);
        assert!(server.process.said.contains(": made"), "{}", server.process.said);
        let mut client = server.connect();
        for number in 0..300_u64 {
            let bytes = if number % 10 == 0 { 50_000 } else { 300 };
            let request = set(&format!("k{number}"), &value(number, bytes));
            assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
        }
        server.stop();
        let server = Server::start(&folder, &["-t", workers]);
        assert!(server.process.said.contains("300 items"), "{}", server.process.said);
        let mut client = server.connect();
        for number in 0..300_u64 {
            let bytes = if number % 10 == 0 { 50_000 } else { 300 };
            let got = get(&mut client, &format!("k{number}"));
            assert!(got == Some(value(number, bytes)), "k{number}");
        }
        let stats = text(&ask(&mut client, b"stats tier\r\n", b"END\r\n"));
        for line in [
            "STAT tier yes",
            "STAT durability ack",
            "STAT items_large 30",
            "STAT recovery_items 300",
        ] {
            assert!(stats.contains(line), "{line}: {stats}");
        }
        let general = text(&ask(&mut client, b"stats\r\n", b"END\r\n"));
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

fn verify(server: &Server, known: &mut Known, name: u64, round: u64) {
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
    let folder = Folder::new("kill");
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    for round in 0..ROUNDS {
        let server = Server::start(&folder, &["-t", "2", "-m", "16"]);
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
    let server = Server::start(&folder, &[]);
    for (name, known) in known.iter_mut().enumerate() {
        verify(&server, known, name as u64, ROUNDS);
    }
    server.stop();
    let checked = tool(&folder, "fsck", &[]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

#[test]
fn a_folder_has_one_server_and_flags_that_cannot_work_are_refused() {
    let folder = Folder::new("lock");
    let server = Server::start(&folder, &[]);
    let second = Command::new(BINARY)
        .args(["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()])
        .output()
        .expect("it runs");
    assert_eq!(second.status.code(), Some(74), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("another process has this store open"));
    assert_eq!(tool(&folder, "fsck", &[]).status.code(), Some(74));
    server.stop();
    for (flags, told) in [
        (&["--data-dir", "x", "--design", "minos"][..], "--design lanes only"),
        (&["--data-dir", "x", "-M"], "leave -M out"),
        (&["--data-dir", "x", "--pm-backend", "emu"], "--unsafe-volatile-pm"),
        (&["--data-dir", "x", "--pm-backend", "tape"], "must be wal"),
        (&["--data-dir", "x", "--pm-index", "fair"], "--pm-backend dax"),
        (&["--data-dir", "x", "--pm-index", "hash"], "must be btree"),
        (&["--pm-index", "fair"], "--data-dir"),
        (&["--data-dir", "x", "--durability", "never"], "must be ack"),
        (&["--data-dir", "x", "--durability", "interval:0"], "interval:MS"),
        (&["--data-dir", "x", "--split-bytes", "many"], "or inf, or auto"),
        (&["--data-dir", "x", "--compress", "zstd"], "must be off"),
        (&["--data-dir", "x", "--compress-from", "9k"], "say --compress lz4"),
        (&["--data-dir", "x", "--compress", "lz4", "--compress-from", "1m"], "must be below"),
        (&["--compress", "lz4"], "--data-dir"),
        (&["--ssd-size", "1g"], "--data-dir DIR too"),
    ] {
        let refused = Command::new(BINARY).arg("serve").args(flags).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(2), "{flags:?}");
        assert!(text(&refused.stderr).contains(told), "{flags:?}: {}", text(&refused.stderr));
    }
    assert!(!Path::new("x").exists(), "what is refused makes nothing");
}

#[test]
fn the_tools_check_list_dump_load_and_repair() {
    let (folder, other) = (Folder::new("tools"), Folder::new("tools-other"));
    let missing = tool(&folder, "fsck", &[]);
    assert_eq!(missing.status.code(), Some(74));
    let told = text(&missing.stderr);
    assert!(told.contains("there is no store here") && !told.contains("belong"), "{told}");
    let server = Server::start(&folder, &[]);
    let mut client = server.connect();
    for (key, bytes) in [("a", 100), ("b", 9000), ("c", 1)] {
        assert_eq!(ask(&mut client, &set(key, &value(7, bytes)), b"\r\n"), b"STORED\r\n");
    }
    server.stop();
    let sound = tool(&folder, "fsck", &[]);
    assert_eq!(text(&sound.stdout), "3 items can be read, 0 cannot\n");
    assert!(sound.status.success());
    assert_eq!(text(&tool(&folder, "scan", &[]).stdout), "a 100 0 0\nb 9000 0 0\nc 1 0 0\n");
    let some = tool(&folder, "scan", &["--from", "a", "--to", "c", "--limit", "1", "--values"]);
    assert_eq!(some.stdout, [&b"a 100 0 0\n"[..], &value(7, 100), b"\n"].concat());
    let file = folder.0.join("all.dump");
    let file = file.to_str().expect("plain");
    assert!(tool(&folder, "dump", &["--output", file]).status.success());
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(file).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "every value is in it");
    let load = tool(&other, "load", &[&["--input", file], &SIZES[..]].concat());
    assert!(load.status.success(), "{}", text(&load.stderr));
    assert_eq!(text(&tool(&other, "scan", &[]).stdout), "a 100 0 0\nb 9000 0 0\nc 1 0 0\n");
    // A flipped bit in the large value.
    let path = other.0.join("ssd");
    let mut ssd = fs::read(&path).expect("it is there");
    let wanted = value(7, 9000);
    let at = ssd.windows(9000).position(|bytes| bytes == wanted).expect("it is on the SSD");
    ssd[at + 4000] ^= 4;
    fs::write(&path, ssd).expect("it can be written");
    let damaged = tool(&other, "fsck", &[]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged.stdout).contains("lost: b: "), "{}", text(&damaged.stdout));
    assert!(tool(&other, "fsck", &["--repair"]).status.success());
    assert!(tool(&other, "fsck", &[]).status.success());
    assert_eq!(text(&tool(&other, "scan", &[]).stdout), "a 100 0 0\nc 1 0 0\n");
    assert_eq!(tool(&other, "scan", &["--nonsense"]).status.code(), Some(2));
    // The folder may be named as the server has it; of two, none is passed over.
    let both = tool(&other, "scan", &["--data-dir", folder.path()]);
    assert_eq!((both.status.code(), text(&both.stdout)), (Some(2), String::new()));
    let own = Command::new(BINARY).args(["scan", "--data-dir", other.path()]).output();
    assert_eq!(text(&own.expect("it runs").stdout), "a 100 0 0\nc 1 0 0\n");
}

#[test]
fn a_log_that_is_missing_or_another_stores_is_refused_and_nothing_is_lost() {
    let (folder, other) = (Folder::new("log-lost"), Folder::new("log-other"));
    for (folder, count) in [(&folder, 20), (&other, 3)] {
        let server = Server::start(folder, &[]);
        let mut client = server.connect();
        for number in 0..count {
            let request = set(&format!("k{number}"), &value(number, 100));
            assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
        }
        server.stop();
    }
    let refused = |flags: &[&str], told: &str| {
        let own = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
        for args in [&own[..], &["fsck", folder.path()], &["scan", folder.path()]] {
            let ran = Command::new(BINARY).args(args).args(flags).output().expect("it runs");
            assert_eq!(ran.status.code(), Some(74), "{args:?}: {}", text(&ran.stderr));
            assert!(text(&ran.stderr).contains(told), "{args:?}: {}", text(&ran.stderr));
        }
    };
    let path =
        |folder: &Folder, name: &str| folder.0.join(name).to_str().expect("plain").to_string();
    let missing = path(&folder, "not-mounted/log");
    refused(&["--pm", &missing], "is missing; nothing was written");
    assert!(!Path::new(&missing).exists(), "it was not made");
    refused(&["--pm", &path(&other, "log")], "is another store's");
    let (log, kept) = (path(&folder, "log"), path(&folder, "kept"));
    fs::rename(&log, &kept).expect("renamed");
    refused(&[], "--accept-lost-log");
    assert!(!Path::new(&log).exists(), "it was not made");
    fs::write(&log, []).expect("written");
    refused(&[], "nothing was written");
    fs::write(&log, vec![0; 32 << 20]).expect("written");
    refused(&[], "the log is blank");
    fs::rename(&kept, &log).expect("renamed");
    for (folder, count) in [(&folder, 20), (&other, 3)] {
        let told = format!("{count} items can be read, 0 cannot\n");
        assert_eq!(text(&tool(folder, "fsck", &[]).stdout), told);
    }
    // It is lost: without --pm-size the new one is as long as the old one was.
    fs::remove_file(&log).expect("removed");
    let own = ["-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
    let process = Process::serve(&[&own[..], &["--accept-lost-log"]].concat());
    let mut client = TcpStream::connect(process.places()[0]).expect("connects");
    assert_eq!(ask(&mut client, &set("new", &value(1, 100)), b"\r\n"), b"STORED\r\n");
    assert!(!process.said.contains("was not needed"), "{}", process.said);
    process.stop();
    assert_eq!(fs::metadata(&log).expect("it is there").len(), 32 << 20);
    let process = Process::serve(&[&own[..], &["--accept-lost-log"]].concat());
    assert!(process.said.contains("--accept-lost-log was not needed"), "{}", process.said);
    process.stop();
    let repaired = tool(&folder, "fsck", &["--repair"]);
    assert_eq!(text(&repaired.stdout).lines().last(), Some("1 items can be read, 20 cannot"));
    assert!(tool(&folder, "fsck", &[]).status.success());
}

#[test]
fn a_log_or_an_ssd_has_one_store_whatever_the_folder() {
    let (folder, other) = (Folder::new("shared"), Folder::new("shared-too"));
    let server = Server::start(&folder, &[]);
    for (flag, name) in [("--pm", "log"), ("--ssd", "ssd")] {
        let path = folder.0.join(name);
        let path = path.to_str().expect("plain");
        let own = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", other.path(), flag, path];
        let second = Command::new(BINARY).args(own).args(SIZES).output().expect("it runs");
        assert_eq!(second.status.code(), Some(74), "{flag}: {}", text(&second.stderr));
        let told = format!("{path} is in use");
        assert!(text(&second.stderr).contains(&told), "{flag}: {}", text(&second.stderr));
        let left = fs::read_dir(&other.0).expect("it was made").count();
        assert_eq!(left, 1, "{flag}: a lock and no half of a store");
    }
    server.stop();
}

#[test]
fn larger_sizes_of_a_start_make_the_store_larger_and_smaller_ones_are_told() {
    let folder = Folder::new("grows");
    let server = Server::start(&folder, &[]);
    let request = set("kept", &value(1, 100_000));
    assert_eq!(ask(&mut server.connect(), &request, b"\r\n"), b"STORED\r\n");
    server.stop();
    let lengths = || ["log", "ssd"].map(|name| fs::metadata(folder.0.join(name)).unwrap().len());
    // Where there is no room for the one neither is longer.
    let huge = (1u64 << 60).to_string();
    let own = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
    let asked = ["--pm-size", "48m", "--ssd-size", &huge];
    let refused = Command::new(BINARY).args(own).args(asked).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(74), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("more cannot be reserved"), "{}", text(&refused.stderr));
    assert_eq!(lengths(), [32 << 20, 64 << 20]);
    let server = Server::start(&folder, &["--pm-size", "48m", "--ssd-size", "96m"]);
    let told = "has grown: the log from 32 to 48 MiB, the SSD from 64 to 96 MiB";
    assert!(server.process.said.contains(told), "{}", server.process.said);
    assert_eq!(lengths(), [48 << 20, 96 << 20]);
    let mut client = server.connect();
    let stats = text(&ask(&mut client, b"stats tier\r\n", b"END\r\n"));
    for line in ["STAT log_bytes 50331648\r\n", "STAT ssd_bytes 100663296\r\n"] {
        assert!(stats.contains(line), "{stats}");
    }
    assert_eq!(get(&mut client, "kept"), Some(value(1, 100_000)));
    server.kill();
    let server = Server::start(&folder, &[]);
    for told in [
        "--pm-size: 32 MiB is less than the 48 MiB that the store has and keeps",
        "--ssd-size: 64 MiB is less than the 96 MiB that the store has and keeps",
    ] {
        assert!(server.process.said.contains(told), "{}", server.process.said);
    }
    assert_eq!(get(&mut server.connect(), "kept"), Some(value(1, 100_000)));
    server.stop();
    // By default they are what the store has.
    let process = Process::serve(&own[1..]);
    assert!(!process.said.contains("is less than"), "{}", process.said);
    process.stop();
    // The tools take it as it is, whatever they are given.
    for command in ["fsck", "compact", "scan"] {
        let ran = tool(&folder, command, &["--pm-size", "64m", "--ssd-size", "128m"]);
        assert!(ran.status.success(), "{command}: {}", text(&ran.stderr));
        assert_eq!(lengths(), [48 << 20, 96 << 20], "{command}");
    }
    assert!(text(&tool(&folder, "scan", &[]).stdout).contains("kept"));
    let server = Server::start(&folder, &["--pm-size", "48m", "--ssd-size", "112m"]);
    let told = "has grown: the SSD from 96 to 112 MiB";
    assert!(server.process.said.contains(told), "{}", server.process.said);
    server.stop();
}

#[test]
fn a_folder_that_cannot_be_made_is_named_with_the_way_out_and_nothing_is_said_to_be_made() {
    let folder = Folder::new("unmade");
    fs::create_dir_all(&folder.0).expect("made");
    let file = folder.0.join("file");
    fs::write(&file, b"no folder").expect("written");
    let below = file.join("store");
    let own = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", below.to_str().unwrap()];
    let refused = Command::new(BINARY).args(own).args(SIZES).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(74), "{}", text(&refused.stderr));
    let told = text(&refused.stderr);
    let whose = format!("{}: this folder cannot be made: ", file.display());
    assert!(told.contains(&whose) && told.contains("mkdir -p"), "{told}");
    assert!(!told.contains(": makes "), "{told}");
}

#[test]
fn a_store_that_cannot_be_made_leaves_nothing_behind() {
    let folder = Folder::new("half-made");
    let huge = (1u64 << 60).to_string();
    for (flags, told) in [
        (&["--pm-size", "16m", "--ssd-size", "64m"][..], "--pm-size"),
        (&["--pm-size", "32m", "--ssd-size", "64k"], "--ssd-size"),
        (&["--pm-size", "32m", "--ssd-size", &huge], "--ssd-size"),
        (&["--pm-size", &huge, "--ssd-size", "64m"], "--pm-size"),
    ] {
        let own = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
        let refused = Command::new(BINARY).args(own).args(flags).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(74), "{flags:?}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(told), "{flags:?}: {}", text(&refused.stderr));
        assert_eq!(fs::read_dir(&folder.0).expect("it was made").count(), 1, "{flags:?}");
    }
    Server::start(&folder, &[]).stop();
}

#[test]
fn a_stream_that_is_no_dump_is_named_and_makes_no_store() {
    let folder = Folder::new("no-dump");
    fs::create_dir_all(&folder.0).expect("made");
    let garbage = folder.0.join("garbage");
    let garbage = garbage.to_str().expect("plain");
    for (bytes, told) in [(&b"some other file"[..], "is no dump"), (b"", "is no dump")] {
        fs::write(garbage, bytes).expect("written");
        let store = folder.0.join("store");
        let ran = Command::new(BINARY)
            .args(["load", store.to_str().expect("plain"), "--input", garbage])
            .output()
            .expect("it runs");
        assert_eq!(ran.status.code(), Some(74));
        let stderr = text(&ran.stderr);
        assert!(stderr.contains(told) && stderr.contains(garbage), "{stderr}");
        assert!(!stderr.contains("fsck") && !store.exists(), "{stderr}");
    }
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
    let folder = Folder::new("resp");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.expect("there is a free port").port().to_string();
    let server = Server::start(&folder, &["--resp", &port]);
    let mut both = server.connect();
    let own = server.process.places().iter().find_map(|place| {
        place.strip_prefix("resp:").and_then(|address| address.parse::<SocketAddr>().ok())
    });
    let mut alone = TcpStream::connect(own.expect("it listens for RESP")).expect("connects");
    alone.set_read_timeout(Some(HANG)).expect("a time-out can be set");
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
    let server = Server::start(&folder, &[]);
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
