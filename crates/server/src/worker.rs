//! One worker: what the papers call a core. `step(now)` is one turn of its wheel and repeats
//! exactly from the same inputs; only [`crate::boot`] gives it a thread.
//!
//! A turn: read the plan; take in connections that were handed over; receive a burst and serve the
//! small requests in it to completion; then move *one* slice of a large transfer, on a large worker
//! behind small requests of others; with nothing done, take one of another's; on worker 0, once per
//! epoch, make the next plan. A small request therefore waits for one slice, and one more for each
//! group of connections that are served before its own (`policy::share`). The order is
//! `policy::turn`'s, which the simulator runs: a test in `sim` compares what both do.
//!
//! The work is done by its parts: [`crate::stream::streams`] has the connections, [`crate::udp`]
//! the datagrams, [`crate::jobs`] what passes between workers. None knows another; here they are
//! wired.

use crate::built::OBSERVES;
use crate::clock::{Clock, nanos_of};
use crate::control::Control;
use crate::core::Core;
use crate::idle::Sleeper;
use crate::jobs::{Jobs, Parts};
use crate::shared::{Phase, Shared};
use crate::stream::streams::Streams;
use crate::udp::state::Udp;
use laneway_policy::share::{Round, Step};
use laneway_policy::{Role, WorkerId};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::datagram::Datagrams;
use laneway_transport::{FOREVER, Ready, Token, Transport, Wait};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest an idle worker sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A shorter sleep has a bound of its own: to set an alarm takes a system call.
const ALARM_MIN: Duration = Duration::from_millis(20);

/// How often a stopping worker looks whether it may leave.
const DRAIN_SLEEP: Duration = Duration::from_millis(10);

/// Whether a step found something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It did.
    Busy,
    /// It did, a slice of a large transfer among it: somebody small may come first now.
    Sliced,
    /// It did not.
    Idle,
    /// The server has stopped: do not call again.
    Over,
}

/// A worker, generic over where its bytes come from.
pub struct Worker<T: Transport> {
    parts: Parts<T>,
    jobs: Jobs,
    /// The control loop, at worker 0.
    control: Option<Control>,
    idle: Sleeper,
    ready: Vec<Ready>,
    housekeeping_nanos: u64,
    /// When the transport's alarm goes off, or has gone off.
    alarm_nanos: u64,
}

impl<T: Transport> Worker<T> {
    /// A worker that has not begun. Worker 0 is given the control loop.
    pub fn new(
        id: WorkerId,
        shared: Arc<Shared<T::Stream>>,
        transport: T,
        clock: impl Clock + 'static,
        control: Option<Control>,
    ) -> io::Result<Self> {
        // Set before any thread runs; a second worker of this number would be a bug.
        let set = shared.workers[id.index()].waker.set(transport.waker());
        assert!(set.is_ok(), "worker {} exists twice", id.0);
        let streams = Streams::new(shared.settings.epoch);
        let idle = Sleeper::new(shared.settings.idle);
        let mut core = Core::new(id, shared, transport, Box::new(clock));
        (core.hands_over, core.hands_unseen) = core.rules();
        let reads = core.plan.role(id) != Role::Large;
        core.transport.watch_listeners(reads)?;
        Ok(Worker {
            parts: Parts { core, streams, udp: None },
            jobs: Jobs::default(),
            control,
            idle,
            ready: Vec::new(),
            housekeeping_nanos: 0,
            alarm_nanos: 0,
        })
    }

    /// Serve datagrams too. Called before the first step, for every worker of the server.
    pub fn serve_datagrams(&mut self, datagrams: Box<dyn Datagrams>) -> io::Result<()> {
        self.parts.udp = Some(Box::new(Udp::new(&mut self.parts.core, datagrams)?));
        Ok(())
    }

    /// One turn.
    pub fn step(&mut self) -> io::Result<Progress> {
        let now = self.begin();
        self.follow_plan()?;
        self.housekeep(now)?;
        self.parts.streams.turn_watchers(now);
        self.parts.streams.let_go(&self.parts.core, now);
        self.parts.core.turn_hot(now);
        let adopted = self.jobs.take_finished(&mut self.parts)?;
        let adopted = adopted | self.parts.streams.adopt(&mut self.parts.core)?;
        let received = self.receive(now, adopted)?;
        let worked = self.jobs.work(&mut self.parts)?;
        let took = self.transfer_waits() && self.jobs.steal_between_slices(&mut self.parts)?;
        self.send_datagrams()?;
        let sliced = self.slice_one()?;
        let busy = adopted || received || worked || took || sliced;
        let busy = busy || self.jobs.steal(&mut self.parts)? || self.steal_datagram()?;
        let helped = self.parts.core.help();
        if worked || took || sliced || helped {
            self.parts.core.works_on();
        }
        let busy = busy | helped;
        if !busy {
            self.parts.core.hand.empty();
        }
        self.parts.core.tell_idle(!busy);
        self.plan_ahead(now);
        self.end(now);
        if self.parts.core.shared.phase() == Phase::Stopped {
            return Ok(Progress::Over);
        }
        Ok(match (sliced, busy) {
            (true, _) => Progress::Sliced,
            (false, true) => Progress::Busy,
            (false, false) => Progress::Idle,
        })
    }

