//! A server without threads, kernel or time: workers over the memory transport, stepped in turn.
//! The same seed gives the same run.
//!
//! Four kinds of programs use it: the server's own tests, the simulator's tests that compare both,
//! the whole-server simulation (`laneway-vopr`), and the program whose instructions `cargo xtask
//! instructions` counts. It is a crate of its own so that only the simulation itself builds the
//! simulation.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a harness of tests: its names and their uses say what they are")]

pub mod afar;
pub mod binary;
mod bytes;
pub mod durable;
mod flags;
pub mod peer;
pub mod resp;
mod shm;
pub mod slot_faults;
pub mod tls;

pub use bytes::{hit, lines, tail, value};

use laneway_policy::hot::{HotSettings, HotThreshold, Slot};
use laneway_policy::ranges::SizeRanges;
use laneway_policy::{Access, CorePlan, CostModel, Design, Form, ItemBytes, LargeLane, Role};
use laneway_policy::{Nanos, Placement, SizeHistogram, SmoothHistogram, WorkerId, build, owner};
use laneway_rdma::layout::Terms;
use laneway_rdma::region::Registry;
use laneway_server::access::client_limits::{ClientLimits, Rates};
use laneway_server::access::listener_rules::ListenerRules;
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::control::Control;
use laneway_server::durable::capture::Capture;
use laneway_server::durable::cas_ids;
use laneway_server::durable::hands::DeviceExecutor;
use laneway_server::durable::shared::{Durable, Recovery};
use laneway_server::durable::shared_executor::SharedExecutor;
use laneway_server::durable::state::DurableExecutor;
use laneway_server::jobs::remote;
use laneway_server::settings::{Binding, Rules};
use laneway_server::shared::{ServerShared, Shared, WorkerShared};
use laneway_server::worker::{Progress, Worker};
use laneway_store::{Config, HugePages, Mode, Store};
use laneway_tls::{Acceptor, EitherStream, EitherTransport};
use laneway_transport::datagram::Datagrams;
use laneway_transport::memory::{Client, Faults, MemoryStream, MemoryTransport, Net};
use laneway_transport::memory_datagram::{DatagramFaults, DatagramNet};
use std::sync::Arc;
use std::time::Duration;

/// What the workers read from and write to: what those of the product do, over memory.
pub type RigStream = EitherStream<MemoryStream>;
pub type RigTransport = EitherTransport<MemoryTransport>;

/// Who comes by this listener may change nothing.
pub const READ_ONLY: usize = 1;
/// By this one nothing but RESP is spoken, where that is so anywhere.
pub const RESP_ALONE: usize = 2;

/// What a step takes on the rig's clock.
pub const STEP_NANOS: u64 = 10_000;

pub struct Rig {
    pub net: Net,
    pub datagrams: Option<DatagramNet>,
    pub registry: Option<Arc<Registry>>,
    pub rendezvous_buffers: Option<Arc<afar::RendezvousBuffers>>,
    /// Of the first NUMA domain; there may be others.
    pub shared: Arc<Shared<RigStream>>,
    /// Of each.
    pub domains: Vec<Arc<Shared<RigStream>>>,
    pub clock: ManualClock,
    pub workers: Vec<Worker<RigTransport>>,
    pub executor: Option<SharedExecutor<RigStream>>,
    /// Those who make TLS handshakes, until the server stops.
    pub pool: Option<tls::Pool>,
    pub steps: u64,
}

