//! Frames put together into messages, in whatever order they come, within bounds that hold whatever
//! comes: bytes, messages, the length of one, and how long one may stand still. Where room is
//! short the message that stood still longest goes. Everything that is thrown away is counted.
//!
//! Memory is taken as frames arrive, a train's worth at a time, so that declaring 65535 frames
//! reserves nothing. All frames of a message but the last are equally long, which is how a frame's
//! place follows from its number; how long is the sender's choice, up to [`FRAME_BYTES_MAX`].
//!
//! The key `K` is whatever tells messages apart: peer and request id, or request id alone. A key
//! may be used again after [`Bounds::idle_nanos_max`] and [`Bounds::stale_nanos_max`] have both
//! passed since its last frame; sooner, frames of two messages might be taken for one's. Time is
//! nanoseconds.

use super::frames::{Message, TRAIN_FRAMES_MAX};
use super::header::{FRAME_BYTES_MAX, Header};
use super::resend::{GAPS_MAX, Gap};
use super::retain::{self, Retained};
use alloc::borrow::Cow;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::ops::Range;

/// Frames that lie in one piece of memory.
const CHUNK_FRAMES: usize = TRAIN_FRAMES_MAX;

/// What an open message is charged with beside its frames: its entry in two maps.
const MESSAGE_COST_BYTES: usize = 256;

/// What a piece of a message is charged with beside its frames, which may be a byte each: its
/// entry in a map, and what the allocator adds.
const CHUNK_COST_BYTES: usize = 128;

/// Asking again waits twice as long each time, this many times.
const ASK_DOUBLINGS_MAX: u32 = 6;

/// What may be held, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Messages that are not whole yet.
    pub messages_max: usize,
    /// Memory of all of them.
    pub bytes_max: usize,
    /// Length of one.
    pub message_bytes_max: usize,
    /// How long a message is kept to which nothing is added.
    pub idle_nanos_max: u64,
    /// How long frames of a message that is whole already, or was given up, are known as such.
    pub stale_nanos_max: u64,
}

/// Why a frame was thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its number is not below its total.
    Impossible,
    /// Its message had another total before.
    TotalChanged,
    /// Its length does not fit that of the others, or is beyond any frame's.
    Uneven,
    /// It came before.
    Duplicate,
    /// Its message is whole already, or was refused or forgotten.
    Stale,
    /// The same, but it is the last frame of another message: its sender has used the key again
    /// too soon. Counted as stale.
    Reused,
    /// Its message is longer than the bounds allow. Told once; later frames are stale.
    TooLong,
    /// The bounds have no room for its message even when all others are gone.
    NoRoom,
}

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was the one that was missing: here is the message.
    Whole(Whole),
    /// It was kept; others are missing.
    More,
    /// It was thrown away.
    Refused(Refused),
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that became whole.
    pub whole: u64,
    /// Frames by [`Refused::Impossible`].
    pub impossible: u64,
    /// Frames by [`Refused::TotalChanged`].
    pub total_changed: u64,
    /// Frames by [`Refused::Uneven`].
    pub uneven: u64,
    /// Frames by [`Refused::Duplicate`].
    pub duplicate: u64,
    /// Frames by [`Refused::Stale`].
    pub stale: u64,
    /// Messages by [`Refused::TooLong`].
    pub too_long: u64,
    /// Messages given up because the bounds were reached.
    pub dropped_for_room: u64,
    /// Messages given up because they stood still too long.
    pub timed_out: u64,
}

/// A message put together: its bytes lie in pieces of [`TRAIN_FRAMES_MAX`] frames.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    pieces: Vec<Vec<u8>>,
    /// Of every piece but the last.
    piece_bytes: usize,
    bytes: usize,
    digest: u64,
}

impl Whole {
    /// A message that came whole, and its digest.
    pub fn of(bytes: Vec<u8>, digest: u64) -> Whole {
        let count = bytes.len();
        Whole { pieces: alloc::vec![bytes], piece_bytes: count.max(1), bytes: count, digest }
    }

