//! Runs that have found real defects, or in which a rare one is likely, each named for what it
//! was or would be: they are tried first, whatever else is.
//!
//! A change anywhere gives a seed another meaning. So each has a planted bug that is the defect, or
//! stands for it, and the seeds from its first one on are tried until one finds that bug; what is
//! set of these runs makes that likely. `--regressions` fails where none of [`TRIES`] does.

use crate::swarm::Swarm;

/// Seeds that are tried.
pub const TRIES: u64 = 400;

/// A defect that this simulation has found or must find, and how.
pub struct Regression {
    /// What it is.
    pub name: &'static str,
    /// The first seed.
    pub seed: u64,
    /// What is changed of its runs, as it is typed.
    pub sets: &'static str,
    /// The planted bug that is like it.
    pub bug: &'static str,
}

impl Regression {
    /// Its runs.
    pub fn swarms(&self) -> impl Iterator<Item = Swarm> {
        (self.seed..self.seed + TRIES).map(|seed| {
            let mut swarm = Swarm::draw(seed);
            // Their seeds were found before there was another protocol, and users.
            swarm.set_all(
                "resp=0 users=0 binary=0 backups=0 scrubs=0 operates=0 read-only=0 watch=0 \
                 splits=0 tls=0 compresses=0 by-age=0 client-rate=0 client-bytes=0 \
                 listener-rate=0 listener-bytes=0 resp-alone=0 shm-clients=0",
            );
            swarm.set_all(self.sets);
            swarm
        })
    }
}

macro_rules! regressions {
    ($($name:literal: $bug:literal from $seed:literal with $sets:expr;)*) => {
        &[$(Regression { name: $name, seed: $seed, sets: $sets, bug: $bug }),*]
    };
}

