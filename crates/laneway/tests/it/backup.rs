//! Backups of the real server: made while it is written to, restored, and what they refuse.

use crate::rig::{
    BINARY, HERE, Process, SIZES, Scratch, ask, connect, laneway, refused, skip, stats, text,
};
use crate::tier::value;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Folders for the data and for its backups.
struct Place(Scratch);

impl Place {
    fn new(name: &str) -> Place {
        let folder = Scratch::folder(&format!("backup-{name}"));
        fs::create_dir(folder.file("copies")).expect("made");
        Place(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.file(name)
    }

    fn copies(&self) -> Vec<String> {
        let found = fs::read_dir(self.path("copies")).expect("it is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> =
            found.map(|entry| name(entry).into_string().expect("a plain name")).collect();
        names.sort();
        names
    }

    /// `laneway serve` of the folder of this name.
    fn flags<'f>(&self, paths: &'f [String; 2], flags: &[&'f str]) -> Vec<&'f str> {
        let own = ["--data-dir", &paths[0], "--backup-dir", &paths[1]];
        [&HERE[..], &own, &SIZES, flags].concat()
    }

    fn serve(&self, folder: &str, flags: &[&str]) -> Process {
        let paths = [self.path(folder), self.path("copies")];
        Process::serve(&self.flags(&paths, flags))
    }

    /// Has the copy `day` made of so many items of this length.
    fn copy(&self, items: u64, bytes: usize) {
        let server = self.serve("data", &[]);
        let mut client = server.connect();
        (0..items).for_each(|n| set(&mut client, &format!("key-{n}"), n, &value(n, bytes)));
        assert!(backup(server.places()[0], &["day"]).status.success());
        server.stop();
    }
}

fn backup(server: &str, words: &[&str]) -> Output {
    laneway(&[&["backup", "--server", server], words].concat())
}

fn set(stream: &mut TcpStream, key: &str, flags: u64, value: &[u8]) {
    let line = format!("set {key} {flags} 4000000000 {}\r\n", value.len());
    let request = [line.as_bytes(), value, b"\r\n"].concat();
    assert_eq!(ask(stream, &request, b"\r\n"), b"STORED\r\n");
}

/// The state that `stats backup` tells, once it is another than "running".
fn ended(stream: &mut TcpStream) -> String {
    loop {
        let told = stats(stream, "backup");
        if !told.contains("backup_state running") {
            return told;
        }
        std::thread::yield_now();
    }
}

/// Keys in order, with length, flags and expiry, of a folder that nobody has open.
fn scan(folder: &str) -> String {
    let told = laneway(&["scan", folder, "--values"]);
    assert!(told.status.success(), "{}", text(&told.stderr));
    text(&told.stdout)
}

fn load(place: &Place, copy: &str, folder: &str) -> Output {
    let own = ["load", &place.path(folder), "--input", &place.path(copy)];
    laneway(&[&own, &SIZES[..]].concat())
}

#[test]
fn a_server_in_a_sandbox_makes_backups_and_a_read_only_port_begins_none() {
    let place = Place::new("sandbox");
    let paths = [place.path("data"), place.path("copies")];
    let flags = place.flags(&paths, &["--sandbox", "on"]);
    let both = |flag| if flag == "127.0.0.1" { "127.0.0.1,readonly:127.0.0.1" } else { flag };
    let server = Process::serve(&flags.into_iter().map(both).collect::<Vec<_>>());
    let read_only = server.place("readonly:");
    for line in ["backup start none\r\n", "backup stop\r\n"] {
        let told = ask(&mut connect(&read_only), line.as_bytes(), b"\r\n");
        assert_eq!(told, b"CLIENT_ERROR this port is read-only\r\n");
    }
    let open = server.places().into_iter().find(|place| place.starts_with("127.")).unwrap();
    set(&mut connect(open), "k", 0, &value(1, 300));
    let told = backup(open, &["day"]);
    assert!(told.status.success(), "{}", text(&told.stderr));
    assert_eq!(place.copies(), ["day"]);
    server.stop();
}

#[test]
fn a_backup_of_a_server_that_is_written_to_is_restored_as_of_one_instant() {
    const WRITERS: usize = 3;
    let place = Place::new("restore");
    let server = place.serve("data", &["--backup-rate", "0"]);
    let at = server.places()[0];
    let mut client = connect(at);
    for number in 0..300_u64 {
        let bytes = if number % 10 == 0 { 40_000 } else { 300 };
        set(&mut client, &format!("still-{number}"), number, &value(number, bytes));
    }
    let (is_over, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; WRITERS]);
    let keys = |writer: usize| (0..20).map(move |key| format!("writer-{writer}-{key:02}"));
    let (mut before, mut after) = ([0; WRITERS], [0; WRITERS]);
    let told = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (is_over, rounds) = (&is_over, &rounds);
            scope.spawn(move || {
                let mut client = connect(at);
                while !is_over.load(SeqCst) {
                    let number = rounds[writer].load(SeqCst) + 1;
                    for (nth, key) in keys(writer).enumerate() {
                        let bytes = if nth % 4 == 0 { 9000 } else { 100 };
                        set(&mut client, &key, number, &value(number, bytes));
                    }
                    rounds[writer].store(number, SeqCst);
                }
            });
        }
        while rounds.iter().any(|number| number.load(SeqCst) < 2) {
            std::thread::yield_now();
        }
        before = rounds.each_ref().map(|number| number.load(SeqCst));
        let told = backup(at, &["day-1"]);
        // It is begun before the command returns.
        after = rounds.each_ref().map(|number| number.load(SeqCst) + 1);
        is_over.store(true, SeqCst);
        told
    });
    assert!(told.status.success(), "{}", text(&told.stderr));
    assert!(text(&told.stdout).contains("day-1: 360 items"), "{}", text(&told.stdout));
    assert_eq!(place.copies(), ["day-1"]);
    server.stop();
    let checked = laneway(&["backup", "--check", &place.path("copies/day-1")]);
    assert!(text(&checked.stdout).contains("360 items, whole"), "{}", text(&checked.stderr));
    let loaded = load(&place, "copies/day-1", "restored");
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    let restored = place.serve("restored", &[]);
    let mut client = restored.connect();
    for number in 0..300_u64 {
        let bytes = if number % 10 == 0 { 40_000 } else { 300 };
        let line = format!("VALUE still-{number} {number} {bytes}\r\n");
        let expected = [line.as_bytes(), &value(number, bytes), b"\r\nEND\r\n"].concat();
        let request = format!("get still-{number}\r\n");
        assert!(ask(&mut client, request.as_bytes(), b"END\r\n") == expected, "{number}");
    }
    for writer in 0..WRITERS {
        let mut last = u64::MAX;
        for key in keys(writer) {
            let got = text(ask(&mut client, format!("get {key}\r\n").as_bytes(), b"END\r\n"));
            let number: u64 = got.split(' ').nth(2).expect(&got).parse().expect(&got);
            assert!((before[writer]..=after[writer]).contains(&number), "{key}: {number}");
            assert!(number <= last && (last == u64::MAX || last - number <= 1), "{key}: {number}");
            last = number;
        }
    }
    restored.stop();
    assert!(scan(&place.path("restored")).contains("still-7 300 7 4000000000\n"));
}

