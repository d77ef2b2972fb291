//! Answers to `stats`: snapshots of what the workers share, for the writers in [`crate::stats`].

use crate::counters::Totals;
use crate::hot::board::HotKeyCard;
use crate::hot::window::max_ave_ratio;
use crate::kernel::Kernel;
use crate::latency::{self, Operation};
use crate::receive::REQUESTS_PER_TURN;
use crate::shared::{Shared, WorkerShared, lock};
use crate::stats::{
    self, BalanceSnapshot, ConnectionSnapshot, GeneralSnapshot, HotKeyLine, HotKeysSnapshot,
    LanesSnapshot, LatencyRow, LatencySnapshot, Question, Role, SettingsSnapshot, SlotsSnapshot,
    TopologySnapshot, UdpSnapshot, WorkerLane, WorkerPlace,
};
use laneway_policy as policy;
use laneway_policy::WorkerId;
use laneway_store::ItemMeta;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::sync::atomic::Ordering::Relaxed;

/// Descriptors of the process itself beside listeners and connections: standard streams, and an
/// epoll set and an eventfd per worker.
const DESCRIPTORS_STANDARD: u64 = 3;
const DESCRIPTORS_PER_WORKER: u64 = 2;

impl<S> Shared<S> {
    /// The reply to a `stats` question.
    pub fn answer(&self, question: &Question, now_seconds: u32, now_nanos: u64) -> Vec<u8> {
        let mut out = Vec::new();
        match question {
            Question::General => stats::write_general(&self.general(now_seconds), &mut out),
            Question::Settings => stats::write_settings(&self.settings_snapshot(), &mut out),
            Question::Items => stats::write_items(&self.store.class_stats(), &mut out),
            Question::Slabs => {
                stats::write_slabs(&self.store.class_stats(), &self.store.stats(), &mut out);
            }
            Question::Sizes => stats::write_sizes(&self.store.class_stats(), &mut out),
            Question::Connections => {
                stats::write_connections(&self.connection_snapshots(now_seconds), &mut out);
            }
            Question::Reset => {
                self.board.reset();
                if let Some(kernel) = self.kernel.get() {
                    kernel.reset();
                }
                self.workers.iter().for_each(|worker| worker.book.reset());
                self.hot.iter().for_each(|hot| hot.reset());
                stats::write_reset(&mut out);
            }
            Question::Detail(on) => {
                self.detail.store(*on, Relaxed);
                stats::write_detail(&mut out);
            }
            Question::Lanes => stats::write_lanes(&self.lanes(), &mut out),
            Question::Latency => stats::write_latency(&self.latency(), &mut out),
            Question::Cachedump { class, limit } => {
                let most = if *limit == 0 { usize::MAX } else { *limit as usize };
                stats::write_cachedump(&self.store.list(*class, most, now_seconds), &mut out);
            }
            Question::Udp => stats::write_udp(self.udp_snapshot().as_ref(), &mut out),
            // Where there is a tier its keeper answers.
            Question::Tier => stats::write_tier(None, &mut out),
            Question::Kernel => {
                let snapshot = self.kernel.get().map(|kernel| kernel.snapshot(&self.store));
                stats::write_kernel(&snapshot.unwrap_or_default(), &mut out);
            }
            Question::HotKeys => {
                stats::write_hot_keys(self.hot_keys(now_seconds, now_nanos).as_ref(), &mut out);
            }
            Question::Balance => stats::write_balance(&self.balance(now_nanos), &mut out),
            Question::Topology => stats::write_topology(&self.topology(), &mut out),
        }
        out
    }

