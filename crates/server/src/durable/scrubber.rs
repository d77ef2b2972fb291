//! Reads all that is kept durably from time to time and verifies it: one step at a time, at a
//! bounded rate, while the server serves. An item that nobody asks for may rot for years; the
//! scrubber finds it while there is a backup that has it.
//!
//! Reads the tier alone. What is damaged is told and counted, and left as it is: who asks for it is
//! told that it is lost, as ever. It knows no thread; time comes with every step.

use super::scrub::ScrubSettings;
use super::shared::Durable;
use crate::clock::nanos_of;
use laneway_tier::scrub::{Bounds, Damaged, Scrub, Step};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// The first pass begins so long after the start, if passes are no more frequent: a server that is
/// started anew every day is scrubbed as well, and a start has other things to read first.
const FIRST: Duration = Duration::from_secs(600);
/// What a pass that was held up makes good: more would be a burst.
const LATE_NANOS_MAX: u64 = 100_000_000;
/// A step that walks over the index counts as so many bytes, so that it has its pauses, too.
const WALK_BYTES: u64 = 8 << 10;
/// What a pass found that is told one by one.
const LINES_MAX: u64 = 100;
/// So many are remembered as told; beyond, each pass tells them again.
const TOLD_MAX: usize = 1 << 16;

/// A pass under way.
struct Current {
    scrub: Scrub,
    /// When it began.
    began_nanos: u64,
    /// When its first byte was due, if it had never been held up.
    from_nanos: u64,
    /// Bytes that its pace counts.
    paced_bytes: u64,
    /// Bytes that it has read.
    read_bytes: u64,
    /// What it found damaged.
    damaged: u64,
    /// Lines of the log about that.
    lines: u64,
}

/// Makes passes, one after the other.
pub struct Scrubber {
    durable: Arc<Durable>,
    settings: ScrubSettings,
    bounds: Bounds,
    /// When the next pass begins.
    begins_nanos: u64,
    current: Option<Current>,
    /// Names of what was told.
    told: HashSet<(u64, u32)>,
}

impl Scrubber {
    /// Over what this server keeps.
    pub fn new(
        durable: Arc<Durable>,
        settings: ScrubSettings,
        bounds: Bounds,
        now_nanos: u64,
    ) -> Scrubber {
        let begins_nanos = now_nanos.saturating_add(nanos_of(settings.every.min(FIRST)));
        Scrubber { durable, settings, bounds, begins_nanos, current: None, told: HashSet::new() }
    }

    /// Goes on. When it is to be called again.
    pub fn step(&mut self, now_nanos: u64, now_seconds: u32) -> u64 {
        let Some(current) = &mut self.current else {
            if self.begins_nanos <= now_nanos {
                self.begin(now_nanos);
            }
            return self.begins_nanos;
        };
        let due_nanos = current.due_nanos(self.settings.bytes_per_second);
        if now_nanos < due_nanos {
            return due_nanos;
        }
        current.from_nanos += (now_nanos - due_nanos).saturating_sub(LATE_NANOS_MAX);
        let mut found = Vec::new();
        let step = current.scrub.step(&mut |damaged| found.push(damaged));
        match step {
            Step::Walked => current.paced_bytes += WALK_BYTES,
            Step::Read { bytes, cost } => {
                current.paced_bytes += bytes.max(cost);
                current.read_bytes += bytes;
                self.durable.scrubs.has_read(bytes);
            }
            Step::Over => {
                self.end(now_nanos, now_seconds);
                return self.begins_nanos;
            }
        }
        let far = current.scrub.far();
        self.durable.scrubs.is_at(far.done_bytes, far.total_bytes);
        let due_nanos = current.due_nanos(self.settings.bytes_per_second);
        found.into_iter().for_each(|damaged| self.note(&damaged));
        due_nanos
    }

    fn begin(&mut self, now_nanos: u64) {
        self.current = Some(Current {
            scrub: self.durable.tier.scrub(self.bounds),
            began_nanos: now_nanos,
            from_nanos: now_nanos,
            paced_bytes: 0,
            read_bytes: 0,
            damaged: 0,
            lines: 0,
        });
        log::info!("a scrub of log and SSD is begun");
    }

