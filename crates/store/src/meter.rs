//! The meter of work ([`laneway_sync::meter`]), which the store tells what it does.

pub use laneway_sync::meter::*;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{moment::Moment, store::Store, types::Config};

    const NOW: Moment = Moment::from_seconds(1);

    #[test]
    fn a_sweep_says_how_many_slots_it_looked_at_and_is_told_once() {
        let store = Store::new(Config::default()).expect("a small store");
        for number in 0..100 {
            let key = format!("key{number}");
            let mut draft =
                store.draft(key.as_bytes(), 0, Moment::NEVER, 3).expect("there is room");
            draft.write(b"abc").expect("there is room");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        }
        assert_eq!(take().bytes, 300);
        store.sweep(NOW, 70);
        assert_eq!(take().slots, 70, "and it may look at no more");
        assert_eq!(take(), Work::default());
        let other = std::thread::spawn(|| {
            keys(7);
            take().keys
        });
        assert_eq!(other.join().ok(), Some(7));
        assert_eq!(take(), Work::default(), "what another thread did is its own");
    }
}
