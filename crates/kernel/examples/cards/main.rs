//! The lane on network cards: the same packets to a server with the lane and to one without, which
//! must be answered alike, and the lane's counters against what is foreseen of each packet.
//!
//! usage: cards LANEWAY virtio|intel|virtual|control PACKETS SEED HERE THERE; root. HERE and THERE
//! are two cards that are joined. They are taken into network namespaces of the program's own, and
//! made for `virtual` and `control`. It is meant for the emulated machine of `cargo xtask card-vm`.
//! It ends with a panic at the first difference, which `control` plants; the seed brings the same
//! requests again.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it waits for packets")]

mod evidence;
mod flow;
#[allow(dead_code)] // a part of it is used
#[path = "../../tests/common/frame.rs"]
mod frame;
#[allow(dead_code)]
#[path = "../../tests/common/hosts.rs"]
mod hosts;
mod kinds;
mod raw;
#[allow(dead_code)]
#[path = "../../tests/common/requests.rs"]
mod requests;
mod site;

use flow::Flow;
use kinds::{Hook, Tally};
use raw::Raw;
use site::{Card, Pair, STRANGER, Site};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cards LANEWAY virtio|intel|virtual|control PACKETS SEED HERE THERE";
const SERVERS: [&str; 2] = ["10.9.0.1", "fd09::1"];
const CLIENTS: [&str; 2] = ["10.9.0.2", "fd09::2"];
/// Of so many packets one may be lost, and these few in any case: a card has no room now and then.
const PACKETS_PER_LOSS: u64 = 20_000;
const LOSSES: u64 = 4;
const THREADS: usize = 2;
/// Only what is lost is waited for so long; and what differs, where that is planted.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_CONTROL: Duration = Duration::from_secs(10);
const FLOWS_EACH: usize = 8;
/// Among so many packets there are some of each kind.
const ENOUGH: u64 = 10_000;
/// Of so many packets one more has its headers broken.
const SPOILT_OF: u64 = 8;
/// What the lane passes for other causes than those that are foreseen one by one.
const OTHERS: [&str; 5] = ["miss", "dead", "elsewhere", "long", "request"];
/// Of so many requests that should hit at most one meets a writer; it is far rarer.
const HITS_PER_WRITER: u64 = 8;
/// What never happens here: nobody limits rates, and every packet has room.
const NEVER: [&str; 3] = ["room", "lost", "rate"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [laneway, card, packets, seed, here, there] = &words[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let card = match card.as_str() {
        "virtio" => Card::Virtio,
        "intel" => Card::Intel,
        "virtual" | "control" => Card::Virtual,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (Ok(packets), Ok(seed)) = (packets.parse::<u64>(), seed.parse::<u64>()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let is_control = words[1] == "control";
    let patience = if is_control { PATIENCE_CONTROL } else { PATIENCE };
    let site = Site::new(card, here, there, patience);
    let rounds = (card.hooks().len() * SERVERS.len()) as u64;
    let mut sent = 0;
    for hook in card.hooks() {
        site.use_queues(*hook);
        for family in 0..SERVERS.len() {
            let (packets, seed) = (packets.div_ceil(rounds), (seed, is_control));
            sent |= round(&site, laneway, *hook, family, packets, seed);
        }
    }
    assert!(packets < ENOUGH || sent == kinds::ALL, "kinds of packets: {sent:b}");
    if card == Card::Virtio {
        let queues = site.queues_used();
        assert!(queues > 1, "all came by {queues} queue");
        say(&site, None, &format!("packets came by {queues} queues"));
    }
    if card == Card::Intel {
        let told = site::refused(&site, laneway, &["--kernel-lane-hook", "xdp"]);
        assert!(told.contains("rxvlan off"), "{told}");
        say(&site, None, "it takes VLAN tags off, so the driver's hook is refused there");
    }
    ExitCode::SUCCESS
}

fn say(site: &Site, hook: Option<Hook>, what: &str) {
    let hook = hook.map_or(String::new(), |hook| format!(" at {hook:?}"));
    println!("cards: {:?}{hook}: {what}", site.card);
}

/// Both servers anew, at one hook and over one family; the kinds of packets that they were sent.
fn round(
    site: &Site,
    laneway: &str,
    hook: Hook,
    family: usize,
    packets: u64,
    (seed, is_control): (u64, bool),
) -> u32 {
    let stored = requests::stored();
    let [server, client] =
        [SERVERS, CLIENTS].map(|all| all[family].parse::<IpAddr>().expect("an address"));
    let mut pair = Pair::start(site, laneway, hook, server, &stored);
    if family == 0 && hook == Hook::TrafficControl {
        say(site, Some(hook), &evidence::sums(site));
        if site.card != Card::Virtual {
            say(site, Some(hook), &evidence::joined(site));
        }
    }
    pair.large_by_tcp();
    if is_control {
        let (key, (_, flags)) = stored.iter().find(|(key, _)| key.len() == 8).expect("items");
        pair.differ(key, *flags);
    }
    let raw = Raw::open(&site.client, &site.there);
    let stranger: IpAddr = STRANGER.parse().expect("an address");
    let mut flows: Vec<Flow> = (0..THREADS * FLOWS_EACH)
        .map(|number| {
            // One of each thread's is from where nobody is served.
            let is_served = family == 1 || number % FLOWS_EACH > 0;
            let from = (if is_served { client } else { stranger }, is_served);
            let seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(number as u64);
            Flow::new(site, &raw, (pair.to, pair.hook), from, &stored, seed)
        })
        .collect();
    // What it took to begin is not counted.
    for flow in &mut flows {
        flow.end();
        flow.tally();
    }
    let before = pair.counted();
    let tally = ask(&mut flows, packets, false);
    check(&tally, &before, &mut pair, site.patience);
    let hits = tally.hits;
    let spoilt = ask(&mut flows, packets / SPOILT_OF, true).packets;
    let told = format!(
        "{} packets over {}, of which the lane answered {hits} and {} were lost, and {spoilt} more \
         of which most were broken: all as without it",
        tally.packets,
        ["IPv4", "IPv6"][family],
        tally.repeated,
    );
    say(site, Some(hook), &told);
    tally.kinds
}

/// So many packets, by all flows, some at a time; a batch of each in any case.
fn ask(flows: &mut [Flow<'_>], packets: u64, spoilt: bool) -> Tally {
    let mut sum = Tally::default();
    std::thread::scope(|scope| {
        let work = |flows: &mut [Flow<'_>]| {
            let mut sum = Tally::default();
            loop {
                for flow in flows.iter_mut() {
                    flow.batch(spoilt);
                    sum.add(flow.tally());
                }
                if sum.packets >= packets / THREADS as u64 {
                    break;
                }
            }
            for flow in flows {
                flow.end();
                sum.add(flow.tally());
            }
            sum
        };
        let threads: Vec<_> =
            flows.chunks_mut(FLOWS_EACH).map(|flows| scope.spawn(move || work(flows))).collect();
        for thread in threads {
            let counted = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sum.add(counted);
        }
    });
    sum
}

/// The lane's counters against what was foreseen. What nobody answers may come later than what was
/// asked for behind it. What was lost is not counted, or twice.
fn check(tally: &Tally, before: &BTreeMap<String, u64>, pair: &mut Pair, patience: Duration) {
    let lost = 2 * tally.repeated + tally.packets / PACKETS_PER_LOSS;
    assert!(
        tally.repeated <= LOSSES + tally.packets / PACKETS_PER_LOSS,
        "{} packets were lost",
        tally.repeated
    );
    let began = Instant::now();
    let near = |counted: &Tally| counted.is_near(tally, lost);
    let mut now = counted(before, &pair.counted(), tally);
    while !near(&now) && began.elapsed() < patience {
        std::thread::yield_now();
        now = counted(before, &pair.counted(), tally);
    }
    assert!(near(&now), "the lane counted {now:?}, and should have {tally:?}");
}

fn counted(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>, tally: &Tally) -> Tally {
    let of = |name: &str| after[name] - before[name];
    let passed = |cause: &&str| of(&format!("passed:{cause}"));
    for cause in &NEVER {
        assert_eq!(passed(cause), 0, "passed:{cause}");
    }
    // A writer may be in the bucket of another key at the very moment, and whether its own key is
    // there is not seen then.
    let disturbed: u64 = ["writing", "torn"].iter().map(passed).sum();
    let hits = of("datagrams");
    let would_hit = tally.hits.saturating_sub(hits).min(disturbed);
    let would_hit = would_hit.min(tally.hits / HITS_PER_WRITER);
    Tally {
        packets: tally.packets,
        repeated: tally.repeated,
        kinds: tally.kinds,
        hits: hits + would_hit,
        frame: passed(&"frame"),
        checksum: passed(&"checksum"),
        stranger: passed(&"stranger"),
        others: OTHERS.iter().map(passed).sum::<u64>() + disturbed - would_hit,
    }
}
