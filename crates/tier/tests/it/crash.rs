//! Crash exploration: a store on simulated media loses its power at any event, or its process dies,
//! and comes back with whatever the media are allowed to hold. Compared with what was acknowledged.
//!
//! Each state is one crash of one seed. A failure prints the seed; `TIER_CRASH_SEED=n` runs only
//! that one. The mutation tests take one kind of barrier away and expect to be caught.

use crate::common::{Kind, Machine, SEGMENT_BYTES, SSD_BYTES, settings, value};
use laneway_tier::disk::Barrier;
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{Durability, IndexKind, Item, ItemMeta, MigrateBy, Settings, Tier, WhenFull};
use std::collections::BTreeMap;

const KEYS: u64 = 40;
const LIVES: u64 = 4;
const IMAGES: u64 = 5;
const OPERATIONS_MAX: u64 = 160;

type Value = Option<(u64, usize)>;

/// What each key may hold: the acknowledged value first, then what was submitted since.
#[derive(Default, Clone)]
struct Oracle {
    keys: BTreeMap<Vec<u8>, Vec<Value>>,
    version: u64,
    /// The store is a cache: whatever is not what it may hold is gone.
    may_vanish: bool,
    /// What was read and may not be.
    wrong: Option<String>,
}

/// Every fourth value expires when so many more were written: the second is the highest version.
const LIFE: u64 = 12;

fn expiry(version: u64) -> u32 {
    if version.is_multiple_of(4) { (version + LIFE) as u32 } else { 0 }
}

/// What has expired may still be there, or be gone; nothing else may be in its place.
fn is(state: &Value, item: Option<&Item>, now: u64) -> bool {
    match (state, item) {
        (None, None) => true,
        (Some((version, _)), None) => expiry(*version) != 0 && u64::from(expiry(*version)) <= now,
        (Some((version, bytes)), Some(item)) => {
            item.value == value(*version, *bytes) && item.meta.flags == *version as u32
        }
        _ => false,
    }
}

impl Oracle {
    fn submitted(&mut self, key: &[u8], value: Value) {
        self.keys.entry(key.to_vec()).or_insert_with(|| vec![None]).push(value);
    }

    fn flushed(&mut self) {
        self.keys.values_mut().for_each(|states| states.push(None));
    }

    /// A key was read while the store is used: what was submitted last where that is shown at once,
    /// else anything since the last acknowledgement.
    fn look(&mut self, key: &[u8], item: Option<&Item>, at_once: bool) {
        let none = vec![None];
        let states = self.keys.get(key).unwrap_or(&none);
        let may = if at_once { &states[states.len() - 1..] } else { &states[..] };
        let has_vanished = self.may_vanish && item.is_none();
        if !has_vanished && !may.iter().any(|state| is(state, item, self.version)) {
            let read = item.map(|item| (item.meta.flags, item.value.len()));
            let key = key.escape_ascii();
            self.wrong.get_or_insert(format!("key {key} reads as {read:?} and not as {may:?}"));
        }
    }

    /// Everything submitted is acknowledged.
    fn acknowledged(&mut self) {
        for states in self.keys.values_mut() {
            let last = states[states.len() - 1];
            *states = vec![last];
        }
    }

