//! Backups while the server is at work: somebody asks for one on a connection of their own, and
//! may leave; the copier is stepped by draws; the place that it writes to may fill up.
//!
//! The judge: a copy that is said to be whole, loaded into a new store, holds what the store held
//! at the instant at which it was begun, byte for byte; and one that was given up has a reason that
//! what was written meanwhile bears out. A life that follows may begin with such a copy in the
//! place of the disks; then the clients' own histories are held against it.

use crate::media::LOG_BYTES;
use laneway_rig::durable::{Machine, settings};
use laneway_rig::{Rig, RigStream};
use laneway_server::durable::backup::{Asked, Standing, Told};
use laneway_server::durable::copier::{Copier, Place};
use laneway_server::durable::shared::Durable;
use laneway_server::shared::Shared;
use laneway_tier::backup::Bounds;
use laneway_tier::backup::file::Target;
use laneway_tier::disk::sim::Random;
use laneway_tier::{BLOCK_BYTES, ItemMeta, Settings, Tier, dump};
use laneway_transport::memory::Client;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of an SSD that copies are loaded into, to be looked at, besides twice the copy.
const COPY_SSD_BYTES: usize = 4 << 20;
/// Backups that are asked for in a life.
const BACKUPS_MAX: u32 = 3;
/// What an item takes at most of the memory that a backup may hold, beside its key and value; and
/// a key that was not there when it began.
const HELD_BYTES_MAX: u64 = 512;

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

/// What a store holds of a key; nothing where that cannot be read.
struct Was {
    sequence: u64,
    /// The value lies on the SSD by itself.
    is_large: bool,
    item: Option<(Vec<u8>, ItemMeta)>,
}

/// The instant that a backup is of.
pub struct Cut {
    moment: u64,
    /// What the store held.
    items: BTreeMap<Vec<u8>, Was>,
}

impl Cut {
    /// What a store holds now, at this moment of the books.
    pub fn of(tier: &Tier, moment: u64) -> Cut {
        let found = tier.scan(b"", None, usize::MAX).into_iter();
        let items = found.map(|(key, item)| {
            // One that cannot be read has changed for sure, as far as anybody can know.
            let sequence = item.as_ref().map_or(0, |item| item.sequence);
            let item = item.ok().map(|item| (item.value, item.meta));
            let is_large = tier.look(&key).is_some_and(|look| look.is_large);
            (key, Was { sequence, is_large, item })
        });
        Cut { moment, items: items.collect() }
    }

    /// The most blocks that may be held for it by now: those of values that are there no more.
    fn blocks_replaced(&self, tier: &Tier) -> u64 {
        let is_gone =
            |key: &[u8], was: &Was| tier.look(key).is_none_or(|now| now.sequence != was.sequence);
        let gone = self.items.iter().filter(|(key, was)| is_gone(key, was));
        let large = gone.filter(|(_, was)| was.is_large);
        let bytes = large.map(|(_, was)| was.item.as_ref().map_or(0, |(value, _)| value.len()));
        bytes.map(|bytes| bytes.div_ceil(BLOCK_BYTES) as u64).sum()
    }

    /// The most memory that may be taken for it, where clients have so many keys.
    fn memory_bytes(&self, keys: u64) -> u64 {
        let value = |was: &Was| was.item.as_ref().map_or(0, |(value, _)| value.len());
        let each = self.items.iter().map(|(key, was)| 2 * key.len() + value(was));
        each.map(|bytes| bytes as u64 + HELD_BYTES_MAX).sum::<u64>() + keys * HELD_BYTES_MAX
    }

    /// Whether what was written meanwhile may have been too much for these bounds, as is said.
    pub fn bears_out(&self, why: &str, bounds: &Bounds, tier: &Tier, keys: u64) -> bool {
        let Some(why) = why.strip_prefix("the backup was given up: ") else { return false };
        if why.contains("of memory") {
            bounds.memory_bytes < self.memory_bytes(keys)
        } else if why.contains("blocks of the SSD") {
            bounds.blocks < self.blocks_replaced(tier)
        } else {
            why.contains("no room left") && 0 < self.blocks_replaced(tier)
        }
    }

    /// Whether a copy is of it; `doubt`: what could not be read may be missing.
    fn judge(&self, copy: &Items, doubt: bool) -> Result<(), String> {
        for (key, was) in &self.items {
            let copied = copy.get(key);
            let is_known_lost = doubt && copied.is_none();
            if copied != was.item.as_ref() && was.item.is_some() && !is_known_lost {
                let key = key.escape_ascii();
                return Err(format!("a backup has {key} otherwise than the store had it"));
            }
        }
        match copy.keys().find(|key| !self.items.contains_key(*key)) {
            Some(key) => {
                let key = key.escape_ascii();
                Err(format!("a backup has {key}, and the store had not when it was begun"))
            }
            None => Ok(()),
        }
    }
}

/// A copy that is whole, and the moment that it is of.
pub struct Copy {
    /// Of the books.
    pub moment: u64,
    /// What was written.
    pub stream: Vec<u8>,
}

/// What a backup has come to.
pub enum End {
    /// It is whole; no copy where some of the store could not be read: of that nobody makes one.
    Done(Option<Copy>),
    /// It came to nothing, as it may.
    Failed,
}

/// What somebody does next about backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    Rest,
    /// Somebody asks for one.
    Ask,
    /// Who asked leaves.
    Leave,
    /// A step of who copies.
    Copy,
    /// Who asked goes on.
    Exchange,
    /// A segment of the log is emptied, whether it is due or not: what is held may have lain there.
    Migrate,
}

