//! One worker: what the papers call a core. `step(now)` is one turn of its wheel and repeats
//! exactly from the same inputs; only [`crate::boot`] gives it a thread.
//!
//! A turn: read the plan; take in connections that were handed over; receive a burst and serve the
//! small requests in it to completion; then move *one* slice of a large transfer; on worker 0,
//! once per epoch, make the next plan. A small request therefore waits for one slice, and one more
//! for each group of connections that are served before its own (`policy::share`).

use crate::backlog::Backlog;
use crate::clock::Clock;
use crate::connection::{Connection, Table};
use crate::control::Control;
use crate::counters::Counters;
use crate::execute::ExecuteSettings;
use crate::handoff::Finished;
use crate::hot::local::HotWorker;
use crate::shared::{LaneCounts, Phase, Shared};
use crate::slices::Slices;
use crate::stats::Question;
use crate::udp::state::Udp;
use laneway_policy::migrate::LEAVERS_PER_TURN;
use laneway_policy::share::Depth;
use laneway_policy::{BATCH, CorePlan, Role, WorkerId};
use laneway_store::{Group, Hand, meter};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::{FOREVER, Interest, Ready, Token, Transport, Wait};
use laneway_wire::Limits;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Bytes one read of the small lane takes at most. What does not end within them and belongs to a
/// value streams straight into its item.
pub const READ_BYTES: usize = 16 * 1024;

/// The longest line of a multiget; it is held in memory until its newline has come.
const LINE_BYTES_MAX: usize = 1 << 20;

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

/// A worker, generic over where its bytes come from and its time.
pub struct Worker<T: Transport, C> {
    pub(crate) id: WorkerId,
    pub(crate) shared: Arc<Shared<T::Stream>>,
    pub(crate) transport: T,
    pub(crate) clock: C,
    pub(crate) plan: Arc<CorePlan>,
    pub(crate) plan_version: u64,
    /// Requests of some size are another worker's.
    pub(crate) hands_over: bool,
    /// So are requests, or writes, of any size: every one is asked about.
    pub(crate) hands_unseen: bool,
    pub(crate) table: Table<T::Stream>,
    /// Connections with input that was received but not served yet.
    pub(crate) small: VecDeque<Token>,
    /// Connections with a slice to move.
    pub(crate) large: Slices,
    /// How many requests a connection has in a turn.
    depth: Depth,
    /// Turns of connections, and requests in them, since it last received.
    pub(crate) had: (u32, u32),
    /// Datagrams, where they are served.
    pub(crate) udp: Option<Box<Udp>>,
    /// Hot keys, where they are looked after.
    pub(crate) hot: Option<Box<HotWorker>>,
    /// Replies whose home had no room for them.
    pub(crate) undelivered: VecDeque<Finished>,
    /// Requests of this burst that may still be offered to others.
    pub(crate) offers: Cell<u32>,
    /// What the others were told last of whether this worker is idle.
    pub(crate) told_idle: bool,
    /// Whether large replies wait for the wire.
    pub(crate) backlog: Backlog,
    /// The server is stopping: what is under way is finished, nothing new is begun.
    pub(crate) stopping: bool,
    /// Where handing connections away goes on, while this worker is becoming large.
    leaving: Option<u32>,
    /// Where looking for idle connections goes on, once a second.
    pub(crate) kicking: Option<u32>,
    pub(crate) ready: Vec<Ready>,
    pub(crate) read_buffer: Vec<u8>,
    pub(crate) out: Vec<u8>,
    /// The keys of a multiget or of a pipeline that are read together.
    pub(crate) group: Box<Group>,
    /// Free slots that it keeps from one store to the next.
    pub(crate) hand: Hand,
    /// Counts up with every hand-over, to spread them.
    pub(crate) turn_number: u64,
    pub(crate) now_seconds: u32,
    /// When the burst that is being served was found, until its first stream has been read.
    pub(crate) found_nanos: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) execute_settings: ExecuteSettings,
    control: Option<Control>,
    pub(crate) idle: crate::idle::Sleeper,
    housekeeping_nanos: u64,
    /// When the transport's alarm goes off, or has gone off.
    alarm_nanos: u64,
    accept_paused: bool,
}

