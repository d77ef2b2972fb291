//! What a server does to its own process before it serves: go to the background, change user, raise
//! limits, lock memory, write its pid; and how signals end it.

use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{
    Gid, Uid, User, dup2_stderr, dup2_stdin, dup2_stdout, fchownat, geteuid, getgrouplist, setgid,
    setgroups, setsid, setuid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Descriptors beside those that are asked for: listeners, files, standard streams.
const DESCRIPTORS_BESIDE: u64 = 64;

/// In the environment of a process that `-d` started: it is the one in the background.
const IN_BACKGROUND: &str = "LANEWAY_IN_BACKGROUND";
/// What that process writes to its standard output once it serves.
const READY: &[u8] = b"ready";

/// Leave the terminal (`-d`): the same program starts once more, in a session of its own, and this
/// process waits until it serves. So a start that fails is told on this terminal and by this
/// process's status, which is returned; none in the process that goes on. (A fork alone would do,
/// but for `daemon(3)`, whose first process ends too early to know.)
pub fn go_to_background(config: Option<&OsStr>) -> Result<Option<u8>, String> {
    if let Some(path) = config.map(Path::new).filter(|path| is_read_once(path)) {
        return Err(format!(
            "-d: --config {} is no file, and cannot be read again by the process in the \
             background, which would have every default; name a file, or leave -d out",
            path.display()
        ));
    }
    if is_in_background() {
        // An error would say that it leads a session already.
        let _ = setsid();
        return Ok(None);
    }
    start_again()
        .and_then(status_of_start)
        .map(Some)
        .map_err(|error| format!("-d: cannot go to the background: {error}"))
}

/// Whether this is the process that `-d` has started.
pub fn is_in_background() -> bool {
    std::env::var_os(IN_BACKGROUND).is_some()
}

/// Whether a path is that of a pipe or a terminal: who reads it again finds nothing, or waits.
pub fn is_read_once(path: &Path) -> bool {
    path != Path::new("/dev/null") && path.metadata().is_ok_and(|found| !found.is_file())
}

fn start_again() -> io::Result<Child> {
    let mut args = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = args.next() {
        command.arg0(name); // by which it knows whether it is called memcached
    }
    // The working directory stays, as memcached's does with -r.
    command.args(args).env(IN_BACKGROUND, "1").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

fn status_of_start(mut child: Child) -> io::Result<u8> {
    let mut told = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut told)?;
    }
    if told == READY {
        return Ok(0);
    }
    let status = child.wait()?;
    match status.code() {
        // By a signal that came while it set itself up, which is no failure of its own.
        Some(0) => Err(io::Error::other("the server was told to stop before it served")),
        Some(code) => Ok(code as u8),
        None => Ok((128 + status.signal().unwrap_or_default()) as u8),
    }
}

