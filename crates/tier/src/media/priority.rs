//! Lowers the priority of background threads and of those that handle large values, below the
//! threads that answer. Under SCHED_FIFO, with which people pin servers, a thread that got the CPU
//! keeps it, and would copy and check 64 KiB while small requests wait.
//!
//! The kernel is asked, and not the C library: musl's functions of these names refuse.

#![allow(unsafe_code)]

use libc::{SYS_sched_getscheduler, SYS_sched_setscheduler, c_int, c_long, syscall};

/// The whole `struct sched_param` of the kernel.
type Priority = c_int;

/// How the calling thread is scheduled.
fn policy() -> c_long {
    // SAFETY: asks for a number; 0 is the calling thread.
    unsafe { syscall(SYS_sched_getscheduler, 0) }
}

/// Have the calling thread scheduled so. Whether that was allowed.
fn schedule(policy: c_int, priority: Priority) -> bool {
    // SAFETY: the parameters are whole and outlive the call, which keeps nothing.
    unsafe { syscall(SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// From now on the calling thread runs when no thread in real time wants the CPU. Elsewhere, where
/// the kernel is fair to all, nothing changes.
pub fn drop_priority() {
    let policy = policy() as c_int & !libc::SCHED_RESET_ON_FORK;
    if matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR) {
        // It needs no privilege; should it be refused all the same, the thread stays what it was.
        schedule(libc::SCHED_OTHER, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_thread_in_real_time_is_an_ordinary_one_afterwards() {
        if !schedule(libc::SCHED_FIFO, 1) {
            // Not `println`: the runner of tests keeps what a test that passes prints.
            let _ = writeln!(std::io::stderr(), "SKIPPED: priority: no right to SCHED_FIFO");
        }
        drop_priority();
        assert_eq!(policy(), c_long::from(libc::SCHED_OTHER));
    }
}
