//! Faults of a server with a data folder: it is killed, restarted, run twice, out of disk.

use super::Run;
use super::ledger::Ledger;
use crate::server::{Executable, Server, free_address};
use crate::{Client, Folder, Outcome, Value, failed, passed, place, process, skipped};
use rustix::process::Signal;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;

pub const FAULTS: &[Run] = &[
    ("kill-9", |executable| again_and_again(executable, Signal::KILL)),
    ("restart", |executable| again_and_again(executable, Signal::TERM)),
    ("two-servers", two_servers),
    ("store-full", store_full),
    ("disk-full", disk_full),
];

const ROUNDS: usize = 3;
/// Acknowledged before the fault of each round.
const WRITES: u64 = 400;
const STATUS_DATA: i32 = 74;
const STATUS_LISTEN: i32 = 71;

/// The flags of a durable server in this folder.
fn flags(folder: &str) -> Vec<&str> {
    let sizes = ["--pm-size", "64m", "--ssd-size", "256m"];
    [&["-m", "64", "-t", "2", "--data-dir", folder][..], &sizes].concat()
}

fn again_and_again(executable: &Executable, signal: Signal) -> Outcome {
    let folder = Folder::make("again")?;
    let path = folder.file("");
    let (flags, mut ledger, mut acknowledged) = (flags(&path), Ledger::new(), 0);
    let mut server = executable.start("faults-again", &flags)?;
    let (address, mut judged) = (server.address(), 0);
    for _ in 0..ROUNDS {
        let end = || server.end_by(signal, place::PATIENCE);
        let written = ledger.write_until(address, WRITES, end)?;
        acknowledged += written;
        server = executable.start_at("faults-again", address, &[], &flags)?;
        judged = ledger.check(address)?;
    }
    server.stop()?;
    passed(format!("{acknowledged} writes were acknowledged; {judged} keys checked"))
}

/// A start that must fail with `status`, and a word that must be said.
fn refused(executable: &Executable, flags: &[&str], status: i32, word: &str) -> Result<(), String> {
    refused_at(executable, free_address()?, &[], flags, status, word)
}

fn refused_at(
    executable: &Executable,
    address: SocketAddr,
    wrapper: &[&str],
    flags: &[&str],
    status: i32,
    word: &str,
) -> Result<(), String> {
    let mut second = executable.launch("faults-second", address, wrapper, flags)?;
    let ended = second.end(place::PATIENCE).map_err(|why| format!("{flags:?}: {why}"))?;
    let log = second.log();
    match ended.code() == Some(status) && log.contains(word) {
        true => Ok(()),
        false => Err(format!(
            "{flags:?}: ended with {}, status {status} and `{word}` expected\n{log}",
            process::told(ended)
        )),
    }
}

fn two_servers(executable: &Executable) -> Outcome {
    let (first, second) = (Folder::make("first")?, Folder::make("second")?);
    let (path, other) = (first.file(""), second.file(""));
    let (log, ssd) = (first.file("log"), first.file("ssd"));
    let mut server = executable.start("faults-first", &flags(&path))?;
    let (address, mut ledger) = (server.address(), Ledger::new());
    let acknowledged = ledger.write_until(address, WRITES, || {
        refused(executable, &flags(&path), STATUS_DATA, "another process")?;
        for media in [&["--pm", &log][..], &["--ssd", &ssd], &["--pm", &log, "--ssd", &ssd]] {
            let flags = [&flags(&other)[..], media].concat();
            refused(executable, &flags, STATUS_DATA, &path)?;
        }
        refused_at(executable, address, &[], &[], STATUS_LISTEN, "cannot listen")
    })?;
    server.check_alive()?;
    ledger.check(address)?;
    server.stop()?;
    let server = executable.start_at("faults-first", address, &[], &flags(&path))?;
    let judged = ledger.check(address)?;
    server.stop()?;
    passed(format!("five starts were refused beside {acknowledged} writes; {judged} keys checked"))
}

/// Values of this length fill the store.
const FILLING: usize = 500_000;
/// No store here holds more of them.
const FILLING_MAX: u64 = 2_000;

