//! Memory shared with the kernel: the frames that packets lie in, and the four rings that say whose
//! each frame is. The only place of this crate with `unsafe`, but for the twin's two calls.
//!
//! A frame is either held as a [`Frame`], of which there is one for each, or out of our hands: then
//! its `Frame` lies in a table ([`crate::frames`]) that hands out no access, and the kernel, or the
//! twin that stands for it, may write. So bytes of a frame that is held are plain bytes; rings are
//! atomic words at any time.
#![allow(unsafe_code)]

use laneway_sync::descriptors;
use laneway_sync::prim::{AtomicU32, AtomicU64};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::sockopt::set_xdp_umem_reg;
use rustix::net::xdp::{XdpRingOffset, XdpUmemReg, XdpUmemRegFlags};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::Arc;

/// Bytes of a frame: with the room that the kernel keeps before a packet, more than an Ethernet
/// packet; and a size that the kernel allows.
pub const FRAME_BYTES: usize = 2048;

/// A mapping, unmapped on drop.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread; what is reached through it is atomic words, or frames,
// which are `Send` and `Sync` by an argument of their own.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }?;
        Ok(Mapping { base: NonNull::new(base.cast()).expect("never page zero"), bytes })
    }

    fn of_socket(socket: impl AsFd, bytes: usize, page: u64) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing. The kernel
        // refuses one that is longer than the ring; the ring's size never changes once set, and its
        // pages stay while they are mapped, whoever closes the socket.
        let base = unsafe { mmap(null_mut(), bytes, protection, flags, socket, page) }?;
        Ok(Mapping { base: NonNull::new(base.cast()).expect("never page zero"), bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length; whatever borrows from it borrows from or
        // owns (by an `Arc`) the value that is being dropped. Frames that the kernel still has it
        // holds by their pages, not by this mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The memory of one ring.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Mapping,
    producer_at: usize,
    consumer_at: usize,
    flags_at: usize,
    descriptors_at: usize,
    /// Words of all descriptors.
    words: usize,
}

/// Where the parts of a ring stand that is not the kernel's.
const OWN_PARTS: [usize; 4] = [0, 64, 128, 192];

impl Ring {
    /// The ring of a socket that the kernel mapped at `page`: so many places, each of so many
    /// words.
    pub(crate) fn of_socket(
        socket: BorrowedFd<'_>,
        page: u64,
        at: &XdpRingOffset,
        places: u32,
        words_each: usize,
    ) -> io::Result<Ring> {
        let old = || io::Error::new(io::ErrorKind::Unsupported, "a kernel older than Linux 5.4");
        let parts = [at.producer, at.consumer, at.flags.ok_or_else(old)?, at.desc];
        let words = places as usize * words_each;
        let bytes = at.desc as usize + 8 * words;
        Ring::checked(Mapping::of_socket(socket, bytes, page)?, parts.map(|at| at as usize), words)
    }

    /// A ring that two threads of this process share.
    pub(crate) fn own(places: u32, words_each: usize) -> io::Result<Ring> {
        let words = places as usize * words_each;
        let mapping = Mapping::anonymous(OWN_PARTS[3] + 8 * words)?;
        Ring::checked(mapping, OWN_PARTS, words)
    }

    fn checked(mapping: Mapping, parts: [usize; 4], words: usize) -> io::Result<Ring> {
        let [producer_at, consumer_at, flags_at, descriptors_at] = parts;
        let inside = |at: usize, bytes: usize, align: usize| {
            at.is_multiple_of(align)
                && at.checked_add(bytes).is_some_and(|end| end <= mapping.bytes)
        };
        let indices = [producer_at, consumer_at, flags_at];
        if !indices.iter().all(|at| inside(*at, 4, 4)) || !inside(descriptors_at, 8 * words, 8) {
            let why = "the kernel lays a ring out as this program does not know";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // The descriptors are reached as 64-bit words, the rest as 32-bit ones, and none as both.
        assert!(indices.iter().all(|at| *at + 4 <= descriptors_at), "indices stand before them");
        Ok(Ring { mapping, producer_at, consumer_at, flags_at, descriptors_at, words })
    }

    /// What both sides see.
    #[inline]
    pub(crate) fn memory(&self) -> descriptors::Memory<'_> {
        descriptors::Memory {
            producer: self.word(self.producer_at),
            consumer: self.word(self.consumer_at),
            words: self.words(),
        }
    }

    /// What the kernel says about the ring (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    pub(crate) fn flags(&self) -> &AtomicU32 {
        self.word(self.flags_at)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `checked` saw that `at`, one of the three indices, is a multiple of 4 inside the
        // mapping, which is page-aligned and lives as long as `self`. An AtomicU32 may have any
        // bytes and change under us. No 64-bit word overlaps it (`checked`).
        unsafe { self.mapping.base.add(at).cast::<AtomicU32>().as_ref() }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `checked` saw that so many words from `descriptors_at`, a multiple of 8, are
        // inside the mapping, which is page-aligned and lives as long as `self`. An AtomicU64 may
        // have any bytes and change under us. No 32-bit word overlaps them (`checked`).
        unsafe {
            let first = self.mapping.base.add(self.descriptors_at).cast::<AtomicU64>();
            slice::from_raw_parts(first.as_ptr(), self.words)
        }
    }
}

