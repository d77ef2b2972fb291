//! `-Y` of the binary: refused starts, SIGHUP, what is said of servers that everybody may use, and
//! the same bytes as memcached 1.6.45 has where `cargo xtask peers` has unpacked it.

use crate::rig::{BINARY, HANG, Process, Scratch, ask, connect, laneway, refused, skip, text};
use nix::fcntl::OFlag;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A file of users, its owner's alone.
fn user_file(name: &str, users: &str) -> Scratch {
    let file = Scratch::new(name);
    write(&file, users);
    file
}

fn write(file: &Scratch, users: &str) {
    std::fs::write(&file.0, users).expect("temp is writable");
    allow(file, 0o600);
}

fn allow(file: &Scratch, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&file.0, permissions).expect("it is ours");
}

/// What a fresh connection is told that says it is this user.
fn login(place: &str, user: &str, password: &str) -> String {
    let value = format!("{user} {password}");
    let request = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    let told = ask(&mut connect(place), request.as_bytes(), b"\r\n");
    text(told).trim_end().to_owned()
}

#[test]
fn a_start_that_would_let_somebody_in_without_a_password_is_refused() {
    let good = user_file("good-users", "alice:secret\n");
    let bad = user_file("bad-users", "alice:secret\nnonsense\n");
    for (flags, words) in [
        (&["-Y", "/no/such/file"][..], "-Y /no/such/file: it cannot be read"),
        (&["-Y", bad.path()], "line 2: no colon; write user:password"),
        (&["-Y", good.path(), "-U", "5000"], "leave -U and --udp-base out, or -Y"),
        (&["-Y", good.path(), "--udp-base", "5000"], "leave -U and --udp-base out, or -Y"),
        (&["-Y", good.path(), "--shm", "/s"], "leave --shm out, or -Y"),
        #[cfg(feature = "rdma")]
        (&["-Y", good.path(), "--rdma", "rxe0"], "leave --rdma out, or -Y"),
    ] {
        let told = refused(flags, 2, words);
        assert!(!told.contains("secret"), "{flags:?}: {told}");
    }
}

#[test]
fn hup_reads_the_users_again_and_keeps_the_old_ones_where_the_file_is_wrong() {
    let users = user_file("hup-users", "alice:secret\n");
    let mut server = Process::here(&["-Y", users.path(), "-U", "0"]);
    let place = server.places()[0].to_owned();
    let mut stays = connect(&place);
    assert_eq!(ask(&mut stays, b"set a 0 0 12\r\nalice secret\r\n", b"\r\n"), b"STORED\r\n");
    assert_eq!(login(&place, "alice", "new"), "CLIENT_ERROR authentication failure");
    write(&users, "alice:new\nbob:other\n");
    server.signal("HUP");
    server.await_log("2 users from now on, 1 before");
    assert_eq!(login(&place, "bob", "other"), "STORED");
    assert_eq!(login(&place, "alice", "new"), "STORED");
    assert_eq!(login(&place, "alice", "secret"), "CLIENT_ERROR authentication failure");
    write(&users, "no users here\n");
    server.signal("HUP");
    server.await_log("line 1: no colon");
    assert_eq!(ask(&mut stays, b"get k\r\n", b"\r\n"), b"END\r\n", "who was let in stays");
    assert_eq!(login(&place, "alice", "new"), "STORED");
    server.signal("TERM");
    let log = server.said.clone() + &server.rest();
    assert!(log.contains("the 2 users before it stay"), "{log}");
    assert!(!log.contains("secret") && !log.contains("other"), "no password is logged: {log}");
}

#[test]
fn a_reload_that_hangs_holds_up_no_stop() {
    let users = user_file("hung-users", "alice:secret\n");
    let server = Process::here(&["-Y", users.path()]);
    std::fs::remove_file(&users.0).expect("it is ours");
    let made = Command::new("mkfifo").arg(&users.0).status().expect("coreutils are there");
    assert!(made.success());
    server.signal("HUP");
    // It can be opened so once the server reads it, and that read lasts as long as it is open.
    let mut options = std::fs::File::options();
    options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let asked = Instant::now();
    let writer = loop {
        match options.open(&users.0) {
            Ok(writer) => break writer,
            Err(error) => assert!(asked.elapsed() < HANG, "nobody reads it: {error}"),
        }
        std::thread::yield_now();
    };
    server.signal("TERM");
    assert_eq!(server.end().code(), Some(0));
    drop(writer);
}

#[test]
fn a_server_for_everybody_says_so_once_and_others_say_nothing() {
    let users = user_file("warned-users", "alice:secret\n");
    let open = user_file("open-users", "alice:secret\n");
    allow(&open, 0o644);
    for (flags, words) in [
        (
            &["-p", "-1", "-l", "0.0.0.0"][..],
            Some("there is no password, and nothing is encrypted"),
        ),
        (&["-p", "-1", "-l", "127.0.0.1"], None),
        (&["-p", "-1", "-l", "0.0.0.0", "-Y", users.path()], None),
        (&["-p", "-1", "-l", "127.0.0.1", "-Y", open.path()], Some("chmod 600")),
    ] {
        let server = Process::serve(flags);
        server.signal("TERM");
        let log = server.said.clone() + &server.rest();
        let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ")).collect();
        assert_eq!(warnings.len(), usize::from(words.is_some()), "{flags:?}: {log}");
        assert!(log.contains(words.unwrap_or_default()), "{flags:?}: {log}");
    }
}

