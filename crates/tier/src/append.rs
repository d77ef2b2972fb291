//! Appending, and group commit.
//!
//! Whoever waits for durability and finds nobody flushing flushes for all: the group's large values
//! and its records together. Then the group is offered to the index and its writers wake, and one
//! of those whose writes have collected meanwhile flushes the next. There is no thread of the
//! log's own.
//!
//! Values and records go out at once: a record may be durable before the value it points at, as it
//! may on persistent memory whatever one does, and recovery looks ([`crate::recover`]). What is
//! acknowledged has both.

use crate::disk::Barrier;
use crate::index::{Entry, Home, Published, Tie, What};
use crate::large::Runs;
use crate::log::{Appended, Group, Log, Refused};
use crate::pm::Values;
use crate::record::{Kind, Record};
use crate::store::{Offer, Pending, Shared, Writer, turn};
use crate::types::{Durability, Error, ItemMeta, Position, Result, doing};
use crate::value::Large;
use std::sync::{Arc, Condvar, MutexGuard};
use std::time::Duration;

/// A group of more writers than this does not wait for others to join.
const GATHERED_MAX: u32 = 8;
/// How long a group waits for them: less than a flush takes.
const GATHER_TIME: Duration = Duration::from_micros(50);

/// A write that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The write is durable when the log is up to here.
    pub end: Position,
    /// The write's sequence.
    pub sequence: u64,
}

/// What is to be appended.
pub struct Draft<'a> {
    /// What it says.
    pub kind: Kind,
    /// The caller's sequence, or the next.
    pub sequence: Option<u64>,
    /// Kept with the item.
    pub meta: ItemMeta,
    /// The key.
    pub key: &'a [u8],
    /// What the kind needs.
    pub body: &'a [u8],
    /// What the index shall know, for kinds that concern it.
    pub what: Option<What>,
}

/// A group on its way out.
struct Outgoing {
    /// Values were written by themselves before.
    data: bool,
    /// The records.
    group: Option<Group>,
    /// Values that the group writes.
    values: Vec<Arc<Large>>,
    /// How many of what is pending are in it.
    count: usize,
}

impl Outgoing {
    /// All that was appended.
    fn of(writer: &mut Writer) -> Outgoing {
        Outgoing {
            data: std::mem::take(&mut writer.data_written),
            group: writer.log.group(),
            values: writer.pending.iter().filter_map(|pending| pending.value.clone()).collect(),
            count: writer.pending.len(),
        }
    }
}

impl Shared {
    /// Appends a record, unless it needs a new segment and fewer than `reserve` would be left.
    pub fn append(&self, draft: &Draft<'_>, reserve: u32) -> Result<Option<(Ticket, Appended)>> {
        if !self.promise(draft) {
            // What is on its way is promised the most that it may take.
            self.commit(Barrier::Group)?;
            if !self.promise(draft) {
                return Err(Error::PmFull);
            }
        }
        let appended = self.append_anywhere(draft, reserve);
        if !matches!(appended, Ok(Some(_))) {
            self.withdraw(draft);
        }
        appended
    }

    fn append_anywhere(
        &self,
        draft: &Draft<'_>,
        reserve: u32,
    ) -> Result<Option<(Ticket, Appended)>> {
        let mut writer = self.writer();
        loop {
            if let Some(appended) = self.append_here(&mut writer, draft)? {
                return Ok(Some(appended));
            }
            let rolled;
            (writer, rolled) = self.roll(writer, reserve)?;
            if !rolled {
                return Ok(None);
            }
        }
    }

    /// Appends a record to the active segment; `None` if it has no room for it.
    pub fn append_here(
        &self,
        writer: &mut Writer,
        draft: &Draft<'_>,
    ) -> Result<Option<(Ticket, Appended)>> {
        writer.check()?;
        let sequence = draft.sequence.unwrap_or(writer.sequence + 1);
        let Draft { kind, meta, key, body, .. } = *draft;
        match writer.log.append(&Record { kind, sequence, meta, key, body }) {
            Ok(appended) => {
                writer.sequence = writer.sequence.max(sequence);
                self.appended(writer, draft, sequence, appended);
                Ok(Some((Ticket { end: appended.end, sequence }, appended)))
            }
            Err(Refused::Roll) => Ok(None),
            Err(Refused::Error(error @ Error::ValueBytes(_))) => Err(error),
            Err(Refused::Error(error)) => {
                writer.failed = Some(error.to_string());
                Err(error)
            }
        }
    }

