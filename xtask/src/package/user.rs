//! A server in a root of its own, as a user without rights, and a client that uses it.

use crate::client::Client;
use crate::process::{self, Guarded};
use crate::random::Value;
use crate::server::wait_for_port;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long it may take to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// A small value, and a large one.
const LENGTHS: [usize; 2] = [5, 700_000];

/// Start `words` there as `user`, at this address.
pub fn serve(
    root: &Path,
    user: &str,
    words: &[String],
    address: SocketAddr,
) -> Result<Guarded, String> {
    let log = process::scratch_dir("logs")?.join(format!("package-{}.log", address.port()));
    let mut command = entered(root, user);
    command.args(words).args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
    let typed = process::typed(&command);
    let mut server = Guarded::start(&mut command, &log)?;
    let served = wait_for_port(address, &mut server);
    served.map(|()| server).map_err(|why| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        format!("`{typed}` {why}\n{}", said.trim())
    })
}

/// A command in this root as this user, where it can write nothing if that can be had.
pub fn entered(root: &Path, user: &str) -> Command {
    /// Mounts the root over itself, read-only, in a namespace that ends with the process.
    const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
        exec chroot \"$@\"";
    let user = format!("--userspec={user}");
    let mut command = Command::new("unshare");
    match may_mount() {
        true => {
            command.args(["--mount", "sh", "-c", READ_ONLY]).arg(root);
            command.arg(user).arg(root);
        }
        false => {
            command = Command::new("chroot");
            command.arg(user).arg(root);
        }
    }
    command
}

/// Root in a container may lack CAP_SYS_ADMIN.
pub fn may_mount() -> bool {
    let tried = process::capture(Command::new("unshare").args(["--mount", "true"]));
    tried.is_ok_and(|(status, _)| status.success())
}

/// Store and fetch values, and stop the server, which must end with 0.
pub fn use_and_stop(mut server: Guarded, address: SocketAddr) -> Result<(), String> {
    let mut client = Client::connect(address)?;
    for (key, length) in LENGTHS.into_iter().enumerate() {
        let value = Value { key: key as u64, version: 1, length };
        client.set(&format!("package-{key}"), value)?;
        client.get(&format!("package-{key}"), value)?;
    }
    let status = server.terminate(PATIENCE)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("after SIGTERM the server ended with {}", process::told(status))),
    }
}

/// The user and group that a process runs as, and whether it has any capability.
pub fn rights(id: u32) -> Result<(u32, u32, bool), String> {
    let path = format!("/proc/{id}/status");
    let text = process::read(&path)?;
    let words = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::split_whitespace).ok_or_else(|| format!("{path} has no {name}"))
    };
    let number = |name: &str| {
        let effective = words(name)?.nth(1).and_then(|word| word.parse().ok());
        effective.ok_or_else(|| format!("{path}: {name} is no number"))
    };
    let able = words("CapEff:")?.any(|mask| mask.bytes().any(|digit| digit != b'0'));
    Ok((number("Uid:")?, number("Gid:")?, able))
}
