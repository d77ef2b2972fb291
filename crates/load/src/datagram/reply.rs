//! One reply that arrives in datagrams, checked byte by byte as they come.
//!
//! Datagrams in order are checked where they lie and never kept. One that comes before its turn
//! waits as a copy, and so does what answers a GET of several keys, whose lines may end in another
//! datagram, and which may be several messages. Nothing is asked for again: what a network or a
//! server loses is for the report to show, so a reply with a hole stays unfinished until its
//! request is given up. It knows no socket and no clock.

use super::several::{self, NO_REPLY, WRONG_END};
use crate::connection::{
    Context, Many, Outcome, Request, WRONG_BYTES, WRONG_KEY, WRONG_LENGTH, keys_of,
};
use crate::dialect::Line;
use crate::values::Checker;
use crate::workload::Operation;
use laneway_wire::udp::Header;
use std::collections::BTreeMap;

/// What became of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The reply is not whole yet.
    More,
    /// It is.
    Ended(Outcome),
    /// It was there already.
    Duplicate,
    /// Its numbers fit no message, or not this one.
    Impossible,
}

#[derive(Debug)]
enum Reading {
    Line,
    Value { checker: Checker, ending: &'static [u8] },
    Ending { ending: &'static [u8] },
    Done(Outcome),
}

/// A reply under way.
#[derive(Debug)]
pub struct Reply {
    /// Datagrams of the message under way; 0 while none of it has come.
    total: u16,
    next: u16,
    early: BTreeMap<u16, Vec<u8>>,
    reading: Reading,
    /// Where several keys were asked for: what came in order of the message under way, and what the
    /// messages before it said.
    several: Vec<u8>,
    many: Option<Many>,
    wrong: Option<&'static str>,
}

impl Default for Reply {
    fn default() -> Self {
        let (early, several) = (BTreeMap::new(), Vec::new());
        let (reading, many, wrong) = (Reading::Line, None, None);
        Reply { total: 0, next: 0, early, reading, several, many, wrong }
    }
}

impl Reply {
    /// Takes a datagram of the reply to `request`.
    pub fn take(
        &mut self,
        context: Context<'_>,
        request: &Request,
        header: Header,
        payload: &[u8],
    ) -> Taken {
        // memcached's, where a key is not there and others follow: a datagram of a message of none.
        if request.keys > 1 && header.total == 0 && payload.is_empty() {
            return Taken::More;
        }
        if !header.is_possible() || (self.total != 0 && self.total != header.total) {
            return Taken::Impossible;
        }
        self.total = header.total;
        if header.sequence < self.next || self.early.contains_key(&header.sequence) {
            return Taken::Duplicate;
        }
        if header.sequence > self.next {
            self.early.insert(header.sequence, payload.to_vec());
            return Taken::More;
        }
        self.read(context, request, payload);
        self.next += 1;
        while let Some(payload) = self.early.remove(&self.next) {
            self.read(context, request, &payload);
            self.next += 1;
        }
        if self.next < self.total {
            return Taken::More;
        }
        if request.keys > 1 {
            let many = self.many.get_or_insert_with(|| Many::new(keys_of(context, request)));
            let ended = several::read(context, many, &self.several);
            self.several.clear();
            (self.total, self.next) = (0, 0);
            return ended.map_or(Taken::More, Taken::Ended);
        }
        Taken::Ended(match std::mem::replace(&mut self.reading, Reading::Line) {
            Reading::Done(outcome) => outcome,
            _ => Outcome::Corrupt(self.wrong.unwrap_or(WRONG_END)),
        })
    }

    /// Takes the next bytes of the message.
    fn read(&mut self, context: Context<'_>, request: &Request, mut input: &[u8]) {
        if request.keys > 1 {
            return self.several.extend_from_slice(input);
        }
        while !input.is_empty() {
            let used = match &mut self.reading {
                Reading::Line => self.read_line(context, request, input),
                Reading::Value { checker, ending } => {
                    let left = usize::try_from(checker.bytes_left()).unwrap_or(usize::MAX);
                    let used = input.len().min(left);
                    checker.feed(context.values, &input[..used]);
                    if checker.bytes_left() == 0 {
                        if !checker.is_good() {
                            self.wrong = self.wrong.or(Some(WRONG_BYTES));
                        }
                        self.reading = Reading::Ending { ending };
                    }
                    used
                }
                Reading::Ending { ending } => {
                    let used = input.len().min(ending.len());
                    if input[..used] != ending[..used] {
                        self.wrong = self.wrong.or(Some(WRONG_END));
                    }
                    *ending = &ending[used..];
                    if ending.is_empty() {
                        let outcome = self.wrong.map_or(Outcome::Hit, Outcome::Corrupt);
                        self.reading = Reading::Done(outcome);
                    }
                    used
                }
                Reading::Done(outcome) => {
                    if !matches!(outcome, Outcome::Corrupt(_)) {
                        *outcome = Outcome::Corrupt(WRONG_END);
                    }
                    input.len()
                }
            };
            input = &input[used..];
        }
    }

    /// Takes the reply's first line, which never leaves the first datagram.
    fn read_line(&mut self, context: Context<'_>, request: &Request, input: &[u8]) -> usize {
        let newline = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len() - 1);
        let line = &input[..=newline];
        self.reading = match (context.dialect.line(line), request.operation) {
            (Line::Value { value_bytes, key, ending }, Operation::Get) => {
                let name = context.workload.key_name(request.key);
                if key.is_some_and(|key| *key != *name) {
                    self.wrong = Some(WRONG_KEY);
                } else if value_bytes != request.value_bytes {
                    self.wrong = Some(WRONG_LENGTH);
                }
                match value_bytes {
                    0 => Reading::Ending { ending },
                    _ => Reading::Value { checker: Checker::new(request.key, value_bytes), ending },
                }
            }
            (Line::Miss, Operation::Get) => Reading::Done(Outcome::Miss),
            (Line::Stored, Operation::Set) => Reading::Done(Outcome::Stored),
            (Line::Deleted, Operation::Delete) => Reading::Done(Outcome::Deleted),
            (Line::Refused(words), _) => {
                let words = String::from_utf8_lossy(words).into_owned();
                Reading::Done(Outcome::Refused(words))
            }
            _ => Reading::Done(Outcome::Corrupt(NO_REPLY)),
        };
        newline + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::random::Random;
    use crate::values::{Value, Values};
    use crate::workload::{Class, Key, Pattern, Sizes, Workload, WorkloadOptions};
    use laneway_wire::udp::{FRAME_BYTES_MAX, Kind};

    struct Bench {
        workload: Workload,
        values: Values,
    }

    impl Bench {
        fn new() -> Self {
            let sizes = Sizes::Fixed { value_bytes: 5_000 };
            let pattern = Pattern::Scan; // the keys of a GET follow each other
            let options = WorkloadOptions { sizes, pattern, ..WorkloadOptions::default() };
            let workload = Workload::new(options).expect("valid");
            Bench { workload, values: Values::new(1) }
        }

        fn context(&self) -> Context<'_> {
            Context { workload: &self.workload, values: &self.values, dialect: Dialect::Text }
        }

        fn request(&self, operation: Operation) -> Request {
            let (key, class) = (Key(7), Class::Large);
            Request { key, operation, keys: 1, class, value_bytes: 5_000, version: 3, due_ns: 0 }
        }

        fn reply(&self) -> Vec<u8> {
            [&self.item(Key(7))[..], b"END\r\n"].concat()
        }

        fn item(&self, key: Key) -> Vec<u8> {
            let name = self.workload.key_name(key);
            let mut item = b"VALUE ".to_vec();
            item.extend_from_slice(&name);
            item.extend_from_slice(b" 0 5000\r\n");
            let value = Value { key, bytes: 5_000, version: 3 };
            self.values.append(value, &mut item);
            item.extend_from_slice(b"\r\n");
            item
        }

        /// Takes the datagrams of `message` in this order; what the last of them brought.
        fn take(&self, operation: Operation, message: &[u8], order: &[u16]) -> Taken {
            let total = message.len().div_ceil(FRAME_BYTES_MAX) as u16;
            let mut reply = Reply::default();
            let mut last = Taken::More;
            for &sequence in order {
                let header = Header { request_id: 9, sequence, total, kind: Kind::Data };
                let begin = usize::from(sequence) * FRAME_BYTES_MAX;
                let end = message.len().min(begin + FRAME_BYTES_MAX);
                let payload = &message[begin..end];
                last = reply.take(self.context(), &self.request(operation), header, payload);
            }
            last
        }
    }

    #[test]
    fn a_value_is_right_in_whatever_order_it_comes() {
        let bench = Bench::new();
        let message = bench.reply();
        let hit = Taken::Ended(Outcome::Hit);
        let mut random = Random::new(5);
        let mut order = [0, 1, 2, 3];
        for _ in 0..50 {
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            assert_eq!(bench.take(Operation::Get, &message, &order), hit, "{order:?}");
        }
        assert_eq!(bench.take(Operation::Get, &message, &[0, 1, 3]), Taken::More);
        assert_eq!(bench.take(Operation::Get, &message, &[0, 2, 2]), Taken::Duplicate);
        assert_eq!(bench.take(Operation::Get, &message, &[0, 1, 0]), Taken::Duplicate);
    }

    #[test]
    fn whatever_is_wrong_with_a_value_is_noticed() {
        let bench = Bench::new();
        let good = bench.reply();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            bench.take(Operation::Get, &message, &[0, 1, 2, 3])
        };
        let corrupt = |what| Taken::Ended(Outcome::Corrupt(what));
        assert_eq!(with(&|message| message[4_000] ^= 1), corrupt(WRONG_BYTES));
        assert_eq!(with(&|message| message[6] ^= 1), corrupt(WRONG_KEY));
        assert_eq!(with(&|message| message[17] = b'4'), corrupt(WRONG_LENGTH));
        assert_eq!(with(&|message| message.truncate(good.len() - 1)), corrupt(WRONG_END));
        assert_eq!(with(&|message| message.push(b'x')), corrupt(WRONG_END));
        assert_eq!(with(&|message| message[0] = b'W'), corrupt(NO_REPLY));
    }

