//! Progress of a compaction of the whole store ([`crate::background::condense`]), which goes a step
//! at a time: the work that is left, and, of one that was requested while the store serves, what is
//! reported of it.

use crate::types::Error;
use std::sync::{Mutex, MutexGuard};

/// How a compaction beside everything else stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// None was asked for since the store was opened.
    #[default]
    None,
    /// It goes on.
    UnderWay,
    /// It is done.
    Done,
    /// It has done what there was room for.
    Short,
    /// It was given up.
    Stopped,
    /// A medium refused; the next write that needs that medium tells why.
    Failed,
}

impl Standing {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Standing::None => "none",
            Standing::UnderWay => "running",
            Standing::Done => "done",
            Standing::Short => "short_of_room",
            Standing::Stopped => "stopped",
            Standing::Failed => "failed",
        }
    }
}

/// The last compaction beside everything else, as it is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compaction {
    /// How it stands.
    pub standing: Standing,
    /// Bytes of segments and sort tables that it rewrote.
    pub done_bytes: u64,
    /// The same with what is left, as far as it is known.
    pub all_bytes: u64,
}

/// Where it is.
#[derive(Default)]
pub struct Work {
    /// The stage's number.
    pub stage: usize,
    /// Sort tables that looked sparse when a pass over them began, the sparsest last. There may be
    /// a million: they are looked for once a pass.
    pub tables: Vec<u64>,
    /// Segments that were sealed when their stage began: slot, generation, end; the oldest last.
    pub segments: Vec<(u32, u64, u32)>,
    /// So many tables' worth of current bytes are merged at a time, at most.
    pub tables_at_once: u64,
    /// The same in bytes; less once there was no room for as much.
    pub live_bytes_most: u64,
    /// Passes over the tables that were begun in this stage.
    pub passes: u32,
    /// This one has gained blocks.
    pub gained: bool,
    /// There was no room for some of it.
    pub full: Option<Error>,
    /// So many blocks were free when there was last no room to make any in the log.
    pub short_at: Option<u64>,
    /// Bytes of segments and tables that were rewritten.
    pub done_bytes: u64,
    /// The same of those that are left, as far as it is known.
    pub left_bytes: u64,
}

impl Work {
    /// Nothing is done yet.
    pub fn new(tables_at_once: u64) -> Work {
        Work { tables_at_once, ..Work::default() }
    }

    /// So much of what was left is rewritten.
    pub fn did(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

#[derive(Default)]
struct State {
    told: Compaction,
    /// While nobody makes a step of it.
    work: Option<Work>,
}

/// There is one at a time. The lock is held for moments, never while a medium works.
#[derive(Default)]
pub struct Asked(Mutex<State>);

impl Asked {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics inside")
    }

    /// Begins one; false if one is under way.
    pub fn begin(&self, work: Work) -> bool {
        let mut state = self.state();
        let is_free = state.told.standing != Standing::UnderWay;
        if is_free {
            let told = Compaction { standing: Standing::UnderWay, ..Compaction::default() };
            *state = State { told, work: Some(work) };
        }
        is_free
    }

    /// Gives it up; false if none is under way. A step that is being made is made.
    pub fn stop(&self) -> bool {
        self.end(Standing::Stopped)
    }

    /// It comes to no end: no step is made any more.
    pub fn fail(&self) {
        self.end(Standing::Failed);
    }

    fn end(&self, standing: Standing) -> bool {
        let mut state = self.state();
        let is_under_way = state.told.standing == Standing::UnderWay;
        if is_under_way {
            (state.told.standing, state.work) = (standing, None);
        }
        is_under_way
    }

    /// What is left of it, for a step.
    pub fn take(&self) -> Option<Work> {
        self.state().work.take()
    }

    /// A step was made of it, the last if it has come to an end. Nothing, where it was given up
    /// meanwhile.
    pub fn give_back(&self, work: Work, end: Option<Standing>) {
        let mut state = self.state();
        if state.told.standing != Standing::UnderWay || state.work.is_some() {
            return;
        }
        let all_bytes = work.done_bytes + work.left_bytes;
        let standing = end.unwrap_or(Standing::UnderWay);
        state.told = Compaction { standing, done_bytes: work.done_bytes, all_bytes };
        state.work = end.is_none().then_some(work);
    }

    /// The last one.
    pub fn told(&self) -> Compaction {
        self.state().told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_given_up_during_a_step_does_not_come_back() {
        let asked = Asked::default();
        assert!(!asked.stop() && asked.take().is_none());
        assert!(asked.begin(Work::new(2)) && !asked.begin(Work::new(2)));
        let mut work = asked.take().expect("it was begun");
        assert!(asked.take().is_none(), "one step at a time");
        work.left_bytes = 10;
        work.did(4);
        asked.give_back(work, None);
        let told = Compaction { standing: Standing::UnderWay, done_bytes: 4, all_bytes: 10 };
        assert_eq!(asked.told(), told);
        let stale = asked.take().expect("it goes on");
        assert!(asked.stop() && !asked.stop());
        // Another is begun before the step of the first has ended.
        assert!(asked.begin(Work::new(2)));
        asked.give_back(stale, Some(Standing::Failed));
        let told = Compaction { standing: Standing::UnderWay, ..Compaction::default() };
        assert_eq!(asked.told(), told);
        let work = asked.take().expect("the second");
        asked.give_back(work, Some(Standing::Done));
        assert_eq!(asked.told().standing, Standing::Done);
        assert!(asked.take().is_none() && !asked.stop());
    }
}
