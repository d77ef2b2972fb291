//! One reply that arrives in datagrams, checked byte by byte as they come.
//!
//! Datagrams in order are checked where they lie and never kept. One that comes before its turn
//! waits as a copy. Nothing is asked for again: what a network or a server loses is for the report
//! to show, so a reply with a hole stays unfinished until its request is given up. It knows no
//! socket and no clock.
//!
//! The reply to a GET of several keys is one message of ours. Since 1.6 memcached makes a message
//! of each value, under the same request id and numbered from 0 anew, and `END` ends the last.
//! Nothing says in which order these were sent, so the order in which they come is believed: a
//! value that another overtook is told as another key's, and one behind the end is for no request
//! in flight.

use crate::connection::{Context, Outcome, Reader, Request, WRONG_END};
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

/// A reply under way.
#[derive(Debug, Default)]
pub struct Reply {
    /// Datagrams of the message under way; 0 while none of it has come.
    total: u16,
    next: u16,
    early: BTreeMap<u16, Vec<u8>>,
    reader: Reader,
    /// The beginning of a line whose end is in the next datagram.
    begun: Vec<u8>,
    ended: Option<Outcome>,
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
        (self.total, self.next) = (0, 0);
        match (self.ended.take(), self.reader.cut_short()) {
            (Some(outcome), _) => Taken::Ended(outcome),
            // Another message follows.
            (None, None) if request.keys > 1 && self.begun.is_empty() => Taken::More,
            (None, wrong) => Taken::Ended(Outcome::Corrupt(wrong.unwrap_or(WRONG_END))),
        }
    }

    /// Takes the next bytes of the message.
    fn read(&mut self, context: Context<'_>, request: &Request, payload: &[u8]) {
        let joined;
        let mut input = payload;
        if !self.begun.is_empty() {
            joined = [&std::mem::take(&mut self.begun)[..], payload].concat();
            input = &joined;
        }
        while !input.is_empty() {
            match &mut self.ended {
                Some(Outcome::Corrupt(_)) => return,
                Some(outcome) => {
                    *outcome = Outcome::Corrupt(WRONG_END);
                    return;
                }
                None => {}
            }
            match self.reader.take(context, request, input) {
                Ok((0, _)) => {
                    self.begun = input.to_vec();
                    return;
                }
                Ok((used, outcome)) => {
                    self.ended = outcome;
                    input = &input[used..];
                }
                Err(wrong) => self.ended = Some(Outcome::Corrupt(wrong)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{NO_REPLY, WRONG_BYTES, WRONG_KEY, WRONG_LENGTH};
    use crate::dialect::Dialect;
    use crate::random::Random;
    use crate::values::{Value, Values};
    use crate::workload::{Class, Key, Operation, Pattern, Sizes, Workload, WorkloadOptions};
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

        fn request(&self, operation: Operation, keys: u16) -> Request {
            let (key, class) = (Key(7), Class::Large);
            Request { key, operation, keys, class, value_bytes: 5_000, version: 3, due_ns: 0 }
        }

        /// What stands of this key's value in a reply.
        fn item(&self, key: u32) -> Vec<u8> {
            let mut item = b"VALUE ".to_vec();
            item.extend_from_slice(&self.workload.key_name(Key(key)));
            item.extend_from_slice(b" 0 5000\r\n");
            self.values.append(Value { key: Key(key), bytes: 5_000, version: 3 }, &mut item);
            item.extend_from_slice(b"\r\n");
            item
        }

        /// Takes the datagrams of `message` in this order; what the last of them brought.
        fn take(&self, message: &[u8], order: &[u16]) -> Taken {
            let (request, mut reply) = (self.request(Operation::Get, 1), Reply::default());
            let frames: Vec<&[u8]> = message.chunks(FRAME_BYTES_MAX).collect();
            let each = order.iter().map(|&sequence| {
                let total = frames.len() as u16;
                let header = Header { request_id: 9, sequence, total, kind: Kind::Data };
                reply.take(self.context(), &request, header, frames[usize::from(sequence)])
            });
            each.last().expect("some")
        }

        /// What these messages of a reply, each whole and in order, bring in the end.
        fn answered(&self, operation: Operation, keys: u16, messages: &[&[u8]]) -> Taken {
            let (request, mut reply) = (self.request(operation, keys), Reply::default());
            let mut taken = Vec::new();
            for message in messages {
                let total = message.len().div_ceil(FRAME_BYTES_MAX) as u16;
                // A message of no datagrams comes as one that says so.
                for sequence in 0..total.max(1) {
                    let header = Header { request_id: 9, sequence, total, kind: Kind::Data };
                    let frame = message.chunks(FRAME_BYTES_MAX).nth(sequence.into());
                    let payload = frame.unwrap_or_default();
                    taken.push(reply.take(self.context(), &request, header, payload));
                }
            }
            let last = taken.pop().expect("a datagram");
            assert!(taken.iter().all(|taken| *taken == Taken::More), "{taken:?}");
            last
        }
    }

    fn corrupt(what: &'static str) -> Taken {
        Taken::Ended(Outcome::Corrupt(what))
    }

    #[test]
    fn a_value_is_right_in_whatever_order_it_comes() {
        let bench = Bench::new();
        let message = [&bench.item(7)[..], b"END\r\n"].concat();
        let mut random = Random::new(5);
        let mut order = [0, 1, 2, 3];
        for _ in 0..50 {
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            assert_eq!(bench.take(&message, &order), Taken::Ended(Outcome::Hit), "{order:?}");
        }
        assert_eq!(bench.take(&message, &[0, 1, 3]), Taken::More);
        assert_eq!(bench.take(&message, &[0, 2, 2]), Taken::Duplicate);
        assert_eq!(bench.take(&message, &[0, 1, 0]), Taken::Duplicate);
    }

    #[test]
    fn whatever_is_wrong_with_a_value_is_noticed() {
        let bench = Bench::new();
        let good = [&bench.item(7)[..], b"END\r\n"].concat();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            bench.answered(Operation::Get, 1, &[&message])
        };
        assert_eq!(with(&|message| message[4_000] ^= 1), corrupt(WRONG_BYTES));
        assert_eq!(with(&|message| message[6] ^= 1), corrupt(WRONG_KEY));
        assert_eq!(with(&|message| message[17] = b'4'), corrupt(WRONG_LENGTH));
        assert_eq!(with(&|message| message.truncate(good.len() - 1)), corrupt(WRONG_END));
        assert_eq!(with(&|message| message.push(b'x')), corrupt(WRONG_END));
        assert_eq!(with(&|message| message[0] = b'W'), corrupt(NO_REPLY));
        // A line without an end is not kept until the last datagram has come.
        assert_eq!(with(&|message| message.fill(b'x')), corrupt(NO_REPLY));
    }

    #[test]
    fn short_replies_are_read_as_the_protocol_says() {
        let refused = || Taken::Ended(Outcome::Refused("SERVER_ERROR no".into()));
        for (operation, message, taken) in [
            (Operation::Get, "END\r\n", Taken::Ended(Outcome::Miss)),
            (Operation::Set, "STORED\r\n", Taken::Ended(Outcome::Stored)),
            (Operation::Set, "SERVER_ERROR no\r\n", refused()),
            (Operation::Set, "END\r\n", corrupt(NO_REPLY)),
            (Operation::Delete, "DELETED\r\n", Taken::Ended(Outcome::Deleted)),
            (Operation::Delete, "NOT_FOUND\r\n", Taken::Ended(Outcome::Deleted)),
            (Operation::Delete, "STORED\r\n", corrupt(NO_REPLY)),
            (Operation::Get, "DELETED\r\n", corrupt(NO_REPLY)),
            (Operation::Get, "END\r\nEND\r\n", corrupt(WRONG_END)),
            (Operation::Get, "END", corrupt(WRONG_END)),
        ] {
            let found = Bench::new().answered(operation, 1, &[message.as_bytes()]);
            assert_eq!(found, taken, "{message:?}");
        }
    }

    /// As memcached 1.6 answers: a message of each value, numbered anew, the end behind the last
    /// one, and a message of no datagrams for a key that is not there and not the last.
    #[test]
    fn a_get_of_several_keys_is_answered_by_several_messages() {
        let bench = Bench::new();
        let [first, second, third] = [7, 8, 9].map(|key| bench.item(key));
        let last = [&third[..], b"END\r\n"].concat();
        let whole = [&first[..], &second, &last].concat();
        let longer = [&last[..], b"x"].concat();
        let [flipped, renamed] = [4_000, 6].map(|at: usize| {
            let mut item = first.clone();
            item[at] ^= 1;
            item
        });
        let many = |hits: u16| {
            let (misses, value_bytes) = (3 - hits, u64::from(hits) * 5_000);
            Taken::Ended(Outcome::Many { hits, misses, value_bytes })
        };
        let refused = Taken::Ended(Outcome::Refused("SERVER_ERROR no".into()));
        for (messages, taken) in [
            (&[&first[..], &second, &last][..], many(3)),
            (&[&first, b"", &last], many(2)),
            (&[&first, b"", b"END\r\n"], many(1)),
            (&[b"", b"", b"END\r\n"], many(0)),
            (&[&whole], many(3)),
            (&[&first], Taken::More),
            (&[&second, &first, &last], corrupt(WRONG_KEY)), // overtaken
            (&[&flipped, &second, &last], corrupt(WRONG_BYTES)),
            (&[&renamed, &second, &last], corrupt(WRONG_KEY)),
            (&[&first, &second, &longer], corrupt(WRONG_END)),
            (&[&last[..last.len() - 1]], corrupt(WRONG_END)),
            (&[&first[..3_000]], corrupt(WRONG_END)),
            (&[b"STORED\r\n"], corrupt(NO_REPLY)),
            (&[b"SERVER_ERROR no\r\n"], refused),
        ] {
            assert_eq!(bench.answered(Operation::Get, 3, messages), taken);
        }
    }

    #[test]
    fn numbers_that_fit_no_message_are_told() {
        let (bench, mut reply) = (Bench::new(), Reply::default());
        let request = bench.request(Operation::Get, 1);
        for (sequence, total, more) in [(0, 0, false), (3, 3, false), (2, 3, true), (0, 2, false)] {
            let header = Header { request_id: 1, sequence, total, kind: Kind::Data };
            let taken = reply.take(bench.context(), &request, header, b"VALUE");
            let expected = if more { Taken::More } else { Taken::Impossible };
            assert_eq!(taken, expected, "{sequence} of {total}");
        }
    }
}
