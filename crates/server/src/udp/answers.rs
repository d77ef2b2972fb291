//! Answers to requests that are carried out once: what a queue remembers of each, so that a repeat
//! is answered and not carried out again.
//!
//! A table of [`PLACES`] places in sets of [`WAYS`], found by a keyed hash of peer and request id;
//! where a set is full, its oldest goes. So remembering costs the same however many are remembered,
//! and no turn pays for tidying up: a client that repeats for seconds while hundreds of thousands
//! of others write must still be known. Answers to changes are a few bytes and lie in their place;
//! longer ones apart, fewer of them. Of one that had to make room it is still known that its
//! request was carried out. Times are nanoseconds.

use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::udp::retain::{Bounds, Retained};

/// Requests remembered per queue. Of 100 thousand a second at one queue, 98 in 100 are still known
/// after 1.3 s; of 25 thousand after 5 s, which is as long as a client goes on repeating.
pub const PLACES: usize = 1 << 18;
/// Places that a request may take.
const WAYS: usize = 8;
/// How long an answer is known: longer than a client goes on repeating its request.
pub const ANSWER_NANOS: u64 = 10_000_000_000;
/// Bytes of an answer that lies in its place.
const SHORT_BYTES_MAX: usize = 23;
/// Longer answers, and bytes of them.
const LONG_MAX: usize = 4096;
const LONG_BYTES_MAX: usize = 1 << 20;

// Memory of the table. It is taken from the system a page at a time, as it is used.
const _: () = assert!(PLACES * size_of::<Place>() == 12 << 20);

/// Name (0: free), digest, when it was put in, and the answer: its length or what it is, and its
/// bytes. Numbers, because memory that begins as zeroes costs nothing until it is used.
type Place = [u64; 6];
const NAME: usize = 0;
const DIGEST: usize = 1;
const BORN: usize = 2;
const ANSWER: usize = 3;

/// Instead of a length: the request is under way.
const UNDER_WAY: u8 = 0xff;
/// The same, and of its message there is more: it is not given up for one of its requests.
const IN_PARTS: u8 = 0xfd;
/// Instead of a length: the answer is a long one.
const LONG: u8 = 0xfe;

/// What to do with a request that is to be carried out once.
#[derive(Debug, PartialEq, Eq)]
pub enum Once {
    /// Carry it out.
    Go,
    /// It was: this is the answer.
    Answered(Box<[u8]>),
    /// It is under way.
    UnderWay,
    /// It was carried out, and its answer, a long one, had to make room.
    Forgotten,
}

/// One queue's.
pub struct Answers {
    /// Empty until there is a request to remember.
    places: Vec<Place>,
    long: Retained<u64, Box<[u8]>>,
}

impl Default for Answers {
    fn default() -> Self {
        let bounds = Bounds {
            entries_max: LONG_MAX,
            bytes_max: LONG_BYTES_MAX,
            age_nanos_max: ANSWER_NANOS,
        };
        Answers { places: Vec::new(), long: Retained::new(bounds) }
    }
}

impl Answers {
    /// Whether the request of this name and content is to be carried out; from now on it is under
    /// way. `name`: a keyed hash of its peer and id.
    pub fn once(&mut self, name: u64, digest: u64, now: u64) -> Once {
        let name = name.max(1);
        if let Some(place) = self.find(name, now)
            && place[DIGEST] == digest
            && !is_planted(Bug::OnceForgotten)
        {
            return match self.told(place) {
                Some(answer) => Once::Answered(answer),
                None if is_open(place) => Once::UnderWay,
                None => Once::Forgotten,
            };
        }
        self.begin(name, digest, now);
        Once::Go
    }

    /// One whose answer is forgotten is carried out again: from now on it is under way.
    pub fn again(&mut self, name: u64, digest: u64, now: u64) {
        self.begin(name.max(1), digest, now);
    }

    fn begin(&mut self, name: u64, digest: u64, now: u64) {
        if self.places.is_empty() {
            self.places = vec![[0; 6]; PLACES];
        }
        // Its own place if it has one, else one that is free, else the oldest.
        let set = &mut self.places[set_of(name)];
        let rank = |place: &&mut Place| match place[NAME] {
            own if own == name => (0, 0),
            0 => (1, 0),
            _ => (2, place[BORN]),
        };
        let place = set.iter_mut().min_by_key(rank).expect("a set has places");
        *place = [name, digest, now, 0, 0, 0];
        set_answer(place, UNDER_WAY, &[]);
    }

