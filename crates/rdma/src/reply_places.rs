//! Allocates places in the memory that one client in shared memory lends for long replies: the
//! server's own account, where no client can write. A place is a stretch of that memory and a word
//! ([`laneway_sync::place`]), which says to the client how long its reply lies there.
//!
//! A place that is being written is its writer's until that lets go of it, whatever its client says
//! or how late it is: so no two ever write the same bytes. Once its client was told, it ends by the
//! client's word, by another reply under its id, or by time. Times are nanoseconds, sizes bytes.

use crate::layout;
use crate::long::ledger::{self, Ledger};
use laneway_sync::planted::{Bug, is_planted};

const _: () = assert!(layout::PLACES_MAX <= ledger::PLACES_MAX);

/// How far a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    /// The same, but nobody wants it any more.
    Unwanted,
    Told,
}

/// Who has a place.
#[derive(Debug, Clone, Copy)]
struct Held {
    number: u64,
    id: u16,
    state: State,
}

/// A place that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyPlace {
    /// Which: that of its word.
    pub place: usize,
    /// New each time, from 1.
    pub number: u64,
    /// Where its memory begins.
    pub offset: usize,
}

/// See the module's page.
#[derive(Debug)]
pub struct ReplyPlaces {
    ledger: Ledger,
    held: Vec<Option<Held>>,
}

impl ReplyPlaces {
    /// So many places in memory of so many bytes, all free.
    pub fn new(places: usize, bytes: usize) -> ReplyPlaces {
        ReplyPlaces { ledger: Ledger::new(bytes), held: vec![None; places] }
    }

    /// A place for the reply of `bytes` to request `id`, whose own one before ends. `None`: there
    /// is no room. `end` is told of each place that ends.
    pub fn take(
        &mut self,
        id: u16,
        bytes: usize,
        now_nanos: u64,
        mut end: impl FnMut(usize),
    ) -> Option<ReplyPlace> {
        self.taken(id, &mut end);
        self.ledger.expire(now_nanos);
        for (place, held) in self.held.iter_mut().enumerate() {
            if held.is_some_and(|held| !self.ledger.holds(held.number)) {
                *held = None;
                end(place);
            }
        }
        let place = self.held.iter().position(Option::is_none)?;
        // Its time begins when its client is told.
        let given = self.ledger.take(place as u16, bytes, now_nanos, u64::MAX)?;
        self.held[place] = Some(Held { number: given.number, id, state: State::Writing });
        let offset = if is_planted(Bug::PlaceReused) { 0 } else { given.offset };
        Some(ReplyPlace { place, number: given.number, offset })
    }

    /// Whether its writer is to go on.
    pub fn is_wanted(&self, of: ReplyPlace) -> bool {
        self.held(of).is_some_and(|held| held.state != State::Unwanted)
    }

    /// All of it is written, and its client is being told: it ends `keep_nanos` from now. False: it
    /// has ended.
    pub fn tell(&mut self, of: ReplyPlace, now_nanos: u64, keep_nanos: u64) -> bool {
        let is_wanted = self.is_wanted(of);
        if is_wanted && let Some(held) = &mut self.held[of.place] {
            held.state = State::Told;
            self.ledger.renew(of.number, now_nanos, keep_nanos);
        }
        is_wanted
    }

    /// Its writer lets go of it untold. Whether it had not ended before.
    pub fn let_go(&mut self, of: ReplyPlace) -> bool {
        let is_held = self.held(of).is_some();
        if is_held {
            self.held[of.place] = None;
            self.ledger.give_back_number(of.number);
        }
        is_held
    }

    /// The client has taken the reply to request `id`, or wants it no more.
    pub fn taken(&mut self, id: u16, mut end: impl FnMut(usize)) {
        for (place, slot) in self.held.iter_mut().enumerate() {
            match slot {
                Some(held) if held.id == id && held.state == State::Told => {
                    self.ledger.give_back_number(held.number);
                    *slot = None;
                    end(place);
                }
                Some(held) if held.id == id => held.state = State::Unwanted,
                _ => {}
            }
        }
    }

    /// How many ended by time.
    pub fn expired(&self) -> u64 {
        self.ledger.expired()
    }

