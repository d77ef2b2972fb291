//! What is written while the power is cut, and what must be there afterwards.
//!
//! A seed makes an endless list of numbered operations, cut into groups. The writer acknowledges a
//! group when it is durable and only then begins the next; so whoever knows the last number
//! acknowledged knows what every key must hold, and that the one group behind it may have left
//! anything between nothing and all, but no item that is not whole. A value's bytes follow from its
//! key, operation and length. It knows no medium and no time.

use crate::random::{self, Value};
use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{ItemMeta, Media, MigrateBy, Settings, Tier};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Few, so that most writes replace something.
const KEYS: usize = 96;
/// The most operations of one group.
const GROUP_MAX: u64 = 6;
/// Tells the draws of group lengths from those of operations.
const GROUPS: u64 = 1 << 63;

/// Small enough that a thousand writes go several times round the log, so that segments are
/// emptied, sort tables written and checkpoints made all the time.
pub const LOG_BYTES: u64 = 512 << 10;
/// Of the SSD.
pub const SSD_BYTES: u64 = 16 << 20;

/// How every store of this job behaves.
pub fn settings(background: bool) -> Settings {
    Settings {
        segment_bytes: 32 << 10,
        table_bytes: 16 << 10,
        migrate_by: Some(MigrateBy::Hotness),
        migrate_percent: 60,
        checkpoint_bytes: 96 << 10,
        background,
        ..Settings::default()
    }
}

/// Everything that will be written.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// What all of it follows from.
    pub seed: u64,
}

/// One change of one key.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Operation {
    key: usize,
    /// What is put; deleted if there is none.
    value: Option<Value>,
}

impl Workload {
    fn operation(&self, number: u64) -> Operation {
        let mut random = random::stream(self.seed, number);
        // Some keys are written much more often than others.
        let key = random.usize(..KEYS).min(random.usize(..KEYS));
        let length = match random.usize(..100) {
            0..8 => return Operation { key, value: None },
            8..55 => random.usize(..600),
            55..85 => random.usize(600..4096),
            _ => random.usize(4096..40 << 10),
        };
        Operation { key, value: Some(Value { key: key as u64, version: number, length }) }
    }

    /// The last operation of the group that begins with this one.
    pub fn group_end(&self, first: u64) -> u64 {
        first + random::stream(self.seed, first ^ GROUPS).u64(..GROUP_MAX)
    }

    /// Carries out a group; when this returns it is durable.
    pub fn write_group(&self, tier: &Tier, numbers: RangeInclusive<u64>) -> Result<(), String> {
        let told = |error: laneway_tier::Error| error.to_string();
        let mut bytes = Vec::new();
        for number in numbers {
            let Operation { key, value } = self.operation(number);
            let name = name(key);
            match value {
                Some(value) => {
                    bytes.clear();
                    value.write(&mut bytes);
                    let meta = ItemMeta { flags: number as u32, ..ItemMeta::default() };
                    tier.submit_put(&name, &bytes, meta, None).map_err(told)?;
                }
                None => drop(tier.submit_delete(&name, None).map_err(told)?),
            }
        }
        tier.commit().map_err(told)
    }
}

fn name(key: usize) -> Vec<u8> {
    format!("key-{key:03}").into_bytes()
}

/// A writer's life: the first operation it wrote, and the last that it acknowledged (the one before
/// the first if it came to none).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The first.
    pub first: u64,
    /// The last acknowledged.
    pub acknowledged: u64,
}

impl Life {
    /// Where a life begins behind this one, or as the first: behind the group that may have been
    /// under way.
    pub fn first(before: Option<&Life>, workload: &Workload) -> u64 {
        before.map_or(1, |life| workload.group_end(life.acknowledged + 1) + 1)
    }
}

/// What each key may hold: the number of the put, or nothing. One choice where it is certain.
#[derive(Debug, Clone)]
pub struct Expected {
    workload: Workload,
    keys: Vec<Vec<Option<u64>>>,
}

impl Expected {
    /// After these lives, the last of which ended at any moment.
    pub fn after(workload: Workload, lives: &[Life]) -> Expected {
        let mut expected = Expected { workload, keys: vec![vec![None]; KEYS] };
        for life in lives {
            for number in life.first..=life.acknowledged {
                let Operation { key, value } = workload.operation(number);
                expected.keys[key] = vec![value.map(|_| number)];
            }
            let under_way = life.acknowledged + 1;
            for number in under_way..=workload.group_end(under_way) {
                let Operation { key, value } = workload.operation(number);
                expected.keys[key].push(value.map(|_| number));
            }
        }
        expected
    }

