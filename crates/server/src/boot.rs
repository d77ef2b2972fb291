//! From settings to running threads, and back: listen, make the store, start the workers; on a stop
//! let what is under way finish, then join them.

use crate::access::listener_rules::ListenerRules;
use crate::built::OBSERVES;
use crate::clock::{Clock, SystemClock, nanos_of};
use crate::control::Control;
use crate::counts::watch::WatchSnapshot;
use crate::durable::capture::Capture;
use crate::jobs::remote;
use crate::kernel::Kernel;
use crate::settings::{LaneSettings, Rules, Settings};
use crate::shared::{Connections, Phase, ServerShared, Shared};
use crate::stream::connection::ConnectionKind;
use crate::worker::{Progress, Worker};
use laneway_policy as policy;
use laneway_rdma::region::Registry;
use laneway_rdma::shmring::RingResponder;
use laneway_rdma::verbs::{self, ClientTable, VerbsResponder};
use laneway_store::layout::Hasher;
use laneway_store::{Config, HugePages, Mode, Store};
use laneway_tls::{EitherStream, EitherTransport};
use laneway_transport::datagram::{Datagrams, Queue};
use laneway_transport::rdma::{RdmaDatagrams, Whence};
use laneway_transport::scheduler::take_short_slices;
use laneway_transport::shm_watch::Watch;
use laneway_transport::socket::{Listener, SocketStream, SocketTransport};
use laneway_transport::udp::{BindError, Ports, Sockets, UdpDatagrams};
use laneway_transport::verbs::Watch as VerbsWatch;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

mod client_table;
mod door;
mod executor;
mod handshakes;
mod listeners;
mod numa;
mod told;

pub use client_table::ClientTableError;
pub use executor::{Opened, open};
pub use listeners::Handed;

/// What a server's workers read from and write to.
pub type ServerStream = EitherStream<SocketStream>;
type ServerTransport = EitherTransport<SocketTransport>;