/// The process in the background serves: whoever waits for it may go, and its streams lead nowhere
/// from now on, but for the log where `keep_log` asks for it.
pub fn tell_ready(keep_log: bool) -> io::Result<()> {
    let nowhere = fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nowhere)?;
    if !keep_log {
        dup2_stderr(&nowhere)?;
    }
    let mut stdout = io::stdout();
    let told = stdout.write_all(READY).and_then(|()| stdout.flush());
    dup2_stdout(&nowhere)?;
    match told {
        // Who waited has gone (its terminal was closed); the server need not.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

/// The user to become (`-u`), with the groups.
pub struct NextUser {
    user: User,
    groups: Vec<Gid>,
}

/// Find that user, if one is named and we are root; otherwise we are somebody already.
pub fn find_user(name: Option<&str>) -> Result<Option<NextUser>, String> {
    let Some(name) = name.filter(|_| geteuid().is_root()) else { return Ok(None) };
    let wrong = |error| format!("-u {name}: {error}");
    let user = User::from_name(name).map_err(wrong)?;
    let user = user.ok_or_else(|| format!("-u {name}: there is no such user; see /etc/passwd"))?;
    if user.uid.is_root() {
        return Ok(None);
    }
    let plain = CString::new(name).map_err(|_| format!("-u {name}: not a user name"))?;
    let groups = getgrouplist(&plain, user.gid).map_err(wrong)?;
    Ok(Some(NextUser { user, groups }))
}

impl NextUser {
    /// Give it the files of sockets that root has made: whoever may open one is said by the owner
    /// and the mode. A refusal is a warning, since clients of other kinds may be there.
    pub fn take_over(&self, sockets: &[PathBuf]) {
        for path in sockets {
            if let Err(error) = give_socket(path, self.user.uid, self.user.gid) {
                log::warn!(
                    "-u {}: {} stays root's, and that user may not be able to open it: {error}",
                    self.user.name,
                    path.display()
                );
            }
        }
    }

    /// Become it.
    pub fn become_it(self) -> Result<(), String> {
        let NextUser { user, groups } = self;
        let become_it = setgroups(&groups).and_then(|()| setgid(user.gid));
        let become_it = become_it.and_then(|()| setuid(user.uid));
        become_it.map_err(|error| format!("-u {}: cannot become that user: {error}", user.name))
    }
}

/// Gives a socket's file away. Whoever may write to its folder may have put a link there meanwhile,
/// a hard one to a file of root's, too: nothing but a socket is given away.
fn give_socket(path: &Path, user: Uid, group: Gid) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = fs::File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::Error::other("it is no socket"));
    }
    Ok(fchownat(&file, "", Some(user), Some(group), AtFlags::AT_EMPTY_PATH)?)
}

/// The limit (`ulimit -n`) that allows so many descriptors, and some beside.
pub fn limit_for_descriptors(asked: usize) -> u64 {
    asked as u64 + DESCRIPTORS_BESIDE
}

/// Allow so many descriptors, and some beside. Returns how many of them there may be.
pub fn raise_descriptors(asked: usize) -> usize {
    let wanted = limit_for_descriptors(asked);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return asked };
    if soft >= wanted {
        return asked;
    }
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_ok()
        || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() && hard >= wanted
    {
        return asked;
    }
    let now = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(soft, _)| soft);
    now.saturating_sub(DESCRIPTORS_BESIDE) as usize
}

/// Let the kernel write a core of any size (`-r`).
pub fn allow_core_dumps() -> Result<(), String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).map_err(|error| format!("-r: {error}"))?;
    setrlimit(Resource::RLIMIT_CORE, hard, hard).map_err(|error| format!("-r: {error}"))
}

/// The same for a process that has become another user, of which the kernel would write none.
pub fn allow_core_dumps_again() -> Result<(), String> {
    set_dumpable(true).map_err(|error| format!("-r: {error}"))
}

/// Number of the right to lock memory beyond the limit (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;

/// Keep all memory resident (`-k`), each page from when it is touched on: what the store reserves
/// and does not use is address space alone. `changes_user`: the process gives its rights up later
/// (`-u`). A refusal is a warning, as it is for memcached.
pub fn lock_memory(changes_user: bool) -> Result<(), String> {
    let limit_bytes = raise_memory_lock();
    if !may_lock(limit_bytes, changes_user, may_lock_beyond_limit()) {
        return Err(format!(
            "-k: memory is not locked: the limit is {} KiB, and behind it all further memory would \
             be refused; raise it by ulimit -l unlimited (LimitMEMLOCK=infinity)",
            limit_bytes >> 10
        ));
    }
    let later = MlockAllFlags::MCL_FUTURE | MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    mlockall(MlockAllFlags::MCL_CURRENT)
        .and_then(|()| mlockall(later))
        .map_err(|error| format!("-k: memory cannot be locked: {error}; raise it by ulimit -l"))
}

