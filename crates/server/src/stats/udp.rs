//! `stats udp`: what came in datagrams, what left, and every way in which input was bad.

use super::lines::Lines;

/// What `stats udp` tells.
#[derive(Debug, Clone, Default)]
pub struct UdpSnapshot {
    /// Each queue: its address, and whether clients choose it by its port.
    pub queues: Vec<(String, bool)>,
    /// Whether strangers may ask.
    pub public: bool,
    /// Counts and their names, summed over the workers.
    pub counts: Vec<(&'static str, u64)>,
    /// Replies that are kept for clients that miss frames, and their bytes.
    pub kept: (u64, u64),
    /// Bytes that requests, replies and their parts take beside the store; how many at most; and
    /// bytes of the tables of answers.
    pub buffers: (u64, u64, u64),
    /// What the kernel counts for all sockets of the network namespace, where it tells.
    pub kernel: Vec<(&'static str, u64)>,
}

/// Answer `stats udp`. `None`: no datagrams are served.
pub fn write_udp(snapshot: Option<&UdpSnapshot>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("udp", snapshot.is_some());
    if let Some(snapshot) = snapshot {
        lines.yes("public", snapshot.public);
        lines.number("queues", snapshot.queues.len() as u64);
        for (number, (address, chosen)) in snapshot.queues.iter().enumerate() {
            lines.text(&format!("queue:{number}:address"), address);
            lines.yes(&format!("queue:{number}:chosen_by_port"), *chosen);
        }
        for (name, count) in &snapshot.counts {
            lines.number(name, *count);
        }
        lines.number("replies_kept", snapshot.kept.0);
        lines.number("replies_kept_bytes", snapshot.kept.1);
        let (held, most, answers) = snapshot.buffers;
        lines.number("buffer_bytes", held);
        lines.number("buffer_bytes_max", most);
        lines.number("answer_bytes", answers);
        for (name, count) in &snapshot.kernel {
            lines.number(name, *count);
        }
    }
    lines.end();
}

/// What we call the kernel's counts, and what it calls them.
const KERNEL: [(&str, &str); 3] = [
    ("kernel_no_such_queue", "NoPorts"),
    ("kernel_receive_buffer_full", "RcvbufErrors"),
    ("kernel_send_buffer_full", "SndbufErrors"),
];

/// The counts of interest in the text of `/proc/net/snmp`: a line of names and a line of numbers
/// for each protocol. Datagrams to a port where no queue is are known to the kernel alone.
pub fn kernel_counts(snmp: &str) -> Vec<(&'static str, u64)> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return Vec::new() };
    let pairs = || names.split(' ').zip(numbers.split(' '));
    let find = |(ours, theirs): (&'static str, &str)| {
        let (_, number) = pairs().find(|(name, _)| *name == theirs)?;
        Some((ours, number.parse().ok()?))
    };
    KERNEL.into_iter().filter_map(find).collect()
}
