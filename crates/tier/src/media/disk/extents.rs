//! Where the bytes of a file lie, as its file system tells (FIEMAP, linux/fiemap.h). Not lseek's
//! SEEK_HOLE: that takes reserved space for written where somebody has read it into the page cache.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Extents that are asked for at once: of a log that was written in one go, all of the place of a
/// group, and much more.
const EXTENTS: usize = 8;
const FS_IOC_FIEMAP: u64 = 0xc020_660b; // _IOWR('f', 11, struct fiemap)
const EXTENT_LAST: u32 = 0x0001;
const EXTENT_MERGED: u32 = 0x1000;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    at: u64,
    physical: u64,
    bytes: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_2: [u32; 3],
}

/// `struct fiemap` with its extents.
#[repr(C)]
#[derive(Default)]
struct Map {
    start: u64,
    bytes: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Map>() == 32 + 56 * EXTENTS);

/// Whether these bytes have their place on the device and were written there, so that to write them
/// again changes nothing else. Space that is merely reserved has not, and what cannot be told
/// counts as no.
pub fn are_written(file: BorrowedFd<'_>, at: u64, bytes: u64) -> bool {
    let end = at + bytes;
    let mut done = at;
    while done < end {
        let mut map =
            Map { start: done, bytes: end - done, room: EXTENTS as u32, ..Map::default() };
        // SAFETY: FIEMAP reads a `struct fiemap` at the place given and writes to it and to at most
        // `room` extents behind its fixed part: `Map` is both, as asserted above, is initialised,
        // and lives through the call as the only borrow of it. Any bytes are valid in its fields.
        let told = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) };
        let mapped = (map.mapped as usize).min(EXTENTS);
        if told != 0 || mapped == 0 {
            return false;
        }
        for extent in &map.extents[..mapped] {
            // Every other flag is a reason not to know: not written yet, nowhere yet, shared, ...
            let is_plain = extent.flags & !(EXTENT_LAST | EXTENT_MERGED) == 0;
            if !is_plain || done < extent.at || extent.at + extent.bytes <= done {
                return false;
            }
            done = extent.at + extent.bytes;
        }
    }
    true
}
