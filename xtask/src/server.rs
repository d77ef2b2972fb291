//! A server under test on a free loopback port: a release build of Laneway, or another executable.
//!
//! memcached is told apart by its file name: as root it wants `-u`, and it has no subcommand. So
//! are Valkey and Redis, which name a port otherwise.

use crate::{Guarded, peers, process};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// How long a server may take until it answers its port.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take from SIGTERM to its end.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// Whose command line an executable has.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Laneway,
    Memcached,
    /// Redis or Valkey.
    Redis,
}

/// An executable that speaks memcached's protocol, or Redis'.
#[derive(Clone)]
pub struct Executable {
    path: PathBuf,
    kind: Kind,
}

impl Executable {
    /// The release build of this tree; builds it first.
    pub fn laneway() -> Result<Executable, String> {
        process::run(process::cargo().args(["build", "--release", "--quiet", "-p", "laneway"]))?;
        let path = process::target_dir().join("release").join("laneway");
        Ok(Executable { path, kind: Kind::Laneway })
    }

    /// Today's memcached, if `cargo xtask peers` has unpacked it.
    pub fn newest_memcached() -> Option<Executable> {
        peers::program("memcached").map(|path| Executable { path, kind: Kind::Memcached })
    }

    /// Debian stable's memcached, if it is installed.
    pub fn memcached() -> Option<Executable> {
        process::find_program("memcached").map(|path| Executable { path, kind: Kind::Memcached })
    }

    /// `valkey-server` or `redis-server`, if `cargo xtask peers` has unpacked it.
    pub fn redis(program: &str) -> Option<Executable> {
        peers::program(program).map(|path| Executable { path, kind: Kind::Redis })
    }

    /// What `--server` names: a path, or a program of the PATH.
    pub fn named(name: &Path) -> Result<Executable, String> {
        let path = match name.is_file() {
            true => Some(name.to_path_buf()),
            false => process::find_program(&name.to_string_lossy()),
        };
        let Some(path) = path else {
            return Err(format!("--server {}: neither a file nor on the PATH", name.display()));
        };
        let kind = match path.file_name().and_then(|file| file.to_str()) {
            Some("memcached") => Kind::Memcached,
            Some("valkey-server" | "redis-server") => Kind::Redis,
            _ => Kind::Laneway,
        };
        Ok(Executable { path, kind })
    }

    /// What `--server` names, or else this tree's own release build.
    pub fn named_or_laneway(name: Option<&Path>) -> Result<Executable, String> {
        name.map_or_else(Executable::laneway, Executable::named)
    }

    /// Laneway's program at this path in a root of its own, which a wrapper enters.
    pub fn inside(path: &str) -> Executable {
        Executable { path: path.into(), kind: Kind::Laneway }
    }