    fn general(&self, now_seconds: u32) -> GeneralSnapshot {
        let connections = &self.connections;
        // Both fail only for an invalid argument; zero is what is left to say then.
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        let workers = self.workers.len() as u64;
        GeneralSnapshot {
            pid: std::process::id(),
            uptime_seconds: u64::from(now_seconds.saturating_sub(self.started_seconds)),
            now_seconds: u64::from(now_seconds),
            cpu_user_us: usage.map_or(0, |usage| usage.user_time().num_microseconds() as u64),
            cpu_system_us: usage.map_or(0, |usage| usage.system_time().num_microseconds() as u64),
            connections_max: self.settings.connections_max as u64,
            connections_open: connections.open.load(Relaxed) as u64,
            connections_total: connections.total.load(Relaxed),
            connections_rejected: connections.rejected.load(Relaxed),
            idle_kicks: (!self.settings.idle_timeout.is_zero())
                .then(|| connections.idle_kicked.load(Relaxed)),
            reserved_fds: DESCRIPTORS_STANDARD + workers * DESCRIPTORS_PER_WORKER,
            input_bytes: 0,
            output_bytes: 0,
            accepting: true,
            accepting_stopped: connections.paused.load(Relaxed),
            workers,
            counters: self.totals(),
            store: self.store.stats(),
            swept: self.swept.load(Relaxed),
            design: self.settings.policy.design.name(),
        }
    }

    /// What all workers counted, and the GETs that never came to one.
    fn totals(&self) -> Totals {
        let mut totals = self.board.totals();
        let hits = self.kernel_hits();
        totals.cmd_get += hits;
        totals.get_hits += hits;
        totals
    }

    fn kernel_hits(&self) -> u64 {
        self.kernel.get().map_or(0, Kernel::hits)
    }

    fn settings_snapshot(&self) -> SettingsSnapshot {
        let settings = &self.settings;
        let policy = &settings.policy;
        let form = policy.form().name().to_owned();
        let threshold = policy.threshold_fixed;
        let own = vec![
            ("design", policy.design.name().to_owned()),
            ("form", form),
            ("percentile", policy.percentile.to_string()),
            ("epoch_ms", settings.epoch.as_millis().to_string()),
            ("alpha", policy.alpha.to_string()),
            ("cost", policy.cost.to_string()),
            ("threshold", threshold.map_or("auto".to_owned(), |bytes| bytes.0.to_string())),
            ("slice_bytes", policy.slice_bytes.0.to_string()),
            ("access", policy.access.name().to_owned()),
            ("handoff_workers", policy.workers_handoff.to_string()),
            ("extra_large", if policy.extra_large { "yes" } else { "no" }.to_owned()),
            ("profile_sample", policy.profile_sample.to_string()),
            ("hot", policy.hot.map_or("off", |hot| hot.rule()).to_owned()),
            ("idle", format!("{:?}", settings.idle).to_lowercase()),
        ];
        let interfaces: Vec<String> =
            settings.addresses.iter().map(|address| address.ip().to_string()).collect();
        SettingsSnapshot {
            memory_bytes: self.store.stats().limit_bytes,
            connections_max: settings.connections_max as u64,
            tcp_port: settings.addresses.first().map_or(0, |address| address.port()),
            udp_port: self.udp_port_ordinary().unwrap_or(0),
            interface: (!interfaces.is_empty()).then(|| interfaces.join(",")),
            verbosity: self.verbosity.load(Relaxed),
            oldest_seconds: 0,
            evicts: !settings.store_mode,
            unix_path: settings.unix.as_ref().map(|(path, _)| path.display().to_string()),
            unix_mode: settings.unix.as_ref().map_or(0o700, |(_, mode)| *mode),
            shutdown: settings.shutdown,
            workers: settings.workers as u64,
            detail: self.detail.load(Relaxed),
            requests_per_turn: REQUESTS_PER_TURN as u64,
            cas: settings.cas,
            backlog: settings.backlog.max(0) as u64,
            item_bytes_max: settings.item_bytes_max as u64,
            flush: settings.flush,
            idle_timeout_seconds: settings.idle_timeout.as_secs(),
            own,
        }
    }

    fn connection_snapshots(&self, now_seconds: u32) -> Vec<ConnectionSnapshot> {
        let cards = lock(&self.connections.cards);
        let snapshot = |card: &std::sync::Arc<crate::connection::Card>| {
            let idle = now_seconds.saturating_sub(card.last_seconds.load(Relaxed));
            let large = card.large.load(Relaxed);
            ConnectionSnapshot {
                number: card.number,
                address: card.peer.clone(),
                listen_address: None,
                state: if large { "conn_mwrite" } else { "conn_read" },
                idle_seconds: u64::from(idle),
                large,
            }
        };
        cards.values().map(snapshot).collect()
    }

