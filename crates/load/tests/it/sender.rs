//! The sender against a scripted server: what it sends, what it notices, what it refuses to
//! believe.

use crate::scripted::{Fault, Shared, serve, serve_unix};
use laneway_load::arrivals::{Arrival, changing};
use laneway_load::connection::{Context, Target, WRONG_BYTES, WRONG_KEY, WRONG_LENGTH};
use laneway_load::dialect::Dialect;
use laneway_load::prefill::prefill;
use laneway_load::random::Random;
use laneway_load::recorder::Recorder;
use laneway_load::sender::paced::{Own, Pace, Paced};
use laneway_load::sender::{Clock, Connections, Edge};
use laneway_load::values::Values;
use laneway_load::verdict::{LATE_REFUSE, judge};
use laneway_load::workload::{Ask, Draws, Key, Operation, Sizes, Workload, WorkloadOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No test waits for it; it only ends one that would hang.
const DRAIN: Duration = Duration::from_secs(60);
const HOUR_NS: u64 = 3_600_000_000_000;

struct Bench {
    workload: Workload,
    values: Values,
    dialect: Dialect,
}

impl Bench {
    fn new(options: WorkloadOptions, dialect: Dialect) -> Self {
        let values = Values::new(options.seed);
        Bench { workload: Workload::new(options).unwrap(), values, dialect }
    }

    /// 300 keys, 30 of them large and up to 300 KB, every other request large.
    fn mixed(dialect: Dialect) -> Self {
        let options = WorkloadOptions {
            keys: 300,
            keys_large: 30,
            large_percent: 50.0,
            sizes: Sizes::Etc { large_bytes_max: 300_000 },
            get_share: 0.5,
            ..WorkloadOptions::default()
        };
        Bench::new(options, dialect)
    }

    fn context(&self) -> Context<'_> {
        Context { workload: &self.workload, values: &self.values, dialect: self.dialect }
    }

    /// Sends this at once, on so many connections.
    fn send(&self, target: &Target, connections: usize, arrivals: &[Arrival]) -> Recorder {
        self.try_send(target, connections, arrivals, Duration::ZERO).unwrap()
    }

    /// The same; every request is as late as `late` says.
    fn try_send(
        &self,
        target: &Target,
        connections: usize,
        arrivals: &[Arrival],
        late: Duration,
    ) -> std::io::Result<Recorder> {
        let mut lines = Connections::open(self.context(), target, connections)?;
        let mut recorder = Recorder::new(0..arrivals.last().map_or(1, |last| last.due_ns + 1));
        let clock = Clock::starting(Instant::now() - late);
        let mut edges = Vec::new();
        let open = open_loop(arrivals, DRAIN, Own::Nobody);
        open.run(&mut lines, clock, &mut recorder, |edge| edges.push(edge))?;
        assert_eq!(edges, [Edge::Open, Edge::Close]);
        Ok(recorder)
    }

    fn fill(&self, target: &Target) {
        let filled = prefill(self.context(), target, 4).unwrap();
        assert_eq!(filled.items, self.workload.keys());
        assert_eq!(filled.items_held, Some(filled.items));
    }
}

fn open_loop(arrivals: &[Arrival], drain: Duration, own: Own) -> Paced<'_> {
    Paced { pace: Pace::Open(arrivals), drain, versions: Random::new(8), own }
}

fn poisson(workload: &Workload, rate_per_s: f64, duration_ns: u64) -> Vec<Arrival> {
    changing(std::slice::from_ref(workload), rate_per_s, 0..duration_ns, 0)
}

fn tcp(address: String) -> Target {
    Target::Tcp(address)
}

fn all_due_at_once(asks: impl IntoIterator<Item = (u32, Operation)>) -> Vec<Arrival> {
    let arrival = |(key, operation)| Arrival { due_ns: 0, ask: Ask::one(Key(key), operation) };
    asks.into_iter().map(arrival).collect()
}

