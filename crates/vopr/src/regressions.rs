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
    /// What is changed of its runs.
    pub sets: &'static [(&'static str, u64)],
    /// The planted bug that is like it.
    pub bug: &'static str,
}

impl Regression {
    /// Its runs.
    pub fn swarms(&self) -> impl Iterator<Item = Swarm> {
        (self.seed..self.seed + TRIES).map(|seed| {
            let mut swarm = Swarm::draw(seed);
            // Their seeds were found before there was another protocol, and users.
            (swarm.resp, swarm.users, swarm.binary) = (false, false, false);
            (swarm.backups, swarm.scrubs, swarm.operates) = (false, false, false);
            (swarm.read_only, swarm.watch, swarm.splits) = (false, false, false);
            (swarm.tls, swarm.compresses, swarm.by_age) = (0, false, false);
            (swarm.client_rate, swarm.client_bytes) = (0, 0);
            (swarm.listener_rates, swarm.resp_alone) = ((0, 0), false);
            swarm.shm_clients = 0;
            for (name, value) in self.sets {
                swarm.set(name, *value).expect("a number that a run has");
            }
            swarm
        })
    }
}

/// All of them.
pub const ALL: &[Regression] = &[
    Regression {
        name: "an error inside a multiget is followed by values",
        seed: 1,
        sets: &[("filler", 1)],
        bug: "ErrorThenValues",
    },
    Regression {
        name: "a `flush_all` alone is not committed at an interval",
        seed: 1,
        sets: &[("kept", 2), ("flush", 1), ("datagram-clients", 0)],
        bug: "FlushUncommitted",
    },
    Regression {
        name: "an append under short memory panics",
        seed: 700,
        sets: &[
            ("kept", 0),
            ("memory-mb", 4),
            ("filler", 1),
            ("crashes", 0),
            ("large", 80),
            ("domains", 1),
            ("refuse-memory", 6),
        ],
        bug: "JoinCutShort",
    },
    Regression {
        name: "a read tells of a write that is lost",
        seed: 1,
        sets: &[
            ("kept", 1),
            ("domains", 1),
            ("keys", 2),
            ("clients", 6),
            ("filler", 0),
            ("crashes", 6),
            ("pipeline", 1),
        ],
        bug: "PendingWriteShown",
    },
    Regression {
        name: "a flush comes between a write and its reply",
        seed: 1,
        sets: &[("kept", 1), ("flush", 1), ("keys", 2), ("clients", 6), ("filler", 0)],
        bug: "FlushOvertakes",
    },
    Regression {
        name: "a worker does not hear of its new role",
        seed: 40,
        sets: &[("kept", 0), ("adaptive", 1), ("domains", 1)],
        bug: "PlanStale",
    },
    Regression {
        name: "a large value leaves in one step",
        seed: 80,
        sets: &[("kept", 0), ("large", 128), ("domains", 1), ("filler", 0)],
        bug: "SliceUnbounded",
    },
    Regression {
        name: "the expiry of a `gat` that another worker takes on is not kept",
        seed: 760,
        // A request that has writes before it under way on its connection is not offered.
        sets: &[
            ("kept", 1),
            ("ends", 100),
            ("refuse-memory", 0),
            ("burst", 1),
            ("helps", 0),
            ("clients", 6),
            ("pipeline", 1),
            ("datagram-clients", 0),
            ("hostile", 0),
            ("crashes", 5),
        ],
        bug: "TouchOffered",
    },
    Regression {
        name: "at an interval a value is shown that the tier then refuses",
        seed: 100,
        sets: &[
            ("kept", 2),
            ("memory-mb", 6),
            ("ssd-mb", 4),
            ("large", 200),
            ("filler", 1),
            ("datagram-clients", 0),
            ("keys", 4),
            ("crashes", 0),
        ],
        bug: "UntakenShown",
    },
    Regression {
        name: "an append to a large item of another NUMA domain is one step",
        seed: 190,
        sets: &[
            ("kept", 0),
            ("domains", 2),
            ("clients", 1),
            ("large", 80),
            ("hostile", 0),
            ("datagram-clients", 0),
        ],
        bug: "JoinedRemotely",
    },
    Regression {
        name: "the token of a stale item is won in memory alone",
        seed: 1,
        sets: &[("kept", 1)],
        bug: "TokenUnwritten",
    },
    Regression {
        name: "a log is cut in silence where a damaged superblock vouched for it",
        seed: 5645,
        sets: &[
            ("kept", 1),
            ("rot", 1),
            ("crashes", 10),
            ("large", 80),
            ("clients", 2),
            ("datagram-clients", 0),
            ("hostile", 0),
            ("burst", 1),
            ("helps", 0),
        ],
        bug: "CutUntold",
    },
    Regression {
        name: "a client that was stopped repeats what the server has forgotten",
        seed: 1,
        sets: &[("datagram-clients", 3), ("datagram-faults", 300), ("jumps", 1)],
        bug: "OnceForgotten",
    },
    Regression {
        name: "a command whose item memory evicts under it is told that there is none",
        seed: 1,
        sets: &[
            ("kept", 1),
            ("memory-mb", 2),
            ("filler", 1),
            ("crashes", 0),
            ("hostile", 0),
            ("keys", 6),
            ("datagram-clients", 0),
        ],
        bug: "EvictedIsAbsent",
    },
    Regression {
        name: "what is durable of a batch is done again when a flush fails for the rest",
        seed: 1,
        sets: &[("kept", 1), ("disk-faults", 1)],
        bug: "BatchRedone",
    },
    Regression {
        name: "what was evicted comes back, or another's bytes in its place",
        seed: 1,
        sets: &[("kept", 1), ("evicts", 1), ("ssd-mb", 1), ("large", 80), ("crashes", 6)],
        bug: "EvictionUnwritten",
    },
    Regression {
        name: "a read that looks at no checksum serves what has rotted",
        seed: 1,
        sets: &[("kept", 1), ("rot", 1), ("crashes", 6)],
        bug: "ChecksumIgnored",
    },
    Regression {
        name: "a backup lacks what was replaced while it was made",
        seed: 1,
        sets: &[("kept", 1), ("backups", 1), ("crashes", 1), ("keys", 24)],
        bug: "CutForgotten",
    },
    Regression {
        name: "a backup lacks a record whose segment was used again before it was copied",
        seed: 1,
        sets: &[
            ("kept", 1),
            ("backups", 1),
            ("commands", 5000),
            ("keys", 24),
            ("large", 0),
            ("filler", 0),
            ("crashes", 0),
            ("hostile", 0),
            ("datagram-clients", 0),
            ("disk-faults", 0),
            ("rot", 0),
            ("evicts", 0),
        ],
        bug: "CutOverwritten",
    },
    Regression {
        name: "a backup holds an empty item in the place of one that was evicted",
        seed: 41160,
        sets: &[
            ("kept", 2),
            ("by-age", 1),
            ("users", 1),
            ("backups", 1),
            ("evicts", 1),
            ("ssd-mb", 1),
            ("disk-faults", 1),
            ("hostile", 0),
            ("datagram-clients", 0),
        ],
        bug: "DeletionCopied",
    },
    Regression {
        name: "a pass over the media leaves a flipped bit out",
        seed: 1,
        sets: &[("kept", 1), ("scrubs", 1), ("keys", 24), ("disk-faults", 0), ("rot", 0)],
        bug: "ScrubberSkips",
    },
    Regression {
        name: "migration goes on at once whatever its rate is",
        seed: 1,
        sets: &[
            ("kept", 1),
            ("operates", 1),
            ("commands", 3000),
            ("memory-mb", 24),
            ("keys", 24),
            ("large", 0),
            ("ends", 0),
            ("filler", 0),
            ("crashes", 0),
            ("disk-faults", 0),
            ("rot", 0),
            ("evicts", 0),
        ],
        bug: "RateIgnored",
    },
    Regression {
        name: "a write is hidden by the eviction of what was there before",
        seed: 1,
        sets: &[("kept", 1), ("evicts", 1), ("ssd-mb", 1), ("large", 80), ("crashes", 1)],
        bug: "NewerEvicted",
    },
    Regression {
        name: "a long value in the log is taken for one on the SSD",
        seed: 1,
        sets: &[
            ("kept", 1),
            ("splits", 1),
            ("crashes", 8),
            ("large", 80),
            ("keys", 24),
            ("evicts", 0),
            ("disk-faults", 0),
            ("rot", 0),
        ],
        bug: "SplitAssumed",
    },
    Regression {
        name: "an SSD that is older than its log is opened",
        seed: 1,
        sets: &[("kept", 1), ("crashes", 10), ("hostile", 0), ("datagram-clients", 0)],
        bug: "OlderLogAccepted",
    },
    Regression {
        name: "a watcher misses events that nobody tells it of",
        seed: 1,
        sets: &[("watch", 1), ("users", 0), ("commands", 3000), ("reset", 0)],
        bug: "WatcherLosesLines",
    },
    Regression {
        name: "a connection stands still with requests that lie decrypted",
        seed: 1,
        sets: &[("tls", 1), ("clients", 6), ("pipeline", 16)],
        bug: "DecryptedUntold",
    },
    Regression {
        name: "a client that ends by TLS stays open for ever",
        seed: 1,
        sets: &[("tls", 1), ("clients", 6), ("reset", 0)],
        bug: "GoodbyeUnheard",
    },
    Regression {
        name: "a reply to a slow reader has a byte twice",
        seed: 1,
        sets: &[("tls", 1), ("clients", 6), ("large", 80), ("reset", 0)],
        bug: "SealedTwice",
    },
    Regression {
        name: "who fails in his handshake stays counted at his address",
        seed: 1,
        sets: &[("tls", 1), ("hostile", 4), ("per-address", 1)],
        bug: "HandshakeLeaked",
    },
    Regression {
        name: "who comes by TLS where nothing but RESP is spoken is taken for anybody",
        seed: 1,
        sets: &[("tls", 1), ("resp", 1), ("resp-alone", 1), ("clients", 6), ("hostile", 0)],
        bug: "RespAloneForgotten",
    },
    Regression {
        name: "a client without a good certificate is served",
        seed: 1,
        sets: &[("tls", 3), ("hostile", 4)],
        bug: "StrangerLetIn",
    },
    Regression {
        name: "a `flush_all` to come is forgotten at a restart",
        seed: 1,
        sets: &[("kept", 1), ("flush", 1), ("admin", 1), ("crashes", 8), ("keys", 12)],
        bug: "DelayedFlushForgotten",
    },
    Regression {
        name: "a CAS id that an interval has lost is given again",
        seed: 1,
        // The power has to fail before anything since the start is durable: in few lives it does.
        sets: &[
            ("kept", 2),
            ("crashes", 100),
            ("commands", 6000),
            ("slow-devices", 1),
            ("ssd-mb", 2),
            ("keys", 3),
            ("clients", 3),
            ("pipeline", 16),
            ("large", 0),
            ("ends", 0),
            ("filler", 0),
            ("hostile", 0),
            ("datagram-clients", 0),
            ("disk-faults", 0),
            ("rot", 0),
            ("evicts", 0),
        ],
        bug: "LeftOutUnkept",
    },
    Regression {
        name: "a client has more than its limit",
        seed: 1,
        sets: LIMITED,
        bug: "LimitUncharged",
    },
    Regression {
        name: "the clients of a listener have more than its limit",
        seed: 1,
        sets: LIMITED_BY_LISTENER,
        bug: "ListenerUncharged",
    },
    Regression {
        name: "a client that is over its limit waits for ever",
        seed: 1,
        sets: LIMITED,
        bug: "HeldForgotten",
    },
    Regression {
        name: "of two long replies in shared memory the second is read for the first",
        seed: 1,
        sets: IN_MEMORY,
        bug: "PlaceReused",
    },
    Regression {
        name: "a worker sleeps while a request lies in shared memory",
        seed: 1,
        sets: IN_MEMORY,
        bug: "BellUnraised",
    },
    Regression {
        name: "a client in shared memory that was quiet for long is never answered again",
        seed: 1,
        sets: IN_MEMORY,
        bug: "RungUnheard",
    },
    Regression {
        name: "the memory of a client that is gone stays mapped",
        seed: 1,
        sets: IN_MEMORY,
        bug: "RegionKept",
    },
];

/// Two clients who ask for more than a listener lets through.
const LIMITED_BY_LISTENER: &[(&str, u64)] = &[
    ("listener-rate", 2000),
    ("clients", 2),
    ("commands", 12_000),
    ("pipeline", 16),
    ("kept", 0),
    ("crashes", 0),
    ("hostile", 0),
    ("datagram-clients", 0),
    ("jumps", 0),
    ("reset", 0),
];

/// Clients in shared memory, and one other, ask for long values.
const IN_MEMORY: &[(&str, u64)] = &[
    ("shm-clients", 3),
    ("clients", 1),
    ("kept", 0),
    ("crashes", 0),
    ("hostile", 0),
    ("datagram-clients", 0),
    ("large", 128),
    ("filler", 0),
    ("refuse-memory", 0),
    ("jumps", 0),
];

/// One client that asks for more than it may, for some seconds.
const LIMITED: &[(&str, u64)] = &[
    ("client-rate", 2000),
    ("clients", 1),
    ("commands", 12_000),
    ("pipeline", 16),
    ("kept", 0),
    ("crashes", 0),
    ("hostile", 0),
    ("datagram-clients", 0),
    ("jumps", 0),
    ("reset", 0),
];
