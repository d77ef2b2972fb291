//! What the well-behaved clients of one server know together about keys that all of them write.
//!
//! A value says who it is: key, writer, the writer's count for this key, and a checksum of these
//! and of its length; all further bytes follow from them. So any reader finds a value of another
//! key, a torn one, or one cut short by itself, without a copy.
//!
//! Across clients the judge checks what linearizability per key implies, whatever is evicted
//! meanwhile. A key holds one value at a time and each value is stored once. Let a request be sent
//! after it was known that version n of writer w had taken effect (a store was acknowledged, or a
//! reader was shown it), and let its reply say that the key holds X at some moment in between. If
//! X is a value of another writer or nothing, then w's version n and all before it were replaced
//! or have gone: no request sent after that reply may show them again. If X is w's own version m,
//! then everything of w before m has gone, and m is not below n. This holds over restarts of a
//! durable server too, where a value that comes back is an acknowledged write that was lost.
//!
//! A writer stores its versions of one key one after the other: none is sent while the outcome of
//! an earlier one is open, or else both go in order by one connection.
//! It knows no protocol, socket or time. A lock per key; the order of locks says what was known
//! when.

use crate::random::{self, Value};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// What a value takes at least, in bytes.
pub const STAMP_BYTES: usize = 16;
/// Well-behaved clients of a server.
pub const WRITERS_MAX: usize = 8;

/// Which value of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    pub writer: usize,
    /// Counted from 1 for each key and writer.
    pub version: u32,
}

impl Stamp {
    /// Appends `length` bytes that are this value of `key`.
    pub fn write(self, key: u32, length: usize, out: &mut Vec<u8>) {
        assert!(STAMP_BYTES <= length, "a value holds its stamp");
        for word in [key, self.version, self.writer as u32, self.check(key, length)] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        self.rest(key, length).write(out);
    }

    /// Which value of `key` these bytes are; an error if they are none.
    pub fn read(key: u32, bytes: &[u8]) -> Result<Stamp, String> {
        let wrong = |what: String| Err(format!("key {key} holds {} bytes: {what}", bytes.len()));
        if bytes.len() < STAMP_BYTES {
            return wrong("no value is so short".into());
        }
        let word = |at: usize| {
            let four = bytes[4 * at..4 * at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(four)
        };
        let stamp = Stamp { writer: word(2) as usize, version: word(1) };
        if WRITERS_MAX <= stamp.writer || word(3) != stamp.check(word(0), bytes.len()) {
            return wrong("they do not begin as any value of this length does".into());
        }
        if word(0) != key {
            return wrong(format!("a value of key {}", word(0)));
        }
        if !stamp.rest(key, bytes.len()).is(&bytes[STAMP_BYTES..]) {
            return wrong(format!("{stamp:?} begins them and does not go on"));
        }
        Ok(stamp)
    }

    fn check(self, key: u32, length: usize) -> u32 {
        let seed = u64::from(key) << 32 | u64::from(self.version);
        random::stream(seed, (self.writer as u64) << 32 | length as u64).u32(..)
    }

    fn rest(self, key: u32, length: usize) -> Value {
        let version = (self.writer as u64) << 32 | u64::from(self.version);
        Value { key: key.into(), version, length: length - STAMP_BYTES }
    }
}

/// What is known of one key, by writer.
#[derive(Clone, Default)]
struct Facts {
    /// The last version that left.
    sent: [u32; WRITERS_MAX],
    /// The last version that is known to have taken effect.
    held: [u32; WRITERS_MAX],
    /// Up to this version all were replaced or have gone.
    gone: [u32; WRITERS_MAX],
}

impl Facts {
    /// Both together.
    fn merge(&mut self, other: &Facts) {
        let larger = |mine: &mut [u32; WRITERS_MAX], theirs: &[u32; WRITERS_MAX]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        };
        larger(&mut self.held, &other.held);
        larger(&mut self.gone, &other.gone);
    }

    /// After everything in `held` the key holds `now`.
    fn settle(&mut self, now: Option<Stamp>) {
        for writer in 0..WRITERS_MAX {
            self.gone[writer] = match now {
                Some(stamp) if stamp.writer == writer => stamp.version - 1,
                _ => self.held[writer],
            }
            .max(self.gone[writer]);
        }
        if let Some(Stamp { writer, version }) = now {
            self.held[writer] = self.held[writer].max(version);
        }
    }
}

