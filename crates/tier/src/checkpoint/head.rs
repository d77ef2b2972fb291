//! Reads and writes the head of every checkpoint (docs/disk-format.md, "Checkpoint").

use crate::index::entry::Home;
use crate::media::bytes::{Put, Reader};
use crate::ssd::pointer::Extent;
use crate::ssd::tables::{Dropped, Table};
use crate::types::Position;

const MAGIC: u64 = 0x3154_4e50_4b48_434c; // "LCHKPNT1"

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
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
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

    /// Reads one.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Head> {
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
            head.tables.push(Table {
                id,
                extent,
                bytes,
                sequence,
                home,
                live: 0,
                is_damaged: false,
            });
        }
        for _ in 0..dropped {
            let id = reader.u64()?;
            let sequence = reader.u64()?;
            head.dropped.push((id, Dropped { sequence, home: Home::from_raw(reader.u64()?) }));
        }
        Some(head)
    }
}
