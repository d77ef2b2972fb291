//! `SCAN` and `RANDOMKEY`: walking over the keys, a bounded stretch for each request. The cursor is
//! a point in the space of hashes (`laneway_store`), so the server remembers nothing of a walk, and
//! a key that is there from its beginning to its end is told exactly once.

use crate::core::Core;
use crate::resp::glob::fits;
use crate::resp::options::{Refusal, SYNTAX, number};
use crate::resp::state::{Seeking, Session};
use laneway_store::Store;
use laneway_transport::Transport;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{put_array_head, put_bulk, put_null};
use std::sync::Arc;

/// Buckets that one request looks at, at most: each has some 6 keys.
const BUCKETS_MAX: u64 = 32;
/// Comparisons of a byte of a key with one of a pattern, after which it looks at no further bucket:
/// each byte of a key may be compared with each of the pattern.
const COMPARISONS_MAX: usize = 16 << 10;
/// The longest pattern; no key is longer.
const PATTERN_BYTES_MAX: usize = 256;
/// Buckets that `RANDOMKEY` looks at in one turn, as long as there is no key in them.
const STRETCH: usize = 256;
/// Such turns, for each domain: they are the whole of the smallest index, of 4096 buckets, and a
/// piece more, since the first may begin in the middle of a bucket.
const STRETCHES_MAX: usize = 17;

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

    /// `RANDOMKEY`: of the first keys behind a point that the time chooses, one. False: there was
    /// none in a stretch, and the next one is for the next turn.
    pub(crate) fn resp_random_key(
        &self,
        session: &mut Session,
        arrived: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(words) = self.refuses_walks() {
            out.extend_from_slice(words);
            return true;
        }
        let stores = self.stores();
        let mut seeking = session.seeking.take().unwrap_or_else(|| Seeking {
            cursor: arrived % stores.len() as u64 * Store::SCAN_END
                + self.shared.store.scan_from(arrived),
            left: STRETCHES_MAX * stores.len(),
        });
        let mut keys = Vec::new();
        for _ in 0..STRETCH {
            let number = seeking.cursor / Store::SCAN_END % stores.len() as u64;
            let next = stores[number as usize].scan(
                seeking.cursor % Store::SCAN_END,
                self.now_seconds,
                |key| keys.push(key.to_vec()),
            );
            seeking.cursor = number * Store::SCAN_END + next;
            if !keys.is_empty() {
                let chosen = self.shared.store.scan_from(arrived ^ next) as usize % keys.len();
                put_bulk(out, &keys[chosen]);
                return true;
            }
        }
        seeking.left -= 1;
        if seeking.left == 0 {
            put_null(out, session.version);
            return true;
        }
        session.seeking = Some(seeking);
        false
    }
}
