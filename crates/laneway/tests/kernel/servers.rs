//! Servers and clients in network namespaces of the test's own.

use crate::hosts::{self, Host, INTERFACE};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

pub const BINARY: &str = env!("CARGO_BIN_EXE_laneway");
/// A server that takes longer hangs.
pub const HANG: Duration = Duration::from_secs(60);
pub const ADDRESS: &str = "10.9.0.1:11211";
/// What a client far away asks for here.
pub const PUBLIC: [&str; 5] = ["-U", "11211", "--udp-listen", "10.9.0.1", "--udp-public"];

/// The lane for that client.
pub const LANE: [&str; 4] = ["--kernel-lane", INTERFACE, "--kernel-lane-peers", "10.9.0.0/24"];

/// Whether the layers are there; if not, says so (the runner shows it).
pub fn available() -> bool {
    has(|layer| layer != "AF_XDP")
}

/// Those of the way past the stack, too.
pub fn bypass_available() -> bool {
    has(|_| true)
}

fn has(needed: impl Fn(&str) -> bool) -> bool {
    let mut layers = laneway_server::kernel::layers();
    layers.retain(|layer| needed(layer.name) && layer.missing.is_some());
    for layer in &layers {
        let told = layer.to_string();
        // A program that the verifier walked through and refused is our mistake, no lack.
        assert!(!told.contains("processed "), "{told}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {told}");
    }
    layers.is_empty()
}

pub struct Server {
    pub child: Child,
    log: BufReader<ChildStderr>,
    pub said: String,
}

impl Server {
    pub fn start(host: &Host, flags: &[&str]) -> Server {
        let mut command = Command::new(BINARY);
        command.args(["serve", "-p", "11211", "-l", "0.0.0.0"]).args(flags);
        let child = host.run(|| command.stderr(Stdio::piped()).spawn());
        let mut child = child.expect("the binary was built for this test");
        let mut log = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut said = String::new();
        while !said.contains("ready on") {
            let bytes = log.read_line(&mut said).expect("stderr can be read");
            assert!(bytes > 0, "it ended before it was ready: {:?} {said}", child.wait());
        }
        Server { child, log, said }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.expect("kill exists").success());
    }

    /// Whether every thread of it has stopped.
    pub fn is_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
            stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
        };
        std::fs::read_dir(tasks).expect("it runs").all(stopped)
    }

    pub fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.child.wait().expect("it can be waited for").code(), Some(0));
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("stderr can be read");
        assert!(!rest.contains("panicked"), "{rest}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // gone already, unless a test failed
        let _ = self.child.wait();
    }
}

/// One client, with a socket of each kind.
pub struct Client {
    tcp: BufReader<TcpStream>,
    pub udp: UdpSocket,
    to: &'static str,
}

impl Client {
    pub fn new(host: &Host, from: &str, to: &'static str) -> Client {
        let tcp = host.run(|| TcpStream::connect(to)).expect("it listens");
        tcp.set_read_timeout(Some(HANG)).expect("a time-out can be set");
        Client { tcp: BufReader::new(tcp), udp: host.socket(from), to }
    }

    /// Ask over TCP; the reply up to a line that begins with `last`.
    pub fn tcp(&mut self, request: &str, last: &str) -> String {
        self.tcp.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let (mut reply, mut line) = (String::new(), String::new());
        while !line.starts_with(last) {
            line.clear();
            assert!(self.tcp.read_line(&mut line).expect("a reply") > 0, "{request}: {reply}");
            reply.push_str(&line);
        }
        reply
    }

    pub fn udp(&self, request: &str) -> String {
        hosts::ask(&self.udp, self.to, request)
    }

    pub fn stats(&mut self, family: &str) -> BTreeMap<String, String> {
        let text = self.tcp(&format!("stats {family}\r\n"), "END");
        let stat = |line: &str| {
            let mut words = line.strip_prefix("STAT ")?.splitn(2, ' ');
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        };
        text.lines().filter_map(stat).collect()
    }

    pub fn count(&mut self, family: &str, name: &str) -> u64 {
        self.stats(family)[name].parse().expect("a number")
    }

    pub fn hits(&mut self) -> u64 {
        self.count("kernel", "hits")
    }
}

/// A server with a lane, and a client on another host.
pub fn over_the_wire(flags: &[&str]) -> (Host, Host, Server, Client) {
    let (server_host, client_host) = hosts::connected();
    let server = Server::start(&server_host, &[&PUBLIC, flags].concat());
    let client = Client::new(&client_host, "10.9.0.2:0", ADDRESS);
    (server_host, client_host, server, client)
}

pub fn value(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

/// The same program with no right to what it is asked for.
pub fn without_rights(host: &Host, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-cap_39,-cap_12,-cap_38,-cap_21,-cap_13", BINARY, "serve"]);
    command.args(["-p", "11311", "-l", "127.0.0.1", "-U", "11311"]).args(flags);
    let mut child = host.run(|| command.stderr(Stdio::piped()).spawn()).expect("setpriv");
    let mut log = BufReader::new(child.stderr.take().expect("it was piped"));
    let mut said = String::new();
    while !said.contains("ready on") && log.read_line(&mut said).expect("stderr") > 0 {}
    if said.contains("ready on") {
        let _ = child.kill();
    }
    (child.wait().expect("it can be waited for").code(), said)
}
