//! Reads replies in whatever pieces they come, over a stream or in datagrams, byte by byte, and
//! keeps none of them.

use super::{Context, Outcome, Request, keys_of};
use crate::dialect::{Dialect, Line};
use crate::values::Checker;
use crate::workload::{Key, Operation};
use std::collections::VecDeque;

/// What a corrupt reply is said to have.
pub const WRONG_BYTES: &str = "bytes that no value of this key has";
/// See [`WRONG_BYTES`].
pub const WRONG_LENGTH: &str = "a length that is not this key's";
/// See [`WRONG_BYTES`].
pub const WRONG_KEY: &str = "another key's name";
/// See [`WRONG_BYTES`].
pub const WRONG_END: &str = "an end where none belongs";
/// See [`WRONG_BYTES`].
pub const NO_REPLY: &str = "a line that answers no such request";

/// Longest reply line that is waited for; memcached's are below 300 bytes.
pub(super) const LINE_BYTES_MAX: usize = 2_048;

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Line,
    Value {
        checker: Checker,
        ending: &'static [u8],
        wrong: Option<&'static str>,
    },
    Ending {
        ending: &'static [u8],
        wrong: Option<&'static str>,
        value_bytes: u64,
    },
}

impl Reading {
    fn value(
        key: Key,
        value_bytes: u64,
        ending: &'static [u8],
        wrong: Option<&'static str>,
    ) -> Self {
        if value_bytes == 0 {
            return Reading::Ending { ending, wrong, value_bytes };
        }
        Reading::Value { checker: Checker::new(key, value_bytes), ending, wrong }
    }
}

/// Where it is in a reply.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    reading: Reading,
    /// What came of a request for several keys whose reply has begun.
    many: Option<Many>,
}

