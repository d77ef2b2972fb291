//! When a connection that was moved goes home.

use crate::{etc_mix, load, plan_after};
use laneway_policy::migrate::{IDLE_TURNS_MAX, SMALL_IN_A_ROW_MAX, Stay, Visit, home};
use laneway_policy::{Settings, WorkerId};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn a_pipeline_of_small_requests_goes_home() {
    let mut visit = Visit::new(WorkerId(1));
    visit.large_served();
    for served in 1..=SMALL_IN_A_ROW_MAX {
        visit.small_served();
        let expected = if served < SMALL_IN_A_ROW_MAX { Stay::Here } else { Stay::GoHome };
        assert_eq!(visit.turn_ended(false, false), expected, "{served} small requests");
    }
    assert_eq!(visit.home(), WorkerId(1));
}

#[test]
fn an_idle_turn_goes_home() {
    let mut visit = Visit::new(WorkerId(0));
    visit.large_served();
    assert_eq!(visit.turn_ended(false, false), Stay::Here);
    for idle in 1..=IDLE_TURNS_MAX {
        let expected = if idle < IDLE_TURNS_MAX { Stay::Here } else { Stay::GoHome };
        assert_eq!(visit.turn_ended(false, true), expected);
    }
}

#[test]
fn a_mixed_pipeline_stays() {
    let mut visit = Visit::new(WorkerId(0));
    for _ in 0..100 {
        visit.large_served();
        for _ in 1..SMALL_IN_A_ROW_MAX {
            visit.small_served();
            assert_eq!(visit.turn_ended(false, false), Stay::Here);
        }
    }
}

#[test]
fn a_home_that_turned_large_is_replaced_by_small_ones_evenly() {
    let settings = Settings { workers: 6, ..Settings::default() };
    let plan = plan_after(&settings, &load(etc_mix(100_000, 0.75, 500_000)), 1);
    let small = usize::from(plan.workers_small);
    assert!(plan.workers_large() > 1);
    for worker in plan.small_ids() {
        assert_eq!(home(&plan, worker, 77), worker);
    }
    for worker in plan.large_ids() {
        let mut counts = vec![0; small];
        for connection in 0..10 * small as u64 {
            counts[home(&plan, worker, connection).index()] += 1;
        }
        assert!(counts.iter().all(|&count| count == 10), "{counts:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Small,
    Large,
    Turn { busy: bool, idle: bool },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let turn = (any::<bool>(), any::<bool>()).prop_map(|(busy, idle)| Event::Turn { busy, idle });
    vec(prop_oneof![4 => Just(Event::Small), 1 => Just(Event::Large), 3 => turn], 0..60)
}

proptest! {
    /// Never while busy; only after enough small requests since the last large one, or when idle.
    #[test]
    fn nobody_goes_home_without_a_reason(events in events()) {
        let mut visit = Visit::new(WorkerId(0));
        let mut small = 0;
        for event in events {
            match event {
                Event::Small => { visit.small_served(); small += 1; }
                Event::Large => { visit.large_served(); small = 0; }
                Event::Turn { busy, idle } => {
                    let goes = visit.turn_ended(busy, idle) == Stay::GoHome;
                    let long_idle = idle && IDLE_TURNS_MAX == 1;
                    prop_assert_eq!(goes, !busy && (small >= SMALL_IN_A_ROW_MAX || long_idle));
                    if goes { break; }
                }
            }
        }
    }
}
