//! `laneway serve --numa fake:2`: two domains on any machine, asked by the client library over UDP,
//! which knows to which a key belongs, and over TCP, which does not.

use crate::rig::{BINARY, HANG, HERE, Process, ask, awaited, set, stats};
use laneway_client::{Client, Request, Settings, Topology};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

const WORKERS: u16 = 4;
const KEYS: u32 = 200;

fn patient() -> Settings {
    let nanos = HANG.as_nanos() as u64;
    Settings { deadline_nanos: nanos, topology_nanos: nanos, ..Settings::default() }
}

struct Server {
    process: Process,
}

impl Server {
    /// With the first ports for datagrams that are free.
    fn start(flags: &[&str]) -> Server {
        let first = 42_000 + (std::process::id() % 2_000) as u16 * 10;
        let bases = (0..200).map(|step| first.wrapping_add(4 * step).max(20_000));
        let try_start = |base: u16| {
            let mut command = Command::new(BINARY);
            command.arg("serve").args(HERE).args(["-t", &WORKERS.to_string(), "--numa", "fake:2"]);
            // One that waits for its deadline would hang the test.
            command.args(["-U", "-1", "--udp-base", &base.to_string(), "--drain-ms", "600000"]);
            command.args(flags);
            Some(Server { process: Process::start(command).ok()? })
        };
        bases.into_iter().find_map(try_start).expect("of two hundred places one is free")
    }

