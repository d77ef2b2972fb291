//! A network link that goes down and comes back. Both ends lie in namespaces made here: this task
//! runs once more in one of its own, and the server in another.

use super::Run;
use crate::outcome::{EXIT_SKIPPED, Outcome, failed, passed, skipped};
use crate::place::{self, wait_until};
use crate::{Client, Executable, Server, Value, process};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub const FAULTS: &[Run] = &[("link-down", link_down)];

/// In the environment of this task where it runs in a namespace of its own.
const INSIDE: &str = "LANEWAY_FAULTS_NAMESPACE";
const OURS: &str = "10.77.0.1/24";
const THEIRS: &str = "10.77.0.2:11311";
/// Waits until its end of the link is there, and brings it up.
const AT_THE_FAR_END: &str = "ip link set lo up; until ip link set far up 2>/dev/null; \
    do sleep 0.05; done; ip addr add 10.77.0.2/24 dev far && exec \"$@\"";
/// How long the link is down: the fault itself, and longer than TCP takes to send again.
const DOWN: Duration = Duration::from_secs(2);
const CLIENTS: u64 = 4;

fn link_down(executable: &Executable) -> Outcome {
    if std::env::var_os(INSIDE).is_some() {
        return inside(executable);
    }
    place::need_root("making network namespaces")?;
    // Root in a container may lack CAP_SYS_ADMIN.
    let why = match process::capture(Command::new("unshare").args(["--net", "true"])) {
        Ok((status, _)) if status.success() => None,
        Ok((_, why)) | Err(why) => Some(why),
    };
    if let Some(why) = why {
        return skipped(format!("no network namespace can be made: {}", why.trim()));
    }
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program).args(["faults", "link-down", "--server"]);
    command.arg(executable.path()).env(INSIDE, "1");
    let (status, text) = process::capture(&mut command)?;
    match status.code() {
        Some(0) => passed(format!("{CLIENTS} clients had every reply after {} s", DOWN.as_secs())),
        Some(code) if code == i32::from(EXIT_SKIPPED) => skipped(text.trim()),
        _ => failed(text.trim()),
    }
}

fn ip(words: &str) -> Result<(), String> {
    process::run(Command::new("ip").args(words.split(' ')))
}

fn inside(executable: &Executable) -> Outcome {
    let address: SocketAddr = THEIRS.parse().map_err(|e| format!("{THEIRS}: {e}"))?;
    let far = ["unshare", "--net", "sh", "-c", AT_THE_FAR_END, "sh"];
    let mut server = executable.launch("faults-link", address, &far, &["-m", "64"])?;
    wait_until("the server has a namespace of its own", || {
        let space = |id: &str| std::fs::read_link(PathBuf::from(format!("/proc/{id}/ns/net")));
        let theirs = space(&server.id().to_string()).map_err(|e| e.to_string())?;
        Ok(theirs != space("self").map_err(|e| e.to_string())?)
    })?;
    if ip(&format!("link add near type veth peer name far netns {}", server.id())).is_err() {
        return skipped("no veth can be made here");
    }
    ip(&format!("addr add {OURS} dev near"))?;
    ip("link set near up")?;
    server.wait_until_it_answers()?;
    cut(&server)?;
    server.stop()?;
    passed("")
}

fn cut(server: &Server) -> Result<(), String> {
    let value = Value { key: 1, version: 1, length: 900_000 };
    let mut clients =
        (0..CLIENTS).map(|_| Client::connect(server.address())).collect::<Result<Vec<_>, _>>()?;
    clients[0].set("linked", value)?;
    for client in &mut clients {
        client.send(b"get linked\r\n")?;
        client.expect(&format!("VALUE linked 0 {}", value.length))?;
    }
    ip("link set near down")?;
    for client in &mut clients {
        client.send(b"mn\r\n")?; // the kernel keeps it
    }
    std::thread::sleep(DOWN);
    ip("link set near up")?;
    for client in &mut clients {
        client.rest(value)?;
        client.expect("MN")?;
    }
    Ok(())
}
