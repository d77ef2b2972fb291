//! Appending: a record goes to the log, and what it does to the index is kept until its group is
//! settled ([`crate::log::group`]), or done at once where the settings say so.

use crate::index::{Entry, Home, What};
use crate::log::record::{Kind, Record, bytes_of};
use crate::log::{Appended, Refused};
use crate::media::disk::Barrier;
use crate::ssd::value::WAITING_VALUE_BYTES_MAX;
use crate::store::{Offer, Pending, RESERVE_DELETE, RESERVE_PUT, Shared, Writer};
use crate::types::{Durability, Error, ItemMeta, KEY_BYTES_MAX, Position, Result, VALUE_BYTES_MAX};
use laneway_sync::planted::{Bug, is_planted};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

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

/// How often a writer makes room for one record before it gives up.
const ROOM_TRIES: usize = 4;

impl Shared {
    /// Appends a write, and makes room for it if need be; before it, what is owed, which takes no
    /// segment that the write may not take.
    pub fn append_with_room(&self, draft: &Draft<'_>, reserve: u32) -> Result<Ticket> {
        let owed = self.owed.load(Relaxed);
        if owed != 0 {
            self.append_making_room(&passes_over(owed), reserve)?;
            self.commit(Barrier::Group)?;
            self.owed.store(0, Relaxed);
        }
        self.append_making_room(draft, reserve)
    }

    fn append_making_room(&self, draft: &Draft<'_>, reserve: u32) -> Result<Ticket> {
        for _ in 0..ROOM_TRIES {
            if let Some((ticket, _)) = self.append(draft, reserve)? {
                return Ok(ticket);
            }
            self.counters.stalls.add(1);
            if let Err(error) = self.seek_room(reserve) {
                // What was tried may have begun a segment that has room for this.
                let appended = self.append(draft, reserve)?;
                return appended.map(|(ticket, _)| ticket).ok_or(error);
            }
        }
        Err(Error::PmFull)
    }

    /// Has the log say that no write is given this sequence, or a lower one, before it has another
    /// write. Now, where there is room for any write; else the first that finds some does so, and
    /// none that may not wait is appended before.
    pub fn pass_over_first(&self, sequence: u64) -> Result<()> {
        self.owed.store(sequence, Relaxed);
        if self.append(&passes_over(sequence), RESERVE_PUT)?.is_some() {
            self.commit(Barrier::Group)?;
            self.owed.store(0, Relaxed);
        }
        Ok(())
    }

    /// Whether there may be something to delete: what is appended and not yet in the index may
    /// hold the key.
    pub fn may_hold(&self, key: &[u8]) -> Result<bool> {
        let writer = self.writer();
        match !writer.is_settled() || self.look(key).is_some() {
            true => Ok(true),
            false => writer.check().map(|()| false),
        }
    }

    /// Appends a record, unless it needs a new segment and fewer than `reserve` would be left; a
    /// put's not where fewer are left ([`Shared::append_here`]).
    pub fn append(&self, draft: &Draft<'_>, reserve: u32) -> Result<Option<(Ticket, Appended)>> {
        if !self.promise(draft) {
            // What is on its way is promised the most that it may take.
            self.commit(Barrier::Group)?;
            if !self.promise(draft) {
                return Err(Error::PmFull);
            }
        }
        let appended = self.append_anywhere(draft, reserve);
        if !matches!(appended, Ok(Some(_))) {
            self.withdraw(draft);
        }
        appended
    }

    fn append_anywhere(
        &self,
        draft: &Draft<'_>,
        reserve: u32,
    ) -> Result<Option<(Ticket, Appended)>> {
        let mut writer = self.writer();
        loop {
            if let Some(appended) = self.append_here(&mut writer, draft, reserve)? {
                return Ok(Some(appended));
            }
            let rolled;
            (writer, rolled) = self.roll(writer, reserve)?;
            if !rolled {
                return Ok(None);
            }
        }
    }

