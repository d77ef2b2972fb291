//! The client library against `laneway serve` over the kernel's UDP, on loopback: its examples, as
//! the README has them run, and what they leave out.

use crate::rig::{BINARY, Process};
use laneway_client::{Answer, Client, Error, Expiry, Refusal, Request, Settings, Topology};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Command;

#[allow(dead_code)] // its `main`
#[path = "../../../client/examples/many.rs"]
mod many;
#[allow(dead_code)]
#[path = "../../../client/examples/own_loop.rs"]
mod own_loop;
#[allow(dead_code)]
#[path = "../../../client/examples/quick.rs"]
mod quick;

const WORKERS: u16 = 2;

/// What a test waits at most for what must come: more than any thread waits for a CPU.
const PATIENCE_NANOS: u64 = 60_000_000_000;

fn patient() -> Settings {
    Settings {
        deadline_nanos: PATIENCE_NANOS,
        topology_nanos: PATIENCE_NANOS,
        ..Settings::default()
    }
}

struct Server {
    _process: Process,
    /// Where it takes streams.
    tcp: String,
    udp_base: u16,
}

impl Server {
    /// On a port for streams that the kernel chooses, and the first few for datagrams that are
    /// free.
    fn start(flags: &[&str]) -> Server {
        let first = 20_000 + (std::process::id() % 2_000) as u16 * 10;
        let bases = (0..200).map(|step| first + 4 * step);
        let started = bases.into_iter().find_map(|base| Server::try_start(base, flags));
        started.expect("of two hundred places one is free")
    }

    fn try_start(udp_base: u16, flags: &[&str]) -> Option<Server> {
        let workers = WORKERS.to_string();
        let mut command = Command::new(BINARY);
        command
            .args(["serve", "-p", "-1", "-l", "127.0.0.1", "-t", &workers])
            .args(["--udp-base", &udp_base.to_string()])
            .args(flags);
        let process = Process::start(command).ok()?;
        let tcp = process.places()[0].to_owned();
        Some(Server { _process: process, tcp, udp_base })
    }

    fn client(&self) -> Client {
        let client = Client::connect_with(self.tcp.as_str(), patient());
        client.expect("it tells where it takes datagrams")
    }
}

#[test]
fn the_examples_of_the_readme_run() {
    let server = Server::start(&[]);
    quick::run(&server.tcp, patient()).expect("quick");
    many::run(&server.tcp, patient()).expect("many");
    own_loop::run(&server.tcp, patient()).expect("own_loop");
}

#[test]
fn every_kind_of_request_is_answered_as_over_a_stream() {
    let server = Server::start(&["-I", "8m"]);
    let mut client = server.client();
    assert_eq!(client.topology().count(), WORKERS);
    assert_eq!(client.get("none").expect("an answer"), None);
    let large: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 7) as u8).collect();
    client.ask(Request::set("large", large.clone()).flags(9)).expect("an answer");
    let value = client.get("large").expect("an answer").expect("it was stored");
    assert!(value.data == large && value.flags == 9 && value.cas.is_none());

    let rows = [
        (Request::set("n", "41"), Answer::Done),
        (Request::increment("n", 1), Answer::Number(42)),
        (Request::decrement("n", 50), Answer::Number(0)),
        (Request::add("n", "7"), Answer::NotStored),
        (Request::replace("absent", "7"), Answer::NotStored),
        (Request::set("t", "b"), Answer::Done),
        (Request::append("t", "c"), Answer::Done),
        (Request::prepend("t", vec![b'a'; 3000]), Answer::Done),
        (Request::cas("absent", "7", 1), Answer::Missing),
        (Request::cas("t", "7", 1), Answer::Exists),
        (Request::touch("t", Expiry::Seconds(100)), Answer::Done),
        (Request::delete("absent"), Answer::Missing),
        (Request::delete("n"), Answer::Done),
    ];
    for (request, answer) in rows {
        assert_eq!(client.ask(request.clone()).expect("an answer"), answer, "{request:?}");
    }
    let text = client.get("t").expect("an answer").expect("it was stored").data;
    assert!(text.len() == 3002 && text.ends_with(b"abc"));

    let refused = client.set("too-large", vec![0; 9_000_000]);
    assert!(matches!(refused, Err(Error::Refused(Refusal::Server(_)))), "{refused:?}");
    let not_a_number = client.ask(Request::increment("t", 1));
    assert!(matches!(not_a_number, Err(Error::Refused(Refusal::Client(_)))), "{not_a_number:?}");
    let stats = client.stats("").expect("an answer");
    let find = |name: &str| stats.iter().find(|(told, _)| told == name).map(|(_, v)| v.clone());
    assert_eq!(find("curr_items"), Some("2".into()));
}

#[test]
fn the_topology_is_told_over_datagrams_too_and_writes_reach_their_owner() {
    let server = Server::start(&["--design", "hkh"]);
    let first = ("127.0.0.1", server.udp_base + 1);
    let mut client = Client::connect_udp(first, patient()).expect("it tells");
    assert_eq!(client.topology(), server.client().topology());
    assert_eq!(client.topology().port(0), server.udp_base);
    let sets = (0..500).map(|n| Request::set(format!("key:{n}"), vec![n as u8; 100]));
    assert!(client.ask_many(sets).iter().all(|answer| matches!(answer, Ok(Answer::Done))));
    let values = client.get_many((0..500).map(|n| format!("key:{n}")));
    for (n, value) in values.into_iter().enumerate() {
        let value = value.expect("an answer").expect("it was stored");
        assert_eq!(value.data, vec![n as u8; 100]);
    }
}

/// As `localhost` may be ::1 first, where a server takes no datagrams unless it is told to.
#[test]
fn of_several_addresses_the_one_that_takes_datagrams_is_asked() {
    let server = Server::start(&[]);
    let port = server.udp_base;
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // A port that somebody has who answers nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("bound");
    let other = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    for addresses in [[other, here(port)], [silent, here(port)]] {
        let client = Client::connect_udp(&addresses[..], patient()).expect("it tells");
        assert_eq!(client.topology().port(0), port, "{addresses:?}");
    }
    // `single` asks no address: it takes 127.0.0.1 where that is among them.
    let mut client = Client::single(&[other, here(port)][..], patient()).expect("a socket");
    assert_eq!(client.get("none").expect("an answer"), None);
}

#[test]
fn who_is_not_there_is_told_apart_from_who_takes_no_datagrams() {
    // The port of one who connected: nobody listens there, nor can as long as it is open.
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let held =
        std::net::TcpStream::connect(other.local_addr().expect("bound")).expect("it listens");
    let gone = held.local_addr().expect("bound");
    let patience = Settings { deadline_nanos: 50_000_000, ..patient() };
    let nobody = Client::connect_with(gone, patience.clone());
    assert!(matches!(nobody.err(), Some(Error::TimedOut { .. })));
    let mut client =
        Client::of(gone, Topology::queues(gone.port(), 1), patience).expect("a socket");
    assert!(matches!(client.get("k"), Err(Error::TimedOut { .. })));
    assert!(matches!(client.set("k", "v"), Err(Error::OutcomeUnknown { .. })));
}
