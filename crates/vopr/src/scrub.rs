//! The scrubber beside a server at work: it is stepped by draws; and at the end of a life a bit
//! flips on a device.
//!
//! The judge: while no device may fail nothing is found damaged, whatever is written, moved and
//! dropped meanwhile; and a whole pass finds what is read as lost for that bit's sake. Then the bit
//! is flipped back, before anybody else goes on.

use laneway_rig::RigStream;
use laneway_rig::durable::Machine;
use laneway_server::durable::scrub::{ScrubSettings, Scrubbed};
use laneway_server::durable::scrubber::Scrubber;
use laneway_server::durable::shared::Durable;
use laneway_server::shared::Shared;
use laneway_tier::disk::sim::{Random, SimDisk};
use laneway_tier::scrub::Bounds;
use laneway_tier::{Error, Tier};
use memchr::memmem::Finder;
use std::sync::Arc;
use std::time::Duration;

/// Steps after which a pass has ended.
const STEPS_MAX: u32 = 1_000_000;
/// Items at which it is tried to flip a bit: some are in memory as well, or too short to be told
/// from others.
const FLIPS_MAX: u32 = 12;
/// Fewer bytes may lie anywhere.
const BYTES_MIN: usize = 24;

/// Who verifies what is kept.
pub struct Scrubs {
    random: Random,
    durable: Arc<Durable>,
    scrubber: Scrubber,
    /// Of so many steps that it could have it has one.
    pace: u64,
    /// When it is to be stepped again.
    due_nanos: u64,
}

/// Where a bit was flipped.
struct Flipped {
    disk: Arc<SimDisk>,
    at: u64,
    bit: u8,
}

impl Scrubs {
    /// Of this server, which keeps items.
    pub fn new(shared: &Shared<RigStream>, seed: u64, now_nanos: u64) -> Option<Scrubs> {
        let durable = shared.durable.get()?.clone();
        let mut random = Random::new(seed ^ 0x5c7b_5c7b);
        let pace = [1, 6, 60][random.below(3) as usize];
        let bounds = Bounds {
            step_bytes: [1, 6000, 1 << 18][random.below(3) as usize],
            places: [2, 5, 40][random.below(3) as usize],
            share: u64::MAX,
        };
        let every = Duration::from_millis(1 + random.below(50));
        let settings = ScrubSettings { every, bytes_per_second: 0, log_keys: random.one_in(2) };
        durable.scrubs.enable(Box::new(|| {}));
        let scrubber = Scrubber::new(durable.clone(), settings, bounds, now_nanos);
        Some(Scrubs { random, durable, scrubber, pace, due_nanos: now_nanos })
    }

    fn told(&self) -> Scrubbed {
        self.durable.scrubs.told().expect("they are enabled")
    }

    /// A step of it now and then; how many passes have ended by it.
    pub fn turn(&mut self, now_nanos: u64, now_seconds: u32) -> u64 {
        if !self.random.one_in(4 * self.pace) || now_nanos < self.due_nanos {
            return 0;
        }
        let before = self.told().passes;
        self.due_nanos = self.scrubber.step(now_nanos, now_seconds);
        self.told().passes - before
    }

    /// What was found damaged so far.
    pub fn damaged(&self) -> u64 {
        self.told().damaged
    }

    /// Ends the pass that is under way; then a whole one, and what that finds damaged.
    pub fn whole_pass(&mut self, now_nanos: u64, now_seconds: u32) -> Result<u64, String> {
        let mut now_nanos = now_nanos.max(self.due_nanos);
        let until = self.told().passes + 2;
        for _ in 0..STEPS_MAX {
            if self.told().passes == until {
                self.due_nanos = now_nanos;
                return Ok(self.told().done_damaged);
            }
            now_nanos = now_nanos.max(self.scrubber.step(now_nanos, now_seconds));
        }
        Err("a pass of the scrubber does not end".into())
    }

    /// A bit flips, and a whole pass finds it. False: nothing was found that a bit could spoil.
    pub fn flip_and_find(
        &mut self,
        machine: &Machine,
        tier: &Tier,
        now: (u64, u32),
    ) -> Result<bool, String> {
        let found = tier.range(b"", None, usize::MAX);
        if found.is_empty() {
            return Ok(false);
        }
        for _ in 0..FLIPS_MAX {
            let key = found[self.random.below(found.len() as u64) as usize].key();
            let Ok(Some(item)) = tier.get(key) else { continue };
            let is_large = tier.look(key).is_some_and(|look| look.is_large);
            let bytes = if is_large { item.value } else { [key, &item.value].concat() };
            let flipped = self.flip(machine, &bytes);
            // Of what lies in memory as well, or is longer than what was looked for, nothing is
            // lost.
            let is_lost = matches!(tier.get(key), Err(Error::Lost { .. }));
            let met = if is_lost { self.whole_pass(now.0, now.1) } else { Ok(0) };
            flipped.iter().for_each(|it| it.disk.flip_bit(it.at, it.bit));
            match (is_lost, met?) {
                (false, _) => continue,
                (true, 0) => {
                    let key = key.escape_ascii();
                    return Err(format!("a bit of {key} flips, and a whole pass does not find it"));
                }
                (true, _) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Flips the same bit wherever these bytes lie: there may be older copies of a record.
    fn flip(&mut self, machine: &Machine, bytes: &[u8]) -> Vec<Flipped> {
        let (offset, bit) = (self.random.below(bytes.len().max(1) as u64), self.random.below(8));
        let mut flipped = Vec::new();
        if bytes.len() < BYTES_MIN {
            return flipped;
        }
        let finder = Finder::new(bytes);
        for disk in [&machine.log, &machine.ssd] {
            let image = disk.image();
            let mut from = 0;
            while let Some(found) = finder.find(&image[from..]) {
                let (at, bit) = ((from + found) as u64 + offset, bit as u8);
                disk.flip_bit(at, bit);
                flipped.push(Flipped { disk: disk.clone(), at, bit });
                from += found + 1; // two places may overlap
            }
        }
        flipped
    }
}
