//! A server at work, with what is around it.

use crate::backup::Backups;
use crate::datagrams::DatagramClient;
use crate::devices::Devices;
use crate::drops::Drops;
use crate::hostile::Hostile;
use crate::operator::Operator;
use crate::scrub::Scrubs;
use crate::shm::ShmClients;
use crate::watcher::Watcher;
use laneway_rig::Rig;
use laneway_tier::Tier;
use std::sync::Arc;

/// Rounds of everybody after which a server at rest has answered everything.
pub const ROUNDS_MAX: u64 = 60_000;

/// A server at work.
pub struct Life {
    /// Workers, durable executor, network and clock.
    pub rig: Rig,
    /// What survives it, where anything does.
    pub tier: Option<Arc<Tier>>,
    /// What the durable executor waits for.
    pub devices: Option<Devices>,
    /// What it has dropped to make room, where it does.
    pub drops: Option<Drops>,
    /// Who makes backups, and who asks for them.
    pub backups: Option<Backups>,
    /// Who verifies what is kept.
    pub scrubs: Option<Scrubs>,
    /// Who operates it.
    pub operator: Option<Operator>,
    /// Who watches the event log.
    pub watcher: Option<Watcher>,
    /// Clients over UDP.
    pub datagrams: Vec<DatagramClient>,
    /// Clients in shared memory, where there are any.
    pub shm: Option<ShmClients>,
    /// Clients that misbehave.
    pub hostile: Vec<Hostile>,
    /// Until when each worker sleeps, unless something comes for it.
    pub asleep_until_nanos: Vec<u64>,
    /// When it began.
    pub began_nanos: u64,
    /// When the commit that is under way was asked for.
    pub commit_moment: u64,
    /// The last moment at which everything that was acknowledged was durable.
    pub durable_moment: u64,
}
