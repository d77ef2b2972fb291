//! Makes backups: one step at a time, at a bounded rate, while the server serves.
//!
//! Reads the tier alone: memory is a cache over it. It knows no thread; time comes with every step.

use super::backup::{Order, Standing, Told};
use super::shared::Durable;
use laneway_tier::backup::file::{Target, TargetFile};
use laneway_tier::backup::{Backup, Bounds, Step};
use laneway_tier::{Result, Tier};
use std::path::PathBuf;
use std::sync::Arc;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// What a backup that was held up makes good: more would be a burst.
const LATE_NANOS_MAX: u64 = 100_000_000;
/// So often a slow one is asked whether it was given up: what it holds is memory of others'.
const LOOKED_NANOS: u64 = 100_000_000;
/// Items that could not be read, told one by one.
const LOST_TOLD: usize = 100;
/// Pieces of the index that are counted in one step: others on this CPU come in between.
const PIECES: u32 = 8;

/// Where backups go and how fast.
#[derive(Debug, Clone)]
pub struct BackupSettings {
    /// The folder that they are made in.
    pub folder: PathBuf,
    /// Bytes a second; 0 for as many as there can be.
    pub bytes_per_second: u64,
}

/// Where backups are written to.
pub trait Place: Send {
    /// Begins one of this name.
    fn begin(&self, name: &str) -> Result<Box<dyn Target>>;
}

/// A folder.
pub struct Folder(pub PathBuf);

impl Place for Folder {
    fn begin(&self, name: &str) -> Result<Box<dyn Target>> {
        Ok(Box::new(TargetFile::create(&self.0, name)?))
    }
}

/// A backup that is not begun yet: first the items are counted, for who asks how far it is. While
/// it is made nobody may wait for that, and things are held for it from its first instant on.
struct Coming {
    name: String,
    target: Box<dyn Target>,
    items: u64,
    from: Box<[u8]>,
}

/// A backup under way.
struct Current {
    backup: Backup,
    target: Box<dyn Target>,
    /// When its first byte was due, if it had never been held up.
    from_nanos: u64,
}

/// Makes backups, one after the other.
pub struct Copier {
    durable: Arc<Durable>,
    tier: Arc<Tier>,
    place: Box<dyn Place>,
    bytes_per_second: u64,
    bounds: Bounds,
    coming: Option<Coming>,
    current: Option<Current>,
}

impl Copier {
    /// At this place, no faster than so many bytes a second; 0 for as fast as can be.
    pub fn new(
        durable: Arc<Durable>,
        place: Box<dyn Place>,
        bytes_per_second: u64,
        bounds: Bounds,
    ) -> Copier {
        let tier = durable.tier.clone();
        Copier { durable, tier, place, bytes_per_second, bounds, coming: None, current: None }
    }

    /// Whether a backup is under way.
    pub fn is_copying(&self) -> bool {
        self.current.is_some()
    }

    /// Does what is asked, or copies some more. When it is to be called again: at this time, or
    /// when the bell rings.
    pub fn step(&mut self, now_nanos: u64, now_seconds: u32) -> Option<u64> {
        match self.durable.backups.take_order() {
            Some(Order::Begin(name)) => {
                self.make_target(name);
                return Some(now_nanos);
            }
            Some(Order::GiveUp(why)) => self.fail(why.to_owned(), now_seconds),
            None => {}
        }
        if let Some(coming) = self.coming.take() {
            self.count_on(coming, now_nanos, now_seconds);
            return Some(now_nanos);
        }
        let current = self.current.as_mut()?;
        let due_nanos = current.due_nanos(self.bytes_per_second);
        if now_nanos < due_nanos {
            if let Err(error) = current.backup.check() {
                self.fail(error.to_string(), now_seconds);
                return None;
            }
            return Some(due_nanos.min(now_nanos + LOOKED_NANOS));
        }
        current.from_nanos += (now_nanos - due_nanos).saturating_sub(LATE_NANOS_MAX);
        match current.backup.step(&mut current.target) {
            Ok(Step::More) => {
                let due_nanos = current.due_nanos(self.bytes_per_second);
                self.tell(|_| {});
                Some(due_nanos)
            }
            Ok(Step::Over) => {
                self.end(now_seconds);
                None
            }
            Err(error) => {
                self.fail(error.to_string(), now_seconds);
                None
            }
        }
    }

    fn make_target(&mut self, name: String) {
        match self.place.begin(&name) {
            Ok(target) => {
                self.coming = Some(Coming { name, target, items: 0, from: Box::default() });
            }
            Err(error) => {
                log::warn!("a backup was not begun: {error}");
                self.durable.backups.refuse(error.to_string());
            }
        }
    }

    /// Counts some more items, and begins once there are no more.
    fn count_on(&mut self, mut coming: Coming, now_nanos: u64, now_seconds: u32) {
        for _ in 0..PIECES {
            match self.tier.look_along(&coming.from, |_, _| coming.items += 1) {
                Some(next) => coming.from = next,
                None => return self.begin(coming, now_nanos, now_seconds),
            }
        }
        self.coming = Some(coming);
    }

    fn begin(&mut self, coming: Coming, now_nanos: u64, now_seconds: u32) {
        let Coming { name, target, items, .. } = coming;
        match self.tier.backup(self.bounds) {
            Ok(backup) => {
                self.current = Some(Current { backup, target, from_nanos: now_nanos });
                self.tell(|told| (told.items_total, told.began_seconds) = (items, now_seconds));
                log::info!("a backup is begun: {name}");
            }
            Err(error) => self.fail(error.to_string(), now_seconds),
        }
    }

    /// All was written.
    fn end(&mut self, now_seconds: u32) {
        self.tell(|_| {});
        let Some(Current { backup, target, .. }) = self.current.take() else { return };
        // What it held is let go before a device is waited for.
        let (items, bytes, lost) = (backup.items(), backup.bytes(), backup.lost().clone());
        drop(backup);
        if let Err(error) = target.finish() {
            return self.fail(error.to_string(), now_seconds);
        }
        for (key, why) in lost.named.iter().take(LOST_TOLD) {
            log::error!("an item is not in the backup: {}: {why}", key.escape_ascii());
        }
        log::info!("a backup is done: {items} items, {bytes} bytes, {} items lost", lost.items);
        self.durable.backups.tell(|told| {
            (told.standing, told.ended_seconds) = (Standing::Done, now_seconds);
        });
    }

    fn fail(&mut self, error: String, now_seconds: u32) {
        (self.coming, self.current) = (None, None);
        log::warn!("a backup came to nothing: {error}");
        self.durable.backups.tell(|told| {
            (told.standing, told.ended_seconds) = (Standing::Failed, now_seconds);
            told.error = error;
        });
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        let Some(current) = &self.current else { return };
        self.durable.backups.tell(|told| {
            told.items = current.backup.items();
            told.bytes = current.backup.bytes();
            told.lost = current.backup.lost().items;
            change(told);
        });
    }
}

impl Current {
    /// When its bytes so far are due at this rate.
    fn due_nanos(&self, bytes_per_second: u64) -> u64 {
        let nanos = match bytes_per_second {
            0 => 0,
            rate => u128::from(self.backup.bytes()) * NANOS_PER_SECOND / u128::from(rate),
        };
        self.from_nanos.saturating_add(nanos as u64)
    }
}
