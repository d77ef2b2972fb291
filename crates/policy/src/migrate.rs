//! When a connection that was moved to a large worker goes back to a small one.
//!
//! Minos moves requests, which over UDP stand alone; over TCP a request cannot leave its
//! connection, so a large one takes the connection along. It goes back after so many small
//! requests in a row, or after a turn in which it had nothing to do; a move costs a few
//! microseconds, so one small request between large ones does not send it back and forth.
//!
//! It knows no connection: the worker that serves one keeps a [`Visit`] beside it and tells it what
//! happens. Unit: requests and turns of the worker.

use crate::plan::CorePlan;
use crate::units::{BATCH, WorkerId};

/// Small requests in a row after which a visiting connection goes home.
pub const SMALL_IN_A_ROW_MAX: u16 = 4;

/// Turns in a row without anything to do after which a visiting connection goes home.
pub const IDLE_TURNS_MAX: u16 = 1;

/// Connections that a worker which has just turned large hands away in one turn: as many as it
/// would have served requests.
pub const LEAVERS_PER_TURN: u32 = BATCH;

/// A connection's stay at a large worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    home: WorkerId,
    small_in_a_row: u16,
    idle_turns: u16,
}

/// Where the connection of a [`Visit`] should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stay {
    /// Here.
    Here,
    /// At its home; see [`home`].
    GoHome,
}

impl Visit {
    /// The connection has just come from `home` for a large request.
    pub const fn new(home: WorkerId) -> Visit {
        Visit { home, small_in_a_row: 0, idle_turns: 0 }
    }

    /// The worker that it came from.
    pub const fn home(&self) -> WorkerId {
        self.home
    }

    /// A large request was served (or begun).
    pub fn large_served(&mut self) {
        self.small_in_a_row = 0;
        self.idle_turns = 0;
    }

    /// A small request was served.
    pub fn small_served(&mut self) {
        self.small_in_a_row = self.small_in_a_row.saturating_add(1);
        self.idle_turns = 0;
    }

    /// Whether it has had so many small requests in a row that it goes home at its next turn in
    /// which nothing is under way.
    pub const fn had_its_fill(&self) -> bool {
        self.small_in_a_row >= SMALL_IN_A_ROW_MAX
    }

    /// A turn of the worker has ended. `busy`: the connection has a transfer under way, replies
    /// unsent or part of a value to come; such a one stays whatever else. `idle`: it had no input
    /// in this turn.
    pub fn turn_ended(&mut self, busy: bool, idle: bool) -> Stay {
        if busy {
            self.idle_turns = 0;
            return Stay::Here;
        }
        if idle {
            self.idle_turns = self.idle_turns.saturating_add(1);
        }
        if self.had_its_fill() || self.idle_turns >= IDLE_TURNS_MAX {
            Stay::GoHome
        } else {
            Stay::Here
        }
    }
}

/// Where a connection that calls `wanted` its home lives under this plan: there, or where that
/// worker has turned large, at a small one that depends only on `wanted`'s number and `spread`
/// (any number that differs between connections), so that those of one worker scatter.
pub fn home(plan: &CorePlan, wanted: WorkerId, spread: u64) -> WorkerId {
    if wanted < WorkerId(plan.workers_small) {
        return wanted;
    }
    let turn = spread.wrapping_add(u64::from(wanted.0));
    WorkerId((turn % u64::from(plan.workers_small)) as u16)
}
