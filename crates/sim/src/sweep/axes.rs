//! The axes of a sweep: what a parameter is called, what it is, and how its text is read into what
//! a point is made of ([`Spec`]). Their order is that of the rows' columns, and of what is read
//! first: `way` sets costs that `request-ns` may change.

use super::spec::Spec;
use crate::inputs::{KEYS_MAX, ZIPF_MAX};
use crate::machine::{Central, Standby, Streams, WireOrder};
use crate::row::{self, Cell};
use crate::scenarios::{WAYS, by_connections};
use crate::stats::US;
use crate::workload::Sizes;
use laneway_policy::{Access, CostModel, Design, ITEM_BYTES_MAX, ItemBytes};
use std::borrow::Cow;

/// Most requests of one run.
const REQUESTS_MAX: u64 = 1 << 36;

/// Connections are drawn by sixteen bits.
const CONNECTIONS_MAX: u64 = 1 << 16;

/// Deeper pipelines are no client's.
const DEPTH_MAX: u64 = 1024;

type Read = fn(&mut Spec, &str) -> Result<(), String>;

/// A parameter: its flag without dashes, what it is, and how it is read. The error says what the
/// value must be.
pub(super) struct Axis {
    pub(super) name: &'static str,
    about: &'static str,
    pub(super) read: Read,
}

const fn axis(name: &'static str, about: &'static str, read: Read) -> Axis {
    Axis { name, about, read }
}

/// A whole number within these bounds; the error says what it must be.
pub fn whole<T: TryFrom<u64>>(text: &str, low: u64, high: u64) -> Result<T, String> {
    let number = text.parse::<u64>().ok().filter(|number| (low..=high).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("must be a whole number from {low} to {high}"))
}

/// A number that a parameter may be.
pub fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("must be a number from {low} to {high}"))
}

fn name_of_file(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must be the name of a file".to_owned()) } else { Ok(text.to_owned()) }
}

fn one_of<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    found.ok_or_else(|| format!("must be one of {}", all.join(", ")))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    one_of(text, &[("true", true), ("false", false)])
}

fn ns(text: &str) -> Result<u64, String> {
    Ok(whole::<u64>(text, 0, 1_000_000_000)? * 1_000)
}

/// A time in microseconds, from so many to a second.
fn us(text: &str, low: f64) -> Result<u64, String> {
    Ok((number(text, low, 1e6)? * US as f64) as u64)
}

/// What was read goes to its place.
fn set<T>(place: &mut T, read: Result<T, String>) -> Result<(), String> {
    *place = read?;
    Ok(())
}

/// All designs by their names.
pub(super) fn designs() -> impl Iterator<Item = (&'static str, (Design, Option<Central>))> {
    let rival = |(name, central)| (name, (Design::Hkh, Some(central)));
    let ours = Design::ALL.iter().map(|design| (design.name(), (*design, None)));
    ours.chain(Central::NAMED.map(rival))
}

