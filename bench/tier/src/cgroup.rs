//! A memory limit for this process, page cache included: a cgroup of its own, version 2 where that
//! has the memory controller, version 1 otherwise. What does not fit is taken from the page cache
//! first; if that is not enough, the kernel ends the process.
//!
//! It has to be entered before the memory is used: what was charged before stays where it was.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const NAME: &str = "laneway-tier-bench-";

/// How one version of cgroups is laid out.
struct Version {
    /// Where they are mounted.
    root: &'static str,
    /// The file that takes the limit.
    limit: &'static str,
    /// What a line of /proc/self/cgroup begins with, behind the hierarchy's number.
    line: &'static str,
    /// Whether the root must be told to pass the memory controller on.
    passes_on: bool,
}

const VERSIONS: [Version; 2] = [
    Version { root: "/sys/fs/cgroup", limit: "memory.max", line: ":", passes_on: true },
    Version {
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        line: "memory:",
        passes_on: false,
    },
];

/// A cgroup that this process is in; dropped, it goes back where it was and the cgroup goes.
pub struct MemoryLimit {
    own: PathBuf,
    before: PathBuf,
}

impl MemoryLimit {
    /// Puts this process under a limit.
    pub fn enter(megabytes: u64) -> Result<MemoryLimit, String> {
        let mut why = Vec::new();
        for version in &VERSIONS {
            match MemoryLimit::enter_in(version, megabytes) {
                Ok(limit) => return Ok(limit),
                Err(error) => why.push(error),
            }
        }
        Err(format!(
            "--memory-mb {megabytes}: no memory cgroup can be made here ({}); as root it usually \
             can; leave the flag out to measure without a limit",
            why.join("; ")
        ))
    }

    fn enter_in(version: &Version, megabytes: u64) -> Result<MemoryLimit, String> {
        let root = Path::new(version.root);
        let of_self = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let path = path_in(&of_self, version.line)
            .ok_or_else(|| format!("{} has no process of ours", version.root))?;
        let before = root.join(path.trim_start_matches('/'));
        if version.passes_on {
            write(&root.join("cgroup.subtree_control"), "+memory")?;
        }
        remove_the_dead(root);
        let own = root.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&own).map_err(|error| format!("{}: {error}", own.display()))?;
        // From here on it is removed whatever happens.
        let limit = MemoryLimit { own, before };
        write(&limit.own.join(version.limit), &(megabytes << 20).to_string())?;
        write(&limit.own.join("cgroup.procs"), &std::process::id().to_string())?;
        Ok(limit)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let id = std::process::id().to_string();
        let left = write(&self.before.join("cgroup.procs"), &id)
            .and_then(|()| fs::remove_dir(&self.own).map_err(|error| error.to_string()));
        if let Err(error) = left {
            eprintln!("{} stays behind: {error}", self.own.display());
        }
    }
}

/// Into a file of the kernel's: never one that this would make, as it would where no cgroups are
/// mounted.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Where a process is in the hierarchy whose lines begin so.
fn path_in<'a>(of_self: &'a str, line_start: &str) -> Option<&'a str> {
    of_self.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(line_start))
}

/// Removes the cgroups of runs that were killed; one that is in use cannot be removed.
fn remove_the_dead(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NAME) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cgroup_is_not_taken_for_one() {
        let folder = std::env::temp_dir().join(format!("laneway-no-cgroup-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        let words = write(&folder.join("memory.max"), "1").expect_err("there is no such file");
        assert!(words.contains("memory.max"), "{words}");
        assert_eq!(fs::read_dir(&folder).expect("there").count(), 0);
        fs::remove_dir(folder).expect("removed");
    }

    #[test]
    fn a_process_is_found_in_either_version() {
        let mixed = "9:name=systemd:/\n4:memory:/a/b\n1:cpu:/\n0::/c\n";
        assert_eq!(path_in(mixed, VERSIONS[0].line), Some("/c"));
        assert_eq!(path_in(mixed, VERSIONS[1].line), Some("/a/b"));
        assert_eq!(path_in("0::/only\n", VERSIONS[1].line), None);
    }
}
