//! Where the durable executor meets what it must not know: stops, flushes that wait, long requests,
//! counts, walks, watched keys.

use laneway_rig as rig;

use laneway_policy::{Form, ItemBytes};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::durable::shared::Durable;
use laneway_server::jobs::handoff::{DatagramOrigin, Job, Origin};
use laneway_tier::ItemMeta;
use laneway_tier::disk::sim::Faults;
use laneway_transport::memory::Client;
use laneway_transport::memory_datagram::DatagramFaults;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::peer::Peer;
use rig::{Plan, Rig, value};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn machine() -> Machine {
    Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20)
}

fn started(machine: &Machine) -> (Rig, Kept) {
    let datagrams = Some(DatagramFaults::NONE);
    started_as(machine, Plan { datagrams, ..Plan::of(2, Form::TimeShare) })
}

/// The same of another plan.
fn started_as(machine: &Machine, plan: Plan) -> (Rig, Kept) {
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    (Rig::new(&Plan { kept: Some(kept.clone()), ..plan }), kept)
}

fn ask(rig: &mut Rig, client: &Client, request: &str, reply: &str) {
    client.send(request.as_bytes());
    told(rig, client, reply);
}

fn told(rig: &mut Rig, client: &Client, reply: &str) {
    let got = rig.until(client, Vec::new(), |got| got.len() >= reply.len());
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

fn nothing_is_told(rig: &mut Rig, client: &Client) {
    rig.turns(50);
    assert_eq!(String::from_utf8_lossy(&client.receive(usize::MAX)), "");
}

fn durable(rig: &Rig) -> Arc<Durable> {
    rig.shared.durable.get().expect("it keeps items").clone()
}

/// A step of the durable executor alone: the workers have left.
fn step_alone(rig: &Rig) -> bool {
    let now = rig.clock.nanos();
    let mut executor = rig.executor.as_ref().expect("it keeps items").lock();
    executor.step(now, rig.clock.moment(now));
    executor.is_idle()
}

fn job(bytes: &[u8], item_bytes: u64) -> Job {
    let peer = "127.0.0.1:9".parse().expect("an address");
    let origin = Origin::Datagram(DatagramOrigin { queue: 0, peer, request_id: 1 });
    Job::request(bytes.to_vec(), ItemBytes(item_bytes), 0, origin)
}

#[test]
fn a_multiget_by_datagram_that_no_frames_can_carry_is_told_so_wherever_its_items_are() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "k", &value(16_000, 1));
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine);
    let mut peer = Peer::new(&rig);
    let line = [&b"get"[..], &b" k".repeat(20_000), b"\r\n"].concat();
    let got = peer.ask(&mut rig, 0, 1, &line);
    assert_eq!(String::from_utf8_lossy(&got), "SERVER_ERROR reply too long for UDP\r\n");
    // And others had their turn in between.
    let steps = durable(&rig).counts.requests.load(Relaxed);
    assert!(1000 < steps, "{steps} keys were counted in steps");
}

#[test]
fn a_job_longer_than_all_that_may_wait_is_taken_beside_others() {
    let (rig, _kept) = started(&machine());
    let durable = durable(&rig);
    for _ in 0..3 {
        assert!(durable.push(job(b"get long\r\n", 1 << 30)).is_ok());
        assert!(durable.push(job(b"get short\r\n", 100)).is_ok());
    }
    assert!(durable.held_bytes() < 64 << 20);
    while !step_alone(&rig) {}
    assert_eq!(durable.held_bytes(), 0, "what was counted is taken off again");
}

#[test]
fn a_stop_ends_although_nobody_takes_replies_any_more() {
    let (rig, _kept) = started(&machine());
    let durable = durable(&rig);
    for _ in 0..3000 {
        assert!(durable.push(job(b"get none\r\n", 0)).is_ok());
    }
    for _ in 0..200 {
        step_alone(&rig);
    }
    assert!(!step_alone(&rig), "replies wait for workers");
    durable.stop();
    assert!((0..200).any(|_| step_alone(&rig)), "it waits for workers that have left");
    assert_eq!(durable.held_bytes(), 0);
}

