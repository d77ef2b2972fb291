//! `check_store(ops)`: the store against a `HashMap`, one operation at a time. Used by the rows,
//! the property test and the fuzzer. Nothing here is random: what happens depends on the operations
//! alone.

use laneway_store::{
    Config, Draft, Got, Hand, HugePages, ItemMeta, Mode, Moment, Refused, Store, Window,
};
use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// One operation. Keys and sizes are small numbers, so that operations meet.
#[derive(Debug, Clone)]
pub enum Op {
    Get {
        key: u8,
    },
    Peek {
        key: u8,
    },
    Set {
        key: u8,
        bytes: u32,
        flags: u32,
        /// Milliseconds; 0 for none.
        ttl: u32,
        seq: Option<u64>,
    },
    /// A draft of `bytes` that gets only `written` of them.
    Abandon {
        key: u8,
        bytes: u32,
        written: u32,
    },
    Delete {
        key: u8,
    },
    Touch {
        key: u8,
        /// Milliseconds; 0 for none.
        ttl: u32,
    },
    Stale {
        key: u8,
        stale: bool,
        token_sent: bool,
    },
    RenewSeq {
        key: u8,
        explicit: Option<u64>,
    },
    /// Pin a large item and hold on to it.
    Pin {
        key: u8,
    },
    Unpin,
    FlushAll,
    Sweep {
        slots: u16,
    },
    Advance {
        millis: u32,
    },
}

#[derive(Debug, Clone)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    expires: Moment,
    seq: u64,
    stale: bool,
    token_sent: bool,
    fetched: bool,
    used_at: Moment,
}

struct Model {
    store: Arc<Store>,
    hand: Hand,
    now: Moment,
    /// Sequences that were drawn: by whom last, and all.
    drawn_last: HashMap<Vec<u8>, u64>,
    drawn: HashSet<u64>,
    known: HashMap<Vec<u8>, Known>,
    pins: Vec<(Vec<u8>, laneway_store::Pinned)>,
    /// In cache mode an item may be missing without reason.
    evicts: bool,
}

pub fn key_bytes(key: u8) -> Vec<u8> {
    let mut bytes = format!("key-{key}").into_bytes();
    bytes.resize(bytes.len() + usize::from(key % 7) * 5, b'k');
    bytes
}

/// Bytes that tell which key and which sequence of writing they belong to.
pub fn value_bytes(key: u8, nonce: u64, len: usize) -> Vec<u8> {
    let mut state = (u64::from(key) << 32 ^ nonce).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

/// Of the stores that are checked.
pub const HASH_SEED: (u64, u64) = (7, 11);

fn config(mode: Mode, memory_bytes: u64) -> Config {
    Config {
        memory_bytes,
        mode,
        item_bytes_max: 1 << 20,
        hash_seed: HASH_SEED,
        unpublished_bytes_max: 1 << 20,
        buckets_initial: 1,
        huge_pages: HugePages::None,
        window: None,
    }
}

/// Run the operations against a store and a map; panic where they differ. Afterwards everything is
/// deleted, and every slot must have come back.
pub fn check_store(mode: Mode, memory_bytes: u64, ops: &[Op]) {
    check_store_behind(None, mode, memory_bytes, ops);
}

/// The same, of a store behind a window.
pub fn check_store_behind(window: Option<Window>, mode: Mode, memory_bytes: u64, ops: &[Op]) {
    let config = Config { window, ..config(mode, memory_bytes) };
    let store = Store::new(config).expect("memory to reserve");
    let mut model = Model {
        hand: Hand::new(&store),
        store,
        now: Moment::from_seconds(1_000_000),
        drawn_last: HashMap::new(),
        drawn: HashSet::new(),
        known: HashMap::new(),
        pins: Vec::new(),
        evicts: mode == Mode::Cache,
    };
    for (i, op) in ops.iter().enumerate() {
        model.apply(op, i as u64);
    }
    model.check_all();
    model.finish();
}

/// A copy of a small item, with this end.
fn copy_of<'s>(
    store: &'s Arc<Store>,
    name: &[u8],
    expires: Moment,
    now: Moment,
) -> Option<Draft<&'s Store>> {
    let mut value = Vec::new();
    let Got::Copied(meta) = store.peek_value(store.hash(name), name, now, &mut value) else {
        return None;
    };
    let mut draft = store.draft_at_once(None, name, meta.flags, expires, value.len()).ok()?;
    draft.write(&value).ok()?;
    Some(draft)
}

