//! Carries one kind of request out, a given number of times, for a tool that counts instructions:
//! parse, dispatch, execute and format by a whole worker over the memory transport, or the store's
//! lookups alone. `cargo xtask instructions` runs it twice with different numbers; the difference
//! is what requests cost, without what it costs to begin.
//!
//! Usage: `instructions PATH REQUESTS`. Nothing in it depends on time: the worker's clock is set by
//! hand, the hash has a fixed seed, and everything happens on one thread. What the memory transport
//! and the client's end of it cost is in the number, shared by the requests of a burst.

use laneway_rig as rig;

use laneway_policy::{Form, WorkerId};
use laneway_server::clock::ManualClock;
use laneway_server::shared::ServerShared;
use laneway_server::worker::{Progress, Worker};
use laneway_store::{Got, KeyHash, Moment, Store};
use laneway_tls::EitherTransport;
use laneway_transport::memory::Client;
use laneway_transport::socket::SocketTransport;
use laneway_transport::udp::{Ports, Sockets, UdpDatagrams};
use rig::{Plan, Rig, value};
use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;

/// Enough for an index of some depth, few enough to be written in a moment.
const KEYS: usize = 2_000;
const VALUE_BYTES: usize = 100;
/// Requests of a burst.
const BURST: usize = 16;
/// Keys of a multiget.
const KEYS_PER_GET: usize = 50;
const NOW: Moment = Moment::from_seconds(1_000_000);

type CarryOut = fn(usize);

/// Every path; what a number in bench/instructions.toml bounds is one request of it, or one key
/// where several keys make a request.
const PATHS: &[(&str, CarryOut)] = &[
    ("get", |requests| talk(requests, 1, get, "END\r\n")),
    ("get-burst", |requests| talk(requests, BURST, get, "END\r\n")),
    ("set-burst", |requests| talk(requests, BURST, set, "STORED\r\n")),
    ("meta-get-burst", |requests| talk(requests, BURST, meta_get, "\r\n")),
    ("miss-burst", |requests| talk(requests, BURST, miss, "END\r\n")),
    ("resp-get-burst", |requests| talk(requests, BURST, resp_get, "\r\n")),
    ("multiget", multiget),
    ("udp-get", |requests| talk_by_udp(requests, 1, get)),
    ("udp-get-burst", |requests| talk_by_udp(requests, BURST, get)),
    ("udp-meta-get-burst", |requests| talk_by_udp(requests, BURST, meta_get)),
    ("scrape", scrape),
    ("lookup", lookup),
    ("lookup-batch", lookup_batch),
];

fn main() {
    let names: Vec<&str> = PATHS.iter().map(|(name, _)| *name).collect();
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let requests = arguments.next().and_then(|number| number.parse().ok());
    let known = PATHS.iter().find(|(name, _)| *name == path);
    let (Some((_, carry_out)), Some(requests)) = (known, requests) else {
        let names = names.join(" ");
        eprintln!("instructions PATH REQUESTS [needless], where PATH is one of {names}");
        std::process::exit(2);
    };
    if arguments.next().is_some_and(|word| word == "needless") {
        // What the ceilings have to notice: an allocation more for each request.
        (0..requests).for_each(|_| drop(black_box(Vec::<u8>::with_capacity(VALUE_BYTES))));
    }
    carry_out(requests);
}

fn key(number: usize) -> String {
    format!("key-{:012}", number % KEYS)
}

fn get(key: String) -> String {
    format!("get {key}\r\n")
}

fn meta_get(key: String) -> String {
    format!("mg {key} v\r\n")
}

fn resp_get(key: String) -> String {
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())
}

fn miss(key: String) -> String {
    format!("get no-{key}\r\n")
}

fn set(key: String) -> String {
    let value = String::from_utf8(value(VALUE_BYTES, 7)).expect("letters");
    format!("set {key} 0 0 {VALUE_BYTES}\r\n{value}\r\n")
}

fn filled() -> (Rig, Client) {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    for number in 0..KEYS {
        rig.set(&client, &key(number), &value(VALUE_BYTES, number as u64));
    }
    let worker = &rig.shared.workers[0];
    let sizes: u64 = worker.sizes.iter().map(|count| count.get()).sum();
    let read_by_plans = sizes.min(worker.lanes.executed());
    assert!(read_by_plans >= KEYS as u64, "what plans and limits read is counted in every build");
    (rig, client)
}

/// Sends what fits the pipe, has the worker step until nothing is left to do, and takes the
/// replies.
fn ask(rig: &mut Rig, client: &Client, request: &[u8]) -> Vec<u8> {
    assert_eq!(client.send(request), request.len(), "a burst fits the pipe");
    while rig.workers[0].step().expect("memory transports do not fail") != Progress::Idle {}
    client.receive(usize::MAX)
}

/// So many requests, `burst` at a time. Their texts are made before the first leaves, all of them
/// however many are carried out.
fn talk(requests: usize, burst: usize, text: impl Fn(String) -> String, end: &str) {
    let (mut rig, mut client) = filled();
    if text(key(0)).starts_with('*') {
        // Which protocol a connection speaks is told by its first byte, so it has to be a new one.
        client = rig.net.connect();
    }
    let burst_from = |first: usize| (0..burst).map(|at| text(key(first + at))).collect::<String>();
    let bursts: Vec<String> = (0..KEYS / burst).map(|at| burst_from(at * burst)).collect();
    for number in 0..requests / burst {
        let request = &bursts[number % bursts.len()];
        let back = ask(&mut rig, &client, request.as_bytes());
        let is_answered = back.ends_with(end.as_bytes()) && !back.starts_with(b"ERROR");
        assert!(is_answered, "{:?}", String::from_utf8_lossy(&back));
    }
}