#[test]
fn no_tool_stores_its_login_in_a_server_that_asks_for_none() {
    let file = user_file("unasked-login", "alice:secret\n");
    let server = Process::here(&[]);
    let place = server.places()[0];
    let mut client = connect(place);
    assert_eq!(ask(&mut client, b"set login 0 0 4\r\nmine\r\n", b"\r\n"), b"STORED\r\n");
    for tool in ["stats", "ping"] {
        let output = laneway(&[tool, "--server", place, "--login", file.path()]);
        assert_eq!(output.status.code(), Some(0), "{tool}: {}", text(output.stderr));
    }
    let kept = ask(&mut client, b"get login\r\n", b"END\r\n");
    assert_eq!(text(kept), "VALUE login 0 4\r\nmine\r\nEND\r\n");
}

/// memcached that runs, on this port.
struct Memcached(Child, u16);

impl Memcached {
    /// None where it is not unpacked, or is another version.
    fn start(users: &str) -> Option<Memcached> {
        let program = Path::new(BINARY).parent()?.parent()?.join("peers/bin/memcached");
        let version = Command::new(&program).arg("--version").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("1.6.45") {
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let port = free.port();
        let mut command = Command::new(program);
        command.args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-vv", "-Y", users]);
        command.args(["-p", &port.to_string()]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut log = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut line = String::new();
        while !line.contains("server listening") {
            line.clear();
            assert!(log.read_line(&mut line).expect("stderr") > 0, "memcached does not start");
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Some(Memcached(child, port))
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it is ours, and has nothing to lose
        let _ = self.0.wait();
    }
}

/// All that comes to these bytes; who sends no more is answered first, and let go.
fn whole_answer(place: &str, sent: &[u8]) -> String {
    let mut stream = connect(place);
    stream.write_all(sent).expect("it reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got); // a reset tells as much as an end
    text(got).replace("1.6.45-laneway", "1.6.45")
}

#[test]
fn memcached_answers_the_same() {
    let users = user_file("shared-users", "alice:secret\nbob:two:colons and blanks\n");
    let Some(memcached) = Memcached::start(users.path()) else {
        let why = "memcached 1.6.45 is not there (cargo xtask peers)";
        return skip("-Y beside memcached", why);
    };
    let server = Process::here(&["-Y", users.path()]);
    let (ours, theirs) = (server.places()[0], format!("127.0.0.1:{}", memcached.1));
    let long = [b"set ", &[b'k'; 300][..], b" 0 0 12\r\nalice secret\r\n"].concat();
    for request in [
        &b"get k\r\n"[..],
        b"version\r\n",
        b"quit\r\n",
        b"\r\n",
        b"set a 0 0\r\n",
        b"set a 0 0 x\r\n",
        b"set a 0 0 -1\r\n",
        b"set a 0 0 +12\r\n",
        b"SET a 0 0 12\r\n",
        b" set a 0 0 12\r\n",
        b"ms a 12\r\n",
        b"set a 0 0 12\r\nalice secret\r\nversion\r\n",
        b"set a 0 0 12\r\nalice secret\r\nset a 0 0 12\r\nalice secret\r\nget a\r\n",
        b"set a 0 0 12 noreply\r\nalice secret\r\n",
        b"set a 0 0 12 1 2 3 4 5 6\r\nalice secret\r\n",
        b"set a x y 12\r\nalice secret\r\n",
        b"set  a  0  0  12\r\nalice secret\r\n",
        b"set a 0 0 25\r\nbob two:colons and blanks\r\n",
        b"set a 0 0 11\r\nalice wrong\r\n",
        b"set a 0 0 12\r\nALICE secret\r\n",
        b"set a 0 0 18\r\nalice secret extra\r\n",
        b"set a 0 0 13\r\nalice secret \r\n",
        b"set a 0 0 13\r\nalice  secret\r\n",
        b"set a 0 0 14\r\n  alice secret\r\n",
        b"set a 0 0 13\r\nalice\tsecret \r\n",
        b"set a 0 0 5\r\nalice\r\n",
        b"set a 0 0 0\r\n\r\n",
        b"set a 0 0 12\r\nalice secret\n\n",
        b"set a 0 0 12\r\nalice secre\r\n\r\n",
        &[b'x'; 2100],
        &long,
    ] {
        let shown = request[..request.len().min(60)].escape_ascii();
        assert_eq!(whole_answer(ours, request), whole_answer(&theirs, request), "{shown}");
    }
}
