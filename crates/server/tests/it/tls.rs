//! Encrypted connections through whole workers, without threads, kernel or time: what lies
//! decrypted where no socket tells of it is served, in every design and wherever the bytes are cut;
//! a reply that the socket does not take whole is finished; nobody waits for another's.

use laneway_certs::{self as certs, Authority, ClientEnd, TERMS, VERSIONS};
use laneway_policy::{Design, Form, WorkerId};
use laneway_rig::resp::{Speech, bulk, words};
use laneway_rig::{Plan, STEP_NANOS, domain_of, hit, tail, value};
use laneway_server::access::listener_rules::ListenerRules;
use laneway_server::access::usher::{ByAddress, Guest as Arrival, Usher};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::shared::{ServerShared, Shared};
use laneway_server::worker::Worker;
use laneway_tls::{
    Acceptor, Bounds, EitherStream, EitherTransport, Handshakes, Progress, TlsStream,
};
use laneway_transport::Stream;
use laneway_transport::memory::{Faults, MemoryStream, MemoryTransport, Net};
use std::io::{ErrorKind, IoSlice};
use std::sync::{Arc, LazyLock};

type ServerStream = EitherStream<MemoryStream>;

static WORLD: LazyLock<(Authority, Arc<Acceptor>)> = LazyLock::new(|| {
    let authority = Authority::new("tests");
    let identity = certs::identity(&authority.pair(), &TERMS, None);
    let acceptor = Arc::new(Acceptor::new(identity, TERMS));
    (authority, acceptor)
});

/// A server that encrypts.
struct Rig {
    net: Net,
    handshakes: Handshakes<MemoryTransport>,
    usher: Usher<MemoryStream>,
    shared: Arc<Shared<ServerStream>>,
    workers: Vec<Worker<EitherTransport<MemoryTransport>>>,
    clock: ManualClock,
}

impl Rig {
    fn new(plan: &Plan) -> Rig {
        let (clock, net) = (ManualClock::default(), Net::new(plan.faults));
        let (shared, control) = domain_of::<ServerStream>(plan, &clock, ServerShared::default());
        let mut control = Some(control);
        let workers = (0..plan.workers).map(|number| {
            let transport = EitherTransport::new(net.transport());
            let id = WorkerId(number as u16);
            Worker::new(id, shared.clone(), transport, clock.clone(), control.take())
                .expect("memory transports do not fail")
        });
        let workers = workers.collect();
        let bounds = Bounds { most: 64, nanos: u64::MAX / 2 };
        let mut handshakes = Handshakes::new(net.transport(), WORLD.1.clone(), bounds);
        if plan.connections_per_address > 0 {
            let census = ByAddress::new(shared.connections.clone(), plan.connections_per_address);
            handshakes = handshakes.counted_by(Box::new(census));
        }
        let usher = Usher::new(vec![shared.clone()], usize::MAX, vec![ListenerRules::default()]);
        Rig { net, handshakes, usher, shared, workers, clock }
    }

    fn connect(&self, version: usize) -> Guest {
        let config = WORLD.0.client(VERSIONS[version], None);
        let stream = certs::client(self.net.connect(), &config);
        Guest { stream, is_through: false, out: Vec::new(), got: Vec::new(), ended: false }
    }

    /// Handshakes go first: of connections in memory there is one queue, which workers look at too.
    fn turn(&mut self) {
        for guest in self.arrivals() {
            assert!(guest.enter().is_ok(), "the mailbox is full");
        }
        for worker in &mut self.workers {
            worker.step().expect("memory transports do not fail");
        }
        self.clock.advance(STEP_NANOS);
    }

    /// A step of those who make handshakes; who is through, and has no worker yet.
    fn arrivals(&mut self) -> Vec<Arrival<MemoryStream>> {
        let now = self.clock.nanos();
        let mut finished = Vec::new();
        let refused = self.handshakes.step(&|| now, &mut finished).expect("memory");
        assert!(refused.is_none(), "{refused:?}");
        let seconds = self.clock.unix_seconds(now);
        finished.into_iter().filter_map(|guest| self.usher.welcome(guest, seconds)).collect()
    }

    /// Turn until the guest has got this much; how many turns that took.
    fn until(&mut self, guest: &mut Guest, bytes: usize) -> usize {
        for turns in 0..1_000_000 {
            if guest.got.len() >= bytes {
                return turns;
            }
            assert!(!guest.ended, "closed after {:?}", tail(&guest.got));
            guest.exchange(usize::MAX);
            self.turn();
        }
        panic!("{} of {bytes} bytes, {:?}", guest.got.len(), tail(&guest.got));
    }

    fn ask(&mut self, guest: &mut Guest, request: &[u8], reply: &[u8]) -> usize {
        guest.out.extend_from_slice(request);
        let turns = self.until(guest, reply.len());
        assert!(guest.got == reply, "{:?}", tail(&guest.got));
        guest.got.clear();
        turns
    }
}

