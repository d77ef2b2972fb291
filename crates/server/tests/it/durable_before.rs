//! What a read is told of a key whose change is not acknowledged yet: what was there before it.

use laneway_rig as rig;

use crate::durable::{FORMS, answers_within, check, machine, started};
use laneway_policy::Form;
use laneway_rig::binary::get;
use laneway_rig::durable::Kept;
use laneway_rig::resp::words;
use laneway_rig::{Rig, hit, value};
use laneway_tier::disk::sim::Faults;
use laneway_transport::memory::Client;
use std::sync::atomic::Ordering::Relaxed;

const OLD: &str = "VALUE k 0 3\r\nold\r\nEND\r\n";
const NEW: &str = "VALUE k 0 3\r\nnew\r\nEND\r\n";

fn answered_before(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("kept").counts.answered_before.load(Relaxed)
}

/// Sends a request that is not acknowledged before the gate lets its commit through.
fn begin(rig: &mut Rig, client: &Client, request: &[u8]) {
    assert_eq!(rig.send(client, request), b"");
    assert_eq!(answers_within(rig, client, 100), b"");
}

/// A server with `k`, and a client that has sent a new value of it, which is not durable yet.
fn begun(form: (usize, Form)) -> (Rig, Kept, Client) {
    let machine = machine();
    let (mut rig, kept) = started(&machine, form);
    let writer = rig.net.connect();
    rig.set(&writer, "k", b"old");
    kept.gate.commits_wait.store(true, Relaxed);
    begin(&mut rig, &writer, b"set k 0 0 3\r\nnew\r\n");
    (rig, kept, writer)
}

/// Its commit passes, and it is told so.
fn end(rig: &mut Rig, kept: &Kept, writer: &Client, reply: &[u8]) {
    kept.gate.commits_wait.store(false, Relaxed);
    let told = rig.until(writer, Vec::new(), |got| got.len() >= reply.len());
    assert_eq!(String::from_utf8_lossy(&told), String::from_utf8_lossy(reply));
}

#[test]
fn reads_by_every_protocol_are_told_at_once_what_was_there() {
    for form in FORMS {
        let (mut rig, kept, writer) = begun(form);
        let fresh = rig.net.connect();
        begin(&mut rig, &fresh, b"set fresh 0 0 1\r\nf\r\n");
        let [text, binary, resp] = [(); 3].map(|()| rig.net.connect());
        check(
            &mut rig,
            &text,
            &[
                ("get k\r\n", OLD),
                ("get fresh k none\r\n", OLD),
                ("mg k v f s k Oo\r\n", "VA 3 f0 s3 kk Oo\r\nold\r\n"),
                ("mg aw== b v\r\n", "VA 3\r\nold\r\n"),
                ("mg k\r\n", "HD\r\n"),
                ("mg fresh v\r\n", "EN\r\n"),
            ],
        );
        assert_eq!(rig.say_binary(&binary, &get(b"k")).value, b"old");
        assert_ne!(rig.say_binary(&binary, &get(b"fresh")).status, 0);
        for (line, reply) in [
            ("GET k", "$3\r\nold\r\n"),
            ("MGET fresh k", "*2\r\n$-1\r\n$3\r\nold\r\n"),
            ("EXISTS fresh k", ":1\r\n"),
            ("STRLEN k", ":3\r\n"),
            ("TTL fresh", ":-2\r\n"),
        ] {
            assert_eq!(rig.say_resp(&resp, line), reply, "{line}");
        }
        assert_eq!(answered_before(&rig), 16);
        let told = rig.ask(&text, b"stats tier\r\n", b"END\r\n");
        assert!(String::from_utf8_lossy(&told).contains("STAT answered_before 16\r\n"));
        end(&mut rig, &kept, &writer, b"STORED\r\n");
        rig.until(&fresh, Vec::new(), |got| got == b"STORED\r\n");
        check(&mut rig, &text, &[("get k\r\n", NEW), ("mg fresh v\r\n", "VA 1\r\nf\r\n")]);
        assert_eq!(rig.say_binary(&binary, &get(b"k")).value, b"new");
        assert_eq!(rig.say_resp(&resp, "MGET fresh k"), "*2\r\n$1\r\nf\r\n$3\r\nnew\r\n");
        assert_eq!(answered_before(&rig), 16, "and nobody was told of it behind the reply");
    }
}

