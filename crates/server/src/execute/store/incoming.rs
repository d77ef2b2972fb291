//! A value on its way in, and what will be done with it: owns copies of all it needs, so that its
//! connection may move while the bytes arrive.

use super::super::{Context, reply};
use super::complete::Value;
use super::{Answer, How, finish, refuse};
use laneway_store::{Draft, KeyHash, Refused};
use laneway_wire::MetaKey;
use laneway_wire::reply::BAD_DATA_CHUNK;

/// How much room a gathering buffer offers at a time, bytes.
const ROOM_BYTES: usize = 32 << 10;

/// Where a streamed value is received.
pub enum Body {
    /// Into the item to be, whose value has so many bytes.
    Draft(Draft, usize),
    /// Into a buffer, for `append` and `prepend`.
    Buffer(Buffer),
}

/// A value gathered in memory that grows as its bytes arrive.
pub struct Buffer {
    /// What has arrived, and zeros as far as room was offered.
    bytes: Vec<u8>,
    arrived: usize,
    value_bytes: usize,
}

impl Body {
    pub(super) fn buffer(value_bytes: usize) -> Body {
        Body::Buffer(Buffer { bytes: Vec::new(), arrived: 0, value_bytes })
    }

    /// Value bytes still to come.
    pub fn missing(&self) -> usize {
        match self {
            Body::Draft(draft, _) => draft.missing(),
            Body::Buffer(buffer) => buffer.value_bytes - buffer.arrived,
        }
    }

    /// Whether the item is a large one of the store.
    pub fn is_large(&self) -> bool {
        match self {
            Body::Draft(draft, _) => draft.is_large(),
            Body::Buffer(_) => false,
        }
    }

    /// Take in bytes that have arrived: at most [`Body::missing`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        match self {
            Body::Draft(draft, _) => draft.write(bytes),
            Body::Buffer(buffer) => {
                assert!(
                    bytes.len() <= buffer.value_bytes - buffer.arrived,
                    "more than was declared"
                );
                buffer.bytes.truncate(buffer.arrived);
                buffer.bytes.extend_from_slice(bytes);
                buffer.arrived += bytes.len();
                Ok(())
            }
        }
    }

    /// Room to receive into; then [`Body::advance`]. Not empty while bytes are missing.
    pub fn room(&mut self) -> Result<&mut [u8], Refused> {
        match self {
            Body::Draft(draft, _) => draft.room(),
            Body::Buffer(buffer) => {
                let offered = buffer.value_bytes.min(buffer.arrived + ROOM_BYTES);
                buffer.bytes.resize(offered, 0);
                Ok(&mut buffer.bytes[buffer.arrived..])
            }
        }
    }

    /// So many bytes were received into the room.
    pub fn advance(&mut self, bytes: usize) {
        match self {
            Body::Draft(draft, _) => draft.advance(bytes),
            Body::Buffer(buffer) => {
                assert!(buffer.arrived + bytes <= buffer.bytes.len(), "more than the room");
                buffer.arrived += bytes;
            }
        }
    }
}

/// How to answer, without borrowing the request.
enum AnswerOwned {
    Text { noreply: bool },
    Meta { key: Box<[u8]>, base64: bool, flags: Box<[u8]>, quiet: bool },
}

impl AnswerOwned {
    fn borrow(&self) -> Answer<'_> {
        match self {
            AnswerOwned::Text { noreply } => Answer::Text { noreply: *noreply },
            AnswerOwned::Meta { key, base64, flags, quiet } => {
                Answer::Meta { key: MetaKey { token: key, base64: *base64 }, flags, quiet: *quiet }
            }
        }
    }
}

/// A store whose value is arriving. Dropped, it was never there.
pub struct Incoming {
    key: Box<[u8]>,
    hash: KeyHash,
    how: How,
    answer: AnswerOwned,
    body: Body,
}

impl Incoming {
    pub(super) fn new(
        key: &[u8],
        hash: KeyHash,
        how: How,
        answer: &Answer<'_>,
        body: Body,
    ) -> Incoming {
        let answer = match *answer {
            Answer::Text { noreply } => AnswerOwned::Text { noreply },
            Answer::Meta { key, flags, quiet } => AnswerOwned::Meta {
                key: key.token.into(),
                base64: key.base64,
                flags: flags.into(),
                quiet,
            },
        };
        Incoming { key: key.into(), hash, how, answer, body }
    }

    /// Where the value's bytes go.
    pub fn draft(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The value is complete, and a `\r\n` stood behind it: store it and answer.
    ///
    /// # Panics
    /// If bytes are missing.
    pub fn finish(self, context: &Context<'_>, out: &mut Vec<u8>) {
        let Incoming { key, hash, how, answer, body } = self;
        assert_eq!(body.missing(), 0, "the value is not complete");
        let buffer;
        let value = match body {
            Body::Draft(draft, value_bytes) => Value::Draft(draft, value_bytes),
            Body::Buffer(gathered) => {
                buffer = gathered;
                Value::Bytes(&buffer.bytes[..buffer.arrived])
            }
        };
        finish(context, &key, hash, &how, &answer.borrow(), value, out);
    }

    /// No `\r\n` stood behind the value: say so and store nothing. Meta requests hear of errors
    /// even where they are quiet.
    pub fn abandon_bad_chunk(self, context: &Context<'_>, out: &mut Vec<u8>) {
        context.counters.cmd_set.bump_owner();
        let noreply = matches!(self.answer, AnswerOwned::Text { noreply: true });
        reply::unless(noreply, BAD_DATA_CHUNK, out);
    }

    /// The store has no room for the rest of the value ([`Body::write`] or [`Body::room`] said so):
    /// answer, and leave no stale value behind. The connection swallows what is missing.
    pub fn abandon_refused(self, context: &Context<'_>, refused: Refused, out: &mut Vec<u8>) {
        let Incoming { key, hash, how, answer, body } = self;
        drop(body); // first, so that its memory is there for others
        out.extend_from_slice(refuse(context, &key, hash, &how, &answer.borrow(), refused));
    }
}
