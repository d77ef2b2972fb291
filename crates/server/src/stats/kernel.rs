//! `stats kernel`: what the programs in the kernel did with the datagrams that came by, since the
//! start or the last `stats reset`.

use super::lines::{Lines, numbers};

/// What `stats kernel` tells of the GET lane.
#[derive(Debug, Clone, Default)]
pub struct KernelLaneSnapshot {
    /// Where it is attached.
    pub interfaces: Vec<String>,
    /// At which hook.
    pub hook: &'static str,
    /// Memory for items that it serves.
    pub memory_bytes: u64,
    /// Items there, those under construction included.
    pub items: u64,
    /// Items that moved there because they were asked for often.
    pub promotions: u64,
    /// Items that made room for these.
    pub demotions: u64,
    /// GETs answered, each key of several one.
    pub hits: u64,
    /// Datagrams that asked for them.
    pub datagrams: u64,
    /// Datagrams that went up to the server as they came, by cause.
    pub passes: Vec<(&'static str, u64)>,
    /// Reads that began again because the bucket changed.
    pub retries: u64,
    /// Hits by floor log2 of key + value bytes.
    pub hits_of_class: Vec<u64>,
}

/// What `stats kernel` tells of the way past the stack.
#[derive(Debug, Clone, Default)]
pub struct BypassSnapshot {
    /// The interfaces, with commas between.
    pub interface: String,
    /// Who moves packets.
    pub mode: &'static str,
    /// Where the program is attached.
    pub hook: &'static str,
    /// RX queues of all of them.
    pub queues: usize,
    /// Whether workers look at the card's driver.
    pub busy_poll: bool,
    /// Packets and their fates, since the start.
    pub counts: Vec<(String, u64)>,
}

/// What `stats kernel` tells.
#[derive(Debug, Clone, Default)]
pub struct KernelSnapshot {
    /// The GET lane.
    pub lane: Option<KernelLaneSnapshot>,
    /// Datagrams that were steered, or not, and slots rewritten, since the start, and their names.
    pub steering: Option<Vec<(&'static str, u64)>>,
    /// The way past the stack.
    pub bypass: Option<BypassSnapshot>,
}

/// Answer `stats kernel`.
pub fn write_kernel(snapshot: &KernelSnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("kernel_lane", snapshot.lane.is_some());
    if let Some(lane) = &snapshot.lane {
        lines.text("interfaces", &lane.interfaces.join(","));
        lines.text("hook", lane.hook);
        numbers!(lines, lane; memory_bytes items promotions demotions hits datagrams);
        for (cause, count) in &lane.passes {
            lines.number(&format!("passed:{cause}"), *count);
        }
        lines.number("retries", lane.retries);
        for (class, hits) in lane.hits_of_class.iter().enumerate().filter(|(_, hits)| **hits > 0) {
            lines.number(&format!("hits:from_{}_bytes", 1u64 << class), *hits);
        }
    }
    lines.yes("steering", snapshot.steering.is_some());
    for (name, count) in snapshot.steering.iter().flatten() {
        lines.number(name, *count);
    }
    lines.yes("af_xdp", snapshot.bypass.is_some());
    if let Some(bypass) = &snapshot.bypass {
        lines.text("af_xdp:interface", &bypass.interface);
        lines.text("af_xdp:mode", bypass.mode);
        lines.text("af_xdp:hook", bypass.hook);
        lines.number("af_xdp:queues", bypass.queues as u64);
        lines.yes("af_xdp:busy_poll", bypass.busy_poll);
        for (name, count) in &bypass.counts {
            lines.number(&format!("af_xdp:{name}"), *count);
        }
    }
    lines.end();
}
