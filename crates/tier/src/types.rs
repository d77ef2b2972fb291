//! What the whole tier speaks of: settings, errors, what is kept with an item, positions.
//!
//! It knows no medium. Times are the caller's: the tier stores an expiry and never compares it.

use std::{fmt, io};

/// The unit in which the SSD is read and written.
pub const BLOCK_BYTES: usize = 4096;
/// Records in the log begin at multiples of a cache line, so that two groups never share one.
pub const LINE_BYTES: usize = 64;
/// The version of everything the tier writes (docs/disk-format.md).
pub const FORMAT_VERSION: u32 = 2;
/// What is added to it in superblocks of a store with an index in persistent memory. All else in
/// such a store is of [`FORMAT_VERSION`].
pub const HAS_TREE: u32 = 1;
/// The same of one that may have compressed values.
pub const HAS_COMPRESSED: u32 = 2;
/// The same of one whose log has grown beyond what its headers listed.
pub const HAS_LONG_LOG: u32 = 4;
/// The highest version that superblocks may have: a log in front of an index does not grow.
pub const FORMAT_VERSION_MAX: u32 = FORMAT_VERSION + HAS_COMPRESSED + HAS_LONG_LOG;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 1024;
/// The largest value: 1 GiB.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// The highest sequence that may be passed over: what is written afterwards has one behind it.
pub const SEQUENCE_MAX: u64 = 1 << 63;
/// Sequences that are passed over behind the last that is known, where a lost log, or a store that
/// was copied, has given out others since: how many nobody knows. An owner that begins each time
/// some way above all that it finds, for what an interval has lost, may have begun a thousand times
/// meanwhile. No CAS id may come again.
pub const SEQUENCES_LOST_MAX: u64 = 1 << 40;

/// What is kept with a value and handed back as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// The client's flags.
    pub flags: u32,
    /// When the item expires, in the caller's seconds; 0 for never. The tier does not look at it.
    pub expires_at_seconds: u32,
    /// The caller's own marks.
    pub marks: u16,
    /// The caller's own number: what its users compare versions by.
    pub cas: u64,
}

/// Whether an item of this expiry has expired; by 0 seconds nothing has.
pub(crate) fn is_over(expires_at_seconds: u32, now_seconds: u32) -> bool {
    expires_at_seconds != 0 && expires_at_seconds <= now_seconds
}

/// One item as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The value, verified against its crc.
    pub value: Vec<u8>,
    /// What was kept with it.
    pub meta: ItemMeta,
    /// The sequence of the write that made it.
    pub sequence: u64,
}

/// A place in the log that only grows: a segment's generation and an offset in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Which segment; each life of a segment has a generation of its own.
    pub generation: u64,
    /// Bytes from the segment's start.
    pub offset: u32,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is durable.
    Ack,
    /// When it is in the log's buffer. The caller commits at an interval of its choice; a crash
    /// loses what came after the last commit, and never tears an item.
    Interval,
}

/// Which items leave the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrateBy {
    /// The coldest segment's cold items (SplitKV, hotness-aware migration).
    Hotness,
    /// All of the oldest segment.
    Age,
}

/// What becomes of a write for which the SSD has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It is refused: nothing that was acknowledged goes.
    #[default]
    Refuse,
    /// Items that are worth least are dropped for it: the store is a cache.
    Evict,
}

/// What says where everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexKind {
    /// A B+-tree in memory, filled from a checkpoint at a start.
    #[default]
    BTree,
    /// A FAST&FAIR tree in persistent memory: a start finds it as it was.
    Fair,
}

impl IndexKind {
    /// As in `--pm-index`.
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::BTree => "btree",
            IndexKind::Fair => "fair",
        }
    }
}

/// How the tier behaves. The sizes of the media are those of the media handed in.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Values of this size and above go straight to the SSD. 0 sends everything there;
    /// `usize::MAX` sends everything through the log that fits a record.
    pub split_bytes: usize,
    /// Whether that is where the boundary begins, and it moves to where writes cost the media less
    /// time, between 64 bytes and 64 KiB, or what the log takes where that is less. It needs a
    /// clock ([`crate::Tier::lend_clock`]).
    pub split_adapts: bool,
    /// The size of a segment of the log, a multiple of a block. Fixed when a store is made.
    pub segment_bytes: u32,
    /// From this length on values that go straight to the SSD are compressed, if they are shorter
    /// than a piece ([`crate::PIECE_BYTES`]) and it gains an eighth and a block; none without it.
    /// It may change at each opening; what is stored stays as it is.
    pub compress_from: Option<usize>,
    /// How large a sort table becomes.
    pub table_bytes: usize,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Which items migrate; `None`: those that [`Settings::migrates_by`] says.
    pub migrate_by: Option<MigrateBy>,
    /// What happens when the SSD is full. It may change at each opening.
    pub when_full: WhenFull,
    /// Share of the segments in use, in percent, at which migration begins.
    pub migrate_percent: u32,
    /// Bytes of log and of new sort tables, behind the last checkpoint, after which one is due; or
    /// half of that one's own, where they are more.
    pub checkpoint_bytes: u64,
    /// Which index; `None` for the one that the store was made with. Fixed when a store is made: a
    /// new one has a B+-tree in memory if nothing else is said.
    pub index: Option<IndexKind>,
    /// Whether each group ends with its block of the log, so that no block with anything
    /// acknowledged is ever written again: for devices that may lose a block whose writing the
    /// power interrupts. It may change at each opening; what was written before stays as it is.
    pub pad_groups: bool,
    /// Whether a store whose log is lost is opened all the same, as of its last checkpoint.
    pub accept_lost_log: bool,
    /// Whether a thread of the tier migrates and makes checkpoints. Without it the caller calls
    /// [`crate::Tier::maintain`].
    pub background: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            split_bytes: 4096,
            split_adapts: false,
            segment_bytes: 4 << 20,
            compress_from: None,
            table_bytes: 1 << 20,
            durability: Durability::Ack,
            migrate_by: None,
            when_full: WhenFull::Refuse,
            migrate_percent: 75,
            checkpoint_bytes: 256 << 20,
            index: None,
            pad_groups: false,
            accept_lost_log: false,
            background: true,
        }
    }
}

