//! A region, mapped: the only place of this crate with `unsafe`.
//!
//! A region is a memfd whose size is sealed before anybody else has it, so that no peer can cut it
//! short under us (an access beyond a file's end is SIGBUS). What a peer can do is give pages back
//! (`fallocate` punches holes); then they are zeroes again, for which the kernel must find memory.
//! Where it promises none that it has not got (`vm.overcommit_memory` 2) and has none, that is
//! SIGBUS after all: nothing here can help that. Whoever writes a page first of which the peer has
//! given none back asks for its memory before ([`Mapped::back`]).
//!
//! The peer may write any byte at any moment; what is reached through a mapping is atomic words.
//! The first page is reached as 32-bit words, the others as 64-bit ones, and none as both.
#![allow(unsafe_code)]

use crate::layout::HEAD_BYTES;
use laneway_sync::prim::AtomicU64;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU32;

/// What keeps the size of a region as it is, and the seals themselves.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory for a region, its size sealed. The first `taken` bytes are taken at once, so that a
/// machine that has no more says so here and not when they are written; other pages as they are
/// touched.
pub fn create(bytes: usize, taken: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("laneway-region", flags)?;
    rustix::fs::ftruncate(&memory, bytes as u64)?;
    rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, taken as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// A region as this process sees it.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and what is reached through it is atomic words.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Map a region of `bytes` bytes. Refused: memory of another size, or whose size could change.
    pub fn of(memory: impl AsFd, bytes: usize) -> io::Result<Mapped> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let seals = rustix::fs::fcntl_get_seals(&memory)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(wrong("the region's size is not sealed".into()));
        }
        // Looked at behind the seals, so it stays so.
        let size = rustix::fs::fstat(&memory)?.st_size;
        if size != bytes as i64 || bytes <= HEAD_BYTES || !bytes.is_multiple_of(HEAD_BYTES) {
            return Err(wrong(format!("the region has {size} bytes, and {bytes} were expected")));
        }
        Mapped::map(memory, bytes)
    }

    /// The same of memory that nobody has looked at.
    pub(crate) fn map(memory: impl AsFd, bytes: usize) -> io::Result<Mapped> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping of a descriptor that the caller holds, at an address of the
        // kernel's choice, overlaps nothing.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, flags, MapFlags::SHARED, &memory, 0) }?;
        let base = NonNull::new(base.cast()).expect("the kernel never maps page zero for us");
        Ok(Mapped { base, bytes })
    }

    /// Everything behind the first page.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `of` mapped `bytes` bytes, more than HEAD_BYTES, of a file whose size is sealed,
        // so every page stays backed for the life of `self`, which the slice borrows; a mapping is
        // page-aligned and HEAD_BYTES is a page. An AtomicU64 may have any bytes and change under
        // us; nothing else reaches this part of the mapping.
        unsafe {
            let start = self.base.as_ptr().add(HEAD_BYTES).cast::<AtomicU64>();
            slice::from_raw_parts(start, (self.bytes - HEAD_BYTES) / size_of::<AtomicU64>())
        }
    }

    /// Has the kernel find memory for these words before they are written. False: it has none, and
    /// whoever wrote them would be ended by SIGBUS. A kernel that cannot be asked (before 5.14) is
    /// taken to have some.
    ///
    /// # Panics
    /// If there are no such words.
    pub fn back(&self, words: Range<usize>) -> bool {
        let words = &self.words()[words];
        let from = words.as_ptr().addr() - self.base.as_ptr().addr();
        let to = (from + size_of_val(words)).next_multiple_of(HEAD_BYTES);
        let from = from / HEAD_BYTES * HEAD_BYTES;
        // SAFETY: the range lies within the mapping, which is of whole pages of HEAD_BYTES, and
        // this advice changes no content.
        let told = unsafe {
            let start = self.base.as_ptr().add(from);
            madvise(start.cast(), to - from, Advice::LinuxPopulateWrite)
        };
        !matches!(told, Err(Errno::FAULT | Errno::NOMEM))
    }

    /// The word by which the client sleeps.
    #[inline]
    pub fn sleep_word(&self) -> &AtomicU32 {
        // SAFETY: the first page of a mapping as in `words`, which only this function reaches.
        unsafe { self.base.cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn both_sides_see_one_memory_that_begins_as_zeroes() {
        let memory = create(4 * HEAD_BYTES, HEAD_BYTES).expect("memory");
        let here = Mapped::of(&memory, 4 * HEAD_BYTES).expect("mapped");
        let there = Mapped::of(&memory, 4 * HEAD_BYTES).expect("mapped twice");
        assert_eq!(here.words().len(), 3 * HEAD_BYTES / 8);
        assert!(here.words().iter().all(|word| word.load(Relaxed) == 0));
        here.words()[5].store(77, Relaxed);
        here.sleep_word().store(3, Relaxed);
        assert_eq!((there.words()[5].load(Relaxed), there.sleep_word().load(Relaxed)), (77, 3));
    }

    #[test]
    fn a_region_cannot_be_cut_short_or_made_longer() {
        let memory = create(2 * HEAD_BYTES, HEAD_BYTES).expect("memory");
        for bytes in [0, HEAD_BYTES, 64 * HEAD_BYTES] {
            let refused = rustix::fs::ftruncate(&memory, bytes as u64);
            assert_eq!(refused, Err(rustix::io::Errno::PERM), "{bytes}");
        }
        let unseal = rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE);
        assert_eq!(unseal, Err(rustix::io::Errno::PERM), "the seals are sealed");
    }

    #[test]
    fn memory_is_found_before_it_is_written_and_none_is_said() {
        let memory = create(2 * HEAD_BYTES, HEAD_BYTES).expect("memory");
        let taken = || rustix::fs::fstat(&memory).expect("it is open").st_blocks * 512;
        // Two pages more than the file has: for these the kernel finds none.
        let map = Mapped::map(&memory, 4 * HEAD_BYTES).expect("mapped");
        assert_eq!(taken(), 4096);
        assert!(map.back(0..1));
        assert_eq!(taken(), 8192, "nobody has written it");
        assert!(!map.back(HEAD_BYTES / 8 - 1..HEAD_BYTES / 8 + 1));
    }

    #[test]
    fn memory_that_could_shrink_or_is_of_another_size_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("loose", flags).expect("memory");
        rustix::fs::ftruncate(&memory, 2 * HEAD_BYTES as u64).expect("sized");
        let said = Mapped::of(&memory, 2 * HEAD_BYTES).expect_err("not sealed").to_string();
        assert!(said.contains("not sealed"), "{said}");
        let sealed = create(2 * HEAD_BYTES, HEAD_BYTES).expect("memory");
        for bytes in [HEAD_BYTES, 3 * HEAD_BYTES] {
            let said = Mapped::of(&sealed, bytes).expect_err("another size").to_string();
            assert!(said.contains("bytes"), "{said}");
        }
    }
}
