//! What the workers of one server share: the store, the plan in force, the mailboxes through which
//! connections move, and every number that somebody else reads. A worker writes its own numbers
//! only.

use crate::access::listener_rules::ListenerRules;
use crate::access::per_address::{Counted, PerAddress};
use crate::access::recognise::Beside;
use crate::counts::clients::{ClientCounts, ClientSums, Clients, PLACES};
use crate::counts::counters::{Count, StatsRegistry};
use crate::durable::shared::Durable;
use crate::event_log::{Event, EventLog, Parting, Subject};
use crate::hot::board::HotKeyTable;
use crate::hot::sample::Samples;
use crate::jobs::domains::Domains;
use crate::jobs::handoff::{Finished, JOB_PLACES, Job};
use crate::kernel::Kernel;
use crate::latency::RecordedLatencies;
use crate::latency::noted::{Noted, Slow};
use crate::resp::state::{Dialect, Spoken, Unproven};
use crate::settings::{Binding, Settings, log_level};
use crate::stream::connection::{Connection, ConnectionKind, ConnectionStats};
use crate::udp::shared::UdpShared;
use laneway_policy::pace::Way;
use laneway_policy::{CorePlan, ItemBytes, Placement, Role, SizeClass, WorkerId, histogram, owner};
use laneway_rdma::region::Registry;
use laneway_rdma::verbs::ClientTable;
use laneway_store::Store;
use laneway_sync::edition::Edition;
use laneway_sync::idle::{Idle, is_nothing_left};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::ring::Ring;
use laneway_sync::sleep::Sleeper;
use laneway_transport::Wake;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Connections that a worker's mailbox, or the large workers' shared queue, holds at most.
const MAILBOX_PLACES: usize = 1024;

/// What `stats lanes` tells of one worker.
#[derive(Default)]
pub struct LaneCounts {
    /// Requests below the threshold served here.
    pub requests_small: Count,
    /// Requests at or above it served here.
    pub requests_large: Count,
    /// Packets those requests cost (Minos §3.1).
    pub packets: Count,
    /// Connections waiting for their turn in the small lane here, now. It stands here since every
    /// turn writes it, as the counts before it.
    pub waiting_small: Count,
    /// Connections with a slice to move here, now.
    pub waiting_large: Count,
    /// Slices of large transfers moved here.
    pub slices: Count,
    /// Of these, the ones of transfers with requests behind them on their connection.
    pub slices_urgent: Count,
    /// The most that a slice moves now, by its way; 0 before the first one.
    pub slice_bytes: [Count; Way::ALL.len()],
    /// Connections sent to a large worker.
    pub moved_to_large: Count,
    /// Connections sent back, or handed over because a role changed.
    pub moved_home: Count,
    /// Requests that this worker put into another's queue, or into the shared one.
    pub handed_over: Count,
    /// Of these, the ones that came to another than the key's owner, or to another NUMA domain.
    pub forwarded: Count,
    /// Items of another NUMA domain looked at or written here.
    pub items_remote: Count,
    /// Requests executed here that another worker received.
    pub jobs_of_others: Count,
    /// Of these, the ones taken from another worker's queue unasked.
    pub stolen: Count,
    /// How long large replies have waited here for the wire, nanoseconds.
    pub tx_backed_up_nanos: Count,
}

impl LaneCounts {
    /// Requests served here.
    #[inline]
    pub fn executed(&self) -> u64 {
        self.requests_small.get() + self.requests_large.get()
    }
}

/// One worker, as the others see it.
pub struct WorkerShared<S> {
    /// Connections on their way here.
    pub mailbox: Ring<Box<Connection<S>>>,
    /// Requests to execute here (the software queue of the papers).
    pub jobs: Ring<Job>,
    /// Replies to this worker's connections that others have executed.
    pub finished: Ring<Finished>,
    /// It looks for something to do.
    pub idle: AtomicBool,
    /// It sleeps, or is about to: who has something for it must wake it.
    pub sleeper: Sleeper,
    /// Its last turn, which began while the server was stopping, left no datagrams under way.
    pub drained: Idle,
    /// Ends the worker's wait; set once, before the worker runs.
    pub waker: OnceLock<Arc<dyn Wake>>,
    /// Latencies.
    pub book: RecordedLatencies,
    /// Requests that were large or slow.
    pub noted: Noted,
    /// Keys asked for most, where nobody looks after hot keys.
    pub samples: Samples,
    /// What each client asked of it.
    pub clients: Box<[ClientCounts]>,
    /// Requests by size of their item, since the start (Minos §3.1); control takes differences.
    pub sizes: Vec<Count>,
    /// Lane counters.
    pub lanes: LaneCounts,
    /// Connections that call this worker home.
    pub connections: AtomicUsize,
    /// Grows about once a second, as long as it makes turns.
    pub turns: Count,
}

