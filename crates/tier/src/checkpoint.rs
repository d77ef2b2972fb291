//! Checkpoints: the index as it is, in key order, on the SSD (docs/disk-format.md, "Checkpoint").
//!
//! A checkpoint is taken while writes go on. It names the position up to which the log was durable
//! and indexed when it began; what it holds may be newer than that. Replaying the log from there
//! leads to the same end: of two records of one key the higher sequence counts, of two places of
//! one record the one that is replayed. No migration runs meanwhile, so that whatever is moved
//! later is found in the log behind the position.

use crate::ahead::{Piece, Pieces, read_ahead};
use crate::bytes::{Put, Reader};
use crate::disk::{Barrier, Disk};
use crate::index::{Entry, Home, What};
use crate::large::LargeWriter;
use crate::pointer::{Extent, Pointer};
use crate::store::{Checkpoint, Shared};
use crate::superblock::Superblock;
use crate::tables::{Dropped, Table};
use crate::types::{Error, KEY_BYTES_MAX, Position, Result, VALUE_BYTES_MAX, doing};
use std::sync::Arc;

const MAGIC: u64 = 0x3154_4e50_4b48_434c; // "LCHKPNT1"
/// In place of a key's length: no more entries.
const END: u16 = u16::MAX;
/// A guess of what an entry takes, to ask for neighbouring blocks.
const ENTRY_BYTES_GUESS: u64 = 80;

/// What stands before the entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Replay begins here.
    pub position: Position,
    /// The highest sequence.
    pub sequence: u64,
    /// Everything with a lower sequence was flushed.
    pub flush_sequence: u64,
    /// The highest number of a sort table.
    pub last_table_id: u64,
    /// The sort tables.
    pub tables: Vec<Table>,
    /// Those that are gone.
    pub dropped: Vec<(u64, Dropped)>,
}

impl Head {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(MAGIC);
        out.put_u64(self.position.generation);
        out.put_u32(self.position.offset);
        out.put_u64(self.sequence);
        out.put_u64(self.flush_sequence);
        out.put_u64(self.last_table_id);
        out.put_u32(self.tables.len() as u32);
        out.put_u32(self.dropped.len() as u32);
        for table in &self.tables {
            out.put_u64(table.id);
            out.put_u32(table.extent.start);
            out.put_u32(table.extent.blocks);
            out.put_u32(table.bytes);
            out.put_u64(table.sequence);
            out.put_u64(table.home.raw());
        }
        for (id, dropped) in &self.dropped {
            out.put_u64(*id);
            out.put_u64(dropped.sequence);
            out.put_u64(dropped.home.raw());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Head> {
        if reader.u64()? != MAGIC {
            return None;
        }
        let position = Position { generation: reader.u64()?, offset: reader.u32()? };
        let mut head = Head {
            position,
            sequence: reader.u64()?,
            flush_sequence: reader.u64()?,
            last_table_id: reader.u64()?,
            ..Head::default()
        };
        let (tables, dropped) = (reader.u32()?, reader.u32()?);
        for _ in 0..tables {
            let id = reader.u64()?;
            let extent = Extent { start: reader.u32()?, blocks: reader.u32()? };
            let (bytes, sequence) = (reader.u32()?, reader.u64()?);
            let home = Home::from_raw(reader.u64()?);
            head.tables.push(Table { id, extent, bytes, sequence, home, live: 0 });
        }
        for _ in 0..dropped {
            let id = reader.u64()?;
            let sequence = reader.u64()?;
            head.dropped.push((id, Dropped { sequence, home: Home::from_raw(reader.u64()?) }));
        }
        Some(head)
    }
}

fn encode_entry(out: &mut Vec<u8>, key: &[u8], entry: &Entry) {
    out.put_u16(key.len() as u16);
    out.extend_from_slice(key);
    out.put_u64(entry.sequence);
    out.put_u64(entry.home.raw());
    out.put_u32(entry.record_bytes);
    out.put_u32(entry.expires_at_seconds);
    match &entry.what {
        What::Small { value_bytes } => {
            out.put_u8(1);
            out.put_u32(*value_bytes);
        }
        What::Large(pointer) => {
            out.put_u8(2);
            pointer.encode(out);
        }
        What::Tombstone => out.put_u8(3),
        What::Lost => out.put_u8(4),
    }
}

enum Next<'a> {
    Entry(&'a [u8], Entry),
    End(u64),
}

fn decode_entry<'a>(reader: &mut Reader<'a>, blocks: u64) -> Option<Next<'a>> {
    let key_bytes = reader.u16()?;
    if key_bytes == END {
        return Some(Next::End(reader.u64()?));
    }
    let key = reader.take(usize::from(key_bytes))?;
    let (sequence, home) = (reader.u64()?, Home::from_raw(reader.u64()?));
    let (record_bytes, expires_at_seconds) = (reader.u32()?, reader.u32()?);
    let what = match reader.u8()? {
        1 => What::Small { value_bytes: reader.u32()? },
        2 => {
            let pointer = Pointer::decode(reader, blocks, VALUE_BYTES_MAX as u64)?;
            What::Large(Arc::new(pointer.into()))
        }
        3 => What::Tombstone,
        _ => What::Lost,
    };
    Some(Next::Entry(key, Entry { sequence, home, record_bytes, expires_at_seconds, what }))
}

