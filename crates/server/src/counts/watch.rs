//! What an operator watches, as numbers: [`Shared::watch`] fills a [`WatchSnapshot`] from what the
//! workers count, and keeps no worker waiting. Counters run from the start, whatever
//! `stats reset` forgets: who reads takes differences, so that several may read.
//!
//! Knows no format: `stats` and the admin endpoint are written by others.

use crate::counts::clients::ClientWatch;
use crate::counts::counters::Totals;
use crate::counts::cpu_time::{cpu_thread_us, cpu_us};
pub use crate::durable::backup::Ended;
pub use crate::durable::scrub::Scrubbed;
use crate::durable::shared::{Durable, Refused};
use crate::execute::VERSION;
use crate::kernel::Kernel;
use crate::latency::{Latencies, Operation, ROWS, row};
use crate::shared::{Phase, Shared, WorkerShared};
use laneway_policy::histogram::CLASS_COUNT;
use laneway_policy::{Role, SizeClass};
use laneway_store::Stats;
pub use laneway_tier::{Dropped, Evicted, FLUSH_BUCKETS, FlushTimes, Usage};
pub use laneway_tls::{Cause as TlsCause, Told as TlsWatch};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One worker.
#[derive(Debug, Clone)]
pub struct WorkerWatch {
    /// What it serves under the plan in force.
    pub role: Role,
    /// Connections that call it home.
    pub connections: u64,
    /// Requests below the threshold that it served.
    pub requests_small: u64,
    /// Requests at or above it.
    pub requests_large: u64,
    /// Slices of large transfers that it moved.
    pub slices: u64,
    /// Connections that it sent to a large worker.
    pub moved_to_large: u64,
    /// Connections that it sent home.
    pub moved_home: u64,
    /// Requests that it put into another's queue.
    pub handed_over: u64,
    /// Requests that it took from another's queue unasked.
    pub stolen: u64,
    /// How long large replies have waited here for the wire.
    pub tx_backed_up_nanos: u64,
    /// Connections that wait for their turn here, now.
    pub queue_small: u64,
    /// Connections with a slice to move here, now.
    pub queue_large: u64,
    /// Connections on their way here, now.
    pub queue_arriving: u64,
    /// Requests in its queue, now.
    pub queue_jobs: u64,
}

/// The operations that latencies are told of: all others are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationWatch {
    /// `get` and its kin.
    Get,
    /// `set` and its kin.
    Set,
    /// Everything else.
    Other,
}

impl OperationWatch {
    /// All.
    pub const ALL: [OperationWatch; 3] =
        [OperationWatch::Get, OperationWatch::Set, OperationWatch::Other];

    /// As metrics name it.
    pub const fn name(self) -> &'static str {
        ["get", "set", "other"][self as usize]
    }

    const fn of(operation: Operation) -> OperationWatch {
        match operation {
            Operation::Get => OperationWatch::Get,
            Operation::Set => OperationWatch::Set,
            _ => OperationWatch::Other,
        }
    }
}

/// How long requests of one kind took.
#[derive(Debug, Clone)]
pub struct LatencyWatch {
    /// What they were.
    pub operation: OperationWatch,
    /// At or above the threshold.
    pub large: bool,
    /// How long they took.
    pub latencies: Latencies,
}

/// Connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionsWatch {
    /// Open now.
    pub open: u64,
    /// At most.
    pub most: u64,
    /// Ever opened.
    pub total: u64,
    /// Turned away because the most were open.
    pub rejected: u64,
    /// Turned away because their address had as many as it may.
    pub rejected_by_address: u64,
    /// Closed because they were idle for too long.
    pub idle_kicked: u64,
    /// Times that accepting paused for want of descriptors.
    pub paused: u64,
}

/// The durable tier.
#[derive(Debug, Clone, Copy, Default)]
pub struct TierWatch {
    /// Requests that its executor executed.
    pub requests: u64,
    /// Requests that wait for the executor now.
    pub queue: u64,
    /// Items brought into memory.
    pub faults: u64,
    /// Bytes of their values.
    pub fault_bytes: u64,
    /// Large values written to the SSD.
    pub spills: u64,
    /// Writes refused, or taken back.
    pub refused: Refused,
    /// Reads of items that are damaged, or that a device refused to give.
    pub lost: u64,
    /// What was dropped to make room on the SSD.
    pub evicted: Evicted,
    /// How much memory the index of all items takes.
    pub index_bytes: u64,
    /// What is used of the media, was written, and how long flushes took.
    pub usage: Usage,
    /// How long the last start took.
    pub recovery_ms: u64,
    /// Backups that have ended; none where none can be asked for.
    pub backups: Option<Ended>,
    /// Passes over all that is kept; none where none are made.
    pub scrub: Option<Scrubbed>,
}

