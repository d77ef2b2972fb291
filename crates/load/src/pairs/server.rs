//! A server under measurement: started on a loopback port of its own or a unix socket, pinned to
//! one CPU under SCHED_FIFO, ended when dropped. Or one that somebody else started, of whom we know
//! an address only, and whom we leave as it is.
//!
//! Pinning and scheduling are done by `taskset` and `chrt` of util-linux around the server's
//! command: they replace themselves by it, so the child's process number is the server's. `setpriv`
//! has the kernel end it should we be killed. Without the right to SCHED_FIFO it runs without, and
//! says so. A definition may have it under the ordinary scheduler, on its one CPU or on every one;
//! where nothing is timed it has every one.
//!
//! Servers that are compared share their CPUs. What an idle one still does would disturb the one
//! that is measured, and one that spins would leave it no CPU, so each is stopped but for its own
//! runs ([`Server::while_awake`]).

use super::Options;
use super::definition::{Definition, Kind, ServerDefinition};
use super::namespace::Namespace;
use super::process;
use crate::admin;
use crate::connection::Target;
use crate::cpu::{HALTS_AT_ONCE, Machine, SERVER_CPU};
use crate::dialect::Dialect;
use laneway_tls::ClientFiles;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer, and to end. It tells nobody, so it is asked.
const STARTED_WITHIN: Duration = Duration::from_secs(20);
const ENDED_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A signal reaches a thread as soon as that has a CPU.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
/// The kernel tells it to who looks, and a wait of its own has no end.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What the words in braces of a command stand for, and what goes around it.
#[derive(Debug)]
pub struct Places {
    options: Options,
    folder: PathBuf,
    memory_mb: u64,
    /// What goes before a server's command.
    wrapper: Vec<String>,
    /// Where the servers are, if not here.
    namespace: Option<Namespace>,
    /// Whether the servers run under SCHED_FIFO.
    pub real_time: bool,
}

impl Places {
    /// Looks at what this machine allows.
    pub fn new(options: &Options, definition: &Definition) -> Result<Self, String> {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if cpus < 2 {
            return Err("one CPU for the servers and one for the client are needed".into());
        }
        let mut places = Places::unpinned(options, definition.memory_mb)?;
        if definition.place.netns {
            let namespace = places.namespace.insert(Namespace::new()?);
            places.wrapper.extend(namespace.wrapper());
        }
        // What only counts requests is to be seen as threads run everywhere, on every CPU.
        let is_timed = !definition.place.every_cpu
            && definition.runs.iter().any(|run| definition.kind_of(run) != Kind::Balance);
        let wants_real_time = is_timed && !definition.place.ordinary;
        let mut fifo = Command::new("chrt");
        fifo.args(["-f", "1", "true"]).stderr(Stdio::null());
        places.real_time = wants_real_time && fifo.status().is_ok_and(|status| status.success());
        if is_timed {
            places.wrapper.extend(words(&format!("taskset -c {SERVER_CPU}")));
        }
        if places.real_time {
            places.wrapper.extend(words("chrt -f 1"));
        } else if wants_real_time {
            eprintln!("warning: no right to SCHED_FIFO here: the tails are other processes' noise");
        }
        if is_timed && Machine::this().halt_poll_ns == Some(0) {
            eprintln!("warning: {HALTS_AT_ONCE}");
        }
        Ok(places)
    }

    /// For servers that run wherever the scheduler puts them: nothing about them is timed.
    pub fn unpinned(options: &Options, memory_mb: u64) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("laneway-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
        Ok(Places {
            options: options.clone(),
            folder,
            memory_mb,
            wrapper: words("setpriv --pdeathsig KILL"),
            namespace: None,
            real_time: false,
        })
    }

    /// The address of the servers.
    fn host(&self) -> &str {
        self.namespace.as_ref().map_or("127.0.0.1", |namespace| namespace.host.as_str())
    }

