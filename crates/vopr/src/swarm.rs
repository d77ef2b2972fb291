//! What a run looks like, drawn from its seed: each seed has flags, memory, clients, faults and a
//! mix of commands of its own, so that rare combinations meet (swarm testing, Groce et al., ISSTA
//! 2012). A run is the seed and these numbers and nothing else; shrinking lowers them.

mod typed;

use crate::request::Voice;
use laneway_policy::{Access, Design, Form};
use laneway_tier::disk::sim::Random;

/// Memory for everything that the clients of a run store.
const MEMORY_BYTES_AMPLE: u64 = 24 << 20;

/// What a run draws of [`Kept`].
const KEPT: [Kept; 5] = [Kept::No, Kept::No, Kept::Always, Kept::Always, Kept::Interval];

/// What [`Swarm::smaller`] sets to the least, one after the other.
const LOWER: &str = "\
    short=0 refuse=0, reset=0, disk-faults=0, rot=0, evicts=0, back=0, datagram-faults=0, admin=0, \
    flush=0, jumps=0, wrong=0, filler=0, ends=0, large=0, hot=0, domains=1, refuse-memory=0, \
    adaptive=0, resp=0, resp-alone=0, users=0, binary=0, backups=0, scrubs=0, operates=0, \
    splits=0, compresses=0, by-age=0, slow-us=0 log-keys=0, read-only=0, per-address=0, \
    client-rate=0, client-bytes=0, listener-rate=0, listener-bytes=0, watch=0, tls=0, pipeline=1, \
    burst=1, helps=0";

/// When an acknowledged write is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is never: items live in memory alone.
    No,
    /// Before it is acknowledged.
    Always,
    /// Soon after.
    Interval,
}

impl Kept {
    /// All, as a number names them.
    const ALL: [Kept; 3] = [Kept::No, Kept::Always, Kept::Interval];
}

/// The numbers of one run. Parts are of 256, of 10 000 for datagrams, "one in" for disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swarm {
    /// Of all draws.
    pub seed: u64,
    /// Workers.
    pub workers: usize,
    /// NUMA domains, which divide them as far as that goes ([`Swarm::domains`]).
    pub domains: u16,
    /// Who serves what.
    pub design: Design,
    /// How lanes share workers.
    pub form: Form,
    /// Who may touch a key.
    pub access: Access,
    /// Hot keys are moved.
    pub hot: bool,
    /// The threshold follows the requests.
    pub adaptive: bool,
    /// Of all items.
    pub memory_bytes: u64,
    /// Longest value that is asked to be stored.
    pub value_bytes_max: usize,
    /// Refuse instead of evicting.
    pub store_mode: bool,
    /// What survives.
    pub kept: Kept,
    /// Power cuts, kills and restarts.
    pub crashes: u32,
    /// Of the SSD.
    pub ssd_bytes: usize,
    /// Items are dropped where the SSD is full.
    pub evicts: bool,
    /// Devices take long: what is not durable yet stays so for many steps.
    pub slow_devices: bool,
    /// Disks fail too.
    pub disk_faults: bool,
    /// The wall clock steps back between two servers.
    pub back: bool,
    /// Bytes of log and SSD change, at rest and as they are read.
    pub rot: bool,
    /// Nanoseconds that pass each time that somebody asks for the time: work takes time.
    pub clock_nanos: u64,
    /// Of so many requests for memory one is refused; 0: none.
    pub refuse_memory: u32,
    /// Connections at a time.
    pub clients: usize,
    /// Clients over UDP.
    pub datagram_clients: usize,
    /// Clients in shared memory.
    pub shm_clients: usize,
    /// Faults of datagrams.
    pub datagram_faults: u32,
    /// Clients that misbehave.
    pub hostile: usize,
    /// Requests that somebody who operates the server sends.
    pub admin: bool,
    /// `flush_all` and `cache_memlimit` are among them.
    pub flush: bool,
    /// Reads and writes of streams that move less than they could.
    pub short: u8,
    /// The same that move nothing.
    pub refuse: u8,
    /// Connections that break.
    pub reset: u8,
    /// What a pipe holds.
    pub pipe_bytes: usize,
    /// Keys that are asked for.
    pub keys: usize,
    /// Keys that only fill memory.
    pub filler: bool,
    /// Requests in all.
    pub commands: u32,
    /// Requests of a connection under way.
    pub pipeline: usize,
    /// Requests that a connection asks at once.
    pub burst: usize,
    /// Workers step the durable executor.
    pub helps: bool,
    /// Values that are large, in 256.
    pub large: u8,
    /// Items that end, in 256.
    pub ends: u8,
    /// Reads, in 256.
    pub reads: u8,
    /// Time jumps.
    pub jumps: bool,
    /// Requests that are wrong, each with a value that looks like commands.
    pub wrong: bool,
    /// Some connections speak RESP, where the server does.
    pub resp: bool,
    /// Every second one of these came where nothing else is spoken.
    pub resp_alone: bool,
    /// Only users may ask.
    pub users: bool,
    /// Some connections speak memcached's binary protocol.
    pub binary: bool,
    /// The store is backed up while it serves.
    pub backups: bool,
    /// All that is kept is verified beside the clients.
    pub scrubs: bool,
    /// Somebody has checkpoints made, compacts the store, bounds migration and gives it larger
    /// disks.
    pub operates: bool,
    /// The boundary between log and SSD is another at each start, or moves.
    pub splits: bool,
    /// Values are compressed from another length on at each start, or not.
    pub compresses: bool,
    /// All of the oldest segment of the log moves, and not what is cold.
    pub by_age: bool,
    /// What takes so many microseconds is noted as slow; 0: what takes 100 ms.
    pub slow_micros: u32,
    /// Keys of large requests are noted, too.
    pub log_keys: bool,
    /// One connection came by a read-only port: it asks for writes all the same.
    pub read_only: bool,
    /// Somebody watches the event log, where everybody may ask.
    pub watch: bool,
    /// Connections are counted by address; there are never as many as may be.
    pub per_address: bool,
    /// Requests a second that the connections may ask together; 0 for any number.
    pub client_rate: u32,
    /// Bytes a second, in and out.
    pub client_bytes: u32,
    /// Requests and bytes a second of all who come by one listener.
    pub listener_rates: (u32, u32),
    /// Some connections are encrypted; 0: none. 1: no client is asked for a certificate, 2: a bad
    /// one is refused, 3: so is who has none.
    pub tls: u8,
}