impl<T: Transport, C: Clock> Worker<T, C> {
    /// A worker that has not begun. Worker 0 is given the control loop.
    pub fn new(
        id: WorkerId,
        shared: Arc<Shared<T::Stream>>,
        transport: T,
        clock: C,
        control: Option<Control>,
    ) -> io::Result<Self> {
        // Set before any thread runs; a second worker of this number would be a bug.
        let set = shared.workers[id.index()].waker.set(transport.waker());
        assert!(set.is_ok(), "worker {} exists twice", id.0);
        let idle = crate::idle::Sleeper::new(shared.settings.idle);
        let limits = Limits {
            item_bytes_max: shared.settings.item_bytes_max,
            line_bytes_max: LINE_BYTES_MAX,
        };
        let execute_settings = ExecuteSettings {
            cas_enabled: shared.settings.cas,
            flush_enabled: shared.settings.flush,
            shutdown_enabled: shared.settings.shutdown,
        };
        let backlog = Backlog::new(shared.settings.epoch);
        let mut worker = Worker {
            id,
            limits,
            execute_settings,
            hand: Hand::new(&shared.store),
            hot: shared.hot.as_deref().map(|board| Box::new(HotWorker::new(board))),
            // The number first: a plan that comes in between is then taken again, not missed.
            plan_version: shared.plan.edition.number(),
            plan: shared.plan.get(),
            shared,
            transport,
            now_seconds: clock.unix_seconds(clock.nanos()),
            found_nanos: None,
            clock,
            table: Table::default(),
            small: VecDeque::new(),
            large: Slices::default(),
            depth: Depth::default(),
            had: (0, 0),
            undelivered: VecDeque::new(),
            udp: None,
            offers: Cell::new(0),
            told_idle: false,
            backlog,
            stopping: false,
            leaving: None,
            kicking: None,
            ready: Vec::new(),
            read_buffer: vec![0; READ_BYTES],
            out: Vec::with_capacity(2 * READ_BYTES),
            group: Box::default(),
            turn_number: 0,
            control,
            idle,
            housekeeping_nanos: 0,
            alarm_nanos: 0,
            accept_paused: false,
            hands_over: false,
            hands_unseen: false,
        };
        (worker.hands_over, worker.hands_unseen) = worker.rules();
        let reads = worker.plan.role(id) != Role::Large;
        worker.transport.watch_listeners(reads)?;
        Ok(worker)
    }

