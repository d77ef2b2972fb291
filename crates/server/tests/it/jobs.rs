//! Requests that another worker executes than the one that received them: who executes which, and
//! that replies come back whole. For each design: is its rule the paper's?

use laneway_rig as rig;

use laneway_policy::{Access, Design, Form, ItemBytes, LargeLane, Role};
use laneway_server::jobs::handoff::{DatagramOrigin, JOB_PLACES, Job, Origin};
use laneway_server::stats::Question;
use laneway_store::Moment;
use laneway_transport::memory::Client;
use laneway_transport::memory_datagram::DatagramFaults;
use rig::peer::{Peer, orphan};
use rig::{Plan, Rig, hit, value};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn the_reply_to_a_datagram_is_sent_by_whoever_executes_it() {
    let datagrams = Some(DatagramFaults::NONE);
    let plan = Plan { design: Design::Hkh, datagrams, ..Plan::of(2, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    let big = value(400_000, 1);
    rig.set(&client, "big", &big);
    let mut peer = Peer::new(&rig);
    let address = peer.socket.address();
    let big = [&hit("big", &big)[..], b"END\r\n"].concat();
    let rows: [(&[u8], &[u8]); 5] = [
        (b"get big none\r\n", &big),
        (b"set small 0 0 3\r\nabc\r\n", b"STORED\r\n"),
        (b"set short 0 0 30\r\nabc\r\n", b"CLIENT_ERROR bad data chunk\r\n"),
        (b"mg small v\r\n", b"VA 3\r\nabc\r\n"),
        (b"nonsense\r\n", b"ERROR\r\n"),
    ];
    for (request_id, (request, _)) in (0..).zip(rows) {
        let origin = DatagramOrigin { queue: 0, peer: address, request_id };
        let job = Job::request(request.to_vec(), ItemBytes(0), 0, Origin::Datagram(origin));
        assert!(rig.shared.workers[1].jobs.push(job).is_ok());
    }
    for (id, (request, wanted)) in (0..).zip(rows) {
        let got = peer.until(&mut rig, id);
        assert!(got == wanted, "{}: {}", rig::tail(request), rig::tail(&got));
    }
    assert_eq!(rig.shared.workers[1].lanes.jobs_of_others.get(), 5);
}

/// Whose numbers `stats lanes` tells, and in which order.
#[test]
fn each_count_of_a_worker_is_told_by_its_own_name() {
    let rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let worker = &rig.shared.workers[1];
    let lanes = &worker.lanes;
    let [send, receive, frames, copy] = lanes.slice_bytes.each_ref();
    let counts = [
        (&lanes.requests_small, "requests_small 1"),
        (&lanes.requests_large, "requests_large 2"),
        (&lanes.packets, "packets 3"),
        (&lanes.slices, "slices 4"),
        (&lanes.slices_urgent, "slices_urgent 5"),
        (send, "slice_bytes_send 6"),
        (receive, "slice_bytes_receive 7"),
        (frames, "slice_bytes_frames 8"),
        (copy, "slice_bytes_copy 9"),
        (&lanes.waiting_small, "queue_small 10"),
        (&lanes.waiting_large, "queue_large 11"),
        (&lanes.moved_to_large, "moved_to_large 12"),
        (&lanes.moved_home, "moved_home 13"),
        (&lanes.handed_over, "handed_over 14"),
        (&lanes.forwarded, "forwarded 15"),
        (&lanes.items_remote, "items_remote 16"),
        (&lanes.jobs_of_others, "jobs_of_others 17"),
        (&lanes.stolen, "stolen 18"),
    ];
    for (number, (count, _)) in (1..).zip(counts) {
        count.set_owner(number);
    }
    lanes.tx_backed_up_nanos.set_owner(19_999);
    worker.connections.store(20, Relaxed);
    let told = rig.shared.answer(&Question::Lanes, Moment::NEVER, 0);
    let told = String::from_utf8(told).expect("stats are text");
    let own: Vec<&str> =
        told.lines().filter_map(|line| line.strip_prefix("STAT worker:1:")).collect();
    let mut wanted: Vec<&str> = counts.iter().map(|(_, line)| *line).collect();
    wanted.insert(0, "role shared");
    wanted.insert(10, "connections 20");
    wanted.insert(13, "queue_arriving 0");
    wanted.insert(16, "queue_jobs 0");
    wanted.push("tx_backed_up_us 19");
    assert_eq!(own, wanted);
    assert!(told.contains("STAT migrations 25\r\n"), "{told}");
}

/// Ask, and return the workers that served a request meanwhile, one entry per request.
fn served_by(rig: &mut Rig, client: &Client, request: &[u8], end: &[u8]) -> Vec<usize> {
    let counts = |rig: &Rig| -> Vec<u64> {
        let count = |lanes: &laneway_server::shared::LaneCounts| {
            lanes.requests_small.get() + lanes.requests_large.get()
        };
        rig.shared.workers.iter().map(|worker| count(&worker.lanes)).collect()
    };
    let before = counts(rig);
    rig.ask(client, request, end);
    let after = counts(rig);
    let more = |worker: usize| vec![worker; (after[worker] - before[worker]) as usize];
    (0..after.len()).flat_map(more).collect()
}

fn set_request(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("set {key} 0 0 {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

/// The worker that a client's connection lives at.
fn home_of(rig: &mut Rig, client: &Client) -> usize {
    served_by(rig, client, b"mn\r\n", b"\r\n")[0]
}

#[test]
fn minos_serves_a_large_request_at_the_worker_of_its_size_and_a_small_one_at_home() {
    let mut rig = Rig::new(&Plan::design(Design::Minos, 6));
    rig.publish_large(3);
    let client = rig.net.connect();
    let home = home_of(&mut rig, &client);
    let plan = rig.shared.plan.get();
    let LargeLane::Ranges(ranges) = &plan.large_lane else { panic!("{:?}", plan.large_lane) };
    let mut used = [false; 3];
    for bytes in [1, 8_000, 16_000, 17_000, 40_000, 70_000, 150_000, 400_000, 3_000_000] {
        let key = format!("k{bytes}");
        let size = ItemBytes((key.len() + bytes) as u64);
        let wanted = if size < plan.threshold {
            home
        } else {
            used[ranges.range_of(size)] = true;
            usize::from(plan.workers_small) + ranges.range_of(size)
        };
        let value = value(bytes, 7);
        let set = served_by(&mut rig, &client, &set_request(&key, &value), b"STORED\r\n");
        assert_eq!(set, [wanted], "set of {bytes} bytes");
        let get = format!("get {key}\r\n");
        let get = served_by(&mut rig, &client, get.as_bytes(), b"END\r\n");
        assert_eq!(get, [wanted], "get of {bytes} bytes");
        let meta = format!("mg {key} v\r\nmn\r\n");
        let mut meta = served_by(&mut rig, &client, meta.as_bytes(), b"MN\r\n");
        meta.remove(meta.iter().position(|&worker| worker == home).expect("the mn"));
        assert_eq!(meta, [wanted], "mg of {bytes} bytes");
    }
    assert_eq!(used, [true; 3], "each large worker had its sizes");
    // A multiget goes key by key.
    let mut keys = served_by(&mut rig, &client, b"get k1 k17000 k3000000 k1\r\n", b"END\r\n");
    keys.dedup();
    assert_eq!(keys, [home, 3, 5]);
    let stolen: u64 = rig.shared.workers.iter().map(|worker| worker.lanes.stolen.get()).sum();
    assert_eq!(stolen, 0);
}

#[test]
fn the_standby_of_minos_serves_the_large_requests_of_all_and_small_ones_of_its_own() {
    let mut rig = Rig::new(&Plan::design(Design::Minos, 3));
    assert_eq!(rig.shared.plan.get().roles, [Role::Small, Role::Small, Role::Standby]);
    let big = value(100_000, 1);
    for number in 0..3 {
        let client = rig.net.connect();
        assert_eq!(home_of(&mut rig, &client), number);
        let set = served_by(&mut rig, &client, &set_request("big", &big), b"STORED\r\n");
        assert_eq!(set, [2]);
        assert_eq!(served_by(&mut rig, &client, b"get big\r\n", b"END\r\n"), [2]);
        assert_eq!(served_by(&mut rig, &client, b"get none\r\n", b"END\r\n"), [number]);
    }
}

#[test]
fn a_connection_that_cannot_be_watched_while_its_reply_is_under_way_is_closed_alone() {
    let mut rig = Rig::new(&Plan::design(Design::Minos, 6));
    rig.publish_large(3);
    let (client, other) = (rig.net.connect(), rig.net.connect());
    rig.set(&client, "big", &value(400_000, 1));
    assert_eq!(rig.ask(&other, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    client.send(b"get big\r\n");
    // Those that receive it, and not yet those that execute it.
    for small in &mut rig.workers[..3] {
        small.step().expect("memory does not fail");
    }
    client.send(b"mn\r\n");
    rig.net.refuse_watching(true);
    for small in &mut rig.workers[..3] {
        small.step().expect("it goes on with the others");
    }
    rig.net.refuse_watching(false);
    rig.turns(50);
    client.receive(usize::MAX);
    assert!(client.ended());
    assert_eq!(rig.ask(&other, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
}

#[test]
fn a_worker_that_cannot_watch_its_listeners_when_it_turns_small_tries_again() {
    let mut rig = Rig::new(&Plan::of(2, Form::Roles));
    rig.publish_large(1);
    rig.turns(3);
    rig.net.refuse_watching(true);
    rig.publish_large(0);
    rig.turns(3);
    let open = |rig: &Rig| rig.shared.connections.open.load(Relaxed);
    let _client = rig.net.connect();
    let step = |rig: &mut Rig| {
        rig.workers[1].step().expect("it goes on");
    };
    (0..3).for_each(|_| step(&mut rig));
    assert_eq!(open(&rig), 0, "nobody tells it who comes");
    rig.net.refuse_watching(false);
    rig.clock.advance(2_000_000_000);
    (0..3).for_each(|_| step(&mut rig));
    assert_eq!(open(&rig), 1);
}

#[test]
fn a_worker_that_cannot_watch_its_queue_of_datagrams_when_it_turns_small_tries_again() {
    let datagrams = Some(DatagramFaults::NONE);
    let mut rig = Rig::new(&Plan { datagrams, ..Plan::of(2, Form::Roles) });
    let mut peer = Peer::new(&rig);
    rig.publish_large(1);
    rig.turns(3);
    rig.net.refuse_watching(true);
    rig.publish_large(0);
    rig.turns(3);
    rig.net.refuse_watching(false);
    rig.clock.advance(2_000_000_000);
    assert_eq!(peer.ask(&mut rig, 1, 1, b"mn\r\n"), b"MN\r\n");
}

#[test]
fn workers_of_sho_either_hand_over_or_serve() {
    for handoff in [1, 2, 3] {
        let plan = Plan { workers_handoff: handoff, ..Plan::design(Design::Sho, 6) };
        let mut rig = Rig::new(&plan);
        let handoff = usize::from(handoff);
        let clients: Vec<Client> = (0..6).map(|_| rig.net.connect()).collect();
        for (number, client) in clients.iter().enumerate() {
            for bytes in [10, 300_000] {
                let key = format!("k{number}");
                let set = set_request(&key, &value(bytes, 1));
                let set = served_by(&mut rig, client, &set, b"STORED\r\n");
                let get = format!("get {key} none\r\n");
                let get = served_by(&mut rig, client, get.as_bytes(), b"END\r\n");
                let all = [set, get].concat();
                assert!(all.len() == 3 && all.iter().all(|&worker| worker >= handoff), "{all:?}");
            }
        }
        for (number, worker) in rig.shared.workers.iter().enumerate() {
            let handed = worker.lanes.handed_over.get();
            assert_eq!(handed > 0, number < handoff, "worker {number} of {handoff}");
        }
    }
}

#[test]
fn under_crew_a_keys_owner_writes_it_under_erew_it_reads_it_too() {
    for access in Access::ALL {
        let mut rig = Rig::new(&Plan { access, ..Plan::design(Design::Hkh, 6) });
        let placement = rig.shared.placement;
        let client = rig.net.connect();
        let home = home_of(&mut rig, &client);
        let mut forwarded = 0;
        for number in 0..40 {
            let key = format!("key{number}");
            let owner = placement.owner(placement.hash(key.as_bytes())).index();
            let of = |writes| if access.is_owners(writes) { owner } else { home };
            let bytes = [5, 200_000][number % 2];
            let of_key = |verb: &str, rest: &str| format!("{verb} {key}{rest}\r\n").into_bytes();
            let requests: [(Vec<u8>, &[u8], bool); 7] = [
                (set_request(&key, &value(bytes, 1)), b"STORED\r\n", true),
                (of_key("get", ""), b"END\r\n", false),
                (of_key("mg", " s"), b"\r\n", false),
                (of_key("gat 0", ""), b"END\r\n", true),
                (of_key("touch", " 0"), b"\r\n", true),
                (of_key("incr", " 1"), b"\r\n", true),
                (of_key("delete", ""), b"\r\n", true),
            ];
            for (request, end, writes) in requests {
                let what = String::from_utf8_lossy(&request[..request.len().min(20)]).into_owned();
                let served = served_by(&mut rig, &client, &request, end);
                assert_eq!(served, [of(writes)], "{access}: {what}");
                forwarded += u64::from(of(writes) != home);
            }
        }
        assert_eq!(rig.shared.workers[home].lanes.forwarded.get(), forwarded, "{access}");
        assert_eq!(forwarded > 0, access != Access::Crcw);
    }
}

#[test]
fn an_idle_worker_of_hkh_ws_steals_one_request_at_a_time_from_the_longest_queue() {
    let mut rig = Rig::new(&Plan::design(Design::HkhWs, 4));
    let queue = |rig: &Rig, worker: usize| rig.shared.workers[worker].jobs.len();
    for (worker, jobs) in [(0, 2), (1, 5), (2, 3)] {
        for _ in 0..jobs {
            let pushed = rig.shared.workers[worker].jobs.push(orphan(worker, b"get k\r\n"));
            assert!(pushed.is_ok());
        }
    }
    let mut lengths = Vec::new();
    for _ in 0..5 {
        rig.workers[3].step().expect("memory transports do not fail");
        lengths.push([0, 1, 2].map(|worker| queue(&rig, worker)));
    }
    // Always from the longest; of two as long, either.
    let mut before = [2, 5, 3];
    for now in lengths {
        let taken: Vec<usize> = (0..3).filter(|&worker| now[worker] < before[worker]).collect();
        assert!(taken.len() == 1 && now[taken[0]] + 1 == before[taken[0]], "{before:?} {now:?}");
        assert_eq!(before[taken[0]], *before.iter().max().expect("three"), "{before:?} {now:?}");
        before = now;
    }
    assert_eq!(rig.shared.workers[3].lanes.stolen.get(), 5);
    // A worker with requests of its own takes those.
    rig.workers[0].step().expect("memory transports do not fail");
    assert_eq!((queue(&rig, 0), rig.shared.workers[0].lanes.stolen.get()), (0, 0));
}

#[test]
fn what_finds_every_queue_full_stays_where_it_was() {
    for design in [Design::Minos, Design::HkhWs, Design::Sho] {
        let plan = Plan::design(design, 3);
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.set(&client, "small", b"s");
        // Jobs of somebody who is long gone fill the queues.
        let fill = |rig: &Rig| {
            let workers = rig.shared.workers.iter().map(|worker| &worker.jobs);
            for queue in workers.chain([&rig.shared.large_jobs]) {
                for _ in 0..JOB_PLACES {
                    let _ = queue.push(orphan(0, b"get k\r\n"));
                }
            }
        };
        let big = value(100_000, 2);
        let request = [&set_request("big", &big)[..], b"get big small\r\nmn\r\n"].concat();
        let mut got = Vec::new();
        let mut sent = 0;
        for _ in 0..200 {
            fill(&rig);
            sent += client.send(&request[sent..]);
            rig.turn();
            got.extend(client.receive(usize::MAX));
        }
        let got = rig.until(&client, got, |got| got.ends_with(b"MN\r\n"));
        let wanted = [b"STORED\r\n", &hit("big", &big)[..], &hit("small", b"s"), b"END\r\nMN\r\n"];
        assert!(got == wanted.concat(), "{design}: {}", rig::tail(&got));
    }
}

#[test]
fn a_client_that_vanishes_while_its_request_is_in_a_queue_leaves_nothing_behind() {
    for plan in rig::plans_of_rivals() {
        let mut rig = Rig::new(&plan);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.set(&other, "big", &value(400_000, 3));
        for turns in 0..6 {
            let client = rig.net.connect();
            rig.turns(2);
            client.send(b"get big big\r\nget big\r\n");
            rig.turns(turns);
            client.reset();
            rig.turns(10);
        }
        rig.set(&other, "big", b"small now");
        rig.turns(5);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0, "{}", plan.what());
        let open = rig.shared.connections.open.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(open, 2, "{}", plan.what());
        assert_eq!(rig.ask(&client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
}

#[test]
fn a_connection_that_waits_for_a_reply_does_not_keep_its_worker_busy() {
    use laneway_server::worker::Progress;
    let mut rig = Rig::new(&Plan::design(Design::Minos, 2));
    let client = rig.net.connect();
    assert_eq!(home_of(&mut rig, &client), 0);
    let (small, big) = (value(10_000, 1), value(100_000, 2));
    rig.set(&client, "small", &small);
    rig.set(&client, "big", &big);
    rig.turns(3);
    // More than the pipe takes, and behind it a reply that another worker makes.
    let request = [&b"get small\r\n".repeat(7)[..], b"get big\r\n"].concat();
    assert_eq!(client.send(&request), request.len());
    let step = |rig: &mut Rig| rig.workers[0].step().expect("memory does not fail");
    for _ in 0..5 {
        step(&mut rig);
    }
    let mut got = client.receive(usize::MAX);
    assert!(got.len() < 7 * small.len(), "the pipe was full");
    for _ in 0..5 {
        step(&mut rig);
    }
    got.extend(client.receive(usize::MAX));
    assert!(got.len() > 7 * small.len(), "now it has room");
    for _ in 0..3 {
        assert_eq!(step(&mut rig), Progress::Idle);
    }
    let of = |key, value: &[u8]| [&hit(key, value)[..], b"END\r\n"].concat();
    let wanted = [of("small", &small).repeat(7), of("big", &big)].concat();
    assert!(rig.until(&client, got, |got| got.len() >= wanted.len()) == wanted);
}

/// Values of a mebibyte in all, none of them large: a job copies a turn's worth, and gives the
/// other keys back until that has left.
#[test]
fn a_multiget_that_another_worker_executes_is_copied_a_turns_worth_at_a_time() {
    const KEYS: usize = 100;
    const VALUE: usize = 10_000;
    for (design, access) in [(Design::Sho, Access::Crcw), (Design::Hkh, Access::Erew)] {
        let faults = laneway_transport::memory::Faults {
            pipe_bytes: 5_000,
            ..laneway_transport::memory::Faults::NONE
        };
        let plan = Plan { access, faults, ..Plan::design(design, 2) };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let mut wanted = Vec::new();
        let mut request = b"get".to_vec();
        for number in 0..KEYS {
            let value = value(VALUE, number as u64);
            rig.set(&client, &format!("key{number}"), &value);
            request.extend_from_slice(format!(" key{number} none").as_bytes());
            wanted.extend(hit(&format!("key{number}"), &value));
        }
        wanted.extend_from_slice(b"END\r\nMN\r\n");
        request.extend_from_slice(b"\r\nmn\r\n");
        let executed = |rig: &Rig| -> u64 {
            rig.shared.workers.iter().map(|worker| worker.lanes.requests_small.get()).sum()
        };
        let mut got = Vec::new();
        let mut sent = 0;
        for turn in 0.. {
            sent += client.send(&request[sent..]);
            let before = executed(&rig);
            rig.turn();
            let keys = executed(&rig) - before;
            assert!(keys <= 2 * 2 * 64, "{keys} keys in a turn, {}", plan.what());
            // What was executed and has not been read is held somewhere.
            let held = executed(&rig) as usize * VALUE / 2;
            let base = KEYS * VALUE / 2; // the SETs counted as well
            assert!(
                held.saturating_sub(base) <= got.len() + 100_000,
                "{held} bytes, {} read, {}",
                got.len(),
                plan.what()
            );
            got.extend(client.receive(usize::MAX));
            if got.len() >= wanted.len() {
                break;
            }
            assert!(turn < 100_000, "{} of {} bytes, {}", got.len(), wanted.len(), plan.what());
        }
        assert!(got == wanted, "{}", plan.what());
    }
}
