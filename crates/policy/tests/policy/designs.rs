//! Whole control loops: load in, plan out, epoch after epoch, at 2 and at 6 workers and at all
//! others up to 64.

use crate::{etc_mix, load, plan_after};
use laneway_policy::cores::GRANT_WAIT;
use laneway_policy::designs::SLICES_UNSENT_MAX;
use laneway_policy::plan::{STEAL_QUEUE_MIN, STEAL_QUEUE_MIN_FULL_WIRE};
use laneway_policy::settings::HYSTERESIS_EPOCHS;
use laneway_policy::{
    BATCH, CorePlan, CostModel, Design, EpochLoad, FRAME_BYTES, Form, ItemBytes, LargeLane, Role,
    SLICE_BYTES, Settings, SizeHistogram, Steal, WorkerId, build,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn lanes(workers: u16) -> Settings {
    Settings { workers, ..Settings::default() }
}

/// Enough requests to be believed at once.
const THICK: u64 = 100_000;

/// Too few.
const THIN: u64 = 10_000;

fn mix(requests: u64, large_percent: f64) -> EpochLoad {
    load(etc_mix(requests, large_percent, 500_000))
}

#[test]
fn lanes_on_two_workers_time_shares() {
    for epochs in [0, 5] {
        let plan = plan_after(&lanes(2), &mix(THICK, 0.75), epochs);
        assert_eq!(plan.form, Form::TimeShare);
        assert_eq!(plan.roles, [Role::Both, Role::Both]);
        assert_eq!(plan.large_lane, LargeLane::TimeShared);
        assert_eq!(plan.slice_bytes, Some(SLICE_BYTES));
        assert_eq!((plan.workers_small, plan.workers_large()), (2, 0));
        assert_eq!((plan.steal.between_slices_queue_min, plan.steal.when_idle), (None, true));
    }
}

/// The large workers of 6 by share of large requests: the paper's rule with its own cost, and one.
#[test]
fn lanes_on_six_workers_follows_the_load() {
    let rows = [(0.0, 1), (0.0625, 2), (0.125, 2), (0.25, 2), (0.5, 3), (0.75, 4), (50.0, 5)];
    for (large_percent, large) in rows {
        let settings = Settings { cost: CostModel::Packets, ..lanes(6) };
        let plan = plan_after(&settings, &mix(THICK, large_percent), 1);
        assert_eq!(plan.workers_large(), large, "p_L {large_percent}");
        assert_eq!(plan.large_lane, LargeLane::SharedQueue);
        assert_eq!(plan.standby(), None);
        assert_eq!(plan.steal.between_slices_queue_min, Some(STEAL_QUEUE_MIN));
    }
}

/// Of ten requests the kernel answers nine, all of them small: workers see 1.25 % large ones where
/// there are 0.125 %, and the threshold is that of all, the number of workers that of what they
/// see.
#[test]
fn what_the_kernel_answers_counts_for_the_threshold_and_needs_no_worker() {
    let seen = mix(THICK, 1.25);
    let all = EpochLoad { sizes_kernel: etc_mix(9 * THICK, 0.0, 500_000), ..seen.clone() };
    for design in [Design::Lanes, Design::Minos] {
        let settings = Settings { design, ..lanes(6) };
        let plan = plan_after(&settings, &all, 1);
        let whole = plan_after(&settings, &mix(10 * THICK, 0.125), 1);
        assert_eq!(plan.threshold, whole.threshold, "{design:?}");
        let fixed = Settings { threshold_fixed: Some(plan.threshold), ..settings.clone() };
        let by_seen = plan_after(&fixed, &seen, 1);
        assert_eq!(plan.workers_large(), by_seen.workers_large(), "{design:?}");
    }
    let minos = Settings { design: Design::Minos, ..lanes(6) };
    let (with, without) = (plan_after(&minos, &all, 1), plan_after(&minos, &seen, 1));
    assert!(with.threshold < without.threshold, "{} {}", with.threshold, without.threshold);
}

/// The default cost counts what each small request costs, so it gives away fewer workers.
#[test]
fn the_default_cost_gives_fewer_large_workers_than_packets() {
    let by_cost =
        |cost| plan_after(&Settings { cost, ..lanes(6) }, &mix(THICK, 0.75), 1).workers_large();
    assert_eq!(by_cost(CostModel::ConstantPackets), 3);
    assert!(by_cost(CostModel::Bytes) >= by_cost(CostModel::Packets));
}

#[test]
fn the_form_can_be_forced_both_ways() {
    let roles = plan_after(&Settings { form: Some(Form::Roles), ..lanes(2) }, &mix(THICK, 0.0), 1);
    assert_eq!(roles.roles, [Role::Small, Role::Standby]);
    assert_eq!(roles.standby(), Some(WorkerId(1)));
    let settings = Settings { form: Some(Form::TimeShare), ..lanes(6) };
    let shared = plan_after(&settings, &mix(THICK, 0.75), 1);
    assert_eq!(shared.roles, vec![Role::Both; 6]);
}

#[test]
fn the_standbys_flag_falls_after_an_epoch_without_large_requests() {
    let settings = Settings { form: Some(Form::Roles), ..lanes(2) };
    let mut policy = build(settings).expect("fits");
    assert!(!policy.initial().standby_raised);
    let rows = [(3, true), (1, true), (0, false), (0, false), (2, true)];
    for (large_requests, raised) in rows {
        let load = EpochLoad { large_requests, ..mix(THICK, 0.0) };
        let plan = policy.plan(&load);
        assert_eq!(plan.standby_raised, raised, "{large_requests} large requests");
    }
}

#[test]
fn a_full_wire_takes_the_extra_worker_and_caps_large_bytes() {
    let mut policy = build(lanes(6)).expect("fits");
    let quiet = mix(THICK, 0.0);
    let full = EpochLoad { tx_backed_up: true, ..quiet.clone() };
    assert_eq!(policy.plan(&quiet).workers_large(), 1);
    let plan = policy.plan(&full);
    assert_eq!((plan.workers_large(), plan.standby()), (0, Some(WorkerId(5))));
    assert_eq!(plan.large_unsent_bytes_max, Some(ItemBytes(SLICES_UNSENT_MAX * SLICE_BYTES.0)));
    assert_eq!(plan.steal.between_slices_queue_min, Some(STEAL_QUEUE_MIN_FULL_WIRE));
    for epoch in 1..=GRANT_WAIT * HYSTERESIS_EPOCHS {
        let plan = policy.plan(&quiet);
        let back = epoch == GRANT_WAIT * HYSTERESIS_EPOCHS;
        assert_eq!(plan.workers_large(), u16::from(back), "{epoch} epochs after");
        assert_eq!(plan.large_unsent_bytes_max.is_none(), back);
    }
}

/// With 0.25 % of large requests on 8 workers there is work for 1.7 large ones. The rule gives one;
/// if a full wire left it at that, large requests would wait for ever longer.
#[test]
fn a_full_wire_does_not_starve_large_requests() {
    for (percent, quiet_large, full_large) in [(0.125, 2, 1), (0.25, 2, 2), (0.75, 4, 4)] {
        let mut policy = build(lanes(8)).expect("fits");
        let quiet = mix(THICK, percent);
        let full = EpochLoad { tx_backed_up: true, ..quiet.clone() };
        assert_eq!(policy.plan(&quiet).workers_large(), quiet_large, "{percent} quiet");
        assert_eq!(policy.plan(&full).workers_large(), full_large, "{percent} full");
    }
}

#[test]
fn thin_epochs_move_roles_late_and_thick_ones_at_once() {
    for (requests, epochs_until) in [(THICK, 1), (THIN, u64::from(HYSTERESIS_EPOCHS))] {
        let mut policy = build(lanes(6)).expect("fits");
        let before = policy.initial();
        for epoch in 1..=epochs_until {
            let plan = policy.plan(&mix(requests, 0.75));
            let changed = plan.roles_changed_since(&before);
            assert_eq!(changed > 0, epoch == epochs_until, "{requests} requests, epoch {epoch}");
        }
    }
}

#[test]
fn an_epoch_without_requests_changes_nothing() {
    let mut policy = build(lanes(6)).expect("fits");
    let before = policy.plan(&mix(THICK, 0.75));
    for _ in 0..100 {
        let plan = policy.plan(&EpochLoad::default());
        assert_eq!((&plan.roles, plan.threshold), (&before.roles, before.threshold));
    }
    let after = policy.plan(&EpochLoad::default());
    assert_eq!(after.epoch, 102);
}

#[test]
fn a_silence_does_not_make_the_next_few_requests_the_whole_truth() {
    let mut policy = build(lanes(6)).expect("fits");
    policy.plan(&mix(THICK, 0.0));
    for _ in 0..100 {
        policy.plan(&EpochLoad::default());
    }
    assert_eq!(policy.plan(&mix(200, 20.0)).threshold, FRAME_BYTES);
}

#[test]
fn a_single_worker_has_nobody_to_take_from() {
    let plan = plan_after(&lanes(1), &mix(THICK, 0.75), 1);
    assert_eq!((plan.roles.as_slice(), plan.steal), ([Role::Both].as_slice(), Steal::NEVER));
}

/// p_L steps up and down, as in the last experiment of Minos §6; the cores follow at once.
#[test]
fn roles_follow_a_stepped_load_there_and_back() {
    let settings = Settings { cost: CostModel::Packets, ..lanes(8) };
    let mut policy = build(settings).expect("fits");
    let mut large = |percent| policy.plan(&mix(THICK, percent)).workers_large();
    let steps = [0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125];
    let up_and_down: Vec<u16> = steps.into_iter().map(&mut large).collect();
    assert_eq!(up_and_down, [2, 3, 4, 5, 4, 3, 2]);
}

#[test]
fn a_fixed_threshold_is_obeyed_by_all_designs() {
    for design in Design::ALL {
        let threshold_fixed = Some(ItemBytes(200_000));
        let settings = Settings { design, threshold_fixed, ..lanes(6) };
        for epochs in [0, 3] {
            let plan = plan_after(&settings, &mix(THICK, 0.75), epochs);
            assert_eq!(plan.threshold, ItemBytes(200_000), "{design}");
        }
    }
}

#[test]
fn both_designs_call_the_same_requests_large() {
    for large_percent in [0.0, 0.75, 5.0] {
        let of = |design| {
            plan_after(&Settings { design, ..lanes(6) }, &mix(THICK, large_percent), 2).threshold
        };
        assert_eq!(of(Design::Hkh), of(Design::Lanes));
    }
}

#[test]
fn stealing_is_allowed_where_the_plan_says() {
    let plan = plan_after(&lanes(6), &mix(THICK, 0.75), 1);
    let rows = [(0, false, false), (1, false, true), (2, true, true), (9, true, true)];
    for (queue, between_slices, idle) in rows {
        assert_eq!(plan.steal.between_slices(0, queue), between_slices, "{queue} waiting");
        assert_eq!(plan.steal.idle(queue), idle, "{queue} waiting");
        assert!(!Steal::NEVER.between_slices(0, queue) && !Steal::NEVER.idle(queue));
    }
}

#[test]
fn a_large_worker_takes_a_batch_between_slices_at_most() {
    let plan = plan_after(&lanes(6), &mix(THICK, 0.75), 1);
    for (taken, takes) in [(0, true), (BATCH - 1, true), (BATCH, false)] {
        assert_eq!(plan.steal.between_slices(taken, 100), takes, "{taken} taken");
    }
}

fn epochs() -> impl Strategy<Value = Vec<EpochLoad>> {
    let size = prop_oneof![3 => 1_u64..2_000, 1 => 2_000_u64..2_000_000];
    let counts = vec((size, 1_u64..100_000), 0..6);
    let epoch = (counts, 0_u64..3, any::<bool>()).prop_map(|(counts, large_requests, full)| {
        let mut sizes = SizeHistogram::new();
        for (size, count) in counts {
            sizes.add(laneway_policy::SizeClass::of(ItemBytes(size)), count);
        }
        EpochLoad { sizes, large_requests, tx_backed_up: full, ..EpochLoad::default() }
    });
    vec(epoch, 1..12)
}

fn settings() -> impl Strategy<Value = Settings> {
    let workers = prop_oneof![Just(2_u16), Just(6), 1_u16..=64];
    let form = prop_oneof![Just(None), Just(Some(Form::Roles)), Just(Some(Form::TimeShare))];
    (workers, 0..Design::ALL.len(), form, 1.0_f64..99.9, 1_u16..4)
        .prop_map(|(workers, design, form, percentile, workers_handoff)| Settings {
            design: Design::ALL[design],
            workers,
            form,
            percentile,
            workers_handoff,
            ..Settings::default()
        })
        .prop_filter("settings that do not fit are tested elsewhere", |s| s.check().is_ok())
}

fn check_plan(plan: &CorePlan, settings: &Settings) -> Result<(), TestCaseError> {
    prop_assert_eq!(plan.workers(), settings.workers);
    prop_assert!(plan.workers_small >= 1);
    let count = |role| plan.roles.iter().filter(|r| **r == role).count();
    prop_assert_eq!(count(Role::Large), usize::from(plan.workers_large()));
    prop_assert_eq!(plan.large_ids().count(), count(Role::Large));
    prop_assert!(plan.large_ids().all(|worker| plan.role(worker) == Role::Large));
    prop_assert!(plan.small_ids().all(|worker| plan.role(worker) != Role::Large));
    if settings.design != Design::Minos {
        prop_assert!((FRAME_BYTES..=SLICE_BYTES).contains(&plan.threshold));
    }
    prop_assert_eq!(plan.form, settings.form());
    prop_assert_eq!(count(Role::Standby), usize::from(plan.standby().is_some()));
    match plan.form {
        Form::TimeShare => prop_assert_eq!(count(Role::Both), plan.roles.len()),
        Form::Roles => {
            prop_assert!(count(Role::Small) >= 1);
            prop_assert_eq!(count(Role::Standby) == 1, count(Role::Large) == 0);
        }
    }
    prop_assert!(!plan.standby_raised || plan.standby().is_some());
    Ok(())
}

proptest! {
    #[test]
    fn every_plan_has_a_small_worker_and_one_for_large(
        settings in settings(),
        epochs in epochs(),
    ) {
        let mut policy = build(settings.clone()).expect("fits");
        let mut before = policy.initial();
        check_plan(&before, &settings)?;
        for (epoch, load) in epochs.iter().enumerate() {
            let plan = policy.plan(load);
            check_plan(&plan, &settings)?;
            prop_assert_eq!(plan.epoch, epoch as u64 + 1);
            let moved = plan.workers_large().abs_diff(before.workers_large());
            prop_assert_eq!(plan.roles_changed_since(&before), usize::from(moved));
            before = plan;
        }
    }

    #[test]
    fn the_same_loads_give_the_same_plans(settings in settings(), epochs in epochs()) {
        let run = || {
            let mut policy = build(settings.clone()).expect("fits");
            epochs.iter().map(|load| policy.plan(load)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