    /// Where its bytes come from.
    pub fn transport(&self) -> &T {
        &self.parts.core.transport
    }

    /// Messages of several frames that are not whole, or not stored yet, and the memory they take;
    /// for tests.
    pub fn unfinished_messages(&self) -> (usize, usize) {
        self.parts.udp.as_ref().map_or((0, 0), |udp| udp.desk.unfinished_messages())
    }

    /// Memory outside of the store that input and replies take, of the connection with the most and
    /// of all; for tests.
    pub fn connection_bytes(&self) -> (usize, usize) {
        let connections = self.parts.streams.table.connections();
        let each = connections.map(|one| one.input.memory_bytes() + one.output.memory_bytes());
        each.fold((0, 0), |(most, all), bytes| (bytes.max(most), all + bytes))
    }

    /// The CPUs of its NUMA domain, if it is to stay on them.
    pub fn cpus(&self) -> &[usize] {
        self.parts.core.shared.settings.domains.first().map_or(&[], |domain| &domain.cpus)
    }

    /// Let go of everything (after the last step).
    pub fn finish(&mut self) {
        let Parts { core, streams, .. } = &mut self.parts;
        let tokens: Vec<Token> = streams.table.tokens_from(0).collect();
        for token in tokens {
            if let Some(connection) = streams.table.take(token) {
                streams.close(core, token, *connection);
            }
        }
    }

    /// A turn begins. Returns when. If the server is stopping, this worker is not drained until the
    /// turn sleeps or has ended with nothing under way.
    fn begin(&mut self) -> u64 {
        let Parts { core, streams, .. } = &mut self.parts;
        let now = core.begin_nanos();
        core.tell_time(now);
        streams.count_backlog(core, now);
        core.stopping = core.shared.phase() != Phase::Running;
        core.is_limiting = core.shared.connections.clients.limits.is_on() && !core.stopping;
        core.take_on();
        now
    }

    /// A turn ends: what the others are to know of it. `now`: when it began.
    fn end(&mut self, now: u64) {
        let Parts { core, streams, udp } = &mut self.parts;
        let lanes = core.lanes();
        if OBSERVES {
            lanes.waiting_small.set_owner(streams.small.len() as u64);
        }
        lanes.waiting_large.set_owner(streams.large.len() as u64);
        streams.note_backlog(udp.as_ref().is_some_and(|udp| udp.desk.waits_for_room()), now);
        self.tell_drained();
    }

    /// A turn ends, or sleeps.
    fn tell_drained(&self) {
        let Parts { core, udp, .. } = &self.parts;
        if core.stopping {
            let idle =
                self.jobs.is_delivered() && udp.as_ref().is_none_or(|udp| udp.desk.is_idle());
            core.shared.workers[core.id.index()].drained.tell(idle);
        }
    }

    /// Receive a burst and serve what is small in it.
    fn receive(&mut self, now: u64, adopted: bool) -> io::Result<bool> {
        self.parts.streams.had = (0, 0);
        let wait = self.wait(now, adopted);
        let burst = self.parts.streams.burst();
        // Asleep it is as idle as between two turns, and that is where it is most of the time.
        if wait != Wait::No {
            self.tell_drained();
        }
        let Parts { core, streams, .. } = &mut self.parts;
        core.works_on();
        let polled = core.transport.poll(&mut self.ready, burst, wait);
        core.take_on();
        core.is_awake();
        core.follow_hot();
        polled?;
        let mut busy = !self.ready.is_empty();
        streams.burst_nanos = None;
        if busy {
            streams.found_nanos = self.idle.found(&*core.clock);
            core.begin_offering(&self.ready);
        }
        busy |= self.round(burst)?;
        Ok(busy)
    }

