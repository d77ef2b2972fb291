//! `laneway serve` over the kernel's UDP, on loopback: memcached's clients at the ordinary port,
//! clients that choose their queue, large values both ways, and datagrams that are wrong.

use crate::rig::{HANG, Process, refused, set, stats};
use laneway_wire::udp::{FRAME_BYTES_MAX as FRAME_BYTES, HEADER_BYTES, Header, Kind};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Longer than anything may hang: a server that stops waits for what is under way, not for this.
const DRAIN_MS: &str = "600000";
/// Silence after which something is sent again.
const SILENCE: Duration = Duration::from_millis(200);
/// Silences in a row after which the request is sent again, though part of its reply came: the
/// server keeps a reply for a while only.
const SILENCES_MAX: u32 = 5;

struct Server {
    process: Process,
    /// Every UDP address, in the order of the queues.
    udp: Vec<SocketAddr>,
}

impl Server {
    fn start(flags: &[&str]) -> Server {
        let process = Process::here(&[&["--drain-ms", DRAIN_MS], flags].concat());
        let places = process.places();
        let udp = places[1..].iter().map(|place| {
            let address = place.strip_prefix("udp:").expect("the rest is UDP");
            address.parse().expect("an address")
        });
        Server { udp: udp.collect(), process }
    }

    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(HANG)).expect("a time-out can be set");
        socket
    }

    fn stats(&self, family: &str) -> BTreeMap<String, String> {
        let text = stats(&mut self.process.connect(), family);
        let stat = |line: &str| {
            let mut words = line.strip_prefix("STAT ")?.splitn(2, ' ');
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        };
        text.lines().filter_map(stat).collect()
    }

    fn stop(self) {
        self.process.stop();
    }
}

fn datagram(request_id: u16, sequence: u16, total: u16, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let header = Header { request_id, sequence, total, kind };
    [&header.to_bytes()[..], payload].concat()
}

/// Send a request of any length.
fn send(socket: &UdpSocket, to: SocketAddr, id: u16, request: &[u8]) {
    let total = request.len().div_ceil(FRAME_BYTES) as u16;
    for (sequence, payload) in (0..).zip(request.chunks(FRAME_BYTES)) {
        let bytes = datagram(id, sequence, total, Kind::Data, payload);
        socket.send_to(&bytes, to).expect("loopback takes it");
    }
}

/// The reply to a request. Frames of it that are missing are asked for, and those of the request
/// that the server asks for are sent again.
fn receive(socket: &UdpSocket, to: SocketAddr, id: u16, request: &[u8]) -> Vec<u8> {
    let mut frames: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let (mut total, mut silences) = (0, 0);
    let mut room = vec![0; 65536];
    socket.set_read_timeout(Some(SILENCE)).expect("a time-out can be set");
    let began = Instant::now();
    while began.elapsed() < HANG {
        let Ok((bytes, from)) = socket.recv_from(&mut room) else {
            silences += 1;
            if total == 0 || silences == SILENCES_MAX {
                silences = 0;
                (total, frames) = (0, BTreeMap::new());
                send(socket, to, id, request);
            } else {
                let missing = (0..total).filter(|sequence| !frames.contains_key(sequence));
                let gaps: Vec<u8> = missing
                    .take(300)
                    .flat_map(|first| [first, 1].map(u16::to_be_bytes).concat())
                    .collect();
                let ask = datagram(id, 0, total, Kind::Resend, &gaps);
                socket.send_to(&ask, to).expect("loopback takes it");
            }
            continue;
        };
        assert!(bytes <= HEADER_BYTES + FRAME_BYTES);
        let (header, payload) = Header::parse(&room[..bytes]).expect("a header");
        if header.request_id == id {
            assert_eq!(from, to, "a reply leaves from where its request went");
        }
        match (header.request_id, header.kind) {
            (got, Kind::Data) if got == id => {
                silences = 0;
                total = header.total;
                frames.insert(header.sequence, payload.to_vec());
                if frames.len() == usize::from(total) {
                    return frames.into_values().flatten().collect();
                }
            }
            (got, Kind::Resend) if got == id => {
                for gap in payload.chunks_exact(4) {
                    let first = u16::from_be_bytes([gap[0], gap[1]]);
                    for sequence in first..first + u16::from_be_bytes([gap[2], gap[3]]) {
                        let start = usize::from(sequence) * FRAME_BYTES;
                        let end = request.len().min(start + FRAME_BYTES);
                        let total = request.len().div_ceil(FRAME_BYTES) as u16;
                        let payload = &request[start..end];
                        let bytes = datagram(id, sequence, total, Kind::Data, payload);
                        socket.send_to(&bytes, to).expect("loopback takes it");
                    }
                }
            }
            _ => {} // a reply that came twice
        }
    }
    panic!("{} of {total} frames after all this", frames.len());
}