/// Exit status of a worker that lost its transport: the world is wrong, and we cannot go on.
const STATUS_TRANSPORT: i32 = 74;
/// How often a stopping server looks whether everything under way is finished: it has nothing else
/// to do, and workers need not tell it.
const DRAIN_TICK: Duration = Duration::from_millis(5);
/// How long an RX queue may be another's. What had one and was killed has it for a moment still:
/// the kernel takes such sockets apart later, by a thread of its own.
const RX_QUEUE_PATIENCE: Duration = Duration::from_secs(3);
/// How often it is asked for meanwhile.
const RX_QUEUE_TICK: Duration = Duration::from_millis(10);
/// Buckets the index begins with.
const BUCKETS_INITIAL: u64 = 1 << 12;

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// A policy setting does not fit.
    Policy(policy::SettingsError),
    /// An address cannot be listened on.
    Listen(String, io::Error),
    /// The door for clients in memory cannot be listened at.
    Shm(String, io::Error),
    /// No client can come over RDMA.
    Rdma(ClientTableError),
    /// A UDP port cannot be received on.
    Udp(BindError),
    /// No memory for the store.
    Store(io::Error),
    /// The kernel refuses a program of ours, or this build has none.
    Kernel(laneway_kernel::Error),
    /// A thread or its epoll set could not be made.
    Worker(io::Error),
    /// The threads behind the data folder could not be made.
    DurableExecutor(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Policy(error) => error.fmt(f),
            StartError::Listen(place, error) => {
                write!(f, "cannot listen on {place}: {error}; ")?;
                f.write_str(match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "another server holds it: stop that one, or choose another with -p, -s or \
                         --resp"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "choose a port above 1023, a path you may write to, or start as root"
                    }
                    _ => "choose another with -l, -p, -s or --resp",
                })
            }
            StartError::Shm(place, error) => {
                write!(f, "cannot listen on {place}: {error}; choose another path with --shm")
            }
            StartError::Rdma(error) => error.fmt(f),
            StartError::Udp(error) => {
                write!(f, "{error}; choose another port with -U or --udp-base, or leave them out")
            }
            StartError::Store(error) => {
                write!(f, "cannot reserve memory for items: {error}; choose less with -m")
            }
            StartError::Kernel(error) => error.fmt(f),
            StartError::Worker(error) => {
                write!(f, "cannot start a worker: {error}; choose fewer with --workers")
            }
            StartError::DurableExecutor(error) => {
                write!(f, "cannot start the threads of --data-dir: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// A running server.
pub struct Server {
    /// One for each NUMA domain.
    domains: Vec<Arc<Shared<ServerStream>>>,
    listeners: Arc<Vec<Listener>>,
    /// Of each domain, where UDP is served.
    sockets: Vec<Arc<Sockets>>,
    threads: Vec<JoinHandle<()>>,
    doors: Vec<door::Running>,
    handshakes: Option<handshakes::Running>,
    rdma_addresses: Vec<SocketAddr>,
    executor: Option<executor::Running>,
    gate: Gate,
    clock: SystemClock,
}

/// What the threads that serve wait for; false: they end and have served nobody.
type Gate = Arc<OnceLock<bool>>;

/// Wait there, and serve.
fn once_open(gate: &Gate, serve: impl FnOnce()) {
    if *gate.wait() {
        serve();
    }
}

/// The workers are told what holds at the listeners, whose clients all domains limit together.
fn rule(domains: &[Arc<Shared<ServerStream>>], rules: &[Rules]) {
    let rules = ListenerRules::of(rules, &domains[0].connections.clients.limits);
    for shared in domains {
        shared.listener_rules.get_or_init(|| rules.clone());
    }
}

impl Server {
    /// Where it receives datagrams.
    pub fn queues(&self) -> Vec<Queue> {
        self.sockets.iter().flat_map(|sockets| sockets.queues()).collect()
    }

    /// Its workers, of all NUMA domains together.
    pub fn workers(&self) -> usize {
        self.domains.iter().map(|shared| shared.workers.len()).sum()
    }

    /// How many NUMA domains it has.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// Reads what an operator watches, whoever calls it and when.
    pub fn watch(&self) -> impl Fn() -> WatchSnapshot + Send + Sync + 'static {
        let (shared, clock, gate) = (self.domains[0].clone(), self.clock, self.gate.clone());
        move || {
            let mut snapshot = shared.watch(clock.unix_seconds(clock.nanos()));
            snapshot.ready &= gate.get() == Some(&true);
            snapshot
        }
    }

    /// Listen, and start the workers; items are kept in `opened`, if that is given.
    ///
    /// Sets how the process's allocator treats large buffers ([`laneway_store::heap`]).
    pub fn start(settings: Settings, opened: Option<Opened>) -> Result<Server, StartError> {
        let server = Server::prepare(settings, opened, Vec::new())?;
        server.open();
        Ok(server)
    }

    /// The same, but nobody is served before [`Server::open`]; who comes waits at the listeners.
    /// Where some are handed over, they take the place of all that the settings have for streams.
    pub fn prepare(
        settings: Settings,
        opened: Option<Opened>,
        handed: Vec<Handed>,
    ) -> Result<Server, StartError> {
        settings.policy.check().map_err(StartError::Policy)?;
        laneway_store::heap::give_back_large_buffers();
        let (plain, encrypted) = listeners::all(&settings, handed)?;
        let (listeners, rules, resp_from) = plain.in_order();
        let listeners = Arc::new(listeners);
        let encrypted = handshakes::closed(&settings, encrypted);
        let parts = numa::parts(&settings);
        let sockets = bind(&settings, &parts)?;
        let door = door::listen(&settings);
        let door = door.map_err(|(place, error)| StartError::Shm(place, error))?;
        let client_table = client_table::listen(&settings).map_err(StartError::Rdma)?;
        let clock = SystemClock::start();
        let (company, seed) = (ServerShared::default(), hash_seed());
        let (mut domains, mut controls) = (Vec::new(), Vec::new());
        for (number, part) in parts.into_iter().enumerate() {
            let opened = opened.as_ref();
            let company = company.clone();
            let sockets = sockets.get(number);
            let (shared, control) = domain(part, opened, seed, company, sockets, clock)?;
            shared.resp_from.get_or_init(|| resp_from);
            domains.push(shared);
            controls.push(control);
        }
        rule(&domains, &rules);
        if let Some(placement) = numa::placement(&settings) {
            remote::link(&domains, placement);
        }
        if let Some(door) = &door {
            // Several domains have none.
            domains[0].rdma.get_or_init(|| door.registry.clone());
        }
        if let Some(client_table) = &client_table {
            domains[0].verbs.get_or_init(|| client_table.client_table.clone());
        }
        let all = encrypted.iter().flat_map(|closed| closed.listeners.iter());
        tell_places(&domains[0].connections, listeners.iter().chain(all), &sockets, clock);
        let mut workers = Vec::new();
        for (number, (shared, control)) in domains.iter().zip(controls).enumerate() {
            let sockets = sockets.get(number);
            workers.extend(workers_of(shared, &listeners, sockets, clock, control)?);
        }
        let running = opened.map(|opened| executor::Running::start(opened, &domains[0], clock));
        let executor = running.transpose().map_err(StartError::DurableExecutor)?;
        let rdma_addresses = client_table
            .as_ref()
            .map_or_else(Vec::new, |client_table| client_table.addresses.clone());
        let gate = Gate::default();
        let doors =
            open_doors((door, client_table), &domains[0], &gate).map_err(StartError::Worker)?;
        let threads = spawn(workers, executor.is_some(), &gate).map_err(StartError::Worker)?;
        let handshakes = encrypted.map(|closed| closed.open(&domains, &gate, clock)).transpose();
        let handshakes = handshakes.map_err(StartError::Worker)?;
        Ok(Server {
            domains,
            listeners,
            sockets,
            threads,
            doors,
            handshakes,
            rdma_addresses,
            executor,
            gate,
            clock,
        })
    }

    /// Serve from now on.
    pub fn open(&self) {
        if !OBSERVES {
            log::warn!("feature `unobserved`: no statistics and no limits of clients, to measure");
        }
        self.gate.get_or_init(|| true);
    }

    /// Finish what is under way, at most as long as the settings allow, and stop. An error is the
    /// data folder's: what was acknowledged is in it all the same, unless it says otherwise.
    pub fn stop(self) -> laneway_tier::Result<()> {
        let first = &self.domains[0];
        let was_open = *self.gate.get_or_init(|| false);
        let deadline = self.clock.nanos().saturating_add(nanos_of(first.settings.drain));
        // Nobody comes any more when the workers begin to leave.
        self.handshakes.into_iter().for_each(handshakes::Running::close);
        if let Some(kernel) = first.kernel.get() {
            kernel.close();
        }
        self.domains.iter().for_each(|shared| shared.enter_phase(Phase::Draining));
        // Behind the phase, by which a worker knows why nothing can be accepted there.
        self.listeners.iter().for_each(Listener::refuse);
        while was_open && !first.is_drained() && self.clock.nanos() < deadline {
            thread::sleep(DRAIN_TICK);
        }
        self.domains.iter().for_each(|shared| shared.enter_phase(Phase::Stopped));
        for thread in self.threads {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
        // A unix socket's file goes before the data folder closes, which may take long.
        drop(self.listeners);
        self.doors.into_iter().for_each(door::Running::close);
        self.executor.map_or(Ok(()), executor::Running::stop)
    }
}

/// The workers' threads; beside them an executor's, if there `is_kept`.
fn spawn(
    workers: Vec<Worker<ServerTransport>>,
    is_kept: bool,
    gate: &Gate,
) -> io::Result<Vec<JoinHandle<()>>> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let crowded = workers.len() + usize::from(is_kept) > cpus;
    let spawned = workers.into_iter().enumerate().map(|(number, worker)| {
        let builder = thread::Builder::new().name(format!("worker-{number}"));
        let gate = gate.clone();
        builder.spawn(move || once_open(&gate, || run(worker, crowded)))
    });
    spawned.collect()
}

/// Let in who writes into memory.
fn open_doors(
    (door, client_table): (Option<door::Closed>, Option<client_table::Closed>),
    shared: &Arc<Shared<ServerStream>>,
    gate: &Gate,
) -> io::Result<Vec<door::Running>> {
    let mut doors = match client_table {
        Some(client_table) => client_table.open(shared, gate)?,
        None => Vec::new(),
    };
    if let Some(door) = door {
        doors.push(door.open(shared.clone(), gate)?);
    }
    Ok(doors)
}

/// What the workers of one NUMA domain share, and their control loop.
fn domain(
    settings: Settings,
    opened: Option<&Opened>,
    hash_seed: (u64, u64),
    company: ServerShared,
    sockets: Option<&Arc<Sockets>>,
    clock: SystemClock,
) -> Result<(Arc<Shared<ServerStream>>, Control), StartError> {
    let mut kernel = Kernel::load(&settings).map_err(StartError::Kernel)?;
    let mut config = store_config(&settings, hash_seed);
    config.window = kernel.window().map_err(StartError::Kernel)?;
    let hasher = Hasher::new(config.hash_seed);
    let store = match &opened {
        None => Store::new(config),
        Some(_) => Store::with_hook(config, Box::new(Capture)),
    };
    let store = store.map_err(StartError::Store)?;
    numa::bind(&store, &settings);
    let policy = policy::build(settings.policy.clone()).map_err(StartError::Policy)?;
    let plan = policy.initial();
    let epoch_nanos = nanos_of(settings.epoch);
    let started = clock.unix_seconds(clock.nanos());
    let shared = Shared::in_company(store, settings, plan, started, company);
    if let Some(opened) = opened {
        shared.store.raise_seq(opened.seq_after());
        shared.durable.get_or_init(|| Arc::new(opened.share()));
    }
    if let Some(sockets) = sockets {
        attach(&mut kernel, &shared, sockets, &hasher, clock).map_err(StartError::Kernel)?;
    }
    // Nobody else has seen it yet.
    let _ = shared.kernel.set(kernel);
    Ok((shared, Control::new(policy, epoch_nanos, clock.nanos())))
}

/// What `stats conns` tells beside connections.
fn tell_places<'l>(
    connections: &Connections,
    listeners: impl Iterator<Item = &'l Listener>,
    sockets: &[Arc<Sockets>],
    clock: SystemClock,
) {
    let now = clock.unix_seconds(clock.nanos());
    for name in listeners.filter_map(Listener::name) {
        connections.add_place(ConnectionKind::Listener, name, now);
    }
    for queue in sockets.iter().flat_map(|sockets| sockets.queues()) {
        let kind = if queue.address.is_ipv6() { "udp6" } else { "udp" };
        connections.add_place(ConnectionKind::Datagrams, format!("{kind}:{}", queue.address), now);
    }
}

