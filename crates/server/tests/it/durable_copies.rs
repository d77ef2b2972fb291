//! How often a small value is copied in memory, from the parser on to memory and to the log.

use crate::durable::{FORMS, machine, started};
use laneway_rig::{Plan, Rig, value};
use laneway_store::meter;

/// Below `split_bytes` of the rig's tier, and far above what stands beside it in a record.
const BYTES: usize = 1900;

/// How often one SET copies its value: as the server counts it, and as the log does.
fn copies(rig: &mut Rig) -> [u64; 2] {
    let client = rig.net.connect();
    rig.set(&client, "before", &value(BYTES, 1)); // what is begun once is
    meter::take();
    rig.set(&client, "key", &value(BYTES, 2));
    let work = meter::take();
    [work.bytes, work.logged].map(|bytes| bytes / BYTES as u64)
}

#[test]
fn a_durable_set_copies_its_value_for_the_executor_and_into_the_log_and_no_more() {
    let (workers, form) = FORMS[0];
    let [received_and_stored, none] = copies(&mut Rig::new(&Plan::of(workers, form)));
    assert!(1 < received_and_stored, "the meter counted {received_and_stored}");
    assert_eq!(none, 0);
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let [counted, logged] = copies(&mut rig);
    assert_eq!(counted, received_and_stored + 1, "its request is copied for the executor");
    assert_eq!(logged, 1, "it is copied into the log's blocks, with no buffer between");
}
