//! What a service manager and a health check see of the binary: the messages of `sd_notify(3)`, and
//! `laneway ping`.

use crate::rig::{self, BINARY, HANG, HERE, Process, Scratch, laneway, skip, text};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The socket of a service manager, removed with the test.
struct Manager(UnixDatagram, PathBuf);

impl Manager {
    fn new(name: &str) -> Manager {
        let path = std::env::temp_dir().join(format!("laneway-{}-{name}", std::process::id()));
        let socket = UnixDatagram::bind(&path).expect("temp is writable");
        socket.set_read_timeout(Some(HANG)).expect("a time-out can be set");
        Manager(socket, path)
    }

    /// A server that is told of it, with these flags and variables.
    fn serve(&self, flags: &[&str], variables: &[(&str, &str)]) -> Process {
        let mut command = Command::new(BINARY);
        command.arg("serve").args(HERE).args(flags).env("NOTIFY_SOCKET", &self.1);
        command.envs(variables.iter().copied());
        Process::start(command).expect("it serves")
    }

    /// The names that stand in the next message, one for each of its lines.
    fn hears(&self) -> Vec<String> {
        let mut message = [0; 512];
        let bytes = rig::awaited(|| self.0.recv(&mut message));
        let text = text(&message[..bytes]);
        let name = |line: &str| match line.split_once('=') {
            Some((name @ "MONOTONIC_USEC", time)) => {
                assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{text}");
                name.to_owned()
            }
            _ => line.to_owned(),
        };
        text.lines().map(name).collect()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1); // the test is over
    }
}

#[test]
fn a_service_manager_is_told_of_the_start_each_reload_and_the_stop() {
    let manager = Manager::new("notify");
    let process = manager.serve(&[], &[]);
    assert_eq!(manager.hears(), ["READY=1"]);
    TcpStream::connect(process.places()[0]).expect("who is told so may connect");
    for _ in 0..2 {
        process.signal("HUP");
        assert_eq!(manager.hears(), ["RELOADING=1", "MONOTONIC_USEC"]);
        assert_eq!(manager.hears(), ["READY=1"]);
    }
    process.signal("TERM");
    assert_eq!(manager.hears(), ["STOPPING=1"]);
    assert_eq!(process.end().code(), Some(0));
}

/// A process that ends with the test, however that ends.
struct Started(Child);

impl Started {
    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.expect("kill exists").success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait()); // it has ended, unless the test failed
    }
}

#[test]
fn a_reload_that_is_asked_for_during_the_start_is_told_once_the_server_serves() {
    let manager = Manager::new("notify-early");
    let (pid_file, socket) = (manager.1.with_extension("pid"), manager.1.with_extension("sock"));
    let made = Command::new("mkfifo").arg(&pid_file).status().expect("coreutils are there");
    assert!(made.success());
    let mut command = Command::new(BINARY);
    command.arg("serve").arg("-P").arg(&pid_file).arg("-s").arg(&socket);
    command.env("NOTIFY_SOCKET", &manager.1).stderr(Stdio::null());
    let mut server = Started(command.spawn().expect("the binary was built for this test"));
    let began = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(began.elapsed() < HANG, "it never listens");
        std::thread::yield_now();
    }
    // It gets no further than its pid until somebody reads that.
    server.signal("HUP");
    let pid = std::fs::read_to_string(&pid_file).expect("it writes its pid");
    assert_eq!(pid.trim_end(), server.0.id().to_string());
    assert_eq!(manager.hears(), ["READY=1"]);
    assert_eq!(manager.hears(), ["RELOADING=1", "MONOTONIC_USEC"]);
    assert_eq!(manager.hears(), ["READY=1"]);
    server.signal("TERM");
    assert_eq!(manager.hears(), ["STOPPING=1"]);
    assert_eq!(server.0.wait().expect("it can be waited for").code(), Some(0));
    // The server may have done so itself.
    let _ = (std::fs::remove_file(&pid_file), std::fs::remove_file(&socket));
}

#[test]
fn a_start_that_fails_is_never_told_as_ready_and_a_manager_that_is_gone_ends_nothing() {
    let manager = Manager::new("notify-failed");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = taken.local_addr().expect("it has one").port().to_string();
    let mut command = Command::new(BINARY);
    command.args(["serve", "-l", "127.0.0.1", "-p", &port]).env("NOTIFY_SOCKET", &manager.1);
    let said = Process::start(command).err().expect("the port is taken");
    assert!(said.contains("cannot listen on"), "{said}");
    manager.0.set_nonblocking(true).expect("it can be");
    assert!(manager.0.recv(&mut [0; 512]).is_err(), "it has ended, and nothing was sent");

    let nowhere = manager.1.with_extension("gone");
    let mut command = Command::new(BINARY);
    command.arg("serve").args(HERE).env("NOTIFY_SOCKET", nowhere);
    let mut process = Process::start(command).expect("it serves all the same");
    process.await_log("NOTIFY_SOCKET: the service manager cannot be told");
    process.stop();
}