impl Shared {
    /// Makes a checkpoint if enough was appended since the last.
    pub fn checkpoint_if_due(&self) -> Result<bool> {
        let due = {
            let writer = self.writer();
            let since = writer.log.appended_bytes() - writer.checkpointed_bytes;
            self.settings.checkpoint_bytes <= since
        };
        match due {
            true => self.checkpoint().map(|()| true),
            false => Ok(false),
        }
    }

    /// Makes a checkpoint, durable when this returns. Without room on the SSD for it the store goes
    /// on: a restart replays more.
    pub fn checkpoint(&self) -> Result<()> {
        let mut maintenance = self.maintenance();
        let (head, appended_bytes) = self.checkpoint_head()?;
        let body = match self.write_checkpoint(&head) {
            Ok(body) => body,
            Err(error) => {
                self.counters.checkpoints_refused.add(1);
                return Err(error);
            }
        };
        // At an interval the index shows what is not durable yet, so the checkpoint may hold it: it
        // must not outlive its record.
        self.commit(Barrier::Group)?;
        doing("sync a checkpoint", self.ssd.sync(Barrier::Checkpoint)).inspect_err(|error| {
            self.writer().failed = Some(error.to_string());
        })?;
        let [newest, before] = maintenance.checkpoints.clone();
        let checkpoints = [Checkpoint { position: head.position, body }, newest];
        let superblock = Superblock {
            store_id: self.store_id,
            generation: maintenance.generation + 1,
            segment_bytes: self.shape.segment_bytes,
            segments: self.shape.segments,
            blocks: self.space.blocks(),
            checkpoints,
        };
        superblock.write(&*self.ssd).inspect_err(|error| {
            // Which of the two checkpoints counts now is unknown.
            self.writer().failed = Some(error.to_string());
        })?;
        maintenance.generation = superblock.generation;
        maintenance.checkpoints = superblock.checkpoints;
        self.space.free(&before.body.extents);
        self.writer().checkpointed_bytes = appended_bytes;
        self.counters.checkpoints.add(1);
        Ok(())
    }

    /// Everything appended is durable and indexed at the head's position.
    fn checkpoint_head(&self) -> Result<(Head, u64)> {
        let mut writer = self.writer();
        while writer.flushing {
            writer = self.wait_settled(writer);
        }
        self.flush_held(&mut writer, Barrier::Group)?;
        let accounts = self.accounts();
        let tables = &accounts.tables;
        let head = Head {
            position: writer.log.durable(),
            sequence: writer.sequence,
            flush_sequence: writer.log.flush_sequence(),
            last_table_id: tables.last_id,
            tables: tables.iter().copied().collect(),
            dropped: tables.dropped.iter().map(|(id, dropped)| (*id, *dropped)).collect(),
        };
        Ok((head, writer.log.appended_bytes()))
    }

    fn write_checkpoint(&self, head: &Head) -> Result<Pointer> {
        let mut entries = 0;
        self.index.walk(|_, _| entries += 1);
        let mut writer = LargeWriter::new(self, entries * ENTRY_BYTES_GUESS)?;
        let mut out = Vec::new();
        head.encode(&mut out);
        let (mut count, mut result) = (0, Ok(()));
        self.index.walk(|key, entry| {
            encode_entry(&mut out, key, entry);
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
    fn entry(&mut self, key: &[u8], entry: Entry);
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
        let mut count = 0;
        loop {
            let bytes = piece.bytes();
            let mut reader = Reader::new(&bytes[at..]);
            match decode_entry(&mut reader, blocks) {
                Some(Next::Entry(key, entry)) => {
                    if key.is_empty() || KEY_BYTES_MAX < key.len() {
                        return Err(damaged("a key of a wrong length"));
                    }
                    visit.entry(key, entry);
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
