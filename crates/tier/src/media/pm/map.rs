//! Memory mapped from a file: persistent on a DAX file system, volatile anywhere else.
//!
//! `dax` asks for MAP_SYNC, which the kernel grants only where a line that was written back and
//! fenced is durable; a flush is clwb on each line, a fence is sfence. `emu` maps any file (one in
//! /dev/shm, say) and survives the end of the process, not of the power: its figures are upper
//! bounds. The mapping is read and written as atomic words, so that a reader that lost a race
//! against reuse finds stale bytes, which its record's crc tells, and nothing undefined.

#![allow(unsafe_code)]

use super::Region;
use crate::media::disk::Barrier;
use crate::media::disk::lock::{lock, open};
use crate::types::{Error, LINE_BYTES, Result, doing};
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use laneway_sync::words;
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::NonNull;
use std::slice;

/// Which promise the mapping makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Durable when fenced (MAP_SYNC).
    Durable,
    /// Lost with the power.
    Volatile,
}

/// The region.
pub struct MapRegion {
    base: NonNull<AtomicU64>,
    bytes: usize,
    promise: Promise,
    written_bytes: AtomicU64,
    /// Keeps its lock.
    _file: OwnedFd,
}

// SAFETY: `base` is the address of a mapping that lives as long as the MapRegion and belongs to no
// thread; all that is reached through `&self` is atomic words.
unsafe impl Send for MapRegion {}
// SAFETY: as above.
unsafe impl Sync for MapRegion {}

impl MapRegion {
    /// Maps `path`, alone.
    pub fn open(path: &Path, promise: Promise) -> Result<MapRegion> {
        if promise == Promise::Durable && !has_clwb() {
            return Err(Error::Unavailable(
                "--pm-backend dax: this processor has no clwb; use --pm-backend wal".into(),
            ));
        }
        let file = open(path, OFlags::RDWR)?;
        lock(&file, path)?;
        let stat = doing("fstat", rustix::fs::fstat(&file).map_err(Into::into))?;
        let size = stat.st_size as usize - stat.st_size as usize % LINE_BYTES;
        let kind = match promise {
            Promise::Durable => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Promise::Volatile => MapFlags::SHARED,
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours. The
        // file is this store's own, held by its lock, so nobody truncates it under us.
        let mapped =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, kind, &file, 0) };
        let base = mapped.map_err(|errno| match promise {
            Promise::Durable => Error::Unavailable(format!(
                "--pm-backend dax: {} cannot be mapped with MAP_SYNC ({errno}): it is not on a \
                 DAX file system of persistent memory; use --pm-backend wal",
                path.display()
            )),
            Promise::Volatile => {
                Error::Io { what: "map the emulated persistent memory", source: errno.into() }
            }
        })?;
        let base = NonNull::new(base.cast()).expect("the kernel never maps page zero for us");
        let written_bytes = AtomicU64::new(0);
        Ok(MapRegion { base, bytes: size, promise, written_bytes, _file: file })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `bytes` long (a multiple of 8), page-aligned, initialised by the
        // kernel, lives as long as `self`, and is only ever accessed as atomic words.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes / size_of::<AtomicU64>()) }
    }
}

impl Drop for MapRegion {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `open` mapped; the slices given out borrow `self`, so none
        // is left. A failure leaves the mapping, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Region for MapRegion {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut out = Vec::with_capacity(into.len() + size_of::<u64>());
        words::read_into(self.words(), at as usize, into.len(), &mut out);
        into.copy_from_slice(&out);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        words::write(self.words(), at as usize, from);
        // A statistic: nothing hangs on its order.
        self.written_bytes.fetch_add(from.len() as u64, Relaxed);
        Ok(())
    }

    fn append(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        // A word that two parts share is stored once: it is never half new.
        let parts = parts.iter().map(|part| &**part);
        let bytes = words::write_parts(self.words(), at as usize, parts);
        self.written_bytes.fetch_add(bytes as u64, Relaxed); // a statistic, as above
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        // Whoever shares words holds a lock; the bytes are little-endian on any machine.
        u64::from_le(self.words()[at as usize / size_of::<AtomicU64>()].load(Relaxed))
    }

    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        // Release, and no partner: it keeps the compiler from moving an earlier store behind this
        // one. The processor (x86-64) does not, so stores reach a line in the program's order, and
        // a line is written back as it is.
        self.words()[at as usize / size_of::<AtomicU64>()].store(word.to_le(), Release);
        self.written_bytes.fetch_add(size_of::<u64>() as u64, Relaxed); // a statistic, as below
        Ok(())
    }

    fn flush(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.promise == Promise::Durable && bytes != 0 {
            let first = at as usize / LINE_BYTES;
            let end = (at + bytes).div_ceil(LINE_BYTES as u64) as usize;
            let words_per_line = LINE_BYTES / size_of::<AtomicU64>();
            for line in
                self.words()[first * words_per_line..].chunks(words_per_line).take(end - first)
            {
                write_back(&line[0]);
            }
        }
        Ok(())
    }

    fn fence(&self, _why: Barrier) -> io::Result<()> {
        if self.promise == Promise::Durable {
            store_fence();
        }
        Ok(())
    }

    fn reads_wait(&self) -> bool {
        false
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed) // a statistic, as above
    }

    fn name(&self) -> &'static str {
        match self.promise {
            Promise::Durable => "dax",
            Promise::Volatile => "emu",
        }
    }
}

