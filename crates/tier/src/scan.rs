//! Reading several items: ranges in key order, and lists of keys.
//!
//! All that waits for a device is read at once, in the order of its place, neighbours in one read:
//! first the records that are wanted, then the large values. What changed meanwhile, or fails, is
//! read again by itself, as a single item is ([`crate::read`]), and fails or not on its own.

use crate::bytes::Blocks;
use crate::disk::{Read, read_together};
use crate::index::{Entry, What};
use crate::read::verified;
use crate::record::Record;
use crate::store::Shared;
use crate::types::{BLOCK_BYTES, Item, Result};
use crc32c::crc32c;
use std::ops::Range;

/// Neighbours on the SSD are read together if no more than this lies between: a read of it takes
/// about as long as another request.
const GAP_BYTES: u64 = 16 << 10;
/// The most that one read takes.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// What is read ahead of a scan at a time.
const BATCH_BYTES_MAX: u64 = 4 << 20;
const BATCH_ITEMS_MAX: usize = 256;

/// Bytes of the SSD that stand for the item of this number.
struct Wanted {
    start: u64,
    bytes: usize,
    number: usize,
}

/// A read of neighbours: where it begins, into what, and for which of those wanted.
struct Run {
    start: u64,
    blocks: Blocks,
    wanted: Range<usize>,
}

/// An item that is to be read: its key and what the index says of it.
trait Sought {
    fn key(&self) -> &[u8];
    fn entry(&self) -> &Entry;
}

impl<K: AsRef<[u8]>> Sought for (K, Entry) {
    fn key(&self) -> &[u8] {
        self.0.as_ref()
    }

    fn entry(&self) -> &Entry {
        &self.1
    }
}

impl Shared {
    /// Up to `limit` items from `from` on and below `to`, in key order. An item that is lost is an
    /// error in its place; those that change meanwhile are read as they are now.
    pub fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Vec<(Vec<u8>, Result<Item>)> {
        let found = self.index.range(from, to, limit);
        let early = self.read_early(&found);
        let mut items = Vec::with_capacity(found.len());
        for ((key, entry), early) in found.into_iter().zip(early) {
            let item = match early {
                Some(item) => Ok(Some(item)),
                None => match self.read_entry(&key, &entry) {
                    Ok(None) => self.get(&key),
                    read => read,
                },
            };
            if let Some(item) = item.transpose() {
                items.push((key.into(), item));
            }
        }
        items
    }

    /// The items of these keys.
    pub fn get_many(&self, keys: &[&[u8]]) -> Vec<Result<Option<Item>>> {
        let mut found = Vec::with_capacity(keys.len());
        let places: Vec<Option<usize>> = keys
            .iter()
            .map(|&key| {
                found.push((key, self.index.hit(key)?));
                Some(found.len() - 1)
            })
            .collect();
        let mut early = self.read_early(&found);
        let answer = |(&key, place): (&&[u8], Option<usize>)| match place {
            None => Ok(None),
            Some(place) => early[place].take().map_or_else(|| self.get(key), |item| Ok(Some(item))),
        };
        keys.iter().zip(places).map(answer).collect()
    }

    /// Reads what can be read at once, a batch after the other.
    fn read_early<S: Sought>(&self, sought: &[S]) -> Vec<Option<Item>> {
        let mut items = vec![None; sought.len()];
        let mut begin = 0;
        while begin < sought.len() {
            let mut bytes = 0;
            let fits = sought[begin..].iter().take(BATCH_ITEMS_MAX).take_while(|sought| {
                bytes += sought.entry().value_bytes();
                bytes <= BATCH_BYTES_MAX
            });
            // One that is longer than a batch is read by itself.
            let end = begin + fits.count().max(1);
            if 1 < end - begin {
                self.read_batch(&sought[begin..end], &mut items[begin..end]);
            }
            begin = end;
        }
        items
    }

    fn read_batch<S: Sought>(&self, sought: &[S], items: &mut [Option<Item>]) {
        let unknown = |entry: &Entry| match &entry.what {
            What::Small { .. } => true,
            What::Large(large) => large.meta().is_none(),
            What::Tombstone | What::Lost => false,
        };
        let records = (0..sought.len()).filter(|&number| unknown(sought[number].entry()));
        self.read_records(sought, records, |number, record| {
            let sequence = record.sequence;
            match &sought[number].entry().what {
                What::Large(large) => large.know(record.meta),
                _ => {
                    let value = record.body.to_vec();
                    items[number] = Some(Item { value, meta: record.meta, sequence });
                }
            }
        });
        self.read_values(sought, items);
    }

