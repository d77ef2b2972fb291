//! The rings of descriptors under loom: what is taken out is what was put in, in order, and no
//! place is written again before it was read.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_descriptors`
#![cfg(loom)]

use laneway_sync::descriptors::{Consumer, Memory, Producer};
use laneway_sync::prim::{AtomicU32, AtomicU64, Ordering::Relaxed};
use loom::{sync::Arc, thread};

/// A ring of two places, of descriptors of two words, and a frame of one word for each number.
struct Shared {
    producer: AtomicU32,
    consumer: AtomicU32,
    words: [AtomicU64; 4],
    frames: [AtomicU64; 3],
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            producer: AtomicU32::new(0),
            consumer: AtomicU32::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            frames: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn memory(&self) -> Memory<'_> {
        Memory { producer: &self.producer, consumer: &self.consumer, words: &self.words }
    }
}

/// Three descriptors go through two places: the third one waits for a place to be given back.
#[test]
fn descriptors_come_out_whole_in_order_and_with_the_frames_they_name() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let putting = thread::spawn(move || {
            let mut end = Producer::<2>::new(2);
            let mut number = 0;
            for _ in 0..4 {
                if number == 3 {
                    break;
                }
                other.frames[number as usize].store(10 + number, Relaxed);
                if end.put(other.memory(), [number, 100 + number]) {
                    end.publish(other.memory());
                    number += 1;
                } else {
                    thread::yield_now();
                }
            }
            number
        });
        let mut end = Consumer::<2>::new(2);
        let mut got = 0;
        let mut look = |got: &mut u64| {
            while let Some([number, note]) = end.take(shared.memory()) {
                assert_eq!((number, note), (*got, 100 + *got));
                let frame = shared.frames[number as usize].load(Relaxed);
                assert_eq!(frame, 10 + number, "the frame was written before");
                end.release(shared.memory());
                *got += 1;
            }
        };
        for _ in 0..2 {
            look(&mut got);
            thread::yield_now();
        }
        let put = putting.join().unwrap();
        look(&mut got);
        assert_eq!(got, put, "none is lost");
        assert!(put >= 2, "there were two places");
    });
}
