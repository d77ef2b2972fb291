//! A worker reads its own queue, then those that it drains with others, in bursts as
//! `policy::turn::Readers` says: its own 32 at a time, and 32/n_s of each large worker's (Minos
//! §3.1 "Operation of the small cores"). A worker that the plan lets take from others takes one.

use super::guard::allowance;
use super::lending::Lending;
use super::shared::UdpShared;
use super::state::{At, From, Udp, UdpWorker};
use crate::core::Core;
use crate::jobs::handoff::DatagramOrigin;
use laneway_policy::{BATCH, CorePlan, Readers, WorkerId, turn};
use laneway_store::{GROUP, meter};
use laneway_transport::Transport;
use laneway_transport::datagram::{Arrival, BURST_BYTES, Datagrams, Path};
use laneway_transport::rdma;
use laneway_wire::udp::{HEADER_BYTES, Header, Kind};
use std::io;
use std::sync::Arc;

impl Udp {
    /// Serve datagrams. Before the worker's first step, for every worker of the server.
    pub(crate) fn new<T: Transport>(
        core: &mut Core<T>,
        datagrams: Box<dyn Datagrams>,
    ) -> io::Result<Udp> {
        let queues = (0..datagrams.queues()).map(|queue| datagrams.queue(queue)).collect();
        let settings = &core.shared.settings;
        let shared = core.shared.udp.get_or_init(|| Arc::new(UdpShared::new(settings, queues)));
        let shared = shared.clone();
        let mut desk = UdpWorker::new(&shared, settings.item_bytes_max);
        desk.lending = Lending::of(&*datagrams);
        let mut udp = Udp { datagrams, desk, shared };
        udp.watch_queues(core)?;
        Ok(udp)
    }

    /// The plan has changed: watch the queues that are to be read under it, and drop what another
    /// worker would go on with.
    fn watch_queues<T: Transport>(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let UdpWorker { ready, bursts, .. } = &mut self.desk;
        let readers = Readers::beside_standby(&core.plan, core.plan.standby_raised, BATCH);
        let worker = |queue: usize| WorkerId(self.shared.queues[queue].worker as u16);
        let mut result = Ok(());
        for (queue, burst) in bursts.iter_mut().enumerate() {
            let before = *burst;
            *burst = readers.most(core.id, worker(queue));
            if (*burst > 0) != (before > 0)
                && let Err(error) = core.transport.watch_datagrams(queue, *burst > 0)
            {
                *burst = before;
                result = Err(error);
            }
        }
        // What was ready is not read on: others read it now, or nobody. Who has been told of it may
        // have left it, and is not told again: whoever watches a queue now looks into it.
        ready.clear();
        ready.extend((0..bursts.len()).filter(|&queue| bursts[queue] > 0));
        ready.sort_by_key(|&queue| worker(queue) != core.id);
        result
    }

    /// The plan has changed. Where others put messages together now, those under way here would
    /// wait for frames that go elsewhere: they are given up.
    pub(crate) fn follow_plan<T: Transport>(&mut self, core: &mut Core<T>, before: &CorePlan) {
        let assemblers = |plan: &CorePlan| (plan.workers_small, plan.workers(), plan.standby());
        if assemblers(before) != assemblers(&core.plan) {
            let dropped = self.desk.give_up_messages();
            let counts = At::of(&self.shared, core.id).counts;
            counts.messages_dropped_role_change.add_owner(dropped as u64);
        }
        self.watch_anew(core);
    }

    /// Where the kernel has no room to watch a queue it is not read here for a second.
    fn watch_anew<T: Transport>(&mut self, core: &mut Core<T>) {
        let watched = self.watch_queues(core);
        self.desk.watches_again = watched.is_err();
        if let Err(error) = watched {
            log::warn!("reading datagrams pauses for a second: {error}");
        }
    }

    /// Once a second: watch what could not be watched.
    pub(crate) fn watch_again<T: Transport>(&mut self, core: &mut Core<T>) {
        if self.desk.watches_again {
            self.watch_anew(core);
        }
    }