/// What all clients of one server know.
pub struct Judge {
    keys: Vec<Mutex<Facts>>,
    /// Whether the server evicts: if not, what was stored and not deleted is there.
    evicts: bool,
}

impl Judge {
    /// Of so many keys of which nothing is known.
    pub fn new(keys: u32, evicts: bool) -> Judge {
        Judge { keys: (0..keys).map(|_| Mutex::default()).collect(), evicts }
    }

    fn facts(&self, key: u32) -> MutexGuard<'_, Facts> {
        self.keys[key as usize].lock().expect("no client panics with a key in hand")
    }
}

/// What one client knows while one batch of its requests is under way.
pub struct View<'a> {
    judge: &'a Judge,
    known: HashMap<u32, Facts>,
}

impl View<'_> {
    /// Knows nothing yet.
    pub fn new(judge: &Judge) -> View<'_> {
        View { judge, known: HashMap::new() }
    }

    /// A request for `key` will leave. To be called before the first of its batch does: what
    /// others find out while the batch is under way says nothing about its replies.
    pub fn ask(&mut self, key: u32) {
        let facts = self.judge.facts(key).clone();
        self.known.entry(key).or_default().merge(&facts);
    }

    /// The next value of `key` by this writer, which will leave; to be called as `ask`.
    pub fn next(&mut self, key: u32, writer: usize) -> Stamp {
        self.ask(key);
        let version = &mut self.judge.facts(key).sent[writer];
        *version += 1;
        Stamp { writer, version: *version }
    }

    /// A reply says that `key` holds, or held, this value.
    pub fn found(&mut self, key: u32, stamp: Stamp) -> Result<(), String> {
        let Stamp { writer, version } = stamp;
        let sent = self.judge.facts(key).sent[writer];
        if version == 0 || sent < version {
            return Err(format!("key {key} holds {stamp:?}, and {sent} were sent"));
        }
        let gone = self.known(key).gone[writer];
        if version <= gone {
            return Err(format!(
                "key {key} holds {stamp:?}: up to version {gone} all had been replaced or had \
                 gone when the request was sent"
            ));
        }
        self.settle(key, Some(stamp));
        Ok(())
    }

    /// A reply says that `key` held nothing.
    pub fn missing(&mut self, key: u32) -> Result<(), String> {
        let evicts = self.judge.evicts;
        let Facts { held, gone, .. } = self.known(key);
        if !evicts && held.iter().zip(gone.iter()).any(|(held, gone)| gone < held) {
            return Err(format!(
                "key {key} is lost: by writer, these versions had been stored: {held:?}"
            ));
        }
        self.settle(key, None);
        Ok(())
    }

    /// A reply says that `key` held something.
    pub fn there(&mut self, key: u32) -> Result<(), String> {
        let sent = self.judge.facts(key).sent;
        match sent == self.known(key).gone {
            false => Ok(()),
            true => Err(format!("key {key} is there: all that was ever sent, {sent:?}, had gone")),
        }
    }

    /// A reply says that `key` was deleted.
    pub fn deleted(&mut self, key: u32) {
        self.settle(key, None);
    }

    /// All replies to the batch have come, or none will any more.
    pub fn over(&mut self) {
        self.known.clear();
    }

    fn known(&mut self, key: u32) -> &mut Facts {
        self.known.get_mut(&key).expect("`ask` comes before the reply")
    }

    /// Replies of a connection come in order, so this counts for the next reply already.
    fn settle(&mut self, key: u32, now: Option<Stamp>) {
        let known = self.known(key);
        known.settle(now);
        let known = known.clone();
        self.judge.facts(key).merge(&known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u32 = 3;

    /// A client that has sent a request for the key.
    fn sent(judge: &Judge) -> View<'_> {
        let mut view = View::new(judge);
        view.ask(KEY);
        view
    }

    /// A step of a history: `0` is a store of writer 0 that is acknowledged, `0?` one that is sent
    /// and not answered, `0.1` a reader that is shown the first version, `-` one that finds none,
    /// `x` a deletion.
    fn play(judge: &Judge, step: &str) -> Result<(), String> {
        let writer = step.split(['.', '?']).next().and_then(|writer| writer.parse().ok());
        let mut view = sent(judge);
        match (writer, step.split_once('.')) {
            (None, _) if step == "x" => view.there(KEY).map(|()| view.deleted(KEY)),
            (None, _) => view.missing(KEY),
            (Some(writer), Some((_, version))) => {
                view.found(KEY, Stamp { writer, version: version.parse().expect("a number") })
            }
            (Some(writer), None) => {
                let stamp = view.next(KEY, writer);
                if step.ends_with('?') { Ok(()) } else { view.found(KEY, stamp) }
            }
        }
    }

    #[test]
    fn a_value_is_known_by_its_bytes_and_no_others_pass() {
        for length in [STAMP_BYTES, STAMP_BYTES + 1, 1_000] {
            let stamp = Stamp { writer: 2, version: 9 };
            let mut bytes = Vec::new();
            stamp.write(KEY, length, &mut bytes);
            assert_eq!(Stamp::read(KEY, &bytes), Ok(stamp));
            assert!(Stamp::read(KEY + 1, &bytes).is_err_and(|why| why.contains("of key 3")));
            for at in 0..length {
                let mut torn = bytes.clone();
                torn[at] ^= 1;
                assert!(Stamp::read(KEY, &torn).is_err(), "byte {at} of {length} is not checked");
            }
            assert!(Stamp::read(KEY, &bytes[..length - 1]).is_err(), "a short value passes");
            bytes.push(0);
            assert!(Stamp::read(KEY, &bytes).is_err(), "a long value passes");
        }
        assert!(Stamp::read(KEY, &[]).is_err());
    }

    #[test]
    fn a_history_passes_but_for_the_step_that_cannot_be() {
        for (evicts, history, words) in [
            (true, "0 1 1.1 - 0 0.2", ""),
            // What its writer replaced, or another, does not come back.
            (true, "0 0.1 0 0.1", "replaced"),
            (false, "0 0.1 1 0.1", "replaced"),
            // Not acknowledged: who is shown it tells the others.
            (true, "0 1? 0.1 1.1 0.1", "replaced"),
            // It was evicted.
            (true, "0 - 0.1", "replaced"),
            (true, "5 -", ""),
            (false, "-", ""),
            (false, "5 -", "lost"),
            // It was deleted.
            (false, "0 x - 0 0.2 x", ""),
            (false, "0 x 0.1", "replaced"),
            (false, "0 x x", "had gone"),
            // Nobody sent it.
            (true, "0 0.2", "were sent"),
            (true, "0 7.1", "were sent"),
            (true, "0 0.0", "were sent"),
        ] {
            let judge = Judge::new(8, evicts);
            let told: Vec<_> = history.split(' ').map(|step| play(&judge, step)).collect();
            let (last, before) = told.split_last().expect("a step");
            assert!(before.iter().all(Result::is_ok), "{history}: {told:?}");
            let why = last.as_ref().err().map_or("", String::as_str);
            assert!(why.contains(words) && why.is_empty() == words.is_empty(), "{history}: {why}");
        }
    }

    #[test]
    fn what_was_sent_before_may_be_older_and_an_earlier_reply_counts_for_a_later_one() {
        let judge = Judge::new(8, false);
        let [mut early, mut earlier] = [sent(&judge), sent(&judge)];
        assert_eq!((play(&judge, "0"), play(&judge, "1")), (Ok(()), Ok(())));
        let first = Stamp { writer: 0, version: 1 };
        assert_eq!(early.found(KEY, first), Ok(()), "sent before either was acknowledged");
        assert_eq!(earlier.missing(KEY), Ok(()));
        let judge = Judge::new(8, true);
        assert_eq!(play(&judge, "0"), Ok(()));
        let mut view = sent(&judge);
        let second = view.next(KEY, 1);
        assert_eq!((view.found(KEY, first), view.found(KEY, second)), (Ok(()), Ok(())));
        assert!(view.found(KEY, first).is_err(), "within a pipeline");
    }
}
