//! The processor time that the process has used.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// CPU time in user mode and in the kernel, microseconds.
pub fn cpu_us() -> (u64, u64) {
    // It fails only for an invalid argument; zero is what is left to say then.
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    (
        usage.map_or(0, |usage| usage.user_time().num_microseconds() as u64),
        usage.map_or(0, |usage| usage.system_time().num_microseconds() as u64),
    )
}
