//! Replies that do not wait for durability (`--durability interval:MS`), and what a crash loses.

use crate::durable::{FORMS, answers_within, check, machine, started};
use laneway_policy::Form;
use laneway_rig::durable::{Kept, Machine, settings};
use laneway_rig::{Plan, Rig, value};
use laneway_tier::Settings;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[test]
fn with_an_interval_replies_do_not_wait_and_a_crash_loses_no_more_than_that() {
    let machine = machine();
    let tier =
        machine.open(Settings { durability: laneway_tier::Durability::Interval, ..settings() });
    let kept =
        Kept { interval: Some(Duration::from_millis(10)), ..Kept::of(&tier.expect("sound")) };
    kept.gate.commits_wait.store(true, Relaxed);
    let mut rig = Rig::new(&Plan { kept: Some(kept.clone()), ..Plan::of(2, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "first", b"1");
    kept.gate.commits_wait.store(false, Relaxed);
    rig.clock.advance(20_000_000);
    rig.turns(4);
    kept.gate.commits_wait.store(true, Relaxed);
    rig.set(&client, "second", b"2");
    check(&mut rig, &client, &[("get second\r\n", "VALUE second 0 1\r\n2\r\nEND\r\n")]);
    let crashed = (0..8).map(|seed| machine.crashed(seed));
    for machine in crashed {
        let (mut rig, _kept) = started(&machine, FORMS[0]);
        let client = rig.net.connect();
        check(&mut rig, &client, &[("get first\r\n", "VALUE first 0 1\r\n1\r\nEND\r\n")]);
    }
}

/// A flush is a write like others: a commit is due for it, whether or not another write follows.
#[test]
fn with_an_interval_a_flush_is_durable_within_it() {
    let machine = machine();
    let tier =
        machine.open(Settings { durability: laneway_tier::Durability::Interval, ..settings() });
    let kept =
        Kept { interval: Some(Duration::from_millis(10)), ..Kept::of(&tier.expect("sound")) };
    let mut rig = Rig::new(&Plan { kept: Some(kept), ..Plan::of(2, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "first", b"1");
    rig.clock.advance(20_000_000);
    rig.turns(4);
    check(&mut rig, &client, &[("flush_all\r\n", "OK\r\n")]);
    rig.clock.advance(20_000_000);
    rig.turns(4);
    for seed in 0..8 {
        let (mut rig, _kept) = started(&machine.crashed(seed), FORMS[0]);
        let client = rig.net.connect();
        check(&mut rig, &client, &[("get first\r\n", "END\r\n")]);
    }
}

/// Replies do not wait for durability then, but a change that the tier may yet refuse is not shown.
#[test]
fn with_an_interval_a_value_that_the_tier_has_not_taken_yet_is_shown_to_nobody() {
    for form in FORMS {
        let machine = machine();
        let settings = Settings { durability: laneway_tier::Durability::Interval, ..settings() };
        let tier = machine.open(settings).expect("sound");
        let kept = Kept { interval: Some(Duration::from_millis(10)), ..Kept::of(&tier) };
        let mut rig = Rig::new(&Plan { kept: Some(kept.clone()), ..Plan::of(form.0, form.1) });
        let (writer, reader) = (rig.net.connect(), rig.net.connect());
        kept.gate.spills_wait.store(true, Relaxed);
        // Too long to wait in memory for its group: it is written as soon as it is there.
        rig.send(
            &writer,
            &[&b"set large 0 0 1500000\r\n"[..], &value(1_500_000, 2), b"\r\n"].concat(),
        );
        assert_eq!(answers_within(&mut rig, &writer, 100), b"");
        check(&mut rig, &reader, &[("get large\r\n", "END\r\n")]); // as before
        machine.power.restore(0); // every write fails from now on
        kept.gate.spills_wait.store(false, Relaxed);
        let told = rig.until(&writer, Vec::new(), |got| got.ends_with(b"\r\n"));
        assert!(told.starts_with(b"SERVER_ERROR"), "{}", told.escape_ascii());
        check(&mut rig, &reader, &[("get large\r\n", "END\r\n")]);
    }
}

/// Whoever fills a segment of the log waits until all of it is durable, and so does everybody else.
#[test]
fn with_an_interval_a_megabyte_of_the_log_is_made_durable_before_its_time() {
    let segment_bytes: u32 = 2 << 20;
    let machine = Machine::new(10 * segment_bytes as usize, 8 << 20);
    let durability = laneway_tier::Durability::Interval;
    let tier = machine.open(Settings { durability, segment_bytes, ..settings() }).expect("sound");
    let kept = Kept { interval: Some(Duration::from_secs(3600)), ..Kept::of(&tier) };
    let mut rig = Rig::new(&Plan { kept: Some(kept), ..Plan::of(2, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "key", b"1"); // the first commit is due at once
    rig.turns(4);
    let before = tier.stats().groups;
    for (sets, groups) in [(500, 0), (100, 1)] {
        for number in 0..sets {
            rig.set(&client, "key", &value(1900, number));
        }
        rig.turns(4);
        assert_eq!(tier.stats().groups - before, groups, "behind {sets} of about 2 KB");
    }
}
