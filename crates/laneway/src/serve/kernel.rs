//! What of the kernel is used: `--kernel-lane` and what belongs to it, `--steer`, `--af-xdp`,
//! checked.

use super::MEBIBYTE;
use crate::flags::{self, Flags};
use laneway_server::kernel::{drop_capabilities, parse_range};
use laneway_server::settings::{BypassSettings, KernelSettings, LaneSettings, Range, UdpSettings};
use std::panic::resume_unwind;
use std::thread;

/// The lane's share of the memory for items, where none is given.
const MEMORY_SHARE: u64 = 4;
/// Addresses that the lane's program can be told.
const PEERS_MAX: usize = 8;
/// What the lane sends to one address in a second, where nothing else is said.
const RATE_MEGABITS: u32 = 1000;
/// A rate is a number of the program's of 32 bits for each of its periods.
const RATE_MEGABITS_MAX: u32 = 1_000_000;

/// The settings. `udp` is where UDP is served, `memory_bytes` what `-m` gives.
pub fn settings(
    flags: &Flags,
    udp: Option<&UdpSettings>,
    memory_bytes: u64,
) -> Result<KernelSettings, String> {
    if flags.steer && udp.is_none_or(|udp| udp.port.is_none()) {
        return Err(
            "--steer: there is no UDP port that all workers share; give one with -U PORT, \
                    or leave the flag out"
                .to_owned(),
        );
    }
    let lane = lane(flags, udp, memory_bytes)?;
    Ok(KernelSettings { lane, bypass: bypass(flags, udp)?, steer: flags.steer })
}

/// Makes what has threads of its own, before the programs are loaded. A thread begins with the
/// capabilities of the one that makes it, and keeps them when another gives up its own: so all this
/// is made by a thread that has none of those that the programs take.
pub fn without_capabilities<T: Send>(
    settings: &KernelSettings,
    make: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    if !settings.is_any() {
        return make();
    }
    let made = thread::scope(|scope| {
        let maker = scope.spawn(|| match drop_capabilities() {
            true => make(),
            false => Err("--kernel-lane, --steer, --af-xdp: a thread cannot give up the \
                          capabilities that these take; leave these flags out"
                .to_owned()),
        });
        maker.join()
    });
    match made {
        Ok(made) => made,
        Err(panic) => resume_unwind(panic),
    }
}

/// Where datagrams come past the stack.
fn bypass(flags: &Flags, udp: Option<&UdpSettings>) -> Result<Option<BypassSettings>, String> {
    if flags.af_xdp.is_empty() {
        let why = "nothing comes past the stack; say where with --af-xdp IFACE too";
        return flags::refuse(flags, "af-xdp-copy af-xdp-busy-poll", why).map(|()| None);
    }
    let names = flags.af_xdp.join(",");
    let wrong = |why: &str| Err(format!("--af-xdp {names}: {why}"));
    let interfaces = interfaces(&names);
    if interfaces.iter().any(String::is_empty) {
        return wrong("name interfaces with commas between them, such as eth0,eth1");
    }
    let Some(udp) = udp else {
        return wrong("UDP is off; give it a port with -U PORT or --udp-base PORT too");
    };
    if udp.address.is_loopback() || udp.address.is_unspecified() {
        return wrong(&format!(
            "UDP listens on {}, and replies past the stack need one address of the interface to \
             come from; name it with --udp-listen ADDRESS --udp-public",
            udp.address
        ));
    }
    // The lane would see nothing of what is led past the stack, and its XDP hook is taken.
    let lanes = self::interfaces(&flags.kernel_lane.join(","));
    if interfaces.iter().any(|one| lanes.contains(one)) {
        return wrong(
            "does not go with --kernel-lane at the same interface, where nothing would come to the \
             lane; leave it out of one of the two",
        );
    }
    Ok(Some(BypassSettings {
        interfaces,
        copy: flags.af_xdp_copy,
        busy_poll: flags.af_xdp_busy_poll,
    }))
}

/// A list of interfaces, each once.
fn interfaces(names: &str) -> Vec<String> {
    let mut interfaces: Vec<String> = names.split(',').map(str::to_owned).collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    interfaces
}

/// The lane in the kernel, if there is one.
fn lane(
    flags: &Flags,
    udp: Option<&UdpSettings>,
    memory_bytes: u64,
) -> Result<Option<LaneSettings>, String> {
    if flags.kernel_lane.is_empty() {
        let parts = "kernel-lane-hook kernel-lane-memory kernel-lane-peers kernel-lane-rate";
        let why = "there is no kernel lane; say where with --kernel-lane IFACE too";
        return flags::refuse(flags, parts, why).map(|()| None);
    }
    let names = flags.kernel_lane.join(",");
    let wrong = |why: &str| Err(format!("--kernel-lane {names}: {why}"));
    let interfaces = interfaces(&names);
    if interfaces.iter().any(String::is_empty) {
        return wrong("name interfaces with commas between them, such as eth0,lo");
    }
    let Some(udp) = udp else {
        return wrong("UDP is off; give it a port with -U PORT or --udp-base PORT too");
    };
    let elsewhere = interfaces.iter().find(|name| *name != "lo");
    if let (true, Some(name)) = (udp.address.is_loopback(), elsewhere) {
        return wrong(&format!(
            "UDP listens on {}, and nothing for it comes to {name}; listen there with \
             --udp-listen ADDRESS --udp-public, or name lo alone",
            udp.address
        ));
    }
    if let (None, Some(name)) = (&flags.kernel_lane_peers, elsewhere) {
        // The program runs before the host's firewall, so nobody else says who may ask.
        return wrong(&format!(
            "packets at {name} reach the lane before any firewall of this host; name who is served \
             with --kernel-lane-peers (such as 10.0.0.0/8), or name lo alone"
        ));
    }
    if flags.data_dir.is_some() {
        // A value is in memory before it is durable, and its reply waits; the lane would not.
        return wrong("it cannot wait until a value is durable; leave it or --data-dir out");
    }
    if flags.no_cas {
        return wrong("it tells CAS ids, which -C turns off; leave one of the two out");
    }
    Ok(Some(LaneSettings {
        xdp: hook(flags)?,
        items_bytes: items_bytes(flags, memory_bytes)?,
        peers: peers(flags)?,
        rate_megabits: rate_megabits(flags)?,
        interfaces,
    }))
}