fn all_of(keys: std::ops::Range<u32>, operation: Operation) -> Vec<Arrival> {
    all_due_at_once(keys.map(|key| (key, operation)))
}

/// A scripted server that misbehaves so, with every key of `bench`.
fn filled(bench: &Bench, fault: Fault) -> (Target, Arc<Shared>) {
    let (address, shared) = serve(fault);
    let target = tcp(address);
    bench.fill(&target);
    (target, shared)
}

#[test]
fn everything_sent_comes_back_right_in_either_dialect() {
    for dialect in [Dialect::Text, Dialect::Resp] {
        let bench = Bench::mixed(dialect);
        let (target, shared) = filled(&bench, Fault::None);
        assert_eq!(shared.state.lock().unwrap().values.len(), 300);
        let arrivals = poisson(&bench.workload, 2_000.0, 500_000_000);
        let recorder = bench.send(&target, 8, &arrivals);
        let counts = &recorder.counts;
        assert_eq!(counts.due, arrivals.len() as u64);
        assert_eq!(counts.hits + counts.stored, counts.due);
        assert_eq!(recorder.latency_ns(None, None).len(), counts.due);
        let large = arrivals.iter().filter(|arrival| arrival.ask.key.0 >= 270).count();
        assert_eq!(counts.large, large as u64);
        assert!(judge(counts, Some(LATE_REFUSE), None).failed.is_none());
    }
}

fn several_keys(dialect: Dialect) -> Bench {
    let options = WorkloadOptions {
        keys: 300,
        keys_per_get: 7,
        sizes: Sizes::Fixed { value_bytes: 33 },
        get_share: 1.0,
        ..WorkloadOptions::default()
    };
    Bench::new(options, dialect)
}

#[test]
fn a_get_of_several_keys_counts_and_checks_each() {
    for (dialect, fault) in [
        (Dialect::Text, Fault::None),
        (Dialect::Resp, Fault::None),
        (Dialect::Text, Fault::Trickles),
    ] {
        let bench = several_keys(dialect);
        let (target, shared) = filled(&bench, fault);
        // Every other item goes away: some of the keys of a request are missing, or all.
        let mut number = 0;
        shared.state.lock().unwrap().values.retain(|_, _| {
            number += 1;
            number % 2 == 0
        });
        let arrivals = poisson(&bench.workload, 500.0, 400_000_000);
        let recorder = bench.send(&target, 3, &arrivals);
        let counts = &recorder.counts;
        assert_eq!((counts.corrupt, counts.unanswered), (0, 0), "{:?}", recorder.first_fault);
        assert_eq!(counts.hits + counts.misses, 7 * arrivals.len() as u64);
        assert!(counts.hits > 0 && counts.misses > 0);
        assert_eq!(counts.value_bytes, 33 * counts.hits);
        assert_eq!(recorder.latency_ns(None, None).len(), arrivals.len() as u64);
    }
}

#[test]
fn what_is_deleted_is_gone_and_deleting_nothing_is_no_fault() {
    for dialect in [Dialect::Text, Dialect::Resp] {
        let bench = Bench::mixed(dialect);
        let (target, shared) = filled(&bench, Fault::None);
        use Operation::{Delete, Get};
        let asks = [(0, Delete), (0, Get), (0, Delete), (1, Get)];
        let recorder = bench.send(&target, 1, &all_due_at_once(asks));
        let counts = &recorder.counts;
        assert_eq!((counts.deleted, counts.misses, counts.hits), (2, 1, 1));
        assert_eq!(shared.state.lock().unwrap().values.len(), 299);
    }
}

#[test]
fn replies_in_single_bytes_are_understood() {
    let bench = Bench::new(
        WorkloadOptions { keys: 100, keys_large: 0, large_percent: 0.0, ..Default::default() },
        Dialect::Text,
    );
    let (target, _) = filled(&bench, Fault::Trickles);
    let recorder = bench.send(&target, 1, &all_of(0..100, Operation::Get));
    assert_eq!(recorder.counts.hits, 100);
}