    /// The sum of what [`Reassembly::take_digested`] was told of its frames.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Memory that it takes; of one that came whole, all that its buffer has.
    pub fn memory_bytes(&self) -> usize {
        match &self.pieces[..] {
            [buffer] => buffer.capacity(),
            _ => self.bytes,
        }
    }

    /// All bytes in one piece: no copy if they are.
    pub fn into_vec(mut self) -> Vec<u8> {
        match self.pieces.len() {
            0 => Vec::new(),
            1 => self.pieces.swap_remove(0),
            _ => self.pieces.concat(),
        }
    }

    /// The first bytes in one piece, at most so many: no copy where all of it is.
    pub fn front(&self, most: usize) -> Cow<'_, [u8]> {
        if let [whole] = &self.pieces[..] {
            return Cow::Borrowed(&whole[..whole.len().min(most)]);
        }
        let mut front = Vec::with_capacity(most.min(self.bytes));
        for piece in &self.pieces {
            front.extend_from_slice(&piece[..piece.len().min(most - front.len())]);
        }
        Cow::Owned(front)
    }

    /// The pieces in order, owned.
    pub fn into_pieces(self) -> Vec<Vec<u8>> {
        self.pieces
    }

    /// The pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Vec::as_slice)
    }
}

impl Message for Whole {
    fn message_bytes(&self) -> usize {
        self.bytes
    }
    fn piece(&self, offset: usize) -> &[u8] {
        let number = offset.checked_div(self.piece_bytes).unwrap_or(0).min(self.pieces.len() - 1);
        &self.pieces[number][offset - number * self.piece_bytes..]
    }
}

/// Up to [`CHUNK_FRAMES`] frames.
#[derive(Default)]
struct Chunk {
    /// Bit i: frame i is here.
    present: u64,
    /// Up to the last frame that is here; zeroes where one is missing before it.
    bytes: Vec<u8>,
}

struct Partial {
    total: u16,
    received: u16,
    /// Length of every frame but the last; 0 until one has come.
    frame_bytes: usize,
    chunks: BTreeMap<usize, Chunk>,
    /// The last frame lies apart: it may come before the length of the others is known.
    last: Option<Vec<u8>>,
    charged_bytes: usize,
    digest: u64,
    digest_last: u64,
    touched_nanos: u64,
    /// Its place in the order of standing still, which follows `touched_nanos` now and then.
    place: (u64, u64),
    asked_nanos: u64,
    asks: u32,
}

impl Partial {
    fn new(total: u16, now_nanos: u64, serial: u64) -> Partial {
        Partial {
            total,
            received: 0,
            frame_bytes: 0,
            chunks: BTreeMap::new(),
            last: None,
            charged_bytes: MESSAGE_COST_BYTES,
            digest: 0,
            digest_last: 0,
            touched_nanos: now_nanos,
            place: (now_nanos, serial),
            asked_nanos: now_nanos,
            asks: 0,
        }
    }

    /// Keeps a frame, and says how many bytes of memory that took.
    fn add(&mut self, header: Header, payload: &[u8], most: usize) -> Result<usize, Refused> {
        let uneven_last = |last: usize, others: usize| others > 0 && last > others;
        if payload.len() > FRAME_BYTES_MAX {
            return Err(Refused::Uneven);
        }
        if header.is_last() {
            if self.last.is_some() {
                return Err(Refused::Duplicate);
            }
            if uneven_last(payload.len(), self.frame_bytes) {
                return Err(Refused::Uneven);
            }
            self.last = Some(payload.to_vec());
            return Ok(payload.len());
        }
        if self.frame_bytes == 0 {
            let last = self.last.as_ref().map_or(0, Vec::len);
            if payload.is_empty() || uneven_last(last, payload.len()) {
                return Err(Refused::Uneven);
            }
            if (usize::from(self.total) - 1) * payload.len() > most {
                return Err(Refused::TooLong);
            }
            self.frame_bytes = payload.len();
        }
        if payload.len() != self.frame_bytes {
            return Err(Refused::Uneven);
        }
        self.add_even(usize::from(header.sequence), payload)
    }