#[test]
fn a_stop_does_not_wait_until_everything_that_has_expired_is_dropped() {
    let (mut rig, kept) = started(&machine());
    let meta = |number: u32| ItemMeta {
        expires_at_seconds: ManualClock::UNIX_START + 5 + number % 2,
        ..ItemMeta::default()
    };
    for number in 0..1000 {
        kept.tier.put(format!("key-{number}").as_bytes(), b"v", meta(number)).expect("room");
    }
    rig.turns(5);
    durable(&rig).stop();
    rig.clock.advance(20 * SECOND);
    for _ in 0..50 {
        step_alone(&rig);
    }
    assert_eq!(durable(&rig).counts.expired.load(Relaxed), 0);
}

#[test]
fn a_deletion_that_nobody_asked_for_is_no_write_that_was_refused() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    for number in 0..200 {
        ask(&mut rig, &client, &format!("set {number:0>240} 0 10 1\r\nv\r\n"), "STORED\r\n");
    }
    // The deletions take more than a segment: one finds no room at once.
    let durable = durable(&rig);
    let before = durable.counts.set_aside.load(Relaxed);
    kept.gate.commits_wait.store(true, Relaxed);
    kept.gate.room_waits.store(true, Relaxed);
    rig.clock.advance(20 * SECOND);
    rig.turns(50);
    assert!(before < durable.counts.set_aside.load(Relaxed), "all of them found room");
    machine.power.restore(0); // every write fails from now on
    kept.gate.room_waits.store(false, Relaxed);
    rig.turns(50);
    assert!(kept.tier.refuses_writes().is_some(), "it was not tried");
    assert_eq!(durable.counts.refused.told().total(), 0);
}

#[test]
fn of_deletions_that_nobody_asked_for_one_waits_for_room_however_often_the_search_goes_on() {
    const KEYS: u64 = 200;
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    let key = |number: u64| format!("{number:0>240}");
    for number in 0..KEYS {
        ask(&mut rig, &client, &format!("set {} 0 10 1\r\nv\r\n", key(number)), "STORED\r\n");
    }
    let durable = durable(&rig);
    let before = durable.counts.set_aside.load(Relaxed);
    let mut pass = |seconds: u64, waits: bool| {
        kept.gate.commits_wait.store(waits, Relaxed);
        kept.gate.room_waits.store(waits, Relaxed);
        for _ in 0..seconds {
            rig.clock.advance(SECOND);
            rig.turns(20);
        }
    };
    pass(60, true);
    assert_eq!(durable.counts.set_aside.load(Relaxed), before + 1);
    pass(60, false);
    let is_gone = |number: u64| kept.tier.look(key(number).as_bytes()).is_none();
    assert!((0..KEYS).all(is_gone), "what was found and left is found again");
}

#[test]
fn a_flush_whose_second_comes_while_its_schedule_is_written_spares_nothing_and_comes_once() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "old", b"o");
    let at = rig.clock.unix_seconds(rig.clock.nanos()) + 1;
    kept.gate.room_waits.store(true, Relaxed);
    client.send(format!("flush_all {at}\r\n").as_bytes());
    nothing_is_told(&mut rig, &client);
    rig.clock.advance(2 * SECOND);
    nothing_is_told(&mut rig, &client);
    kept.gate.room_waits.store(false, Relaxed);
    told(&mut rig, &client, "OK\r\n");
    rig.turns(20);
    ask(&mut rig, &client, "get old\r\n", "END\r\n");
    rig.set(&client, "new", b"n");
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine);
    rig.clock.advance(100 * SECOND);
    rig.turns(20);
    let client = rig.net.connect();
    ask(&mut rig, &client, "get old new\r\n", "VALUE new 0 1\r\nn\r\nEND\r\n");
}