#[test]
fn copies_go_to_no_data_folder() {
    let place = Place::new("own");
    let data = place.path("data");
    fs::create_dir(&data).expect("temp is writable");
    let own = ["-p", "-1", "--data-dir", &data, "--backup-dir", &format!("{data}/../data")];
    let flags = [&own, &SIZES[..]].concat();
    refused(&flags, 2, "the data folder is no place for copies of it");
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn what_a_backup_refuses_it_says_and_nothing_is_made() {
    let place = Place::new("refused");
    let server = place.serve("data", &["--backup-rate", "1k"]);
    let at = server.places()[0];
    let mut client = connect(at);
    set(&mut client, "key", 0, &value(1, 60_000));
    set(&mut client, "more", 0, &value(1, 60_000));
    for (request, told) in [
        ("backup start ../day", "CLIENT_ERROR a backup's name"),
        ("backup start a/b", "CLIENT_ERROR a backup's name"),
        ("backup start .day", "CLIENT_ERROR a backup's name"),
        ("backup start load-not-finished", "CLIENT_ERROR a backup's name"),
        ("backup start log", "CLIENT_ERROR a backup's name"),
        ("backup start", "CLIENT_ERROR usage"),
        ("backup", "CLIENT_ERROR usage"),
        ("backup stop", "CLIENT_ERROR no backup"),
    ] {
        let reply = text(ask(&mut client, format!("{request}\r\n").as_bytes(), b"\r\n"));
        assert!(reply.starts_with(told), "{request}: {reply}");
    }
    let told = backup(at, &["a b"]);
    assert_eq!(told.status.code(), Some(1), "{}", text(&told.stderr));
    assert_eq!(place.copies(), [""; 0]);
    // One that takes a minute: another is refused, and who goes ends it.
    let mut slow = Command::new(BINARY);
    slow.args(["backup", "--server", at, "slow"]).stderr(Stdio::null());
    let mut slow = slow.spawn().expect("it runs");
    while place.copies() != ["slow.part"] {
        std::thread::yield_now();
    }
    let told = backup(at, &["other"]);
    assert!(text(&told.stderr).contains("a backup is under way"), "{}", text(&told.stderr));
    // Its file is there before it has counted the items.
    let counted = loop {
        let told = stats(&mut client, "backup");
        assert!(told.contains("backup_name slow"), "{told}");
        if !told.contains("backup_items_at_start 0") {
            break told;
        }
    };
    assert!(counted.contains("backup_items_at_start 2"), "{counted}");
    slow.kill().expect("it runs");
    slow.wait().expect("it can be waited for");
    let told = ended(&mut client);
    assert!(told.contains("has closed the connection"), "{told}");
    assert_eq!(place.copies(), [""; 0]);
    // The same by a word of somebody else's.
    let mut asker = connect(at);
    assert_eq!(ask(&mut asker, b"backup start again\r\n", b"\r\n"), b"OK\r\n");
    assert_eq!(ask(&mut client, b"backup stop\r\n", b"\r\n"), b"OK\r\n");
    assert!(ended(&mut client).contains("it was stopped by a client"));
    // What is there stays.
    fs::write(place.path("copies/kept"), b"mine").expect("written");
    let told = backup(at, &["kept"]);
    assert!(text(&told.stderr).contains("is there already"), "{}", text(&told.stderr));
    assert_eq!(fs::read(place.path("copies/kept")).expect("it stays"), b"mine");
    let told = stats(&mut client, "backup");
    for line in ["STAT backup_name again\r\n", "STAT backup_refused kept\r\n"] {
        assert!(told.contains(line), "the one before is the last one: {told}");
    }
    // A stop of the server ends it, and does not wait for it.
    assert_eq!(ask(&mut asker, b"backup start last\r\n", b"\r\n"), b"OK\r\n");
    server.stop();
    assert_eq!(place.copies(), ["kept"]);
    // Without a folder for them there are none.
    let data = place.path("data");
    let server = Process::here(&[&["--data-dir", &*data], &SIZES[..]].concat());
    let told = backup(server.places()[0], &["day"]);
    assert!(text(&told.stderr).contains("--backup-dir"), "{}", text(&told.stderr));
    server.stop();
    for (flags, told) in [
        (&["--data-dir", "x", "--backup-dir", "/nowhere"][..], "no such folder"),
        (&["--data-dir", "x", "--backup-rate", "1m"], "say --backup-dir"),
        (&["--backup-dir", "/tmp"], "say --data-dir"),
    ] {
        refused(flags, 2, told);
    }
    assert!(!Path::new("x").exists(), "what is refused makes nothing");
}

#[test]
fn a_damaged_copy_is_refused_before_the_folder_is_made() {
    let place = Place::new("damaged");
    place.copy(50, 200);
    let whole = fs::read(place.path("copies/day")).expect("it is there");
    for (at, what) in [(whole.len() - 20, "end"), (whole.len() / 2, "middle"), (9, "front")] {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        fs::write(place.path("copies/damaged"), flipped).expect("written");
        let told = load(&place, "copies/damaged", "restored");
        assert_eq!(told.status.code(), Some(74), "{what}");
        let stderr = text(&told.stderr);
        assert!(stderr.contains("the dump is") && stderr.contains("damaged"), "{what}: {stderr}");
        assert!(!Path::new(&place.path("restored")).exists(), "{what}");
    }
    fs::write(place.path("copies/damaged"), &whole[..whole.len() - 9]).expect("written");
    let told = load(&place, "copies/damaged", "restored");
    assert!(text(&told.stderr).contains("ends early"), "{}", text(&told.stderr));
    assert!(!Path::new(&place.path("restored")).exists());
}

#[test]
fn a_folder_that_is_half_loaded_serves_nobody_until_it_is_loaded() {
    let place = Place::new("half");
    place.copy(50, 200);
    // Nobody looks at all of what is piped before it is loaded.
    let whole = fs::read(place.path("copies/day")).expect("it is there");
    let restored = place.path("restored");
    let mut command = Command::new(BINARY);
    command.args(["load", &restored]).args(SIZES).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut loading = command.spawn().expect("it runs");
    let mut stdin = loading.stdin.take().expect("it was piped");
    stdin.write_all(&whole[..whole.len() - 9]).expect("it is read");
    drop(stdin);
    let told = loading.wait_with_output().expect("it ends");
    assert_eq!(told.status.code(), Some(74));
    assert!(text(&told.stderr).contains("ends early"), "{}", text(&told.stderr));
    for command in ["scan", "dump"] {
        let told = laneway(&[command, &restored]);
        assert_eq!(told.status.code(), Some(74), "{command}");
        let stderr = text(&told.stderr);
        assert!(stderr.contains("did not come to its end"), "{command}: {stderr}");
    }
    let paths = [restored.clone(), place.path("copies")];
    let mut serve = Command::new(BINARY);
    serve.arg("serve").args(place.flags(&paths, &[]));
    let told = Process::start(serve).err().expect("it serves half of the items");
    assert!(told.contains("load-not-finished"), "{told}");
    let loaded = load(&place, "copies/day", "restored");
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    assert!(scan(&restored).contains("key-49 200 49 4000000000\n"));
    place.serve("restored", &[]).stop();
}

#[test]
fn a_load_that_had_no_room_is_told_of_and_comes_to_its_end_in_a_larger_store() {
    let place = Place::new("no-room");
    place.copy(80, 500_000);
    let (restored, copy) = (place.path("restored"), place.path("copies/day"));
    let own = ["load", &restored, "--input", &copy, "--pm-size", "32m", "--ssd-size"];
    let load = |ssd: &str| laneway(&[&own[..], &[ssd]].concat());
    let checked = || laneway(&["fsck", &restored]);
    let full = load("20m");
    assert_eq!(full.status.code(), Some(74));
    let told = text(&full.stderr);
    assert!(told.contains("load again with a larger --pm-size or --ssd-size"), "{told}");
    let half = checked();
    assert_eq!(half.status.code(), Some(1), "{}", text(&half.stderr));
    let told = text(&half.stdout);
    assert!(told.contains("problem: a load into this folder did not come to its end"), "{told}");
    assert!(told.contains(", 0 cannot\n") && !told.contains("--repair"), "{told}");
    let loaded = load("128m");
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    let whole = checked();
    assert!(whole.status.success(), "{}", text(&whole.stdout));
    assert_eq!(text(&whole.stdout), "80 items can be read, 0 cannot\n");
    // More than is read at once.
    let listed = scan(&restored);
    assert!((0..80).all(|n| listed.contains(&format!("key-{n} 500000 {n} 4000000000\n"))));
}

#[test]
fn the_highest_cas_id_that_a_client_may_choose_is_restored_and_loses_no_later_write() {
    const CHOSEN: &[u8] = b"ms chosen 1 c E18446744073709551615\r\nz\r\n";
    let place = Place::new("chosen");
    let server = place.serve("data", &[]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, CHOSEN, b"\r\n"), b"HD c18446744073709551615\r\n");
    set(&mut client, "other", 1, b"before");
    assert!(backup(server.places()[0], &["day"]).status.success());
    server.stop();
    let loaded = load(&place, "copies/day", "restored");
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    // Of the folder that was served, and of the one that was restored.
    for folder in ["data", "restored"] {
        for round in 0..2_u64 {
            let server = place.serve(folder, &[]);
            let mut client = server.connect();
            let got = ask(&mut client, b"mg chosen c v\r\n", b"z\r\n");
            assert_eq!(text(&got), "VA 1 c18446744073709551615\r\nz\r\n", "{folder}");
            if 0 < round {
                for number in 0..20 {
                    let request = format!("get key-{number}\r\n");
                    let got = text(ask(&mut client, request.as_bytes(), b"END\r\n"));
                    assert!(got.contains("00000000."), "{folder}: key-{number}: {got}");
                }
                let got = text(ask(&mut client, b"get other\r\n", b"END\r\n"));
                assert!(got.contains("after"), "{folder}: {got}");
            }
            for number in 0..20 {
                let bytes = if number % 4 == 0 { 9000 } else { 100 };
                set(&mut client, &format!("key-{number}"), number, &value(0, bytes));
            }
            set(&mut client, "other", 1, b"after");
            server.stop();
        }
    }
}

