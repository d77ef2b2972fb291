//! Where the machine's CPU time goes by layer of the network stack (Hippos: driver, IP, UDP,
//! socket, and the server itself), by sampling which function runs: `perf record -e cpu-clock`.
//!
//! A layer is what a function's name says, by the table below; what it does not name is `other` or,
//! outside the kernel, the program's own. Samples and not time: a second has [`HERTZ`] of each CPU.
//! Functions that the compiler put into others count as those. Knows no server.

use crate::outcome::{Failure, Outcome, failed, passed, skipped};
use crate::process;
use lexopt::ValueExt;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

pub const HELP: &str = "\
Sample where CPU time goes by layer of the network stack, while something else runs.

usage: cargo xtask layers [--seconds N] [--cpu LIST] [--unknown]

  --seconds N  how long                                                                [5]
  --cpu LIST   only these CPUs, such as 0 or 0,1                                     [all]
  --unknown    the kernel's functions that no layer has, with their samples

Start a server and a client first, for example `laneway serve -U 11211 -t 1` and
`laneway bench --udp --closed --depth 8 --value-bytes 100 --get-share 1`; then again with
`--kernel-lane lo`. Needs perf and, for functions of the kernel, root.";

const HERTZ: &str = "999";
/// Programs with less of the samples than this are not shown by themselves.
const SHARE_SHOWN_MIN: f64 = 0.01;
const PROGRAMS_SHOWN_MAX: usize = 6;

/// Layers of the kernel and how their functions' names begin. The first that fits counts.
const LAYERS: [(&str, &str); 8] = [
    (
        "idle",
        "default_idle pv_native_safe_halt native_safe_halt haltpoll cpuidle poll_idle \
         intel_idle acpi_idle do_idle arch_cpu_idle cpu_idle mwait",
    ),
    (
        "BPF programs",
        "bpf_ ___bpf_ sk_reuseport sch_handle_ingress tcx_ skb_do_redirect run_bpf xdp_",
    ),
    (
        "driver",
        "veth_ virtnet_ virtqueue_ loopback_ dev_ __dev_ netif_ __netif_ napi_ __napi \
         net_rx_action net_tx_action process_backlog enqueue_to_backlog eth_ sch_direct \
         validate_xmit gro_ dev_gro xsk_ xmit_ handle_softirqs __local_bh do_softirq \
         __do_softirq",
    ),
    ("IP", "ip_ __ip_ ip6 ipv4_ ipv6_ fib_ nf_ __nf neigh_ rt_ inet_gro icmp dst_ ipt_ nft_"),
    ("UDP and TCP", "udp __udp tcp __tcp inet_lookup __inet reuseport_"),
    (
        "buffers",
        "skb_ __skb alloc_skb __alloc_skb consume_skb kfree kmalloc __kmalloc kmem_cache \
         ___slab __slab napi_skb page_pool build_skb slab_ memset csum_ do_csum sock_wfree \
         sock_rfree get_partial put_cpu_partial __build_skb memcpy",
    ),
    (
        "socket and calls",
        "sock __sock sk_ __sk_ inet_ __sys_ ___sys_ __x64_sys_ x64_sys do_syscall \
         entry_SYSCALL syscall_ copy_ _copy_ rep_movs import_ __import move_addr ep_ \
         do_epoll epoll fdget fput security_ aa_ apparmor lock_sock release_sock datagram_ \
         ____sys simple_copy __check_object check_heap_object srso_ retbleed",
    ),
    (
        "scheduler and time",
        "sched __sched try_to_wake ttwu __wake wake_ futex do_futex hrtimer finish_task \
         pick_ select_ update_ enqueue_task dequeue_ set_next put_prev prepare_to switch_ \
         __switch load_balance tick_ ktime read_tsc native_sched pvclock kvm_clock \
         timekeeping native_write_msr x2apic asm_sysvec sysvec clockevents smp_call \
         __smp_call rcu_ __rcu native_send",
    ),
];

/// One sample.
#[derive(Debug, PartialEq, Eq)]
struct Sample<'a> {
    program: &'a str,
    function: &'a str,
    is_kernels: bool,
}

impl<'a> Sample<'a> {
    /// A line of `perf script -F comm,ip,sym,dso`: the program, an address, the function, and in
    /// parentheses at the end the file it is from.
    fn parse(line: &'a str) -> Option<Sample<'a>> {
        let line = line.trim();
        let (rest, file) = line.strip_suffix(')')?.rsplit_once(" (")?;
        let (program, mut rest) = rest.split_once(' ')?;
        // A program's name may have spaces in it, an address has none.
        let function = loop {
            let (word, behind) = rest.trim_start().split_once(' ')?;
            if is_address(word) {
                break behind.trim();
            }
            rest = behind;
        };
        let is_kernels = file.starts_with('[') && file != "[vdso]" || file.starts_with("bpf_prog");
        Some(Sample { program, function, is_kernels })
    }

    fn layer(&self) -> &'static str {
        if !self.is_kernels {
            return "programs themselves";
        }
        let begins = |names: &str| names.split(' ').any(|name| self.function.starts_with(name));
        let layer = LAYERS.iter().find(|(_, names)| begins(names));
        layer.map_or("other", |(layer, _)| layer)
    }
}