    fn appended(&self, writer: &mut Writer, draft: &Draft<'_>, sequence: u64, at: Appended) {
        if draft.kind == Kind::FlushAll {
            writer.log.set_flush_sequence(sequence);
        }
        let value = match &draft.what {
            Some(What::Large(large)) => Some(large.clone()).filter(|l| l.bytes_waiting().is_some()),
            _ => None,
        };
        // A record that migration appends again has its value where it was.
        let is_new = matches!(draft.what, Some(What::Large(_)));
        writer.data_written |= is_new && value.is_none();
        let offer = match (&draft.what, draft.kind) {
            (_, Kind::FlushAll) => Some(Offer::FlushAll(sequence)),
            (Some(what), _) => {
                let home = Home::log(at.at);
                let entry = Entry {
                    sequence,
                    home,
                    record_bytes: at.record_bytes,
                    expires_at_seconds: draft.meta.expires_at_seconds,
                    what: what.clone(),
                };
                Some(Offer::Entry(draft.key.into(), entry))
            }
            (None, _) => None,
        };
        let mut pending = Pending { offer, end: at.end, value, frees: Vec::new() };
        if self.settings.durability == Durability::Interval {
            // Visible at once; what it replaces keeps its blocks until this is durable.
            self.offer(&writer.log, &mut pending);
        }
        writer.pending.push(pending);
    }

