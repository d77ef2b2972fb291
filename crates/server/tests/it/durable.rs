//! Items that outlive the server: what is acknowledged, what is shown, what survives.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_server::clock::ManualClock;
use laneway_tier::disk::sim::Faults;
use laneway_tier::{ItemMeta, Settings};
use laneway_transport::memory::Client;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::{Plan, Rig, hit, value};
use std::sync::atomic::Ordering::Relaxed;

const LOG_BYTES: usize = 16 * SEGMENT_BYTES as usize;
pub const SSD_BYTES: usize = 8 << 20;
pub const FORMS: [(usize, Form); 3] =
    [(1, Form::TimeShare), (2, Form::TimeShare), (3, Form::Roles)];

pub fn machine() -> Machine {
    Machine::new(LOG_BYTES, SSD_BYTES)
}

pub fn started(machine: &Machine, (workers, form): (usize, Form)) -> (Rig, Kept) {
    started_with(machine, settings(), Plan::of(workers, form))
}

pub fn started_with(machine: &Machine, settings: Settings, plan: Plan) -> (Rig, Kept) {
    let tier = machine.open(settings).expect("the media are sound");
    let kept = Kept::of(&tier);
    (Rig::new(&Plan { kept: Some(kept.clone()), ..plan }), kept)
}

/// Asks line by line and compares.
pub fn check(rig: &mut Rig, client: &Client, rows: &[(&str, &str)]) {
    for (request, reply) in rows {
        let end = reply.as_bytes();
        let got = rig.ask(client, request.as_bytes(), &end[end.len().saturating_sub(5)..]);
        assert_eq!(String::from_utf8_lossy(&got), *reply, "{request:?}");
    }
}

/// Turns the wheel and says whether anything was answered.
pub fn answers_within(rig: &mut Rig, client: &Client, turns: usize) -> Vec<u8> {
    rig.turns(turns);
    client.receive(usize::MAX)
}

#[test]
fn the_highest_cas_id_that_a_client_may_choose_loses_nothing() {
    const HIGHEST: &str = "18446744073709551615";
    for form in FORMS {
        let machine = machine();
        let write = |rig: &mut Rig, round: u64| {
            let client = rig.net.connect();
            let chosen = |line: &str| line.replace("MAX", HIGHEST);
            let (set, told) = (chosen("ms chosen 1 c EMAX\r\nz\r\n"), chosen("HD cMAX\r\n"));
            check(rig, &client, &[(&set, &told)]);
            // Small and large values of other keys and of this one's partition, and a deletion.
            for number in 0..40 {
                let bytes = if number % 8 == 0 { 5000 } else { 300 };
                rig.set(&client, &format!("key-{number}"), &value(bytes, number + round));
            }
            check(
                rig,
                &client,
                &[
                    ("delete key-1\r\n", "DELETED\r\n"),
                    ("ms again 1\r\na\r\n", "HD\r\n"),
                    (&chosen("ms again 1 EMAX\r\nb\r\n"), "HD\r\n"),
                    ("ms again 1\r\nc\r\n", "HD\r\n"),
                    (&chosen("ma counted N0 J5 EMAX v\r\n"), "VA 1\r\n5\r\n"),
                    ("incr counted 1\r\n", "6\r\n"),
                    ("md counted\r\n", "HD\r\n"),
                ],
            );
        };
        let read = |rig: &mut Rig, round: u64| {
            let client = rig.net.connect();
            for number in (0..40).filter(|number| *number != 1) {
                let bytes = if number % 8 == 0 { 5000 } else { 300 };
                let request = format!("get key-{number}\r\n");
                let found = hit(&format!("key-{number}"), &value(bytes, number + round));
                let expected = [&found[..], b"END\r\n"].concat();
                assert!(rig.ask(&client, request.as_bytes(), b"END\r\n") == expected, "{number}");
            }
            let chosen = format!("VA 1 c{HIGHEST}\r\nz\r\n");
            let rows = [
                ("get key-1 counted\r\n", "END\r\n"),
                ("mg chosen c v\r\n", &chosen),
                ("get again\r\n", "VALUE again 0 1\r\nc\r\nEND\r\n"),
            ];
            check(rig, &client, &rows);
        };
        // The second life begins above all that the first gave.
        for round in 0..3 {
            let (mut rig, kept) = started(&machine, form);
            if 0 < round {
                read(&mut rig, round - 1);
            }
            write(&mut rig, round);
            read(&mut rig, round);
            assert!(kept.tier.sequence() < 1 << 40, "{}", kept.tier.sequence());
        }
    }
}

