//! Backups while the server is at work: somebody asks for one on a connection of their own, and
//! may leave; the copier is stepped by draws; the place that it writes to may fill up.
//!
//! The judge: a copy that is said to be whole, loaded into a new store, holds what the store held
//! at
//! the instant at which it was begun, byte for byte. A life that follows may begin with such a copy
//! in the place of the disks; then the clients' own histories are held against it.

use crate::life::Life;
use crate::media::LOG_BYTES;
use crate::rig::durable::{Machine, settings};
use crate::rig::{Rig, RigStream};
use crate::world::{Outcome, World};
use laneway_server::clock::Clock;
use laneway_server::durable::backup::{Asked, Standing, Told};
use laneway_server::durable::copier::{Copier, Place};
use laneway_server::durable::shared::Durable;
use laneway_server::shared::Shared;
use laneway_tier::backup::Bounds;
use laneway_tier::backup::file::Target;
use laneway_tier::disk::sim::Random;
use laneway_tier::{ItemMeta, Settings, Tier, dump};
use laneway_transport::memory::Client;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of an SSD that copies are loaded into, to be looked at, besides twice the copy.
const COPY_SSD_BYTES: usize = 4 << 20;
/// Backups that are asked for in a life.
const BACKUPS_MAX: u32 = 3;
/// The longest key, under which a `flush_all` to come is kept.
const SCHEDULE_KEY_BYTES: usize = 256;

type Items = BTreeMap<Vec<u8>, (Vec<u8>, ItemMeta)>;