    /// Compares, and takes what is there for what is acknowledged.
    fn settle(&mut self, tier: &Tier) -> Result<(), String> {
        let mut expected = Vec::new();
        for (key, states) in &mut self.keys {
            let item = tier.get(key).map_err(|error| error.to_string())?;
            let found = states.iter().position(|state| is(state, item.as_ref(), self.version));
            let found = found.or_else(|| (self.may_vanish && item.is_none()).then_some(0));
            let Some(found) = found else {
                let held = item.map(|item| (item.meta.flags, item.value.len()));
                return Err(format!(
                    "key {} holds {held:?} and may hold {states:?}",
                    key.escape_ascii()
                ));
            };
            let state = states[found].filter(|_| item.is_some());
            *states = vec![state];
            if let Some((version, bytes)) = state {
                expected.push((key.clone(), value(version, bytes)));
            }
        }
        let scanned: Vec<_> = tier
            .scan(b"", None, usize::MAX)
            .into_iter()
            .map(|(key, item)| (key, item.map(|item| item.value).unwrap_or_default()))
            .collect();
        match scanned == expected {
            true => Ok(()),
            false => Err("a scan and the gets disagree".into()),
        }
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    // A few keys are written much more often than the others.
    let number = random.below(KEYS).min(random.below(KEYS));
    format!("key-{number:03}").into_bytes()
}

/// One operation; an error ends the life.
fn operate(
    tier: &Tier,
    oracle: &mut Oracle,
    random: &mut Random,
    at_once: bool,
) -> laneway_tier::Result<()> {
    let key = key(random);
    match random.below(100) {
        // Written and acknowledged, or appended to a group that is committed later.
        0..70 => {
            let bytes = match random.below(40) {
                0..24 => random.below(300),
                24..32 => random.below(1024),
                // Waits for its group.
                32..39 => 1024 + random.below(12 << 10),
                // Too long for that.
                _ => (64 << 10) + 1 + random.below(8 << 10),
            };
            oracle.version += 1;
            let version = oracle.version;
            oracle.submitted(&key, Some((version, bytes as usize)));
            tier.tell_time(version as u32);
            let (flags, expires_at_seconds) = (version as u32, expiry(version));
            let meta = ItemMeta { flags, expires_at_seconds, ..ItemMeta::default() };
            let value = value(version, bytes as usize);
            let ticket = if 1024 <= bytes && random.one_in(3) {
                // As a server does whose value arrives in pieces; others may commit meanwhile.
                let mut draft = tier.draft_large(&key, bytes)?;
                let (front, back) = value.split_at(random.below(bytes) as usize);
                draft.write(front)?;
                if random.one_in(4) {
                    tier.commit()?;
                }
                draft.write(back)?;
                draft.finish(meta, None)?
            } else {
                tier.submit_put(&key, &value, meta, None)?
            };
            if random.one_in(2) {
                tier.wait(ticket)?;
                oracle.acknowledged();
            }
        }
        70..82 => {
            oracle.submitted(&key, None);
            tier.submit_delete(&key, None)?;
            if random.one_in(2) {
                tier.commit()?;
                oracle.acknowledged();
            }
        }
        82 if random.one_in(4) => {
            oracle.flushed();
            tier.flush_all()?;
            tier.commit()?;
            oracle.acknowledged();
        }
        82..90 => {
            let item = tier.get(&key)?;
            oracle.look(&key, item.as_ref(), at_once);
        }
        90..95 => drop(tier.maintain()?),
        95..98 => drop(tier.migrate()?),
        _ => {
            tier.checkpoint()?;
            oracle.acknowledged();
        }
    }
    Ok(())
}

fn settings_of(random: &mut Random, kind: Kind) -> Settings {
    let mut settings = settings();
    if kind.is_fair() {
        settings.index = Some(IndexKind::Fair);
    } else if random.one_in(4) {
        settings.durability = Durability::Interval;
    }
    if random.one_in(6) {
        settings.migrate_by = Some(MigrateBy::Age);
    }
    match random.below(8) {
        0 => settings.split_bytes = 0,
        1 => settings.split_bytes = usize::MAX,
        _ => {}
    }
    settings
}

/// What is special about some runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    /// Nothing.
    Nothing,
    /// Groups that are padded.
    Pads,
    /// An SSD that is far too small, on which items are evicted.
    Evicts,
    /// Media that are longer in a later life.
    Grows,
}

/// Bytes of an SSD that evicts: of some 200 KiB of values it holds a part.
const SSD_BYTES_EVICTING: usize = 256 << 10;

/// Bytes of an SSD that grows: what is written fills it, more or less.
const SSD_BYTES_GROWING: usize = 512 << 10;