    /// One turn.
    pub fn step(&mut self) -> io::Result<Progress> {
        let now = self.clock.nanos();
        self.now_seconds = self.clock.unix_seconds(now);
        self.count_backlog(now);
        self.begin_stopping();
        self.follow_plan()?;
        self.housekeep(now)?;
        self.turn_hot(now);
        let adopted = self.take_finished()? | self.adopt()?;
        let received = self.receive(now, adopted)?;
        let worked = self.work()?;
        self.send_datagrams()?;
        let sliced = self.slice_one()?;
        if sliced {
            self.steal_between_slices()?;
        }
        let busy = adopted || received || worked || sliced;
        let busy = busy || self.steal()? || self.steal_datagram()?;
        if !busy {
            self.hand.empty();
        }
        self.tell_idle(!busy);
        if let Some(mut control) = self.control.take() {
            control.step(&self.shared, now, self.now_seconds);
            if let Some(kernel) = self.shared.kernel.get() {
                kernel.keep_time(now, &self.clock);
            }
            self.control = Some(control);
        }
        self.publish_queues();
        self.note_backlog(now);
        self.tell_drained();
        if self.shared.phase() == Phase::Stopped {
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
        &self.transport
    }

    /// Let go of everything (after the last step).
    pub fn finish(&mut self) {
        let tokens: Vec<Token> = self.table.tokens_from(0).collect();
        for token in tokens {
            if let Some(connection) = self.table.take(token) {
                self.close(token, *connection);
            }
        }
    }

    /// Receive a burst and serve what is small in it.
    fn receive(&mut self, now: u64, adopted: bool) -> io::Result<bool> {
        self.had = (0, 0);
        let wait = self.wait(now, adopted);
        let mut ready = std::mem::take(&mut self.ready);
        let burst = self.burst();
        // Asleep it is as idle as between two turns, and that is where it is most of the time.
        if wait != Wait::No {
            self.tell_drained();
        }
        let polled = self.transport.poll(&mut ready, burst, wait);
        self.take_on();
        self.is_awake();
        self.follow_hot();
        polled?;
        let mut busy = !ready.is_empty();
        if busy {
            self.found_nanos = self.idle.found(&self.clock);
            self.begin_offering(&ready);
        }
        for event in ready.drain(..) {
            match event {
                Ready::Listener(listener) => self.accept(listener)?,
                Ready::Stream(token) => self.wakened(token, false)?,
                Ready::Ending(token) => self.wakened(token, true)?,
                Ready::Datagrams(queue) => self.datagrams_ready(queue),
                Ready::Room(queue, path) => self.datagrams_room(queue, path)?,
                Ready::Woken => {}
            }
        }
        self.found_nanos = None;
        self.offers.set(0);
        self.ready = ready;
        busy |= self.receive_datagrams()?;
        // What had to wait a turn comes after what was just received; no more than a burst of it.
        for _ in 0..self.small.len().min(burst) {
            let Some(token) = self.small.pop_front() else { break };
            busy = true;
            if let Some(connection) = self.table.get_mut(token) {
                connection.queued = false;
                self.turn(token)?;
            }
        }
        self.depth.note(self.had.0, self.had.1);
        Ok(busy)
    }

    /// A stream is ready: a large one gets in line for its slice, a small one is served now.
    fn wakened(&mut self, token: Token, ends: bool) -> io::Result<()> {
        let Some(connection) = self.table.get_mut(token) else { return Ok(()) }; // stale
        // A connection that waits for room to write is told of that room here; it is told of
        // unread bytes when it waits for those again.
        if ends || connection.interest != Some(Interest::Write) {
            connection.is_told(ends);
        }
        if connection.queued {
            return Ok(()); // its turn comes anyway
        }
        if connection.output.is_waiting() {
            return self.disturbed(token);
        }
        if connection.large {
            connection.queued = true;
            self.backlog.goes_on(connection);
            self.large.push_back(token, connection.is_urgent());
            return Ok(());
        }
        self.turn(token)
    }

    /// Connections that have a turn before the next slice of what is large (`policy::share`).
    fn burst(&self) -> usize {
        let waiting = self.large.waiting();
        let connections = match waiting.is_none() {
            true => BATCH,
            false => self.depth.connections_between_slices(waiting),
        };
        connections as usize
    }

    fn wait(&mut self, now: u64, adopted: bool) -> Wait {
        let here = &self.shared.workers[self.id.index()];
        let busy = adopted
            || !self.small.is_empty()
            || !self.large.is_empty()
            || self.leaving.is_some()
            || self.kicking.is_some()
            || self.control.as_ref().is_some_and(Control::is_busy)
            || !here.mailbox.is_empty()
            || (self.takes_large() && !self.shared.large_queue.is_empty());
        if busy || self.has_jobs() || self.has_datagrams() {
            return Wait::No;
        }
        let due = self.control.as_ref().map_or(u64::MAX, |control| control.due_nanos());
        let due = due.min(self.datagrams_due_nanos());
        let sleep = Duration::from_nanos(due.saturating_sub(now));
        // A server that is stopping has nothing to spin for.
        let wait = match self.stopping {
            true => Wait::AtMost(sleep.min(DRAIN_SLEEP)),
            false => self.idle.wait(now, sleep.min(SLEEP_MAX)),
        };
        match wait {
            Wait::AtMost(_) if self.may_not_sleep() => Wait::No,
            Wait::AtMost(sleep) if !self.stopping => self.until_alarm(now, sleep),
            wait => wait,
        }
    }

    /// A sleep that the transport's alarm ends, where it has one: it stands as long as nothing is
    /// due before it, while every wait with a bound would set a timer of its own and stop it again.
    fn until_alarm(&mut self, now: u64, sleep: Duration) -> Wait {
        let due = now + sleep.as_nanos() as u64;
        let stands = now < self.alarm_nanos && self.alarm_nanos <= due;
        if !stands {
            if sleep < ALARM_MIN || !self.transport.set_alarm(sleep) {
                return Wait::AtMost(sleep);
            }
            self.alarm_nanos = due;
        }
        Wait::AtMost(FOREVER)
    }

    /// Read the plan; a change of role changes what this worker polls and whom it keeps.
    fn follow_plan(&mut self) -> io::Result<()> {
        let newer = self.shared.plan.edition.newer_than(self.plan_version);
        let newer = newer.filter(|_| self.id.0 != 1 || !is_planted(Bug::PlanStale));
        let Some(version) = newer else { return self.let_leave() };
        let before = self.plan.role(self.id);
        self.plan_version = version;
        let plan_before = std::mem::replace(&mut self.plan, self.shared.plan.get());
        self.follow_plan_of_datagrams(&plan_before)?;
        (self.hands_over, self.hands_unseen) = self.rules();
        let role = self.plan.role(self.id);
        if role != before {
            let large = role == Role::Large;
            self.leaving = large.then_some(0);
            if self.shared.phase() == Phase::Running {
                self.transport.watch_listeners(!large)?;
            }
        }
        self.let_leave()
    }

    /// A worker that turned large sends its connections to small ones, a batch per turn; those in
    /// the middle of a large request are already where they belong, and those that wait for a reply
    /// leave once they have it.
    fn let_leave(&mut self) -> io::Result<()> {
        let Some(from) = self.leaving else { return Ok(()) };
        let tokens: Vec<Token> =
            self.table.tokens_from(from).take(LEAVERS_PER_TURN as usize).collect();
        self.leaving = tokens.last().map(|token| token.slot + 1);
        for token in tokens {
            let Some(connection) = self.table.take(token) else { continue };
            let waits = connection.output.is_waiting();
            if connection.large || waits || connection.visit.is_some() {
                self.table.put(token, connection);
            } else {
                self.send_home(token, connection)?;
            }
        }
        Ok(())
    }

    /// Once a second: idle connections, accepting again after a pause, the delayed flush, the
    /// sweep.
    fn housekeep(&mut self, now: u64) -> io::Result<()> {
        let flush_at = self.shared.flush_at.load(Relaxed);
        let keeps = self.shared.durable.get().is_some(); // then its keeper flushes
        if flush_at != 0 && self.now_seconds >= flush_at && !keeps {
            // Whoever clears it flushes.
            let mine = self.shared.flush_at.compare_exchange(flush_at, 0, Relaxed, Relaxed).is_ok();
            if mine && !self.shared.store.flush_all() {
                // Not yet: again next turn, unless another flush has taken its place.
                let _ = self.shared.flush_at.compare_exchange(0, flush_at, Relaxed, Relaxed);
            }
        }
        if self.shared.phase() != Phase::Running {
            return self.drain();
        }
        self.kick_idle();
        if now < self.housekeeping_nanos {
            return Ok(());
        }
        self.housekeeping_nanos = now + SLEEP_MAX.as_nanos() as u64;
        if self.accept_paused && self.plan.role(self.id) != Role::Large {
            self.accept_paused = false;
            self.transport.watch_listeners(true)?;
        }
        self.kicking = (!self.shared.settings.idle_timeout.is_zero()).then_some(0);
        self.expire_datagrams(now);
        self.hand.empty();
        Ok(())
    }

    /// Close idle connections: a batch per turn.
    fn kick_idle(&mut self) {
        let Some(from) = self.kicking else { return };
        let timeout = self.shared.settings.idle_timeout.as_secs() as u32;
        let tokens: Vec<Token> = self.table.tokens_from(from).take(BATCH as usize).collect();
        self.kicking = tokens.last().map(|token| token.slot + 1);
        for token in tokens {
            let Some(connection) = self.table.take(token) else { continue };
            let last = connection.card.last_seconds.load(Relaxed);
            // As with memcached: who is being served, or sends a value, is not idle.
            let served = connection.large || !connection.output.is_empty();
            if !served && self.now_seconds.saturating_sub(last) > timeout {
                self.shared.connections.idle_kicked.fetch_add(1, Relaxed);
                self.close(token, *connection);
            } else {
                self.table.put(token, connection);
            }
        }
    }

    /// New connections: each goes to the small worker that has the fewest.
    fn accept(&mut self, listener: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let stream = match self.transport.accept(listener) {
                Ok(Some(stream)) => stream,
                Ok(None) => return Ok(()),
                Err(error) => {
                    // No descriptors or memory left: pause, or level-triggered polling would spin.
                    log::warn!("accepting pauses for a second: {error}");
                    self.shared.connections.paused.fetch_add(1, Relaxed);
                    self.accept_paused = true;
                    return self.transport.watch_listeners(false);
                }
            };
            self.welcome(stream)?;
        }
        Ok(())
    }

