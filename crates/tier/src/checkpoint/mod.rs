//! Checkpoints: the index as it is, in key order, on the SSD (docs/disk-format.md, "Checkpoint").
//!
//! A checkpoint is taken while writes go on. It names the position up to which the log was durable
//! and indexed when it began; what it holds may be newer than that. Replaying the log from there
//! leads to the same end: of two records of one key the higher sequence counts, of two places of
//! one record the one that is replayed. No migration runs meanwhile, so that whatever is moved
//! later is found in the log behind the position.
pub(crate) mod head;
pub(crate) mod outline;
pub(crate) mod superblock;

use crate::checkpoint::outline::Outline;
use crate::checkpoint::superblock::Superblock;
use crate::index::{Entry, What};
use crate::media::bytes::{Put, Reader};
use crate::media::disk::{Barrier, Disk};
use crate::media::flushes::Medium;
use crate::reading::ahead::{Piece, Pieces, read_ahead};
use crate::ssd::large::{LargeWriter, is_there};
use crate::ssd::pointer::Pointer;
use crate::ssd::value::Large;
use crate::store::{Checkpoint, Maintenance, Owner, Shared};
use crate::types::{Error, KEY_BYTES_MAX, Result, doing};
use std::sync::Arc;

pub use crate::checkpoint::head::Head;

/// In place of a key's length: no more entries.
const END: u16 = u16::MAX;
/// A guess of what an entry takes, to ask for neighbouring blocks.
const ENTRY_BYTES_GUESS: u64 = 80;

enum Next<'a> {
    Entry(&'a [u8], Entry),
    End(u64),
}

fn decode_entry<'a>(
    reader: &mut Reader<'a>,
    blocks: u64,
    spare: &mut Option<Arc<Large>>,
) -> Option<Next<'a>> {
    let key_bytes = reader.u16()?;
    if key_bytes == END {
        return Some(Next::End(reader.u64()?));
    }
    let key = reader.take(usize::from(key_bytes))?;
    Some(Next::Entry(key, Entry::decode(reader, blocks, spare)?))
}

impl Shared {
    /// Makes a checkpoint if a start would have enough to read behind the last.
    pub fn checkpoint_if_due(&self) -> Result<bool> {
        let since = {
            let writer = self.writer();
            writer.behind_bytes() - writer.checkpointed_bytes
        };
        // Not so often that most of what is written is checkpoints.
        let newest_bytes = self.maintenance().checkpoints[0].body.bytes;
        let due = self.settings.checkpoint_bytes.max(newest_bytes / 2) <= since;
        let is_wanted = self.index.fair().is_some_and(|fair| fair.wants_checkpoint());
        match due || is_wanted || self.wants_forgetting() {
            true => self.checkpoint().map(|()| true),
            false => Ok(false),
        }
    }

    /// Whether the newest checkpoint has all that was appended.
    pub fn is_checkpointed(&self) -> Result<bool> {
        // While it is held no checkpoint is under way.
        let maintenance = self.maintenance();
        let writer = self.writer();
        writer.check()?;
        let is_there = maintenance.checkpoints[0].body.bytes != 0;
        Ok(is_there && writer.behind_bytes() == writer.checkpointed_bytes)
    }