/// What is written to.
#[derive(Default)]
struct Written {
    /// What it still takes.
    room: usize,
    bytes: Vec<u8>,
    is_finished: bool,
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Written>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place for Memory {
    fn begin(&self, _: &str) -> laneway_tier::Result<Box<dyn Target>> {
        let mut written = self.lock();
        (written.bytes, written.is_finished) = (Vec::new(), false);
        Ok(Box::new(self.clone()))
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.lock();
        if written.room < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.room -= bytes.len();
        written.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Target for Memory {
    fn finish(self: Box<Self>) -> laneway_tier::Result<()> {
        self.lock().is_finished = true;
        Ok(())
    }
}

/// The instant that a backup is of.
struct Cut {
    moment: u64,
    /// What the store held; nothing of a key that could not be read.
    items: BTreeMap<Vec<u8>, Option<(Vec<u8>, ItemMeta)>>,
}

/// A copy that is whole.
pub struct Copy {
    moment: u64,
    stream: Vec<u8>,
}

/// Who asks for backups, and who makes them.
pub struct Backups {
    random: Random,
    durable: Arc<Durable>,
    copier: Copier,
    memory: Memory,
    client: Option<Client>,
    /// What the client still has to send.
    out: Vec<u8>,
    /// Of the backup that was asked for last.
    asked: Option<Asking>,
    cut: Option<Cut>,
    /// Of so many steps that it could have it has one.
    pace: u64,
    number: u32,
    done: Option<Copy>,
}

/// What may become of it.
struct Asking {
    name: String,
    may_fill: bool,
    has_left: bool,
}

impl Backups {
    /// Of this server, which keeps items.
    pub fn new(shared: &Shared<RigStream>, seed: u64) -> Option<Backups> {
        let durable = shared.durable.get()?.clone();
        let mut random = Random::new(seed ^ 0x0bac_0bac);
        let pace = [1, 6, 60][random.below(3) as usize];
        let items_at_once = 1 + random.below(6) as usize;
        let bounds = Bounds { items_at_once, ..durable.tier.backup_bounds() };
        let memory = Memory::default();
        durable.backups.enable(Box::new(|| {}));
        let copier = Copier::new(durable.clone(), Box::new(memory.clone()), 0, bounds);
        Some(Backups {
            random,
            durable,
            copier,
            memory,
            client: None,
            out: Vec::new(),
            asked: None,
            cut: None,
            pace,
            number: 0,
            done: None,
        })
    }

    /// Somebody asks; over a connection, where nobody has to say who he is first.
    fn ask(&mut self, rig: &Rig, has_users: bool) {
        self.leave();
        self.number += 1;
        let may_fill = self.random.one_in(6);
        self.memory.lock().room =
            if may_fill { self.random.below(40_000) as usize } else { 1 << 30 };
        let name = format!("copy-{}", self.number);
        self.asked = Some(Asking { name: name.clone(), may_fill, has_left: false });
        if has_users {
            self.durable.backups.answer(&Asked::Start(name), 0);
            return;
        }
        self.out = format!("backup start {name}\r\n").into_bytes();
        self.client = Some(rig.net.connect());
    }

    /// The client goes on.
    fn exchange(&mut self) {
        if let Some(client) = &self.client {
            let sent = client.send(&self.out);
            self.out.drain(..sent);
            client.receive(1000);
        }
    }

    /// Whether the connection of who asked may have ended.
    fn may_have_left(&self, asked: &Asking) -> bool {
        asked.has_left || self.client.as_ref().is_none_or(Client::ended)
    }

    /// Whoever asked goes.
    pub fn leave(&mut self) {
        if let Some(client) = self.client.take() {
            client.reset();
            self.asked.iter_mut().for_each(|asked| asked.has_left = true);
        }
    }

    /// The last copy that is whole.
    pub fn take_done(&mut self) -> Option<Copy> {
        self.done.take()
    }
}

/// Every item of a store that can be read.
fn items(tier: &Tier) -> BTreeMap<Vec<u8>, Option<(Vec<u8>, ItemMeta)>> {
    let found = tier.scan(b"", None, usize::MAX).into_iter();
    found.map(|(key, item)| (key, item.ok().map(|item| (item.value, item.meta)))).collect()
}

/// What a copy holds, by loading it.
fn loaded(stream: &[u8]) -> Result<Items, String> {
    let machine =
        Machine::new(LOG_BYTES, COPY_SSD_BYTES + (2 * stream.len()).next_multiple_of(1 << 20));
    let settings = Settings { checkpoint_bytes: u64::MAX / 4, ..settings() };
    let tier = machine.open_as(settings, 9).map_err(|error| error.to_string())?;
    dump::load(&tier, stream).map_err(|error| format!("a copy that is whole: {error}"))?;
    items(&tier)
        .into_iter()
        .map(|(key, item)| Some((key, item?)))
        .collect::<Option<Items>>()
        .ok_or_else(|| "an item of a loaded copy cannot be read".into())
}

impl World {
    /// Something of a backup, now and then.
    pub(crate) fn step_backup(&mut self, life: &mut Life) -> Outcome {
        let Some(backups) = &mut life.backups else { return Ok(()) };
        let is_under_way = backups.durable.backups.told().standing == Standing::UnderWay;
        match backups.random.below(400) {
            0 if !is_under_way && backups.number < BACKUPS_MAX => {
                backups.ask(&life.rig, self.swarm.has_users());
            }
            1 if is_under_way && backups.random.one_in(4) => backups.leave(),
            2..40 if backups.random.one_in(backups.pace) => return self.step_copier(life),
            40..60 => backups.exchange(),
            60..64 if is_under_way => {
                if let Some(tier) = &life.tier {
                    // Whether it is due or not: what is held may have lain there.
                    let _ = tier.migrate();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// At the end of a life a backup is finished, so that it is judged.
    pub(crate) fn finish_backup(&mut self, life: &mut Life) -> Outcome {
        const STEPS_MAX: u32 = 100_000;
        for _ in 0..STEPS_MAX {
            match &life.backups {
                Some(backups) if backups.copier.is_copying() => self.step_copier(life)?,
                _ => return Ok(()),
            }
        }
        Err("a backup does not end".into())
    }

    fn step_copier(&mut self, life: &mut Life) -> Outcome {
        let may_doubt = self.may_doubt();
        let moment = self.books.moment();
        let (Some(backups), Some(tier)) = (&mut life.backups, &life.tier) else { return Ok(()) };
        let was_copying = backups.copier.is_copying();
        let now = self.clock.nanos();
        backups.copier.step(now, self.clock.unix_seconds(now));
        match (was_copying, backups.copier.is_copying()) {
            (false, true) => {
                // Nothing was copied in this step, and nobody else had one.
                backups.cut = Some(Cut { moment, items: items(tier) });
                self.books.say(|| "a backup is begun".into());
                Ok(())
            }
            (_, false) => {
                let told = backups.durable.backups.told();
                let is_over = told.standing != Standing::UnderWay;
                let asked = backups.asked.take_if(|asked| is_over && asked.name == told.name);
                let Some(asked) = asked else { return Ok(()) };
                self.books.say(|| format!("a backup: {} {}", told.standing.name(), told.error));
                self.judge_backup(life, &asked, &told, may_doubt)
            }
            _ => Ok(()),
        }
    }

    fn judge_backup(
        &mut self,
        life: &mut Life,
        asked: &Asking,
        told: &Told,
        doubt: bool,
    ) -> Outcome {
        let Some(backups) = &mut life.backups else { return Ok(()) };
        let cut = backups.cut.take();
        if told.standing == Standing::Failed {
            self.books.counts.backups_failed += 1;
            let why = &told.error;
            let is_clear = doubt
                || (asked.may_fill && why.starts_with("write the copy"))
                || (backups.may_have_left(asked) && why.contains("has closed the connection"))
                || why.starts_with("the backup was given up");
            return match is_clear {
                true => Ok(()),
                false => Err(format!("a backup came to nothing: {why}")),
            };
        }
        self.books.counts.backups += 1;
        let written = std::mem::take(&mut *backups.memory.lock());
        let Some(cut) = cut.filter(|_| written.is_finished) else {
            return Err("a backup is done that was not begun, or not finished".into());
        };
        let copy = loaded(&written.bytes)?;
        for (key, item) in &cut.items {
            let copied = copy.get(key);
            let is_known_lost = doubt && copied.is_none();
            if copied != item.as_ref() && item.is_some() && !is_known_lost {
                let key = key.escape_ascii();
                return Err(format!("a backup has {key} otherwise than the store had it"));
            }
        }
        if let Some(key) = copy.keys().find(|key| !cut.items.contains_key(*key)) {
            let key = key.escape_ascii();
            return Err(format!("a backup has {key}, and the store had not when it was begun"));
        }
        // Of one that lacks what could not be read nobody makes a store.
        let is_all = copy.len() == cut.items.len() && cut.items.values().all(Option::is_some);
        backups.done = is_all.then_some(Copy { moment: cut.moment, stream: written.bytes });
        Ok(())
    }

    /// Now and then the disks are lost, and somebody loads the last copy into new ones. Says since
    /// when everything is lost.
    pub(crate) fn restored(&mut self, life: &mut Life) -> Option<(Machine, u64)> {
        let copy = life.backups.as_mut()?.take_done()?;
        if !life.backups.as_mut()?.random.one_in(2) {
            return None;
        }
        let machine = Machine::new(LOG_BYTES, self.swarm.ssd_bytes);
        let tier = machine.open(self.tier_settings()).ok()?;
        // Where there is no room for all of it the operator takes larger disks, which a run has
        // not.
        dump::load(&tier, &copy.stream[..]).ok()?;
        // It would be carried out a second time.
        let has_flush_to_come = tier.look(&[0; SCHEDULE_KEY_BYTES]).is_some();
        let evicted = tier.evicted();
        if has_flush_to_come || 0 < evicted.small.items + evicted.large.items {
            return None;
        }
        tier.settle().ok()?;
        self.books.counts.restores += 1;
        self.books.say(|| "the disks are lost, and a backup is loaded into new ones".into());
        Some((machine, copy.moment))
    }
}