#[test]
fn a_unix_socket_serves_as_well() {
    let path = std::env::temp_dir().join(format!("laneway-load-{}.sock", std::process::id()));
    let _shared = serve_unix(&path);
    let bench = Bench::mixed(Dialect::Text);
    let target = Target::Unix(path.clone());
    bench.fill(&target);
    let recorder = bench.send(&target, 2, &all_of(0..300, Operation::Get));
    assert_eq!(recorder.counts.hits, 300);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn wrong_values_fail_the_run() {
    // All of one size, so that another key's value differs by its bytes alone.
    let of_size = |value_bytes| {
        let sizes = Sizes::Fixed { value_bytes };
        let options = WorkloadOptions { keys: 10, sizes, ..WorkloadOptions::default() };
        (Bench::new(options, Dialect::Text), all_of(0..10, Operation::Get))
    };
    let of_several = |dialect| {
        let bench = several_keys(dialect);
        let arrivals = poisson(&bench.workload, 500.0, 100_000_000);
        (bench, arrivals)
    };
    for (fault, words) in [
        (Fault::FlipsLastByte, WRONG_BYTES),
        (Fault::CutsLastByte, WRONG_LENGTH),
        (Fault::OtherKey, WRONG_BYTES),
    ] {
        let single = [10, 1_000, 100_000].map(of_size);
        for (bench, asks) in
            single.into_iter().chain([Dialect::Text, Dialect::Resp].map(of_several))
        {
            let (target, _) = filled(&bench, fault);
            let recorder = bench.send(&target, 2, &asks);
            assert_eq!(recorder.counts.corrupt, asks.len() as u64, "{fault:?}");
            let verdict =
                judge(&recorder.counts, Some(LATE_REFUSE), recorder.first_fault.as_deref());
            assert!(verdict.failed.unwrap().contains(words), "{fault:?}");
        }
    }
}

#[test]
fn a_wrongly_named_key_is_noticed() {
    // The value is the right one: only the name on the line is another's.
    let bench = Bench::mixed(Dialect::Text);
    let name = bench.workload.key_name(Key(1));
    let mut value = Vec::new();
    let bytes = bench.workload.value_bytes(Key(0));
    let of = laneway_load::values::Value { key: Key(0), bytes, version: 1 };
    bench.values.append(of, &mut value);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = tcp(listener.local_addr().unwrap().to_string());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; b"get 01234567\r\n".len()]).unwrap();
        let head = format!("VALUE {} 0 {bytes}\r\n", String::from_utf8_lossy(&name));
        stream.write_all(&[head.as_bytes(), &value, b"\r\nEND\r\n"].concat()).unwrap();
        // Until the client leaves.
        let _ = stream.read(&mut [0]);
    });
    let asks = all_due_at_once([(0, Operation::Get)]);
    let recorder = bench.send(&target, 1, &asks);
    assert!(recorder.first_fault.unwrap().contains(WRONG_KEY));
}

#[test]
fn refusals_are_counted_and_the_connection_goes_on() {
    let bench = Bench::mixed(Dialect::Text);
    let (address, _) = serve(Fault::RefusesFrom(1_500));
    let target = tcp(address);
    let asks = all_of(260..280, Operation::Set);
    let recorder = bench.send(&target, 1, &asks);
    assert_eq!((recorder.counts.stored, recorder.counts.refused), (10, 10));
    let message = prefill(bench.context(), &target, 1).unwrap_err();
    assert!(message.contains("too large") && message.contains("-I"), "{message}");
}

