//! The context that every part of a worker works with: the worker's number, the plan that it
//! follows, its time and its transport, and the context in which it executes requests. A part gets
//! it for a call and keeps nothing of it, so no part knows another ([`crate::worker`] wires them).

use crate::access::client_limits::LimitOf;
use crate::auth::gate::Door;
use crate::built::OBSERVES;
use crate::clock::Clock;
use crate::counts::clients::{ClientCounts, ClientSums};
use crate::counts::counters::Counters;
use crate::durable::pending_writes::DurableReader;
use crate::durable::shared::Helped;
use crate::event_log::EventLog;
use crate::execute::{Context, ExecuteSettings};
use crate::hot::local::HotWorker;
use crate::hot::sample::Dice;
use crate::latency::{self, Operation, PendingLatencies};
use crate::resp::scratch::Scratch;
use crate::resp::state::Dialect;
use crate::shared::{LaneCounts, Shared, lock};
use crate::stats::Question;
use crate::stream::connection::{Connection, ConnectionStats, Mode};
use crate::stream::step::{Step, Stop};
use laneway_policy::pace::{Pace, Way};
use laneway_policy::route::lane;
use laneway_policy::{CorePlan, ItemBytes, Lane, LargeLane, Role, Route, WorkerId};
use laneway_store::{Group, Hand, Moment, Store, meter};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::sleep::Posted;
use laneway_transport::Transport;
use laneway_wire::Limits;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The longest line of a multiget; it is held in memory until its newline has come.
const LINE_BYTES_MAX: usize = 1 << 20;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Requests of a turn that their client, who is limited, was not charged for yet.
pub(crate) struct Uncharged {
    /// So many have begun,
    pub(crate) begun: u64,
    /// and so many had been counted here before.
    pub(crate) counted: u64,
}

/// What the papers call a core: all of a worker but what it has under way.
pub struct Core<T: Transport> {
    pub(crate) id: WorkerId,
    pub(crate) shared: Arc<Shared<T::Stream>>,
    pub(crate) transport: T,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) plan: Arc<CorePlan>,
    pub(crate) plan_version: u64,
    /// Requests of some size are another worker's.
    pub(crate) hands_over: bool,
    /// So are requests, or writes, of any size: every one is asked about.
    pub(crate) hands_unseen: bool,
    /// Hot keys, where they are looked after.
    pub(crate) hot: Option<Box<HotWorker>>,
    /// Where nobody looks after hot keys: which requests are looked at.
    pub(crate) dice: Dice,
    /// Requests of this burst that may still be offered to others.
    pub(crate) offers: Cell<u32>,
    /// Bytes of the item that was read last, by a command executed in a [`Core::context`]; 0 if it
    /// has read none.
    pub(crate) touched: Cell<u64>,
    /// What the others were told last of whether this worker is idle.
    pub(crate) told_idle: bool,
    /// Keys of large requests are told.
    pub(crate) logs_keys: bool,
    /// Clients are limited, as of this turn. A server that stops lets everybody finish.
    pub(crate) is_limiting: bool,
    /// What a slice may move beside what [`Core::slice_budget`] says, where its client is limited.
    pub(crate) slice_most: usize,
    /// What happens is logged there.
    pub(crate) events: Arc<EventLog>,
    /// The number of the connection whose requests are served; 0 where they are a datagram's.
    pub(crate) asker: u64,
    /// The server is stopping: what is under way is finished, nothing new is begun.
    pub(crate) stopping: bool,
    /// The keys of a multiget or of a pipeline that are read together.
    pub(crate) group: Box<Group>,
    /// Free slots that it keeps from one store to the next.
    pub(crate) hand: Hand,
    /// Where requests about several keys are tried out; once there was one.
    pub(crate) scratch: Option<Box<Scratch>>,
    /// How long slices take of late.
    pub(crate) pace: Pace,
    /// The durable executor was given something in this turn, or has more to begin since the last.
    pub(crate) has_asked: bool,
    /// Counts up with every hand-over, to spread them.
    pub(crate) turn_number: u64,
    /// What time it is for items, as of this turn or what was received in it last.
    pub(crate) now: Moment,
    /// By the clock's nanoseconds, when the millisecond of `now` began.
    now_since_nanos: u64,
    /// When replies were found to have left, if the turn has looked at nothing else since; else 0.
    settled_nanos: Cell<u64>,
    pub(crate) limits: Limits,
    pub(crate) execute_settings: ExecuteSettings,
}

