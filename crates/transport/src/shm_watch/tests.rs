//! What polls and sleeps cost beside clients that ask for nothing, counted, and that none of these
//! is forgotten.

use super::*;
use crate::FOREVER;
use laneway_rdma::contract::{Posted, Requester as _, Responder as _};
use laneway_rdma::door;
use laneway_rdma::layout::Terms;
use laneway_rdma::shmring::{RingRequester, RingResponder};
use laneway_sync::prim::Ordering::Relaxed;
use laneway_sync::slot::Control;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;

const TERMS: Terms = Terms { window: 4, replies: 8, loans: 1, ..Terms::of(1, 0) };
/// The first data word of doorbells.
const WORDS: u64 = 1 << 40;

struct Rig {
    registry: Arc<Registry>,
    watch: Watch,
    responder: RingResponder,
    epoll: OwnedFd,
    ready: Vec<Ready>,
    /// Clients are told by these that the server is there.
    doors: Vec<UnixStream>,
}

impl Rig {
    fn new(places: usize) -> Rig {
        let registry = Arc::new(Registry::new(TERMS, places));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("there are descriptors");
        let mut watch = Watch::new(registry.clone(), 0, 0);
        watch.watch(0, true, &epoll, WORDS);
        let responder = RingResponder::new(registry.clone(), 0);
        Rig { registry, watch, responder, epoll, ready: Vec::new(), doors: Vec::new() }
    }

    fn client(&mut self) -> RingRequester {
        let joined = door::join(&self.registry).expect("there is memory");
        let (given, _, door) = joined.expect("there is a place");
        self.doors.push(door);
        RingRequester::new(given)
    }

    /// Clients that will never ask for anything: the server has one descriptor of each.
    fn crowd(&mut self, count: usize) {
        for _ in 0..count {
            door::join(&self.registry).expect("there is memory").expect("there is a place");
        }
    }

    fn follow(&mut self) {
        self.watch.follow(&self.epoll, WORDS);
    }

    fn look(&mut self) -> bool {
        self.ready.clear();
        self.watch.look(&mut self.ready);
        self.ready.contains(&Ready::Datagrams(0))
    }

    /// A request, which is found and taken.
    fn serve(&mut self, client: &mut RingRequester) {
        assert_eq!(client.post_request(0, b"x"), Posted::Done);
        assert!(self.look());
        assert_eq!(self.responder.poll_slots(0, 32), 1);
    }

    /// A sleep that ends at once, with what the kernel tells.
    fn sleep(&mut self) {
        self.ready.clear();
        let wait = Wait::AtMost(FOREVER);
        assert_eq!(self.watch.arm(&mut self.ready, wait), wait);
        self.hear();
        self.watch.disarm();
    }

    /// How many doorbells the kernel tells of.
    fn hear(&mut self) -> usize {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; 8];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let heard = epoll::wait(&self.epoll, &mut room[..], Some(&at_once));
        let (events, _) = heard.expect("it may be asked");
        events.iter().for_each(|event| self.watch.told(event.data.u64() - WORDS));
        events.len()
    }

    /// What has been counted since `before`.
    fn costs_since(&self, before: Costs) -> Costs {
        let now = self.watch.costs();
        Costs {
            looks: now.looks - before.looks,
            raised: now.raised - before.raised,
            fences: now.fences - before.fences,
        }
    }
}

/// Each client of a crowd has a descriptor.
fn allow_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 16).min(1 << 16);
    let limits = Rlimit { current: Some(most), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limits).expect("up to the hard limit anybody may");
}

/// What 100 requests of one client cost beside so many that are idle for long: at the watch, and
/// looks of who takes them.
fn costs_beside(idle: usize) -> (Costs, u64) {
    let mut rig = Rig::new(idle + 1);
    rig.crowd(idle);
    let mut client = rig.client();
    rig.follow();
    rig.serve(&mut client);
    assert!(rig.watch.costs().looks as usize > idle, "at first all are looked at");
    (0..3 * LOOKS_QUIET).for_each(|_| rig.serve(&mut client));
    let (before, looks) = (rig.watch.costs(), rig.responder.looks());
    (0..100).for_each(|_| rig.serve(&mut client));
    (rig.costs_since(before), rig.responder.looks() - looks)
}

#[test]
fn a_request_costs_the_same_beside_a_thousand_idle_clients_as_alone() {
    allow_descriptors();
    let (alone, looks) = costs_beside(0);
    assert_eq!((alone.looks, alone.raised, alone.fences), (100, 0, 0));
    assert_eq!(costs_beside(1000), (alone, looks));
}

#[test]
fn a_sleep_raises_the_bells_of_who_asked_lately_behind_one_fence() {
    let mut rig = Rig::new(101);
    rig.crowd(100);
    let mut client = rig.client();
    rig.follow();
    let before = rig.watch.costs();
    rig.sleep();
    let first = rig.costs_since(before);
    assert_eq!((first.raised, first.fences), (101, 1), "of all at first");
    for _ in 0..LOOKS_QUIET_ASLEEP {
        rig.serve(&mut client);
        rig.sleep();
    }
    let before = rig.watch.costs();
    rig.serve(&mut client);
    rig.sleep();
    assert_eq!(rig.costs_since(before), Costs { looks: 2, raised: 1, fences: 1 });
}

