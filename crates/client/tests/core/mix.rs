//! A mix of reads and writes whose every answer can be judged: values tell their key and version
//! and are checked to the last byte, and a read may only find versions that the order of reads and
//! writes allows. Knows no server: whoever uses it has a [`World`].

use fastrand::Rng;
use laneway_client::{Answer, Core, Error, Request, Ticket};
use std::collections::BTreeMap;

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

const KEYS: u64 = 300;
/// Every version of these keys is equally long, so that frames of two would fit together.
const KEYS_EVEN: u64 = 20;
const EVEN_BYTES: usize = 30_000;

/// A core, a network and a server, in one simulated time.
pub trait World {
    fn core(&mut self) -> &mut Core;
    fn now_nanos(&self) -> u64;
    /// One turn of client and server; time passes.
    fn turn(&mut self);

    /// The answer to one request.
    fn ask(&mut self, request: Request) -> Result<Answer, Error> {
        let now_nanos = self.now_nanos();
        self.core().push(request, now_nanos).expect("it is a fine request");
        loop {
            self.turn();
            if let Some((_, answer)) = self.core().answer() {
                return answer;
            }
        }
    }
}

/// A value that tells what it is.
fn value(key: u64, version: u64, length: usize) -> Vec<u8> {
    let mut draws = Rng::with_seed(key << 32 | version);
    let mut out = format!("{key}:{version}:{length}:").into_bytes();
    while out.len() < length {
        out.extend(draws.u64(..).to_le_bytes());
    }
    out.truncate(length.max(16));
    out
}

/// Which version of `key` this is, if it is one to the last byte.
fn version(key: u64, data: &[u8]) -> Option<u64> {
    let text: Vec<u8> = data.iter().copied().take(40).collect();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split(':');
    let told: u64 = words.next()?.parse().ok()?;
    let version: u64 = words.next()?.parse().ok()?;
    let length: usize = words.next()?.parse().ok()?;
    (told == key && data == value(key, version, length)).then_some(version)
}

#[derive(Default)]
struct Known {
    /// The last version whose write was answered, and the last that was begun.
    answered: u64,
    begun: u64,
    writing: bool,
    /// A write's outcome is unknown: it may show at any time.
    tainted: bool,
}

enum Doing {
    Write { key: u64, version: u64 },
    Read { key: u64, least: u64 },
}

/// Sizes of Minos §5, with more large ones: up to 500 KB.
fn length(draws: &mut Rng, key: u64) -> usize {
    if key < KEYS_EVEN {
        return EVEN_BYTES;
    }
    match draws.u64(..1000) {
        0..25 => draws.usize(1500..500_000),
        25..600 => draws.usize(16..1400),
        _ => draws.usize(16..46),
    }
}

/// The requests under way and what may be answered.
pub struct Mix<W> {
    pub world: W,
    draws: Rng,
    known: BTreeMap<u64, Known>,
    doing: BTreeMap<Ticket, (Doing, u64)>,
    pub failed: u64,
    pub slowest_nanos: u64,
    /// What repeats this run.
    again: String,
}

impl<W: World> Mix<W> {
    fn begin(&mut self) {
        let key = self.draws.u64(..KEYS);
        let known = self.known.entry(key).or_default();
        let name = format!("key:{key}");
        let now_nanos = self.world.now_nanos();
        let (request, doing) = if self.draws.bool() && !known.writing {
            known.begun += 1;
            known.writing = true;
            let version = known.begun;
            let value = value(key, version, length(&mut self.draws, key));
            (Request::set(name, value), Doing::Write { key, version })
        } else {
            (Request::get(name), Doing::Read { key, least: known.answered })
        };
        let ticket = self.world.core().push(request, now_nanos).expect("there is room");
        self.doing.insert(ticket, (doing, now_nanos));
    }

    fn end(&mut self, ticket: Ticket, answer: Result<Answer, Error>) {
        let (doing, begun_nanos) = self.doing.remove(&ticket).expect("it was begun");
        let nanos = self.world.now_nanos() - begun_nanos;
        self.slowest_nanos = self.slowest_nanos.max(nanos);
        let again = &self.again;
        match (doing, answer) {
            (Doing::Write { key, version }, answer) => {
                let known = self.known.get_mut(&key).expect("it was begun");
                known.writing = false;
                match answer {
                    Ok(Answer::Done) => known.answered = version,
                    Err(Error::OutcomeUnknown { .. }) => {
                        known.tainted = true;
                        self.failed += 1;
                    }
                    other => panic!("set of key {key}: {other:?}; again with: {again}"),
                }
            }
            (Doing::Read { key, least }, Ok(answer)) => {
                let known = &self.known[&key];
                let found = match answer {
                    Answer::Missing => 0,
                    Answer::Value(value) => version(key, &value.data).unwrap_or_else(|| {
                        let bytes = value.data.len();
                        panic!("key {key}: {bytes} wrong bytes; again with: {again}")
                    }),
                    other => panic!("get of key {key}: {other:?}; again with: {again}"),
                };
                let right = (least..=known.begun).contains(&found) || known.tainted;
                assert!(right, "key {key}: version {found}, not {least}; again with: {again}");
            }
            (Doing::Read { .. }, Err(Error::TimedOut { .. })) => self.failed += 1,
            (Doing::Read { key, .. }, Err(error)) => {
                panic!("get of key {key}: {error}; again with: {again}")
            }
        }
    }
}

/// `requests` requests, with `together` under way at once; at most `failures` fail, and none takes
/// longer than its deadline. `again` is what repeats this run.
pub fn check<W: World>(
    world: W,
    seed: u64,
    (requests, together, failures): (u64, usize, u64),
    again: String,
) -> Mix<W> {
    let mut mix = Mix {
        world,
        draws: Rng::with_seed(seed ^ 0x5EED),
        known: BTreeMap::new(),
        doing: BTreeMap::new(),
        failed: 0,
        slowest_nanos: 0,
        again,
    };
    let mut begun = 0;
    while begun < requests || !mix.doing.is_empty() {
        while begun < requests && mix.doing.len() < together {
            mix.begin();
            begun += 1;
        }
        mix.world.turn();
        while let Some((ticket, answer)) = mix.world.core().answer() {
            mix.end(ticket, answer);
        }
    }
    let Mix { failed, slowest_nanos, again, .. } = &mix;
    assert!(*failed <= failures, "{failed} of {requests} failed; again with: {again}");
    assert!(*slowest_nanos <= 5 * SECOND + MILLISECOND, "{slowest_nanos} ns; {again}");
    mix
}

/// The seed of a run: what `LANEWAY_SEED` says, or 1.
pub fn seed() -> u64 {
    let given = std::env::var("LANEWAY_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("LANEWAY_SEED is a number"))
}
