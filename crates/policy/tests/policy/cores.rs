//! How many workers are large, which, and when that changes.

use crate::{etc_mix, smooth};
use laneway_policy::cores::{ExtraGrant, GRANT_WAIT, Settled, UnknownForm, large_by_rule_lanes};
use laneway_policy::cores::{large_workers_lanes, roles, small_workers};
use laneway_policy::{CostModel, FRAME_BYTES, Form, Role};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn small_workers_are_the_ceiling_of_their_share() {
    let rows = [
        (0.0, 8, 1),
        (0.0001, 8, 1),
        (0.125, 8, 1),
        (0.126, 8, 2),
        (0.5, 2, 1),
        (0.51, 2, 2),
        (0.1 + 0.2, 10, 3),
        (0.8245, 8, 7),
        (0.999, 64, 64),
        (1.0, 1, 1),
    ];
    for (share, workers, expected) in rows {
        assert_eq!(small_workers(share, workers), expected, "{share} of {workers}");
    }
}

/// Minos §6: with packets as cost and 8 cores; §6.1 says one large core for the default mix.
#[test]
fn the_papers_mixes_give_the_papers_cores() {
    let rows = [(0.0625, 8), (0.125, 7), (0.25, 6), (0.5, 5), (0.75, 4)];
    for (large_percent, expected) in rows {
        let sizes = smooth(&etc_mix(200_000, large_percent, 500_000));
        let share = CostModel::Packets.small_share(&sizes, FRAME_BYTES);
        assert_eq!(small_workers(share, 8), expected, "p_L {large_percent}");
    }
}

#[test]
fn lanes_gives_one_large_worker_more() {
    let rows = [
        // by rule, workers, granted, large
        (0, 1, true, 0),
        (0, 2, true, 0),
        (1, 2, true, 1),
        (0, 3, true, 1),
        (0, 3, false, 0),
        (2, 3, true, 2),
        (0, 6, true, 1),
        (1, 6, true, 2),
        (5, 6, true, 5),
        (1, 6, false, 1),
    ];
    for (by_rule, workers, extra, large) in rows {
        assert_eq!(large_workers_lanes(by_rule, workers, extra), large, "{by_rule} of {workers}");
    }
}

#[test]
fn large_workers_come_last() {
    use Role::{Both, Large, Small, Standby};
    assert_eq!(roles(1, 0), [Both]);
    assert_eq!(roles(2, 0), [Small, Standby]);
    assert_eq!(roles(2, 1), [Small, Large]);
    assert_eq!(roles(6, 2), [Small, Small, Small, Small, Large, Large]);
}

#[test]
fn the_form_follows_the_workers() {
    let rows = [(1, Form::TimeShare), (2, Form::TimeShare), (3, Form::Roles), (64, Form::Roles)];
    for (workers, form) in rows {
        assert_eq!(Form::of_workers(workers), form);
        assert_eq!(form.to_string().parse(), Ok(form));
    }
    assert_eq!("lanes".parse::<Form>(), Err(UnknownForm));
}

const SAMPLES_MIN: u64 = 1000;
const THIN: u64 = SAMPLES_MIN - 1;
const EPOCHS: u16 = 3;

fn check_settled(start: u16, epochs: &[(u16, u64)], expected: &[u16]) {
    let mut settled = Settled::new(start, SAMPLES_MIN, EPOCHS);
    let got: Vec<u16> =
        epochs.iter().map(|&(asked, samples)| settled.ask(asked, samples)).collect();
    assert_eq!(got, expected, "from {start}, asked {epochs:?}");
}

#[test]
fn thin_epochs_must_agree() {
    check_settled(1, &[(3, SAMPLES_MIN), (1, SAMPLES_MIN)], &[3, 1]);
    check_settled(1, &[(2, THIN), (2, THIN), (2, THIN)], &[1, 1, 2]);
    check_settled(1, &[(4, THIN), (2, THIN), (3, THIN)], &[1, 1, 2]);
    check_settled(4, &[(1, THIN), (3, THIN), (2, THIN)], &[4, 4, 3]);
    check_settled(1, &[(2, THIN), (2, THIN), (1, THIN), (2, THIN)], &[1, 1, 1, 1]);
    check_settled(2, &[(3, THIN), (3, THIN), (1, THIN), (3, THIN)], &[2, 2, 2, 2]);
    check_settled(1, &[(2, THIN), (2, THIN), (9, 0), (2, THIN)], &[1, 1, 1, 2]);
    check_settled(1, &[(2, THIN), (2, THIN), (1, SAMPLES_MIN), (2, THIN)], &[1, 1, 1, 1]);
}

