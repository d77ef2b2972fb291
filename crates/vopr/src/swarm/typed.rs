//! The numbers of a run by their names, as they are typed behind `--seed`, and a run in words.

use super::{Kept, Swarm};
use std::fmt;

impl Swarm {
    /// What must be typed behind `--seed` to have this run and not the seed's own.
    pub fn typed(&self) -> String {
        let (drawn, own) = (Swarm::draw(self.seed).fields(), self.fields());
        let changed = own.into_iter().zip(drawn).filter(|(own, drawn)| own != drawn);
        changed.map(|((name, value), _)| format!(" --set {name}={value}")).collect()
    }

    fn fields(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("commands", self.commands.into()),
            ("kept", self.kept as u64),
            ("memory-mb", self.memory_bytes >> 20),
            ("ssd-mb", (self.ssd_bytes >> 20) as u64),
            ("evicts", self.evicts.into()),
            ("slow-devices", self.slow_devices.into()),
            ("crashes", self.crashes.into()),
            ("hostile", self.hostile as u64),
            ("datagram-clients", self.datagram_clients as u64),
            ("shm-clients", self.shm_clients as u64),
            ("clients", self.clients as u64),
            ("short", self.short.into()),
            ("refuse", self.refuse.into()),
            ("reset", self.reset.into()),
            ("disk-faults", self.disk_faults.into()),
            ("rot", self.rot.into()),
            ("back", self.back.into()),
            ("datagram-faults", self.datagram_faults.into()),
            ("admin", self.admin.into()),
            ("flush", self.flush.into()),
            ("jumps", self.jumps.into()),
            ("wrong", self.wrong.into()),
            ("filler", self.filler.into()),
            ("ends", self.ends.into()),
            ("large", self.large.into()),
            ("hot", self.hot.into()),
            ("domains", self.domains.into()),
            ("refuse-memory", self.refuse_memory.into()),
            ("adaptive", self.adaptive.into()),
            ("resp", self.resp.into()),
            ("resp-alone", self.resp_alone.into()),
            ("users", self.users.into()),
            ("binary", self.binary.into()),
            ("backups", self.backups.into()),
            ("scrubs", self.scrubs.into()),
            ("operates", self.operates.into()),
            ("splits", self.splits.into()),
            ("compresses", self.compresses.into()),
            ("by-age", self.by_age.into()),
            ("slow-us", self.slow_micros.into()),
            ("log-keys", self.log_keys.into()),
            ("read-only", self.read_only.into()),
            ("per-address", self.per_address.into()),
            ("client-rate", self.client_rate.into()),
            ("client-bytes", self.client_bytes.into()),
            ("listener-rate", self.listener_rates.0.into()),
            ("listener-bytes", self.listener_rates.1.into()),
            ("watch", self.watch.into()),
            ("tls", self.tls.into()),
            ("pipeline", self.pipeline as u64),
            ("burst", self.burst as u64),
            ("helps", self.helps.into()),
            ("keys", self.keys as u64),
        ]
    }

    /// Changes a number by its name. The error lists the names.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        match name {
            "commands" => self.commands = value as u32,
            "kept" => self.kept = Kept::ALL[(value as usize).min(2)],
            "memory-mb" => self.memory_bytes = value << 20,
            "ssd-mb" => self.ssd_bytes = (value as usize) << 20,
            "evicts" => self.evicts = value != 0,
            "slow-devices" => self.slow_devices = value != 0,
            "crashes" => self.crashes = value as u32,
            "hostile" => self.hostile = value as usize,
            "datagram-clients" => self.datagram_clients = value as usize,
            "shm-clients" => self.shm_clients = value.min(3) as usize,
            "clients" => self.clients = value as usize,
            "short" => self.short = value as u8,
            "refuse" => self.refuse = value as u8,
            "reset" => self.reset = value as u8,
            "disk-faults" => self.disk_faults = value != 0,
            "back" => self.back = value != 0,
            "rot" => self.rot = value != 0,
            "datagram-faults" => self.datagram_faults = value as u32,
            "admin" => self.admin = value != 0,
            "flush" => self.flush = value != 0,
            "jumps" => self.jumps = value != 0,
            "wrong" => self.wrong = value != 0,
            "filler" => self.filler = value != 0,
            "ends" => self.ends = value as u8,
            "large" => self.large = value as u8,
            "hot" => self.hot = value != 0,
            "domains" => self.domains = value as u16,
            "refuse-memory" => self.refuse_memory = value as u32,
            "adaptive" => self.adaptive = value != 0,
            "resp" => self.resp = value != 0,
            "resp-alone" => self.resp_alone = value != 0,
            "users" => self.users = value != 0,
            "binary" => self.binary = value != 0,
            "backups" => self.backups = value != 0,
            "scrubs" => self.scrubs = value != 0,
            "operates" => self.operates = value != 0,
            "splits" => self.splits = value != 0,
            "compresses" => self.compresses = value != 0,
            "by-age" => self.by_age = value != 0,
            "slow-us" => self.slow_micros = value as u32,
            "log-keys" => self.log_keys = value != 0,
            "read-only" => self.read_only = value != 0,
            "per-address" => self.per_address = value != 0,
            "client-rate" => self.client_rate = value as u32,
            "client-bytes" => self.client_bytes = value as u32,
            "listener-rate" => self.listener_rates.0 = value as u32,
            "listener-bytes" => self.listener_rates.1 = value as u32,
            "watch" => self.watch = value != 0,
            "tls" => self.tls = value.min(3) as u8,
            "pipeline" => self.pipeline = value as usize,
            "burst" => self.burst = value.max(1) as usize,
            "helps" => self.helps = value != 0,
            "keys" => self.keys = value as usize,
            _ => {
                let names: Vec<&str> = self.fields().into_iter().map(|(name, _)| name).collect();
                return Err(format!(
                    "{name}: there is no such number; it has {}",
                    names.join(", ")
                ));
            }
        }
        Ok(())
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