/// How many states one seed explored, or what was wrong.
fn explore(kind: Kind, seed: u64, faults: &Faults, with: With) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let evicts = with == With::Evicts;
    let settings = Settings {
        pad_groups: with == With::Pads,
        compress_from: seed.is_multiple_of(3).then_some(1),
        when_full: if evicts { WhenFull::Evict } else { WhenFull::Refuse },
        ..settings_of(&mut random, kind)
    };
    let mut oracle = Oracle { may_vanish: evicts, ..Oracle::default() };
    let ssd_bytes = match with {
        With::Evicts => SSD_BYTES_EVICTING,
        With::Grows => SSD_BYTES_GROWING,
        With::Nothing | With::Pads => SSD_BYTES,
    };
    let mut machine = Machine::sized(kind, faults, ssd_bytes);
    // An index in persistent memory is changed word by word.
    let events = if kind.is_fair() { 6000 } else { 600 };
    machine.power.restore(1 + random.below(events));
    let mut states = 0;
    for _ in 0..LIVES {
        let mut opened = false;
        if let Ok((tier, report)) = machine.open(settings) {
            opened = true;
            no_problems(&report.problems, faults)?;
            match oracle.settle(&tier) {
                Err(_) if machine.power.is_off() => {}
                result => result?,
            }
            for _ in 0..random.below(OPERATIONS_MAX) {
                let at_once = settings.durability == Durability::Interval;
                if operate(&tier, &mut oracle, &mut random, at_once).is_err() {
                    break;
                }
            }
            if let Some(wrong) = oracle.wrong.take() {
                return Err(wrong);
            }
        } else if !machine.power.is_off() {
            return Err("a sound machine's store does not open".into());
        }
        let fails_at = 1 + random.below(events);
        if opened && random.one_in(3) {
            // The process dies; the caches of the media live.
            states += 1;
            machine.power.restore(fails_at);
            continue;
        }
        let seeds: Vec<u64> = (0..IMAGES).map(|_| random.number()).collect();
        for &seed in &seeds {
            let crashed = machine.crashed(seed, faults, u64::MAX);
            let mut oracle = oracle.clone();
            let (tier, report) = crashed.open(settings).map_err(|error| error.to_string())?;
            no_problems(&report.problems, faults)?;
            oracle.settle(&tier)?;
            states += 1;
        }
        machine = machine.crashed(seeds[0], faults, fails_at);
        if with == With::Grows {
            let segments = SEGMENT_BYTES as usize * random.below(4) as usize;
            let more = (segments, (64 << 10) * random.below(4) as usize);
            machine = machine.longer(faults, fails_at, more);
        }
    }
    Ok(states)
}

fn no_problems(problems: &[String], faults: &Faults) -> Result<(), String> {
    match problems {
        [] => Ok(()),
        // The one that was being written: the other one counts.
        [one] if faults.torn_block_one_in != 0 && one.starts_with("superblock ") => Ok(()),
        _ => Err(format!("recovery complains: {}", problems.join("; "))),
    }
}

fn explore_many(kind: Kind, seeds: u64, states_min: u64) {
    explore_with(kind, &faults(), With::Nothing, seeds, states_min);
}