    fn add_even(&mut self, sequence: usize, payload: &[u8]) -> Result<usize, Refused> {
        let (number, index) = (sequence / CHUNK_FRAMES, sequence % CHUNK_FRAMES);
        let mut added = 0;
        let chunk = self.chunks.entry(number).or_insert_with(|| {
            let left = usize::from(self.total) - number * CHUNK_FRAMES;
            // Where the last frame is not in this chunk, it is appended to it if it comes next.
            let bytes = left.min(CHUNK_FRAMES + 1) * self.frame_bytes;
            added = bytes + CHUNK_COST_BYTES;
            Chunk { present: 0, bytes: Vec::with_capacity(bytes) }
        });
        if chunk.present & 1 << index != 0 {
            return Err(Refused::Duplicate);
        }
        chunk.present |= 1 << index;
        let start = index * self.frame_bytes;
        if chunk.bytes.len() <= start {
            chunk.bytes.resize(start, 0);
            chunk.bytes.extend_from_slice(payload);
        } else {
            chunk.bytes[start..start + payload.len()].copy_from_slice(payload);
        }
        Ok(added)
    }

    fn into_whole(self) -> Whole {
        let piece_bytes = CHUNK_FRAMES * self.frame_bytes;
        let mut pieces: Vec<Vec<u8>> = self.chunks.into_values().map(|c| c.bytes).collect();
        let last = self.last.unwrap_or_default();
        match pieces.last_mut() {
            Some(piece) => piece.extend_from_slice(&last),
            None => pieces.push(last),
        }
        let bytes = pieces.iter().map(Vec::len).sum();
        Whole { pieces, piece_bytes, bytes, digest: self.digest }
    }

    /// What is missing, in ascending order; neighbours may meet. Costs what has come, not what was
    /// declared: whoever declares 65535 frames and sends one does not have us look for them all.
    fn missing(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let even = u32::from(self.total) - 1;
        let start_of = |number: usize| (number * CHUNK_FRAMES) as u32;
        let mut begun = 0;
        let here = self.chunks.iter().flat_map(move |(number, chunk)| {
            let start = start_of(*number);
            let end = even.min(start_of(*number + 1));
            let before = begun..start;
            begun = end;
            let absent = move |at: &u32| chunk.present & 1 << (at - start) == 0;
            let within = (start..end).filter(absent).map(|at| at..at + 1);
            core::iter::once(before).chain(within)
        });
        let behind = self.chunks.last_key_value();
        let behind = behind.map_or(0, |(number, _)| even.min(start_of(*number + 1)));
        let last = if self.last.is_some() { even } else { even + 1 };
        here.chain([behind..even, even..last]).filter(|range| !range.is_empty())
    }

    /// What is missing, as far as one datagram can name it.
    fn gaps(&self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = Vec::new();
        for range in self.missing() {
            let count = (range.end - range.start) as u16;
            let full = gaps.len() == GAPS_MAX;
            match gaps.last_mut() {
                Some(gap) if gap.sequences().end == range.start => gap.count += count,
                _ if full => break,
                _ => gaps.push(Gap { first: range.start as u16, count }),
            }
        }
        gaps
    }
}

/// A message that has stood still, told by [`Reassembly::overdue`].
#[derive(Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Its frames in all.
    pub total: u16,
    /// Those that are missing, as far as one datagram can name them.
    pub gaps: Vec<Gap>,
    /// How often this was told since a frame came last; 1 the first time.
    pub asks: u32,
}

/// Messages that are not whole yet.
pub struct Reassembly<K> {
    bounds: Bounds,
    open: BTreeMap<K, Partial>,
    /// By when something was added last, roughly, and a serial number.
    order: BTreeMap<(u64, u64), K>,
    /// With the digest of the last frame, where that has come.
    finished: Retained<K, Option<u64>>,
    serial: u64,
    bytes: usize,
    counts: Counts,
}

impl<K: Ord + Copy> Reassembly<K> {
    /// Nothing open.
    pub fn new(bounds: Bounds) -> Reassembly<K> {
        let remembered = retain::Bounds {
            entries_max: bounds.messages_max,
            bytes_max: usize::MAX,
            age_nanos_max: bounds.stale_nanos_max,
        };
        Reassembly {
            bounds,
            open: BTreeMap::new(),
            order: BTreeMap::new(),
            finished: Retained::new(remembered),
            serial: 0,
            bytes: 0,
            counts: Counts::default(),
        }
    }

