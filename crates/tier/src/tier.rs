//! The store as it is used: open, get, put, delete, scan.

use crate::background::Background;
use crate::background::clock::{Asks, Hears};
use crate::background::scrub::{self, Scrub};
use crate::log::append::{Draft, Ticket, check, deletion, passes_over, small};
use crate::log::attempt::{LargeDraft, LargeWhole, Tried};
use crate::log::record::{Kind, bytes_of};
use crate::media::disk::Barrier;
use crate::media::flushes::Nanos;
use crate::reading::read::{Expired, LargeReader, Look};
use crate::reading::reads::{Answer, Reads, Request, Wake};
use crate::reading::scan::{Found, Shown};
use crate::recovery::grow;
use crate::recovery::recover::{Media, Progress};
use crate::report::Report;
use crate::ssd::large::waiting;
use crate::stats::{Evicted, Stats, Usage};
use crate::store::{RESERVE_DELETE, RESERVE_FLUSH, RESERVE_PUT, Shared};
use crate::types::{Durability, Error, Item, ItemMeta, Position, Result, SEQUENCE_MAX, Settings};
use crate::whole::backup::{Backup, Bounds};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// So much of the log in no group yet makes a commit urgent: a quarter of a segment, as these are.
const URGENT_LOG_BYTES: u32 = 1 << 20;

/// A durable store of items, small ones in persistent memory, large ones on the SSD.
///
/// All methods may be called from any thread.
pub struct Tier {
    shared: Arc<Shared>,
    // After `shared`, so that the thread ends first when both are dropped by `close`.
    background: Option<Background>,
}

impl Tier {
    /// Opens the store on `media`, or makes one with this id (any random number) where there is
    /// none. `progress` hears how much of the log is replayed. On media larger than the store it
    /// grows, but for a log with the index in persistent memory behind it.
    pub fn open(
        media: Media,
        settings: Settings,
        new_id: u64,
        progress: Progress<'_>,
    ) -> Result<(Tier, Report)> {
        if settings.table_bytes == 0 || 100 < settings.migrate_percent {
            return Err(Error::Setting(
                "table_bytes must not be 0, and migrate_percent at most 100".into(),
            ));
        }
        let (shared, report) = grow::open(media, settings, new_id, progress)?;
        if report.log_is_new {
            shared.replace_lost_log(&report)?;
        }
        shared.keep_own_room(&shared.maintenance());
        let shared = Arc::new(shared);
        let background = settings.background.then(|| Background::start(&shared)).transpose()?;
        Ok((Tier { shared, background }, report))
    }

    /// Reads an item, waiting for a device if need be.
    pub fn get(&self, key: &[u8]) -> Result<Option<Item>> {
        self.shared.get(key)
    }

    /// What a key holds, from the index alone: never waits.
    pub fn look(&self, key: &[u8]) -> Option<Look> {
        self.shared.look(key)
    }

    /// Writes an item and returns its sequence. With [`Durability::Ack`] it is durable then.
    pub fn put(&self, key: &[u8], value: &[u8], meta: ItemMeta) -> Result<u64> {
        let ticket = self.submit_put(key, value, meta, None)?;
        self.acknowledge(ticket)
    }

