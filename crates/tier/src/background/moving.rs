//! A record that has to move, by migration or compaction.

use crate::index::Home;
use crate::log::record::{Kind, Record, bytes_of};
use crate::store::Moved;
use crate::types::{ItemMeta, LINE_BYTES, is_over};

/// A current record that has to move.
pub struct Moving {
    /// What it says.
    pub kind: Kind,
    /// Of the record.
    pub sequence: u64,
    /// Kept with the item.
    pub meta: ItemMeta,
    /// Of the item, or of a sort table.
    pub key: Box<[u8]>,
    /// The rest of it.
    pub body: Box<[u8]>,
    /// Where it is.
    pub home: Home,
    /// How often it was hit.
    pub weight: u8,
}

impl Moving {
    /// A record, and where it is.
    pub fn of(record: &Record<'_>, home: Home, weight: u8) -> Moving {
        let Record { kind, sequence, meta, .. } = *record;
        Moving {
            kind,
            sequence,
            meta,
            key: record.key.into(),
            body: record.body.into(),
            home,
            weight,
        }
    }

    /// As it was.
    pub fn record(&self) -> Record<'_> {
        let Moving { kind, sequence, meta, .. } = *self;
        Record { kind, sequence, meta, key: &self.key, body: &self.body }
    }

    /// Without padding.
    pub fn bytes(&self) -> usize {
        self.record().bytes()
    }

    /// Of the item.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How often it was hit.
    pub fn weight(&self) -> u8 {
        self.weight
    }

    /// Of the record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether it has expired, and a deletion in its place frees something: half of its record at
    /// least, or the blocks of its value.
    pub fn is_worth_dropping(&self, now_seconds: u32) -> bool {
        let lines = |bytes: usize| bytes.div_ceil(LINE_BYTES);
        let is_shorter = 2 * lines(bytes_of(self.key.len(), 0)) <= lines(self.bytes());
        is_over(self.meta.expires_at_seconds, now_seconds)
            && (is_shorter || self.kind == Kind::Large)
    }

    /// That it is there now.
    pub fn moved(&self, to: Home) -> Moved {
        let (sequence, from, bytes) = (self.sequence, self.home, self.bytes() as u32);
        Moved { key: self.key.clone(), sequence, from, to, bytes }
    }
}

/// What these take in the log.
pub fn lines_of(all: &[&[Moving]]) -> u64 {
    let line = |moving: &Moving| moving.bytes().next_multiple_of(LINE_BYTES) as u64;
    all.iter().copied().flatten().map(line).sum()
}
