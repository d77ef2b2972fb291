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
pub const TRANSFERS_MAX: usize = 128;
/// Ends that are waited for at a time: few enough that what is done with the first of them goes on
/// beside the others, and not so few that every one wakes the caller.
const ENDS: usize = 8;
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

    /// Waits for `least` ends, and takes as many as there are room for; says how many came.
    fn reap(&self, least: usize, events: &mut [Event]) -> io::Result<usize> {
        let (least, count) = (least as libc::c_long, events.len() as libc::c_long);
        let no_timeout: *mut libc::timespec = std::ptr::null_mut();
        // SAFETY: the context is alive; the kernel writes at most `count` events to memory that has
        // room for them and lives through the call; a null timeout means to wait.
        let come = unsafe {
            let to = events.as_mut_ptr();
            libc::syscall(libc::SYS_io_getevents, self.0, least, count, to, no_timeout)
        };
        usize::try_from(come).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is this value's alone. The kernel waits for what is under way before
        // it returns 0, so that no memory is written to afterwards.
        let ended = unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
        if ended != 0 {
            // There was no such context, which only we can have brought about; what was under way
            // may still be, and the memory that it is about is let go next. Not a panic: unwinding
            // lets go of it, too.
            eprintln!("io_destroy: {}", io::Error::last_os_error());
            std::process::abort();
        }
    }
}

static IDLE: Mutex<Vec<Context>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<Context>> {
    IDLE.lock().expect("nobody panics inside")
}