    fn welcome(&mut self, mut stream: T::Stream) -> io::Result<()> {
        use laneway_transport::Stream;
        let shared = self.shared.clone();
        let most = shared.settings.connections_max;
        let names = (stream.peer(), stream.local());
        let Some(card) = shared.connections.enter(most, names, self.now_seconds) else {
            // One small write into an empty socket buffer; whether it arrives is the peer's affair.
            let _ = stream.write(&[io::IoSlice::new(b"ERROR Too many open connections\r\n")]);
            log::trace!(peer = &*stream.peer(); "connection refused: -c {most} are open");
            return Ok(());
        };
        let fewest = |id: &WorkerId| shared.workers[id.index()].connections.load(Relaxed);
        let home = self.plan.small_ids().min_by_key(fewest).unwrap_or(self.id);
        shared.workers[home.index()].connections.fetch_add(1, Relaxed);
        let (connection, peer) = (card.number, &*card.peer);
        log::trace!(connection, peer, worker = home.index(); "connection opened");
        let connection = Connection::new(stream, home, card);
        if home == self.id { self.settle_in(connection) } else { self.mail(home, connection) }
    }

    /// Whether this worker takes from the shared queue of large requests.
    pub(crate) fn takes_large(&self) -> bool {
        matches!(self.plan.role(self.id), Role::Large | Role::Standby)
    }