/// Who serves what, as one draw: not everything goes with everything.
struct Shape {
    workers: usize,
    design: Design,
    form: Form,
    access: Access,
    hot: bool,
}

impl Shape {
    fn draw(random: &mut Random) -> Shape {
        let workers = [1, 2, 2, 3, 4, 6][random.below(6) as usize];
        let design = match random.below(10) {
            0 => Design::Minos,
            1 | 2 => Design::Hkh,
            3 => Design::HkhWs,
            4 => Design::Sho,
            _ => Design::Lanes,
        };
        let design = if workers == 1 && design == Design::Sho { Design::Lanes } else { design };
        let form = match (design, random.one_in(2)) {
            (Design::Minos | Design::Sho, _) if workers > 1 => Form::Roles,
            (Design::Lanes, true) if workers > 1 => Form::Roles,
            _ => Form::TimeShare,
        };
        let access = match design {
            Design::Hkh => Access::ALL[random.below(Access::ALL.len() as u64) as usize],
            _ => Access::Crcw,
        };
        let hot =
            design == Design::Hkh && workers > 1 && access != Access::Crcw && random.one_in(2);
        Shape { workers, design, form, access, hot }
    }
}

/// Fewer than so many parts, where there are faults.
fn parts(faulty: bool, random: &mut Random, most: u64) -> u8 {
    if faulty { random.below(most) as u8 } else { 0 }
}

impl Swarm {
    /// The run of a seed.
    pub fn draw(seed: u64) -> Swarm {
        let random = &mut Random::new(seed ^ 0x5eed_0f5e_ed50_f5ee);
        let mut swarm = Swarm::draw_first(seed, random).draw_later(random);
        // By a draw of its own: nothing else hangs on how many there were before it.
        let is_drawn = Random::new(seed ^ 0x0a9e_d0a9_ed0a_9ed0).one_in(2);
        swarm.by_age = swarm.kept != Kept::No && is_drawn;
        swarm
    }

