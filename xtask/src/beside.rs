//! Work on many things, on all CPUs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What `work` makes of each, in their order.
pub fn each<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(things.len()));
    let take = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(thing) = things.get(at) else { return };
            let made = work(thing);
            done.lock().expect("nobody panics inside").push((at, made));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |number| number.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(take))));
    let mut done = done.into_inner().expect("nobody panics inside");
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_are_done_once_and_stay_in_order() {
        let things: Vec<u64> = (0..100).collect();
        let squares: Vec<u64> = things.iter().map(|number| number * number).collect();
        assert_eq!(super::each(&things, |number| number * number), squares);
        assert_eq!(super::each(&[0_u8; 0], |number| *number), [0_u8; 0]);
    }
}
