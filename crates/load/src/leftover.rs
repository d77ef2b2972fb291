//! What the CPUs have left: a thread of the idle class on each counts how often it gets through a
//! block of work, and so takes all the time that nobody else wants. The rest of the time is
//! everybody else's, soft interrupts included, on whosever account they are.
//!
//! `/proc/stat` does not show that everywhere: a kernel without `CONFIG_IRQ_TIME_ACCOUNTING`
//! notices a soft interrupt where a tick meets it, and an idle CPU has no ticks. A server's part
//! that the kernel does (its packets, and GETs that a BPF program answers) is then seen by nobody.
//! (netperf calls such threads loopers.) Unit: nanoseconds.

use crate::cpu;
use crate::report::quantiles::empty;
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Steps of a block: about a microsecond.
const BLOCK_STEPS: u64 = 400;
/// Blocks are counted for so long together.
const LAP: Duration = Duration::from_millis(1);
/// Of all blocks this share was shorter than the one that nobody disturbed. Who is disturbed takes
/// longer, and most are not.
const UNDISTURBED: f64 = 0.25;

/// The threads.
#[derive(Debug)]
pub struct Leftover {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Taken>>,
}

/// The blocks of work that one thread has done.
#[derive(Debug)]
struct Taken {
    /// When laps ended, and the blocks in each.
    laps: Vec<(Instant, u64)>,
    /// How long blocks took.
    blocks_ns: Histogram<u64>,
}

impl Default for Taken {
    fn default() -> Self {
        Taken { laps: Vec::new(), blocks_ns: empty(3) }
    }
}

impl Leftover {
    /// Begins to take it, on all CPUs.
    pub fn start(cpus: usize) -> Result<Leftover, String> {
        let mut leftover = Leftover { stop: Arc::default(), threads: Vec::new() };
        for number in 0..cpus {
            let (told, tells) = mpsc::channel();
            let stopped = leftover.stop.clone();
            leftover.threads.push(std::thread::spawn(move || {
                let ready = cpu::pin(number).and_then(|()| yield_to_all());
                let is_ready = ready.is_ok();
                told.send(ready).ok();
                if is_ready { take(&stopped) } else { Taken::default() }
            }));
            if let Err(why) = tells.recv().unwrap_or_else(|_| Err("its thread panicked".into())) {
                return Err(format!("--count-idle: CPU {number}: {why}"));
            }
        }
        Ok(leftover)
    }

    /// Stops; how long each CPU, of 0, 1 and so on, was not left over in this window.
    pub fn finish(mut self, window: Range<Instant>) -> Vec<u64> {
        self.stop.store(true, Relaxed);
        let (from, duration) = (window.start, window.end - window.start);
        let threads = std::mem::take(&mut self.threads).into_iter();
        let taken = threads.map(|thread| thread.join().unwrap_or_default());
        taken.map(|taken| taken.busy_ns(from, duration)).collect()
    }
}

/// The threads of a run that failed do not go on beside the next one.
impl Drop for Leftover {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

impl Taken {
    /// How long a block takes that nobody disturbs.
    fn block_ns(&self) -> u64 {
        self.blocks_ns.value_at_quantile(UNDISTURBED)
    }

    fn busy_ns(&self, from: Instant, duration: Duration) -> u64 {
        let within = |at: &Instant| from < *at && *at <= from + duration;
        let blocks: u64 =
            self.laps.iter().filter(|(at, _)| within(at)).map(|(_, blocks)| blocks).sum();
        (duration.as_nanos() as u64).saturating_sub(blocks * self.block_ns())
    }
}

/// Into the class of those who run when nobody else wants to.
fn yield_to_all() -> Result<(), String> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().to_string();
    let set = Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("chrt of util-linux: {error}"))?;
    if set.success() { Ok(()) } else { Err(format!("chrt --idle: {set}")) }
}

fn take(stop: &AtomicBool) -> Taken {
    let mut taken = Taken::default();
    let (mut blocks, mut lap_end) = (0, Instant::now() + LAP);
    let mut before = Instant::now();
    while !stop.load(Relaxed) {
        let steps = (0..BLOCK_STEPS)
            .fold(1, |sum: u64, step| black_box(sum.wrapping_mul(5).wrapping_add(step)));
        black_box(steps);
        let now = Instant::now();
        taken.blocks_ns += (now - before).as_nanos() as u64;
        blocks += 1;
        before = now;
        if lap_end <= now {
            taken.laps.push((now, blocks));
            (blocks, lap_end) = (0, now + LAP);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred laps of a millisecond, of so many blocks, of which one in ten was disturbed.
    fn taken(blocks: u64) -> (Instant, Taken) {
        let from = Instant::now();
        let laps = (1..=100).map(|lap| (from + LAP * lap, blocks)).collect();
        let mut taken = Taken { laps, ..Taken::default() };
        for (block_ns, tenths) in [(1_000, 9), (1_700, 1)] {
            taken.blocks_ns.record_n(block_ns, 10 * blocks * tenths).expect("it resizes itself");
        }
        (from, taken)
    }

    #[test]
    fn what_is_not_left_over_was_busy() {
        let (from, idle) = taken(1_000);
        assert_eq!(idle.busy_ns(from, LAP * 100), 0);
        let (from, half) = taken(500);
        assert_eq!(half.busy_ns(from, LAP * 100), 50_000_000);
        assert_eq!(half.busy_ns(from, LAP * 10), 5_000_000, "of the window alone");
        assert_eq!(Taken::default().busy_ns(from, LAP), 1_000_000, "it never came to run");
    }
}