    /// Deletes a key and says whether it held an item.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        let found = self.shared.look(key).is_some();
        match self.submit_delete(key, None)? {
            Some(ticket) => self.acknowledge(ticket).map(|_| found),
            None => Ok(false),
        }
    }

    /// Deletes everything.
    pub fn flush_all(&self) -> Result<u64> {
        let meta = ItemMeta::default();
        let draft =
            Draft { kind: Kind::FlushAll, sequence: None, meta, key: &[], body: &[], what: None };
        let ticket = match self.append(&draft, RESERVE_FLUSH) {
            // Behind it nothing has to be moved: the last segment has room for what frees others.
            Err(Error::PmFull | Error::SsdFull { .. }) => self.append(&draft, 0)?,
            appended => appended?,
        };
        let sequence = self.acknowledge(ticket)?;
        // The record may have begun the last free segment but one. Nothing of the segments of
        // before is needed, so they are freed now: a start may have to begin one. Where this fails,
        // everything is deleted all the same.
        let _ = self.shared.make_room(RESERVE_FLUSH);
        Ok(sequence)
    }

    /// Appends a write without waiting for its durability. It is read, and survives, once
    /// [`Tier::is_durable`]; somebody has to call [`Tier::wait`] or [`Tier::commit`]. `sequence` is
    /// the caller's, higher than any before for this key, or the next one.
    pub fn submit_put(
        &self,
        key: &[u8],
        value: &[u8],
        meta: ItemMeta,
        sequence: Option<u64>,
    ) -> Result<Ticket> {
        if self.is_large(key.len(), value.len()) {
            check(key, value.len() as u64)?;
            if let Some(large) = self.with_room(|| waiting(&self.shared, value))? {
                return LargeWhole::new(&self.shared, key.into(), large).append(meta, sequence);
            }
            let mut draft = self.draft_large(key, value.len() as u64)?;
            draft.write(value)?;
            return draft.finish(meta, sequence);
        }
        check(key, value.len() as u64)?;
        let ticket = self.append(&small(key, value, meta, sequence), RESERVE_PUT)?;
        self.shared.counters.user_bytes.add((key.len() + value.len()) as u64);
        Ok(ticket)
    }

    /// As [`Tier::submit_put`] of a value that is not [`Tier::is_large`], if it need not wait for a
    /// medium.
    pub fn try_put(
        &self,
        key: &[u8],
        value: &[u8],
        meta: ItemMeta,
        sequence: u64,
    ) -> Result<Tried<Ticket>> {
        self.shared.try_put(key, value, meta, sequence)
    }

    /// The same of a value that is [`Tier::is_large`]: it waits in memory for its group. Handed
    /// back are also values too long for that, and those for which there is no room at once.
    pub fn try_put_large(
        &self,
        key: &[u8],
        value: &[u8],
        meta: ItemMeta,
        sequence: u64,
    ) -> Result<Tried<Ticket>> {
        self.shared.try_put_large(key, value, meta, sequence)
    }

    /// As [`Tier::submit_delete`], if it need not wait for a medium.
    pub fn try_delete(&self, key: &[u8], sequence: u64) -> Result<Tried<Option<Ticket>>> {
        self.shared.try_delete(key, sequence)
    }

    /// Whether a value of this length goes straight to the SSD; where the boundary moves
    /// ([`Settings::split_adapts`]), at this moment.
    pub fn is_large(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.shared.split.bytes() <= value_bytes
            || self.shared.shape.record_bytes_max() < bytes_of(key_bytes, value_bytes)
    }

    /// Begins a large value that arrives piece by piece. Room for it is taken now; dropped before
    /// it is finished, it leaves nothing behind.
    pub fn draft_large(&self, key: &[u8], value_bytes: u64) -> Result<LargeDraft> {
        check(key, value_bytes)?;
        self.shared.writer().check()?;
        self.with_room(|| LargeDraft::begin(&self.shared, key, value_bytes))
    }

    /// Tries once more if the SSD is full and something on it only waits to be freed, or may be
    /// evicted.
    fn with_room<T>(&self, take: impl Fn() -> Result<T>) -> Result<T> {
        match take() {
            Err(Error::SsdFull { blocks }) if self.shared.evicts() => {
                match self.shared.evict_until(blocks, &take) {
                    Err(Error::SsdFull { .. }) if self.shared.give_up_cut_for_room() => {
                        self.shared.evict_until(blocks, &take)
                    }
                    taken => taken,
                }
            }
            Err(full @ Error::SsdFull { .. }) => {
                // Who writes comes before who copies.
                let given_up = self.shared.give_up_cut_for_room();
                // As a deletion, this makes room on the SSD, and leaves the log what migration
                // needs. It appends two notes at most for each write that left blocks.
                let freed = match self.shared.free_what_waits(RESERVE_DELETE) {
                    // The value's record needs room, too, and what makes some is a later record.
                    Err(Error::PmFull) => match self.shared.seek_room(RESERVE_PUT) {
                        Ok(()) | Err(Error::PmFull | Error::SsdFull { .. }) => true,
                        Err(error) => return Err(error),
                    },
                    freed => freed?,
                };
                match freed || given_up {
                    true => take(),
                    false => Err(full),
                }
            }
            taken => taken,
        }
    }

    /// Appends a deletion; `None` if there is nothing to delete.
    pub fn submit_delete(&self, key: &[u8], sequence: Option<u64>) -> Result<Option<Ticket>> {
        check(key, 0)?;
        if !self.shared.may_hold(key)? {
            return Ok(None);
        }
        let ticket = self.append(&deletion(key, sequence), RESERVE_DELETE)?;
        self.shared.counters.user_bytes.add(key.len() as u64);
        Ok(Some(ticket))
    }

    fn append(&self, draft: &Draft<'_>, reserve: u32) -> Result<Ticket> {
        self.shared.append_with_room(draft, reserve)
    }

    fn acknowledge(&self, ticket: Ticket) -> Result<u64> {
        if self.shared.settings.durability == Durability::Ack {
            self.wait(ticket)?;
        }
        Ok(ticket.sequence)
    }

    /// Waits until a write is durable, making it so if nobody else does.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.shared.commit_to(ticket.end, Barrier::Group)
    }

    /// Up to where the log is durable: a write whose [`Ticket::end`] is no later is.
    pub fn durable(&self) -> Position {
        self.shared.writer().log.durable()
    }

    /// The same, and behind it up to where a walk or a backup may show changes already.
    pub fn durable_and_shown(&self) -> (Position, Position) {
        let writer = self.shared.writer();
        (writer.log.durable(), writer.shown())
    }

    /// Reads now, waiting for a device if need be: what [`Tier::reads`] does without waiting.
    pub fn read(&self, request: Request) -> Answer {
        request.carry_out(&self.shared)
    }

    /// The highest sequence so far.
    pub fn sequence(&self) -> u64 {
        self.shared.writer().sequence
    }

    /// No sequence up to this one is given to a write any more.
    pub fn pass_over(&self, sequence: u64) -> Result<()> {
        let sequence = self.to_pass_over(sequence)?;
        self.append(&passes_over(sequence), RESERVE_DELETE).map(drop)
    }

    /// The same, durably, before anything is written. Where the log has no room for that now, the
    /// first write does it that finds some, and [`Tier::try_put`] and its kin hand theirs back
    /// until then: no write is durable, nor read, before this is.
    pub fn pass_over_first(&self, sequence: u64) -> Result<()> {
        self.shared.pass_over_first(self.to_pass_over(sequence)?)
    }

    fn to_pass_over(&self, sequence: u64) -> Result<u64> {
        match SEQUENCE_MAX < sequence {
            true => Err(Error::Setting(format!(
                "sequences up to {sequence} cannot be passed over: none would be left for writes"
            ))),
            false => Ok(sequence.max(self.sequence() + 1)),
        }
    }

    /// Why writes are refused; `None` while they are not.
    pub fn refuses_writes(&self) -> Option<Error> {
        self.shared.writer().check().err()
    }

    /// Whether a commit is worth its while before anybody waits for it. Short large values that
    /// wait for it take half of the memory that there is for them: without room there each is
    /// written by itself, which costs several times as much. Or much of the active segment is in no
    /// group: who fills it waits until all of it is durable, and so does everybody who writes.
    pub fn is_commit_urgent(&self) -> bool {
        self.shared.waiting.is_half_full()
            || URGENT_LOG_BYTES <= self.shared.writer().log.loose_bytes()
    }

    /// Tells the time: what migration meets from now on that has expired by then is dropped, and
    /// not copied.
    pub fn tell_time(&self, now_seconds: u32) {
        self.shared.now_seconds.store(now_seconds, Relaxed);
    }

    /// Asks `asks` before an item is evicted ([`crate::WhenFull::Evict`]): an owner that has items
    /// in memory reads them there, and they look cold here. It must not call the tier.
    pub fn ask_before_evicting(&self, asks: Asks) {
        self.shared.maintenance().eviction.asks = Some(asks);
    }

    /// Has `hears` hear of each item that is evicted, with the sequence of the write that made it,
    /// before anybody can miss it. It must not call the tier.
    pub fn hear_of_evictions(&self, hears: Hears) {
        self.shared.maintenance().eviction.hears = Some(hears);
    }

    /// Whether items are dropped where the SSD has no room.
    pub fn evicts(&self) -> bool {
        self.shared.evicts()
    }

    /// What was dropped so far to make room on the SSD; from counters alone.
    pub fn evicted(&self) -> Evicted {
        self.shared.counters.evicted()
    }

    /// How much memory the index takes; from a counter alone.
    pub fn index_bytes(&self) -> u64 {
        self.shared.index.bytes()
    }

    /// Of the next `looks` items from `from` on, those that have expired at `now_seconds`; from the
    /// index alone.
    pub fn expired(&self, from: &[u8], looks: usize, now_seconds: u32) -> Expired {
        self.shared.expired(from, looks, now_seconds)
    }

    /// Shows the items of a bounded piece of the index (a leaf, deletions that are remembered
    /// included), from `from` on, in key order; those that have expired, too. Says where to go on;
    /// nowhere at the end.
    pub fn look_along(&self, from: &[u8], visit: impl FnMut(&[u8], Look)) -> Option<Box<[u8]>> {
        self.shared.look_along(from, visit)
    }

    /// Whether a write is durable.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        self.shared.is_durable(ticket)
    }

    /// Makes durable what was appended so far.
    pub fn commit(&self) -> Result<()> {
        self.shared.commit(Barrier::Group)
    }

    /// Up to `limit` items from `from` on and below `to`, in key order.
    pub fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Vec<(Vec<u8>, Result<Item>)> {
        self.shared.scan(from, to, limit)
    }

    /// Up to `limit` items from `from` on and below `to`, in key order, from the index alone: for
    /// who has some of them in memory and asks for the others by [`Tier::read_found`].
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<Found> {
        self.shared.range(from, to, limit)
    }

    /// Shows items of a range by their numbers in `found`, in the order in which the devices bring
    /// them, as many at once as these take. An item that was replaced or deleted since it was found
    /// is shown as it was then or as it is now; its sequence tells. Does `meanwhile` once, while
    /// they are read. Like a scan, it counts no hits: what a scan passes does not become hot.
    pub fn read_found(
        &self,
        found: &[&Found],
        meanwhile: impl FnOnce(),
        show: impl FnMut(usize, Result<Option<Shown<'_>>>),
    ) {
        self.shared.read_found(found, meanwhile, show);
    }

    /// Reads several items, as many at once as the devices take: an answer for each key.
    pub fn get_many(&self, keys: &[&[u8]]) -> Vec<Result<Option<Item>>> {
        self.shared.get_many(keys)
    }

    /// Opens a large value for reading piece by piece; `None` if the key holds no large value.
    pub fn open_large(&self, key: &[u8]) -> Result<Option<LargeReader>> {
        self.shared.open_large(key)
    }

    /// Starts threads that read for those who must not wait.
    pub fn reads(&self, threads: usize, wake: &Wake) -> Result<Reads> {
        Reads::start(&self.shared, threads, wake)
    }

    /// Does one turn of migration, compaction or checkpointing if one is due.
    pub fn maintain(&self) -> Result<bool> {
        self.shared.maintain()
    }

    /// Empties one segment of the log whether or not it is due; false if there is none.
    pub fn migrate(&self) -> Result<bool> {
        self.shared.empty_segment(&mut self.shared.maintenance())
    }

    /// Makes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint()
    }

    /// Makes a checkpoint now, unless nothing was appended since the last: a start replays nothing
    /// of what was appended before.
    pub fn checkpoint_now(&self) -> Result<()> {
        match self.shared.is_checkpointed()? {
            true => Ok(()),
            false => self.shared.checkpoint(),
        }
    }

    /// Bytes that a start would read, counted since the store was opened: all of them, and those
    /// that the newest checkpoint spares it.
    pub fn checkpointed(&self) -> (u64, u64) {
        let writer = self.shared.writer();
        (writer.behind_bytes(), writer.checkpointed_bytes)
    }

    /// Compacts the store: rewrites what is sparse in log and sort tables until the bytes in use
    /// are close to those that are current ([`Tier::usage`]). `hears` hears of bytes rewritten, and
    /// of these with what is left. Nothing is lost whenever it is interrupted. Fails with
    /// [`Error::SsdFull`] where the SSD has not the room for all that it takes; what could be done
    /// was done then.
    pub fn compact(&self, hears: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.shared.condense(hears)
    }

    /// Has the store compacted beside everything else: a step at a time, behind whatever else is
    /// due ([`Tier::maintain`]), and no faster than migration may be ([`Tier::limit_migration`]).
    /// False if that is under way. [`Stats::compaction`] tells how far it is. It ends with the
    /// store, and what was done is done.
    pub fn begin_compaction(&self) -> bool {
        self.shared.begin_compaction()
    }

    /// Gives that up; false if none is under way.
    pub fn stop_compaction(&self) -> bool {
        self.shared.counters.compaction.stop()
    }

    /// Begins a copy of what the store holds now, which may be written to meanwhile; there is one
    /// at a time.
    pub fn backup(&self, bounds: Bounds) -> Result<Backup> {
        Backup::begin(&self.shared, bounds)
    }

    /// What a backup may hold unless its owner says otherwise: 256 MiB of memory, and an eighth of
    /// the SSD's blocks; less where items are evicted, for eviction finds less while they are held.
    pub fn backup_bounds(&self) -> Bounds {
        let share = if self.shared.evicts() { 32 } else { 8 };
        let blocks = self.shared.space.blocks() / share;
        Bounds { memory_bytes: 256 << 20, blocks, ..Bounds::NONE }
    }

    /// Begins a pass over all that the store has in use, which verifies it; it may be written to
    /// meanwhile.
    pub fn scrub(&self, bounds: scrub::Bounds) -> Scrub {
        Scrub::begin(&self.shared, bounds)
    }

    /// Lends the store a clock, once: by it is counted how long the media take to make something
    /// durable, migration held to its rate, and the boundary moved ([`Settings::split_adapts`]).
    pub fn lend_clock(&self, nanos: Nanos) {
        self.shared.counters.flushes.time_by(nanos);
    }

    /// Has migration and compaction write at most so many bytes a second, in turns of a segment or
    /// two sort tables; 0 for any number. They go beyond it where log or SSD is short of room, and
    /// where there is no clock ([`Tier::lend_clock`]).
    pub fn limit_migration(&self, bytes_per_second: u64) {
        self.shared.counters.pace.set(bytes_per_second);
    }

    /// What is used of the media, was written, and how long flushes took: takes no lock.
    pub fn usage(&self) -> Usage {
        self.shared.usage()
    }

    /// Statistics; walks nothing but an index in persistent memory.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The same by a walk over everything, to hold the counters against it; nobody writes
    /// meanwhile, and what was written is settled.
    pub fn stats_by_walk(&self) -> Stats {
        self.shared.stats_by_walk()
    }

    /// Makes everything durable and a checkpoint, so that the next start replays nothing. A drop
    /// without it loses nothing that was acknowledged.
    pub fn close(mut self) -> Result<()> {
        self.background = None;
        self.settle()
    }

    /// As [`Tier::close`], of a store that others may still hold.
    pub fn settle(&self) -> Result<()> {
        self.commit()?;
        match self.checkpoint() {
            // The store is whole without it; the next start replays the log.
            Err(Error::SsdFull { .. }) => Ok(()),
            result => result,
        }
    }

    /// The parts.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}