    /// Serve what was found ready, and what had to wait for another turn, in the order of
    /// `policy::share`; datagrams in between. The slice that ends the round comes behind the jobs
    /// of others. Returns whether there was anything but what was found ready.
    #[inline]
    fn round(&mut self, burst: usize) -> io::Result<bool> {
        let Worker { parts, ready, .. } = self;
        let (mut round, mut begun) = (Round::default(), 0);
        round.begin(burst as u32);
        let mut step = round.next(ready.len(), parts.streams.small.len());
        while step == Step::Ready {
            parts.core.works_on();
            take(parts, ready[begun])?;
            begun += 1;
            step = round.next(ready.len() - begun, parts.streams.small.len());
        }
        ready.clear();
        parts.streams.found_nanos = None;
        parts.core.offers.set(0);
        let mut busy = match &mut parts.udp {
            Some(udp) => udp.receive(&mut parts.core)?,
            None => false,
        };
        if busy {
            parts.core.works_on();
        }
        while step == Step::Again {
            parts.core.works_on();
            parts.streams.another_turn(&mut parts.core)?;
            busy = true;
            step = round.next(0, parts.streams.small.len());
        }
        let streams = &mut parts.streams;
        streams.depth.note(streams.had.0, streams.had.1);
        Ok(busy)
    }

    fn wait(&mut self, now: u64, adopted: bool) -> Wait {
        let Parts { core, streams, udp } = &self.parts;
        let busy = adopted
            || core.has_asked // the durable executor has more to begin
            || streams.is_busy(core)
            || self.control.as_ref().is_some_and(Control::is_busy)
            || udp.as_ref().is_some_and(|udp| udp.desk.is_busy())
            || self.has_jobs();
        if busy {
            return Wait::No;
        }
        let due = self.control.as_ref().map_or(u64::MAX, |control| control.due_nanos());
        let due = due.min(streams.watchers.due_nanos()).min(streams.held.due_nanos());
        let due = due.min(udp.as_ref().map_or(u64::MAX, |udp| udp.desk.ask_nanos));
        let due = due.min(self.flush_due_nanos(now));
        let sleep = Duration::from_nanos(due.saturating_sub(now));
        // A server that is stopping has nothing to spin for.
        let stopping = core.stopping;
        let wait = match stopping {
            true => Wait::AtMost(sleep.min(DRAIN_SLEEP)),
            false => self.idle.wait(now, sleep.min(SLEEP_MAX)),
        };
        match wait {
            Wait::AtMost(_) if self.may_not_sleep() => Wait::No,
            Wait::AtMost(sleep) if !stopping => self.until_alarm(now, sleep),
            wait => wait,
        }
    }

    /// When a `flush_all` to come is to be carried out by the workers. The lane in the kernel wakes
    /// none: it goes on answering from what is to be gone until one of them is awake.
    fn flush_due_nanos(&self, now: u64) -> u64 {
        let core = &self.parts.core;
        let at = core.shared.flush_at.load(Relaxed); // whoever carries it out looks again
        if at == 0 || core.shared.durable.get().is_some() {
            return u64::MAX;
        }
        let at_nanos = nanos_of(Duration::from_secs(at.into()));
        now + at_nanos.saturating_sub(core.clock.unix_nanos(now))
    }

    /// Say that this worker is about to sleep, then look once more. True: it must not.
    fn may_not_sleep(&self) -> bool {
        let core = &self.parts.core;
        core.shared.workers[core.id.index()].sleeper.fall_asleep();
        self.has_jobs()
    }

    /// Whether a job, a reply or forwarded frames wait for this worker.
    fn has_jobs(&self) -> bool {
        let Parts { core, udp, .. } = &self.parts;
        self.jobs.has_any(core) || udp.as_ref().is_some_and(|udp| udp.has_trains(core.id))
    }

    /// A sleep that the transport's alarm ends, where it has one: it stands as long as nothing is
    /// due before it, while every wait with a bound would set a timer of its own and stop it again.
    fn until_alarm(&mut self, now: u64, sleep: Duration) -> Wait {
        let due = now + sleep.as_nanos() as u64;
        let stands = now < self.alarm_nanos && self.alarm_nanos <= due;
        if !stands {
            if sleep < ALARM_MIN || !self.parts.core.transport.set_alarm(sleep) {
                return Wait::AtMost(sleep);
            }
            self.alarm_nanos = due;
        }
        Wait::AtMost(FOREVER)
    }

    /// Send what jobs have left in the batches.
    fn send_datagrams(&mut self) -> io::Result<()> {
        let Parts { core, udp, .. } = &mut self.parts;
        match udp {
            Some(udp) if !udp.desk.dirty.is_empty() => udp.flush(core),
            _ => Ok(()),
        }
    }

