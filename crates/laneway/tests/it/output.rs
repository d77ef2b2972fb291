//! Commands whose output goes nowhere, or to a file: what their statuses tell, and what is left.

use crate::rig::{BINARY, Process, SIZES, Scratch, ask, set, text};
use std::fs;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const VALUE_BYTES: usize = 9000;

/// Makes a data folder that holds so many items.
fn store(folder: &Scratch, items: usize) -> String {
    let data = folder.file("data");
    let server = Process::here(&[&["--data-dir", &*data], &SIZES[..]].concat());
    let mut client = server.connect();
    for number in 0..items {
        let request = set(&format!("k{number}"), &value(number));
        assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
    }
    drop(client);
    server.stop();
    data
}

fn value(number: usize) -> Vec<u8> {
    format!("{number:08}.").bytes().cycle().take(VALUE_BYTES).collect()
}

/// Flips a bit of each of these values on the SSD.
fn damage(data: &str, numbers: &[usize]) {
    let path = Path::new(data).join("ssd");
    let mut ssd = fs::read(&path).expect("it is there");
    for &number in numbers {
        let wanted = value(number);
        let at = ssd.windows(VALUE_BYTES).position(|bytes| bytes == wanted);
        ssd[at.expect("it is on the SSD") + 4000] ^= 4;
    }
    fs::write(&path, ssd).expect("it can be written");
}

fn laneway(words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words);
    command
}

fn ran(command: &mut Command) -> Output {
    command.output().expect("the binary was built for this test")
}

/// A pipe that nobody reads.
fn unread() -> PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer
}

#[test]
fn damage_is_told_by_the_status_to_who_reads_no_line() {
    let place = Scratch::folder("output-unread");
    let data = store(&place, 3);
    damage(&data, &[0, 2]);
    let checked = ran(laneway(&["fsck", &data]).stdout(unread()));
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked.stderr));
    let checked = ran(&mut laneway(&["fsck", &data]));
    assert!(text(&checked.stdout).contains("1 items can be read, 2 cannot"));
    // What only prints ends as by SIGPIPE.
    assert_eq!(ran(laneway(&["version"]).stdout(unread())).status.code(), Some(128 + 13));
}

#[test]
fn the_doctor_tells_what_is_missing_to_who_reads_no_line() {
    let read = ran(&mut laneway(&["doctor"]));
    let unread = ran(laneway(&["doctor"]).stdout(unread()));
    assert_eq!(unread.status.code(), read.status.code(), "{}", text(&unread.stderr));
}

/// A server that says of one backup, whose name is "day", that these lines tell of it.
fn backing_up(told: &'static str) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let answers = move || {
        let (stream, _) = listener.accept().expect("a client comes");
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|bytes| 0 < bytes) {
            let answer = match line.trim_end() {
                "backup start day" => "OK\r\n",
                "stats backup" => told,
                other => panic!("it asks {other}"),
            };
            lines.get_mut().write_all(answer.as_bytes()).expect("it reads");
            line.clear();
        }
    };
    (address, std::thread::spawn(answers))
}

#[test]
fn a_backup_that_lacks_items_says_so_whoever_reads_it() {
    const LACKS: &str = "STAT backup_name day\r\nSTAT backup_state done\r\n\
                         STAT backup_items 7\r\nSTAT backup_bytes 700\r\n\
                         STAT backup_items_lost 2\r\nEND\r\n";
    for (out, err) in [(true, false), (false, true), (true, true), (false, false)] {
        let (address, server) = backing_up(LACKS);
        let mut command = laneway(&["backup", "--server", &address, "day"]);
        if out {
            command.stdout(unread());
        }
        if err {
            command.stderr(unread());
        }
        let told = ran(&mut command);
        server.join().expect("it was asked what it knows");
        assert_eq!(told.status.code(), Some(1), "{out} {err}: {}", text(&told.stderr));
        assert!(err || text(&told.stderr).contains("2 items are damaged"), "{out}");
        assert!(out || text(&told.stdout).contains("day: 7 items"), "{err}");
    }
}