    /// Compares every key, by itself and in a scan; says how many items there are.
    pub fn check(&self, tier: &Tier) -> Result<usize, String> {
        let mut found = BTreeMap::new();
        for (key, may_hold) in self.keys.iter().enumerate() {
            let item = tier.get(&name(key)).map_err(|error| error.to_string())?;
            let right = |held: &Option<u64>| match (held, &item) {
                (None, None) => true,
                (Some(number), Some(item)) => {
                    item.meta.flags == *number as u32
                        && self.workload.operation(*number).value.is_some_and(|v| v.is(&item.value))
                }
                _ => false,
            };
            if !may_hold.iter().any(right) {
                let holds = item.map(|item| (item.meta.flags, item.value.len()));
                return Err(format!("key {key} holds {holds:?} and may hold {may_hold:?}"));
            }
            if let Some(item) = item {
                found.insert(name(key), item);
            }
        }
        let scanned = tier.scan(b"", None, usize::MAX);
        let same = scanned.len() == found.len()
            && scanned
                .iter()
                .all(|(key, item)| item.as_ref().is_ok_and(|item| found.get(key) == Some(item)));
        if same { Ok(found.len()) } else { Err("a scan and the gets disagree".into()) }
    }
}

/// Opens a store on images of its two media, which are all that is left of a machine.
pub fn open(log: Vec<u8>, ssd: Vec<u8>) -> Result<Tier, String> {
    let power = Power::new(u64::MAX);
    let disk = |image| Arc::new(SimDisk::from_image(image, power.clone(), 0, Faults::default()));
    let media = Media { region: Arc::new(WalRegion::new(disk(log))), ssd: disk(ssd) };
    let new_id = 1;
    let (tier, report) = Tier::open(media, settings(false), new_id, &mut |_, _| {})
        .map_err(|error| error.to_string())?;
    sound(&report.problems)?;
    Ok(tier)
}

/// Recovery names what is damaged; after a power cut nothing is.
pub fn sound(problems: &[String]) -> Result<(), String> {
    match problems {
        [] => Ok(()),
        _ => Err(format!("recovery complains: {}", problems.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload { seed: 5 };

    /// A store in memory with all groups up to `number`, and the last one's end.
    fn written(number: u64) -> (Tier, Life) {
        let tier = open(vec![0; LOG_BYTES as usize], vec![0; SSD_BYTES as usize]).unwrap();
        let mut life = Life { first: 1, acknowledged: 0 };
        while life.acknowledged < number {
            let first = life.acknowledged + 1;
            let end = WORKLOAD.group_end(first);
            WORKLOAD.write_group(&tier, first..=end).unwrap();
            tier.maintain().unwrap();
            life.acknowledged = end;
        }
        (tier, life)
    }

    #[test]
    fn what_was_acknowledged_is_found_and_what_was_under_way_may_be() {
        let (tier, life) = written(700);
        let items = Expected::after(WORKLOAD, &[life]).check(&tier).unwrap();
        assert!(KEYS / 2 < items, "only {items} items");
        let stats = tier.stats();
        assert!(0 < stats.checkpoints && 0 < stats.segments_freed, "too little to be a test");
        let next = Life::first(Some(&life), &WORKLOAD);
        WORKLOAD.write_group(&tier, life.acknowledged + 1..=next - 1).unwrap();
        Expected::after(WORKLOAD, &[life]).check(&tier).expect("written, and not acknowledged");
        let second = Life { first: next, acknowledged: next - 1 };
        Expected::after(WORKLOAD, &[life, second]).check(&tier).expect("a life without a write");
    }

    #[test]
    fn a_group_that_is_missing_is_noticed() {
        let (tier, life) = written(200);
        let beyond = Life { acknowledged: WORKLOAD.group_end(life.acknowledged + 1), ..life };
        let beyond = Life { acknowledged: Life::first(Some(&beyond), &WORKLOAD) - 1, ..beyond };
        assert!(Expected::after(WORKLOAD, &[beyond]).check(&tier).is_err());
    }

    #[test]
    fn a_value_of_another_write_is_noticed() {
        let (tier, life) = written(200);
        let key = (0..KEYS).find(|key| tier.get(&name(*key)).unwrap().is_some()).unwrap();
        let item = tier.get(&name(key)).unwrap().unwrap();
        let mut torn = item.value.clone();
        torn.push(0);
        tier.put(&name(key), &torn, item.meta).unwrap();
        assert!(Expected::after(WORKLOAD, &[life]).check(&tier).is_err());
    }
}