    fn lanes(&self) -> LanesSnapshot {
        let plan = self.plan.get();
        let end = self.settings.item_bytes_max as u64;
        let lane = |(number, worker): (usize, &WorkerShared<S>)| {
            let lanes = &worker.lanes;
            WorkerLane {
                role: role(plan.role(WorkerId(number as u16))),
                range_bytes: range_bytes(&plan, WorkerId(number as u16), end),
                requests_small: lanes.requests_small.get(),
                requests_large: lanes.requests_large.get(),
                packets: lanes.packets.get(),
                slices: lanes.slices.get(),
                connections: worker.connections.load(Relaxed) as u64,
                queue_small: lanes.waiting_small.get(),
                queue_large: lanes.waiting_large.get(),
                queue_arriving: worker.mailbox.len() as u64,
                moved_to_large: lanes.moved_to_large.get(),
                moved_home: lanes.moved_home.get(),
                queue_jobs: worker.jobs.len() as u64,
                handed_over: lanes.handed_over.get(),
                forwarded: lanes.forwarded.get(),
                jobs_of_others: lanes.jobs_of_others.get(),
                stolen: lanes.stolen.get(),
                tx_backed_up_us: lanes.tx_backed_up_nanos.get() / 1000,
            }
        };
        LanesSnapshot {
            design: plan.design.name(),
            form: plan.form.name(),
            threshold_bytes: plan.threshold.0,
            percentile: self.settings.policy.percentile,
            epoch_ms: self.settings.epoch.as_millis() as u64,
            epochs: self.epochs.load(Relaxed),
            role_changes: self.role_changes.load(Relaxed),
            queue_shared: self.large_queue.len() as u64,
            queue_shared_jobs: self.large_jobs.len() as u64,
            workers: self.workers.iter().enumerate().map(lane).collect(),
        }
    }

    fn latency(&self) -> LatencySnapshot {
        let mut rows = latency::empty_rows();
        self.workers.iter().for_each(|worker| worker.book.merge_into(&mut rows));
        let row = |operation: Operation, large: bool| {
            let histogram = &rows[latency::row(operation, large)];
            LatencyRow {
                operation: operation.name(),
                large,
                count: histogram.len(),
                p50_ns: histogram.value_at_quantile(0.50),
                p90_ns: histogram.value_at_quantile(0.90),
                p99_ns: histogram.value_at_quantile(0.99),
                p99_9_ns: histogram.value_at_quantile(0.999),
                max_ns: histogram.max(),
            }
        };
        let both = |operation| [row(operation, false), row(operation, true)];
        LatencySnapshot {
            rows: Operation::ALL.into_iter().flat_map(both).collect(),
            kernel_gets: self.kernel_hits(),
        }
    }

    fn hot_keys(&self, now_seconds: u32, now_nanos: u64) -> Option<HotKeysSnapshot> {
        let report = self.hot.as_ref()?.report(now_nanos, |w| self.workers[w].lanes.executed());
        let line = |key: HotKeyCard| {
            let meta = self.store.peek(self.store.hash(&key.text), &key.text, now_seconds);
            let bytes = |meta: ItemMeta| u64::from(meta.key_bytes) + u64::from(meta.value_bytes);
            HotKeyLine {
                key: key.text,
                nanos: key.since.nanos,
                reads: key.since.reads,
                writes: key.since.writes,
                all: key.since.all,
                bytes: meta.map(bytes),
                worker: key.owner.0,
                home: key.home.0,
                moves: key.moves,
            }
        };
        Some(HotKeysSnapshot {
            rule: report.settings.rule(),
            slot_requests: report.settings.slot.requests,
            slot_nanos: report.settings.slot.nanos.0,
            slots: report.slot,
            threshold: report.threshold,
            keys_max: report.settings.keys_max as u64,
            found: report.found,
            moved: report.moved,
            keys: report.keys.into_iter().map(line).collect(),
        })
    }