    fn stats(&self, words: &str) -> BTreeMap<String, String> {
        let text = stats(&mut self.process.connect(), words);
        let pairs = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The sum of a number that `stats lanes` tells of each worker.
    fn sum(&self, name: &str) -> u64 {
        let lanes = self.stats("lanes");
        let number = |worker| lanes[&format!("worker:{worker}:{name}")].parse::<u64>();
        (0..WORKERS).map(|worker| number(worker).expect("a number")).sum()
    }
}

fn key(number: u32) -> String {
    format!("key:{number}")
}

/// Some small, some of many pieces.
fn value(number: u32) -> Vec<u8> {
    let bytes = if number.is_multiple_of(20) { 300_000 } else { 10 + number as usize };
    (0..bytes).map(|at| (at as u32 * 7 + number) as u8).collect()
}

fn set_line(number: u32) -> Vec<u8> {
    set(&key(number), &value(number))
}

fn value_lines(number: u32) -> Vec<u8> {
    let value = value(number);
    let head = format!("VALUE {} 0 {}\r\n", key(number), value.len());
    [head.as_bytes(), &value, b"\r\n"].concat()
}

#[test]
fn clients_that_choose_the_queue_never_cross_domains() {
    let server = Server::start(&[]);
    let topology = server.stats("topology");
    assert_eq!((topology["domains"].as_str(), topology["queues"].as_str()), ("2", "4"));
    let domain_of = |worker: u16| topology[&format!("worker:{worker}:domain")].clone();
    assert_eq!((0..WORKERS).map(domain_of).collect::<Vec<_>>(), ["0", "0", "1", "1"]);
    let client = Client::connect_with(server.process.places()[0], patient());
    let mut client = client.expect("it tells its queues");
    for number in 0..KEYS {
        client.ask(Request::set(key(number), value(number))).expect("stored");
    }
    for number in 0..KEYS {
        let got = client.get(key(number)).expect("an answer").expect("it was stored");
        assert!(got.data == value(number), "{number}");
    }
    assert_eq!((server.sum("forwarded"), server.sum("items_remote")), (0, 0));
    // Every worker set holds its part.
    let small =
        |worker: u16| server.stats("lanes")[&format!("worker:{worker}:requests_small")] != "0";
    assert!((small(0) || small(1)) && (small(2) || small(3)));
    assert_eq!(server.stats("")["curr_items"], KEYS.to_string());
    drop(client);
    server.process.stop();
}

#[test]
fn a_connection_reaches_the_keys_of_every_domain() {
    for design in ["lanes", "minos"] {
        let server = Server::start(&["--design", design]);
        let mut stream = server.process.connect();
        for number in 0..KEYS {
            assert_eq!(ask(&mut stream, &set_line(number), b"\r\n"), b"STORED\r\n", "{number}");
        }
        for number in 0..KEYS {
            let line = format!("get {}\r\n", key(number));
            let expected = [value_lines(number), b"END\r\n".to_vec()].concat();
            stream.write_all(line.as_bytes()).expect("it reads");
            let mut got = Vec::new();
            while got.len() < expected.len() {
                got.extend(read_some(&mut stream));
            }
            assert!(got == expected, "{design}: {number}");
        }
        let forwarded = server.sum("forwarded");
        // Half of the keys are the other domain's: 200 of 400 requests, give or take.
        assert!((100..=300).contains(&forwarded), "{design}: {forwarded}");
        // One pipeline, replies in its order, multigets over both domains among it.
        let small: Vec<u32> = (0..KEYS).filter(|number| number % 20 != 0).collect();
        let mut pipeline = Vec::new();
        let mut expected = Vec::new();
        for some in small.chunks(7) {
            let names: Vec<String> = some.iter().map(|number| key(*number)).collect();
            pipeline.extend(format!("get {}\r\n", names.join(" ")).into_bytes());
            some.iter().for_each(|number| expected.extend(value_lines(*number)));
            expected.extend_from_slice(b"END\r\n");
            pipeline.extend(format!("delete {}\r\nmn\r\n", names[0]).into_bytes());
            expected.extend_from_slice(b"DELETED\r\nMN\r\n");
        }
        stream.write_all(&pipeline).expect("it reads");
        let mut got = Vec::new();
        while got.len() < expected.len() {
            got.extend(read_some(&mut stream));
        }
        assert!(got == expected, "{design}");
        assert_eq!(ask(&mut stream, b"flush_all\r\n", b"\r\n"), b"OK\r\n");
        for number in 0..KEYS {
            let line = format!("get {}\r\n", key(number));
            assert_eq!(ask(&mut stream, line.as_bytes(), b"END\r\n"), b"END\r\n", "{number}");
        }
    }
}

#[test]
fn datagrams_that_come_to_a_wrong_domain_are_answered_too() {
    let server = Server::start(&[]);
    let topology = server.stats("topology");
    let port = |name: &str| topology[name].parse::<u16>().expect("a port");
    let base = port("udp_port_base");
    // A client that is told nothing of keys sends each to any queue.
    let blind = Topology::queues(base, WORKERS);
    let place = SocketAddr::from(([127, 0, 0, 1], base));
    let mut client = Client::of(place, blind, patient()).expect("a socket");
    for number in 0..KEYS {
        client.ask(Request::set(key(number), value(number))).expect("stored");
    }
    for number in 0..KEYS {
        let got = client.get(key(number)).expect("an answer").expect("it was stored");
        assert!(got.data == value(number), "{number}");
    }
    assert!(server.sum("forwarded") > 0);
    // A multiget is one message and has one answer, whichever the queue.
    let names: Vec<String> = (1..12).map(key).collect();
    let line = format!("get {}\r\n", names.join(" "));
    let expected: Vec<u8> = (1..12).flat_map(value_lines).chain(*b"END\r\n").collect();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.set_read_timeout(Some(HANG)).expect("a time");
    let ports = (base..base + WORKERS).chain([port("udp_port")]);
    for (number, port) in ports.enumerate() {
        let header = [0, number as u8, 0, 0, 0, 1, 0, 0];
        let datagram = [&header, line.as_bytes()].concat();
        socket.send_to(&datagram, ("127.0.0.1", port)).expect("it leaves");
        let mut room = [0; 2_000];
        let (bytes, from) = awaited(|| socket.recv_from(&mut room));
        assert_eq!(from.port(), port);
        assert!(room[..8] == header && room[8..bytes] == expected, "queue {number}");
    }
    assert!(server.sum("items_remote") > 0);
}

fn read_some(stream: &mut TcpStream) -> Vec<u8> {
    use std::io::Read as _;
    let mut buffer = vec![0; 65_536];
    let bytes = awaited(|| stream.read(&mut buffer));
    assert!(bytes > 0, "closed");
    buffer.truncate(bytes);
    buffer
}
