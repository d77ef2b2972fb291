//! What a server does to its own process before it serves: go to the background, change user, raise
//! limits, lock memory, write its pid; and how signals end it.

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{User, daemon, geteuid, initgroups, setgid, setuid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;

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

/// Call `stop` at the first SIGTERM or SIGINT; a second one ends the process at once. SIGUSR1 asks
/// for a graceful end too, as it does of memcached; SIGHUP means nothing, as it does to memcached.
pub fn on_stop_signal(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                continue;
            }
            if asked {
                std::process::exit(128 + signal);
            }
            asked = true;
            stop();
        }
    })?;
    Ok(())
}