impl Model {
    fn live(&mut self, key: &[u8]) -> Option<&mut Known> {
        let now = self.now;
        if self.known.get(key).is_some_and(|k| k.expires.is_over(now)) {
            self.known.remove(key);
        }
        self.known.get_mut(key)
    }

    fn check_meta(&mut self, key: &[u8], meta: &ItemMeta) {
        let now = self.now;
        let known = self.live(key).unwrap_or_else(|| panic!("{key:?} should be gone: {meta:?}"));
        assert_eq!(meta.seq, known.seq);
        assert_eq!(meta.flags, known.flags);
        assert_eq!(meta.expires, known.expires);
        assert_eq!(meta.value_bytes as usize, known.value.len());
        assert_eq!(usize::from(meta.key_bytes), key.len());
        assert_eq!((meta.stale, meta.token_sent), (known.stale, known.token_sent));
        assert_eq!(meta.fetched, known.fetched);
        let idle = now.seconds() - known.used_at.seconds();
        assert_eq!(meta.idle_seconds, idle.min(laneway_store::IDLE_SECONDS_MAX));
    }

    fn check_missing(&mut self, key: &[u8]) {
        let evicts = self.evicts;
        let known = self.live(key);
        assert!(evicts || known.is_none(), "{key:?} is missing");
        self.known.remove(key);
    }

    fn get(&mut self, key: &[u8]) {
        let hash = self.store.hash(key);
        let mut out = b"before".to_vec();
        let now = self.now;
        let got = self.store.get(hash, key, now, &mut out, &mut |meta, out| {
            out.extend_from_slice(format!("<{}>", meta.value_bytes).as_bytes());
        });
        let (meta, value) = match got {
            Got::Miss => {
                assert_eq!(out, b"before");
                return self.check_missing(key);
            }
            Got::Copied(meta) => {
                let head = format!("before<{}>", meta.value_bytes).into_bytes();
                assert_eq!(&out[..head.len()], head);
                (meta, out[head.len()..].to_vec())
            }
            Got::Large(meta, pinned) => {
                assert_eq!(out, b"before");
                let mut value = Vec::new();
                pinned.copy_into(&mut value);
                assert_eq!(pinned.value_bytes(), value.len());
                (meta, value)
            }
        };
        self.check_meta(key, &meta);
        let known = self.live(key).expect("checked");
        assert!(known.value == value, "wrong bytes for {key:?}");
        known.fetched = true;
        known.used_at = now;
    }

    fn set(&mut self, key: u8, bytes: u32, flags: u32, ttl: u32, seq: Option<u64>, nonce: u64) {
        let name = key_bytes(key);
        let expires = self.end(ttl);
        let value = value_bytes(key, nonce, bytes as usize);
        // At once, as whole small values are stored, or piece by piece.
        let given = match nonce % 2 == 1 && value.len() < 10_000 {
            true => self.set_at_once(&name, &value, flags, expires, seq),
            false => self.set_in_pieces(&name, &value, flags, expires, seq),
        };
        let given = match given {
            Ok(given) => given,
            Err(refused) => return self.check_refused(refused, bytes),
        };
        match seq {
            Some(chosen) => assert_eq!(given, chosen),
            None => self.check_drawn(&name, given),
        }
        let used_at = self.now;
        self.known.insert(
            name,
            Known {
                value,
                flags,
                expires,
                seq: given,
                stale: false,
                token_sent: false,
                fetched: false,
                used_at,
            },
        );
    }

