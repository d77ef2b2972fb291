//! What is simulated: a machine, what its work costs, and what arrives.

use super::{Nic, Numa, SharedLines, Standby, Streams};
use crate::events::NEVER;
use crate::sample::{Packets, Sample};
use crate::stats::US;
use crate::workload::{Drawn, Mix, Replayed, Sizes};
use laneway_policy::cost::{PACKET_COST_NS, REQUEST_COST_NS};
use laneway_policy::{Access, BATCH, CorePlan, Design, ItemBytes, Settings};

const NS: u64 = 1_000;

/// What work costs, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A request, whatever its size, everything that follows included but for hand-off and steal.
    pub request: u64,
    /// Each packet of it.
    pub packet: u64,
    /// The part of `request` that receiving is: whoever takes a request over is spared it.
    pub receive: u64,
    /// What handing over costs beyond receiving: the look-up and the software queue.
    pub handoff: u64,
    /// Taking a request from a queue that others fill or empty as well.
    pub steal: u64,
    /// Coming back to a transfer for another slice.
    pub slice: u64,
    /// The part of `request` that counting sizes is.
    pub profile: u64,
}

impl Costs {
    /// What `policy` takes a request to cost, which makes 6.2 Mops of the paper's default mix on 8
    /// cores; the rest is chosen to reproduce the paper's peaks (see docs/papers.md).
    pub const MINOS: Costs = Costs {
        request: REQUEST_COST_NS * NS,
        packet: PACKET_COST_NS * NS,
        receive: 200 * NS,
        handoff: 100 * NS,
        steal: 100 * NS,
        slice: 100 * NS,
        profile: 130 * NS,
    };

    /// One microsecond a packet and nothing else (Minos §2.2).
    pub const UNIT: Costs =
        Costs { request: 0, packet: US, receive: 0, handoff: 0, steal: 0, slice: 0, profile: 0 };

    /// The most that a design may spare a request.
    pub const fn spared(&self) -> u64 {
        self.receive + self.profile
    }

    /// Of serving one request of this size, received and all.
    pub fn service(&self, bytes: u32) -> u64 {
        self.request + self.packet * ItemBytes(u64::from(bytes)).packets().0
    }

    /// Of serving this request: as it was measured, or by its size.
    #[inline]
    pub fn of(&self, drawn: &Drawn) -> u64 {
        drawn.measured.unwrap_or_else(|| self.service(drawn.bytes))
    }

    /// Mean over a mix: as it was measured, over all of a trace, or by a million draws with a fixed
    /// seed.
    pub fn mean_service(&self, mix: &Mix) -> f64 {
        if let Some(mean) = mix.sizes.mean_service() {
            return mean;
        }
        let Packets { packets, requests } = Sample::of(mix).packets(mix);
        let of = |each: u64, count: u64| u128::from(each) * u128::from(count);
        (of(self.request, requests) + of(self.packet, packets)) as f64 / requests as f64
    }

    /// The same over a run of so many requests: what a trace has for them, over and over, or the
    /// mean of the mix.
    pub fn mean_service_of(&self, mix: &Mix, requests: u64) -> f64 {
        let Sizes::Trace(rows) = &mix.sizes else { return self.mean_service(mix) };
        let sum = |rows: &[Replayed]| rows.iter().map(|row| self.service(row.bytes) as f64).sum();
        let len = rows.len() as u64;
        let (rounds, rest): (f64, f64) = (sum(rows), sum(&rows[..(requests % len) as usize]));
        ((requests / len) as f64 * rounds + rest) / requests as f64
    }
}

/// In which order a worker serves its transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceOrder {
    /// One to its end, then the next.
    OneByOne,
    /// A slice of each in turn.
    InTurn,
    /// A slice of the one with the least left: SRPT among large requests, but within a slice.
    ShortestFirst,
}

/// What of another worker's requests one can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All that lies in its RX queue: it is a queue of a NIC that anybody may read.
    Unread,
    /// The same, but it is a socket for datagrams: nobody sees how much lies there. Small workers
    /// look into those of others in turn, large ones do not.
    Sockets,
    /// What it has received and offers: it is a set of connections, and what nobody has read from
    /// one is the worker's whose connection it is. Requests come to small workers alone.
    Offered,
}

/// A scheduler that a rival has of its own, on a core beside the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Central {
    /// Shinjuku: a dispatcher has all requests.
    Preempt {
        /// How long a worker serves a request while others wait.
        quantum: u64,
        /// What the worker loses by the interrupt and the change of context.
        cost: u64,
    },
    /// Perséphone: the same, and small and large requests are its two kinds.
    Reserve,
    /// Tiny Quanta: a dispatcher chooses a worker.
    Share {
        /// How long a worker serves a request before it goes on to its next one.
        quantum: u64,
        /// What it loses by that.
        cost: u64,
    },
    /// Caladan: cores are granted.
    Grant {
        /// The queues are looked at so often, and a core is granted where a request has waited for
        /// so long.
        interval: u64,
        /// A core that is granted comes after so long.
        coming: u64,
        /// A core that finds nothing searches for so long.
        search: u64,
    },
}

impl Central {
    /// By their names, with what their papers have.
    pub const NAMED: [(&str, Central); 4] = [
        ("shinjuku", Central::Preempt { quantum: 5 * US, cost: US }),
        ("darc", Central::Reserve),
        ("tq", Central::Share { quantum: 2 * US, cost: US / 20 }),
        ("caladan", Central::Grant { interval: 10 * US, coming: 5 * US, search: 2 * US }),
    ];

    /// Whether it receives requests, so that workers are spared that and have no RX queues.
    pub const fn receives(self) -> bool {
        !matches!(self, Central::Grant { .. })
    }
}