impl Reader {
    /// Takes the next part of the reply to `request`: how many bytes of `input`, 0 where a line is
    /// not whole yet, and how the request ended, if it has. The error says why the rest cannot be
    /// read.
    pub(crate) fn take(
        &mut self,
        context: Context<'_>,
        request: &Request,
        input: &[u8],
    ) -> Result<(usize, Option<Outcome>), &'static str> {
        match &mut self.reading {
            Reading::Line => {
                let end = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n');
                let Some(newline) = end else {
                    let is_endless = input.len() > LINE_BYTES_MAX;
                    return if is_endless { Err(NO_REPLY) } else { Ok((0, None)) };
                };
                let line = &input[..=newline];
                let ended = match request.keys > 1 {
                    true => self.take_line_of_many(context, request, line)?,
                    false => self.take_line(context, request, line)?,
                };
                Ok((newline + 1, ended))
            }
            Reading::Value { checker, ending, wrong } => {
                let left = usize::try_from(checker.bytes_left()).unwrap_or(usize::MAX);
                let used = input.len().min(left);
                checker.feed(context.values, &input[..used]);
                if checker.bytes_left() == 0 {
                    let wrong = wrong.or((!checker.is_good()).then_some(WRONG_BYTES));
                    let (ending, value_bytes) = (*ending, checker.bytes());
                    self.reading = Reading::Ending { ending, wrong, value_bytes };
                }
                Ok((used, None))
            }
            Reading::Ending { ending, wrong, value_bytes } => {
                let used = input.len().min(ending.len());
                if input[..used] != ending[..used] {
                    return Err(wrong.unwrap_or(WRONG_END));
                }
                *ending = &ending[used..];
                if !ending.is_empty() {
                    return Ok((used, None));
                }
                let (wrong, value_bytes) = (*wrong, *value_bytes);
                self.reading = Reading::Line;
                let Some(many) = &mut self.many else {
                    return Ok((used, Some(wrong.map_or(Outcome::Hit, Outcome::Corrupt))));
                };
                many.wrong = many.wrong.or(wrong);
                many.hits += 1;
                many.value_bytes += value_bytes;
                // memcached says so itself.
                let is_told = context.dialect == Dialect::Text;
                Ok((used, if is_told { None } else { self.many_if_whole() }))
            }
        }
    }

    /// What is wrong with a reply that ends here; nothing between two lines.
    pub(crate) fn cut_short(&self) -> Option<&'static str> {
        match self.reading {
            Reading::Line => None,
            Reading::Value { wrong, .. } | Reading::Ending { wrong, .. } => {
                Some(wrong.unwrap_or(WRONG_END))
            }
        }
    }

    fn take_line(
        &mut self,
        context: Context<'_>,
        request: &Request,
        line: &[u8],
    ) -> Result<Option<Outcome>, &'static str> {
        Ok(Some(match (context.dialect.line(line), request.operation) {
            (Line::Value { value_bytes, key, ending }, Operation::Get) => {
                // A wrong value is read to its end all the same, to stay in step.
                let name = context.workload.key_name(request.key);
                let wrong = if key.is_some_and(|key| *key != *name) {
                    Some(WRONG_KEY)
                } else {
                    (value_bytes != request.value_bytes).then_some(WRONG_LENGTH)
                };
                self.reading = Reading::value(request.key, value_bytes, ending, wrong);
                return Ok(None);
            }
            (Line::Miss, Operation::Get) => Outcome::Miss,
            (Line::Stored, Operation::Set) => Outcome::Stored,
            (Line::Deleted, Operation::Delete) => Outcome::Deleted,
            (Line::Refused(words), _) => refused(words),
            _ => return Err(NO_REPLY),
        }))
    }

    /// A line of the reply to a GET of several keys.
    fn take_line_of_many(
        &mut self,
        context: Context<'_>,
        request: &Request,
        line: &[u8],
    ) -> Result<Option<Outcome>, &'static str> {
        let many = self.many.get_or_insert_with(|| Many {
            left: keys_of(context, request).collect(),
            ..Many::default()
        });
        match context.dialect.line(line) {
            Line::Value { value_bytes, key, .. } => {
                let found = match key {
                    Some(name) => many.named(|key| *context.workload.key_name(key) == *name),
                    None => many.left.pop_front(),
                };
                let wrong = match found {
                    None => Some(WRONG_KEY),
                    Some(key) => {
                        (value_bytes != context.workload.value_bytes(key)).then_some(WRONG_LENGTH)
                    }
                };
                let key = found.unwrap_or(Key(0));
                self.reading = Reading::value(key, value_bytes, b"\r\n", wrong);
                Ok(None)
            }
            // The END of memcached, which says it once, and a missing value of Redis.
            Line::Miss if context.dialect == Dialect::Text => {
                Ok(self.many.take().map(|many| many.end()))
            }
            Line::Miss => {
                many.misses += u16::from(many.left.pop_front().is_some());
                Ok(self.many_if_whole())
            }
            Line::Many(count) if count == u64::from(request.keys) => Ok(None),
            Line::Refused(words) => {
                self.many = None;
                Ok(Some(refused(words)))
            }
            _ => Err(NO_REPLY),
        }
    }

    fn many_if_whole(&mut self) -> Option<Outcome> {
        self.many.take_if(|many| many.left.is_empty()).map(|many| many.end())
    }
}

fn refused(words: &[u8]) -> Outcome {
    Outcome::Refused(String::from_utf8_lossy(words).into_owned())
}

/// What came so far of a GET of several keys.
#[derive(Debug, Default)]
struct Many {
    /// Keys that have no reply yet, in the order asked.
    left: VecDeque<Key>,
    hits: u16,
    misses: u16,
    value_bytes: u64,
    wrong: Option<&'static str>,
}

impl Many {
    /// A value whose key stands in the reply: keys before it were missed. Nothing where the key is
    /// none of those that are left.
    fn named(&mut self, is: impl Fn(Key) -> bool) -> Option<Key> {
        let at = self.left.iter().position(|&key| is(key))?;
        self.misses += at as u16;
        self.left.drain(..at);
        self.left.pop_front()
    }

    /// No more replies come.
    fn end(&self) -> Outcome {
        match self.wrong {
            Some(wrong) => Outcome::Corrupt(wrong),
            None => Outcome::Many {
                hits: self.hits,
                misses: self.misses + self.left.len() as u16,
                value_bytes: self.value_bytes,
            },
        }
    }
}
