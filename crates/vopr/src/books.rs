//! What was asked and told so far: a history for each key, and the trace that a person reads.

use crate::check::check;
use crate::counts::Counts;
use crate::ids::given_twice;
use crate::model::{Asked, History, Impossible, Loss, Operation, Told, Values};
use crate::request::{Request, key_name};
use crate::swarm::{Kept, Swarm};
use laneway_server::clock::ManualClock;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// Lines of a trace that are kept; the last ones tell why a run failed.
const TRACE_LINES_MAX: usize = 200_000;
/// Seconds after which a `flush_all` to come has come, whoever slept.
const FLUSH_LATE_SECONDS: u32 = 3;
/// Operations about every key that may be pending on a key before clients ask another.
const FLUSHES_MAX: usize = 6;
/// Operations of one key shown with a failure.
const SHOWN_MAX: usize = 14;

/// An operation by key and number.
pub type Entry = (usize, usize);

/// The second of a time: a `flush_all` to come takes place in one.
fn second_of(ms: u64) -> u32 {
    (ms / 1000) as u32
}

/// A `flush_all` to come: there is one at a time.
struct Later {
    /// It takes place in this second at the earliest.
    from: u32,
    /// And in this one at the latest, once it was answered; the seconds that it waits before.
    by: Result<u32, u32>,
    /// The server has said that it will.
    is_certain: bool,
    /// Nobody waits for that.
    is_forgotten: bool,
    /// It may take place from now on.
    begun: Vec<Entry>,
}

/// The books of one run.
pub struct Books {
    is_short: bool,
    /// All values.
    pub values: Values,
    histories: Vec<History>,
    pending: Vec<usize>,
    /// What is said of an operation whose client asked for no reply.
    unheard: Told,
    /// The last operation on each key of each connection.
    last: HashMap<String, HashMap<usize, usize>>,
    /// Operations whose client is gone: they end when the server is known to be done with them.
    limbo: Vec<Entry>,
    /// What of each key was made at this moment or before may be gone.
    gone_until: Vec<u64>,
    moment: u64,
    requests: u64,
    /// Those under way for all keys at once.
    pub flushes: usize,
    /// A `flush_all` to come.
    later: Option<Later>,
    /// When damage was told, and of how many keys; `None` if of more than could be named.
    damages: Vec<(u64, Option<usize>)>,
    /// What happened so far.
    pub counts: Counts,
    trace: Option<Vec<String>>,
    /// Of everything that was asked and told: equal runs have equal ones.
    pub digest: u64,
}

