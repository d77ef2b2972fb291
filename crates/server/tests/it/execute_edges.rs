//! What the scripts cannot say: transfers, values that are somebody else's, memory that runs out,
//! values whose client went away.

use laneway_server::counts::counters::{StatsRegistry, Totals};
use laneway_server::durable::pending_writes::DurableReader;
use laneway_server::execute::{self, Body, Context, ExecuteSettings, Incoming, Outcome};
use laneway_store::{Config, Mode, Moment, Store, meter};
use laneway_wire::{GetVerb, Limits, Request, parse};
use std::cell::Cell;
use std::sync::Arc;

const NOW: Moment = Moment::from_seconds(1_800_000_000);

struct Server {
    store: Arc<Store>,
    settings: ExecuteSettings,
    board: StatsRegistry,
    touched: Cell<u64>,
    large_from: u64,
    pending_writes: Option<DurableReader<'static>>,
}

impl Server {
    fn new(config: Config) -> Server {
        Server {
            store: Store::new(config).expect("memory for a store"),
            settings: ExecuteSettings::default(),
            board: StatsRegistry::new(1),
            touched: Cell::new(0),
            large_from: u64::MAX,
            pending_writes: None,
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            store: &self.store,
            others: &[],
            hand: None,
            now: NOW,
            counters: self.board.worker(0),
            settings: &self.settings,
            touched: &self.touched,
            large_from: self.large_from,
            large_lane_from: u64::MAX,
            pending_writes: self.pending_writes,
            read_only: false,
            log: None,
            by: 0,
        }
    }

    /// Executes one request whose value, if any, lies whole behind it.
    fn run(&self, request: &[u8]) -> (Outcome, Vec<u8>) {
        let limits = Limits { item_bytes_max: 64 << 20, line_bytes_max: 1 << 16 };
        let frame = parse(request, &limits).expect("a legal request").expect("a whole line");
        let mut out = b"before".to_vec();
        let outcome = match &frame.request {
            Request::Store(_) | Request::MetaSet(_) => {
                let body = Body::of(&request[frame.head_bytes..]);
                execute::store_whole(&self.context(), &frame.request, body, &mut out)
            }
            request => execute::command(&self.context(), request, &mut out),
        };
        assert!(out.starts_with(b"before"), "what stood in the output is left alone");
        (outcome, out.split_off(b"before".len()))
    }

    fn say(&self, request: &str) -> String {
        String::from_utf8(self.run(request.as_bytes()).1).expect("text")
    }

    fn set(&self, key: &str, value_bytes: usize) -> String {
        self.say(&format!("set {key} 0 0 {value_bytes}\r\n{}\r\n", "x".repeat(value_bytes)))
    }

    fn begin(&self, line: &str) -> Result<Incoming, String> {
        let limits = Limits { item_bytes_max: 64 << 20, line_bytes_max: 1 << 16 };
        let frame = parse(line.as_bytes(), &limits).expect("legal").expect("whole");
        let mut out = Vec::new();
        execute::begin(&self.context(), &frame.request, &mut out)
            .ok_or_else(|| String::from_utf8(out).expect("text"))
    }

    fn totals(&self) -> Totals {
        self.board.totals()
    }
}

#[test]
fn a_large_value_leaves_as_a_transfer() {
    let server = Server::new(Config::default());
    assert_eq!(server.set("k", 200_000), "STORED\r\n");
    let mut out = Vec::new();
    let hash = server.store.hash(b"k");
    let outcome =
        execute::get_key(&server.context(), GetVerb::Get, Moment::NEVER, b"k", hash, &mut out);
    let Outcome::Transfer(transfer) = outcome else { panic!("not a transfer") };
    assert_eq!(out, b"VALUE k 0 200000\r\n");
    assert_eq!((transfer.value.value_bytes(), transfer.tail), (200_000, &b"\r\n"[..]));
    assert_eq!(server.touched.get(), 200_001);
    // It stays whole while it is replaced and deleted.
    assert_eq!(server.set("k", 3), "STORED\r\n");
    assert_eq!(server.say("delete k\r\n"), "DELETED\r\n");
    let mut value = Vec::new();
    transfer.value.copy_into(&mut value);
    assert_eq!(value, vec![b'x'; 200_000]);
}