    fn set_at_once(
        &self,
        name: &[u8],
        value: &[u8],
        flags: u32,
        expires: Moment,
        seq: Option<u64>,
    ) -> Result<u64, Refused> {
        let hand = Some(&self.hand);
        let mut draft = self.store.draft_at_once(hand, name, flags, expires, value.len())?;
        draft.write(value)?;
        let mut entry = self.store.enter(self.store.hash(name), name, self.now).keeping(hand);
        Ok(entry.publish(draft, seq))
    }

    fn set_in_pieces(
        &self,
        name: &[u8],
        value: &[u8],
        flags: u32,
        expires: Moment,
        seq: Option<u64>,
    ) -> Result<u64, Refused> {
        let mut draft = self.store.draft(name, flags, expires, value.len())?;
        let mut rest = value;
        while !rest.is_empty() {
            // Both ways in, in turns.
            let take = if draft.is_large() && rest.len() % 2 == 1 {
                let room = draft.room()?;
                let take = room.len().min(rest.len()).min(20_001);
                room[..take].copy_from_slice(&rest[..take]);
                draft.advance(take);
                take
            } else {
                let take = rest.len().min(9_999);
                draft.write(&rest[..take])?;
                take
            };
            rest = &rest[take..];
        }
        Ok(self.store.enter(self.store.hash(name), name, self.now).publish(draft, seq))
    }

    /// A sequence that the store drew is nobody's else, and greater than the last of its key.
    fn check_drawn(&mut self, name: &[u8], given: u64) {
        assert!(self.drawn.insert(given), "{given} was given twice");
        let last = self.drawn_last.insert(name.to_vec(), given);
        assert!(last < Some(given), "{given} after {last:?}");
        assert!(given <= self.store.seq(), "{given} above {}", self.store.seq());
    }

    fn check_refused(&self, refused: Refused, bytes: u32) {
        match refused {
            Refused::TooLarge => {
                assert!(bytes as usize + 300 > 1 << 20, "{bytes} is not too large")
            }
            Refused::OutOfMemory => {
                let stats = self.store.stats();
                let full = stats.pool_bytes * 2 > stats.limit_bytes;
                assert!(full || !self.pins.is_empty(), "refused while there is room: {stats:?}");
            }
        }
    }