/// Raises the limit on locked memory as far as may be, and tells it. A limit that root has raised
/// stays where root becomes another user.
fn raise_memory_lock() -> rlim_t {
    let limits = || getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((0, 0));
    let (_, hard) = limits();
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err() {
        // It may be as high as that already.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
    limits().0
}

/// Whether all memory can be locked for good. Where a limit holds, what is mapped behind it is
/// refused: the store's memory, a thread's stack.
fn may_lock(limit_bytes: rlim_t, changes_user: bool, has_right: bool) -> bool {
    limit_bytes == RLIM_INFINITY || (has_right && !changes_user)
}

/// Whether this process has that right now.
fn may_lock_beyond_limit() -> bool {
    let [status, map] = ["/proc/self/status", "/proc/self/uid_map"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    has_lock_right(&status, &map)
}

/// The same, of what the kernel tells of the process's rights and of its users. The kernel asks for
/// the right over the whole machine: in a container that has users of its own it counts for
/// nothing.
fn has_lock_right(status: &str, map: &str) -> bool {
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    rights.is_some_and(|rights| rights & (1 << CAP_IPC_LOCK) != 0)
        && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A pid file, removed when the server ends, unless another one has written its own there since.
pub struct PidFile {
    path: OsString,
    written: Option<Writing>,
}

/// Which file it is, and when it was written: a sandbox lets nobody read it. A device has none.
type Writing = (u64, u64, SystemTime);

fn last_writing(path: &OsStr) -> Option<Writing> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((found.dev(), found.ino(), found.modified().ok()?))
}

/// Whether something stands there that is no file, such as a pipe.
pub fn is_no_file(path: &OsStr) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

impl PidFile {
    /// Write this process's id.
    pub fn write(path: &OsStr) -> io::Result<PidFile> {
        fs::write(path, format!("{}\n", std::process::id()))?;
        Ok(PidFile { path: path.to_owned(), written: last_writing(path) })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.written.is_some() && last_writing(&self.path) == self.written {
            let _ = fs::remove_file(&self.path); // somebody was faster
        }
    }
}

/// Whoever waits for signals. While the server sets itself up there is nothing to finish, and one
/// ends the process with 0; no thread waits for it meanwhile, as that would keep rights which the
/// others give up.
pub struct StopSignal {
    starting: Arc<AtomicBool>,
    /// SIGHUP has come.
    hung_up: Arc<AtomicBool>,
}

impl StopSignal {
    /// Watch from now on. SIGUSR1 asks for a graceful end too, as it does of memcached. SIGHUP
    /// reloads, and a terminal that closes ends no server.
    pub fn watch() -> io::Result<StopSignal> {
        let starting = Arc::new(AtomicBool::new(true));
        for signal in [SIGTERM, SIGINT, SIGUSR1] {
            flag::register_conditional_shutdown(signal, 0, starting.clone())?;
        }
        let hung_up = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, hung_up.clone())?;
        Ok(StopSignal { starting, hung_up })
    }

    /// Call `stop` at the first one, from now on; a second one ends the process at once. Each
    /// SIGHUP calls `reload`, one that has come before this too. Neither may take long, since the
    /// next signal waits for it.
    pub fn calls(
        self,
        stop: impl Fn() + Send + 'static,
        reload: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
        self.starting.store(false, Ordering::SeqCst); // pairs with the load of the crate's handler
        // Pairs with the store of the crate's handler. One that comes just now may count twice.
        if self.hung_up.load(Ordering::SeqCst) {
            reload();
        }
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                if signal == SIGHUP {
                    reload();
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
}

/// End where what is printed cannot be written, which makes `println!` panic: without a word when
/// nobody reads it any more (`laneway stats | head`), since the standard library ignores SIGPIPE,
/// and with the reason otherwise, as on a full disk. The status is that of a process which the
/// signal has ended, or 1, for 0 would say that all was done.
pub fn end_when_output_fails() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        let Some(why) = text.strip_prefix("failed printing to stdout: ") else {
            return usual(panic);
        };
        if why.contains("Broken pipe") {
            std::process::exit(128 + SIGPIPE);
        }
        let _ = writeln!(io::stderr(), "laneway: standard output: {why}"); // nobody may read it
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_socket_is_given_away() {
        let place = std::env::temp_dir().join(format!("laneway-given-{}", std::process::id()));
        fs::create_dir_all(&place).expect("temp is writable");
        let [socket, file, link] = ["socket", "file", "link"].map(|name| place.join(name));
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("temp is writable");
        fs::write(&file, "precious").expect("temp is writable");
        std::os::unix::fs::symlink(&socket, &link).expect("temp is writable");
        // To whom it belongs anyway, which everybody may.
        let given = [&socket, &file, &link, &place.join("none")]
            .map(|path| give_socket(path, geteuid(), nix::unistd::getegid()).is_ok());
        drop(listener);
        fs::remove_dir_all(&place).expect("it is ours");
        assert_eq!(given, [true, false, false, false]);
    }

    #[test]
    fn a_pid_file_goes_with_its_server_unless_another_has_written_it_since() {
        let path = std::env::temp_dir().join(format!("laneway-pid-file-{}", std::process::id()));
        let own = PidFile::write(path.as_os_str()).expect("temp is writable");
        drop(own);
        assert!(!path.exists());
        let first = PidFile::write(path.as_os_str()).expect("temp is writable");
        fs::write(&path, "1\n").expect("it is ours");
        // Both may have been written in one tick of the kernel's clock.
        let file = fs::File::options().write(true).open(&path).expect("it is there");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("it is ours");
        drop(first);
        let left = fs::read_to_string(&path);
        let _ = fs::remove_file(&path); // it is not there if the test fails
        assert_eq!(last_writing(OsStr::new("/dev/null")), None, "it would be removed");
        assert_eq!(left.ok().as_deref(), Some("1\n"));
    }

    #[test]
    fn memory_is_locked_only_where_later_memory_is_not_refused_for_it() {
        const MIB: rlim_t = 1 << 20;
        for (limit_bytes, changes_user, has_right, locks) in [
            (RLIM_INFINITY, false, false, true),
            (RLIM_INFINITY, true, false, true),
            (64 * MIB, false, true, true),
            (64 * MIB, true, true, false),
            (64 * MIB, false, false, false),
        ] {
            let found = may_lock(limit_bytes, changes_user, has_right);
            assert_eq!(found, locks, "{limit_bytes} {changes_user} {has_right}");
        }
    }

    #[test]
    fn a_right_to_lock_counts_on_the_machine_and_in_no_namespace_of_users() {
        const MACHINE: &str = "         0          0 4294967295\n";
        for (rights, map, has) in [
            ("000001ffffffffff", MACHINE, true),
            ("0000000000004000", MACHINE, true),
            ("000001ffffffbfff", MACHINE, false),
            ("000001ffffffffff", "0 1000 1\n", false),
            ("000001ffffffffff", "0 1000 1\n1 100000 65536\n", false),
            ("000001ffffffffff", "", false),
        ] {
            let status = format!("Name:\tlaneway\nCapEff:\t{rights}\nCapBnd:\t0\n");
            assert_eq!(has_lock_right(&status, map), has, "{rights} {map}");
        }
    }

    #[test]
    fn a_start_that_ended_before_it_served_is_no_success() {
        let ended = |script: &str| {
            let mut command = Command::new("sh");
            let child = command.args(["-c", script]).stdout(Stdio::piped()).spawn();
            status_of_start(child.expect("there is a shell")).map_err(|error| error.to_string())
        };
        assert_eq!(ended("printf ready"), Ok(0));
        assert_eq!(ended("exit 71"), Ok(71));
        assert_eq!(ended("kill -KILL $$"), Ok(128 + 9));
        let words = ended("exit 0").expect_err("nobody serves");
        assert!(words.contains("before it served"), "{words}");
    }
}
