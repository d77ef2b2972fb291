//! A server that is halfway through a write: whoever READs that finds out and asks again, and with
//! the checks left out a value is returned that never was.

use crate::rig::{World, seed};
use fastrand::Rng;
use laneway_studies::rivals::client::{Answer, Ended};
use laneway_studies::rivals::design::Design;
use laneway_studies::rivals::server::Sizes;
use std::collections::HashMap;

const READING: [Design; 3] = [Design::Pilaf, Design::Farm, Design::FarmVar];
const BYTES: usize = 100;

fn world(design: Design, trusting: bool) -> World {
    let world = World::new(design, Sizes::of(design, 8, 8, BYTES), 1);
    if trusting { world.trusting() } else { world }
}

/// What became of a GET into which a PUT came, and another that went no further than `words` words
/// while the GET was tried for a while. `None`: the second has fewer words.
fn interrupted(design: Design, trusting: bool, turns: usize, words: usize) -> Option<Ended> {
    let mut world = world(design, trusting);
    let store = world.server.store();
    assert_eq!(store.put(b"key", &[1; BYTES]), Ok(()));
    world.client.get(0, b"key").expect("there is room");
    (0..turns).for_each(|_| world.turn());
    let store = world.server.store();
    assert_eq!(store.put(b"key", &[2; BYTES]), Ok(()));
    store.memory().expect("it is READ").hold();
    assert_eq!(store.put(b"key", &[3; BYTES]), Ok(()));
    let memory = store.memory().expect("it is READ");
    if words > 0 && memory.let_through(words - 1) == 0 {
        return None;
    }
    memory.let_through(usize::from(words > 0));
    (0..20).for_each(|_| world.turn());
    world.server.store().memory().expect("it is READ").release();
    Some(world.end())
}

/// Whether the value was ever put.
fn is_whole(ended: &Ended) -> bool {
    let values = [1, 2, 3].map(|byte| Ok(Answer::Value(vec![byte; BYTES])));
    values.contains(&ended.result)
}

/// Every way to be interrupted.
fn all(design: Design, trusting: bool) -> Vec<Ended> {
    let words = |turns| (0..).map_while(move |words| interrupted(design, trusting, turns, words));
    (0..4).flat_map(words).collect()
}

#[test]
fn a_get_that_meets_half_a_put_is_tried_again_until_it_has_a_whole_value() {
    for design in READING {
        let all = all(design, false);
        assert!(all.len() > 4 * BYTES / 8, "{design}: a write has many words");
        let torn = all.iter().filter(|ended| ended.torn > 0).count();
        assert!(torn > BYTES / 8 - 2, "{design}: {torn} of {} were torn", all.len());
        for ended in &all {
            assert!(is_whole(ended), "{design}: {ended:?}");
        }
    }
}

#[test]
fn without_the_checks_values_are_returned_that_never_were() {
    for design in READING {
        let all = all(design, true);
        let wrong: Vec<_> = all
            .iter()
            .filter(|ended| matches!(&ended.result, Ok(Answer::Value(_))) && !is_whole(ended))
            .collect();
        assert!(wrong.len() > 4, "{design}: the checks are for nothing: {} wrong", wrong.len());
    }
}

/// A value that says whose it is and which.
fn value(key: u64, version: u64) -> Vec<u8> {
    // Of two lengths, so that what one gives back another takes.
    let bytes = 48 + 40 * ((key + version) % 2) as usize;
    let mut draws = Rng::with_seed(key << 32 | version);
    let mut value: Vec<u8> = [key.to_le_bytes(), version.to_le_bytes()].concat();
    value.extend((16..bytes).map(|_| draws.u8(..)));
    value
}

fn version_of(key: u64, got: &[u8]) -> Option<u64> {
    let (words, _) = got.as_chunks::<8>();
    let version = u64::from_le_bytes(*words.get(1)?);
    (got == value(key, version)).then_some(version)
}

const KEYS: u64 = 48;