/// All of them.
pub const ALL: &[Regression] = regressions! {
    "an error inside a multiget is followed by values":
        "ErrorThenValues" from 1 with "filler=1";
    "a `flush_all` alone is not committed at an interval":
        "FlushUncommitted" from 1 with "kept=2 flush=1 datagram-clients=0";
    "an append under short memory panics":
        "JoinCutShort" from 700 with "kept=0 memory-mb=4 filler=1 crashes=0 large=80 domains=1 \
                                      refuse-memory=6";
    "a read tells of a write that is lost":
        "PendingWriteShown" from 1 with "kept=1 domains=1 keys=2 clients=6 filler=0 crashes=6 \
                                         pipeline=1";
    "a flush comes between a write and its reply":
        "FlushOvertakes" from 1 with "kept=1 flush=1 keys=2 clients=6 filler=0";
    "a worker does not hear of its new role":
        "PlanStale" from 40 with "kept=0 adaptive=1 domains=1";
    "a large value leaves in one step":
        "SliceUnbounded" from 80 with "kept=0 large=128 domains=1 filler=0";
    // A request that has writes before it under way on its connection is not offered.
    "the expiry of a `gat` that another worker takes on is not kept":
        "TouchOffered" from 760 with "kept=1 ends=100 refuse-memory=0 burst=1 helps=0 clients=6 \
                                      pipeline=1 datagram-clients=0 hostile=0 crashes=5";
    "at an interval a value is shown that the tier then refuses":
        "UntakenShown" from 100 with "kept=2 memory-mb=6 ssd-mb=4 large=200 filler=1 \
                                      datagram-clients=0 keys=4 crashes=0";
    "an append to a large item of another NUMA domain is one step":
        "JoinedRemotely" from 190 with "kept=0 domains=2 clients=1 large=80 hostile=0 \
                                        datagram-clients=0";
    "the token of a stale item is won in memory alone":
        "TokenUnwritten" from 1 with "kept=1";
    "a log is cut in silence where a damaged superblock vouched for it":
        "CutUntold" from 5645 with "kept=1 rot=1 crashes=10 large=80 clients=2 datagram-clients=0 \
                                    hostile=0 burst=1 helps=0";
    "a client that was stopped repeats what the server has forgotten":
        "OnceForgotten" from 1 with "datagram-clients=3 datagram-faults=300 jumps=1";
    "a command whose item memory evicts under it is told that there is none":
        "EvictedIsAbsent" from 1 with "kept=1 memory-mb=2 filler=1 crashes=0 hostile=0 keys=6 \
                                       datagram-clients=0";
    "a read tells what was before a change that was acknowledged":
        "BeforeOutlives" from 1 with BESIDE_CHANGES;
    "a connection is told what was before its own change":
        "OwnChangeUnseen" from 1 with BESIDE_CHANGES;
    "what is durable of a batch is done again when a flush fails for the rest":
        "BatchRedone" from 1 with "kept=1 disk-faults=1";
    "what was evicted comes back, or another's bytes in its place":
        "EvictionUnwritten" from 1 with "kept=1 evicts=1 ssd-mb=1 large=80 crashes=6";
    "a read that looks at no checksum serves what has rotted":
        "ChecksumIgnored" from 1 with "kept=1 rot=1 crashes=6";
    "a backup lacks what was replaced while it was made":
        "CutForgotten" from 1 with "kept=1 backups=1 crashes=1 keys=24";
    "a backup lacks a record whose segment was used again before it was copied":
        "CutOverwritten" from 1 with "kept=1 backups=1 commands=5000 keys=24 large=0 filler=0 \
                                      crashes=0 hostile=0 datagram-clients=0 disk-faults=0 rot=0 \
                                      evicts=0";
    "a pass over the media leaves a flipped bit out":
        "ScrubberSkips" from 1 with "kept=1 scrubs=1 keys=24 disk-faults=0 rot=0";
    "migration goes on at once whatever its rate is":
        "RateIgnored" from 1 with "kept=1 operates=1 commands=3000 memory-mb=24 keys=24 large=0 \
                                   ends=0 filler=0 crashes=0 disk-faults=0 rot=0 evicts=0";
    "a write is hidden by the eviction of what was there before":
        "NewerEvicted" from 1 with "kept=1 evicts=1 ssd-mb=1 large=80 crashes=1";
    "a long value in the log is taken for one on the SSD":
        "SplitAssumed" from 1 with "kept=1 splits=1 crashes=8 large=80 keys=24 evicts=0 \
                                    disk-faults=0 rot=0";
    "an SSD that is older than its log is opened":
        "OlderLogAccepted" from 1 with "kept=1 crashes=10 hostile=0 datagram-clients=0";
    "a watcher misses events that nobody tells it of":
        "WatcherLosesLines" from 1 with "watch=1 users=0 commands=3000 reset=0";
    "a connection stands still with requests that lie decrypted":
        "DecryptedUntold" from 1 with "tls=1 clients=6 pipeline=16";
    "a client that ends by TLS stays open for ever":
        "GoodbyeUnheard" from 1 with "tls=1 clients=6 reset=0";
    "a reply to a slow reader has a byte twice":
        "SealedTwice" from 1 with "tls=1 clients=6 large=80 reset=0";
    "who fails in his handshake stays counted at his address":
        "HandshakeLeaked" from 1 with "tls=1 hostile=4 per-address=1";
    "who comes by TLS where nothing but RESP is spoken is taken for anybody":
        "RespAloneForgotten" from 1 with "tls=1 resp=1 resp-alone=1 clients=6 hostile=0";
    "a client without a good certificate is served":
        "StrangerLetIn" from 1 with "tls=3 hostile=4";
    "a `flush_all` to come is forgotten at a restart":
        "DelayedFlushForgotten" from 1 with "kept=1 flush=1 admin=1 crashes=8 keys=12";
    // The power has to fail before anything since the start is durable: in few lives it does.
    "a CAS id that an interval has lost is given again":
        "LeftOutUnkept" from 1 with "kept=2 crashes=100 commands=6000 slow-devices=1 ssd-mb=2 \
                                     keys=3 clients=3 pipeline=16 large=0 ends=0 filler=0 \
                                     hostile=0 datagram-clients=0 disk-faults=0 rot=0 evicts=0";
    "a client has more than its limit":
        "LimitUncharged" from 1 with LIMITED;
    "the clients of a listener have more than its limit":
        "ListenerUncharged" from 1 with LIMITED_BY_LISTENER;
    "a client that is over its limit waits for ever":
        "HeldForgotten" from 1 with LIMITED;
    "of two long replies in shared memory the second is read for the first":
        "PlaceReused" from 1 with IN_MEMORY;
    "a worker sleeps while a request lies in shared memory":
        "BellUnraised" from 1 with IN_MEMORY;
    "a client in shared memory that was quiet for long is never answered again":
        "RungUnheard" from 1 with IN_MEMORY;
    "the memory of a client that is gone stays mapped":
        "RegionKept" from 1 with IN_MEMORY;
};

/// Two clients who ask for more than a listener lets through.
const LIMITED_BY_LISTENER: &str = "\
    listener-rate=2000 clients=2 commands=12000 pipeline=16 kept=0 crashes=0 hostile=0 \
    datagram-clients=0 jumps=0 reset=0";

/// Clients in shared memory, and one other, ask for long values.
const IN_MEMORY: &str = "\
    shm-clients=3 clients=1 kept=0 crashes=0 hostile=0 datagram-clients=0 large=128 filler=0 \
    refuse-memory=0 jumps=0";

/// Clients that read two keys and write them all the time, while each write takes long.
const BESIDE_CHANGES: &str = "\
    kept=1 slow-devices=1 keys=2 clients=6 pipeline=8 burst=4 large=0 ends=0 filler=0 crashes=0 \
    hostile=0 datagram-clients=0";

/// One client that asks for more than it may, for some seconds.
const LIMITED: &str = "\
    client-rate=2000 clients=1 commands=12000 pipeline=16 kept=0 crashes=0 hostile=0 \
    datagram-clients=0 jumps=0 reset=0";
