//! `WATCH`, `UNWATCH`, and the commands that change several keys in one moment: `EXEC`, `MSETNX`,
//! `RENAME`, `RENAMENX`. They are tried out on copies ([`super::scratch`]); then
//! the buckets of all their keys are entered together, and if every item is still the one that was
//! copied, the changes are made. So what is watched is compared in the same moment in which the
//! transaction is executed, and nobody comes between.

use crate::core::Core;
use crate::durable::shared::{EXECUTOR, KEY_HELD_BYTES};
use crate::execute::redis::{Asking, Seen, TOO_MANY, Watched, words_of_refused};
use crate::jobs::handoff::{Spoken, WatchedRequests, Work};
use crate::resp::multi::{ABORTED, NO_EXEC, NOT_AT_ONCE, put_nothing};
use crate::resp::options::{self, Refusal};
use crate::resp::scratch::{self, Asked, Change, KEYS_MAX, Keys, Scratch};
use crate::resp::state::Transaction;
use crate::resp::table::Command;
use crate::stream::connection::Connection;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::ItemBytes;
use laneway_store::{Draft, Entries, KeyHash, Store};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{OK, put_array_head};
use std::sync::Arc;

/// How often it is tried in one turn, where others change the items all the time.
const TRIES_PER_TURN: u32 = 16;
/// Such turns.
const TURNS_MAX: u32 = 64;

const WATCH_INSIDE: &[u8] = b"-ERR WATCH inside MULTI is not allowed\r\n";
const MANY_WATCHED: &[u8] = b"-ERR WATCH remembers up to 64 keys here\r\n";
const _: () = assert!(KEYS_MAX == 64);

/// What came of a try.
#[derive(Clone, Copy)]
enum Tried {
    /// It is done, and the replies are written.
    Done,
    /// What was watched has changed: nothing was done.
    Changed,
    /// Somebody has changed an item meanwhile: nothing was done, and it is to be tried again.
    Again,
}

impl<T: Transport> Core<T> {
    /// Remembers what is known of a key now.
    fn watch_key(&self, key: &[u8]) -> Watched {
        let context = self.context_for(key);
        let hash = context.store.hash(key);
        let seen = match self.shared.durable.get() {
            None => Seen::Item(context.store.peek(hash, key, context.now)),
            Some(durable) => {
                // The count first: what changes from here on counts as a change.
                let edition = durable.pending_writes.edition(hash);
                let in_memory = context.store.peek(hash, key, context.now).is_some();
                let in_tier = || durable.pending_writes.value_bytes(key, context.now).is_some();
                // What memory has is there, or its being taken back counts as a change. What it has
                // not, and the filter hides, may be on its way out.
                let is_known = in_memory || !durable.pending_writes.hides(hash);
                Seen::Kept { edition, is_there: is_known.then(|| in_memory || in_tier()) }
            }
        };
        Watched { key: key.into(), seen }
    }

    /// The store that a key's item is in, and the number of its domain.
    fn store_of(&self, key: &[u8]) -> (u16, &Arc<Store>) {
        match self.shared.domains.get() {
            None => (0, &self.shared.store),
            Some(domains) => {
                let domain = domains.of(key);
                (domain, domains.store(domain))
            }
        }
    }