    /// Appends a record for who holds the writer, in the next segment if need be, whatever that
    /// leaves free. It is let go only for the next segment.
    pub fn append_on<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        draft: &Draft<'_>,
    ) -> Result<(MutexGuard<'a, Writer>, (Ticket, Appended))> {
        loop {
            if let Some(appended) = self.append_here(&mut writer, draft, 0)? {
                return Ok((writer, appended));
            }
            let rolled;
            (writer, rolled) = self.roll(writer, 0)?;
            if !rolled {
                return Err(Error::PmFull);
            }
        }
    }

    /// Appends a record without waiting for a medium; `None` where that cannot be.
    pub fn try_append(&self, draft: &Draft<'_>, reserve: u32) -> Result<Option<Ticket>> {
        if is_planted(Bug::RoomMadeInline) {
            return self.append_with_room(draft, reserve).map(Some);
        }
        if self.owed.load(Relaxed) != 0 || !self.promise(draft) {
            return Ok(None);
        }
        let appended = self.append_here(&mut self.writer(), draft, reserve);
        if !matches!(appended, Ok(Some(_))) {
            self.withdraw(draft);
        }
        Ok(appended?.map(|(ticket, _)| ticket))
    }

    /// Appends a record to the active segment; `None` if it has no room for it, or is closed. Nor
    /// do puts fill one of the segments that they may not begin: a deletion makes room, and would
    /// find none. Nor do deletions fill the last one: migration has begun it, and must find room
    /// there for the record that frees another. Whatever else is appended there leaves that room.
    pub fn append_here(
        &self,
        writer: &mut Writer,
        draft: &Draft<'_>,
        reserve: u32,
    ) -> Result<Option<(Ticket, Appended)>> {
        writer.check()?;
        let least = match reserve {
            ..RESERVE_DELETE => 0,
            RESERVE_DELETE => 1,
            _ => reserve,
        };
        if writer.is_closed || writer.log.free_slots() < least {
            return Ok(None);
        }
        if writer.log.free_slots() == 0 && draft.kind != Kind::SegmentFree {
            // Nobody comes between what migration copies. Behind anything else somebody may lead a
            // group, and pad it.
            let has_sequence = draft.sequence.is_some() && draft.kind != Kind::Note;
            let is_copy = has_sequence && draft.what.is_none();
            let bytes = bytes_of(draft.key.len(), draft.body.len());
            let bytes = if is_copy { bytes } else { self.padded(bytes) };
            if !self.leaves_room_in(writer, [bytes]) {
                return Ok(None);
            }
        }
        let sequence = draft.sequence.unwrap_or(writer.sequence + 1);
        let Draft { kind, meta, key, body, .. } = *draft;
        match writer.log.append(&Record { kind, sequence, meta, key, body }) {
            Ok(appended) => {
                if std::mem::take(&mut writer.rings) {
                    self.counters.bell.ring();
                }
                if kind != Kind::Delete || !is_planted(Bug::NewerEvicted) {
                    writer.sequence = writer.sequence.max(sequence);
                }
                self.appended(writer, draft, sequence, appended);
                Ok(Some((Ticket { end: appended.end, sequence }, appended)))
            }
            Err(Refused::Roll) => Ok(None),
            Err(Refused::Error(error @ Error::ValueBytes(_))) => Err(error),
            Err(Refused::Error(error)) => {
                writer.failed = Some(error.to_string());
                Err(error)
            }
        }
    }

    fn appended(&self, writer: &mut Writer, draft: &Draft<'_>, sequence: u64, at: Appended) {
        if draft.kind == Kind::FlushAll {
            writer.log.set_flush_sequence(sequence);
        }
        let value = match &draft.what {
            Some(What::Large(large)) if large.is_waiting() => Some(large.clone()),
            _ => None,
        };
        // A record that migration appends again has its value where it was.
        let is_new = matches!(draft.what, Some(What::Large(_)));
        writer.data_written |= is_new && value.is_none();
        writer.long_written |= matches!(&draft.what, Some(What::Large(large))
            if (WAITING_VALUE_BYTES_MAX as u64) < large.bytes);
        if self.split.adapts() {
            match &draft.what {
                Some(What::Small { value_bytes }) => writer.mix.count(*value_bytes as usize),
                Some(What::Large(large)) => writer.mix.count(large.value_bytes() as usize),
                _ => {}
            }
        }
        // Then it is visible at once; what it replaces keeps its blocks until this is durable.
        let is_at_once = self.settings.durability == Durability::Interval;
        let mut frees = Vec::new();
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
                if is_at_once {
                    self.offer_entry(&writer.log, (draft.key, entry), at.end, &mut frees);
                    None
                } else {
                    Some(Offer::Entry(draft.key.into(), entry))
                }
            }
            (None, _) => None,
        };
        let mut pending = Pending { records: 1, offer, end: at.end, value, frees };
        if is_at_once {
            self.offer(&writer.log, &mut pending);
        }
        writer.await_group(pending);
    }

    /// Ends the active segment, and whatever group is in it, and begins the next; or waits until
    /// whoever has closed it is done. False: there is no room for the next.
    pub fn roll<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        reserve: u32,
    ) -> Result<(MutexGuard<'a, Writer>, bool)> {
        if writer.is_closed {
            return Ok((self.wait_settled(writer), true)); // to be looked at again
        }
        if writer.log.free_slots() <= reserve {
            return Ok((writer, false));
        }
        writer = self.close_up(writer)?;
        match writer.log.roll(reserve) {
            Ok(rolled) => {
                self.counters.tally.free_segments.set(writer.log.free_slots().into());
                Ok((writer, rolled))
            }
            Err(error) => {
                writer.failed = Some(error.to_string());
                Err(error)
            }
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
}

/// A record of a small item.
pub fn small<'a>(
    key: &'a [u8],
    value: &'a [u8],
    meta: ItemMeta,
    sequence: Option<u64>,
) -> Draft<'a> {
    let what = Some(What::Small { value_bytes: value.len() as u32 });
    Draft { kind: Kind::Small, sequence, meta, key, body: value, what }
}

/// A record that deletes a key.
pub fn deletion(key: &[u8], sequence: Option<u64>) -> Draft<'_> {
    let (meta, what) = (ItemMeta::default(), Some(What::Tombstone));
    Draft { kind: Kind::Delete, sequence, meta, key, body: &[], what }
}

/// A note behind which no write is given this sequence, or a lower one.
pub fn passes_over(sequence: u64) -> Draft<'static> {
    let (kind, meta) = (Kind::Note, ItemMeta::default());
    Draft { kind, sequence: Some(sequence), meta, key: &[], body: &[], what: None }
}

/// Refuses what no record may hold.
pub fn check(key: &[u8], value_bytes: u64) -> Result<()> {
    if key.is_empty() || KEY_BYTES_MAX < key.len() {
        return Err(Error::KeyBytes(key.len()));
    }
    match value_bytes <= VALUE_BYTES_MAX as u64 {
        true => Ok(()),
        false => Err(Error::ValueBytes(value_bytes as usize)),
    }
}
