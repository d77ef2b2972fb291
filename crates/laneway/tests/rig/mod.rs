//! The binary as a process: started until it says that it is ready, ended by a signal, killed with
//! the test that started it; and how a test talks to it.
#![allow(dead_code)] // each test file uses its part

pub mod watched;

use nix::fcntl::{FcntlArg, fcntl};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

pub const BINARY: &str = env!("CARGO_BIN_EXE_laneway");
/// How long an answer may take before a test says that the server hangs. Never waited out when all
/// is well.
pub const HANG: Duration = Duration::from_secs(60);
/// A port of the loopback that the kernel chooses.
pub const HERE: [&str; 4] = ["-p", "-1", "-l", "127.0.0.1"];
/// Small media of a data folder: a start makes them.
pub const SIZES: [&str; 4] = ["--pm-size", "32m", "--ssd-size", "64m"];
/// How long an end may take. Far less than some tests' servers are allowed to drain: one that waits
/// for that deadline, though nothing is under way, must not pass.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// Whether the binary has a Cargo feature, by its own word.
pub fn has_feature(name: &str) -> bool {
    let told = text(laneway(&["--version", "-v"]).stdout);
    let names = told.lines().find_map(|line| line.strip_prefix("features: "));
    names.expect("it says which").split('+').any(|own| own == name)
}

/// The binary, run to its end with these words.
pub fn laneway(words: &[&str]) -> Output {
    Command::new(BINARY).args(words).output().expect("the binary was built for this test")
}

/// A server with these flags must not start, but end with this status and say these words. Returns
/// all that it says.
pub fn refused(flags: &[&str], status: i32, words: &str) -> String {
    let output = laneway(&[&["serve"], flags].concat());
    let told = text(output.stderr);
    assert_eq!(output.status.code(), Some(status), "{flags:?}: {told}");
    assert!(told.contains(words), "{flags:?}: {told}");
    told
}

pub fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

/// Says past the capture of the tests' output why a test is skipped, or nobody would see it.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {what}: {why}");
}

/// A path of this test's own, at which nothing is yet; it is removed with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
        remove(&path);
        Scratch(path)
    }

    /// A file of this text.
    pub fn file_of(name: &str, text: &str) -> Scratch {
        let file = Scratch::new(name);
        std::fs::write(&file.0, text).expect("temp is writable");
        file
    }

    /// An empty folder.
    pub fn folder(name: &str) -> Scratch {
        let folder = Scratch::new(name);
        std::fs::create_dir_all(&folder.0).expect("temp is writable");
        folder
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a temporary folder has a plain name")
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    // It is a folder, a file, or nothing.
    let _ = (std::fs::remove_dir_all(path), std::fs::remove_file(path));
}

/// `laneway serve` that runs.
pub struct Process {
    pub child: Child,
    log: Option<BufReader<ChildStderr>>,
    /// What it said until it was ready.
    pub said: String,
}

impl Process {
    /// Start `laneway serve` with these flags.
    pub fn serve(flags: &[&str]) -> Process {
        let mut command = Command::new(BINARY);
        command.arg("serve").args(flags);
        Process::start(command)
            .unwrap_or_else(|said| panic!("it ended before it was ready: {said}"))
    }

    /// The same at [`HERE`].
    pub fn here(flags: &[&str]) -> Process {
        Process::serve(&[&HERE[..], flags].concat())
    }

    /// Start it with this command. The error is what it said, if it ended before it was ready.
    pub fn start(mut command: Command) -> Result<Process, String> {
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary was built for this test");
        let mut log = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut said = String::new();
        while !said.contains("ready on") {
            if log.read_line(&mut said).expect("stderr can be read") == 0 {
                let status = child.wait().expect("it can be waited for");
                return Err(format!("{said}{status}"));
            }
        }
        Ok(Process { child, log: Some(log), said })
    }

    /// The addresses it says that it is ready on.
    pub fn places(&self) -> Vec<&str> {
        let places = self.said.split("ready on ").nth(1).and_then(|rest| rest.split(';').next());
        places.expect("it says where").trim_end().split(", ").collect()
    }