/// A client that encrypts.
struct Guest {
    stream: TlsStream<ClientEnd>,
    is_through: bool,
    out: Vec<u8>,
    got: Vec<u8>,
    ended: bool,
}

impl Guest {
    /// Send what there is room for, and receive about this much.
    fn exchange(&mut self, most: usize) {
        if !self.is_through {
            let progress = self.stream.handshake().expect("a good server");
            self.is_through = progress == Progress::Done;
            return;
        }
        match self.stream.write(&[IoSlice::new(&self.out)]) {
            Ok(sent) => drop(self.out.drain(..sent)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let mut room = vec![0; most.min(100_000)];
        while self.got.len() < most {
            match self.stream.read(&mut room) {
                Ok(0) => return self.ended = true,
                Ok(bytes) => self.got.extend_from_slice(&room[..bytes]),
                Err(error) => {
                    let later = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
                    assert!(later.contains(&error.kind()), "{error}");
                    return;
                }
            }
        }
    }
}

/// A request of three keys, of which there is no last one, and its reply.
fn three(speech: Speech, large: &[u8], small: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match speech {
        Speech::Text => (
            b"get large small none\r\n".to_vec(),
            [&hit("large", large)[..], &hit("small", small), b"END\r\n"].concat(),
        ),
        Speech::Resp => (
            words("MGET large small none"),
            [&b"*3\r\n"[..], &bulk(large), &bulk(small), b"$-1\r\n"].concat(),
        ),
    }
}

/// Many small requests lie decrypted behind a large one that moves the connection elsewhere.
fn pipeline(speech: Speech) -> (Vec<u8>, Vec<u8>) {
    let (small, large) = (value(100, 1), value(300_000, 2));
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for number in 0..3 {
        asked.extend(speech.storing("large", &large));
        told.extend_from_slice(speech.stored());
        for _ in 0..50 {
            asked.extend(speech.storing("small", &small));
            asked.extend(speech.get("small"));
            told.extend_from_slice(speech.stored());
            told.extend(speech.hit("small", &small));
        }
        let (three, reply) = three(speech, &large, &small);
        asked.extend(speech.get("large"));
        asked.extend(three);
        told.extend(speech.hit("large", &large));
        told.extend(reply);
        asked.extend(speech.storing("n", number.to_string().as_bytes()));
        told.extend_from_slice(speech.stored());
    }
    (asked, told)
}

fn plans() -> Vec<Plan> {
    let mut plans = vec![
        Plan::of(1, Form::TimeShare),
        Plan::of(3, Form::TimeShare),
        Plan::of(4, Form::Roles),
        Plan::design(Design::Hkh, 2),
        Plan::design(Design::Minos, 3),
        Plan::design(Design::Sho, 3),
    ];
    plans.iter_mut().for_each(|plan| plan.memory_bytes = 32 << 20);
    plans
}

#[test]
fn pipelines_of_small_and_large_are_served_in_order_wherever_they_are_cut() {
    for speech in Speech::BOTH {
        let (asked, told) = pipeline(speech);
        for plan in plans() {
            for (seed, version) in [(1, 0), (2, 1), (3, 1)] {
                let faults = match seed {
                    1 => Faults { pipe_bytes: 1 << 20, ..Faults::NONE },
                    _ => Faults { seed, short: 60, refuse: 60, reset: 0, pipe_bytes: 20_000 },
                };
                let mut rig = Rig::new(&Plan { faults, ..plan.clone() });
                let mut guest = rig.connect(version);
                rig.ask(&mut guest, &asked, &told);
            }
        }
    }
}

#[test]
fn small_requests_are_answered_while_a_large_reply_is_under_way_or_stands_still() {
    let plans = [Plan::of(1, Form::TimeShare), Plan::of(4, Form::Roles)];
    for (plan, speech) in plans.iter().flat_map(|plan| Speech::BOTH.map(|speech| (plan, speech))) {
        let (small, large) = (value(100, 3), value(4 << 20, 4));
        let (asked, told) = (speech.get("small"), speech.hit("small", &small));
        let mut rig = Rig::new(plan);
        let (mut slow, mut quick) = (rig.connect(1), rig.connect(1));
        rig.ask(&mut quick, &speech.storing("small", &small), speech.stored());
        rig.ask(&mut slow, &speech.storing("large", &large), speech.stored());
        let alone = rig.ask(&mut quick, &asked, &told);
        slow.out.extend(speech.get("large"));
        let whole = speech.hit("large", &large);
        let mut answered = 0;
        while slow.got.len() < whole.len() {
            slow.exchange(slow.got.len() + 16_384);
            let turns = rig.ask(&mut quick, &asked, &told);
            assert!(turns <= alone + 2, "{turns} turns, {alone} without the large one, {speech:?}");
            answered += 1;
        }
        assert!(answered > 20, "{answered}, {speech:?}");
        assert!(slow.got == whole, "{speech:?}: {:?}", tail(&slow.got));
        // It asks again, and never reads.
        slow.out.extend(speech.get("large"));
        slow.exchange(0);
        for _ in 0..200 {
            let turns = rig.ask(&mut quick, &asked, &told);
            assert!(turns <= alone + 2, "{turns} turns, {speech:?}");
        }
    }
}

#[test]
fn who_vanishes_or_says_that_it_ends_is_forgotten() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let open = |rig: &Rig| rig.shared.connections.open.load(std::sync::atomic::Ordering::Relaxed);
    for number in 0..6 {
        let mut guest = rig.connect(number % 2);
        rig.ask(&mut guest, b"get none\r\n", b"END\r\n");
        assert_eq!(open(&rig), 1);
        match number / 2 {
            // In the middle of a value.
            0 => {
                guest.out.extend_from_slice(b"set k 0 0 100000\r\nbeginning");
                guest.exchange(0);
                guest.stream.inner().0.reset();
            }
            1 => guest.stream.inner().0.finish(),
            // It says so by TLS, with its last request, and leaves its socket open.
            _ => {
                guest.out.extend_from_slice(b"get none\r\n");
                guest.exchange(0);
                drop(guest);
            }
        }
        (0..50).for_each(|_| rig.turn());
        assert_eq!(open(&rig), 0, "{number}");
    }
}

#[test]
fn what_comes_together_with_the_end_of_a_handshake_and_of_the_connection_is_served() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let mut brief = rig.connect(1);
        while !brief.is_through {
            rig.turn();
            brief.exchange(usize::MAX);
        }
        brief.out.extend_from_slice(b"set k 0 0 1 noreply\r\nx\r\n");
        brief.exchange(0);
        assert!(brief.out.is_empty());
        drop(brief); // it says that it ends, and leaves its socket open
        (0..100).for_each(|_| rig.turn());
        let mut other = rig.connect(1);
        rig.ask(&mut other, b"get k\r\n", &[&hit("k", b"x")[..], b"END\r\n"].concat());
        let open = rig.shared.connections.open.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(open, 1, "{}", plan.what());
    }
}