    fn balance(&self, now_nanos: u64) -> BalanceSnapshot {
        let executed = |w: usize| self.workers[w].lanes.executed();
        let slots = self.hot.as_ref().map(|hot| hot.report(now_nanos, executed).balance);
        let executed = (0..self.workers.len()).map(executed).collect();
        BalanceSnapshot {
            executed,
            slots: slots.map(|balance| SlotsSnapshot {
                slots: balance.slots,
                ratio_run: max_ave_ratio(&balance.run),
                ratio_run_by_hash: max_ave_ratio(&balance.run_by_hash),
                ratios: balance.ratios,
                ratios_by_hash: balance.ratios_by_hash,
                run: balance.run,
                slot: balance.slot,
            }),
        }
    }

    fn topology(&self) -> TopologySnapshot {
        let settings = &self.settings;
        let mut ports: Vec<u16> = settings.addresses.iter().map(|address| address.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let queues = self.udp.get().map_or(&[][..], |udp| &udp.queues);
        let udp_port = |worker: usize| {
            let mine = queues.iter().find(|queue| queue.chosen && queue.worker == worker);
            mine.map(|queue| queue.address.port())
        };
        let udp_port_base = udp_port(0);
        let workers = self.workers.len();
        TopologySnapshot {
            tcp_ports: ports,
            unix_path: settings.unix.as_ref().map(|(path, _)| path.display().to_string()),
            udp_port_base,
            udp_port: self.udp_port_ordinary(),
            queues: workers as u64,
            placement: udp_port_base.map(|_| self.placement),
            access: udp_port_base.map(|_| self.plan.get().access),
            workers: (0..workers)
                .map(|worker| WorkerPlace { udp_port: udp_port(worker), cpu: None })
                .collect(),
        }
    }

    /// The UDP port that all workers share.
    fn udp_port_ordinary(&self) -> Option<u16> {
        let queues = &self.udp.get()?.queues;
        queues.iter().find(|queue| !queue.chosen).map(|queue| queue.address.port())
    }

    fn udp_snapshot(&self) -> Option<UdpSnapshot> {
        let udp = self.udp.get()?;
        let mut counts: Vec<(&'static str, u64)> = Vec::new();
        for worker in &udp.counts {
            for (place, (name, count)) in worker.each().enumerate() {
                match counts.get_mut(place) {
                    Some((_, sum)) => *sum += count,
                    None => counts.push((name, count)),
                }
            }
        }
        let (replies, bytes) = udp.kept();
        // Elsewhere than on Linux there is no such file, and nothing to tell.
        let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
        Some(UdpSnapshot {
            queues: udp
                .queues
                .iter()
                .map(|queue| (queue.address.to_string(), queue.chosen))
                .collect(),
            public: udp.guard.is_public(),
            counts,
            kept: (replies as u64, bytes as u64),
            kernel: stats::kernel_counts(&snmp),
        })
    }
}

/// The sizes that a large worker serves, where each has its own; none are beyond `end`.
fn range_bytes(plan: &policy::CorePlan, worker: WorkerId, end: u64) -> Option<(u64, u64)> {
    let policy::LargeLane::Ranges(ranges) = &plan.large_lane else { return None };
    let range = if plan.standby() == Some(worker) {
        0
    } else {
        worker.index().checked_sub(usize::from(plan.workers_small))?
    };
    let boundary = |number: usize| ranges.boundaries().get(number).map(|bytes| bytes.0);
    let from = match range.checked_sub(1) {
        None => plan.threshold.0,
        Some(before) => boundary(before)?,
    };
    Some((from.min(end), boundary(range).unwrap_or(end).min(end)))
}

fn role(role: policy::Role) -> Role {
    match role {
        policy::Role::Small => Role::Small,
        policy::Role::Large => Role::Large,
        policy::Role::Standby => Role::Standby,
        policy::Role::Both => Role::Shared,
    }
}