impl Books {
    /// Of a run that has not begun.
    pub fn new(swarm: &Swarm, traced: bool) -> Books {
        let (keys, is_short) = (swarm.keys, swarm.is_tight() || swarm.refuse_memory > 0);
        let unheard = match swarm.kept {
            Kept::No if !is_short && !swarm.store_mode => Told::Silence,
            Kept::No => Told::Unknown,
            // A device may have refused it, and have it when the store is opened again.
            _ => Told::Doubt,
        };
        let is_exact = swarm.kept == Kept::No && !is_short && !swarm.store_mode;
        Books {
            is_short,
            values: Values::default(),
            histories: (0..keys).map(|_| History { is_exact, ..History::default() }).collect(),
            pending: vec![0; keys],
            unheard,
            last: HashMap::new(),
            limbo: Vec::new(),
            gone_until: vec![0; keys],
            moment: 0,
            requests: 0,
            flushes: 0,
            later: None,
            damages: Vec::new(),
            counts: Counts::default(),
            trace: traced.then(Vec::new),
            digest: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Operations of a key that have not ended.
    pub fn pending(&self, key: usize) -> usize {
        self.pending[key]
    }

    /// A moment after all before.
    pub fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A line for the trace; made only where one is kept.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let moment = self.moment;
        if let Some(lines) = &mut self.trace
            && lines.len() < TRACE_LINES_MAX
        {
            lines.push(format!("{moment:>6} {}", line()));
        }
    }

    /// The trace so far.
    pub fn trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Bytes came out of encrypted ones, in one go.
    pub fn carried(&mut self, bytes: usize) {
        self.digest(bytes as u64);
    }

    fn digest(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// A request leaves its client on a connection, whose requests are executed in their order.
    pub fn call_in_order(&mut self, who: &str, request: &Request, now_ms: u64) -> Vec<Entry> {
        let entries = self.call(who, request, now_ms);
        let last = self.last.entry(who.to_owned()).or_default();
        for &(key, number) in &entries {
            self.histories[key].operations[number].behind = last.insert(key, number);
        }
        entries
    }

    /// A connection is no more: its client's next requests have no order with those before.
    pub fn forget_order(&mut self, who: &str) {
        self.last.remove(who);
    }

    /// A request leaves its client.
    pub fn call(&mut self, who: &str, request: &Request, now_ms: u64) -> Vec<Entry> {
        self.requests += 1;
        self.counts.commands += 1;
        let number = self.requests;
        let ms = now_ms as i64 - i64::from(ManualClock::UNIX_START) * 1000;
        self.say(|| format!("{ms} ms: {who} asks #{number} {}", request.shown));
        self.digest(request.bytes.len() as u64);
        let mut entries = Vec::with_capacity(request.asked.len());
        for (key, asked) in &request.asked {
            let all = *asked == Asked::Flush;
            self.flushes += usize::from(all);
            let keys = if all { 0..self.histories.len() } else { *key..*key + 1 };
            for key in keys {
                let called = self.moment();
                self.pending[key] += 1;
                let operations = &mut self.histories[key].operations;
                operations.push(Operation {
                    asked: *asked,
                    told: Told::Unknown,
                    called,
                    returned: u64::MAX,
                    called_ms: now_ms,
                    returned_ms: u64::MAX,
                    gone_until: 0,
                    memory_is_short: self.is_short,
                    is_alone: false,
                    behind: None,
                    request: number,
                });
                entries.push((key, operations.len() - 1));
            }
        }
        entries
    }

    /// Its reply came: one `told` for each entry, or one for all.
    pub fn tell(
        &mut self,
        who: &str,
        entries: &[Entry],
        told: &[Told],
        now_ms: u64,
        may_miss: bool,
    ) {
        for (index, &(key, number)) in entries.iter().enumerate() {
            let told = told[index.min(told.len() - 1)];
            let returned = self.moment();
            self.pending[key] -= 1;
            let is_first = key == 0; // a flush has an entry for each key
            let operation = &mut self.histories[key].operations[number];
            (operation.told, operation.returned) = (told, returned);
            operation.returned_ms = now_ms;
            operation.gone_until = if may_miss { u64::MAX } else { self.gone_until[key] };
            let request = operation.request;
            self.flushes -= usize::from(is_first && operation.asked == Asked::Flush);
            if matches!(told, Told::Refused | Told::Unknown | Told::Doubt) {
                self.counts.refusals += 1;
            }
            self.digest(key as u64 ^ self.moment << 8 ^ word_of(told) << 32);
            self.say(|| format!("{who} is told #{request} k{key}: {told:?}"));
        }
    }

    /// The tier has dropped what was made of a key at this moment or before.
    pub fn dropped(&mut self, key: usize, until: u64) {
        self.say(|| format!("the tier drops k{key} of {until} or before"));
        self.gone_until[key] = self.gone_until[key].max(until);
    }

    /// Nobody will hear how these end.
    pub fn forget(&mut self, entries: &[Entry]) {
        self.limbo.extend_from_slice(entries);
    }

    /// The server is done with everything that nobody waits for.
    pub fn settle(&mut self, now_ms: u64, may_miss: bool) {
        // Of a client that is gone nobody knows whether its request arrived.
        let told = if self.unheard == Told::Doubt { Told::Doubt } else { Told::Unknown };
        for entry in std::mem::take(&mut self.limbo) {
            self.tell("nobody", &[entry], &[told], now_ms, may_miss);
        }
    }

    /// What is said of an operation whose client asked for no reply.
    pub fn unheard(&self) -> Told {
        self.unheard
    }

    /// The server is gone, with all that was pending.
    pub fn lose(&mut self, loss: Loss, now_ms: u64, may_miss: bool) {
        self.limbo.clear();
        let keeps = !matches!(loss, Loss::All);
        self.flush_lost(keeps, now_ms);
        if let (Some(later), Loss::Since(_)) = (&mut self.later, loss) {
            later.is_certain = false;
        }
        for key in 0..self.histories.len() {
            for number in 0..self.histories[key].operations.len() {
                if self.histories[key].operations[number].returned == u64::MAX {
                    let entry = [(key, number)];
                    self.tell("nobody", &entry, &[Told::Unknown], now_ms, may_miss);
                }
            }
            let at = self.moment();
            self.histories[key].losses.push((at, loss));
        }
    }

    /// The next server finds the wall clock stepped back from this second.
    pub fn stepped_back(&mut self, from_ms: u64) {
        for key in 0..self.histories.len() {
            let at = self.moment();
            self.histories[key].losses.push((at, Loss::Back(from_ms)));
        }
        self.counts.steps_back += 1;
        self.say(|| format!("the wall clock steps back from {from_ms}"));
    }

    /// A start has told of damage: of so many keys, or of what it could not name.
    pub fn damaged(&mut self, keys: Option<usize>) {
        let at = self.moment();
        self.say(|| format!("damage is told, of keys: {keys:?}"));
        self.damages.push((at, keys));
    }

    /// Whether few are under way, and none is to come, which a further one would cancel or put off.
    pub fn may_flush(&self) -> bool {
        self.later.is_none() && self.flushes < FLUSHES_MAX
    }

    /// A client asks for one in so many seconds.
    pub fn flush_asked(&mut self, delay: u32, now_ms: u64) {
        let (from, by, begun) = (second_of(now_ms) + delay, Err(delay), Vec::new());
        self.later = Some(Later { from, by, is_certain: false, is_forgotten: false, begun });
    }

    /// It is told that there will be one, or is not told.
    pub fn flush_answered(&mut self, is_certain: bool, now_ms: u64) {
        if let Some(later) = &mut self.later {
            later.by = later.by.or_else(|delay| Ok::<u32, u32>(second_of(now_ms) + delay));
            later.is_certain = is_certain;
            self.counts.flushes_later += 1;
        }
    }

    /// Whoever asked for it is gone: it comes or not.
    pub fn flush_forgotten(&mut self) {
        if let Some(later) = &mut self.later {
            later.is_forgotten = true;
        }
    }

    /// Time has passed: it may take place.
    pub fn flush_if_due(&mut self, now_ms: u64) {
        let is_due = |later: &&mut Later| later.begun.is_empty() && later.from <= second_of(now_ms);
        let Some(mut later) = self.later.take_if(|later| is_due(&later)) else { return };
        let request = Request::elsewhere((0, Asked::Flush), "flush_all, as it was asked before");
        later.begun = self.call("the server", &request, now_ms);
        self.later = Some(later);
    }

    /// The server is at rest: it has taken place, if its time was some seconds ago.
    pub fn flush_if_over(&mut self, now_ms: u64, may_miss: bool, may_doubt: bool) {
        if let Some(later) = self.later.as_mut().filter(|later| later.is_forgotten) {
            later.by = later.by.or_else(|delay| Ok::<u32, u32>(second_of(now_ms) + delay));
        }
        let is_over = |later: &mut Later| {
            let by = later.by.is_ok_and(|by| by + FLUSH_LATE_SECONDS <= second_of(now_ms));
            by && !later.begun.is_empty()
        };
        let Some(later) = self.later.take_if(is_over) else { return };
        let told = match later.is_certain && !may_doubt {
            true => Told::Done,
            false if self.unheard == Told::Doubt => Told::Doubt,
            false => Told::Unknown,
        };
        self.tell("the server", &later.begun, &[told], now_ms, may_miss);
    }

    /// The server has ended: what was promised durably is still to come, and may come twice.
    fn flush_lost(&mut self, keeps: bool, now_ms: u64) {
        let Some(mut later) = self.later.take().filter(|_| keeps) else { return };
        later.by = later.by.or_else(|delay| Ok::<u32, u32>(second_of(now_ms) + delay));
        later.is_certain &= later.begun.is_empty();
        later.begun.clear();
        self.later = Some(later);
    }

    /// Whether every reply can have been given by a single item of each key. Keys that are told to
    /// be damaged may have gone back, as many of them as were told.
    pub fn judge(&mut self) -> Result<(), String> {
        let (mut gone_back, mut refused) = (0, BTreeMap::new());
        for (key, history) in self.histories.iter_mut().enumerate() {
            let impossible = match check(history, &mut self.values) {
                Ok(refusals) => {
                    for (request, may_be_there) in refusals.0 {
                        *refused.entry(request).or_insert(false) |= may_be_there;
                    }
                    continue;
                }
                Err(impossible) => impossible,
            };
            if self.damages.is_empty() {
                return Err(told(key, history, &impossible));
            }
            history.losses.extend(self.damages.iter().map(|(at, _)| (*at, Loss::Any)));
            if let Err(impossible) = check(history, &mut self.values) {
                return Err(told(key, history, &impossible));
            }
            gone_back += 1;
        }
        if let Some((request, _)) = refused.iter().find(|(_, may_be_there)| !**may_be_there) {
            return Err(format!("MSETNX #{request} was not done, and no key of it had an item"));
        }
        // Damage may take back more than a start leaves out for.
        let mut of_keys = self.histories.iter().enumerate();
        let twice = of_keys.find_map(|(key, history)| Some((key, given_twice(history)?)));
        if self.damages.is_empty()
            && let Some((key, (id, [one, other]))) = twice
        {
            return Err(format!(
                "CAS id {id} of k{key} was given twice: #{one} and #{other} were told of it with \
                 another value each"
            ));
        }
        let keys: Option<usize> = self.damages.iter().map(|(_, keys)| *keys).sum();
        match keys {
            Some(keys) if keys < gone_back => {
                Err(format!("{gone_back} keys went back, and damage was told of {keys}"))
            }
            _ => Ok(()),
        }
    }
}

/// What was told, for the digest.
fn word_of(told: Told) -> u64 {
    match told {
        Told::Value(Some(seen)) => u64::from(seen.value) ^ seen.cas.unwrap_or(0) << 20,
        Told::Number(number) => number,
        Told::Signed(number) | Told::Left(number) => number as u64,
        Told::Moved(value, end) => u64::from(value) ^ (end as u64) << 20,
        Told::Value(None) => 1,
        Told::Done => 2,
        Told::NotStored => 3,
        Told::Exists => 4,
        Told::NotFound => 5,
        Told::NotNumber => 6,
        Told::Silence => 7,
        Told::Refused => 8,
        Told::Unknown => 9,
        Told::Doubt => 10,
        Told::TooMuch => 11,
    }
}

fn told(key: usize, history: &History, impossible: &Impossible) -> String {
    let name: String = key_name(key).chars().take(8).collect();
    let bad = &impossible.operation;
    let mut text = format!(
        "not linearizable: {name}, request #{}, was told {:?} to {:?}; there could have been {:?}",
        bad.request, bad.told, bad.asked, impossible.possible
    );
    let mut around: Vec<&Operation> = history.operations.iter().collect();
    around.sort_by_key(|operation| operation.returned);
    let at = around.iter().position(|operation| operation.called == bad.called).unwrap_or(0);
    for operation in &around[at.saturating_sub(SHOWN_MAX)..=at] {
        let Operation { asked, told, called, returned, request, .. } = operation;
        // A String takes every line.
        let _ = write!(text, "\n    {called:>6}..{returned:<6} #{request} {asked:?}: {told:?}");
    }
    for (at, loss) in &history.losses {
        let _ = write!(text, "\n    {at:>6} lost: {loss:?}");
    }
    text
}
