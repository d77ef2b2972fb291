//! What tests of real servers ask of the machine: descriptors, folders of their own, what /proc
//! tells of a process, waits that end.

use crate::{Failure, Server, process, skipped};
use laneway_load::cpu::{CpuTime, of_process};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// How long something that takes no time on an idle machine may take before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Skips where this process may not do this, which takes root.
pub fn need_root(what: &str) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        skipped(format!("{what} takes root"))
    }
}

/// Skips where a program is missing; `packages`: how Debian has it.
pub fn need_programs(names: &[&str], packages: &str) -> Result<(), Failure> {
    match names.iter().find(|name| process::find_program(name).is_none()) {
        None => Ok(()),
        Some(name) => skipped(format!("{name} is not here (Debian: {packages})")),
    }
}

/// Lets this process open as many descriptors as the system allows it.
pub fn allow_descriptors() {
    let now = getrlimit(Resource::Nofile);
    // A refusal shows as soon as they are used up.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}

/// Skips where so many connections cannot be opened, by this process or by the server.
pub fn need_descriptors(connections: usize) -> Result<(), Failure> {
    /// What a process has open beside them: files, listeners, event queues.
    const BESIDE: u64 = 128;
    let needed = connections as u64 + BESIDE;
    match getrlimit(Resource::Nofile).maximum.filter(|limit| *limit < needed) {
        None => Ok(()),
        Some(limit) => {
            skipped(format!("ulimit -Hn is {limit}, and {connections} connections take {needed}"))
        }
    }
}

/// An empty folder, removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Of this name, below the target folder.
    pub fn make(name: &str) -> Result<Folder, String> {
        let path = process::scratch_dir("folders")?.join(name);
        let _ = std::fs::remove_dir_all(&path); // what a killed run left
        std::fs::create_dir(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Folder(path))
    }

    /// The path of a file in it, or of itself for "".
    pub fn file(&self, name: &str) -> String {
        let path = if name.is_empty() { self.0.clone() } else { self.0.join(name) };
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // the next run tries again
    }
}

/// Resident memory in KiB.
pub fn resident_kib(id: u32) -> Result<u64, String> {
    let bytes = laneway_load::cpu::resident_bytes(id);
    bytes.map(|bytes| bytes >> 10).map_err(|e| format!("the server's memory cannot be read: {e}"))
}

/// A connection whose reads and writes end in time.
pub fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)
        .map_err(|e| format!("cannot connect to {address}: {e}"))?;
    let set = stream.set_read_timeout(Some(PATIENCE));
    set.and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .map_err(|e| format!("cannot set up a connection: {e}"))?;
    Ok(stream)
}

/// Fails if resident memory has grown by `most_mib` since it was `before_kib`; by how much, MiB.
pub fn grown_mib(server: &Server, before_kib: u64, most_mib: u64) -> Result<u64, String> {
    let grown = resident_kib(server.id())?.saturating_sub(before_kib) >> 10;
    let bounded = grown < most_mib;
    bounded.then_some(grown).ok_or_else(|| format!("memory grew by {grown} MiB, below {most_mib}"))
}

/// What the scheduler has given the threads of a process.
pub fn cpu_time(id: u32) -> Result<CpuTime, String> {
    of_process(id).map_err(|e| format!("the server's CPU time cannot be read: {e}"))
}

/// Waits for threads that are clients; fails if one did.
pub fn join<'scope>(
    clients: impl IntoIterator<Item = ScopedJoinHandle<'scope, Result<(), String>>>,
) -> Result<(), String> {
    let joined = |client: ScopedJoinHandle<'scope, Result<(), String>>| {
        client.join().unwrap_or_else(|_| Err("a client panicked".into()))
    };
    clients.into_iter().try_for_each(joined)
}

/// How many descriptors it has open.
pub fn descriptors(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
}

/// Waits until `holds`; fails after [`PATIENCE`].
pub fn wait_until(
    what: &str,
    mut holds: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let look = || match holds() {
        Ok(false) => None,
        held => Some(held.map(|_| ())),
    };
    let late = || Err(format!("{what}: not within {} s", PATIENCE.as_secs()));
    process::poll(PATIENCE, look).unwrap_or_else(late)
}
