//! What is counted of one partition.

use crate::record::Header;
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};

/// Counts of one partition, in a cache line that look-ups do not read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counts {
    /// Locations in the slots.
    pub items: AtomicU64,
    /// CAS ids given out.
    pub drawn: AtomicU64,
    /// Of these, to items that there were already.
    pub renewed: AtomicU64,
    /// Items published under an id that somebody chose.
    pub chosen: AtomicU64,
    /// Bytes of the linked records.
    pub bytes: AtomicU64,
    /// Header bytes of the linked records.
    pub header_bytes: AtomicU64,
}

impl Counts {
    /// Count the bytes of a record in, and out those of the one that it replaces. Mostly they are
    /// as many, and a line that other workers write too is left alone.
    pub(crate) fn count_bytes(&self, old: Option<&Header>, new: Option<&Header>) {
        let count = |counter: &AtomicU64, bytes: fn(&Header) -> usize| {
            let [old, new] = [old, new].map(|header| header.map_or(0, bytes) as u64);
            if old != new {
                counter.fetch_add(new.wrapping_sub(old), Relaxed);
            }
        };
        count(&self.bytes, Header::record_bytes);
        count(&self.header_bytes, Header::header_bytes);
    }

    /// Draw a CAS id: how many were drawn before.
    pub(crate) fn draw(&self) -> u64 {
        if is_planted(Bug::CasRepeated) {
            return self.drawn.fetch_add(1, Relaxed) / 2;
        }
        self.drawn.fetch_add(1, Relaxed) // a count; what has the id is published by its bucket
    }

    /// Items ever published.
    pub(crate) fn items_total(&self) -> u64 {
        let [drawn, renewed, chosen] =
            [&self.drawn, &self.renewed, &self.chosen].map(|count| count.load(Relaxed));
        (drawn + chosen).saturating_sub(renewed)
    }
}