#[test]
fn a_server_that_leaves_or_babbles_ends_the_run_with_words() {
    let bench = Bench::mixed(Dialect::Text);
    for (fault, words) in [(Fault::Closes, "closed a connection"), (Fault::Babbles, "HELLO THERE")]
    {
        let (address, _) = serve(fault);
        let asks = all_due_at_once([(0, Operation::Get)]);
        let error = bench.try_send(&tcp(address), 1, &asks, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn an_open_loop_sends_on_while_nothing_is_answered_and_shares_what_no_idle_connection_takes() {
    let bench = Bench::mixed(Dialect::Text);
    // The server answers nothing before so many have come, and serves a connection in order: a
    // client that waited would hang, and so would one that put two of the first on one connection.
    for (connections, requests) in [(200, 200), (4, 12)] {
        let (address, _) = serve(Fault::HoldsUntil(connections));
        let asks = all_of(0..requests, Operation::Get);
        let counts = bench.send(&tcp(address), connections, &asks).counts;
        assert_eq!((counts.misses, counts.hits), (u64::from(requests), 0));
        // Each of 4 holds its first request, so the 8 others find none idle.
        assert_eq!(counts.no_idle_connection > 0, requests as usize > connections);
    }
}

#[test]
fn a_large_set_does_not_hold_back_other_connections() {
    // The server does not read the body before it answered a GET, and the body is larger than
    // what the kernel buffers: a client that blocked in the SET would never send the GET.
    const LARGE: u64 = 32 << 20;
    let sizes = Sizes::Fixed { value_bytes: LARGE };
    let options = WorkloadOptions { keys: 2, sizes, ..WorkloadOptions::default() };
    let bench = Bench::new(options, Dialect::Text);
    let (address, shared) = serve(Fault::ReadsBodyAfterGet(LARGE as usize));
    let asks = all_due_at_once([(0, Operation::Set), (1, Operation::Get)]);
    let recorder = bench.send(&tcp(address), 2, &asks);
    assert_eq!((recorder.counts.stored, recorder.counts.misses), (1, 1));
    let state = shared.state.lock().unwrap();
    let name = bench.workload.key_name(Key(0));
    assert_eq!(state.values[&name[..]].len() as u64, LARGE);
}

#[test]
fn requests_behind_a_large_set_keep_their_order() {
    let bench = Bench::mixed(Dialect::Text);
    let (address, _) = serve(Fault::None);
    // Key 299 is large. On one connection: write, read, write, read.
    let asks = [Operation::Set, Operation::Get, Operation::Set, Operation::Get];
    let asks = all_due_at_once(asks.map(|operation| (299, operation)));
    let recorder = bench.send(&tcp(address), 1, &asks);
    assert_eq!((recorder.counts.stored, recorder.counts.hits), (2, 2));
}

#[test]
fn a_generator_that_fell_behind_prints_no_latency() {
    let bench = Bench::mixed(Dialect::Text);
    let (target, _) = filled(&bench, Fault::None);
    // Everything was due a second ago.
    let asks = all_of(0..100, Operation::Get);
    let recorder = bench.try_send(&target, 4, &asks, Duration::from_secs(1)).unwrap();
    assert_eq!(recorder.counts.late, 100);
    // And the time since then is in the latency.
    assert!(recorder.latency_ns(None, None).min() > 900_000_000);
    let verdict = judge(&recorder.counts, Some(LATE_REFUSE), None);
    assert!(verdict.refused.unwrap().contains("fell behind"));
}

/// What is recorded of these within a millisecond, where no GET is answered, and what is then in
/// flight on each of five connections.
fn unanswered(arrivals: &[Arrival], own: Own) -> (Recorder, Vec<usize>) {
    let bench = Bench::mixed(Dialect::Text);
    let (address, _) = serve(Fault::HoldsUntil(usize::MAX));
    let mut lines = Connections::open(bench.context(), &tcp(address), 5).unwrap();
    let mut recorder = Recorder::new(0..1_000_000);
    let open = open_loop(arrivals, Duration::ZERO, own);
    open.run(&mut lines, Clock::starting(Instant::now()), &mut recorder, |_| {}).unwrap();
    (recorder, (0..5).map(|index| lines.in_flight_on(index)).collect())
}

#[test]
fn what_is_not_sent_and_not_answered_is_counted() {
    let mut arrivals = all_due_at_once([(0, Operation::Get), (1, Operation::Get)]);
    // Due after the end of the window and of the drain: never sent.
    arrivals.push(Arrival { due_ns: HOUR_NS, ..arrivals[0] });
    let (recorder, _) = unanswered(&arrivals, Own::Nobody);
    assert_eq!((recorder.counts.due, recorder.counts.unanswered), (2, 2));
    assert!(judge(&recorder.counts, Some(LATE_REFUSE), None).failed.unwrap().contains("no reply"));
}

#[test]
fn requests_with_connections_of_their_own_leave_the_others_to_the_rest() {
    // Keys from 270 on are large. Whoever finds none idle takes a busy one, if not another kind's.
    let keys = [270, 0, 271, 1, 272, 2, 273, 3, 274, 4];
    let arrivals = all_due_at_once(keys.map(|key| (key, Operation::Get)));
    let (recorder, in_flight) = unanswered(&arrivals, Own::Large(2));
    // Five small ones on three connections, five large ones on two.
    assert_eq!(in_flight[..3].iter().sum::<usize>(), 5);
    assert_eq!(in_flight[3..].iter().sum::<usize>(), 5);
    assert_eq!(recorder.counts.no_idle_connection, 2 + 3);
    let gets = [1, 270, 2, 271, 3, 272].map(|key| (key, Operation::Get));
    let arrivals = all_due_at_once([(0, Operation::Set)].into_iter().chain(gets));
    let (recorder, in_flight) = unanswered(&arrivals, Own::Sets(2));
    // Six GETs, small and large, on three connections; the SET, which may have ended, on a fourth.
    assert_eq!(in_flight[..3], [2; 3]);
    assert!(in_flight[3..].iter().sum::<usize>() <= 1, "{in_flight:?}");
    assert_eq!(recorder.counts.no_idle_connection, 3);
}

fn small_gets() -> Bench {
    let sizes = Sizes::Fixed { value_bytes: 10 };
    let gets = WorkloadOptions { keys: 10, sizes, get_share: 1.0, ..WorkloadOptions::default() };
    Bench::new(gets, Dialect::Text)
}

fn closed_loop(depth: usize) -> Paced<'static> {
    let pace = Pace::Closed { depth, asks: Random::new(1), draws: Draws::default() };
    Paced { pace, drain: DRAIN, versions: Random::new(2), own: Own::Nobody }
}

#[test]
fn a_closed_loop_keeps_its_depth() {
    // The server reads and answers nothing before 3 × 5 GETs have come: they do come without a
    // reply, and no more.
    let bench = small_gets();
    let (address, shared) = serve(Fault::ReadsAhead { each: 5, connections: 3 });
    let mut lines = Connections::open(bench.context(), &tcp(address), 3).unwrap();
    let mut recorder = Recorder::new(0..50_000_000);
    let closed = closed_loop(5);
    closed.run(&mut lines, Clock::starting(Instant::now()), &mut recorder, |_| {}).unwrap();
    let counts = &recorder.counts;
    let state = shared.state.lock().unwrap();
    assert_eq!(state.ahead, 15);
    assert!(counts.ended >= 15);
    assert_eq!(counts.ended, state.gets as u64);
    assert_eq!(lines.in_flight(), 0);
}

#[test]
fn a_closed_loop_asks_nothing_before_the_start() {
    let bench = small_gets();
    let (address, _) = serve(Fault::None);
    bench.fill(&tcp(address.clone()));
    let mut lines = Connections::open(bench.context(), &tcp(address), 2).unwrap();
    let mut recorder = Recorder::new(0..50_000_000);
    let closed = closed_loop(1);
    let clock = Clock::starting(Instant::now() + Duration::from_millis(200));
    closed.run(&mut lines, clock, &mut recorder, |_| {}).unwrap();
    assert!(recorder.counts.ended >= 2);
    // Before the start the clock stands, so that what was asked and answered took no time.
    assert_eq!(recorder.latency_ns(None, None).count_at(1), 0);
}