    fn held(&self, of: ReplyPlace) -> Option<Held> {
        self.held[of.place].filter(|held| held.number == of.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LINE_BYTES;
    use crate::long::twin::Draws;
    use std::collections::BTreeMap;

    fn none(_: usize) {
        panic!("no place ends");
    }

    #[test]
    fn a_place_ends_by_its_clients_word_by_its_id_and_by_time() {
        let mut places = ReplyPlaces::new(2, 4096);
        let first = places.take(7, 1000, 0, none).expect("all is free");
        assert_eq!(first, ReplyPlace { place: 0, number: 1, offset: 0 });
        assert!(places.tell(first, 5, 10));
        let second = places.take(8, 1000, 5, none).expect("there is another");
        assert_eq!((second.place, second.offset), (1, 1024));
        assert_eq!(places.take(9, 1, 14, none), None, "there is no third word");
        // Its time is up.
        let mut ended = Vec::new();
        let third = places.take(9, 1, 15, |place| ended.push(place)).expect("the first has ended");
        assert_eq!((third.place, third.offset, places.expired()), (0, 0, 1));
        assert!(!places.is_wanted(first) && !places.tell(first, 15, 10) && !places.let_go(first));
        // Its client has it, and has the next under the same id.
        assert!(places.tell(second, 15, 10) && places.tell(third, 15, 10));
        places.taken(9, |place| ended.push(place));
        let fourth = places.take(8, 4096, 16, |place| ended.push(place)).expect("all is free");
        assert_eq!((ended, fourth.offset), (vec![0, 0, 1], 0));
        assert!(places.let_go(fourth) && !places.let_go(fourth));
        assert_eq!(places.take(1, 4097, 16, none), None);
        assert!(places.take(1, 4096, 16, none).is_some());
    }

    #[test]
    fn what_is_being_written_is_given_to_nobody_else_whatever_its_client_says() {
        let mut places = ReplyPlaces::new(4, 2048);
        let first = places.take(7, 1024, 0, none).expect("all is free");
        places.taken(7, none);
        assert!(!places.is_wanted(first) && !places.tell(first, 0, 10));
        let again = places.take(7, 1024, 1 << 60, none).expect("beside it");
        assert_eq!((again.offset, places.is_wanted(again)), (1024, true));
        assert_eq!(places.take(8, 1, 1 << 60, none), None, "both are being written");
        assert!(places.let_go(first));
        assert_eq!(places.take(8, 1, 0, none).map(|place| place.offset), Some(0));
    }

    /// Thousands of random steps: no byte has two writers, and of what is told none is written
    /// before its end was said.
    #[test]
    fn no_byte_is_anothers_before_its_place_has_ended_whatever_happens() {
        for seed in 1..=20u64 {
            let mut draws = Draws::new(seed);
            let mut draw = |most: u64| draws.below(most);
            let mut places = ReplyPlaces::new(6, 32 * LINE_BYTES);
            // By place: what was given there and not said to have ended.
            let mut model: BTreeMap<usize, (ReplyPlace, usize)> = BTreeMap::new();
            for now in 0..3_000 {
                let id = draw(8) as u16;
                let which = model.values().nth(draw(6) as usize).map(|(given, _)| *given);
                match (draw(6), which) {
                    (0, _) => places.taken(id, |place| _ = model.remove(&place)),
                    (1, Some(given)) => _ = places.tell(given, now, draw(30)),
                    (2, Some(given)) => {
                        if places.let_go(given) {
                            model.remove(&given.place);
                        }
                    }
                    _ => {
                        let bytes = draw(9 * LINE_BYTES as u64) as usize;
                        let end = |place: usize| _ = model.remove(&place);
                        let Some(given) = places.take(id, bytes, now, end) else { continue };
                        let (from, to) = (given.offset, given.offset + bytes);
                        assert!(to <= 32 * LINE_BYTES, "seed {seed}");
                        let apart = |(other, bytes): &(ReplyPlace, usize)| {
                            other.offset + bytes <= from || to <= other.offset
                        };
                        assert!(model.values().all(apart), "seed {seed} at {now}");
                        assert!(model.insert(given.place, (given, bytes)).is_none(), "{seed}");
                    }
                }
            }
        }
    }
}
