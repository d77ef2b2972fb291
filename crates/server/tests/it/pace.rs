//! A slice takes a bounded time: where bytes take longer, it moves fewer of them.

use laneway_policy::{Form, SLICE_BYTES, WorkerId};
use laneway_rig::{Plan, Rig};
use laneway_server::clock::ManualClock;
use laneway_server::shared::{ServerShared, Shared};
use laneway_server::worker::{Progress, Worker};
use laneway_store::{Config, Store};
use laneway_transport::memory::{Faults, Net};

const VALUE_BYTES: usize = 4 << 20;

/// Slices that a value takes out and in again, where each takes so long.
fn slices_at(nanos: u64) -> [u64; 2] {
    let settings = Rig::new(&Plan::of(1, Form::TimeShare)).shared.settings.clone();
    let store = Store::new(Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 16 << 20,
        ..Config::default()
    });
    let store = store.expect("a small store");
    let initial = laneway_policy::build(settings.policy.clone()).expect("they fit").initial();
    let (start, company) = (ManualClock::UNIX_START, ServerShared::default());
    let shared = Shared::in_company(store, settings, initial, start, company);
    let net = Net::new(Faults::NONE);
    let clock = ManualClock::default();
    clock.run(nanos);
    let transport = net.transport();
    let mut worker = Worker::new(WorkerId(0), shared.clone(), transport, clock, None)
        .expect("memory transports do not fail");
    let value: Vec<u8> = (0..VALUE_BYTES).map(|at| (at % 251) as u8).collect();
    let client = net.connect();
    let mut exchange = |request: &[u8], reply_bytes: usize| {
        let before = shared.workers[0].lanes.slices.get();
        let (mut sent, mut reply) = (0, Vec::new());
        // Many times what is needed: a turn moves a frame's bytes at least.
        for _ in 0..4 * VALUE_BYTES / 1_472 {
            sent += client.send(&request[sent..]);
            let progress = worker.step().expect("memory transports do not fail");
            assert_ne!(progress, Progress::Over);
            reply.extend(client.receive(usize::MAX));
            if reply.len() >= reply_bytes {
                break;
            }
        }
        let told = String::from_utf8_lossy(&reply[..reply.len().min(80)]);
        assert_eq!(sent, request.len(), "{told}");
        (reply, shared.workers[0].lanes.slices.get() - before)
    };
    let set = [format!("set big 0 0 {VALUE_BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat();
    let (reply, slices_in) = exchange(&set, b"STORED\r\n".len());
    assert_eq!(reply, b"STORED\r\n");
    let head = format!("VALUE big 0 {VALUE_BYTES}\r\n");
    let whole = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
    let (reply, slices_out) = exchange(b"get big\r\n", whole.len());
    assert!(reply == whole, "the value came otherwise");
    [slices_in, slices_out]
}

#[test]
fn slices_that_take_longer_move_fewer_bytes_and_all_of_them_arrive() {
    let fewest = VALUE_BYTES as u64 / SLICE_BYTES.0;
    for slices in slices_at(0) {
        assert!((fewest..fewest + 8).contains(&slices), "{slices} slices of a fast machine");
    }
    // 40 us for each slice, whatever it moves: they shrink as far as they may, to half.
    for slices in slices_at(40_000) {
        assert!(
            slices > fewest * 3 / 2,
            "{slices} slices of a slow machine, {fewest} of a fast one"
        );
    }
}