/// RX queues with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rx {
    /// Requests that one holds.
    pub requests: u32,
    /// A client waits so long for a reply before it sends its request again.
    pub retry: u64,
}

/// Changes to every plan of the policy, to try what the policy does not offer (the sweeps).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tweak {
    /// Large workers, whatever the rule says.
    pub workers_large: Option<u16>,
    /// What must wait in an RX queue for a large worker to help out between slices.
    pub steal_queue_min: Option<u32>,
    /// How many small requests a large worker takes between two slices.
    pub steal_requests_max: Option<u32>,
    /// Whether idle workers take requests from others.
    pub steal_when_idle: Option<bool>,
    /// How many slices of large replies a worker may have unsent, where the plan caps them.
    pub slices_unsent_max: Option<u64>,
}

impl Tweak {
    /// The plan, changed.
    pub(super) fn apply(self, mut plan: CorePlan) -> CorePlan {
        if let Some(large) = self.workers_large {
            plan.roles = laneway_policy::cores::roles(plan.workers(), large);
            plan.workers_small = plan.workers() - large;
            plan.standby_raised &= large == 0;
        }
        if let Some(min) = self.steal_queue_min {
            plan.steal.between_slices_queue_min = Some(min);
        }
        if let Some(most) = self.steal_requests_max {
            plan.steal.between_slices_requests_max = most;
        }
        if let Some(when_idle) = self.steal_when_idle {
            plan.steal.when_idle = when_idle;
        }
        if let (Some(cap), Some(slices), Some(slice)) =
            (&mut plan.large_unsent_bytes_max, self.slices_unsent_max, plan.slice_bytes)
        {
            *cap = ItemBytes(slices * slice.0);
        }
        plan
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// What the server would be told.
    pub settings: Settings,
    /// What work costs.
    pub costs: Costs,
    /// The wire that replies leave by; `None`: a reply is there when it is made.
    pub nic: Option<Nic>,
    /// Requests taken from an RX queue at a time.
    pub batch: u32,
    /// All requests in one queue that everybody reads: late binding.
    pub central_queue: bool,
    /// In which order transfers are served.
    pub slice_order: SliceOrder,
    /// When the standby goes back to small requests.
    pub standby: Standby,
    /// What can be taken from others.
    pub reach: Reach,
    /// A rival's scheduler, instead of the policy's plan.
    pub central: Option<Central>,
    /// The end of RX queues; `None`: they have none.
    pub rx: Option<Rx>,
    /// The NUMA domains of which this is one; `None`: it is alone.
    pub numa: Option<Numa>,
    /// Cache lines that all workers write; `None`: they share none.
    pub lines: Option<SharedLines>,
    /// The connections by which requests come; `None`: each request stands alone.
    pub streams: Option<Streams>,
    /// Sizes are counted. Our server counts them whatever the design, for its statistics; the
    /// paper's rivals of `minos` had nothing to count them for.
    pub profiles: bool,
    /// Added to every latency: what the client sees of the network and of itself.
    pub network: u64,
    /// Length of an epoch.
    pub epoch: u64,
    /// Changes to the policy's plans.
    pub tweak: Tweak,
}

impl Machine {
    /// The paper's server with so many cores, without a wire; epochs must be set.
    pub fn new(design: Design, workers: u16) -> Machine {
        Machine {
            settings: Settings { design, workers, ..Settings::default() },
            costs: Costs::MINOS,
            nic: None,
            batch: BATCH,
            central_queue: false,
            slice_order: SliceOrder::OneByOne,
            standby: Standby::Returns,
            reach: Reach::Unread,
            central: None,
            rx: None,
            numa: None,
            lines: None,
            streams: None,
            profiles: true,
            network: 0,
            epoch: NEVER,
            tweak: Tweak::default(),
        }
    }

    /// Panics where the machine has what does not go together.
    pub(super) fn check(&self) {
        let alone = self.streams.is_none() && self.nic.is_none();
        assert!(self.central.is_none() || alone, "a rival's scheduler has no wire");
        let queues = self.streams.is_none() && self.central.is_none_or(|one| !one.receives());
        assert!(self.rx.is_none() || queues, "there are no RX queues");
        assert!(self.lines.is_none_or(|lines| lines.spread > 0 && self.central.is_none()), "lines");
        assert!(self.numa.is_none() || self.central.is_none() && alone, "of no domain");
        let sharded = self.settings.design == Design::Hkh && self.central.is_none();
        let owned = self.settings.access != Access::Crcw;
        assert!(!owned || sharded && self.streams.is_none(), "keys have no owner");
    }
}

/// What arrives, and how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Mixes one after the other, each from a time on; the first from 0.
    pub phases: Vec<(u64, Mix)>,
    /// Requests per second.
    pub rate: f64,
    /// Requests not counted at the beginning.
    pub warmup: u64,
    /// Requests counted.
    pub requests: u64,
    /// Length of the windows of `Outcome::windows`, if any are wanted.
    pub window: Option<u64>,
    /// Break the run off as soon as p99 over all requests is certain to be above this.
    pub p99_max: Option<u64>,
}

impl Traffic {
    /// Of a run in which so many requests count: a fifth of them.
    pub(crate) fn warmup(requests: u64) -> u64 {
        requests / 5
    }

    /// One mix all the time, with a fifth more requests at the start that do not count.
    pub fn steady(mix: Mix, rate: f64, requests: u64) -> Traffic {
        let warmup = Traffic::warmup(requests);
        Traffic { phases: vec![(0, mix)], rate, warmup, requests, window: None, p99_max: None }
    }
}
