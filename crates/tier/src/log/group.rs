//! Group commit.
//!
//! Whoever waits for durability, and is in no group yet, leads one for all who wait: its large
//! values and its records are written together, then both media are synced. Then the group is
//! settled: offered to the index, and its writers wake. There is no thread of the log's own.
//!
//! One group is written at a time, since two share the block in which one ends and the next begins,
//! and one is synced at a time, since a device may tell of a failure once, to whoever asks first.
//! But the next group may be written while one is synced, so that a few writers who come back as
//! soon as they are answered do not take turns. Groups are settled in the order they were begun:
//! what is said to be durable is all that was appended before, and a failure ends those behind it.
//!
//! Values and records go out at once: a record may be durable before the value it points at, as it
//! may on persistent memory whatever one does, and recovery looks ([`crate::recovery::recover`]).
//! What is acknowledged has both.

use crate::log::{Group, Log};
use crate::media::disk::Barrier;
use crate::media::flushes::Medium;
use crate::media::pm;
use crate::ssd::boundary::{Mix, Took};
use crate::ssd::large::Runs;
use crate::ssd::value::Large;
use crate::store::{Pending, Shared, Writer, turn};
use crate::types::{Durability, Position, Result, doing};
use laneway_sync::planted::{Bug, is_planted};
use std::sync::{Arc, Condvar, MutexGuard};

/// Records that are offered to the index while the writer is held.
const OFFERED_AT_ONCE: usize = 64;
/// Records that leave blocks meanwhile, which takes less than to offer those.
const LEFT_AT_ONCE: usize = 1024;

/// A group on its way out.
struct Outgoing {
    /// Values were written by themselves before.
    data: bool,
    /// One of these was too long to wait.
    long: bool,
    /// The records.
    group: Option<Group>,
    /// Values that the group writes.
    values: Vec<Arc<Large>>,
    /// What is offered to the index when it is durable.
    pending: Vec<Pending>,
    /// The sizes of its writes' values.
    mix: Mix,
}

/// What a group's writes leave to its sync.
struct Written {
    /// There are large values to be synced.
    values: bool,
    /// Bytes of them that it wrote.
    value_bytes: u64,
    /// Of the records.
    records: Option<pm::Written>,
}

impl Outgoing {
    /// All that was appended and is in no group yet.
    fn of(writer: &mut Writer) -> Outgoing {
        let pending = std::mem::take(&mut writer.pending);
        Outgoing {
            data: std::mem::take(&mut writer.data_written),
            long: std::mem::take(&mut writer.long_written),
            group: writer.log.take_group(),
            values: pending.iter().filter_map(|pending| pending.value.clone()).collect(),
            pending,
            mix: std::mem::take(&mut writer.mix),
        }
    }
}