    /// Makes a checkpoint, durable when this returns. Without room on the SSD for it the store goes
    /// on: a restart replays more.
    pub fn checkpoint(&self) -> Result<()> {
        let mut maintenance = self.maintenance();
        let (head, behind_bytes, outline) = self.checkpoint_head(&maintenance, |_| ())?;
        let write = || match &outline {
            Some(outline) => self.write_outline(&head, outline),
            None => self.write_checkpoint(&head),
        };
        let body = match write() {
            // What a start has to read comes before who copies. Where items are evicted, others go
            // for it.
            Err(Error::SsdFull { .. }) if !self.evicts() && self.give_up_cut_for_room() => write(),
            written => written,
        };
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                if let Error::SsdFull { blocks } = error {
                    maintenance.eviction.want(blocks as u32);
                }
                self.checkpoint_refused();
                return Err(error);
            }
        };
        // At an interval the index shows what is not durable yet, so the checkpoint may hold it: it
        // must not outlive its record.
        self.commit(Barrier::Group)?;
        let sync = || self.ssd.sync(Barrier::Checkpoint);
        let synced = self.counters.flushes.timed(Medium::Ssd, sync);
        doing("sync a checkpoint", synced).inspect_err(|error| {
            self.writer().failed = Some(error.to_string());
        })?;
        let [newest, before] = maintenance.checkpoints.clone();
        let checkpoints = [Checkpoint { position: head.position, body }, newest];
        let superblock = self.superblock(maintenance.generation + 1, checkpoints);
        superblock.write(&*self.ssd).inspect_err(|error| {
            if matches!(error, Error::SsdFull { .. }) {
                // It lies in too many extents to be named, and nothing was written.
                self.space.free(&superblock.checkpoints[0].body.extents);
                self.checkpoint_refused();
            } else {
                // Which of the two checkpoints counts now is unknown.
                self.writer().failed = Some(error.to_string());
            }
        })?;
        if let Some(fair) = self.index.fair() {
            fair.keep().inspect_err(|error| self.writer().failed = Some(error.to_string()))?;
        }
        maintenance.generation = superblock.generation;
        maintenance.checkpoints = superblock.checkpoints;
        maintenance.eviction.noted_bytes = 0;
        self.keep_own_room(&maintenance);
        self.space.free(&before.body.extents);
        let mut writer = self.writer();
        writer.log.set_superblock(superblock.generation);
        (writer.checkpointed_bytes, writer.refused) = (behind_bytes, None);
        drop(writer);
        self.counters.checkpoints.add(1);
        Ok(())
    }

    /// The superblock of this number, which names these.
    fn superblock(&self, number: u64, checkpoints: [Checkpoint; 2]) -> Superblock {
        Superblock {
            store_id: self.store_id,
            generation: number,
            segment_bytes: self.shape.segment_bytes,
            segments: self.shape.segments,
            tree_segments: self.tree_segments,
            blocks: self.space.blocks(),
            header_bytes: self.shape.header_bytes,
            has_compressed: self.has_compressed,
            checkpoints,
            is_alone: false,
            is_half_grown: false,
        }
    }

    /// Makes room for a checkpoint by giving up the older of two, or one that is damaged; false
    /// where there is none, or no other is whole. Superblocks name its blocks until the next
    /// checkpoint is durable: a start passes over one that is not whole, so nothing else may be
    /// written to them. For who has the store alone.
    pub fn give_up_checkpoint(&self) -> Result<bool> {
        let mut turn = self.maintenance();
        let [newest, before] = turn.checkpoints.clone();
        let is_whole = |checkpoint: &Checkpoint| match checkpoint.body.bytes {
            0 => Ok(false),
            _ => is_there(&*self.ssd, &checkpoint.body),
        };
        let (kept, gone) = match is_whole(&newest)? {
            true => (newest, before),
            false if is_whole(&before)? => (before, newest),
            false => return Ok(false),
        };
        self.space.free(&gone.body.extents);
        turn.checkpoints = [kept, Checkpoint::default()];
        Ok(gone.body.bytes != 0)
    }

    /// There was no room for one: another is tried once that may have changed.
    fn checkpoint_refused(&self) {
        self.counters.checkpoints_refused.add(1);
        let mut writer = self.writer();
        writer.refused = Some((writer.behind_bytes(), self.space.free_blocks()));
    }

    /// Everything appended is durable and indexed at the head's position.
    ///
    /// Writers wait while that is found. They do not while the sort tables are copied, of which
    /// there may be a million: whoever has the turn is alone in changing which there are, and where
    /// the records are that name them. `between` hears how many were copied in each step.
    fn checkpoint_head(
        &self,
        turn: &Maintenance,
        between: impl FnMut(usize),
    ) -> Result<(Head, u64, Option<Outline>)> {
        let writer = self.close_up(self.writer())?;
        let mut head = Head {
            position: writer.log.durable(),
            sequence: writer.sequence,
            flush_sequence: writer.log.flush_sequence(),
            last_table_id: self.accounts().tables.last_id,
            ..Head::default()
        };
        let outline = match self.index.fair() {
            Some(fair) => Some(self.outline(fair, head.position)?),
            None => None,
        };
        let behind_bytes = writer.behind_bytes();
        drop(writer);
        self.copy_tables(turn, &mut head, between);
        Ok((head, behind_bytes, outline))
    }

    /// Every write needs the accounts: they are held for some tables at a time.
    fn copy_tables(&self, _turn: &Maintenance, head: &mut Head, mut between: impl FnMut(usize)) {
        let mut next = Some(0);
        while let Some(from) = next.take() {
            let before = head.tables.len();
            head.tables.extend(self.accounts().tables.some_from(from));
            let copied = &head.tables[before..];
            next = copied.last().map(|table| table.start() + 1);
            between(copied.len());
            std::thread::yield_now();
        }
        let mut next = Some(0);
        while let Some(from) = next.take() {
            let before = head.dropped.len();
            head.dropped.extend(self.accounts().tables.some_dropped_from(from));
            let copied = &head.dropped[before..];
            next = copied.last().map(|(id, _)| id + 1);
            between(copied.len());
            std::thread::yield_now();
        }
    }

    fn write_checkpoint(&self, head: &Head) -> Result<Pointer> {
        let entries = self.index.count().entries();
        // A guess refuses nothing: the writer takes more room when it needs more.
        let writer = |guess| LargeWriter::new(self, entries * guess, Owner::Tier);
        let mut writer = match writer(ENTRY_BYTES_GUESS) {
            Err(Error::SsdFull { .. }) => writer(ENTRY_BYTES_GUESS / 4)?,
            writer => writer?,
        };
        let mut out = Vec::new();
        head.encode(&mut out);
        let (mut count, mut result) = (0, Ok(()));
        self.index.walk(|key, entry| {
            out.put_u16(key.len() as u16);
            out.extend_from_slice(key);
            entry.encode(&mut out);
            count += 1;
            if result.is_ok() && 1 << 16 <= out.len() {
                result = writer.write(&out);
                out.clear();
            }
        });
        result?;
        out.put_u16(END);
        out.put_u64(count);
        writer.write(&out)?;
        writer.finish()
    }
}

