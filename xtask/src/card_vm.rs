//! Runs the kernel lane on emulated network cards, beside a server without it.
//!
//! A Debian kernel starts under QEMU's software emulation. It has two pairs of cards, and over
//! these `crates/kernel/examples/cards` asks this tree's servers. Each pair is joined by a bridge
//! between two tap devices, in a network namespace made for it. So packets come as cards hand them
//! over: checksums are unfinished, looked at by the card, or not looked at; there are several
//! queues; datagrams are joined where a socket asks for it; the card takes VLAN tags off.
//!
//! What is shown is that packets are answered as without the lane, and which the lane answers. How
//! long anything takes there means nothing. A control plants a difference, which must be found.
//! Then a kernel with PREEMPT_RT starts, where the lane must be refused. [`crate::vm`] makes the
//! guests.

use crate::vm::packages::{self, Debian, Kernel};
use crate::vm::{self, initramfs};
use crate::{Failure, Outcome, features, passed, place, process, skipped};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PACKETS: u64 = 30_000;
const PACKETS_MAX: u64 = 1_000_000_000;
const SEED: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// What a packet may take there, at most.
const PACKET_PATIENCE: Duration = Duration::from_millis(20);
const MEMORY_MEGABYTES: &str = "1536";
/// What the guest with a real-time kernel must be told.
const REALTIME: &str = "this kernel is built with PREEMPT_RT";
const SAID: [&str; 2] = [vm::SAID, "cards: "];
const MODULES: &[&str] = &["virtio_pci", "virtio_net", "e1000e", "8021q", "veth"];
/// Run in a network namespace of its own, with the command of the machine behind it.
const NETWORK: &str = include_str!("card_vm/network.sh");
/// A virtio card: what both ends have. The server's gets checksums unfinished, as they left the
/// client; the client's gets them whole and looks at them, so that a reply whose sum is wrong in
/// the end is no reply.
const VIRTIO: &str = "virtio-net-pci,romfile=,mq=on,vectors=10,csum=on,gso=on,host_tso4=on,\
                      host_tso6=on,ctrl_vlan=on,ctrl_guest_offloads=on";
const VIRTIO_SERVER: &str = "guest_csum=on,guest_tso4=on,guest_tso6=on,guest_ecn=on";
const VIRTIO_CLIENT: &str =
    "guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off";
const INTEL: &str = "e1000e,romfile=";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut packets, mut seed) = (PACKETS, SEED);
    flags!(parser, {
        Long("packets") => packets = parser.value()?.parse()?,
        Long("seed") => seed = parser.value()?.parse()?,
    });
    if packets == 0 || packets > PACKETS_MAX {
        let told = format!("--packets {packets}: must be from 1 to {PACKETS_MAX}");
        return Err(Failure::Usage(told));
    }
    need()?;
    let began = Instant::now();
    let folder = process::scratch_dir("card-vm")?;
    let debian = packages::fetch(Kernel::Tcx)?;
    let realtime = packages::fetch(Kernel::Realtime)?;
    let ours = build()?;
    let patience = PATIENCE + PACKET_PATIENCE * u32::try_from(packets).unwrap_or(u32::MAX);
    let guest = Guest { folder: &folder, ours: &ours };
    let script = vm::script(SCRIPT, &[("PACKETS", &packets), ("SEED", &seed)]);
    guest.run("cards", &debian, MODULES, &script, patience)?;
    let script = vm::script(REALTIME_SCRIPT, &[("REALTIME", &REALTIME)]);
    guest.run("realtime", &realtime, &[], &script, PATIENCE)?;
    passed(format!(
        "{packets} packets over virtio cards and {packets} over Intel ones were answered as \
         without the lane, under kernel {}; {} was refused; {:.0} s",
        debian.release,
        realtime.release,
        began.elapsed().as_secs_f64()
    ))
}

fn need() -> Result<(), Failure> {
    vm::need()?;
    if !features::has_clang() {
        return skipped("no clang here to compile BPF programs; `cargo xtask setup` installs it");
    }
    place::need_root("making tap devices in a network namespace")?;
    place::need_programs(&["ip", "unshare"], "iproute2, util-linux")?;
    let (status, told) = process::capture(&mut in_network(&Command::new("true")))?;
    match status.success() {
        true => Ok(()),
        false => skipped(format!("no bridge or tap device can be made here: {}", told.trim())),
    }
}

/// The server and the program that asks it, with every assertion on. The features are those of all
/// tests, so that nothing is compiled for this alone.
fn build() -> Result<[PathBuf; 2], String> {
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--workspace", "--features", features::tested()]);
    process::run(build.args(["--bin", "laneway", "--example", "cards"]))?;
    let built = process::target_dir().join("debug");
    Ok([built.join("laneway"), built.join("examples").join("cards")])
}

/// A command between the devices that join the cards.
fn in_network(command: &Command) -> Command {
    let mut whole = Command::new("unshare");
    whole.args(["--net", "--", "sh", "-c", NETWORK, "sh"]);
    whole.arg(command.get_program()).args(command.get_args());
    whole
}

/// What all guests have.
struct Guest<'a> {
    folder: &'a Path,
    ours: &'a [PathBuf; 2],
}

impl Guest<'_> {
    /// Runs one until it says that all was right.
    fn run(
        &self,
        name: &str,
        debian: &Debian,
        modules: &[&str],
        script: &str,
        patience: Duration,
    ) -> Result<(), String> {
        let folder = self.folder.join(name);
        process::make_dir(&folder)?;
        let archive = initramfs::write(
            &folder,
            &initramfs::Contents {
                debian,
                ours: &self.ours.each_ref().map(PathBuf::as_path),
                programs: &["ip", "ethtool"],
                loaded: &[],
                provider: None,
                modules,
                script,
            },
        )?;
        let mut machine = vm::command(debian, &archive, "");
        machine.args(["-machine", "q35", "-m", MEMORY_MEGABYTES]);
        cards(&mut machine);
        vm::run(&mut in_network(&machine), &folder.join("console.log"), patience, &SAID)
    }
}

/// The cards, in the order in which the guest finds them: two of each driver.
fn cards(machine: &mut Command) {
    for (number, tap, queues, device) in [
        (1, "v-server", ",queues=4", format!("{VIRTIO},{VIRTIO_SERVER}")),
        (2, "v-client", ",queues=4", format!("{VIRTIO},{VIRTIO_CLIENT}")),
        (3, "i-server", "", INTEL.to_owned()),
        (4, "i-client", "", INTEL.to_owned()),
    ] {
        let ends = format!("tap,id={tap},ifname={tap},script=no,downscript=no,vhost=off{queues}");
        let place = format!("netdev={tap},mac=52:54:00:09:00:0{number},addr=0x1{number}");
        machine.args(["-netdev", &ends, "-device", &format!("{device},{place}")]);
    }
}

const SCRIPT: &str = include_str!("card_vm/cards.sh");

/// What the guest with a real-time kernel does.
const REALTIME_SCRIPT: &str = include_str!("card_vm/realtime.sh");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_two_cards_of_each_kind() {
        let mut machine = Command::new("machine");
        cards(&mut machine);
        let words: Vec<_> = machine.get_args().map(|word| word.to_string_lossy()).collect();
        let of = |kind: &str| words.iter().filter(|word| word.starts_with(kind)).count();
        assert_eq!((of("virtio-net-pci,"), of("e1000e,"), of("tap,")), (2, 2, 4));
    }
}