    /// The answer to the request that is under way under this name, if there is one.
    pub fn answered(&mut self, name: u64, answer: &[u8], now: u64) {
        let name = name.max(1);
        let Some(place) = self.find_mut(name, now) else { return };
        if !is_open(place) {
            return;
        }
        if answer.len() <= SHORT_BYTES_MAX {
            set_answer(place, answer.len() as u8, answer);
        } else {
            set_answer(place, LONG, &[]);
            self.long.keep(name, answer.into(), answer.len(), now);
        }
    }

    /// The answer to whatever was under this name last.
    pub fn answer(&self, name: u64, now: u64) -> Option<Box<[u8]>> {
        self.find(name.max(1), now).and_then(|place| self.told(place))
    }

    /// Whether whatever was under this name last is being carried out.
    pub fn is_under_way(&self, name: u64, now: u64) -> bool {
        self.find(name.max(1), now).is_some_and(is_open)
    }

    /// Behind the request under this name there is more of its message: from now on it is given up
    /// for none of its requests. False: it was given up already.
    pub fn goes_on(&mut self, name: u64, now: u64) -> bool {
        let Some(place) = self.find_mut(name.max(1), now) else { return false };
        if answer_byte(place) == UNDER_WAY {
            set_answer(place, IN_PARTS, &[]);
        }
        true
    }

    /// The request under this name was not carried out after all, or its answer is not kept.
    pub fn given_up(&mut self, name: u64, now: u64) {
        if let Some(place) = self.find_mut(name.max(1), now)
            && answer_byte(place) == UNDER_WAY
        {
            *place = [0; 6];
        }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.places.len() * size_of::<Place>() + self.long.bytes()
    }

    /// Forget what is too old of what takes memory of its own.
    pub fn expire(&mut self, now: u64) {
        self.long.expire(now);
    }

    fn find(&self, name: u64, now: u64) -> Option<&Place> {
        let set = self.places.get(set_of(name))?;
        set.iter().find(|place| place[NAME] == name && is_young(place, now))
    }

    fn find_mut(&mut self, name: u64, now: u64) -> Option<&mut Place> {
        let set = self.places.get_mut(set_of(name))?;
        set.iter_mut().find(|place| place[NAME] == name && is_young(place, now))
    }

    fn told(&self, place: &Place) -> Option<Box<[u8]>> {
        match answer_byte(place) {
            UNDER_WAY | IN_PARTS => None,
            LONG => self.long.get(&place[NAME], place[BORN]).cloned(),
            length => {
                let words = &place[ANSWER..];
                let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                Some(bytes.skip(1).take(usize::from(length)).collect())
            }
        }
    }
}

fn set_of(name: u64) -> std::ops::Range<usize> {
    let set = (name as usize % (PLACES / WAYS)) * WAYS;
    set..set + WAYS
}

fn is_young(place: &Place, now: u64) -> bool {
    now.saturating_sub(place[BORN]) <= ANSWER_NANOS
}

fn answer_byte(place: &Place) -> u8 {
    place[ANSWER] as u8
}

fn is_open(place: &Place) -> bool {
    matches!(answer_byte(place), UNDER_WAY | IN_PARTS)
}