#[test]
fn a_connection_sees_what_it_has_asked_for_itself() {
    for form in FORMS {
        for (set, reply) in
            [("set k 0 0 3\r\nnew\r\n", "STORED\r\n"), ("set k 0 0 3 noreply\r\nnew\r\n", "")]
        {
            let machine = machine();
            let (mut rig, kept) = started(&machine, form);
            let (client, other) = (rig.net.connect(), rig.net.connect());
            rig.set(&client, "k", b"old");
            kept.gate.commits_wait.store(true, Relaxed);
            begin(&mut rig, &client, format!("{set}get k\r\n").as_bytes());
            begin(&mut rig, &client, b"mg k v\r\n");
            check(&mut rig, &other, &[("get k\r\n", OLD)]);
            let wanted = format!("{reply}{NEW}VA 3\r\nnew\r\n");
            end(&mut rig, &kept, &client, wanted.as_bytes());
            check(&mut rig, &other, &[("get k\r\n", NEW)]);
        }
    }
}

#[test]
fn the_id_of_what_was_there_is_not_that_of_what_is() {
    let (mut rig, kept, writer) = begun(FORMS[1]);
    let client = rig.net.connect();
    let told = rig.ask(&client, b"gets k\r\n", b"END\r\n");
    let told = String::from_utf8_lossy(&told).into_owned();
    let head = told.lines().next().and_then(|line| line.strip_prefix("VALUE k 0 3 "));
    let id: u64 = head.and_then(|id| id.parse().ok()).expect("an id");
    assert!(told.ends_with("\r\nold\r\nEND\r\n"), "{told}");
    begin(&mut rig, &client, format!("cas k 0 0 1 {id}\r\nx\r\n").as_bytes());
    end(&mut rig, &kept, &writer, b"STORED\r\n");
    let told = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert_eq!(told, b"EXISTS\r\n");
    check(&mut rig, &client, &[("get k\r\n", NEW)]);
}

#[test]
fn what_was_there_is_there_still_where_its_successor_is_refused() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let (writer, reader) = (rig.net.connect(), rig.net.connect());
    rig.set(&writer, "k", b"old");
    kept.gate.commits_wait.store(true, Relaxed);
    begin(&mut rig, &writer, b"set k 0 0 3\r\nnew\r\n");
    check(&mut rig, &reader, &[("get k\r\n", OLD)]);
    machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    kept.gate.commits_wait.store(false, Relaxed);
    let told = rig.until(&writer, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert!(told.starts_with(b"SERVER_ERROR "), "{}", rig::tail(&told));
    check(&mut rig, &reader, &[("get k\r\n", OLD)]);
    assert_eq!(answered_before(&rig), 1);
}

#[test]
fn an_item_that_was_touched_in_time_is_never_told_to_be_over() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let (writer, reader) = (rig.net.connect(), rig.net.connect());
    check(&mut rig, &writer, &[("set k 0 10 3\r\nold\r\n", "STORED\r\n")]);
    kept.gate.commits_wait.store(true, Relaxed);
    begin(&mut rig, &writer, b"touch k 1000\r\n");
    check(&mut rig, &reader, &[("mg k v t\r\n", "VA 3 t10\r\nold\r\n")]);
    rig.clock.advance(20_000_000_000);
    begin(&mut rig, &reader, b"get k\r\n");
    end(&mut rig, &kept, &writer, b"TOUCHED\r\n");
    let told = rig.until(&reader, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(String::from_utf8_lossy(&told), OLD);
}

