//! What the faults ask of the machine: descriptors, folders of their own, what /proc tells of a
//! process, waits that end.

use crate::process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long something that takes no time on an idle machine may take before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this process may mount, make namespaces and cgroups.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets this process open as many descriptors as the system allows it.
pub fn allow_descriptors() {
    let now = getrlimit(Resource::Nofile);
    // A refusal shows as soon as they are used up.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}

/// Why so many connections cannot be opened here, by this process or by the server.
pub fn too_few_descriptors(connections: usize) -> Option<String> {
    /// What a process has open beside them: files, listeners, event queues.
    const BESIDE: u64 = 128;
    let needed = connections as u64 + BESIDE;
    let limit = getrlimit(Resource::Nofile).maximum.filter(|limit| *limit < needed)?;
    Some(format!("ulimit -Hn is {limit}, and {connections} connections take {needed}"))
}

/// An empty folder, removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Of this name, below the target folder.
    pub fn make(name: &str) -> Result<Folder, String> {
        let path = process::scratch_dir("faults")?.join(name);
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
    let text = std::fs::read_to_string(format!("/proc/{id}/status"))
        .map_err(|e| format!("the server's memory cannot be read: {e}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| "no VmRSS in /proc/PID/status".to_string())
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
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if deadline < Instant::now() {
            return Err(format!("{what}: not within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(process::POLL_INTERVAL);
    }
    Ok(())
}
