//! Who is urgent: large transfers with small requests behind them, and what those leave the others.

use crate::{LARGE, MEDIUM, reply, rig};
use laneway_policy::Form;
use laneway_server::shared::LaneCounts;
use rig::resp::Speech;
use rig::{Plan, Rig, hit, tail, value};

/// A crowd of clients that pipeline, and one of them with a large value in the middle of its
/// pipeline: between two slices of it few small requests are served, or those behind it would wait
/// for the whole crowd again and again.
#[test]
fn what_is_pipelined_behind_a_large_value_does_not_wait_for_a_crowd() {
    Speech::BOTH.into_iter().for_each(behind_a_large_value_beside_a_crowd);
}

fn behind_a_large_value_beside_a_crowd(speech: Speech) {
    const DEPTH: usize = 16;
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let reader = rig.net.connect();
    let big = value(MEDIUM, 8);
    speech.set(&mut rig, &reader, "big", &big);
    speech.set(&mut rig, &reader, "small", b"s");
    let crowd: Vec<_> = (0..32).map(|_| rig.net.connect()).collect();
    rig.turns(8);
    let (asked, one) = (speech.get("small"), speech.hit("small", b"s"));
    let pipeline = asked.repeat(DEPTH);
    let ask_again = |served: &mut usize| {
        for client in &crowd {
            let bytes = client.receive(usize::MAX).len();
            if *served == 0 || bytes > 0 {
                let again = asked.len() * (bytes / one.len()).max(1);
                client.send(&pipeline[..pipeline.len().min(again)]);
            }
            *served += bytes / one.len();
        }
    };
    // How deep a pipeline is, is learned from the last turns.
    let mut served = 0;
    for client in &crowd {
        client.send(&pipeline);
        served = 1;
    }
    for _ in 0..64 {
        rig.turn();
        ask_again(&mut served);
    }
    let lanes = |rig: &Rig| {
        let lanes = &rig.shared.workers[0].lanes;
        (lanes.slices.get(), lanes.slices_urgent.get())
    };
    let (slices, urgent) = lanes(&rig);
    reader.send(&[speech.get("big"), asked.clone()].concat());
    let (mut got, mut beside) = (Vec::new(), 1);
    while !got.ends_with(&one) {
        rig.turn();
        got.extend(reader.receive(usize::MAX));
        ask_again(&mut beside);
        assert!(beside < 100_000, "it does not end");
    }
    assert!(got == [speech.hit("big", &big), one.clone()].concat(), "{}", tail(&got));
    let (slices, urgent) = (lanes(&rig).0 - slices, lanes(&rig).1 - urgent);
    assert!(slices >= 32 && urgent == slices, "{urgent} of {slices} were urgent, {speech:?}");
    // A turn of one connection for each slice; and all of the crowd before the first and behind the
    // last one.
    let most = (slices as usize + 2 * crowd.len()) * DEPTH;
    assert!(beside <= most, "{beside} beside {slices} slices, at most {most}, {speech:?}");
}

/// A large value that arrives in the middle of a pipeline is urgent to its last slice, wherever it
/// is served; one whose client sends nothing else is not.
#[test]
fn a_value_that_arrives_is_urgent_where_its_client_pipelines() {
    for plan in [Plan::of(1, Form::TimeShare), Plan::of(6, Form::Roles)] {
        for pipelines in [true, false] {
            let mut rig = Rig::new(&plan);
            let client = rig.net.connect();
            rig.set(&client, "small", b"s");
            let small: &[u8] = if pipelines { b"get small\r\n" } else { b"" };
            let head = format!("set big 0 0 {MEDIUM}\r\n");
            let sent = [small, head.as_bytes(), &value(MEDIUM, 10), b"\r\n", small].concat();
            let (mut at, mut got) = (0, Vec::new());
            while at < sent.len() {
                at += client.send(&sent[at..]);
                rig.turn();
                got.extend(client.receive(usize::MAX));
            }
            let end: &[u8] = if pipelines { b"END\r\n" } else { b"STORED\r\n" };
            let stored = |got: &[u8]| got.windows(6).any(|word| word == b"STORED");
            rig.until(&client, got, |got| stored(got) && got.ends_with(end));
            let sum = |count: fn(&LaneCounts) -> u64| -> u64 {
                rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
            };
            let (all, urgent) =
                (sum(|lanes| lanes.slices.get()), sum(|lanes| lanes.slices_urgent.get()));
            let wanted = if pipelines { all } else { 0 };
            assert!(all > 8 && urgent == wanted, "{}: {urgent} of {all}", plan.what());
        }
    }
}

