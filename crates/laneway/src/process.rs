//! What a server does to its own process before it serves: go to the background, change user, raise
//! limits, lock memory, write its pid; and how signals end it.

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{User, daemon, geteuid, initgroups, setgid, setuid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptors beside those of connections: listeners, epoll sets, eventfds, standard streams.
const DESCRIPTORS_BESIDE: u64 = 64;

/// Leave the terminal (`-d`). Before any thread exists.
pub fn go_to_background() -> Result<(), String> {
    // The working directory stays, as memcached's does with -r; output goes to /dev/null.
    daemon(true, false).map_err(|error| format!("cannot go to the background: {error}"))
}

/// Become another user (`-u`), if we are root; otherwise we are somebody already.
pub fn become_user(name: &str) -> Result<(), String> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let user = User::from_name(name).map_err(|error| format!("-u {name}: {error}"))?;
    let user = user.ok_or_else(|| format!("-u {name}: there is no such user; see /etc/passwd"))?;
    if user.uid.is_root() {
        return Ok(());
    }
    let wrong = |error| format!("-u {name}: cannot become that user: {error}");
    let plain = CString::new(name).map_err(|_| format!("-u {name}: not a user name"))?;
    initgroups(&plain, user.gid).map_err(wrong)?;
    setgid(user.gid).map_err(wrong)?;
    setuid(user.uid).map_err(wrong)
}

/// Allow as many descriptors as connections need. Returns how many connections fit.
pub fn raise_descriptors(connections: usize) -> usize {
    let wanted = connections as u64 + DESCRIPTORS_BESIDE;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return connections };
    if soft >= wanted {
        return connections;
    }
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_ok()
        || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() && hard >= wanted
    {
        return connections;
    }
    let now = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(soft, _)| soft);
    now.saturating_sub(DESCRIPTORS_BESIDE) as usize
}

/// Let the kernel write a core of any size (`-r`).
pub fn allow_core_dumps() -> Result<(), String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).map_err(|error| format!("-r: {error}"))?;
    setrlimit(Resource::RLIMIT_CORE, hard, hard).map_err(|error| format!("-r: {error}"))
}

/// Keep all memory resident (`-k`). A refusal is a warning, as it is for memcached.
pub fn lock_memory() -> Result<(), String> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|error| format!("-k: memory cannot be locked: {error}; raise it by ulimit -l"))
}

/// A pid file, removed when the server ends.
pub struct PidFile(OsString);

impl PidFile {
    /// Write this process's id.
    pub fn write(path: &OsStr) -> io::Result<PidFile> {
        fs::write(path, format!("{}\n", std::process::id()))?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // somebody was faster
    }
}

/// Whoever waits for signals. While the server sets itself up there is nothing to finish, and one
/// ends the process with 0; no thread waits for it meanwhile, as that would keep rights which the
/// others give up.
pub struct StopSignal {
    starting: Arc<AtomicBool>,
}

impl StopSignal {
    /// Watch from now on. SIGUSR1 asks for a graceful end too, as it does of memcached; SIGHUP
    /// means nothing, as it does to memcached.
    pub fn watch() -> io::Result<StopSignal> {
        let starting = Arc::new(AtomicBool::new(true));
        for signal in [SIGTERM, SIGINT, SIGUSR1] {
            flag::register_conditional_shutdown(signal, 0, starting.clone())?;
        }
        flag::register(SIGHUP, Arc::default())?;
        Ok(StopSignal { starting })
    }

    /// Call this at the first one, from now on; a second one ends the process at once.
    pub fn calls(self, stop: impl Fn() + Send + 'static) -> io::Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1])?;
        self.starting.store(false, Ordering::SeqCst); // pairs with the load of the crate's handler
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                if asked {
                    std::process::exit(128 + signal);
                }
                asked = true;
                stop();
            }
        })?;
        Ok(())
    }
}

/// End without a word when nobody reads our output any more (`laneway stats | head`): for commands
/// that only print. The standard library ignores SIGPIPE, so that `println!` panics instead.
pub fn end_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(0);
        }
        usual(panic);
    }));
}

/// The machine's memory in bytes, where the kernel says.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