#[test]
fn every_kind_of_change_survives_a_restart() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        check(
            &mut rig,
            &client,
            &[
                ("set plain 7 0 5\r\nhello\r\n", "STORED\r\n"),
                ("set number 0 0 2\r\n41\r\n", "STORED\r\n"),
                ("incr number 1\r\n", "42\r\n"),
                ("set joined 0 0 1\r\nb\r\n", "STORED\r\n"),
                ("append joined 0 0 1\r\nc\r\n", "STORED\r\n"),
                ("prepend joined 0 0 1\r\na\r\n", "STORED\r\n"),
                ("set gone 0 0 1\r\nx\r\n", "STORED\r\n"),
                ("delete gone\r\n", "DELETED\r\n"),
                ("delete gone\r\n", "NOT_FOUND\r\n"),
                ("add plain 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
                ("add added 0 0 1\r\ny\r\n", "STORED\r\n"),
                ("replace none 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
                ("set short 0 100 1\r\ns\r\n", "STORED\r\n"),
                ("touch short 5\r\n", "TOUCHED\r\n"),
                ("set long 0 5 1\r\nl\r\n", "STORED\r\n"),
                ("gat 0 long\r\n", "VALUE long 0 1\r\nl\r\nEND\r\n"),
                ("set over 0 0 1\r\nx\r\n", "STORED\r\n"),
                ("touch over -1\r\n", "TOUCHED\r\n"),
                ("ms stale 1 c E777\r\nz\r\n", "HD c777\r\n"),
                ("md stale I E778\r\n", "HD\r\n"),
                ("ms tagged 2 F5 E99 T0\r\nab\r\n", "HD\r\n"),
                ("ma made N0 J13 v\r\n", "VA 2\r\n13\r\n"),
                ("set quiet 0 0 1 noreply\r\nq\r\nmn\r\n", "MN\r\n"),
            ],
        );
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        check(
            &mut rig,
            &client,
            &[
                (
                    "get plain number\r\n",
                    "VALUE plain 7 5\r\nhello\r\nVALUE number 0 2\r\n42\r\nEND\r\n",
                ),
                (
                    "get joined gone added\r\n",
                    "VALUE joined 0 3\r\nabc\r\nVALUE added 0 1\r\ny\r\nEND\r\n",
                ),
                ("mg short t v\r\n", "VA 1 t5\r\ns\r\n"),
                ("mg long t v\r\n", "VA 1 t-1\r\nl\r\n"),
                ("mg over v\r\n", "EN\r\n"),
                ("mg stale c v\r\n", "VA 1 c778 X W\r\nz\r\n"),
                ("gets tagged\r\n", "VALUE tagged 5 2 99\r\nab\r\nEND\r\n"),
                ("cas tagged 0 0 1 98\r\nx\r\n", "EXISTS\r\n"),
                ("cas tagged 0 0 1 99\r\nx\r\n", "STORED\r\n"),
                ("mg quiet v\r\n", "VA 1\r\nq\r\n"),
                ("incr made 1\r\n", "14\r\n"),
            ],
        );
        // Five seconds later.
        rig.clock.advance(6_000_000_000);
        check(&mut rig, &client, &[("get short long\r\n", "VALUE long 0 1\r\nl\r\nEND\r\n")]);
    }
}

