//! A network namespace for the servers, joined to ours by a veth pair: what a benchmark sends then
//! crosses a device with queues of its own, not the loopback. The client stays where it is.
//!
//! A veth has no wire and no interrupt: left alone, whoever sends does the receiving side's work in
//! the kernel, too. So each end hands its packets to its own side's CPU first (receive packet
//! steering, `rps_cpus`): both pay for what they receive, as two machines would.
//!
//! Made by `ip` of iproute2, which needs root; taken down again when dropped, and the pair with it.
//! Addresses are of the network for benchmarks (RFC 2544).

use super::process::{command, printed};
use crate::cpu::{CLIENT_CPU, SERVER_CPU};
use std::process::{Command, Stdio};

/// Queues of the pair, each way.
const QUEUES: usize = 2;

/// The namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// The servers' address.
    pub host: String,
}

impl Namespace {
    /// Makes one.
    pub fn new() -> Result<Namespace, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(
                "[place] netns: only root may make a network namespace; run it as root, or \
                        take a definition that stays on the loopback"
                    .into(),
            );
        }
        let pid = std::process::id();
        let (name, link) = (format!("laneway-{pid}"), format!("lw{pid}"));
        let net = format!("198.18.{}", pid % 256);
        ip(&format!("netns add {name}"))?;
        // From here on it is taken down whatever happens.
        let namespace = Namespace { name, host: format!("{net}.2") };
        let Namespace { name, host } = &namespace;
        let queues = format!("numrxqueues {QUEUES} numtxqueues {QUEUES}");
        ip(&format!("link add {link} {queues} type veth peer name eth0 {queues} netns {name}"))?;
        ip(&format!("address add {net}.1/30 dev {link}"))?;
        ip(&format!("link set {link} up"))?;
        ip(&format!("-n {name} address add {host}/30 dev eth0"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        // Each end's packets are received on its own side's CPU.
        let steer = |device: &str, cpu: usize| {
            let mask = format!("{:x}", 1_u64 << cpu);
            let all = format!("/sys/class/net/{device}/queues/rx-*/rps_cpus");
            format!("for queue in {all}; do echo {mask} > $queue || exit 1; done")
        };
        let ours = words_of_shell(&[], &steer(&link, CLIENT_CPU));
        // In the namespace `ip` shows its own /sys.
        let theirs = words_of_shell(&namespace.wrapper(), &steer("eth0", SERVER_CPU));
        for words in [ours, theirs] {
            if !command(&words).status().is_ok_and(|status| status.success()) {
                eprintln!("warning: no receive packet steering: who sends pays for receiving, too");
            }
        }
        Ok(namespace)
    }

    /// What stands before a command that is to run in it.
    pub fn wrapper(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The link in it, and with that our end of the pair, go with it.
        if let Err(error) = ip(&format!("netns del {}", self.name)) {
            eprintln!("warning: {error}");
        }
    }
}

/// A line for the shell, behind `wrapper`.
fn words_of_shell(wrapper: &[String], line: &str) -> Vec<String> {
    let shell = ["sh", "-c", line].map(str::to_owned);
    wrapper.iter().cloned().chain(shell).collect()
}

fn ip(line: &str) -> Result<(), String> {
    let mut ip = Command::new("ip");
    let output = ip.args(line.split_ascii_whitespace()).stdin(Stdio::null()).output();
    printed(output, &format!("ip {line} (of iproute2)")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn exists(name: &str) -> bool {
        let output = Command::new("ip").args(["netns", "list"]).output();
        let list = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&list).split_whitespace().any(|word| word == name)
    }

    #[test]
    fn a_namespace_is_reached_and_taken_down_again_or_says_what_it_needs() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(why) => {
                // Without root, or in a container without the right to.
                // Not `eprintln`: the runner of tests keeps what a test that passes prints.
                let _ = writeln!(std::io::stderr(), "SKIPPED: namespace: {why}");
                assert!(why.contains("root") || why.contains("ip "), "{why}");
                return;
            }
        };
        let name = namespace.name.clone();
        assert!(exists(&name));
        let mut command = namespace.wrapper();
        let show = "ip -brief address show dev eth0";
        command.extend(show.split_ascii_whitespace().map(str::to_owned));
        let shown = printed(super::command(&command).output(), show).expect("ip runs");
        assert!(shown.contains(&namespace.host), "{shown}");
        let read = "cat /sys/class/net/eth0/queues/rx-1/rps_cpus";
        let words = words_of_shell(&namespace.wrapper(), read);
        let output = super::command(&words).output().expect("a shell runs");
        let mask = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        // Empty where the kernel was built without it.
        assert!(mask.is_empty() || mask.ends_with('1'), "{mask}: not the servers' CPU");
        drop(namespace);
        assert!(!exists(&name));
    }
}