    /// The CPUs of its NUMA domain, if it is to stay on them.
    pub fn cpus(&self) -> &[usize] {
        self.shared.settings.domains.first().map_or(&[], |domain| &domain.cpus)
    }

    /// The reply to a `stats` question.
    pub(crate) fn answer_question(&self, question: &Question) -> Vec<u8> {
        let reply = self.shared.answer(question, self.now_seconds, self.clock.nanos());
        meter::bytes(reply.len());
        reply
    }

    /// This worker's command counters.
    pub(crate) fn counters(&self) -> &Counters {
        self.shared.board.worker(self.id.index())
    }

    /// This worker's lane counters.
    pub(crate) fn lanes(&self) -> &LaneCounts {
        &self.shared.workers[self.id.index()].lanes
    }

    fn publish_queues(&self) {
        let lanes = &self.shared.workers[self.id.index()].lanes;
        lanes.waiting_small.set_owner(self.small.len() as u64);
        lanes.waiting_large.set_owner(self.large.len() as u64);
    }

    /// Close a connection and forget it.
    pub(crate) fn close(&mut self, token: Token, mut connection: Connection<T::Stream>) {
        self.backlog.goes_on(&mut connection);
        self.leave_unsent(&mut connection, None);
        if connection.interest.is_some() {
            // The kernel forgets a closed descriptor by itself; an error here changes nothing.
            let _ = self.transport.detach(&connection.stream);
        }
        self.table.release(token);
        let card = &connection.card;
        self.shared.connections.leave(card);
        log::trace!(connection = card.number, peer = &*card.peer; "connection closed");
        self.shared.workers[connection.home.index()].connections.fetch_sub(1, Relaxed);
    }

    /// Make an attached or not yet attached connection wait for `interest`.
    pub(crate) fn want(
        &mut self,
        token: Token,
        connection: &mut Connection<T::Stream>,
        interest: Interest,
    ) -> io::Result<()> {
        match connection.interest {
            Some(now) if now == interest => return Ok(()),
            Some(_) => self.transport.rearm(&connection.stream, token, interest)?,
            None => self.transport.attach(&connection.stream, token, interest)?,
        }
        connection.interest = Some(interest);
        Ok(())
    }
}