impl<T: Transport> Core<T> {
    /// What the worker of this number works with.
    pub(crate) fn new(
        id: WorkerId,
        shared: Arc<Shared<T::Stream>>,
        transport: T,
        clock: Box<dyn Clock>,
    ) -> Core<T> {
        let settings = &shared.settings;
        Core {
            id,
            limits: Limits {
                item_bytes_max: settings.item_bytes_max,
                line_bytes_max: LINE_BYTES_MAX,
            },
            execute_settings: ExecuteSettings {
                cas_enabled: settings.cas,
                flush_enabled: settings.flush,
                shutdown_enabled: settings.shutdown,
                tls_enabled: settings.tls.is_some(),
            },
            hand: Hand::new(&shared.store),
            logs_keys: settings.log_keys,
            is_limiting: false,
            slice_most: usize::MAX,
            events: shared.connections.events.clone(),
            asker: 0,
            hot: shared.hot.as_deref().map(|board| Box::new(HotWorker::new(board))),
            dice: Dice::new(id.index()),
            // The number first: a plan that comes in between is then taken again, not missed.
            plan_version: shared.plan.edition.number(),
            plan: shared.plan.get(),
            shared,
            transport,
            now: clock.moment(clock.nanos()),
            now_since_nanos: u64::MAX / 2, // far from any time: the first turn tells
            settled_nanos: Cell::new(0),
            clock,
            offers: Cell::new(0),
            touched: Cell::new(0),
            told_idle: false,
            stopping: false,
            group: Box::default(),
            scratch: None,
            pace: Pace::default(),
            has_asked: false,
            turn_number: 0,
            hands_over: false,
            hands_unseen: false,
        }
    }

    /// When replies have left.
    #[inline]
    pub(crate) fn settle_nanos(&self) -> u64 {
        let now = self.clock.nanos();
        self.settled_nanos.set(now);
        now
    }

    /// The turn looks at something else behind the replies that have left: at what is ready, or
    /// waits for another turn, or is another's.
    #[inline]
    pub(crate) fn works_on(&self) {
        if OBSERVES {
            self.settled_nanos.set(0);
        }
    }

    /// When a turn begins. Behind one that ended with replies that left, it was asked when that
    /// was; so to record how long requests took is no reading of the clock more.
    #[inline]
    pub(crate) fn begin_nanos(&self) -> u64 {
        match self.settled_nanos.take() {
            settled if OBSERVES && settled != 0 => self.clock.right_after(settled),
            _ => self.clock.nanos(),
        }
    }

    /// It is this time by the clock: what time that is for items. Within one millisecond, as
    /// mostly, it is the same as before.
    #[inline]
    pub(crate) fn tell_time(&mut self, nanos: u64) {
        if nanos.wrapping_sub(self.now_since_nanos) >= NANOS_PER_MILLI {
            self.begin_milli(nanos);
        }
    }

    #[cold]
    fn begin_milli(&mut self, nanos: u64) {
        self.now = self.clock.moment(nanos);
        // Before anything is executed in that second, also behind a sleep.
        self.flush_if_due();
        if self.events.is_watched() {
            self.events.tell_time(self.now);
        }
        let passed = self.clock.unix_nanos(nanos) % NANOS_PER_MILLI;
        self.now_since_nanos = nanos.wrapping_sub(passed);
    }

    /// Flushes everything if that was to come and its second has, in every domain: requests that
    /// are executed here may be about each. Where items are kept durably, their executor does.
    pub(crate) fn flush_if_due(&self) {
        let at = self.shared.flush_at.load(Acquire); // (A) pairs with (B)
        if at != 0 && at <= self.now.seconds() && self.shared.durable.get().is_none() {
            self.flush_planned(at);
        }
    }

    /// Whoever else sees that second waits until it is done: what it stored meanwhile would be
    /// flushed, too. Where a sweep comes first, the next call goes on.
    #[cold]
    fn flush_planned(&self, at: u32) {
        let shared = &self.shared;
        let _one_at_a_time = lock(&shared.flushing);
        if shared.flush_at.load(Relaxed) != at {
            return; // somebody has done it, or another has taken its place
        }
        let stores = std::iter::once(&shared.store).chain(shared.other_stores());
        if Store::flush_each(stores) {
            // (B) pairs with (A): who sees that none is to come sees memory without what is gone.
            // One that has come meanwhile, at once (0) or later, stands.
            shared.each_domain(|shared| {
                let _ = shared.flush_at.compare_exchange(at, 0, Release, Relaxed);
            });
        }
    }

