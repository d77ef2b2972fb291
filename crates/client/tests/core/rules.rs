//! What the core does where nothing, or nonsense, comes back; and what it holds at most.

use crate::mix::{MILLISECOND, SECOND};
use laneway_client::{
    Answer, Core, Error, Expiry, Refusal, Repeat, Request, Settings, Ticket, Topology,
};
use laneway_wire::udp::resend::put_resend;
use laneway_wire::udp::{
    DATAGRAM_BYTES_MAX, FRAME_BYTES_MAX, Gap, Header, Kind, MESSAGE_BYTES_MAX,
};
use std::sync::Arc;

const QUEUES: u16 = 4;

fn core(settings: Settings) -> Core {
    Core::new(settings, Topology::queues(11_211, QUEUES), 1)
}

/// Everything the core has to send now, as queue and datagram.
pub fn sent(core: &mut Core, now_nanos: u64) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(departure) = core.transmit(now_nanos, &mut out) {
        let datagrams = out.chunks(departure.segment_bytes);
        all.extend(datagrams.map(|datagram| (departure.queue, datagram.to_vec())));
    }
    all
}

/// A datagram and the queue it goes to.
type Sent = (u16, Vec<u8>);

/// Lets time pass, from one thing to do to the next, until the first answer: when that came, and
/// what was sent.
fn first_answer(core: &mut Core) -> (u64, Result<Answer, Error>, Vec<Sent>) {
    let mut now_nanos = 0;
    let mut all = Vec::new();
    loop {
        all.extend(sent(core, now_nanos));
        if let Some((_, answer)) = core.answer() {
            return (now_nanos, answer, all);
        }
        now_nanos = core.wake_nanos().expect("a request is under way").max(now_nanos);
        core.tick(now_nanos);
    }
}

pub fn header(datagram: &[u8]) -> Header {
    Header::parse(datagram).expect("the core sends headers").0
}

