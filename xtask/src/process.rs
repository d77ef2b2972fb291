//! Running other programs: where things are, captured and inherited runs, and a guard for children.
//!
//! No child outlives its guard, and only children started here are ever ended, by their id.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How often a bounded wait looks again at what does not tell: a file, a port, another process.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The repository: the folder above this crate's manifest.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .filter(|_| std::env::var("CARGO_PKG_NAME").is_ok_and(|name| name == "xtask"))
        .unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let parent = Path::new(&manifest).parent();
    parent.expect("the manifest of xtask lies one below the root").to_path_buf()
}

/// What we bring along for other people's suites and clients of this name.
pub fn external(name: &str) -> PathBuf {
    root().join("tests-external").join(name)
}

/// Cargo's target folder, as cargo itself would choose it.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A folder of our own below the target folder, made if it is missing.
pub fn scratch_dir(name: &str) -> Result<PathBuf, String> {
    let dir = target_dir().join("xtask").join(name);
    make_dir(&dir)?;
    Ok(dir)
}

/// `cargo`, from the root, without what `cargo run` told this process about xtask itself.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null());
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME"] {
        command.env_remove(name);
    }
    command
}

/// The command as one would type it.
pub fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let mut line = name.to_string_lossy().into_owned();
    line.extend(command.get_args().map(|word| format!(" {}", word.to_string_lossy())));
    line
}

/// Runs to the end with our output; an error names the command and its status.
pub fn run(command: &mut Command) -> Result<(), String> {
    command.stdin(Stdio::null());
    let _ = std::io::stdout().flush();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}` ended with {}", typed(command), told(status))),
        Err(error) => Err(format!("cannot start `{}`: {error}", typed(command))),
    }
}

/// Runs to the end, and nobody types anything meanwhile.
fn output(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|e| format!("cannot start `{}`: {e}", typed(command)))
}

/// Runs to the end and returns status and both outputs, standard output first.
pub fn capture(command: &mut Command) -> Result<(ExitStatus, String), String> {
    let output = output(command)?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status, text))
}

/// Whether it starts and ends well.
pub fn works(command: &mut Command) -> bool {
    capture(command).is_ok_and(|(status, _)| status.success())
}

/// Runs to the end and returns both outputs; an error has them, too.
pub fn said(command: &mut Command) -> Result<String, String> {
    match capture(command)? {
        (status, text) if status.success() => Ok(text),
        (status, text) => {
            Err(format!("`{}` ended with {}: {}", typed(command), told(status), text.trim()))
        }
    }
}

/// Runs to the end and returns what it printed on standard output; an error has what it said beside
/// that.
pub fn printed_bytes(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` ended with {}: {}", typed(command), told(output.status), said.trim()))
}

/// The same as text.
pub fn printed(command: &mut Command) -> Result<String, String> {
    printed_bytes(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What git prints of this repository.
pub fn git(words: &[&str]) -> Result<String, String> {
    printed(Command::new("git").current_dir(root()).args(words))
}

/// The last lines of a text, so many at most.
pub fn tail(text: &str, lines_max: usize) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(lines_max)..].to_vec()
}

/// The first version that a text names: `1.6.45` of `memcached 1.6.45`.
pub fn version(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.find(|word| word.contains('.') && !word.starts_with('.'))
}

/// The numbers of a version, by which versions are compared.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|number| number.parse().ok()).collect()
}

/// The text of a file.
pub fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// The bytes of a file.
pub fn read_bytes(path: impl AsRef<Path>) -> Result<Vec<u8>, String> {
    let path = path.as_ref();
    std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// Writes a file, in the place of the one that is there.
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<(), String> {
    let path = path.as_ref();
    std::fs::write(path, contents).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Makes a folder, and those above it.
pub fn make_dir(path: impl AsRef<Path>) -> Result<(), String> {
    let path = path.as_ref();
    std::fs::create_dir_all(path).map_err(|e| format!("cannot make {}: {e}", path.display()))
}

/// The names in a folder that end so, without that end, in their order.
pub fn named(folder: &Path, end: &str) -> Result<Vec<String>, String> {
    let wrong = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let name = entry.map_err(wrong)?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(end)).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// A status in words: "status 3" or "signal 9".
pub fn told(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}

/// Where an executable lies on the PATH, the system's folders included.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).collect::<Vec<_>>();
    let system = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(PathBuf::from);
    folders.into_iter().chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// What `look` finds; nothing if it does not within `patience`.
pub fn poll<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        let found = look();
        if found.is_some() || deadline <= Instant::now() {
            return found;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A child that is ended when this is dropped.
pub struct Guarded {
    child: Child,
}

impl Guarded {
    /// Starts `command` with both outputs in the file `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Guarded, String> {
        let whine = |e: std::io::Error| format!("cannot write {}: {e}", log.display());
        let out = File::create(log).map_err(whine)?;
        let err = out.try_clone().map_err(whine)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child =
            command.spawn().map_err(|e| format!("cannot start `{}`: {e}", typed(command)))?;
        Ok(Guarded { child })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits at most `patience` for its end.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        poll(patience, || self.ended())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.ended().is_none() {
            for id in descendants(self.id()) {
                signal(id, rustix::process::Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to a process that was started here.
pub fn signal(id: u32, signal: rustix::process::Signal) {
    let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        // It may have ended by itself meanwhile, which is what was wanted.
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// The processes below `id`, children before grandchildren, as /proc tells them now.
fn descendants(id: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may hold anything; the fields after the last one are plain.
        let after = stat.rsplit(')').next().unwrap_or_default();
        if let Some(parent) = after.split_whitespace().nth(1).and_then(|p| p.parse().ok()) {
            parents.push((child, parent));
        }
    }
    let mut found = vec![id];
    let mut next = 0;
    while next < found.len() {
        let parent: u32 = found[next];
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(c, _)| *c));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say_and_compared_as_numbers() {
        for (said, wanted) in [
            ("memcached 1.6.45\n", Some("1.6.45")),
            ("Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0\n", Some("9.1.2")),
            ("Redis server v=8.0.6 sha=00000000:1 malloc=jemalloc-5.3.0\n", Some("8.0.6")),
            ("go version go1.26.8 linux/amd64", Some("1.26.8")),
            ("v20.20.2\n", Some("20.20.2")),
            ("linux-image-6.12.95+deb12-amd64", Some("6.12.95")),
            ("linux-image-amd64", None),
            ("no such thing", None),
        ] {
            assert_eq!(version(said), wanted, "{said}");
        }
        for (less, more) in [("1.6.9", "1.6.45"), ("9.1", "9.1.2"), ("7.0.15", "8.0")] {
            assert!(numbers(less) < numbers(more), "{less}, {more}");
        }
    }
}