#[test]
fn values_of_every_size_come_back_from_the_media() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let sizes = [0, 1, 1000, 2047, 2048, 4096, 15_000, 20_000, 100_000, 1 << 20, 2_500_000];
        for (salt, &bytes) in sizes.iter().enumerate() {
            rig.set(&client, &format!("k{bytes}"), &value(bytes, salt as u64));
        }
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        for round in 0..2 {
            for (salt, &bytes) in sizes.iter().enumerate() {
                let key = format!("k{bytes}");
                let got = rig.ask(&client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
                let wanted = [&hit(&key, &value(bytes, salt as u64))[..], b"END\r\n"].concat();
                assert!(got == wanted, "round {round}, {bytes} bytes: {}", rig::tail(&got));
            }
        }
        let durable = rig.shared.durable.get().expect("it is kept");
        assert_eq!(durable.counts.faults.load(Relaxed), sizes.len() as u64, "the second are hits");
        let told = rig.shared.store.stats();
        assert_eq!((told.items, told.items_total), (sizes.len() as u64, 0), "none was stored");
        // All at once, and once more from the media.
        let keys: Vec<String> = sizes.iter().map(|bytes| format!("k{bytes}")).collect();
        assert!(rig.shared.store.flush_all());
        let got = rig.ask(&client, format!("get {} no\r\n", keys.join(" ")).as_bytes(), b"END\r\n");
        let hits = sizes.iter().enumerate();
        let hits = hits.map(|(salt, &bytes)| hit(&format!("k{bytes}"), &value(bytes, salt as u64)));
        let wanted = [hits.collect::<Vec<_>>().concat(), b"END\r\n".to_vec()].concat();
        assert!(got == wanted, "{} of {} bytes", got.len(), wanted.len());
    }
}

#[test]
fn nobody_sees_or_is_told_of_what_is_not_durable() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (writer, reader) = (rig.net.connect(), rig.net.connect());
        rig.set(&writer, "k", b"old");
        rig.set(&writer, "other", b"here");
        kept.gate.commits_wait.store(true, Relaxed);
        writer.send(b"set k 0 0 3\r\nnew\r\n");
        assert_eq!(answers_within(&mut rig, &writer, 100), b"");
        check(&mut rig, &reader, &[("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n")]);
        // Other keys are served meanwhile, and a read of nothing.
        let third = rig.net.connect();
        check(
            &mut rig,
            &third,
            &[
                ("get other none\r\n", "VALUE other 0 4\r\nhere\r\nEND\r\n"),
                ("mg none v\r\n", "EN\r\n"),
            ],
        );
        kept.gate.commits_wait.store(false, Relaxed);
        let told = rig.until(&writer, Vec::new(), |got| got.ends_with(b"\r\n"));
        assert_eq!(told, b"STORED\r\n");
        check(&mut rig, &reader, &[("get k\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n")]);
        // From now on it is an ordinary hit.
        let before = rig.shared.durable.get().expect("kept").counts.requests.load(Relaxed);
        check(&mut rig, &reader, &[("get k\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n")]);
        let after = rig.shared.durable.get().expect("kept").counts.requests.load(Relaxed);
        assert_eq!(after, before, "the executor was not asked");
    }
}

#[test]
fn a_hit_in_memory_waits_for_no_device() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        rig.set(&client, "cold", &value(3000, 1));
        drop((rig, kept));
        let (mut rig, kept) = started(&machine, form);
        let (client, waiting) = (rig.net.connect(), rig.net.connect());
        rig.set(&client, "warm", b"w");
        kept.gate.reads_wait.store(true, Relaxed);
        kept.gate.spills_wait.store(true, Relaxed);
        let spilling = rig.net.connect();
        // Too long to go with its group at once.
        let large = [&b"set large 0 0 30000\r\n"[..], &value(30_000, 2), b"\r\n"].concat();
        waiting.send(b"get cold\r\n");
        rig.send(&spilling, &large);
        assert_eq!(answers_within(&mut rig, &waiting, 100), b"");
        check(
            &mut rig,
            &client,
            &[
                ("get warm\r\n", "VALUE warm 0 1\r\nw\r\nEND\r\n"),
                ("set warm 0 0 2\r\nw2\r\n", "STORED\r\n"),
                ("incr none 1\r\n", "NOT_FOUND\r\n"),
            ],
        );
        assert_eq!(answers_within(&mut rig, &waiting, 100), b"");
        assert_eq!(answers_within(&mut rig, &spilling, 100), b"");
        kept.gate.reads_wait.store(false, Relaxed);
        kept.gate.spills_wait.store(false, Relaxed);
        let got = rig.until(&waiting, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert!(got == [&hit("cold", &value(3000, 1))[..], b"END\r\n"].concat());
        rig.until(&spilling, Vec::new(), |got| got == b"STORED\r\n");
    }
}

