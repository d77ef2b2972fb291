//! The state of hot keys that workers share: the slot's table as a notice, how often each worker
//! executed each hot key, and, behind a lock, the scheduler.
//!
//! The lock is taken a few times per slot, by whoever finds a hot key or turns the slot, and they
//! only try: if somebody else has it, the key is found by its next request and the slot turned by
//! the next look. A worker never waits for it but to answer `stats`.
//!
//! It knows no worker and no clock: what each worker has executed so far and the time are
//! arguments.

use super::slots::Slots;
use super::window::{Balance, Counted, Window};
use crate::counts::counters::Counter;
use laneway_kernel::layout::Lead;
use laneway_policy::hot::Reads;
use laneway_policy::hot::loads::LOAD_SLOTS;
use laneway_policy::hot::mapping::HotKey;
use laneway_policy::hot::routes::{self, SlotHead};
use laneway_policy::hot::scheduler::{Found, Scheduler};
use laneway_policy::hot::settings::HotSettings;
use laneway_policy::hot::sketch::KeyHash;
use laneway_policy::owner::OwnerHash;
use laneway_policy::{Access, Nanos, WorkerId};
use laneway_sync::notice::Notice;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Numbers that hot keys are counted under, for each that may be hot: so many keys must become hot
/// before a number is used again, by when no worker counts under it for the key before.
const NUMBERS_PER_KEY: usize = 4;

/// How often one worker executed one hot key.
#[derive(Debug, Default)]
struct KeyCount {
    reads: Counter,
    writes: Counter,
}

/// How often one worker executed each hot key, by its number. Aligned so that no two workers write
/// one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct KeyCounts(Box<[KeyCount]>);

/// Reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pair {
    reads: u64,
    writes: u64,
}

/// A key that was found: hot, waiting for the slot's end, or hot a while ago.
#[derive(Debug)]
struct Known {
    text: Box<[u8]>,
    place: OwnerHash,
    home: WorkerId,
    /// `None`: it waits.
    number: Option<u16>,
    /// What it had in this slot before it was counted under its number: requests, and the owner's.
    before: (u32, u32),
    window: Window,
    /// The last slot in which it was hot, and whose it was then.
    last: (u64, WorkerId),
    /// Times that it has gone to another owner: since it was last found, and before that.
    moves: (u32, u32),
}

/// What happens once at a time.
#[derive(Debug)]
struct Turn {
    scheduler: Scheduler,
    known: HashMap<KeyHash, Known>,
    slot: u64,
    slot_nanos: u64,
    number_next: u16,
    /// What each worker had executed when the slot began.
    executed: Vec<u64>,
    /// Worker after worker: its count of each number when the slot began.
    counted: Vec<Pair>,
    /// Times that a key came back to another owner than it had had.
    moved: u64,
    balance: Balance,
    words: Vec<u64>,
    /// Slots of the kernel's table, where it steers.
    slots: Option<Slots>,
}

/// The board.
#[derive(Debug)]
pub struct HotKeyTable {
    settings: HotSettings,
    access: Access,
    seed: u64,
    notice: Notice,
    counts: Vec<KeyCounts>,
    turn: Mutex<Turn>,
}

/// A key that one worker found.
#[derive(Debug, Clone, Copy)]
pub struct Finding<'a> {
    /// Which slot the worker took it to be.
    pub slot: u64,
    /// What was counted.
    pub found: Found,
    /// The key itself.
    pub text: &'a [u8],
    /// Its hash among the owners.
    pub place: OwnerHash,
    /// Whose it is when it is cold.
    pub home: WorkerId,
}

/// One hot key, for `stats hotkeys`.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKeyCard {
    /// The key.
    pub text: Box<[u8]>,
    /// The last second or two.
    pub since: Counted,
    /// Whose it is now.
    pub owner: WorkerId,
    /// Whose it is when it is cold.
    pub home: WorkerId,
    /// Times that it has gone to another owner since it was found.
    pub moves: u32,
}

/// What `stats hotkeys` and `stats balance` tell of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct HotReport {
    /// The settings.
    pub settings: HotSettings,
    /// Number of the slot.
    pub slot: u64,
    /// Requests in it from which on a key is hot.
    pub threshold: u32,
    /// Keys found hot so far.
    pub found: u64,
    /// Times that a hot key went to another owner: at a slot's end, or when it was found again.
    pub moved: u64,
    /// Reads and writes of keys that were hot, by the worker that executed them, so far.
    pub executed: Vec<(u64, u64)>,
    /// The hot keys, the one asked for most first.
    pub keys: Vec<HotKeyCard>,
    /// How evenly the workers were loaded.
    pub balance: Balance,
}