    /// Whether a connection goes to another worker once nothing of it is under way: its visit is
    /// over, or this worker, its home, has turned large.
    pub(crate) fn is_to_leave(&self, connection: &Connection<T::Stream>) -> bool {
        match &connection.visit {
            Some(visit) => visit.had_its_fill(),
            None => self.plan.role(self.id) == Role::Large,
        }
    }

    /// Who looks at the passwords of this client; nobody where there are no users.
    pub(crate) fn door<'a>(&'a self, card: &'a ConnectionStats) -> Option<Door<'a>> {
        let auth = self.shared.settings.auth.as_deref()?;
        let (peer, number, now_seconds) = (&*card.peer, card.number, self.now.seconds());
        Some(Door { auth, peer, number, now_seconds, counters: self.counters() })
    }

    /// Count a request that was served here.
    pub(crate) fn account(
        &mut self,
        connection: &mut Connection<T::Stream>,
        operation: Operation,
        size: u64,
    ) {
        let arrived = connection.found_nanos;
        self.account_since(connection, operation, size, arrived);
    }

    /// The same of one that has arrived then.
    pub(crate) fn account_since(
        &mut self,
        connection: &mut Connection<T::Stream>,
        operation: Operation,
        size: u64,
        arrived: u64,
    ) {
        let large = self.tally_request(&mut connection.tally, operation, size, arrived);
        if let Some(visit) = &mut connection.visit {
            if large { visit.large_served() } else { visit.small_served() }
        }
    }

    /// Count a request that was served here, and whose latency is to be recorded; returns whether
    /// it was large.
    #[inline]
    pub(crate) fn tally_request(
        &self,
        tally: &mut PendingLatencies,
        operation: Operation,
        size: u64,
        arrived: u64,
    ) -> bool {
        let (row, large) = self.count(operation, size);
        tally.add(row, arrived);
        if large {
            tally.is_about(size);
        }
        large
    }

    /// Count a request that was served here; returns the row of its latency, and whether it was
    /// large.
    pub(crate) fn count(&self, operation: Operation, size: u64) -> (usize, bool) {
        meter::keys(1);
        let here = &self.shared.workers[self.id.index()];
        let size = ItemBytes(size);
        let large = size.0 > 0 && lane(&self.plan, size) == Lane::Large;
        if size.0 > 0 {
            here.record_size_owner(size);
        }
        if OBSERVES {
            here.lanes.packets.add_owner(size.packets().0);
        }
        if large {
            here.lanes.requests_large.add_owner(1);
        } else {
            here.lanes.requests_small.add_owner(1);
        }
        (latency::row(operation, large), large)
    }

