//! A value on its way in, and what will be done with it: owns copies of all it needs, so that its
//! connection may move while the bytes arrive.

use super::super::redis::{self, Asking, Set};
use super::super::{Context, Outcome};
use super::answer::AnswerOwned;
use super::complete::{Fate, complete};
use super::join::{Bytes, Join, Joining};
use super::{Answer, Condition, How, Place, answer_fate, bad_chunk, refuse};
use laneway_store::{Charge, Draft, Gathered, KeyHash, Refused};
use laneway_wire::binary::Echo;
use laneway_wire::resp::reply::Version;

/// How much room a gathering buffer offers at a time, bytes.
const ROOM_BYTES: usize = 32 << 10;

/// Where a streamed value is received.
pub enum Landing {
    /// Into the item to be, whose value has so many bytes.
    Draft(Draft, usize),
    /// Into a buffer, for `append` and `prepend`.
    Buffer(Buffer),
}

/// A value gathered in memory that grows as its bytes arrive.
pub struct Buffer {
    /// What has arrived, and zeros as far as room was offered.
    bytes: Gathered,
    arrived: usize,
    value_bytes: usize,
}

impl Landing {
    pub(super) fn buffer(charge: Charge, value_bytes: usize) -> Landing {
        Landing::Buffer(Buffer { bytes: Gathered::new(charge), arrived: 0, value_bytes })
    }

    /// Bytes of the whole value.
    fn value_bytes(&self) -> usize {
        match self {
            Landing::Draft(_, value_bytes) => *value_bytes,
            Landing::Buffer(buffer) => buffer.value_bytes,
        }
    }

    /// Value bytes still to come.
    pub fn missing(&self) -> usize {
        match self {
            Landing::Draft(draft, _) => draft.missing(),
            Landing::Buffer(buffer) => buffer.value_bytes - buffer.arrived,
        }
    }

    /// Whether the value is worth receiving in place: [`Landing::room`] may be asked for.
    pub fn is_large(&self) -> bool {
        match self {
            Landing::Draft(draft, _) => draft.is_large(),
            Landing::Buffer(buffer) => buffer.value_bytes > ROOM_BYTES,
        }
    }

    /// See to room for the next bytes, as [`Draft::prepare`] does: for how many. `None`: not yet.
    pub fn prepare(&mut self) -> Result<Option<usize>, Refused> {
        match self {
            Landing::Draft(draft, _) => draft.prepare(),
            Landing::Buffer(_) => Ok(Some(self.missing())),
        }
    }

    /// Take in bytes that have arrived: at most [`Landing::missing`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        match self {
            Landing::Draft(draft, _) => draft.write(bytes),
            Landing::Buffer(buffer) => {
                assert!(
                    bytes.len() <= buffer.value_bytes - buffer.arrived,
                    "more than was declared"
                );
                buffer.bytes.grow_to((buffer.arrived + bytes.len()) as u64)?;
                buffer.bytes.truncate(buffer.arrived);
                buffer.bytes.extend_from_slice(bytes);
                buffer.arrived += bytes.len();
                Ok(())
            }
        }
    }

    /// Room to receive into, of a value that [`Landing::is_large`]; then [`Landing::advance`]. Not
    /// empty while bytes are missing.
    pub fn room(&mut self) -> Result<&mut [u8], Refused> {
        match self {
            Landing::Draft(draft, _) => draft.room(),
            Landing::Buffer(buffer) => {
                let offered = buffer.value_bytes.min(buffer.arrived + ROOM_BYTES);
                buffer.bytes.grow_to(offered as u64)?;
                buffer.bytes.resize(offered, 0);
                Ok(&mut buffer.bytes[buffer.arrived..])
            }
        }
    }

    /// So many bytes were received into the room.
    pub fn advance(&mut self, bytes: usize) {
        match self {
            Landing::Draft(draft, _) => draft.advance(bytes),
            Landing::Buffer(buffer) => {
                assert!(buffer.arrived + bytes <= buffer.bytes.len(), "more than the room");
                buffer.arrived += bytes;
            }
        }
    }
}

/// What became of a store whose value is complete.
enum Finish {
    /// It is answered.
    Over(Outcome),
    /// There is more to copy.
    Joins(Box<Joining>),
    /// Nothing was done: see [`Incoming::finish`].
    Forgotten(Box<Incoming>),
}

/// A value that is whole, with its key.
pub struct Landed {
    /// The key.
    pub key: Box<[u8]>,
    /// Its hash.
    pub hash: KeyHash,
    /// The item to be.
    pub draft: Draft,
}

/// A store whose value is arriving. Dropped, it was never there.
pub struct Incoming {
    key: Box<[u8]>,
    hash: KeyHash,
    how: How,
    answer: AnswerOwned,
    landing: Landing,
    /// What options behind the value have said, and for whom: only RESP has such.
    told: Option<(Set, Version)>,
}