#[test]
fn replies_in_front_of_a_large_one_wait_for_none_of_its_slices() {
    for large in ["get big\r\n", "mg big v\r\n", "get small big\r\n"] {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let (other, mixed) = (rig.net.connect(), rig.net.connect());
        rig.set(&other, "big", &value(LARGE, 1));
        rig.set(&mixed, "small", b"s");
        other.send(b"get big\r\n");
        rig.turns(2);
        assert!(!other.receive(usize::MAX).is_empty(), "it has begun");
        // The other one has its run first, all of 4 MiB: its is the slice of this turn.
        mixed.send(format!("get small\r\nmg small v\r\n{large}").as_bytes());
        rig.turn();
        let mut wanted = [&reply("small", b"s")[..], b"VA 1\r\ns\r\n"].concat();
        if large.starts_with("get small") {
            wanted.extend_from_slice(&hit("small", b"s"));
        }
        let got = mixed.receive(usize::MAX);
        assert_eq!(tail(&got), tail(&wanted), "{large}");
        assert!(!other.receive(usize::MAX).is_empty(), "a slice was moved, and that was not it");
    }
}

/// Who asks for large values alone is not urgent, and has his slices beside those who are.
#[test]
fn a_plain_transfer_has_its_share_beside_urgent_ones() {
    for speech in Speech::BOTH {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let (plain, urgent) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 9);
        speech.set(&mut rig, &plain, "big", &big);
        speech.set(&mut rig, &plain, "small", b"s");
        rig.turns(4);
        let (large, small) = (speech.hit("big", &big), speech.hit("small", b"s"));
        plain.send(&speech.get("big"));
        urgent.send(&[speech.get("big"), speech.get("small")].concat());
        let (mut of_plain, mut of_urgent) = (Vec::new(), Vec::new());
        while !of_urgent.ends_with(&small) {
            rig.turn();
            of_plain.extend(plain.receive(usize::MAX));
            of_urgent.extend(urgent.receive(usize::MAX));
        }
        assert!(of_urgent == [&large[..], &small].concat(), "{speech:?}");
        let share = of_plain.len() as f64 / of_urgent.len() as f64;
        assert!((0.2..0.6).contains(&share), "the plain one had {share:.2}, {speech:?}");
        let all = rig.until(&plain, of_plain, |got| got.len() >= large.len());
        assert!(all == large, "{speech:?}: {}", tail(&all));
    }
}

/// Slices, and urgent ones among them, until 64 clients with a small request each are answered
/// while `bulk` others ask for large values by `request`.
fn slices_beside_a_bulk(bulk: usize, request: &str) -> (u64, u64) {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let bulk: Vec<_> = (0..bulk).map(|_| rig.net.connect()).collect();
    rig.set(&bulk[0], "big", &value(LARGE, 11));
    rig.set(&bulk[0], "small", b"s");
    let small: Vec<_> = (0..64).map(|_| rig.net.connect()).collect();
    rig.turns(16);
    let turn = |rig: &mut Rig| {
        rig.turn();
        bulk.iter().for_each(|client| drop(client.receive(usize::MAX)));
    };
    for client in &bulk {
        client.send(request.as_bytes());
    }
    (0..40).for_each(|_| turn(&mut rig));
    let lanes = |rig: &Rig| {
        let lanes = &rig.shared.workers[0].lanes;
        (lanes.slices.get(), lanes.slices_urgent.get())
    };
    let before = lanes(&rig);
    for client in &small {
        client.send(b"get small\r\n");
    }
    let mut left: Vec<_> = small.iter().collect();
    while !left.is_empty() {
        turn(&mut rig);
        left.retain(|client| client.receive(usize::MAX).is_empty());
    }
    let after = lanes(&rig);
    (after.0 - before.0, after.1 - before.1)
}