#[test]
fn a_full_disk_ends_a_backup_and_the_server_goes_on() {
    let place = Place::new("full");
    let paths = [place.path("data"), place.path("copies")];
    let mut command = Command::new("unshare");
    let mount = "mount -t tmpfs -o size=256k none \"$0\" && exec \"$@\"";
    command.args(["--mount", "sh", "-c", mount, &paths[1], BINARY, "serve"]);
    command.args(place.flags(&paths, &[]));
    let server = match Process::start(command) {
        Ok(server) => server,
        Err(why) => return skip("backup: no right to mount", &why),
    };
    let mut client = server.connect();
    for number in 0..20_u64 {
        set(&mut client, &format!("key-{number}"), 0, &value(number, 40_000));
    }
    let told = backup(server.places()[0], &["day"]);
    assert_eq!(told.status.code(), Some(1));
    let stderr = text(&told.stderr);
    assert!(stderr.contains("day: ") && stderr.contains("No space left"), "{stderr}");
    set(&mut client, "after", 0, b"it");
    // The room is free again: a smaller one fits.
    (3..20).for_each(|n| {
        let request = format!("delete key-{n}\r\n");
        assert_eq!(ask(&mut client, request.as_bytes(), b"\r\n"), b"DELETED\r\n");
    });
    let told = backup(server.places()[0], &["day"]);
    assert!(told.status.success(), "{}", text(&told.stderr));
    assert!(text(&told.stdout).contains("4 items"), "{}", text(&told.stdout));
    server.stop();
}
