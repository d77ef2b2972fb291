//! An item comes from the tier into memory, where requests for it go on. A value of more than a
//! piece comes piece by piece, straight into its item.
//!
//! What is longer than [`STRETCH_BYTES`] is copied in by stretches, one a step: requests for what
//! is in memory, and other work of the executor, come in between (Minos §3: small before large).

use super::change::marks_of;
use super::ends::end_of;
use super::fetch::STRETCH_BYTES;
use super::shared::{add, bump};
use super::state::DurableExecutor;
use super::task::{Fault, Filling, Line, NO_MEMORY, Pieces, Share, Shortage};
use laneway_store::{Draft, Moment, Refused};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{Answer, Error, ItemMeta, Request};
use std::sync::Arc;

/// Where memory has no room, since replies on their way out hold it, this is waited.
const AGAIN_NANOS: u64 = 1_000_000;
/// From try to try twice as long up to this: what was read of a value is read again.
const AGAIN_NANOS_MAX: u64 = 32_000_000;
/// So long in all if it has room for none: then clients take no replies, and hold it for good.
const SHORT_NANOS_MAX: u64 = 1_000_000_000;
/// The longest that its own thread sleeps while something is under way: flushes to come wait for
/// it.
const LOOK_NANOS: u64 = 50_000_000;
/// The same at rest.
const DOZE_NANOS: u64 = 1_000_000_000;

/// What an answer came to.
enum Next {
    /// Memory has no room for it now.
    Again,
    /// The item is in memory, or there is none.
    Over,
    /// There is more to read.
    Read(Fault, Request),
    /// There is more to copy.
    Fill(Filling),
}

impl<S> DurableExecutor<S> {
    /// Something was read.
    pub(super) fn was_read(&mut self, number: u64, answer: Answer) {
        let Some(fault) = self.faults.remove(&number) else { return };
        let (key, share, is_for_end) = (fault.key.clone(), fault.share, fault.is_for_end);
        let next = self.take_in(fault, answer);
        match next {
            // It had no place in a line, and says nothing of whether memory is short.
            Ok(Next::Over) if is_for_end => self.release_told(&key, None),
            Err(why) if is_for_end => self.release_told(&key, Some(why)),
            next => self.follow(&key, share, next),
        }
    }

    fn follow(&mut self, key: &[u8], share: Share, next: Result<Next, String>) {
        match next {
            Ok(Next::Read(fault, request)) => self.go_on(fault, request),
            Ok(Next::Fill(filling)) => self.filling.push_back(filling),
            Ok(Next::Over) => self.ended(key, share, None),
            Ok(Next::Again) => self.begin_again(key, share),
            Err(why) => self.ended(key, share, Some(why)),
        }
    }

    /// It was not memory that was in its way: who is short of it later waits anew.
    fn ended(&mut self, key: &[u8], share: Share, unreadable: Option<String>) {
        self.lines[share.of].short = None;
        self.over(key, share, unreadable);
    }

    /// Memory has no room for a value: it waits for a while in front of its line.
    fn begin_again(&mut self, key: &[u8], share: Share) {
        let now = self.now_nanos;
        let line = &mut self.lines[share.of];
        // One that came further than any before it found room meanwhile.
        let short = line.short.filter(|short| share.copied <= short.furthest);
        let short = short.unwrap_or(Shortage { since_nanos: now, furthest: share.copied });
        line.short = Some(short);
        let waited = now - short.since_nanos;
        if SHORT_NANOS_MAX <= waited {
            if line.waiting.is_empty() {
                line.short = None; // who comes later waits anew
            }
            return self.over(key, share, Some(NO_MEMORY.into()));
        }
        line.under_way_bytes -= share.bytes;
        line.waiting.push_front((key.into(), Share { copied: 0, ..share }));
        line.again_nanos = now + waited.clamp(AGAIN_NANOS, AGAIN_NANOS_MAX);
    }

    /// When a value that memory had no room for begins again, if one waits for that.
    pub fn again_nanos(&self) -> Option<u64> {
        let waits = |line: &&Line| !line.waiting.is_empty() && self.now_nanos < line.again_nanos;
        self.lines.iter().filter(waits).map(|line| line.again_nanos).min()
    }

    /// When its own thread steps it again at the latest, whatever else happens. It sleeps until
    /// then, and [`DurableExecutor::is_due_sooner`] tells when it is to be woken.
    pub fn due_nanos(&mut self) -> u64 {
        self.wakes_nanos = self.next_nanos();
        self.wakes_nanos
    }

    /// Whether a step of somebody else's has left something that is due before its own thread
    /// wakes; told once.
    pub fn is_due_sooner(&mut self) -> bool {
        let due = self.next_nanos();
        let is_sooner = due < self.wakes_nanos;
        self.wakes_nanos = self.wakes_nanos.min(due);
        is_sooner
    }

    fn next_nanos(&self) -> u64 {
        let most = if self.is_at_rest() { DOZE_NANOS } else { LOOK_NANOS };
        let sweep = if self.sweeps() { self.sweep.at_nanos } else { u64::MAX };
        let again = self.again_nanos().unwrap_or(u64::MAX);
        again.min(sweep).min(self.timed_commit_nanos()).min(self.now_nanos + most)
    }

    /// An item is in memory, or will not be: who waits for it goes on.
    fn over(&mut self, key: &[u8], share: Share, unreadable: Option<String>) {
        self.lines[share.of].under_way_bytes -= share.bytes;
        self.begin_next(share.of);
        self.release_told(key, unreadable);
    }

    /// The same, where it took no memory on its way.
    fn release_told(&mut self, key: &[u8], unreadable: Option<String>) {
        self.unreadable = unreadable.map(|why| (key.into(), why));
        self.release(key);
        self.unreadable = None;
    }

