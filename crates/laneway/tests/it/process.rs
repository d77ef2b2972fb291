//! What a server asks of its process before it serves: descriptors, memory that stays resident,
//! another user.

use crate::rig::{BINARY, HERE, Process, SIZES, ask, skip};
use laneway_certs::Folder;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

/// `laneway serve` with these flags, after a shell has set these limits.
fn limited(limits: &str, flags: &[&str]) -> Process {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits} exec \"$0\" serve \"$@\""), BINARY]);
    shell.args(HERE).args(flags);
    Process::start(shell).unwrap_or_else(|said| panic!("{limits} {flags:?}: {said}"))
}

/// A number of what the kernel tells of the process, in KiB where it is of memory.
fn status(server: &Process, field: &str) -> u64 {
    let path = format!("/proc/{}/status", server.child.id());
    let text = fs::read_to_string(path).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).expect("Linux tells it")
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("Linux has it").uid() == 0
}

#[test]
fn memory_that_is_locked_is_what_is_used_and_not_what_is_reserved() {
    let server = limited("", &["-k", "-m", "64", "-t", "1"]);
    if server.said.contains("-k: memory") {
        return skip("process", "memory cannot be locked here");
    }
    // The store's address space is a gigabyte at least.
    assert!(status(&server, "VmLck") > 1 << 20, "new memory is locked");
    assert!(status(&server, "VmRSS") < 256 << 10, "{} KiB", status(&server, "VmRSS"));
    let stored = ask(&mut server.connect(), b"set k 0 0 1\r\nv\r\n", b"\r\n");
    assert_eq!(stored, b"STORED\r\n");
    server.stop();
}

#[test]
fn a_pid_file_that_cannot_be_written_is_named() {
    let server = limited("", &["--sandbox", "off", "-P", "/dev/null/pid"]);
    let told = "-P /dev/null/pid: cannot be written: ";
    assert!(server.said.contains(told), "{}", server.said);
    server.stop();
}

#[test]
fn a_limit_on_locked_memory_refuses_no_start() {
    // Root raises it; the user that it becomes has what root had, or else nothing is locked.
    let as_user: &[&str] = if is_root() { &["-u", "nobody"] } else { &[] };
    let flags = [&["-k", "-m", "64", "-t", "1"][..], as_user].concat();
    let server = limited("ulimit -l 64;", &flags);
    let is_locked = status(&server, "VmLck") > 0;
    assert_ne!(is_locked, server.said.contains("-k: memory"), "{}", server.said);
    server.stop();
}

#[test]
fn sockets_are_those_of_the_user_that_root_becomes() {
    if !is_root() {
        return skip("process", "root alone can become another user");
    }
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name);
    let [socket, door] = [path("socket"), path("door")];
    let [unix, shm] = [&socket, &door].map(|path| path.to_str().expect("text"));
    let flags = ["-u", "nobody", "-s", unix, "-a", "770", "--shm", shm];
    let server = Process::serve(&flags);
    let (user, group) = (status(&server, "Uid"), status(&server, "Gid"));
    assert!(user != 0 && group != 0);
    for (path, mode) in [(&socket, 0o770), (&door, 0o700)] {
        let file = fs::metadata(path).expect("it listens");
        let told = (u64::from(file.uid()), u64::from(file.gid()), file.permissions().mode());
        assert_eq!((told.0, told.1, told.2 & 0o777), (user, group, mode), "{}", path.display());
    }
    server.stop();
}

#[test]
fn a_folder_for_backups_that_the_servers_user_cannot_write_is_found_at_the_start() {
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (data, backups) = (path("data"), path("backups"));
    fs::create_dir(&backups).expect("temp is writable");
    fs::set_permissions(&backups, fs::Permissions::from_mode(0o555)).expect("it is ours");
    let as_user: &[&str] = if is_root() { &["-u", "nobody"] } else { &[] };
    let durable = ["--data-dir", &data, "--backup-dir", &backups];
    let mut command = Command::new(BINARY);
    command.arg("serve").args(HERE).args(durable).args(SIZES).args(as_user);
    let said = Process::start(command).err().expect("it cannot make a backup");
    let told = format!("--backup-dir {backups}: the server's user cannot make a file there: ");
    assert!(said.contains(&told) && said.ends_with("74"), "{said}");
}

#[test]
fn a_core_can_be_dumped_of_the_user_that_root_becomes() {
    if !is_root() {
        return skip("process", "root alone can become another user");
    }
    let server = limited("", &["-u", "nobody", "-r", "-t", "1"]);
    // Where the kernel writes no core, what it tells of the process is root's.
    let file = fs::metadata(format!("/proc/{}/status", server.child.id())).expect("it runs");
    assert_eq!(u64::from(file.uid()), status(&server, "Uid"));
    server.stop();
}

#[test]
fn as_many_connections_as_are_promised_are_served_beside_what_workers_take() {
    // Forty workers take 120 descriptors. A soft limit is raised, and who may raise no hard one
    // tells what it leaves.
    for (limits, asked) in [("ulimit -S -n 200;", 100), ("ulimit -n 300;", 400)] {
        let server = limited(limits, &["-t", "40", "-c", &asked.to_string()]);
        let left = server.said.split(&format!("-c {asked}: only ")).nth(1);
        let left = left.and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        let promised = left.unwrap_or(asked);
        assert!(promised > 50, "{}", server.said);
        let mut clients = Vec::new();
        for _ in 0..promised {
            let mut client = server.connect();
            let said = ask(&mut client, b"mn\r\n", b"\r\n");
            assert_eq!(said, b"MN\r\n", "{limits} beside {} of {promised}", clients.len());
            clients.push(client);
        }
        drop(clients);
        server.stop();
    }
}
