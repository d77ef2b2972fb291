//! Migration and checkpoints, which go on while the store is used, and the thread that makes them.
pub(crate) mod again;
pub(crate) mod bell;
pub(crate) mod clock;
pub(crate) mod compact;
pub(crate) mod compaction;
pub(crate) mod condense;
pub(crate) mod evict;
pub(crate) mod futile;
pub(crate) mod migrate;
pub(crate) mod moving;
pub(crate) mod pace;
pub(crate) mod room;
pub mod scrub;

use crate::media::priority::drop_priority;
use crate::store::{RESERVE_PUT, Shared, Writer};
use crate::types::{Error, Result};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long it rests when nothing is due and somebody writes. Writers that find no room do not wait
/// for it.
const REST: Duration = Duration::from_millis(20);
/// The same where nobody has written since it last looked: the next write wakes it. What else makes
/// something due (a reader or a backup that lets blocks go) may wait as long.
const DOZE: Duration = Duration::from_secs(1);

/// The thread; ends when dropped.
pub struct Background {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it.
    pub fn start(shared: &Arc<Shared>) -> Result<Background> {
        let worked = shared.clone();
        let thread = std::thread::Builder::new()
            .name("tier-migrate".into())
            .spawn(move || work(&worked))
            .map_err(|source| Error::Io { what: "start the migrating thread", source })?;
        Ok(Background { shared: shared.clone(), thread: Some(thread) })
    }
}

