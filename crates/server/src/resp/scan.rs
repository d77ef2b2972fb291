//! `SCAN` and `RANDOMKEY`: walking over the keys, a bounded stretch for each request. The cursor is
//! a point in the space of hashes (`laneway_store`), so the server remembers nothing of a walk, and
//! a key that is there from its beginning to its end is told exactly once.
//!
//! Where items are kept durably memory has some of them only: a walk goes over the index of the
//! tier, in the order of the keys, and where it stands is remembered ([`crate::durable::walks`]).

use crate::core::Core;
use crate::durable::pending_writes::is_over;
use crate::durable::shared::Durable;
use crate::durable::walks::WALKS_MAX;
use crate::resp::glob::fits;
use crate::resp::options::{LONG_PATTERN, OPTIONS_MAX, PATTERN_BYTES_MAX, Refusal, SYNTAX, number};
use crate::resp::state::{Seeking, Session};
use laneway_store::{Store, meter};
use laneway_transport::Transport;
use laneway_wire::KEY_BYTES_MAX;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{put_array_head, put_bulk, put_null};
use std::sync::Arc;

/// Buckets with keys that one request looks at, at most: each has some 6.
const BUCKETS_MAX: u64 = 32;
/// Comparisons of a byte of a key with one of a pattern, after which it looks at no further bucket:
/// each byte of a key may be compared with each of the pattern.
const COMPARISONS_MAX: usize = 16 << 10;
/// Buckets that a request looks at in one turn, those without a key included: of 8 places each, so
/// they are one step of maintenance (`laneway_store::budget`). Several connections may walk in the
/// same step of a worker.
const STRETCH: usize = 64;
/// Such turns, for each domain: they are the whole of the smallest index, of 4096 buckets, and a
/// piece more, since the first may begin in the middle of a bucket.
const STRETCHES_MAX: usize = 65;

/// Whether a key of the tier is a client's: the server's own are longer than any of those.
fn is_clients(key: &[u8]) -> bool {
    key.len() <= KEY_BYTES_MAX
}

const BAD_CURSOR: &[u8] = b"-ERR invalid cursor\r\n";
/// Leaves of the tier's index that one request looks at, at most, and keys in them: as many as in
/// so many buckets.
const LEAVES_MAX: usize = 4;
const KEYS_MAX: u64 = 6 * BUCKETS_MAX;
const FORGOTTEN: &[u8] = b"-ERR the cursor is not known: with a data folder (--data-dir) the last \
1024 walks are remembered, as long as the server runs; begin again with SCAN 0\r\n";
const _: () = assert!(WALKS_MAX == 1024);
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
    if args.left() > OPTIONS_MAX {
        return Err(SYNTAX.into());
    }
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
        (!self.shared.settings.dump).then_some(NOT_ALLOWED)
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
        if let Some(durable) = self.shared.durable.get() {
            return self.resp_scan_kept(durable, &asked, out);
        }
        let pattern_bytes = asked.pattern.map_or(0, <[u8]>::len);
        let mut comparisons = 0;
        let stores = self.stores();
        let all = stores.len() as u64 * Store::SCAN_END;
        let (mut cursor, mut seen, mut told, mut keys) = (asked.cursor, 0, 0, Vec::new());
        let mut filled = 0;
        for _ in 0..STRETCH {
            let before = seen;
            let number = cursor / Store::SCAN_END;
            let Some(store) = stores.get(number as usize) else { break };
            let next = store.scan(cursor % Store::SCAN_END, self.now, |key| {
                seen += 1;
                comparisons += key.len() * pattern_bytes;
                let fits = asked.pattern.is_none_or(|pattern| fits(pattern, key, false));
                if fits && !asked.is_in_vain {
                    told += 1;
                    put_bulk(&mut keys, key);
                }
            });
            cursor = number * Store::SCAN_END + next;
            filled += u64::from(seen > before);
            if seen >= asked.count || filled == BUCKETS_MAX || comparisons >= COMPARISONS_MAX {
                break;
            }
        }
        put_array_head(out, 2);
        let next = if cursor < all { cursor } else { 0 };
        put_bulk(out, next.to_string().as_bytes());
        put_array_head(out, told);
        out.extend_from_slice(&keys);
    }

    /// The same where items are kept durably.
    fn resp_scan_kept(&self, durable: &Durable, asked: &Asked<'_>, out: &mut Vec<u8>) {
        let Some(from) = durable.walks.place(asked.cursor) else {
            return out.extend_from_slice(FORGOTTEN);
        };
        let pattern_bytes = asked.pattern.map_or(0, <[u8]>::len);
        let most = asked.count.min(KEYS_MAX);
        let (mut seen, mut comparisons, mut told, mut keys) = (0, 0, 0, Vec::new());
        let mut at = Some(from);
        for _ in 0..LEAVES_MAX {
            let Some(from) = at.take() else { break };
            let mut found = Vec::new();
            at = durable.tier.look_along(&from, |key, look| {
                if is_clients(key) && !is_over(look.expires_at_seconds, self.now) {
                    found.push(Box::<[u8]>::from(key));
                }
            });
            meter::slots(found.len());
            for key in found {
                if seen == most || comparisons >= COMPARISONS_MAX {
                    at = Some(key);
                    break;
                }
                seen += 1;
                comparisons += key.len() * pattern_bytes;
                let fits = asked.pattern.is_none_or(|pattern| fits(pattern, &key, false));
                if fits && !asked.is_in_vain {
                    told += 1;
                    put_bulk(&mut keys, &key);
                }
            }
            if seen == most || comparisons >= COMPARISONS_MAX {
                break;
            }
        }
        let started = self.shared.started_seconds;
        let next = at.map_or(0, |key| durable.walks.advance(asked.cursor, key, started));
        put_array_head(out, 2);
        put_bulk(out, next.to_string().as_bytes());
        put_array_head(out, told);
        out.extend_from_slice(&keys);
    }

    /// One of the first keys of the tier.
    fn first_kept(&self, durable: &Durable, number: u64) -> Option<Box<[u8]>> {
        let mut at: Option<Box<[u8]>> = Some(Box::default());
        for _ in 0..LEAVES_MAX {
            let (from, mut found) = (at.take()?, Vec::new());
            at = durable.tier.look_along(&from, |key, look| {
                if is_clients(key) && !is_over(look.expires_at_seconds, self.now) {
                    found.push(Box::<[u8]>::from(key));
                }
            });
            if !found.is_empty() {
                let chosen = self.shared.store.scan_from(number) as usize % found.len();
                return Some(found.swap_remove(chosen));
            }
        }
        None
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
            let hidden = self.shared.hidden();
            let next =
                stores[number as usize].scan(seeking.cursor % Store::SCAN_END, self.now, |key| {
                    if !hidden(key) {
                        keys.push(key.to_vec());
                    }
                });
            seeking.cursor = number * Store::SCAN_END + next;
            if !keys.is_empty() {
                let chosen = self.shared.store.scan_from(arrived ^ next) as usize % keys.len();
                put_bulk(out, &keys[chosen]);
                return true;
            }
        }
        seeking.left -= 1;
        if seeking.left == 0 {
            let durable = self.shared.durable.get();
            match durable.and_then(|durable| self.first_kept(durable, arrived)) {
                Some(key) => put_bulk(out, &key),
                None => put_null(out, session.version),
            }
            return true;
        }
        session.seeking = Some(seeking);
        false
    }
}