impl AsRef<Shared> for Shared {
    fn as_ref(&self) -> &Shared {
        self
    }
}

/// Whoever reads a checkpoint.
pub trait Visit {
    /// What stands before the entries.
    fn head(&mut self, head: &Head);
    /// One entry; they come in the order of their keys.
    fn entry(&mut self, key: &[u8], entry: &Entry);
}

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("checkpoint: {what}"))
}

/// The next piece, behind what is left of the last one from an offset on.
fn next_piece(pieces: &mut Pieces, last: Option<(Piece, usize)>, ends: &str) -> Result<Piece> {
    let left = last.as_ref().map_or(&[][..], |(piece, at)| &piece.bytes()[*at..]);
    let next = pieces.next(left)?;
    if let Some((piece, _)) = last {
        pieces.give_back(piece);
    }
    match next {
        Some(Some(piece)) => Ok(piece),
        Some(None) => Err(damaged("a piece's crc is wrong")),
        None => Err(damaged(ends)),
    }
}

/// Reads a checkpoint.
pub fn read(ssd: &dyn Disk, body: &Pointer, blocks: u64, visit: &mut impl Visit) -> Result<Head> {
    read_ahead(ssd, body, |pieces| {
        let mut piece = next_piece(pieces, None, "no head")?;
        let (head, mut at) = loop {
            let bytes = piece.bytes();
            let mut reader = Reader::new(bytes);
            match Head::decode(&mut reader) {
                Some(head) => break (head, bytes.len() - reader.len()),
                None => piece = next_piece(pieces, Some((piece, 0)), "no head")?,
            }
        };
        visit.head(&head);
        let (mut count, mut spare) = (0, None);
        loop {
            let bytes = piece.bytes();
            let mut reader = Reader::new(&bytes[at..]);
            match decode_entry(&mut reader, blocks, &mut spare) {
                Some(Next::Entry(key, entry)) => {
                    if key.is_empty() || KEY_BYTES_MAX < key.len() {
                        return Err(damaged("a key of a wrong length"));
                    }
                    visit.entry(key, &entry);
                    if let What::Large(large) = entry.what {
                        spare = Some(large);
                    }
                    count += 1;
                    at = bytes.len() - reader.len();
                }
                Some(Next::End(expected)) if expected == count => return Ok(head),
                Some(Next::End(_)) => return Err(damaged("entries are missing")),
                None => {
                    piece = next_piece(pieces, Some((piece, at)), "no end")?;
                    at = 0;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Home;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;
    use crate::recovery::recover::{Media, Purpose, recover};
    use crate::ssd::pointer::Extent;
    use crate::ssd::tables::{Dropped, SHOWN_AT_ONCE, Table};
    use crate::tier::Tier;
    use crate::types::{ItemMeta, Settings};
    use std::collections::BTreeMap;

    #[test]
    fn who_writes_waits_for_a_bounded_number_of_tables_that_a_checkpoint_copies() {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(512 << 10, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let settings =
            Settings { segment_bytes: 16 << 10, background: false, ..Settings::default() };
        let (tier, _) = Tier::open(Media { region, ssd }, settings, 1, &mut |_, _| {}).unwrap();
        let shared = tier.shared();
        let count = 3 * SHOWN_AT_ONCE as u64 + 5;
        for id in 1..=count {
            // In the order of their places, which is not that of their numbers.
            let extent = Extent { start: (count + 1 - id) as u32, blocks: 1 };
            let (bytes, sequence, home, live) = (4000, id, Home::log(id * 64), 0);
            let is_damaged = false;
            shared.add_table(Table { id, extent, bytes, sequence, home, live, is_damaged });
            let gone = Dropped { sequence: id, home };
            shared.accounts().tables.dropped.insert(count + id, gone);
        }
        let turn = shared.maintenance();
        let mut steps = Vec::new();
        let (head, ..) = shared
            .checkpoint_head(&turn, |copied| {
                // Nobody would come to an end here who needs what is held.
                let number = steps.len() as u64;
                tier.put(&number.to_be_bytes(), b"value", ItemMeta::default()).unwrap();
                steps.push(copied);
            })
            .unwrap();
        assert_eq!(steps.iter().sum::<usize>() as u64, 2 * count);
        assert!(steps.iter().all(|copied| *copied <= SHOWN_AT_ONCE), "{steps:?}");
        assert_eq!((head.tables.len(), head.dropped.len()), (count as usize, count as usize));
        assert!(head.position < shared.writer().log.durable(), "there were writes meanwhile");
        let accounts = shared.accounts();
        assert!(head.tables.iter().eq(accounts.tables.iter()));
        let dropped: BTreeMap<u64, Dropped> = head.dropped.into_iter().collect();
        assert_eq!(dropped, accounts.tables.dropped);
    }

    #[test]
    fn a_checkpoint_in_more_extents_than_can_be_named_is_refused_and_the_store_goes_on() {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(512 << 10, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let settings = Settings { segment_bytes: 16 << 10, ..Settings::default() };
        let purpose = Purpose::Use { new_id: 1 };
        let (shared, _) =
            recover(Media { region, ssd }, settings, purpose, &mut |_, _| {}).unwrap();
        // As if the newest lay so.
        let extents = vec![Extent { start: 40, blocks: 1 }; 10_000].into();
        let many = Pointer { extents, ..Pointer::default() };
        let newest = std::mem::replace(&mut shared.maintenance().checkpoints[0].body, many);
        let free = shared.space.free_blocks();
        assert!(matches!(shared.checkpoint(), Err(Error::SsdFull { .. })));
        assert!(shared.writer().check().is_ok(), "nothing of it was written");
        assert_eq!(shared.space.free_blocks(), free);
        shared.maintenance().checkpoints[0].body = newest;
        shared.checkpoint().unwrap();
    }
}