    /// What it says about its version.
    pub fn version(&self) -> Result<String, String> {
        let flag = if self.kind == Kind::Redis { "--version" } else { "-V" };
        let (_, text) = process::capture(Command::new(&self.path).arg(flag))?;
        Ok(text.lines().next().unwrap_or_default().to_string())
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is memcached and not Laneway.
    pub fn is_memcached(&self) -> bool {
        self.kind == Kind::Memcached
    }

    /// Starts it on a free port with `flags` and waits until it answers.
    pub fn start(&self, name: &str, flags: &[&str]) -> Result<Server, String> {
        self.start_at(name, free_address()?, &[], flags)
    }

    /// As `start`, on this address, called through `wrapper`, such as `chrt -f 1`.
    pub fn start_at(
        &self,
        name: &str,
        address: SocketAddr,
        wrapper: &[&str],
        flags: &[&str],
    ) -> Result<Server, String> {
        let mut server = self.launch(name, address, wrapper, flags)?;
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// What it is called with to serve at an address.
    fn place(&self, address: SocketAddr) -> Vec<String> {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let is_root = rustix::process::geteuid().is_root();
        let words: &[&str] = match self.kind {
            Kind::Laneway => &["serve", "-l", &host, "-p", &port],
            Kind::Memcached if is_root => &["-u", "root", "-l", &host, "-p", &port],
            Kind::Memcached => &["-l", &host, "-p", &port],
            // Without `--save` it would leave a dump in the folder that it was started in.
            Kind::Redis => &["--bind", &host, "--port", &port, "--save", "", "--daemonize", "no"],
        };
        words.iter().map(|word| word.to_string()).collect()
    }

    /// As `start_at`, without waiting until it answers.
    pub fn launch(
        &self,
        name: &str,
        address: SocketAddr,
        wrapper: &[&str],
        flags: &[&str],
    ) -> Result<Server, String> {
        let mut words: Vec<String> = wrapper.iter().map(|w| w.to_string()).collect();
        words.push(self.path.to_string_lossy().into_owned());
        words.extend(self.place(address));
        words.extend(flags.iter().map(|f| f.to_string()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let log = process::scratch_dir("logs")?.join(format!("{name}.log"));
        let child = Guarded::start(&mut command, &log)?;
        Ok(Server { child, address, log, typed: process::typed(&command) })
    }
}

/// A running server; ended when dropped.
pub struct Server {
    child: Guarded,
    address: SocketAddr,
    log: PathBuf,
    typed: String,
}

impl Server {
    /// Waits until its port answers. The error has what it said.
    pub fn wait_until_it_answers(&mut self) -> Result<(), String> {
        wait_for_port(self.address, &mut self.child)
            .map_err(|why| format!("`{}` {why}\n{}", self.typed, self.log().trim()))
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.id(), signal);
    }

    /// Ends it by SIGKILL or SIGTERM; fails unless it ends by the one, and with status 0 by the
    /// other.
    pub fn end_by(&mut self, signal: Signal, patience: Duration) -> Result<(), String> {
        self.check_alive()?;
        self.signal(signal);
        let status = self.end(patience)?;
        let ended_well = match signal {
            Signal::KILL => status.signal() == Some(Signal::KILL.as_raw()),
            _ => status.success(),
        };
        let told = || format!("the server ended with {} by {signal:?}", process::told(status));
        ended_well.then_some(()).ok_or_else(|| format!("{}\n{}", told(), self.log_tail()))
    }

    /// The status of its end, waited for; fails if it does not end in time.
    pub fn end(&mut self, patience: Duration) -> Result<std::process::ExitStatus, String> {
        let ended = self.child.wait(patience);
        ended.ok_or_else(|| format!("the server still runs after {} s", patience.as_secs()))
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id. A wrapper must have become the server by exec for this to be the server's.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended by itself.
    pub fn check_alive(&mut self) -> Result<(), String> {
        match self.child.ended() {
            None => Ok(()),
            Some(status) => {
                Err(format!("the server ended with {}\n{}", process::told(status), self.log_tail()))
            }
        }
    }

    /// SIGTERM; fails unless it then ends in time with status 0.
    pub fn stop(self) -> Result<(), String> {
        self.stop_within(STOP_PATIENCE)
    }

    /// As `stop`, of a server that has much to do before its end.
    pub fn stop_within(mut self, patience: Duration) -> Result<(), String> {
        self.end_by(Signal::TERM, patience)
    }

    fn log_tail(&self) -> String {
        process::tail(&self.log(), 40).join("\n")
    }
}

/// A loopback address that was free a moment ago, another one each time: several threads may start
/// servers. memcached's `-p 0` would mean "no TCP".
pub fn free_address() -> Result<SocketAddr, String> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().expect("nobody panics inside");
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(|e| format!("no free port on 127.0.0.1: {e}"))?;
        let address = listener.local_addr();
        let address = address.map_err(|e| format!("no address of a fresh listener: {e}"))?;
        if given.insert(address.port()) {
            return Ok(address);
        }
    }
}

/// Waits until a program that was started answers at this address.
pub fn wait_for_port(address: SocketAddr, child: &mut Guarded) -> Result<(), String> {
    let look = || match child.ended() {
        Some(status) => {
            Some(Err(format!("ended with {} instead of listening", process::told(status))))
        }
        None => TcpStream::connect_timeout(&address, CONNECT_PATIENCE).ok().map(|_| Ok(())),
    };
    let late = || Err(format!("did not answer on {address} in {START_PATIENCE:?}"));
    process::poll(START_PATIENCE, look).unwrap_or_else(late)
}
