//! Reads of the lane while the values are overwritten: none may be torn, and without the look at
//! the version some are.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]

mod common;

use common::frame::{self, Frame};
use common::writer::{PLAIN, Writer};
use laneway_kernel::{Outcome, Program};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const KEY: &[u8] = b"key";
const VALUE_BYTES: usize = 1200;

/// Read up to `reads` times while a thread overwrites; how many replies were torn (at most 1 where
/// `stop_at_first`), and what was counted.
fn hunt(program: Program, reads: u64, stop_at_first: bool) -> (u64, u64, u64) {
    let mut writer = Writer::new(program, &["10.9.0.1"]).expect("loaded");
    let places = [writer.slot(), writer.slot()];
    let mut linked = writer.record(places[0], KEY, &[b'a'; VALUE_BYTES], PLAIN);
    writer.link(KEY, None, linked);
    let (writer, done, overwrites) = (&writer, AtomicBool::new(false), AtomicU64::new(0));
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                if done.load(Relaxed) {
                    return;
                }
                // By turns: the record that is not linked, and perhaps still read, is reused.
                let value = [b'a' + (round % 26) as u8; VALUE_BYTES];
                let word = writer.record(places[round % 2], KEY, &value, PLAIN);
                writer.link(KEY, Some(linked), word);
                linked = word;
                overwrites.fetch_add(1, Relaxed);
            }
        });
        let torn = read(writer, reads, stop_at_first);
        done.store(true, Relaxed);
        torn
    });
    let counts = writer.lane.counts().expect("counters");
    println!(
        "{program:?}: {} hits during {} overwrites, {} retries, {torn} torn",
        counts.of(Outcome::Hit),
        overwrites.load(Relaxed),
        counts.retries()
    );
    (torn, counts.of(Outcome::Hit), overwrites.load(Relaxed))
}

fn read(writer: &Writer, reads: u64, stop_at_first: bool) -> u64 {
    let request = Frame::v4(b"get key\r\n").bytes();
    let mut torn = 0;
    for _ in 0..reads {
        let answered = writer.lane.try_frame(&request, 1).expect("a trial run");
        if !answered.hit {
            continue;
        }
        let text = frame::open(&answered.frame).text;
        let value = &text["VALUE key 0 1200\r\n".len()..][..VALUE_BYTES];
        torn += u64::from(value.iter().any(|&byte| byte != value[0]));
        if torn > 0 && stop_at_first {
            break;
        }
    }
    torn
}

fn possible() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if cpus < 2 {
        println!("SKIPPED: one CPU: a program is never interrupted by its writer");
    }
    cpus >= 2 && common::available()
}

#[test]
fn no_reply_is_torn_while_values_are_overwritten() {
    if possible() {
        let (torn, hits, overwrites) = hunt(Program::TrafficControl, 100_000, false);
        assert_eq!(torn, 0);
        assert!(hits > 0 && overwrites > 0, "{hits} hits, {overwrites} overwrites");
    }
}

#[test]
fn without_validation_replies_are_torn() {
    if possible() {
        let (torn, ..) = hunt(Program::Unvalidated, 2_000_000, true);
        assert!(torn > 0, "the hunt would not notice");
    }
}
