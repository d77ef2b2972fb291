//! Three servers behind twemproxy (Debian's nutcracker), which spreads keys by consistent hashing:
//! mixed sizes through the proxy, one server killed and back, every byte verified.
//!
//! It is what docs/cluster.md describes, with its configuration; then the same with clients that
//! spread keys by themselves, run by tests-external/cluster/clients.py.

use crate::outcome::{Failure, Outcome, SKIPPED_PREFIX, passed, skipped};
use crate::place::{Folder, wait_until};
use crate::server::{self, Executable, Server, free_address};
use crate::{Client, Guarded, Value, flags, process, python};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

const GUIDE: &str = "docs/cluster.md";
const SERVERS: usize = 3;
/// Clients that spread keys by themselves, as the script has them.
const CLIENTS: [&str; 2] = ["pymemcache", "pylibmc"];
const KEYS: u64 = 300;
/// By key, in turn: most are small, as a cache has it.
const LENGTHS: [usize; 6] = [10, 100, 1_000, 10, 20_000, 400_000];
/// The fewest items that a server may have: with 160 points a server, consistent hashing gives each
/// a third within some percent.
const SHARE_MIN: u64 = KEYS / SERVERS as u64 / 2;
const STOP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

pub fn main(parser: lexopt::Parser) -> Outcome {
    let subject = flags::server(parser)?;
    let Some(nutcracker) = process::find_program("nutcracker") else {
        return skipped("there is no nutcracker (Debian: nutcracker)");
    };
    let executable = Executable::named_or_laneway(subject.as_deref())?;
    if !executable.is_memcached() {
        commands(&executable)?;
    }
    let mut told = vec![format!("twemproxy: {}", by_proxy(nutcracker, &executable)?)];
    let requirements = process::external("cluster").join("requirements.txt");
    match python::environment("venv-cluster", &requirements) {
        Ok(python) => {
            for client in CLIENTS {
                told.push(format!("{client}: {}", by_client(&python, client, &executable)?));
            }
        }
        Err(why) => println!("{SKIPPED_PREFIX}clients that spread keys: {why}"),
    }
    passed(format!("keys by server: {}", told.join("; ")))
}

/// Servers, each in a process of its own.
fn start(executable: &Executable) -> Result<Vec<Server>, String> {
    (0..SERVERS).map(|index| executable.start(&format!("cluster-{index}"), &[])).collect()
}

/// Through the proxy: all is found, what a dead server had is stored elsewhere, and it gets keys
/// again once it is back.
fn by_proxy(nutcracker: PathBuf, executable: &Executable) -> Result<String, Failure> {
    let folder = Folder::make("cluster")?;
    let mut servers = start(executable)?;
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let (mut proxy, door) = proxy(nutcracker, &folder, &addresses)?;
    let mut client = Client::connect(door)?;
    for key in 0..KEYS {
        client.set(&name(key), value(key))?;
    }
    let found = read_all(&mut client)?;
    if found != KEYS {
        return Err(format!("of {KEYS} keys stored {found} are found").into());
    }
    let shares = shares(&addresses)?;
    servers[0].end_by(Signal::KILL, STOP_PATIENCE)?;
    without_it(&mut client, shares[0])?;
    servers[0] = executable.start_at("cluster-again", addresses[0], &[], &[])?;
    back(&mut client, addresses[0])?;
    if let Some(status) = proxy.ended() {
        return Err(format!("the proxy ended with {}", process::told(status)).into());
    }
    stop(servers)?;
    Ok(format!("{shares:?}"))
}

/// By a client that spreads them: what a dead server had is lost, and nothing else is.
fn by_client(python: &Path, client: &str, executable: &Executable) -> Result<String, Failure> {
    let mut servers = start(executable)?;
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let expect = |what: &str, count: u64| {
        let mut command = Command::new(python);
        command.arg(process::external("cluster").join("clients.py")).args([client, what]);
        let said = process::said(command.args(addresses.iter().map(SocketAddr::to_string)))?;
        match said.trim().parse::<u64>() == Ok(count) {
            true => Ok(()),
            false => Err(format!("{client}, {what}: {} of {count} keys", said.trim())),
        }
    };
    expect("store", KEYS)?;
    expect("read", KEYS)?;
    let shares = shares(&addresses)?;
    servers[0].end_by(Signal::KILL, STOP_PATIENCE)?;
    expect("read", KEYS - shares[0])?;
    servers[0] = executable.start_at("cluster-again", addresses[0], &[], &[])?;
    expect("read", KEYS - shares[0])?;
    expect("store", KEYS)?;
    expect("read", KEYS)?;
    stop(servers)?;
    Ok(format!("{shares:?}"))
}

fn stop(servers: Vec<Server>) -> Result<(), String> {
    servers.into_iter().try_for_each(Server::stop)
}

fn name(key: u64) -> String {
    format!("cluster-{key}")
}

fn value(key: u64) -> Value {
    Value { key, version: 1, length: LENGTHS[(key % LENGTHS.len() as u64) as usize] }
}

fn guide() -> Result<String, String> {
    process::read(process::root().join(GUIDE))
}

/// Run the guide's commands.
fn commands(executable: &Executable) -> Result<(), String> {
    let guide = guide()?;
    let lines = guide.lines().filter_map(|line| line.strip_prefix("laneway "));
    let mut ran = 0;
    for line in lines {
        let mut command = Command::new(executable.path());
        process::said(command.args(line.split(' ')))?;
        ran += 1;
    }
    (0 < ran).then_some(()).ok_or_else(|| format!("{GUIDE} has no command"))
}

