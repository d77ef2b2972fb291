//! The echo server by completions: a multishot receive stands for each connection and takes its
//! buffers out of a ring of provided ones; sends of a turn are submitted together, by the call that
//! waits for what comes next.
#![allow(unsafe_code)]

use crate::{RECEIVE_BYTES, REPLY, REQUEST_BYTES, Run};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Buffers of the ring, a power of two.
const BUFFERS: u16 = 2048;
/// The ring's group.
const GROUP: u16 = 0;
/// Set in the user data of a send.
const SEND: u64 = 1 << 32;

/// The ring of provided buffers: memory that the kernel reads entries of.
struct Provided {
    entries: NonNull<types::BufRingEntry>,
    bytes: Vec<u8>,
    tail: u16,
}

impl Provided {
    const LAYOUT: Layout = match Layout::from_size_align(BUFFERS as usize * 16, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a page and a power of two"),
    };

    fn new() -> Provided {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(Provided::LAYOUT) };
        let Some(entries) = NonNull::new(memory.cast()) else {
            handle_alloc_error(Provided::LAYOUT)
        };
        let bytes = vec![0; usize::from(BUFFERS) * RECEIVE_BYTES];
        let mut provided = Provided { entries, bytes, tail: 0 };
        (0..BUFFERS).for_each(|number| provided.give(number));
        provided.publish();
        provided
    }

    /// The kernel may fill this buffer again, once that is published.
    fn give(&mut self, number: u16) {
        let place = usize::from(self.tail % BUFFERS);
        let start = usize::from(number) * RECEIVE_BYTES;
        let address = self.bytes[start..start + RECEIVE_BYTES].as_mut_ptr() as u64;
        // SAFETY: `place` is below BUFFERS, the length of the ring, which is ours until it is
        // dropped; the kernel reads no entry before the tail is behind it.
        let entry = unsafe { self.entries.add(place).as_mut() };
        entry.set_addr(address);
        entry.set_len(RECEIVE_BYTES as u32);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies in the ring's first entry, is aligned, and is written here only.
        let tail =
            unsafe { &*types::BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Release); // the kernel loads it with Acquire
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and the ring that read it has been dropped before.
        unsafe { dealloc(self.entries.as_ptr().cast(), Provided::LAYOUT) };
    }
}

pub fn serve(connections: Vec<TcpStream>, run: &Run) -> io::Result<()> {
    let mut provided = Provided::new();
    let replies = REPLY.repeat(RECEIVE_BYTES / REQUEST_BYTES);
    let mut builder = IoUring::<squeue::Entry, cqueue::Entry>::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(8192);
    let mut ring = builder.build(2048)?;
    let memory = provided.entries.as_ptr() as u64;
    // SAFETY: the memory is BUFFERS entries long, and `provided` outlives `ring`.
    unsafe { ring.submitter().register_buf_ring_with_flags(memory, BUFFERS, GROUP, 0)? };
    let socket = |number: usize| types::Fd(connections[number].as_raw_fd());
    let receive = |number: usize| {
        opcode::RecvMulti::new(socket(number), GROUP).build().user_data(number as u64)
    };
    for number in 0..connections.len() {
        // SAFETY: its socket stays open, and its buffers are the ring's.
        unsafe { ring.submission().push(&receive(number)).expect("there is room for each") };
    }
    let tick = types::Timespec::new().nsec(100_000_000);
    let mut done = Vec::new();
    while !run.stop.load(Relaxed) {
        match ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&tick)) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::TIME.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        done.extend(ring.completion().map(|done| (done.user_data(), done.result(), done.flags())));
        let mut submission = ring.submission();
        for (data, result, flags) in done.drain(..) {
            if data & SEND != 0 {
                assert!(result > 0, "a send ends with {result}");
                continue;
            }
            let number = data as usize;
            let mut next = (!cqueue::more(flags)).then(|| receive(number));
            if let Some(buffer) = cqueue::buffer_select(flags) {
                provided.give(buffer);
                let requests = result.max(0) as usize / REQUEST_BYTES;
                let bytes = (requests * REPLY.len()) as u32;
                let send = opcode::Send::new(socket(number), replies.as_ptr(), bytes).build();
                let send = send.flags(squeue::Flags::SKIP_SUCCESS).user_data(data | SEND);
                // SAFETY: `replies` is longer than `bytes` and outlives the ring.
                unsafe { submission.push(&send).expect("a turn's sends fit") };
                run.requests.fetch_add(requests as u64, Relaxed);
            }
            if let Some(receive) = next.take() {
                // SAFETY: as above.
                unsafe { submission.push(&receive).expect("a turn's receives fit") };
            }
        }
        drop(submission);
        provided.publish();
    }
    drop(ring); // before the memory that it reads
    Ok(())
}
