//! The rules by which two lanes share a worker.

use laneway_policy::BATCH_BESIDE_LARGE;
use laneway_policy::share::{Depth, Share, URGENT_IN_A_ROW, Waiting, requests_between_slices};
use proptest::prelude::*;

fn waiting(urgent: u32, plain: u32) -> Waiting {
    Waiting { urgent, plain }
}

#[test]
fn the_more_transfers_wait_the_fewer_small_requests_come_between_two_slices() {
    for (urgent, plain, requests) in [
        (0, 1, 8), // as ever
        (0, 2, 7),
        (0, 9, 4),
        (1, 0, 4),
        (1, 9, 2),
        (3, 0, 2),
        (7, 0, 1),
        (0, 1_000, 1),
        (u32::MAX, u32::MAX, 1),
    ] {
        let found = requests_between_slices(waiting(urgent, plain));
        assert_eq!(found, requests, "{urgent} urgent, {plain} plain");
    }
}

#[test]
fn a_pipeline_has_one_connection_between_two_slices_and_single_requests_have_eight() {
    let mut depth = Depth::default();
    assert_eq!(depth.connections_between_slices(waiting(0, 1)), BATCH_BESIDE_LARGE);
    assert_eq!(depth.connections_between_slices(waiting(1, 0)), 4);
    for _ in 0..64 {
        depth.note(8, 8 * 16);
    }
    assert_eq!(depth.connections_between_slices(waiting(0, 1)), 1);
    for _ in 0..64 {
        depth.note(8, 8);
    }
    assert_eq!(depth.connections_between_slices(waiting(0, 1)), BATCH_BESIDE_LARGE);
    // A turn in which nobody was served says nothing, and no number is too large.
    depth.note(0, 0);
    depth.note(1, u32::MAX);
    assert_eq!(depth.connections_between_slices(waiting(0, 1)), 1);
}

#[test]
fn where_both_wait_a_plain_transfer_has_one_slice_in_four() {
    let mut share = Share::default();
    let both = waiting(2, 2);
    let urgent: Vec<bool> = (0..8).filter_map(|_| share.next_is_urgent(both)).collect();
    assert_eq!(urgent, [true, true, true, false, true, true, true, false]);
    assert_eq!(URGENT_IN_A_ROW, 3);
    assert_eq!(share.next_is_urgent(waiting(0, 0)), None);
    // Who was alone for long owes nothing.
    for _ in 0..100 {
        assert_eq!(share.next_is_urgent(waiting(1, 0)), Some(true));
    }
    assert_eq!(share.next_is_urgent(both), Some(true));
    assert_eq!(share.next_is_urgent(waiting(0, 1)), Some(false));
}

proptest! {
    /// A crowd of transfers comes to its end within the slices that are stated, whoever joins.
    #[test]
    fn nobody_who_waits_is_passed_over_for_longer_than_stated(
        slices in 1_u32..20,
        others in proptest::collection::vec((any::<bool>(), 1_u32..30), 1..20),
        is_urgent in any::<bool>(),
    ) {
        // First come, first served by slices in each of the two lines, the one we watch comes last.
        let mut lines = [Vec::new(), Vec::new()];
        for (urgent, left) in others.iter().chain([&(is_urgent, slices)]) {
            lines[usize::from(*urgent)].push(*left);
        }
        let of = |lines: &[Vec<u32>; 2]| waiting(lines[1].len() as u32, lines[0].len() as u32);
        let (total, mut share, mut spent) = (of(&lines), Share::default(), 0);
        let mut places = [lines[0].len(), lines[1].len()];
        let mine = usize::from(is_urgent);
        let mut left = slices;
        // The others never end: whoever had its slice is in line again.
        while left > 0 {
            let line = usize::from(share.next_is_urgent(total).expect("somebody waits"));
            spent += 1;
            places[line] -= 1;
            if places[line] == 0 {
                places[line] = lines[line].len();
                left -= u32::from(line == mine);
            }
        }
        prop_assert!(spent <= slices * (total.urgent + total.plain) * (URGENT_IN_A_ROW + 1));
    }
}
