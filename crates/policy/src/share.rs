//! How the two lanes of one worker share its time while both have work: how much of what is small
//! is served between two slices, and whose slice comes next.
//!
//! Replies of a connection keep their order, so a small request that was pipelined behind a large
//! one waits for that transfer and for nothing else; proxies and pooled clients send such. A
//! transfer with requests behind it is therefore *urgent*: it inherits their priority (as who holds
//! a lock does: Sha, Rajkumar, Lehoczky, "Priority Inheritance Protocols", IEEE Transactions on
//! Computers, 1990). The others are *plain*. Two rules follow, and both are weights:
//!
//! - Between two slices a worker serves [`requests_between_slices`] small requests, the fewer the
//!   more transfers wait. An urgent one counts as much as a plain backlog of eight: so the share of
//!   the large lane grows with what waits there, and its backlog comes to an end.
//! - Urgent transfers have [`URGENT_IN_A_ROW`] slices before a plain one has one, so that neither
//!   starves.
//!
//! Worst cases, in slices (each at most [`crate::SLICE_BYTES`]) and turns of connections (each at
//! most [`REQUESTS_BESIDE_LARGE`] requests): a small request that is ready waits for at most one
//! slice for each connection that is served before it. Where `u` urgent and `p` plain transfers
//! wait, each has a turn within `4·(u + p)` turns of transfers, whoever joins them, and at most
//! [`crate::BATCH_BESIDE_LARGE`] connections have theirs between two slices. (A turn of a transfer
//! is a run of slices that its server bounds.)
//!
//! Departs from Minos (NSDI'19 §3), whose cores serve either lane to completion and whose clients
//! do not pipeline. Knows no clock and no connection. Units: requests, connections, slices.

use crate::units::BATCH_BESIDE_LARGE;

/// Slices of urgent transfers before a plain one has its slice.
pub const URGENT_IN_A_ROW: u32 = 3;

/// Requests that a connection has served in one turn while a transfer waits.
pub const REQUESTS_BESIDE_LARGE: usize = 32;

/// So many plain transfers weigh as much as an urgent one.
const PLAIN_OF_URGENT: u32 = 8;

/// Transfers that wait for a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// With requests behind them on their connection.
    pub urgent: u32,
    /// Without.
    pub plain: u32,
}

impl Waiting {
    /// Whether there is none.
    #[inline]
    pub fn is_none(self) -> bool {
        self.urgent == 0 && self.plain == 0
    }
}

/// Small requests that are served between two slices: [`BATCH_BESIDE_LARGE`] beside one plain
/// transfer, and fewer beside more; at least 1.
#[inline]
pub fn requests_between_slices(waiting: Waiting) -> u32 {
    let urgent = waiting.urgent.saturating_mul(PLAIN_OF_URGENT);
    let weight = urgent.saturating_add(waiting.plain.saturating_sub(1));
    (BATCH_BESIDE_LARGE * PLAIN_OF_URGENT / weight.saturating_add(PLAIN_OF_URGENT)).max(1)
}

/// How many requests a connection has in a turn, over the last turns: a pipeline has many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// Sixteenths of a request.
    sixteenths: u32,
}

impl Default for Depth {
    fn default() -> Depth {
        Depth { sixteenths: 16 }
    }
}

impl Depth {
    /// So many connections had a turn, with so many requests in all.
    #[inline]
    pub fn note(&mut self, connections: u32, requests: u32) {
        if let Some(now) = requests.saturating_mul(16).checked_div(connections) {
            self.sixteenths = (7 * self.sixteenths.min(1 << 24) + now.min(1 << 24)) / 8;
        }
    }

    /// Connections that have a turn between two slices; at least 1, at most [`BATCH_BESIDE_LARGE`].
    #[inline]
    pub fn connections_between_slices(self, waiting: Waiting) -> u32 {
        let requests = 16 * requests_between_slices(waiting);
        (requests / self.sixteenths.max(16)).clamp(1, BATCH_BESIDE_LARGE)
    }
}

/// Whose slice comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    urgent_in_a_row: u32,
}

impl Share {
    /// Whether it is an urgent transfer's; `None` where nobody waits.
    #[inline]
    pub fn next_is_urgent(&mut self, waiting: Waiting) -> Option<bool> {
        if waiting.is_none() {
            return None;
        }
        let is_urgent =
            waiting.plain == 0 || (waiting.urgent > 0 && self.urgent_in_a_row < URGENT_IN_A_ROW);
        // Who is alone has not kept anybody waiting.
        let keeps_waiting = is_urgent && waiting.plain > 0;
        self.urgent_in_a_row = if keeps_waiting { self.urgent_in_a_row + 1 } else { 0 };
        Some(is_urgent)
    }
}
