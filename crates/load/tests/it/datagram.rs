//! The UDP sender against scripted ports: everything sent is answered or lost, and every byte that
//! comes is looked at.

use crate::scripted::{Fault, Shared, serve};
use crate::scripted_udp::{Trouble, serve_udp};
use crate::within_tries;
use laneway_load::cli;
use laneway_load::connection::WRONG_BYTES;
use laneway_load::datagram::Counts;
use laneway_load::report::json::{Report, Run};
use laneway_load::run::run;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So few large SETs at once that the receive buffer of a scripted port, of the kernel's default
/// size, holds them all while nobody reads it.
const FEW: &str = "--closed --depth 1 --connections 2";
/// The same of requests and replies of one datagram.
const SOME: &str = "--closed --depth 4 --connections 8 --p-large 0";

struct Ran {
    report: Report,
    shared: Arc<Shared>,
    queues: Arc<Vec<AtomicU64>>,
}

impl Ran {
    fn run(&self) -> &Run {
        &self.report.runs[0]
    }

    /// What became of what; checks that nothing is missing.
    fn counts(&self) -> Counts {
        let counts = self.run().udp.expect("by UDP");
        assert_eq!(counts.sent, counts.answered + counts.lost, "{counts:?}");
        counts
    }
}

/// A tenth of the requests is for values of up to 30 KB, 22 datagrams.
const SMALL: &str = "--keys 200 --keys-large 20 --p-large 10 --s-large 30000 --get-share 0.8 \
                     --warmup 0 --duration 0.3 --drain 60";
/// Long enough for any machine: what is not lost in a test must not be.
const PATIENT: &str = "--timeout-ms 60000";

/// A run in whose window something was due: that of a closed loop may pass before its thread has
/// a CPU. `queues` are those that the server tells of, as ours do and memcached does not.
fn bench(trouble: Trouble, queues: Option<u16>, flags: &str) -> Ran {
    bench_with(Fault::None, trouble, queues, flags)
}

fn bench_with(fault: Fault, trouble: Trouble, queues: Option<u16>, flags: &str) -> Ran {
    within_tries(|| {
        let (address, shared) = serve(fault);
        let (port, counts) = serve_udp(&shared, queues.unwrap_or(1), trouble);
        let ports = match queues {
            None => format!("--udp-port {port}"),
            Some(queues) => {
                let told = format!("STAT udp_port_base {port}\r\nSTAT queues {queues}\r\n");
                shared.state.lock().unwrap().topology = told;
                "--udp".into()
            }
        };
        let line = format!("--server {address} {ports} {SMALL} {flags}");
        let plan = cli::plan(line.split_ascii_whitespace()).unwrap();
        let ran = Ran { report: run(&plan).unwrap(), shared, queues: counts };
        (ran.run().requests.counts.due > 0).then_some(ran)
    })
}

#[test]
fn everything_comes_back_right_in_either_loop() {
    // Of 240 requests 5 are large SETs; memcached would take none of them by UDP.
    let open = "--rate 800 --threads 2";
    for (flags, by_tcp) in [(open, true), ("--closed --depth 4", true), (FEW, false)] {
        within_tries(|| {
            let queues = (!by_tcp).then_some(1);
            let ran = bench(Trouble::None, queues, &format!("{flags} {PATIENT}"));
            let (requests, counts) = (&ran.run().requests.counts, ran.counts());
            assert!(ran.run().verdict.failed.is_none(), "{:?}", ran.run().verdict);
            // A client that this machine kept from reading loses what its socket has no room for.
            assert_eq!(requests.hits + requests.stored + requests.lost, requests.due);
            assert_eq!((counts.lost, counts.stray, counts.duplicates), (requests.lost, 0, 0));
            assert_eq!(counts.sent + counts.by_tcp, requests.due);
            assert!(by_tcp || counts.by_tcp == 0, "{counts:?}");
            let stored = 200 + requests.stored;
            let sets = ran.shared.state.lock().unwrap().sets as u64;
            assert!((stored..=stored + requests.lost).contains(&sets), "{sets} sets, {requests:?}");
            // Of a closed loop that had little time, not every kind was among the requests.
            let seen = requests.hits > 0
                && requests.stored > 0
                && counts.datagrams_received > counts.answered
                && (counts.by_tcp > 0) == by_tcp;
            seen.then_some(())
        });
    }
}

#[test]
fn long_keys_and_removals_go_by_datagrams() {
    within_tries(|| {
        let mix = "--key-bytes 120 --delete-share 0.1 --p-large 0";
        let ran = bench(Trouble::None, None, &format!("{SOME} {mix} {PATIENT}"));
        let (requests, counts) = (&ran.run().requests.counts, ran.counts());
        assert!(ran.run().verdict.failed.is_none(), "{:?}", ran.run().verdict);
        let ended = requests.hits + requests.misses + requests.stored + requests.deleted;
        assert_eq!(ended + requests.lost, requests.due);
        let state = ran.shared.state.lock().unwrap();
        assert!(state.values.keys().all(|key| key.len() == 120));
        // SETs that a longer key leaves no room for in a datagram go the other way.
        let seen = [requests.hits, requests.misses, requests.stored, requests.deleted];
        (seen.iter().all(|&count| count > 0) && counts.by_tcp > 0).then_some(())
    });
}

