//! Appending, and group commit.
//!
//! Whoever waits for durability and finds nobody flushing flushes for all: large values first, then
//! the log, then the group is offered to the index and its writers wake. Meanwhile the next group
//! collects. There is no thread of the log's own.

use crate::disk::Barrier;
use crate::index::{Entry, Home, Published, Tie, What};
use crate::log::{Appended, Log, Refused};
use crate::record::{Kind, Record};
use crate::store::{Offer, Pending, Shared, Writer};
use crate::types::{Durability, Error, ItemMeta, Position, Result, doing};
use std::sync::MutexGuard;

/// A write that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The write is durable when the log is up to here.
    pub end: Position,
    /// The write's sequence.
    pub sequence: u64,
}

/// What is to be appended.
pub struct Draft<'a> {
    /// What it says.
    pub kind: Kind,
    /// The caller's sequence, or the next.
    pub sequence: Option<u64>,
    /// Kept with the item.
    pub meta: ItemMeta,
    /// The key.
    pub key: &'a [u8],
    /// What the kind needs.
    pub body: &'a [u8],
    /// What the index shall know, for kinds that concern it.
    pub what: Option<What>,
}

impl Shared {
    /// Appends a record, unless it needs a new segment and fewer than `reserve` would be left.
    pub fn append(&self, draft: &Draft<'_>, reserve: u32) -> Result<Option<(Ticket, Appended)>> {
        let mut writer = self.writer();
        loop {
            writer.check()?;
            let sequence = draft.sequence.unwrap_or(writer.sequence + 1);
            let record = Record {
                kind: draft.kind,
                sequence,
                meta: draft.meta,
                key: draft.key,
                body: draft.body,
            };
            match writer.log.append(&record) {
                Ok(appended) => {
                    writer.sequence = writer.sequence.max(sequence);
                    self.appended(&mut writer, draft, sequence, appended);
                    return Ok(Some((Ticket { end: appended.end, sequence }, appended)));
                }
                Err(Refused::Roll) => {
                    let rolled;
                    (writer, rolled) = self.roll(writer, reserve)?;
                    if !rolled {
                        return Ok(None);
                    }
                }
                Err(Refused::Error(error @ Error::ValueBytes(_))) => return Err(error),
                Err(Refused::Error(error)) => {
                    writer.failed = Some(error.to_string());
                    return Err(error);
                }
            }
        }
    }

    fn appended(&self, writer: &mut Writer, draft: &Draft<'_>, sequence: u64, at: Appended) {
        if draft.kind == Kind::FlushAll {
            writer.log.set_flush_sequence(sequence);
        }
        writer.data_written |= draft.kind == Kind::Large;
        let offer = match (&draft.what, draft.kind) {
            (_, Kind::FlushAll) => Some(Offer::FlushAll(sequence)),
            (Some(what), _) => {
                let home = Home::log(at.at);
                let entry = Entry {
                    sequence,
                    home,
                    record_bytes: at.record_bytes,
                    expires_at_seconds: draft.meta.expires_at_seconds,
                    what: what.clone(),
                };
                Some(Offer::Entry(draft.key.into(), entry))
            }
            (None, _) => None,
        };
        let mut pending = Pending { offer, end: at.end, frees: Vec::new() };
        if self.settings.durability == Durability::Interval {
            // Visible at once; what it replaces keeps its blocks until this is durable.
            self.offer(&mut pending);
        }
        writer.pending.push(pending);
    }