/// Whether the processor writes a line back on demand.
#[cfg(target_arch = "x86_64")]
fn has_clwb() -> bool {
    const LEAF_FEATURES: u32 = 7;
    const CLWB_BIT: u32 = 1 << 24; // in EBX
    let highest = std::arch::x86_64::__cpuid(0).eax;
    LEAF_FEATURES <= highest
        && std::arch::x86_64::__cpuid_count(LEAF_FEATURES, 0).ebx & CLWB_BIT != 0
}

#[cfg(target_arch = "x86_64")]
fn write_back(line: &AtomicU64) {
    // SAFETY: clwb takes any mapped address and changes no register, flag or memory content;
    // `has_clwb` was asked when the region was opened with the promise that leads here. It is
    // ordered behind older stores to its own line, which is all that is asked of it.
    unsafe {
        std::arch::asm!("clwb [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags));
    }
}

#[cfg(target_arch = "x86_64")]
fn store_fence() {
    // SAFETY: SSE is part of x86-64. The fence orders every clwb before it ahead of every store
    // after it; with MAP_SYNC the lines written back are then in the platform's power-fail domain.
    unsafe { std::arch::x86_64::_mm_sfence() }
}

#[cfg(not(target_arch = "x86_64"))]
fn has_clwb() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn write_back(_line: &AtomicU64) {
    unreachable!("the region was refused: no clwb");
}

#[cfg(not(target_arch = "x86_64"))]
fn store_fence() {
    unreachable!("the region was refused: no clwb");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_region_reads_what_it_wrote_and_keeps_it_over_a_reopening() {
        let path = std::env::temp_dir().join(format!("laneway-map-{}", std::process::id()));
        std::fs::write(&path, [0; 8192]).unwrap();
        let region = MapRegion::open(&path, Promise::Volatile).unwrap();
        region.write(100, b"some bytes").unwrap();
        region.append(128, &mut [&b"some "[..], &b"parts"[..]].map(IoSlice::new)).unwrap();
        assert_eq!(region.written_bytes(), 20);
        region.flush(100, 10).unwrap();
        region.fence(Barrier::Group).unwrap();
        let twice = MapRegion::open(&path, Promise::Volatile);
        assert!(matches!(twice, Err(Error::Locked(_))), "it is in use");
        drop(region);
        let region = MapRegion::open(&path, Promise::Volatile).unwrap();
        let mut read = [0; 12];
        region.read(99, &mut read).unwrap();
        assert_eq!(&read, b"\0some bytes\0");
        region.read(127, &mut read).unwrap();
        assert_eq!(&read, b"\0some parts\0");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn dax_says_clearly_that_an_ordinary_file_is_none() {
        let path = std::env::temp_dir().join(format!("laneway-dax-{}", std::process::id()));
        std::fs::write(&path, [0; 8192]).unwrap();
        let refused = MapRegion::open(&path, Promise::Durable);
        let text = refused.err().expect("a temporary folder is on no DAX file system").to_string();
        assert!(text.contains("--pm-backend dax") && text.contains("wal"), "{text}");
        std::fs::remove_file(&path).ok();
    }

    #[test]
    fn writing_back_changes_nothing() {
        if has_clwb() {
            let word = AtomicU64::new(7);
            write_back(&word);
            store_fence();
            assert_eq!(word.load(Relaxed), 7);
        }
    }
}