/// A worker that is asked over loopback.
struct Afar {
    worker: Worker<EitherTransport<SocketTransport>>,
    client: UdpSocket,
    /// The last reply lies here.
    room: [u8; 2048],
}

impl Afar {
    fn new() -> Afar {
        let ports = Ports {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            workers: 1,
            base: None,
            ordinary: Some(0),
            join: true,
        };
        let sockets = Arc::new(Sockets::bind(&ports).expect("loopback has a free port"));
        let clock = ManualClock::default();
        let plan = Plan::of(1, Form::TimeShare);
        let (shared, control) = rig::domain_of(&plan, &clock, ServerShared::default());
        let transport = SocketTransport::new(Arc::new(Vec::new())).expect("the kernel has epoll");
        let transport = EitherTransport::new(transport.with_datagrams(sockets.clone()));
        let worker = Worker::new(WorkerId(0), shared, transport, clock, Some(control));
        let mut worker = worker.expect("nothing is listened to");
        let address = sockets.queues().next().expect("there is one").address;
        let datagrams = Box::new(UdpDatagrams::new(sockets));
        worker.serve_datagrams(datagrams).expect("its queue can be watched");
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        client.connect(address).expect("it is on loopback");
        let mut afar = Afar { worker, client, room: [0; 2048] };
        for number in 0..KEYS {
            let stored = afar.ask(&[framed(number, &set(key(number)))]);
            assert!(stored.ends_with(b"STORED\r\n"));
        }
        afar
    }

    /// Sends a burst, has the worker step once, and takes the replies. Returns the last one.
    fn ask(&mut self, burst: &[Vec<u8>]) -> &[u8] {
        for datagram in burst {
            self.client.send(datagram).expect("loopback takes it");
        }
        self.worker.step().expect("sockets on loopback do not fail");
        let mut bytes = 0;
        for _ in burst {
            bytes = self.client.recv(&mut self.room).expect("each is answered");
        }
        &self.room[..bytes]
    }
}

/// A request as a datagram, with memcached's frame header: one whole message.
fn framed(number: usize, request: &str) -> Vec<u8> {
    let id = (number as u16).to_be_bytes();
    [&id[..], &[0, 0, 0, 1, 0, 0], request.as_bytes()].concat()
}

/// So many requests over UDP, `burst` at a time.
fn talk_by_udp(requests: usize, burst: usize, text: impl Fn(String) -> String) {
    let mut afar = Afar::new();
    let datagram = |number: usize| framed(number, &text(key(number)));
    let bursts: Vec<Vec<Vec<u8>>> = (0..KEYS / burst)
        .map(|at| (0..burst).map(|to| datagram(at * burst + to)).collect())
        .collect();
    for number in 0..requests / burst {
        let back = afar.ask(&bursts[number % bursts.len()]);
        assert!(back.len() > VALUE_BYTES && back.ends_with(b"\r\n"), "{:?}", back.escape_ascii());
    }
}

/// So many keys, [`KEYS_PER_GET`] to a request.
fn multiget(keys: usize) {
    let (mut rig, client) = filled();
    let names: Vec<String> = (0..KEYS_PER_GET).map(|at| key(at * 37)).collect();
    let request = format!("get {}\r\n", names.join(" ")).into_bytes();
    for _ in 0..keys / KEYS_PER_GET {
        let back = ask(&mut rig, &client, &request);
        assert!(back.ends_with(b"END\r\n") && back.len() > KEYS_PER_GET * VALUE_BYTES);
    }
}

/// So many readings of all that `/metrics` tells, of a server whose clients come by streams and
/// datagrams and whose items are kept durably.
fn scrape(scrapes: usize) {
    let mut rig = Rig::watched();
    let client = rig.net.connect();
    for number in 0..KEYS {
        rig.set(&client, &key(number), &value(VALUE_BYTES, number as u64));
    }
    for _ in 0..scrapes {
        let snapshot = black_box(rig.shared.watch(ManualClock::UNIX_START));
        assert!(snapshot.tier.is_some() && !snapshot.udp.is_empty() && snapshot.store.items > 0);
    }
}

/// So many lookups in the store, one by one.
fn lookup(lookups: usize) {
    let (rig, _client) = filled();
    let store = &rig.shared.store;
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let mut out = Vec::new();
    for number in 0..lookups {
        let key = keys[number % KEYS].as_bytes();
        find(store, store.hash(key), key, &mut out);
    }
}

/// So many lookups, the lines of [`BURST`] of them asked for together.
fn lookup_batch(lookups: usize) {
    let (rig, _client) = filled();
    let store = &rig.shared.store;
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let mut out = Vec::new();
    for batch in 0..lookups / BURST {
        let keys: [&[u8]; BURST] =
            std::array::from_fn(|at| keys[(batch * BURST + at) % KEYS].as_bytes());
        let hashes = keys.map(|key| store.hash(key));
        hashes.iter().for_each(|&hash| store.prefetch(hash));
        store.prefetch_items(&hashes);
        hashes.iter().zip(keys).for_each(|(&hash, key)| find(store, hash, key, &mut out));
    }
}

fn find(store: &Arc<Store>, hash: KeyHash, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let got = store.get(hash, key, NOW, out, &mut |_, _| ());
    assert!(matches!(black_box(got), Got::Copied(_)));
}
