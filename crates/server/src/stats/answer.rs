//! Answers to `stats`: snapshots of what the workers share, for the writers in [`crate::stats`].

use crate::access::client_limits::Limited;
use crate::counts::cpu_time::cpu_us;
use crate::durable::backup::{self, NOT_KEPT};
use crate::event_log::JOURNAL_BYTES;
use crate::execute::AskedOfTier;
use crate::hot::board::HotReport;
use crate::jobs::domains::Domains;
use crate::lanes::long_answer::LongAnswer;
use crate::latency;
use crate::latency::histogram::Reading;
use crate::settings::{Binding, TlsSettings};
use crate::shared::Shared;
use crate::stats::{
    self, DomainLanes, GeneralSnapshot, LanesSnapshot, Question, SettingsSnapshot,
    TopologySnapshot, UdpSnapshot, WorkerLane, WorkerPlace,
};
use laneway_policy as policy;
use laneway_policy::WorkerId;
use laneway_policy::pace::Way;
use laneway_store::{ClassStats, Moment};
use laneway_tls::Named;
use laneway_transport::datagram::Queue;
use laneway_transport::rdma::is_in_memory;
use laneway_wire::reply::{OK, RESET};
use std::sync::atomic::Ordering::Relaxed;

/// Descriptors of the process itself beside listeners and connections: standard streams, and an
/// epoll set, an eventfd and a timer per worker.
const DESCRIPTORS_STANDARD: u64 = 3;
const DESCRIPTORS_PER_WORKER: u64 = 3;

const COMPACTING: &[u8] =
    b"SERVER_ERROR a compaction is under way; stats tier tells how far it is\r\n";
const NOT_COMPACTING: &[u8] = b"CLIENT_ERROR no compaction is under way\r\n";