#[derive(Clone)]
pub struct Plan {
    /// Of all NUMA domains.
    pub workers: usize,
    /// NUMA domains, which divide workers and memory.
    pub domains: u16,
    pub form: Form,
    pub faults: Faults,
    pub memory_bytes: u64,
    pub item_bytes_max: usize,
    pub connections_max: usize,
    pub threshold_bytes: u64,
    pub design: Design,
    pub access: Access,
    pub workers_handoff: u16,
    pub extra_large: bool,
    /// Hot keys are looked after.
    pub hot: Option<HotSettings>,
    pub store_mode: bool,
    pub cas: bool,
    pub flush: bool,
    /// Whether keys are told.
    pub dump: bool,
    pub shutdown: bool,
    /// Datagrams are served, on a network with these faults.
    pub datagrams: Option<DatagramFaults>,
    /// Clients in memory are served, by memory with these faults.
    pub shm: Option<slot_faults::Faults>,
    /// How their regions are laid out, where not as usual.
    pub terms: Option<Terms>,
    /// They ring for workers that sleep; otherwise no worker sleeps.
    pub rings: bool,
    /// They are on other hosts, and their long messages travel so.
    pub afar: Option<afar::Way>,
    /// Strangers may ask.
    pub public: bool,
    /// Items are kept durably.
    pub kept: Option<durable::Kept>,
    /// Time goes on from a server before this one.
    pub clock: Option<ManualClock>,
    /// The threshold follows the sizes of requests.
    pub adaptive: bool,
    /// Redis' clients may come, too.
    pub resp: bool,
    /// They have listeners of their own: those from [`RESP_ALONE`] on.
    pub resp_alone: bool,
    /// Which of memcached's protocols are served.
    pub binding: Binding,
    /// Who may ask, where not everybody may: lines `user:password`.
    pub users: Option<&'static str>,
    /// What takes so long is slow.
    pub slow: Option<Duration>,
    /// `-o idle_timeout`; none if zero.
    pub idle_timeout: Duration,
    /// Keys of large requests are told.
    pub log_keys: bool,
    /// Most connections of an address; all of memory's clients have one. 0 for any number.
    pub connections_per_address: usize,
    /// What all who come by one listener may ask for together.
    pub listener_rates: Rates,
    /// Clients may come encrypted, too, and are shown this.
    pub tls: Option<Arc<Acceptor>>,
}

impl Plan {
    pub fn of(workers: usize, form: Form) -> Plan {
        Plan {
            workers,
            domains: 1,
            form,
            faults: Faults::NONE,
            memory_bytes: 64 << 20,
            item_bytes_max: 16 << 20,
            connections_max: 64,
            threshold_bytes: 16 * 1024,
            design: Design::Lanes,
            access: Access::Crcw,
            workers_handoff: 1,
            extra_large: false,
            hot: None,
            store_mode: false,
            cas: true,
            flush: true,
            dump: true,
            shutdown: false,
            datagrams: None,
            shm: None,
            terms: None,
            rings: false,
            afar: None,
            public: false,
            kept: None,
            clock: None,
            adaptive: false,
            resp: true,
            resp_alone: false,
            binding: Binding::Auto,
            users: None,
            slow: None,
            idle_timeout: Duration::ZERO,
            log_keys: false,
            connections_per_address: 0,
            listener_rates: Rates::default(),
            tls: None,
        }
    }

    /// A design in its own form.
    pub fn design(design: Design, workers: usize) -> Plan {
        let form = match design {
            Design::Minos | Design::Sho if workers > 1 => Form::Roles,
            _ => Form::TimeShare,
        };
        Plan { design, ..Plan::of(workers, form) }
    }

    /// Keys have owners, and hot ones are moved: slots are short, and little makes a key hot.
    pub fn hot(access: Access, workers: usize) -> Plan {
        let rule = match access {
            Access::Crew => HotSettings::lanes(workers as u16),
            _ => HotSettings::lanes_exclusive(workers as u16),
        };
        let slot = Slot { nanos: Nanos(0), requests: 20 };
        let hot = HotSettings { slot, threshold: HotThreshold::Requests(2), ..rule };
        Plan { access, hot: Some(hot), ..Plan::design(Design::Hkh, workers) }
    }

    /// Which it is, for messages.
    pub fn what(&self) -> String {
        let Plan { design, workers, form, access, workers_handoff, .. } = self;
        let threshold = self.threshold_bytes;
        let hot = self.hot.map_or("", |_| " hot");
        format!(
            "{design} {access}{hot} {workers} workers ({workers_handoff}) {form} from {threshold}"
        )
    }
}

/// `lanes` in both forms, on 1, 2 and 6 workers.
pub fn plans_of_lanes() -> Vec<Plan> {
    let forms = FORMS.iter().map(|&(workers, form)| Plan::of(workers, form));
    forms.chain([Plan::of(1, Form::TimeShare)]).collect()
}

/// Each design once, with workers enough to differ.
pub fn one_of_each_design() -> [Plan; 5] {
    [
        Plan::of(6, Form::Roles),
        Plan { design: Design::Minos, ..Plan::of(6, Form::Roles) },
        Plan { design: Design::Hkh, ..Plan::of(4, Form::TimeShare) },
        Plan { design: Design::HkhWs, ..Plan::of(4, Form::TimeShare) },
        Plan { design: Design::Sho, ..Plan::of(4, Form::TimeShare) },
    ]
}

