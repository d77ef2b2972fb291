//! Kernels under which the programs are not safe: those of PREEMPT_RT, whose softirqs can be
//! preempted. The programs have working memory for each CPU, and two packets would share it there.

/// Why, and what to do.
pub(crate) const WHY: &str = "this kernel is built with PREEMPT_RT, under which one packet's \
                              program can interrupt another's on the same CPU; do without, or \
                              start another kernel";

/// Whether this kernel is one of them.
pub(crate) fn is_realtime() -> bool {
    is_said(&rustix::system::uname().version().to_string_lossy())
}

/// Whether a version, as `uname -v` has it, says so.
fn is_said(version: &str) -> bool {
    version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

/// Refuse such a kernel.
#[cfg(feature = "kernel")]
pub(crate) fn refuse(what: &str) -> Result<(), crate::error::Error> {
    if is_realtime() { Err(crate::error::Error::said(what, WHY)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_preempts_softirqs_is_known_by_its_version() {
        for (version, expected) in [
            ("#1 SMP PREEMPT_RT Debian 6.12.9-1 (2025-01-10)", true),
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1 (2025-01-10)", false),
            ("#1 SMP", false),
        ] {
            assert_eq!(is_said(version), expected, "{version}");
        }
    }
}