/// A connection sets `k` and then `long`, of which nothing is told. Who waits for `long` must not
/// be told behind it what `k` was before.
#[test]
fn who_waits_for_one_change_is_told_of_no_other_key_what_was_before() {
    for (request, reply) in [
        ("get long k\r\n", format!("VALUE long 0 1\r\nl\r\n{NEW}")),
        (
            "delete none\r\nget long\r\nget k\r\n", // one batch, since a write leads it
            format!("NOT_FOUND\r\nVALUE long 0 1\r\nl\r\nEND\r\n{NEW}"),
        ),
    ] {
        let machine = machine();
        let (mut rig, kept) = started(&machine, FORMS[1]);
        let [writer, reader, other] = [(); 3].map(|()| rig.net.connect());
        rig.set(&writer, "k", b"old");
        rig.set(&writer, "long", &value(20_000, 1)); // more than is copied
        kept.gate.commits_wait.store(true, Relaxed);
        begin(&mut rig, &writer, b"set k 0 0 3\r\nnew\r\nset long 0 0 1\r\nl\r\n");
        begin(&mut rig, &reader, request.as_bytes());
        check(&mut rig, &other, &[("get k\r\n", OLD)]);
        end(&mut rig, &kept, &writer, b"STORED\r\nSTORED\r\n");
        let told = rig.until(&reader, Vec::new(), |got| got.len() >= reply.len());
        assert_eq!(String::from_utf8_lossy(&told), reply);
    }
}

/// The log is durable behind all that one connection has changed, though nothing of it is told yet,
/// and not behind what another one has changed since.
#[test]
fn a_key_is_told_as_the_durable_part_of_the_log_has_it() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let [first, second, reader] = [(); 3].map(|()| rig.net.connect());
    rig.set(&first, "k", b"old");
    rig.set(&first, "other", b"old");
    kept.gate.commits_wait.store(true, Relaxed);
    let batch = b"set k 0 0 3\r\none\r\nset other 0 0 3\r\none\r\nset k 0 0 3\r\nend\r\n";
    begin(&mut rig, &first, batch);
    let [old, one, two] =
        ["old", "one", "two"].map(|other| format!("VALUE other 0 3\r\n{other}\r\nEND\r\n"));
    check(&mut rig, &reader, &[("get k\r\n", OLD), ("get other\r\n", old.as_str())]);
    kept.tier.commit().expect("the media are sound");
    begin(&mut rig, &second, b"set other 0 0 3\r\ntwo\r\n");
    check(&mut rig, &reader, &[("get other\r\n", one.as_str())]);
    assert_eq!(answered_before(&rig), 3);
    end(&mut rig, &kept, &first, &b"STORED\r\n".repeat(3));
    rig.until(&second, Vec::new(), |got| got == b"STORED\r\n");
    let end = "VALUE k 0 3\r\nend\r\nEND\r\n";
    check(&mut rig, &reader, &[("get k\r\n", end), ("get other\r\n", two.as_str())]);
}

/// A server whose `cold` is on its media alone, and reads of it wait; `k` is in memory.
fn with_cold() -> (Rig, Kept, [Client; 3]) {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    rig.set(&client, "cold", b"c");
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let clients = [(); 3].map(|()| rig.net.connect());
    rig.set(&clients[0], "k", b"old");
    kept.gate.reads_wait.store(true, Relaxed);
    (rig, kept, clients)
}