    /// What was drawn from the first version on; the rest is as without.
    fn draw_first(seed: u64, random: &mut Random) -> Swarm {
        let (shape, kept) = (Shape::draw(random), KEPT[random.below(5) as usize]);
        let tight = random.one_in(2);
        let memory_bytes = [MEMORY_BYTES_AMPLE, (2 + random.below(5)) << 20][usize::from(tight)];
        let value_bytes_max = (if tight { 16 } else { 64 }) << 10 << random.below(4);
        let (datagrams, faulty) = (random.one_in(3) && kept != Kept::Interval, random.one_in(2));
        Swarm {
            seed,
            workers: shape.workers,
            domains: 1,
            design: shape.design,
            form: shape.form,
            access: shape.access,
            hot: shape.hot,
            adaptive: random.one_in(3),
            memory_bytes,
            value_bytes_max,
            store_mode: kept == Kept::No && random.one_in(8),
            kept,
            crashes: random.below(6) as u32,
            ssd_bytes: if tight && random.one_in(2) { 4 << 20 } else { 24 << 20 },
            evicts: false,
            slow_devices: random.one_in(3),
            disk_faults: random.one_in(4),
            clients: 1 + random.below(6) as usize,
            datagram_clients: if datagrams { 1 + random.below(3) as usize } else { 0 },
            shm_clients: 0,
            datagram_faults: if faulty { random.below(400) as u32 } else { 0 },
            hostile: if random.one_in(2) { 1 + random.below(4) as usize } else { 0 },
            admin: random.one_in(2),
            flush: random.one_in(3),
            short: parts(faulty, random, 120),
            refuse: parts(faulty, random, 60),
            reset: if random.one_in(2) { parts(faulty, random, 3) } else { 0 },
            pipe_bytes: [2048, 16 << 10, 64 << 10][random.below(3) as usize],
            keys: 2 + random.below(22) as usize,
            filler: tight && !random.one_in(4),
            commands: 400 + random.below(800) as u32,
            pipeline: [1, 2, 8, 16][random.below(4) as usize],
            burst: 1,
            helps: false,
            large: [0, 8, 30, 80][random.below(4) as usize],
            ends: [0, 0, 30, 100][random.below(4) as usize],
            reads: [40, 128, 200][random.below(3) as usize],
            jumps: random.one_in(2),
            wrong: random.one_in(2),
            back: random.one_in(3) && kept != Kept::No,
            rot: random.one_in(3) && kept != Kept::No,
            clock_nanos: 0,
            refuse_memory: 0,
            resp: false,
            resp_alone: false,
            users: false,
            binary: false,
            backups: false,
            scrubs: false,
            operates: false,
            splits: false,
            compresses: false,
            by_age: false,
            slow_micros: 0,
            log_keys: false,
            read_only: false,
            watch: false,
            per_address: false,
            client_rate: 0,
            client_bytes: 0,
            listener_rates: (0, 0),
            tls: 0,
        }
    }

    /// What came to be drawn later: behind the rest, so that a seed keeps its run.
    fn draw_later(mut self, random: &mut Random) -> Swarm {
        if random.one_in(3) {
            self.domains = 1 + random.below(3) as u16;
        }
        if random.one_in(4) {
            self.refuse_memory = [6, 40, 300][random.below(3) as usize];
        }
        if random.one_in(3) {
            self.clock_nanos = 1 + random.below(40_000);
        }
        if self.kept != Kept::No && random.one_in(2) {
            self.burst = 2 + random.below(30) as usize;
            self.pipeline = self.pipeline.max(self.burst);
        }
        self.helps = self.kept != Kept::No && random.one_in(2);
        self.resp = random.one_in(if self.kept == Kept::No { 3 } else { 2 });
        self.users = random.one_in(4);
        if self.kept != Kept::No && random.one_in(3) {
            self.evicts = true;
            self.ssd_bytes = (1 << 20) << random.below(3);
        }
        self.binary = random.one_in(if self.kept == Kept::No { 3 } else { 2 });
        self.backups = self.kept != Kept::No && random.one_in(2);
        if random.one_in(2) {
            self.slow_micros = [1, 300, 20_000][random.below(3) as usize];
        }
        self.log_keys = random.one_in(2);
        self.read_only = random.one_in(2);
        self.per_address = random.one_in(2);
        self.scrubs = self.kept != Kept::No && random.one_in(2);
        self.operates = self.kept != Kept::No && random.one_in(2);
        self.watch = random.one_in(2);
        self.splits = self.kept != Kept::No && random.one_in(2);
        if random.one_in(4) {
            self.client_rate = [2_000, 20_000][random.below(2) as usize];
        }
        if random.one_in(4) {
            self.client_bytes = [4 << 20, 32 << 20][random.below(2) as usize];
        }
        if random.one_in(3) {
            self.tls = 1 + random.below(3) as u8;
        }
        if random.one_in(4) {
            self.listener_rates.0 = [2_000, 20_000][random.below(2) as usize];
        }
        if random.one_in(4) {
            self.listener_rates.1 = [4 << 20, 32 << 20][random.below(2) as usize];
        }
        self.resp_alone = self.resp && random.one_in(2);
        self.compresses = self.kept != Kept::No && random.one_in(3);
        // Nobody can say there who he is, and there is one domain.
        let may_share = self.kept != Kept::Interval && self.domains() == 1 && !self.users;
        if random.one_in(3) && may_share {
            self.shm_clients = 1 + random.below(3) as usize;
        }
        self
    }