fn work(shared: &Shared) {
    drop_priority();
    let (bell, mut seen) = (&shared.counters.bell, None);
    while !bell.is_closed() {
        // What fails here is met again, and told, by the next writer that needs the room.
        if !shared.maintain().unwrap_or(false) {
            bell.wait(if shared.may_doze(&mut seen) { DOZE } else { REST });
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.counters.bell.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; there is nobody here to tell again.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Whether nothing can have become due since a turn did nothing: nothing was appended since
    /// what was `seen` before that turn, and nothing waits for its time. Who appends next rings.
    fn may_doze(&self, seen: &mut Option<u64>) -> bool {
        let is_held = self.is_held();
        let mut writer = self.writer();
        let now = Some(writer.behind_bytes());
        let was_seen = std::mem::replace(seen, now) == now;
        writer.rings = was_seen && !is_held;
        writer.rings
    }

    /// Does one turn of whatever is due; false if nothing was.
    pub fn maintain(&self) -> Result<bool> {
        let (used, is_short, is_urgent) = {
            let writer = self.writer();
            writer.check().inspect_err(|_| self.counters.compaction.fail())?;
            let used = self.shape.segments - writer.log.free_slots();
            let is_short = self.is_tight(&writer) || self.is_ssd_short(&writer);
            (used, is_short, self.is_migration_urgent(&writer))
        };
        // The rate holds as long as nobody would wait for it.
        let is_held = self.is_held();
        let yields = is_held && is_short;
        let may_move = !is_held || yields;
        // A step only: what else is due comes as often, and whatever became of this.
        let evicted = self.evict_if_low();
        // First, if it can be: migration does not end while much is written, and makes more for a
        // start to read.
        let checkpoint = if is_urgent { Ok(false) } else { self.checkpoint_if_due() };
        let due = u64::from(used) * 100
            >= u64::from(self.shape.segments) * u64::from(self.settings.migrate_percent);
        // Where it fails for want of room, what comes next may make some.
        let emptied = match due && may_move {
            true => self.empty_unless_in_vain(),
            false => Ok(false),
        };
        if let Ok(true) = emptied {
            self.counters.rate_yields.add(yields.into());
            let now_used = self.shape.segments - self.writer().log.free_slots();
            if now_used < used {
                return Ok(true);
            }
        }
        let merged = match may_move && self.tables_are_sparse() {
            true => self.merge_unless_in_vain(),
            false => Ok(false),
        };
        if let Ok(true) = merged {
            self.counters.rate_yields.add(yields.into());
            return Ok(true);
        }
        let checkpoint = match checkpoint {
            Ok(false) if is_urgent && self.may_have_room() => self.checkpoint_if_due(),
            done => done,
        };
        // What was asked for comes behind what is due, and may make room for that.
        let did = matches!((&evicted, &checkpoint), (Ok(true), _) | (_, Ok(true)));
        if !did && !is_held && self.go_on_compacting() {
            return Ok(true);
        }
        emptied?;
        merged?;
        match evicted? {
            true => Ok(true),
            false => checkpoint,
        }
    }

    /// Whether writers would soon wait for migration.
    fn is_tight(&self, writer: &Writer) -> bool {
        let spare = self.shape.segments * (100 - self.settings.migrate_percent) / 100;
        writer.log.free_slots() < (spare / 2).max(RESERVE_PUT + 1)
    }

    /// Whether the SSD is short of what compaction may gain: little is free, or less than a
    /// checkpoint takes. Where items are evicted, it always is nearly full, and eviction makes the
    /// room.
    fn is_ssd_short(&self, writer: &Writer) -> bool {
        let is_little = self.space.free_blocks() * 16 < self.space.blocks();
        !self.evicts() && (is_little || writer.refused.is_some())
    }

    /// Whether writers would soon wait for it, or there was no room for a checkpoint just now.
    fn is_migration_urgent(&self, writer: &Writer) -> bool {
        let spare = self.shape.segments * (100 - self.settings.migrate_percent) / 100;
        let is_tight = writer.log.free_slots() < spare / 2;
        let enough = self.settings.checkpoint_bytes / 8;
        let was_refused = writer.refused.is_some_and(|(at, _)| writer.behind_bytes() < at + enough);
        is_tight || was_refused
    }

    /// Whether the SSD may have room for a checkpoint: there was none refused, or blocks were freed
    /// since. Each try holds up the writers and walks the index.
    fn may_have_room(&self) -> bool {
        let refused = self.writer().refused;
        refused.is_none_or(|(_, free)| free < self.space.free_blocks())
    }
}

#[cfg(test)]
mod tests {
    use crate::background::compaction::Standing;
    use crate::log::append::{Draft, deletion, passes_over};
    use crate::log::attempt::Tried;
    use crate::log::record::Kind;
    use crate::media::disk::Barrier;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;
    use crate::recovery::recover::Media;
    use crate::store::{RESERVE_DELETE, RESERVE_FLUSH};
    use crate::tier::Tier;
    use crate::types::{ItemMeta, Settings};
    use std::sync::Arc;
    use std::time::Duration;

    const SEGMENT_BYTES: u32 = 16 << 10;

    /// Writes until migration is due, and not urgent.
    fn fill(tier: &Tier, written: &mut u64) {
        while tier.usage().migration_backlog_bytes == 0 {
            tier.put(&written.to_be_bytes(), &[7; 700], ItemMeta::default()).unwrap();
            *written += 1;
        }
    }

    #[test]
    fn a_checkpoint_for_which_there_was_no_room_lifts_the_rate() {
        let power = Power::new(u64::MAX);
        let region_bytes = 10 * SEGMENT_BYTES as usize;
        let region = Arc::new(SimRegion::new(region_bytes, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES,
            migrate_percent: 60,
            background: false,
            ..Settings::default()
        };
        let media = Media { region, ssd };
        let (tier, _) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
        tier.lend_clock(Box::new(|| 1));
        tier.limit_migration(1);
        let mut written = 0;
        fill(&tier, &mut written);
        while tier.maintain().unwrap() {}
        let before = tier.stats();
        assert!(0 < before.moved_bytes && before.rate_yields == 0, "the first turn goes at once");
        fill(&tier, &mut written);
        while tier.maintain().unwrap() {}
        assert_eq!(tier.stats().moved_bytes, before.moved_bytes, "the next waits");
        tier.shared().writer().refused = Some((0, u64::MAX));
        while tier.maintain().unwrap() {}
        let after = tier.stats();
        assert!(before.moved_bytes < after.moved_bytes && 0 < after.rate_yields, "{after:?}");
    }

    #[test]
    fn a_compaction_ends_where_a_flush_of_somebody_else_has_failed() {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(1 << 20, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let settings =
            Settings { segment_bytes: SEGMENT_BYTES, background: false, ..Settings::default() };
        let (tier, _) = Tier::open(Media { region, ssd }, settings, 1, &mut |_, _| {}).unwrap();
        assert!(tier.begin_compaction() && tier.maintain().unwrap());
        assert_eq!(tier.stats().compaction.standing, Standing::UnderWay);
        tier.shared().writer().failed = Some("no such device".into());
        assert!(tier.maintain().is_err() && !tier.stop_compaction());
        assert_eq!(tier.stats().compaction.standing, Standing::Failed);
    }

    /// Media with a log of eight segments.
    fn media_of_eight() -> Media {
        let power = Power::new(u64::MAX);
        let region_bytes = 8 * SEGMENT_BYTES as usize;
        let region = Arc::new(SimRegion::new(region_bytes, power.clone(), Faults::default()));
        Media { region, ssd: Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default())) }
    }

    fn open(media: &Media) -> Tier {
        open_by(media, Settings::default())
    }

    fn open_by(media: &Media, settings: Settings) -> Tier {
        let settings = Settings { segment_bytes: SEGMENT_BYTES, background: false, ..settings };
        Tier::open(media.clone(), settings, 1, &mut |_, _| {}).unwrap().0
    }

    /// Appends deletions until one would leave fewer than `reserve` segments free; how many. Each
    /// takes a line, so that nothing of a segment is left for what would free another.
    fn delete_all(tier: &Tier, reserve: u32) -> u64 {
        let delete = |number: u64| {
            let appended = tier.shared().append(&deletion(&number.to_be_bytes(), None), reserve);
            appended.unwrap().is_some()
        };
        let deleted = (0..).find(|number| !delete(*number)).unwrap();
        tier.shared().commit(Barrier::Group).unwrap();
        deleted
    }

    #[test]
    fn segments_full_of_current_deletions_never_take_the_last_free_one() {
        let media = media_of_eight();
        let deleted = delete_all(&open(&media), 1);
        let tier = open(&media);
        let shared = tier.shared();
        assert_eq!(shared.writer().log.free_slots(), 1);
        assert_eq!(shared.index.count().tombstones, deleted);
        assert!(shared.empty_segment(&mut shared.maintenance()).is_err());
        assert_eq!(shared.writer().log.free_slots(), 1, "it is as it was");
        // Who needs room has checkpoints made, and then nobody needs the deletions.
        tier.put(b"key", b"value", ItemMeta::default()).unwrap();
        assert!(tier.delete(b"key").unwrap());
        assert!(shared.index.count().tombstones < deleted);
        drop(tier);
        assert_eq!(open(&media).get(b"key").unwrap(), None);
    }

    #[test]
    fn in_the_last_segment_deletions_leave_room_for_the_record_that_frees_another() {
        let media = media_of_eight();
        delete_all(&open(&media), 1);
        let tier = open(&media);
        let shared = tier.shared();
        // As a turn of migration begins it, beside which others delete.
        shared.append_note(Kind::Note, &[], &[]).unwrap();
        assert_eq!(shared.writer().log.free_slots(), 0);
        let waits = || tier.try_delete(b"key", 1 << 30).unwrap();
        assert!(matches!(waits(), Tried::Waits(())));
        assert_eq!(delete_all(&tier, RESERVE_DELETE), 0);
        assert!(!shared.leaves_room([64; 192 - 1]) && shared.leaves_room([64; 192 - 2]));
        tier.put(b"key", b"value", ItemMeta::default()).unwrap();
        assert!(tier.delete(b"key").unwrap());
    }

    #[test]
    fn who_writes_leaves_the_last_segment_room_for_the_record_that_frees_one() {
        let (meta, kind) = (ItemMeta::default(), Kind::FlushAll);
        let flush = Draft { kind, sequence: None, meta, key: &[], body: &[], what: None };
        // Where what deletes everything comes first behind a start, what is owed goes before it.
        let owed = passes_over(1 << 32);
        let drafts = [(&flush, RESERVE_FLUSH), (&flush, 0), (&owed, 0)];
        for (pad_groups, (draft, reserve)) in
            [false, true].into_iter().flat_map(|pads| drafts.map(|draft| (pads, draft)))
        {
            let told = format!("{:?}, {reserve}, {pad_groups}", draft.kind);
            let media = media_of_eight();
            delete_all(&open(&media), 1);
            let tier = open_by(&media, Settings { pad_groups, ..Settings::default() });
            let shared = tier.shared();
            // As a turn of migration begins it, beside which many write.
            shared.append_note(Kind::Note, &[], &[]).unwrap();
            let mut appended = 0;
            while shared.append(draft, reserve).unwrap().is_some() {
                shared.commit(Barrier::Group).unwrap();
                appended += 1;
            }
            assert!(0 < appended && shared.writer().log.free_slots() == 0, "{told}");
            assert!(shared.leaves_room([]), "{told}");
            tier.put(b"key", b"value", meta).unwrap();
            assert_eq!(tier.get(b"key").unwrap().unwrap().value, b"value", "{told}");
        }
    }

    #[test]
    fn a_log_without_a_free_segment_goes_on_in_its_newest() {
        let media = media_of_eight();
        delete_all(&open(&media), 1);
        let tier = open(&media);
        // As a turn of migration that ends with the power.
        tier.shared().append_note(Kind::Note, &[], &[]).unwrap();
        tier.commit().unwrap();
        drop(tier);
        let tier = open(&media);
        assert_eq!(tier.shared().writer().log.free_slots(), 0);
        tier.put(b"key", b"value", ItemMeta::default()).unwrap();
        assert!(2 < tier.shared().writer().log.free_slots());
        drop(tier);
        assert_eq!(open(&media).get(b"key").unwrap().unwrap().value, b"value");
    }

    #[test]
    fn who_maintains_a_store_that_nobody_writes_to_sleeps_until_somebody_does() {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(1 << 20, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let settings =
            Settings { segment_bytes: SEGMENT_BYTES, background: false, ..Settings::default() };
        let (tier, _) = Tier::open(Media { region, ssd }, settings, 1, &mut |_, _| {}).unwrap();
        tier.lend_clock(Box::new(|| 1));
        let (shared, mut seen) = (tier.shared(), None);
        let is_rung = || shared.counters.bell.wait(Duration::ZERO);
        let put = |key: &[u8]| tier.put(key, b"value", ItemMeta::default()).unwrap();
        put(b"one");
        assert!(!shared.may_doze(&mut seen), "that may have come after the last look");
        assert!(shared.may_doze(&mut seen) && !is_rung());
        put(b"two");
        assert!(is_rung() && !is_rung(), "it is woken once");
        put(b"three");
        assert!(!is_rung(), "it is awake");
        assert!(!shared.may_doze(&mut seen) && shared.may_doze(&mut seen));
        assert!(tier.begin_compaction() && is_rung());
        // What was moved has its time to come: no write makes it due.
        tier.limit_migration(1);
        shared.counters.pace.spend(10, 1, u64::MAX);
        assert!(!shared.may_doze(&mut seen) && !shared.may_doze(&mut seen));
        tier.limit_migration(0);
        assert!(shared.may_doze(&mut seen));
    }
}