impl Shared {
    /// Makes durable all that was appended; it is settled, and no group under way, when this
    /// returns. The writer is let go meanwhile, and closed: nobody appends.
    pub fn close_up<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
    ) -> Result<MutexGuard<'a, Writer>> {
        while writer.is_closed {
            writer = self.wait_settled(writer);
        }
        writer.check()?;
        writer.is_closed = true;
        drop(writer);
        let done = self.commit(Barrier::Group);
        let mut writer = self.wait_quiet(self.writer());
        writer.is_closed = false;
        self.settled.notify_all();
        done?;
        assert!(writer.is_settled(), "nothing was appended meanwhile");
        Ok(writer)
    }

    /// Waits until the log is durable up to `end`, making it so if nobody else does.
    pub fn commit_to(&self, end: Position, why: Barrier) -> Result<()> {
        let mut writer = self.writer();
        loop {
            if end <= writer.log.durable() {
                return Ok(());
            }
            if let Err(error) = writer.check() {
                // Whoever was to lead the next group ends here: the others shall hear of it.
                self.groups.iter().for_each(Condvar::notify_all);
                return Err(error);
            }
            let group = writer.group_of(end);
            if writer.group < group && writer.may_begin() {
                return self.lead(writer, why);
            }
            writer = self.wait_group(writer, group);
        }
    }

    /// Makes the next group durable.
    fn lead(&self, mut writer: MutexGuard<'_, Writer>, why: Barrier) -> Result<()> {
        if self.settings.pad_groups
            && let Err(error) = writer.pad()
        {
            writer.failed = Some(error.to_string());
            self.groups.iter().for_each(Condvar::notify_all);
            return Err(error);
        }
        let group = writer.begin();
        let mut out = Outgoing::of(&mut writer);
        drop(writer);
        let mut nanos = 0;
        let written = self.clocked(&mut nanos, || self.write_out(&out));
        let mut writer = self.writer();
        writer.writing = false;
        if let Err(error) = &written {
            // Before anybody begins a group behind it.
            writer.failed.get_or_insert_with(|| error.to_string());
        }
        if writer.may_begin() {
            self.groups[turn(group + 1)].notify_one();
        }
        while writer.settled + 1 < group {
            writer = self.wait_settled(writer);
        }
        // Where the one before failed, so does this.
        let is_well = writer.check();
        drop(writer);
        let result = written.and_then(|written| {
            is_well?;
            self.clocked(&mut nanos, || self.sync(&out, &written, why))?;
            self.group_took(&out, written.value_bytes, nanos);
            Ok(())
        });
        if result.is_ok() {
            self.offer_all(&mut out);
        }
        let mut writer = self.writer();
        let settled = self.settle(&mut writer, out, result);
        writer.settled = group;
        let next = writer.group + 1;
        if 0 < writer.awaiting {
            self.settled.notify_all();
        }
        drop(writer);
        match settled {
            Ok(()) => {
                // Who leads comes before those who are done: the device waits for it.
                self.groups[turn(next)].notify_one();
                self.groups[turn(group)].notify_all();
            }
            Err(_) => self.groups.iter().for_each(Condvar::notify_all),
        }
        settled
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

    /// Writes a group, as one with its values. Nobody else writes one meanwhile.
    fn write_out(&self, out: &Outgoing) -> Result<Written> {
        let runs = Runs::of(&out.values, &self.spare_runs);
        let writes = runs.writes(&*self.ssd);
        self.counters.ssd_bytes.add(runs.bytes());
        let values = out.data || !writes.is_empty();
        // Records of values that wait are in a group with them.
        let write = |group| Log::write(&*self.region, &self.shape, group, &writes);
        let records = out.group.map(write).transpose()?;
        let value_bytes = runs.bytes();
        runs.give_back(&self.spare_runs);
        Ok(Written { values, value_bytes, records })
    }

    /// Adds up what `work` takes, where the boundary between the two ways of a value moves.
    pub fn clocked<T>(&self, nanos: &mut u64, work: impl FnOnce() -> T) -> T {
        let flushes = &self.counters.flushes;
        let now = || self.split.adapts().then(|| flushes.now()).flatten();
        let began = now();
        let done = work();
        if let (Some(began), Some(now)) = (began, now()) {
            *nanos += now.saturating_sub(began);
        }
        done
    }

    /// Tells the boundary what a group took, and what short values took that found no room to wait:
    /// not of one with long values, which its sync waits for; nor without a clock.
    fn group_took(&self, out: &Outgoing, ssd_bytes: u64, nanos: u64) {
        let spilled = self.split.take_spilled();
        if let Some(group) = &out.group
            && !out.long
            && 0 < nanos
        {
            let took = Took {
                log_bytes: group.bytes(),
                values: out.values.len() as u64 + spilled.values,
                ssd_bytes: ssd_bytes + spilled.ssd_bytes,
                nanos: nanos + spilled.nanos,
            };
            self.split.group_took(took, &out.mix, self.fullness());
        }
    }

    /// How full the log is, where 1 is as full as migration lets it become.
    fn fullness(&self) -> f64 {
        let segments = f64::from(self.shape.segments);
        let used = segments - self.counters.tally.free_segments.get() as f64;
        let most = segments * f64::from(self.settings.migrate_percent.max(1)) / 100.0;
        (used / most).clamp(0.0, 1.0)
    }

    /// Makes durable what was written.
    fn sync(&self, out: &Outgoing, written: &Written, why: Barrier) -> Result<()> {
        if written.values && !is_planted(Bug::ValueFlushDropped) {
            let sync = || self.ssd.sync(Barrier::Data);
            doing("sync the SSD", self.counters.flushes.timed(Medium::Ssd, sync))?;
        }
        if let Some(records) = &written.records
            && !is_planted(Bug::LogFlushDropped)
        {
            let sync = || self.region.sync(why, records);
            // It has nothing to do where the sync above served for it.
            let synced = match written.values && records.is_served {
                true => sync(),
                false => self.counters.flushes.timed(Medium::Log, sync),
            };
            doing("sync the log", synced)?;
        }
        // Whoever reads a value finds it on the SSD. Before anybody has to wait for the writer.
        for value in &out.values {
            self.waiting.give(value.written());
            self.index.written(value);
        }
        Ok(())
    }

    /// Offers what is durable to the index, some at a time: whoever appends does not wait for all
    /// of a large group. No other group is settled meanwhile. What was offered as it was appended
    /// only leaves the blocks that it replaced.
    fn offer_all(&self, out: &mut Outgoing) {
        let at_once = match self.settings.durability {
            Durability::Ack => OFFERED_AT_ONCE,
            Durability::Interval => LEFT_AT_ONCE,
        };
        for (nth, some) in out.pending.chunks_mut(at_once).enumerate() {
            if 0 < nth {
                std::thread::yield_now();
            }
            let mut writer = self.writer();
            let Writer { waiting, log, offered, .. } = &mut *writer;
            *offered = out.group.map_or(*offered, |group| group.end());
            for pending in some {
                self.offer(log, pending);
                waiting.extend(pending.frees.drain(..));
            }
        }
    }

    fn settle(&self, writer: &mut Writer, out: Outgoing, result: Result<()>) -> Result<()> {
        if let Err(error) = result {
            // What is durable is unknown now. What of the group is not visible never will be.
            writer.failed.get_or_insert_with(|| error.to_string());
            return Err(error);
        }
        let records: usize = out.pending.iter().map(|pending| pending.records).sum();
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
            self.counters.grouped_records.add(records as u64);
            while let Some((_, large)) = writer.waiting.pop_front_if(|(end, _)| *end <= vouched) {
                self.space.free(&large.extents);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Entry, Published, Tie, What};
    use crate::log::append::{Draft, small};
    use crate::log::record::Kind;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;
    use crate::recovery::recover::{Media, Purpose, recover};
    use crate::types::{IndexKind, ItemMeta, Settings};

    fn open(index: Option<IndexKind>) -> Shared {
        open_by(Settings { index, ..Settings::default() })
    }

    fn open_by(settings: Settings) -> Shared {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(512 << 10, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let settings = Settings { segment_bytes: 16 << 10, ..settings };
        let purpose = Purpose::Use { new_id: 1 };
        recover(Media { region, ssd }, settings, purpose, &mut |_, _| {}).unwrap().0
    }

    #[test]
    fn a_small_group_has_one_beside_it_and_none_is_begun_for_who_waits_for_quiet() {
        let shared = open(None);
        let mut writer = shared.writer();
        assert!(writer.may_begin() && !writer.is_under_way());
        let first = writer.begin();
        assert!(!writer.may_begin(), "it is being written");
        writer.writing = false;
        assert!(writer.may_begin() && writer.is_under_way());
        writer.group_records = 3;
        assert!(!writer.may_begin(), "those who wait for it come back together");
        writer.group_records = 2;
        writer.halting = 1;
        assert!(!writer.may_begin(), "somebody waits until none is under way");
        writer.halting = 0;
        let second = writer.begin();
        writer.writing = false;
        assert!(!writer.may_begin(), "two are under way");
        writer.settled = first;
        assert!(writer.may_begin());
        writer.settled = second;
        assert!(!writer.is_under_way() && writer.is_settled());
    }

    #[test]
    fn records_with_nothing_left_to_do_wait_for_their_group_as_one() {
        let durability = Durability::Interval;
        let shared = open_by(Settings { durability, ..Settings::default() });
        let before = shared.counters.grouped_records.get();
        let put = |key: &[u8]| {
            let draft = small(key, b"value", ItemMeta::default(), None);
            shared.append(&draft, 0).unwrap().unwrap().0
        };
        let last = [&b"one"[..], b"two", b"one"].map(put)[2];
        assert_eq!(shared.index.get(b"one").map(|one| one.sequence), Some(last.sequence));
        let waiting = |writer: &Writer| -> Vec<_> {
            writer.pending.iter().map(|pending| (pending.records, pending.end)).collect()
        };
        assert_eq!(waiting(&shared.writer()), [(3, last.end)]);
        shared.commit(Barrier::Group).unwrap();
        assert!(shared.writer().is_settled() && shared.is_durable(last).unwrap());
        assert_eq!(shared.counters.grouped_records.get() - before, 3);
    }

    #[test]
    fn a_write_is_in_the_first_group_that_ends_behind_it() {
        let shared = open(None);
        let mut writer = shared.writer();
        let at = |offset| Position { generation: 7, offset };
        (writer.settled, writer.group) = (4, 6);
        (writer.ends[turn(5)], writer.ends[turn(6)]) = (at(100), at(200));
        let group_of = |offset| writer.group_of(at(offset));
        assert_eq!([100, 101, 200, 201].map(group_of), [5, 6, 6, 7]);
    }

    #[test]
    fn what_the_index_has_is_shown_before_it_is_said_to_be_durable() {
        let shared = open(None);
        let draft = small(b"key", b"value", ItemMeta::default(), None);
        let (ticket, _) = shared.append(&draft, 0).unwrap().unwrap();
        let mut out = Outgoing::of(&mut shared.writer());
        let at = || {
            let writer = shared.writer();
            (writer.log.durable(), writer.shown())
        };
        let (before, shown) = at();
        assert!(shared.index.get(b"key").is_none() && before == shown && shown < ticket.end);
        shared.offer_all(&mut out);
        assert!(shared.index.get(b"key").is_some());
        assert_eq!(at(), (before, ticket.end));
        shared.settle(&mut shared.writer(), out, Ok(())).unwrap();
        assert_eq!(at(), (ticket.end, ticket.end));
    }

    #[test]
    fn what_the_index_refused_is_never_said_to_be_durable() {
        let shared = open(Some(IndexKind::Fair));
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
