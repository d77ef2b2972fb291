//! The reply to a GET of several keys, read message by message. It knows no datagram.
//!
//! Ours is one message. Since 1.6 memcached makes a message of each value, under the same request
//! id and numbered from 0 anew, and `END` ends the last. Nothing says in which order these were
//! sent, so the order in which they come is believed: a value that another overtook is told as
//! another key's, and one behind the end is for no request in flight.

use crate::connection::{Context, Many, Outcome, WRONG_BYTES, WRONG_KEY, WRONG_LENGTH};
use crate::dialect::Line;
use crate::values::Checker;
use crate::workload::Key;

/// What a reply whose datagrams do not add up is said to have.
pub(super) const WRONG_END: &str = "an end where none belongs";
/// What a reply of no protocol is said to have.
pub(super) const NO_REPLY: &str = "a line that answers no such request";

/// Takes the next message of a reply to the keys of `many`; what the reply says, if that ends it.
pub(super) fn read(context: Context<'_>, many: &mut Many, message: &[u8]) -> Option<Outcome> {
    let mut rest = message;
    while !rest.is_empty() {
        let Some(newline) = rest.iter().position(|&byte| byte == b'\n') else {
            return Some(Outcome::Corrupt(WRONG_END));
        };
        let (line, behind) = rest.split_at(newline + 1);
        match context.dialect.line(line) {
            Line::Value { value_bytes, key: Some(name), .. } => {
                let found = many.named(|key| *context.workload.key_name(key) == *name);
                let bytes = usize::try_from(value_bytes).unwrap_or(usize::MAX);
                let Some((value, ending)) = behind.split_at_checked(bytes) else {
                    return Some(Outcome::Corrupt(WRONG_END));
                };
                let Some(behind) = ending.strip_prefix(b"\r\n") else {
                    return Some(Outcome::Corrupt(WRONG_END));
                };
                many.read(value_bytes, wrong(context, found, value));
                rest = behind;
            }
            Line::Miss if behind.is_empty() => return Some(many.end()),
            Line::Miss => return Some(Outcome::Corrupt(WRONG_END)),
            Line::Refused(words) => {
                return Some(Outcome::Refused(String::from_utf8_lossy(words).into_owned()));
            }
            _ => return Some(Outcome::Corrupt(NO_REPLY)),
        }
    }
    None
}

/// What is wrong with a value; `found` is whose it is, if it was asked for.
fn wrong(context: Context<'_>, found: Option<Key>, value: &[u8]) -> Option<&'static str> {
    let Some(key) = found else { return Some(WRONG_KEY) };
    let bytes = value.len() as u64;
    if bytes != context.workload.value_bytes(key) {
        return Some(WRONG_LENGTH);
    }
    if bytes == 0 {
        return None;
    }
    let mut checker = Checker::new(key, bytes);
    checker.feed(context.values, value);
    (!checker.is_good()).then_some(WRONG_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Request, keys_of};
    use crate::dialect::Dialect;
    use crate::values::{Value, Values};
    use crate::workload::{Class, Operation, Pattern, Sizes, Workload, WorkloadOptions};

    const KEYS: u16 = 4;
    const VALUE_BYTES: u64 = 60;

    #[test]
    #[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
    fn each_value_is_looked_at_and_those_that_are_missing_are_misses() {
        let sizes = Sizes::Fixed { value_bytes: VALUE_BYTES };
        // No key twice.
        let (pattern, keys_per_get) = (Pattern::Scan, KEYS);
        let options =
            WorkloadOptions { sizes, pattern, keys_per_get, ..WorkloadOptions::default() };
        let workload = Workload::new(options).expect("valid");
        let values = Values::new(1);
        let context = Context { workload: &workload, values: &values, dialect: Dialect::Text };
        let (operation, class) = (Operation::Get, Class::Small);
        let (key, keys, value_bytes) = (Key(7), KEYS, VALUE_BYTES);
        let request = Request { key, operation, keys, class, value_bytes, version: 3, due_ns: 0 };
        let item = |key: Key, version: u32| {
            let mut item = b"VALUE ".to_vec();
            item.extend_from_slice(&workload.key_name(key));
            item.extend_from_slice(b" 0 60\r\n");
            values.append(Value { key, bytes: VALUE_BYTES, version }, &mut item);
            item.extend_from_slice(b"\r\n");
            item
        };
        let asked: Vec<Key> = keys_of(context, &request).collect();
        let reply = |of: &[usize]| {
            let items: Vec<u8> = of.iter().flat_map(|&at| item(asked[at], at as u32)).collect();
            [&items[..], b"END\r\n"].concat()
        };
        let many = |hits: u16| {
            let misses = KEYS - hits;
            Outcome::Many { hits, misses, value_bytes: u64::from(hits) * VALUE_BYTES }
        };
        let read_all = |messages: &[&[u8]]| {
            let mut many = Many::new(keys_of(context, &request));
            let (last, before) = messages.split_last().expect("a message");
            for message in before {
                assert_eq!(super::read(context, &mut many, message), None);
            }
            super::read(context, &mut many, last)
        };
        let read = |message: &[u8]| read_all(&[message]).expect("a reply that has ended");
        for of in [&[0, 1, 2, 3][..], &[1, 2, 3], &[0, 2], &[3], &[]] {
            assert_eq!(read(&reply(of)), many(of.len() as u16), "{of:?}");
            // memcached's way: each value by itself, nothing for a key that is not there, and the
            // end behind the last value, or by itself where the last key is not there.
            let mut messages: Vec<Vec<u8>> = vec![Vec::new()];
            messages.extend(of.iter().map(|&at| item(asked[at], at as u32)));
            messages.push(b"END\r\n".to_vec());
            let by_itself: Vec<&[u8]> = messages.iter().map(|message| &message[..]).collect();
            assert_eq!(read_all(&by_itself), Some(many(of.len() as u16)), "{of:?}");
            if of.last() == Some(&3) {
                let last = reply(&[3]);
                let values = by_itself.len() - 2;
                let behind: Vec<&[u8]> =
                    by_itself[..values].iter().copied().chain([&last[..]]).collect();
                assert_eq!(read_all(&behind), Some(many(of.len() as u16)), "{of:?}");
            }
        }
        let (early, late) = (item(asked[0], 1), item(asked[1], 1));
        let overtaken = read_all(&[&late[..], &early[..], b"END\r\n"]);
        assert_eq!(overtaken, Some(Outcome::Corrupt(WRONG_KEY)));
        let good = reply(&[0, 1, 2, 3]);
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            read(&message)
        };
        assert_eq!(with(&|message| message[40] ^= 1), Outcome::Corrupt(WRONG_BYTES));
        assert_eq!(with(&|message| message[6] ^= 1), Outcome::Corrupt(WRONG_KEY));
        assert_eq!(with(&|message| message.push(b'x')), Outcome::Corrupt(WRONG_END));
        assert_eq!(with(&|message| message.truncate(good.len() - 1)), Outcome::Corrupt(WRONG_END));
        assert_eq!(with(&|message| message.truncate(50)), Outcome::Corrupt(WRONG_END));
        let without_end = &good[..good.len() - b"END\r\n".len()];
        assert_eq!(read_all(&[without_end]), None);
        assert_eq!(read(b"STORED\r\n"), Outcome::Corrupt(NO_REPLY));
        let refused = Outcome::Refused("SERVER_ERROR no".into());
        assert_eq!(read(b"SERVER_ERROR no\r\n"), refused);
    }
}
