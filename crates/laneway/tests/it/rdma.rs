//! The binary on a machine without RDMA, without the device that is named, or built without the
//! feature `rdma`: it says so, and what to do.

use crate::rig::{has_feature, laneway};

#[test]
fn the_doctor_tells_what_rdma_needs_and_what_is_missing() {
    let output = laneway(&["doctor", "rdma"]);
    let told = String::from_utf8_lossy(&output.stdout);
    let needs: &[&str] = match has_feature("rdma") {
        true => &["libibverbs: ", "RDMA device: ", "locked memory: ", "rdma_rxe, "],
        false => &["RDMA in this build: missing: built without the feature `rdma`; "],
    };
    for need in needs {
        assert!(told.lines().any(|line| line.starts_with(need)), "{need} in {told}");
    }
    let is_there = told.contains("RDMA is there; laneway serve --rdma DEVICE");
    assert_eq!(output.status.code(), Some(i32::from(!is_there)), "{told}");
    for line in told.lines().filter(|line| line.contains("libibverbs: missing")) {
        assert!(line.contains("apt-get install libibverbs1"), "{line}");
    }
    for line in told.lines().filter(|line| line.contains("RDMA device: missing")) {
        assert!(line.contains("rdma link add") || line.contains("libibverbs"), "{line}");
    }
    let both = laneway(&["doctor"]);
    let both = String::from_utf8_lossy(&both.stdout);
    assert!(both.contains("capabilities: ") && both.contains(needs[0]), "{both}");
}

#[cfg(feature = "rdma")]
#[test]
fn a_device_that_is_not_there_is_refused_and_the_way_out_is_said() {
    use crate::rig::{HERE, refused};
    let nowhere = [&HERE[..], &["--rdma", "no_such_device"]].concat();
    let told = refused(&nowhere, 71, "--rdma: ");
    assert!(told.contains("see laneway doctor"), "{told}");
    refused(&["--rdma", "rxe0:zero"], 2, "a port is a number");
}
