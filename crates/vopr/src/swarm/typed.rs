//! The numbers of a run by their names, as they are typed behind `--seed`, and a run in words.

use super::{Kept, Swarm};
use std::fmt;

/// How a number of a run is read and set.
type Number = (&'static str, fn(&Swarm) -> u64, fn(&mut Swarm, u64));

/// All, in the order in which they are listed and typed.
const NUMBERS: &[Number] = &[
    ("commands", |s| s.commands.into(), |s, new| s.commands = new as u32),
    ("kept", |s| s.kept as u64, |s, new| s.kept = Kept::ALL[(new as usize).min(2)]),
    ("memory-mb", |s| s.memory_bytes >> 20, |s, new| s.memory_bytes = new << 20),
    ("ssd-mb", |s| (s.ssd_bytes >> 20) as u64, |s, new| s.ssd_bytes = (new as usize) << 20),
    ("evicts", |s| s.evicts.into(), |s, new| s.evicts = new != 0),
    ("slow-devices", |s| s.slow_devices.into(), |s, new| s.slow_devices = new != 0),
    ("crashes", |s| s.crashes.into(), |s, new| s.crashes = new as u32),
    ("hostile", |s| s.hostile as u64, |s, new| s.hostile = new as usize),
    ("datagram-clients", |s| s.datagram_clients as u64, |s, new| s.datagram_clients = new as usize),
    ("shm-clients", |s| s.shm_clients as u64, |s, new| s.shm_clients = new.min(3) as usize),
    ("clients", |s| s.clients as u64, |s, new| s.clients = new as usize),
    ("short", |s| s.short.into(), |s, new| s.short = new as u8),
    ("refuse", |s| s.refuse.into(), |s, new| s.refuse = new as u8),
    ("reset", |s| s.reset.into(), |s, new| s.reset = new as u8),
    ("disk-faults", |s| s.disk_faults.into(), |s, new| s.disk_faults = new != 0),
    ("rot", |s| s.rot.into(), |s, new| s.rot = new != 0),
    ("back", |s| s.back.into(), |s, new| s.back = new != 0),
    ("datagram-faults", |s| s.datagram_faults.into(), |s, new| s.datagram_faults = new as u32),
    ("admin", |s| s.admin.into(), |s, new| s.admin = new != 0),
    ("flush", |s| s.flush.into(), |s, new| s.flush = new != 0),
    ("jumps", |s| s.jumps.into(), |s, new| s.jumps = new != 0),
    ("wrong", |s| s.wrong.into(), |s, new| s.wrong = new != 0),
    ("filler", |s| s.filler.into(), |s, new| s.filler = new != 0),
    ("ends", |s| s.ends.into(), |s, new| s.ends = new as u8),
    ("large", |s| s.large.into(), |s, new| s.large = new as u8),
    ("hot", |s| s.hot.into(), |s, new| s.hot = new != 0),
    ("domains", |s| s.domains.into(), |s, new| s.domains = new as u16),
    ("refuse-memory", |s| s.refuse_memory.into(), |s, new| s.refuse_memory = new as u32),
    ("adaptive", |s| s.adaptive.into(), |s, new| s.adaptive = new != 0),
    ("resp", |s| s.resp.into(), |s, new| s.resp = new != 0),
    ("resp-alone", |s| s.resp_alone.into(), |s, new| s.resp_alone = new != 0),
    ("users", |s| s.users.into(), |s, new| s.users = new != 0),
    ("binary", |s| s.binary.into(), |s, new| s.binary = new != 0),
    ("backups", |s| s.backups.into(), |s, new| s.backups = new != 0),
    ("scrubs", |s| s.scrubs.into(), |s, new| s.scrubs = new != 0),
    ("operates", |s| s.operates.into(), |s, new| s.operates = new != 0),
    ("splits", |s| s.splits.into(), |s, new| s.splits = new != 0),
    ("compresses", |s| s.compresses.into(), |s, new| s.compresses = new != 0),
    ("by-age", |s| s.by_age.into(), |s, new| s.by_age = new != 0),
    ("slow-us", |s| s.slow_micros.into(), |s, new| s.slow_micros = new as u32),
    ("log-keys", |s| s.log_keys.into(), |s, new| s.log_keys = new != 0),
    ("read-only", |s| s.read_only.into(), |s, new| s.read_only = new != 0),
    ("per-address", |s| s.per_address.into(), |s, new| s.per_address = new != 0),
    ("client-rate", |s| s.client_rate.into(), |s, new| s.client_rate = new as u32),
    ("client-bytes", |s| s.client_bytes.into(), |s, new| s.client_bytes = new as u32),
    ("listener-rate", |s| s.listener_rates.0.into(), |s, new| s.listener_rates.0 = new as u32),
    ("listener-bytes", |s| s.listener_rates.1.into(), |s, new| s.listener_rates.1 = new as u32),
    ("watch", |s| s.watch.into(), |s, new| s.watch = new != 0),
    ("tls", |s| s.tls.into(), |s, new| s.tls = new.min(3) as u8),
    ("pipeline", |s| s.pipeline as u64, |s, new| s.pipeline = new as usize),
    ("burst", |s| s.burst as u64, |s, new| s.burst = new.max(1) as usize),
    ("helps", |s| s.helps.into(), |s, new| s.helps = new != 0),
    ("keys", |s| s.keys as u64, |s, new| s.keys = new as usize),
];

impl Swarm {
    /// What must be typed behind `--seed` to have this run and not the seed's own.
    pub fn typed(&self) -> String {
        let drawn = Swarm::draw(self.seed);
        let changed = NUMBERS.iter().filter(|(_, get, _)| get(self) != get(&drawn));
        changed.map(|(name, get, _)| format!(" --set {name}={}", get(self))).collect()
    }

    /// Changes a number by its name. The error lists the names.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        if let Some((.., set)) = NUMBERS.iter().find(|(own, ..)| *own == name) {
            set(self, value);
            return Ok(());
        }
        let names: Vec<&str> = NUMBERS.iter().map(|(name, ..)| *name).collect();
        Err(format!("{name}: there is no such number; it has {}", names.join(", ")))
    }

    /// Changes numbers, `NAME=NUMBER` with blanks between.
    pub(crate) fn set_all(&mut self, typed: &str) {
        for one in typed.split_whitespace() {
            let (name, value) = one.split_once('=').expect("NAME=NUMBER");
            let value = value.parse().expect("a number");
            self.set(name, value).expect("a number that a run has");
        }
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} ({:?}, {:?}) with {} workers in {} domains, {} MB, kept: {:?}; {} connections of \
             {} in a pipeline, {} UDP clients, {} in shared memory, {} hostile; {} keys, \
             {} commands, {} crashes",
            self.design,
            self.form,
            self.access,
            self.workers,
            self.domains(),
            self.memory_bytes >> 20,
            self.kept,
            self.clients,
            self.pipeline,
            self.datagram_clients,
            self.shm_clients,
            self.hostile,
            self.keys,
            self.commands,
            self.crashes,
        )
    }
}