    /// What commands are executed in. Items that a large worker serves are elsewhere's to read.
    pub(crate) fn context(&self) -> Context<'_> {
        self.touched.set(0);
        Context {
            store: &self.shared.store,
            others: self.shared.other_stores(),
            hand: Some(&self.hand),
            now: self.now,
            counters: self.counters(),
            settings: &self.execute_settings,
            touched: &self.touched,
            large_from: if self.hands_over { self.plan.threshold.0 } else { u64::MAX },
            large_lane_from: self.plan.threshold.0,
            pending_writes: self
                .shared
                .durable
                .get()
                .map(|durable| DurableReader::Worker(&durable.pending_writes)),
            read_only: false,
            log: Some(&self.events),
            by: self.asker,
        }
    }

    /// Wake the first of `workers` that sleeps.
    pub(crate) fn wake_one(&self, workers: impl IntoIterator<Item = WorkerId>) {
        if is_planted(Bug::WakeUpLost) {
            return;
        }
        let posted = Posted::now();
        let sleeps =
            |worker: &WorkerId| posted.must_wake(&self.shared.workers[worker.index()].sleeper);
        if let Some(worker) = workers.into_iter().find(sleeps) {
            self.shared.workers[worker.index()].wake();
        }
    }

    /// See to it that what the durable executor was given is executed. Returns whether this thread
    /// has done so.
    #[inline(always)]
    pub(crate) fn help(&mut self) -> bool {
        self.has_asked && self.help_now()
    }

    #[inline(never)]
    fn help_now(&mut self) -> bool {
        self.has_asked = false;
        let Some(durable) = self.shared.durable.get() else { return false };
        let now = self.clock.nanos();
        let helped = durable.help(now, self.clock.moment(now));
        // The rest is for the next turn: what has come meanwhile is served before. Not where that
        // turn may run large requests to completion: the rest is others' too, who would wait.
        match helped == Helped::More {
            true if self.sends_in_slices() => self.has_asked = true,
            true => durable.ring(),
            false => {}
        }
        helped != Helped::Elsewhere
    }

    /// It is awake: who has a job for it need not wake it.
    pub(crate) fn is_awake(&self) {
        self.shared.workers[self.id.index()].sleeper.wake_up();
    }

    /// Whether large replies leave in slices here though the plan runs requests to completion: in
    /// `minos` the reply that a large worker made leaves by a small one, whose small requests must
    /// not wait for it.
    pub(crate) fn sends_in_slices(&self) -> bool {
        self.plan.slice_bytes.is_some() || matches!(self.plan.large_lane, LargeLane::Ranges(_))
    }

    /// Whether a value that goes this way is received in slices: not where requests run to
    /// completion, but where somebody else's large value comes in by a small worker.
    pub(crate) fn receives_in_slices(&self, route: Route) -> bool {
        route == Route::HereInSlices || (matches!(route, Route::Hand(_)) && self.sends_in_slices())
    }

    /// The most that one turn of a large transfer moves by this way (`policy::pace`).
    pub(crate) fn slice_budget(&self, way: Way) -> usize {
        let most = match self.plan.slice_bytes {
            _ if is_planted(Bug::SliceUnbounded) => return usize::MAX,
            Some(slice) => slice,
            None if self.sends_in_slices() => self.shared.settings.policy.slice_bytes,
            None => return usize::MAX,
        };
        self.pace.bytes(way, most.0 as usize).min(self.slice_most)
    }

    /// A slice that began then has moved so many bytes by this way.
    pub(crate) fn note_slice(&mut self, way: Way, bytes: usize, began_nanos: u64) {
        let took = self.clock.nanos().saturating_sub(began_nanos);
        // One that its client's limit made short says little of a byte's time, and that limit
        // nothing of the slices of others.
        let limit = std::mem::replace(&mut self.slice_most, usize::MAX);
        if limit >= self.slice_budget(way) {
            self.pace.note(way, bytes, took);
        }
        let now = self.slice_budget(way) as u64;
        self.slice_most = limit;
        self.lanes().slice_bytes[way as usize].set_owner(now);
    }

    /// What comes now may be taken.
    pub(crate) fn take_on(&self) {
        if self.stopping {
            self.shared.workers[self.id.index()].drained.take_on();
        }
    }

    /// Whether this worker takes from the shared queue of large requests.
    pub(crate) fn takes_large(&self) -> bool {
        matches!(self.plan.role(self.id), Role::Large | Role::Standby)
    }

    /// The reply to a `stats` question.
    pub(crate) fn answer_question(&self, question: &Question) -> Vec<u8> {
        let reply = self.shared.answer(question, self.now, self.clock.nanos());
        meter::bytes(reply.len());
        reply
    }

    /// What this worker counts of the client that the connection is of.
    #[inline]
    pub(crate) fn client(&self, card: &ConnectionStats) -> &ClientCounts {
        &self.shared.workers[self.id.index()].clients[usize::from(card.client)]
    }

    /// A connection has received so many bytes.
    #[inline]
    pub(crate) fn count_received(&self, connection: &mut Connection<T::Stream>, bytes: usize) {
        self.counters().bytes_read.add_owner(bytes as u64);
        if OBSERVES {
            connection.moved.bytes_in += bytes as u64;
        }
    }

    /// A connection has sent so many bytes.
    #[inline]
    pub(crate) fn count_sent(&self, connection: &mut Connection<T::Stream>, bytes: usize) {
        self.counters().bytes_written.add_owner(bytes as u64);
        if OBSERVES {
            connection.moved.bytes_out += bytes as u64;
        }
    }

    /// Count for a client what its connection has moved, and take it out of what that has left.
    #[inline(always)]
    pub(crate) fn count_moved(&self, connection: &mut Connection<T::Stream>) {
        if self.is_limiting {
            self.charge(connection);
        }
        self.client(&connection.card).add_owner(&mut connection.moved);
    }

    /// RESP: what a request about no key came to: it is counted, unless it is tried again.
    pub(crate) fn counted_keyless(&self, step: Step) -> Step {
        if !matches!(step, Step::Stop(0, _)) {
            self.counters().resp_keyless.bump_owner();
        }
        step
    }

    #[cold]
    #[inline(never)]
    fn charge(&self, connection: &mut Connection<T::Stream>) {
        let ClientSums { requests, bytes_in, bytes_out, .. } = connection.moved;
        self.charge_for(connection, requests, bytes_in + bytes_out);
    }

    fn charge_for(&self, connection: &mut Connection<T::Stream>, requests: u64, bytes: u64) {
        let requests = match &mut connection.dialect {
            Dialect::Resp(session) => session.uncharged(requests),
            _ => requests,
        };
        let limits = &self.shared.connections.clients.limits;
        for by in LimitOf::ALL {
            let Some(bucket) = &connection.buckets[by as usize] else { continue };
            let forgets = match by {
                LimitOf::Address => Bug::LimitUncharged,
                LimitOf::Listener => Bug::ListenerUncharged,
            };
            if !is_planted(forgets) {
                bucket.charge(limits.rates_of(bucket), (requests, bytes), self.clock.nanos());
            }
        }
    }

    /// A value that was on its way is refused. Its request is charged for when it is counted, which
    /// it never is now.
    pub(crate) fn charge_refused(&self, connection: &mut Connection<T::Stream>) {
        if self.is_limiting {
            self.charge_for(connection, 1, 0);
        }
    }

    /// Requests that were counted here so far.
    pub(crate) fn requests_counted(&self) -> u64 {
        self.lanes().requests_small.get() + self.lanes().requests_large.get()
    }

    /// A step of a turn has begun so many requests; `is_taken`: and has taken some of the input.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_step(
        &self,
        connection: &mut Connection<T::Stream>,
        uncharged: &mut Uncharged,
        begun: usize,
        (step, is_taken): (&Step, bool),
    ) {
        let is_at_request = connection.is_at_request();
        uncharged.begun += begun as u64;
        match step {
            Step::Took(_) if is_at_request => self.charge_uncounted(connection, uncharged),
            Step::Took(_) => {}
            // What was so much work that others come first is done, if it was taken.
            Step::Stop(_, Stop::Quota) if is_at_request && is_taken => {}
            // Half a line has not begun. What waits for others is counted when it is done, and so
            // is a value that is yet to be whole, which an earlier step of the turn may have begun.
            Step::Stop(_, stop) => {
                let is_value = matches!(
                    connection.mode,
                    Mode::Body(_) | Mode::BodyEnd(_) | Mode::Joining { .. }
                );
                let is_counted_later = begun > 0 || is_value || *stop == Stop::Ticket;
                uncharged.begun = uncharged.begun.saturating_sub(u64::from(is_counted_later));
            }
        }
    }

    /// What a turn has begun is done. Requests that are counted nowhere (lines that are wrong,
    /// commands about no key) are taken out of what the client has left, or a flood of them had no
    /// limit. That is found for each request by itself: one of many keys is counted as many.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_uncounted(
        &self,
        connection: &mut Connection<T::Stream>,
        uncharged: &mut Uncharged,
    ) {
        // Those that the durable executor was given are among the counted, and are charged when
        // their replies have come.
        let counted = self.requests_counted();
        let uncounted = uncharged.begun.saturating_sub(counted - uncharged.counted);
        *uncharged = Uncharged { begun: 0, counted };
        if 0 < uncounted {
            self.charge_for(connection, uncounted, 0);
        }
        if let Dialect::Resp(session) = &mut connection.dialect {
            session.is_charged();
        }
    }

    /// A connection has waited so long because its client, or its listener, was over its limit.
    pub(crate) fn count_held(&self, connection: &Connection<T::Stream>, nanos: u64) {
        let counters = self.counters();
        match connection.held_by {
            LimitOf::Address => {
                counters.client_holds.bump_owner();
                counters.client_held_nanos.add_owner(nanos);
                self.client(&connection.card).held_owner(nanos);
            }
            LimitOf::Listener => {
                counters.listener_holds.bump_owner();
                counters.listener_held_nanos.add_owner(nanos);
            }
        }
    }

    /// This worker's command counters.
    pub(crate) fn counters(&self) -> &Counters {
        self.shared.board.worker(self.id.index())
    }

    /// This worker's lane counters.
    pub(crate) fn lanes(&self) -> &LaneCounts {
        &self.shared.workers[self.id.index()].lanes
    }
}
