//! One reserved range of memory, addressed by offsets, never unmapped while the store lives.
//!
//! A reader that lost a race may look anywhere in a region; it finds words, perhaps stale ones. All
//! access from here is by atomic words ([`laneway_sync::words`]), but for the bytes of large items:
//! these are written by their one draft and read by pin holders only. The range is reserved without
//! memory behind it; pages appear when they are touched.

use crate::window::SharedArray;
use laneway_sync::prim::AtomicU64;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::{io, ptr::NonNull, slice};

/// The range.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// So many from the beginning are a shared array's; the rest is private anonymous memory.
    shared_bytes: usize,
}

// SAFETY: `base` is a plain address of a mapping that lives as long as the Region and belongs to no
// thread; what is reached through `&self` is atomic words. Raw pointers are handed out, but using
// them is unsafe of its own.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Pages this large are what huge-page advice is about.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// What mappings are made of.
const PAGE_BYTES: usize = 4096;
/// NUMA nodes that Linux counts up to.
const NODES_MAX: usize = 1024;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

impl Region {
    /// Reserve `bytes` (rounded up to huge pages) of anonymous memory.
    pub fn reserve(bytes: usize, huge_pages: bool) -> io::Result<Region> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing of
        // ours.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).expect("the kernel never maps page zero for us");
        let region = Region { base, bytes, shared_bytes: 0 };
        let advice = if huge_pages { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // A kernel without transparent huge pages refuses the advice; the memory serves as well
        // without. SAFETY: the range is exactly our own mapping, and this advice changes no
        // content.
        let _ = unsafe { madvise(region.base.as_ptr().cast(), bytes, advice) };
        Ok(region)
    }

    /// The same, and a shared array, where there is one, in place of the first bytes.
    pub fn reserve_behind(
        array: Option<&SharedArray>,
        bytes: usize,
        huge_pages: bool,
    ) -> io::Result<Region> {
        let shared_bytes = array.map_or(0, |array| array.bytes.next_multiple_of(PAGE_BYTES));
        let mut region = Region::reserve(bytes.max(shared_bytes), huge_pages)?;
        let Some(array) = array else { return Ok(region) };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range is the beginning of our own new mapping, page-aligned and not longer
        // than it; nobody has a reference into it yet.
        unsafe { mmap(region.base.as_ptr().cast(), shared_bytes, access, flags, &array.file, 0) }?;
        region.shared_bytes = shared_bytes;
        Ok(region)
    }

    /// Have its pages on this NUMA node, as long as there is room; those that were touched before
    /// stay where they are.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mut nodes: [libc::c_ulong; NODES_MAX / WORD_BITS] = [0; NODES_MAX / WORD_BITS];
        let word = nodes.get_mut(node as usize / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node as usize % WORD_BITS);
        // The kernel takes the length of the set less one.
        let length = NODES_MAX as libc::c_ulong + 1;
        let (base, policy) = (self.base.as_ptr(), libc::MPOL_PREFERRED);
        // SAFETY: mbind changes no content; the range is exactly our own mapping, and the set is as
        // long as is said and outlives the call. (glibc has no function for it.)
        let refused = unsafe {
            libc::syscall(libc::SYS_mbind, base, self.bytes, policy, nodes.as_ptr(), length, 0)
        };
        if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it, as words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `bytes` long, page-aligned, zeroed by the kernel when first
        // touched, or a shared array's (so initialised), and stays mapped for the life of `self`,
        // which the slice borrows. Words are atomic, so aliasing and writing through `&` are
        // allowed, and others may look at them. Bytes of large items are also written through
        // `pointer`; see there.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / 8) }
    }

    /// The `len` bytes from `offset` on as words, if both ends lie inside. `offset` is a multiple
    /// of 8.
    #[inline]
    pub fn words_at(&self, offset: usize, len: usize) -> Option<&[AtomicU64]> {
        let first = offset / 8;
        self.words().get(first..first.checked_add(len.div_ceil(8))?)
    }

    /// The address of `len` bytes at `offset`.
    #[inline]
    pub fn pointer(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.bytes && len <= self.bytes - offset, "outside the region");
        // SAFETY: the assertion keeps the result inside the one mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Give the pages of a range back to the system; they read as zero afterwards. A reader that
    /// lost its race may see the zeroes, and discards them like anything else it read. A shared
    /// array's pages stay.
    pub fn discard(&self, offset: usize, len: usize) {
        if offset < self.shared_bytes {
            return;
        }
        let pointer = self.pointer(offset, len);
        let give_back = |advice| {
            // SAFETY: the range is inside our own mapping, and the caller has nothing in it any
            // more. The kernel's zeroing happens outside the Rust machine, as if another thread had
            // stored zeroes.
            unsafe { madvise(pointer.cast(), len, advice) }
        };
        // Of memory that is locked (`-k`) it takes the second word, which Linux has since 5.18;
        // before, the pages stay.
        let _ =
            give_back(Advice::LinuxDontNeed).or_else(|_| give_back(Advice::LinuxDontneedLocked));
    }

    /// Tell the cache that the line at `offset` will be wanted.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        if offset < self.bytes {
            // SAFETY: inside the mapping, by the line above. (A prefetch has no effect but on speed
            // in any case.)
            prefetch(unsafe { self.base.as_ptr().add(offset) });
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, the array over its beginning included, and no borrow of it
        // outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; SSE is part of every x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn locked_pages_are_given_back_too() {
        let region = Region::reserve(HUGE_PAGE_BYTES, false).expect("room for 2 MiB");
        let word = &region.words()[0];
        word.store(1, std::sync::atomic::Ordering::Relaxed);
        let [first, second] =
            [0, PAGE_BYTES].map(|offset| region.pointer(offset, PAGE_BYTES).cast());
        // SAFETY: a page of the region's own, whose content this does not change.
        let locked = unsafe { rustix::mm::mlock(first, PAGE_BYTES) };
        // SAFETY: another one, which nobody has anything in.
        let known = unsafe { madvise(second, PAGE_BYTES, Advice::LinuxDontneedLocked) };
        if let Err(error) = locked.and(known) {
            let why = format!("SKIPPED: region: the kernel gives no locked page back: {error}");
            let _ = writeln!(std::io::stderr(), "{why}");
            return;
        }
        region.discard(0, PAGE_BYTES);
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn a_region_prefers_the_node_it_is_told() {
        let region = Region::reserve(HUGE_PAGE_BYTES, false).expect("room for 2 MiB");
        if let Err(error) = region.prefer_node(0) {
            // Not `eprintln`: the runner of tests keeps what a test that passes prints.
            let why = format!("SKIPPED: region: the kernel binds no memory here: {error}");
            let _ = writeln!(std::io::stderr(), "{why}");
            return;
        }
        region.words()[0].store(1, std::sync::atomic::Ordering::Relaxed);
        let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("a kernel that binds");
        let begins = format!("{:x} ", region.base.as_ptr().addr());
        let line = maps.lines().find(|line| line.starts_with(&begins)).expect("it is mapped");
        assert!(line.contains("prefer:0") && line.contains("N0=1"), "{line}");
        assert!(region.prefer_node(NODES_MAX as u32).is_err(), "no such node");
        assert!(region.prefer_node(NODES_MAX as u32 - 1).is_err(), "no machine has so many");
    }
}