/// One frame. Not `Clone`: who has it is the only one who reaches its bytes, and gives it out of
/// his hands by giving it away.
#[derive(Debug)]
pub struct Frame {
    start: NonNull<u8>,
    number: u32,
    /// Keeps it mapped.
    _frames: Arc<Mapping>,
}

// SAFETY: it is the only access to its bytes, whichever thread has it.
unsafe impl Send for Frame {}
// SAFETY: a shared frame is only read.
unsafe impl Sync for Frame {}

impl Frame {
    /// Which one it is, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8; FRAME_BYTES] {
        // SAFETY: `start` points at FRAME_BYTES initialised bytes of a mapping that `self` keeps.
        // `frames` makes one Frame for each part of the mapping, and Frame is not Clone; while it
        // is held, neither the kernel nor the twin writes here (see the head of this file). So
        // nobody writes while the slice is borrowed.
        unsafe { self.start.cast::<[u8; FRAME_BYTES]>().as_ref() }
    }

    /// Its bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; FRAME_BYTES] {
        // SAFETY: as in `bytes`; and `&mut self` is the only access to them.
        unsafe { self.start.cast::<[u8; FRAME_BYTES]>().as_mut() }
    }
}

/// All frames of a queue, as the kernel, or the twin, knows them: by address.
#[derive(Debug)]
pub(crate) struct Frames {
    mapping: Arc<Mapping>,
    count: u32,
}

/// Memory for so many frames, and the frames.
pub(crate) fn frames(count: u32) -> io::Result<(Frames, Vec<Frame>)> {
    let mapping = Arc::new(Mapping::anonymous(count as usize * FRAME_BYTES)?);
    let frame = |number: u32| {
        // SAFETY: `number` is below `count`, so this is inside the mapping.
        let start = unsafe { mapping.base.add(number as usize * FRAME_BYTES) };
        Frame { start, number, _frames: mapping.clone() }
    };
    let all = (0..count).map(frame).collect();
    Ok((Frames { mapping, count }, all))
}

impl Frames {
    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Make them a socket's: what lies in its fill ring the kernel may write from now on, what lies
    /// in its TX ring it reads.
    pub(crate) fn register(&self, socket: impl AsFd) -> io::Result<()> {
        let memory = XdpUmemReg {
            addr: self.mapping.base.as_ptr().addr() as u64,
            len: self.mapping.bytes as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        Ok(set_xdp_umem_reg(socket, memory)?)
    }

    /// Read as the kernel does: `bytes` bytes from address `at`; nothing if they are not all here.
    ///
    /// # Safety
    /// The frame at that address is out of our hands: its `Frame` lies in a table of those that are
    /// ([`crate::frames`]), it was taken from the TX ring, and is not in the completion ring yet.
    pub(crate) unsafe fn read(&self, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let at = self.inside(at, bytes)?;
        let mut copy = vec![0; bytes];
        // SAFETY: `inside` saw that all of it is in the mapping, `copy` is that long and new;
        // nobody writes there meanwhile, by this function's contract.
        unsafe {
            self.mapping.base.as_ptr().add(at).copy_to_nonoverlapping(copy.as_mut_ptr(), bytes)
        };
        Some(copy)
    }

    /// Write as the kernel does. False if there is no such place.
    ///
    /// # Safety
    /// The frame at that address is out of our hands: its `Frame` lies in a table of those that are
    /// ([`crate::frames`]), it was taken from the fill ring, and is not in the RX ring yet.
    pub(crate) unsafe fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let Some(at) = self.inside(at, bytes.len()) else { return false };
        // SAFETY: `inside` saw that all of it is in the mapping, which `bytes` is no part of:
        // nobody holds this frame, by this function's contract, and no other part is written.
        unsafe {
            let to = self.mapping.base.as_ptr().add(at);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        true
    }

    /// Whether so many bytes from there on are in one frame.
    fn inside(&self, at: u64, bytes: usize) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        let fits = at % FRAME_BYTES + bytes <= FRAME_BYTES && at < self.mapping.bytes;
        fits.then_some(at)
    }
}
