//! Reading ahead of who needs it. Of a long body a thread reads and verifies the next pieces while
//! the last ones are taken apart, so that a start waits for the slower of the two and not for both.
//! One thread, and pieces in their order, so that a simulated disk sees the same reads each time.
//!
//! For a check of files, several threads read and verify ([`in_order`]), and one more finds what is
//! to be read next ([`beside`]).

use crate::media::bytes::Blocks;
use crate::media::disk::Disk;
use crate::ssd::pointer::{PIECE_BYTES, Pointer};
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use crc32c::crc32c;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::{self, Builder};

/// Pieces that are read and not yet wanted.
const AHEAD: usize = 4;
/// What a thread has made and nobody has taken yet, beside that which it is about.
const READY: usize = 1;
/// Room in front of a piece for what of the last one was cut off.
const FRONT_BYTES: usize = 16 * BLOCK_BYTES;

/// Bytes of the body, one piece and what was left of the one before.
pub struct Piece {
    memory: Blocks,
    start: usize,
    end: usize,
}

impl Piece {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.as_slice()[self.start..self.end]
    }
}

/// The pieces, one after the other.
pub struct Pieces {
    read: Receiver<Result<Option<Piece>>>,
    spent: Sender<Blocks>,
}

impl Pieces {
    /// The next piece behind `left`; `None` at the end, and `Some(None)` where a crc is wrong.
    pub fn next(&mut self, left: &[u8]) -> Result<Option<Option<Piece>>> {
        let Ok(read) = self.read.recv() else { return Ok(None) };
        Ok(Some(read?.map(|piece| piece.behind(left))))
    }

    /// A piece that nobody needs any more.
    pub fn give_back(&self, piece: Piece) {
        // The reader may have ended.
        let _ = self.spent.send(piece.memory);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // All is read in any case: what a simulated disk meets does not hang on who is faster.
        while self.read.recv().is_ok() {}
    }
}

impl Piece {
    fn behind(mut self, left: &[u8]) -> Piece {
        if left.len() <= self.start {
            let start = self.start - left.len();
            self.memory.as_mut()[start..self.start].copy_from_slice(left);
            return Piece { start, ..self };
        }
        let bytes = self.bytes();
        let end = left.len() + bytes.len();
        let mut memory = Blocks::zeroed(end);
        memory.as_mut()[..left.len()].copy_from_slice(left);
        memory.as_mut()[left.len()..end].copy_from_slice(bytes);
        Piece { memory, start: 0, end }
    }
}

/// Reads `body` from the front and lets `parse` have it.
pub fn read_ahead<R>(
    ssd: &dyn Disk,
    body: &Pointer,
    parse: impl FnOnce(&mut Pieces) -> Result<R>,
) -> Result<R> {
    let (found, read) = sync_channel(AHEAD);
    let (spent, again) = channel();
    thread::scope(|scope| {
        let reader = move || {
            for index in 0..body.pieces() {
                let piece = read_piece(ssd, body, index, &again);
                let over = !matches!(piece, Ok(Some(_)));
                if found.send(piece).is_err() || over {
                    return;
                }
            }
        };
        let started = Builder::new().name("tier-ahead".into()).spawn_scoped(scope, reader);
        started.map_err(|source| Error::Io { what: "start a thread that reads ahead", source })?;
        parse(&mut Pieces { read, spent })
    })
}

fn read_piece(
    ssd: &dyn Disk,
    body: &Pointer,
    index: usize,
    again: &Receiver<Blocks>,
) -> Result<Option<Piece>> {
    let whole = |memory: &Blocks| memory.as_slice().len() == FRONT_BYTES + PIECE_BYTES;
    let memory = again.try_iter().find(whole);
    let mut memory = memory.unwrap_or_else(|| Blocks::zeroed(FRONT_BYTES + PIECE_BYTES));
    let mut at = FRONT_BYTES;
    for part in body.parts(index) {
        let into = &mut memory.as_mut()[at..at + part.bytes];
        doing("read a checkpoint", ssd.read_all(part.at, into))?;
        at += part.bytes;
    }
    let (start, end) = (FRONT_BYTES, FRONT_BYTES + body.piece_bytes(index));
    let piece = Piece { memory, start, end };
    Ok((body.crcs.get(index) == Some(&crc32c(piece.bytes()))).then_some(piece))
}

/// Makes so many things by so many threads, each somewhat ahead of who takes them, and has them
/// taken here, in their order. Without threads they are made here, one after the other, and so is
/// what a thread should make that cannot be started.
pub fn in_order<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, T),
) {
    let (make, threads) = (&make, threads.min(count));
    thread::scope(|scope| {
        let start = |first: usize| {
            let (made, ready) = sync_channel(READY);
            let maker = move || {
                for number in (first..count).step_by(threads) {
                    if made.send(make(number)).is_err() {
                        return;
                    }
                }
            };
            let started = Builder::new().name("tier-check".into()).spawn_scoped(scope, maker);
            started.is_ok().then_some(ready)
        };
        let makers: Vec<Option<Receiver<T>>> = (0..threads).map(start).collect();
        for number in 0..count {
            let maker = makers.get(number % threads.max(1)).and_then(Option::as_ref);
            let made = maker.and_then(|ready| ready.recv().ok());
            take(number, made.unwrap_or_else(|| make(number)));
        }
    });
}