/// The workers of a NUMA domain; the first one has its control loop.
fn workers_of(
    shared: &Arc<Shared<ServerStream>>,
    listeners: &Arc<Vec<Listener>>,
    sockets: Option<&Arc<Sockets>>,
    clock: SystemClock,
    control: Control,
) -> Result<Vec<Worker<ServerTransport>>, StartError> {
    let mut control = Some(control);
    let ids = (0..shared.workers.len()).map(|number| policy::WorkerId(number as u16));
    let workers = ids.map(|id| worker(id, shared, listeners, sockets, clock, control.take()));
    workers.collect::<io::Result<_>>().map_err(StartError::Worker)
}

/// Attach what is asked of the kernel, and give up the right to.
fn attach(
    kernel: &mut Kernel,
    shared: &Shared<ServerStream>,
    sockets: &Sockets,
    hasher: &Hasher,
    clock: SystemClock,
) -> Result<(), laneway_kernel::Error> {
    if shared.settings.kernel.steer
        && let Err(error) = kernel.steer(sockets, &shared.placement)
    {
        log::warn!(
            "--steer: {error}; the kernel spreads datagrams by their senders, and \
             requests for another worker's keys are handed over in software"
        );
    }
    if let (Some(hot), Some(slots)) = (&shared.hot, kernel.slots(shared.placement)) {
        hot.steer(slots);
    }
    let queues: Vec<Queue> = sockets.queues().collect();
    kernel.attach(&queues, hasher, &clock)?;
    let patient_until = clock.nanos() + RX_QUEUE_PATIENCE.as_nanos() as u64;
    kernel.open_bypass(&shared.settings, &queues, || {
        thread::sleep(RX_QUEUE_TICK);
        clock.nanos() < patient_until
    })?;
    Kernel::drop_capabilities(&shared.settings.kernel)
}