#[test]
fn changes_wait_until_the_log_has_room_and_reads_do_not() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    rig.set(&client, "cold", &value(3000, 1));
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let (client, writer, same) = (rig.net.connect(), rig.net.connect(), rig.net.connect());
    rig.set(&client, "warm", b"w");
    kept.gate.room_waits.store(true, Relaxed);
    // No segment of the log holds as many.
    let set = |number: u64| {
        let head = format!("set k{number} 0 0 1500\r\n");
        [head.as_bytes(), &value(1500, number), b"\r\n"].concat()
    };
    let mut stored = 0;
    loop {
        assert!(stored < u64::from(SEGMENT_BYTES) / 1500, "the log had room for all of them");
        rig.send(&writer, &set(stored));
        match answers_within(&mut rig, &writer, 100).is_empty() {
            true => break,
            false => stored += 1,
        }
    }
    let long = [&b"set long 0 0 3000\r\n"[..], &value(3000, 2), b"\r\n"].concat();
    rig.send(&same, format!("append k{stored} 0 0 1\r\n!\r\n").as_bytes());
    let cold = [&hit("cold", &value(3000, 1))[..], b"END\r\n"].concat();
    assert!(rig.ask(&client, b"get cold\r\n", b"END\r\n") == cold);
    check(&mut rig, &client, &[("get warm\r\n", "VALUE warm 0 1\r\nw\r\nEND\r\n")]);
    assert_eq!(answers_within(&mut rig, &same, 100), b"", "it is behind the other of its key");
    kept.gate.room_waits.store(false, Relaxed);
    rig.until(&writer, Vec::new(), |got| got == b"STORED\r\n");
    rig.until(&same, Vec::new(), |got| got == b"STORED\r\n");
    assert_eq!(rig.ask(&client, &long, b"\r\n"), b"STORED\r\n");
    assert!(kept.tier.stats().stalls == 0, "there are free segments");
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    for number in 0..=stored {
        let mut wanted = value(1500, number);
        wanted.extend((number == stored).then_some(b'!'));
        let key = format!("k{number}");
        let got = rig.ask(&client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
        assert!(got == [&hit(&key, &wanted)[..], b"END\r\n"].concat(), "{}", rig::tail(&got));
    }
}

#[test]
fn changes_of_a_key_that_waits_for_a_device_keep_their_order() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let clients: Vec<Client> = (0..4).map(|_| rig.net.connect()).collect();
    rig.set(&clients[0], "n", b"5");
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let clients: Vec<Client> = (0..4).map(|_| rig.net.connect()).collect();
    kept.gate.reads_wait.store(true, Relaxed);
    for (client, request) in clients.iter().zip([
        "incr n 1\r\n",
        "incr n 10\r\n",
        "append n 0 0 1\r\n0\r\n",
        "get n\r\n",
    ]) {
        client.send(request.as_bytes());
        rig.turns(50);
    }
    kept.gate.reads_wait.store(false, Relaxed);
    // None of the changes is acknowledged when the read goes on.
    for (client, reply) in
        clients.iter().zip(["6\r\n", "16\r\n", "STORED\r\n", "VALUE n 0 1\r\n5\r\nEND\r\n"])
    {
        let got = rig.until(client, Vec::new(), |got| got.len() >= reply.len());
        assert_eq!(String::from_utf8_lossy(&got), *reply);
    }
    clients[3].send(b"get n\r\n");
    let got = rig.until(&clients[3], Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(String::from_utf8_lossy(&got), "VALUE n 0 3\r\n160\r\nEND\r\n");
}