#[test]
fn an_mg_of_a_large_value_is_a_transfer_only_where_the_value_is_asked_for() {
    let server = Server::new(Config::default());
    assert_eq!(server.set("k", 200_000), "STORED\r\n");
    let (outcome, out) = server.run(b"mg k s v\r\n");
    assert!(matches!(outcome, Outcome::Transfer(_)));
    assert_eq!(out, b"VA 200000 s200000\r\n");
    let (outcome, out) = server.run(b"mg k s\r\n");
    assert!(matches!(outcome, Outcome::Done));
    assert_eq!(out, b"HD s200000\r\n");
}

#[test]
fn what_is_somebody_elses_is_neither_done_nor_counted() {
    let mut server = Server::new(Config::default());
    for (key, value_bytes) in [("small", 99), ("middle", 5_000), ("large", 200_000)] {
        assert_eq!(server.set(key, value_bytes), "STORED\r\n");
    }
    server.large_from = 1_000;
    let before = server.totals();
    for key in ["middle", "large"] {
        let hash = server.store.hash(key.as_bytes());
        for verb in [GetVerb::Get, GetVerb::Gets, GetVerb::Gat, GetVerb::Gats] {
            let mut out = b"before".to_vec();
            let key = key.as_bytes();
            let outcome = execute::get_key(
                &server.context(),
                verb,
                Moment::from_seconds(1),
                key,
                hash,
                &mut out,
            );
            assert!(matches!(outcome, Outcome::Elsewhere), "{verb:?}");
            assert_eq!(out, b"before");
        }
        let (outcome, out) = server.run(format!("mg {key} v T-1\r\n").as_bytes());
        assert!(matches!(outcome, Outcome::Elsewhere));
        assert_eq!(out, b"");
        let (outcome, out) = server.run(format!("get small {key}\r\n").as_bytes());
        assert!(matches!(outcome, Outcome::Elsewhere));
        assert_eq!(out, b"");
        assert_eq!(server.say(&format!("mg {key} t\r\n")), "HD t-1\r\n", "nothing was touched");
    }
    let counted = server.totals().since(&before);
    // The small key of the two multigets, and the two `mg` without a value.
    assert_eq!((counted.cmd_get, counted.get_hits, counted.cmd_touch), (4, 4, 0));
    assert!(server.say("get small\r\n").starts_with("VALUE small 0 99\r\n"));
}

#[test]
fn who_leaves_a_large_value_to_another_does_not_mark_it() {
    let mut server = Server::new(Config::default());
    for (key, value_bytes) in [("middle", 5_000), ("large", 200_000)] {
        assert_eq!(server.set(key, value_bytes), "STORED\r\n");
        for (large_from, mark) in [(1_000, None), (u64::MAX, Some("h0")), (u64::MAX, Some("h1"))] {
            server.large_from = large_from;
            let (outcome, out) = server.run(format!("mg {key} h v\r\n").as_bytes());
            assert_eq!(matches!(outcome, Outcome::Elsewhere), mark.is_none());
            let head = mark.map_or(String::new(), |mark| format!("VA {value_bytes} {mark}\r\n"));
            assert!(out.starts_with(head.as_bytes()) && out.is_empty() == mark.is_none(), "{key}");
        }
    }
}

#[test]
fn touched_tells_the_size_of_what_was_read() {
    let server = Server::new(Config::default());
    server.set("key", 10);
    for (request, bytes) in [
        ("get key\r\n", 13),
        ("gat 0 key\r\n", 13),
        ("mg key v\r\n", 13),
        ("mg key\r\n", 0),
        ("get none\r\n", 0),
        ("delete none\r\n", 0),
        ("version\r\n", 0),
    ] {
        server.touched.set(0);
        server.say(request);
        assert_eq!(server.touched.get(), bytes, "{request}");
    }
}

