//! The processor time that the process, or a thread of it, has used.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// CPU time in user mode and in the kernel, microseconds.
pub fn cpu_us() -> (u64, u64) {
    of(UsageWho::RUSAGE_SELF)
}

/// CPU time of the calling thread in either, microseconds.
pub fn cpu_thread_us() -> u64 {
    let (user, system) = of(UsageWho::RUSAGE_THREAD);
    user + system
}

fn of(who: UsageWho) -> (u64, u64) {
    // It fails only for an invalid argument; zero is what is left to say then.
    let usage = getrusage(who).ok();
    (
        usage.map_or(0, |usage| usage.user_time().num_microseconds() as u64),
        usage.map_or(0, |usage| usage.system_time().num_microseconds() as u64),
    )
}