    /// Tells of what is damaged, once.
    fn note(&mut self, damaged: &Damaged) {
        let Some(current) = &mut self.current else { return };
        current.damaged += 1;
        // What of the store's own is damaged is another each time: checkpoints come and go.
        if damaged.key.is_some() && self.told.contains(&damaged.name) {
            return;
        }
        if self.told.len() < TOLD_MAX {
            self.told.insert(damaged.name);
        }
        self.durable.scrubs.has_found();
        current.lines += 1;
        if current.lines <= LINES_MAX {
            log::error!("{}", line(damaged, self.settings.log_keys));
        }
    }

    fn end(&mut self, now_nanos: u64, now_seconds: u32) {
        let Some(current) = self.current.take() else { return };
        let (items, damaged) = (current.scrub.far().items, current.damaged);
        self.durable.scrubs.has_ended(damaged, now_seconds);
        if let Some(more @ 1..) = current.lines.checked_sub(LINES_MAX) {
            log::error!("the scrub found {more} more that are damaged; laneway fsck tells all");
        }
        let next_nanos = current.began_nanos.saturating_add(nanos_of(self.settings.every));
        self.begins_nanos = next_nanos.max(now_nanos);
        let seconds = u128::from(now_nanos - current.began_nanos) / NANOS_PER_SECOND;
        let mebibytes = current.read_bytes >> 20;
        log::info!(
            "a scrub is done: {items} items, {mebibytes} MiB read in {seconds} s, {damaged} damaged"
        );
    }
}

/// What the log says.
fn line(damaged: &Damaged, log_keys: bool) -> String {
    let Damaged { key, why, .. } = damaged;
    match key {
        None => format!("the data folder is damaged: {why}; its next checkpoints replace that"),
        Some(key) if log_keys => {
            let key = key.escape_ascii();
            format!("an item is damaged: {key}: {why}; a new set replaces it")
        }
        Some(_) => format!(
            "an item is damaged: {why}; laneway fsck tells its key, and so does this log with \
             --log-keys"
        ),
    }
}

