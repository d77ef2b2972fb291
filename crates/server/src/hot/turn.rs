//! A worker's steps for hot keys: it counts what it executes, looks up which worker owns a key,
//! reads the slot's table, and begins a new slot when the last is over.

use super::board::{Finding, HotKeyTable};
use super::local::HotWorker;
use crate::core::Core;
use crate::request::requests::key_of;
use laneway_policy::WorkerId;
use laneway_policy::hot::scheduler::Found;
use laneway_policy::hot::sketch::KeyHash;
use laneway_transport::Transport;
use laneway_wire::{KEY_BYTES_MAX, Request};

impl<T: Transport> Core<T> {
    /// The top of a turn: is the slot over?
    #[inline]
    pub(crate) fn turn_hot(&mut self, now: u64) {
        if let Some(hot) = &mut self.hot
            && Self::turn_slot(hot, now)
        {
            self.close_slot(now);
        }
    }

    /// Before requests are served: whose are the hot keys now?
    #[inline]
    pub(crate) fn follow_hot(&mut self) {
        if let (Some(hot), Some(board)) = (&mut self.hot, &self.shared.hot) {
            Self::follow_table(hot, board);
        }
    }

    // Not inlined, as `close_slot`, `follow_table`, `hot_owner` and `count_access` are not: these
    // are all that hot keys cost, and `cargo xtask observe-cost` counts them by their names.
    #[inline(never)]
    fn turn_slot(hot: &mut HotWorker, now: u64) -> bool {
        hot.turn(now)
    }

    #[inline(never)]
    fn close_slot(&self, now: u64) {
        if let Some(board) = &self.shared.hot {
            board.end_slot(now, |worker| self.shared.workers[worker].lanes.executed());
        }
    }

    #[inline(never)]
    fn follow_table(hot: &mut HotWorker, board: &HotKeyTable) {
        hot.follow(board);
    }

    /// The worker that a key belongs to in this slot.
    #[inline]
    pub(crate) fn owner_of(&self, key: &[u8]) -> WorkerId {
        let placement = &self.shared.placement;
        let hot = self.hot.as_deref().and_then(|hot| Self::hot_owner(hot, key));
        hot.unwrap_or_else(|| placement.owner(placement.hash(key)))
    }

    #[inline(never)]
    fn hot_owner(hot: &HotWorker, key: &[u8]) -> Option<WorkerId> {
        hot.routed(hot.hash(key)).map(|routed| routed.owner)
    }

    /// A request for `key` was executed here. Not told of one that goes elsewhere after all: where
    /// it goes it is counted.
    #[inline]
    pub(crate) fn count_hot(&mut self, key: &[u8], writes: bool) {
        if self.hot.is_some() {
            self.count_access(key, writes);
        } else if self.dice.falls() {
            self.sample(key, writes);
        }
    }

    /// The same for a request without a value that is no `get`.
    #[inline]
    pub(crate) fn count_hot_request(&mut self, request: &Request<'_>) {
        if self.hot.is_none() && !self.dice.falls() {
            return;
        }
        let mut scratch = [0; KEY_BYTES_MAX];
        if let Some((key, writes)) = key_of(request, &mut scratch) {
            match self.hot.is_some() {
                true => self.count_access(key, writes),
                false => self.sample(key, writes),
            }
        }
    }

    /// A request by RESP or the binary protocol, which no design hands to its key's owner: its key
    /// is not counted among hot ones, since whose they are changes nothing for it. A slot has it
    /// among its requests all the same, and it may be a sample.
    #[inline]
    pub(crate) fn sample_uncounted(&mut self, key: &[u8], writes: bool) {
        if let Some(hot) = &mut self.hot {
            hot.executes();
        } else if self.dice.falls() {
            self.sample(key, writes);
        }
    }

    #[cold]
    fn sample(&mut self, key: &[u8], writes: bool) {
        self.shared.workers[self.id.index()].samples.note(key, writes);
    }

    #[inline(never)]
    fn count_access(&mut self, key: &[u8], writes: bool) {
        let (Some(hot), Some(board)) = (&mut self.hot, &self.shared.hot) else { return };
        hot.executes();
        let hash = hot.hash(key);
        if let Some(routed) = hot.routed(hash) {
            return board.count_owner(self.id, routed.number, writes);
        }
        let is_owned = board.is_owned(writes);
        if let Some(count) = hot.count(hash, is_owned) {
            self.found_hot(key, hash, count, is_owned);
        }
    }

    /// A key has crossed the threshold here.
    #[cold]
    fn found_hot(&mut self, key: &[u8], hash: KeyHash, count: u32, is_owned: bool) {
        let (Some(hot), Some(board)) = (&mut self.hot, &self.shared.hot) else { return };
        // Of what is spread over the workers, one has seen its share.
        let workers = u32::from(board.settings().workers);
        let (requests, owned) =
            if is_owned { (count, count) } else { (count.saturating_mul(workers), 0) };
        let placement = &self.shared.placement;
        let place = placement.hash(key);
        let finding = Finding {
            slot: hot.routes().head().slot,
            found: Found { key: hash, requests, owned, is_estimate: !is_owned },
            text: key,
            place,
            home: placement.owner(place),
        };
        let executed = |worker: usize| self.shared.workers[worker].lanes.executed();
        board.found(hot.now_nanos, executed, &finding);
        hot.follow(board);
    }
}
