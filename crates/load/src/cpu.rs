//! Processor time, read from /proc: how much the server used, and how long others kept the CPU from
//! it or from us.
//!
//! Field one of `schedstat` is the time a thread ran, in nanoseconds, and field two the time it was
//! runnable and waited. Summed over the threads that exist: one that ended in between takes its
//! time with it, which none of the servers measured here does. All times are nanoseconds.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io;
use std::path::Path;

/// The CPU that comparisons give to their servers.
pub const SERVER_CPU: usize = 0;
/// The CPU that they give to their client.
pub const CLIENT_CPU: usize = 1;

/// Time that threads spent, up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// Running.
    pub busy_ns: u64,
    /// Runnable while somebody else had the CPU.
    pub kept_waiting_ns: u64,
}

impl CpuTime {
    /// The time between `earlier` and this.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            kept_waiting_ns: self.kept_waiting_ns.saturating_sub(earlier.kept_waiting_ns),
        }
    }
}

/// All threads of process `pid`.
pub fn of_process(pid: u32) -> io::Result<CpuTime> {
    let mut total = CpuTime::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let CpuTime { busy_ns, kept_waiting_ns } = of(&thread?.path()).unwrap_or_default();
        total.busy_ns += busy_ns;
        total.kept_waiting_ns += kept_waiting_ns;
    }
    Ok(total)
}

/// The thread of process `pid` that has this name.
pub fn of_thread_named(pid: u32, name: &str) -> io::Result<CpuTime> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let place = thread?.path();
        let own_name = fs::read_to_string(place.join("comm"));
        if own_name.is_ok_and(|own_name| own_name.trim_end() == name) {
            return of(&place);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "there is none of this name"))
}

/// The calling thread.
pub fn of_this_thread() -> CpuTime {
    of(Path::new("/proc/thread-self")).unwrap_or_default()
}

/// Thread `thread` of this process.
pub fn of_thread(thread: i32) -> CpuTime {
    of(&Path::new("/proc/self/task").join(thread.to_string())).unwrap_or_default()
}

/// The thread that is told of in this folder.
fn of(place: &Path) -> io::Result<CpuTime> {
    let text = fs::read_to_string(place.join("schedstat"))?;
    parse_schedstat(&text).ok_or_else(|| io::Error::other("no schedstat"))
}

fn parse_schedstat(text: &str) -> Option<CpuTime> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(CpuTime { busy_ns: words.next()??, kept_waiting_ns: words.next()?? })
}

/// What the kernel counts the time of whole machines in.
const TICK_NS: u64 = 10_000_000;

/// Time the hypervisor gave to other machines, summed over our CPUs; the kernel counts it in ticks
/// of 10 ms.
pub fn stolen_ns() -> u64 {
    const STEAL_WORD: usize = 8;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks = line.split_ascii_whitespace().nth(STEAL_WORD).and_then(|word| word.parse().ok());
    ticks.unwrap_or(0_u64) * TICK_NS
}

/// Resident memory of process `pid`, in bytes, shared and huge pages included.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    number_in(&text, "VmRSS:")
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no VmRSS in its status"))
}

/// The number behind this name in a file of /proc.
pub(crate) fn number_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory of this machine that is free, or would be on demand; none where the kernel does not say.
pub fn memory_available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    number_in(&text, "MemAvailable:").map(|kib| kib * 1024)
}

/// Keeps the calling thread on one CPU.
pub fn pin(cpu: usize) -> Result<(), String> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpu >= CpuSet::MAX_CPU {
        return Err(format!("--cpu {cpu}: this machine has {cpus}, numbered from 0"));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| format!("--cpu {cpu}: {error}; this process may use {cpus} CPUs"))
}

/// Lets the calling thread run on any CPU again; where that is refused, it stays where it is.
pub fn unpin() {
    run_on(|_| true);
}

/// Keeps the calling thread off the CPU that it is on, where there is another.
pub fn leave() {
    let here = rustix::thread::sched_getcpu();
    run_on(|cpu| cpu != here);
}

fn run_on(is_allowed: impl Fn(usize) -> bool) {
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&cpu| is_allowed(cpu)).for_each(|cpu| set.set(cpu));
    let _ = sched_setaffinity(None, &set);
}

/// The machine, for reports.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Where an idle CPU is a virtual one: how long it polls at most before it halts. Older records
    /// do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_poll_ns: Option<u64>,
}

/// What a virtual machine's idle CPUs do before they halt.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// What to do about virtual CPUs that halt at once when idle: then the host may give their place
/// away, and take milliseconds to give it back.
pub const HALTS_AT_ONCE: &str = "\
an idle CPU of this virtual machine halts at once, and its host may be slow to give it back. As
root, until the next boot:
  echo 1000000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns
(docs/bench-method.md, \"Virtual machines\")";

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
        let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let halt_poll_ns = fs::read_to_string(HALT_POLL).ok();
        let halt_poll_ns = halt_poll_ns.and_then(|text| text.trim().parse().ok());
        Machine { cpu_model: model.into(), cpus, kernel: release.trim().into(), halt_poll_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, TryRecvError};
    use std::thread;

    #[test]
    fn schedstat_and_status_are_read() {
        let time = parse_schedstat("40463523 11104617 91\n");
        assert_eq!(time, Some(CpuTime { busy_ns: 40_463_523, kept_waiting_ns: 11_104_617 }));
        assert_eq!(parse_schedstat("x"), None);
        assert_eq!(number_in("VmHWM:\t 9 kB\nVmRSS:\t   6420 kB\n", "VmRSS:"), Some(6_420));
        let io = "wchar: 1\nwrite_bytes: 3\ncancelled_write_bytes: 4\n";
        assert_eq!(number_in(io, "write_bytes:"), Some(3));
        assert_eq!(number_in("wchar: 1\n", "write_bytes:"), None);
    }

    #[test]
    fn a_thread_is_found_by_its_name() {
        let (over, is_over) = mpsc::channel::<()>();
        let works = move || {
            while is_over.try_recv() == Err(TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        };
        let thread = thread::Builder::new().name("counted".into()).spawn(works).expect("a thread");
        let busy = || of_thread_named(std::process::id(), "counted").map_or(0, |time| time.busy_ns);
        // It names itself when it begins, and the kernel counts its time at the next tick.
        while busy() == 0 {
            std::hint::spin_loop();
        }
        drop(over);
        thread.join().expect("it ends");
        assert!(of_thread_named(std::process::id(), "no such name").is_err());
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        for cpu in [900, 100_000] {
            let message = pin(cpu).expect_err("no such CPU");
            assert!(message.starts_with(&format!("--cpu {cpu}:")), "{message}");
        }
    }
}