    /// A program's command, with what goes around it: its CPU and its scheduler.
    pub fn around(&self, command: &str) -> Vec<String> {
        let folder = self.options.laneway.parent().unwrap_or(Path::new("."));
        let command = command
            .replace("{examples}", &folder.join("examples").to_string_lossy())
            .replace("{release}", &folder.to_string_lossy());
        self.wrapper.iter().cloned().chain(words(&command)).collect()
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // It lies in the temporary folder; what cannot be removed does no harm there.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Absent where somebody else started it.
    child: Option<Child>,
    /// Where it listens.
    pub target: Target,
    /// What it speaks.
    pub dialect: Dialect,
    /// Where its metrics are told, as its command says.
    pub admin: Option<String>,
    /// Where it makes backups, as its command says.
    pub backups: Option<PathBuf>,
}

impl Server {
    /// Starts it and waits until it answers. It is awake.
    pub fn start(definition: &ServerDefinition, places: &Places) -> Result<Self, String> {
        let name = &definition.name;
        if let Some(address) = &definition.address {
            let target = Target::Tcp(address.clone());
            let dialect = definition.dialect;
            let server = Server { child: None, target, dialect, admin: None, backups: None };
            server.version().map_err(|error| format!("{name} at {address}: {error}"))?;
            return Ok(server);
        }
        if definition.command.contains("{data}") {
            on_a_disk(&places.folder).map_err(|why| format!("{name}: {why}"))?;
        }
        // One that was free a moment ago.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|one| one.local_addr());
        let port = free.map_err(|error| format!("no free port: {error}"))?.port();
        let socket = places.folder.join(format!("{name}-{port}.sock"));
        let command = expand(&definition.command, places, port, &socket);
        // Not every server makes its own.
        for (word, extension) in [("{data}", "data"), ("{copies}", "copies")] {
            if definition.command.contains(word) {
                let made = socket.with_extension(extension);
                std::fs::create_dir_all(&made).map_err(|error| format!("{made:?}: {error}"))?;
            }
        }
        let log_path = places.folder.join(format!("{name}-{port}.log"));
        let log = File::create(&log_path).map_err(|error| format!("{log_path:?}: {error}"))?;
        let log_too = log.try_clone().map_err(|error| format!("{log_path:?}: {error}"))?;
        let words: Vec<String> = places.wrapper.iter().chain(&command).cloned().collect();
        let mut started = process::command(&words);
        started.current_dir(&places.options.root).stdout(log).stderr(log_too);
        let child = started.spawn().map_err(|error| format!("{}: {error}", words[0]))?;
        let address = format!("{}:{port}", places.host());
        let target = if definition.command.contains("{socket}") {
            Target::Unix(socket)
        } else if definition.tls {
            let ca = Some(super::tls_ca(&places.options.root));
            let files = ClientFiles { ca, ..ClientFiles::default() };
            let client = files.read(&address)?;
            Target::Tls(address, client)
        } else {
            Target::Tcp(address)
        };
        let value = |flag: &str| {
            let at = command.iter().position(|word| word == flag)?;
            command.get(at + 1).cloned()
        };
        let (admin, backups) = (value("--admin"), value("--backup-dir").map(PathBuf::from));
        let dialect = definition.dialect;
        let mut server = Server { child: Some(child), target, dialect, admin, backups };
        server.wait_for_answer().map_err(|error| {
            let log = std::fs::read_to_string(&log_path).unwrap_or_default();
            format!("{name} ({}): {error}\n{log}", command.join(" "))
        })?;
        Ok(server)
    }

