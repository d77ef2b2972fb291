//! What clients are told of the sandbox.

use laneway_rig as rig;

use laneway_policy::Form;
use rig::{Plan, Rig};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn half_a_sandbox_is_told_as_that() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    for (is_half, wanted) in [(false, "STAT sandbox off\r\n"), (true, "STAT sandbox half\r\n")] {
        rig.shared.sandbox_is_half.store(is_half, Relaxed);
        let told = rig.ask(&client, b"stats settings\r\n", b"END\r\n");
        let told = String::from_utf8(told).expect("text");
        assert!(told.contains(wanted), "{told}");
    }
}