fn is_address(word: &str) -> bool {
    word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut seconds, mut cpus, mut unknown) = (5_u32, None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("seconds") => seconds = parser.value()?.parse()?,
            lexopt::Arg::Long("cpu") => cpus = Some(parser.value()?.string()?),
            lexopt::Arg::Long("unknown") => unknown = true,
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    if seconds == 0 {
        return Err(Failure::Usage("--seconds 0: must be at least 1".into()));
    }
    let Some(perf) = process::find_program("perf") else {
        return skipped("no perf here (Debian: apt-get install linux-perf)");
    };
    let file = process::scratch_dir("layers")?.join("perf.data");
    let mut record = Command::new(&perf);
    record.args(["record", "--quiet", "-e", "cpu-clock", "-F", HERTZ, "-a", "-o"]).arg(&file);
    record.args(cpus.iter().flat_map(|cpus| ["-C", cpus.as_str()]));
    record.args(["--", "sleep", &seconds.to_string()]);
    process::run(&mut record)?;
    let mut script = Command::new(&perf);
    script.args(["script", "-F", "comm,ip,sym,dso", "-i"]).arg(&file).stderr(Stdio::null());
    let output = script.output().map_err(|error| format!("perf script: {error}"))?;
    let _ = std::fs::remove_file(&file); // large, and of no use any more
    let text = String::from_utf8_lossy(&output.stdout);
    let samples: Vec<Sample<'_>> = text.lines().filter_map(Sample::parse).collect();
    let own = |sample: &&Sample<'_>| sample.program != "perf";
    let samples: Vec<&Sample<'_>> = samples.iter().filter(own).collect();
    if samples.is_empty() {
        return failed("perf took no samples; it needs root, or kernel.perf_event_paranoid of -1");
    }
    print!("{}", table(&samples));
    if unknown {
        print!("{}", unnamed(&samples));
    }
    passed("")
}

/// Layers by programs, as shares of all samples that were not idle.
fn table(samples: &[&Sample<'_>]) -> String {
    let mut cells: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut programs: BTreeMap<&str, usize> = BTreeMap::new();
    let busy = samples.iter().filter(|sample| sample.layer() != "idle");
    let mut all = 0;
    for sample in busy {
        all += 1;
        *cells.entry((sample.layer(), sample.program)).or_default() += 1;
        *programs.entry(sample.program).or_default() += 1;
    }
    let share = |count: usize| 100.0 * count as f64 / all.max(1) as f64;
    let mut shown: Vec<(&str, usize)> = programs.into_iter().collect();
    shown.retain(|(_, count)| share(*count) >= 100.0 * SHARE_SHOWN_MIN);
    shown.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    shown.truncate(PROGRAMS_SHOWN_MAX);
    let mut out = format!("{:<22}{:>8}", "% of busy samples", "all");
    shown.iter().for_each(|(program, _)| write!(out, "{program:>17}").expect("a string"));
    let layers = LAYERS.iter().map(|(layer, _)| *layer).filter(|layer| *layer != "idle");
    for layer in layers.chain(["other", "programs themselves"]) {
        let of = |program: &str| cells.get(&(layer, program)).copied().unwrap_or(0);
        let sum: usize = cells.iter().filter(|((l, _), _)| *l == layer).map(|(_, n)| n).sum();
        write!(out, "\n{layer:<22}{:>8.1}", share(sum)).expect("a string");
        shown.iter().for_each(|(p, _)| write!(out, "{:>17.1}", share(of(p))).expect("a string"));
    }
    writeln!(out, "\n{all} busy samples, {} idle", samples.len() - all).expect("a string");
    out
}

/// What the table above does not know, the most frequent first.
fn unnamed(samples: &[&Sample<'_>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.layer() == "other") {
        *counts.entry(sample.function).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().fold(String::new(), |out, (name, count)| format!("{out}{count:>6} {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
        \x20       worker-0  ffffffff81a2b3c4 udp_recvmsg ([kernel.kallsyms])\n\
        \x20       worker-0  ffffffff81a2b3c5 __x64_sys_recvmmsg ([kernel.kallsyms])\n\
        \x20       worker-0      55d0c0ffee10 <a::B as c::D>::e (f) (/usr/bin/laneway)\n\
        \x20   two words 1  ffffffffc00aa000 bpf_prog_12ab_lane (bpf_prog_12ab_lane)\n\
        \x20        swapper  ffffffff81000000 pv_native_safe_halt ([kernel.kallsyms])\n\
        \x20         sender      7fff00001000 __vdso_clock_gettime ([vdso])\n\
        \x20         sender  ffffffff81000001 strange_thing ([kernel.kallsyms])\n\
        no sample\n";

    fn layers() -> Vec<(&'static str, &'static str)> {
        let samples = LINES.lines().filter_map(Sample::parse);
        samples.map(|sample| (sample.program, sample.layer())).collect()
    }

    #[test]
    fn a_sample_belongs_to_the_layer_that_its_function_names() {
        let expected = [
            ("worker-0", "UDP and TCP"),
            ("worker-0", "socket and calls"),
            ("worker-0", "programs themselves"),
            ("two", "BPF programs"),
            ("swapper", "idle"),
            ("sender", "programs themselves"),
            ("sender", "other"),
        ];
        assert_eq!(layers(), expected);
        let line = LINES.lines().nth(2).expect("the third");
        assert_eq!(Sample::parse(line).map(|s| s.function), Some("<a::B as c::D>::e (f)"));
    }

    #[test]
    fn idle_is_no_part_of_the_shares() {
        let samples: Vec<Sample<'_>> = LINES.lines().filter_map(Sample::parse).collect();
        let table = table(&samples.iter().collect::<Vec<_>>());
        assert!(table.ends_with("6 busy samples, 1 idle\n"), "{table}");
        let row = |name: &str| table.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let udp = row("UDP and TCP").expect("its row");
        assert_eq!(udp.split_whitespace().nth(3), Some("16.7"), "{udp}");
        assert!(row("idle").is_none());
        let unnamed = unnamed(&samples.iter().collect::<Vec<_>>());
        assert_eq!(unnamed.trim(), "1 strange_thing");
    }
}