    fn wait_for_answer(&mut self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                return Err(format!("ended at once: {status}"));
            }
            match admin::version(&self.target, self.dialect) {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > STARTED_WITHIN => {
                    return Err(format!("does not answer: {error}"));
                }
                Err(_) => std::thread::sleep(ASK_EVERY),
            }
        }
    }

    /// Does something with it awake. It is stopped (SIGSTOP) afterwards if it is ours, and what it
    /// was in the middle of waits until it is needed again.
    pub fn while_awake<T>(&self, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let Some(pid) = self.process() else { return act() };
        signal(pid, Signal::CONT)?;
        let done = act();
        // Stopped also where it failed: others go on being measured.
        signal(pid, Signal::STOP)?;
        wait_until_stopped(pid)?;
        done
    }

    /// Says how it ended, if it was ours and is gone.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!("has ended by itself ({status})"))
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(self.pid()? as i32)
    }

    /// Its process number, where we started it.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What it calls its version.
    pub fn version(&self) -> Result<String, String> {
        admin::version(&self.target, self.dialect).map_err(|error| error.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = self.process();
        let Some(child) = &mut self.child else { return };
        if let Some(pid) = process {
            // Who is stopped does not hear that it is to end.
            let _ = kill_process(pid, Signal::CONT);
            let _ = kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if asked.elapsed() > ENDED_WITHIN {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

fn signal(pid: Pid, signal: Signal) -> Result<(), String> {
    let number = pid.as_raw_nonzero();
    kill_process(pid, signal).map_err(|error| format!("process {number}: {error}"))
}

/// Waits until every thread of a process has stopped; or has ended, which others find out.
fn wait_until_stopped(pid: Pid) -> Result<(), String> {
    // It stays as it is for who waits for its end.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let (number, begun) = (pid.as_raw_nonzero(), Instant::now());
    loop {
        match waitid(WaitId::Pid(pid), options | WaitIdOptions::NOHANG) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) | Err(rustix::io::Errno::INTR) if begun.elapsed() < STOPPED_WITHIN => {
                std::thread::sleep(LOOK_EVERY);
            }
            Ok(None) => return Err(format!("process {number} does not stop")),
            Err(error) => return Err(format!("process {number}: {error}")),
        }
    }
}

/// Where a program of this name lies: in `peers`, or else where a shell would find it.
pub fn find_program(name: &str, peers: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| name.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::iter::once(peers.to_owned()).chain(std::env::split_paths(&path));
    places.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// Refuses a folder that lies in memory: what is read from there is read from no disk.
fn on_a_disk(folder: &Path) -> Result<(), String> {
    const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6]; // tmpfs, ramfs (linux/magic.h)
    let there = rustix::fs::statfs(folder).map_err(|error| format!("{folder:?}: {error}"))?;
    match IN_MEMORY.contains(&(there.f_type as u32)) {
        false => Ok(()),
        true => Err(format!(
            "{folder:?} lies in memory, and a data folder is to be read from a disk: have TMPDIR \
             name a folder on one"
        )),
    }
}

/// The words of a line; `''` is an empty word.
pub fn words(line: &str) -> Vec<String> {
    let without_end = || line.split_ascii_whitespace().map(str::to_owned).collect();
    shlex::split(line).unwrap_or_else(without_end) // of a quote: it is then a part of its word
}

fn expand(command: &str, places: &Places, port: u16, socket: &Path) -> Vec<String> {
    let options = &places.options;
    let one = |word: String| {
        word.replace("{laneway}", &options.laneway.to_string_lossy())
            .replace("{unobserved}", &super::unobserved(&options.root).to_string_lossy())
            .replace("{tls}", &options.root.join(super::TLS).to_string_lossy())
            .replace("{port}", &port.to_string())
            .replace("{next}", &port.wrapping_add(1).to_string())
            .replace("{host}", places.host())
            .replace("{socket}", &socket.to_string_lossy())
            .replace("{door}", &socket.with_extension("door").to_string_lossy())
            .replace("{data}", &socket.with_extension("data").to_string_lossy())
            .replace("{copies}", &socket.with_extension("copies").to_string_lossy())
            .replace("{memory}", &places.memory_mb.to_string())
    };
    let mut words: Vec<String> = words(command).into_iter().map(one).collect();
    if let Some(program) = words.first_mut()
        && let Some(path) = find_program(program, &options.peers)
    {
        *program = path.to_string_lossy().into_owned();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::builtin::BUILTIN;
    use crate::pairs::definition;

    #[test]
    fn commands_are_expanded() {
        let mut options = Options::new(Path::new("/r"));
        options.laneway = "/r/laneway".into();
        let places = Places {
            options,
            folder: "/none/such".into(),
            memory_mb: 64,
            wrapper: vec![],
            namespace: None,
            real_time: false,
        };
        let expanded = |command: &str| expand(command, &places, 7, Path::new("/s.sock"));
        let command = "{laneway} serve -l {host} -p {port} -U {next} -s {socket} --shm {door} \
                       -m {memory} '' --data-dir {data} --backup-dir {copies}";
        let expected = "/r/laneway serve -l 127.0.0.1 -p 7 -U 8 -s /s.sock --shm /s.door \
                        -m 64 '' --data-dir /s.data --backup-dir /s.copies";
        assert_eq!(expanded(command), words(expected));
        // A quote keeps words together, if it has an end.
        assert_eq!(words("a 'b c' ''"), ["a", "b c", ""]);
        assert_eq!(words("a 'b c"), ["a", "'b", "c"]);
        for (id, text) in BUILTIN {
            for server in definition::parse(text).expect(id).servers {
                let left = expanded(&server.command).into_iter().find(|word| word.contains('{'));
                assert_eq!(left, None, "{id}");
            }
        }
    }

    #[test]
    fn a_folder_in_memory_is_no_place_to_read_from_a_disk() {
        let refused = on_a_disk(Path::new("/dev/shm")).expect_err("it is a tmpfs");
        assert!(refused.contains("TMPDIR"), "{refused}");
        assert_eq!(on_a_disk(Path::new("/proc")), Ok(()), "no disk either, but none in memory");
        assert!(on_a_disk(Path::new("/none/such")).is_err());
    }
}
