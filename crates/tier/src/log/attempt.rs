//! Writes that never wait for a medium, for callers that must not. A record that finds no room in
//! the active segment of the log at once is handed back, and the caller sends it through a thread
//! that may wait. Large values are here, too; they are written before their record is appended.

use crate::index::What;
use crate::log::append::{Draft, Ticket, check, deletion, small};
use crate::log::record::Kind;
use crate::ssd::large::{LargeWriter, waiting};
use crate::ssd::value::Large;
use crate::store::{Owner, RESERVE_DELETE, RESERVE_PUT, Shared};
use crate::types::{Error, ItemMeta, Result};
use std::sync::Arc;

/// How an attempt ended.
#[derive(Debug)]
pub enum Tried<T, B = ()> {
    /// It was done.
    Done(T),
    /// It would have to wait. What was handed in comes back.
    Waits(B),
}

impl Shared {
    /// Appends an item that is not large, if it need not wait.
    pub fn try_put(
        &self,
        key: &[u8],
        value: &[u8],
        meta: ItemMeta,
        sequence: u64,
    ) -> Result<Tried<Ticket>> {
        check(key, value.len() as u64)?;
        let ticket = self.try_append(&small(key, value, meta, Some(sequence)), RESERVE_PUT)?;
        let Some(ticket) = ticket else { return Ok(Tried::Waits(())) };
        self.counters.user_bytes.add((key.len() + value.len()) as u64);
        Ok(Tried::Done(ticket))
    }

    /// Appends a large item whose value waits in memory for its group, if it may and nothing else
    /// need be waited for.
    pub fn try_put_large(
        self: &Arc<Self>,
        key: &[u8],
        value: &[u8],
        meta: ItemMeta,
        sequence: u64,
    ) -> Result<Tried<Ticket>> {
        check(key, value.len() as u64)?;
        self.writer().check()?;
        let large = match waiting(self, value) {
            Ok(Some(large)) => large,
            // What replaced values hold may be freed by who may wait.
            Ok(None) | Err(Error::SsdFull { .. }) => return Ok(Tried::Waits(())),
            Err(error) => return Err(error),
        };
        let whole = LargeWhole::new(self, key.into(), large);
        Ok(match whole.try_append(meta, sequence)? {
            Tried::Done(ticket) => Tried::Done(ticket),
            Tried::Waits(_) => Tried::Waits(()),
        })
    }

    /// Appends a deletion, if there may be something to delete and it need not wait.
    pub fn try_delete(&self, key: &[u8], sequence: u64) -> Result<Tried<Option<Ticket>>> {
        check(key, 0)?;
        if !self.may_hold(key)? {
            return Ok(Tried::Done(None));
        }
        let ticket = self.try_append(&deletion(key, Some(sequence)), RESERVE_DELETE)?;
        let Some(ticket) = ticket else { return Ok(Tried::Waits(())) };
        self.counters.user_bytes.add(key.len() as u64);
        Ok(Tried::Done(Some(ticket)))
    }
}

struct Held(Arc<Shared>);

impl AsRef<Shared> for Held {
    fn as_ref(&self) -> &Shared {
        &self.0
    }
}

/// A large value that is still arriving.
pub struct LargeDraft {
    shared: Arc<Shared>,
    key: Box<[u8]>,
    value_bytes: u64,
    writer: LargeWriter<Held>,
}

impl LargeDraft {
    pub(crate) fn begin(shared: &Arc<Shared>, key: &[u8], value_bytes: u64) -> Result<LargeDraft> {
        let writer = LargeWriter::new(Held(shared.clone()), value_bytes, Owner::User)?;
        Ok(LargeDraft { shared: shared.clone(), key: key.into(), value_bytes, writer })
    }

    /// Appends bytes of the value.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write(bytes)
    }

    /// The value is all there: as many bytes were written as were announced.
    pub fn whole(self) -> Result<LargeWhole> {
        let LargeDraft { shared, key, value_bytes, writer } = self;
        let large = writer.finish_for_group()?;
        assert_eq!(
            large.value_bytes(),
            value_bytes,
            "a draft is finished when all of it was written"
        );
        Ok(LargeWhole::new(&shared, key, large))
    }

    /// Appends the item's record; as [`crate::Tier::submit_put`] from here on.
    pub fn finish(self, meta: ItemMeta, sequence: Option<u64>) -> Result<Ticket> {
        self.whole()?.append(meta, sequence)
    }
}

/// A large value that is on the SSD, or in memory until its group writes it. Dropped before its
/// record is appended, it leaves nothing behind.
pub struct LargeWhole {
    shared: Arc<Shared>,
    key: Box<[u8]>,
    large: Option<Arc<Large>>,
}

impl LargeWhole {
    pub(crate) fn new(shared: &Arc<Shared>, key: Box<[u8]>, large: Large) -> LargeWhole {
        LargeWhole { shared: shared.clone(), key, large: Some(Arc::new(large)) }
    }

    /// Appends the item's record.
    pub fn append(self, meta: ItemMeta, sequence: Option<u64>) -> Result<Ticket> {
        let write = |draft: &Draft<'_>| self.shared.append_with_room(draft, RESERVE_PUT).map(Some);
        let ticket = self.write(meta, sequence, write)?;
        self.appended();
        Ok(ticket.expect("it has waited"))
    }

    /// The same, if it need not wait.
    pub fn try_append(self, meta: ItemMeta, sequence: u64) -> Result<Tried<Ticket, LargeWhole>> {
        let write = |draft: &Draft<'_>| self.shared.try_append(draft, RESERVE_PUT);
        match self.write(meta, Some(sequence), write)? {
            None => Ok(Tried::Waits(self)),
            Some(ticket) => {
                self.appended();
                Ok(Tried::Done(ticket))
            }
        }
    }

    fn write(
        &self,
        meta: ItemMeta,
        sequence: Option<u64>,
        append: impl FnOnce(&Draft<'_>) -> Result<Option<Ticket>>,
    ) -> Result<Option<Ticket>> {
        let large = self.large.as_ref().expect("it is appended once");
        large.know(meta);
        let mut body = Vec::new();
        large.encode(&mut body);
        let what = Some(What::Large(large.clone()));
        append(&Draft { kind: Kind::Large, sequence, meta, key: &self.key, body: &body, what })
    }

    /// The blocks are the record's from now on.
    fn appended(mut self) {
        if let Some(large) = self.large.take() {
            let counters = &self.shared.counters;
            counters.user_bytes.add(self.key.len() as u64 + large.value_bytes());
            if large.original_bytes != 0 {
                counters.compressed_values.add(1);
                counters.compressed_from_bytes.add(large.value_bytes());
                counters.compressed_to_bytes.add(large.bytes);
            }
        }
    }
}

impl Drop for LargeWhole {
    fn drop(&mut self) {
        if let Some(large) = self.large.take() {
            self.shared.waiting.give(large.written());
            self.shared.space.free(&large.extents);
        }
    }
}
