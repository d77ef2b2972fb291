//! `SCAN` and `RANDOMKEY`: walking over the keys, a bounded stretch for each request. The cursor is
//! a point in the space of hashes (`laneway_store`), so the server remembers nothing of a walk, and
//! a key that is there from its beginning to its end is told exactly once.

use crate::core::Core;
use crate::resp::glob::fits;
use crate::resp::options::{Refusal, SYNTAX, number};
use laneway_store::Store;
use laneway_transport::Transport;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{Version, put_array_head, put_bulk, put_null};
use std::sync::Arc;

/// Buckets that one request looks at, at most: each has some 6 keys.
const BUCKETS_MAX: u64 = 32;
/// Comparisons of a byte of a key with one of a pattern, after which it looks at no further bucket:
/// each byte of a key may be compared with each of the pattern.
const COMPARISONS_MAX: usize = 16 << 10;
/// The longest pattern; no key is longer.
const PATTERN_BYTES_MAX: usize = 256;
/// Buckets that `RANDOMKEY` looks at, at most, as long as there is no key in them: as many as the
/// smallest index has.
const EMPTY_BUCKETS_MAX: usize = 4096;

const BAD_CURSOR: &[u8] = b"-ERR invalid cursor\r\n";
const LONG_PATTERN: &[u8] = b"-ERR the pattern is longer than 256 bytes, and no key is\r\n";
/// The index in memory knows some of the keys only.
const NOT_WALKED: &[u8] = b"-ERR SCAN and RANDOMKEY are not served with a data folder \
(--data-dir): most keys may be on the disk, in an order that no cursor of 64 bits stands in\r\n";

/// `-X`
const NOT_ALLOWED: &[u8] = b"-ERR SCAN and RANDOMKEY tell keys, which the server refuses (-X)\r\n";

/// What a `SCAN` asks.
struct Asked<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: u64,
    /// All items are strings: it asks for others.
    is_in_vain: bool,
}

fn read<'a>(mut args: Args<'a>) -> Result<Asked<'a>, Refusal> {
    let text = std::str::from_utf8(args.next().unwrap_or_default()).unwrap_or_default();
    let cursor = text.parse().map_err(|_| Refusal::from(BAD_CURSOR))?;
    let mut asked = Asked { cursor, pattern: None, count: 10, is_in_vain: false };
    while let Some(option) = args.next() {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let value = args.next().ok_or(Refusal::from(SYNTAX))?;
        match () {
            () if is("match") => asked.pattern = Some(value),
            () if is("count") => {
                let count = u64::try_from(number(value)?).ok().filter(|count| *count > 0);
                asked.count = count.ok_or(Refusal::from(SYNTAX))?;
            }
            () if is("type") => asked.is_in_vain = !value.eq_ignore_ascii_case(b"string"),
            () => return Err(SYNTAX.into()),
        }
    }
    match asked.pattern {
        Some(pattern) if pattern.len() > PATTERN_BYTES_MAX => Err(LONG_PATTERN.into()),
        _ => Ok(asked),
    }
}

impl<T: Transport> Core<T> {
    /// The stores of all domains, in the domains' order.
    fn stores(&self) -> Vec<&Arc<Store>> {
        match self.shared.domains.get() {
            None => vec![&self.shared.store],
            Some(domains) => {
                let count = domains.other_stores().len() as u16 + 1;
                (0..count).map(|number| domains.store(number)).collect()
            }
        }
    }

    /// Why keys are not walked over, if they are not.
    fn refuses_walks(&self) -> Option<&'static [u8]> {
        match () {
            () if !self.shared.settings.dump => Some(NOT_ALLOWED),
            () if self.keeps() => Some(NOT_WALKED),
            () => None,
        }
    }

    /// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
    pub(crate) fn resp_scan(&self, args: Args<'_>, out: &mut Vec<u8>) {
        if let Some(words) = self.refuses_walks() {
            return out.extend_from_slice(words);
        }
        let asked = match read(args) {
            Ok(asked) => asked,
            Err(words) => return out.extend_from_slice(&words),
        };
        let pattern_bytes = asked.pattern.map_or(0, <[u8]>::len);
        let mut comparisons = 0;
        let stores = self.stores();
        let all = stores.len() as u64 * Store::SCAN_END;
        let (mut cursor, mut seen, mut told, mut keys) = (asked.cursor, 0, 0, Vec::new());
        for _ in 0..BUCKETS_MAX {
            let number = cursor / Store::SCAN_END;
            let Some(store) = stores.get(number as usize) else { break };
            let next = store.scan(cursor % Store::SCAN_END, self.now_seconds, |key| {
                seen += 1;
                comparisons += key.len() * pattern_bytes;
                let fits = asked.pattern.is_none_or(|pattern| fits(pattern, key, false));
                if fits && !asked.is_in_vain {
                    told += 1;
                    put_bulk(&mut keys, key);
                }
            });
            cursor = number * Store::SCAN_END + next;
            if seen >= asked.count || comparisons >= COMPARISONS_MAX {
                break;
            }
        }
        put_array_head(out, 2);
        let next = if cursor < all { cursor } else { 0 };
        put_bulk(out, next.to_string().as_bytes());
        put_array_head(out, told);
        out.extend_from_slice(&keys);
    }

    /// `RANDOMKEY`: of the first keys behind a point that the time chooses, one.
    pub(crate) fn resp_random_key(&self, version: Version, arrived: u64, out: &mut Vec<u8>) {
        if let Some(words) = self.refuses_walks() {
            return out.extend_from_slice(words);
        }
        let stores = self.stores();
        let start = self.shared.store.scan_from(arrived);
        let first = arrived as usize % stores.len();
        for number in 0..stores.len() {
            let store = stores[(first + number) % stores.len()];
            let (mut cursor, mut keys) = (start, Vec::new());
            for _ in 0..EMPTY_BUCKETS_MAX {
                cursor = store.scan(cursor % Store::SCAN_END, self.now_seconds, |key| {
                    keys.push(key.to_vec());
                });
                if !keys.is_empty() {
                    let chosen = store.scan_from(arrived ^ cursor) as usize % keys.len();
                    return put_bulk(out, &keys[chosen]);
                }
            }
        }
        put_null(out, version);
    }
}
