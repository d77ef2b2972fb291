//! A server in a root of its own, as a user without rights, and a client that uses it.

use crate::server::{Executable, Server, free_address};
use crate::{Client, Value, process};
use std::path::Path;
use std::process::Command;

/// A small value, and a large one.
const LENGTHS: [usize; 2] = [5, 700_000];

/// Start `words` there as `user`.
pub fn serve(root: &Path, user: &str, words: &[String]) -> Result<Server, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [program, "serve", flags @ ..] = &words[..] else {
        return Err(format!("{words:?} serve nothing"));
    };
    let wrapper = entered(root, user);
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    Executable::inside(program).start_at("package", free_address()?, &wrapper, flags)
}

/// What runs a program in this root as this user, where it can write nothing if that can be had.
pub fn entered(root: &Path, user: &str) -> Vec<String> {
    /// Mounts the root over itself, read-only, in a namespace that ends with the process.
    const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
        exec chroot \"$@\"";
    let (root, user) = (root.display().to_string(), format!("--userspec={user}"));
    let words: &[&str] = match may_mount() {
        true => &["unshare", "--mount", "sh", "-c", READ_ONLY, &root, &user, &root],
        false => &["chroot", &user, &root],
    };
    words.iter().map(|word| word.to_string()).collect()
}

/// Root in a container may lack CAP_SYS_ADMIN.
pub fn may_mount() -> bool {
    process::works(Command::new("unshare").args(["--mount", "true"]))
}

/// Store and fetch values, and stop the server, which must end with 0.
pub fn use_and_stop(server: Server) -> Result<(), String> {
    let mut client = Client::connect(server.address())?;
    for (key, length) in LENGTHS.into_iter().enumerate() {
        let value = Value { key: key as u64, version: 1, length };
        client.turn(&format!("package-{key}"), value)?;
    }
    server.stop()
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
