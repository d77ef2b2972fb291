//! The designs that `lanes` is compared with: what their papers say they do.

use crate::{etc_mix, load, plan_after};
use laneway_policy::{
    CostModel, Design, EpochLoad, Form, ItemBytes, LargeLane, Role, Route, Settings, Steal,
    WorkerId, WorkerTarget, build, route,
};

const SMALL: ItemBytes = ItemBytes(100);
const LARGE: ItemBytes = ItemBytes(400_000);

fn of(design: Design, workers: u16) -> Settings {
    Settings { design, workers, ..Settings::default() }
}

fn mix(large_percent: f64) -> EpochLoad {
    load(etc_mix(100_000, large_percent, 500_000))
}

/// Minos §3.1 and §6.1: with the paper's packet cost and 8 cores, one large core for the default
/// mix, more as p_L grows (figure 9 and 10).
#[test]
fn minos_gives_as_many_large_workers_as_the_paper() {
    let rows = [(0.0, 0), (0.125, 1), (0.25, 2), (0.5, 3), (0.75, 4)];
    for (large_percent, large) in rows {
        let settings = Settings { cost: CostModel::Packets, ..of(Design::Minos, 8) };
        let plan = plan_after(&settings, &mix(large_percent), 1);
        assert_eq!(plan.workers_large(), large, "p_L {large_percent}");
        assert_eq!(plan.standby().is_some(), large == 0);
    }
}

/// The bounds of `lanes` keep the threshold up; `minos` follows the percentile wherever it goes.
#[test]
fn minos_takes_the_percentile_as_it_is() {
    let low = Settings { percentile: 20.0, ..of(Design::Minos, 8) };
    assert_eq!(plan_after(&low, &mix(0.125), 1).threshold, ItemBytes(16));
    let high = plan_after(&of(Design::Minos, 8), &mix(5.0), 1).threshold;
    assert!(high > ItemBytes(350_000), "the 99th of a mix with 5 % large is large: {high}");
}

#[test]
fn minos_shards_large_requests_by_size_and_never_slices_or_steals() {
    let settings = Settings { cost: CostModel::Packets, ..of(Design::Minos, 8) };
    let plan = plan_after(&settings, &mix(0.75), 1);
    let LargeLane::Ranges(ranges) = &plan.large_lane else {
        panic!("{:?}", plan.large_lane);
    };
    assert_eq!(ranges.count(), usize::from(plan.workers_large()));
    let first = ranges.boundaries()[0];
    let below = ItemBytes(first.0 - 1);
    let to = |worker| Route::Hand(WorkerTarget::Worker(WorkerId(worker)));
    assert_eq!(route(&plan, WorkerId(0), below), to(plan.workers_small));
    assert_eq!(route(&plan, WorkerId(0), first), to(plan.workers_small + 1));
    assert_eq!(route(&plan, WorkerId(plan.workers_small), below), Route::Here);
    assert_eq!((plan.slice_bytes, plan.steal), (None, Steal::NEVER));
}

#[test]
fn the_standby_of_minos_runs_large_requests_to_completion() {
    let plan = plan_after(&of(Design::Minos, 2), &mix(0.0), 1);
    assert_eq!(plan.roles, [Role::Small, Role::Standby]);
    assert_eq!(route(&plan, WorkerId(1), LARGE), Route::Here);
    assert_eq!(route(&plan, WorkerId(0), LARGE), Route::Hand(WorkerTarget::Worker(WorkerId(1))));
    let raised = EpochLoad { large_requests: 1, ..mix(0.0) };
    assert!(plan_after(&of(Design::Minos, 2), &raised, 1).standby_raised);
}

#[test]
fn a_single_worker_of_minos_serves_everything() {
    let plan = plan_after(&of(Design::Minos, 1), &mix(0.75), 3);
    assert_eq!((plan.form, plan.roles.as_slice()), (Form::TimeShare, [Role::Both].as_slice()));
    for size in [SMALL, LARGE] {
        assert_eq!(route(&plan, WorkerId(0), size), Route::Here);
    }
}

#[test]
fn hkh_ws_is_hkh_whose_idle_workers_steal() {
    for (workers, steals) in [(1, false), (2, true), (8, true)] {
        let ws = plan_after(&of(Design::HkhWs, workers), &mix(0.75), 2);
        let hkh = plan_after(&of(Design::Hkh, workers), &mix(0.75), 2);
        assert_eq!(ws.steal, Steal { when_idle: steals, ..Steal::NEVER });
        assert_eq!(ws.roles, hkh.roles);
        assert_eq!((ws.threshold, &ws.large_lane), (hkh.threshold, &hkh.large_lane));
        assert_eq!(route(&ws, WorkerId(0), LARGE), Route::Here);
    }
}

#[test]
fn sho_hands_everything_over_and_its_other_workers_serve_it() {
    for workers_handoff in [1, 2, 3] {
        let settings = Settings { workers_handoff, ..of(Design::Sho, 8) };
        for epochs in [0, 2] {
            let plan = plan_after(&settings, &mix(0.75), epochs);
            assert_eq!(plan.small_ids().count(), usize::from(workers_handoff));
            for worker in 0..8 {
                let hands_over = worker < workers_handoff;
                let expected =
                    if hands_over { Route::Hand(WorkerTarget::Shared) } else { Route::Here };
                for size in [SMALL, LARGE] {
                    assert_eq!(route(&plan, WorkerId(worker), size), expected);
                }
            }
        }
    }
}

#[test]
fn an_epoch_without_requests_changes_no_rival() {
    for design in Design::ALL {
        let mut policy = build(of(design, 8)).expect("fits");
        let before = policy.plan(&mix(0.75));
        let after = policy.plan(&EpochLoad::default());
        assert_eq!((before.threshold, before.roles), (after.threshold, after.roles), "{design}");
        assert_eq!(after.epoch, 2);
    }
}

#[test]
fn settings_that_no_rival_can_follow_are_refused() {
    let form = Some(Form::TimeShare);
    let rows = [
        (
            Settings { form, ..of(Design::Minos, 8) },
            "--form time-share: minos knows nothing but roles; \
             leave the flag out, or choose --design lanes",
        ),
        (
            Settings { form: Some(Form::Roles), ..of(Design::HkhWs, 8) },
            "--form roles: hkh-ws knows no roles, every worker serves what it receives; \
             leave the flag out, or choose --design lanes",
        ),
        (
            of(Design::Sho, 1),
            "--design sho: needs --workers 2 or more, one to hand over and one to serve; \
             choose --design hkh for a single worker",
        ),
        (
            Settings { workers_handoff: 8, ..of(Design::Sho, 8) },
            "--handoff-workers 8: must be at least 1 and below --workers (8); \
             leave the flag out for 1",
        ),
        (
            Settings { workers_handoff: 0, ..of(Design::Sho, 8) },
            "--handoff-workers 0: must be at least 1 and below --workers (8); \
             leave the flag out for 1",
        ),
    ];
    for (settings, expected) in rows {
        let error = settings.check().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(expected));
    }
    let unused = Settings { workers_handoff: 0, ..of(Design::Lanes, 8) };
    assert_eq!(unused.check(), Ok(()));
}