/// The process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessWatch {
    /// CPU time in user mode.
    pub cpu_user_us: u64,
    /// CPU time in the kernel.
    pub cpu_system_us: u64,
    /// CPU time of the thread that reads this, in either mode.
    pub cpu_reader_us: u64,
    /// Memory that is resident; 0 where the system does not say.
    pub resident_bytes: u64,
}

/// Everything.
#[derive(Debug, Clone)]
pub struct WatchSnapshot {
    /// The server's version.
    pub version: &'static str,
    /// Unix time now.
    pub now_seconds: u64,
    /// Unix time of the start.
    pub started_seconds: u64,
    /// It takes connections, and is not about to stop.
    pub ready: bool,
    /// `lanes`, `minos`...
    pub design: &'static str,
    /// `time-share` or `roles`.
    pub form: &'static str,
    /// Sizes from here on are large, by NUMA domain.
    pub threshold_bytes: Vec<u64>,
    /// Epochs planned.
    pub epochs: u64,
    /// Changes of a worker's role.
    pub role_changes: u64,
    /// The workers, of all NUMA domains.
    pub workers: Vec<WorkerWatch>,
    /// Connections that wait for whichever large worker is free, now.
    pub queue_shared: u64,
    /// The same of requests.
    pub queue_shared_jobs: u64,
    /// Requests by size of their item: the first size of each class, and how many.
    pub sizes: Vec<(u64, u64)>,
    /// How long requests took.
    pub latencies: Vec<LatencyWatch>,
    /// What was counted.
    pub totals: Totals,
    /// Of the keys found by reads, those of items in the small lane.
    pub small_hits: u64,
    /// GETs that the kernel answered.
    pub kernel_hits: u64,
    /// The store, of all domains.
    pub store: Stats,
    /// Items that the background sweep found expired.
    pub swept: u64,
    /// Connections.
    pub connections: ConnectionsWatch,
    /// Clients of streams, by address.
    pub clients: Vec<ClientWatch>,
    /// What each worker saw of datagrams, summed, by name; empty without UDP.
    pub udp: Vec<(&'static str, u64)>,
    /// Memory that messages of datagrams take.
    pub udp_bytes: u64,
    /// TLS, where it is spoken.
    pub tls: Option<TlsWatch>,
    /// The durable tier, if there is one.
    pub tier: Option<TierWatch>,
    /// The process.
    pub process: ProcessWatch,
}

impl<S> Shared<S> {
    /// Read what is there now. May be called by any thread at any time.
    pub fn watch(&self, now_seconds: u32) -> WatchSnapshot {
        let mut workers = Vec::new();
        let mut totals = Totals::default();
        let mut sizes = vec![0; CLASS_COUNT];
        let mut threshold_bytes = Vec::new();
        self.each_domain(|shared| {
            totals.add_totals(&shared.board.since_start());
            threshold_bytes.push(shared.plan.shown.threshold_bytes());
            for (number, worker) in shared.workers.iter().enumerate() {
                workers.push(of_worker(worker, shared.plan.shown.role(number)));
                for (sum, count) in sizes.iter_mut().zip(&worker.sizes) {
                    *sum += count.get();
                }
            }
        });
        let policy = &self.settings.policy;
        WatchSnapshot {
            version: VERSION,
            now_seconds: u64::from(now_seconds),
            started_seconds: u64::from(self.started_seconds),
            ready: self.phase() == Phase::Running,
            design: policy.design.name(),
            form: policy.form().name(),
            threshold_bytes,
            epochs: self.sum(|shared| shared.epochs.load(Relaxed)),
            role_changes: self.sum(|shared| shared.role_changes.load(Relaxed)),
            workers,
            queue_shared: self.sum(|shared| shared.large_queue.len() as u64),
            queue_shared_jobs: self.sum(|shared| shared.large_jobs.len() as u64),
            sizes: SizeClass::all().map(|class| class.first().0).zip(sizes).collect(),
            latencies: by_kind(&self.latencies()),
            small_hits: self.small_hits(&totals),
            totals,
            kernel_hits: self.kernel.get().map_or(0, Kernel::hits_since_start),
            store: self.store_watched(),
            swept: self.sum(|shared| shared.swept.load(Relaxed)),
            connections: self.connections_watch(),
            clients: self.clients(),
            udp: self.udp_watch(),
            udp_bytes: self.sum(|shared| shared.udp.get().map_or(0, |udp| udp.buffers.held())),
            tls: self.settings.tls_told(),
            tier: self.durable.get().map(|durable| of_tier(durable)),
            process: of_process(),
        }
    }

    /// The sum over all domains.
    pub(crate) fn sum(&self, mut of: impl FnMut(&Shared<S>) -> u64) -> u64 {
        let mut sum = 0;
        self.each_domain(|shared| sum += of(shared));
        sum
    }

    pub(crate) fn store_stats(&self) -> Stats {
        let mut sum = self.store.stats();
        self.other_stores().iter().for_each(|store| sum.add(&store.stats()));
        sum
    }

