//! An item comes from the tier into memory, where requests for it go on. A value of more than a
//! piece comes piece by piece, straight into its item.
//!
//! What is longer than [`STRETCH_BYTES`] is copied in by stretches, one a step: requests for what
//! is in memory, and other work of the keeper, come in between (Minos §3: small before large).

use super::admit::NO_MEMORY;
use super::change::marks_of;
use super::keeper::Keeper;
use super::shared::{add, bump};
use super::task::{Fault, Filling, Pieces};
use super::veil::is_over;
use laneway_store::Draft;
use laneway_tier::{Answer, Error, ItemMeta, Look, PIECE_BYTES, Request};
use std::collections::VecDeque;
use std::sync::Arc;

/// Large values on their way into memory at a time: the pieces of each are unpublished until it is
/// whole, and there is a bound on such bytes.
const LARGE_FAULTS_MAX: usize = 2;
/// The most that is copied in one step: about 10 us.
const STRETCH_BYTES: usize = 64 << 10;

/// What an answer came to.
enum Next {
    /// The item is in memory, or there is none.
    Over,
    /// There is more to read.
    Read(Fault, Request),
    /// There is more to copy.
    Fill(Filling),
}

impl<S> Keeper<S> {
    /// Begins to bring an item into memory.
    pub(super) fn fetch(&mut self, key: &[u8], look: &Look) {
        bump(&self.durable.counts.faults);
        let key: Box<[u8]> = key.into();
        self.busy.insert(key.clone(), VecDeque::new());
        if look.value_bytes <= PIECE_BYTES as u64 {
            let request = match look.value_bytes <= STRETCH_BYTES as u64 {
                true => Request::Item(key.clone()),
                false => Request::Open(key.clone()),
            };
            return self.go_on(Fault { key, is_large: false, large: None }, request);
        }
        self.large_waiting.push_back(key);
        self.begin_large();
    }

    /// Begins with the next large value, if there may be one more under way.
    fn begin_large(&mut self) {
        if self.large_faults == LARGE_FAULTS_MAX {
            return;
        }
        if let Some(key) = self.large_waiting.pop_front() {
            self.large_faults += 1;
            let request = Request::Open(key.clone());
            self.go_on(Fault { key, is_large: true, large: None }, request);
        }
    }

    fn go_on(&mut self, fault: Fault, request: Request) {
        self.number += 1;
        self.faults.insert(self.number, fault);
        self.hands.read(self.number, request);
    }

    /// Something was read.
    pub(super) fn read(&mut self, number: u64, answer: Answer) {
        let Some(fault) = self.faults.remove(&number) else { return };
        let (key, is_large) = (fault.key.clone(), fault.is_large);
        match self.take_in(fault, answer) {
            Ok(Next::Read(fault, request)) => self.go_on(fault, request),
            Ok(Next::Fill(filling)) => self.filling.push_back(filling),
            Ok(Next::Over) => self.over(&key, is_large, None),
            Err(why) => self.over(&key, is_large, Some(why)),
        }
    }

    /// An item is in memory, or will not be: who waits for it goes on.
    fn over(&mut self, key: &[u8], is_large: bool, unreadable: Option<String>) {
        self.unreadable = unreadable.map(|why| (key.into(), why));
        if is_large {
            self.large_faults -= 1;
            self.begin_large();
        }
        self.release(key);
        self.unreadable = None;
    }

    fn take_in(&mut self, fault: Fault, answer: Answer) -> Result<Next, String> {
        let told = |error: Error| {
            if matches!(error, Error::Lost { .. }) {
                bump(&self.durable.counts.lost);
            }
            error.to_string()
        };
        match answer {
            Answer::Item(item) => {
                let Some(item) = item.map_err(told)? else { return Ok(Next::Over) };
                let Some(draft) = self.draft(&fault.key, &item.meta, item.value.len())? else {
                    return Ok(Next::Over);
                };
                let Fault { key, is_large, .. } = fault;
                self.copy(Filling {
                    key,
                    is_large,
                    draft,
                    bytes: item.value,
                    done: 0,
                    meta: item.meta,
                    rest: None,
                })
            }
            Answer::Open(reader) => {
                let Some(reader) = reader.map_err(told)?.map(Arc::new) else {
                    // It has changed, or lies in the log after all.
                    let request = Request::Item(fault.key.clone());
                    return Ok(Next::Read(fault, request));
                };
                let (meta, bytes) = (reader.meta(), reader.value_bytes() as usize);
                let Some(draft) = self.draft(&fault.key, &meta, bytes)? else {
                    return Ok(Next::Over);
                };
                let request = Request::Piece(reader.clone(), 0);
                let large = Some(Pieces { reader, draft, next: 1 });
                Ok(Next::Read(Fault { large, ..fault }, request))
            }
            Answer::Piece(piece) => {
                let bytes = piece.map_err(told)?;
                let Fault { key, is_large, large } = fault;
                let Some(Pieces { reader, draft, next }) = large else { return Ok(Next::Over) };
                let meta = reader.meta();
                let rest = (next < reader.pieces()).then_some((reader, next));
                self.copy(Filling { key, is_large, draft, bytes, done: 0, meta, rest })
            }
        }
    }

    /// Copies one stretch of the value that has waited longest; returns whether there was one.
    pub(super) fn fill(&mut self) -> bool {
        let Some(filling) = self.filling.pop_front() else { return false };
        let (key, is_large) = (filling.key.clone(), filling.is_large);
        match self.copy(filling) {
            Ok(Next::Read(fault, request)) => self.go_on(fault, request),
            Ok(Next::Fill(filling)) => self.filling.push_front(filling),
            Ok(Next::Over) => self.over(&key, is_large, None),
            Err(why) => self.over(&key, is_large, Some(why)),
        }
        true
    }

    /// Copies one stretch.
    fn copy(&self, mut filling: Filling) -> Result<Next, String> {
        let end = filling.bytes.len().min(filling.done + STRETCH_BYTES);
        let stretch = &filling.bytes[filling.done..end];
        filling.draft.write(stretch).map_err(|_| NO_MEMORY)?;
        add(&self.durable.counts.fault_bytes, stretch.len() as u64);
        filling.done = end;
        if end < filling.bytes.len() {
            return Ok(Next::Fill(filling));
        }
        let Filling { key, is_large, draft, meta, rest, .. } = filling;
        let Some((reader, index)) = rest else {
            self.land(&key, draft, &meta);
            return Ok(Next::Over);
        };
        let request = Request::Piece(reader.clone(), index);
        let large = Some(Pieces { reader, draft, next: index + 1 });
        Ok(Next::Read(Fault { key, is_large, large }, request))
    }

    /// An item to be; `None` if it has expired meanwhile.
    fn draft(&self, key: &[u8], meta: &ItemMeta, bytes: usize) -> Result<Option<Draft>, String> {
        let (now, expires) = (self.now_seconds, meta.expires_at_seconds);
        if is_over(expires, now) {
            return Ok(None);
        }
        let draft = self.shared.store.draft(key, meta.flags, expires, bytes, now);
        let mut draft = draft.map_err(|refused| format!("{refused} (it is in the data folder)"))?;
        let (stale, token_sent) = marks_of(meta);
        draft.set_marks(stale, token_sent);
        Ok(Some(draft))
    }

    /// The item is in memory. Nobody changed it meanwhile: its key was busy.
    fn land(&self, key: &[u8], draft: Draft, meta: &ItemMeta) {
        let store = &self.shared.store;
        let mut entry = store.enter(store.hash(key), key, self.now_seconds);
        if entry.meta().is_none() {
            entry.publish(draft, Some(meta.cas));
        }
    }
}