#[test]
fn one_too_many_is_told_so_by_tls() {
    let mut rig = Rig::new(&Plan { connections_max: 1, ..Plan::of(1, Form::TimeShare) });
    let mut first = rig.connect(1);
    rig.ask(&mut first, b"get none\r\n", b"END\r\n");
    let mut second = rig.connect(1);
    while !second.ended {
        second.exchange(usize::MAX);
        rig.turn();
    }
    assert!(second.got.starts_with(b"ERROR Too many open connections"), "{:?}", tail(&second.got));
    rig.ask(&mut first, b"get none\r\n", b"END\r\n");
}

#[test]
fn who_watches_is_told_encrypted() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let (mut watcher, mut client) = (rig.connect(0), rig.connect(1));
        rig.ask(&mut watcher, b"watch fetchers\r\n", b"OK\r\n");
        for _ in 0..300 {
            rig.ask(&mut client, b"get a b\r\n", b"END\r\n");
        }
        let told = |got: &[u8]| got.windows(14).filter(|part| part == b" type=item_get").count();
        for _ in 0..100_000 {
            if told(&watcher.got) == 600 {
                break;
            }
            watcher.exchange(usize::MAX);
            rig.turn();
        }
        assert_eq!(told(&watcher.got), 600, "{}: {:?}", plan.what(), tail(&watcher.got));
        assert!(watcher.got.starts_with(b"ts=") && watcher.got.ends_with(b"\n"));
    }
}

#[test]
fn who_finds_no_place_at_a_worker_is_given_back_and_turned_away_counts_no_more() {
    let plan = Plan {
        connections_max: 10_000,
        connections_per_address: 10_000,
        ..Plan::of(1, Form::TimeShare)
    };
    let mut rig = Rig::new(&plan);
    let mut entered = 0;
    let full = 'full: loop {
        let mut guest = rig.connect(1);
        loop {
            guest.exchange(usize::MAX);
            match rig.arrivals().pop().map(Arrival::enter) {
                None => {}
                Some(Ok(())) => break,
                Some(Err(back)) => break 'full back,
            }
        }
        entered += 1; // no worker has a step, so that nobody takes it out
    };
    let connections = rig.shared.connections.clone();
    let told = || {
        let open = connections.open.load(std::sync::atomic::Ordering::Relaxed);
        let cards = connections.cards.lock().expect("nobody panics").len();
        (open, cards, connections.per_address.open())
    };
    assert_eq!(told(), (entered + 1, entered + 1, entered + 1));
    full.turn_away();
    assert_eq!(told(), (entered, entered, entered));
}
