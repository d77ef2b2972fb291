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

/// The numbers of calls, by libc's names.
macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// Calls that take any arguments.
const CALLS: &[i64] = calls! {
    // Bytes in and out, of sockets and files.
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
    SYS_preadv2 SYS_pwritev2 SYS_recvfrom SYS_recvmsg SYS_recvmmsg SYS_sendfile SYS_splice
    SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_cancel SYS_io_destroy
    // Sockets that are there, and those that come.
    SYS_accept SYS_accept4 SYS_shutdown SYS_getsockname SYS_getpeername SYS_getsockopt
    SYS_setsockopt
    // Waiting.
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_ppoll SYS_pselect6 SYS_futex
    SYS_nanosleep SYS_clock_nanosleep SYS_sched_yield SYS_restart_syscall
    // Descriptors and files.
    SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_pipe2 SYS_fcntl SYS_ioctl SYS_lseek SYS_openat
    SYS_openat2 SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat
    SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_unlinkat SYS_renameat SYS_renameat2
    SYS_linkat SYS_mkdirat SYS_ftruncate SYS_fallocate SYS_fsync SYS_fdatasync SYS_sync_file_range
    SYS_fadvise64 SYS_readahead SYS_copy_file_range SYS_flock SYS_fchmod SYS_fchmodat SYS_umask
    SYS_memfd_create
    // Memory.
    SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_mincore SYS_msync SYS_mlock
    SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall SYS_brk SYS_membarrier SYS_mbind
    SYS_set_mempolicy SYS_get_mempolicy
    // Threads that are there, how they are scheduled, and how they end.
    SYS_set_robust_list SYS_get_robust_list SYS_rseq SYS_set_tid_address SYS_prctl
    SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getattr SYS_sched_setattr
    SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_getparam SYS_sched_setparam
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_getpriority SYS_setpriority
    SYS_getcpu SYS_gettid SYS_getpid SYS_getppid SYS_tgkill
    SYS_tkill // `abort` of musl
    SYS_exit SYS_exit_group
    // Signals.
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_sigaltstack
    // What time it is, and what the machine and the process have.
    SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_getrandom SYS_getrusage SYS_prlimit64
    SYS_getrlimit SYS_times SYS_uname SYS_sysinfo SYS_getuid SYS_geteuid SYS_getgid SYS_getegid
    SYS_capget
};

/// The older ones of the same, which other architectures do not have.
#[cfg(target_arch = "x86_64")]
const CALLS_OLD: &[i64] = calls! {
    SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_poll SYS_select SYS_open SYS_stat SYS_lstat
    SYS_access SYS_readlink SYS_getdents SYS_unlink SYS_rename SYS_link SYS_mkdir SYS_chmod
    SYS_dup2 SYS_pipe SYS_time SYS_arch_prctl
};
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