/// Who asks for backups, and who makes them.
pub struct Backups {
    random: Random,
    durable: Arc<Durable>,
    copier: Copier,
    bounds: Bounds,
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
    /// The last that is whole.
    pub done: Option<Copy>,
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
        let usual = durable.tier.backup_bounds();
        let memory_bytes = match random.one_in(8) {
            true => 1000 + random.below(20_000),
            false => usual.memory_bytes,
        };
        let bounds = Bounds { items_at_once, memory_bytes, ..usual };
        let memory = Memory::default();
        durable.backups.enable(Box::new(|| {}));
        let copier = Copier::new(durable.clone(), Box::new(memory.clone()), 0, bounds);
        Some(Backups {
            random,
            durable,
            copier,
            bounds,
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

    /// What comes next, by a draw.
    pub fn turn(&mut self) -> Turn {
        let is_under_way = self.is_under_way();
        match self.random.below(400) {
            0 if !is_under_way && self.number < BACKUPS_MAX => Turn::Ask,
            1 if is_under_way && self.random.one_in(4) => Turn::Leave,
            2..40 if self.random.one_in(self.pace) => Turn::Copy,
            40..60 => Turn::Exchange,
            60..64 if is_under_way => Turn::Migrate,
            _ => Turn::Rest,
        }
    }

    /// Whether one was asked for, and has not ended.
    pub fn is_under_way(&self) -> bool {
        self.durable.backups.told().standing == Standing::UnderWay
    }

    /// Whether somebody makes a store of the last copy.
    pub fn is_restored(&mut self) -> bool {
        self.random.one_in(2)
    }

    /// Somebody asks; over a connection, where nobody has to say who he is first.
    pub fn ask(&mut self, rig: &Rig, has_users: bool) {
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
    pub fn exchange(&mut self) {
        if let Some(client) = &self.client {
            let sent = client.send(&self.out);
            self.out.drain(..sent);
            client.receive(1000);
        }
    }

    /// Whoever asked goes.
    pub fn leave(&mut self) {
        if let Some(client) = self.client.take() {
            client.reset();
            self.asked.iter_mut().for_each(|asked| asked.has_left = true);
        }
    }

    /// A step of who copies, at this moment of the books. What the server tells of a backup that
    /// has ended by it.
    pub fn step(&mut self, tier: &Tier, moment: u64, now_nanos: u64, now: u32) -> Option<Told> {
        let was_copying = self.copier.is_copying();
        self.copier.step(now_nanos, now);
        if !was_copying && self.copier.is_copying() {
            // Nothing was copied in this step, and nobody else had one.
            self.cut = Some(Cut::of(tier, moment));
        }
        let told = self.durable.backups.told();
        let is_over = told.standing != Standing::UnderWay;
        let is_ours = self.asked.as_ref().is_some_and(|asked| asked.name == told.name);
        (is_over && is_ours).then_some(told)
    }

    /// Whether it may have ended as is told, where clients have so many keys. `doubt`: devices may
    /// have refused something.
    pub fn judge(
        &mut self,
        told: &Told,
        tier: &Tier,
        doubt: bool,
        keys: u64,
    ) -> Result<End, String> {
        let (cut, asked) = (self.cut.take(), self.asked.take());
        if told.standing == Standing::Failed {
            let why = &told.error;
            let may_fill = asked.as_ref().is_some_and(|asked| asked.may_fill);
            // The connection of who asked may have ended.
            let has_left = asked.is_some_and(|asked| asked.has_left)
                || self.client.as_ref().is_none_or(Client::ended);
            let is_borne_out = |cut: &Cut| cut.bears_out(why, &self.bounds, tier, keys);
            let is_clear = doubt
                || (may_fill && why.starts_with("write the copy"))
                || (has_left && why.contains("has closed the connection"))
                || cut.as_ref().is_some_and(is_borne_out);
            return match is_clear {
                true => Ok(End::Failed),
                false => Err(format!("a backup came to nothing: {why}")),
            };
        }
        let written = std::mem::take(&mut *self.memory.lock());
        let Some(cut) = cut.filter(|_| written.is_finished) else {
            return Err("a backup is done that was not begun, or not finished".into());
        };
        let copy = loaded(&written.bytes)?;
        cut.judge(&copy, doubt)?;
        let is_read = cut.items.values().all(|was| was.item.is_some());
        let is_all = copy.len() == cut.items.len() && is_read;
        Ok(End::Done(is_all.then_some(Copy { moment: cut.moment, stream: written.bytes })))
    }
}

/// What a copy holds, by loading it.
fn loaded(stream: &[u8]) -> Result<Items, String> {
    let machine =
        Machine::new(LOG_BYTES, COPY_SSD_BYTES + (2 * stream.len()).next_multiple_of(1 << 20));
    let settings = Settings { checkpoint_bytes: u64::MAX / 4, ..settings() };
    let tier = machine.open_as(settings, 9).map_err(|error| error.to_string())?;
    dump::load(&tier, stream).map_err(|error| format!("a copy that is whole: {error}"))?;
    let found = Cut::of(&tier, 0).items.into_iter();
    let items = found.map(|(key, was)| Some((key, was.item?))).collect::<Option<Items>>();
    items.ok_or_else(|| "an item of a loaded copy cannot be read".into())
}
