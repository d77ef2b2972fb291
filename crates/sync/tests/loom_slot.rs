//! The slot, its doorbell and the loan under loom: a message is taken whole, a sleeper is rung for
//! what it has not seen, and memory on loan is read by one before it is written again.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_slot`
#![cfg(loom)]

use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};
use laneway_sync::slot::{self, Control, Taken};
use loom::{sync::Arc, thread};

fn words<const COUNT: usize>() -> Arc<[AtomicU64; COUNT]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

fn control(sequence: u32) -> Control {
    Control { sequence, note: 0, bytes: 16 }
}

/// Two messages through one slot: what is taken is one of them, whole, under its own number.
#[test]
fn a_message_is_taken_whole_and_its_slot_used_again_only_then() {
    loom::model(|| {
        let slot = words::<3>();
        let writer = {
            let slot = slot.clone();
            thread::spawn(move || {
                slot::write(&slot[..], control(1), [&[1; 16][..]]);
                let free = slot::is_free(&slot[..]);
                if free {
                    slot::write(&slot[..], control(2), [&[2; 16][..]]);
                }
                free
            })
        };
        let mut sequences = Vec::new();
        let mut look = |slot: &[AtomicU64]| {
            let mut out = Vec::new();
            if let Taken::Message(control) = slot::take(slot, &mut out) {
                assert_eq!(out, [control.sequence as u8; 16], "torn");
                sequences.push(control.sequence);
                slot::free(slot);
            }
        };
        look(&slot[..]);
        look(&slot[..]);
        let both = writer.join().unwrap();
        look(&slot[..]);
        look(&slot[..]);
        assert_eq!(sequences, if both { vec![1, 2] } else { vec![1] });
    });
}

/// The poller raises its mark, looks once more and sleeps, twice; the writer writes and looks at
/// the bell. Whatever the order, the message is seen or the bell is rung.
#[test]
fn who_sleeps_over_a_message_is_rung() {
    loom::model(|| {
        let slot = words::<2>();
        let bell = Arc::new(AtomicU64::new(0));
        let writer = {
            let (slot, bell) = (slot.clone(), bell.clone());
            thread::spawn(move || {
                let control = Control { sequence: 1, note: 0, bytes: 8 };
                slot::write(&slot[..], control, [&[7; 8][..]]);
                slot::must_ring(&bell)
            })
        };
        let mut seen = false;
        for _ in 0..2 {
            slot::raise(&bell, slot::mark(0));
            slot::raised();
            seen |= slot::is_taken(&slot[..]);
        }
        let rung = writer.join().unwrap();
        assert!(seen || rung, "asleep over a message");
    });
}

fn write_and_ring(slot: &[AtomicU64], bell: &AtomicU64) -> bool {
    slot::write(slot, Control { sequence: 1, note: 0, bytes: 8 }, [&[7; 8][..]]);
    slot::must_ring(bell)
}

/// The poller leaves two clients be, with one fence for both; each writes meanwhile.
#[test]
fn one_fence_is_enough_for_all_bells() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let clients = [(); 2].map(|()| (words::<2>(), Arc::new(AtomicU64::new(0))));
        let writers = clients
            .clone()
            .map(|(slot, bell)| thread::spawn(move || write_and_ring(&slot[..], &bell)));
        clients.iter().for_each(|(_, bell)| slot::raise(bell, slot::mark(0)));
        slot::raised();
        let seen = clients.each_ref().map(|(slot, _)| slot::is_taken(&slot[..]));
        for (seen, writer) in seen.into_iter().zip(writers) {
            assert!(writer.join().unwrap() || seen, "left be over a message");
        }
    });
}

/// One poller leaves the client be; another of the same lane has slept, and wakes. What the client
/// writes then is not the other's alone to see: it may look at other lanes from now on.
#[test]
fn who_wakes_leaves_the_marks_of_others() {
    loom::model(|| {
        let slot = words::<2>();
        let bell = Arc::new(AtomicU64::new(0));
        let writer = {
            let (slot, bell) = (slot.clone(), bell.clone());
            thread::spawn(move || write_and_ring(&slot[..], &bell))
        };
        let other = {
            let bell = bell.clone();
            thread::spawn(move || {
                slot::raise(&bell, slot::mark(1));
                slot::raised();
                slot::lower(&bell, slot::mark(1));
            })
        };
        slot::raise(&bell, slot::mark(0));
        slot::raised();
        let seen = slot::is_taken(&slot[..]);
        other.join().unwrap();
        assert!(writer.join().unwrap() || seen, "left be over a message");
    });
}

/// The lender takes back while two try to claim: one of the three has it, and whoever reads, reads
/// what was lent, never what is written after.
#[test]
fn memory_on_loan_is_read_by_one_and_written_again_after_that() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let grant = Arc::new(AtomicU64::new(0));
        let memory = Arc::new(AtomicU64::new(0));
        memory.store(1, Relaxed);
        slot::offer(&grant, 9);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (grant, memory) = (grant.clone(), memory.clone());
                thread::spawn(move || {
                    let mine = slot::claim(&grant, 9);
                    if mine {
                        assert_eq!(memory.load(Relaxed), 1, "not what was lent");
                        slot::end_loan(&grant);
                    }
                    mine
                })
            })
            .collect();
        let back = slot::take_back(&grant, 9);
        if back || slot::loan(&grant) == slot::Loan::Ended {
            memory.store(2, Relaxed);
        }
        let claims: usize =
            readers.into_iter().map(|reader| usize::from(reader.join().unwrap())).sum();
        assert_eq!(usize::from(back) + claims, 1, "one of all has it");
    });
}
