//! What an operator asks of a data folder by the text protocol: `checkpoint`, `compact`,
//! `migrate_rate`.

use laneway_policy::Form;
use laneway_rig::durable::{Kept, Machine, settings};
use laneway_rig::{Plan, Rig, value};
use std::sync::atomic::Ordering::Relaxed;

const NOT_KEPT: &str =
    "CLIENT_ERROR nothing is kept durably; serve --data-dir DIR keeps items in a folder\r\n";
const USAGE: &str =
    "CLIENT_ERROR usage: migrate_rate BYTES (a second; 0 for as many as it can)\r\n";

const COMPACTING: &str =
    "SERVER_ERROR a compaction is under way; stats tier tells how far it is\r\n";
const NOT_COMPACTING: &str = "CLIENT_ERROR no compaction is under way\r\n";
const COMPACT_USAGE: &str = "CLIENT_ERROR usage: compact [stop]\r\n";

fn begin(form: Form) -> (Machine, Rig, Kept) {
    let machine = Machine::new(1 << 20, 8 << 20);
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    let plan = Plan { kept: Some(kept.clone()), ..Plan::of(2, form) };
    (machine, Rig::new(&plan), kept)
}

#[test]
fn a_checkpoint_is_answered_when_it_is_durable_and_others_are_served_meanwhile() {
    for form in [Form::TimeShare, Form::Roles] {
        let (machine, mut rig, kept) = begin(form);
        let (asker, other) = (rig.net.connect(), rig.net.connect());
        rig.set(&asker, "small", &value(300, 1));
        rig.set(&asker, "large", &value(9000, 2));
        kept.gate.counts_wait.store(true, Relaxed);
        assert!(rig.send(&asker, b"checkpoint\r\n").is_empty(), "it is not made yet");
        rig.set(&other, "other", &value(300, 3));
        rig.turns(50);
        assert!(asker.receive(usize::MAX).is_empty());
        kept.gate.counts_wait.store(false, Relaxed);
        rig.turns(50);
        assert_eq!(asker.receive(usize::MAX), b"OK\r\n");
        assert_eq!(kept.tier.stats().checkpoints, 1);
        // What it has was answered before; a start needs no log for that.
        let crashed = machine.crashed(3);
        assert_eq!(crashed.open(settings()).expect("it is sound").stats().items.items(), 3);
        assert_eq!(rig.ask(&asker, b"checkpoint\r\n", b"\r\n"), b"OK\r\n");
        assert_eq!(kept.tier.stats().checkpoints, 1, "nothing was written since");
        assert_eq!(rig.ask(&asker, b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
}

#[test]
fn a_checkpoint_that_a_medium_refuses_is_an_error_and_the_connection_goes_on() {
    let (machine, mut rig, _kept) = begin(Form::TimeShare);
    let client = rig.net.connect();
    rig.set(&client, "key", &value(300, 1));
    machine.power.restore(0); // every write fails from now on
    let refused = rig.ask(&client, b"checkpoint\r\n", b"\r\n");
    assert!(refused.starts_with(b"SERVER_ERROR "), "{}", refused.escape_ascii());
    assert_eq!(rig.ask(&client, b"mn\r\n", b"\r\n"), b"MN\r\n");
}

#[test]
fn a_rate_of_migration_is_set_at_once_and_told() {
    let (_machine, mut rig, kept) = begin(Form::TimeShare);
    let client = rig.net.connect();
    for (request, reply, rate) in [
        ("migrate_rate 1048576\r\n", "OK\r\n", 1 << 20),
        ("migrate_rate 1m\r\n", USAGE, 1 << 20),
        ("migrate_rate\r\n", USAGE, 1 << 20),
        ("migrate_rate 0\r\n", "OK\r\n", 0),
    ] {
        let got = rig.ask(&client, request.as_bytes(), b"\r\n");
        assert_eq!(String::from_utf8_lossy(&got), reply, "{request}");
        assert_eq!(kept.tier.stats().migrate_rate, rate, "{request}");
        let told = rig.ask(&client, b"stats tier\r\n", b"END\r\n");
        let line = format!("STAT migrate_rate {rate}\r\n");
        assert!(String::from_utf8_lossy(&told).contains(&line), "{line}");
    }
}

#[test]
fn a_compaction_goes_on_beside_requests_and_is_told() {
    for form in [Form::TimeShare, Form::Roles] {
        let (_machine, mut rig, kept) = begin(form);
        let client = rig.net.connect();
        let mut version = 0;
        let mut set_some = |rig: &mut Rig| {
            for number in 0..20 {
                version += 1;
                rig.set(&client, &format!("key-{number}"), &value(600, version));
            }
            version
        };
        for _ in 0..60 {
            set_some(&mut rig);
            while kept.tier.maintain().expect("there is room") {}
        }
        let ask = |rig: &mut Rig, request: &str, reply: &str, standing: &str| {
            let got = rig.ask(&client, request.as_bytes(), b"\r\n");
            assert_eq!(String::from_utf8_lossy(&got), reply, "{request}");
            let told = rig.ask(&client, b"stats tier\r\n", b"END\r\n");
            let line = format!("STAT compaction {standing}\r\n");
            assert!(String::from_utf8_lossy(&told).contains(&line), "{line}");
        };
        ask(&mut rig, "compact stop\r\n", NOT_COMPACTING, "none");
        ask(&mut rig, "compact\r\n", "OK\r\n", "running");
        ask(&mut rig, "compact\r\n", COMPACTING, "running");
        let mut last = set_some(&mut rig);
        while kept.tier.maintain().expect("there is room") {
            last = set_some(&mut rig);
        }
        ask(&mut rig, "compact stop\r\n", NOT_COMPACTING, "done");
        let told = kept.tier.stats().compaction;
        assert!(0 < told.done_bytes && told.done_bytes <= told.all_bytes, "{told:?}");
        ask(&mut rig, "compact\r\n", "OK\r\n", "running");
        ask(&mut rig, "compact stop\r\n", "OK\r\n", "stopped");
        ask(&mut rig, "compact now\r\n", COMPACT_USAGE, "stopped");
        let item = kept.tier.get(b"key-19").expect("it can be read").expect("it is there");
        assert_eq!(item.value, value(600, last));
    }
}

#[test]
fn without_a_data_folder_there_is_nothing_to_ask_of() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    for (request, reply) in [
        ("checkpoint\r\n", NOT_KEPT),
        ("checkpoint now\r\n", "CLIENT_ERROR usage: checkpoint\r\n"),
        ("compact\r\n", NOT_KEPT),
        ("compact stop\r\n", NOT_KEPT),
        ("compact now\r\n", COMPACT_USAGE),
        ("migrate_rate 5\r\n", NOT_KEPT),
        ("migrate_rate x\r\n", USAGE),
        ("mn\r\n", "MN\r\n"),
    ] {
        let got = rig.ask(&client, request.as_bytes(), b"\r\n");
        assert_eq!(String::from_utf8_lossy(&got), reply, "{request}");
    }
}
