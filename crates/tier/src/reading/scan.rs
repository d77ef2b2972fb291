//! Reading several items: ranges in key order, and lists of keys.
//!
//! All that waits for a device is read in one round ([`crate::media::fetch`]): records, large
//! values, and the records of large values whose header is not known yet. What changed meanwhile,
//! or fails, is read again by itself, as a single item is ([`crate::reading::read`]), and fails or
//! not on its own.

use crate::index::{Entry, Home, What};
use crate::media::fetch::Wanted;
use crate::reading::read::{Look, verified};
use crate::ssd::compress::value_of;
use crate::ssd::value::Large;
use crate::store::Shared;
use crate::types::{BLOCK_BYTES, Item, ItemMeta, Result};
use crc32c::crc32c;

/// What is read ahead of a scan at a time.
const BATCH_BYTES_MAX: u64 = 4 << 20;
const BATCH_ITEMS_MAX: usize = 256;

/// An item of a range, and where it was: a way to read it without looking for its key again.
#[derive(Debug, Clone)]
pub struct Found {
    key: Box<[u8]>,
    entry: Entry,
    look: Look,
}

impl Found {
    /// Its key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What it held.
    pub fn look(&self) -> Look {
        self.look
    }
}

/// An item that is to be read: its key and what the index says of it.
trait Sought {
    fn key(&self) -> &[u8];
    fn entry(&self) -> &Entry;
}

impl Sought for (&[u8], Entry) {
    fn key(&self) -> &[u8] {
        self.0
    }

    fn entry(&self) -> &Entry {
        &self.1
    }
}

impl Sought for &Found {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn entry(&self) -> &Entry {
        &self.entry
    }
}

/// What bytes are, of the item of this number.
enum Part {
    Record(usize),
    Value(usize),
}

/// What an item holds, shown while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// What was kept with it.
    pub meta: ItemMeta,
    /// Of the item.
    pub sequence: u64,
}

impl Shown<'_> {
    /// A copy.
    pub fn item(&self) -> Item {
        Item { value: self.value.to_vec(), meta: self.meta, sequence: self.sequence }
    }
}