    /// The first of them that is announced with this before it.
    pub fn place(&self, kind: &str) -> String {
        let places = self.places();
        let place = places.iter().find_map(|place| place.strip_prefix(kind));
        place.unwrap_or_else(|| panic!("{kind} in {places:?}")).to_owned()
    }

    /// A connection to the first one, as [`connect`] makes it.
    pub fn connect(&self) -> TcpStream {
        connect(self.places()[0])
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill exists");
        assert!(status.success());
    }

    /// Wait until it ends by itself; it must not have panicked.
    pub fn end(mut self) -> ExitStatus {
        self.await_end()
    }

    fn await_end(&mut self) -> ExitStatus {
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(asked.elapsed() < ENDS_WITHIN, "it does not end");
            std::thread::yield_now();
        };
        let rest = self.read_log();
        assert!(!rest.contains("panicked"), "{rest}");
        status
    }

    /// Wait until it has logged this, too.
    pub fn await_log(&mut self, words: &str) {
        let from = self.said.len();
        let log = self.log.as_mut().expect("its log is read");
        while !self.said[from..].contains(words) {
            assert!(log.read_line(&mut self.said).expect("stderr") > 0, "it never says {words}");
        }
    }

    /// What it logs from being ready to its end.
    pub fn rest(mut self) -> String {
        let rest = self.read_log();
        assert!(!rest.contains("panicked"), "{rest}");
        rest
    }

    fn read_log(&mut self) -> String {
        let mut rest = String::new();
        if let Some(log) = &mut self.log {
            log.read_to_string(&mut rest).expect("stderr can be read");
        }
        rest
    }

    /// Give its log a pipe that takes one page, which is not read until it ends.
    pub fn shorten_log(&self) {
        let log = self.log.as_ref().expect("its log is read").get_ref();
        fcntl(log, FcntlArg::F_SETPIPE_SZ(4096)).expect("a pipe may be shorter");
    }

    /// Close our end of its log.
    pub fn stop_reading(&mut self) {
        self.log = None;
    }

    /// SIGTERM, after which it must end well.
    pub fn stop(self) {
        self.signal("TERM");
        assert_eq!(self.end().code(), Some(0));
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }
}

impl Drop for Process {
    /// Whatever a test did with it, it must end well; only a test that failed kills it.
    fn drop(&mut self) {
        if !std::thread::panicking() && matches!(self.child.try_wait(), Ok(None)) {
            self.signal("TERM");
            assert_eq!(self.await_end().code(), Some(0));
        }
        let _ = self.child.kill(); // gone already, unless a test failed
        let _ = self.child.wait();
    }
}

/// Waits for what a call waits for. A socket with a time-out, and a process that is halted and goes
/// on: then the call returns early, as interrupted.
pub fn awaited<T>(mut call: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.expect("an answer comes"),
        }
    }
}

/// What comes until it ends with `end`.
pub fn read_to(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut got = Vec::new();
    let mut buffer = [0; 65536];
    while !got.ends_with(end) {
        match awaited(|| stream.read(&mut buffer)) {
            0 => panic!("closed after {:?}", String::from_utf8_lossy(&got)),
            bytes => got.extend_from_slice(&buffer[..bytes]),
        }
    }
    got
}

/// Send a request and read its reply, which ends with `end`.
pub fn ask(stream: &mut (impl Read + Write), request: &[u8], end: &[u8]) -> Vec<u8> {
    stream.write_all(request).expect("the server reads");
    read_to(stream, end)
}

/// A connection whose answers must come.
pub fn connect(place: &str) -> TcpStream {
    let stream = TcpStream::connect(place).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("a time-out can be set");
    stream
}

/// A request that stores a value.
pub fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// What `stats` tells of a family.
pub fn stats(stream: &mut (impl Read + Write), family: &str) -> String {
    let line = format!("stats {family}").trim_end().to_owned() + "\r\n";
    String::from_utf8(ask(stream, line.as_bytes(), b"END\r\n")).expect("stats are text")
}

/// A number of it.
pub fn stat(stream: &mut (impl Read + Write), family: &str, name: &str) -> u64 {
    let told = stats(stream, family);
    let line = told.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {told}"))
}