#[test]
fn a_service_manager_without_a_file_is_told_too() {
    let name = format!("laneway-{}-notify", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it is short");
    let manager = UnixDatagram::bind_addr(&address).expect("the name is free");
    manager.set_read_timeout(Some(HANG)).expect("a time-out can be set");
    let mut command = Command::new(BINARY);
    command.arg("serve").args(HERE).args(["--sandbox", "on"]);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let process = Process::start(command).expect("it serves");
    let mut message = [0; 512];
    let bytes = rig::awaited(|| manager.recv(&mut message));
    assert_eq!(&message[..bytes], b"READY=1\n");
    process.signal("TERM");
    let bytes = rig::awaited(|| manager.recv(&mut message));
    assert_eq!(&message[..bytes], b"STOPPING=1\n");
    assert_eq!(process.end().code(), Some(0));
}

/// The thread of this name.
fn thread_of(process: &Process, name: &str) -> Pid {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.child.id())).expect("it runs");
    let called = |task: &std::path::Path| std::fs::read_to_string(task.join("comm"));
    let paths = tasks.map(|task| task.expect("a thread").path());
    let path = paths.into_iter().find(|path| called(path).is_ok_and(|told| told.trim() == name));
    let number = path.and_then(|path| path.file_name()?.to_str()?.parse().ok());
    Pid::from_raw(number.unwrap_or_else(|| panic!("there is no thread {name}")))
}

#[test]
fn the_watchdog_is_told_twice_a_period_until_a_worker_hangs_and_again_when_it_goes_on() {
    let manager = Manager::new("watchdog");
    // Few enough messages for the socket's queue, until the hang is found out.
    let period = [("WATCHDOG_USEC", "2000000")];
    let mut process = manager.serve(&["-t", "2", "--sandbox", "on"], &period);
    assert_eq!(manager.hears(), ["READY=1"]);
    for _ in 0..2 {
        assert_eq!(manager.hears(), ["WATCHDOG=1"]);
    }
    let worker = thread_of(&process, "worker-1");
    if let Err(error) = ptrace::seize(worker, ptrace::Options::empty()) {
        return skip("watchdog", &format!("a thread cannot be halted: {error}"));
    }
    ptrace::interrupt(worker).expect("it runs");
    let halted = waitpid(worker, Some(WaitPidFlag::__WALL)).expect("it halts");
    assert!(matches!(halted, WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..)), "{halted:?}");
    process.await_log("worker 1 hangs: it has made no turn for 5 seconds");
    // What was sent before it was found out has come by now; for as long as three times that is
    // left between two messages, nothing else may come.
    manager.0.set_nonblocking(true).expect("it can be");
    while manager.0.recv(&mut [0; 512]).is_ok() {}
    manager.0.set_nonblocking(false).expect("it can be");
    manager.0.set_read_timeout(Some(Duration::from_secs(3))).expect("a time-out can be set");
    let told = manager.0.recv(&mut [0; 512]);
    assert!(told.is_err(), "the manager is told that a server is well which hangs");
    manager.0.set_read_timeout(Some(HANG)).expect("a time-out can be set");
    ptrace::detach(worker, None).expect("it is ours");
    assert_eq!(manager.hears(), ["WATCHDOG=1"]);
    process.signal("TERM");
    while manager.hears() != ["STOPPING=1"] {}
    assert_eq!(process.end().code(), Some(0));
}

#[test]
fn no_watchdog_is_told_where_nobody_waits_for_it() {
    for (name, value) in [("WATCHDOG_PID", "1"), ("WATCHDOG_USEC", "0")] {
        let manager = Manager::new(&format!("no-{name}"));
        let process = manager.serve(&[], &[("WATCHDOG_USEC", "1000"), (name, value)]);
        assert_eq!(manager.hears(), ["READY=1"]);
        process.signal("TERM");
        assert_eq!(manager.hears(), ["STOPPING=1"]);
        assert_eq!(process.end().code(), Some(0));
    }
}

/// The status of `laneway ping` with these words, and what it says.
fn ping(words: &[&str]) -> (Option<i32>, String) {
    let output = laneway(&[&["ping"], words].concat());
    (output.status.code(), text([output.stdout, output.stderr].concat()))
}

#[test]
fn ping_tells_by_its_status_whether_a_server_serves() {
    let folder = Scratch::folder("ping");
    let (socket, users) = (&*folder.file("socket"), &*folder.file("users"));
    std::fs::write(users, "app:secret\n").expect("temp is writable");

    let open = Process::here(&[]);
    let (status, said) = ping(&["--server", open.places()[0]]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("answers: VERSION "), "{said}");

    let closed = Process::here(&["-Y", users]);
    let (status, said) = ping(&["--server", closed.places()[0]]);
    assert_eq!(status, Some(0), "{said}");

    let unix = Process::serve(&["-s", socket]);
    assert_eq!(ping(&["--socket", socket]).0, Some(0));
    unix.stop();
    let (status, said) = ping(&["--socket", socket]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains(socket) && said.contains("is a server running there?"), "{said}");

    let full = Process::here(&["-c", "1"]);
    let mut holder = full.connect();
    rig::ask(&mut holder, b"version\r\n", b"\r\n");
    let (status, said) = ping(&["--server", full.places()[0]]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("Too many open connections"), "{said}");

    for (words, told) in [(&["here"][..], "--server"), (&["--port", "1"], "--port")] {
        let (status, said) = ping(words);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(told) && said.contains("laneway ping --help"), "{said}");
    }
}

#[test]
fn a_ping_of_what_is_no_memcached_fails_and_reads_no_more_than_a_line() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n", "", &"x".repeat(1 << 20)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one").to_string();
        let answer = answer.to_owned();
        let stranger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody comes");
            let mut asked = [0; 9];
            stream.read_exact(&mut asked).expect("it asks");
            assert_eq!(&asked, b"version\r\n");
            // Whoever reads no more resets the connection.
            let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
        });
        let (status, said) = ping(&["--server", &address]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.len() < 1024 && said.contains(&address), "{said}");
        stranger.join().expect("it was asked");
    }
}
