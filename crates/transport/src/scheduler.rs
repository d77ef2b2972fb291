//! What a worker's thread asks of the kernel's scheduler.
//!
//! Where CPUs are shared, by workers or with other programs, a worker that wakes for a small
//! request waits until whoever runs there has used up a *time slice*, milliseconds by default: as
//! long as the transfer of a large value takes. From Linux 6.12 on a thread may ask for shorter
//! slices for itself, without any right: it is then owed no more time than others, but gets what it
//! is owed sooner, in smaller pieces, and when it wakes it takes the CPU from a thread with longer
//! slices.

#![allow(unsafe_code)]

/// The shortest slice that the kernel grants.
pub const SLICE_NANOS: u64 = 100_000;

/// From now on the calling thread has time slices of [`SLICE_NANOS`]; whether it has. A thread in
/// real time, or one that whoever started it made a background one, stays what it is, and an older
/// kernel knows no such thing.
pub fn take_short_slices() -> bool {
    let Some(mut attributes) = attributes() else { return false };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    attributes.sched_runtime = SLICE_NANOS;
    set(&attributes) && self::attributes().is_some_and(|found| found.sched_runtime == SLICE_NANOS)
}

/// From now on the calling thread gives way to every other: it does not take the CPU from who runs
/// when it wakes (`SCHED_BATCH`), has the CPU taken from it within [`SLICE_NANOS`] by who wakes,
/// and where others want the CPU all the time, too, it gets the share that `nice` says. A thread
/// in real time stays what it is; an older kernel takes the CPU from it later.
pub fn give_way(nice: i32) {
    let Some(mut attributes) = attributes() else { return };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_policy = libc::SCHED_BATCH as u32;
    attributes.sched_nice = attributes.sched_nice.saturating_add(nice).min(NICE_MAX);
    attributes.sched_runtime = SLICE_NANOS;
    // Refused, it only has more of the CPU.
    let _ = set(&attributes);
}

/// The niceness of who gets least.
const NICE_MAX: i32 = 19;

/// Sets those of the calling thread; whether it was allowed.
fn set(attributes: &libc::sched_attr) -> bool {
    // SAFETY: the attributes are whole, say how long they are, and outlive the call, which keeps
    // nothing. 0 is the calling thread. Should it be refused, the thread stays what it was.
    let changed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
    changed == 0
}

/// Those of the calling thread.
fn attributes() -> Option<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all of it are numbers, for which 0 is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes `size` bytes at most, which is what there is room for.
    let told = unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, libc::c_ulong::from(size), 0)
    };
    (told == 0).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn slices_become_short_and_nothing_else_changes() {
        // A thread of its own, so that no other test has what is asked for here.
        let thread = std::thread::spawn(|| {
            let before = attributes().expect("every Linux tells them");
            let is_short = take_short_slices();
            (before, is_short, attributes().expect("as before"))
        });
        let (before, is_short, after) = thread.join().expect("it asks and ends");
        assert_eq!(before.sched_policy, after.sched_policy);
        assert_eq!(before.sched_nice, after.sched_nice);
        match is_short {
            true => assert_eq!(after.sched_runtime, SLICE_NANOS),
            false => {
                // Not `println`: the runner of tests keeps what a test that passes prints.
                let why = "SKIPPED: short time slices: they need Linux 6.12\n";
                std::io::stderr().write_all(why.as_bytes()).expect("stderr is open");
                assert_eq!(before.sched_runtime, after.sched_runtime);
            }
        }
    }

    #[test]
    fn who_gives_way_has_a_lower_share_and_takes_the_cpu_from_nobody() {
        let thread = std::thread::spawn(|| {
            let before = attributes().expect("every Linux tells them");
            give_way(10);
            (before, attributes().expect("as before"))
        });
        let (before, after) = thread.join().expect("it asks and ends");
        assert_eq!(after.sched_policy, libc::SCHED_BATCH as u32);
        assert_eq!(after.sched_nice, (before.sched_nice + 10).min(NICE_MAX));
    }
}
