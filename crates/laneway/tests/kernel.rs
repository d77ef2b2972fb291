//! `laneway serve --kernel-lane`, `--steer` and `--af-xdp`, in network namespaces of the test's
//! own, over virtual Ethernet: what is written is read at once, hits are answered while the server
//! is stopped, and nothing stays behind when it is killed. Without the features: what flags say.

#[cfg(feature = "af-xdp")]
#[path = "../../kernel/tests/common/hosts.rs"]
mod hosts;

#[cfg(feature = "af-xdp")]
#[path = "kernel/bypass.rs"]
mod bypass;
#[cfg(feature = "af-xdp")]
#[path = "kernel/lane.rs"]
mod lane;
#[cfg(feature = "af-xdp")]
#[path = "kernel/servers.rs"]
mod servers;
#[cfg(feature = "af-xdp")]
#[path = "kernel/steer.rs"]
mod steer;

#[cfg(not(feature = "kernel"))]
#[test]
fn a_build_without_the_programs_refuses_their_flags_and_tells_the_way_out() {
    use std::io::Write;
    let why =
        "SKIPPED: the lane in the kernel: built without the feature `kernel`, which needs clang";
    let _ = writeln!(std::io::stderr(), "{why}");
    for flags in [&["--kernel-lane", "lo"][..], &["--steer"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["serve", "-p", "-1", "-l", "127.0.0.1", "-U", "-1"])
            .args(flags)
            .output()
            .expect("the binary was built for this test");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{told}");
        let start = format!("{}: built without the feature `kernel`", flags[0]);
        assert!(told.contains(&start) && told.contains("--features kernel"), "{told}");
    }
}

#[test]
fn the_doctor_tells_every_layer_of_the_kernel() {
    let doctor = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.arg("doctor").args(arguments).output().expect("the binary was built for this test")
    };
    let output = doctor(&["kernel"]);
    let told = String::from_utf8_lossy(&output.stdout);
    let missing = told.contains(": missing: ");
    assert_eq!(output.status.code(), Some(i32::from(missing)), "{told}");
    for layer in ["capabilities: ", "tcx links: ", "programs in this build: "] {
        assert!(told.lines().any(|line| line.starts_with(layer)), "{layer} in {told}");
    }
    let without = told.contains("programs in this build: missing: built without the feature");
    assert_eq!(without, cfg!(not(feature = "kernel")), "{told}");
    assert_eq!(doctor(&["eth0"]).status.code(), Some(2));
}