/// The other designs on 1, 2 and 6 workers, with all that can be chosen of them.
pub fn plans_of_rivals() -> Vec<Plan> {
    let mut plans = vec![Plan::design(Design::Hkh, 1)]; // where no design has anything to decide
    for workers in [1, 2, 6] {
        plans.push(Plan::design(Design::Minos, workers));
    }
    for access in [Access::Erew, Access::Crew] {
        plans.push(Plan::hot(access, 6));
    }
    for workers in [2, 6] {
        plans.push(Plan::design(Design::HkhWs, workers));
        plans.push(Plan::design(Design::Sho, workers));
        for access in Access::ALL {
            plans.push(Plan { access, ..Plan::design(Design::Hkh, workers) });
        }
    }
    plans.push(Plan { workers_handoff: 3, ..Plan::design(Design::Sho, 6) });
    plans.push(Plan { extra_large: true, ..Plan::design(Design::Minos, 6) });
    plans
}

/// All of them.
pub fn plans() -> Vec<Plan> {
    [plans_of_lanes(), plans_of_rivals()].concat()
}

/// Both forms at 2 and at 6 workers, whatever the machine has.
pub const FORMS: [(usize, Form); 4] =
    [(2, Form::TimeShare), (6, Form::TimeShare), (2, Form::Roles), (6, Form::Roles)];

impl Rig {
    pub fn new(plan: &Plan) -> Rig {
        let clock = plan.clock.clone().unwrap_or_default();
        let placement = Placement::new(owner::SEED, plan.workers as u16, plan.domains);
        let placement = placement.expect("each domain has a worker");
        let company = ServerShared::default();
        let parts = (0..plan.domains).map(|domain| {
            let (first, workers) = placement.queues_of(domain);
            let memory_bytes = plan.memory_bytes / u64::from(plan.domains);
            let part = Plan { workers: workers.into(), memory_bytes, ..plan.clone() };
            (usize::from(first.0), domain_of(&part, &clock, company.clone()))
        });
        let parts: Vec<_> = parts.collect();
        let all: Vec<_> = parts.iter().map(|(_, (shared, _))| shared.clone()).collect();
        if plan.domains > 1 {
            remote::link(&all, placement);
        }
        let rules = rules(plan, &all[0].connections.clients.limits);
        for shared in &all {
            shared.listener_rules.get_or_init(|| rules.clone());
            if plan.resp_alone {
                shared.resp_from.get_or_init(|| RESP_ALONE);
            }
        }
        let mut rig = Rig {
            net: Net::new(plan.faults),
            datagrams: plan.datagrams.map(|faults| DatagramNet::new(faults, plan.workers)),
            registry: plan.shm.map(|_| shm::registry(plan)),
            rendezvous_buffers: plan.afar.map(afar::RendezvousBuffers::new),
            shared: all[0].clone(),
            domains: all,
            clock,
            workers: Vec::new(),
            executor: None,
            pool: None,
            steps: 0,
        };
        let pool = |shown| tls::Pool::new(&rig.net, &rig.domains, plan, shown);
        rig.pool = plan.tls.as_ref().map(pool);
        if let Some(registry) = &rig.registry {
            rig.shared.rdma.get_or_init(|| registry.clone());
        }
        for (first, (shared, control)) in parts {
            let mut control = Some(control);
            for number in 0..shared.workers.len() {
                let worker = rig.worker(plan, &shared, (first, number), control.take());
                rig.workers.push(worker);
            }
        }
        if let Some(kept) = &plan.kept {
            rig.keep(kept.hands());
        }
        rig
    }

    /// One that has all that operators can watch: two workers, whose clients come by streams and
    /// datagrams and whose items are kept durably.
    pub fn watched() -> Rig {
        let machine = durable::Machine::new(32 * durable::SEGMENT_BYTES as usize, 16 << 20);
        let tier = machine.open(durable::settings()).expect("the media are sound");
        let (kept, datagrams) = (Some(durable::Kept::of(&tier)), Some(DatagramFaults::NONE));
        Rig::new(&Plan { kept, datagrams, ..Plan::of(2, Form::TimeShare) })
    }

    /// Items are kept by a durable executor with these hands.
    pub fn keep(&mut self, hands: Box<dyn DeviceExecutor>) {
        self.executor = Some(SharedExecutor::new(DurableExecutor::new(self.shared.clone(), hands)));
    }

    /// From now on workers step the durable executor too.
    pub fn let_help(&self) {
        if let (Some(executor), Some(durable)) = (&self.executor, self.shared.durable.get()) {
            executor.let_help(durable);
        }
    }