    /// Takes one frame of the message that `key` names. Its kind is the caller's affair.
    pub fn take(&mut self, key: K, header: Header, payload: &[u8], now_nanos: u64) -> Taken {
        self.take_digested(key, header, payload, 0, now_nanos)
    }

    /// The same; `digest` is any hash of the frame's number and bytes. The digests of a message's
    /// frames make up its own ([`Whole::digest`]), in whatever order they come, so that nobody has
    /// to go over all of its bytes at once to know it again.
    pub fn take_digested(
        &mut self,
        key: K,
        header: Header,
        payload: &[u8],
        digest: u64,
        now_nanos: u64,
    ) -> Taken {
        self.expire(now_nanos);
        let taken = match self.admit(key, header, payload, digest, now_nanos) {
            Ok(Some(whole)) => Taken::Whole(whole),
            Ok(None) => Taken::More,
            Err(why) => Taken::Refused(why),
        };
        let count = match &taken {
            Taken::Whole(_) => &mut self.counts.whole,
            Taken::More => return taken,
            Taken::Refused(Refused::Impossible) => &mut self.counts.impossible,
            Taken::Refused(Refused::TotalChanged) => &mut self.counts.total_changed,
            Taken::Refused(Refused::Uneven) => &mut self.counts.uneven,
            Taken::Refused(Refused::Duplicate) => &mut self.counts.duplicate,
            Taken::Refused(Refused::Stale | Refused::Reused) => &mut self.counts.stale,
            Taken::Refused(Refused::TooLong) => &mut self.counts.too_long,
            Taken::Refused(Refused::NoRoom) => &mut self.counts.dropped_for_room,
        };
        *count += 1;
        taken
    }

    fn admit(
        &mut self,
        key: K,
        header: Header,
        payload: &[u8],
        digest: u64,
        now_nanos: u64,
    ) -> Result<Option<Whole>, Refused> {
        if !header.is_possible() {
            return Err(Refused::Impossible);
        }
        // A message that is open is not finished: one search finds it.
        let mut opened = false;
        let partial = match self.open.entry(key) {
            Entry::Occupied(partial) => partial.into_mut(),
            Entry::Vacant(_) if let Some(last) = self.finished.get(&key, now_nanos) => {
                let other = header.is_last() && last.is_some_and(|last| last != digest);
                return Err(if other { Refused::Reused } else { Refused::Stale });
            }
            Entry::Vacant(place) => {
                opened = true;
                self.serial += 1;
                self.order.insert((now_nanos, self.serial), key);
                self.bytes += MESSAGE_COST_BYTES;
                place.insert(Partial::new(header.total, now_nanos, self.serial))
            }
        };
        if partial.total != header.total {
            return Err(Refused::TotalChanged);
        }
        let added_bytes = match partial.add(header, payload, self.bounds.message_bytes_max) {
            Ok(bytes) => bytes,
            Err(why) => {
                if why == Refused::TooLong {
                    self.finish(&key, now_nanos);
                } else if opened {
                    self.close(&key);
                }
                return Err(why);
            }
        };
        partial.received += 1;
        partial.digest = partial.digest.wrapping_add(digest);
        if header.is_last() {
            partial.digest_last = digest;
        }
        partial.asks = 0;
        partial.touched_nanos = now_nanos;
        partial.charged_bytes += added_bytes;
        self.bytes += added_bytes;
        if partial.received == partial.total {
            return Ok(Some(self.finish(&key, now_nanos).expect("it is open").into_whole()));
        }
        // Its place in the order follows once that is worth it.
        if now_nanos.saturating_sub(partial.place.0) > self.bounds.idle_nanos_max / 8 {
            self.replace(&key);
        }
        if added_bytes > 0 || opened {
            self.make_room(&key)?;
        }
        Ok(None)
    }

