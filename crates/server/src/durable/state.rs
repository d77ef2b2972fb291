//! The state of the durable executor: which keys wait for what, and the tasks that wait for them.
//! The files beside this one use it, in layers: [`super::executor`] takes results and new jobs;
//! [`super::resume`], [`super::fault`] and [`super::settle`] go on with tasks that waited;
//! [`super::admit`] decides which request may begin, [`super::perform`] executes it,
//! [`super::change`] writes what changed, and [`super::reply`] answers.

use super::before::Befores;
use super::capture::Changes;
use super::ends::Ends;
use super::hands::{DeviceExecutor, Done, Order};
use super::pending_writes::DurableReader;
use super::shared::Durable;
use super::sweep::Sweep;
use super::task::{Fault, Filling, Line, Task};
use super::trouble::Trouble;
use super::turns::Turns;
use crate::counts::counters::Counters;
use crate::execute::{Context, ExecuteSettings};
use crate::hot::sample::Dice;
use crate::jobs::handoff::Finished;
use crate::resp::scratch::Scratch;
use crate::shared::Shared;
use laneway_policy::CorePlan;
use laneway_store::{Hand, Moment};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::Position;
use laneway_wire::Limits;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The longest line of a request that comes from a worker.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A change of a key that is not durable yet.
pub(super) struct Pending {
    /// It is when the log is up to here.
    pub until: Position,
    /// The key has no item any more.
    pub deleted: bool,
    /// Its item was over, so to tell that there is none is true whether this is durable or not.
    pub expired: bool,
}

/// The executor of one server.
pub struct DurableExecutor<S> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) durable: Arc<Durable>,
    pub(super) hands: Box<dyn DeviceExecutor>,
    pub(super) plan: Arc<CorePlan>,
    pub(super) limits: Limits,
    pub(super) execute_settings: ExecuteSettings,
    pub(super) now: Moment,
    pub(super) now_nanos: u64,
    /// The last sequence that it gave or that the tier had.
    pub(super) sequence: u64,
    /// Which requests are samples of what is asked for most.
    pub(super) dice: Dice,
    /// Bytes of the items that were stored or read in this step.
    pub(super) moved: u64,
    /// For the reply to what is being executed; empty.
    pub(super) scratch: Vec<u8>,
    /// Free slots that it keeps from one store to the next.
    pub(super) hand: Hand,
    /// For what is being executed to note what it changes; empty.
    pub(super) changes: Changes,
    /// Where requests about several keys are tried out; once there was one.
    pub(super) trial: Option<Box<Scratch>>,
    /// The last number it gave.
    pub(super) number: u64,
    /// Keys that wait for a device, and the tasks that wait for them.
    pub(super) busy: HashMap<Box<[u8]>, VecDeque<Task>>,
    /// Items on their way into memory.
    pub(super) faults: HashMap<u64, Fault>,
    /// What was read and is being copied.
    pub(super) filling: VecDeque<Filling>,
    /// The same by length, and those that wait until these are in: short, of a piece, of more.
    pub(super) lines: [Line; 3],
    /// Tasks that were not begun.
    pub(super) turns: Turns,
    /// Tasks that have begun, and go on when others had their turn.
    pub(super) yielded: VecDeque<Task>,
    /// Tasks that something waits for on their behalf.
    pub(super) suspended: HashMap<u64, Task>,
    /// Tasks that wait until the tier's items are counted, or a checkpoint is made; no flush waits
    /// for those.
    pub(super) counting: HashMap<u64, Task>,
    /// Changes that are not durable.
    pub(super) pending: HashMap<Box<[u8]>, Pending>,
    /// What was there before changes that are not durable.
    pub(super) befores: Befores,
    /// Tasks that wait until their key's change is durable.
    pub(super) settling: Vec<Task>,
    /// Tasks whose replies wait to be true, in the order of the log.
    pub(super) held: VecDeque<Task>,
    /// A commit is under way.
    pub(super) committing: bool,
    /// Since when a commit that somebody waits for has been left to the next step.
    pub(super) put_off_since: Option<u64>,
    /// When the last commit began.
    pub(super) commit_began_nanos: u64,
    /// How long the last one that has ended took.
    pub(super) group_nanos: u64,
    /// Something was appended since the last commit began.
    pub(super) appended: bool,
    /// Up to where changes that somebody waits for are in the log.
    pub(super) appended_until: Position,
    /// The same when the last commit began: its group reaches that far at least.
    pub(super) group_until: Position,
    /// When the next commit is due, where replies do not wait for it.
    pub(super) commit_nanos: u64,
    /// Flushes wait until nothing else is under way; nothing new begins meanwhile.
    pub(super) barrier: VecDeque<Task>,
    /// The tier flushes everything: nothing new begins meanwhile.
    pub(super) flushing: bool,
    /// Replies whose home had no room for them.
    pub(super) undelivered: VecDeque<Finished>,
    /// The key whose item was found to be unreadable just now, and why.
    pub(super) unreadable: Option<(Box<[u8]>, String)>,
    /// When items end whose records were read lately.
    pub(super) ends: Ends,
    /// The search for expired items.
    pub(super) sweep: Sweep,
    /// The last sequence when it was last looked for them.
    pub(super) swept: u64,
    /// When its own thread wakes by itself: who leaves something that is due sooner wakes it.
    pub(super) wakes_nanos: u64,
    /// When a flush to come is next looked for.
    pub(super) flush_nanos: u64,
    /// What the log was told of media that fail.
    pub(super) trouble: Trouble,
    pub(super) done: Vec<Done>,
}

