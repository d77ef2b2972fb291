//! Who watches a server waits for nobody who serves. (That a scrape takes no lock at all is counted
//! by `cargo xtask instructions scrape`.)

use laneway_rig::Rig;
use laneway_store::Moment;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[test]
fn a_scrape_ends_while_a_bucket_the_executor_and_the_list_of_connections_are_held() {
    let mut rig = Rig::watched();
    let client = rig.net.connect();
    rig.set(&client, "key", b"value");
    let (shared, executor) = (&rig.shared, rig.executor.as_ref().expect("items are kept"));
    let now = Moment::from_seconds(shared.started_seconds);
    let bucket = shared.store.enter(shared.store.hash(b"key"), b"key", now);
    let held = (executor.lock(), shared.connections.cards.lock());
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let told = shared.watch(shared.started_seconds);
            done.send((told.store.items, told.connections.open)).expect("somebody waits");
        });
        let told = is_done.recv_timeout(Duration::from_secs(60));
        drop((held, bucket));
        assert_eq!(told, Ok((1, 1)), "it waits for somebody who serves");
    });
}