    /// Executes whole requests in one moment; `out` is as it was unless they are done. An error
    /// says why nothing was. They are counted once, however often they were tried.
    fn at_once(
        &mut self,
        connection: &mut Connection<T::Stream>,
        (requests, watched): (&[u8], &[Watched]),
        out: &mut Vec<u8>,
    ) -> Result<Tried, Refusal> {
        let keys = Keys::of(requests, watched)?;
        let spoken = self.spoken(connection);
        let item_bytes_max = self.shared.settings.item_bytes_max as u64;
        let mut scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => Box::new(Scratch::new(item_bytes_max)?),
        };
        let (start, mut asked) = (out.len(), Vec::new());
        let mut tried = Ok(Tried::Again);
        for _ in 0..TRIES_PER_TURN {
            asked.clear();
            let told = (&mut asked, &mut *out);
            tried = self.try_once(&mut scratch, &keys, (requests, watched), spoken, told);
            if matches!(tried, Ok(Tried::Done)) {
                self.counters().take_over(scratch.counters());
            }
            scratch.clear(self.now);
            if matches!(tried, Ok(Tried::Done)) {
                break;
            }
            out.truncate(start);
            if !matches!(tried, Ok(Tried::Again)) {
                break;
            }
        }
        self.scratch = Some(scratch);
        let turns = &mut connection.session().turns;
        *turns = if matches!(tried, Ok(Tried::Again)) { *turns + 1 } else { 0 };
        if *turns == TURNS_MAX {
            *turns = 0;
            return Err(TOO_MANY.into());
        }
        if matches!(tried, Ok(Tried::Done)) {
            self.account_asked(connection, &asked);
        }
        tried
    }

    /// Counts what was executed in one moment, as what is served alone is counted.
    fn account_asked(&mut self, connection: &mut Connection<T::Stream>, asked: &[Asked<'_>]) {
        for asked in asked {
            let Asked { key, operation, size, .. } = *asked;
            self.note_key(connection, key, size);
            self.sample_uncounted(key, asked.writes());
            asked.log(&self.context());
            self.account(connection, operation, size);
        }
    }

    fn try_once<'a>(
        &self,
        scratch: &mut Scratch,
        keys: &Keys<'_>,
        (requests, watched): (&'a [u8], &[Watched]),
        spoken: Spoken,
        told: (&mut Vec<Asked<'a>>, &mut Vec<u8>),
    ) -> Result<Tried, Refusal> {
        for key in &keys.asked {
            scratch.copy(self.store_of(key).1, key, self.now)?;
        }
        for key in &keys.watched {
            let store = self.store_of(key).1;
            scratch.note(key, store.peek(store.hash(key), key, self.now));
        }
        if !scratch.holds(watched) && !is_planted(Bug::WatchUncompared) {
            return Ok(Tried::Changed);
        }
        let context = self.context();
        let asking = Asking { context, version: spoken.version };
        scratch.run(requests, &asking, told)?;
        self.commit_tried(scratch)
    }

    /// Makes the changes that were tried out, if every item is the one that was copied.
    fn commit_tried(&self, scratch: &Scratch) -> Result<Tried, Refusal> {
        let (changes, now) = (scratch.changes(self.now), self.now);
        let mut drafts: Vec<(usize, Option<Draft<&Store>>)> = Vec::new();
        for Change { number, item } in &changes {
            let key = scratch.key(*number);
            let draft = item.as_ref().map(|item| item.draft(self.store_of(key).1, key));
            drafts.push((*number, draft.transpose().map_err(words_of_refused)?));
        }
        // By domain: all workers enter the stores in one order.
        let domain = |(number, key): (usize, &[u8])| (self.store_of(key).0, number);
        let mut numbers: Vec<(u16, usize)> = scratch.keys().enumerate().map(domain).collect();
        numbers.sort_unstable();
        let mut entered = Vec::new();
        let mut places = vec![(0, 0); numbers.len()];
        for of_one in numbers.chunk_by(|left, right| left.0 == right.0) {
            let store = self.store_of(scratch.key(of_one[0].1)).1;
            for (at, (_, number)) in of_one.iter().enumerate() {
                places[*number] = (entered.len(), at);
            }
            let hashed = |&(_, number): &(u16, usize)| {
                let key = scratch.key(number);
                (store.hash(key), key)
            };
            let keys: Vec<(KeyHash, &[u8])> = of_one.iter().map(hashed).collect();
            entered.push(store.enter_all(&keys, now));
        }
        let mut is_same = places.iter().enumerate().map(|(number, &(of, at))| {
            let found = entered[of].meta(at);
            scratch.is_as_copied(number, found.as_ref())
        });
        let is_same = is_same.all(|is_same| is_same);
        for (number, draft) in drafts.into_iter().filter(|_| is_same) {
            let (of, at) = places[number];
            match draft {
                Some(draft) => drop(entered[of].publish(at, draft)),
                None => entered[of].unlink(at),
            }
        }
        // Before any of them is dropped, which may enter buckets of its store.
        entered.iter_mut().for_each(Entries::leave);
        let context = self.context();
        for Change { number, item } in changes.iter().filter(|_| is_same) {
            let item = item.as_ref().map(|item| &item.meta);
            context.log_change(scratch.key(*number), item, scratch.before(*number));
        }
        Ok(if is_same { Tried::Done } else { Tried::Again })
    }
}

impl<T: Transport> Streams<T> {
    /// A command about transactions, with the arguments behind its name; of so many bytes.
    pub(crate) fn resp_transact(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (command, args): (Command, Args<'_>),
        bytes: usize,
    ) -> Step {
        match command {
            Command::Watch => self.resp_watch(core, connection, args),
            Command::Exec => {
                let step = self.resp_exec(core, connection, bytes);
                return core.counted_keyless(step);
            }
            _ => connection.session().transact(command, &mut self.out),
        }
        core.counted_keyless(Step::Took(bytes))
    }

    /// `WATCH key ...`
    fn resp_watch(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        keys: Args<'_>,
    ) {
        let session = connection.session();
        if session.transaction.is_some() {
            return self.out.extend_from_slice(WATCH_INSIDE);
        }
        if keys.left() as usize > KEYS_MAX {
            return self.out.extend_from_slice(MANY_WATCHED);
        }
        if let Some(words) = keys.into_iter().find_map(|key| options::key(key).err()) {
            return self.out.extend_from_slice(&words);
        }
        let before = session.watched.len();
        for key in keys {
            if session.watched.iter().any(|watched| *watched.key == *key) {
                continue;
            }
            if session.watched.len() == KEYS_MAX {
                session.watched.truncate(before);
                return self.out.extend_from_slice(MANY_WATCHED);
            }
            session.watched.push(core.watch_key(key));
        }
        self.out.extend_from_slice(OK);
    }

    /// `EXEC`, of so many bytes. Where something is watched, it is executed in one moment or not at
    /// all. Where nothing is, it is executed in one moment if it is small enough for that and no
    /// item is kept durably, and request by request otherwise ([`super::multi`]).
    fn resp_exec(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        bytes: usize,
    ) -> Step {
        let session = connection.session();
        let is_watching = !session.watched.is_empty();
        if !is_watching && core.keeps() {
            session.transact(Command::Exec, &mut self.out);
            return Step::Took(bytes);
        }
        let Some(transaction) = session.transaction.take() else {
            self.out.extend_from_slice(NO_EXEC);
            return Step::Took(bytes);
        };
        let watched = std::mem::take(&mut session.watched);
        if transaction.is_broken {
            self.out.extend_from_slice(ABORTED);
            return Step::Took(bytes);
        }
        let keeps = core.keeps();
        let done = match scratch::REQUESTS_MAX < transaction.requests {
            true => Err(scratch::TOO_MUCH.into()),
            // Behind `WATCH` others were refused when they came.
            false if !is_watching && !scratch::are_tried(&transaction.bytes) => {
                Err(NOT_AT_ONCE.into())
            }
            false if keeps => {
                let asked = (transaction, watched);
                return self.resp_keep_exec(core, connection, asked, bytes);
            }
            false => self.exec_at_once(core, connection, &transaction, &watched),
        };
        match done {
            Ok(Tried::Done) => connection.session().prepaid += u64::from(transaction.charged),
            Ok(Tried::Changed) => put_nothing(&mut self.out, core.spoken(connection).version),
            Ok(Tried::Again) => {
                let session = connection.session();
                (session.transaction, session.watched) = (Some(transaction), watched);
                return Step::Stop(0, Stop::Quota);
            }
            Err(words) if is_watching => self.out.extend_from_slice(&words),
            Err(_) => {
                let session = connection.session();
                session.transaction = Some(transaction);
                session.transact(Command::Exec, &mut self.out);
                return Step::Took(bytes);
            }
        }
        Step::Stop(bytes, Stop::Quota)
    }

    /// Tries a transaction; its replies are written if it is done.
    fn exec_at_once(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        transaction: &Transaction,
        watched: &[Watched],
    ) -> Result<Tried, Refusal> {
        let start = self.out.len();
        put_array_head(&mut self.out, transaction.requests as usize);
        let asked = (&transaction.bytes[..], watched);
        let done = core.at_once(connection, asked, &mut self.out);
        if !matches!(done, Ok(Tried::Done)) {
            self.out.truncate(start);
        }
        done
    }

    /// The same where items are kept durably.
    fn resp_keep_exec(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (transaction, watched): (Transaction, Vec<Watched>),
        bytes: usize,
    ) -> Step {
        let keys = match Keys::of(&transaction.bytes, &watched) {
            Ok(keys) => keys.count() as u64,
            Err(words) => {
                self.out.extend_from_slice(words);
                return Step::Took(bytes);
            }
        };
        let size = ItemBytes(transaction.bytes.len() as u64);
        let spoken = Spoken { keeps: keys * KEY_HELD_BYTES, ..core.spoken(connection) };
        let Transaction { bytes: requests, requests: count, charged, is_broken, charge } =
            transaction;
        let work = WatchedRequests { bytes: requests, count, watched, spoken };
        let work = Work::Watched(Box::new(work));
        match self.hand_over(core, connection, EXECUTOR, work, size) {
            Ok(()) => {
                connection.session().prepaid += u64::from(charged);
                Step::Stop(bytes, Stop::Ticket)
            }
            Err(Work::Watched(back)) => {
                let WatchedRequests { bytes, count, watched, .. } = *back;
                let session = connection.session();
                let transaction =
                    Transaction { bytes, requests: count, charged, is_broken, charge };
                (session.transaction, session.watched) = (Some(transaction), watched);
                Step::Stop(0, Stop::Quota)
            }
            Err(_) => unreachable!("what comes back is what was given"),
        }
    }

    /// `MSETNX`, `RENAME`, `RENAMENX`: a whole request, with the arguments behind its name.
    pub(crate) fn resp_several(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        request: &[u8],
    ) -> Step {
        let watched: &[Watched] = &[];
        match core.at_once(connection, (request, watched), &mut self.out) {
            Ok(Tried::Again) => return Step::Stop(0, Stop::Quota),
            Ok(_) => {}
            Err(words) => self.out.extend_from_slice(&words),
        }
        Step::Stop(request.len(), Stop::Quota)
    }
}