fn explore_with(kind: Kind, faults: &Faults, with: With, seeds: u64, states_min: u64) {
    let only = std::env::var("TIER_CRASH_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = only.map_or(0..seeds, |seed: u64| seed..seed + 1);
    let mut states = 0;
    for seed in seeds {
        match explore(kind, seed, faults, with) {
            Ok(count) => states += count,
            Err(what) => panic!(
                "{kind:?}, seed {seed}: {what}; again with: \
                 TIER_CRASH_SEED={seed} cargo test -p laneway-tier --test it crash"
            ),
        }
    }
    println!("{kind:?}: {states} states");
    assert!(only.is_some() || states_min <= states, "only {states} states");
}

fn faults() -> Faults {
    Faults { short_write_one_in: 5, ..Faults::default() }
}

#[test]
fn nothing_acknowledged_is_lost_on_persistent_memory() {
    explore_many(Kind::Pm, 400, 5000);
}

#[test]
fn nothing_acknowledged_is_lost_with_the_index_in_persistent_memory() {
    explore_many(Kind::PmFair, 400, 5000);
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk() {
    explore_many(Kind::Wal, 400, 5000);
}

#[test]
fn nothing_acknowledged_is_lost_behind_one_cache() {
    explore_many(Kind::WalBeside, 200, 2500);
}

/// A block that is being written when the power fails may hold anything afterwards.
fn torn() -> Faults {
    Faults { torn_block_one_in: 4, ..faults() }
}

#[test]
fn with_groups_padded_nothing_acknowledged_is_lost_where_written_blocks_are_torn() {
    explore_with(Kind::Wal, &torn(), With::Pads, 300, 3000);
}

#[test]
fn what_is_evicted_is_gone_or_as_it_was_last_on_persistent_memory() {
    explore_with(Kind::Pm, &faults(), With::Evicts, 300, 3000);
}

#[test]
fn what_is_evicted_is_gone_or_as_it_was_last_with_the_index_in_persistent_memory() {
    explore_with(Kind::PmFair, &faults(), With::Evicts, 200, 2000);
}

#[test]
fn what_is_evicted_is_gone_or_as_it_was_last_on_a_disk() {
    explore_with(Kind::Wal, &faults(), With::Evicts, 300, 3000);
}

#[test]
fn nothing_acknowledged_is_lost_where_a_store_grows() {
    for kind in [Kind::Pm, Kind::Wal, Kind::WalBeside] {
        explore_with(kind, &faults(), With::Grows, 200, 2000);
    }
}

#[test]
fn nothing_acknowledged_is_lost_where_an_ssd_beside_an_index_in_persistent_memory_grows() {
    explore_with(Kind::PmFair, &faults(), With::Grows, 200, 2000);
}

#[test]
fn without_padding_a_torn_block_that_was_written_again_is_caught() {
    assert!(is_caught(Kind::Wal, &torn()), "nothing acknowledged was in any torn block");
}

fn is_caught(kind: Kind, faults: &Faults) -> bool {
    // An assertion of the tier's own is a catch, too.
    let explore = |seed| std::panic::catch_unwind(|| explore(kind, seed, faults, With::Nothing));
    (0..1000).any(|seed| !matches!(explore(seed), Ok(Ok(_))))
}

#[test]
fn a_missing_barrier_of_any_kind_is_caught() {
    for kind in [Kind::Pm, Kind::Wal, Kind::WalBeside] {
        // Nobody asks for those of an index in persistent memory.
        let asked_for = Barrier::ALL.into_iter().filter(|barrier| *barrier != Barrier::Index);
        asked_for.for_each(|barrier| a_missing_barrier_is_caught(kind, barrier));
    }
}

/// Not all of them: where the index's own fences come right behind, they make the log durable too
/// (Group, the log's part of Recovery); and of thousands of events in persistent memory few are on
/// the SSD, so that one instant there is not met (Checkpoint, the rest of Recovery). That is the
/// same code as above.
#[test]
fn a_missing_barrier_is_caught_with_the_index_in_persistent_memory() {
    use Barrier::{Data, Index, Move, Superblock, Table};
    for barrier in [Data, Move, Table, Superblock, Index] {
        a_missing_barrier_is_caught(Kind::PmFair, barrier);
    }
}

fn a_missing_barrier_is_caught(kind: Kind, barrier: Barrier) {
    let faults = Faults { ignored: [barrier].into(), ..faults() };
    assert!(is_caught(kind, &faults), "{kind:?} without {barrier:?}: nothing noticed it");
}

#[test]
fn missing_flushes_of_lines_are_caught() {
    assert!(is_caught(Kind::PmDeaf, &faults()));
    assert!(is_caught(Kind::PmFairDeaf, &faults()));
}
