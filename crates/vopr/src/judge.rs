//! What a server must not do: hold what nobody wants any more, take more memory than it may, or do
//! more in one step than the budget says.

use crate::hostile;
use crate::life::Life;
use crate::shm::ShmClients;
use crate::swarm::{Kept, Swarm};
use laneway_policy::rate::BURST_NANOS;
use laneway_rig::Rig;
use laneway_server::clock::Clock;
use laneway_server::counts::clients::{ClientSums, PLACES};
use laneway_server::latency::histogram::Reading;
use laneway_server::latency::noted::{PLACES as PLACES_NOTED, Ring};
use laneway_server::latency::{Latencies, ROWS, is_row_of_large};
use laneway_server::shared::{Shared, WorkerShared};
use laneway_store::meter::Work;
use std::sync::atomic::Ordering::Relaxed;

/// Pools may be ahead of the limit by so much, for a moment.
const POOL_SLACK_BYTES: u64 = 2 << 20;
/// Connections beside those of clients: of who watches, operates and makes backups.
const OTHERS_MAX: usize = 3;
/// What one step of a worker may do: docs/reliability.md says where each number comes from.
mod budget {
    use laneway_store::budget::{LIST_LOOKS, PICK, STEP};

    /// A slice of a large transfer, a job's values, and a burst of datagrams.
    pub const BYTES: u64 = 192 << 10;
    /// What one connection may have read, copied and sent in its turn: a buffer full of requests,
    /// its replies, and one value beyond them.
    pub const BYTES_EACH: u64 = 128 << 10;
    /// What a step of the durable executor moves, which a worker may take: values of its requests
    /// and those of one more, of several keys at most, from the request to memory and on to the log
    /// or the reply; and a stretch on its way in.
    pub const BYTES_KEPT: u64 = 512 << 10;
    /// A step of the sweep, one of a listing, and what drafts look for their victims, or for what
    /// is dead where they may evict nothing: some forty slots for each draft that is refused.
    pub const SLOTS: u64 = (STEP + LIST_LOOKS + 6 * PICK) as u64;
    /// What these take out or tell.
    pub const ITEMS: u64 = 256;
    /// Requests of a connection's turn, with the keys of a multiget behind them.
    pub const KEYS_EACH: u64 = 1024;
}

/// What a server at rest may not have.
pub fn rest(life: &Life, swarm: &Swarm) -> Result<(), String> {
    let domains = &life.rig.domains;
    for shared in domains {
        let stats = shared.store.stats();
        let most = swarm.memory_bytes / domains.len() as u64 + POOL_SLACK_BYTES;
        if stats.pool_bytes + stats.index_bytes > most {
            return Err(format!("{} bytes in the pool, limit {most}", stats.pool_bytes));
        }
    }
    domains.iter().flat_map(|shared| &shared.workers).try_for_each(times_add_up)?;
    domains.iter().try_for_each(|shared| {
        shared.workers.iter().try_for_each(|worker| noted_are_notable(shared, worker))
    })?;
    clients_add_up(&life.rig.shared)?;
    addresses_add_up(&life.rig.shared, life.rig.knocking())?;
    limits_hold(life, swarm)?;
    // Who has left and is over its limit is found to have left when it has a turn again.
    let may_wait = swarm.is_limited() && life.rig.shared.connections.open.load(Relaxed) > 0;
    let is_torn = life.shm.as_ref().is_some_and(ShmClients::has_hostile);
    if may_wait || is_torn || !life.hostile.is_empty() {
        return Ok(()); // they hold what they began
    }
    domains.iter().try_for_each(|shared| {
        let stats = shared.store.stats();
        between("bytes of unfinished values", stats.unpublished_bytes)?;
        if life.datagrams.is_empty() && life.shm.is_none() {
            // Replies by datagrams are kept for a while, in case frames are asked for again.
            between("bytes of replaced values that are being sent", stats.pinned_dead_bytes)?;
        }
        for worker in &shared.workers {
            between("jobs", u64::from(!worker.jobs.is_empty()))?;
            between("replies of other workers", u64::from(!worker.finished.is_empty()))?;
        }
        between("large jobs", u64::from(!shared.large_jobs.is_empty()))
    })
}

/// Of each request what it spent on waiting, service and draining is all that it took, and none is
/// counted that was not served.
fn times_add_up<S>(worker: &WorkerShared<S>) -> Result<(), String> {
    let mut rows = vec![Latencies::default(); ROWS];
    worker.book.read_into(&mut rows);
    for (row, Latencies { whole, parts }) in rows.iter().enumerate() {
        let counts = parts.each_ref().map(Reading::count);
        let nanos = parts.each_ref().map(Reading::sum_nanos);
        if counts != [whole.count(); 3] || nanos.iter().sum::<u64>() != whole.sum_nanos() {
            let all = (whole.count(), whole.sum_nanos());
            return Err(format!("latencies of row {row}: {counts:?} {nanos:?} of {all:?}"));
        }
    }
    Ok(())
}

