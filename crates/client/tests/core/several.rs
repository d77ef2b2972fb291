//! `get`s that wait together: which leave in one datagram, and what becomes of each.

use crate::mix::{MILLISECOND, SECOND};
use crate::rules::{header, reply, sent};
use laneway_client::{Answer, Core, Error, Request, Settings, Ticket, Topology};
use laneway_policy::Placement;
use laneway_wire::udp::{Header, Kind};
use std::collections::BTreeMap;

const TOPOLOGY: Topology = Topology::queues(11_211, 4);

fn core(settings: Settings) -> Core {
    Core::new(settings, TOPOLOGY, 1)
}

fn push(core: &mut Core, keys: &[&str]) -> Vec<Ticket> {
    let push = |key: &&str| core.push(Request::get(*key), 0).expect("it is a fine request");
    keys.iter().map(push).collect()
}

/// What the datagrams ask for.
fn lines(sent: &[(u16, Vec<u8>)]) -> Vec<String> {
    sent.iter().map(|(_, datagram)| String::from_utf8_lossy(&datagram[8..]).into_owned()).collect()
}

/// The answers there are: the value, or nothing.
fn answers(core: &mut Core) -> BTreeMap<Ticket, Option<String>> {
    std::iter::from_fn(|| core.answer())
        .map(|(ticket, answer)| match answer {
            Ok(Answer::Value(value)) => {
                (ticket, Some(String::from_utf8(value.data).expect("text")))
            }
            Ok(Answer::Missing) => (ticket, None),
            other => panic!("{ticket:?}: {other:?}"),
        })
        .collect()
}