pub fn reply(id: u16, text: &str) -> Vec<u8> {
    [&Header::whole(id).to_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn silence_ends_at_the_deadline_and_the_error_says_what_may_have_happened() {
    let rows = [
        (Request::get("k"), false, true),
        (Request::stats(""), false, true),
        (Request::set("k", "v"), true, true),
        (Request::delete("k"), true, true),
        (Request::touch("k", Expiry::Seconds(1)), true, true),
        (Request::add("k", "v"), true, false),
        (Request::append("k", "v"), true, false),
        (Request::cas("k", "v", 1), true, false),
        (Request::increment("k", 1), true, false),
    ];
    for (request, unknown, repeated) in rows {
        let mut core = core(Settings::default());
        core.push(request.clone(), 0).expect("it is a fine request");
        let (at_nanos, answer, all) = first_answer(&mut core);
        assert_eq!(at_nanos, 5 * SECOND, "{request:?}");
        let sends = all.len() as u32;
        match answer {
            Err(Error::TimedOut { attempts }) => assert!(!unknown && attempts == sends),
            Err(Error::OutcomeUnknown { attempts }) => assert!(unknown && attempts == sends),
            other => panic!("{request:?}: {other:?}"),
        }
        assert_eq!(1 < sends, repeated, "{request:?} was sent {sends} times");
        let mut ids: Vec<u16> =
            all.iter().map(|(_, datagram)| header(datagram).request_id).collect();
        ids.dedup();
        assert_eq!(ids.len() == 1, unknown, "a read gets an id for each try: {ids:?}");
        assert!(core.is_idle());
    }
}

#[test]
fn a_client_that_was_stopped_past_the_deadline_sends_nothing_of_what_was_due_before() {
    for value in [vec![7; 10], vec![7; 100_000]] {
        let mut core = core(Settings::default());
        core.push(Request::set("k", value), 0).expect("it is a fine request");
        assert!(!sent(&mut core, 0).is_empty());
        let retry_nanos = core.wake_nanos().expect("a request is under way");
        core.tick(retry_nanos);
        // A repeat is due. The process goes on when the server remembers nothing any more.
        assert!(sent(&mut core, 12 * SECOND).is_empty(), "it would be carried out again");
        core.tick(12 * SECOND);
        let (_, answer) = core.answer().expect("its deadline has passed");
        assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{answer:?}");
        assert!(core.is_idle());
    }
}

#[test]
fn what_the_server_may_have_forgotten_is_not_repeated_however_long_it_is_waited_for() {
    let settings = Settings { deadline_nanos: 60 * SECOND, ..Settings::default() };
    for request in
        [Request::set("k", "v"), Request::set("k", vec![7; 100_000]), Request::delete("k")]
    {
        let mut core = core(settings.clone());
        core.push(request.clone(), 0).expect("it is a fine request");
        let (mut now_nanos, mut last_nanos) = (0, 0);
        let answer = loop {
            if !sent(&mut core, now_nanos).is_empty() {
                last_nanos = now_nanos;
            }
            if let Some((_, answer)) = core.answer() {
                break answer;
            }
            now_nanos = core.wake_nanos().expect("a request is under way").max(now_nanos);
            core.tick(now_nanos);
        };
        assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{answer:?}");
        assert_eq!(now_nanos, 60 * SECOND, "{request:?}");
        assert!((7 * SECOND..10 * SECOND).contains(&last_nanos), "{request:?}: {last_nanos}");
    }
    // Whoever misses frames of what was sent once has not carried it out.
    let mut core = core(settings);
    core.push(Request::set("k", vec![7; 5000]), 0).expect("it is a fine request");
    let (queue, datagram) = sent(&mut core, 0).remove(0);
    let Header { request_id, total, .. } = header(&datagram);
    core.tick(20 * SECOND);
    assert!(sent(&mut core, 20 * SECOND).is_empty());
    let mut asked = Vec::new();
    put_resend(&mut asked, request_id, total, [Gap { first: 0, count: 1 }]);
    core.feed(queue, &asked, 20 * SECOND);
    assert_eq!(sent(&mut core, 20 * SECOND), [(queue, datagram)]);
}

#[test]
fn a_server_that_knows_no_repeated_request_gets_every_change_once() {
    for request in
        [Request::set("k", "v"), Request::delete("k"), Request::touch("k", Expiry::Never)]
    {
        let mut single = Core::new(Settings::default(), Topology::single(11_211), 1);
        single.push(request.clone(), 0).expect("it is a fine request");
        let (_, answer, all) = first_answer(&mut single);
        assert!(matches!(answer, Err(Error::OutcomeUnknown { attempts: 1 })), "{answer:?}");
        assert_eq!((all.len(), header(&all[0].1).kind), (1, Kind::Data), "{request:?}");
    }
    let mut single = Core::new(Settings::default(), Topology::single(11_211), 1);
    single.push(Request::get("k"), 0).expect("it is a fine request");
    let (_, _, all) = first_answer(&mut single);
    assert!(all.len() > 1, "a read changes nothing");
}

#[test]
fn a_long_request_in_silence_repeats_its_last_frame_only() {
    let mut core = core(Settings::default());
    core.push(Request::set("k", vec![7; 100_000]), 0).expect("it is a fine request");
    let (_, answer, all) = first_answer(&mut core);
    assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })));
    let headers: Vec<Header> = all.iter().map(|(_, datagram)| header(datagram)).collect();
    let total = headers[0].total;
    assert!(headers[..usize::from(total)].iter().map(|header| header.sequence).eq(0..total));
    let rest = &headers[usize::from(total)..];
    assert!(!rest.is_empty() && rest.iter().all(|header| header.is_last()));
    assert!(all.iter().all(|(queue, datagram)| {
        *queue == all[0].0 && header(datagram).request_id == headers[0].request_id
    }));
}

