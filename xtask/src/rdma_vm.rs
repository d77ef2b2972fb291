//! RDMA without a card: a Debian kernel under QEMU's software emulation, in it `rdma_rxe` over a
//! pair of virtual Ethernet interfaces, and over that this tree's server and client.
//!
//! One guest, one device, both ends: what is shown is that the verbs do what we think (WRITE, READ,
//! SEND; inline or not; signalled or not), that every value comes back right, to the client library
//! and to the load generator, and that a client cannot write where it may not. How long anything
//! takes there means nothing. How the guest is made: [`crate::vm`].

use crate::vm::packages::{self, Kernel};
use crate::vm::{self, initramfs};
use crate::{Failure, Outcome, passed, process};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// GETs and SETs of each kind, and as many of long values.
const REQUESTS: u32 = 2_000;
/// Work requests of each kind that are tried alone: some batches.
const TRIALS: u32 = 640;
/// The guest starts in well under a minute; emulated, a request takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
const MEMORY_MEGABYTES: usize = 1024;
/// What a client takes: 1.6 MB of places for replies and requests, and its queues in the device.
const CLIENT_KILOBYTES: usize = 2560;
/// What a GET may take beside the others of what it takes alone: p50, SENDs, completions.
const AT_MOST: &str = "1.1";
/// So many have slots where a server is told nothing, and so many are compared.
const WRITERS: usize = 64;
/// One address has half of the places, and the guest has one address.
const CLIENTS_MAX: usize = 2048;
/// Modules that the guest loads, each after what it depends on. (rxe asks for a checksum by name,
/// which no dependency says.)
const MODULES: &[&str] = &["crc32_generic", "veth", "rdma_rxe"];

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut clients = None;
    flags!(parser, { Long("clients") => clients = Some(parser.value()?.parse::<usize>()?), });
    if let Some(clients) = clients.filter(|clients| !(2..=CLIENTS_MAX).contains(clients)) {
        let why = format!("--clients {clients}: must be from 2 to {CLIENTS_MAX}");
        return Err(Failure::Usage(why));
    }
    vm::need()?;
    let folder = process::scratch_dir("rdma-vm")?;
    let debian = packages::fetch(Kernel::Ordinary)?;
    let [server, client] = build()?;
    let contents = initramfs::Contents {
        debian: &debian,
        ours: &[server.as_path(), client.as_path()],
        programs: &["ip", "rdma"],
        loaded: &["libibverbs.so.1"],
        provider: Some("rxe"),
        modules: MODULES,
        script: &script(clients),
    };
    let archive = initramfs::write(&folder, &contents)?;
    let began = Instant::now();
    let log = folder.join("console.log");
    let mut machine = vm::command(&debian, &archive, "");
    let more = clients.unwrap_or(0) * CLIENT_KILOBYTES / 1024;
    machine.arg("-m").arg((MEMORY_MEGABYTES + more).to_string());
    vm::run(&mut machine, &log, PATIENCE, &[vm::SAID])?;
    if let Some(clients) = clients {
        return passed(format!(
            "a GET beside {} idle clients over ud took no more than {AT_MOST} of one alone, every \
             value right, under kernel {} in {:.0} s",
            clients - 1,
            debian.release,
            began.elapsed().as_secs_f64()
        ));
    }
    passed(format!(
        "{REQUESTS} SETs and {REQUESTS} GETs over UC and UD, over RC and UD, and over UD alone, \
         as many of long values, {TRIALS} of each verb in every way, under kernel {} in {:.0} s",
        debian.release,
        began.elapsed().as_secs_f64()
    ))
}

/// The server and the client that checks it, with every assertion on.
fn build() -> Result<[PathBuf; 2], String> {
    let server = ["-p", "laneway", "--features", "research"];
    process::run(process::cargo().args(["build", "--quiet"]).args(server))?;
    let client = ["-p", "laneway-client", "--features", "rdma", "--example", "rdma_check"];
    process::run(process::cargo().args(["build", "--quiet"]).args(client))?;
    let built = process::target_dir().join("debug");
    Ok([built.join("laneway"), built.join("examples").join("rdma_check")])
}

fn script(clients: Option<usize>) -> String {
    let body = if clients.is_some() { MANY } else { SCRIPT };
    let clients = clients.unwrap_or_default();
    let values: [(&str, &dyn Display); 7] = [
        ("REQUESTS", &REQUESTS),
        ("TRIALS", &TRIALS),
        ("PLACES", &(2 * clients)),
        ("CLIENTS", &clients),
        ("WRITERS", &clients.min(WRITERS)),
        ("SLOTS", &(2 * WRITERS)),
        ("AT_MOST", &AT_MOST),
    ];
    vm::script(&format!("{SETTING}{body}"), &values)
}

/// Words of both scripts, and a device.
const SETTING: &str = include_str!("rdma_vm/setting.sh");

/// What one client pays for others. Each of them has four descriptors: its connection, two of its
/// device, and one that wakes it.
const MANY: &str = include_str!("rdma_vm/many.sh");

const SCRIPT: &str = include_str!("rdma_vm/every_way.sh");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_ask_for_what_was_asked() {
        let (all, many) = (script(None), script(Some(500)));
        assert!(all.contains("rxe0 $service 2000 ") && !all.contains("--door"));
        for words in [
            "--rdma-clients 1000 --rdma-slots 128 ",
            "--rdma-service ud --clients 500 --at-most 1.1\n",
            "--rdma-service uc --clients 64\n",
            "--operations 2000 --rounds 3 ",
        ] {
            assert!(many.contains(words), "{many}");
        }
        assert!(script(Some(9)).contains("--rdma-service uc --clients 9\n"));
    }
}
