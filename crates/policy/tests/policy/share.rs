//! The rules by which two lanes share a worker.

use laneway_policy::share::{
    Depth, REQUESTS_BESIDE_LARGE, REQUESTS_BESIDE_URGENT, REQUESTS_PER_TURN, RUN_BYTES,
    RUN_BYTES_URGENT, Round, Run, Share, Step, URGENT_IN_A_ROW, Waiting, requests_between_slices,
    requests_per_turn,
};
use laneway_policy::{BATCH, BATCH_BESIDE_LARGE, SLICE_BYTES};
use proptest::prelude::*;
use std::collections::VecDeque;

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
        (1, 9, 3),
        (3, 0, 4),
        (8, 0, 4), // as beside eight plain ones
        (20, 0, 2),
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

#[test]
fn a_transfer_has_its_run_and_goes_to_the_end_of_the_line_that_it_changes_to() {
    let slice = SLICE_BYTES.0 as usize;
    for (is_urgent, slices) in [(false, RUN_BYTES / slice), (true, RUN_BYTES_URGENT / slice)] {
        let mut run = Run::default();
        for number in 1..=slices {
            let goes_on = run.goes_on(slice, is_urgent, is_urgent);
            assert_eq!(goes_on, number < slices, "slice {number}, {is_urgent}");
        }
        let mut run = Run::default();
        assert!(!run.goes_on(slice, is_urgent, !is_urgent), "it overtakes nobody there");
    }
}

/// A transfer in line, and what it has moved of its run.
struct Transfer {
    number: usize,
    run: Run,
}

/// Two lines as the server keeps them, plain and urgent, of transfers that never end. Number 0
/// comes last in its line; says how many slices the others have before its first one, and what is
/// stated. After each slice the next of `fates` says what becomes of the class of who had it, and
/// whether somebody joins.
fn slices_before_the_last(
    (plain, urgent): (usize, usize),
    is_urgent: bool,
    fates: &[(bool, Option<bool>)],
) -> (usize, usize) {
    let new = |number| Transfer { number, run: Run::default() };
    let mut lines = [VecDeque::new(), VecDeque::new()];
    let mut joined = 0;
    for (line, others) in lines.iter_mut().zip([plain, urgent]) {
        for _ in 0..others {
            joined += 1;
            line.push_back(new(joined));
        }
    }
    let others = lines[usize::from(is_urgent)].len();
    lines[usize::from(is_urgent)].push_back(new(0));
    let slice = SLICE_BYTES.0 as usize;
    let stated = match is_urgent {
        true => (others * (RUN_BYTES_URGENT / slice) * 4).div_ceil(3) + 1,
        false => others * (RUN_BYTES / slice) * 4 + URGENT_IN_A_ROW as usize,
    };
    let mut share = Share::default();
    let mut fates = fates.iter().cycle();
    for spent in 0..=stated {
        let total = waiting(lines[1].len() as u32, lines[0].len() as u32);
        let was_urgent = share.next_is_urgent(total).expect("somebody waits");
        let mut next = lines[usize::from(was_urgent)].pop_front().expect("it was counted");
        if next.number == 0 {
            return (spent, stated);
        }
        let &(changes, joins) = fates.next().expect("they begin again");
        if let Some(urgent) = joins {
            joined += 1;
            lines[usize::from(urgent)].push_back(new(joined));
        }
        let is_urgent = was_urgent != changes;
        let line = &mut lines[usize::from(is_urgent)];
        match next.run.goes_on(slice, was_urgent, is_urgent) {
            true => line.push_front(next),
            false => line.push_back(new(next.number)),
        }
    }
    (stated + 1, stated)
}

proptest! {
    /// Whoever joins, and whoever changes its class between two slices.
    #[test]
    fn nobody_who_waits_is_passed_over_for_longer_than_stated(
        others in (0_usize..6, 0_usize..6),
        is_urgent in any::<bool>(),
        fates in proptest::collection::vec(
            (proptest::bool::weighted(0.1), proptest::option::weighted(0.05, any::<bool>())),
            1..200,
        ),
    ) {
        let (spent, stated) = slices_before_the_last(others, is_urgent, &fates);
        prop_assert!(spent <= stated, "more than {stated} slices of others came first");
    }

    /// Urgency takes half of what as many plain transfers leave to small requests, at most.
    #[test]
    fn urgency_takes_half_of_the_small_lane_at_most(
        (urgent, plain) in (0_u32..100, 0_u32..100),
        depth in 1_u32..40,
    ) {
        let (some, none) = (waiting(urgent, plain), waiting(0, urgent + plain));
        let (requests, of_plain) = (requests_between_slices(some), requests_between_slices(none));
        prop_assert!(requests <= of_plain && 2 * requests >= of_plain);
        prop_assert!(urgent == 0 || requests == of_plain.min(REQUESTS_BESIDE_URGENT));
        let mut turns = Depth::default();
        (0..64).for_each(|_| turns.note(1, depth));
        let connections = turns.connections_between_slices(some);
        let of_plain = turns.connections_between_slices(none);
        prop_assert!(connections <= of_plain && connections >= (of_plain / 2).max(1));
    }
}

#[test]
fn a_round_serves_what_is_ready_then_what_had_to_wait_then_one_slice() {
    let mut round = Round::default();
    assert_eq!(round.next(3, 3), Step::Over, "nothing is served before it begins");
    // Of those that wait as many have a turn as the burst has; who joins them in this round waits.
    for (burst, ready, again, second) in
        [(2, 2, 5, 2), (4, 3, 1, 4), (1, 0, 9, 1), (8, 0, 0, 0), (3, 3, 3, 3)]
    {
        round.begin(burst);
        let (mut left, mut waiting, mut steps) = (ready, again, Vec::new());
        while steps.last() != Some(&Step::Over) {
            let step = round.next(left, waiting);
            match step {
                Step::Ready => (left, waiting) = (left - 1, waiting + 1),
                Step::Again => waiting -= 1,
                Step::Slice | Step::Over => {}
            }
            steps.push(step);
        }
        let turns = [vec![Step::Ready; ready], vec![Step::Again; second]].concat();
        let expected = [turns, vec![Step::Slice, Step::Over]].concat();
        assert_eq!(steps, expected, "{burst} of {ready} and {again}");
    }
}

#[test]
fn a_turn_and_a_round_are_shorter_while_a_transfer_waits() {
    let depth = Depth::default();
    assert_eq!(depth.burst(Waiting::default()), BATCH);
    assert_eq!(depth.burst(waiting(0, 1)), BATCH_BESIDE_LARGE);
    assert_eq!(requests_per_turn(Waiting::default()), REQUESTS_PER_TURN);
    assert_eq!(requests_per_turn(waiting(1, 0)), REQUESTS_BESIDE_LARGE);
}