fn hook(flags: &Flags) -> Result<bool, String> {
    match flags.kernel_lane_hook.as_deref() {
        None | Some("tc") => Ok(false),
        Some("xdp") => Ok(true),
        Some(other) => Err(format!(
            "--kernel-lane-hook {other}: must be tc or xdp; leave the flag out for tc, which any \
             interface has"
        )),
    }
}

fn items_bytes(flags: &Flags, memory_bytes: u64) -> Result<u64, String> {
    let most = memory_bytes / MEBIBYTE * 3 / 4;
    match flags.kernel_lane_megabytes {
        None => Ok((memory_bytes / MEMORY_SHARE / MEBIBYTE).max(1) * MEBIBYTE),
        Some(megabytes) if (1..=most).contains(&megabytes) => Ok(megabytes * MEBIBYTE),
        Some(megabytes) => Err(format!(
            "--kernel-lane-memory {megabytes}: must be from 1 to {most} MiB, three quarters of -m; \
             give more memory with -m, or leave the flag out for a quarter"
        )),
    }
}

fn rate_megabits(flags: &Flags) -> Result<u32, String> {
    match flags.kernel_lane_megabits {
        None => Ok(RATE_MEGABITS),
        Some(megabits) if megabits <= RATE_MEGABITS_MAX => Ok(megabits),
        Some(megabits) => Err(format!(
            "--kernel-lane-rate {megabits}: must be at most {RATE_MEGABITS_MAX} Mbit/s; 0 is no \
             limit"
        )),
    }
}

fn peers(flags: &Flags) -> Result<Vec<Range>, String> {
    let Some(list) = &flags.kernel_lane_peers else { return Ok(Vec::new()) };
    let peers: Option<Vec<Range>> = list.split(',').map(parse_range).collect();
    match peers {
        Some(peers) if peers.len() <= PEERS_MAX => Ok(peers),
        Some(peers) => Err(format!(
            "--kernel-lane-peers: {} ranges, and the program knows {PEERS_MAX} at most; join some",
            peers.len()
        )),
        None => Err(format!(
            "--kernel-lane-peers {list}: not a list of addresses; write such as 10.0.0.0/8,fd00::1"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    /// CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON and CAP_BPF.
    const LOADING: u64 = 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;

    /// The calling thread's effective capabilities.
    fn rights() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux tells");
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        u64::from_str_radix(line.expect("a line").trim(), 16).expect("a mask")
    }

    /// The thread that runs this, and the rights that a thread has which it begins.
    fn made() -> Result<(thread::ThreadId, u64), String> {
        let begun = thread::spawn(rights).join().map_err(|_| "it panicked".to_owned())?;
        Ok((thread::current().id(), begun))
    }

    #[test]
    fn threads_that_begin_before_the_programs_are_loaded_have_no_right_to_load_them() {
        let (here, before) = (thread::current().id(), rights());
        let plain = KernelSettings { lane: None, bypass: None, steer: false };
        assert_eq!(without_capabilities(&plain, made), Ok((here, before)));
        let steering = KernelSettings { steer: true, ..plain };
        let (maker, begun) = without_capabilities(&steering, made).expect("it can be done");
        assert_ne!(maker, here, "this thread is still to load them");
        assert_eq!(begun, before & !LOADING);
        assert_eq!(rights(), before);
        let failed = without_capabilities(&steering, || Err::<(), _>("no".to_owned()));
        assert_eq!(failed, Err("no".to_owned()));
    }

    /// Under a service manager that filters system calls, as the unit does: `--steer` is done
    /// without there.
    #[test]
    fn who_has_nothing_to_give_up_needs_no_right_to() {
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("there is seccomp for it");
        let rules = [(libc::SYS_capset, Vec::new())].into_iter().collect();
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
        let program = filter.and_then(BpfProgram::try_from).expect("it is sound");
        // For a thread of its own, so that no other test has it.
        let filtered = thread::spawn(move || {
            assert!(drop_capabilities(), "nobody refuses it yet");
            seccompiler::apply_filter(&program).expect("the kernel has seccomp");
            let steering = KernelSettings { steer: true, ..KernelSettings::default() };
            without_capabilities(&steering, || Ok(()))
        });
        assert_eq!(filtered.join().expect("it ends"), Ok(()));
    }
}