/// Hears how transfers go, while others are under way.
pub trait Watch {
    /// Some are under way.
    fn under_way(&mut self) {}
    /// All of the transfer of this number was moved.
    fn whole(&mut self, _number: usize, _memory: &mut Memory<'_>) {}
}

/// Hears of nothing.
pub struct Unwatched;

impl Watch for Unwatched {}

/// Carries the transfers out in any order and waits for all. Says of each whether all of it was
/// moved; what was not, whyever, is for the caller to do again.
pub fn together(transfers: &mut [Transfer<'_>], watch: &mut impl Watch) -> Vec<bool> {
    let mut whole = vec![false; transfers.len()];
    // Should `watch` panic, this is dropped before the transfers' memory is let go.
    let Some(context) = idle().pop().or_else(|| Context::new().ok()) else { return whole };
    let mut sound = true;
    let chunks = transfers.chunks_mut(TRANSFERS_MAX).zip(whole.chunks_mut(TRANSFERS_MAX));
    for (nth, (transfers, whole)) in chunks.enumerate() {
        sound = sound && carry_out(&context, nth * TRANSFERS_MAX, transfers, whole, watch);
    }
    let mut idle = idle();
    if sound && idle.len() < IDLE_CONTEXTS_MAX {
        idle.push(context);
    }
    drop(idle); // before a context that is not kept: its end may wait
    whole
}

/// At most [`TRANSFERS_MAX`], numbered from `first` on; false if the context may not be used again:
/// it is to be dropped before the transfers' memory is let go.
fn carry_out(
    context: &Context,
    first: usize,
    transfers: &mut [Transfer<'_>],
    whole: &mut [bool],
    watch: &mut impl Watch,
) -> bool {
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
    if 0 < under_way {
        watch.under_way();
    }
    let mut events = [Event::default(); TRANSFERS_MAX];
    while 0 < under_way {
        match context.reap(under_way.min(ENDS), &mut events[..under_way]) {
            Ok(come) => {
                for event in &events[..come] {
                    let number = event.data as usize;
                    whole[number] = usize::try_from(event.result) == Ok(lengths[number]);
                    if whole[number] {
                        // The kernel is done with this memory, and only with it.
                        watch.whole(first + number, &mut transfers[number].memory);
                    }
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
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    const BLOCK: usize = 4096;

    /// A file in memory.
    fn file(bytes: u64) -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("laneway-aio", flags).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    fn from<'a>(file: &'a File, block: usize, memory: &'a [u8]) -> Transfer<'a> {
        Transfer { file: file.as_fd(), at: (block * BLOCK) as u64, memory: Memory::From(memory) }
    }

    fn into<'a>(file: &'a File, block: usize, memory: &'a mut [u8]) -> Transfer<'a> {
        Transfer { file: file.as_fd(), at: (block * BLOCK) as u64, memory: Memory::Into(memory) }
    }

    /// In a sandbox, or a kernel without AIO, nothing is done, and that is what is said.
    fn is_here() -> bool {
        Context::new().is_ok()
    }

    #[test]
    fn many_transfers_are_whole_and_what_goes_beyond_the_end_is_not() {
        const COUNT: usize = 2 * TRANSFERS_MAX + 3;
        let file = file(0);
        let blocks: Vec<Vec<u8>> = (0..COUNT).map(|number| vec![number as u8; BLOCK]).collect();
        let mut writes: Vec<_> =
            blocks.iter().enumerate().map(|(number, block)| from(&file, number, block)).collect();
        assert_eq!(together(&mut writes, &mut Unwatched), [is_here(); COUNT]);
        if !is_here() {
            // Not `eprintln`: the runner of tests keeps what a test that passes prints.
            let _ = writeln!(std::io::stderr(), "SKIPPED: aio: the kernel has none here");
            return;
        }
        // Each of a block, one of the last block and what is behind it, one of that alone.
        let mut read = vec![vec![0; BLOCK]; COUNT];
        let (mut half, mut none) = (vec![0; 2 * BLOCK], vec![0; BLOCK]);
        let mut reads: Vec<_> =
            read.iter_mut().enumerate().map(|(number, block)| into(&file, number, block)).collect();
        reads.insert(5, into(&file, COUNT - 1, &mut half));
        reads.insert(70, into(&file, COUNT, &mut none));
        let whole = together(&mut reads, &mut Unwatched);
        drop(reads);
        for (number, whole) in whole.into_iter().enumerate() {
            assert_eq!(whole, number != 5 && number != 70, "transfer {number}");
        }
        assert_eq!(read, blocks);
        assert_eq!(half[..BLOCK], blocks[COUNT - 1]);
    }

    /// Counts how often something was under way, and what was read by its number.
    #[derive(Default)]
    struct Noted {
        begun: usize,
        whole: Vec<(usize, u8)>,
    }

    impl Watch for Noted {
        fn under_way(&mut self) {
            assert!(self.begun > 0 || self.whole.is_empty(), "before anything is there");
            self.begun += 1;
        }

        fn whole(&mut self, number: usize, memory: &mut Memory<'_>) {
            if let Memory::Into(into) = memory {
                self.whole.push((number, into[0]));
            }
        }
    }

    #[test]
    fn whoever_watches_sees_each_read_that_is_whole_and_no_other() {
        const COUNT: usize = TRANSFERS_MAX + 5;
        let file = file(0);
        let blocks: Vec<Vec<u8>> = (0..COUNT).map(|number| vec![number as u8; BLOCK]).collect();
        let mut writes: Vec<_> =
            blocks.iter().enumerate().map(|(number, block)| from(&file, number, block)).collect();
        together(&mut writes, &mut Unwatched);
        let mut read = vec![vec![0; BLOCK]; COUNT + 1]; // the last is behind the end
        let mut reads: Vec<_> =
            read.iter_mut().enumerate().map(|(number, block)| into(&file, number, block)).collect();
        let mut noted = Noted::default();
        together(&mut reads, &mut noted);
        noted.whole.sort_unstable();
        let count = if is_here() { COUNT } else { 0 };
        assert_eq!(noted.begun, if is_here() { 2 } else { 0 }, "each time as many as go together");
        let expected: Vec<_> = (0..count).map(|number| (number, number as u8)).collect();
        assert_eq!(noted.whole, expected);
    }

    #[test]
    fn of_writes_that_fail_in_part_or_are_refused_none_is_said_to_be_whole() {
        let sealed = file(2 * BLOCK as u64);
        rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::GROW).unwrap();
        let memory = vec![7; 2 * BLOCK];
        let whole = together(
            &mut [
                from(&sealed, 0, &memory[..BLOCK]),
                from(&sealed, 1, &memory), // has room for half of it
                from(&sealed, 2, &memory), // for nothing
                from(&sealed, 1, &memory[..BLOCK]),
            ],
            &mut Unwatched,
        );
        assert_eq!(whole, [is_here(), false, false, is_here()]);
        // Refused when it is handed over, and what is behind it is not handed over any more.
        let unwritable = File::open("/dev/null").unwrap();
        let open = file(2 * BLOCK as u64);
        let whole = together(
            &mut [
                from(&open, 0, &memory[..BLOCK]),
                from(&unwritable, 0, &memory),
                from(&open, 1, &memory[..BLOCK]),
            ],
            &mut Unwatched,
        );
        assert!(!whole[1] && !whole[2]);
        assert_eq!(whole[0], is_here());
        // Contexts are as good as before.
        assert_eq!(
            together(&mut [from(&open, 0, &memory), from(&open, 2, &memory)], &mut Unwatched),
            [is_here(); 2]
        );
    }
}