    /// Ends the active segment, and whatever group is in it, and begins the next.
    fn roll<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        reserve: u32,
    ) -> Result<(MutexGuard<'a, Writer>, bool)> {
        let generation = writer.log.tail().generation;
        while writer.flushing {
            writer = self.wait_settled(writer);
        }
        if writer.log.tail().generation != generation {
            return Ok((writer, true)); // somebody else did
        }
        if writer.log.free_slots() <= reserve {
            return Ok((writer, false));
        }
        self.flush_held(&mut writer, Barrier::Group)?;
        match writer.log.roll(reserve) {
            Ok(rolled) => Ok((writer, rolled)),
            Err(error) => {
                writer.failed = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Makes everything appended durable while the writer is held and nobody flushes.
    pub fn flush_held(&self, writer: &mut Writer, why: Barrier) -> Result<()> {
        writer.check()?;
        let data = std::mem::take(&mut writer.data_written);
        let group = writer.log.group();
        let result = self.flush_media(data, group, why);
        let count = writer.pending.len();
        self.settle(writer, group, count, result)
    }

    /// Waits until the log is durable up to `end`, flushing if nobody else does.
    pub fn commit_to(&self, end: Position, why: Barrier) -> Result<()> {
        let mut writer = self.writer();
        loop {
            if end <= writer.log.durable() {
                return Ok(());
            }
            writer.check()?;
            if writer.flushing {
                writer = self.wait_settled(writer);
                continue;
            }
            writer.flushing = true;
            let data = std::mem::take(&mut writer.data_written);
            let group = writer.log.group();
            let count = writer.pending.len();
            drop(writer);
            let result = self.flush_media(data, group, why);
            writer = self.writer();
            writer.flushing = false;
            let settled = self.settle(&mut writer, group, count, result);
            self.settled.notify_all();
            settled?;
        }
    }

    /// Makes durable everything that was appended before the call.
    pub fn commit(&self, why: Barrier) -> Result<()> {
        let end = self.writer().log.tail();
        // Nothing was ever appended: the position lies in a segment that has not begun.
        match end.offset {
            0 => Ok(()),
            _ => self.commit_to(end, why),
        }
    }

    /// Whether a write is durable, without waiting.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        let writer = self.writer();
        match ticket.end <= writer.log.durable() {
            true => Ok(true),
            false => writer.check().map(|()| false),
        }
    }

    fn flush_media(
        &self,
        data: bool,
        group: Option<crate::log::Group>,
        why: Barrier,
    ) -> Result<()> {
        if data {
            doing("sync the SSD", self.ssd.sync(Barrier::Data))?;
        }
        match group {
            Some(group) => Log::flush(&*self.region, &self.shape, group, why),
            None => Ok(()),
        }
    }

    fn settle(
        &self,
        writer: &mut Writer,
        group: Option<crate::log::Group>,
        count: usize,
        result: Result<()>,
    ) -> Result<()> {
        if let Err(error) = result {
            // What is durable is unknown now. What of the group is not visible never will be.
            writer.failed = Some(error.to_string());
            return Err(error);
        }
        let Writer { pending, waiting, .. } = writer;
        for mut pending in pending.drain(..count) {
            self.offer(&mut pending);
            waiting.extend(pending.frees.into_iter().map(|pointer| (pending.end, pointer)));
        }
        if let Some(group) = group {
            let vouched = writer.log.settle(group);
            self.counters.groups.add(1);
            self.counters.grouped_records.add(count as u64);
            while let Some((_, pointer)) = writer.waiting.pop_front_if(|(end, _)| *end <= vouched) {
                self.space.free(&pointer.extents);
            }
        }
        Ok(())
    }

    /// Offers a record to the index; what it replaces goes to the record's `frees`.
    fn offer(&self, pending: &mut Pending) {
        match pending.offer.take() {
            None => {}
            Some(Offer::FlushAll(sequence)) => {
                let gone = self.index.flush(sequence).into_iter();
                pending.frees.extend(gone.filter_map(|entry| self.retire(entry)));
            }
            Some(Offer::Entry(key, entry)) => {
                let (home, bytes) = (entry.home, entry.record_bytes);
                let stale = match &entry.what {
                    What::Large(pointer) => Some(pointer.clone()),
                    _ => None,
                };
                // Credited first: whoever sees the entry may replace it at once.
                self.credit(home, bytes);
                match self.index.publish(&key, entry, Tie::Keep) {
                    Published::Current(before) => {
                        pending.frees.extend(before.and_then(|entry| self.retire(entry)));
                    }
                    Published::Stale => {
                        self.debit(home, bytes);
                        pending.frees.extend(stale);
                    }
                }
            }
        }
    }
}
