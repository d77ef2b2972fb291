//! Reading bytes at many places of the log and of the SSD in one round of the devices: sorted by
//! place, neighbours in one read.

use crate::index::entry::Home;
use crate::media::bytes::Blocks;
use crate::media::disk::{Read, read_each};
use crate::store::Shared;
use crate::types::BLOCK_BYTES;
use std::cell::Cell;
use std::ops::Range;

/// Neighbours are read together if no more than this lies between: a read of it takes about as long
/// as another request.
pub const GAP_BYTES: u64 = 16 << 10;
/// The most that one read takes, but for one that is longer by itself. Pages that lie anywhere are
/// a part of a request each, of which a disk by virtio takes 254: a mebibyte would be two requests.
const RUN_BYTES_MAX: u64 = 254 * BLOCK_BYTES as u64;
/// What a thread keeps of the room it read into, for the next time.
const ROOM_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Room is neither asked for nor cleared for every round.
    static ROOM: Cell<Option<Blocks>> = const { Cell::new(None) };
}

/// Bytes that are to be read.
pub struct Wanted<T> {
    /// Where they begin.
    pub home: Home,
    /// How many they are.
    pub bytes: usize,
    /// What they are to who asks.
    pub what: T,
}

/// A read of neighbours: where it begins, a whole number of blocks, and for which of those wanted.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    home: Home,
    bytes: usize,
    wanted: Range<usize>,
}

impl Run {
    fn range(&self) -> Range<u64> {
        self.home.at()..self.home.at() + self.bytes as u64
    }
}

impl Shared {
    /// Reads all of these and shows each, in any order, while others are under way; `meanwhile` is
    /// done once, as early as anything is under way. Nothing is shown of what fails, nor of a log
    /// that is no disk's. How many bytes were asked of the devices.
    pub fn fetch<T>(
        &self,
        wanted: Vec<Wanted<T>>,
        meanwhile: impl FnOnce(),
        show: impl FnMut(&T, &[u8]),
    ) -> u64 {
        self.fetch_keeping(ROOM_BYTES_MAX, wanted, meanwhile, show)
    }

    /// The same for a thread that keeps room of this length at most for the next time.
    pub fn fetch_keeping<T>(
        &self,
        room_bytes_max: usize,
        mut wanted: Vec<Wanted<T>>,
        meanwhile: impl FnOnce(),
        mut show: impl FnMut(&T, &[u8]),
    ) -> u64 {
        if wanted.is_empty() {
            meanwhile();
            return 0;
        }
        wanted.sort_unstable_by_key(|wanted| wanted.home);
        let runs = runs_of(&wanted);
        let bytes: usize = runs.iter().map(|run| run.bytes).sum();
        let kept = ROOM.take();
        let (mut room, spare) = match kept {
            Some(kept) if bytes <= kept.as_slice().len() => (kept, None),
            smaller => {
                // Not beside a larger one that is kept in its place.
                let spare = smaller.filter(|_| room_bytes_max < bytes);
                (Blocks::zeroed(bytes), spare)
            }
        };
        // What is only in memory of the log is asked for before its disk is: what leaves meanwhile
        // is on the disk by then.
        let in_log = runs.iter().take_while(|run| !run.home.is_ssd());
        let newer = self.region.newer(&in_log.map(Run::range).collect::<Vec<_>>());
        let (mut reads, mut left) = (Vec::with_capacity(runs.len()), room.as_mut());
        for run in &runs {
            let (into, later) = left.split_at_mut(run.bytes);
            left = later;
            let disk = if run.home.is_ssd() { Some(&*self.ssd) } else { self.region.disk() };
            reads.extend(disk.map(|disk| Read { disk, at: run.home.at(), into }));
        }
        debug_assert_eq!(reads.len(), runs.len(), "a log that is no disk's");
        read_each(&mut reads, meanwhile, |number, bytes| {
            let run = &runs[number];
            let is_in = |(at, _): &&(u64, _)| !run.home.is_ssd() && run.range().contains(at);
            for (at, block) in newer.iter().filter(is_in) {
                bytes[(at - run.home.at()) as usize..][..block.len()].copy_from_slice(block);
            }
            for wanted in &wanted[run.wanted.clone()] {
                let skip = (wanted.home.at() - run.home.at()) as usize;
                show(&wanted.what, &bytes[skip..][..wanted.bytes]);
            }
        });
        let is_kept = room.as_slice().len() <= room_bytes_max;
        ROOM.set(if is_kept { Some(room) } else { spare });
        bytes as u64
    }
}

/// What lies close together, as one read of whole blocks, of places in order.
fn runs_of<T>(wanted: &[Wanted<T>]) -> Vec<Run> {
    let block = BLOCK_BYTES as u64;
    let mut runs = Vec::with_capacity(wanted.len());
    let mut begin = 0;
    while let Some(first) = wanted.get(begin) {
        let (is_ssd, start) = (first.home.is_ssd(), first.home.at() - first.home.at() % block);
        let end_of = |wanted: &Wanted<T>| wanted.home.at() + wanted.bytes as u64;
        let mut end = end_of(first);
        let behind = wanted[begin + 1..].iter().take_while(|next| {
            let together = end.max(end_of(next));
            let joins = next.home.is_ssd() == is_ssd
                && next.home.at() <= end + GAP_BYTES
                && together <= start + RUN_BYTES_MAX;
            end = if joins { together } else { end };
            joins
        });
        let last = begin + 1 + behind.count();
        let bytes = (end - start).next_multiple_of(block) as usize;
        let home = if is_ssd { Home::ssd(start) } else { Home::log(start) };
        runs.push(Run { home, bytes, wanted: begin..last });
        begin = last;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_read_and_what_is_far_is_another() {
        let block = BLOCK_BYTES as u64;
        let far = block << 32;
        let wanted = [
            (Home::log(20), 20),
            (Home::log(block * 4), 1), // less than a gap behind
            (Home::ssd(10), 20),       // on another disk
            (Home::ssd(40), 4096),
            (Home::ssd(block * 3 + GAP_BYTES), 1), // more than a gap behind
            (Home::ssd(block * 4 + GAP_BYTES), 4096),
            (Home::ssd(far + 3), RUN_BYTES_MAX as usize * 2),
            (Home::ssd(far + 3 + RUN_BYTES_MAX * 2), 1), // too long together
        ]
        .map(|(home, bytes)| Wanted { home, bytes, what: () });
        let far_blocks = 2 * RUN_BYTES_MAX as usize / BLOCK_BYTES + 1;
        let expected = [
            (Home::log(0), 5, 0..2),
            (Home::ssd(0), 2, 2..4),
            (Home::ssd(block * 3 + GAP_BYTES), 2, 4..6),
            (Home::ssd(far), far_blocks, 6..7),
            (Home::ssd(far + RUN_BYTES_MAX * 2), 1, 7..8),
        ];
        let run = |(home, blocks, wanted)| Run { home, bytes: blocks * BLOCK_BYTES, wanted };
        assert_eq!(runs_of(&wanted), expected.map(run));
        assert!(runs_of::<()>(&[]).is_empty());
    }
}