fn ask(socket: &UdpSocket, to: SocketAddr, id: u16, request: &[u8]) -> Vec<u8> {
    send(socket, to, id, request);
    receive(socket, to, id, request)
}

#[test]
fn memcacheds_udp_port_answers_whatever_the_number_of_workers() {
    for workers in ["1", "4"] {
        let server = Server::start(&["-U", "-1", "-t", workers]);
        assert_eq!(server.udp.len(), 1, "one port for all workers");
        let to = server.udp[0];
        let clients: Vec<UdpSocket> = (0..16).map(|_| server.socket()).collect();
        for (number, client) in clients.iter().enumerate() {
            let key = format!("k{number}");
            assert_eq!(ask(client, to, 1, &set(&key, key.as_bytes())), b"STORED\r\n");
        }
        for (number, client) in clients.iter().enumerate() {
            let got = ask(client, to, 2, format!("get k{number}\r\n").as_bytes());
            let wanted = format!("VALUE k{number} 0 {}\r\nk{number}\r\nEND\r\n", number / 10 + 2);
            assert_eq!(got, wanted.as_bytes());
        }
        let shown = server.stats("settings");
        assert_eq!(shown["udpport"], to.port().to_string());
        let counted = server.stats("udp");
        assert!(counted["requests"].parse::<u64>().expect("a number") >= 32);
        server.stop();
    }
}

#[test]
fn clients_choose_their_queue_and_large_values_pass_in_both_forms() {
    for (workers, form) in [("2", "time-share"), ("4", "roles")] {
        let flags = ["--udp-base", "-1", "-t", workers, "--form", form, "--threshold", "16k"];
        let server = Server::start(&flags);
        let topology = server.stats("topology");
        assert_eq!(topology["queues"], workers);
        assert_eq!(topology["udp_port_base"], server.udp[0].port().to_string());
        let socket = server.socket();
        let mut id = 0;
        for (queue, to) in server.udp.iter().enumerate() {
            assert_eq!(topology[&format!("worker:{queue}:udp_port")], to.port().to_string());
            assert_eq!(to.port(), server.udp[0].port() + queue as u16);
            for len in [10, 5_000, 100_000, 1_000_000] {
                let value: Vec<u8> =
                    (0..len as u32).map(|at| (at.wrapping_mul(2654435761) >> 24) as u8).collect();
                id += 2;
                assert_eq!(ask(&socket, *to, id, &set("k", &value)), b"STORED\r\n");
                let got = ask(&socket, *to, id + 1, b"get k\r\n");
                let head = format!("VALUE k 0 {len}\r\n");
                let wanted = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
                assert!(got == wanted, "{len} bytes at queue {queue}, {form}");
            }
        }
        server.stop();
    }
}

#[test]
fn what_is_wrong_is_counted_and_answers_go_on() {
    let server = Server::start(&["--udp-base", "-1", "-U", "-1", "-t", "2"]);
    let socket = server.socket();
    let rows: [(&str, Vec<u8>); 6] = [
        ("truncated", vec![0, 1, 2]),
        ("wrong_sequence", datagram(1, 5, 2, Kind::Data, b"x")),
        ("unknown_kind", datagram(1, 0, 1, Kind::Unknown(77), b"get a\r\n")),
        ("half_requests", datagram(1, 0, 1, Kind::Data, b"get a")),
        ("resends_unknown", datagram(1, 0, 9, Kind::Resend, &[0, 0, 0, 1])),
        ("cookies_wrong", datagram(1, 0, 1, Kind::Cookie, b"no cookie")),
    ];
    for (id, to) in (9..).zip(&server.udp) {
        for (_, bytes) in &rows {
            socket.send_to(bytes, to).expect("loopback takes it");
        }
        assert_eq!(ask(&socket, *to, id, b"mn\r\n"), b"MN\r\n");
    }
    let counted = server.stats("udp");
    for (name, _) in &rows {
        assert_eq!(counted[*name], server.udp.len().to_string(), "{name}");
    }
    let before: u64 = counted["kernel_no_such_queue"].parse().expect("a number");
    let beyond = SocketAddr::new(server.udp[0].ip(), 1); // nobody is there
    socket
        .send_to(&datagram(1, 0, 1, Kind::Data, b"get a\r\n"), beyond)
        .expect("loopback takes it");
    let after: u64 = server.stats("udp")["kernel_no_such_queue"].parse().expect("a number");
    assert!(after > before, "the kernel counts what goes to a queue that is not there");
    server.stop();
}

#[test]
fn a_udp_port_in_use_is_named_with_the_way_out() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it has one").port().to_string();
    let told = refused(&["-l", "127.0.0.1", "-p", "-1", "-U", &port], 71, &port);
    assert!(told.contains("-U"), "{told}");
}
