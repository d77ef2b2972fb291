//! `stats`: which family was asked for, and how each is written.
//!
//! Whoever answers hands the writer of a family what it tells: a plain snapshot of the state that
//! the workers share, or the readings themselves. The writers know names, order and units, and
//! nothing of where the numbers come from. Families of memcached's carry its names in its order;
//! what has no counterpart here is a constant that docs/protocol.md lists. `lanes`, `latency`,
//! `buckets`, `large`, `clients`, `topology`, `udp`, `kernel`, `backup`, `hotkeys` and `balance`
//! are our own.

pub mod answer;

mod backup;
mod clients;
mod dump;
mod general;
mod hot;
mod kernel;
mod lanes;
mod large;
mod latency;
mod lines;
mod rdma;
mod samples;
mod settings;
mod shm;
mod slabs;
mod tier;
mod tls;
mod topology;
mod udp;

pub use backup::write_backup;
pub use clients::write_clients;
pub use dump::{BAD_CLASS, Form, asked_dump};
pub use general::{GeneralSnapshot, write_general};
pub use hot::{write_balance, write_hot_keys};
pub use kernel::{BypassSnapshot, KernelLaneSnapshot, KernelSnapshot, write_kernel};
pub use lanes::{DomainLanes, LanesSnapshot, WorkerLane, write_lanes};
pub use large::{LargeSnapshot, operation_of, write_large};
pub use latency::{write_buckets, write_latency};
pub use rdma::write_rdma;
pub use samples::{SampledKey, SamplesSnapshot, write_samples};
pub use settings::{SettingsSnapshot, write_settings};
pub use shm::write_shm;
pub use slabs::{write_items, write_sizes, write_slabs};
pub use topology::{
    ConnectionSnapshot, TopologySnapshot, WorkerPlace, write_connection, write_topology,
};

pub use tier::{TierSnapshot, write_tier};
pub use tls::write_tls;
pub use udp::{UdpSnapshot, kernel_counts, write_udp};

use dump::CLASSES_MAX;
use laneway_store::ItemMeta;
use laneway_wire::reply::{END, ERROR};

/// What a `stats` line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// `stats`: [`write_general`].
    General,
    /// `stats settings`: [`write_settings`].
    Settings,
    /// `stats items`: [`write_items`].
    Items,
    /// `stats slabs`: [`write_slabs`].
    Slabs,
    /// `stats sizes`: [`write_sizes`].
    Sizes,
    /// `stats conns`: [`write_connection`] for each.
    Connections,
    /// `stats reset`: count from here.
    Reset,
    /// `stats detail on`, `stats detail off`: note it for `stats settings`.
    Detail(bool),
    /// `stats lanes`: [`write_lanes`].
    Lanes,
    /// `stats latency`: [`write_latency`].
    Latency,
    /// `stats buckets`: [`write_buckets`].
    Buckets,
    /// `stats large`: [`write_large`].
    Large,
    /// `stats topology`: [`write_topology`].
    Topology,
    /// `stats clients`: [`write_clients`].
    Clients,
    /// `stats udp`: [`write_udp`].
    Udp,
    /// `stats shm`: [`write_shm`].
    Shm,
    /// `stats rdma`: [`write_rdma`].
    Rdma,
    /// `stats tls`: [`write_tls`].
    Tls,
    /// `stats tier`: [`write_tier`].
    Tier,
    /// `stats backup`: [`write_backup`].
    Backup,
    /// `stats kernel`: [`write_kernel`].
    Kernel,
    /// `stats hotkeys`: [`write_hot_keys`].
    HotKeys,
    /// `stats balance`: [`write_balance`].
    Balance,
    /// `lru_crawler metadump` and `mgdump`: [`Form::put`] for each.
    Dump {
        /// How each item is told.
        form: Form,
        /// A bit for each size class; 0: what was asked for is none.
        classes: u64,
    },
    /// `stats cachedump`: [`write_item`] for each.
    Cachedump {
        /// Number of the size class.
        class: u32,
        /// Items at most; 0 for all.
        limit: u32,
    },
}

const DETAIL_USAGE: &[u8] = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const ILLEGAL_CLASS: &[u8] = b"CLIENT_ERROR Illegal slab id\r\n";
const SIZES_ENABLED: &[u8] = b"STAT sizes_status enabled\r\nEND\r\n";
const SIZES_ALWAYS: &[u8] =
    b"STAT sizes_status error\r\nSTAT sizes_error sizes are always counted\r\nEND\r\n";

/// Read the words behind `stats`. `Err` is a reply that needs no state.
pub fn question(words: &[u8]) -> Result<Question, &'static [u8]> {
    let mut words = words.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let Some(family) = words.next() else { return Ok(Question::General) };
    Ok(match family {
        b"settings" => Question::Settings,
        b"items" => Question::Items,
        b"slabs" => Question::Slabs,
        b"sizes" => Question::Sizes,
        b"conns" => Question::Connections,
        b"reset" => Question::Reset,
        b"lanes" => Question::Lanes,
        b"latency" => Question::Latency,
        b"buckets" => Question::Buckets,
        b"large" => Question::Large,
        b"topology" => Question::Topology,
        b"clients" => Question::Clients,
        b"udp" => Question::Udp,
        b"shm" => Question::Shm,
        b"rdma" => Question::Rdma,
        b"tls" => Question::Tls,
        b"tier" => Question::Tier,
        b"backup" => Question::Backup,
        b"kernel" => Question::Kernel,
        b"hotkeys" => Question::HotKeys,
        b"balance" => Question::Balance,
        b"detail" => match words.next() {
            Some(b"on") => Question::Detail(true),
            Some(b"off") => Question::Detail(false),
            Some(b"dump") => return Err(END), // no prefix is counted: an empty list
            _ => return Err(DETAIL_USAGE),
        },
        b"sizes_enable" => return Err(SIZES_ENABLED),
        b"sizes_disable" => return Err(SIZES_ALWAYS),
        b"cachedump" => return cachedump(words.next(), words.next()),
        _ => return Err(ERROR),
    })
}

/// `stats cachedump CLASS LIMIT`; a limit of 0 is none.
fn cachedump(class: Option<&[u8]>, limit: Option<&[u8]>) -> Result<Question, &'static [u8]> {
    let (Some(class), Some(limit)) = (class, limit) else { return Err(BAD_LINE) };
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
    let (Some(class), Some(limit)) = (number(class), number(limit)) else { return Err(BAD_FORMAT) };
    if class >= CLASSES_MAX {
        return Err(ILLEGAL_CLASS);
    }
    Ok(Question::Cachedump { class, limit })
}

/// Whether a key can stand in a line of text. One that came in base64, or by another protocol, may
/// have what ends the word, the line or all of an answer.
pub fn is_of_text(key: &[u8]) -> bool {
    !key.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r' | b' '))
}

/// A line of `stats cachedump`: key, bytes of the value, and unix time of its end, 0 for none.
pub fn write_item(key: &[u8], meta: &ItemMeta, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(key);
    out.extend_from_slice(
        format!(" [{} b; {} s]\r\n", meta.value_bytes, meta.expires.seconds_up()).as_bytes(),
    );
}

#[cfg(test)]
mod tests;