#[test]
fn a_failed_flush_refuses_writes_and_goes_on_reading() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    rig.set(&client, "k", b"old");
    rig.set(&client, "cold", &value(5000, 1));
    machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    let reader = rig.net.connect();
    kept.gate.commits_wait.store(true, Relaxed);
    client.send(b"set k 0 0 3\r\nnew\r\n");
    rig.turns(50);
    reader.send(b"get k\r\n");
    rig.turns(50);
    // Somebody looks at the new value, and asks only when it was taken back.
    let durable = rig.shared.durable.get().expect("kept").clone();
    let (hash, sight) = (rig.shared.store.hash(b"k"), durable.pending_writes.sight());
    let shared = rig.shared.clone();
    let hidden = shared.hidden(); // of whoever lists keys, as RANDOMKEY does
    kept.gate.commits_wait.store(false, Relaxed);
    let told = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert!(told.starts_with(b"SERVER_ERROR "), "{}", rig::tail(&told));
    rig.turns(50);
    assert!(!durable.pending_writes.hides(hash), "nothing is under way any more");
    assert!(durable.pending_writes.hides_since(hash, sight), "what was seen was never durable");
    assert!(hidden(b"k") && !shared.hidden()(b"k"), "a list that was begun meanwhile has no part");
    assert!(
        !durable.pending_writes.hides_since(hash, durable.pending_writes.sight()),
        "what is seen now is"
    );
    let told = rig.until(&reader, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(told, b"VALUE k 0 3\r\nold\r\nEND\r\n");
    for request in [
        &b"set other 0 0 1\r\nx\r\n"[..],
        b"incr none 1\r\ndelete k\r\n",
        b"touch k 10\r\n",
        b"flush_all\r\n",
    ] {
        let told = rig.ask(&client, request, b"simulated failure of a flush\r\n");
        let refused = b"SERVER_ERROR writes are refused until restart";
        assert!(told.windows(refused.len()).any(|bytes| bytes == refused), "{}", rig::tail(&told));
    }
    assert!(rig.shared.store.flush_all()); // nothing is left in memory
    let got = rig.ask(&client, b"get k cold other\r\n", b"END\r\n");
    let wanted = [&hit("k", b"old")[..], &hit("cold", &value(5000, 1)), b"END\r\n"].concat();
    assert!(got == wanted, "{}", rig::tail(&got));
    machine.log.set_faults(Faults::default());
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    check(
        &mut rig,
        &client,
        &[
            ("set other 0 0 1\r\nx\r\n", "STORED\r\n"),
            ("get other\r\n", "VALUE other 0 1\r\nx\r\nEND\r\n"),
        ],
    );
}

#[test]
fn full_media_are_told_and_lose_nothing() {
    let machine = Machine::new(8 * SEGMENT_BYTES as usize, 400 << 10);
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    let (mut stored, mut refused) = (Vec::new(), 0);
    for number in 0..400 {
        let bytes = if number % 4 == 0 { 6000 } else { 900 };
        let key = format!("k{number}");
        let request =
            [format!("set {key} 0 0 {bytes}\r\n").as_bytes(), &value(bytes, number), b"\r\n"]
                .concat();
        let told = rig.ask(&client, &request, b"\r\n");
        match &told[..] {
            b"STORED\r\n" => stored.push((key, bytes, number)),
            told => {
                refused += 1;
                let told = String::from_utf8_lossy(told);
                let has_a_way_out = told.ends_with("or --ssd-size\r\n");
                assert!(told.starts_with("SERVER_ERROR ") && has_a_way_out, "{told}");
            }
        }
    }
    assert!(0 < refused && 20 < stored.len(), "{refused} refused, {} stored", stored.len());
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    for (key, bytes, salt) in &stored {
        let got = rig.ask(&client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
        assert!(got == [&hit(key, &value(*bytes, *salt))[..], b"END\r\n"].concat(), "{key}");
    }
    // What is deleted makes room again.
    for (key, ..) in &stored {
        check(&mut rig, &client, &[(&format!("delete {key}\r\n"), "DELETED\r\n")]);
    }
    rig.set(&client, "again", &value(6000, 1));
}

#[test]
fn memory_is_a_cache_and_eviction_loses_nothing() {
    let machine = machine();
    let plan =
        Plan { memory_bytes: 2 << 20, item_bytes_max: 1 << 20, ..Plan::of(2, Form::TimeShare) };
    let (mut rig, _kept) = started_with(&machine, settings(), plan);
    let client = rig.net.connect();
    for number in 0..60 {
        rig.set(&client, &format!("k{number}"), &value(100_000, number));
    }
    assert!(0 < rig.shared.store.stats().evictions);
    for number in (0..60).rev() {
        let key = format!("k{number}");
        let got = rig.ask(&client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
        assert!(got == [&hit(&key, &value(100_000, number))[..], b"END\r\n"].concat(), "{key}");
    }
    // More at once than memory holds.
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let got = rig.ask(&client, format!("get {}\r\n", keys.join(" ")).as_bytes(), b"END\r\n");
    assert_eq!(
        got.len(),
        60 * 100_000 + keys.iter().map(|key| hit(key, b"").len() + 5).sum::<usize>() + 5
    );
}

#[test]
fn a_damaged_item_is_named_and_the_others_are_served() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    rig.set(&client, "damaged", &value(5000, 9));
    rig.set(&client, "sound", b"s");
    rig.set(&client, "another", b"a"); // vouches for the group before it
    drop((rig, kept));
    let mut ssd = machine.ssd.image();
    let wanted = &value(5000, 9)[..100];
    let at = ssd.windows(100).position(|bytes| bytes == wanted).expect("it is on the SSD");
    ssd[at + 7] ^= 1;
    let machine = Machine::of(u64::MAX, machine.log.image(), ssd);
    let (mut rig, _kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    let told = rig.ask(&client, b"get damaged\r\n", b"\r\n");
    assert!(told.starts_with(b"SERVER_ERROR lost: key damaged"), "{}", rig::tail(&told));
    // An error ends the reply to a multiget: what came behind it would be taken for the next reply.
    rig.ask(&client, b"get sound\r\n", b"END\r\n"); // it is in memory from now on
    for line in ["get damaged sound", "get sound damaged another", "gets damaged another sound"] {
        let told = rig.ask(&client, format!("{line}\r\nmn\r\n").as_bytes(), b"MN\r\n");
        let error = told.windows(18).position(|part| part == b"SERVER_ERROR lost:");
        let behind = &told[error.expect("it is told")..];
        let lines = behind.split(|&byte| byte == b'\n').count();
        assert_eq!(lines, 3, "{line}: {}", rig::tail(&told)); // the error, MN, and nothing
    }
    check(
        &mut rig,
        &client,
        &[
            ("get sound\r\n", "VALUE sound 0 1\r\ns\r\nEND\r\n"),
            ("add damaged 0 0 3\r\nnew\r\n", "NOT_STORED\r\n"), // it counts as there
            ("set damaged 0 0 3\r\nnew\r\n", "STORED\r\n"),
            ("get damaged\r\n", "VALUE damaged 0 3\r\nnew\r\nEND\r\n"),
        ],
    );
}

#[test]
fn the_token_of_a_stale_item_is_won_once_whatever_ends_in_between() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        rig.set(&client, "k", b"v");
        check(&mut rig, &client, &[("md k I\r\n", "HD\r\n"), ("mg k v\r\n", "VA 1 X W\r\nv\r\n")]);
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        check(&mut rig, &client, &[("mg k v\r\n", "VA 1 Z X\r\nv\r\n")]);
    }
}