#[test]
fn a_shared_value_is_sent_as_one_of_its_own_and_let_go_of_with_the_answer() {
    for bytes in [0, 1000, 100_000] {
        let shared = Arc::new(vec![7_u8; bytes]);
        let requests = [
            Request::set("k", shared.to_vec()).flags(9),
            Request::set("k", "another").flags(9).shared(shared.clone()),
        ];
        assert_eq!(requests[0], requests[1]);
        let [own, others] = requests.map(|request| {
            let mut core = core(Settings::default());
            core.push(request, 0).expect("it is a fine request");
            first_answer(&mut core).2
        });
        assert_eq!(own, others, "{bytes} bytes");
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}

#[test]
fn only_the_server_asked_and_the_reply_meant_are_believed() {
    let mut core = core(Settings::default());
    let ticket = core.push(Request::get("k"), 0).expect("it is a fine request");
    let (queue, datagram) = sent(&mut core, 0).remove(0);
    let id = header(&datagram).request_id;
    let right = "VALUE k 5 2\r\nhi\r\nEND\r\n";
    let other = (queue + 1) % QUEUES;
    core.feed(other, &reply(id, right), 1);
    core.feed(queue, &reply(id.wrapping_add(1), right), 1);
    assert_eq!(core.counts().stray, 2);
    core.feed(queue, &reply(id, right)[..7], 1);
    let unknown = Header { kind: Kind::Unknown(77), ..Header::whole(id) };
    core.feed(queue, &unknown.to_bytes(), 1);
    assert_eq!(core.counts().unintelligible, 2);
    for text in
        ["VALUE other 5 2\r\nhi\r\nEND\r\n", "STORED\r\n", "", "VALUE k 5 3\r\nhi\r\nEND\r\n"]
    {
        core.feed(queue, &reply(id, text), 1);
    }
    assert_eq!((core.counts().garbled, core.answer().is_none()), (4, true));
    core.feed(queue, &reply(id, right), 1);
    core.feed(queue, &reply(id, right), 1);
    let (told, answer) = core.answer().expect("the reply came");
    let Ok(Answer::Value(value)) = answer else { panic!("{answer:?}") };
    assert_eq!((told, &value.data[..], value.flags, value.cas), (ticket, &b"hi"[..], 5, None));
    assert_eq!((core.counts().stray, core.answer().is_none(), core.is_idle()), (3, true, true));
}

#[test]
fn noise_never_answers_and_never_stays() {
    for seed in 0..50 {
        let mut core = core(Settings { reply_bytes_max: 1 << 20, ..Settings::default() });
        let mut draws = fastrand::Rng::with_seed(seed);
        for request in [Request::get("k"), Request::set("k", vec![1; 5000]), Request::stats("")] {
            core.push(request, 0).expect("it is a fine request");
        }
        let ids: Vec<u16> =
            sent(&mut core, 0).iter().map(|(_, datagram)| header(datagram).request_id).collect();
        for at in 0..20_000_u64 {
            let length = draws.usize(8..68);
            let mut noise: Vec<u8> = (0..length).map(|_| draws.u8(..8)).collect();
            let id = ids[draws.usize(..ids.len())];
            noise[..2].copy_from_slice(&id.to_be_bytes());
            core.feed(draws.u16(..QUEUES), &noise, at);
            if at % 64 == 0 {
                core.tick(at * 1000);
                sent(&mut core, at * 1000);
            }
        }
        core.tick(6 * SECOND);
        let mut answers = 0;
        while let Some((_, answer)) = core.answer() {
            assert!(answer.is_err(), "seed {seed}: {answer:?}");
            answers += 1;
        }
        sent(&mut core, 6 * SECOND);
        assert!(answers == 3 && core.is_idle(), "seed {seed}");
    }
}

#[test]
fn a_cookie_goes_back_as_it_came_and_what_was_withheld_is_asked_for_again_once() {
    let rows = [
        (Request::get("k"), 1),
        (Request::set("k", "v"), 1),
        (Request::increment("k", 1), 0),
        (Request::set("k", vec![1; 5000]), 4),
        (Request::append("k", vec![1; 5000]), 4),
    ];
    for (request, again) in rows {
        let mut core = core(Settings::default());
        core.push(request.clone(), 0).expect("it is a fine request");
        let first = sent(&mut core, 0);
        let (queue, datagram) = &first[0];
        let id = header(datagram).request_id;
        let cookie = Header { kind: Kind::Cookie, ..Header::whole(id) };
        let cookie = [&cookie.to_bytes()[..], b"ERROR cookie 1234\r\n"].concat();
        core.feed(*queue, &cookie, MILLISECOND);
        let mut second = sent(&mut core, MILLISECOND);
        assert_eq!(second.remove(0), (*queue, cookie.clone()), "{request:?}");
        assert_eq!(second.len(), again, "{request:?}");
        let new_id = second.first().map(|(_, datagram)| header(datagram).request_id != id);
        assert_eq!(new_id.unwrap_or(false), request.repeat() == Repeat::Free);
        core.feed(*queue, &cookie, 2 * MILLISECOND);
        let third = sent(&mut core, 2 * MILLISECOND);
        assert!(third.len() <= 1, "it is asked for again once: {request:?}");
        let long = [&cookie[..], &[b'x'; 64]].concat();
        core.feed(*queue, &long, 3 * MILLISECOND);
        assert!(sent(&mut core, 3 * MILLISECOND).is_empty());
    }
}

#[test]
fn the_servers_no_is_told_in_its_words() {
    let mut core = core(Settings::default());
    core.push(Request::set("k", "v"), 0).expect("it is a fine request");
    let (queue, datagram) = sent(&mut core, 0).remove(0);
    let id = header(&datagram).request_id;
    core.feed(queue, &reply(id, "SERVER_ERROR out of memory storing object\r\n"), 1);
    let answer = core.answer().map(|(_, answer)| answer);
    let Some(Err(Error::Refused(Refusal::Server(why)))) = answer else { panic!("{answer:?}") };
    assert_eq!(why, "out of memory storing object");
}

#[test]
fn what_cannot_be_asked_is_refused_before_it_is_sent() {
    let mut extended = core(Settings::default());
    let mut single = Core::new(Settings::default(), Topology::single(11_211), 1);
    let long = "k".repeat(251);
    let fine = "k".repeat(250);
    type Check = fn(&Error) -> bool;
    let key: Check = |error| matches!(error, Error::BadKey);
    let expiry: Check = |error| matches!(error, Error::BadExpiry);
    let words: Check = |error| matches!(error, Error::BadWords);
    let rows: [(Request, Check); 9] = [
        (Request::get(""), key),
        (Request::get(long.as_str()), key),
        (Request::get("a b"), key),
        (Request::delete("a\r\nflush_all"), key),
        (Request::touch("k", Expiry::Seconds(0)), expiry),
        (Request::touch("k", Expiry::Seconds(2_592_001)), expiry),
        (Request::touch("k", Expiry::At(2_592_000)), expiry),
        (Request::stats("a\r\nflush_all"), words),
        (Request::set("k", vec![0; MESSAGE_BYTES_MAX]), |error| {
            matches!(error, Error::RequestTooLong { bytes_max: MESSAGE_BYTES_MAX, .. })
        }),
    ];
    for (request, expected) in rows {
        let error = extended.push(request, 0).expect_err("it cannot be asked");
        assert!(expected(&error), "{error:?}");
    }
    let error = single.push(Request::set("k", vec![0; FRAME_BYTES_MAX]), 0);
    let bytes_max = FRAME_BYTES_MAX;
    assert!(matches!(error, Err(Error::RequestTooLong { bytes_max: max, .. }) if max == bytes_max));
    assert!(single.is_idle() && extended.is_idle());
    extended.push(Request::get(fine.as_str()), 0).expect("250 bytes are a key");
    single.push(Request::set("k", vec![0; 1300]), 0).expect("it fits one datagram");
}

#[test]
fn a_full_core_says_so_and_takes_more_once_answers_are_taken() {
    let (requests_max, window_max, get_keys_max) = (3, 2, 1);
    let settings = Settings { requests_max, window_max, get_keys_max, ..Settings::default() };
    let mut full = core(settings.clone());
    for _ in 0..3 {
        full.push(Request::get("k"), 0).expect("there is room");
    }
    assert!(matches!(full.push(Request::get("k"), 0), Err(Error::Full)));
    let under_way = sent(&mut full, 0);
    assert_eq!(under_way.len(), 2, "the window holds the third back");
    for (queue, datagram) in &under_way {
        full.feed(*queue, &reply(header(datagram).request_id, "END\r\n"), 1);
    }
    assert!(!full.has_room(&Request::get("k")), "answers not taken count too");
    assert_eq!(full.answer().map(|(ticket, _)| ticket), Some(Ticket(1)));
    full.push(Request::get("k"), 1).expect("there is room again");

    let mut narrow = core(Settings { requests_max: 0, ..settings.clone() });
    narrow.push(Request::get("k"), 0).expect("one is always taken");
    assert!(matches!(narrow.push(Request::get("k"), 0), Err(Error::Full)));

    let mut heavy = core(Settings { request_bytes_max: 1000, ..settings });
    heavy.push(Request::set("k", vec![0; 5000]), 0).expect("one is always taken");
    assert!(matches!(heavy.push(Request::set("k", "v"), 0), Err(Error::Full)));
}

#[test]
fn a_reply_that_is_too_long_ends_its_request() {
    let settings = Settings { reply_message_bytes_max: 10_000, ..Settings::default() };
    let mut core = core(settings);
    core.push(Request::get("k"), 0).expect("it is a fine request");
    let (queue, datagram) = sent(&mut core, 0).remove(0);
    let id = header(&datagram).request_id;
    let long = Header { request_id: id, sequence: 0, total: 60_000, kind: Kind::Data };
    let mut datagram = long.to_bytes().to_vec();
    datagram.resize(DATAGRAM_BYTES_MAX, b'x');
    core.feed(queue, &datagram, 1);
    assert!(matches!(core.answer(), Some((_, Err(Error::ReplyTooLong)))));
}

#[test]
fn ids_that_rest_hold_new_requests_back_and_no_longer() {
    let (requests_max, window_max, get_keys_max) = (1 << 17, 1 << 17, 1);
    let settings = Settings { requests_max, window_max, get_keys_max, ..Settings::default() };
    let mut core = core(settings.clone());
    let count = (1 << 16) + 10;
    for _ in 0..count {
        core.push(Request::get("k"), 0).expect("there is room");
    }
    let first = sent(&mut core, 0);
    assert_eq!(first.len(), 1 << 16);
    for (queue, datagram) in &first {
        core.feed(*queue, &reply(header(datagram).request_id, "END\r\n"), MILLISECOND);
    }
    assert!(sent(&mut core, 2 * MILLISECOND).is_empty());
    let rested_nanos = MILLISECOND + settings.id_rest_nanos_read;
    assert_eq!(core.wake_nanos(), Some(rested_nanos));
    let late = sent(&mut core, rested_nanos);
    assert_eq!(late.len(), 10);
}

#[test]
fn an_id_that_may_be_answered_yet_rests_as_long_as_that_of_a_write() {
    let (requests_max, window_max, get_keys_max) = (1 << 17, 1 << 17, 1);
    let settings = Settings { requests_max, window_max, get_keys_max, ..Settings::default() };
    let mut core = core(settings.clone());
    core.push(Request::get("k"), 0).expect("there is room");
    let first = sent(&mut core, 0);
    let retry_nanos = core.wake_nanos().expect("it is under way");
    core.tick(retry_nanos);
    let second = sent(&mut core, retry_nanos);
    let answer = |core: &mut Core, sent: &[Sent], now_nanos| {
        for (queue, datagram) in sent {
            core.feed(*queue, &reply(header(datagram).request_id, "END\r\n"), now_nanos);
            assert!(matches!(core.answer(), Some((_, Ok(Answer::Missing)))));
        }
    };
    answer(&mut core, &second, retry_nanos);
    // All others, twice: the one that is late answers none of them.
    let late = header(&first[0].1).request_id;
    let mut now_nanos = retry_nanos;
    for _ in 0..2 {
        for _ in 0..(1 << 16) - 2 {
            core.push(Request::get("other"), now_nanos).expect("there is room");
        }
        let under_way = sent(&mut core, now_nanos);
        assert_eq!(under_way.len(), (1 << 16) - 2);
        assert!(under_way.iter().all(|(_, datagram)| header(datagram).request_id != late));
        answer(&mut core, &under_way, now_nanos);
        now_nanos += 2 * settings.id_rest_nanos_read;
    }
    core.push(Request::get("k"), now_nanos).expect("there is room");
    assert_eq!(sent(&mut core, now_nanos).len(), 1);
}

#[test]
fn abandoned_requests_are_answered_at_once() {
    let mut core = core(Settings::default());
    core.push(Request::set("k", "v"), 0).expect("it is a fine request");
    sent(&mut core, 0);
    core.push(Request::set("k", "v"), 0).expect("it is a fine request");
    core.abandon(1);
    let answers = [core.answer(), core.answer()].map(|answer| answer.map(|(_, answer)| answer));
    let [Some(Err(first)), Some(Err(second))] = answers else { panic!("{answers:?}") };
    assert!(matches!(first, Error::OutcomeUnknown { attempts: 1 }), "{first:?}");
    assert!(matches!(second, Error::TimedOut { attempts: 0 }), "it never left: {second:?}");
    assert!(core.is_idle());
}