    /// Whether a transfer waits for its slice.
    #[inline]
    fn transfer_waits(&self) -> bool {
        let Parts { streams, udp, .. } = &self.parts;
        !streams.large.is_empty() || udp.as_ref().is_some_and(|udp| udp.has_turn(true))
    }

    /// Move one slice of the next large transfer. Returns whether there was one.
    fn slice_one(&mut self) -> io::Result<bool> {
        let Parts { core, streams, udp } = &mut self.parts;
        let alone = streams.large.is_empty();
        if let Some(udp) = udp.as_mut().filter(|udp| udp.has_turn(alone)) {
            udp.slice(core)?;
            return Ok(true);
        }
        let sliced = streams.slice_one(core)?;
        if let Some(udp) = udp.as_mut().filter(|_| sliced) {
            udp.desk.is_turn = true;
        }
        Ok(sliced)
    }

    fn steal_datagram(&mut self) -> io::Result<bool> {
        let Parts { core, udp, .. } = &mut self.parts;
        udp.as_mut().map_or(Ok(false), |udp| udp.steal(core))
    }

    /// The control loop's next step, and what the kernel must know of the time.
    fn plan_ahead(&mut self, now: u64) {
        let core = &self.parts.core;
        let Some(control) = &mut self.control else { return };
        control.step(&core.shared, now, core.now);
        if let Some(kernel) = core.shared.kernel.get() {
            kernel.keep_time(now, &*core.clock);
        }
    }

    /// Read the plan; a change of role changes what this worker polls and whom it keeps.
    fn follow_plan(&mut self) -> io::Result<()> {
        let Parts { core, streams, udp } = &mut self.parts;
        let newer = core.shared.plan.edition.newer_than(core.plan_version);
        let newer = newer.filter(|_| core.id.0 != 1 || !is_planted(Bug::PlanStale));
        let Some(version) = newer else { return streams.let_leave(core) };
        let before = core.plan.role(core.id);
        core.plan_version = version;
        let plan_before = std::mem::replace(&mut core.plan, core.shared.plan.get());
        if let Some(udp) = udp {
            udp.follow_plan(core, &plan_before);
        }
        (core.hands_over, core.hands_unseen) = core.rules();
        let role = core.plan.role(core.id);
        if role != before {
            let large = role == Role::Large;
            streams.leaving = large.then_some(0);
            match core.shared.phase() {
                Phase::Running if large => core.transport.watch_listeners(false)?,
                Phase::Running => streams.listen(core),
                Phase::Draining | Phase::Stopped => {}
            }
        }
        streams.let_leave(core)
    }

    /// Once a second: idle connections, accepting again after a pause, the delayed flush, the
    /// sweep.
    fn housekeep(&mut self, now: u64) -> io::Result<()> {
        let Parts { core, streams, udp } = &mut self.parts;
        core.flush_if_due(); // one that takes several calls goes on
        let is_running = core.shared.phase() == Phase::Running;
        if is_running {
            streams.kick_idle(core);
        } else {
            core.shared.workers[core.id.index()].turns.add_owner(1);
            streams.end_idle(core)?;
        }
        if now < self.housekeeping_nanos {
            return Ok(());
        }
        self.housekeeping_nanos = now + SLEEP_MAX.as_nanos() as u64;
        if is_running {
            core.shared.workers[core.id.index()].turns.add_owner(1);
            streams.accept_again(core);
            streams.begin_kicking(core);
        }
        // While it stops, too: it waits for every reply, be its client one that takes none.
        if let Some(udp) = udp {
            udp.watch_again(core);
            udp.expire(core, now);
        }
        core.hand.empty();
        Ok(())
    }
}

/// Something is ready: a connection has its turn at once, a queue of datagrams later in the round.
#[inline]
fn take<T: Transport>(parts: &mut Parts<T>, event: Ready) -> io::Result<()> {
    let Parts { core, streams, udp } = parts;
    match (event, udp) {
        (Ready::Listener(listener), _) => streams.accept(core, listener)?,
        (Ready::Stream(token), _) => streams.wakened(core, token, false)?,
        (Ready::Ending(token), _) => streams.wakened(core, token, true)?,
        (Ready::Datagrams(queue), Some(udp)) => udp.is_ready(queue, core.id),
        (Ready::Room(queue, path), Some(udp)) => udp.room_again(core, queue, path)?,
        (Ready::Woken, _) => {
            // By a job, mostly, from a sleep of up to a second: who executes that asks no clock.
            let now = core.clock.nanos();
            core.tell_time(now);
        }
        (Ready::Datagrams(_) | Ready::Room(..), None) => {}
    }
    Ok(())
}
