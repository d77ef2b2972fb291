//! The load generator against a scripted server.
#![allow(clippy::unwrap_used)]

mod datagram;
mod floor;
mod invocation;
mod records;
mod schema;
mod scripted;
mod scripted_udp;
mod sender;

/// A thread that has no CPU for a whole window sees nothing in it.
const TRIES: usize = 200;

/// The first of many tries that shows something. What must hold of each is asserted within it; one
/// whose threads had no turn in time shows nothing, and another is made.
#[track_caller]
fn within_tries<T>(one: impl FnMut() -> Option<T>) -> T {
    let mut tries = std::iter::repeat_with(one).take(TRIES);
    match tries.find_map(|shown| shown) {
        Some(shown) => shown,
        None => panic!("not seen in {TRIES} tries"),
    }
}