impl HotKeyTable {
    /// Nothing is hot yet. `seed`: any random number that is told to nobody.
    pub fn new(settings: HotSettings, access: Access, seed: u64) -> HotKeyTable {
        let workers = usize::from(settings.workers);
        let numbers = settings.keys_max * NUMBERS_PER_KEY;
        let counts = || KeyCounts((0..numbers).map(|_| KeyCount::default()).collect());
        let turn = Turn {
            scheduler: Scheduler::new(settings),
            known: HashMap::new(),
            slot: 0,
            slot_nanos: 0,
            number_next: 0,
            executed: vec![0; workers],
            counted: vec![Pair::default(); workers * numbers],
            moved: 0,
            balance: Balance::new(workers),
            words: Vec::new(),
            slots: None,
        };
        let board = HotKeyTable {
            settings,
            access,
            seed,
            notice: Notice::new(routes::words_max(settings.keys_max)),
            counts: (0..workers).map(|_| counts()).collect(),
            turn: Mutex::new(turn),
        };
        board.post(&mut board.lock());
        board
    }

    /// From now on have the kernel lead hot keys where they belong.
    pub fn steer(&self, slots: Slots) {
        let mut turn = self.lock();
        turn.slots = Some(slots);
        self.post(&mut turn);
    }

    /// The settings.
    pub fn settings(&self) -> &HotSettings {
        &self.settings
    }

    /// Whether a request that writes, or only reads, is the owner's alone.
    #[inline]
    pub fn is_owned(&self, writes: bool) -> bool {
        self.access.is_owners(writes)
    }

    /// The sketches' seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The slot's table.
    #[inline]
    pub fn notice(&self) -> &Notice {
        &self.notice
    }

    /// `worker` executes a request for the hot key of this number.
    #[inline]
    pub fn count_owner(&self, worker: WorkerId, number: u16, writes: bool) {
        let count = &self.counts[worker.index()].0[usize::from(number)];
        if writes { count.writes.bump_owner() } else { count.reads.bump_owner() }
    }

    /// A worker has found a key. `executed` tells how much each worker has executed so far.
    pub fn found(&self, now: u64, executed: impl Fn(usize) -> u64, finding: &Finding<'_>) {
        let Some(mut turn) = self.try_lock() else { return };
        let turn = &mut *turn;
        if finding.slot != turn.slot {
            return; // it was so in a slot that is over
        }
        let key = finding.found.key;
        if turn.scheduler.hot().iter().any(|hot| hot.key == key) {
            return; // another worker was first, and the table is on its way
        }
        let may_wait = self.settings.carry_over && turn.known.len() < self.numbers();
        if !turn.scheduler.has_room() && !may_wait {
            return;
        }
        let executed = self.each(executed);
        self.tell(turn, &executed);
        let owner = turn.scheduler.found(finding.found);
        let mark = |sums: Pair| Counted {
            nanos: now,
            reads: sums.reads,
            writes: sums.writes,
            all: executed.iter().sum(),
        };
        let known_number = turn.known.get(&key).and_then(|known| known.number);
        let number = known_number.or_else(|| owner.is_some().then(|| self.next_number(turn)));
        if let Some(number) = number {
            self.mark(turn, number);
        }
        let sums = number.map_or(Pair::default(), |number| self.sums(number));
        let last = (turn.slot, owner.unwrap_or(finding.home));
        let known = turn.known.entry(key).or_insert_with(|| Known {
            text: finding.text.into(),
            place: finding.place,
            home: finding.home,
            number,
            before: (0, 0),
            window: Window::new(mark(sums)),
            last,
            moves: (0, 0),
        });
        known.number = number;
        known.before = (finding.found.requests, finding.found.owned);
        if let Some(owner) = owner {
            let moves = owner != known.last.1;
            known.moves.1 = known.moves.1.saturating_add(u32::from(moves));
            turn.moved += u64::from(moves);
            known.last = last;
            self.post(turn);
        }
    }

    /// End the slot, if it is over.
    pub fn end_slot(&self, now: u64, executed: impl Fn(usize) -> u64) {
        let Some(mut turn) = self.try_lock() else { return };
        let turn = &mut *turn;
        // Asked once: what somebody executes from now on is the next slot's.
        let executed = self.each(executed);
        let loads: Vec<u64> =
            executed.iter().zip(&turn.executed).map(|(now, before)| now - before).collect();
        let requests = u32::try_from(loads.iter().sum::<u64>()).unwrap_or(u32::MAX);
        if !self.settings.slot.is_over(Nanos(now.saturating_sub(turn.slot_nanos)), requests) {
            return;
        }
        self.tell(turn, &executed);
        let by_hash = self.loads_by_hash(turn, &loads);
        turn.balance.add(&loads, &by_hash);
        for hot in turn.scheduler.hot() {
            if let Some(known) = turn.known.get_mut(&hot.key) {
                known.last = (turn.slot, hot.owner);
                known.moves.0 = hot.moves;
            }
        }
        turn.scheduler.slot_ended(requests);
        turn.slot += 1;
        turn.slot_nanos = now;
        turn.executed = executed;
        self.keep_known(turn, now);
        self.post(turn);
    }

