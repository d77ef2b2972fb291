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

pub const HELP: &str = "\
Run the kernel lane over emulated network cards, beside a server without it.

usage: cargo xtask card-vm [--packets N] [--seed N]

  --packets N   to each of the two servers, over each pair of cards (30000); at most 1000000000
  --seed N      which requests, and in which packets (1)

Two virtio cards of four queues, at tc ingress and at XDP, then two Intel ones, at tc ingress, over
IPv4 and IPv6. Needs root (for tap devices in a network namespace of its own), clang, and QEMU
(apt-get install --no-install-recommends qemu-system-x86) on an x86-64 Debian; fetches two kernels
and the guest's programs as Debian packages, once, and unpacks them below the target folder: nothing
is installed. A kernel with tcx links comes from Debian's backports where it has none itself. It is
skipped where no mirror is reached; whatever else keeps it from fetching them is a failure.";

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
const PACKAGES: &[&str] = &[
    "busybox-static",
    "ethtool",
    "iproute2",
    "libbpf1",
    "libcap2",
    "libelf1",
    "libmnl0",
    "zlib1g",
];
/// Run in a network namespace of its own, with the command of the machine behind it.
const NETWORK: &str = r#"set -e
# A bridge is to look at nothing: it would drop what is cut short.
for call in iptables ip6tables arptables; do
    file=/proc/sys/net/bridge/bridge-nf-call-$call
    [ ! -e $file ] || echo 0 > $file
done
for pair in virtio intel; do
    ip link add name $pair type bridge mcast_snooping 0
    ip link set $pair up
done
for end in server client; do
    ip tuntap add dev v-$end mode tap multi_queue vnet_hdr
    ip tuntap add dev i-$end mode tap vnet_hdr
    ip link set v-$end master virtio up
    ip link set i-$end master intel up
done
exec "$@"
"#;
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
    let fetch = |kind| packages::fetch(kind, PACKAGES);
    let (debian, realtime) = (fetch(Kernel::Tcx)?, fetch(Kernel::Realtime)?);
    let ours = build()?;
    let patience = PATIENCE + PACKET_PATIENCE * u32::try_from(packets).unwrap_or(u32::MAX);
    let guest = Guest { folder: &folder, ours: &ours };
    guest.run("cards", &debian, MODULES, &script(packets, seed), patience)?;
    guest.run("realtime", &realtime, &[], &realtime_script(), PATIENCE)?;
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
    let ends = [("server", VIRTIO_SERVER), ("client", VIRTIO_CLIENT)];
    for (number, (end, offloads)) in (1..).zip(ends) {
        let tap = format!("tap,id=v-{end},ifname=v-{end},script=no,downscript=no,vhost=off");
        machine.args(["-netdev", &format!("{tap},queues=4")]);
        let place = format!("netdev=v-{end},mac=52:54:00:09:00:0{number},addr=0x1{number}");
        machine.args(["-device", &format!("{VIRTIO},{offloads},{place}")]);
    }
    for (number, (end, _)) in (3..).zip(ends) {
        let tap = format!("tap,id=i-{end},ifname=i-{end},script=no,downscript=no,vhost=off");
        machine.args(["-netdev", &tap]);
        let place = format!("netdev=i-{end},mac=52:54:00:09:00:0{number},addr=0x1{number}");
        machine.args(["-device", &format!("{INTEL},{place}")]);
    }
}

fn script(packets: u64, seed: u64) -> String {
    let body = SCRIPT.replace("@PACKETS@", &packets.to_string());
    vm::script(&body.replace("@SEED@", &seed.to_string()))
}

fn realtime_script() -> String {
    vm::script(&REALTIME_SCRIPT.replace("@REALTIME@", REALTIME))
}

const SCRIPT: &str = r#"/bin/ip link set lo up
laneway doctor kernel
# A driver may look for its cards after its module is there.
for interface in eth0 eth1 eth2 eth3; do
    tries=0
    until [ -e /sys/class/net/$interface ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || fail "no $interface"
        sleep 1
    done
done
cards /bin/laneway virtio @PACKETS@ @SEED@ eth0 eth1 || fail "the virtio cards"
cards /bin/laneway intel @PACKETS@ @SEED@ eth2 eth3 || fail "the Intel cards"
# It is to find the planted value, which only the other has, not merely something lost.
told=$(cards /bin/laneway control 2000 @SEED@ lane0 lane1 2>&1) && fail "a planted difference"
case "$told" in
*"the other: ["*'n?'*) say "a planted difference is found" ;;
*) fail "the control ended otherwise: $told" ;;
esac
"#;

/// What the guest with a real-time kernel does.
const REALTIME_SCRIPT: &str = r#"/bin/ip link set lo up
# It must not serve without it either.
told=$(laneway serve -l 127.0.0.1 -U 11211 --kernel-lane lo 2>&1) && fail "it served: $told"
case "$told" in
*"@REALTIME@"*) say "$told" ;;
*) fail "it was refused for another reason: $told" ;;
esac
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_ask_for_what_was_asked() {
        let script = script(17, 23);
        assert!(script.contains("virtio 17 23 eth0 eth1") && script.contains("intel 17 23 eth2"));
        assert!(!script.contains('@') && !realtime_script().contains('@'));
    }

    #[test]
    fn a_machine_has_two_cards_of_each_kind() {
        let mut machine = Command::new("machine");
        cards(&mut machine);
        let words: Vec<_> = machine.get_args().map(|word| word.to_string_lossy()).collect();
        let of = |kind: &str| words.iter().filter(|word| word.starts_with(kind)).count();
        assert_eq!((of("virtio-net-pci,"), of("e1000e,"), of("tap,")), (2, 2, 4));
    }
}