    fn take_in(&mut self, fault: Fault, answer: Answer) -> Result<Next, String> {
        match answer {
            Answer::Item(item) => {
                let Some(item) = item.map_err(|error| self.unread(&error))? else {
                    return Ok(Next::Over);
                };
                if self.learns(&fault, &item.meta) {
                    return Ok(Next::Over);
                }
                let draft = match self.draft(&fault.key, &item.meta, item.value.len())? {
                    Ok(draft) => draft,
                    Err(next) => return Ok(next),
                };
                let Fault { key, share, .. } = fault;
                self.copy(Filling {
                    key,
                    share,
                    draft,
                    bytes: item.value,
                    done: 0,
                    meta: item.meta,
                    rest: None,
                })
            }
            Answer::Open(reader) => {
                let Some(reader) = reader.map_err(|error| self.unread(&error))?.map(Arc::new)
                else {
                    // It has changed, or lies in the log after all.
                    let request = Request::Item(fault.key.clone());
                    return Ok(Next::Read(fault, request));
                };
                let (meta, bytes) = (reader.meta(), reader.value_bytes() as usize);
                if self.learns(&fault, &meta) {
                    return Ok(Next::Over);
                }
                let draft = match self.draft(&fault.key, &meta, bytes)? {
                    Ok(draft) => draft,
                    Err(next) => return Ok(next),
                };
                let request = Request::Piece(reader.clone(), 0);
                let large = Some(Pieces { reader, draft, next: 1 });
                Ok(Next::Read(Fault { large, ..fault }, request))
            }
            Answer::Piece(piece) => {
                let bytes = piece.map_err(|error| self.unread(&error))?;
                let Fault { key, share, large, .. } = fault;
                let Some(Pieces { reader, draft, next }) = large else { return Ok(Next::Over) };
                let meta = reader.meta();
                let rest = (next < reader.pieces()).then_some((reader, next));
                self.copy(Filling { key, share, draft, bytes, done: 0, meta, rest })
            }
        }
    }

    /// Counts and logs that an item could not be read; what is said of it to who asked.
    fn unread(&mut self, error: &Error) -> String {
        bump(&self.durable.counts.lost);
        self.trouble.unread(error, self.now_nanos);
        error.to_string()
    }

    /// Copies one stretch of the value that has waited longest; returns whether there was one.
    pub(super) fn fill(&mut self) -> bool {
        let Some(filling) = self.filling.pop_front() else { return false };
        let (key, share) = (filling.key.clone(), filling.share);
        match self.copy(filling) {
            Ok(Next::Fill(filling)) => self.filling.push_front(filling),
            next => self.follow(&key, share, next),
        }
        true
    }

    /// Copies one stretch.
    fn copy(&self, mut filling: Filling) -> Result<Next, String> {
        let end = filling.bytes.len().min(filling.done + STRETCH_BYTES);
        let stretch = &filling.bytes[filling.done..end];
        if filling.draft.write(stretch).is_err() {
            return Ok(Next::Again);
        }
        add(&self.durable.counts.fault_bytes, stretch.len() as u64);
        filling.done = end;
        filling.share.copied += stretch.len() as u64;
        if end < filling.bytes.len() {
            return Ok(Next::Fill(filling));
        }
        let Filling { key, share, draft, meta, rest, .. } = filling;
        let Some((reader, index)) = rest else {
            self.land(&key, draft, &meta);
            return Ok(Next::Over);
        };
        let request = Request::Piece(reader.clone(), index);
        let large = Some(Pieces { reader, draft, next: index + 1 });
        Ok(Next::Read(Fault { key, share, large, is_for_end: false }, request))
    }

    /// A record was read: when its item ends is known. Whether that is all that is asked.
    fn learns(&mut self, fault: &Fault, meta: &ItemMeta) -> bool {
        self.ends.learn(&fault.key, end_of(meta));
        fault.is_for_end
    }

    /// An item to be, or what comes of it instead: it has expired meanwhile, or has no room now.
    fn draft(
        &self,
        key: &[u8],
        meta: &ItemMeta,
        bytes: usize,
    ) -> Result<Result<Draft, Next>, String> {
        let (now, expires) = (self.now, end_of(meta));
        if expires.is_over(now) {
            return Ok(Err(Next::Over));
        }
        let expires = if is_planted(Bug::ExpiryLost) { Moment::NEVER } else { expires };
        let mut draft = match self.shared.store.draft(key, meta.flags, expires, bytes) {
            Err(Refused::OutOfMemory) => return Ok(Err(Next::Again)),
            draft => draft.map_err(|refused| format!("{refused} (it is in the data folder)"))?,
        };
        let (stale, token_sent) = marks_of(meta);
        draft.set_marks(stale, token_sent);
        Ok(Ok(draft))
    }

    /// The item is in memory. Nobody changed it meanwhile: its key was busy. But the tier may have
    /// evicted it, and a worker have told so.
    ///
    /// The thread that evicts may also come between the look and `bring_back`. A worker that looks
    /// in memory before, and in the tier after the eviction, tells a miss, and a later read finds
    /// the item. It is never a stale one: every store, deletion and flush of a busy key waits for
    /// it, and its value, end and CAS id are those of the last change. So it is as if the item had
    /// been evicted below and were still in memory, and a cache may tell that miss. To exclude it,
    /// eviction would have to take the executor's lock, or a worker look twice on each miss.
    fn land(&self, key: &[u8], draft: Draft, meta: &ItemMeta) {
        let tier = &self.durable.tier;
        if tier.evicts() && tier.look(key).is_none() {
            return;
        }
        let store = &self.shared.store;
        let mut entry = store.enter(store.hash(key), key, self.now);
        if entry.meta().is_none() {
            entry.bring_back(draft, meta.cas);
        }
    }
}
