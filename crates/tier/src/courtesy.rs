//! Threads that do the work of large values and of nobody in particular give way to those that
//! answer: where the process runs in real time (SCHED_FIFO, as people pin servers), a thread that
//! got the CPU keeps it, and copies and checks 64 KiB while small requests wait.

#![allow(unsafe_code)]

/// From now on the calling thread runs when no thread in real time wants the CPU. Elsewhere, where
/// the kernel is fair to all, nothing changes.
pub fn give_way() {
    // SAFETY: asks for a number; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR) {
        let ordinary = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters are whole and outlive the call, which keeps nothing. It needs no
        // privilege; should it be refused all the same, the thread stays what it was.
        let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_thread_in_real_time_is_an_ordinary_one_afterwards() {
        let real_time = libc::sched_param { sched_priority: 1 };
        // SAFETY: as in `give_way`.
        let changed =
            unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const real_time) };
        if changed != 0 {
            // Not `println`: the runner of tests keeps what a test that passes prints.
            let _ = writeln!(std::io::stderr(), "SKIPPED: courtesy: no right to SCHED_FIFO");
        }
        give_way();
        // SAFETY: asks for a number.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
    }
}