    /// Ends the active segment, and whatever group is in it, and begins the next.
    pub fn roll<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        reserve: u32,
    ) -> Result<(MutexGuard<'a, Writer>, bool)> {
        let generation = writer.log.tail().generation;
        while writer.flushing {
            writer = self.wait_settled(writer);
        }
        if writer.log.tail().generation != generation {
            return Ok((writer, true)); // somebody else did
        }
        if writer.log.free_slots() <= reserve {
            return Ok((writer, false));
        }
        self.flush_held(&mut writer, Barrier::Group)?;
        match writer.log.roll(reserve) {
            Ok(rolled) => Ok((writer, rolled)),
            Err(error) => {
                writer.failed = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Makes everything appended durable while the writer is held and nobody flushes.
    pub fn flush_held(&self, writer: &mut Writer, why: Barrier) -> Result<()> {
        writer.check()?;
        let out = Outgoing::of(writer);
        let result = self.flush_media(&out, why);
        let settled = self.settle(writer, &out, result);
        // Whoever waits for a group has it, though none was led: the next gathers for none of them.
        writer.expected = std::mem::take(&mut writer.joined).iter().sum();
        self.groups.iter().for_each(Condvar::notify_all);
        settled
    }

    /// Waits until the log is durable up to `end`, flushing if nobody else does.
    pub fn commit_to(&self, end: Position, why: Barrier) -> Result<()> {
        let mut writer = self.writer();
        let mut joined = None;
        loop {
            if end <= writer.log.durable() {
                return Ok(());
            }
            if let Err(error) = writer.check() {
                // Whoever was to lead the next group ends here: the others shall hear of it.
                self.groups.iter().for_each(Condvar::notify_all);
                return Err(error);
            }
            // In the group under way, or in the next.
            let is_next = !writer.flushing || writer.group_end < end;
            let group = writer.group + u64::from(is_next);
            if joined != Some(group) {
                joined = Some(group);
                writer.joined[turn(group)] += 1;
                self.arrived.notify_one();
            }
            if !writer.flushing {
                break;
            }
            writer = self.wait_group(writer, group);
        }
        self.lead(writer, why)
    }

    /// Makes the next group durable.
    fn lead(&self, mut writer: MutexGuard<'_, Writer>, why: Barrier) -> Result<()> {
        writer.flushing = true;
        writer.group += 1;
        let group = writer.group;
        // Whoever comes while it gathers is in it.
        writer.group_end = Position { generation: u64::MAX, offset: u32::MAX };
        writer = self.gather(writer);
        writer.group_end = writer.log.tail();
        let out = Outgoing::of(&mut writer);
        drop(writer);
        let result = self.flush_media(&out, why);
        let mut writer = self.writer();
        writer.flushing = false;
        let settled = self.settle(&mut writer, &out, result);
        let came = std::mem::take(&mut writer.joined[turn(group)]);
        writer.expected = came + writer.joined[turn(group + 1)];
        drop(writer);
        self.tell_group(group, settled.is_err());
        settled
    }

    /// Gives those a moment who waited for the group before, or together with us: a few writers who
    /// come back as soon as they are answered would otherwise take turns, a flush for each. Who is
    /// alone waits for nobody, and many make large groups without this.
    fn gather<'a>(&self, writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        let (expected, turn) = (writer.expected, turn(writer.group));
        let is_quick = !self.region.reads_wait(); // memory: a flush is over before anybody comes
        if is_quick || GATHERED_MAX < expected || expected <= writer.joined[turn] {
            return writer;
        }
        let some_miss = |writer: &mut Writer| writer.joined[turn] < expected;
        let gathered = self.arrived.wait_timeout_while(writer, GATHER_TIME, some_miss);
        gathered.expect("nobody panics while a group gathers").0
    }

    /// Wakes who waited for a group, and one who leads the next; all of them where it failed.
    fn tell_group(&self, group: u64, failed: bool) {
        let [ended, next] = [group, group + 1].map(|group| &self.groups[turn(group)]);
        match failed {
            true => next.notify_all(),
            false => next.notify_one(),
        }
        ended.notify_all();
        self.settled.notify_all();
    }

    /// Makes durable everything that was appended before the call.
    pub fn commit(&self, why: Barrier) -> Result<()> {
        let end = self.writer().log.tail();
        // Nothing was ever appended: the position lies in a segment that has not begun.
        match end.offset {
            0 => Ok(()),
            _ => self.commit_to(end, why),
        }
    }

    /// Whether a write is durable, without waiting.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        let writer = self.writer();
        match ticket.end <= writer.log.durable() {
            true => Ok(true),
            false => writer.check().map(|()| false),
        }
    }

    fn flush_media(&self, out: &Outgoing, why: Barrier) -> Result<()> {
        let runs = Runs::of(&out.values);
        let writes = runs.writes(&*self.ssd);
        let sync = || match out.data || !writes.is_empty() {
            true => self.ssd.sync(Barrier::Data),
            false => Ok(()),
        };
        self.counters.ssd_bytes.add(runs.bytes());
        let values = Values { writes: &writes, sync: &sync };
        match out.group {
            Some(group) => Log::flush(&*self.region, &self.shape, group, why, &values),
            // Records of values are in a group with them.
            None => doing("sync the SSD", sync()),
        }
    }

    fn settle(&self, writer: &mut Writer, out: &Outgoing, result: Result<()>) -> Result<()> {
        if let Err(error) = result {
            // What is durable is unknown now. What of the group is not visible never will be.
            writer.failed = Some(error.to_string());
            return Err(error);
        }
        let Writer { pending, waiting, log, .. } = writer;
        for mut pending in pending.drain(..out.count) {
            self.offer(log, &mut pending);
            if let Some(value) = pending.value {
                self.waiting.give(value.written());
            }
            waiting.extend(pending.frees);
        }
        if let Some(fair) = self.index.fair() {
            // Before anybody is told that the group is durable: what was refused is not there.
            let holds = out.group.map_or(Ok(()), |group| fair.settled(group.end()));
            holds.and_then(|()| fair.check()).inspect_err(|error| {
                writer.failed = Some(error.to_string());
            })?;
        }
        if let Some(group) = out.group {
            let vouched = writer.log.settle(group);
            self.counters.groups.add(1);
            self.counters.grouped_records.add(out.count as u64);
            while let Some((_, large)) = writer.waiting.pop_front_if(|(end, _)| *end <= vouched) {
                self.space.free(&large.extents);
            }
        }
        Ok(())
    }

    /// Offers a record to the index; what it replaces goes to the record's `frees`.
    fn offer(&self, log: &Log, pending: &mut Pending) {
        let end = pending.end;
        let replaced = |entry: Entry| {
            // Where migration appended its record again meanwhile, that may lie behind us.
            let copied = self.index.fair().and_then(|fair| fair.copied_to(entry.home));
            let vouched = end.max(end_of(log, &entry)).max(copied.unwrap_or_default());
            self.retire(entry).map(|large| (vouched, large))
        };
        match pending.offer.take() {
            None => {}
            Some(Offer::FlushAll(sequence)) => {
                let gone = self.index.flush(sequence).into_iter();
                pending.frees.extend(gone.filter_map(replaced));
            }
            Some(Offer::Moved(table, moved)) => self.follow(table, &moved),
            Some(Offer::Entry(key, entry)) => {
                let (home, bytes) = (entry.home, entry.record_bytes);
                let what = entry.what.clone();
                let stale = match &entry.what {
                    What::Large(large) => Some((end, large.clone())),
                    _ => None,
                };
                // Credited first: whoever sees the entry may replace it at once.
                self.credit(home, bytes);
                match self.index.publish(&key, entry, Tie::Keep) {
                    Published::Current(before) => {
                        pending.frees.extend(before.and_then(replaced));
                    }
                    Published::Stale => {
                        self.debit(home, bytes);
                        pending.frees.extend(stale);
                    }
                    Published::Refused => self.debit(home, bytes),
                }
                // Afterwards: nobody else may be promised the same room.
                self.index.fair().into_iter().for_each(|fair| fair.fulfil(&key, &what));
            }
        }
    }
}