impl Settings {
    /// Which items migrate. Where nothing was said of it, the oldest: on one disk a read of the log
    /// takes as long as one of a sort table, so what stays there has been copied for nothing. A
    /// store that evicts has to know which items are warm.
    pub fn migrates_by(&self) -> MigrateBy {
        self.migrate_by.unwrap_or(match self.when_full {
            WhenFull::Refuse => MigrateBy::Age,
            WhenFull::Evict => MigrateBy::Hotness,
        })
    }
}

/// What went wrong, and where.
#[derive(Debug)]
pub enum Error {
    /// A medium refused.
    Io {
        /// What was being done.
        what: &'static str,
        /// What the medium said.
        source: io::Error,
    },
    /// A flush failed earlier: what is durable is unknown, so writes are refused until the store is
    /// opened again. Reads go on.
    Poisoned(String),
    /// No room in the log, or for the index where persistent memory holds that, and migration
    /// cannot make any.
    PmFull,
    /// No room on the SSD.
    SsdFull {
        /// Blocks that were asked for.
        blocks: u64,
    },
    /// A key that is empty or too long.
    KeyBytes(usize),
    /// A value that is too long.
    ValueBytes(usize),
    /// This item was acknowledged and cannot be read any more.
    Lost {
        /// Its key.
        key: Vec<u8>,
        /// Why.
        why: String,
    },
    /// What the store hangs on is damaged.
    Corrupt(String),
    /// A backup that cannot be made, or was given up.
    Backup(String),
    /// A stream of items that is none, or is damaged.
    Dump(String),
    /// A store of which a part was loaded, and not the rest.
    HalfLoaded(String),
    /// Written by another version of the format.
    Version {
        /// What the medium says.
        found: u32,
    },
    /// Another process has the store open.
    Locked(String),
    /// The medium belongs to another store, or has another shape.
    Mismatch(String),
    /// There is no store where one was to be opened.
    Missing(String),
    /// A setting that cannot work.
    Setting(String),
    /// A backend that this machine does not offer.
    Unavailable(String),
}

/// The tier's results.
pub type Result<T> = std::result::Result<T, Error>;

/// What helps where there is no room.
const WAY_OUT_OF_FULL: &str =
    "delete items, or start with --when-full evict, or with a larger --pm-size or --ssd-size";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::Poisoned(why) => {
                write!(f, "writes are refused until restart: an earlier flush failed: {why}")
            }
            Error::PmFull => write!(
                f,
                "the log is full, or with --pm-index fair the index beside it, and nothing in it \
                 can move to the SSD: {WAY_OUT_OF_FULL}"
            ),
            Error::SsdFull { blocks } => {
                write!(f, "the SSD has no room for {blocks} blocks: {WAY_OUT_OF_FULL}")
            }
            Error::KeyBytes(bytes) => {
                write!(f, "a key of {bytes} bytes: must be from 1 to {KEY_BYTES_MAX}")
            }
            Error::ValueBytes(bytes) => {
                write!(f, "a value of {bytes} bytes: must be at most {VALUE_BYTES_MAX}")
            }
            Error::Lost { key, why } => write!(f, "lost: key {}: {why}", key.escape_ascii()),
            Error::Corrupt(what) => write!(f, "damaged: {what}"),
            Error::Version { found } => write!(
                f,
                "written by format version {found}, which this program does not read, and nothing \
                 was written. Use the version of Laneway that wrote it, or move the items: laneway \
                 dump of that version, then laneway load of this one into a new folder"
            ),
            Error::Locked(path) => write!(f, "{path}: another process has this store open"),
            Error::Mismatch(what) => write!(f, "does not belong together: {what}"),
            Error::Missing(what)
            | Error::Setting(what)
            | Error::Unavailable(what)
            | Error::Backup(what)
            | Error::HalfLoaded(what)
            | Error::Dump(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Names what was being done when a medium refused.
pub(crate) fn doing<T>(what: &'static str, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| Error::Io { what, source })
}