    /// What is told by `stats`.
    pub fn report(&self, now: u64, executed: impl Fn(usize) -> u64) -> HotReport {
        let turn = self.lock();
        let all = (0..self.counts.len()).map(executed).sum();
        let card = |hot: &HotKey| {
            let known = turn.known.get(&hot.key)?;
            let sums = self.sums(known.number?);
            let mark = Counted { nanos: now, reads: sums.reads, writes: sums.writes, all };
            Some(HotKeyCard {
                text: known.text.clone(),
                since: known.window.since(mark),
                owner: hot.owner,
                home: known.home,
                moves: hot.moves.saturating_add(known.moves.1),
            })
        };
        let mut keys: Vec<HotKeyCard> = turn.scheduler.hot().iter().filter_map(card).collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.since.reads + key.since.writes));
        HotReport {
            settings: self.settings,
            slot: turn.slot,
            threshold: turn.scheduler.threshold(),
            found: turn.scheduler.found_count(),
            moved: turn.scheduler.moved_count() + turn.moved,
            executed: (0..self.counts.len()).map(|worker| self.executed(worker)).collect(),
            keys,
            balance: turn.balance.clone(),
        }
    }

    /// `stats reset`: the balance counts from here.
    pub fn reset(&self) {
        self.lock().balance = Balance::new(self.counts.len());
    }

    /// What each worker has executed so far.
    fn each(&self, executed: impl Fn(usize) -> u64) -> Vec<u64> {
        (0..self.counts.len()).map(executed).collect()
    }

    /// Numbers that there are.
    fn numbers(&self) -> usize {
        self.settings.keys_max * NUMBERS_PER_KEY
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Turn>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What one worker counted under one number.
    fn pair(&self, worker: usize, number: u16) -> Pair {
        let count = &self.counts[worker].0[usize::from(number)];
        Pair { reads: count.reads.get(), writes: count.writes.get() }
    }

    /// What all workers counted under one number.
    fn sums(&self, number: u16) -> Pair {
        let pairs = (0..self.counts.len()).map(|worker| self.pair(worker, number));
        pairs.fold(Pair::default(), |sum, pair| Pair {
            reads: sum.reads + pair.reads,
            writes: sum.writes + pair.writes,
        })
    }

    /// Reads and writes of keys that were hot, executed by one worker. A number goes to another key
    /// when its own is forgotten, but its counts go on.
    fn executed(&self, worker: usize) -> (u64, u64) {
        let counts = self.counts[worker].0.iter();
        counts.fold((0, 0), |(reads, writes), count| {
            (reads + count.reads.get(), writes + count.writes.get())
        })
    }

    /// Where a worker's count of a number lies in [`Turn::counted`].
    fn place(&self, worker: usize, number: u16) -> usize {
        worker * self.numbers() + usize::from(number)
    }

    /// What a worker counted under a number in this slot: requests, and the owner's.
    fn slot_pair(&self, turn: &Turn, worker: usize, number: u16) -> (u64, u64) {
        let (now, then) = (self.pair(worker, number), turn.counted[self.place(worker, number)]);
        let (reads, writes) = (now.reads - then.reads, now.writes - then.writes);
        let owned = |is_owned: bool, count| if is_owned { count } else { 0 };
        let owned = owned(self.is_owned(false), reads) + owned(self.is_owned(true), writes);
        (reads + writes, owned)
    }

    /// From here on a number's counts are this slot's.
    fn mark(&self, turn: &mut Turn, number: u16) {
        for worker in 0..self.counts.len() {
            turn.counted[self.place(worker, number)] = self.pair(worker, number);
        }
    }

    /// Tell the scheduler what was counted in this slot so far.
    fn tell(&self, turn: &mut Turn, executed: &[u64]) {
        let clamp = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let both = executed.iter().zip(&turn.executed);
        let loads: Vec<u32> = both.map(|(now, before)| clamp(now - before)).collect();
        let count = |hot: &HotKey| {
            let Some(known) = turn.known.get(&hot.key) else { return (0, 0) };
            let Some(number) = known.number else { return (0, 0) };
            let pairs = (0..self.counts.len()).map(|w| self.slot_pair(turn, w, number));
            let (requests, owned) =
                pairs.fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
            (clamp(requests + u64::from(known.before.0)), clamp(owned + u64::from(known.before.1)))
        };
        let hot: Vec<(u32, u32)> = turn.scheduler.hot().iter().map(count).collect();
        turn.scheduler.tell(loads, hot);
    }

    /// What the workers would have executed in this slot if every key had stayed at its home.
    fn loads_by_hash(&self, turn: &Turn, loads: &[u64]) -> Vec<u64> {
        let mut by_hash = loads.to_vec();
        let numbers = turn.known.values().filter_map(|k| Some((k.home.index(), k.number?)));
        for (home, number) in numbers {
            for worker in 0..loads.len() {
                // A count may run ahead of the sum that it is part of.
                let moved = self.slot_pair(turn, worker, number).1.min(by_hash[worker]);
                by_hash[worker] -= moved;
                by_hash[home] += moved;
            }
        }
        by_hash
    }

    /// The next slot has begun: forget who has not been hot for long, and count the others from
    /// here. Those that come back, as by the poster's rule all do in each slot, go on with their
    /// counts and moves.
    fn keep_known(&self, turn: &mut Turn, now: u64) {
        let hot: Vec<KeyHash> = turn.scheduler.hot().iter().map(|hot| hot.key).collect();
        let mut cool: Vec<u64> = Vec::new();
        for (key, known) in &mut turn.known {
            if !hot.contains(key) && known.number.is_some() {
                known.moves = (0, known.moves.0.saturating_add(known.moves.1));
                cool.push(known.last.0);
            }
        }
        cool.sort_unstable_by_key(|slot| std::cmp::Reverse(*slot));
        // The newest, as many as may be hot: so there are always numbers left.
        let beyond = cool.get(self.settings.keys_max).map_or(0, |slot| slot + 1);
        let oldest = beyond.max((turn.slot).saturating_sub(LOAD_SLOTS as u64));
        turn.known.retain(|key, known| {
            hot.contains(key) || (known.number.is_some() && oldest <= known.last.0)
        });
        for key in hot {
            // Those that waited are counted under a number from here.
            if turn.known.get(&key).is_some_and(|known| known.number.is_none()) {
                let number = self.next_number(turn);
                let mark = self.mark_of(turn, number, now);
                if let Some(known) = turn.known.get_mut(&key) {
                    (known.number, known.window) = (Some(number), Window::new(mark));
                }
            }
        }
        self.begin_windows(turn, now);
    }

    /// What was counted under a number until now, the slot's beginning.
    fn mark_of(&self, turn: &Turn, number: u16, now: u64) -> Counted {
        let Pair { reads, writes } = self.sums(number);
        Counted { nanos: now, reads, writes, all: turn.executed.iter().sum() }
    }

    /// All known keys are counted from here.
    fn begin_windows(&self, turn: &mut Turn, now: u64) {
        let mut known = std::mem::take(&mut turn.known);
        for known in known.values_mut() {
            let Some(number) = known.number else { continue };
            self.mark(turn, number);
            known.before = (0, 0);
            known.window.advance(self.mark_of(turn, number, now));
        }
        turn.known = known;
    }

    /// A number that no known key has.
    fn next_number(&self, turn: &mut Turn) -> u16 {
        loop {
            let number = turn.number_next;
            turn.number_next = (number + 1) % self.numbers() as u16;
            if turn.known.values().all(|known| known.number != Some(number)) {
                return number;
            }
        }
    }

    /// Tell the workers.
    fn post(&self, turn: &mut Turn) {
        let threshold = |requests: u32| u16::try_from(requests).unwrap_or(u16::MAX);
        let head = SlotHead {
            slot: turn.slot,
            threshold: threshold(turn.scheduler.threshold()),
            threshold_local: threshold(turn.scheduler.threshold_local()),
            has_room: turn.scheduler.has_room(),
        };
        let number = |hot: &HotKey| turn.known.get(&hot.key).and_then(|known| known.number);
        let keys = turn.scheduler.hot();
        let numbers: Vec<u16> = keys.iter().map(|hot| number(hot).unwrap_or(0)).collect();
        routes::encode(head, keys, &numbers, &mut turn.words);
        self.notice.post(&turn.words);
        self.lead(turn);
    }

    /// Have the kernel lead the hot keys' slots to their owners; to anyone where the key is mostly
    /// read and its reads need no owner. The scheduler has the heaviest keys first.
    fn lead(&self, turn: &mut Turn) {
        let Turn { slots: Some(slots), scheduler, known, .. } = turn else { return };
        let threshold = scheduler.threshold();
        let lead = |hot: &HotKey| match self.settings.reads {
            Reads::Spread if hot.owned.max(hot.expected) < threshold => Lead::Anyone,
            _ => Lead::Socket(hot.owner.0.into()),
        };
        let place = |hot: &HotKey| Some((known.get(&hot.key)?.place, lead(hot)));
        slots.follow(scheduler.hot().iter().filter_map(place));
    }
}
