//! Which system calls a server in a sandbox may make (seccomp), by all of its threads: those that
//! serving, reloading and stopping take. No program is run, no thread and no process is made, and
//! no connection is opened. Where a service manager is to be told (NOTIFY_SOCKET), a socket of
//! datagrams to this machine's other processes may be made, and connected to any of theirs, for a
//! filter does not see a path; one of a stream, as daemons have by which commands are given, may
//! not.
//!
//! A call that is not listed fails with EPERM, which the server handles like any other failure, or
//! is let through and logged by the kernel.

use laneway_server::settings::Sandbox;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls that take any arguments.
const CALLS: &[i64] = &[
    // Bytes in and out, of sockets and files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    // Sockets that are there, and those that come.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Descriptors and files.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_copy_file_range,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    libc::SYS_memfd_create,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    // Threads that are there, how they are scheduled, and how they end.
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_prctl,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setparam,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_tgkill,
    libc::SYS_tkill, // `abort` of musl
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    // What time it is, and what the machine and the process have.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_capget,
];

/// The older ones of the same, which other architectures do not have.
#[cfg(target_arch = "x86_64")]
const CALLS_OLD: &[i64] = &[
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_mkdir,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const CALLS_OLD: &[i64] = &[];

/// Refuse other calls from now on, by all threads; `notifies`: a service manager is told.
pub fn guard(sandbox: Sandbox, notifies: bool) -> Result<(), String> {
    let program = program(sandbox, notifies)?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

fn program(sandbox: Sandbox, notifies: bool) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH;
    let arch = TargetArch::try_from(arch).map_err(|_| format!("there is none for {arch}"))?;
    let otherwise = match sandbox {
        Sandbox::On => SeccompAction::Errno(libc::EPERM as u32),
        Sandbox::Log | Sandbox::Off => SeccompAction::Log,
    };
    let told = |error: seccompiler::BackendError| error.to_string();
    let filter =
        SeccompFilter::new(rules(notifies).map_err(told)?, otherwise, SeccompAction::Allow, arch);
    filter.and_then(BpfProgram::try_from).map_err(told)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Of the second argument of `socket`, what is the type; the rest are flags.
const TYPE_MASK: u64 = 0xf;

fn rules(notifies: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = CALLS.iter().chain(CALLS_OLD).map(|call| (*call, Vec::new())).collect();
    // A message that connects its socket (TCP Fast Open) passes no rule for connections.
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        let (fast_open, length) = (libc::MSG_FASTOPEN as u64, SeccompCmpArgLen::Dword);
        let how = SeccompCmpOp::MaskedEq(fast_open);
        let without = SeccompCondition::new(flags, length, how, 0)?;
        rules.insert(call, vec![SeccompRule::new(vec![without])?]);
    }
    if notifies {
        let is = |number, how, value: i32| {
            SeccompCondition::new(number, SeccompCmpArgLen::Dword, how, value as u64)
        };
        let of_family = is(0, SeccompCmpOp::Eq, libc::AF_UNIX)?;
        let of_type = is(1, SeccompCmpOp::MaskedEq(TYPE_MASK), libc::SOCK_DGRAM)?;
        let datagrams = SeccompRule::new(vec![of_family, of_type])?;
        rules.insert(libc::SYS_socket, vec![datagrams]);
        rules.insert(libc::SYS_connect, Vec::new());
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::process::Command;

    #[test]
    fn no_program_is_run_and_no_connection_is_opened() {
        let [quiet, program] =
            [false, true].map(|notifies| program(Sandbox::On, notifies).expect("it has rules"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).expect("it listens");
        // For a thread of its own, so that no other test has it.
        let guarded = std::thread::spawn(move || {
            seccompiler::apply_filter(&program).expect("the kernel has seccomp");
            let refused = |kind: Option<ErrorKind>, what: &str| {
                assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{what}");
            };
            refused(Command::new("/bin/true").spawn().err().map(|e| e.kind()), "a program");
            refused(TcpStream::connect(address).err().map(|e| e.kind()), "a connection");
            refused(TcpListener::bind("127.0.0.1:0").err().map(|e| e.kind()), "a listener");
            refused(UdpSocket::bind("127.0.0.1:0").err().map(|e| e.kind()), "a datagram");
            let thread = std::thread::Builder::new().spawn(|| ());
            refused(thread.err().map(|e| e.kind()), "a thread");
            refused(UnixStream::connect("/run/x").err().map(|e| e.kind()), "a daemon's socket");
            assert!(UnixDatagram::unbound().is_ok(), "the service manager's socket");
            let (mut served, _) = listener.accept().expect("who comes is served");
            std::io::copy(&mut std::io::Read::take(&served.try_clone().unwrap(), 4), &mut served)
                .expect("bytes come and go");
            assert!(std::fs::read("/proc/self/stat").is_ok());
        });
        std::io::Write::write_all(&mut client, b"echo").expect("it is taken");
        let mut got = [0; 4];
        std::io::Read::read_exact(&mut client, &mut got).expect("it comes back");
        assert_eq!(&got, b"echo");
        guarded.join().expect("what it says stands above");
        let unbound = std::thread::spawn(move || {
            seccompiler::apply_filter(&quiet).expect("the kernel has seccomp");
            UnixDatagram::unbound().map_err(|error| error.kind())
        });
        let unbound = unbound.join().expect("it ends");
        assert_eq!(unbound.err(), Some(ErrorKind::PermissionDenied), "with nobody to tell");
    }

    #[test]
    fn a_process_may_abort_with_either_libc() {
        let all = rules(false).expect("they are sound");
        for call in [libc::SYS_tgkill, libc::SYS_tkill] {
            assert_eq!(all.get(&call).map(Vec::len), Some(0), "{call} is let through");
        }
    }

    #[test]
    fn what_gives_power_over_others_is_in_no_list() {
        for notifies in [false, true] {
            let all = rules(notifies).expect("they are sound");
            for call in [libc::SYS_execve, libc::SYS_clone, libc::SYS_bind, libc::SYS_ptrace] {
                assert!(!all.contains_key(&call), "{call}");
            }
            assert!(!all.contains_key(&libc::SYS_socketpair));
            for call in [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg] {
                assert_eq!(all[&call].len(), 1, "{call} is let through without MSG_FASTOPEN alone");
            }
            for call in [libc::SYS_socket, libc::SYS_connect] {
                assert_eq!(all.contains_key(&call), notifies, "{call}");
            }
        }
    }
}