impl<S> Default for WorkerShared<S> {
    fn default() -> Self {
        WorkerShared {
            mailbox: Ring::new(MAILBOX_PLACES),
            jobs: Ring::new(JOB_PLACES),
            finished: Ring::new(JOB_PLACES),
            idle: AtomicBool::new(false),
            sleeper: Sleeper::new(),
            drained: Idle::new(),
            waker: OnceLock::new(),
            book: RecordedLatencies::default(),
            noted: Noted::default(),
            samples: Samples::default(),
            clients: (0..PLACES).map(|_| ClientCounts::default()).collect(),
            sizes: (0..histogram::CLASS_COUNT).map(|_| Count::default()).collect(),
            lanes: LaneCounts::default(),
            connections: AtomicUsize::new(0),
            turns: Count::default(),
        }
    }
}

impl<S> WorkerShared<S> {
    /// Count a request for an item of `size`.
    #[inline]
    pub fn record_size_owner(&self, size: ItemBytes) {
        self.sizes[SizeClass::of(size).index()].add_owner(1);
    }
    /// End the worker's wait.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// How far the server is with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Serving.
    Running,
    /// No new connections; what is under way is finished.
    Draining,
    /// Over: workers leave.
    Stopped,
}

/// The plan in force. Workers compare a number at the top of each step and take the lock only when
/// it has changed.
pub struct PlanCell {
    /// Its number.
    pub edition: Edition,
    /// What an operator sees of it.
    pub shown: PlanShown,
    plan: Mutex<Arc<CorePlan>>,
}

/// What is told of the plan in force without its lock, which workers take. Each value is the last
/// plan's; several need not be of the same one.
pub struct PlanShown {
    threshold_bytes: AtomicU64,
    roles: Box<[AtomicU8]>,
}

impl PlanShown {
    fn new(plan: &CorePlan) -> PlanShown {
        let roles = (0..plan.workers()).map(|_| AtomicU8::new(0)).collect();
        let shown = PlanShown { threshold_bytes: AtomicU64::new(0), roles };
        shown.show(plan);
        shown
    }
    fn show(&self, plan: &CorePlan) {
        self.threshold_bytes.store(plan.threshold.0, Ordering::Relaxed);
        for (number, role) in self.roles.iter().enumerate() {
            role.store(plan.role(WorkerId(number as u16)) as u8, Ordering::Relaxed);
        }
    }
    /// Items from this size on are large.
    pub fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Ordering::Relaxed)
    }
    /// What this worker serves.
    pub fn role(&self, worker: usize) -> Role {
        let shown = self.roles.get(worker).map_or(0, |role| role.load(Ordering::Relaxed));
        let all = [Role::Small, Role::Large, Role::Standby, Role::Both];
        all.into_iter().find(|role| *role as u8 == shown).unwrap_or(Role::Both)
    }
}

impl PlanCell {
    fn new(plan: CorePlan) -> PlanCell {
        PlanCell {
            edition: Edition::new(),
            shown: PlanShown::new(&plan),
            plan: Mutex::new(Arc::new(plan)),
        }
    }
    /// The plan in force.
    pub fn get(&self) -> Arc<CorePlan> {
        lock(&self.plan).clone()
    }
    /// Put a new plan in force.
    pub fn publish(&self, plan: CorePlan) {
        self.shown.show(&plan);
        *lock(&self.plan) = Arc::new(plan);
        self.edition.publish();
    }
}

/// Lock, whoever panicked before: the data behind our locks is whole between statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a connection is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMany {
    /// As many are open as may be.
    InAll,
    /// Its address has as many as it may.
    OfAddress,
}

