//! Requests about several keys that change in one moment: a transaction behind `WATCH`, `MSETNX`,
//! `RENAME`, `RENAMENX` ([`crate::resp::scratch`]). All their items are in memory together before
//! any of them is copied. Nothing else comes between the first copy and the last change, since the
//! durable executor alone changes items, and one step does all of it.
//!
//! All keys are hidden before the first of them changes, so a worker that has met the new item of
//! one cannot meet the old item of another behind it. To the tier they go one after the other, and
//! a crash may come between two of them. What is stored goes before what is deleted, and nothing is
//! deleted where something was refused: the item of a `RENAME` always has one of its names.

use super::capture;
use super::ready::step_of;
use super::state::DurableExecutor;
use super::task::{Step, Task};
use crate::execute::Context;
use crate::execute::redis::{Asking, Watched, words_of_refused};
use crate::jobs::handoff::{Spoken, WatchedRequests};
use crate::latency::{self, Operation};
use crate::resp::multi::put_nothing;
use crate::resp::options::Refusal;
use crate::resp::scratch::{Asked, BYTES_MAX, Change, Keys, Scratch, TOO_MUCH};
use laneway_policy::route::lane;
use laneway_policy::{ItemBytes, Lane};
use laneway_store::{Draft, KeyHash, Store};
use laneway_tier::Look;
use laneway_wire::resp::reply::put_array_head;
use std::cell::Cell;

/// What has come of a try to execute requests.
enum Tried {
    /// They were executed, and this is the reply.
    Done(Vec<u8>),
    /// What is watched has changed.
    Changed,
    /// The task waits, and nothing was done.
    Waits(Step),
}

impl<S> DurableExecutor<S> {
    /// Executes a transaction behind `WATCH`.
    pub(super) fn watched(&mut self, task: &mut Task, requests: &WatchedRequests) -> Step {
        let WatchedRequests { count, spoken, .. } = requests;
        match self.at_once(task, requests) {
            Ok(Tried::Done(replies)) => {
                let mut head = Vec::new();
                put_array_head(&mut head, *count as usize);
                task.reply.push_bytes(&head);
                task.reply.push_bytes(&replies);
            }
            Ok(Tried::Changed) => {
                let mut nothing = Vec::new();
                put_nothing(&mut nothing, spoken.version);
                task.reply.push_bytes(&nothing);
            }
            Ok(Tried::Waits(step)) => return step,
            Err(words) => task.refuse(&words),
        }
        Step::Done
    }

    /// Executes one request that changes several keys.
    pub(super) fn several(&mut self, task: &mut Task, request: &[u8], spoken: Spoken) -> Step {
        let (bytes, watched) = (request.to_vec(), Vec::new());
        match self.at_once(task, &WatchedRequests { bytes, count: 1, watched, spoken }) {
            Ok(Tried::Done(reply)) => task.reply.push_bytes(&reply),
            Ok(Tried::Changed) => unreachable!("it watches nothing"),
            Ok(Tried::Waits(step)) => return step,
            Err(words) => task.refuse(&words),
        }
        Step::Done
    }

    fn at_once(&mut self, task: &mut Task, asked: &WatchedRequests) -> Result<Tried, Refusal> {
        let keys = Keys::of(&asked.bytes, &asked.watched)?;
        let keys: Vec<&[u8]> = keys.asked.into_iter().collect();
        let mut trial = match self.trial.take() {
            Some(trial) => trial,
            None => Box::new(Scratch::new(self.limits.item_bytes_max as u64)?),
        };
        let tried = self.try_out(task, &mut trial, &keys, asked);
        trial.clear(self.now);
        self.trial = Some(trial);
        tried
    }

    fn try_out(
        &mut self,
        task: &mut Task,
        trial: &mut Scratch,
        keys: &[&[u8]],
        asked: &WatchedRequests,
    ) -> Result<Tried, Refusal> {
        if let Some(step) = self.gather_copies(task, trial, keys)? {
            return Ok(Tried::Waits(step));
        }
        if let Some(step) = self.learn_ends(task, keys.len(), &asked.watched) {
            return Ok(Tried::Waits(step));
        }
        let holds = |watched: &Watched| {
            let hash = self.shared.store.hash(&watched.key);
            let edition = self.durable.pending_writes.edition(hash);
            // Who watches it may have been told what was there before it was changed.
            !self.befores.was_told((&watched.key, hash))
                && watched.holds_kept(edition, self.has_item(&watched.key))
        };
        if !asked.watched.iter().all(holds) {
            return Ok(Tried::Changed);
        }
        let (touched, mut noted, mut out) = (Cell::new(0), Vec::new(), Vec::new());
        let context = self.context(&touched, false);
        let version = asked.spoken.version;
        trial.run(&asked.bytes, &Asking { context, version }, (&mut noted, &mut out))?;
        let changes = trial.changes(self.now);
        self.make_changes(task, trial, &changes)?;
        for key in keys {
            self.wait_for_others(task, key);
        }
        self.counters().take_over(trial.counters());
        if noted.is_empty() {
            task.count(Operation::Other);
        }
        for asked in &noted {
            self.account_asked(task, asked);
            asked.log(&Context { by: task.asker(), ..self.context(&touched, false) });
        }
        Ok(Tried::Done(out))
    }