/// Where an entry's record ends; before everything if it lies in a sort table.
fn end_of(log: &Log, entry: &Entry) -> Position {
    let start = match entry.home.is_ssd() {
        true => None,
        false => log.position_of(entry.home.at()),
    };
    let end = |at: Position| Position { offset: at.offset + entry.record_bytes, ..at };
    start.map_or(Position::default(), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Faults, Power, SimDisk};
    use crate::pm::sim::SimRegion;
    use crate::pm::wal::WalRegion;
    use crate::recover::{Media, Purpose, recover};
    use crate::types::{IndexKind, Settings};

    #[test]
    fn who_waits_where_a_segment_ends_is_in_no_group_to_come() {
        let power = Power::new(u64::MAX);
        let disk = || Arc::new(SimDisk::new(1 << 20, power.clone(), 1, Faults::default()));
        let media = Media { region: Arc::new(WalRegion::new(disk())), ssd: disk() };
        let settings = Settings { segment_bytes: 16 << 10, ..Settings::default() };
        let purpose = Purpose::Use { new_id: 1 };
        let (shared, _) = recover(media, settings, purpose, &mut |_, _| {}).unwrap();
        let meta = ItemMeta::default();
        let draft =
            Draft { kind: Kind::Note, sequence: None, meta, key: &[], body: &[], what: None };
        shared.append(&draft, 0).unwrap();
        let mut writer = shared.writer();
        let next = turn(writer.group + 1);
        writer.joined[next] = 3; // they wait for a group that a roll makes durable instead
        let (writer, rolled) = shared.roll(writer, 0).unwrap();
        assert!(rolled);
        assert_eq!((writer.joined, writer.expected), ([0, 0], 3));
    }

    #[test]
    fn what_the_index_refused_is_never_said_to_be_durable() {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(512 << 10, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let index = Some(IndexKind::Fair);
        let settings = Settings { segment_bytes: 16 << 10, index, ..Settings::default() };
        let purpose = Purpose::Use { new_id: 1 };
        let (shared, _) =
            recover(Media { region, ssd }, settings, purpose, &mut |_, _| {}).unwrap();
        let (meta, what) = (ItemMeta::default(), Some(What::Small { value_bytes: 5 }));
        let (kind, key, body) = (Kind::Small, &b"key"[..], &b"value"[..]);
        let draft = Draft { kind, sequence: None, meta, key, body, what };
        let (ticket, _) = shared.append(&draft, 0).unwrap().unwrap();
        shared.index.fair().unwrap().refuse();
        // Whoever leads the group, who follows, and who asks later.
        assert!(shared.commit_to(ticket.end, Barrier::Group).is_err());
        assert!(shared.commit_to(ticket.end, Barrier::Group).is_err());
        assert!(shared.is_durable(ticket).is_err());
        assert_eq!(shared.index.get(b"key"), None);
        let log = &shared.writer().log;
        let entry = Entry { what: draft.what.unwrap(), ..Entry::unreadable() };
        assert_eq!(shared.index.publish(b"key", entry, Tie::Keep), Published::Refused);
        assert!(log.durable() < ticket.end);
    }
}