    /// Reads records, wherever they are, and shows those that are whole and the ones meant.
    fn read_records<S: Sought>(
        &self,
        sought: &[S],
        numbers: impl Iterator<Item = usize>,
        mut visit: impl FnMut(usize, &Record<'_>),
    ) {
        let (mut in_log, mut reads, mut on_ssd) = (Vec::new(), Vec::new(), Vec::new());
        for number in numbers {
            let Entry { home, record_bytes, .. } = sought[number].entry();
            let bytes = *record_bytes as usize;
            match home.is_ssd() {
                true => on_ssd.push(Wanted { start: home.at(), bytes, number }),
                false => {
                    in_log.push(number);
                    reads.push((home.at(), vec![0; bytes]));
                }
            }
        }
        let mut show = |number: usize, bytes: &[u8]| {
            let sought = &sought[number];
            if let Some(record) = verified(bytes, sought.key(), sought.entry().sequence) {
                visit(number, &record);
            }
        };
        // A failure is met again, and told, when the item is read by itself.
        if self.region.read_many(&mut reads).is_ok() {
            in_log.iter().zip(&reads).for_each(|(&number, (_, bytes))| show(number, bytes));
        }
        self.read_ssd(on_ssd, show);
    }

    /// Reads large values that are in one extent and one piece, as most that are scanned are.
    fn read_values<S: Sought>(&self, sought: &[S], items: &mut [Option<Item>]) {
        let (mut wanted, mut held) = (Vec::new(), Vec::new());
        for (number, sought) in sought.iter().enumerate() {
            let (key, entry) = (sought.key(), sought.entry());
            let What::Large(large) = &entry.what else { continue };
            let Some(meta) = large.meta() else { continue };
            if let Some(bytes) = large.bytes_waiting() {
                let (value, sequence) = (bytes.to_vec(), entry.sequence);
                items[number] = Some(Item { value, meta, sequence });
            } else if let [extent] = large.extents[..]
                && large.pieces() == 1
                && let Some(pin) = self.hold(key, entry, large)
            {
                held.push(pin);
                let start = u64::from(extent.start) * BLOCK_BYTES as u64;
                wanted.push(Wanted { start, bytes: large.bytes as usize, number });
            }
        }
        self.read_ssd(wanted, |number, bytes| {
            let Entry { what: What::Large(large), sequence, .. } = sought[number].entry() else {
                return;
            };
            if large.crcs == [crc32c(bytes)]
                && let Some(meta) = large.meta()
            {
                let value = bytes.to_vec();
                items[number] = Some(Item { value, meta, sequence: *sequence });
            }
        });
    }

    /// Reads ranges of the SSD, neighbours in one read, and shows each. Shows none if one fails.
    fn read_ssd(&self, mut wanted: Vec<Wanted>, mut show: impl FnMut(usize, &[u8])) {
        wanted.sort_unstable_by_key(|wanted| wanted.start);
        let mut runs = runs_of(&wanted);
        let disk = &*self.ssd;
        let mut reads: Vec<Read<'_>> = runs
            .iter_mut()
            .map(|run| Read { disk, at: run.start, into: run.blocks.as_mut() })
            .collect();
        if read_together(&mut reads).is_err() {
            return;
        }
        for Run { start, blocks, wanted: range } in &runs {
            for Wanted { start: at, bytes, number } in &wanted[range.clone()] {
                let skip = (at - start) as usize;
                show(*number, &blocks.as_slice()[skip..skip + bytes]);
            }
        }
    }
}

/// What lies close together, as one read of whole blocks.
fn runs_of(wanted: &[Wanted]) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut first = 0;
    while let Some(Wanted { start, .. }) = wanted.get(first) {
        let start = start - start % BLOCK_BYTES as u64;
        let end_of = |wanted: &Wanted| wanted.start + wanted.bytes as u64;
        let mut end = end_of(&wanted[first]);
        let mut last = first + 1;
        while let Some(next) = wanted.get(last) {
            let together = end.max(end_of(next));
            if end + GAP_BYTES < next.start || start + RUN_BYTES_MAX < together {
                break;
            }
            end = together;
            last += 1;
        }
        runs.push(Run {
            start,
            blocks: Blocks::zeroed((end - start) as usize),
            wanted: first..last,
        });
        first = last;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_read_and_what_is_far_is_another() {
        let block = BLOCK_BYTES as u64;
        let wanted = |(number, (start, bytes))| Wanted { start, bytes, number };
        let places = [
            (10, 20),
            (40, 4096),
            (block * 3 + GAP_BYTES, 1), // more than a gap behind the end of the one before
            (block * 4 + GAP_BYTES, 4096),
            (u64::from(u32::MAX), RUN_BYTES_MAX as usize * 2),
        ];
        let wanted: Vec<Wanted> = places.into_iter().enumerate().map(wanted).collect();
        let runs = runs_of(&wanted);
        let told: Vec<_> =
            runs.iter().map(|r| (r.start, r.blocks.as_slice().len(), r.wanted.clone())).collect();
        let far = u64::from(u32::MAX) - u64::from(u32::MAX) % block;
        let expected = [
            (0, 2 * BLOCK_BYTES, 0..2),
            (block * 3 + GAP_BYTES, 2 * BLOCK_BYTES, 2..4),
            (far, 2 * RUN_BYTES_MAX as usize + BLOCK_BYTES, 4..5),
        ];
        assert_eq!(told, expected);
        assert!(runs_of(&[]).is_empty());
    }
}