    /// What the connection of this number speaks: the binary protocol every third one, and RESP
    /// every second one of the others.
    pub fn voice(&self, number: usize) -> Voice {
        match () {
            () if self.binary && number % 3 == 1 => Voice::Binary,
            () if self.resp && number.is_multiple_of(2) => Voice::Resp,
            () => Voice::Text,
        }
    }

    /// Whether the connection of this number came by a read-only port; the first one never.
    pub fn reads_only(&self, number: usize) -> bool {
        self.read_only && number as u64 == 1 + self.seed % 3
    }

    /// Whether the connection of this number came where nothing but RESP is spoken.
    pub fn is_alone(&self, number: usize) -> bool {
        let is_second = (number as u64 / 2 + self.seed % 2).is_multiple_of(2);
        let speaks = self.voice(number) == Voice::Resp && !self.reads_only(number);
        self.resp_alone && is_second && speaks
    }

    /// Whether the connection of this number is encrypted, where any is: two of three are.
    pub fn encrypts(&self, number: usize) -> bool {
        self.tls > 0 && !(number as u64 + self.seed % 3).is_multiple_of(3)
    }

    /// Whether only users may ask: nobody can say over UDP or in shared memory who he is.
    pub fn has_users(&self) -> bool {
        self.users && self.datagram_clients + self.shm_clients == 0
    }

    /// Whether its clients wait now and then for what they may ask.
    pub fn is_limited(&self) -> bool {
        let of_address = self.client_rate > 0 || self.client_bytes > 0;
        of_address || self.listener_rates != (0, 0)
    }

    /// Requests a second that all connections may ask together; none for any number.
    pub fn requests_per_second(&self) -> Option<u64> {
        // Each has a bucket of its own: for all, read-only, of RESP; the same encrypted.
        let plain = 1 + u64::from(self.read_only) + u64::from(self.resp_alone);
        let listeners = plain * (1 + u64::from(self.tls > 0));
        let by_listeners = u64::from(self.listener_rates.0) * listeners;
        let rates = [u64::from(self.client_rate), by_listeners];
        rates.into_iter().filter(|rate| *rate > 0).min()
    }

    /// Whether memory is shorter than what the clients store.
    pub fn is_tight(&self) -> bool {
        self.memory_bytes < MEMORY_BYTES_AMPLE
    }

    /// NUMA domains that it can have: there are designs and roles that need two workers, and most
    /// that may be chosen besides goes with one domain only, as a data folder does.
    pub fn domains(&self) -> u16 {
        let simple = matches!(self.design, Design::Lanes | Design::Hkh);
        let least = if simple && self.form == Form::TimeShare { 1 } else { 2 };
        let is_plain = self.access == Access::Crcw && !self.hot && self.shm_clients == 0;
        match self.kept == Kept::No && is_plain {
            true => self.domains.clamp(1, (self.workers / least).max(1) as u16),
            false => 1,
        }
    }

    /// Whether a store may be refused for want of memory, or of an SSD that takes the value: one
    /// that evicts is small.
    pub fn may_refuse(&self) -> bool {
        self.is_tight() || self.store_mode || self.refuse_memory > 0 || self.evicts
    }

    /// Smaller runs that may fail in the same way, the largest steps first.
    pub fn smaller(&self) -> Vec<Swarm> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Swarm)| {
            let mut smaller = self.clone();
            change(&mut smaller);
            if smaller != *self {
                all.push(smaller);
            }
        };
        add(&|swarm| swarm.commands = (swarm.commands / 2).max(1));
        add(&|swarm| swarm.commands = (swarm.commands * 7 / 8).max(1));
        add(&|swarm| swarm.crashes = 0);
        add(&|swarm| swarm.crashes = swarm.crashes.saturating_sub(1));
        add(&|swarm| swarm.hostile = 0);
        add(&|swarm| swarm.datagram_clients = 0);
        add(&|swarm| swarm.shm_clients = 0);
        add(&|swarm| swarm.clients = (swarm.clients / 2).max(1));
        LOWER.split(", ").for_each(|numbers| add(&|swarm| swarm.set_all(numbers)));
        add(&|swarm| swarm.keys = (swarm.keys / 2).max(1));
        all
    }
}
