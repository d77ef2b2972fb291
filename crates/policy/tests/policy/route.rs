//! Where one request goes, under plans of every shape.

use crate::{etc_mix, load, plan_after, smooth};
use laneway_policy::ranges::SizeRanges;
use laneway_policy::route::lane;
use laneway_policy::{Access, Asked, CorePlan, CostModel, Design, Form, ItemBytes};
use laneway_policy::{Lane, LargeLane, build, hand};
use laneway_policy::{Role, Route, SLICE_BYTES, Settings, WorkerId, WorkerTarget, route};
use proptest::prelude::*;

const SMALL: ItemBytes = ItemBytes(100);
const LARGE: ItemBytes = ItemBytes(500_000);

fn initial(workers: u16, form: Form) -> CorePlan {
    plan_after(&Settings { workers, form: Some(form), ..Settings::default() }, &load_of(0.0), 0)
}

fn load_of(large_percent: f64) -> laneway_policy::EpochLoad {
    load(etc_mix(100_000, large_percent, 500_000))
}

fn shared() -> Route {
    Route::Hand(WorkerTarget::Shared)
}

fn to(worker: u16) -> Route {
    Route::Hand(WorkerTarget::Worker(WorkerId(worker)))
}

/// Routes of one size, held by each worker in turn.
fn check(plan: &CorePlan, size: ItemBytes, expected: &[Route]) {
    let got: Vec<Route> =
        (0..plan.workers()).map(|worker| route(plan, WorkerId(worker), size)).collect();
    assert_eq!(got, expected, "{size} bytes, roles {:?}", plan.roles);
}

#[test]
fn the_first_large_request_already_goes_the_large_way() {
    use Route::{Here, HereInSlices};
    let rows = [
        (2, Form::TimeShare, vec![HereInSlices; 2]),
        (2, Form::Roles, vec![to(1), HereInSlices]),
        (6, Form::TimeShare, vec![HereInSlices; 6]),
        (6, Form::Roles, vec![shared(), shared(), shared(), shared(), shared(), HereInSlices]),
    ];
    for (workers, form, expected) in rows {
        let plan = initial(workers, form);
        check(&plan, LARGE, &expected);
        check(&plan, SMALL, &vec![Here; usize::from(workers)]);
    }
}

#[test]
fn the_threshold_itself_is_large() {
    let plan = initial(6, Form::Roles);
    assert_eq!(plan.threshold, SLICE_BYTES);
    assert_eq!(route(&plan, WorkerId(0), ItemBytes(SLICE_BYTES.0 - 1)), Route::Here);
    assert_eq!(route(&plan, WorkerId(0), SLICE_BYTES), shared());
}

#[test]
fn hkh_serves_everything_where_it_arrives() {
    for workers in [1, 2, 6] {
        let settings = Settings { workers, design: Design::Hkh, ..Settings::default() };
        for epochs in [0, 3] {
            let plan = plan_after(&settings, &load_of(0.75), epochs);
            check(&plan, LARGE, &vec![Route::Here; usize::from(workers)]);
            check(&plan, SMALL, &vec![Route::Here; usize::from(workers)]);
            assert_eq!(plan.slice_bytes, None);
        }
    }
}

#[test]
fn ranges_send_each_size_to_its_worker() {
    let mut plan = plan_after(&Settings { workers: 6, ..Settings::default() }, &load_of(0.75), 1);
    let count = plan.workers_large();
    let sizes = smooth(&etc_mix(100_000, 0.75, 500_000));
    let ranges = SizeRanges::equal_cost(&sizes, CostModel::Packets, plan.threshold, count);
    let boundaries = ranges.boundaries().to_vec();
    plan.large_lane = LargeLane::Ranges(ranges);
    let first_large = plan.workers_small;
    assert_eq!(route(&plan, WorkerId(0), plan.threshold), to(first_large));
    assert_eq!(route(&plan, WorkerId(first_large), plan.threshold), Route::HereInSlices);
    for (range, &boundary) in boundaries.iter().enumerate() {
        let (below, above) = (first_large + range as u16, first_large + range as u16 + 1);
        assert_eq!(route(&plan, WorkerId(0), ItemBytes(boundary.0 - 1)), to(below));
        assert_eq!(route(&plan, WorkerId(0), boundary), to(above));
        assert_eq!(route(&plan, WorkerId(below), boundary), to(above));
    }
    plan.slice_bytes = None;
    assert_eq!(route(&plan, WorkerId(first_large), plan.threshold), Route::Here);
}

#[test]
fn those_who_share_a_size_take_it_by_the_shortest_queue() {
    let settings = Settings { workers: 8, design: Design::Minos, ..Settings::default() };
    let mut sizes = laneway_policy::SizeHistogram::new();
    sizes.add(laneway_policy::SizeClass::of(ItemBytes(100)), 99_500);
    sizes.add(laneway_policy::SizeClass::of(ItemBytes(1_472_000)), 500);
    let plan = plan_after(&settings, &load(sizes), 3);
    let large: Vec<WorkerId> = plan.large_ids().collect();
    assert!(large.len() > 2, "{large:?}");
    let size = ItemBytes(1_472_000);
    let Route::Hand(target) = route(&plan, WorkerId(0), size) else { panic!("handed over") };
    assert_eq!(target, WorkerTarget::Between(large[0], large[large.len() - 1]));
    for &worker in &large {
        assert_eq!(route(&plan, worker, size), Route::Here);
        assert_eq!(target.shortest(&plan, 5, |other| u64::from(other != worker)), worker);
        assert_eq!(target.in_turn(&plan, u64::from(worker.0 - large[0].0)), worker);
    }
}

