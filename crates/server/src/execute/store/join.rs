//! `append` and `prepend`: a new item made of the old one's value and the new bytes, a stretch at a
//! time where the caller wants it so, since the old value may be large whatever the new bytes are.
//!
//! Should somebody else change the item meanwhile it begins again, a bounded number of times.

use super::super::Context;
use super::super::attempts::{Attempts, unchanged};
use super::answer::AnswerOwned;
use super::complete::Fate;
use super::{How, Place, answer_fate};
use laneway_store::{Draft, Gathered, Got, ItemMeta, KeyHash, Moment, Pinned, Refused};
use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::Limits;
use std::ops::Deref;

/// Where bytes go in the value that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// Behind it.
    Behind,
    /// Before it.
    Before,
    /// Over its bytes from this one on; it becomes longer where they do not fit, and has zeros
    /// where it has not been so long.
    At(usize),
}

impl Spot {
    /// Bytes of the joined value.
    fn length(self, old: usize, new: usize) -> usize {
        match self {
            Spot::Behind | Spot::Before => old + new,
            Spot::At(from) => old.max(from + new),
        }
    }
}

/// Zeros for what a value has not had.
const ZEROS: &[u8] = &[0; 1024];

/// The new bytes.
pub(super) enum Bytes<'a> {
    Lent(&'a [u8]),
    Own(Vec<u8>),
    Gathered(Gathered),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Lent(bytes) => bytes,
            Bytes::Own(bytes) => bytes,
            Bytes::Gathered(bytes) => bytes,
        }
    }
}

/// What there is already.
enum Old {
    Small(Vec<u8>),
    Large(Pinned),
}

impl Old {
    fn bytes(&self) -> usize {
        match self {
            Old::Small(bytes) => bytes.len(),
            Old::Large(value) => value.value_bytes(),
        }
    }

    fn piece(&self, offset: usize) -> &[u8] {
        match self {
            Old::Small(bytes) => &bytes[offset..],
            Old::Large(value) => value.piece(offset),
        }
    }

    /// The bytes of the joined value from `at` on, or some of them.
    fn joined<'a>(&'a self, at: usize, new: &'a [u8], spot: Spot) -> &'a [u8] {
        let from = match spot {
            Spot::Behind => self.bytes(),
            Spot::Before => 0,
            Spot::At(from) => from,
        };
        match at {
            _ if at < from.min(self.bytes()) => {
                let piece = self.piece(at);
                &piece[..piece.len().min(from - at)]
            }
            _ if at < from => &ZEROS[..ZEROS.len().min(from - at)],
            _ if at - from < new.len() => &new[at - from..],
            _ if spot == Spot::Before => self.piece(at - new.len()),
            _ => self.piece(at),
        }
    }
}

/// The new item, half made.
struct Copying {
    /// The item that there is.
    item: Option<ItemMeta>,
    old: Old,
    draft: Draft,
    /// Bytes of the joined value that are in the draft.
    at: usize,
}

impl Copying {
    /// Copy on, at most `budget` bytes, and take them off it. Where it is to be done `at_once`, the
    /// draft takes the memory it needs by whatever it takes.
    fn copy(
        &mut self,
        new: &[u8],
        spot: Spot,
        budget: &mut usize,
        at_once: bool,
    ) -> Result<(), Refused> {
        while *budget > 0 && self.draft.missing() > 0 {
            let piece = self.old.joined(self.at, new, spot);
            let ready = match self.draft.prepare()? {
                Some(ready) => ready,
                None if at_once && !(self.at > 0 && is_planted(Bug::JoinCutShort)) => usize::MAX,
                None => return Ok(()),
            };
            let piece = &piece[..piece.len().min(*budget).min(ready)];
            self.draft.write(piece)?;
            self.at += piece.len();
            *budget -= piece.len();
        }
        Ok(())
    }
}

/// How a try began.
enum Begun {
    Copying(Box<Copying>),
    Over(Fate),
}

/// One `append` or `prepend`.
pub(super) struct Join<'a> {
    spot: Spot,
    cas: Option<u64>,
    vivify: Option<Moment>,
    bytes: Bytes<'a>,
    attempts: Attempts,
    copying: Option<Box<Copying>>,
}