#[test]
fn who_was_left_be_rings_once_and_is_looked_at_again() {
    let mut rig = Rig::new(2);
    let (mut quiet, mut busy) = (rig.client(), rig.client());
    rig.follow();
    (0..=LOOKS_QUIET).for_each(|_| rig.serve(&mut busy));
    assert!(!rig.registry.active(0, 0).has(0) && rig.registry.active(0, 0).has(1));
    assert_eq!(quiet.post_request(0, b"again"), Posted::Done);
    quiet.pump().expect("the doorbell is there");
    assert_eq!(quiet.verbs().rings, 1);
    assert!(!rig.look(), "the worker was not told yet");
    assert_eq!(rig.hear(), 1);
    assert!(rig.look());
    assert_eq!(rig.responder.poll_slots(0, 32), 1);
    // From now on it is looked at as before.
    for _ in 0..10 {
        rig.serve(&mut quiet);
        quiet.pump().expect("the doorbell is there");
    }
    assert_eq!((quiet.verbs().rings, rig.hear()), (1, 0));
}

#[test]
fn who_slept_over_a_request_is_told_of_it() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    rig.follow();
    (0..LOOKS_QUIET_ASLEEP).for_each(|_| rig.sleep());
    assert!(!rig.registry.active(0, 0).has(0), "left be");
    assert_eq!(client.post_request(0, b"x"), Posted::Done);
    client.pump().expect("the doorbell is there");
    rig.sleep();
    assert!(rig.look());
    // Where it was seen before the sleep there is none.
    let wait = Wait::AtMost(FOREVER);
    assert_eq!(rig.watch.arm(&mut rig.ready, wait), Wait::No);
}

#[test]
fn who_writes_over_its_own_bell_keeps_itself_waiting_and_nobody_else() {
    let mut rig = Rig::new(2);
    let joined = door::join(&rig.registry).expect("there is memory");
    let (given, _, _door) = joined.expect("there is a place");
    let mut busy = rig.client();
    rig.follow();
    (0..=LOOKS_QUIET).for_each(|_| rig.serve(&mut busy));
    let words = given.map.words();
    words[TERMS.bell(0)].store(0, Relaxed);
    let control = Control { sequence: 1, note: 0, bytes: 4 };
    slot::write(&words[TERMS.request(0, 1)], control, [&b"late"[..]]);
    assert!(!rig.look() && rig.hear() == 0, "it has told nobody");
    rig.serve(&mut busy);
    rustix::io::write(&given.doorbells[0], &1u64.to_ne_bytes()).expect("it is its own");
    assert_eq!(rig.hear(), 1);
    assert!(rig.look());
    // Whoever rings for nothing is looked at for nothing, and left be again.
    assert_eq!(rig.responder.poll_slots(0, 32), 1);
    (0..LOOKS_QUIET).for_each(|_| rig.serve(&mut busy));
    assert!(!rig.registry.active(0, 0).has(0));
}

#[test]
fn whom_the_kernel_does_not_tell_of_is_never_left_be() {
    let mut rig = Rig::new(1);
    // The kernel adds nothing to what is no epoll set.
    rig.epoll = eventfd(0, EventfdFlags::CLOEXEC).expect("there are descriptors");
    let mut client = rig.client();
    rig.follow();
    assert_eq!((0..2 * LOOKS_QUIET).filter(|_| rig.look()).count(), 0);
    let wait = Wait::AtMost(FOREVER);
    assert_eq!(rig.watch.arm(&mut rig.ready, wait), wait);
    assert_eq!(client.post_request(0, b"x"), Posted::Done);
    assert!(rig.look());
}

#[test]
fn a_lane_that_is_watched_no_more_is_polled_as_if_nobody_had_been_left_be() {
    let mut rig = Rig::new(2);
    let (mut quiet, mut busy) = (rig.client(), rig.client());
    rig.follow();
    (0..=LOOKS_QUIET).for_each(|_| rig.serve(&mut busy));
    assert_eq!(quiet.post_request(0, b"x"), Posted::Done);
    assert_eq!(rig.responder.poll_slots(0, 32), 0, "it did not ring");
    rig.watch.watch(0, false, &rig.epoll, WORDS);
    assert_eq!(rig.responder.poll_slots(0, 32), 1);
    rig.watch.watch(0, true, &rig.epoll, WORDS);
    rig.serve(&mut quiet);
}

#[test]
fn who_comes_to_a_place_of_one_that_was_left_be_is_looked_at() {
    let mut rig = Rig::new(2);
    let (_quiet, mut busy) = (rig.client(), rig.client());
    rig.follow();
    (0..=LOOKS_QUIET).for_each(|_| rig.serve(&mut busy));
    let gone = rig.registry.clients()[0].clone().expect("it is there").peer();
    rig.registry.leave(gone);
    let mut new = rig.client();
    // Its predecessor is left be only now.
    rig.registry.active(0, 0).remove(0);
    rig.follow();
    rig.serve(&mut new);
}