    #[test]
    fn short_replies_are_read_as_the_protocol_says() {
        let bench = Bench::new();
        let refused = |words: &str| Outcome::Refused(words.into());
        for (operation, message, outcome) in [
            (Operation::Get, "END\r\n", Outcome::Miss),
            (Operation::Set, "STORED\r\n", Outcome::Stored),
            (Operation::Set, "SERVER_ERROR no\r\n", refused("SERVER_ERROR no")),
            (Operation::Set, "END\r\n", Outcome::Corrupt(NO_REPLY)),
            (Operation::Delete, "DELETED\r\n", Outcome::Deleted),
            (Operation::Delete, "NOT_FOUND\r\n", Outcome::Deleted),
            (Operation::Delete, "STORED\r\n", Outcome::Corrupt(NO_REPLY)),
            (Operation::Get, "DELETED\r\n", Outcome::Corrupt(NO_REPLY)),
            (Operation::Get, "END\r\nEND\r\n", Outcome::Corrupt(WRONG_END)),
            (Operation::Get, "END", Outcome::Corrupt(NO_REPLY)),
        ] {
            let taken = bench.take(operation, message.as_bytes(), &[0]);
            assert_eq!(taken, Taken::Ended(outcome), "{message:?}");
        }
    }

    /// As memcached 1.6 answers: a message of each value, numbered anew, the end behind the last
    /// one, and a message of no datagrams for a key that is not there and not the last.
    #[test]
    fn a_get_of_several_keys_is_answered_by_several_messages() {
        let bench = Bench::new();
        let request = Request { keys: 3, ..bench.request(Operation::Get) };
        let empty: &[u8] = b"";
        let (first, second) = (bench.item(Key(7)), bench.item(Key(8)));
        let last = [&bench.item(Key(9))[..], b"END\r\n"].concat();
        let many = |hits: u16| {
            let (misses, value_bytes) = (3 - hits, u64::from(hits) * 5_000);
            Taken::Ended(Outcome::Many { hits, misses, value_bytes })
        };
        for (messages, ended) in [
            (&[&first[..], &second, &last][..], many(3)),
            (&[&first[..], empty, &last][..], many(2)),
            (&[&first[..], empty, b"END\r\n"][..], many(1)),
            (&[empty, empty, b"END\r\n"][..], many(0)),
        ] {
            let mut reply = Reply::default();
            let mut take = |sequence, total, payload: &[u8]| {
                let header = Header { request_id: 9, sequence, total, kind: Kind::Data };
                reply.take(bench.context(), &request, header, payload)
            };
            let mut taken = Vec::new();
            for message in messages {
                let total = message.len().div_ceil(FRAME_BYTES_MAX) as u16;
                if total == 0 {
                    taken.push(take(0, 0, b""));
                }
                for (sequence, payload) in message.chunks(FRAME_BYTES_MAX).enumerate() {
                    taken.push(take(sequence as u16, total, payload));
                }
            }
            assert_eq!(taken.pop(), Some(ended));
            assert!(taken.iter().all(|taken| *taken == Taken::More), "{taken:?}");
        }
    }

    #[test]
    fn numbers_that_fit_no_message_are_told() {
        let bench = Bench::new();
        let request = bench.request(Operation::Get);
        let mut reply = Reply::default();
        for (sequence, total, taken) in [
            (0, 0, Taken::Impossible),
            (3, 3, Taken::Impossible),
            (2, 3, Taken::More),
            (0, 2, Taken::Impossible),
        ] {
            let header = Header { request_id: 1, sequence, total, kind: Kind::Data };
            let now = reply.take(bench.context(), &request, header, b"VALUE");
            assert_eq!(now, taken, "{sequence} of {total}");
        }
    }
}