impl<'a> Join<'a> {
    /// Of these bytes; `None` if that is not what is to be done.
    pub(super) fn of(how: &How, bytes: &'a [u8]) -> Option<Join<'a>> {
        let Place::Joined { spot, cas, vivify } = how.place else { return None };
        let (bytes, attempts) = (Bytes::Lent(bytes), Attempts::new());
        Some(Join { spot, cas, vivify, bytes, attempts, copying: None })
    }

    /// The same without its bytes, which [`Joining::new`] gives it again.
    pub(super) fn parted(self) -> Join<'static> {
        let Join { spot, cas, vivify, bytes: _, attempts, copying } = self;
        Join { spot, cas, vivify, bytes: Bytes::Lent(&[]), attempts, copying }
    }

    /// Go on, by copying about `budget` bytes. `None`: there is more to copy.
    pub(super) fn advance(
        &mut self,
        context: &Context<'_>,
        key: &[u8],
        hash: KeyHash,
        how: &How,
        mut budget: usize,
    ) -> Option<Fate> {
        let at_once = budget == usize::MAX;
        loop {
            let mut copying = match self.copying.take() {
                Some(copying) => copying,
                None if !self.attempts.again() => return Some(Fate::TooMany),
                None => match self.begin(context, key, hash, how) {
                    Begun::Copying(copying) => copying,
                    Begun::Over(fate) => return Some(fate),
                },
            };
            if copying.copy(&self.bytes, self.spot, &mut budget, at_once).is_err() {
                return Some(Fate::Unmet);
            }
            if copying.draft.missing() > 0 {
                self.copying = Some(copying);
                return None;
            }
            let Copying { item, draft, at: value_bytes, .. } = *copying;
            let mut entry = context.enter(hash, key);
            let found = entry.meta();
            let is_same = match &item {
                Some(item) => unchanged(item, found.as_ref()),
                None => found.is_none(),
            };
            if is_same {
                let seq = entry.publish(draft, how.cas_explicit);
                return Some(Fate::Done { seq, value_bytes });
            }
        }
    }

    /// Look at the item there is, and lay out the new one: flags and expiry stay. Where there is
    /// none, one is made of the new bytes alone, if that was asked for.
    fn begin(&self, context: &Context<'_>, key: &[u8], hash: KeyHash, how: &How) -> Begun {
        let mut small = Vec::new();
        let (item, old) =
            match context.store.get(hash, key, context.now, &mut small, &mut |_, _| {}) {
                Got::Miss if context.has_forgotten() => return Begun::Over(Fate::Forgotten),
                Got::Miss if self.vivify.is_none() => return Begun::Over(Fate::Unmet),
                Got::Miss => (None, Old::Small(small)),
                Got::Copied(item) => (Some(item), Old::Small(small)),
                Got::Large(item, value) => (Some(item), Old::Large(value)),
            };
        if let (Some(id), Some(item)) = (self.cas, &item)
            && id != context.cas(item)
        {
            return Begun::Over(Fate::Exists);
        }
        let length = self.spot.length(old.bytes(), self.bytes.len());
        let (flags, expires) = match &item {
            Some(item) => (item.flags, item.expires),
            None => (how.flags, self.vivify.unwrap_or(Moment::NEVER)),
        };
        // A joined value is as long as one that is set: the store's own bytes of an item are fewer.
        let item_bytes_max = context.store.item_bytes_max() as usize;
        if !(Limits { item_bytes_max, ..Limits::default() }).item_fits(key.len(), flags, length) {
            return Begun::Over(Fate::Unmet);
        }
        match context.store.draft(key, flags, expires, length) {
            Ok(draft) => Begun::Copying(Box::new(Copying { item, old, draft, at: 0 })),
            Err(_) => Begun::Over(Fate::Unmet),
        }
    }
}

/// An `append` or `prepend` under way, with all it needs of its own. Dropped, it was never there.
pub struct Joining {
    key: Box<[u8]>,
    hash: KeyHash,
    how: How,
    answer: AnswerOwned,
    join: Join<'static>,
}

impl Joining {
    pub(super) fn new(
        (key, hash): (&[u8], KeyHash),
        how: How,
        answer: AnswerOwned,
        join: Join<'static>,
        bytes: Bytes<'static>,
    ) -> Box<Joining> {
        let join = Join { bytes, ..join };
        Box::new(Joining { key: key.into(), hash, how, answer, join })
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The key's hash.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Go on, by copying about `budget` bytes. True: it is done, and answered.
    pub fn step(&mut self, context: &Context<'_>, budget: usize, out: &mut Vec<u8>) -> bool {
        let Joining { key, hash, how, answer, join } = self;
        let Some(fate) = join.advance(context, key, *hash, how, budget) else { return false };
        answer_fate(context, (key, how), &answer.borrow(), fate, join.bytes.len(), out);
        true
    }
}
