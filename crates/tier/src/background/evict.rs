//! Eviction: making room on the SSD by dropping items, where the store is a cache
//! ([`WhenFull::Evict`]).
//!
//! What has expired goes first, then large values by a clock with one mark each, and the cold items
//! of the coldest sort tables; both kinds give up the same share of what they hold. It begins while
//! there is still room, and goes by bounded steps of whoever does maintenance
//! ([`Shared::maintain`]); a writer that finds none all the same, and may wait, does steps itself.
//!
//! A deletion takes an item's place, with the item's own sequence, as of one that expired
//! ([`crate::background::migrate`]): once that is durable the item is gone for good, whatever
//! becomes of the power; before, it is there as it was written last. An older value never is, for
//! the deletion hides it until both checkpoints are younger. So nothing of the format is new.

use crate::background::clock::{Candidate, Next, Round, Step, Wanted};
use crate::background::moving::Moving;
use crate::index::entry::{Entry, What};
use crate::log::append::deletion;
use crate::log::record::bytes_of;
use crate::media::disk::Barrier;
use crate::ssd::tables::{Found, Table, for_each_record, read_table};
use crate::store::{Maintenance, RESERVE_DELETE, SUPER_BLOCKS, Shared};
use crate::types::{BLOCK_BYTES, Error, LINE_BYTES, MigrateBy, Result, WhenFull, is_over};
use laneway_sync::planted::{Bug, is_planted};
use std::sync::atomic::Ordering::Relaxed;

/// Entries that a step looks at, about.
const LOOKS: usize = 4096;
/// Large values that a step passes or drops, and the blocks of those that it drops.
const LARGE_PER_STEP: usize = 256;
const BLOCKS_PER_STEP: u64 = 1024;
/// Sort tables that are thinned before what is left of them is merged.
const THINNED_MAX: usize = 4;
/// Segments of the log that are left to migration.
const RESERVE_EVICT: u32 = 2;
/// Of the blocks so many parts of this are free when eviction begins, and twice that when it ends.
const FREE_SHARE: u64 = 32;
/// The tier's own may keep this share of the blocks from values.
const OWN_SHARE: u64 = 4;
/// Deletions of evicted items take at most this share of the log until a checkpoint, of which it
/// takes two to forget them.
const NOTED_SHARE: u64 = 8;
/// The smallest sort tables are this part of the others.
const TABLE_SHARE: usize = 16;
/// The same where nothing is evicted: nobody makes longer runs, and the log would stay full while
/// blocks are free.
const TABLE_SHARE_REFUSING: usize = 256;
/// What is dropped at most for one value: so many times its blocks.
const FOR_ONE_VALUE: u64 = 4;
/// A hit that is not counted here, since memory has the item.
const WARM_WEIGHT: u8 = 8;

/// How many blocks are to be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Levels {
    /// Only the tier's own takes the last of them.
    own: u64,
    /// Eviction begins below this.
    low: u64,
    /// And ends here.
    high: u64,
}

impl Levels {
    /// Of so many blocks, where sort tables and checkpoints take these.
    fn of(blocks: u64, table_blocks: u64, checkpoint_blocks: u64) -> Levels {
        let own = 2 * table_blocks + checkpoint_blocks + checkpoint_blocks / 4;
        let own = own.min(blocks / OWN_SHARE);
        let share = (blocks / FREE_SHARE).max(4);
        Levels { own, low: own + share, high: own + 2 * share }
    }
}

impl Shared {
    /// Whether items are dropped where there is no room.
    pub fn evicts(&self) -> bool {
        self.settings.when_full == WhenFull::Evict
    }

