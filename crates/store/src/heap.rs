//! The process's other memory: what the allocator does with buffers that come and go.
//!
//! glibc maps an allocation of 128 KiB or more by itself and unmaps it when it is freed, but only
//! until the first such one is freed: then it takes the size for a usual one, raises its threshold
//! above it (to 32 MiB at most) and keeps the next ones in its arenas, where whatever lies behind
//! them keeps them resident. Here such buffers are rare: unfinished lines, large datagram messages,
//! whatever a misbehaving client makes us hold. Items are not the allocator's.

/// From how many bytes on an allocation is a mapping of its own. It is where glibc begins, too.
pub const MAPPED_BYTES_MIN: usize = 128 << 10;

/// Let what large buffers took go back to the system each time, whatever was freed before.
///
/// Once, at start. Where the allocator is not glibc's nothing is done; where it refuses, memory
/// stays resident longer, which is no reason to stop.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_large_buffers() {
    // SAFETY: mallopt may be called at any time and takes plain numbers. It is a store into the
    // allocator's settings under its own lock.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN as libc::c_int) };
}

/// As above: this allocator is left as it is.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_large_buffers() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu", not(loom)))]
mod tests {
    use super::*;

    /// Whether an allocation of so many bytes is a mapping of its own: then it begins on a page,
    /// behind the two words that glibc writes before it. (Shorter ones than these may fit into what
    /// an arena has left, and are not mapped then.)
    fn mapped(bytes: usize) -> bool {
        let buffer: Vec<u8> = Vec::with_capacity(bytes);
        std::hint::black_box(buffer.as_ptr()).addr() % 4096 == 2 * size_of::<usize>()
    }

    #[test]
    fn what_was_freed_once_does_not_keep_the_next_ones() {
        give_back_large_buffers();
        for bytes in [1 << 20, MAPPED_BYTES_MIN * 4] {
            // With glibc's own ways the second is an arena's, because the first was freed.
            assert!(mapped(bytes), "{bytes} bytes");
        }
    }
}