/// A store that never evicts, filled until it refuses a value of 1000 bytes; the keys stored.
fn full_server() -> (Server, usize) {
    let config = Config { mode: Mode::Store, memory_bytes: 8 << 20, ..Config::default() };
    let server = Server::new(config);
    for number in 0..20_000 {
        match server.set(&format!("key{number}"), 1_000).as_str() {
            "STORED\r\n" => {}
            reply => {
                assert_eq!(reply, "SERVER_ERROR out of memory storing object\r\n");
                return (server, number);
            }
        }
    }
    panic!("eight megabytes never fill up");
}

#[test]
fn without_memory_stores_are_refused_as_memcached_refuses_them() {
    const REFUSED: &str = "SERVER_ERROR out of memory storing object\r\n";
    let (mut server, stored) = full_server();
    assert!(stored > 1_000, "{stored}");
    assert!(server.say("get key0\r\n").starts_with("VALUE key0 0 1000\r\n"));
    let value = "y".repeat(1_000);
    // A refused add leaves what is there, a refused set takes it away, so does any ms.
    assert_eq!(server.say(&format!("add key1 0 0 1000\r\n{value}\r\n")), REFUSED);
    assert!(server.say("get key1\r\n").starts_with("VALUE"));
    assert_eq!(server.say(&format!("append key1 0 0 1000\r\n{value}\r\n")), "NOT_STORED\r\n");
    assert!(server.say("get key1\r\n").starts_with("VALUE"));
    let before = server.totals();
    assert_eq!(server.say(&format!("set key1 0 0 1000 noreply\r\n{value}\r\n")), "");
    assert_eq!(server.say("get key1\r\n"), "END\r\n");
    assert_eq!(server.totals().since(&before).store_no_memory, 1);
    // The memory of what was taken away serves the next.
    assert_eq!(server.say(&format!("set key1 0 0 1000\r\n{value}\r\n")), "STORED\r\n");
    // Where a deletion would be kept durably, what is refused changes nothing.
    server.pending_writes = Some(DurableReader::DurableExecutor { seen: false });
    for request in ["set key2 0 0 1000", "ms key2 1000"] {
        assert_eq!(server.say(&format!("{request}\r\n{value}\r\n")), REFUSED, "{request}");
        assert!(server.say("get key2\r\n").starts_with("VALUE"), "{request}");
    }
}

/// What was stored without an end is written anew for one. Where that is refused, an item that is
/// to end is better gone than there for ever.
#[test]
fn an_item_that_finds_no_memory_for_its_end_does_not_outlive_it() {
    for (request, answer) in [
        ("touch k 100\r\n", "TOUCHED\r\n"),
        ("gat 100 k\r\n", "VALUE k 0 3\r\nxxx\r\nEND\r\n"),
        ("mg k T100 v\r\n", "VA 3\r\nxxx\r\n"),
        ("md k I T100\r\n", "HD\r\n"),
    ] {
        let server = Server::new(Config::default());
        for is_refused in [false, true] {
            assert_eq!(server.set("k", 3), "STORED\r\n");
            meter::refuse(u32::from(is_refused), 1);
            let answered = server.say(request);
            meter::refuse(0, 1);
            assert_eq!(answered, answer, "refused: {is_refused}");
            let is_there = server.say("mg k\r\n").starts_with("HD");
            assert_eq!(is_there, !is_refused, "{request}");
            assert_eq!(server.store.stats().evictions, u64::from(is_refused), "{request}");
        }
    }
}

