//! Arrays of the kernel's, mapped into this process: the only place of this crate with `unsafe`.
//!
//! A mapping lives as long as its value; the kernel keeps the array alive as long as it is mapped,
//! whoever else has gone. The programs read it at any moment, so what is reached through it is
//! atomic words.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::layout::{Control, SteerWords};
use aya::maps::MapData;
use laneway_store::layout::{Bucket, Overflow};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// What may be laid over mapped memory.
///
/// # Safety
///
/// `repr(C)` or `repr(transparent)` or primitive, made of atomic integers only and without padding:
/// any bytes are a value, and other parties may change them at any time. Its alignment is at most
/// that of a page.
pub unsafe trait Shared: Sync {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU8 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU64 {}
// SAFETY: repr(C), eight atomic words (its size is asserted where it is defined), 64-aligned.
unsafe impl Shared for Bucket {}
// SAFETY: repr(C), four atomic words (its size is asserted where it is defined), 32-aligned.
unsafe impl Shared for Overflow {}
// SAFETY: repr(C); atomic integers whose sizes add up to a multiple of 8 before each 64-bit one.
unsafe impl Shared for Control {}
// SAFETY: as above.
unsafe impl Shared for SteerWords {}

const _: () =
    assert!(size_of::<Control>() == 8 * (4 + 1 + 4 + 1 + 2 + (8 + 8 + 16) * 4 + 8 * 2 + 64));
const _: () = assert!(size_of::<SteerWords>() == 8 * (4 + 64) + 4 * (4096 + 4 * 4096));

/// Pages of this size are what the kernel maps.
const PAGE_BYTES: usize = 4096;

/// An array of the kernel's, as a slice.
#[derive(Debug)]
pub struct Mapped<T: Shared> {
    base: NonNull<T>,
    /// Values of type `T`.
    count: usize,
    /// Of the mapping.
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and what is reached through it is `Sync` and atomic.
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Map all of an array. Its elements must be a whole number of `T`.
    pub(crate) fn of(name: &str, map: &MapData) -> Result<Mapped<T>, Error> {
        let what = || format!("mapping the array `{name}`");
        let info = map.info().map_err(|why| Error::new(what(), &why))?;
        let (element_bytes, elements) = (info.value_size() as usize, info.max_entries() as usize);
        // The kernel lays elements side by side, each rounded up to 8 bytes.
        if !element_bytes.is_multiple_of(size_of::<T>()) || !element_bytes.is_multiple_of(8) {
            let told = format!("{element_bytes} bytes an element, of {}", size_of::<T>());
            return Err(Error::said(what(), told));
        }
        let used = element_bytes * elements;
        let bytes = used.next_multiple_of(PAGE_BYTES);
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping of a descriptor of ours, at an address of the kernel's
        // choice, overlaps nothing.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, flags, MapFlags::SHARED, map.fd().as_fd(), 0)
        };
        let base = base.map_err(|why| Error::new(what(), &why))?;
        let base = NonNull::new(base.cast()).expect("the kernel never maps page zero for us");
        Ok(Mapped { base, count: used / size_of::<T>(), bytes })
    }
}

impl<T: Shared> Deref for Mapped<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping is at least `count` values long, page-aligned (and `T` needs no more,
        // by its contract), initialised by the kernel, and stays mapped for the life of `self`,
        // which the slice borrows. Any bytes are a `T`, and a `T` may change under us.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl<T: Shared> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