    /// The latencies of all workers since the start, by row of their books.
    pub(crate) fn latencies(&self) -> Vec<Latencies> {
        let mut rows = vec![Latencies::default(); ROWS];
        self.each_domain(|shared| {
            shared.workers.iter().for_each(|worker| worker.book.read_into(&mut rows));
        });
        rows
    }

    /// A hit counts before its lane does, and a reading may come between the two, or between its
    /// own two reads: their difference may be less than an earlier one.
    fn small_hits(&self, totals: &Totals) -> u64 {
        never_less(&self.small_hits_told, totals.get_hits.saturating_sub(totals.get_hits_large))
    }

    /// The same of items that were stored: they are the ids that were given out without those that
    /// were given to an item again, which count one after the other.
    fn store_watched(&self) -> Stats {
        let mut stats = self.store_stats();
        stats.items_total = never_less(&self.items_told, stats.items_total);
        stats
    }

    pub(crate) fn connections_watch(&self) -> ConnectionsWatch {
        let connections = &self.connections;
        ConnectionsWatch {
            open: connections.open.load(Relaxed) as u64,
            most: self.settings.connections_max as u64,
            total: connections.total.load(Relaxed),
            rejected: connections.rejected.load(Relaxed),
            rejected_by_address: connections.rejected_by_address.load(Relaxed),
            idle_kicked: connections.idle_kicked.load(Relaxed),
            paused: connections.paused.load(Relaxed),
        }
    }

    /// What each worker saw of datagrams, summed, by name.
    pub(crate) fn udp_watch(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        self.each_domain(|shared| {
            for worker in shared.udp.get().map_or(&[][..], |udp| &udp.counts) {
                for (place, (name, count)) in worker.each().enumerate() {
                    match sums.get_mut(place) {
                        Some((_, sum)) => *sum += count,
                        None => sums.push((name, count)),
                    }
                }
            }
        });
        sums
    }
}

/// A count, or the most that was told of it, if that is more: who takes a counter that falls for
/// one that began anew would count everything once more.
fn never_less(told: &AtomicU64, now: u64) -> u64 {
    now.max(told.fetch_max(now, Relaxed)) // statistics
}

fn of_worker<S>(worker: &WorkerShared<S>, role: Role) -> WorkerWatch {
    let lanes = &worker.lanes;
    WorkerWatch {
        role,
        connections: worker.connections.load(Relaxed) as u64,
        requests_small: lanes.requests_small.get(),
        requests_large: lanes.requests_large.get(),
        slices: lanes.slices.get(),
        moved_to_large: lanes.moved_to_large.get(),
        moved_home: lanes.moved_home.get(),
        handed_over: lanes.handed_over.get(),
        stolen: lanes.stolen.get(),
        tx_backed_up_nanos: lanes.tx_backed_up_nanos.get(),
        queue_small: lanes.waiting_small.get(),
        queue_large: lanes.waiting_large.get(),
        queue_arriving: worker.mailbox.len() as u64,
        queue_jobs: worker.jobs.len() as u64,
    }
}

fn by_kind(rows: &[Latencies]) -> Vec<LatencyWatch> {
    let mut kinds = Vec::new();
    for operation in OperationWatch::ALL {
        for large in [false, true] {
            let mut latencies = Latencies::default();
            let of_kind = |one: &Operation| OperationWatch::of(*one) == operation;
            for one in Operation::ALL.into_iter().filter(of_kind) {
                latencies.add(&rows[row(one, large)]);
            }
            kinds.push(LatencyWatch { operation, large, latencies });
        }
    }
    kinds
}

/// What the tier tells from counters alone.
pub(crate) fn of_tier(durable: &Durable) -> TierWatch {
    let counts = &durable.counts;
    let read = |count: &AtomicU64| count.load(Relaxed); // statistics
    TierWatch {
        requests: read(&counts.requests),
        queue: durable.jobs.len() as u64,
        faults: read(&counts.faults),
        fault_bytes: read(&counts.fault_bytes),
        spills: read(&counts.spills),
        refused: counts.refused.told(),
        lost: read(&counts.lost),
        evicted: durable.tier.evicted(),
        index_bytes: durable.tier.index_bytes(),
        usage: durable.tier.usage(),
        recovery_ms: durable.recovery.took_ms,
        backups: durable.backups.is_enabled().then(|| durable.backups.ended()),
        scrub: durable.scrubs.told(),
    }
}

fn of_process() -> ProcessWatch {
    let cpu_reader_us = cpu_thread_us(); // first, as it is a part of the process's
    let (cpu_user_us, cpu_system_us) = cpu_us();
    // Elsewhere than on Linux there is no such file, and nothing to tell.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let resident_bytes = kibibytes.unwrap_or(0) << 10;
    ProcessWatch { cpu_user_us, cpu_system_us, cpu_reader_us, resident_bytes }
}