/// Start the proxy with the configuration of the guide, at addresses of ours.
fn proxy(
    program: PathBuf,
    folder: &Folder,
    servers: &[SocketAddr],
) -> Result<(Guarded, SocketAddr), Failure> {
    let guide = guide()?;
    let (door, file) = (free_address()?, folder.file("nutcracker.yml"));
    let text = configuration(&guide, door, servers)?;
    process::write(&file, text)?;
    let stats = free_address()?;
    let mut command = Command::new(program);
    command.args(["-c", &file, "-a", "127.0.0.1", "-s", &stats.port().to_string()]);
    command.args(["-p", &folder.file("pid")]);
    let log = process::scratch_dir("logs")?.join("cluster-nutcracker.log");
    let mut proxy = Guarded::start(command.args(["-o", "/dev/stderr"]), &log)?;
    server::wait_for_port(door, &mut proxy).map_err(|why| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        format!("nutcracker {why}\n{said}")
    })?;
    Ok((proxy, door))
}

/// The configuration that stands in the guide, its addresses replaced in their order.
fn configuration(guide: &str, door: SocketAddr, servers: &[SocketAddr]) -> Result<String, String> {
    let block = guide.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.ok_or_else(|| format!("{GUIDE} has no block of YAML"))?;
    let mut next = servers.iter();
    let mut lines = Vec::new();
    for line in block.lines() {
        lines.push(match line.trim_start() {
            rest if rest.starts_with("listen: ") => format!("  listen: {door}"),
            rest if rest.starts_with("- ") => {
                let name = rest.rsplit(' ').next().unwrap_or_default();
                let server = next.next().ok_or_else(|| format!("{GUIDE} has other servers"))?;
                format!("    - {server}:1 {name}")
            }
            _ => line.to_owned(),
        });
    }
    match next.next() {
        None => Ok(lines.join("\n") + "\n"),
        Some(_) => Err(format!("{GUIDE} has fewer than {SERVERS} servers")),
    }
}

/// Whether a key is found; what is found must be its value.
fn get(client: &mut Client, key: u64) -> Result<bool, String> {
    client.send(format!("get {}\r\n", name(key)).as_bytes())?;
    let line = client.line()?;
    match line.as_str() {
        "END" => Ok(false),
        // The proxy cannot reach the server, and says so.
        line if line.starts_with("SERVER_ERROR ") => Ok(false),
        line if line == format!("VALUE {} 0 {}", name(key), value(key).length) => {
            client.rest(value(key)).map(|()| true)
        }
        line => Err(format!("get {}: {line}", name(key))),
    }
}

/// How many of the keys are found.
fn read_all(client: &mut Client) -> Result<u64, String> {
    let mut found = 0;
    for key in 0..KEYS {
        found += u64::from(get(client, key)?);
    }
    Ok(found)
}

/// How many items each server has: all of them together, and each a good part.
fn shares(servers: &[SocketAddr]) -> Result<Vec<u64>, String> {
    let shares = servers.iter().map(|server| items(*server));
    let shares = shares.collect::<Result<Vec<u64>, String>>()?;
    match shares.iter().sum::<u64>() == KEYS && shares.iter().all(|share| SHARE_MIN <= *share) {
        true => Ok(shares),
        false => Err(format!("the servers have {shares:?} of {KEYS} keys")),
    }
}

fn items(server: SocketAddr) -> Result<u64, String> {
    Client::connect(server)?.number("", "curr_items")
}

/// One server is dead: the others keep what they have, and take what it had once it is stored anew.
fn without_it(client: &mut Client, lost: u64) -> Result<(), String> {
    let found = read_all(client)?;
    if found != KEYS - lost {
        return Err(format!("of {KEYS} keys {lost} are lost with their server; {found} are found"));
    }
    wait_until("what was lost is stored elsewhere", || refilled(client))
}

/// The server is back, and empty: it gets its keys again, and what is found is still right.
fn back(client: &mut Client, server: SocketAddr) -> Result<(), String> {
    wait_until("the server that came back has its keys again", || {
        Ok(refilled(client)? && SHARE_MIN <= items(server)?)
    })
}

/// Stores what is not found; whether all is found then.
fn refilled(client: &mut Client) -> Result<bool, String> {
    for key in 0..KEYS {
        if !get(client, key)? {
            client.send_set(&name(key), 0, value(key))?;
            client.line()?; // STORED, or refused while the proxy still asks the dead server
        }
    }
    Ok(read_all(client)? == KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_guide_is_used_at_other_addresses() {
        let guide = "a\n```yaml\np:\n  listen: h:1\n  hash: x\n  servers:\n    - h:2:1 a\n    \
                     - h:3:1 b\n```\n";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = configuration(guide, at(7), &[at(8), at(9)]).expect("it has two servers");
        let wanted = "p:\n  listen: 127.0.0.1:7\n  hash: x\n  servers:\n    - 127.0.0.1:8:1 a\n    \
                      - 127.0.0.1:9:1 b\n";
        assert_eq!(text, wanted);
        assert!(configuration(guide, at(7), &[at(8)]).is_err());
        assert!(configuration(guide, at(7), &[at(8), at(9), at(10)]).is_err());
        assert!(configuration("none", at(7), &[]).is_err());
    }
}
