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
//!   more transfers wait: so the share of the large lane grows with its backlog, and the backlog
//!   comes to an end. While one of them is urgent these are [`REQUESTS_BESIDE_URGENT`] at most.
//!   The requests behind an urgent transfer may be large themselves: the worker cannot tell, and
//!   their client is then moving many values and is in no hurry. So this bound is all that urgency
//!   takes from the small lane.
//! - Urgent transfers have [`URGENT_IN_A_ROW`] slices before a plain one has one, so that neither
//!   starves. In each line they are served first come, first served, by [runs](`Run`).
//!
//! Worst cases, of the slices of streams (each at most [`crate::SLICE_BYTES`]), where `u` urgent
//! and `p` plain transfers wait. `n` is [`Depth::connections_between_slices`], at least 1: so many
//! connections have a turn of at most [`REQUESTS_BESIDE_LARGE`] requests between two slices.
//!
//! - *Small*: a request that is ready, with `r` connections ready before its own, is served behind
//!   at most `r / n + 1` slices, rounded down. Where clients have one request under way, `n` is 8
//!   beside one plain transfer, `64 / (w + 7)` beside `w`, and 4 at most where one is urgent. As
//!   urgency halves the requests at most, `n` is at least half of what it is where all are plain,
//!   rounded down.
//! - *Large*: who joins comes last in its line, and so does a transfer that changes its line. An
//!   urgent one has its run behind at most `4/3` of the slices of `u - 1` urgent runs and one; a
//!   plain one behind at most 4 times the slices of `p - 1` plain runs and 3, whoever joins. Each
//!   of these slices waits for the turns of `n` connections that are ready, and of as many that had
//!   to wait for another turn.
//!
//! It departs from Minos (NSDI'19 §3), whose cores serve either lane to completion and whose
//! clients do not pipeline. It knows no clock and no connection. Units: requests, connections,
//! slices.

use crate::units::{BATCH, BATCH_BESIDE_LARGE};

/// Slices of urgent transfers before a plain one has its slice.
pub const URGENT_IN_A_ROW: u32 = 3;

/// Requests that a connection has served in one turn; a deep pipeline lets others in between.
pub const REQUESTS_PER_TURN: usize = 128;

/// The same while a transfer waits.
pub const REQUESTS_BESIDE_LARGE: usize = 32;

/// Connections with large requests that a large worker takes on at a time; the rest wait in the
/// shared queue for whoever is free first.
pub const LARGE_AT_A_TIME: usize = 2;

/// Small requests that are served between two slices, at most, while an urgent transfer waits. Half
/// of what a single plain one leaves: so urgency at most halves the share of the small lane.
pub const REQUESTS_BESIDE_URGENT: u32 = BATCH_BESIDE_LARGE / 2;

/// Behind the first transfer, so many more halve the small requests between two slices.
const HALVING: u32 = 8;

/// Bytes that a plain transfer moves, slice by slice, before the next one has its turn. Values up
/// to this size are served first come, first served, which for sizes of one kind has the shortest
/// tail; a giant among them does not hold the others up for longer than this.
pub const RUN_BYTES: usize = 8 << 20;

/// The same among urgent ones: requests wait for all that goes before.
pub const RUN_BYTES_URGENT: usize = 1 << 20;

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
/// transfer, fewer beside more, and at most [`REQUESTS_BESIDE_URGENT`] beside an urgent one; at
/// least 1.
#[inline]
pub fn requests_between_slices(waiting: Waiting) -> u32 {
    let more = waiting.urgent.saturating_add(waiting.plain).saturating_sub(1);
    let requests = (BATCH_BESIDE_LARGE * HALVING / more.saturating_add(HALVING)).max(1);
    if waiting.urgent > 0 { requests.min(REQUESTS_BESIDE_URGENT) } else { requests }
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

    /// Connections that have a turn in one round: between two slices, or a batch.
    #[inline]
    pub fn burst(self, waiting: Waiting) -> u32 {
        match waiting.is_none() {
            true => BATCH,
            false => self.connections_between_slices(waiting),
        }
    }

    /// Connections that have a turn between two slices; at least 1, at most [`BATCH_BESIDE_LARGE`].
    #[inline]
    pub fn connections_between_slices(self, waiting: Waiting) -> u32 {
        let requests = 16 * requests_between_slices(waiting);
        (requests / self.sixteenths.max(16)).clamp(1, BATCH_BESIDE_LARGE)
    }
}

/// Requests that a connection has served in one turn while so many transfers wait.
#[inline]
pub fn requests_per_turn(waiting: Waiting) -> usize {
    if waiting.is_none() { REQUESTS_PER_TURN } else { REQUESTS_BESIDE_LARGE }
}

/// What a worker does next in its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A turn for the next connection that was found ready.
    Ready,
    /// A turn for the next one that had to wait for another.
    Again,
    /// One slice, if any transfer waits.
    Slice,
    /// The round is over: connections with large work are taken on, and [`Round::begin`].
    Over,
}

/// The order of a worker's round: a turn for each connection that was found ready, a turn for as
/// many at most that had to wait for another one, then one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    stage: Stage,
    /// Connections that have a turn of a kind.
    burst: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    Ready,
    /// So many more that had to wait.
    Again(u32),
    #[default]
    Over,
}

impl Round {
    /// A new one, in which so many connections that are ready have a turn, and as many that waited.
    pub fn begin(&mut self, burst: u32) {
        *self = Round { stage: Stage::Ready, burst };
    }

    /// What is next, where so many of the round's ready connections are left, and so many wait for
    /// another turn.
    pub fn next(&mut self, ready: usize, again: usize) -> Step {
        if self.stage == Stage::Ready {
            if ready > 0 {
                return Step::Ready;
            }
            self.stage = Stage::Again((self.burst as usize).min(again) as u32);
        }
        if let Stage::Again(left) = self.stage {
            if let Some(left) = left.checked_sub(1).filter(|_| again > 0) {
                self.stage = Stage::Again(left);
                return Step::Again;
            }
            self.stage = Stage::Over;
            return Step::Slice;
        }
        Step::Over
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

/// The slices that a transfer has at a stretch, while the others of its line wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    bytes: usize,
}

impl Run {
    /// It moved `bytes` in a slice that came to it in the line `was_urgent`, and is `is_urgent`
    /// now. Whether the next slice of that line is its own as well; if not it begins a new run at
    /// the end of its line. So who changes the line overtakes nobody there.
    #[inline]
    pub fn goes_on(&mut self, bytes: usize, was_urgent: bool, is_urgent: bool) -> bool {
        self.bytes += bytes;
        let most = if is_urgent { RUN_BYTES_URGENT } else { RUN_BYTES };
        was_urgent == is_urgent && self.bytes < most
    }
}