/// Puts and gets in an order that a seed decides, with the server stopped now and then between two
/// words of what it writes.
struct Mess {
    world: World,
    draws: Rng,
    /// By key: how often it was put, and how much of that every READ from now on sees.
    put: HashMap<u64, u64>,
    seen: HashMap<u64, u64>,
    /// By ticket: the key, and what was seen of it when the GET began.
    begun: HashMap<u64, (u64, u64)>,
    tickets: u64,
    answered: u64,
    torn: u64,
    wrong: u64,
}

impl Mess {
    fn new(design: Design, seed: u64, trusting: bool) -> Mess {
        let full = Sizes::of(design, KEYS as usize, 8, 96);
        // Nearly full, so that items move when others come.
        let places = if design == Design::Pilaf { 52 } else { 96 };
        let world = World::new(design, Sizes { places, ..full }, 8);
        Mess {
            world: if trusting { world.trusting() } else { world },
            draws: Rng::with_seed(seed),
            put: HashMap::new(),
            seen: HashMap::new(),
            begun: HashMap::new(),
            tickets: 0,
            answered: 0,
            torn: 0,
            wrong: 0,
        }
    }

    fn step(&mut self) {
        // Half of it about few keys, which are then got while they are put.
        let hot = self.draws.bool();
        let key = self.draws.u64(..if hot { 3 } else { KEYS });
        match self.draws.u64(..10) {
            0..=2 => {
                let version = self.put.get(&key).copied().unwrap_or(0) + 1;
                let value = value(key, version);
                // A full neighbourhood is no news to anybody.
                if self.world.server.store().put(&key.to_le_bytes(), &value).is_ok() {
                    self.put.insert(key, version);
                }
            }
            3 => self.world.server.store().memory().expect("it is READ").hold(),
            4 if self.draws.u64(..3) == 0 => {
                self.world.server.store().memory().expect("it is READ").release();
            }
            4 | 5 => {
                let words = self.draws.usize(..24);
                self.world.server.store().memory().expect("it is READ").let_through(words);
            }
            6 | 7 if self.world.client.has_room() => {
                let seen = self.seen.get(&key).copied().unwrap_or(0);
                let key_bytes = key.to_le_bytes();
                self.world.client.get(self.tickets, &key_bytes).expect("there is room");
                self.begun.insert(self.tickets, (key, seen));
                self.tickets += 1;
            }
            _ => self.world.turn(),
        }
        if self.world.server.store().memory().expect("it is READ").let_through(0) == 0 {
            self.seen.clone_from(&self.put);
        }
        self.judge();
    }

    fn judge(&mut self) {
        while let Some(ended) = self.world.client.take() {
            let (key, seen) = self.begun.remove(&ended.ticket).expect("it was asked");
            let put = self.put.get(&key).copied().unwrap_or(0);
            let is_right = match &ended.result {
                Ok(Answer::Value(value)) => version_of(key, value)
                    .is_some_and(|version| (seen.max(1)..=put).contains(&version)),
                Ok(Answer::Missing) => seen == 0,
                _ => false,
            };
            self.answered += 1;
            self.torn += u64::from(ended.torn > 0);
            self.wrong += u64::from(!is_right);
        }
    }
}

#[test]
fn whenever_the_server_stops_every_get_has_a_value_of_its_time() {
    for design in READING {
        let (mut answered, mut torn, mut wrong_if_trusted) = (0, 0, 0);
        for seed in seed()..seed() + 20 {
            let mut mess = Mess::new(design, seed, false);
            let mut trusting = Mess::new(design, seed, true);
            for _ in 0..4_000 {
                mess.step();
                trusting.step();
                let again =
                    format!("LANEWAY_SEED={seed} cargo test -p laneway-studies --test rivals");
                assert_eq!(mess.wrong, 0, "{design}; again with: {again}");
            }
            answered += mess.answered;
            torn += mess.torn;
            wrong_if_trusted += trusting.wrong;
        }
        println!("{design}: {answered} answered, {torn} torn, {wrong_if_trusted} wrong if trusted");
        assert!(answered > 2_000 && torn > 20, "{design}: {answered} answered, {torn} torn");
        assert!(wrong_if_trusted > 0, "{design}: the checks are for nothing");
    }
}
