//! The word of a place under loom: a message that was read whole is the one that was told, whoever
//! has its memory next.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_place`
#![cfg(loom)]

use laneway_sync::place;
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;

fn words<const COUNT: usize>() -> Arc<[AtomicU64; COUNT]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

fn write(memory: &[AtomicU64; 2], message: u64) {
    memory.iter().for_each(|word| word.store(message, Relaxed));
}

/// What is read of message `number`, if that was there all the time.
fn read(word: &AtomicU64, memory: &[AtomicU64; 2], number: u64) -> Option<[u64; 2]> {
    let is_told = place::is_told(word, number);
    let copy = memory.each_ref().map(|word| word.load(Relaxed));
    (is_told && place::is_told_still(word, number)).then_some(copy)
}

/// Two messages in the same memory under two words. Each was written by the time it was told, and
/// none of the other's words is taken for its own.
#[test]
fn what_was_there_all_the_time_is_the_message_that_was_told() {
    loom::model(|| {
        let (place, memory) = (words::<2>(), words::<2>());
        let writer = {
            let (place, memory) = (place.clone(), memory.clone());
            thread::spawn(move || {
                write(&memory, 1);
                place::tell(&place[0], 1);
                place::end(&place[0]);
                place::ended();
                write(&memory, 2);
                place::tell(&place[1], 2);
            })
        };
        for (word, number) in [(&place[0], 1), (&place[1], 2)] {
            if let Some(copy) = read(word, &memory, number) {
                assert_eq!(copy, [number; 2], "torn");
            }
        }
        writer.join().unwrap();
        assert_eq!(read(&place[0], &memory, 1), None);
        assert_eq!(read(&place[1], &memory, 2), Some([2; 2]));
    });
}

/// One thread ends a message, and another that hears of it under a lock writes the next one there.
#[test]
fn who_hears_of_the_end_under_a_lock_writes_behind_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (place, memory) = (words::<1>(), words::<2>());
        write(&memory, 1);
        place::tell(&place[0], 1);
        let is_free = Arc::new(Mutex::new(false));
        let ends = {
            let (place, is_free) = (place.clone(), is_free.clone());
            thread::spawn(move || {
                let mut is_free = is_free.lock().unwrap();
                place::end(&place[0]);
                *is_free = true;
            })
        };
        let writes = {
            let (memory, is_free) = (memory.clone(), is_free.clone());
            thread::spawn(move || {
                let is_free = *is_free.lock().unwrap();
                if is_free {
                    place::ended();
                    write(&memory, 2);
                }
            })
        };
        if let Some(copy) = read(&place[0], &memory, 1) {
            assert_eq!(copy, [1; 2], "torn");
        }
        ends.join().unwrap();
        writes.join().unwrap();
    });
}
