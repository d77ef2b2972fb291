//! Settings that do not fit say which flag, its value, the limit and the way out.

use laneway_policy::design::{UnknownAccess, UnknownDesign};
use laneway_policy::{Access, Design, Form, ItemBytes, Settings, Steal, build};

fn check(settings: Settings, expected: &str) {
    let error = build(settings).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some(expected));
}

fn base() -> Settings {
    Settings { workers: 6, ..Settings::default() }
}

#[test]
fn what_does_not_fit_is_refused_with_a_way_out() {
    let workers = "must be from 1 to 1024; leave the flag out to have one worker per CPU";
    check(Settings { workers: 0, ..base() }, &format!("--workers 0: {workers}"));
    check(Settings { workers: 1025, ..base() }, &format!("--workers 1025: {workers}"));
    let percentile = "must be above 0 and below 100; \
         to call every request small use --threshold, or --design hkh";
    for value in [0.0, 100.0, -1.0, f64::NAN] {
        let expected = format!("--percentile {value}: {percentile}");
        check(Settings { percentile: value, ..base() }, &expected);
    }
    let alpha = "must be above 0, or nothing new is ever learnt, and at most 1; \
         leave the flag out for 0.9";
    for value in [0.0, 1.1, f64::NAN] {
        check(Settings { alpha: value, ..base() }, &format!("--alpha {value}: {alpha}"));
    }
    let threshold =
        "must be from 1 to 1073742074 bytes; leave the flag out to let the policy choose";
    for value in [0, 2_000_000_000] {
        let threshold_fixed = Some(ItemBytes(value));
        let expected = format!("--threshold {value}: {threshold}");
        check(Settings { threshold_fixed, ..base() }, &expected);
    }
    check(
        Settings { slice_bytes: ItemBytes(1471), ..base() },
        "--slice 1471: must be from 1472 (one frame) to 1073742074 bytes; \
         leave the flag out for 32768",
    );
    check(
        Settings { hysteresis_epochs: 0, ..base() },
        "--hysteresis-epochs 0: must be at least 1; \
         to believe every epoch at once use --samples-min 1",
    );
}

#[test]
fn roles_need_two_workers_and_a_design_that_knows_them() {
    let form = Some(Form::Roles);
    check(
        Settings { form, workers: 1, ..base() },
        "--form roles: needs --workers 2 or more, one for each lane; \
         leave the flag out to let a single worker time-share",
    );
    check(
        Settings { form, design: Design::Hkh, ..base() },
        "--form roles: hkh knows no roles, every worker serves what it receives; \
         leave the flag out, or choose --design lanes",
    );
    assert!(build(Settings { form, workers: 2, ..base() }).is_ok());
}

#[test]
fn extreme_settings_that_fit_are_taken() {
    for settings in [
        Settings { workers: 1, ..base() },
        Settings { workers: 1024, ..base() },
        Settings { percentile: 0.001, ..base() },
        Settings { percentile: 99.999, alpha: 1.0, ..base() },
        Settings { threshold_fixed: Some(ItemBytes(1)), ..base() },
        Settings { samples_min: 0, ..base() },
    ] {
        assert_eq!(settings.check(), Ok(()));
    }
}

#[test]
fn designs_go_by_their_names() {
    for design in Design::ALL {
        assert_eq!(design.to_string().parse(), Ok(design));
    }
    assert_eq!("minas".parse::<Design>(), Err(UnknownDesign));
}

#[test]
fn a_variant_belongs_to_its_design() {
    check(
        Settings { access: Access::Erew, design: Design::Minos, ..base() },
        "--access erew: minos lets every worker read and write every key; \
         leave the flag out, or add --design hkh",
    );
    check(
        Settings { extra_large: true, ..base() },
        "--extra-large: is a variant of minos; leave the flag out, or add --design minos",
    );
    for access in Access::ALL {
        assert_eq!(access.to_string().parse(), Ok(access));
        assert!(build(Settings { access, design: Design::Hkh, ..base() }).is_ok());
    }
    assert_eq!("crow".parse::<Access>(), Err(UnknownAccess));
}

#[test]
fn minos_with_an_extra_large_worker_takes_requests_one_at_a_time() {
    let settings = Settings { design: Design::Minos, extra_large: true, ..base() };
    let plan = build(settings).expect("it fits").initial();
    assert_eq!((plan.workers_large(), plan.standby()), (1, None), "the standby is a real one");
    assert_eq!(plan.steal, Steal::ONE_AT_A_TIME);
    assert!(plan.steal.between_slices(0, 1) && !plan.steal.between_slices(1, 100));
}