    /// Who has come and is not through his handshake.
    pub fn knocking(&self) -> usize {
        self.pool.as_ref().map_or(0, tls::Pool::knocking)
    }

    /// Whether the durable executor has nothing under way.
    pub fn keeps_nothing(&self) -> bool {
        self.executor.as_ref().is_none_or(|executor| executor.lock().is_idle())
    }

    /// Worker `number` of a domain whose workers are numbered from `first` on among all.
    fn worker(
        &self,
        plan: &Plan,
        shared: &Arc<Shared<RigStream>>,
        (first, number): (usize, usize),
        control: Option<Control>,
    ) -> Worker<RigTransport> {
        let workers = shared.workers.len();
        let datagrams = self.datagrams.as_ref().map(|net| net.part(first..first + workers));
        let mut transport = self.net.transport().at_listeners(0..tls::ENCRYPTED);
        if let Some(datagrams) = &datagrams {
            transport = transport.with_datagrams(datagrams);
        }
        if let Some(registry) = &self.registry {
            let first = if datagrams.is_some() { workers } else { 0 };
            transport = shm::watching(transport, registry, (number, first), plan.rings);
        }
        let (id, transport) = (WorkerId(number as u16), EitherTransport::new(transport));
        let mut worker = Worker::new(id, shared.clone(), transport, self.clock.clone(), control)
            .expect("memory transports do not fail");
        let mut queues: Option<Box<dyn Datagrams>> = None;
        if let Some(net) = &datagrams {
            queues = Some(Box::new(net.datagrams()));
        }
        if let (Some(registry), Some(faults)) = (&self.registry, plan.shm) {
            let faults = (faults, &self.rendezvous_buffers);
            queues = Some(shm::queues(registry, number, faults, queues));
        }
        if let Some(queues) = queues {
            worker.serve_datagrams(queues).expect("memory transports do not fail");
        }
        worker
    }

    /// What others see of a worker, by its number among all.
    pub fn place(&self, mut number: usize) -> &WorkerShared<RigStream> {
        for shared in &self.domains {
            match shared.workers.get(number) {
                Some(worker) => return worker,
                None => number -= shared.workers.len(),
            }
        }
        panic!("there is no such worker")
    }

    /// Memory outside of the store that input and replies take, of the connection with the most and
    /// of all.
    pub fn connection_bytes(&self) -> (usize, usize) {
        let each = self.workers.iter().map(Worker::connection_bytes);
        each.fold((0, 0), |(most, all), (one, its)| (one.max(most), all + its))
    }

    /// Items that the tier evicted.
    pub fn tier_evictions(&self) -> u64 {
        let evicted = self.shared.durable.get().map(|durable| durable.tier.evicted());
        evicted.map_or(0, |evicted| evicted.small.items + evicted.large.items)
    }

    /// Items that memory evicted.
    pub fn evictions(&self) -> u64 {
        self.domains.iter().map(|shared| shared.store.evicted_items()).sum()
    }

    /// One step of every worker.
    pub fn turn(&mut self) {
        for worker in &mut self.workers {
            let progress = worker.step().expect("memory transports do not fail");
            assert_ne!(progress, Progress::Over);
        }
        if let Some(executor) = &self.executor {
            let now = self.clock.nanos();
            executor.lock().step(now, self.clock.moment(now));
        }
        if let Some(pool) = &mut self.pool {
            pool.shake(&self.clock);
            pool.bring(&self.clock);
        }
        self.clock.advance(STEP_NANOS);
        self.steps += 1;
    }