/// A batch changes `k`, `other` and `k` again. All of that is durable. The batch is not answered
/// yet, since it reads `cold` behind that. A later value of `other` is on its way to the SSD.
#[test]
fn who_has_seen_the_last_change_of_a_batch_sees_the_ones_before_it() {
    let (mut rig, kept, [first, second, reader]) = with_cold();
    rig.set(&first, "other", b"old");
    kept.gate.commits_wait.store(true, Relaxed);
    kept.gate.spills_wait.store(true, Relaxed);
    let sets = b"set k 0 0 3\r\none\r\nset other 0 0 3\r\none\r\nset k 0 0 3\r\nend\r\n";
    begin(&mut rig, &first, &[&sets[..], b"get cold\r\n"].concat());
    let large = value(40_000, 1);
    begin(&mut rig, &second, &[&b"set other 0 0 40000\r\n"[..], &large, b"\r\n"].concat());
    let [old, one] = ["old", "one"].map(|other| format!("VALUE other 0 3\r\n{other}\r\nEND\r\n"));
    check(&mut rig, &reader, &[("get other\r\n", old.as_str())]);
    kept.gate.commits_wait.store(false, Relaxed);
    rig.turns(100);
    let end = "VALUE k 0 3\r\nend\r\nEND\r\n";
    check(&mut rig, &reader, &[("get k\r\n", end), ("get other\r\n", one.as_str())]);
    assert_eq!(answered_before(&rig), 2);
    kept.gate.spills_wait.store(false, Relaxed);
    kept.gate.reads_wait.store(false, Relaxed);
    rig.until(&second, Vec::new(), |got| got == b"STORED\r\n");
    let told = rig.until(&first, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(told, b"STORED\r\nSTORED\r\nSTORED\r\nVALUE cold 0 1\r\nc\r\nEND\r\n");
    let got = rig.ask(&reader, b"get other\r\n", b"END\r\n");
    assert!(got == [&hit("other", &large)[..], b"END\r\n"].concat(), "{}", rig::tail(&got));
}

#[test]
fn of_two_who_change_a_key_either_may_be_answered_first() {
    let (mut rig, kept, [first, second, reader]) = with_cold();
    // Its first change is durable, and told, though not acknowledged: what is behind it waits.
    begin(&mut rig, &first, b"set k 0 0 3\r\none\r\nget cold\r\nset k 0 0 3\r\nend\r\n");
    check(&mut rig, &reader, &[("get k\r\n", "VALUE k 0 3\r\none\r\nEND\r\n")]);
    check(&mut rig, &second, &[("set k 0 0 3\r\ntwo\r\n", "STORED\r\n")]);
    let two = "VALUE k 0 3\r\ntwo\r\nEND\r\n";
    check(&mut rig, &reader, &[("get k\r\n", two)]);
    kept.gate.commits_wait.store(true, Relaxed);
    begin(&mut rig, &second, b"set k 0 0 3\r\nnew\r\n");
    check(&mut rig, &reader, &[("get k\r\n", two)]);
    kept.gate.reads_wait.store(false, Relaxed);
    rig.turns(100);
    check(&mut rig, &reader, &[("get k\r\n", two)]);
    end(&mut rig, &kept, &second, b"STORED\r\n");
    let told = rig.until(&first, Vec::new(), |got| got.ends_with(b"STORED\r\n") && got.len() > 8);
    assert_eq!(told, b"STORED\r\nVALUE cold 0 1\r\nc\r\nEND\r\nSTORED\r\n");
    check(&mut rig, &reader, &[("get k\r\n", "VALUE k 0 3\r\nend\r\nEND\r\n")]);
}

#[test]
fn what_is_durable_is_told_though_it_is_not_acknowledged() {
    let (mut rig, kept, [first, second, reader]) = with_cold();
    begin(&mut rig, &first, b"set fresh 0 0 1\r\nf\r\nget cold\r\n");
    let fresh = "VALUE fresh 0 1\r\nf\r\nEND\r\n";
    check(&mut rig, &reader, &[("get fresh\r\n", fresh)]);
    check(&mut rig, &second, &[("add fresh 0 0 1\r\nx\r\n", "NOT_STORED\r\n")]);
    check(&mut rig, &reader, &[("get fresh\r\n", fresh)]);
    assert_eq!(answered_before(&rig), 0);
    kept.gate.reads_wait.store(false, Relaxed);
    let told = rig.until(&first, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(told, b"STORED\r\nVALUE cold 0 1\r\nc\r\nEND\r\n");
}

#[test]
fn a_value_on_its_way_to_the_ssd_hides_nothing_of_what_was_there() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (writer, reader) = (rig.net.connect(), rig.net.connect());
        rig.set(&writer, "k", b"old");
        kept.gate.spills_wait.store(true, Relaxed);
        let large = value(40_000, 1);
        let set = [&b"set k 0 0 40000\r\n"[..], &large, b"\r\n"].concat();
        assert_eq!(rig.send(&writer, &set), b"");
        assert_eq!(answers_within(&mut rig, &writer, 100), b"");
        check(&mut rig, &reader, &[("get k\r\n", OLD)]);
        kept.gate.spills_wait.store(false, Relaxed);
        rig.until(&writer, Vec::new(), |got| got == b"STORED\r\n");
        let got = rig.ask(&reader, b"get k\r\n", b"END\r\n");
        assert!(got == [&hit("k", &large)[..], b"END\r\n"].concat(), "{}", rig::tail(&got));
    }
}