#[test]
fn gets_of_several_keys_are_whole_however_their_datagrams_come() {
    // Replies of one datagram, and of five.
    for (value_bytes, trouble) in
        [(7, Trouble::None), (400, Trouble::None), (400, Trouble::TwiceInReverse)]
    {
        within_tries(|| {
            let gets = format!("--keys-per-get 16 --get-share 1 --value-bytes {value_bytes}");
            let ran = bench(trouble, None, &format!("{SOME} {gets} {PATIENT}"));
            let (requests, counts) = (&ran.run().requests.counts, ran.counts());
            assert!(ran.run().verdict.failed.is_none(), "{:?}", ran.run().verdict);
            assert_eq!(requests.hits, 16 * (requests.due - requests.lost), "each key is one");
            assert_eq!((requests.misses, counts.by_tcp), (0, 0));
            (requests.hits > 0).then_some(())
        });
    }
}

#[test]
fn what_a_network_loses_is_counted_and_keeps_its_place_among_the_latencies() {
    let ran = bench(Trouble::Loses(20), None, "--rate 2000 --p-large 0 --timeout-ms 300");
    let (requests, counts) = (&ran.run().requests.counts, ran.counts());
    // Every twentieth reply of one datagram each, unless this machine took 300 ms for another.
    assert!(counts.lost >= counts.sent / 20, "{counts:?}");
    assert_eq!(requests.lost, counts.lost);
    assert_eq!(requests.hits + requests.stored + requests.lost, requests.due);
    assert!(ran.run().verdict.warnings.iter().any(|words| words.contains("were lost")));
    if let Some(latency_us) = &ran.run().latency_us {
        assert_eq!(latency_us.all.count, requests.due);
        assert!(latency_us.all.p99 >= 300_000.0 * 0.99, "{latency_us:?}");
    }
}

#[test]
fn a_closed_loop_goes_on_when_its_requests_are_lost() {
    let flags = "--closed --depth 2 --connections 4 --timeout-ms 20 --p-large 0";
    within_tries(|| {
        let counts = bench(Trouble::Silent, None, flags).counts();
        assert_eq!(counts.answered, 0);
        // Beyond those with which it began.
        (counts.lost > 8).then_some(())
    });
}

#[test]
fn datagrams_twice_and_in_reverse_do_no_harm() {
    let flags = format!("--rate 800 {PATIENT}");
    let ran = bench(Trouble::TwiceInReverse, None, &flags);
    assert!(ran.run().verdict.failed.is_none(), "{:?}", ran.run().verdict);
    let (requests, counts) = (&ran.run().requests.counts, ran.counts());
    assert_eq!(requests.hits + requests.stored + requests.lost, requests.due);
    assert_eq!(counts.lost, requests.lost);
    // The second copy of the datagram that ended a reply is for no request any more.
    assert!(counts.duplicates > 0 && counts.stray > 0, "{counts:?}");
}

#[test]
fn a_reply_from_another_port_is_nobodys() {
    within_tries(|| {
        let ran = bench(Trouble::AnotherPort, None, "--rate 1000 --p-large 0 --timeout-ms 20");
        let counts = ran.counts();
        assert_eq!((counts.answered, counts.lost), (0, counts.sent));
        // The run does not wait for it.
        (counts.stray > 0).then_some(())
    });
}

#[test]
fn a_reply_that_comes_too_late_answers_nothing() {
    // Each reply waits for the next request: one in flight never gets its own in time.
    let flags = "--closed --depth 1 --connections 1 --p-large 0 --get-share 1 --timeout-ms 20";
    within_tries(|| {
        let ran = bench(Trouble::HoldsEachBack, None, flags);
        let counts = ran.counts();
        assert_eq!((counts.answered, ran.run().requests.counts.corrupt), (0, 0));
        (counts.after_timeout > 0).then_some(())
    });
}

#[test]
fn a_wrong_byte_fails_the_run() {
    for keys in [1, 3] {
        let flags = format!("{SOME} --keys-per-get {keys} {PATIENT}");
        let ran = bench_with(Fault::FlipsLastByte, Trouble::None, None, &flags);
        let failed = ran.run().verdict.failed.as_ref().expect("failed");
        assert!(failed.contains(WRONG_BYTES), "{failed}");
        ran.counts();
    }
}

#[test]
fn rubbish_is_counted_and_passed_over() {
    let ran = bench(Trouble::Rubbish, None, &format!("{SOME} {PATIENT}"));
    let counts = ran.counts();
    assert_eq!(counts.lost, 0);
    assert_eq!((counts.other_kind, counts.impossible), (counts.sent, 2 * counts.sent));
}

#[test]
fn frames_that_the_server_misses_are_sent_again() {
    let flags = format!("{FEW} --get-share 0.2 --p-large 50 {PATIENT}");
    within_tries(|| {
        let ran = bench(Trouble::AsksAgain, Some(1), &flags);
        let counts = ran.counts();
        assert_eq!((counts.lost, ran.run().requests.counts.corrupt), (0, 0));
        (counts.resends_asked > 0).then_some(())
    });
}

#[test]
fn the_client_chooses_the_queue() {
    let served = |flags: &str| -> Vec<u64> {
        let ran = bench(Trouble::None, Some(4), &format!("--closed --depth 2 {PATIENT} {flags}"));
        assert_eq!(ran.counts().lost, 0);
        assert_eq!(ran.report.udp.as_ref().unwrap().queues, 4);
        ran.queues.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    };
    within_tries(|| {
        let any = served("--p-large 0 --get-share 1");
        any.iter().all(|&count| count > 0).then_some(())
    });
    // With a single key its owner takes every SET.
    let one = served("--keys 1 --keys-large 0 --p-large 0 --get-share 0");
    assert_eq!(one.iter().filter(|&&count| count > 0).count(), 1, "{one:?}");
}