/// Ends of memcached's commands are full seconds, so none of them costs the word for milliseconds,
/// also where the item is begun before its end is known.
#[test]
fn no_end_of_memcacheds_commands_takes_the_room_of_milliseconds() {
    for (request, bytes) in [
        ("set k 0 0 3\r\nxxx\r\n", 12 + 1 + 3),
        ("set k 0 100 3\r\nxxx\r\n", 16 + 1 + 3),
        ("ms k 3 C5 I T100\r\nxxx\r\n", 16 + 1 + 3),
        ("ms k 3 C4 I T100\r\nxxx\r\n", 16 + 1 + 3), // older: it keeps the end there is
        ("mg new N30 T60\r\n", 16 + 3 + 16 + 1 + 3),
    ] {
        let server = Server::new(Config::default());
        assert_eq!(server.say("ms k 3 E5 T50\r\nxxx\r\n"), "HD\r\n");
        assert!(server.say(request).starts_with(['S', 'H']), "{request}");
        assert_eq!(server.store.stats().bytes, bytes, "{request}");
    }
}

#[test]
fn a_streamed_value_that_finds_no_memory_is_refused() {
    // One item of the largest size may always be under way; two are too much here.
    let config = Config { unpublished_bytes_max: 1 << 20, ..Config::default() };
    let server = Server::new(config);
    assert_eq!(server.set("k", 3), "STORED\r\n");
    let mut other = server.begin("set other 0 0 900000\r\n").expect("a draft");
    other.draft().write(&[b'x'; 800_000]).expect("room for the first");
    let mut incoming = server.begin("set k 0 0 900000\r\n").expect("a draft");
    assert_eq!(incoming.item_bytes(), 900_001);
    let piece = vec![b'x'; 50_000];
    let landing = incoming.draft();
    assert!(landing.is_large());
    while landing.write(&piece).is_ok() {
        assert!(landing.missing() > 0, "the cap holds before the value is complete");
    }
    let mut out = Vec::new();
    incoming.out_of_memory(&server.context(), &mut out);
    assert_eq!(out, b"SERVER_ERROR out of memory storing object\r\n");
    assert_eq!(server.say("get k\r\n"), "END\r\n", "no stale value stays behind");
    drop(other);
    assert_eq!(server.store.stats().unpublished_bytes, 0);
    assert_eq!(server.totals().store_no_memory, 1);
}

#[test]
fn a_value_whose_client_went_away_was_never_there() {
    let server = Server::new(Config::default());
    assert_eq!(server.set("k", 3), "STORED\r\n");
    for line in ["set k 0 0 500000\r\n", "append k 0 0 500000\r\n", "ms k 500000\r\n"] {
        let mut incoming = server.begin(line).expect("a draft");
        incoming.draft().write(&[b'y'; 100_000]).expect("room");
        drop(incoming);
        assert_eq!(server.say("get k\r\n"), "VALUE k 0 3\r\nxxx\r\nEND\r\n");
        assert_eq!(server.store.stats().unpublished_bytes, 0);
    }
    assert_eq!(server.totals().cmd_set, 1);
}

#[test]
fn a_value_may_be_received_in_place() {
    let server = Server::new(Config::default());
    assert_eq!(server.set("k", 3), "STORED\r\n");
    for (line, value) in [("set k 0 0 300000\r\n", 300_000), ("append k 0 0 200000\r\n", 500_000)] {
        let mut incoming = server.begin(line).expect("a draft");
        let landing = incoming.draft();
        assert!(landing.is_large());
        while landing.missing() > 0 {
            let room = landing.room().expect("memory");
            // Less than there is room for, as sockets do.
            let filled = room.len().div_ceil(2);
            room[..filled].fill(b'x');
            landing.advance(filled);
        }
        let mut out = Vec::new();
        assert!(incoming.finish(&server.context(), &mut out).is_ok());
        assert_eq!(out, b"STORED\r\n");
        let reply = server.say("get k\r\n");
        assert_eq!(reply, format!("VALUE k 0 {value}\r\n{}\r\nEND\r\n", "x".repeat(value)));
    }
}