#[test]
fn who_reads_what_is_not_known_waits() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let [writer, deleter, stale, reader] = [(); 4].map(|()| rig.net.connect());
    let long = value(20_000, 1); // more than is copied
    rig.set(&writer, "long", &long);
    for key in ["a", "b", "stale"] {
        rig.set(&writer, key, b"1");
    }
    check(&mut rig, &writer, &[("md stale I\r\n", "HD\r\n")]);
    kept.gate.commits_wait.store(true, Relaxed);
    begin(&mut rig, &writer, b"set long 0 0 1\r\nl\r\n");
    begin(&mut rig, &deleter, &words("MSET a 2 b 2"));
    begin(&mut rig, &stale, b"set stale 0 0 1\r\nn\r\n");
    let readers = ["long", "a", "stale"].map(|key| {
        let reader = rig.net.connect();
        begin(&mut rig, &reader, format!("get {key}\r\n").as_bytes());
        reader
    });
    begin(&mut rig, &reader, b"mg b v h\r\n");
    assert_eq!(answered_before(&rig), 0);
    end(&mut rig, &kept, &writer, b"STORED\r\n");
    for (reader, value) in readers.iter().zip(["long 0 1\r\nl", "a 0 1\r\n2", "stale 0 1\r\nn"]) {
        let got = rig.until(reader, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert_eq!(String::from_utf8_lossy(&got), format!("VALUE {value}\r\nEND\r\n"));
    }
    let got = rig.until(&reader, Vec::new(), |got| got.ends_with(b"2\r\n"));
    assert_eq!(got, b"VA 1 h0\r\n2\r\n");
}

/// Reads that go together were weighed by the short value that there is now.
#[test]
fn one_batch_is_told_no_more_of_what_was_there_than_reads_may_find() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let (writer, reader) = (rig.net.connect(), rig.net.connect());
    let long = value(10_000, 1);
    rig.set(&writer, "k", &long);
    kept.gate.commits_wait.store(true, Relaxed);
    begin(&mut rig, &writer, b"set k 0 0 3\r\nnew\r\n");
    let batch = [&b"delete none\r\n"[..], &b"mg k v\r\n".repeat(5)].concat();
    begin(&mut rig, &reader, &batch);
    assert_eq!(answered_before(&rig), 3);
    end(&mut rig, &kept, &writer, b"STORED\r\n");
    let old = [&b"VA 10000\r\n"[..], &long, b"\r\n"].concat();
    let new = b"VA 3\r\nnew\r\n".repeat(2);
    let wanted = [&b"NOT_FOUND\r\n"[..], &old.repeat(3), &new].concat();
    let told = rig.until(&reader, Vec::new(), |got| got.len() >= wanted.len());
    assert!(told == wanted, "{}", rig::tail(&told));
}

/// `WATCH k`, `GET k`, `MULTI`, `SET k`, `EXEC` loses no update.
#[test]
fn what_was_told_to_who_watches_a_key_is_a_change_when_it_ends() {
    for ends_first in [true, false] {
        let (mut rig, kept, writer) = begun(FORMS[1]);
        let client = rig.net.connect();
        for (line, reply) in [
            ("WATCH k", "+OK\r\n"),
            ("GET k", "$3\r\nold\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SET k lost", "+QUEUED\r\n"),
        ] {
            assert_eq!(rig.say_resp(&client, line), reply, "{line}");
        }
        if ends_first {
            end(&mut rig, &kept, &writer, b"STORED\r\n");
        }
        assert_eq!(rig.say_resp(&client, "EXEC"), "*-1\r\n");
        if !ends_first {
            end(&mut rig, &kept, &writer, b"STORED\r\n");
        }
        assert_eq!(rig.say_resp(&client, "GET k"), "$3\r\nnew\r\n");
    }
}