#[test]
fn a_shared_target_becomes_the_shortest_queue_and_ties_go_in_turn() {
    let plan = plan_after(&Settings { workers: 6, ..Settings::default() }, &load_of(0.75), 1);
    let large: Vec<WorkerId> = plan.large_ids().collect();
    assert!(large.len() >= 2);
    for (turn, &expected) in large.iter().cycle().take(3 * large.len()).enumerate() {
        assert_eq!(WorkerTarget::Shared.in_turn(&plan, turn as u64), expected);
    }
    for &idle in &large {
        let queued = |worker| if worker == idle { 1 } else { 2 };
        for turn in 0..10 {
            assert_eq!(WorkerTarget::Shared.shortest(&plan, turn, queued), idle);
        }
    }
    let one = WorkerTarget::Worker(WorkerId(3));
    assert_eq!(one.shortest(&plan, 7, |_| 0), WorkerId(3));
}

fn plans() -> impl Strategy<Value = CorePlan> {
    (2_u16..=64, any::<bool>(), any::<bool>(), 0.0_f64..20.0, any::<bool>(), 0_u64..4).prop_map(
        |(workers, hkh, time_share, large_percent, tx_backed_up, epochs)| {
            let design = if hkh { Design::Hkh } else { Design::Lanes };
            let form = (!hkh).then_some(if time_share { Form::TimeShare } else { Form::Roles });
            let settings =
                Settings { workers, design, form, samples_min: 500, ..Settings::default() };
            let mut load = load(etc_mix(1000, large_percent, 500_000));
            load.tx_backed_up = tx_backed_up;
            plan_after(&settings, &load, epochs)
        },
    )
}

proptest! {
    #[test]
    fn every_route_ends_at_a_worker_that_serves_it(
        plan in plans(),
        me in 0_u16..64,
        octave in 0_u32..31,
        turn in any::<u64>(),
    ) {
        let me = WorkerId(me % plan.workers());
        let size = ItemBytes(1 << octave);
        match route(&plan, me, size) {
            Route::Here => prop_assert!(
                lane(&plan, size) == Lane::Small || plan.design == Design::Hkh
            ),
            Route::HereInSlices => {
                prop_assert_eq!(lane(&plan, size), Lane::Large);
                prop_assert!(plan.role(me).serves_large());
            }
            Route::Hand(target) => {
                prop_assert_eq!(lane(&plan, size), Lane::Large);
                prop_assert_eq!(plan.role(me), Role::Small);
                let target = target.in_turn(&plan, turn);
                prop_assert!(target != me);
                prop_assert_eq!(route(&plan, target, size), Route::HereInSlices);
            }
        }
    }
}

fn asked(owner: u16, writes: bool, size: u64) -> Asked {
    Asked { owner: WorkerId(owner), writes, size: (size > 0).then_some(ItemBytes(size)) }
}

#[test]
fn a_design_hands_over_the_requests_that_its_paper_says() {
    let plan = |settings: Settings| build(settings).expect("they fit").initial();
    let six = |design| Settings { design, workers: 6, ..Settings::default() };
    let me = WorkerId(2);
    let to = |worker| Some(WorkerTarget::Worker(WorkerId(worker)));

    let lanes = plan(six(Design::Lanes));
    assert_eq!(hand(&lanes, me, &asked(0, true, 1 << 20)), None);

    let minos = plan(six(Design::Minos)); // before the first epoch: a standby
    assert_eq!(hand(&minos, me, &asked(0, true, 100)), None);
    assert_eq!(hand(&minos, me, &asked(0, false, 0)), None, "the lookup will tell");
    assert_eq!(hand(&minos, me, &asked(0, false, 1 << 20)), to(5));
    assert_eq!(hand(&minos, WorkerId(5), &asked(0, false, 1 << 20)), None);

    for (access, read, write) in
        [(Access::Crcw, None, None), (Access::Crew, None, to(4)), (Access::Erew, to(4), to(4))]
    {
        let plan = plan(Settings { access, ..six(Design::Hkh) });
        assert_eq!(hand(&plan, me, &asked(4, false, 0)), read, "{access}");
        assert_eq!(hand(&plan, me, &asked(4, true, 0)), write, "{access}");
        assert_eq!(hand(&plan, me, &asked(2, true, 0)), None, "{access}: it is mine");
    }

    let stealing = plan(six(Design::HkhWs));
    assert_eq!(hand(&stealing, me, &asked(4, true, 0)), to(2), "its own queue");

    let handoff = plan(Settings { workers_handoff: 3, ..six(Design::Sho) });
    assert_eq!(hand(&handoff, me, &asked(4, false, 0)), Some(WorkerTarget::Shared));
    assert_eq!(hand(&handoff, WorkerId(3), &asked(4, false, 0)), None);
}