#[test]
fn a_flush_that_is_due_and_cannot_be_carried_out_counts_as_no_write_that_was_refused() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "k", b"v");
    ask(&mut rig, &client, "flush_all 10\r\n", "OK\r\n");
    machine.power.restore(0); // every write fails from now on
    for _ in 0..5 {
        rig.clock.advance(4 * SECOND);
        rig.turns(20);
    }
    assert!(kept.tier.refuses_writes().is_some(), "it was not tried");
    assert_eq!(durable(&rig).counts.refused.told().total(), 0);
    client.send(b"flush_all\r\n");
    let told = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert!(told.starts_with(b"SERVER_ERROR "), "{}", String::from_utf8_lossy(&told));
    assert_eq!(durable(&rig).counts.refused.told().failed, 1, "a client asked for that one");
}

#[test]
fn a_read_that_a_device_refuses_counts_as_one_of_what_is_damaged_and_is_tried_another_time() {
    let machine = machine();
    let (mut rig, _kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "k", &value(3000, 1)); // it is long enough for the SSD
    assert!(rig.shared.store.flush_all(), "memory forgets it");
    machine.ssd.set_faults(Faults { read_error_one_in: 1, ..Faults::default() });
    client.send(b"get k\r\n");
    let refused = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    let words = String::from_utf8_lossy(&refused);
    assert!(words.starts_with("SERVER_ERROR ") && !words.contains("lost"), "{words}");
    assert_eq!(durable(&rig).counts.lost.load(Relaxed), 1);
    machine.ssd.set_faults(Faults::default());
    client.send(b"get k\r\n");
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(got, [&b"VALUE k 0 3000\r\n"[..], &value(3000, 1), b"\r\nEND\r\n"].concat());
}

#[test]
fn a_flush_to_come_whose_record_is_damaged_counts_as_lost_and_takes_nothing() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "old", b"o");
    let at = rig.clock.unix_seconds(rig.clock.nanos()) + 100;
    ask(&mut rig, &client, &format!("flush_all {at}\r\n"), "OK\r\n");
    rig.set(&client, "one", b"1");
    rig.set(&client, "another", b"a"); // vouches for the groups before it
    drop((rig, kept));
    let mut log = machine.log.image();
    let wanted = [&[0; 256][..], &at.to_le_bytes()].concat();
    let found = log.windows(wanted.len()).position(|bytes| bytes == wanted);
    log[found.expect("it is in the log") + wanted.len() - 1] ^= 1;
    let machine = Machine::of(u64::MAX, log, machine.ssd.image());
    let (tier, problems) = machine.open_damaged(settings(), 7).expect("it is opened");
    assert!(!problems.is_empty(), "nobody has noticed");
    let plan = Plan { kept: Some(Kept::of(&tier)), ..Plan::of(2, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    assert_eq!(durable(&rig).counts.lost.load(Relaxed), 1);
    rig.clock.advance(200 * SECOND);
    rig.turns(20);
    let client = rig.net.connect();
    let values = "VALUE old 0 1\r\no\r\nVALUE another 0 1\r\na\r\nEND\r\n";
    ask(&mut rig, &client, "get old another\r\n", values);
}

#[test]
fn a_flush_takes_the_place_of_an_older_one_that_comes_due_while_it_waits() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let (writer, client) = (rig.net.connect(), rig.net.connect());
    rig.set(&client, "old", b"o");
    ask(&mut rig, &client, "flush_all 10\r\n", "OK\r\n");
    kept.gate.commits_wait.store(true, Relaxed);
    writer.send(b"set k 0 0 1\r\nv\r\n");
    nothing_is_told(&mut rig, &writer);
    client.send(b"flush_all 1000\r\n");
    nothing_is_told(&mut rig, &client);
    // The older one is due, and again.
    for _ in 0..3 {
        rig.clock.advance(6 * SECOND);
        nothing_is_told(&mut rig, &client);
    }
    kept.gate.commits_wait.store(false, Relaxed);
    told(&mut rig, &writer, "STORED\r\n");
    told(&mut rig, &client, "OK\r\n");
    rig.turns(20);
    ask(&mut rig, &client, "get old\r\n", "VALUE old 0 1\r\no\r\nEND\r\n");
    rig.clock.advance(1001 * SECOND);
    rig.turns(20);
    ask(&mut rig, &client, "get old k\r\n", "END\r\n");
}

