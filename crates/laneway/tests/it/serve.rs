//! The server as a process: how it starts, what it says when it cannot, how it ends, and what
//! hostile or broken clients get. Loopback and unix sockets only.

use crate::rig::{
    BINARY, HANG, HERE, Process, Scratch, ask, connect, laneway, read_to, refused, set, stat, text,
};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Whether the server closes the connection; what it says before is returned.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    match stream.read_to_end(&mut got) {
        Ok(_) => got,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => got,
        Err(error) => panic!("the server neither answers nor closes: {error}"),
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("laneway-test-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn sigterm_and_sigint_end_it_with_status_0() {
    for signal in ["TERM", "INT"] {
        let server = Process::here(&[]);
        let mut client = server.connect();
        assert_eq!(ask(&mut client, b"mn\r\n", b"\r\n"), b"MN\r\n");
        server.signal(signal);
        assert_eq!(read_to_end(&mut client), b"");
        assert_eq!(server.end().code(), Some(0), "{signal}");
    }
}

#[test]
fn sigterm_while_it_starts_ends_it_with_status_0() {
    let (pid_file, socket) = (scratch("pid-fifo"), scratch("early.sock"));
    // Nobody reads the pid, so it gets no further than that.
    let made = Command::new("mkfifo").arg(&pid_file).status().expect("coreutils are there");
    assert!(made.success());
    let mut child = Command::new(BINARY)
        .arg("serve")
        .args(["-P".as_ref(), pid_file.as_os_str(), "-s".as_ref(), socket.as_os_str()])
        .spawn()
        .expect("the binary was built for this test");
    let began = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(began.elapsed() < HANG, "it never listens");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill").success());
    assert_eq!(child.wait().expect("it can be waited for").code(), Some(0));
    let _ = (fs::remove_file(&pid_file), fs::remove_file(&socket)); // the next run makes its own
}

/// However early the signal comes behind the writing.
#[test]
fn sigterm_as_soon_as_there_is_a_pid_file_leaves_none() {
    let pid_file = Scratch::new("early.pid");
    for _ in 0..4 {
        let mut command = Command::new(BINARY);
        command.arg("serve").args(HERE).args(["-P", pid_file.path()]);
        let mut child = command.spawn().expect("the binary was built for this test");
        let began = Instant::now();
        while !pid_file.0.exists() {
            assert!(began.elapsed() < HANG, "it never writes its id");
            std::thread::yield_now();
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill").success());
        assert_eq!(child.wait().expect("it can be waited for").code(), Some(0));
        assert!(!pid_file.0.exists(), "it is left behind");
    }
}

#[test]
fn output_that_nobody_reads_is_no_panic() {
    for command in [&["help"][..], &["sim", "--help"], &["bench", "--help"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(BINARY).args(command).stdout(writer).output().expect("it runs");
        let told = text(&output.stderr);
        // As a program that SIGPIPE ends, or that does not mind.
        assert!(matches!(output.status.code(), Some(0 | 141)), "{command:?}: {:?}", output.status);
        assert_eq!(told, "", "{command:?}");
    }
}

#[test]
fn a_reply_under_way_is_finished_before_it_ends() {
    let server = Process::here(&["-m", "256", "-I", "32m", "--drain-ms", "60000"]);
    let mut client = server.connect();
    let value = vec![b'v'; 24 << 20];
    assert_eq!(ask(&mut client, &set("k", &value), b"\r\n"), b"STORED\r\n");
    client.write_all(b"get k\r\n").expect("the server reads");
    let mut head = [0; 8];
    client.read_exact(&mut head).expect("the reply begins");
    server.signal("TERM");
    // Nobody else is served any more, so the kernel lets nobody in.
    let told = Instant::now();
    while TcpStream::connect(server.places()[0]).is_ok() {
        assert!(told.elapsed() < HANG, "newcomers are let in");
    }
    let rest = read_to(&mut client, b"END\r\n");
    assert_eq!(rest.len() + head.len(), "VALUE k 0 25165824\r\n".len() + value.len() + 7);
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it has one").port().to_string();
    let told = refused(&["-l", "127.0.0.1", "-p", &port], 71, &port);
    assert!(told.contains("-p"), "{told}");
}

#[test]
fn a_unix_socket_is_served_left_alone_or_replaced_as_it_should() {
    let path = scratch("socket");
    let name = path.to_str().expect("temp paths are text");
    let server = Process::serve(&["-s", name, "-a", "0600"]);
    let mut client = UnixStream::connect(&path).expect("it listens");
    assert_eq!(ask(&mut client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    // A living server keeps its socket.
    refused(&["-s", name], 71, "");
    // A killed one leaves it behind, and the next server takes it over.
    server.signal("KILL");
    assert!(!server.end().success());
    assert!(path.exists());
    Process::serve(&["-s", name]).stop();
    assert!(!path.exists(), "a server that ends removes its socket");
    // What is no socket is not touched.
    fs::write(&path, "precious").expect("temp is writable");
    refused(&["-s", name], 71, "");
    assert_eq!(fs::read(&path).expect("still there"), b"precious");
    let _ = fs::remove_file(&path);
}

#[test]
fn only_flags_that_tune_memcached_are_passed_over() {
    Process::here(&["-f", "1.25", "-o", "slab_chunk_max=16384"]).stop();
    for (flags, status) in [
        (&["-c", "0"][..], 2),
        (&["--log-format", "xml"], 2),
        (&["--lisetn", "127.0.0.1"], 1),
        (&["-S"], 2),
        (&["-e", "/f", "--version"], 1),
    ] {
        let told = refused(&[&HERE, flags].concat(), status, flags[0]);
        assert_eq!(told.lines().count(), 1, "{flags:?}: {told}");
    }
}

#[test]
fn in_the_background_a_start_that_fails_is_told_by_status_and_one_that_serves_by_0() {
    let pid_file = scratch("background-pid");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it has one").port().to_string();
    let start = |pid_file: &PathBuf| {
        let flags = ["serve", "-d", "-l", "127.0.0.1", "-p", &port, "-P"];
        Command::new(BINARY).args(flags).arg(pid_file).output().expect("runs")
    };
    let refused = start(&pid_file);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(71), "{told}");
    assert!(told.contains(&port) && !pid_file.exists(), "{told}");
    drop(taken);
    let started = start(&pid_file);
    let told = text(&started.stderr);
    assert_eq!((started.status.code(), &*told), (Some(0), ""));
    end_in_the_background(&pid_file, &port);
}

/// Use the server whose first process has ended, and end it.
fn end_in_the_background(pid_file: &Path, port: &str) {
    let pid = fs::read_to_string(pid_file).expect("it is written before the first process ends");
    let mut client = connect(&format!("127.0.0.1:{port}"));
    assert_eq!(ask(&mut client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    let killed = Command::new("kill").args(["-s", "TERM", pid.trim()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(read_to_end(&mut client), b"");
}

#[test]
fn in_the_background_the_ports_are_written_before_the_first_process_ends() {
    let pid_file = scratch("ports-pid");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("it has one").port().to_string();
    drop(free);
    let mut command = Command::new(BINARY);
    command.args(["serve", "-d", "-l", "127.0.0.1", "-p", &port, "-P"]).arg(&pid_file);
    // What cannot be written is told as long as there is somebody to read it.
    let nowhere = scratch("no-such-folder").join("ports");
    let started = command.env("MEMCACHED_PORT_FILENAME", nowhere).output().expect("runs");
    let told = text(&started.stderr);
    assert_eq!(started.status.code(), Some(0), "{told}");
    assert!(told.contains("MEMCACHED_PORT_FILENAME: the ports cannot be written"), "{told}");
    end_in_the_background(&pid_file, &port);
}

#[test]
fn in_the_background_a_server_goes_on_whose_first_process_is_gone() {
    let (nobody, told) = std::io::pipe().expect("a pipe");
    drop(nobody);
    let mut command = Command::new(BINARY);
    command.args(["serve", "-d", "-v", "-l", "127.0.0.1", "-p", "-1"]);
    command.env("LANEWAY_IN_BACKGROUND", "1").stdout(told);
    let process = Process::start(command).expect("it serves");
    let mut client = process.connect();
    assert_eq!(ask(&mut client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    process.stop();
}

#[test]
fn keys_are_told_unless_dumping_is_forbidden() {
    for (flags, told) in [(&[][..], "END\r\n"), (&["-X"], "stats cachedump not allowed\r\n")] {
        let server = Process::here(flags);
        let answer = ask(&mut server.connect(), b"stats cachedump 1 0\r\n", b"\r\n");
        assert!(answer.ends_with(told.as_bytes()), "{flags:?}");
        server.stop();
    }
}

#[test]
fn statistics_that_a_server_does_not_have_are_named() {
    let server = Process::here(&[]);
    let asked = laneway(&["stats", "--server", server.places()[0], "nope"]);
    let told = text(asked.stderr);
    assert_eq!(asked.status.code(), Some(1));
    assert!(told.contains("nope: the server has no such statistics"), "{told}");
    server.stop();
}

#[test]
fn every_command_is_listed_and_each_tool_says_how_it_alone_is_called() {
    let help = |words: &[&str]| text(laneway(words).stdout);
    let overview = help(&["help"]);
    for tool in ["fsck", "compact", "scan", "dump", "load"] {
        assert!(overview.contains(&format!("\n  {tool} ")), "{tool}: {overview}");
        let own = help(&[tool, "--help"]);
        assert!(own.contains(&format!("Usage: laneway {tool} DIR")), "{own}");
        assert_eq!(own.matches("Usage:").count(), 1, "{own}");
    }
}

#[test]
fn hup_changes_nothing_and_usr1_ends_it_with_status_0() {
    let server = Process::here(&[]);
    let mut client = server.connect();
    server.signal("HUP");
    assert_eq!(ask(&mut client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    server.signal("USR1");
    assert_eq!(read_to_end(&mut client), b"");
    assert_eq!(server.end().code(), Some(0));
}

/// What a server with these flags logs while one client comes, says hello and goes.
fn log_of_one_client(flags: &[&str]) -> String {
    let server = Process::here(flags);
    let said = server.said.clone();
    assert_eq!(ask(&mut server.connect(), b"mn\r\n", b"\r\n"), b"MN\r\n");
    server.signal("TERM");
    said + &server.rest()
}

#[test]
fn the_log_has_time_and_level_and_connections_at_vvv_only() {
    let quiet = log_of_one_client(&[]);
    for line in quiet.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = |index: usize| line.as_bytes()[index];
        assert!(at(4) == b'-' && at(10) == b'T' && at(23) == b'Z', "{line}");
        assert!(["INFO", "WARN"].contains(&words[1]), "{line}");
    }
    assert!(quiet.contains("ready on 127.0.0.1:") && quiet.contains("stopping"), "{quiet}");
    let settings = log_of_one_client(&["-vv"]);
    assert!(settings.contains(" DEBUG settings: maxbytes=67108864 "), "{settings}");
    assert!(!settings.contains("Settings {") && !settings.contains("connection opened"));
    let connections = log_of_one_client(&["-vvv"]);
    // The listener has the first number, as in `stats conns`.
    for words in ["opened connection=2 peer=", "closed connection=2 peer="] {
        assert!(connections.contains(&format!("TRACE connection {words}")), "{connections}");
    }
}

#[test]
fn as_json_every_line_of_the_log_is_an_object() {
    let log = log_of_one_client(&["-vvv", "--log-format", "json"]);
    for line in log.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect(line);
        for name in ["time", "level", "message"] {
            assert!(object[name].is_string(), "{name}: {line}");
        }
    }
    assert!(log.contains(r#""message":"connection opened""#) && log.contains(r#""peer":"#));
}

#[test]
fn a_log_that_nobody_reads_any_more_ends_no_server() {
    let mut server = Process::here(&["-vvv"]);
    server.stop_reading();
    for _ in 0..2 {
        assert_eq!(ask(&mut server.connect(), b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
    server.stop();
}

#[test]
fn help_names_memcacheds_long_options_and_the_version_begins_as_memcacheds() {
    let help = text(laneway(&["serve", "-h"]).stdout);
    for option in ["unix-socket", "memory-limit", "conn-limit", "max-item-size", "listen"] {
        assert!(help.contains(option), "{option}");
    }
    assert!(laneway(&["-V"]).stdout.starts_with(b"memcached 1.6.45"));
}

#[test]
fn called_memcached_it_is_the_server() {
    let path = scratch("memcached-dir");
    let _ = fs::create_dir(&path);
    let link = path.join("memcached");
    let _ = std::os::unix::fs::symlink(BINARY, &link);
    // Tools look at the first line of its help, too.
    for flag in ["-V", "-h"] {
        let output = Command::new(&link).arg(flag).output().expect("runs");
        assert!(output.stdout.starts_with(b"memcached 1.6.45"), "{flag}");
    }
    let _ = fs::remove_dir_all(&path);
}

#[test]
fn who_says_nothing_for_the_idle_timeout_is_let_go_and_counted() {
    let server = Process::here(&["-o", "idle_timeout=1"]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    assert_eq!(read_to_end(&mut client), b"");
    assert_eq!(stat(&mut server.connect(), "", "idle_kicks"), 1);
    server.stop();
}

#[test]
fn the_pid_file_is_written_and_removed() {
    let path = scratch("pid");
    let server = Process::here(&["-P", path.to_str().expect("temp paths are text")]);
    let text = fs::read_to_string(&path).expect("it is written before the server is ready");
    assert_eq!(text.trim(), server.child.id().to_string());
    server.stop();
    assert!(!path.exists());
}

#[test]
fn two_megabytes_without_a_newline_close_the_connection_and_harm_nobody() {
    let server = Process::here(&[]);
    let (mut bad, mut good) = (server.connect(), server.connect());
    // The server may close before it has taken everything.
    let _ = bad.write_all(&vec![b'x'; 2 << 20]);
    read_to_end(&mut bad);
    let mut keys = server.connect();
    let _ = keys.write_all(b"get ");
    let _ = keys.write_all(&b"key ".repeat(1 << 19));
    assert!(!read_to_end(&mut keys).ends_with(b"END\r\n"), "an endless multiget has an end");
    assert_eq!(ask(&mut good, b"mn\r\n", b"\r\n"), b"MN\r\n");
    server.stop();
}

#[test]
fn a_million_pipelined_requests_are_all_answered() {
    let server = Process::here(&[]);
    let stream = server.connect();
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let sender = std::thread::spawn(move || {
        let batch = b"mn\r\n".repeat(10_000);
        (0..100).for_each(|_| writer.write_all(&batch).expect("the server reads"));
    });
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let mut line = Vec::new();
    for number in 0..1_000_000 {
        line.clear();
        reader.read_until(b'\n', &mut line).expect("an answer comes");
        assert_eq!(line, b"MN\r\n", "answer {number}");
    }
    sender.join().expect("the sender sent");
    server.stop();
}

#[test]
fn a_reader_that_stops_in_a_gigabyte_reply_delays_nobody() {
    let server = Process::here(&["-m", "2600", "-I", "1g", "-t", "1"]);
    let mut client = server.connect();
    let bytes = (1 << 30) - 1000;
    client.write_all(format!("set k 0 0 {bytes}\r\n").as_bytes()).expect("the server reads");
    let piece = vec![b'g'; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(piece.len());
        client.write_all(&piece[..now]).expect("the server reads");
        left -= now;
    }
    assert_eq!(ask(&mut client, b"\r\n", b"\r\n"), b"STORED\r\n");
    client.write_all(b"get k\r\n").expect("the server reads");
    let mut some = vec![0; 1 << 20];
    client.read_exact(&mut some).expect("the reply begins");
    let mut other = server.connect();
    for _ in 0..100 {
        assert_eq!(ask(&mut other, b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
    drop(client);
    assert_eq!(ask(&mut other, b"delete k\r\n", b"\r\n"), b"DELETED\r\n");
    server.signal("TERM");
    assert!(server.end().success());
}

#[test]
fn full_memory_without_eviction_is_said_and_nothing_is_lost() {
    let server = Process::here(&["-m", "8", "-M"]);
    let mut client = server.connect();
    let value = vec![b'f'; 1000];
    let mut stored = 0;
    for number in 0..20_000 {
        let reply = ask(&mut client, &set(&format!("key{number}"), &value), b"\r\n");
        if reply != b"STORED\r\n" {
            assert_eq!(reply, b"SERVER_ERROR out of memory storing object\r\n");
            break;
        }
        stored += 1;
    }
    assert!((4_000..20_000).contains(&stored), "{stored} of 1 KB fit into 8 MB");
    for number in 0..stored {
        let reply = ask(&mut client, format!("get key{number}\r\n").as_bytes(), b"END\r\n");
        assert!(reply.starts_with(b"VALUE "), "key{number} was acknowledged and is gone");
    }
    server.stop();
}

/// One client's conversation: values of several sizes set, read back together and one by one, all
/// sent before any answer is read.
fn converse(server: &Process, client: usize) {
    let mut stream = server.connect();
    let (mut asked, mut wanted) = (Vec::new(), Vec::new());
    let lengths = [5, 900, 15_000, 17_000, 60_000, 400_000];
    let mut hits = Vec::new();
    for (number, &length) in lengths.iter().enumerate() {
        let value = vec![b'a' + client as u8; length];
        let key = format!("c{client}k{number}");
        asked.extend(set(&key, &value));
        wanted.extend(b"STORED\r\n");
        let head = format!("VALUE {key} 0 {length}\r\n");
        let hit = [head.as_bytes(), &value, b"\r\n"].concat();
        asked.extend(format!("get {key}\r\nincr {key} 1\r\n").as_bytes());
        wanted.extend([&hit[..], b"END\r\nCLIENT_ERROR cannot increment or decrement "].concat());
        wanted.extend(b"non-numeric value\r\n");
        hits.extend(hit);
    }
    let keys: Vec<String> = (0..lengths.len()).map(|key| format!("c{client}k{key}")).collect();
    asked.extend(format!("get {} none\r\n", keys.join(" ")).as_bytes());
    wanted.extend([&hits[..], b"END\r\n"].concat());
    let mut sender = stream.try_clone().expect("a second handle");
    let mut got = vec![0; wanted.len()];
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&asked).expect("the server reads"));
        stream.read_exact(&mut got).expect("the server answers");
    });
    assert!(got == wanted, "client {client}");
}

#[test]
fn every_design_answers_many_clients_at_once_and_stops_in_order() {
    for flags in [
        &["--design", "lanes", "-t", "3"][..],
        &["--design", "minos", "-t", "3"],
        &["--design", "minos", "-t", "4", "--extra-large"],
        &["--design", "sho", "-t", "4", "--handoff-workers", "2"],
        &["--design", "hkh-ws", "-t", "3"],
        &["--design", "hkh", "--access", "crew", "-t", "3"],
        &["--design", "hkh", "--access", "erew", "-t", "3"],
    ] {
        let server = Process::here(&[flags, &["--threshold", "16k"]].concat());
        std::thread::scope(|scope| {
            for client in 0..6 {
                let server = &server;
                scope.spawn(move || (0..5).for_each(|_| converse(server, client)));
            }
        });
        server.signal("TERM");
        let status = server.end();
        assert!(status.success(), "{flags:?}: {status}");
    }
}