    /// Whether another worker has forwarded frames to this one.
    pub(crate) fn has_trains(&self, worker: WorkerId) -> bool {
        !self.shared.trains[worker.index()].is_empty()
    }

    /// A queue has something to receive. Its own comes first.
    pub(crate) fn is_ready(&mut self, queue: usize, me: WorkerId) {
        let UdpWorker { ready, bursts, .. } = &mut self.desk;
        if bursts[queue] > 0 && !ready.contains(&queue) {
            let is_own = self.shared.queues[queue].worker == me.index();
            ready.insert(if is_own { 0 } else { ready.len() }, queue);
        }
    }

    /// A send buffer has room again.
    pub(crate) fn room_again<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        queue: usize,
        path: Path,
    ) -> io::Result<()> {
        let desk = &mut self.desk;
        core.transport.watch_room(queue, path, false)?;
        match path {
            Path::Small => {
                desk.full[queue] = false;
                desk.soil(queue);
            }
            Path::Large => {
                for transfer in std::mem::take(&mut desk.parked) {
                    let fits = usize::from(transfer.to.queue) == queue;
                    let to = if fits { &mut desk.transfers } else { &mut desk.parked };
                    to.push_back(transfer);
                }
            }
        }
        Ok(())
    }

    /// One turn: a burst of each queue that is ready, frames that others have forwarded, and what
    /// time asks for. Returns whether there was anything.
    pub(crate) fn receive<T: Transport>(&mut self, core: &mut Core<T>) -> io::Result<bool> {
        let mut busy = false;
        let mut next = 0;
        while let Some(&queue) = self.desk.ready.get(next) {
            let burst = self.desk.bursts[queue] as usize;
            let (count, bytes) = self.receive_burst(core, queue, burst)?;
            busy |= count > 0;
            if count == burst || BURST_BYTES <= bytes {
                next += 1; // there is more, most likely
            } else {
                self.desk.ready.remove(next);
            }
        }
        let at = At::of(&self.shared, core.id);
        let mut bytes = 0;
        for _ in 0..BATCH {
            let train = (bytes < BURST_BYTES).then(|| at.shared.trains[core.id.index()].pop());
            let Some(train) = train.flatten() else { break };
            busy = true;
            bytes += train.bytes.len();
            self.desk.take_train(core, at, &train);
        }
        self.desk.ask_for_frames(core, at);
        self.desk.account();
        self.flush(core)?;
        Ok(busy)
    }

    /// Read and serve one burst. Returns of how many arrivals it was, and of how many bytes.
    fn receive_burst<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        queue: usize,
        burst: usize,
    ) -> io::Result<(usize, usize)> {
        let Udp { datagrams, desk, shared } = self;
        let at = At::of(shared, core.id);
        let count = datagrams.poll(queue, burst)?;
        at.counts.receive_failures.add_owner(datagrams.take_failures());
        if count == 0 {
            return Ok((0, 0));
        }
        let mut bytes = 0;
        at.counts.bursts.add_owner(1);
        let arrived = core.clock.nanos();
        core.tell_time(arrived); // this turn may follow a long sleep
        for index in 0..count {
            if index % GROUP == 0 && count - index > 1 {
                let next = index..count.min(index + GROUP);
                let payloads = next.map(|index| {
                    let bytes = datagrams.arrival(index).bytes;
                    bytes.get(HEADER_BYTES..).unwrap_or_default()
                });
                desk.ahead.look_at_each(&core.shared.store, &mut core.group, payloads);
            }
            let arrival = datagrams.arrival(index);
            bytes += arrival.bytes.len();
            desk.arrival(core, at, queue, arrival, arrived);
        }
        desk.ahead.clear(); // the next burst's keys may stand where these stood
        // A reply soon sent is worth more than a fuller batch.
        self.flush(core)?;
        Ok((count, bytes))
    }

    /// With nothing else to do, and if the plan allows it: one request from somebody else's queue.
    pub(crate) fn steal<T: Transport>(&mut self, core: &mut Core<T>) -> io::Result<bool> {
        if !turn::looks_into_sockets(&core.plan, core.id) {
            return Ok(false);
        }
        for queue in turn::in_turn(self.desk.steal_next, self.shared.queues.len()) {
            self.desk.steal_next = queue + 1;
            if self.desk.bursts[queue] == 0 && self.receive_burst(core, queue, 1)?.0 > 0 {
                core.lanes().stolen.add_owner(1);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl UdpWorker {
    /// Serve what is whole; frames of longer messages go to the worker that puts them together,
    /// as many as came together and belong together.
    fn arrival<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        queue: usize,
        arrival: Arrival<'_>,
        arrived: u64,
    ) {
        let Arrival { peer, segment_bytes, bytes } = arrival;
        core.counters().bytes_read.add_owner(bytes.len() as u64);
        meter::bytes(bytes.len());
        if at.shared.is_own(&peer) {
            let count = arrival.datagrams().count() as u64;
            at.counts.datagrams.add_owner(count);
            return at.counts.from_ourselves.add_owner(count);
        }
        // The train that is being gathered: where it begins, and whose frames they are.
        let mut train: Option<(usize, u16)> = None;
        for (number, datagram) in arrival.datagrams().enumerate() {
            at.counts.datagrams.add_owner(1);
            let start = number * segment_bytes;
            let parsed = Header::parse(datagram);
            let is_frame = |header: &Header| is_frame(header, rdma::is_in_memory(&peer));
            let frame_of = parsed.filter(|(header, _)| is_frame(header)).map(|h| h.0.request_id);
            if let Some((from, id)) = train
                && frame_of != Some(id)
            {
                self.forward(core, at, (queue, peer, id), segment_bytes, &bytes[from..start]);
                train = None;
            }
            match (parsed, frame_of) {
                (_, Some(id)) => train = train.or(Some((start, id))),
                (Some((header, payload)), None) => {
                    let to =
                        DatagramOrigin { queue: queue as u16, peer, request_id: header.request_id };
                    self.datagram(core, at, to, header, payload, arrived);
                }
                (None, _) => at.counts.truncated.add_owner(1),
            }
        }
        if let Some((from, id)) = train {
            self.forward(core, at, (queue, peer, id), segment_bytes, &bytes[from..]);
        }
    }

    /// A datagram that stands for itself.
    pub(crate) fn datagram<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        to: DatagramOrigin,
        header: Header,
        payload: &[u8],
        arrived_nanos: u64,
    ) {
        match header.kind {
            Kind::Data | Kind::Once if core.stopping => {
                at.counts.requests_while_stopping.add_owner(1);
            }
            Kind::Data | Kind::Once if header.is_whole() => {
                let allowance = allowance(payload.len());
                let once = header.kind == Kind::Once;
                let digest = if once { at.shared.digest(0, payload) } else { 0 };
                let from = From { to, once, allowance, arrived_nanos };
                self.message(core, at, from, digest, payload);
            }
            Kind::Data | Kind::Once | Kind::Resend => at.counts.wrong_sequence.add_owner(1),
            Kind::Forget => {
                at.counts.forgets.add_owner(1);
                at.shared.forget_reply(to.queue, &(to.peer, to.request_id));
                if let Some((lenders, peer)) = self.lending.to(&to.peer) {
                    lenders.taken(peer, to.request_id);
                }
            }
            Kind::Cookie if at.shared.guard.proves(&to.peer, payload, arrived_nanos) => {
                at.counts.peers_proved.add_owner(1);
            }
            Kind::Cookie => at.counts.cookies_wrong.add_owner(1),
            Kind::Lent | Kind::Notice | Kind::Unknown(_) => at.counts.unknown_kind.add_owner(1),
        }
    }
}

/// Whether a datagram is part of something longer, or asks for such parts again, or says where it
/// lies: a peer that shares no memory lends nothing.
fn is_frame(header: &Header, lends: bool) -> bool {
    match header.kind {
        Kind::Data => header.total > 1 && header.is_possible(),
        Kind::Resend => header.total > 1,
        Kind::Lent => lends,
        Kind::Once | Kind::Forget | Kind::Cookie | Kind::Notice | Kind::Unknown(_) => false,
    }
}