/// Connections of the whole server.
#[derive(Default)]
pub struct Connections {
    /// Open now.
    pub open: AtomicUsize,
    /// Ever opened.
    pub total: AtomicU64,
    /// Turned away because `-c` was reached.
    pub rejected: AtomicU64,
    /// Turned away because their address had as many as it may.
    pub rejected_by_address: AtomicU64,
    /// By address, where that is limited.
    pub per_address: PerAddress,
    /// Times that accepting paused because the process had no file descriptor left.
    pub paused: AtomicU64,
    /// Closed because nothing came for `idle_timeout`.
    pub idle_kicked: AtomicU64,
    /// Listeners and sockets for datagrams, which have the first numbers.
    places: AtomicU64,
    /// Who they are of.
    pub clients: Clients,
    /// By number, for `stats conns`.
    pub cards: Mutex<BTreeMap<u64, Arc<ConnectionStats>>>,
    /// What those who watch are told, of connections and of all else.
    pub events: Arc<EventLog>,
}

impl Connections {
    /// Register a new connection, or refuse it because too many are open: `most` of all, and `each`
    /// of an address; 0 for any number.
    pub fn enter(
        &self,
        (most, each): (usize, usize),
        (peer, local): (String, Option<String>),
        counted: Counted,
        now_seconds: u32,
        sums: impl FnOnce(u16) -> ClientSums,
    ) -> Result<Arc<ConnectionStats>, TooMany> {
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        let is_limited = each > 0;
        let was_counted = is_limited && counted == Counted::Before;
        let refused = match () {
            () if open >= most => Some((TooMany::InAll, &self.rejected)),
            () if is_limited && !was_counted && !self.per_address.enter(&peer, each) => {
                Some((TooMany::OfAddress, &self.rejected_by_address))
            }
            () => None,
        };
        if let Some((why, count)) = refused {
            if was_counted {
                self.per_address.leave(&peer);
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
            return Err(why);
        }
        let places = self.places.load(Ordering::Relaxed);
        let number = places + self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let client = self.clients.enter(&peer, sums);
        let mut card = ConnectionStats::new(ConnectionKind::Client, number, peer, now_seconds);
        (card.local, card.client, card.is_limited) = (local, client, is_limited);
        let card = Arc::new(card);
        lock(&self.cards).insert(number, card.clone());
        self.log(Event::Open, &card);
        Ok(card)
    }

    fn log(&self, event: Event, card: &ConnectionStats) {
        let subject = Subject { text: card.peer.as_bytes(), by: card.number, ..Subject::default() };
        self.events.log(event, subject);
    }

    /// Tell of a socket that connections or datagrams come by; all are there before the first
    /// connection is.
    pub fn add_place(&self, kind: ConnectionKind, address: String, now_seconds: u32) {
        let number = self.places.fetch_add(1, Ordering::Relaxed) + 1;
        let card = Arc::new(ConnectionStats::new(kind, number, address, now_seconds));
        lock(&self.cards).insert(number, card);
    }

    /// Forget a connection that was closed.
    pub fn leave(&self, card: &ConnectionStats, why: Parting) {
        self.log(Event::Close(why), card);
        if is_planted(Bug::ConnectionLeaked) {
            return;
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.clients.leave(card.client);
        if card.is_limited && !is_planted(Bug::AddressLeaked) {
            self.per_address.leave(&card.peer);
        }
        lock(&self.cards).remove(&card.number);
    }
}

/// What the workers of one server share.
pub struct Shared<S> {
    /// The store.
    pub store: Arc<Store>,
    /// As started.
    pub settings: Settings,
    /// The plan in force.
    pub plan: PlanCell,
    /// To which worker a key belongs.
    pub placement: Placement,
    /// Whose the hot keys are, where that is looked after.
    pub hot: Option<Box<HotKeyTable>>,
    /// The workers.
    pub workers: Vec<WorkerShared<S>>,
    /// Connections with a large request, for whichever large worker is free (the shared software
    /// queue of `lanes`).
    pub large_queue: Ring<Box<Connection<S>>>,
    /// Requests for whichever worker that takes from the shared queue is free.
    pub large_jobs: Ring<Job>,
    /// Clients in memory, where they are served; set before a worker is made.
    pub rdma: OnceLock<Arc<Registry>>,
    /// Clients over RDMA, where they are served; set before a worker is made.
    pub verbs: OnceLock<Arc<ClientTable>>,
    /// UDP, once a worker serves it.
    pub udp: OnceLock<Arc<UdpShared>>,
    /// Where items are kept durably, if they are; set before a worker is made.
    pub durable: OnceLock<Arc<Durable>>,
    /// What is loaded into the kernel.
    pub kernel: OnceLock<Kernel>,
    /// Command counters of all workers, and behind them of the executor.
    pub board: StatsRegistry,
    /// `stats detail on` was said.
    pub detail: AtomicBool,
    /// Items that the background sweep found expired.
    pub swept: AtomicU64,
    /// The most small hits and items stored that anybody was told of ([`crate::counts::watch`]).
    pub(crate) small_hits_told: AtomicU64,
    pub(crate) items_told: AtomicU64,
    /// Connections, of all NUMA domains.
    pub connections: Arc<Connections>,
    /// The NUMA domains, where there are several; set before a worker is made.
    pub domains: OnceLock<Domains<Shared<S>>>,
    /// The first listener where nothing but RESP is spoken, if there is one.
    pub resp_from: OnceLock<usize>,
    /// What holds of who comes by each listener; nothing of those beyond.
    pub listener_rules: OnceLock<Vec<ListenerRules>>,
    /// Unix time of a `flush_all` to come; 0 for none.
    pub flush_at: AtomicU32,
    /// Held by the worker that carries it out.
    pub(crate) flushing: Arc<Mutex<()>>,
    /// How verbose (`-v`, `verbosity`).
    pub verbosity: AtomicU32,
    /// Which requests are slow (`--slow-ms`).
    pub slow: Slow,
    /// Of the sandbox in `settings` files are guarded, and system calls are not.
    pub sandbox_is_half: AtomicBool,
    /// Lines of the log that were dropped; not set where nobody counts them.
    pub log_dropped: OnceLock<&'static AtomicU64>,
    /// Unix time of the start.
    pub started_seconds: u32,
    /// Plans published that changed a role.
    pub role_changes: AtomicU64,
    /// Epochs planned.
    pub epochs: AtomicU64,
    phase: AtomicU8,
    stop_asked: Arc<(Mutex<bool>, Condvar)>,
}

/// What the NUMA domains of one server have in common.
#[derive(Default, Clone)]
pub struct ServerShared {
    connections: Arc<Connections>,
    flushing: Arc<Mutex<()>>,
    stop_asked: Arc<(Mutex<bool>, Condvar)>,
}

impl<S> Shared<S> {
    /// Shared state of a NUMA domain of a server about to start.
    pub fn in_company(
        store: Arc<Store>,
        settings: Settings,
        plan: CorePlan,
        started_seconds: u32,
        company: ServerShared,
    ) -> Arc<Shared<S>> {
        let workers = (0..settings.workers).map(|_| WorkerShared::default()).collect();
        let policy = &settings.policy;
        let hot = policy.hot.map(|hot| HotKeyTable::new(hot, policy.access, settings.secret_seed));
        store.tell_evictions(company.connections.events.clone());
        company.connections.clients.limits.set(settings.client_rates);
        Arc::new(Shared {
            store,
            placement: Placement::new(owner::SEED, plan.workers(), 1).expect("a plan has workers"),
            plan: PlanCell::new(plan),
            hot: hot.map(Box::new),
            workers,
            large_queue: Ring::new(MAILBOX_PLACES),
            large_jobs: Ring::new(JOB_PLACES),
            rdma: OnceLock::new(),
            verbs: OnceLock::new(),
            udp: OnceLock::new(),
            durable: OnceLock::new(),
            kernel: OnceLock::new(),
            board: StatsRegistry::new(settings.workers + 1),
            detail: AtomicBool::new(false),
            swept: AtomicU64::new(0),
            small_hits_told: AtomicU64::new(0),
            items_told: AtomicU64::new(0),
            connections: company.connections,
            domains: OnceLock::new(),
            resp_from: OnceLock::new(),
            listener_rules: OnceLock::new(),
            flush_at: AtomicU32::new(0),
            flushing: company.flushing,
            verbosity: AtomicU32::new(settings.verbosity),
            slow: Slow::new(settings.slow),
            sandbox_is_half: AtomicBool::new(false),
            log_dropped: OnceLock::new(),
            started_seconds,
            role_changes: AtomicU64::new(0),
            epochs: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Running as u8),
            stop_asked: company.stop_asked,
            settings,
        })
    }

    /// How far the server is with its end.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Stopped,
        }
    }

    /// Go on to a later phase (never back) and tell every worker.
    pub fn enter_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake_all();
    }

    /// Whether a stopping server has answered everything that it had begun: connections are closed,
    /// datagrams are on their way, and nothing lies between two workers.
    pub fn is_drained(&self) -> bool {
        if self.connections.open.load(Ordering::Relaxed) > 0 {
            return false;
        }
        if self.udp.get().is_none() {
            return true;
        }
        let every = |is: fn(&Self) -> bool| {
            let mut all = true;
            self.each_domain(|shared| all &= is(shared));
            all
        };
        let are_drained = |shared: &Self| shared.workers.iter().all(|worker| worker.drained.is());
        is_nothing_left(|| every(are_drained), || every(Self::is_nothing_between))
    }

    /// Whether no request and no reply lies between two workers of this domain.
    fn is_nothing_between(&self) -> bool {
        let trains = self.udp.get().is_none_or(|udp| udp.trains.iter().all(Ring::is_empty));
        let is_empty =
            |worker: &WorkerShared<S>| worker.jobs.is_empty() && worker.finished.is_empty();
        let jobs = self.workers.iter().all(is_empty);
        let kept = self.durable.get().is_none_or(|durable| durable.is_idle());
        trains && jobs && kept && self.large_jobs.is_empty()
    }

    /// The protocol of a connection that came by this listener.
    pub fn dialect_at(&self, listener: usize) -> Dialect {
        self.dialect_of(self.resp_from.get().is_some_and(|first| listener >= *first))
    }

    /// The protocol of a connection that came where nothing but RESP is spoken, or elsewhere.
    pub fn dialect_of(&self, is_resp: bool) -> Dialect {
        let Beside { resp, binary } = self.settings.beside();
        let is_binary = self.settings.binding == Binding::Binary;
        let tells = resp || binary;
        match self.settings.auth.is_some() {
            false if is_resp => Dialect::resp(),
            false if is_binary => Dialect::Binary,
            false if tells => Dialect::Undecided,
            false => Dialect::Memcached,
            true if is_resp => Dialect::Unproven(Unproven::resp()),
            true if is_binary => Dialect::Unproven(Unproven::binary()),
            true if tells => Dialect::Unproven(Unproven::new(Spoken::Undecided)),
            true => Dialect::Unproven(Unproven::new(Spoken::Memcached)),
        }
    }

    /// What holds of who comes by this listener, if anything does.
    pub fn rules_at(&self, listener: usize) -> Option<&ListenerRules> {
        self.listener_rules.get()?.get(listener)
    }

    /// Whether who comes by this listener may change nothing.
    pub fn is_read_only(&self, listener: usize) -> bool {
        self.rules_at(listener).is_some_and(|rules| rules.read_only)
    }

    /// Of all NUMA domains, this one apart, the stores.
    pub fn other_stores(&self) -> &[Arc<Store>] {
        self.domains.get().map_or(&[], Domains::other_stores)
    }

    /// Visit every NUMA domain, in their order.
    pub fn each_domain(&self, mut visit: impl FnMut(&Shared<S>)) {
        match self.domains.get() {
            None => visit(self),
            Some(domains) => domains.all().for_each(|shared| visit(&shared)),
        }
    }

    /// Ask the server to stop: the `shutdown` command, or a signal.
    pub fn request_stop(&self) {
        *lock(&self.stop_asked.0) = true;
        self.stop_asked.1.notify_all();
    }

    /// Wait at most so long; whether somebody has asked the server to stop.
    pub fn wait_for_stop_within(&self, most: Duration) -> bool {
        let asked = lock(&self.stop_asked.0);
        let waited = self.stop_asked.1.wait_timeout_while(asked, most, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Flush everything when it is this second; 0 forgets a flush to come.
    pub fn flush_at(&self, at: u32) {
        self.each_domain(|shared| shared.flush_at.store(at, Ordering::Relaxed));
    }

    /// Be this verbose from now on.
    pub fn set_verbosity(&self, level: u32) {
        log::set_max_level(log_level(level));
        self.each_domain(|shared| shared.verbosity.store(level, Ordering::Relaxed));
    }

    /// End every worker's wait.
    pub fn wake_all(&self) {
        self.workers.iter().for_each(WorkerShared::wake);
    }
}