/// The rule once more, from the whole history of thin epochs since the last settlement.
fn settled_by_history(start: u16, epochs_needed: usize, epochs: &[(u16, u64)]) -> Vec<u16> {
    let mut current = start;
    let mut history: Vec<u16> = Vec::new();
    let step = |&(asked, samples): &(u16, u64)| {
        if samples >= SAMPLES_MIN {
            current = asked;
            history.clear();
        } else if samples > 0 {
            history.push(asked);
            let recent = &history[history.len().saturating_sub(epochs_needed)..];
            let more = recent.iter().all(|&asked| asked > current);
            let fewer = recent.iter().all(|&asked| asked < current);
            if recent.len() == epochs_needed && (more || fewer) {
                let nearest = if more { recent.iter().min() } else { recent.iter().max() };
                current = *nearest.expect("at least one epoch is needed");
                history.clear();
            }
        }
        current
    };
    epochs.iter().map(step).collect()
}

proptest! {
    #[test]
    fn small_workers_are_bounded_and_monotone(
        share in 0.0_f64..=1.0,
        more in 0.0_f64..=1.0,
        workers in 1_u16..=64,
    ) {
        let small = small_workers(share, workers);
        prop_assert!((1..=workers).contains(&small));
        prop_assert!(f64::from(small) >= share * f64::from(workers) - 1e-6);
        prop_assert!(f64::from(small) < (share * f64::from(workers)).max(0.0) + 1.0 + 1e-6);
        prop_assert!(small_workers((share + more).min(1.0), workers) >= small);
    }

    #[test]
    fn hysteresis_follows_its_rule(
        start in 0_u16..6,
        needed in 1_u16..5,
        epochs in vec((0_u16..6, prop_oneof![Just(0), Just(THIN), Just(THIN), Just(SAMPLES_MIN)]),
            0..60),
    ) {
        let mut settled = Settled::new(start, SAMPLES_MIN, needed);
        let got: Vec<u16> =
            epochs.iter().map(|&(asked, samples)| settled.ask(asked, samples)).collect();
        prop_assert_eq!(got, settled_by_history(start, usize::from(needed), &epochs));
    }

    #[test]
    fn a_change_by_k_touches_k_workers(
        workers in 2_u16..=64,
        before in 0_u16..64,
        after in 0_u16..64,
    ) {
        let (before, after) = (before % workers, after % workers);
        let (was, is) = (roles(workers, before), roles(workers, after));
        let touched = was.iter().zip(&is).filter(|(was, is)| was != is).count();
        // From or to none, the standby is one of those touched.
        prop_assert_eq!(touched, usize::from(before.abs_diff(after)));
        prop_assert_eq!(is.iter().filter(|role| **role == Role::Large).count(), usize::from(after));
        prop_assert_eq!(is.contains(&Role::Standby), after == 0);
        prop_assert_eq!(is[0], Role::Small);
    }

    /// Granted exactly when none of the last `EPOCHS` epochs backed up.
    #[test]
    fn the_extra_worker_goes_at_once_and_comes_back_late(backed_up in vec(any::<bool>(), 0..40)) {
        let mut grant = ExtraGrant::new(EPOCHS);
        prop_assert!(grant.granted());
        let mut quiet = 0;
        for now in backed_up {
            quiet = if now { 0 } else { quiet + 1 };
            let granted = grant.after_epoch(now);
            if now {
                prop_assert!(!granted);
            }
            if quiet >= 32 * GRANT_WAIT * EPOCHS {
                prop_assert!(granted);
            }
        }
    }
}

/// Quiet epochs until the worker is back, each time after so many epochs with it.
#[test]
fn an_extra_worker_that_fills_the_wire_again_waits_twice_as_long() {
    let first = GRANT_WAIT;
    let rows = [
        vec![(0, first), (0, 2 * first), (first - 1, 4 * first)],
        vec![(5, first), (first, first), (2 * first, first), (0, 2 * first)],
        vec![(0, first), (0, 2 * first), (2 * first, first)],
    ];
    for row in rows {
        let mut grant = ExtraGrant::new(1);
        for &(epochs_with, wait) in &row {
            for _ in 0..epochs_with {
                assert!(grant.after_epoch(false));
            }
            assert!(!grant.after_epoch(true));
            let quiet = (1..=u16::MAX).find(|_| grant.after_epoch(false));
            assert_eq!(quiet, Some(wait), "{row:?}");
        }
    }
}

#[test]
fn a_standby_that_is_half_busy_counts() {
    let rows = [(1.0, 8, 0), (0.94, 8, 0), (0.937, 8, 1), (0.884, 8, 1), (0.7, 8, 2), (0.5, 1, 0)];
    for (small_share, workers, expected) in rows {
        assert_eq!(large_by_rule_lanes(small_share, workers), expected, "{small_share}");
    }
}