impl<S> Shared<S> {
    /// The reply to what the connection of this number asks of backups; 0 where there is none.
    pub fn answer_backup(&self, asked: &backup::Asked, asker: u64) -> &'static [u8] {
        match self.durable.get() {
            Some(durable) => durable.backups.answer(asked, asker),
            None => backup::DISABLED,
        }
    }

    /// Does what is asked of the data folder's store; the reply.
    pub fn answer_tier(&self, asked: AskedOfTier) -> &'static [u8] {
        let Some(durable) = self.durable.get() else { return NOT_KEPT };
        let tier = &durable.tier;
        match asked {
            AskedOfTier::MigrateRate(bytes_per_second) => {
                tier.limit_migration(bytes_per_second);
                OK
            }
            AskedOfTier::Compact if tier.begin_compaction() => OK,
            AskedOfTier::Compact => COMPACTING,
            AskedOfTier::StopCompacting if tier.stop_compaction() => OK,
            AskedOfTier::StopCompacting => NOT_COMPACTING,
        }
    }

    /// The reply to who has the clients of each address ask for so much a second at most from now
    /// on; 0 is any number. Whoever waits by the limit before is woken.
    pub fn answer_client_limit(&self, limited: Limited, per_second: u64) -> &'static [u8] {
        self.connections.clients.limits.set_one(limited, per_second);
        self.each_domain(Shared::wake_all);
        OK
    }

    /// The reply to a `stats` question.
    pub fn answer(&self, question: &Question, now: Moment, now_nanos: u64) -> Vec<u8> {
        let mut out = Vec::new();
        match question {
            Question::General => stats::write_general(&self.general(now.seconds()), &mut out),
            Question::Settings => stats::write_settings(&self.settings_snapshot(), &mut out),
            Question::Items => stats::write_items(&self.class_stats(), &mut out),
            Question::Slabs => self.write_slabs(&mut out),
            Question::Sizes => stats::write_sizes(&self.class_stats(), &mut out),
            Question::Reset => {
                self.each_domain(Shared::reset);
                out.extend_from_slice(RESET);
            }
            Question::Detail(on) => {
                self.each_domain(|shared| shared.detail.store(*on, Relaxed));
                out.extend_from_slice(OK);
            }
            Question::Lanes => stats::write_lanes(&self.lanes(), &mut out),
            Question::Latency => {
                stats::write_latency(&self.latency(), self.kernel_hits(), &mut out);
            }
            Question::Large => stats::write_large(self.large(now_nanos), &mut out),
            Question::Buckets => stats::write_buckets(&self.latencies(), &mut out),
            Question::Cachedump { .. } if !self.settings.dump => {
                out.extend_from_slice(b"CLIENT_ERROR stats cachedump not allowed\r\n");
            }
            Question::Dump { form, .. } if !self.settings.dump => {
                out.extend_from_slice(form.refused());
            }
            Question::Dump { classes: 0, .. } => out.extend_from_slice(stats::BAD_CLASS),
            // A stream is answered step by step.
            Question::Connections | Question::Cachedump { .. } | Question::Dump { .. } => {
                let answer = LongAnswer::of(question, 0).expect("one of these");
                return self.answer_at_once(answer, now);
            }
            Question::Clients => stats::write_clients(self.clients(), &mut out),
            Question::Udp => stats::write_udp(self.udp_snapshot().as_ref(), &mut out),
            Question::Shm => {
                let path = self.settings.shm.as_ref().map(|shm| shm.path.display().to_string());
                let registry = self.rdma.get().map(|registry| &**registry);
                stats::write_shm(registry, path.as_deref(), &mut out);
            }
            Question::Rdma => {
                stats::write_rdma(self.verbs.get().map(|table| &**table), &mut out);
            }
            Question::Tls => {
                stats::write_tls(self.settings.tls_told().as_ref(), now.seconds(), &mut out);
            }
            // Where there is a tier its executor answers.
            Question::Tier => stats::write_tier(None, &mut out),
            Question::Backup => {
                let durable = self.durable.get().filter(|durable| durable.backups.is_enabled());
                let told = durable.map(|durable| durable.backups.told());
                stats::write_backup(told.as_ref(), &mut out);
            }
            Question::Kernel => {
                let snapshot = self.kernel.get().map(|kernel| kernel.snapshot(&self.store));
                stats::write_kernel(&snapshot.unwrap_or_default(), &mut out);
            }
            Question::HotKeys => self.write_hot_keys(now, now_nanos, &mut out),
            Question::Balance => {
                let balance = self.hot_report(now_nanos).map(|report| report.balance);
                stats::write_balance(&self.executed(), balance.as_ref(), &mut out);
            }
            Question::Topology => stats::write_topology(&self.topology(), &mut out),
        }
        out
    }

    fn write_slabs(&self, out: &mut Vec<u8>) {
        stats::write_slabs(&self.class_stats(), &self.store_stats(), out);
    }

    /// Of the thread that watches which keys are hot, or of samples where there is none.
    fn write_hot_keys(&self, now: Moment, now_nanos: u64, out: &mut Vec<u8>) {
        if !self.settings.dump {
            out.extend_from_slice(b"CLIENT_ERROR stats hotkeys not allowed\r\n");
        } else if self.hot.is_none() {
            stats::write_samples(&self.samples(now), out);
        } else {
            let bytes = |key: &[u8]| {
                self.store.peek(self.store.hash(key), key, now).map(|meta| meta.item_bytes())
            };
            stats::write_hot_keys(self.hot_report(now_nanos).as_ref(), bytes, out);
        }
    }

    /// `stats reset`, of this domain.
    fn reset(&self) {
        self.board.reset();
        if let Some(kernel) = self.kernel.get() {
            kernel.reset();
        }
        self.workers.iter().for_each(|worker| worker.book.reset());
        self.workers.iter().for_each(|worker| worker.noted.reset());
        self.workers.iter().for_each(|worker| worker.samples.reset());
        self.hot.iter().for_each(|hot| hot.reset());
    }

    fn class_stats(&self) -> Vec<ClassStats> {
        let mut classes = self.store.class_stats();
        for class in self.other_stores().iter().flat_map(|store| store.class_stats()) {
            match classes.iter_mut().find(|known| known.slot_bytes == class.slot_bytes) {
                Some(known) => known.add(&class),
                None => classes.push(class),
            }
        }
        classes.sort_by_key(|class| class.slot_bytes);
        classes
    }

    fn general(&self, now_seconds: u32) -> GeneralSnapshot {
        let connections = &self.connections;
        let (cpu_user_us, cpu_system_us) = cpu_us();
        let workers = self.sum(|shared| shared.workers.len() as u64);
        GeneralSnapshot {
            pid: std::process::id(),
            uptime_seconds: u64::from(now_seconds.saturating_sub(self.started_seconds)),
            now_seconds: u64::from(now_seconds),
            cpu_user_us,
            cpu_system_us,
            connections: self.connections_watch(),
            idle_kicks: (!self.settings.idle_timeout.is_zero())
                .then(|| connections.idle_kicked.load(Relaxed)),
            reserved_fds: DESCRIPTORS_STANDARD + workers * DESCRIPTORS_PER_WORKER,
            events: connections.events.counts(),
            workers,
            counters: self.totals(),
            store: self.store_stats(),
            swept: self.sum(|shared| shared.swept.load(Relaxed)),
            design: self.settings.policy.design.name(),
            udp_bytes: self.sum(|shared| {
                let udp = shared.udp.get();
                udp.map_or(0, |udp| udp.buffers.held() + udp.answer_bytes() as u64)
            }),
            log_dropped: self.log_dropped.get().map_or(0, |dropped| dropped.load(Relaxed)),
        }
    }

    fn settings_snapshot(&self) -> SettingsSnapshot {
        let settings = &self.settings;
        let policy = &settings.policy;
        let form = policy.form().name().to_owned();
        let threshold = policy.threshold_fixed;
        let is_half = self.sandbox_is_half.load(Relaxed);
        let sandbox = if is_half { "half" } else { settings.sandbox.name() };
        let rates = self.connections.clients.limits.rates();
        let (requests_per_second, bytes_per_second) = rates.per_second();
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
            ("hot", policy.hot.map_or("off", |hot| hot.rule()).to_owned()),
            ("idle", format!("{:?}", settings.idle).to_lowercase()),
            ("read_only_ports", settings.read_only_ports().to_string()),
            ("limited_ports", settings.limited_ports().to_string()),
            ("connections_per_address", settings.connections_per_address.to_string()),
            ("client_rate", requests_per_second.to_string()),
            ("client_bytes", bytes_per_second.to_string()),
            ("sandbox", sandbox.to_owned()),
        ];
        let encrypted = settings.tls.iter().flat_map(|tls| &tls.addresses);
        let ports = settings.addresses.iter().chain(encrypted);
        let addresses: Vec<_> = ports.map(|port| port.address).collect();
        let interfaces: Vec<String> =
            addresses.iter().map(|address| address.ip().to_string()).collect();
        SettingsSnapshot {
            memory_bytes: self.store_stats().limit_bytes,
            connections_max: settings.connections_max as u64,
            tcp_port: addresses.first().map_or(0, |address| address.port()),
            udp_port: self.udp_port_ordinary().unwrap_or(0),
            interface: (!interfaces.is_empty()).then(|| interfaces.join(",")),
            verbosity: self.verbosity.load(Relaxed),
            evicts: !settings.store_mode,
            unix_path: settings.unix.as_ref().map(|(path, _)| path.display().to_string()),
            unix_mode: settings.unix.as_ref().map_or(0o700, |(_, mode)| *mode),
            shutdown: settings.shutdown,
            workers: self.sum(|shared| shared.workers.len() as u64),
            detail: self.detail.load(Relaxed),
            requests_per_turn: policy::share::REQUESTS_PER_TURN as u64,
            cas: settings.cas,
            backlog: settings.backlog.max(0) as u64,
            item_bytes_max: settings.item_bytes_max as u64,
            binding: settings.binding.name(),
            auth_binary: settings.auth.is_some() && settings.binding != Binding::Ascii,
            auth_text: settings.auth.is_some() && settings.binding != Binding::Binary,
            flush: settings.flush,
            dump: settings.dump,
            event_log_bytes: if settings.watch { JOURNAL_BYTES } else { 0 },
            idle_timeout_seconds: settings.idle_timeout.as_secs(),
            tls: settings.tls.as_ref().map_or_else(Vec::new, tls_settings),
            own,
        }
    }

    fn lanes(&self) -> LanesSnapshot {
        let mut domains = Vec::new();
        let mut workers = Vec::new();
        self.each_domain(|shared| {
            let plan = shared.plan.get();
            domains.push(DomainLanes {
                threshold_bytes: plan.threshold.0,
                epochs: shared.epochs.load(Relaxed),
                role_changes: shared.role_changes.load(Relaxed),
                workers_large: u64::from(plan.workers_large()),
            });
            workers.extend((0..shared.workers.len()).map(|number| shared.lane(&plan, number)));
        });
        let plan = self.plan.get();
        LanesSnapshot {
            design: plan.design.name(),
            form: plan.form.name(),
            percentile: self.settings.policy.percentile,
            epoch_ms: self.settings.epoch.as_millis() as u64,
            queue_shared: self.sum(|shared| shared.large_queue.len() as u64),
            queue_shared_jobs: self.sum(|shared| shared.large_jobs.len() as u64),
            domains,
            workers,
        }
    }

    fn lane(&self, plan: &policy::CorePlan, number: usize) -> WorkerLane {
        let (worker, id) = (&self.workers[number], WorkerId(number as u16));
        let lanes = &worker.lanes;
        let (moved_to_large, moved_home) = (lanes.moved_to_large.get(), lanes.moved_home.get());
        let told = |(name, number): (&str, u64)| (name.to_owned(), number);
        let served = [
            ("requests_small", lanes.requests_small.get()),
            ("requests_large", lanes.requests_large.get()),
            ("packets", lanes.packets.get()),
            ("slices", lanes.slices.get()),
            ("slices_urgent", lanes.slices_urgent.get()),
        ];
        let slice_bytes = Way::ALL.into_iter().zip(&lanes.slice_bytes);
        let slice_bytes =
            slice_bytes.map(|(way, bytes)| (format!("slice_bytes_{}", way.name()), bytes.get()));
        let others = [
            ("connections", worker.connections.load(Relaxed) as u64),
            ("queue_small", lanes.waiting_small.get()),
            ("queue_large", lanes.waiting_large.get()),
            ("queue_arriving", worker.mailbox.len() as u64),
            ("moved_to_large", moved_to_large),
            ("moved_home", moved_home),
            ("queue_jobs", worker.jobs.len() as u64),
            ("handed_over", lanes.handed_over.get()),
            ("forwarded", lanes.forwarded.get()),
            ("items_remote", lanes.items_remote.get()),
            ("jobs_of_others", lanes.jobs_of_others.get()),
            ("stolen", lanes.stolen.get()),
            ("tx_backed_up_us", lanes.tx_backed_up_nanos.get() / 1000),
        ];
        WorkerLane {
            role: plan.role(id),
            range_bytes: range_bytes(plan, id, self.settings.item_bytes_max as u64),
            moved: moved_to_large + moved_home,
            numbers: served
                .map(told)
                .into_iter()
                .chain(slice_bytes)
                .chain(others.map(told))
                .collect(),
        }
    }

    fn latency(&self) -> Vec<Reading> {
        let mut rows = vec![Reading::default(); latency::ROWS];
        self.each_domain(|shared| {
            shared.workers.iter().for_each(|worker| worker.book.read_whole_into(&mut rows));
        });
        rows
    }

    fn hot_report(&self, now_nanos: u64) -> Option<HotReport> {
        Some(self.hot.as_ref()?.report(now_nanos, |w| self.workers[w].lanes.executed()))
    }

    /// Requests that each worker has executed since the start.
    fn executed(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.each_domain(|shared| {
            all.extend(shared.workers.iter().map(|worker| worker.lanes.executed()));
        });
        all
    }

    fn topology(&self) -> TopologySnapshot {
        let settings = &self.settings;
        let mut ports: Vec<u16> = settings.addresses.iter().map(|one| one.address.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let (mut workers, mut domain) = (Vec::new(), 0);
        self.each_domain(|shared| {
            let queues = shared.udp.get().map_or(&[][..], |udp| &udp.queues);
            workers.extend((0..shared.workers.len()).map(|worker| {
                let mine = |queue: &&Queue| queue.chosen && queue.worker == worker;
                let mine = queues.iter().filter(on_a_wire).find(mine);
                WorkerPlace { udp_port: mine.map(|queue| queue.address.port()), domain }
            }));
            domain += 1;
        });
        let udp_port_base = workers.first().and_then(|worker| worker.udp_port);
        let in_memory = self.rdma.get().is_some() || self.verbs.get().is_some();
        let is_chosen = udp_port_base.is_some() || in_memory;
        let rdma = settings.rdma.as_ref().and_then(|rdma| rdma.addresses.first());
        let placement = self.domains.get().map_or(&self.placement, Domains::placement);
        TopologySnapshot {
            shm_path: settings.shm.as_ref().map(|shm| shm.path.display().to_string()),
            rdma_port: rdma.map(|address| address.port()),
            tcp_ports: ports,
            unix_path: settings.unix.as_ref().map(|(path, _)| path.display().to_string()),
            udp_address: settings.udp.as_ref().map(|udp| udp.address.to_string()),
            udp_port_base,
            udp_port: self.udp_port_ordinary(),
            queues: workers.len() as u64,
            placement: is_chosen.then_some(*placement),
            access: is_chosen.then(|| self.plan.get().access),
            workers,
        }
    }

    /// The UDP port that all workers share.
    fn udp_port_ordinary(&self) -> Option<u16> {
        let queues = &self.udp.get()?.queues;
        queues.iter().find(|queue| !queue.chosen).map(|queue| queue.address.port())
    }

    fn udp_snapshot(&self) -> Option<UdpSnapshot> {
        let is_public = self.udp.get()?.guard.is_public();
        let (mut kept, mut buffers, mut queues) = ((0, 0), (0, 0, 0), Vec::new());
        self.each_domain(|shared| {
            let Some(udp) = shared.udp.get() else { return };
            let (replies, bytes) = udp.kept();
            kept = (kept.0 + replies as u64, kept.1 + bytes as u64);
            buffers.0 += udp.buffers.held();
            buffers.1 += udp.buffers.most();
            buffers.2 += udp.answer_bytes() as u64;
            let told = udp.queues.iter().filter(on_a_wire);
            queues.extend(told.map(|one| (one.address.to_string(), one.chosen)));
        });
        // Elsewhere than on Linux there is no such file, and nothing to tell.
        let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
        let kernel = stats::kernel_counts(&snmp);
        Some(UdpSnapshot {
            queues,
            public: is_public,
            counts: self.udp_watch(),
            kept,
            buffers,
            kernel,
        })
    }
}

/// In memcached's names.
fn tls_settings(tls: &TlsSettings) -> Vec<(&'static str, String)> {
    let path = |named: &Named| named.path.display().to_string();
    let terms = &tls.acceptor.terms;
    vec![
        ("ssl_chain_cert", path(&tls.files.chain)),
        ("ssl_key", path(&tls.files.key)),
        ("ssl_verify_mode", (terms.verify as u8).to_string()),
        ("ssl_ca_cert", tls.files.client_ca.as_ref().map_or_else(|| "NULL".into(), path)),
        ("ssl_min_version", if terms.only_1_3 { "tlsv1.3" } else { "tlsv1.2" }.into()),
        ("tls_handshake_ms", tls.handshake.as_millis().to_string()),
    ]
}

/// Whether a queue has an address that clients reach by the kernel.
fn on_a_wire(queue: &&Queue) -> bool {
    !is_in_memory(&queue.address)
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