/// Makes something by a thread of its own, and meanwhile another thing here; behind that, where no
/// thread can be started.
pub fn beside<A: Send, B>(mut make: impl FnMut() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
    let (made, here) = thread::scope(|scope| {
        let started = Builder::new().name("tier-walk".into()).spawn_scoped(scope, &mut make);
        let here = here();
        (started.ok().map(|maker| maker.join().expect("nobody panics inside")), here)
    });
    (made.unwrap_or_else(make), here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::ssd::pointer::Extent;
    use smallvec::smallvec;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const BYTES: usize = 3 * PIECE_BYTES + 100;

    fn stored() -> (SimDisk, Pointer, Vec<u8>) {
        let blocks = BYTES.div_ceil(BLOCK_BYTES) as u32;
        let value: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        let mut image = vec![0; (blocks as usize + 2) * BLOCK_BYTES];
        image[BLOCK_BYTES..][..BYTES].copy_from_slice(&value);
        let crcs = value.chunks(PIECE_BYTES).map(crc32c).collect();
        let extents = smallvec![Extent { start: 1, blocks }];
        let disk = SimDisk::from_image(image, Power::new(u64::MAX), 1, Faults::default());
        (disk, Pointer { bytes: BYTES as u64, extents, crcs, original_bytes: 0 }, value)
    }

    /// All of it, of which `keep` bytes at the end of each piece are left for the next.
    fn read(disk: &SimDisk, body: &Pointer, keep: usize) -> Result<Option<Vec<u8>>> {
        read_ahead(disk, body, |pieces| {
            let (mut all, mut left) = (Vec::new(), Vec::new());
            while let Some(piece) = pieces.next(&left)? {
                let Some(piece) = piece else { return Ok(None) };
                let taken = piece.bytes().len().saturating_sub(keep);
                all.extend_from_slice(&piece.bytes()[..taken]);
                left = piece.bytes()[taken..].to_vec();
                pieces.give_back(piece);
            }
            all.extend_from_slice(&left);
            Ok(Some(all))
        })
    }

    #[test]
    fn what_is_left_of_a_piece_comes_before_the_next() {
        let (disk, body, value) = stored();
        for keep in [0, 1, 100, FRONT_BYTES, FRONT_BYTES + 1, 2 * PIECE_BYTES, BYTES] {
            assert!(read(&disk, &body, keep).unwrap() == Some(value.clone()), "{keep} kept");
        }
        assert_eq!(read(&disk, &Pointer::default(), 0).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn damage_and_refusals_are_told() {
        let (disk, mut body, _) = stored();
        body.crcs[2] ^= 1;
        assert_eq!(read(&disk, &body, 10).unwrap(), None);
        disk.set_faults(Faults { read_error_one_in: 1, ..Faults::default() });
        assert!(matches!(read(&disk, &body, 10), Err(Error::Io { .. })));
    }

    #[test]
    fn who_stops_early_keeps_nobody_waiting() {
        let (disk, body, _) = stored();
        let stopped = read_ahead(&disk, &body, |pieces| {
            let first = pieces.next(&[])?;
            assert!(first.flatten().is_some());
            Err::<(), _>(Error::PmFull)
        });
        assert!(matches!(stopped, Err(Error::PmFull)));
    }

    #[test]
    fn one_thing_is_made_while_another_is_done() {
        let (to_there, from_here) = channel();
        let (to_here, from_there) = channel();
        let make = move || {
            to_here.send(1).unwrap();
            from_here.recv().unwrap() // which is sent behind what was made first
        };
        let here = || {
            let made = from_there.recv().unwrap();
            to_there.send(made + 1).unwrap();
            made
        };
        assert_eq!(beside(make, here), (2, 1));
    }

    #[test]
    fn what_threads_make_is_taken_in_its_order_and_they_are_little_ahead() {
        for (threads, count) in [(0, 0), (0, 5), (1, 50), (3, 0), (3, 2), (3, 100), (8, 100)] {
            let (made, mut taken) = (AtomicUsize::new(0), Vec::new());
            let make = |number: usize| {
                made.fetch_add(1, Relaxed);
                number * number
            };
            in_order(threads, count, make, |number, square| {
                assert_eq!(square, number * number);
                taken.push(number);
                let ahead = made.load(Relaxed) - taken.len();
                assert!(ahead <= (READY + 1) * threads, "{ahead} ahead by {threads} threads");
            });
            assert_eq!(taken, (0..count).collect::<Vec<_>>(), "{threads} threads");
        }
    }
}
