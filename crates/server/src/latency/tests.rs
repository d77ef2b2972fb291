//! What a book tells of the tallies that were settled in it.

use super::book::Latencies;
use super::*;

const SMALL: usize = row(Operation::Get, false);
const LARGE: usize = row(Operation::Get, true);

fn read(book: &RecordedLatencies) -> Vec<Latencies> {
    let mut rows = vec![Latencies::default(); ROWS];
    book.read_into(&mut rows);
    rows
}

#[test]
fn each_part_counts_every_request_and_their_times_add_up_to_the_whole() {
    let book = RecordedLatencies::default();
    let mut tally = PendingLatencies::default();
    tally.add_many(SMALL, 3, 1_000);
    book.settle(&mut tally, 5_000, |_, _| {}); // straight
    assert!(
        tally.is_empty()
            && tally == PendingLatencies { since_nanos: 1_000, ..PendingLatencies::default() }
    );

    tally.add(SMALL, 10_000);
    tally.begins(17_000);
    book.settle(&mut tally, 19_000, |_, _| {}); // behind others
    tally.add(LARGE, 20_000);
    tally.begins(20_000);
    tally.has_slice(50_000);
    tally.has_slice(60_000);
    tally.blocks(|| 70_000);
    tally.blocks(|| 75_000);
    tally.goes_on(|| 100_000);
    tally.goes_on(|| 110_000);
    book.settle(&mut tally, 120_000, |_, _| {});

    let rows = read(&book);
    for (row, requests, sums, whole) in [
        (SMALL, 4, [7_000, 3 * 4_000 + 2_000, 0], 3 * 4_000 + 9_000),
        (LARGE, 1, [30_000, 40_000, 30_000], 100_000),
    ] {
        let Latencies { whole: all, parts } = &rows[row];
        assert_eq!((all.count(), all.sum_nanos()), (requests, whole));
        for (part, sum) in Part::ALL.into_iter().zip(sums) {
            let told = &parts[part as usize];
            assert_eq!((told.count(), told.sum_nanos()), (requests, sum), "{}", part.name());
        }
    }
    let waits = &rows[SMALL].parts[Part::Wait as usize];
    assert_eq!(waits.below([128, 1 << 12, 1 << 13]), [3, 3, 4], "three did not wait");
}

#[test]
fn each_key_of_a_request_of_very_many_is_counted() {
    let book = RecordedLatencies::default();
    let (mut job, mut tally) = (PendingLatencies::default(), PendingLatencies::default());
    (0..3).for_each(|_| job.add_many(SMALL, u16::MAX, 1_000));
    job.add(SMALL, 1_000);
    tally.merge(&job);
    tally.merge(&job);
    let all = 2 * (3 * u64::from(u16::MAX) + 1);
    assert_eq!(tally.times(5_000, 0, 0).requests, all);
    let mut told = 0;
    book.settle(&mut tally, 5_000, |_, requests| told += requests);
    assert_eq!((told, read(&book)[SMALL].whole.count()), (all, all));
}

#[test]
fn a_reset_leaves_the_counters_as_they_are() {
    let book = RecordedLatencies::default();
    let settle = |requests: u16| {
        let mut tally = PendingLatencies::default();
        tally.add_many(SMALL, requests, 0);
        book.settle(&mut tally, 2_000, |_, _| {});
    };
    let since_reset = || {
        let mut rows = vec![histogram::Reading::default(); ROWS];
        book.read_whole_into(&mut rows);
        rows[SMALL].count()
    };
    settle(5);
    book.reset();
    assert_eq!((since_reset(), read(&book)[SMALL].whole.count()), (0, 5));
    settle(2);
    assert_eq!((since_reset(), read(&book)[SMALL].whole.count()), (2, 7));
}
