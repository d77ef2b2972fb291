//! Network namespaces of the test's own, joined by a pair of virtual Ethernet interfaces. They are
//! held by file descriptors only and vanish with them, however the test ends.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

/// Where the server's end of the pair is.
pub const INTERFACE: &str = "lane0";
/// Where the client's is.
pub const PEER: &str = "lane1";
/// Only failing tests wait so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Host {
    namespace: File,
}

impl Host {
    /// A host of its own, with nothing but loopback.
    pub fn new() -> Host {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of our own");
            File::open("/proc/thread-self/ns/net").expect("procfs")
        });
        let host = Host { namespace: made.join().expect("the thread") };
        host.ip("link set lo up");
        host
    }

    /// Run something on this host.
    pub fn run<R: Send>(&self, what: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(&self.namespace, CloneFlags::CLONE_NEWNET).expect("our own namespace");
                what()
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Where its namespace is found, for `ip link ... netns`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// `ip` of iproute2.
    pub fn ip(&self, line: &str) {
        let output = self.run(|| Command::new("ip").args(line.split(' ')).output());
        let output = output.expect("ip, of the package iproute2");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {line}: {told}");
    }

    /// A socket on this host, bound to `address`, that waits for datagrams only as long as it must.
    pub fn socket(&self, address: &str) -> UdpSocket {
        let socket = self.run(|| UdpSocket::bind(address)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }
}

/// Server (10.9.0.1, fd09::1) and client (10.9.0.2, fd09::2).
pub fn connected() -> (Host, Host) {
    connected_by(1)
}

/// The same, by interfaces of so many queues each way.
pub fn connected_by(queues: usize) -> (Host, Host) {
    let (server, client) = (Host::new(), Host::new());
    join(&server, &client, [INTERFACE, PEER], queues);
    for (host, interface, number) in [(&server, INTERFACE, 1), (&client, PEER, 2)] {
        host.ip(&format!("addr add 10.9.0.{number}/24 dev {interface}"));
        host.ip(&format!("-6 addr add fd09::{number}/64 dev {interface} nodad"));
        host.ip(&format!("link set {interface} up"));
    }
    (server, client)
}

/// Join two hosts by a pair of interfaces of these names, down and without addresses.
pub fn join(server: &Host, client: &Host, [ours, theirs]: [&str; 2], queues: usize) {
    let each = format!("numtxqueues {queues} numrxqueues {queues}");
    let peer = format!("peer name {theirs} {each} netns {}", client.path());
    server.ip(&format!("link add {ours} {each} type veth {peer}"));
}

/// Send `text` as one datagram, and the text of the datagram that comes back.
pub fn ask(socket: &UdpSocket, to: &str, text: &str) -> String {
    socket.send_to(&datagram(text), to).expect("sent");
    heard(socket).0
}

pub fn datagram(text: &str) -> Vec<u8> {
    [&[0x42, 0x43, 0, 0, 0, 1, 0, 0], text.as_bytes()].concat()
}

/// Have a server that strangers reach believe this socket's address: its cookie goes back.
pub fn prove(socket: &UdpSocket, to: &str) {
    // Answered by none but a cookie: its reply would be longer than strangers are sent.
    socket.send_to(&datagram("stats settings\r\n"), to).expect("sent");
    let mut cookie = [0; 2048];
    let (length, _) = socket.recv_from(&mut cookie).expect("a datagram within a minute");
    assert_eq!(cookie[2..8], [0xff, 0xff, 0, 1, 0xa7, 4], "a cookie");
    socket.send_to(&cookie[..length], to).expect("sent");
}

/// The text of the next datagram, and who sent it.
pub fn heard(socket: &UdpSocket) -> (String, std::net::SocketAddr) {
    let mut bytes = [0; 2048];
    let (length, from) = loop {
        match socket.recv_from(&mut bytes) {
            // The process was halted and goes on.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => break other.expect("a datagram within a minute"),
        }
    };
    let text = String::from_utf8_lossy(&bytes[8..length]);
    assert_eq!(bytes[..8], [0x42, 0x43, 0, 0, 0, 1, 0, 0], "{text}");
    (String::from_utf8(bytes[8..length].to_vec()).expect("text"), from)
}