/// What is noted is large or slow, its times add up, and it has a key only where keys are asked
/// for; and what is large is noted.
fn noted_are_notable<S>(shared: &Shared<S>, worker: &WorkerShared<S>) -> Result<(), String> {
    let slow_nanos = shared.slow.nanos();
    let mut told = 0;
    for request in worker.noted.read() {
        let times = &request.times;
        let is_slow = times.took_nanos >= slow_nanos;
        let is_notable = is_slow || times.is_large() && times.bytes > 0;
        let is_notable = is_notable && is_slow == request.is_slow;
        told += if times.is_large() { times.requests } else { 0 };
        let adds_up = times.wait_nanos + times.drain_nanos <= times.took_nanos;
        let may_have_key = shared.settings.log_keys && times.is_large() || request.key.is_empty();
        if !(is_notable && adds_up && may_have_key && times.requests > 0) {
            return Err(format!("noted: {request:?}, where {slow_nanos} ns are slow"));
        }
    }
    let mut rows = vec![Latencies::default(); ROWS];
    worker.book.read_into(&mut rows);
    let large = rows.iter().enumerate().filter(|(row, _)| is_row_of_large(*row));
    let large: u64 = large.map(|(_, latencies)| latencies.whole.count()).sum();
    // Others that were answered along with a large one are counted with it.
    let all = |ring: &Ring| ring.counts().0 <= PLACES_NOTED as u64 && ring.counts().1 == 0;
    let (noted, left_out) = worker.noted.counts();
    let is_enough = match worker.noted.rings().into_iter().all(all) {
        true => large <= told,
        false => large <= told || noted + left_out > 0,
    };
    match is_enough {
        true => Ok(()),
        false => Err(format!("{large} large requests, and {told} are noted")),
    }
}

/// Every open connection counts at its address, where addresses are counted, and so does who is not
/// through his handshake.
fn addresses_add_up<S>(shared: &Shared<S>, knocking: usize) -> Result<(), String> {
    let open = shared.watch(0).connections.open + knocking as u64;
    let wanted = if shared.settings.connections_per_address > 0 { open } else { 0 };
    match shared.connections.per_address.open() as u64 {
        counted if counted == wanted => Ok(()),
        counted => Err(format!("{counted} connections are counted by address, {open} are open")),
    }
}

/// The clients, who all have one address and come by few listeners, have asked for no more than
/// they may in so long a time, and what each connection may be owed beyond: a turn, or a request of
/// many keys.
fn limits_hold(life: &Life, swarm: &Swarm) -> Result<(), String> {
    let shared = &life.rig.shared;
    let Some(rate) = swarm.requests_per_second() else { return Ok(()) };
    let watch = shared.watch(0);
    let asked: u64 = watch.clients.iter().map(|client| client.sums.requests).sum();
    let passed = life.rig.clock.nanos() - life.began_nanos + BURST_NANOS;
    let allowed = u128::from(rate) * u128::from(passed) / 1_000_000_000;
    // One request may be a line that is all keys.
    let of_hostile = (swarm.hostile * hostile::LINE_BYTES / 2) as u64;
    let owed = of_hostile + (swarm.clients + OTHERS_MAX) as u64 * budget::KEYS_EACH;
    match u128::from(asked) <= allowed + u128::from(owed) {
        true => Ok(()),
        false => Err(format!("{asked} requests, where {allowed} are allowed and {owed} owed")),
    }
}

/// What was counted by client is what was counted in all.
fn clients_add_up<S>(shared: &Shared<S>) -> Result<(), String> {
    let (mut of_clients, mut connections) = (ClientSums::default(), 0);
    let watch = shared.watch(0);
    for place in 0..PLACES as u16 {
        shared.each_domain(|shared| {
            let counts = shared.workers.iter().map(|worker| &worker.clients[usize::from(place)]);
            counts.for_each(|counts| of_clients.add(counts));
        });
    }
    watch.clients.iter().for_each(|client| connections += client.connections);
    let served = watch.workers.iter().map(|worker| worker.requests_small + worker.requests_large);
    // What an executor executed is in no worker's count, and what came by datagrams in no client's.
    let most = if shared.durable.get().is_some() { u64::MAX } else { served.sum() };
    let told = (of_clients.bytes_in, of_clients.bytes_out, connections);
    let all = (watch.totals.bytes_read, watch.totals.bytes_written, watch.connections.open);
    // Datagrams are of no client, and neither is yet what a connection moved without a reply.
    let bytes = told.0 <= all.0 && told.1 <= all.1;
    let (requests, large) = (of_clients.requests, of_clients.requests_large);
    match bytes && told.2 == all.2 && requests <= most && large <= requests {
        true => Ok(()),
        false => Err(format!("clients add up to {told:?} {of_clients:?}, not {all:?} {most}")),
    }
}

fn between(name: &str, left: u64) -> Result<(), String> {
    match left {
        0 => Ok(()),
        left => Err(format!("a server at rest has {left} {name}")),
    }
}

fn within(name: &str, done: u64, budget: u64) -> Result<(), String> {
    match done <= budget {
        true => Ok(()),
        false => Err(format!("{name} {done}, and may {budget}")),
    }
}

/// What of a step's work is more than a step may do. The rivals of `lanes` move a value in one
/// step, which is what they are compared for: their bytes are not judged.
/// `helps`: a step of the durable executor may be among it.
pub fn over_budget(
    work: &Work,
    connections: u64,
    in_slices: bool,
    helps: bool,
) -> Result<(), String> {
    if in_slices {
        let kept = if helps { budget::BYTES_KEPT } else { 0 };
        let most = budget::BYTES + kept + connections * budget::BYTES_EACH;
        within("moved bytes:", work.bytes, most)?;
    }
    within("looked at slots:", work.slots, budget::SLOTS)?;
    within("visited items:", work.items, budget::ITEMS)?;
    within("answered keys:", work.keys, connections * budget::KEYS_EACH)
}

/// The same of a step of the durable executor, which never waits for a device.
pub fn executor_over_budget(work: &Work) -> Result<(), String> {
    within("a step of the durable executor waited for devices:", work.waits, 0)
}

/// Whether memory was so full that an item may be gone without a trace. What a tier drops it tells.
pub fn may_miss(kept: Kept, rig: &Rig) -> bool {
    kept == Kept::No && rig.evictions() > 0
}
