//! Bugs that can be planted, to see that the whole-server simulation finds them. One at a time, for
//! one thread, and only with the feature `planted`: without it [`is_planted`] is a constant `false`
//! and nothing of this is left in the program.
//!
//! Each stands for a kind of mistake that was made, or nearly made, where two parts meet. The line
//! where it is asked about says what goes wrong. It lies in this crate because store, tier, rdma,
//! transport, tls and server know it.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// A bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug { $(#[doc = $text] $name,)* }

        impl Bug {
            /// All of them, with their names.
            pub const ALL: &[(Bug, &str, &str)] = &[$((Bug::$name, stringify!($name), $text),)*];
        }
    };
}

bugs! {
    EvictedIsAbsent => "an item that memory evicts under a command counts as absent",
    ReplyBeforeDurable => "a write is acknowledged before its group is durable",
    PendingWriteShown => "a worker reads what is not durable yet",
    MissNotAsked => "a worker answers a miss without asking the tier",
    TakeBackForgotten => "a write that the tier refused stays in memory",
    FlushSparesTier => "`flush_all` empties memory and not the tier",
    FlushOvertakes => "`flush_all` does not wait for writes under way",
    ExpiryLost => "an item comes back from the tier without its expiry",
    MillisecondsLost => "the milliseconds of an end are lost when an item comes back from the tier",
    DeleteForgotten => "a deletion is carried out in memory and not in the tier",
    BusyIgnored => "a command overtakes one that waits for a device on the same key",
    LastByteDropped => "the last byte of a large reply is not sent",
    ReplyLost => "a reply that was executed elsewhere is dropped",
    RefusedValueRead => "the value of a refused store is read as commands",
    ConnectionLeaked => "a closed connection stays counted",
    OnceForgotten => "a repeated request over UDP is carried out again",
    WakeUpLost => "whoever hands a request over does not wake its executor",
    PlanStale => "a worker goes on with the plan that it began with",
    SliceUnbounded => "a large transfer is moved in one step",
    SweepUnbounded => "the sweep looks at all slots in one step",
    PinLeaked => "a large value stays pinned after it was sent",
    DraftLeaked => "an unfinished value stays counted when its client vanishes",
    CasIgnored => "`cas` stores whatever the id is",
    ExpiredServed => "an item is served behind its expiry",
    TouchUnwritten => "a new expiry reaches memory and not the tier",
    LogFlushDropped => "the log is not flushed before a write is acknowledged",
    ValueFlushDropped => "the SSD is not flushed before a large value is acknowledged",
    OlderRecordCounts => "a start takes the older of two records of a key",
    TombstoneIgnored => "a start ignores deletions",
    ErrorThenValues => "an error in a part of a multiget is followed by values of the others",
    FlushUncommitted => "a `flush_all` by itself makes no commit due",
    DomainNotWoken => "whoever hands a request to another NUMA domain does not wake its worker",
    JoinedRemotely => "an append to an item of another NUMA domain is joined there in one step",
    WrongLogAccepted => "a store opens with a log that is blank or another store's",
    RoomMadeInline => "the durable executor makes room in the log itself, and waits for devices",
    OlderLogAccepted => "a store opens with a log or an SSD that is older than the other",
    ChecksumIgnored => "a read does not verify checksums",
    DelayedFlushForgotten => "a `flush_all` to come is forgotten at a restart",
    NoreplyAnswered => "a request that asked for no reply is answered",
    TouchOffered => "a `gat` that is offered to other workers reaches memory and not the tier",
    TokenUnwritten => "who wins the token of a stale item is known in memory and not in the tier",
    CutUntold => "a log is cut without a word where a damaged superblock may have vouched for it",
    UntakenShown => "at an interval a value is shown before the tier has taken it",
    JoinCutShort => "an append under short memory ends behind its first piece",
    SlotHeldTwice => "a free slot that a worker keeps is given back as well",
    CasRepeated => "two items of a partition get the same CAS id",
    MissOfRowLost => "an `mg` that is looked up with others and misses is not answered",
    PasswordUnasked => "whoever was refused for want of a password is served from then on",
    ReadOvertakes => "a read overtakes a durable write of its connection that is under way",
    BatchRedone => "a batch that a flush failed for is done again, what is durable of it too",
    BatchOvertakes => "a connection's requests overtake earlier ones that wait for a device",
    EvictionUnwritten => "an evicted item is forgotten in memory and not in the log",
    CutForgotten => "a backup forgets what is replaced before it was copied",
    CutOverwritten => "a record that a backup needs is not kept when its segment is used again",
    CutGivenUp => "a backup is given up although it holds less than it may",
    ScrubberSkips => "a pass of the scrubber leaves out what is last in each of its windows",
    NewerEvicted => "an evicted item's deletion hides what is written of its key afterwards",
    WatchUncompared => "`EXEC` does not compare what is watched with what it was",
    FlushMarkIgnored => "a start ignores `flush_all`",
    ReadOnlyWrites => "a write by a read-only port is carried out",
    WatcherLosesLines => "a watcher loses the event at which its turn ends",
    ReadOnlyToken => "the token of a stale item is won by a read-only port",
    AddressLeaked => "a closed connection stays counted at its address",
    LargeUnnoted => "a large request that is answered is not noted",
    RateIgnored => "migration does not keep to its rate",
    CheckpointUnmade => "a checkpoint that was asked for is answered and not made",
    GrownLogForgets => "a log that has grown does not know its segments from before",
    CompactionForgets => "a compaction drops sparse sort tables with what is current in them",
    SplitAssumed => "a start leaves out what the log has beyond the usual boundary",
    CompressedServed => "what is stored of a compressed value is served in its place",
    LimitUncharged => "what a client asks for is not taken out of what its limit leaves it",
    ListenerUncharged => "what clients ask for is not taken out of what their listener has left",
    HeldForgotten => "a connection that waits because of its client's limit is not let go",
    DecryptedUntold => "what lies decrypted is not told of where a connection comes to a worker",
    GoodbyeUnheard => "a client that ends by TLS and leaves its socket open is not heard",
    SealedTwice => "the byte that was encrypted and not told as written is encrypted again",
    RespAloneForgotten => "who comes by TLS where nothing but RESP is spoken is taken for anybody",
    HandshakeLeaked => "who fails in his handshake stays counted at his address",
    PlaceReused => "a long reply in shared memory is written over one that was not taken yet",
    BellUnraised => "a worker sleeps over clients in shared memory and has none of them ring",
    RungUnheard => "a client in shared memory that was left be rings and is not looked at",
    RegionKept => "a worker that polls nothing keeps the regions of clients that are gone",
    StrangerLetIn => "clients are not asked for the certificates that they must show",
    EndUnkept => "an item whose record has no room for the end that it is given goes on without it",
    LeftOutUnkept => "which CAS ids a start leaves out is not kept",
    BeforeOutlives => "what was before a change is still told behind the change's reply",
    OwnChangeUnseen => "a connection is told what was before a change of its own",
}

#[cfg(feature = "planted")]
mod chosen {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// From now on this thread has this bug, or none.
    pub fn plant(bug: Option<Bug>) {
        CHOSEN.set(bug);
    }

    /// Whether this thread has it.
    #[inline]
    pub fn is_planted(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }
}

#[cfg(not(feature = "planted"))]
mod chosen {
    use super::Bug;

    /// Nobody has any bug.
    #[inline(always)]
    pub const fn is_planted(_: Bug) -> bool {
        false
    }
}

#[cfg(not(feature = "planted"))]
pub use chosen::is_planted;
#[cfg(feature = "planted")]
pub use chosen::{is_planted, plant};