impl Item {
    fn shown(&self) -> Shown<'_> {
        Shown { value: &self.value, meta: self.meta, sequence: self.sequence }
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
        let found = self.range(from, to, limit);
        let mut read: Vec<_> = found.iter().map(|_| Ok(None)).collect();
        self.read_found(
            &found.iter().collect::<Vec<_>>(),
            || {},
            |number, shown| {
                read[number] = shown.map(|shown| shown.map(|shown| shown.item()));
            },
        );
        let is_there = |(found, item): (Found, Result<Option<Item>>)| {
            Some((found.key.into(), item.transpose()?))
        };
        found.into_iter().zip(read).filter_map(is_there).collect()
    }

    /// Up to `limit` items from `from` on and below `to`, in key order, from the index alone.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<Found> {
        let found = self.index.range(from, to, limit).into_iter();
        found.map(|(key, entry)| Found { look: self.look_of(&entry), key, entry }).collect()
    }

    /// Shows the items of a range by their numbers, in any order: each as it was found, although it
    /// may have been replaced or deleted since, or as it is now. `meanwhile` is done once, while
    /// devices are read if any are.
    pub fn read_found(
        &self,
        found: &[&Found],
        meanwhile: impl FnOnce(),
        mut show: impl FnMut(usize, Result<Option<Shown<'_>>>),
    ) {
        let mut left = vec![true; found.len()];
        self.read_early(found, meanwhile, &mut |number, shown| {
            left[number] = false;
            show(number, Ok(Some(shown)));
        });
        for (number, found) in found.iter().enumerate().filter(|&(number, _)| left[number]) {
            let item = match self.read_entry(&found.key, &found.entry) {
                Ok(None) => self.get(&found.key),
                read => read,
            };
            match item {
                Ok(item) => show(number, Ok(item.as_ref().map(Item::shown))),
                Err(error) => show(number, Err(error)),
            }
        }
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
        let mut early = vec![None; found.len()];
        self.read_early(&found, || {}, &mut |number, shown| early[number] = Some(shown.item()));
        let answer = |(&key, place): (&&[u8], Option<usize>)| match place {
            None => Ok(None),
            Some(place) => early[place].take().map_or_else(|| self.get(key), |item| Ok(Some(item))),
        };
        keys.iter().zip(places).map(answer).collect()
    }

    /// Shows what can be read at once, a batch after the other.
    fn read_early<S: Sought>(
        &self,
        sought: &[S],
        meanwhile: impl FnOnce(),
        show: &mut dyn FnMut(usize, Shown<'_>),
    ) {
        let mut meanwhile = Some(meanwhile);
        let mut begin = 0;
        while begin < sought.len() {
            let mut bytes = 0;
            let fits = sought[begin..].iter().take(BATCH_ITEMS_MAX).take_while(|sought| {
                bytes += sought.entry().value_bytes();
                bytes <= BATCH_BYTES_MAX
            });
            let end = begin + fits.count().max(1);
            let begun = || meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
            self.read_batch(&sought[begin..end], begun, &mut |number, shown| {
                show(begin + number, shown);
            });
            begin = end;
        }
        meanwhile.into_iter().for_each(|meanwhile| meanwhile());
    }

    fn read_batch<S: Sought>(
        &self,
        sought: &[S],
        meanwhile: impl FnOnce(),
        show: &mut dyn FnMut(usize, Shown<'_>),
    ) {
        let (mut wanted, mut held) = (Vec::with_capacity(sought.len()), Vec::new());
        for (number, sought) in sought.iter().enumerate() {
            let (key, entry) = (sought.key(), sought.entry());
            if let What::Large(large) = &entry.what {
                if let Some((value, meta)) = large.value_waiting().zip(large.meta()) {
                    show(number, Shown { value: &value, meta, sequence: entry.sequence });
                    continue;
                }
                let Some(home) = place_of(large) else { continue };
                let Some(pin) = self.hold(key, entry, large) else { continue };
                held.push(pin);
                let bytes = large.bytes as usize;
                wanted.push(Wanted { home, bytes, what: Part::Value(number) });
                if large.meta().is_some() {
                    continue;
                }
            }
            let (bytes, what) = (entry.record_bytes as usize, Part::Record(number));
            if !entry.is_item() {
                continue;
            } else if entry.home.is_ssd() || self.region.disk().is_some() {
                wanted.push(Wanted { home: entry.home, bytes, what });
            } else if let Ok(bytes) = self.read_record(entry.home, bytes) {
                self.show_record(number, sought, &bytes, show);
            }
        }
        // Values whose headers have not come yet.
        let mut late = Vec::new();
        // A failure is met again, and told, when the item is read by itself.
        self.fetch(wanted, meanwhile, |part, bytes| match *part {
            Part::Record(number) => self.show_record(number, &sought[number], bytes, show),
            Part::Value(number) if !show_value(number, sought[number].entry(), bytes, show) => {
                late.push((number, bytes.to_vec()));
            }
            Part::Value(_) => {}
        });
        for (number, bytes) in late {
            show_value(number, sought[number].entry(), &bytes, show);
        }
    }

    /// Shows a small item, or notes what is kept with a large one, from its record if these bytes
    /// are that.
    fn show_record(
        &self,
        number: usize,
        sought: &impl Sought,
        bytes: &[u8],
        show: &mut dyn FnMut(usize, Shown<'_>),
    ) {
        let Entry { sequence, what, .. } = sought.entry();
        let Some(record) = verified(bytes, sought.key(), *sequence) else { return };
        match what {
            What::Large(large) => {
                large.know(record.meta);
                self.index.know(sought.key(), *sequence, record.meta);
            }
            _ => show(number, Shown { value: record.body, meta: record.meta, sequence: *sequence }),
        }
    }
}

/// Where a large value is that is in one extent and one piece, as most that are scanned are.
pub fn place_of(large: &Large) -> Option<Home> {
    match large.extents[..] {
        [extent] if large.pieces() == 1 => {
            Some(Home::ssd(u64::from(extent.start) * BLOCK_BYTES as u64))
        }
        _ => None,
    }
}

/// Shows a large item if these bytes are its value; false if its header has to come first.
fn show_value(
    number: usize,
    entry: &Entry,
    bytes: &[u8],
    show: &mut dyn FnMut(usize, Shown<'_>),
) -> bool {
    let What::Large(large) = &entry.what else { return true };
    let Some(meta) = large.meta() else { return false };
    if large.crcs[..] == [crc32c(bytes)]
        && let Some(value) = value_of(large, bytes)
    {
        show(number, Shown { value: &value, meta, sequence: entry.sequence });
    }
    true
}