fn store_full(executable: &Executable) -> Outcome {
    let folder = Folder::make("full")?;
    let path = folder.file("");
    let flags = ["-m", "64", "--data-dir", &path, "--pm-size", "64m", "--ssd-size", "64m"];
    let server = executable.start("faults-full", &flags)?;
    let mut client = Client::connect(server.address())?;
    let (stored, refusal) = fill(&mut client)?;
    let said =
        refusal.starts_with("SERVER_ERROR") && refusal.contains("larger --pm-size or --ssd-size");
    if stored == 0 || !said {
        return failed(format!("after {stored} values the reply was `{refusal}`"));
    }
    for key in 0..stored {
        get(&mut client, key)?;
    }
    for key in 0..stored / 2 {
        client.send(format!("delete {key}\r\n").as_bytes())?;
        client.expect("DELETED")?;
    }
    // Room comes back in the background.
    place::wait_until("after deletes a write is taken", || {
        Ok(set(&mut client, stored + FILLING_MAX)? == "STORED")
    })?;
    for key in stored / 2..stored {
        get(&mut client, key)?;
    }
    server.stop()?;
    passed(format!("`{refusal}` after {stored} values of {FILLING} bytes"))
}

/// Stores values until one is refused: how many, and the refusal.
fn fill(client: &mut Client) -> Result<(u64, String), String> {
    for key in 0..FILLING_MAX {
        let reply = set(client, key)?;
        if reply != "STORED" {
            return Ok((key, reply));
        }
    }
    Err(format!("{FILLING_MAX} values of {FILLING} bytes were all stored"))
}

fn set(client: &mut Client, key: u64) -> Result<String, String> {
    client.send_set(&key.to_string(), 0, Value { key, version: 1, length: FILLING })?;
    client.line()
}

fn get(client: &mut Client, key: u64) -> Result<(), String> {
    client.get(&key.to_string(), Value { key, version: 1, length: FILLING })
}

/// Mounts a tmpfs over the folder `$0` for the command behind it alone.
const ON_TMPFS: &str = "mount -t tmpfs -o size=200m none \"$0\" && exec \"$@\"";
const ON_SMALL_TMPFS: &str = "mount -t tmpfs -o size=100m none \"$0\" && exec \"$@\"";

fn disk_full(executable: &Executable) -> Outcome {
    let folder = Folder::make("disk")?;
    let path = folder.file("");
    let mount = ["unshare", "--mount", "sh", "-c", ON_TMPFS, &path];
    let mut probe = Command::new(mount[0]);
    if !process::works(probe.args(&mount[1..]).arg("true")) {
        return skipped("no right to mount a tmpfs in a namespace of its own");
    }
    let data = folder.file("data");
    let flags = ["-m", "64", "--data-dir", &data, "--pm-size", "64m", "--ssd-size", "64m"];
    let server = executable.start_at("faults-disk", free_address()?, &mount, &flags)?;
    let (address, mut ledger) = (server.address(), Ledger::new());
    let mut filled = 0;
    let before = ledger.write_until(address, WRITES / 2, || {
        filled = fill_disk(&server, &path)?;
        Ok(())
    })?;
    let after = ledger.write_until(address, WRITES / 2, || Ok(()))?;
    let judged = ledger.check(address)?;
    server.stop()?;
    let mount = ["unshare", "--mount", "sh", "-c", ON_SMALL_TMPFS, &path];
    refused_at(executable, free_address()?, &mount, &flags, STATUS_DATA, "space")?;
    passed(format!(
        "{before} writes before and while {} MiB filled the disk, {after} after; {judged} keys \
         checked",
        filled >> 20
    ))
}

/// Writes into the server's own view of the folder until there is no room; how many bytes.
fn fill_disk(server: &Server, folder: &str) -> Result<usize, String> {
    let path = format!("/proc/{}/root{folder}/filler", server.id());
    let wrong = |error: std::io::Error| format!("cannot write {path}: {error}");
    let mut file = std::fs::File::create(&path).map_err(wrong)?;
    let (block, mut bytes) = ([0x55; 1 << 16], 0);
    loop {
        match file.write(&block) {
            Ok(wrote) => bytes += wrote,
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(bytes),
            Err(error) => return Err(wrong(error)),
        }
    }
}