impl Incoming {
    pub(super) fn new(
        key: &[u8],
        hash: KeyHash,
        how: How,
        answer: &Answer<'_>,
        landing: Landing,
    ) -> Incoming {
        let answer = AnswerOwned::of(answer);
        Incoming { key: key.into(), hash, how, answer, landing, told: None }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether it needs to know the item there is.
    pub fn looks_at_old(&self) -> bool {
        match &self.told {
            Some((how, _)) => how.looks_at_old(),
            None => self.how.place != Place::Whole(Condition::Always),
        }
    }

    /// It is to be stored so, as the options behind its value say.
    pub fn is_told(&mut self, how: Set, version: Version) {
        self.told = Some((how, version));
    }

    /// Whether its client speaks RESP.
    pub fn is_resp(&self) -> bool {
        matches!(self.answer, AnswerOwned::Resp)
    }

    /// What its reply repeats, where its client speaks the binary protocol.
    pub fn echo(&self) -> Option<Echo> {
        match &self.answer {
            AnswerOwned::Binary(telling) => Some(telling.echo),
            _ => None,
        }
    }

    /// Whether it joins its bytes to those of an item that there is.
    pub fn joins(&self) -> bool {
        matches!(self.how.place, Place::Joined { .. })
    }

    /// Whether the client wants no answer.
    pub fn is_noreply(&self) -> bool {
        matches!(self.answer, AnswerOwned::Text { noreply: true })
    }

    /// Its hash.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Key and value bytes of the item to be (of what is added to one, for `append`, `prepend`).
    pub fn item_bytes(&self) -> u64 {
        self.key.len() as u64 + self.landing.value_bytes() as u64
    }

    /// Where the value's bytes go.
    pub fn draft(&mut self) -> &mut Landing {
        &mut self.landing
    }

    /// The value of a whole item, which is complete; `None` if it is to be joined to one.
    ///
    /// # Panics
    /// If bytes are missing.
    pub fn land(self) -> Option<Landed> {
        let Incoming { key, hash, landing, .. } = self;
        assert_eq!(landing.missing(), 0, "the value is not complete");
        match landing {
            Landing::Draft(draft, _) => Some(Landed { key, hash, draft }),
            Landing::Buffer(_) => None,
        }
    }

    /// The value is complete, and a `\r\n` stood behind it: store it and answer. An error is to be
    /// tried again: the executor executes, and memory has forgotten the item it looks at
    /// ([`super::Outcome::Kept`]).
    ///
    /// # Panics
    /// If bytes are missing.
    pub fn finish(
        self,
        context: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Box<Incoming>> {
        match self.finish_by(context, usize::MAX, out) {
            Finish::Over(outcome) => Ok(outcome),
            Finish::Forgotten(incoming) => Err(incoming),
            Finish::Joins(_) => unreachable!("all of it was asked for"),
        }
    }

    /// The same for a worker; of an `append` or `prepend` only about `budget` bytes are copied now,
    /// and what is returned goes on with it.
    ///
    /// # Panics
    /// If bytes are missing.
    pub fn finish_slice(
        self,
        context: &Context<'_>,
        budget: usize,
        out: &mut Vec<u8>,
    ) -> Option<Box<Joining>> {
        match self.finish_by(context, budget, out) {
            Finish::Over(_) => None,
            Finish::Joins(joining) => Some(joining),
            Finish::Forgotten(_) => unreachable!("only what the executor executes is asked again"),
        }
    }

    fn finish_by(self, context: &Context<'_>, budget: usize, out: &mut Vec<u8>) -> Finish {
        let Incoming { key, hash, how, answer, landing, told } = self;
        assert_eq!(landing.missing(), 0, "the value is not complete");
        let again = |key, answer, landing| {
            Finish::Forgotten(Box::new(Incoming { key, hash, how, answer, landing, told }))
        };
        let (fate, value_bytes) = match landing {
            Landing::Draft(draft, value_bytes) if let Some((how, version)) = &told => {
                let asking = Asking { context: *context, version: *version };
                return match redis::set(&asking, (&key, hash), draft, how, out) {
                    Ok(outcome) => Finish::Over(outcome),
                    Err(draft) => again(key, answer, Landing::Draft(draft, value_bytes)),
                };
            }
            Landing::Draft(draft, value_bytes) => {
                match complete(context, &key, hash, &how, draft, value_bytes) {
                    Ok(fate) => (fate, value_bytes),
                    Err(draft) => return again(key, answer, Landing::Draft(draft, value_bytes)),
                }
            }
            Landing::Buffer(Buffer { mut bytes, arrived, value_bytes }) => {
                bytes.truncate(arrived);
                let join = Join::of(&how, &bytes);
                let mut join = join.expect("only these gather their bytes in a buffer");
                match join.advance(context, &key, hash, &how, budget) {
                    Some(Fate::Forgotten) => {
                        let buffer = Buffer { bytes, arrived, value_bytes };
                        return again(key, answer, Landing::Buffer(buffer));
                    }
                    Some(fate) => (fate, value_bytes),
                    None => {
                        let begun = join.parted();
                        let added = Bytes::Gathered(bytes);
                        return Finish::Joins(Joining::new(
                            (&key, hash),
                            how,
                            answer,
                            begun,
                            added,
                        ));
                    }
                }
            }
        };
        answer_fate(context, (&key, &how), &answer.borrow(), fate, value_bytes, out);
        Finish::Over(Outcome::Done)
    }

    /// No `\r\n` stood behind the value: say so and store nothing.
    pub fn abandon_bad_chunk(self, context: &Context<'_>, out: &mut Vec<u8>) {
        bad_chunk(context, &self.answer.borrow(), out);
    }

    /// The store has no room for the rest of the value ([`Landing::write`] or [`Landing::room`]
    /// said so): answer, and leave no stale value behind. The connection swallows what is missing.
    pub fn out_of_memory(self, context: &Context<'_>, out: &mut Vec<u8>) {
        let Incoming { key, hash, how, answer, landing, told: _ } = self;
        drop(landing); // first, so that its memory is there for others
        let refused = Refused::OutOfMemory;
        refuse(context, &key, hash, &how, &answer.borrow(), refused, out);
    }
}