impl<S> DurableExecutor<S> {
    /// The executor of this server, whose `durable` is set.
    pub(super) fn begin(
        shared: Arc<Shared<S>>,
        hands: Box<dyn DeviceExecutor>,
    ) -> DurableExecutor<S> {
        let durable = shared.durable.get().expect("an executor keeps something").clone();
        let settings = &shared.settings;
        let limits =
            Limits { item_bytes_max: settings.item_bytes_max, line_bytes_max: LINE_BYTES_MAX };
        let execute_settings = ExecuteSettings {
            cas_enabled: settings.cas,
            flush_enabled: settings.flush,
            shutdown_enabled: false,
            tls_enabled: settings.tls.is_some(),
        };
        DurableExecutor {
            plan: shared.plan.get(),
            durable,
            hands,
            limits,
            execute_settings,
            now: Moment::from_seconds(shared.started_seconds),
            now_nanos: 0,
            sequence: 0,
            dice: Dice::new(shared.workers.len()),
            moved: 0,
            scratch: Vec::new(),
            hand: Hand::new(&shared.store),
            changes: Vec::new(),
            trial: None,
            number: 0,
            busy: HashMap::new(),
            faults: HashMap::new(),
            filling: VecDeque::new(),
            lines: Default::default(),
            turns: Turns::default(),
            yielded: VecDeque::new(),
            suspended: HashMap::new(),
            counting: HashMap::new(),
            pending: HashMap::new(),
            befores: Befores::default(),
            settling: Vec::new(),
            held: VecDeque::new(),
            committing: false,
            put_off_since: None,
            commit_began_nanos: 0,
            group_nanos: 0,
            appended: false,
            appended_until: Position::default(),
            group_until: Position::default(),
            commit_nanos: 0,
            barrier: VecDeque::new(),
            flushing: false,
            undelivered: VecDeque::new(),
            unreadable: None,
            ends: Ends::default(),
            sweep: Sweep::default(),
            swept: 0,
            wakes_nanos: 0,
            flush_nanos: 0,
            trouble: Trouble::default(),
            done: Vec::new(),
            shared,
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.is_still()
            && self.counting.is_empty()
            && self.barrier.is_empty()
            && self.turns.is_empty()
            && self.durable.jobs.is_empty()
    }

    /// Whether nothing is under way, and nothing waits for its time but expired items.
    pub(super) fn is_at_rest(&self) -> bool {
        let flushes = self.shared.flush_at.load(Relaxed) != 0; // the executor alone sets it
        let commits = self.committing || self.appended;
        self.is_idle() && self.undelivered.is_empty() && !commits && !flushes
    }

    /// When what was appended is to be made durable, where no reply waits for that.
    pub(super) fn timed_commit_nanos(&self) -> u64 {
        let is_timed = !self.durable.waits && self.appended && !self.committing;
        if is_timed { self.commit_nanos } else { u64::MAX }
    }

    /// Whether it has jobs to begin, beside those in the queue.
    pub(super) fn has_more(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether nothing that was begun is under way.
    pub(super) fn is_still(&self) -> bool {
        if is_planted(Bug::FlushOvertakes) {
            return true;
        }
        let is_still = self.busy.is_empty()
            && self.yielded.is_empty()
            && self.suspended.is_empty()
            && self.held.is_empty()
            && self.pending.is_empty()
            && self.settling.is_empty();
        // So a flush leaves nothing to tell of what was before it.
        let is_told = !self.befores.is_empty() && !is_planted(Bug::BeforeOutlives);
        debug_assert!(!(is_still && is_told), "all changes are durable, or taken back");
        is_still
    }

    pub(super) fn counters(&self) -> &Counters {
        self.shared.board.worker(self.shared.workers.len()) // the one behind the workers'
    }

    /// `seen`: see [`DurableReader::DurableExecutor`].
    pub(super) fn context<'a>(&'a self, touched: &'a Cell<u64>, seen: bool) -> Context<'a> {
        Context {
            store: &self.shared.store,
            others: &[],
            hand: Some(&self.hand),
            now: self.now,
            counters: self.counters(),
            settings: &self.execute_settings,
            touched,
            large_from: u64::MAX,
            large_lane_from: self.plan.threshold.0,
            pending_writes: Some(DurableReader::DurableExecutor { seen }),
            read_only: false,
            log: Some(&self.shared.connections.events),
            by: 0,
        }
    }

    /// Orders something on a task's behalf, under its number.
    pub(super) fn order_for(&mut self, task: &mut Task, order: impl FnOnce(u64) -> Order) {
        let number = *task.number.get_or_insert_with(|| {
            self.number += 1;
            self.number
        });
        self.hands.order(order(number));
    }
}
