//! Appends records of the log again, as they were, so that their segment can be freed.

use crate::background::moving::Moving;
use crate::index::Home;
use crate::log::append::Draft;
use crate::log::record::Kind;
use crate::ssd::tables::{DROPPED_RECORD_BYTES, NAMED_RECORD_BYTES, id_of};
use crate::store::{Shared, Writer};
use crate::types::{Error, ItemMeta, LINE_BYTES, Result};
use std::sync::MutexGuard;

impl Shared {
    /// Appends these records as they were, and the one that frees their segment.
    ///
    /// In the last segment nobody comes between. What deletes everything, or the padding of a group
    /// that somebody else leads, could take the room of the last of them, and then no segment would
    /// be free any more. Who waits for the writer meanwhile could append nothing else there.
    pub fn append_all_again(&self, again: &[&[Moving]], generation: u64) -> Result<()> {
        let mut writer = self.writer();
        let all = || again.iter().copied().flatten();
        if !self.leaves_room_in(&writer, all().map(Moving::bytes)) {
            return Err(Error::PmFull);
        }
        for moving in all() {
            writer = self.append_again(writer, moving)?;
            if 0 < writer.log.free_slots() {
                drop(writer);
                writer = self.writer();
            }
        }
        let (kind, meta, body) = (Kind::SegmentFree, ItemMeta::default(), generation.to_le_bytes());
        let draft = Draft { kind, sequence: None, meta, key: &[], body: &body, what: None };
        self.append_on(writer, &draft).map(drop)
    }

    /// Appends a record as it was and points whoever knows its place at the new one.
    fn append_again<'a>(
        &'a self,
        writer: MutexGuard<'a, Writer>,
        moving: &Moving,
    ) -> Result<MutexGuard<'a, Writer>> {
        let draft = Draft {
            kind: moving.kind,
            sequence: Some(moving.sequence),
            meta: moving.meta,
            key: &moving.key,
            body: &moving.body,
            what: None,
        };
        if moving.kind.is_of_item() {
            return self.append_item_again(writer, moving, &draft);
        }
        // Room for the others may have been made by dropping this very table.
        let id = id_of(&moving.key).unwrap_or(0);
        let is_table = moving.kind == Kind::Table;
        if is_table && self.accounts().tables.named_at(id, moving.home).is_none() {
            return Ok(writer);
        }
        let (writer, (_, appended)) = self.append_on(writer, &draft)?;
        let to = Home::log(appended.at);
        self.counters.kept_records.add(1);
        if is_table {
            if let Some(table) = self.accounts().tables.named_at(id, moving.home) {
                table.home = to;
            }
            self.credit(to, NAMED_RECORD_BYTES);
        } else {
            if let Some(dropped) = self.accounts().tables.dropped.get_mut(&id) {
                dropped.home = to;
            }
            self.credit(to, DROPPED_RECORD_BYTES);
        }
        Ok(writer)
    }

    /// Appends an item's record again, unless the key was written anew meanwhile.
    ///
    /// It looks, appends and points the index at the new place under the lock that groups are
    /// settled by. So a newer write is in the index before, and then there is nothing to append; or
    /// it finds the new place there, and the old value's blocks wait for whatever vouches for it.
    /// Else a record could lie behind the one that replaced it whose blocks are used again: to
    /// recovery that is the end of the log.
    fn append_item_again<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        moving: &Moving,
        draft: &Draft<'_>,
    ) -> Result<MutexGuard<'a, Writer>> {
        loop {
            let entry = self.index.get(&moving.key);
            if entry.is_none_or(|e| e.sequence != moving.sequence || e.home != moving.home) {
                return Ok(writer);
            }
            if let Some((_, appended)) = self.append_here(&mut writer, draft, 0)? {
                self.counters.kept_records.add(1);
                self.moved(moving.bytes().next_multiple_of(LINE_BYTES) as u64);
                let to = Home::log(appended.at);
                match self.index.fair() {
                    Some(fair) => {
                        self.follow_later(fair, &mut writer, moving.moved(to), &appended);
                    }
                    None => self.relocate(moving, to),
                }
                return Ok(writer);
            }
            let rolled;
            (writer, rolled) = self.roll(writer, 0)?;
            if !rolled {
                return Err(Error::PmFull);
            }
        }
    }

    /// A record was copied, and its copy is current.
    pub fn relocate(&self, moving: &Moving, to: Home) {
        let bytes = moving.bytes() as u32;
        self.credit(to, bytes);
        let moved = self.index.relocate(&moving.key, moving.sequence, moving.home, to);
        if moved && moving.kind == Kind::Small {
            self.index.small_moved(moving.home, to);
        }
        self.debit(if moved { moving.home } else { to }, bytes);
    }
}