    fn change(&mut self, key: u8, change: impl FnOnce(&mut laneway_store::Entry<'_>, &mut Known)) {
        let name = key_bytes(key);
        let (store, now, evicts) = (self.store.clone(), self.now, self.evicts);
        let mut entry = store.enter(store.hash(&name), &name, now);
        match (entry.meta(), self.live(&name)) {
            (Some(_), Some(known)) => change(&mut entry, known),
            (None, None) => {}
            (None, Some(_)) => assert!(evicts, "{name:?} is missing"),
            (Some(meta), None) => panic!("{name:?} should be gone: {meta:?}"),
        }
        if entry.meta().is_none() {
            self.known.remove(&name);
        }
    }

    fn apply(&mut self, op: &Op, nonce: u64) {
        match *op {
            Op::Get { key } => self.get(&key_bytes(key)),
            Op::Peek { key } => {
                let name = key_bytes(key);
                match self.store.peek(self.store.hash(&name), &name, self.now) {
                    Some(meta) => self.check_meta(&name, &meta),
                    None => self.check_missing(&name),
                }
            }
            Op::Set { key, bytes, flags, ttl, seq } => self.set(key, bytes, flags, ttl, seq, nonce),
            Op::Abandon { key, bytes, written } => {
                let name = key_bytes(key);
                let Ok(mut draft) = self.store.draft(&name, 1, Moment::NEVER, bytes as usize)
                else {
                    return;
                };
                let _ = draft.write(&vec![0xee; written.min(bytes) as usize]);
            }
            Op::Delete { key } => {
                let name = key_bytes(key);
                let mut entry = self.store.enter(self.store.hash(&name), &name, self.now);
                entry.unlink();
                assert!(entry.meta().is_none());
                drop(entry);
                self.known.remove(&name);
            }
            Op::Touch { key, ttl } => self.touch(key, ttl),
            Op::Stale { key, stale, token_sent } => self.change(key, |entry, known| {
                entry.set_stale(stale);
                entry.set_token_sent(token_sent);
                (known.stale, known.token_sent) = (stale, token_sent);
            }),
            Op::RenewSeq { key, explicit } => {
                let renewed = Cell::new(None);
                self.change(key, |entry, known| {
                    known.seq = entry.renew_seq(explicit);
                    renewed.set(Some(known.seq));
                });
                match (renewed.get(), explicit) {
                    (Some(given), Some(chosen)) => assert_eq!(given, chosen),
                    (Some(given), None) => self.check_drawn(&key_bytes(key), given),
                    (None, _) => {}
                }
            }
            Op::Pin { key } => self.pin(&key_bytes(key)),
            Op::Unpin => {
                if !self.pins.is_empty() {
                    self.check_pin(0);
                    self.pins.swap_remove(0);
                }
            }
            Op::FlushAll => {
                while !self.store.flush_all() {}
                self.known.clear();
            }
            Op::Sweep { slots } => {
                self.store.sweep(self.now, usize::from(slots));
            }
            Op::Advance { millis } => self.now = self.later(millis),
        }
    }

    fn later(&self, millis: u32) -> Moment {
        Moment::from_unix_millis(self.now.unix_millis() + u64::from(millis))
    }

    fn end(&self, ttl: u32) -> Moment {
        if ttl == 0 { Moment::NEVER } else { self.later(ttl) }
    }

    /// Another end: in place, or by a copy that has room for it, or the next full second where
    /// there is no memory for a copy.
    fn touch(&mut self, key: u8, ttl: u32) {
        let (name, expires) = (key_bytes(key), self.end(ttl));
        let store = self.store.clone();
        let copy = copy_of(&store, &name, expires, self.now);
        self.change(key, |entry, known| {
            known.expires = expires;
            match copy {
                _ if entry.has_room_for(expires) => entry.set_expires(expires),
                Some(draft) => entry.rewrite(draft),
                None => {
                    entry.set_expires(expires);
                    known.expires = expires.rounded_up();
                }
            }
        });
    }

    fn pin(&mut self, name: &[u8]) {
        let now = self.now;
        let got = self.store.get(self.store.hash(name), name, now, &mut Vec::new(), &mut |_, _| ());
        match got {
            Got::Miss => return self.check_missing(name),
            Got::Copied(_) => {}
            Got::Large(_, pinned) => {
                let value = self.live(name).expect("a hit").value.clone();
                self.pins.push((value, pinned));
            }
        }
        let known = self.live(name).expect("a hit");
        (known.fetched, known.used_at) = (true, now);
    }

    fn check_pin(&self, i: usize) {
        let (value, pinned) = &self.pins[i];
        let mut now = Vec::new();
        pinned.copy_into(&mut now);
        assert!(*value == now, "pinned bytes changed");
    }

    fn check_all(&mut self) {
        let names: Vec<_> = self.known.keys().cloned().collect();
        names.iter().for_each(|name| self.get(name));
        (0..self.pins.len()).for_each(|i| self.check_pin(i));
        if !self.evicts {
            let stats = self.store.stats();
            assert!(stats.items >= self.known.len() as u64, "{stats:?}");
        }
    }

    fn finish(self) {
        drop(self.pins);
        self.hand.empty();
        for key in 0..=u8::MAX {
            let name = key_bytes(key);
            self.store.enter(self.store.hash(&name), &name, self.now).unlink();
        }
        // Of an item that was evicted in a step without budget, most pieces may remain.
        while !self.store.sweep(self.now, 10_000).is_over {}
        let stats = self.store.stats();
        assert_eq!((stats.items, stats.bytes), (0, 0), "{stats:?}");
        assert_eq!((stats.pinned_dead_bytes, stats.unpublished_bytes), (0, 0), "{stats:?}");
        assert_eq!(self.store.slots_used(), 0, "slots leaked: {:?}", self.store.class_stats());
        assert_eq!(stats.buckets_overflow, 0);
    }
}
