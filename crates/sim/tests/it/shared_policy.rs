//! The simulator and the server plan by the same code: what the server would plan from the same
//! counts is what the simulator has planned, setting by setting, and a constant that changes,
//! changes both.

use laneway_policy::histogram::CLASS_COUNT;
use laneway_policy::{
    CorePlan, CostModel, Design, EpochLoad, ItemBytes, Settings, SizeClass, SizeHistogram, build,
};
use laneway_sim::machine::{Machine, Traffic, run};
use laneway_sim::stats::SECOND;
use laneway_sim::workload::{Draw, Mix};

/// What the server does: workers count into arrays, and the control loop builds a histogram of
/// their sum and asks the policy.
fn server_plan(settings: &Settings, mix: &Mix, epochs: u64) -> CorePlan {
    let mut draw = Draw::new(mix);
    let mut random = laneway_load::random::Random::new(99);
    let mut policy = build(settings.clone()).expect("fits");
    let mut plan = policy.initial();
    for _ in 0..epochs {
        let mut by_worker = vec![[0_u64; CLASS_COUNT]; usize::from(settings.workers)];
        let mut large_requests = 0;
        for request in 0..400_000_usize {
            let size = ItemBytes(u64::from(draw.draw(&mut random).bytes));
            by_worker[request % usize::from(settings.workers)][SizeClass::of(size).index()] += 1;
            large_requests += u64::from(size >= plan.threshold);
        }
        let sizes = SizeHistogram::from_fn(|class| by_worker.iter().map(|w| w[class]).sum());
        let load = EpochLoad { sizes, large_requests, ..EpochLoad::default() };
        plan = policy.plan(&load);
    }
    plan
}

fn simulated_plan(settings: &Settings, mix: &Mix) -> CorePlan {
    let machine = Machine {
        settings: settings.clone(),
        epoch: SECOND / 10,
        ..Machine::new(settings.design, settings.workers)
    };
    let traffic = Traffic::steady(mix.clone(), 2e6, 600_000);
    run(&machine, &traffic, 1).plan.expect("a run ends with a plan")
}

/// All of a plan that does not depend on which requests happened to be drawn.
fn same(server: &CorePlan, simulated: &CorePlan, what: &str) {
    assert_eq!(server.roles, simulated.roles, "{what}");
    assert_eq!(server.threshold, simulated.threshold, "{what}");
    assert_eq!(server.slice_bytes, simulated.slice_bytes, "{what}");
    assert_eq!(server.steal, simulated.steal, "{what}");
    assert_eq!(server.form, simulated.form, "{what}");
}

#[test]
fn server_and_simulator_plan_alike() {
    for design in Design::ALL {
        for (workers, percent) in [(8, 0.25), (6, 0.75), (2, 0.125)] {
            let settings = Settings { design, workers, ..Settings::default() };
            let mix = Mix::etc().with_large_percent(percent);
            let server = server_plan(&settings, &mix, 3);
            same(&server, &simulated_plan(&settings, &mix), &format!("{design} {workers}"));
        }
    }
}

/// Each constant of the policy, changed through the settings that default to it, changes what
/// both plan, and to the same.
#[test]
fn a_changed_constant_changes_both() {
    let base = Settings { workers: 8, ..Settings::default() };
    let mix = Mix::etc().with_large_percent(0.75);
    let before = (server_plan(&base, &mix, 3), simulated_plan(&base, &mix));
    same(&before.0, &before.1, "as it is");
    let changed = [
        ("cost", Settings { cost: CostModel::Packets, ..base.clone() }),
        ("slice", Settings { slice_bytes: ItemBytes(8192), ..base.clone() }),
        ("percentile", Settings { percentile: 99.9, ..base.clone() }),
        ("threshold", Settings { threshold_fixed: Some(ItemBytes(300_000)), ..base.clone() }),
        ("design", Settings { design: Design::Minos, ..base.clone() }),
    ];
    for (what, settings) in changed {
        let after = (server_plan(&settings, &mix, 3), simulated_plan(&settings, &mix));
        same(&after.0, &after.1, what);
        let differs = |before: &CorePlan, after: &CorePlan| {
            (&before.roles, before.threshold, before.slice_bytes, before.steal)
                != (&after.roles, after.threshold, after.slice_bytes, after.steal)
        };
        assert!(differs(&before.0, &after.0), "{what} changes nothing in the server's plan");
        assert!(differs(&before.1, &after.1), "{what} changes nothing in the simulator's plan");
    }
}

/// What the simulator takes a request to cost is the policy's own constant, so that the model the
/// plan is made with and the model the machine runs on are one.
#[test]
fn the_machine_costs_what_the_policy_thinks() {
    use laneway_policy::cost::{PACKET_COST_NS, REQUEST_COST_NS};
    let costs = laneway_sim::machine::Costs::MINOS;
    for bytes in [1, 1472, 1473, 500_000] {
        let policy = CostModel::ConstantPackets.of(ItemBytes(bytes)).0;
        assert_eq!(costs.service(bytes as u32), policy * 1_000);
    }
    assert_eq!(costs.service(1), (REQUEST_COST_NS + PACKET_COST_NS) * 1_000);
}