fn worker(
    id: policy::WorkerId,
    shared: &Arc<Shared<ServerStream>>,
    listeners: &Arc<Vec<Listener>>,
    sockets: Option<&Arc<Sockets>>,
    clock: SystemClock,
    control: Option<Control>,
) -> io::Result<Worker<ServerTransport>> {
    let mut transport = SocketTransport::new(listeners.clone())?;
    if let Some(sockets) = sockets {
        transport = transport.with_datagrams(sockets.clone());
    }
    let mut datagrams: Option<Box<dyn Datagrams>> = None;
    if let Some(sockets) = sockets {
        datagrams = Some(Box::new(UdpDatagrams::new(sockets.clone())));
    }
    let way = shared.kernel.get().and_then(Kernel::bypass);
    if let (Some(way), Some(sockets)) = (way, datagrams.take_if(|_| way.is_some())) {
        let (joined, queues) = way.join(id.index(), transport, sockets)?;
        (transport, datagrams) = (joined, Some(queues));
    }
    if let Some(client_table) = shared.verbs.get() {
        let first = datagrams.as_ref().map_or(0, |udp| udp.queues());
        transport = transport.with_verbs(VerbsWatch::new(client_table.clone(), id.index(), first));
        datagrams = Some(over_verbs(client_table, id, datagrams)?);
    }
    if let Some(registry) = shared.rdma.get() {
        let first = datagrams.as_ref().map_or(0, |udp| udp.queues());
        transport = transport.with_rdma(Watch::new(registry.clone(), id.index(), first));
        datagrams = Some(in_memory(registry, id, datagrams));
    }
    let transport = EitherTransport::new(transport);
    let mut worker = Worker::new(id, shared.clone(), transport, clock, control)?;
    if let Some(datagrams) = datagrams {
        worker.serve_datagrams(datagrams)?;
    }
    Ok(worker)
}