    fn levels(&self, turn: &Maintenance) -> Levels {
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES as u64);
        let named = turn.checkpoints.iter().map(|checkpoint| checkpoint.body.bytes).max();
        let checkpoint = named.unwrap_or(0).max(turn.eviction.checkpoint_bytes);
        let table = blocks(self.settings.table_bytes as u64) + 1;
        Levels::of(self.space.blocks(), table, blocks(checkpoint))
    }

    /// Keeps room for the tier's own from values.
    pub fn keep_own_room(&self, turn: &Maintenance) {
        if self.evicts() {
            self.space.keep(self.levels(turn).own);
        }
    }

    /// Does a step if there is too little room on the SSD; false if there was none to do.
    pub fn evict_if_low(&self) -> Result<bool> {
        if !self.evicts() {
            return Ok(false);
        }
        let appended = self.writer().log.appended_bytes();
        let mut turn = self.maintenance();
        let turn = &mut *turn;
        // Before its owner can say what must stay, nothing goes by itself.
        if self.settings.background && turn.eviction.asks.is_none() {
            return Ok(false);
        }
        let (levels, free) = (self.levels(turn), self.space.free_blocks());
        self.space.keep(levels.own);
        let wants = &mut turn.eviction.wanted_blocks;
        let most = self.space.blocks() / OWN_SHARE;
        *wants = wants.filter(|blocks| !self.space.fits(*blocks) && u64::from(*blocks) <= most);
        turn.eviction.spares_none |= wants.is_some();
        let was_on = turn.eviction.is_on;
        let level = if was_on { levels.high } else { levels.low };
        turn.eviction.is_on = free < level || wants.is_some();
        if !turn.eviction.is_on {
            // The next one looks anew: what expires meanwhile goes first. A round that goes on
            // while this is off is a waiting writer's, which must come to its end.
            turn.eviction.round = turn.eviction.round.take().filter(|_| !was_on);
            return Ok(false);
        }
        let segment = u64::from(self.shape.segment_bytes);
        if turn.eviction.barren_bytes.is_some_and(|at| appended < at + segment) {
            return Ok(false);
        }
        let step = self.evict_step(turn)?;
        turn.eviction.barren_bytes = (step == Step::Nothing).then_some(appended);
        Ok(matches!(step, Step::Looked | Step::Dropped))
    }

    /// Whether deletions of evicted items fill so much of the log that a checkpoint is worth it.
    pub fn wants_forgetting(&self) -> bool {
        let log = u64::from(self.shape.segments) * u64::from(self.shape.segment_bytes);
        self.evicts() && log / NOTED_SHARE < self.maintenance().eviction.noted_bytes
    }

    /// Drops items until `take` finds room for `blocks`; for who may wait.
    pub fn evict_until<T>(&self, blocks: u64, take: impl Fn() -> Result<T>) -> Result<T> {
        let full = || Err(Error::SsdFull { blocks });
        let levels = self.levels(&self.maintenance());
        // For one that can never find room nothing is dropped.
        let usable = self.space.blocks() - u64::from(SUPER_BLOCKS);
        if usable < blocks + 2 * levels.own {
            return full();
        }
        self.free_evicted()?;
        match take() {
            Err(Error::SsdFull { .. }) => {}
            taken => return taken,
        }
        self.counters.stalls.add(1);
        let most = self.counters.evicted_blocks.get() + FOR_ONE_VALUE * blocks + levels.high;
        let mut stuck = 0;
        loop {
            let step = {
                let mut turn = self.maintenance();
                // Enough is free, but not in runs of a length that helps.
                turn.eviction.spares_none |= self.space.has_spare(blocks);
                self.evict_step(&mut turn)?
            };
            match take() {
                Err(Error::SsdFull { .. }) => {}
                taken => return taken,
            }
            match step {
                Step::Nothing => return full(),
                Step::NoLog if stuck == 2 => return full(),
                Step::NoLog => {
                    stuck += 1;
                    self.make_room(RESERVE_DELETE)?;
                }
                Step::Dropped if most < self.counters.evicted_blocks.get() => return full(),
                Step::Dropped => stuck = 0,
                Step::Looked => {}
            }
        }
    }

    /// One step of a round, or the first of the next.
    pub fn evict_step(&self, turn: &mut Maintenance) -> Result<Step> {
        let mut round = match turn.eviction.round.take() {
            Some(round) => round,
            None => self.begin_round(turn),
        };
        round.spares_none |= turn.eviction.spares_none;
        let step = match round.next.is_some() {
            true => self.look_on(turn, &mut round)?,
            false => match round.next() {
                Some(Next::Large) => self.evict_large(turn, &mut round)?,
                Some(Next::Table(table)) => self.evict_cold(turn, &mut round, &table)?,
                None => {
                    turn.eviction.spares_none = !round.has_dropped;
                    let is_barren = round.spared_none && !round.has_dropped;
                    return Ok(if is_barren { Step::Nothing } else { Step::Looked });
                }
            },
        };
        round.has_dropped |= step == Step::Dropped;
        if step == Step::Dropped {
            turn.eviction.spares_none = false;
            self.commit(Barrier::Group)?;
            self.free_evicted()?;
            self.merge_thinned(turn, &mut round)?;
        }
        turn.eviction.round = Some(round);
        Ok(step)
    }

    /// Frees what only waits for a later group, if the log has room for it; else those free it.
    fn free_evicted(&self) -> Result<()> {
        match self.free_what_waits(RESERVE_EVICT) {
            Ok(_) | Err(Error::PmFull) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does steps until sort tables leave as much room as values do: merging them, and checkpoints,
    /// must find some. There is more to be done only where maintenance comes too seldom.
    pub fn evict_ahead(&self, turn: &mut Maintenance) -> Result<()> {
        while self.evicts() && self.space.free_blocks() < self.levels(turn).low {
            match self.evict_step(turn)? {
                Step::Looked | Step::Dropped => {}
                Step::NoLog | Step::Nothing => break,
            }
        }
        Ok(())
    }

    /// A step for a sort table, for which there is no run.
    pub fn evict_for_tables(&self, turn: &mut Maintenance) -> Result<Step> {
        // Enough may be free, but not together.
        let table = self.settings.table_bytes.div_ceil(BLOCK_BYTES) as u64;
        turn.eviction.spares_none |= table <= self.space.free_blocks();
        self.evict_step(turn)
    }

    /// How long a sort table may become: where values were evicted or deleted here and there, free
    /// runs are short. Not so short that there would be many tables: each has a record that names
    /// it in the log for as long as it is there.
    pub fn run_bytes(&self) -> usize {
        let longest = self.space.longest_run() as usize * BLOCK_BYTES;
        let share = if self.evicts() { TABLE_SHARE } else { TABLE_SHARE_REFUSING };
        longest.max(self.settings.table_bytes / share)
    }

    fn begin_round(&self, turn: &Maintenance) -> Round {
        let accounts = self.accounts();
        let tables = accounts.tables.iter().copied();
        let mut round = Round::begin(turn.eviction.hand, self.space.blocks(), tables);
        round.spared_none = turn.eviction.spares_none;
        round
    }

    /// Looks at some entries, and drops those of them that have expired.
    fn look_on(&self, turn: &mut Maintenance, round: &mut Round) -> Result<Step> {
        let now_seconds = self.now_seconds.load(Relaxed);
        let (mut over, mut looks) = (Vec::new(), 0);
        let mut from = round.next.take();
        while let Some(first) = from.take_if(|_| looks < LOOKS) {
            from = self.index.look_through(&first, |key, entry, weight| {
                looks += 1;
                let takes_room = entry.home.is_ssd() || matches!(entry.what, What::Large(_));
                let is_over = is_over(entry.expires_at_seconds, now_seconds);
                match entry.is_item() && takes_room && is_over {
                    true => over.push((Box::<[u8]>::from(key), entry.clone())),
                    false => round.look(key, entry, weight),
                }
            });
        }
        round.next = from;
        if round.next.is_none() {
            turn.eviction.checkpoint_bytes = round.checkpoint_bytes;
            round.end_looking();
        }
        let mut step = Step::Looked;
        for (key, entry) in over {
            if !self.drop_item(turn, &key, &entry)? {
                // The others are met again by the next round.
                return Ok(if step == Step::Dropped { step } else { Step::NoLog });
            }
            step = Step::Dropped;
            match entry.what {
                What::Large(_) => self.counters.expired_first_large.add(1),
                _ => {
                    self.counters.expired_first_small.add(1);
                    round.thinned = THINNED_MAX; // which tables they were in nobody knows
                }
            }
        }
        Ok(step)
    }

    /// Drops some large values; those that were read since the hand was here last are passed.
    fn evict_large(&self, turn: &mut Maintenance, round: &mut Round) -> Result<Step> {
        let (mut looks, mut blocks) = (0, 0);
        while looks < LARGE_PER_STEP
            && blocks < BLOCKS_PER_STEP
            && let Some(candidate) = round.large.pop_front()
        {
            looks += 1;
            turn.eviction.hand = candidate.end;
            let Some(entry) = self.still_there(&candidate) else { continue };
            let wanted = turn.eviction.ask(&candidate.key);
            let is_warm = self.index.take_mark(&candidate.key) || wanted == Wanted::Warm;
            if wanted == Wanted::Always || (is_warm && !round.spares_none) {
                continue;
            }
            if !self.drop_item(turn, &candidate.key, &entry)? {
                round.large.push_front(candidate);
                return Ok(if blocks == 0 { Step::NoLog } else { Step::Dropped });
            }
            blocks += entry.stored_bytes().div_ceil(BLOCK_BYTES as u64).max(1);
            self.counters.evicted_large.add(1);
            self.counters.evicted_large_bytes.add(bytes_of_item(&candidate.key, &entry));
        }
        self.counters.evicted_blocks.add(blocks);
        Ok(if blocks == 0 { Step::Looked } else { Step::Dropped })
    }

    fn still_there(&self, candidate: &Candidate) -> Option<Entry> {
        let entry = self.index.get(&candidate.key)?;
        let is_same = entry.sequence == candidate.sequence;
        (is_same && matches!(entry.what, What::Large(_))).then_some(entry)
    }

    /// Drops the cold small items of a sort table. What is left of it is merged with others' later.
    fn evict_cold(&self, turn: &mut Maintenance, round: &mut Round, table: &Table) -> Result<Step> {
        let is_there = self.accounts().tables.get(table.id).is_some();
        if !is_there {
            return Ok(Step::Looked);
        }
        // One that cannot be read stays, as compaction leaves it; others make the room.
        let Ok(bytes) = read_table(&*self.ssd, table) else { return Ok(Step::Looked) };
        let (mut items, mut is_whole) = (Vec::new(), true);
        for_each_record(&bytes, table, self.store_id, |found| match found {
            Found::Record(home, record) => {
                let weight = self.index.weigh(record.key, record.sequence, home);
                // The values of large ones are the clock's.
                let Some(weight) =
                    weight.filter(|_| record.kind == crate::log::record::Kind::Small)
                else {
                    return;
                };
                match turn.eviction.ask(record.key) {
                    Wanted::No => items.push(Moving::of(&record, home, weight)),
                    Wanted::Warm => {
                        let weight = weight.saturating_add(WARM_WEIGHT);
                        items.push(Moving::of(&record, home, weight));
                    }
                    Wanted::Always => {}
                }
            }
            Found::Damaged(..) => is_whole = false,
        });
        if !is_whole {
            return Ok(Step::Looked); // it stays, as compaction leaves it
        }
        let cold = if round.spares_none { items } else { self.cold_of(items) };
        let mut step = Step::Looked;
        let mut dropped = 0;
        for moving in &cold {
            let Some(entry) = self.index.get(moving.key()) else { continue };
            if entry.sequence != moving.sequence() {
                continue;
            }
            if !self.drop_item(turn, moving.key(), &entry)? {
                step = Step::NoLog;
                break;
            }
            dropped += u64::from(entry.record_bytes);
            self.counters.evicted_small.add(1);
            self.counters.evicted_small_bytes.add(bytes_of_item(moving.key(), &entry));
        }
        self.counters.evicted_blocks.add(dropped.div_ceil(BLOCK_BYTES as u64));
        if 0 < dropped {
            round.thinned += 1;
            step = Step::Dropped;
        }
        Ok(step)
    }

    /// Of the items of a sort table, those that were hit less than the mean, or never.
    fn cold_of(&self, items: Vec<Moving>) -> Vec<Moving> {
        if self.settings.migrates_by() == MigrateBy::Age || items.is_empty() {
            return items;
        }
        let weights: u64 = items.iter().map(|item| u64::from(item.weight())).sum();
        let mean = weights.div_ceil(items.len() as u64).max(1);
        items.into_iter().filter(|item| u64::from(item.weight()) < mean).collect()
    }

    /// Merges what is left of sort tables whose items were dropped, if they are some.
    fn merge_thinned(&self, turn: &mut Maintenance, round: &mut Round) -> Result<()> {
        let is_enough = THINNED_MAX <= round.thinned || (0 < round.thinned && round.has_no_table());
        if !is_enough || self.writer().log.free_slots() < RESERVE_EVICT {
            return Ok(());
        }
        round.thinned = 0;
        match self.compact_tables(turn) {
            // There is no run that is long enough: the next step drops what lies between.
            Err(Error::SsdFull { .. } | Error::PmFull) => {
                turn.eviction.spares_none = true;
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// Appends a deletion in the place of an item; false if the log has no room for it.
    fn drop_item(&self, turn: &mut Maintenance, key: &[u8], entry: &Entry) -> Result<bool> {
        if is_planted(Bug::EvictionUnwritten) {
            let gone = self.index.remove(key, entry.sequence);
            let freed = gone.and_then(|entry| self.retire(entry));
            freed.iter().for_each(|large| self.space.free(&large.extents));
            return Ok(true);
        }
        // Its own: whatever is written of the key afterwards counts.
        let hides = if is_planted(Bug::NewerEvicted) { 1 << 12 } else { 0 };
        match self.append(&deletion(key, Some(entry.sequence + hides)), RESERVE_EVICT) {
            Ok(Some(_)) => {
                if let Some(hears) = &turn.eviction.hears {
                    hears(key, entry.sequence);
                }
                let bytes = bytes_of(key.len(), 0).next_multiple_of(LINE_BYTES);
                turn.eviction.noted_bytes += bytes as u64;
                Ok(true)
            }
            // No room in the log, or in an index in persistent memory.
            Ok(None) | Err(Error::PmFull) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn bytes_of_item(key: &[u8], entry: &Entry) -> u64 {
    key.len() as u64 + entry.value_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_begins_above_what_the_tier_needs_and_ends_higher() {
        for (blocks, table, checkpoint) in [(1 << 20, 256, 4000), (512, 2, 1), (512, 300, 9000)] {
            let Levels { own, low, high } = Levels::of(blocks, table, checkpoint);
            assert!(own < low && low < high && high < blocks / 2, "{blocks}: {own} {low} {high}");
            assert!(own <= blocks / 4);
        }
        let Levels { own, .. } = Levels::of(1 << 20, 256, 4000);
        assert_eq!(own, 512 + 5000);
    }
}
