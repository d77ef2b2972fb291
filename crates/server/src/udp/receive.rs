//! Which queues a worker reads, and in what bursts (Minos §3.1 "Operation of the small cores"): its
//! own, 32 at a time; where workers are large, 32/n_s from each of theirs, so that all queues drain
//! alike. A large worker reads none. A worker that the plan lets take from others takes one.

use super::ahead::KEYS_AHEAD;
use super::guard::allowance;
use super::lending::Lending;
use super::shared::UdpShared;
use super::state::{At, Desk, From, Udp};
use crate::clock::Clock;
use crate::handoff::DatagramOrigin;
use crate::worker::Worker;
use laneway_policy::{BATCH, CorePlan, Role, WorkerId};
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_transport::datagram::{Arrival, BURST_BYTES, Datagrams, Path};
use laneway_transport::rdma;
use laneway_wire::udp::{HEADER_BYTES, Header, Kind};
use std::io;
use std::sync::Arc;

/// Whether worker `me` reads the queues of worker `whose` under this plan.
fn reads(plan: &CorePlan, me: WorkerId, whose: WorkerId) -> bool {
    if plan.role(me) == Role::Large {
        return false;
    }
    let drained_by_others = match plan.role(whose) {
        Role::Large => true,
        Role::Standby => plan.standby_raised,
        Role::Small | Role::Both => false,
    };
    me == whose || drained_by_others
}

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Serve datagrams too. Called before the first step, for every worker of the server.
    pub fn serve_datagrams(&mut self, datagrams: Box<dyn Datagrams>) -> io::Result<()> {
        let queues = (0..datagrams.queues()).map(|queue| datagrams.queue(queue)).collect();
        let settings = &self.shared.settings;
        let shared = self.shared.udp.get_or_init(|| Arc::new(UdpShared::new(settings, queues)));
        let mut desk = Desk::new(shared.clone(), settings.item_bytes_max);
        desk.lending = Lending::of(&*datagrams);
        self.udp = Some(Box::new(Udp { datagrams, desk }));
        self.watch_queues()
    }

    /// The plan has changed: watch the queues that are to be read under it, and drop what another
    /// worker would go on with.
    pub(crate) fn watch_queues(&mut self) -> io::Result<()> {
        let Some(mut udp) = self.udp.take() else { return Ok(()) };
        let mut result = Ok(());
        for (queue, watched) in udp.desk.watched.iter_mut().enumerate() {
            let whose = WorkerId(udp.desk.shared.queues[queue].worker as u16);
            let watch = reads(&self.plan, self.id, whose);
            if watch != *watched {
                *watched = watch;
                result = result.and(self.transport.watch_datagrams(queue, watch));
            }
        }
        // What was ready is not read on: others read it now, or nobody. Who has been told of it may
        // have left it, and is not told again: whoever watches a queue now looks into it.
        let Desk { ready, watched, .. } = &mut udp.desk;
        ready.clear();
        ready.extend((0..watched.len()).filter(|queue| watched[*queue]));
        self.udp = Some(udp);
        result
    }

    /// The plan has changed. Where others put messages together now, those under way here would
    /// wait for frames that go elsewhere: they are given up.
    pub(crate) fn follow_plan_of_datagrams(&mut self, before: &CorePlan) -> io::Result<()> {
        let assemblers = |plan: &CorePlan| (plan.workers_small, plan.workers(), plan.standby());
        if let Some(udp) = &mut self.udp
            && assemblers(before) != assemblers(&self.plan)
        {
            let dropped = udp.desk.give_up_messages();
            let counts = &udp.desk.shared.counts[self.id.index()];
            counts.messages_dropped_role_change.add_owner(dropped as u64);
        }
        self.watch_queues()
    }

    /// Whether datagrams are to be received or sent without waiting.
    pub(crate) fn has_datagrams(&self) -> bool {
        self.udp.as_ref().is_some_and(|udp| udp.desk.is_busy())
    }

    /// Whether another worker has forwarded frames to this one.
    pub(crate) fn has_trains(&self) -> bool {
        let trains = |udp: &Udp| !udp.desk.shared.trains[self.id.index()].is_empty();
        self.udp.as_deref().is_some_and(trains)
    }

    /// Messages of several frames that are not whole, or not stored yet, and the memory they take;
    /// for tests.
    pub fn unfinished_messages(&self) -> (usize, usize) {
        let held = |udp: &Udp| {
            let Desk { assembly, fetching, storing, storing_bytes, .. } = &udp.desk;
            let unstored = fetching.len() + storing.len();
            (assembly.len() + unstored, assembly.bytes() + storing_bytes)
        };
        self.udp.as_deref().map_or((0, 0), held)
    }

    /// When missing frames are next to be asked for.
    pub(crate) fn datagrams_due_nanos(&self) -> u64 {
        self.udp.as_ref().map_or(u64::MAX, |udp| udp.desk.ask_nanos)
    }

    /// A queue has something to receive.
    pub(crate) fn datagrams_ready(&mut self, queue: usize) {
        if let Some(udp) = &mut self.udp
            && udp.desk.watched[queue]
            && !udp.desk.ready.contains(&queue)
        {
            udp.desk.ready.push(queue);
        }
    }

    /// A send buffer has room again.
    pub(crate) fn datagrams_room(&mut self, queue: usize, path: Path) -> io::Result<()> {
        let Some(udp) = &mut self.udp else { return Ok(()) };
        self.transport.watch_room(queue, path, false)?;
        match path {
            Path::Small => {
                udp.desk.full[queue] = false;
                udp.desk.soil(queue);
            }
            Path::Large => {
                let parked = std::mem::take(&mut udp.desk.parked);
                for transfer in parked {
                    let fits = usize::from(transfer.to.queue) == queue;
                    let to = if fits { &mut udp.desk.transfers } else { &mut udp.desk.parked };
                    to.push_back(transfer);
                }
            }
        }
        Ok(())
    }

    /// One turn: a burst of each queue that is ready, frames that others have forwarded, and what
    /// time asks for. Returns whether there was anything.
    pub(crate) fn receive_datagrams(&mut self) -> io::Result<bool> {
        let Some(mut udp) = self.udp.take() else { return Ok(false) };
        let busy = self.receive_turn(&mut udp);
        self.udp = Some(udp);
        busy
    }

    fn receive_turn(&mut self, udp: &mut Udp) -> io::Result<bool> {
        let shared = udp.desk.shared.clone();
        let at = At { shared: &shared, counts: &shared.counts[self.id.index()] };
        let mut busy = false;
        for _ in 0..udp.desk.ready.len() {
            let queue = udp.desk.ready.remove(0);
            let mine = shared.queues[queue].worker == self.id.index();
            let burst = if mine { BATCH } else { self.plan.batch_from_large() } as usize;
            let (count, bytes) = self.receive_burst(udp, at, queue, burst)?;
            busy |= count > 0;
            if count == burst || BURST_BYTES <= bytes {
                udp.desk.ready.push(queue); // there is more, most likely
            }
        }
        let mut bytes = 0;
        for _ in 0..BATCH {
            let train = (bytes < BURST_BYTES).then(|| shared.trains[self.id.index()].pop());
            let Some(train) = train.flatten() else { break };
            busy = true;
            bytes += train.bytes.len();
            self.take_train(&mut udp.desk, at, &train);
        }
        self.ask_for_frames(&mut udp.desk, at);
        udp.desk.account();
        self.flush_datagrams(udp, at)?;
        Ok(busy)
    }

    /// Read and serve one burst. Returns of how many arrivals it was, and of how many bytes.
    fn receive_burst(
        &mut self,
        udp: &mut Udp,
        at: At<'_>,
        queue: usize,
        burst: usize,
    ) -> io::Result<(usize, usize)> {
        let Udp { datagrams, desk } = udp;
        let count = datagrams.poll(queue, burst)?;
        at.counts.receive_failures.add_owner(datagrams.take_failures());
        if count == 0 {
            return Ok((0, 0));
        }
        let mut bytes = 0;
        at.counts.bursts.add_owner(1);
        let arrived = self.clock.nanos();
        self.now_seconds = self.clock.unix_seconds(arrived); // this turn may follow a long sleep
        for index in 0..count {
            if index % KEYS_AHEAD == 0 && count - index > 1 {
                let next = index..count.min(index + KEYS_AHEAD);
                let payloads = next.map(|index| {
                    let bytes = datagrams.arrival(index).bytes;
                    bytes.get(HEADER_BYTES..).unwrap_or_default()
                });
                desk.ahead.look_at_each(&self.shared.store, payloads);
            }
            let arrival = datagrams.arrival(index);
            bytes += arrival.bytes.len();
            self.arrival(desk, at, queue, arrival, arrived);
        }
        desk.ahead.clear(); // the next burst's keys may stand where these stood
        // A reply soon sent is worth more than a fuller batch.
        self.flush_datagrams(udp, at)?;
        Ok((count, bytes))
    }

    /// Serve what is whole; frames of longer messages go to the worker that puts them together,
    /// as many as came together and belong together.
    fn arrival(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        queue: usize,
        arrival: Arrival<'_>,
        arrived: u64,
    ) {
        let Arrival { peer, segment_bytes, bytes } = arrival;
        self.counters().bytes_read.add_owner(bytes.len() as u64);
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
                self.forward(desk, at, (queue, peer, id), segment_bytes, &bytes[from..start]);
                train = None;
            }
            match (parsed, frame_of) {
                (_, Some(id)) => train = train.or(Some((start, id))),
                (Some((header, payload)), None) => {
                    let to =
                        DatagramOrigin { queue: queue as u16, peer, request_id: header.request_id };
                    self.datagram(desk, at, to, header, payload, arrived);
                }
                (None, _) => at.counts.truncated.add_owner(1),
            }
        }
        if let Some((from, id)) = train {
            self.forward(desk, at, (queue, peer, id), segment_bytes, &bytes[from..]);
        }
    }

    /// A datagram that stands for itself.
    pub(crate) fn datagram(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        to: DatagramOrigin,
        header: Header,
        payload: &[u8],
        arrived_nanos: u64,
    ) {
        match header.kind {
            Kind::Data | Kind::Once if self.stopping => {
                at.counts.requests_while_stopping.add_owner(1);
            }
            Kind::Data | Kind::Once if header.is_whole() => {
                let allowance = allowance(payload.len());
                let once = header.kind == Kind::Once;
                let digest = if once { at.shared.digest(0, payload) } else { 0 };
                let from = From { to, once, allowance, arrived_nanos };
                self.message(desk, at, from, digest, payload);
            }
            Kind::Data | Kind::Once | Kind::Resend => at.counts.wrong_sequence.add_owner(1),
            Kind::Forget => {
                at.counts.forgets.add_owner(1);
                at.shared.forget_reply(to.queue, &(to.peer, to.request_id));
                if let Some((lenders, peer)) = desk.lending.to(&to.peer) {
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

    /// With nothing else to do, and if the plan allows it: one request from somebody else's queue.
    pub(crate) fn steal_datagram(&mut self) -> io::Result<bool> {
        if !self.plan.steal.when_idle || self.plan.role(self.id) == Role::Large {
            return Ok(false);
        }
        let Some(mut udp) = self.udp.take() else { return Ok(false) };
        let stolen = self.steal_from_next(&mut udp);
        self.udp = Some(udp);
        stolen
    }

    fn steal_from_next(&mut self, udp: &mut Udp) -> io::Result<bool> {
        let shared = udp.desk.shared.clone();
        let at = At { shared: &shared, counts: &shared.counts[self.id.index()] };
        let queues = shared.queues.len();
        for _ in 0..queues {
            let queue = udp.desk.steal_next % queues;
            udp.desk.steal_next = queue + 1;
            if !udp.desk.watched[queue] && self.receive_burst(udp, at, queue, 1)?.0 > 0 {
                self.lanes().stolen.add_owner(1);
                return Ok(true);
            }
        }
        Ok(false)
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