/// A worker's handle on the queues of clients in memory, behind `others`.
fn in_memory(
    registry: &Arc<Registry>,
    id: policy::WorkerId,
    others: Option<Box<dyn Datagrams>>,
) -> Box<dyn Datagrams> {
    let responder = RingResponder::new(registry.clone(), id.index());
    let datagrams = RdmaDatagrams::new(Whence::Here, responder, registry.terms().replies);
    match others {
        Some(others) => Box::new(datagrams.behind(others)),
        None => Box::new(datagrams),
    }
}

/// A worker's handle on the queues of clients over RDMA, behind `others`.
fn over_verbs(
    client_table: &Arc<ClientTable>,
    id: policy::WorkerId,
    others: Option<Box<dyn Datagrams>>,
) -> io::Result<Box<dyn Datagrams>> {
    let responder =
        VerbsResponder::new(client_table.clone(), id.index()).map_err(io::Error::other)?;
    let datagrams = RdmaDatagrams::new(Whence::Afar, responder, verbs::DEPTH);
    Ok(match others {
        Some(others) => Box::new(datagrams.behind(others)),
        None => Box::new(datagrams),
    })
}

/// The thread of a worker. Where workers, or they and the executor, share CPUs (`crowded`) each
/// lets the others run after every slice of a large transfer: a scheduler that does not take the
/// CPU away by itself, SCHED_FIFO most of all, would have their small requests wait for all of it.
fn run(mut worker: Worker<ServerTransport>, crowded: bool) {
    numa::stay(worker.cpus());
    let slices_per_yield = match (crowded, take_short_slices()) {
        (true, _) => Some(1),
        (false, true) => Some(SLICES_PER_YIELD),
        (false, false) => None,
    };
    let mut slices = 0;
    loop {
        match worker.step() {
            Ok(Progress::Over) => break,
            Ok(Progress::Sliced) => {
                slices += 1;
                if slices_per_yield.is_some_and(|number| slices % number == 0) {
                    thread::yield_now();
                }
            }
            Ok(Progress::Busy | Progress::Idle) => {}
            Err(error) => {
                log::error!("a worker lost its transport and cannot go on: {error}");
                log::logger().flush(); // the line may wait for the thread that writes it
                std::process::exit(STATUS_TRANSPORT);
            }
        }
    }
    worker.finish();
}

/// Slices of transfers, some 10 µs each, after which a worker with short time slices lets others
/// run: to yield costs it at most such a slice ([`laneway_transport::scheduler`]), so it gives up
/// its CPU for no longer than it had it several times over.
const SLICES_PER_YIELD: u64 = 4;

/// The sockets of each domain; none where UDP is not served.
fn bind(settings: &Settings, parts: &[Settings]) -> Result<Vec<Arc<Sockets>>, StartError> {
    let Some(udp) = &settings.udp else { return Ok(Vec::new()) };
    let ports = Ports {
        addresses: vec![udp.address],
        workers: settings.workers,
        base: udp.port_base,
        ordinary: udp.port,
        join: !settings.kernel.lane.as_ref().is_some_and(LaneSettings::is_behind_joining),
    };
    let sockets = Sockets::bind(&ports).map_err(StartError::Udp)?;
    let workers: Vec<usize> = parts.iter().map(|part| part.workers).collect();
    Ok(sockets.split(&workers).into_iter().map(Arc::new).collect())
}

/// Two draws from the standard library's own random keys: a seed nobody outside can guess.
fn hash_seed() -> (u64, u64) {
    let draw = |salt: u64| RandomState::new().hash_one(salt);
    (draw(0), draw(1))
}

fn store_config(settings: &Settings, hash_seed: (u64, u64)) -> Config {
    let item_bytes_max = settings.item_bytes_max as u64;
    Config {
        memory_bytes: settings.memory_bytes,
        mode: if settings.store_mode { Mode::Store } else { Mode::Cache },
        item_bytes_max,
        hash_seed,
        // Half the memory may be on its way in, or one item of the largest size.
        unpublished_bytes_max: (settings.memory_bytes / 2).max(item_bytes_max),
        buckets_initial: BUCKETS_INITIAL,
        huge_pages: if settings.huge_pages { HugePages::All } else { HugePages::Index },
        window: None,
    }
}