#[test]
fn a_record_that_the_server_did_not_write_is_served() {
    let machine = machine();
    let tier = machine.open(settings()).expect("sound");
    let now = ManualClock::UNIX_START;
    let meta = |expires| ItemMeta { flags: 3, expires_at_seconds: expires, ..ItemMeta::default() };
    tier.put(b"loaded", b"v", meta(0)).expect("there is room");
    tier.put(b"later", b"v", meta(now + 50)).expect("there is room");
    tier.put(b"over", b"v", meta(now - 1)).expect("there is room");
    drop(tier);
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    check(
        &mut rig,
        &client,
        &[
            (
                "get loaded over later\r\n",
                "VALUE loaded 3 1\r\nv\r\nVALUE later 3 1\r\nv\r\nEND\r\n",
            ),
            ("add over 0 0 1\r\nx\r\n", "STORED\r\n"),
        ],
    );
}

#[test]
fn those_behind_a_key_are_looked_at_once_for_each_that_goes_on() {
    const CLIENTS: u64 = 60;
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[2]);
    let clients: Vec<Client> = (0..CLIENTS).map(|_| rig.net.connect()).collect();
    kept.gate.spills_wait.store(true, Relaxed);
    for (number, client) in clients.iter().enumerate() {
        let value = value(30000, number as u64);
        rig.send(client, &[&b"set one 0 0 30000\r\n"[..], &value, b"\r\n"].concat());
        rig.turns(20);
    }
    kept.gate.spills_wait.store(false, Relaxed);
    for client in &clients {
        let told = rig.until(client, Vec::new(), |got| got.ends_with(b"\r\n"));
        assert_eq!(told, b"STORED\r\n");
    }
    let released = rig.shared.durable.get().expect("kept").counts.released.load(Relaxed);
    assert_eq!(released, CLIENTS - 1, "each but the first has waited, and none in vain");
    let last = [&hit("one", &value(30000, CLIENTS - 1))[..], b"END\r\n"].concat();
    assert!(rig.ask(&clients[0], b"get one\r\n", b"END\r\n") == last, "in the order they came");
}