#[test]
fn what_is_stored_in_the_second_of_a_flush_to_come_is_stored_behind_it() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "old", b"o");
    ask(&mut rig, &client, "flush_all 10\r\n", "OK\r\n");
    client.send(b"set new 0 0 1\r\nn\r\n");
    rig.clock.advance(10 * SECOND);
    told(&mut rig, &client, "STORED\r\n");
    rig.turns(20);
    let value = "VALUE new 0 1\r\nn\r\nEND\r\n";
    ask(&mut rig, &client, "get old new\r\n", value);
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine);
    let client = rig.net.connect();
    ask(&mut rig, &client, "get old new\r\n", value);
}

#[test]
fn a_flush_does_not_wait_for_whoever_counts() {
    let (mut rig, kept) = started(&machine());
    let (counter, client) = (rig.net.connect(), rig.net.connect());
    rig.set(&client, "k", b"v");
    kept.gate.counts_wait.store(true, Relaxed);
    counter.send(b"stats tier\r\n");
    nothing_is_told(&mut rig, &counter);
    ask(&mut rig, &client, "flush_all\r\n", "OK\r\n");
    ask(&mut rig, &client, "set k 0 0 1\r\nw\r\n", "STORED\r\n");
    nothing_is_told(&mut rig, &counter);
    kept.gate.counts_wait.store(false, Relaxed);
    let got = rig.until(&counter, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert!(got.starts_with(b"STAT "), "{}", String::from_utf8_lossy(&got));
}

#[test]
fn a_walk_tells_no_key_of_the_servers_own() {
    let (mut rig, _kept) = started(&machine());
    let client = rig.net.connect();
    rig.set(&client, "k", b"v");
    ask(&mut rig, &client, "flush_all 1000\r\n", "OK\r\n");
    let client = rig.net.connect();
    let scanned = "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n";
    ask(&mut rig, &client, "*2\r\n$4\r\nSCAN\r\n$1\r\n0\r\n", scanned);
    for _ in 0..20 {
        rig.clock.advance(1);
        ask(&mut rig, &client, "*1\r\n$9\r\nRANDOMKEY\r\n", "$1\r\nk\r\n");
    }
}

#[test]
fn a_watched_key_that_ends_is_noticed_also_where_its_write_was_under_way() {
    let (mut rig, kept) = started(&machine());
    let (writer, client) = (rig.net.connect(), rig.net.connect());
    kept.gate.commits_wait.store(true, Relaxed);
    writer.send(b"set k 0 5 1\r\nv\r\n");
    nothing_is_told(&mut rig, &writer);
    ask(&mut rig, &client, "*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n", "+OK\r\n");
    kept.gate.commits_wait.store(false, Relaxed);
    told(&mut rig, &writer, "STORED\r\n");
    rig.clock.advance(10 * SECOND);
    ask(&mut rig, &client, "*1\r\n$5\r\nMULTI\r\n", "+OK\r\n");
    let set = "*3\r\n$3\r\nSET\r\n$5\r\nother\r\n$1\r\nx\r\n";
    ask(&mut rig, &client, set, "+QUEUED\r\n");
    ask(&mut rig, &client, "*1\r\n$4\r\nEXEC\r\n", "*-1\r\n");
    let held = rig.ask(&client, b"*2\r\n$3\r\nGET\r\n$5\r\nother\r\n", b"\r\n");
    assert_eq!(held, b"$-1\r\n");
}

#[test]
fn what_is_stored_is_no_hit_before_somebody_asks_for_it() {
    let (mut rig, _kept) = started(&machine());
    let client = rig.net.connect();
    // Values that stream into their items, and what is made of items that are there.
    rig.set(&client, "long", &value(200_000, 1));
    rig.set(&client, "number", b"1");
    ask(&mut rig, &client, "incr number 1\r\n", "2\r\n");
    rig.set(&client, "joined", b"j");
    ask(&mut rig, &client, "append joined 0 0 1\r\nj\r\n", "STORED\r\n");
    rig.set(&client, "stale", b"s");
    ask(&mut rig, &client, "md stale I\r\n", "HD\r\n");
    for key in ["long", "number", "joined"] {
        ask(&mut rig, &client, &format!("mg {key} h\r\n"), "HD h0\r\n");
    }
    ask(&mut rig, &client, "mg stale h u\r\n", "HD h0 X W\r\n");
    ask(&mut rig, &client, "mg long h\r\n", "HD h1\r\n");
}

#[test]
fn a_flush_that_is_not_allowed_waits_for_nobody_and_changes_no_watched_key() {
    let plan = Plan { flush: false, ..Plan::of(2, Form::TimeShare) };
    let (mut rig, kept) = started_as(&machine(), plan);
    let (writer, flusher, client) = (rig.net.connect(), rig.net.connect(), rig.net.connect());
    rig.set(&flusher, "k", b"v");
    ask(&mut rig, &client, "*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n", "+OK\r\n");
    kept.gate.commits_wait.store(true, Relaxed);
    writer.send(b"set other 0 0 1\r\nv\r\n");
    nothing_is_told(&mut rig, &writer);
    for line in ["flush_all\r\n", "flush_all 100\r\n"] {
        ask(&mut rig, &flusher, line, "CLIENT_ERROR flush_all not allowed\r\n");
    }
    kept.gate.commits_wait.store(false, Relaxed);
    told(&mut rig, &writer, "STORED\r\n");
    ask(&mut rig, &client, "*1\r\n$5\r\nMULTI\r\n", "+OK\r\n");
    ask(&mut rig, &client, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "+QUEUED\r\n");
    ask(&mut rig, &client, "*1\r\n$4\r\nEXEC\r\n", "*1\r\n$1\r\nv\r\n");
}

#[test]
fn an_item_whose_successor_is_refused_stays_in_memory_and_in_the_folder() {
    let plan = Plan { item_bytes_max: 64 << 10, ..Plan::of(2, Form::TimeShare) };
    let (mut rig, _kept) = started_as(&machine(), plan);
    let client = rig.net.connect();
    rig.set(&client, "k", b"v");
    let refused = "SERVER_ERROR object too large for cache\r\n";
    for store in ["set k 0 0 100000", "ms k 100000"] {
        let request = format!("{store}\r\n{}\r\n", "x".repeat(100_000));
        let got = rig.ask(&client, request.as_bytes(), b"\r\n");
        assert_eq!(String::from_utf8_lossy(&got), refused, "{store}");
        ask(&mut rig, &client, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    }
    assert_eq!(durable(&rig).counts.faults.load(Relaxed), 0, "memory has it still");
}

#[test]
fn a_meta_delete_of_what_lies_on_the_disk_alone_reads_no_value() {
    let machine = machine();
    let (mut rig, kept) = started(&machine);
    let client = rig.net.connect();
    rig.set(&client, "long", &value(200_000, 1));
    for key in ["a", "b", "c"] {
        rig.set(&client, key, b"v");
    }
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine);
    let client = rig.net.connect();
    ask(&mut rig, &client, "md long k Oopaque\r\n", "HD klong Oopaque\r\n");
    ask(&mut rig, &client, "md YQ== b k\r\n", "HD kYQ== b\r\n");
    ask(&mut rig, &client, "md b q\r\nmd b q\r\nmn\r\n", "NF\r\nMN\r\n");
    assert_eq!(durable(&rig).counts.faults.load(Relaxed), 0);
    // What asks more of its item than to be gone reads it.
    ask(&mut rig, &client, "md c C999999999\r\n", "EX\r\n");
    assert_eq!(durable(&rig).counts.faults.load(Relaxed), 1);
    for (key, told) in [("long", "EN\r\n"), ("a", "EN\r\n"), ("b", "EN\r\n"), ("c", "HD\r\n")] {
        ask(&mut rig, &client, &format!("mg {key}\r\n"), told);
    }
}

#[test]
fn nobody_is_told_of_a_key_in_memory_that_is_not_durable() {
    let (mut rig, kept) = started(&machine());
    let (writer, client) = (rig.net.connect(), rig.net.connect());
    rig.set(&client, "old", b"o");
    kept.gate.commits_wait.store(true, Relaxed);
    writer.send(b"set new 0 0 1\r\nn\r\n");
    nothing_is_told(&mut rig, &writer);
    let now = rig.clock.moment(rig.clock.nanos());
    let store = rig.shared.store.clone();
    assert!(store.peek(store.hash(b"new"), b"new", now).is_some(), "memory has it");
    let class = store.class_number(4); // of both
    let dump = "lru_crawler mgdump all\r\n";
    let cachedump = format!("stats cachedump {class} 0\r\n");
    ask(&mut rig, &client, dump, "OK\r\nmg old\r\nEN\r\n");
    let keys = |rig: &mut Rig| {
        let told = rig.ask(&client, cachedump.as_bytes(), b"END\r\n");
        String::from_utf8_lossy(&told).matches("ITEM ").count()
    };
    assert_eq!(keys(&mut rig), 1);
    kept.gate.commits_wait.store(false, Relaxed);
    told(&mut rig, &writer, "STORED\r\n");
    assert_eq!(keys(&mut rig), 2);
}

#[test]
fn who_leaves_an_item_to_the_executor_does_not_mark_it() {
    let (mut rig, kept) = started(&machine());
    let (writer, client, other) = (rig.net.connect(), rig.net.connect(), rig.net.connect());
    rig.set(&client, "stale", b"s");
    ask(&mut rig, &client, "md stale I\r\n", "HD\r\n");
    rig.clock.advance(100 * SECOND);
    let idle = rig.ask(&client, b"mg stale h l\r\n", b"\r\n");
    let idle = String::from_utf8_lossy(&idle).into_owned();
    let seconds = idle.strip_prefix("HD h0 l").and_then(|idle| idle.strip_suffix(" X W\r\n"));
    let seconds: u32 = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
    assert!(seconds >= 99, "{idle}");
    ask(&mut rig, &client, "mg stale h\r\n", "HD h1 Z X\r\n");
    kept.gate.commits_wait.store(true, Relaxed);
    writer.send(b"set new 0 0 1\r\nn\r\nset with 0 0 1\r\nw\r\n");
    nothing_is_told(&mut rig, &writer);
    client.send(b"mg new h\r\n");
    nothing_is_told(&mut rig, &client);
    // Two that follow each other are looked at together.
    other.send(b"mg with h v\r\nmg none v\r\n");
    nothing_is_told(&mut rig, &other);
    kept.gate.commits_wait.store(false, Relaxed);
    told(&mut rig, &writer, "STORED\r\nSTORED\r\n");
    told(&mut rig, &client, "HD h0\r\n");
    told(&mut rig, &other, "VA 1 h0\r\nw\r\nEN\r\n");
}

/// Its client had no reply to go on with until then.
#[test]
fn who_was_answered_late_has_not_been_idle_since_it_asked() {
    let plan = Plan { idle_timeout: Duration::from_secs(5), ..Plan::of(1, Form::TimeShare) };
    let (mut rig, kept) = started_as(&machine(), plan);
    let client = rig.net.connect();
    let pass = |rig: &mut Rig, seconds: usize| {
        for _ in 0..seconds {
            rig.clock.advance(SECOND);
            rig.turns(20);
        }
    };
    kept.gate.commits_wait.store(true, Relaxed);
    client.send(b"set k 0 0 1\r\nv\r\n");
    pass(&mut rig, 60);
    nothing_is_told(&mut rig, &client);
    kept.gate.commits_wait.store(false, Relaxed);
    told(&mut rig, &client, "STORED\r\n");
    pass(&mut rig, 3);
    ask(&mut rig, &client, "mn\r\n", "MN\r\n");
    pass(&mut rig, 10);
    assert!(client.ended(), "it has asked nothing since");
}