/// The keys that are left of a multiget are no request behind it; and what lies behind a large GET
/// may be large as well, so it takes half of the small lane's share at most.
#[test]
fn a_bulk_of_large_values_leaves_small_clients_half_of_their_share() {
    for bulk in [1, 8] {
        let (slices, urgent) = slices_beside_a_bulk(bulk, "get big\r\n");
        assert!(slices >= 8 && urgent == 0, "{bulk} bulk clients: {urgent} of {slices}");
        let multiget = slices_beside_a_bulk(bulk, "get big big big big\r\n");
        assert_eq!(multiget, (slices, 0), "{bulk} clients with a multiget are as with a GET");
        let (pipelined, urgent) = slices_beside_a_bulk(bulk, &"get big\r\n".repeat(4));
        assert!(pipelined <= 2 * slices, "{bulk} bulk clients: {pipelined}, {slices} of plain");
        assert_eq!(urgent, pipelined, "{bulk} bulk clients");
        let (_, urgent) = slices_beside_a_bulk(bulk, "get big small\r\nget small\r\n");
        assert!(urgent > 0, "a request behind a multiget waits for it");
    }
}

/// Room to write is no request: a transfer that waited for its client stays plain.
#[test]
fn a_reply_that_waited_for_its_client_is_not_urgent() {
    let plans = [Plan::of(1, Form::TimeShare), Plan::of(6, Form::Roles)];
    for (plan, speech) in plans.iter().flat_map(|plan| Speech::BOTH.map(|speech| (plan, speech))) {
        let mut rig = Rig::new(plan);
        let client = rig.net.connect();
        let big = value(MEDIUM, 13);
        speech.set(&mut rig, &client, "big", &big);
        let large = speech.hit("big", &big);
        client.send(&speech.get("big"));
        let mut got = Vec::new();
        while got.len() < large.len() {
            rig.turns(8); // its pipe is full by then
            got.extend(client.receive(usize::MAX));
        }
        assert!(got == large, "{speech:?}: {}", tail(&got));
        let sum = |count: fn(&LaneCounts) -> u64| -> u64 {
            rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
        };
        let waited = sum(|lanes| lanes.slices.get()) > 32;
        let urgent = sum(|lanes| lanes.slices_urgent.get());
        assert!(waited && urgent == 0, "{}, {speech:?}: {urgent} were urgent", plan.what());
    }
}

/// What a client moved before does not shorten the run of its next transfer: values up to the
/// length of a run are served first come, first served.
#[test]
fn a_transfer_begins_with_a_whole_run() {
    for speech in Speech::BOTH {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let (first, second) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 14);
        speech.set(&mut rig, &first, "other", &value(LARGE / 2, 14));
        speech.set(&mut rig, &first, "big", &big);
        let large = speech.hit("big", &big).len();
        first.send(&speech.get("big"));
        rig.turn();
        second.send(&speech.get("big"));
        let (mut got, mut beside) = (first.receive(usize::MAX).len(), 0);
        while got < large {
            assert_eq!(beside, 0, "after {got} bytes of the first one, {speech:?}");
            rig.turn();
            got += first.receive(usize::MAX).len();
            beside += second.receive(usize::MAX).len();
        }
    }
}

/// A transfer that becomes urgent comes behind those who are.
#[test]
fn who_becomes_urgent_overtakes_nobody_urgent() {
    const SLICE: usize = 32 * 1024;
    for speech in Speech::BOTH {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let (late, urgent) = (rig.net.connect(), rig.net.connect());
        speech.set(&mut rig, &late, "big", &value(LARGE, 12));
        speech.set(&mut rig, &late, "small", b"s");
        rig.turns(8);
        late.send(&speech.get("big"));
        rig.turn();
        urgent.send(&[speech.get("big"), speech.get("small")].concat());
        let (mut of_late, mut of_urgent) = (late.receive(usize::MAX).len(), 0);
        while of_urgent < SLICE {
            rig.turn();
            of_late += late.receive(usize::MAX).len();
            of_urgent += urgent.receive(usize::MAX).len();
        }
        assert!(of_late < LARGE / 4, "{of_late} bytes have left already, {speech:?}");
        late.send(&speech.get("small"));
        let before = of_late;
        // As long as the run of the urgent one takes.
        while of_urgent < 28 * SLICE {
            rig.turn();
            of_late += late.receive(usize::MAX).len();
            of_urgent += urgent.receive(usize::MAX).len();
            let moved = of_late - before;
            assert!(moved <= 3 * SLICE, "{moved} beside {of_urgent}, {speech:?}");
        }
    }
}