    /// Counts what was executed so, as [`DurableExecutor::execute`] counts a request alone.
    fn account_asked(&mut self, task: &mut Task, asked: &Asked<'_>) {
        let Asked { key, operation, size, .. } = *asked;
        if self.dice.falls() && self.shared.hot.is_none() {
            self.shared.workers[0].samples.note(key, asked.writes());
        }
        let large = size > 0 && lane(&self.plan, ItemBytes(size)) == Lane::Large;
        task.tally.add(latency::row(operation, large), task.arrived_nanos);
        task.tally.is_about(if large { size } else { 0 });
    }

    /// Copies the items of all keys, if they are in memory together; else the step that leads to
    /// it, or to nothing.
    fn gather_copies(
        &mut self,
        task: &mut Task,
        trial: &mut Scratch,
        keys: &[&[u8]],
    ) -> Result<Option<Step>, Refusal> {
        for (number, key) in keys.iter().enumerate() {
            if task.at < number {
                (task.at, task.tries) = (number, 0); // it has come further than ever
            }
            loop {
                let is_long = |look: Look| look.value_bytes > BYTES_MAX as u64;
                let ready = match self.in_tier_alone(key).is_some_and(is_long) {
                    true if self.is_cold(key) => return Err(TOO_MUCH.into()),
                    true => self.ready_to_count(task, key),
                    false => self.ready(task, key, true),
                };
                if let Some(step) = step_of(ready, task) {
                    if matches!(step, Step::Behind(_)) {
                        self.fetch_ahead(keys[number + 1..].iter().copied());
                    }
                    return Ok(Some(step));
                }
                let store = self.shared.store.clone();
                let is_there = trial.copy(&store, key, self.now)?;
                if is_there || !task.seen {
                    break;
                }
                trial.forget_last(); // memory has forgotten it since
            }
        }
        Ok(None)
    }

    /// Reads the ends of watched items that may be over, behind so many keys that are asked about:
    /// the step that leads to it, or to nothing. One that is over is dropped, so that nobody who
    /// watches its key from then on takes it for there. One whose record cannot be read is taken
    /// for there, and not read again behind another.
    fn learn_ends(&mut self, task: &mut Task, asked: usize, watched: &[Watched]) -> Option<Step> {
        for (number, Watched { key, .. }) in (asked..).zip(watched) {
            if self.is_unreadable(key) {
                task.lost.push(number);
            }
            if task.lost.contains(&number) || !self.may_be_over(key) {
                continue;
            }
            if task.at < number {
                (task.at, task.tries) = (number, 0); // it has come further than ever
            }
            let ready = self.ready_to_count(task, key);
            if let Some(step) = step_of(ready, task) {
                return Some(step);
            }
        }
        None
    }

    /// Makes the changes that were tried out.
    fn make_changes(
        &mut self,
        task: &mut Task,
        trial: &Scratch,
        changes: &[Change],
    ) -> Result<(), Refusal> {
        let (store, now) = (self.shared.store.clone(), self.now);
        let mut drafts: Vec<Option<Draft<&Store>>> = Vec::with_capacity(changes.len());
        for Change { number, item } in changes {
            let draft = item.as_ref().map(|item| item.draft(&store, trial.key(*number)));
            drafts.push(draft.transpose().map_err(words_of_refused)?);
        }
        let hashed = |change: &Change| {
            let key = trial.key(change.number);
            (store.hash(key), key)
        };
        let keys: Vec<(KeyHash, &[u8])> = changes.iter().map(hashed).collect();
        keys.iter().for_each(|(hash, _)| self.cover(task, *hash));
        let mut entries = store.enter_all(&keys, now);
        for (at, draft) in drafts.into_iter().enumerate() {
            match draft {
                Some(draft) => drop(entries.publish(at, draft)),
                None => entries.unlink(at),
            }
        }
        drop(entries);
        let touched = Cell::new(0);
        let context = Context { by: task.asker(), ..self.context(&touched, false) };
        for Change { number, item } in changes {
            let item = item.as_ref().map(|item| &item.meta);
            context.log_change(trial.key(*number), item, trial.before(*number));
        }
        for ((hash, key), Change { item, .. }) in keys.iter().zip(changes) {
            let Some(item) = item else {
                // Who watches it is told at once, as of what is stored.
                self.durable.pending_writes.changed_owner(*hash);
                task.deletions.push((*key).into());
                continue;
            };
            let (key, hash) = ((*key).into(), *hash);
            let change = capture::Change::Published { expires: item.meta.expires, seen: None };
            self.moved += item.value.len() as u64;
            let changed = capture::Changed { key, hash, change };
            self.keep(task, changed, Some(&item.value[..]), None);
        }
        if task.leaving.is_empty() {
            self.delete_behind(task);
            return Ok(());
        }
        for key in &task.deletions {
            self.busy.entry(key.clone()).or_default();
        }
        Ok(())
    }
}