pub(super) const AXES: &[Axis] = &[
    axis(
        "design",
        "lanes, minos, hkh, hkh-ws, sho, shinjuku, darc, tq, caladan; all",
        |spec, text| {
            let names: Vec<_> = designs().collect();
            (spec.machine.settings.design, spec.machine.central) = one_of(text, &names)?;
            Ok(())
        },
    ),
    axis("quantum-us", "a request's turn with a worker: shinjuku (5), tq (2)", |spec, text| {
        let length = us(text, 0.001)?;
        if let Some(Central::Preempt { quantum, .. } | Central::Share { quantum, .. }) =
            &mut spec.machine.central
        {
            *quantum = length;
        }
        Ok(())
    }),
    axis("preempt-ns", "taking a worker from a request: shinjuku (1000), tq (50)", |spec, text| {
        let time = ns(text)?;
        if let Some(Central::Preempt { cost, .. } | Central::Share { cost, .. }) =
            &mut spec.machine.central
        {
            *cost = time;
        }
        Ok(())
    }),
    axis(
        "look-us",
        "caladan looks for a wait so long this often, and grants (10)",
        |spec, text| {
            let time = us(text, 0.1)?;
            if let Some(Central::Grant { interval, .. }) = &mut spec.machine.central {
                *interval = time;
            }
            Ok(())
        },
    ),
    axis("grant-us", "until a core that caladan grants is there (5)", |spec, text| {
        let time = us(text, 0.0)?;
        if let Some(Central::Grant { coming, .. }) = &mut spec.machine.central {
            *coming = time;
        }
        Ok(())
    }),
    axis("search-us", "a core of caladan without work goes after (2)", |spec, text| {
        let time = us(text, 0.0)?;
        if let Some(Central::Grant { search, .. }) = &mut spec.machine.central {
            *search = time;
        }
        Ok(())
    }),
    axis("workers", "cores (8)", |spec, text| {
        set(&mut spec.machine.settings.workers, whole(text, 1, 64))
    }),
    axis("load", "share of what the CPUs can do, above 0 to 1 (0.7)", |spec, text| {
        set(&mut spec.load, number(text, 1e-6, 1.0).map(Some))
    }),
    axis("rate", "requests per second, instead of load", |spec, text| {
        set(&mut spec.rate, number(text, 1.0, 1e12).map(Some))
    }),
    axis(
        "workload",
        "as laneway bench names it: twitter-4; or a TOML file (plan --help)",
        |spec, text| set(&mut spec.workload, name_of_file(text).map(Some)),
    ),
    axis("large-percent", "large requests, p_L (0.125)", |spec, text| {
        set(&mut spec.mix.large_percent, number(text, 0.0, 100.0))
    }),
    axis("large-bytes-max", "the largest value, s_L (500000)", |spec, text| {
        let most = whole(text, 1500, ITEM_BYTES_MAX.0);
        set(&mut spec.mix.sizes, most.map(|large_bytes_max| Sizes::Etc { large_bytes_max }))
    }),
    axis("k", "two sizes: one frame, and K frames for the large (Minos 2.2)", |spec, text| {
        let frames = whole(text, 1, 100_000);
        set(&mut spec.mix.sizes, frames.map(|large_frames| Sizes::Bimodal { large_frames }))
    }),
    axis(
        "service-file",
        "sizes and service times: lines of item_bytes nanos [weight]",
        |spec, text| set(&mut spec.service_file, name_of_file(text).map(Some)),
    ),
    axis("trace", "a trace's requests: rows of ts,key,ksize,vsize,client,op,ttl", |spec, text| {
        set(&mut spec.trace, name_of_file(text).map(Some))
    }),
    axis("burst-factor", "rate in bursts over that between them; 1: Poisson (1)", |spec, text| {
        set(&mut spec.bursts.factor, number(text, 1.0, 1e6))
    }),
    axis("burst-share", "of the time, in bursts (0.1)", |spec, text| {
        set(&mut spec.bursts.share, number(text, 1e-6, 0.999_999))
    }),
    axis("burst-us", "a burst lasts, on average (100)", |spec, text| {
        set(&mut spec.bursts.length, number(text, 0.001, 1e9).map(|us| (us * US as f64) as u64))
    }),
    axis("get-share", "share of reads (0.95)", |spec, text| {
        set(&mut spec.mix.get_share, number(text, 0.0, 1.0))
    }),
    axis(
        "access",
        "erew, crew: a key's owner serves it, or its writes; crcw; of hkh",
        |spec, text| {
            let names = Access::ALL.map(|access| (access.name(), access));
            set(&mut spec.machine.settings.access, one_of(text, &names))
        },
    ),
    axis("keys", "that small requests are for, with --access (100000)", |spec, text| {
        set(&mut spec.keys.count, whole(text, 1, KEYS_MAX))
    }),
    axis("zipf", "exponent of their popularity, 0: all alike (0.99)", |spec, text| {
        set(&mut spec.keys.zipf_exponent, number(text, 0.0, ZIPF_MAX))
    }),
    axis("reply-share", "share of requests whose reply is sent (1)", |spec, text| {
        set(&mut spec.mix.reply_share, number(text, 0.0, 1.0))
    }),
    axis("requests", "that count, for each seed (400000)", |spec, text| {
        set(&mut spec.requests, whole(text, 1_000, REQUESTS_MAX))
    }),
    axis("seeds", "runs of each point (3)", |spec, text| {
        set(&mut spec.seeds, whole(text, 1, 1_000))
    }),
    axis("epoch-requests", "length of an epoch, on average (80000)", |spec, text| {
        set(&mut spec.epoch_requests, whole(text, 1, REQUESTS_MAX))
    }),
    axis("percentile", "up to which requests are small (99)", |spec, text| {
        set(&mut spec.machine.settings.percentile, number(text, 0.0, 100.0))
    }),
    axis("threshold", "in bytes, fixed", |spec, text| {
        let threshold = whole(text, 1, ITEM_BYTES_MAX.0).map(ItemBytes);
        set(&mut spec.machine.settings.threshold_fixed, threshold.map(Some))
    }),
    axis("cost", "packets, bytes or constant-packets; as the design has it", |spec, text| {
        set(&mut spec.cost, text.parse::<CostModel>().map_err(|error| error.to_string()).map(Some))
    }),
    axis("slice-bytes", "a large transfer's turn, of lanes (32768)", |spec, text| {
        let bytes = whole(text, 1472, ITEM_BYTES_MAX.0).map(ItemBytes);
        set(&mut spec.machine.settings.slice_bytes, bytes)
    }),
    axis("slice-order", "one-by-one (default), in-turn or shortest", |spec, text| {
        use crate::machine::SliceOrder::{InTurn, OneByOne, ShortestFirst};
        let names = [("one-by-one", OneByOne), ("in-turn", InTurn), ("shortest", ShortestFirst)];
        set(&mut spec.machine.slice_order, one_of(text, &names))
    }),
    axis("workers-large", "large cores, whatever the rule says", |spec, text| {
        set(&mut spec.machine.tweak.workers_large, whole(text, 0, 63).map(Some))
    }),
    axis("steal-queue-min", "RX queue from which a large worker helps", |spec, text| {
        set(&mut spec.machine.tweak.steal_queue_min, whole(text, 1, 1 << 30).map(Some))
    }),
    axis("steal-requests-max", "requests it takes between slices (32)", |spec, text| {
        set(&mut spec.machine.tweak.steal_requests_max, whole(text, 0, 1 << 30).map(Some))
    }),
    axis("steal-when-idle", "true or false; as the design has it", |spec, text| {
        set(&mut spec.machine.tweak.steal_when_idle, yes_or_no(text).map(Some))
    }),
    axis("slices-unsent-max", "on a full wire, of lanes (8)", |spec, text| {
        set(&mut spec.machine.tweak.slices_unsent_max, whole(text, 1, 1 << 30).map(Some))
    }),
    axis("handoff-workers", "that only receive, of sho (1)", |spec, text| {
        set(&mut spec.machine.settings.workers_handoff, whole(text, 1, 63))
    }),
    axis("extra-large", "true or false: one large core more, of minos (false)", |spec, text| {
        set(&mut spec.machine.settings.extra_large, yes_or_no(text))
    }),
    axis("batch", "requests taken from an RX queue at a time (32)", |spec, text| {
        set(&mut spec.machine.batch, whole(text, 1, 100_000))
    }),
    axis("queue", "per-worker (default), or central: late binding", |spec, text| {
        let names = [("per-worker", false), ("central", true)];
        set(&mut spec.machine.central_queue, one_of(text, &names))
    }),
    axis(
        "standby",
        "of minos: returns (default), epoch, or reads-on: the server's",
        |spec, text| set(&mut spec.machine.standby, one_of(text, &Standby::NAMED)),
    ),
    axis(
        "rx-queue",
        "requests that a worker's RX queue holds, or none: any (none)",
        |spec, text| {
            let number = || whole(text, 1, 1_000_000).map_err(|error| format!("{error}, or none"));
            spec.rx_requests = if text == "none" { None } else { Some(number()?) };
            Ok(())
        },
    ),
    axis("retry-us", "until a client sends a lost request again (1000)", |spec, text| {
        set(&mut spec.retry, us(text, 1.0))
    }),
    axis("numa", "domains that divide the workers and the requests (1)", |spec, text| {
        set(&mut spec.numa.domains, whole(text, 1, 64))
    }),
    axis("numa-strays", "share that comes to another domain than its item's (0)", |spec, text| {
        set(&mut spec.numa.strays, number(text, 0.0, 1.0))
    }),
    axis("numa-ns", "what it costs the other domain beyond the hand-over (300)", |spec, text| {
        set(&mut spec.numa.cost, ns(text))
    }),
    axis(
        "shared-lines",
        "cache lines that all workers write, by each request (0)",
        |spec, text| set(&mut spec.lines.each, whole(text, 0, 100)),
    ),
    axis("line-spread", "each is one of so many, drawn evenly (1)", |spec, text| {
        set(&mut spec.lines.spread, whole(text, 1, 1 << 16))
    }),
    axis("line-ns", "until such a line comes from another worker (80)", |spec, text| {
        set(&mut spec.lines.transfer, ns(text))
    }),
    axis("profile", "who counts sizes: all (default) or lanes", |spec, text| {
        set(&mut spec.profiles_all, one_of(text, &[("all", true), ("lanes", false)]))
    }),
    axis("nic-gbit", "rate of the wire, or none (none)", |spec, text| {
        spec.has_wire = text != "none";
        if spec.has_wire {
            spec.nic.gigabits =
                number(text, 0.001, 1e6).map_err(|error| format!("{error}, or none"))?;
        }
        Ok(())
    }),
    axis("nic-order", "round-robin (default) or small-first", |spec, text| {
        use WireOrder::{RoundRobin, SmallFirst};
        let names = [("round-robin", RoundRobin), ("small-first", SmallFirst)];
        set(&mut spec.nic.order, one_of(text, &names))
    }),
    axis("nic-burst", "frames of a TX queue in its turn (1)", |spec, text| {
        set(&mut spec.nic.burst, whole(text, 1, 100_000))
    }),
    axis("tx-queues", "per-worker (default) or per-lane", |spec, text| {
        let names = [("per-worker", false), ("per-lane", true)];
        set(&mut spec.nic.queue_per_lane, one_of(text, &names))
    }),
    axis("network-us", "added to latencies (0)", |spec, text| {
        set(&mut spec.machine.network, us(text, 0.0))
    }),
    axis("way", "bypass (default), tcp-pipelined, tcp or udp: costs", |spec, text| {
        let names = WAYS.map(|way| (way.flag, way));
        let way = one_of(text, &names)?;
        (spec.machine.costs, spec.machine.reach) = (way.costs(spec.machine.costs), way.reach);
        Ok(())
    }),
    axis("reach", "what others can take: unread (default), sockets or offered", |spec, text| {
        use crate::machine::Reach::{Offered, Sockets, Unread};
        let names = [("unread", Unread), ("sockets", Sockets), ("offered", Offered)];
        set(&mut spec.machine.reach, one_of(text, &names))
    }),
    axis("connections", "that requests come by, replies in order, as over TCP", |spec, text| {
        let connections = whole(text, 1, CONNECTIONS_MAX)?;
        let (costs, turn) = by_connections(spec.machine.costs);
        spec.machine.costs = costs;
        spec.streams = Some(Streams { connections, burst: 1, turn, urgency: true });
        Ok(())
    }),
    axis("depth", "requests that come at once on a connection (1)", |spec, text| {
        let burst = whole(text, 1, DEPTH_MAX)?;
        spec.streams = spec.streams.map(|streams| Streams { burst, ..streams });
        Ok(())
    }),
    axis("turn-ns", "a turn of a connection beside its requests (7680)", |spec, text| {
        let turn = ns(text)?;
        spec.turn_is_given = true;
        spec.streams = spec.streams.map(|streams| Streams { turn, ..streams });
        Ok(())
    }),
    axis("urgency", "true (default) or false: lanes as if nobody inherited it", |spec, text| {
        let urgency = yes_or_no(text)?;
        spec.streams = spec.streams.map(|streams| Streams { urgency, ..streams });
        Ok(())
    }),
    axis("request-ns", "a request costs (441; 520 with connections)", |spec, text| {
        set(&mut spec.machine.costs.request, ns(text))
    }),
    axis("packet-ns", "each packet of it (700; 300 with connections)", |spec, text| {
        set(&mut spec.machine.costs.packet, ns(text).map(|time| time.max(1)))
    }),
    axis(
        "receive-ns",
        "of that, receiving, of which who takes it over is spared (200)",
        |spec, text| set(&mut spec.machine.costs.receive, ns(text)),
    ),
    axis("profile-ns", "of that, counting its size (130)", |spec, text| {
        set(&mut spec.machine.costs.profile, ns(text))
    }),
    axis("handoff-ns", "handing it over (100)", |spec, text| {
        set(&mut spec.machine.costs.handoff, ns(text))
    }),
    axis("steal-ns", "taking it from another (100)", |spec, text| {
        set(&mut spec.machine.costs.steal, ns(text))
    }),
    axis("slice-ns", "each further slice (100)", |spec, text| {
        set(&mut spec.machine.costs.slice, ns(text))
    }),
];

/// All parameters, for the help: flag, unit and what it is.
pub fn help() -> String {
    let line = |axis: &Axis| {
        let column = column(axis.name);
        format!("  --{:<18} {:<8} {}\n", axis.name, row::unit(&column), axis.about)
    };
    AXES.iter().map(line).collect()
}

/// As rows name it: the seeds and the requests of an axis are in every row anyway.
pub(super) fn column(name: &'static str) -> Cow<'static, str> {
    match name {
        "requests" => "requests_per_seed".into(),
        "seeds" => "seeds_asked".into(),
        "workers-large" => "workers_large_fixed".into(),
        other => other.replace('-', "_").into(),
    }
}

/// Its value as rows have it: the name of a file stays one, whatever it looks like.
pub(super) fn cell(name: &str, value: &str) -> Cell {
    if super::FILES.contains(&name) { value.into() } else { Cell::asked(value) }
}