impl Current {
    /// When its bytes so far are due at this rate.
    fn due_nanos(&self, bytes_per_second: u64) -> u64 {
        let nanos = match bytes_per_second {
            0 => 0,
            rate => u128::from(self.paced_bytes) * NANOS_PER_SECOND / u128::from(rate),
        };
        self.from_nanos.saturating_add(nanos as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::shared::Recovery;
    use laneway_tier::disk::sim::{Faults, Power, SimDisk};
    use laneway_tier::pm::sim::SimRegion;
    use laneway_tier::{BLOCK_BYTES, ItemMeta, Media, Settings, Tier};

    const VALUE_BYTES: usize = 3 * BLOCK_BYTES;
    const SECOND_NANOS: u64 = 1_000_000_000;

    /// A server's store of so many large items, on an SSD of which blocks may be made unreadable.
    fn stored(items: u32) -> (Arc<Durable>, Arc<SimDisk>) {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(8 << 20, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let media = Media { region, ssd: ssd.clone() };
        let segment_bytes = 64 << 10;
        let settings = Settings { segment_bytes, background: false, ..Settings::default() };
        let (tier, report) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
        for number in 0..items {
            let value = vec![number as u8 + 1; VALUE_BYTES];
            tier.put(&number.to_be_bytes(), &value, ItemMeta::default()).unwrap();
        }
        let recovery = Recovery { report, took_ms: 0 };
        (Arc::new(Durable::new(Arc::new(tier), None, recovery)), ssd)
    }

    fn scrubber(durable: &Arc<Durable>, bytes_per_second: u64) -> Scrubber {
        durable.scrubs.enable(Box::new(|| {}));
        let every = Duration::from_secs(7 * 86400);
        let settings = ScrubSettings { every, bytes_per_second, log_keys: false };
        let bounds = Bounds { step_bytes: VALUE_BYTES as u64, ..Bounds::BESIDE };
        Scrubber::new(durable.clone(), settings, bounds, 0)
    }

    /// Steps as they are due, until a pass is whole; when each step was.
    fn pass(scrubber: &mut Scrubber, from_nanos: u64) -> Vec<u64> {
        let passes = |it: &Scrubber| it.durable.scrubs.told().unwrap().passes;
        let (before, mut now, mut steps) = (passes(scrubber), from_nanos, Vec::new());
        while passes(scrubber) == before {
            now = now.max(scrubber.step(now, (now / SECOND_NANOS) as u32));
            steps.push(now);
            assert!(steps.len() < 10_000, "it ends");
        }
        steps
    }

    #[test]
    fn a_pass_is_no_faster_than_its_rate_and_the_next_begins_a_week_after_it() {
        let (durable, _) = stored(100);
        let rate = 1 << 20;
        let mut scrubber = scrubber(&durable, rate);
        let steps = pass(&mut scrubber, 0);
        let begin = FIRST.as_nanos() as u64;
        assert_eq!(steps[0], begin, "not at the start");
        let told = durable.scrubs.told().unwrap();
        let bytes = 100 * VALUE_BYTES as u64;
        assert!((bytes..bytes + bytes / 4).contains(&told.bytes), "{told:?}");
        let took = steps.iter().rev().nth(1).unwrap() - begin;
        let least = u128::from(bytes) * NANOS_PER_SECOND / u128::from(rate);
        assert!(least <= u128::from(took), "{took} ns for {bytes} bytes");
        assert_eq!((told.passes, told.damaged, told.now_total_bytes), (1, 0, 0));
        let week = begin + 7 * 86400 * SECOND_NANOS;
        let now = *steps.last().unwrap();
        assert_eq!((now, scrubber.step(now - 1, 0)), (week, week));
    }

    #[test]
    fn a_pass_that_was_held_up_makes_little_of_it_good() {
        let (durable, _) = stored(100);
        let mut scrubber = scrubber(&durable, 1 << 20);
        let mut now = 0;
        while durable.scrubs.told().unwrap().now_bytes < 20 * VALUE_BYTES as u64 {
            now = now.max(scrubber.step(now, 0));
        }
        now += 3600 * SECOND_NANOS;
        let before = durable.scrubs.told().unwrap().bytes;
        while scrubber.step(now, 0) <= now {}
        let burst = durable.scrubs.told().unwrap().bytes - before;
        let allowed = (u128::from(LATE_NANOS_MAX) << 20) / NANOS_PER_SECOND;
        assert!(burst <= allowed as u64 + 2 * VALUE_BYTES as u64, "{burst} bytes at once");
    }

    #[test]
    fn what_is_damaged_is_counted_once_and_by_each_pass() {
        let (durable, ssd) = stored(30);
        let block = |number: u8| {
            let blocks = ssd.image();
            let mut blocks = blocks.chunks(BLOCK_BYTES);
            blocks.position(|block| block.iter().all(|byte| *byte == number + 1)).unwrap() as u64
        };
        for number in [4, 9] {
            ssd.flip_bit(block(number) * BLOCK_BYTES as u64 + 77, 3);
        }
        let mut scrubber = scrubber(&durable, 0);
        let mut now = 0;
        for (passes, damaged) in [(1, 2), (2, 2)] {
            now = *pass(&mut scrubber, now).last().unwrap();
            let told = durable.scrubs.told().unwrap();
            assert_eq!((told.passes, told.damaged, told.done_damaged), (passes, damaged, 2));
        }
        // One is replaced, and another rots.
        let number = 4_u32.to_be_bytes();
        durable.tier.put(&number, b"new", ItemMeta::default()).unwrap();
        ssd.flip_bit(block(20) * BLOCK_BYTES as u64, 0);
        pass(&mut scrubber, now);
        let told = durable.scrubs.told().unwrap();
        assert_eq!((told.passes, told.damaged, told.done_damaged), (3, 3, 2));
    }

    #[test]
    fn the_log_has_keys_only_where_they_are_asked_for() {
        let why = "its value on the SSD is damaged (crc)".to_string();
        let key = Some(Box::from(&b"secret\n"[..]));
        let damaged = Damaged { key, name: (7, 7), why, is_refused: false };
        let without = line(&damaged, false);
        assert!(!without.contains("secret") && without.contains("--log-keys"), "{without}");
        let with = line(&damaged, true);
        assert!(with.starts_with("an item is damaged: secret\\n: its value"), "{with}");
        let own = Damaged { key: None, ..damaged };
        assert!(line(&own, true).starts_with("the data folder is damaged: its value"));
    }
}