#[test]
fn a_dump_is_for_its_owner_alone_and_takes_the_place_of_another_once_it_is_whole() {
    let place = Scratch::folder("output-dump");
    let data = store(&place, 3);
    let day = place.file("day.dump");
    fs::write(&day, b"of yesterday").expect("written");
    fs::set_permissions(&day, fs::Permissions::from_mode(0o644)).expect("ours");
    // A name that leads to no file: found out before anything is lost.
    fs::create_dir(place.file("day.dump.part")).expect("made");
    let refused = ran(&mut laneway(&["dump", &data, "--output", &day]));
    assert_eq!(refused.status.code(), Some(74), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("day.dump.part is there"), "{}", text(&refused.stderr));
    assert_eq!(fs::read(&day).expect("it stays"), b"of yesterday");
    fs::remove_dir(place.file("day.dump.part")).expect("ours");
    let dumped = ran(&mut laneway(&["dump", &data, "--output", &day]));
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    let mode = fs::metadata(&day).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "every value is in it");
    assert!(!Path::new(&place.file("day.dump.part")).exists());
    let checked = ran(&mut laneway(&["backup", "--check", &day]));
    assert!(text(&checked.stdout).contains("3 items, whole"), "{}", text(&checked.stderr));
    // A pipe is none that could be synced.
    let piped = ran(&mut laneway(&["dump", &data, "--output", "/dev/stdout"]));
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    assert_eq!(piped.stdout.len(), fs::read(&day).expect("it is there").len());
}

/// A device on which there is never room.
fn full() -> fs::File {
    fs::File::options().write(true).open("/dev/full").expect("Linux has it")
}

#[test]
fn a_list_that_could_not_be_written_is_no_success() {
    let place = Scratch::folder("output-full");
    let data = store(&place, 3);
    for words in [
        &["scan", &data][..],
        &["scan", &data, "--values"],
        &["fsck", &data],
        &["dump", &data],
        &["dump", &data, "--output", "/dev/full"],
    ] {
        let told = ran(laneway(words).stdout(full()));
        assert_eq!(told.status.code(), Some(74), "{words:?}");
        let stderr = text(&told.stderr);
        let which =
            if words.contains(&"--output") { "--output /dev/full" } else { "standard output" };
        assert!(stderr.contains(&format!("{which}: No space")), "{words:?}: {stderr}");
        assert!(!stderr.contains("--data-dir"), "{words:?}: {stderr}");
    }
    for words in [["completions", "bash"], ["man", "serve"]] {
        let told = ran(laneway(&words).stdout(full()));
        assert_eq!(told.status.code(), Some(1), "{words:?}");
    }
    // The status tells a reader that has gone of the damage that was met.
    assert!(ran(laneway(&["scan", &data]).stdout(unread())).status.success());
    damage(&data, &[0]);
    let told = ran(laneway(&["scan", &data]).stdout(unread()));
    assert_eq!(told.status.code(), Some(1), "{}", text(&told.stderr));
}

#[test]
fn what_only_prints_says_where_that_could_not_be_written() {
    let server = Process::here(&[]);
    let place = server.places()[0];
    for words in [
        &["stats", "--server", place][..],
        &["top", "--once", "--interval", "0.1", "--server", place],
        &["version"],
        &["--version"],
        &["help"],
        &["serve", "--help"],
        &["serve", "--print-config"],
    ] {
        let told = ran(laneway(words).stdout(full()));
        let stderr = text(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{words:?}: {stderr}");
        assert!(stderr.starts_with("laneway: standard output: No space"), "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
    }
    // A health check is about the server.
    let ping = ["ping", "--server", place];
    assert_eq!(ran(laneway(&ping).stdout(full())).status.code(), Some(0));
    assert_eq!(ran(laneway(&ping).stdout(unread())).status.code(), Some(0));
    server.stop();
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr());
    let nobody = nobody.expect("loopback").to_string();
    let told = ran(laneway(&["ping", "--server", &nobody]).stderr(full()));
    assert_eq!(told.status.code(), Some(1));
}

#[test]
fn a_report_that_could_not_be_written_is_no_success() {
    let server = Process::here(&[]);
    let load = "--keys 100 --value-bytes 10 --closed --warmup 0 --duration 0.01";
    for output in [&["--quiet", "--json", "-"][..], &[]] {
        let mut command = laneway(&["bench", "--server", server.places()[0]]);
        let told = ran(command.args(load.split(' ')).args(output).stdout(full()));
        assert_eq!(told.status.code(), Some(1), "{}", text(&told.stderr));
        let stderr = text(&told.stderr);
        assert!(stderr.contains("standard output: No space"), "{output:?}: {stderr}");
    }
    server.stop();
}