    pub fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// Send all of `bytes`, turning the wheel as the pipe fills; what comes back meanwhile is
    /// returned.
    pub fn send(&mut self, client: &Client, bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut back) = (0, Vec::new());
        for _ in 0..1_000_000 {
            sent += client.send(&bytes[sent..]);
            if sent == bytes.len() {
                return back;
            }
            self.turn();
            back.extend(client.receive(usize::MAX));
        }
        panic!("{} of {} bytes were taken in a million turns", sent, bytes.len());
    }

    /// Turn until `done` says so of what the client has received; at most a million turns.
    pub fn until(
        &mut self,
        client: &Client,
        mut got: Vec<u8>,
        done: impl Fn(&[u8]) -> bool,
    ) -> Vec<u8> {
        for _ in 0..1_000_000 {
            got.extend(client.receive(usize::MAX));
            if done(&got) {
                return got;
            }
            assert!(!client.ended(), "the server closed after {:?}", tail(&got));
            self.turn();
        }
        panic!("no answer in a million turns; so far {} bytes, {:?}", got.len(), tail(&got));
    }

    /// Ask, and return the reply once it ends with `end`.
    pub fn ask(&mut self, client: &Client, request: &[u8], end: &[u8]) -> Vec<u8> {
        let back = self.send(client, request);
        self.until(client, back, |got| got.ends_with(end))
    }

    /// Store a value.
    pub fn set(&mut self, client: &Client, key: &str, value: &[u8]) {
        assert_eq!(self.ask(client, &peer::set(key, value), b"\r\n"), b"STORED\r\n");
    }

    /// Give so many workers the role of serving large requests alone.
    pub fn publish_large(&mut self, large: usize) {
        self.publish_large_in(0, large);
    }

    /// The same in a NUMA domain.
    pub fn publish_large_in(&mut self, domain: usize, large: usize) {
        publish(&self.domains[domain], |plan| {
            let small = plan.roles.len() - large;
            plan.workers_small = small as u16;
            for (number, role) in plan.roles.iter_mut().enumerate() {
                *role = if number < small { Role::Small } else { Role::Large };
            }
            if let LargeLane::Ranges(ranges) = &mut plan.large_lane {
                let mut sizes = SmoothHistogram::new();
                let mut epoch = SizeHistogram::default();
                for (bytes, count) in [(20_000, 15), (60_000, 5), (300_000, 1)] {
                    (0..count).for_each(|_| epoch.record(ItemBytes(bytes)));
                }
                sizes.absorb(&epoch, 1.0);
                let cost = CostModel::Bytes;
                *ranges = SizeRanges::equal_cost(&sizes, cost, plan.threshold, large as u16);
            }
        });
    }

    /// Put another plan in force, as the control loop would.
    pub fn publish(&mut self, change: impl FnOnce(&mut CorePlan)) {
        publish(&self.shared, change);
    }
}

fn publish(shared: &Shared<RigStream>, change: impl FnOnce(&mut CorePlan)) {
    let mut plan = (*shared.plan.get()).clone();
    plan.epoch += 1;
    change(&mut plan);
    shared.plan.publish(plan);
}

/// What holds at the listeners: at those that encrypt, or at the others.
fn rules(plan: &Plan, limits: &ClientLimits) -> Vec<ListenerRules> {
    let rules = |at| Rules { read_only: at == READ_ONLY, rates: plan.listener_rates };
    ListenerRules::of(&[0, READ_ONLY, RESP_ALONE].map(rules), limits)
}

/// What the workers of a domain share, whatever their streams are, and its control loop.
pub fn domain_of<S>(
    plan: &Plan,
    clock: &ManualClock,
    company: ServerShared,
) -> (Arc<Shared<S>>, Control) {
    let policy_settings = laneway_policy::Settings {
        design: plan.design,
        form: (plan.design == Design::Lanes).then_some(plan.form),
        access: plan.access,
        workers_handoff: plan.workers_handoff,
        extra_large: plan.extra_large,
        hot: plan.hot,
        workers: plan.workers as u16,
        threshold_fixed: (!plan.adaptive).then_some(ItemBytes(plan.threshold_bytes)),
        samples_min: 50,
        ..laneway_policy::Settings::default()
    };
    let settings = flags::of(plan, policy_settings.clone());
    let policy = build(policy_settings).expect("the settings fit");
    let started_seconds = clock.unix_seconds(clock.nanos());
    let store = store(plan);
    let shared = Shared::in_company(store, settings, policy.initial(), started_seconds, company);
    if let Some(kept) = &plan.kept {
        shared.store.raise_seq(cas_ids::leave_out(&kept.tier, kept.interval));
        let durable = Durable::new(kept.tier.clone(), kept.interval, Recovery::default());
        shared.durable.get_or_init(|| Arc::new(durable));
    }
    (shared, Control::new(policy, 1_000_000_000, 0))
}

fn store(plan: &Plan) -> Arc<Store> {
    let config = Config {
        memory_bytes: plan.memory_bytes,
        mode: if plan.store_mode { Mode::Store } else { Mode::Cache },
        item_bytes_max: plan.item_bytes_max as u64,
        hash_seed: (1, 2),
        unpublished_bytes_max: plan.memory_bytes / 2,
        buckets_initial: 64,
        huge_pages: HugePages::None,
        window: None,
    };
    let store = match &plan.kept {
        None => Store::new(config),
        Some(_) => Store::with_hook(config, Box::new(Capture)),
    };
    store.expect("memory for a small store")
}
