//! Whether io_uring serves a disk's writers and readers sooner, or with less CPU time, than calls
//! that wait: a block written and flushed by two calls or by two linked entries of a ring, and
//! blocks read at random by as many threads as reads are in flight or by one thread with a ring.
//!
//! The file and its buffers are registered, so that this is the least that a ring costs. CPU time
//! is that of the whole process, the kernel's workers for the ring among it, which flush for it.
#![allow(unsafe_code)]

use crate::disk::{BLOCK_BYTES, BLOCKS, Block, Disk};
use crate::median;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// One thread asks this of the disk, or several do.
#[derive(Clone, Copy)]
enum Load {
    /// A block is written and flushed, then the next.
    Flush,
    /// So many reads are in flight.
    Reads(usize),
}

const LOADS: [(&str, Load); 4] = [
    ("write and flush", Load::Flush),
    ("1 read", Load::Reads(1)),
    ("4 reads", Load::Reads(4)),
    ("16 reads", Load::Reads(16)),
];

/// Microseconds of each operation: from one to the next, and of CPU time.
#[derive(Clone, Copy)]
struct Cost {
    time: f64,
    cpu: f64,
}

/// Numbers of blocks, one after the other in no order.
struct Places(u64);

impl Iterator for Places {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // Knuth's linear congruence, of which the upper half is well mixed.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some((self.0 >> 33) % BLOCKS * BLOCK_BYTES)
    }
}

fn process_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.cast_unsigned(), spent.tv_nsec as u32)
}

/// Calls that wait, from as many threads as are in flight.
fn by_calls(disk: &Disk, load: Load, stop: &AtomicBool) -> io::Result<u64> {
    let Load::Reads(readers) = load else {
        let mut done = 0;
        while !stop.load(Relaxed) {
            disk.file().write_all_at(&disk.block().0, done % BLOCKS * BLOCK_BYTES)?;
            disk.file().sync_data()?;
            done += 1;
        }
        return Ok(done);
    };
    let done = AtomicU64::new(0);
    let read = |seed: u64| -> io::Result<()> {
        let mut block = Block::new();
        let mut reads = 0;
        for place in Places(seed).take_while(|_| !stop.load(Relaxed)) {
            block.0[0] = 0;
            disk.file().read_exact_at(&mut block.0, place)?;
            block.check()?;
            reads += 1;
        }
        done.fetch_add(reads, Relaxed);
        Ok(())
    };
    thread::scope(|scope| {
        let read = &read;
        let threads: Vec<_> =
            (0..readers as u64).map(|seed| scope.spawn(move || read(seed))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(done.into_inner())
}

/// A ring of one thread.
fn by_ring(disk: &Disk, load: Load, stop: &AtomicBool) -> io::Result<u64> {
    let in_flight = if let Load::Reads(reads) = load { reads } else { 1 };
    // They are never freed: a ring that has failed may still fill them.
    let blocks = Vec::leak((0..in_flight).map(|_| Block::new()).collect());
    let mut builder = IoUring::<squeue::Entry>::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    let mut ring = builder.build(32)?;
    let buffers: Vec<_> = blocks
        .iter_mut()
        .map(|block| libc::iovec { iov_base: block.0.as_mut_ptr().cast(), iov_len: block.0.len() })
        .collect();
    // SAFETY: the blocks stay for good, and are looked at only where no entry has them.
    unsafe { ring.submitter().register_buffers(&buffers)? };
    ring.submitter().register_files(&[disk.file().as_raw_fd()])?;
    let (file, bytes) = (types::Fixed(0), BLOCK_BYTES as u32);
    let mut places = Places(7);
    let (mut done, mut free): (u64, Vec<usize>) = (0, (0..in_flight).collect());
    let mut entries = Vec::new();
    while !stop.load(Relaxed) {
        for number in free.drain(..) {
            let (block, index) = (&mut blocks[number].0, number as u16);
            if let Load::Flush = load {
                let write = opcode::WriteFixed::new(file, block.as_ptr(), bytes, index);
                let write = write.offset(done % BLOCKS * BLOCK_BYTES).build();
                let linked = squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS;
                entries.push(write.flags(linked).user_data(u64::MAX));
                let flush = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC);
                entries.push(flush.build().user_data(number as u64));
            } else {
                block[0] = 0;
                let place = places.next().expect("it has no end");
                let read =
                    opcode::ReadFixed::new(file, block.as_mut_ptr(), bytes, index).offset(place);
                entries.push(read.build().user_data(number as u64));
            }
        }
        // SAFETY: the blocks stay for good, and a free one is now in entries of its own only.
        unsafe { ring.submission().push_multiple(&entries).expect("two entries a block fit") };
        entries.clear();
        ring.submit_and_wait(1)?;
        for ended in ring.completion() {
            let expected = if let Load::Flush = load { 0 } else { bytes.cast_signed() };
            if ended.result() != expected {
                return Err(io::Error::other(format!("an entry ends with {}", ended.result())));
            }
            let number = ended.user_data() as usize;
            blocks[number].check()?;
            free.push(number);
            done += 1;
        }
    }
    while free.len() < in_flight {
        ring.submit_and_wait(1)?;
        free.extend(ring.completion().map(|ended| ended.user_data() as usize));
    }
    Ok(done)
}

fn cost(disk: &Disk, load: Load, is_ring: bool, time: Duration) -> io::Result<Cost> {
    let stop = AtomicBool::new(false);
    let (began, spent) = (Instant::now(), process_cpu());
    let work = if is_ring { by_ring } else { by_calls };
    let done = thread::scope(|scope| {
        let worker = scope.spawn(|| work(disk, load, &stop));
        thread::sleep(time);
        stop.store(true, Relaxed);
        worker.join().expect("it does not panic")
    })?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / done.max(1) as f64;
    Ok(Cost { time: each(began.elapsed()), cpu: each(process_cpu() - spent) })
}

/// Compares a ring with calls that wait, on the disk that [`crate::disk`] made.
pub fn compare_on(disk: &Disk, rounds: u64, time: Duration) -> io::Result<()> {
    println!(
        "load             calls us  CPU us  io_uring us  CPU us  io_uring of calls [least..most], \
         its CPU"
    );
    for (name, load) in LOADS {
        let mut costs = [const { Vec::new() }; 4];
        let mut ratios = [const { Vec::new() }; 2];
        for round in 0..rounds {
            let one = |is_ring| cost(disk, load, is_ring, time);
            // In alternating order.
            let (calls, ring) = if round % 2 == 0 {
                let calls = one(false)?;
                (calls, one(true)?)
            } else {
                let ring = one(true)?;
                (one(false)?, ring)
            };
            let now = [calls.time, calls.cpu, ring.time, ring.cpu];
            costs.iter_mut().zip(now).for_each(|(all, now)| all.push(now));
            ratios[0].push(ring.time / calls.time);
            ratios[1].push(ring.cpu / calls.cpu);
        }
        let [calls, calls_cpu, ring, ring_cpu] = costs.each_mut().map(|all| median(all));
        let [[least, middle, most], cpu] = ratios.each_mut().map(|all| {
            let middle = median(all);
            [all[0], middle, all[all.len() - 1]]
        });
        println!(
            "{name:<15} {calls:>9.1} {calls_cpu:>7.1} {ring:>12.1} {ring_cpu:>7.1}  \
             {middle:.2} [{least:.2}..{most:.2}]  {:.2} [{:.2}..{:.2}]",
            cpu[1], cpu[0], cpu[2]
        );
    }
    Ok(())
}