    /// Lets go of a message, whose late frames will be stale: its sender said so, or its receiver
    /// no longer wants it. False if it was not open.
    pub fn forget(&mut self, key: &K, now_nanos: u64) -> bool {
        self.finish(key, now_nanos).is_some()
    }

    /// Gives up every message, and forgets those that were whole. It goes on counting.
    pub fn clear(&mut self) {
        *self = Reassembly { counts: self.counts, ..Reassembly::new(self.bounds) };
    }

    /// Gives up what stood still too long.
    pub fn expire(&mut self, now_nanos: u64) {
        let idle_nanos = self.bounds.idle_nanos_max;
        while let Some((place, key)) = self.order.first_key_value() {
            if now_nanos.saturating_sub(place.0) <= idle_nanos {
                return;
            }
            let key = *key;
            if now_nanos.saturating_sub(self.open[&key].touched_nanos) <= idle_nanos {
                self.replace(&key);
            } else {
                self.close(&key);
                self.counts.timed_out += 1;
            }
        }
    }

    /// Tells each message to which nothing was added for `patience_nanos`, and then again after
    /// twice as long each time, so that what is missing can be asked for.
    pub fn overdue(
        &mut self,
        now_nanos: u64,
        patience_nanos: u64,
        mut tell: impl FnMut(&K, Overdue),
    ) {
        for (key, partial) in &mut self.open {
            let since_nanos = partial.touched_nanos.max(partial.asked_nanos);
            let wait_nanos = patience_nanos << partial.asks.min(ASK_DOUBLINGS_MAX);
            if now_nanos.saturating_sub(since_nanos) >= wait_nanos {
                partial.asks += 1;
                partial.asked_nanos = now_nanos;
                let (total, asks) = (partial.total, partial.asks);
                tell(key, Overdue { total, gaps: partial.gaps(), asks });
            }
        }
    }

    /// What the message is missing, as far as one datagram can name it; empty if it is not open.
    pub fn missing(&self, key: &K) -> Vec<Gap> {
        self.open.get(key).map_or_else(Vec::new, Partial::gaps)
    }

    /// Whether a message has begun and is not whole.
    pub fn is_open(&self, key: &K) -> bool {
        self.open.contains_key(key)
    }

    /// Whether a frame takes memory that none before it has taken: it begins a message, or another
    /// stretch of one.
    pub fn takes_memory(&self, key: &K, header: &Header) -> bool {
        let number = usize::from(header.sequence) / CHUNK_FRAMES;
        let has = |open: &Partial| header.is_last() || open.chunks.contains_key(&number);
        !self.open.get(key).is_some_and(has)
    }

    /// Messages that are not whole yet.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Memory of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Gives up what stood still longest until the bounds hold, `key`'s message last.
    fn make_room(&mut self, key: &K) -> Result<(), Refused> {
        while self.bytes > self.bounds.bytes_max || self.open.len() > self.bounds.messages_max {
            let Some(oldest) = self.order.values().find(|other| *other != key).copied() else {
                self.close(key);
                return Err(Refused::NoRoom);
            };
            let partial = &self.open[&oldest];
            if partial.place.0 != partial.touched_nanos {
                self.replace(&oldest); // it moved on; once for each frame, at most
                continue;
            }
            self.close(&oldest);
            self.counts.dropped_for_room += 1;
        }
        Ok(())
    }

    /// Moves a message in the order to where it was touched last.
    fn replace(&mut self, key: &K) {
        let Some(partial) = self.open.get_mut(key) else { return };
        self.order.remove(&partial.place);
        partial.place.0 = partial.touched_nanos;
        self.order.insert(partial.place, *key);
    }

    fn close(&mut self, key: &K) -> Option<Partial> {
        let partial = self.open.remove(key)?;
        self.order.remove(&partial.place);
        self.bytes -= partial.charged_bytes;
        Some(partial)
    }

    fn finish(&mut self, key: &K, now_nanos: u64) -> Option<Partial> {
        let partial = self.close(key)?;
        let last = partial.last.is_some().then_some(partial.digest_last);
        self.finished.keep(*key, last, 0, now_nanos);
        Some(partial)
    }
}

#[cfg(test)]
mod tests;
