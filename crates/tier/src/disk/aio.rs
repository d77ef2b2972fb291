//! Several reads and writes of files at once, handed to the kernel in one call: its AIO
//! (io_submit), which is asynchronous on files opened with O_DIRECT.
//!
//! Used as one call that returns when all is done: buffers are borrowed until then, so no transfer
//! outlives its memory. Not io_uring: that needs memory shared with the kernel as well, and many
//! container runtimes forbid it. Where there is no AIO either, the caller does one after the other.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

/// The most that is under way for one caller.
pub const TRANSFERS_MAX: usize = 64;
/// Contexts kept for later callers; making one takes the kernel longer than a read of the device.
const IDLE_CONTEXTS_MAX: usize = 16;

const READ: u16 = 0; // IOCB_CMD_PREAD
const WRITE: u16 = 1; // IOCB_CMD_PWRITE

/// `struct iocb` of linux/aio_abi.h, on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Order {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    address: u64,
    bytes: u64,
    at: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    order: u64,
    result: i64,
    result_2: i64,
}

const _: () = assert!(size_of::<Order>() == 64 && size_of::<Event>() == 32);

/// What is moved.
pub enum Memory<'a> {
    /// A read fills it.
    Into(&'a mut [u8]),
    /// A write takes it.
    From(&'a [u8]),
}

/// One transfer between memory and a file.
pub struct Transfer<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Where in it.
    pub at: u64,
    /// Whole blocks, aligned to one.
    pub memory: Memory<'a>,
}

impl Transfer<'_> {
    fn bytes(&self) -> usize {
        match &self.memory {
            Memory::Into(into) => into.len(),
            Memory::From(from) => from.len(),
        }
    }

    fn order(&mut self, number: usize) -> Order {
        let (opcode, address, bytes) = match &mut self.memory {
            Memory::Into(into) => (READ, into.as_mut_ptr().expose_provenance(), into.len()),
            Memory::From(from) => (WRITE, from.as_ptr().expose_provenance(), from.len()),
        };
        Order {
            data: number as u64,
            opcode,
            file: self.file.as_raw_fd() as u32,
            address: address as u64,
            bytes: bytes as u64,
            at: self.at as i64,
            ..Order::default()
        }
    }
}

/// A queue in the kernel. Dropping it waits for whatever is under way in it.
struct Context(libc::c_ulong);

impl Context {
    fn new() -> io::Result<Context> {
        let mut id: libc::c_ulong = 0;
        let events = TRANSFERS_MAX as libc::c_long;
        // SAFETY: io_setup reads the number and writes one word, an aio_context_t, to the place
        // given, which is zero before as it asks, and lives through the call.
        match unsafe { libc::syscall(libc::SYS_io_setup, events, &raw mut id) } {
            0 => Ok(Context(id)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Hands orders over; says how many were taken.
    fn submit(&self, orders: &mut [*mut Order]) -> io::Result<usize> {
        let count = orders.len() as libc::c_long;
        // SAFETY: the context is alive; `orders` are `count` pointers to orders that live through
        // the call, which copies them. The memory they name is borrowed by the `together` that
        // calls, which does not return before the kernel is done with it.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, orders.as_mut_ptr()) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for `events.len()` ends; says how many came.
    fn reap(&self, events: &mut [Event]) -> io::Result<usize> {
        let count = events.len() as libc::c_long;
        let no_timeout: *mut libc::timespec = std::ptr::null_mut();
        // SAFETY: the context is alive; the kernel writes at most `count` events to memory that has
        // room for them and lives through the call; a null timeout means to wait.
        let come = unsafe {
            let to = events.as_mut_ptr();
            libc::syscall(libc::SYS_io_getevents, self.0, count, count, to, no_timeout)
        };
        usize::try_from(come).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is this value's alone. The kernel waits for what is under way before
        // it returns, so that no memory is written to afterwards.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

static IDLE: Mutex<Vec<Context>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<Context>> {
    IDLE.lock().expect("nobody panics inside")
}

/// Carries the transfers out in any order and waits for all. Says of each whether all of it was
/// moved; what was not, whyever, is for the caller to do again.
pub fn together(transfers: &mut [Transfer<'_>]) -> Vec<bool> {
    let mut whole = vec![false; transfers.len()];
    let Some(context) = idle().pop().or_else(|| Context::new().ok()) else { return whole };
    let mut sound = true;
    let chunks = transfers.chunks_mut(TRANSFERS_MAX).zip(whole.chunks_mut(TRANSFERS_MAX));
    for (transfers, whole) in chunks {
        sound = sound && carry_out(&context, transfers, whole);
    }
    let mut idle = idle();
    if sound && idle.len() < IDLE_CONTEXTS_MAX {
        idle.push(context);
    }
    drop(idle); // before a context that is not kept: its end may wait
    whole
}

/// At most [`TRANSFERS_MAX`]; false if the context may not be used again: it is to be dropped
/// before the transfers' memory is let go.
fn carry_out(context: &Context, transfers: &mut [Transfer<'_>], whole: &mut [bool]) -> bool {
    let lengths: Vec<usize> = transfers.iter().map(Transfer::bytes).collect();
    let mut orders: Vec<Order> =
        transfers.iter_mut().enumerate().map(|(number, t)| t.order(number)).collect();
    let mut places: Vec<*mut Order> = orders.iter_mut().map(|order| &raw mut *order).collect();
    let mut under_way = 0;
    while under_way < places.len() {
        match context.submit(&mut places[under_way..]) {
            Ok(0) | Err(_) => break, // the rest is done by the caller
            Ok(taken) => under_way += taken,
        }
    }
    let mut events = [Event::default(); TRANSFERS_MAX];
    while 0 < under_way {
        match context.reap(&mut events[..under_way]) {
            Ok(come) => {
                for event in &events[..come] {
                    let number = event.data as usize;
                    whole[number] = usize::try_from(event.result) == Ok(lengths[number]);
                }
                under_way -= come;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn many_transfers_are_whole_and_one_beyond_the_end_is_not() {
        let path = std::env::temp_dir().join(format!("laneway-aio-{}", std::process::id()));
        let mut how = std::fs::OpenOptions::new();
        let file = how.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        const COUNT: usize = 2 * TRANSFERS_MAX + 3;
        let blocks: Vec<Vec<u8>> = (0..COUNT).map(|number| vec![number as u8; 4096]).collect();
        let mut writes: Vec<Transfer<'_>> = (0..)
            .zip(&blocks)
            .map(|(number, block)| Transfer {
                file: file.as_fd(),
                at: number * 4096,
                memory: Memory::From(block),
            })
            .collect();
        let written = together(&mut writes);
        // A kernel without AIO, or a sandbox: then nothing was done, and that is what is said.
        if written.iter().all(|whole| !whole) {
            std::fs::remove_file(&path).unwrap();
            return;
        }
        assert!(written.iter().all(|&whole| whole));
        let mut read = vec![vec![0; 4096]; COUNT + 1];
        let mut reads: Vec<Transfer<'_>> = (0..)
            .zip(&mut read)
            .map(|(number, block)| Transfer {
                file: file.as_fd(),
                at: number * 4096,
                memory: Memory::Into(block),
            })
            .collect();
        let whole = together(&mut reads);
        drop(reads);
        assert!(whole[..COUNT].iter().all(|&whole| whole) && !whole[COUNT]);
        assert_eq!(read[..COUNT], blocks);
        std::fs::remove_file(&path).unwrap();
    }
}
