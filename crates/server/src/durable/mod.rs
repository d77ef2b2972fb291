//! The durable store behind the server (`--data-dir`): memory is a cache over it.
//!
//! One *durable executor* ([`executor`]) executes every request that changes an item, and every
//! read of an item that is not in memory. So all changes of the server have one order, and the
//! executor writes to the tier what it finds in memory after a change. A worker serves hits by
//! itself. It first asks [`pending_writes`] whether the key is being changed, and on a miss whether
//! the tier holds it; if so, it hands the request over. A reply waits until all that it reports is
//! durable; it waits in a slot of its connection's output, and no worker waits. (SplitKV,
//! HotStorage'20, has the two write paths; the order of publishing and acknowledging is ours.)
//!
//! In the order of use: [`pending_writes`], [`shared`], [`walks`] (what workers see);
//! [`shared_executor`] (its lock, and which thread steps it); [`executor`] (its step:
//! it takes results of devices and new jobs), `turns` (whose request is next), [`admit`] (going on
//! with it, request by request;
//! [`resp`] where it is RESP, [`at_once`] where several keys change in one moment, [`mod@binary`]
//! where it is the binary protocol), [`ready`] (may it be executed?),
//! [`fetch`] (its item is asked for), `ends` (or
//! only when it ends), `tell_before` (or a read is answered with what was there before a change
//! under way: `before`, `note_before`), [`perform`] (executing one), [`change`] (what it
//! changed goes to the tier), [`aside`] (or waits until there is room), [`reply`] (it leaves
//! once it is true); then, as what was waited for ends: [`fault`]
//! (an item comes into memory), [`resume`] (a change is kept), [`settle`] (a group is durable).
//! Beside all of it [`copier`] makes the backups that are asked of [`backup`], and [`scrubber`]
//! reads everything now and then and verifies it ([`scrub`] tells of that). [`hands`] wait for
//! devices, and `trouble` logs it where those fail. [`state`] has the executor's state; by
//! [`capture`] it learns what a command changed. A start of the server leaves CAS ids out
//! ([`cas_ids`]).
//!
//! The executor's threads may share a CPU with workers, whose hits come first: a step is short,
//! long values are copied by stretches, and between steps the workers may run.
//!
//! It knows no socket; time comes with every step. Seconds are unix seconds.

pub mod admit;
pub mod aside;
pub mod at_once;
pub mod backup;
mod before;
pub mod binary;
pub mod capture;
pub mod cas_ids;
pub mod change;
pub mod copier;
mod ends;
pub mod executor;
pub mod fault;
pub mod fetch;
pub mod hands;
mod note_before;
pub mod pending_writes;
pub mod perform;
pub mod ready;
pub mod reply;
pub mod resp;
pub mod resume;
pub mod scrub;
pub mod scrubber;
pub mod settle;
pub mod shared;
pub mod shared_executor;
pub mod state;
mod sweep;
pub mod task;
mod tell_before;
mod trouble;
mod turns;
pub mod walks;

use self::copier::BackupSettings;
use self::scrub::ScrubSettings;
use laneway_tier::DirectorySettings;
use std::time::Duration;

/// Where items are kept durably, and how soon.
#[derive(Debug, Clone)]
pub struct DurableSettings {
    /// The store.
    pub directory: DirectorySettings,
    /// Writes are made durable this often; without it before they are acknowledged.
    pub interval: Option<Duration>,
    /// Reads that wait for a device at a time.
    pub read_threads: usize,
    /// Where backups go, if clients may ask for them.
    pub backup: Option<BackupSettings>,
    /// Bytes that migration writes a second, 0 for as many as it can.
    pub migrate_rate: u64,
    /// How often everything is read and verified, if it is.
    pub scrub: Option<ScrubSettings>,
}