/// Answers what one datagram asked.
fn answer(core: &mut Core, (queue, datagram): &(u16, Vec<u8>), text: &str, now_nanos: u64) {
    core.feed(*queue, &reply(header(datagram).request_id, text), now_nanos);
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn each_key_of_a_datagram_gets_the_answer_that_bears_its_name() {
    let mut core = core(Settings::default());
    let tickets = push(&mut core, &["a", "b", "a", "c"]);
    let under_way = sent(&mut core, 0);
    assert_eq!(lines(&under_way), ["get a b a c\r\n"]);
    // A stranger's value, and one of another length than it says, answer nothing.
    answer(&mut core, &under_way[0], "VALUE d 0 1\r\n1\r\nEND\r\n", 1);
    answer(&mut core, &under_way[0], "VALUE a 0 2\r\n1\r\nEND\r\n", 1);
    answer(&mut core, &under_way[0], "VALUE a 0 1\r\n1\r\n", 1);
    assert_eq!((core.counts().garbled, core.answer().is_none()), (3, true));
    let text = "VALUE c 7 2\r\n33\r\nVALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n";
    answer(&mut core, &under_way[0], text, 1);
    let expected = [some("1"), None, some("1"), some("33")];
    assert_eq!(answers(&mut core), tickets.into_iter().zip(expected).collect::<BTreeMap<_, _>>());
    assert!(core.is_idle() && core.wake_nanos().is_none());
    assert_eq!(core.counts().gathered, 4);
    // Nobody waits for it any more.
    answer(&mut core, &under_way[0], text, 2);
    assert_eq!((core.counts().stray, core.answer().is_none()), (1, true));
}

#[test]
fn as_many_leave_together_as_settings_and_a_datagram_allow() {
    let names: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let counts = |settings: Settings, keys: &[&str]| -> Vec<usize> {
        let mut core = core(settings);
        push(&mut core, keys);
        let lines = lines(&sent(&mut core, 0));
        lines.iter().map(|line| line.matches(' ').count()).collect()
    };
    assert_eq!(counts(Settings::default(), &names), [16, 4]);
    assert_eq!(counts(Settings { get_keys_max: 1, ..Settings::default() }, &names[..3]), [1, 1, 1]);
    assert_eq!(counts(Settings { get_keys_max: 0, ..Settings::default() }, &names[..2]), [1, 1]);
    let long = "k".repeat(250);
    assert_eq!(counts(Settings::default(), &[long.as_str(); 7]), [3, 3, 1], "1008 bytes of a line");
    let narrow = Settings { window_max: 1, ..Settings::default() };
    assert_eq!(counts(narrow, &names), [16], "a datagram is one of the window");
}

#[test]
fn only_plain_gets_for_one_place_leave_together() {
    let mut core = core(Settings::default());
    for request in [
        Request::get("a"),
        Request::get("b"),
        Request::set("c", "v"),
        Request::get("d"),
        Request::gets("e"),
        Request::get("f"),
        Request::get("g"),
    ] {
        core.push(request, 0).expect("it is a fine request");
    }
    let expected =
        ["get a b\r\n", "set c 0 0 1\r\nv\r\n", "get d\r\n", "gets e\r\n", "get f g\r\n"];
    assert_eq!(lines(&sent(&mut core, 0)), expected);
    // Where reads belong to the owner of their key, those of one owner.
    let placement = Placement::new(7, 4, 1).expect("there are queues");
    let owner = |key: &str| placement.owner(placement.hash(key.as_bytes())).0;
    let keys: Vec<String> = (0..100).map(|number| format!("key{number}")).collect();
    let of = |queue: u16| keys.iter().filter(move |key| owner(key) == queue).map(String::as_str);
    let keys: Vec<&str> = of(1).take(3).chain(of(2).take(2)).collect();
    let topology = TOPOLOGY.placed(placement).exclusive();
    let mut core = Core::new(Settings::default(), topology, 1);
    push(&mut core, &keys);
    let sent = sent(&mut core, 0);
    let queues: Vec<u16> = sent.iter().map(|(queue, _)| *queue).collect();
    assert_eq!(queues, [1, 2]);
    assert_eq!(
        lines(&sent),
        [&keys[..3], &keys[3..]].map(|keys| format!("get {}\r\n", keys.join(" ")))
    );
}

#[test]
fn in_memory_each_leaves_by_itself() {
    let mut core = Core::new(Settings::in_memory(), Topology::in_memory(2, 1 << 20), 1);
    push(&mut core, &["a", "b", "c"]);
    assert_eq!(lines(&sent(&mut core, 0)), ["get a\r\n", "get b\r\n", "get c\r\n"]);
}

#[test]
fn what_was_lost_together_is_asked_for_one_by_one_and_a_late_reply_counts() {
    let mut core = core(Settings::default());
    let tickets = push(&mut core, &["a", "b", "c"]);
    let together = sent(&mut core, 0);
    assert_eq!(together.len(), 1);
    let retry_nanos = core.wake_nanos().expect("a request is under way");
    core.tick(retry_nanos);
    let alone = sent(&mut core, retry_nanos);
    assert_eq!(lines(&alone), ["get a\r\n", "get b\r\n", "get c\r\n"]);
    assert_eq!(core.counts().retries, 3);
    answer(&mut core, &alone[1], "VALUE b 0 1\r\n2\r\nEND\r\n", retry_nanos + 1);
    assert_eq!(answers(&mut core), BTreeMap::from([(tickets[1], some("2"))]));
    let late = "VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n9\r\nEND\r\n";
    answer(&mut core, &together[0], late, retry_nanos + 2);
    let expected = [(tickets[0], some("1")), (tickets[2], None)];
    assert_eq!(answers(&mut core), BTreeMap::from(expected));
    assert!(core.is_idle() && core.wake_nanos().is_none());
    answer(&mut core, &alone[0], "END\r\n", retry_nanos + 3);
    assert_eq!((core.counts().stray, core.answer().is_none()), (1, true));
}

#[test]
fn what_was_lost_together_keeps_to_the_window_one_by_one() {
    let mut core = core(Settings { window_max: 2, ..Settings::default() });
    let names: Vec<String> = (0..32).map(|number| format!("key{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    push(&mut core, &names);
    assert_eq!(sent(&mut core, 0).len(), 2);
    core.tick(SECOND);
    let mut alone = sent(&mut core, SECOND);
    assert_eq!(alone.len(), 1, "half the window");
    let mut answered = 0;
    while !alone.is_empty() {
        assert!(alone.len() <= 2, "{:?}", lines(&alone));
        for datagram in &alone {
            answer(&mut core, datagram, "END\r\n", SECOND);
        }
        answered += answers(&mut core).len();
        alone = sent(&mut core, SECOND);
    }
    assert_eq!((answered, core.counts().gathered, core.counts().retries), (32, 32, 32));
    assert!(core.is_idle() && core.wake_nanos().is_none());
}

#[test]
fn whoever_slept_beyond_the_deadline_gives_up_what_was_pushed_and_no_more() {
    let mut core = core(Settings::default());
    push(&mut core, &["a", "b"]);
    assert_eq!(sent(&mut core, 0).len(), 1);
    core.tick(60 * SECOND);
    assert_eq!(std::iter::from_fn(|| core.answer()).count(), 2);
    assert_eq!((core.counts().given_up, core.is_idle()), (2, true));
}

#[test]
fn silence_ends_each_at_its_own_deadline() {
    let mut core = core(Settings::default());
    push(&mut core, &["a"]);
    core.push(Request::get("b"), SECOND).expect("it is a fine request");
    assert_eq!(lines(&sent(&mut core, SECOND)), ["get a b\r\n"]);
    let (mut now_nanos, mut ends) = (SECOND, Vec::new());
    while let Some(wake_nanos) = core.wake_nanos() {
        now_nanos = wake_nanos.max(now_nanos);
        core.tick(now_nanos);
        sent(&mut core, now_nanos);
        while let Some((_, answer)) = core.answer() {
            assert!(matches!(answer, Err(Error::TimedOut { attempts: 2.. })), "{answer:?}");
            ends.push(now_nanos);
        }
    }
    assert_eq!(ends, [5 * SECOND, 6 * SECOND]);
    assert!(core.is_idle());
}

#[test]
fn what_the_server_refuses_together_is_asked_for_one_by_one_at_once() {
    let mut core = core(Settings::default());
    push(&mut core, &["a", "b"]);
    let together = sent(&mut core, 0);
    answer(&mut core, &together[0], "SERVER_ERROR busy\r\n", MILLISECOND);
    let alone = sent(&mut core, MILLISECOND);
    assert_eq!(lines(&alone), ["get a\r\n", "get b\r\n"]);
    answer(&mut core, &alone[0], "SERVER_ERROR busy\r\n", MILLISECOND);
    answer(&mut core, &alone[1], "END\r\n", MILLISECOND);
    let told: Vec<_> = std::iter::from_fn(|| core.answer()).map(|(_, answer)| answer).collect();
    assert!(matches!(told[..], [Err(Error::Refused(_)), Ok(Answer::Missing)]), "{told:?}");
    assert!(core.is_idle());
}

#[test]
fn whoever_sends_no_cookie_back_asks_one_by_one_at_once() {
    let mut core = Core::new(Settings::default(), Topology::single(11_211), 1);
    push(&mut core, &["a", "b"]);
    let (queue, datagram) = sent(&mut core, 0).remove(0);
    let cookie = Header { kind: Kind::Cookie, ..Header::whole(header(&datagram).request_id) };
    let cookie = [&cookie.to_bytes()[..], b"ERROR cookie 1234\r\n"].concat();
    for _ in 0..2 {
        core.feed(queue, &cookie, MILLISECOND);
    }
    let alone = sent(&mut core, MILLISECOND);
    assert_eq!(lines(&alone), ["get a\r\n", "get b\r\n"]);
    for datagram in &alone {
        answer(&mut core, datagram, "END\r\n", MILLISECOND);
    }
    assert_eq!((answers(&mut core).len(), core.counts().stray, core.is_idle()), (2, 2, true));
}

#[test]
fn whoever_got_long_values_asks_one_by_one_for_a_while() {
    let mut core = core(Settings::default());
    let count = |core: &mut Core, value_bytes: usize| {
        push(core, &["a", "b", "c", "d"]);
        let under_way = sent(core, 0);
        for datagram in &under_way {
            let line = String::from_utf8_lossy(&datagram.1[8..]).into_owned();
            let value = "v".repeat(value_bytes);
            let item = |key: &str| format!("VALUE {key} 0 {value_bytes}\r\n{value}\r\n");
            let items: String = line[4..].trim_end().split(' ').map(item).collect();
            answer(core, datagram, &(items + "END\r\n"), 1);
        }
        while core.answer().is_some() {}
        assert!(core.is_idle());
        under_way.len()
    };
    assert_eq!(count(&mut core, 200), 1, "nothing is known of their lengths");
    assert_eq!(count(&mut core, 1000), 1, "a datagram holds four of 200");
    assert_eq!(count(&mut core, 10), 4, "and of 1000 bytes one");
    assert!((0..10).any(|_| count(&mut core, 10) == 1), "that is forgotten");
}

#[test]
fn what_carries_others_takes_no_room() {
    let settings = Settings { requests_max: 4, ..Settings::default() };
    let mut core = core(settings);
    push(&mut core, &["a", "b", "c"]);
    assert_eq!(sent(&mut core, 0).len(), 1);
    push(&mut core, &["d"]);
    assert!(matches!(core.push(Request::get("e"), 0), Err(Error::Full)));
    core.abandon(1);
    assert_eq!(std::iter::from_fn(|| core.answer()).count(), 4);
    assert!(core.is_idle() && core.has_room(&Request::get("f")));
}