#[test]
fn a_streamed_value_meets_what_is_there_when_it_ends_not_when_it_began() {
    let server = Server::new(Config::default());
    let value = vec![b'x'; 100_000];
    let mut add = server.begin("add k 0 0 100000\r\n").expect("a draft");
    add.draft().write(&value).expect("room");
    assert_eq!(server.set("k", 3), "STORED\r\n");
    let mut out = Vec::new();
    assert!(add.finish(&server.context(), &mut out).is_ok());
    assert_eq!(out, b"NOT_STORED\r\n");
    let mut append = server.begin("append k 0 0 100000\r\n").expect("a buffer");
    append.draft().write(&value).expect("room");
    assert_eq!(server.say("delete k\r\n"), "DELETED\r\n");
    out.clear();
    assert!(append.finish(&server.context(), &mut out).is_ok());
    assert_eq!(out, b"NOT_STORED\r\n");
}

#[test]
fn what_the_executor_saw_and_memory_has_forgotten_is_asked_again_and_nothing_is_done() {
    let mut server = Server::new(Config::default());
    server.pending_writes = Some(DurableReader::DurableExecutor { seen: true });
    let requests = [
        "add k 0 0 1\r\nx\r\n",
        "replace k 0 0 1\r\nx\r\n",
        "cas k 0 0 1 7\r\nx\r\n",
        "append k 0 0 1\r\nx\r\n",
        "prepend k 0 0 1\r\nx\r\n",
        "ms k 1 ME\r\nx\r\n",
        "ms k 1 MR\r\nx\r\n",
        "ms k 1 C7 I\r\nx\r\n",
        "ms k 1 MA N0\r\nx\r\n",
        "incr k 1\r\n",
        "decr k 1 noreply\r\n",
        "ma k\r\n",
        "ma k N0 J5\r\n",
        "delete k\r\n",
        "delete k noreply\r\n",
        "touch k 100\r\n",
        "get k\r\n",
        "gat 100 k\r\n",
        "mg k v\r\n",
        "mg k v N30\r\n",
        "mg k T30\r\n",
        "md k\r\n",
        "md k q x\r\n",
        "me k\r\n",
    ];
    for request in requests {
        let before = format!("{:?}", server.totals());
        let (outcome, told) = server.run(request.as_bytes());
        assert!(matches!(outcome, Outcome::Kept), "{request:?}");
        assert_eq!(String::from_utf8_lossy(&told), "", "{request:?}");
        assert_eq!(format!("{:?}", server.totals()), before, "{request:?} was counted");
        assert_eq!(server.store.stats().items, 0, "{request:?}");
    }
    for line in ["add k 0 0 100000\r\n", "replace k 0 0 9\r\n", "append k 0 0 100000\r\n"] {
        let mut incoming = server.begin(line).expect("room");
        while incoming.draft().missing() > 0 {
            incoming.draft().write(b"x").expect("room");
        }
        let mut out = Vec::new();
        let again = incoming.finish(&server.context(), &mut out).err().expect("to be tried again");
        assert_eq!(out, b"", "{line:?}");
        // Back in memory, it meets the item.
        server.pending_writes = None;
        assert_eq!(server.set("k", 3), "STORED\r\n");
        assert!(again.finish(&server.context(), &mut out).is_ok());
        let told = if line.starts_with("add") { "NOT_STORED\r\n" } else { "STORED\r\n" };
        assert_eq!(String::from_utf8_lossy(&out), told, "{line:?}");
        assert_eq!(server.say("delete k\r\n"), "DELETED\r\n");
        server.pending_writes = Some(DurableReader::DurableExecutor { seen: true });
    }
    server.pending_writes = Some(DurableReader::DurableExecutor { seen: false });
    assert_eq!(server.say("add k 0 0 1\r\nx\r\n"), "STORED\r\n", "it was not there before");
}