fn set_answer(place: &mut Place, length: u8, answer: &[u8]) {
    let mut bytes = [0; 1 + SHORT_BYTES_MAX];
    bytes[0] = length;
    bytes[1..=answer.len()].copy_from_slice(answer);
    for (word, eight) in place[ANSWER..].iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*eight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> u64 {
        // Any good hash will do: this one repeats.
        let spread = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let spread = (spread ^ spread >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        spread ^ spread >> 32
    }

    fn answered(text: &[u8]) -> Once {
        Once::Answered(text.into())
    }

    #[test]
    fn a_request_is_carried_out_once_then_answered_and_another_one_is_another() {
        let mut answers = Answers::default();
        for (name, text) in [(1, &b"STORED\r\n"[..]), (2, b""), (3, &[b'l'; 23]), (4, &[b'm'; 24])]
        {
            assert_eq!(answers.once(name, 5, 10), Once::Go);
            assert_eq!(answers.once(name, 5, 11), Once::UnderWay);
            answers.answered(name, text, 12);
            answers.answered(name, b"the second of one datagram", 12);
            assert_eq!(answers.once(name, 5, 13), answered(text));
            assert_eq!(answers.answer(name, 13), Some(text.into()));
            assert_eq!(answers.once(name, 6, 14), Once::Go, "under the same name");
            answers.given_up(name, 15);
            assert_eq!(answers.once(name, 6, 16), Once::Go, "it was not carried out");
            answers.answered(name, text, 17);
            answers.given_up(name, 18);
            assert_eq!(answers.once(name, 6, 19), answered(text), "too late to give it up");
            assert_eq!(answers.once(name, 6, 17 + ANSWER_NANOS), Once::Go, "too old");
        }
        assert_eq!(answers.answer(name(9), 0), None);
    }

    #[test]
    fn a_message_is_given_up_for_its_first_request_and_for_none_once_it_has_gone_on() {
        let mut answers = Answers::default();
        assert_eq!(answers.once(1, 5, 10), Once::Go);
        answers.given_up(1, 11);
        assert!(!answers.goes_on(1, 11), "it is gone");
        assert_eq!(answers.once(1, 5, 12), Once::Go);
        assert!(answers.goes_on(1, 13));
        answers.given_up(1, 14);
        assert_eq!(answers.once(1, 5, 15), Once::UnderWay);
        assert!(answers.is_under_way(1, 15));
        answers.answered(1, b"6\r\n", 16);
        assert!(answers.goes_on(1, 17), "and it stays answered");
        assert_eq!(answers.once(1, 5, 18), answered(b"6\r\n"));
    }

    #[test]
    fn a_long_answer_that_made_room_is_known_to_have_been_given() {
        let mut answers = Answers::default();
        let long = [b'x'; 24];
        for number in 0..=LONG_MAX as u64 {
            assert_eq!(answers.once(name(number), 5, 10), Once::Go);
            answers.answered(name(number), &long, 10);
        }
        assert_eq!(answers.once(name(1), 5, 11), answered(&long));
        assert_eq!(answers.once(name(0), 5, 11), Once::Forgotten);
        assert_eq!(answers.once(name(0), 5, 12), Once::Forgotten, "asking changes nothing");
        answers.again(name(0), 5, 13);
        assert_eq!(answers.once(name(0), 5, 14), Once::UnderWay);
        answers.answered(name(0), b"6\r\n", 15);
        assert_eq!(answers.once(name(0), 5, 16), answered(b"6\r\n"));
        assert_eq!(answers.once(name(1), 6, 17), Once::Go, "another request under its name");
    }

    #[test]
    fn what_was_answered_seconds_ago_is_known_behind_a_hundred_thousand_others() {
        let mut answers = Answers::default();
        let requests = PLACES as u64 / 2;
        for number in 0..requests {
            assert_eq!(answers.once(name(number), number, number), Once::Go);
            answers.answered(name(number), b"STORED\r\n", number);
        }
        let known = |number: &u64| answers.answer(name(*number), requests).is_some();
        let known = (0..requests).filter(known).count() as u64;
        assert!(known > requests * 97 / 100, "{known} of {requests}");
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let mut answers = Answers::default();
        assert_eq!(answers.places.len(), 0, "nothing is taken before there is something");
        let long = vec![b'x'; 1000];
        for number in 0..2 * PLACES as u64 {
            answers.once(name(number), 0, number);
            answers.answered(name(number), if number % 64 == 0 { &long } else { b"6\r\n" }, number);
        }
        assert_eq!(answers.places.len(), PLACES);
        assert!(answers.long.len() <= LONG_MAX && answers.long.bytes() <= LONG_BYTES_MAX);
        let last = 2 * PLACES as u64 - 1;
        assert!(answers.answer(name(last), last).is_some());
        let old =
            (0..PLACES as u64 / 2).filter(|number| answers.answer(name(*number), last).is_some());
        assert!(old.count() < PLACES / 16, "the oldest went");
        (0..10).for_each(|_| answers.expire(last + ANSWER_NANOS + 1));
        assert!(answers.long.is_empty());
    }
}
