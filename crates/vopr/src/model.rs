//! What one key may have answered: a register with flags, expiry, CAS ids, numbers, appends.
//!
//! A history of a key is linearizable (Herlihy and Wing, 1990) if each operation can be given one
//! moment between its call and its return, so that in the order of these moments every reply is
//! what a single item would have said. [`check`] walks through calls and returns in their order and
//! keeps every state the item may be in, with the set of pending operations that have taken effect
//! in it. Expiry is an interval, since a client knows the server's second only between its call
//! and the reply. A loss of power ends what is pending: each of it took effect, or did not.
//!
//! Knows no server and no bytes of a protocol. Times are unix seconds, moments are ticks.

use std::collections::{BTreeSet, HashMap};

/// A value, by number: equal numbers are equal bytes.
pub type ValueId = u32;

/// Longest value that is looked at as a number.
const NUMBER_BYTES_MAX: usize = 16_300;
/// Most operations pending on one key at once.
pub const PENDING_MAX: usize = 24;
/// States of one key at one moment; more would mean that the clients ask too much at once.
const STATES_MAX: usize = 200_000;

/// Every value of a run, once.
#[derive(Default)]
pub struct Values {
    numbers: HashMap<Vec<u8>, ValueId>,
    bytes: Vec<Vec<u8>>,
}

impl Values {
    /// The number of these bytes.
    pub fn id(&mut self, bytes: &[u8]) -> ValueId {
        if let Some(id) = self.numbers.get(bytes) {
            return *id;
        }
        let id = self.bytes.len() as ValueId;
        self.numbers.insert(bytes.to_vec(), id);
        self.bytes.push(bytes.to_vec());
        id
    }

    /// The bytes of a number.
    pub fn bytes(&self, id: ValueId) -> &[u8] {
        &self.bytes[id as usize]
    }

    fn joined(&mut self, first: ValueId, second: ValueId) -> ValueId {
        let both = [self.bytes(first), self.bytes(second)].concat();
        self.id(&both)
    }
}

/// When an item ends, as far as a client can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expires {
    /// Before this second it is there.
    pub from: u32,
    /// From this second on it is not. 0 is never.
    pub to: u32,
}

/// What a client asked for as the end of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// None.
    Never,
    /// So many seconds after the server has executed the request.
    Seconds(u32),
    /// At once: a negative time.
    Past,
}

impl Ttl {
    fn expires(self, operation: &Operation) -> Expires {
        match self {
            Ttl::Never => Expires { from: 0, to: 0 },
            Ttl::Seconds(seconds) => Expires {
                from: operation.called_seconds + seconds,
                to: operation.returned_seconds + seconds,
            },
            Ttl::Past => Expires { from: 1, to: 1 },
        }
    }
}

/// The item of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    value: ValueId,
    flags: u32,
    expires: Expires,
    /// Its CAS id, once somebody was told; 0 before.
    cas: u64,
}

/// What is stored by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct New {
    /// The value.
    pub value: ValueId,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it ends.
    pub ttl: Ttl,
}

/// What a client asked of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Read it.
    Get,
    /// Read it and give it another end.
    GetTouch(Ttl),
    /// Store it.
    Set(New),
    /// Store it if there is none.
    Add(New),
    /// Store it if there is one.
    Replace(New),
    /// Store it if the CAS id is still this.
    Cas(New, u64),
    /// Bytes behind the value.
    Append(ValueId),
    /// Bytes before the value.
    Prepend(ValueId),
    /// Remove it.
    Delete,
    /// Give it another end.
    Touch(Ttl),
    /// Add to the number.
    Increase(u64),
    /// Subtract from the number, down to 0.
    Decrease(u64),
    /// Remove everything.
    Flush,
}

impl Asked {
    /// Whether a refusal may remove the item there is: that of a `set` does, and of an `ms` in any
    /// mode, so that no stale value stays behind.
    fn stores(self) -> bool {
        use Asked::{Add, Append, Cas, Prepend, Replace, Set};
        matches!(self, Set(_) | Add(_) | Replace(_) | Cas(..) | Append(_) | Prepend(_))
    }
}

/// What a reader saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The value.
    pub value: ValueId,
    /// Its flags.
    pub flags: Option<u32>,
    /// Its CAS id, where that was asked for.
    pub cas: Option<u64>,
}

/// What a client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The item that a read found, or none.
    Value(Option<Seen>),
    /// It was done.
    Done,
    /// The condition did not hold.
    NotStored,
    /// The CAS id is another.
    Exists,
    /// There is no item.
    NotFound,
    /// The number that came of it.
    Number(u64),
    /// The item is no number.
    NotNumber,
    /// Nothing was asked to be told, but it was executed.
    Silence,
    /// The server refused: nothing changed, but that a refused `set` may have removed the old item.
    Refused,
    /// Nobody heard: it took effect or it did not.
    Unknown,
    /// A device refused. Whether it took effect shows when the store is opened again, at the
    /// latest: what a failed flush should have made durable may be there.
    Doubt,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// What was asked.
    pub asked: Asked,
    /// What was told.
    pub told: Told,
    /// When it was asked.
    pub called: u64,
    /// When it was told.
    pub returned: u64,
    /// The same in the server's seconds.
    pub called_seconds: u32,
    /// The same in the server's seconds.
    pub returned_seconds: u32,
    /// Memory was full before it returned, and nothing else holds the item: a miss needs no reason.
    pub may_miss: bool,
    /// Memory is so short that a joined value may find no room: memcached's word for that is
    /// `NOT_STORED`.
    pub may_not_join: bool,
    /// Which request of the run it belongs to, for the trace.
    pub request: u64,
}

/// A failure of the whole server.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    /// Nothing is left.
    All,
    /// What was acknowledged is left.
    Nothing,
    /// A state since this moment is left.
    Since(u64),
}

/// What happened to one key.
#[derive(Default)]
pub struct History {
    /// Operations, in the order of their calls.
    pub operations: Vec<Operation>,
    /// Failures, in order; every operation that was called before one has returned before it.
    pub losses: Vec<(u64, Loss)>,
}

/// The item, the highest CAS id told before it, and which pending operations have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    item: Option<Item>,
    floor: u64,
    effects: u32,
}

/// Why a history is impossible.
#[derive(Debug)]
pub struct Impossible {
    /// The operation that cannot be.
    pub operation: Operation,
    /// The items that could have been there.
    pub possible: Vec<Option<Item>>,
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    if bytes.len() > NUMBER_BYTES_MAX {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// An item after an operation, with the reply that would have been given.
type Outcome = (Option<Item>, Told);

fn stored(new: New, operation: &Operation) -> Option<Item> {
    let expires = new.ttl.expires(operation);
    Some(Item { value: new.value, flags: new.flags, expires, cas: 0 })
}

/// What the operation does to `item`, which is there or not.
fn outcomes(
    item: Option<Item>,
    floor: u64,
    operation: &Operation,
    values: &mut Values,
) -> Vec<Outcome> {
    let one = |item, told| vec![(item, told)];
    let read = |item: Option<Item>| {
        let seen = |item: Item| Seen {
            value: item.value,
            flags: Some(item.flags),
            cas: (item.cas != 0).then_some(item.cas),
        };
        Told::Value(item.map(seen))
    };
    match (operation.asked, item) {
        (Asked::Get, item) => one(item, read(item)),
        (Asked::GetTouch(ttl), item) => {
            let after = item.map(|item| Item { expires: ttl.expires(operation), ..item });
            one(after, read(item))
        }
        (Asked::Set(new), _) => one(stored(new, operation), Told::Done),
        (Asked::Add(new), None) => one(stored(new, operation), Told::Done),
        (Asked::Add(_), some) => one(some, Told::NotStored),
        (Asked::Replace(new), Some(_)) => one(stored(new, operation), Told::Done),
        (Asked::Replace(_) | Asked::Append(_) | Asked::Prepend(_), None) => {
            one(None, Told::NotStored)
        }
        (Asked::Cas(..) | Asked::Increase(_) | Asked::Decrease(_), None) => {
            one(None, Told::NotFound)
        }
        (Asked::Cas(new, id), Some(old)) => {
            let mut all = Vec::new();
            if old.cas == id || (old.cas == 0 && floor < id) {
                all.push((stored(new, operation), Told::Done));
            }
            if old.cas != id {
                all.push((Some(old), Told::Exists));
            }
            all
        }
        (Asked::Append(more), Some(old)) => {
            let value = values.joined(old.value, more);
            one(Some(Item { value, cas: 0, ..old }), Told::Done)
        }
        (Asked::Prepend(more), Some(old)) => {
            let value = values.joined(more, old.value);
            one(Some(Item { value, cas: 0, ..old }), Told::Done)
        }
        (Asked::Delete | Asked::Touch(_), None) => one(None, Told::NotFound),
        (Asked::Delete, Some(_)) => one(None, Told::Done),
        (Asked::Touch(ttl), Some(old)) => {
            one(Some(Item { expires: ttl.expires(operation), ..old }), Told::Done)
        }
        (Asked::Increase(by), Some(old)) => {
            one_number(old, |number| number.wrapping_add(by), values)
        }
        (Asked::Decrease(by), Some(old)) => {
            one_number(old, |number| number.saturating_sub(by), values)
        }
        (Asked::Flush, _) => one(None, Told::Done),
    }
}

fn one_number(old: Item, change: impl Fn(u64) -> u64, values: &mut Values) -> Vec<Outcome> {
    let bytes = values.bytes(old.value);
    let width = bytes.len();
    let Some(number) = number_of(bytes) else { return vec![(Some(old), Told::NotNumber)] };
    let number = change(number);
    // As memcached does: a shorter number is padded to the length of the one before it.
    let value = values.id(format!("{number:<width$}").as_bytes());
    vec![(Some(Item { value, cas: 0, ..old }), Told::Number(number))]
}

/// Whether a reply fits what would have been told, and which CAS id it tells.
fn fits(would: Told, told: Told, floor: u64) -> Option<Option<u64>> {
    match (would, told) {
        (_, Told::Silence | Told::Unknown | Told::Doubt) => Some(None),
        (Told::Value(Some(there)), Told::Value(Some(seen))) => {
            let same = there.value == seen.value
                && seen.flags.is_none_or(|flags| Some(flags) == there.flags);
            let id_fits = match (there.cas, seen.cas) {
                (Some(known), Some(told)) => known == told,
                (None, Some(told)) => floor < told,
                _ => true,
            };
            (same && id_fits).then_some(seen.cas)
        }
        (would, told) => (would == told).then_some(None),
    }
}

/// Every state after the operation has taken effect in `state`.
fn effect(state: &State, operation: &Operation, values: &mut Values) -> Vec<State> {
    let mut after = Vec::new();
    let mut starts = Vec::new();
    match state.item {
        None => starts.push(None),
        Some(item) => {
            let Expires { from, to } = item.expires;
            if to == 0 || operation.called_seconds < to {
                starts.push(Some(item));
            }
            if operation.may_miss || (to != 0 && from <= operation.returned_seconds) {
                starts.push(None);
            }
        }
    }
    for start in starts {
        let floor = state.floor.max(start.map_or(0, |item| item.cas));
        if matches!(operation.told, Told::Unknown | Told::Refused | Told::Doubt) {
            after.push(State { item: start, ..*state });
            if operation.asked.stores() {
                after.push(State { item: None, floor, ..*state });
            }
            if operation.told == Told::Refused {
                continue;
            }
        }
        let joins = matches!(operation.asked, Asked::Append(_) | Asked::Prepend(_));
        if joins && operation.may_not_join && operation.told == Told::NotStored {
            after.push(State { item: start, ..*state });
        }
        for (item, would) in outcomes(start, state.floor, operation, values) {
            let Some(told_id) = fits(would, operation.told, state.floor) else { continue };
            let item = item.map(|item| Item { cas: told_id.unwrap_or(item.cas), ..item });
            after.push(State { item, floor, ..*state });
        }
    }
    after
}

/// Every state that can be reached by letting pending operations take effect. With `place` only
/// those in which the operation there has, and it is pending no more.
fn reach(
    states: BTreeSet<State>,
    pending: &[Option<usize>; PENDING_MAX],
    operations: &[Operation],
    place: Option<usize>,
    values: &mut Values,
) -> BTreeSet<State> {
    let bit = place.map_or(0, |place| 1_u32 << place);
    let mut done = BTreeSet::new();
    let mut seen = states.clone();
    let mut open: Vec<State> = states.into_iter().collect();
    while let Some(state) = open.pop() {
        assert!(seen.len() < STATES_MAX, "too much is asked of one key at once");
        if place.is_none() {
            done.insert(state);
        } else if state.effects & bit != 0 {
            done.insert(State { effects: state.effects & !bit, ..state });
            continue; // what else may have taken effect can as well do so later
        }
        for (other, index) in pending.iter().enumerate() {
            let Some(index) = index else { continue };
            if state.effects & (1 << other) != 0 {
                continue;
            }
            for after in effect(&state, &operations[*index], values) {
                let after = State { effects: state.effects | 1 << other, ..after };
                if seen.insert(after) {
                    open.push(after);
                }
            }
        }
    }
    done
}

/// Check the history of one key that begins without an item.
pub fn check(history: &History, values: &mut Values) -> Result<(), Impossible> {
    let operations = &history.operations;
    // (moment, kind, number): returns come before calls of the same moment.
    let mut events: Vec<(u64, u8, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        assert!(operation.called < operation.returned, "{operation:?}");
        events.extend([(operation.called, 2, index), (operation.returned, 0, index)]);
    }
    events.extend(history.losses.iter().enumerate().map(|(index, (at, _))| (*at, 1, index)));
    events.sort_unstable();
    let mut pending: [Option<usize>; PENDING_MAX] = [None; PENDING_MAX];
    let mut states = BTreeSet::from([State { item: None, floor: 0, effects: 0 }]);
    // What could have been there at each moment, where a loss may go back to it, or where what a
    // device refused is made of it.
    let goes_back = history.losses.iter().any(|(_, loss)| matches!(loss, Loss::Since(_)))
        || operations.iter().any(|operation| operation.told == Told::Doubt);
    // What refused writes may have left, for a loss to bring to light.
    let mut left: BTreeSet<Option<Item>> = BTreeSet::new();
    let mut past: Vec<(u64, BTreeSet<State>)> = vec![(0, states.clone())];
    for (at, kind, index) in events {
        match kind {
            2 => {
                let free = pending.iter_mut().find(|place| place.is_none());
                *free.expect("clients bound what is pending on a key") = Some(index);
            }
            1 => {
                states = reach(states, &pending, operations, None, values);
                states = lost(states, history.losses[index].1, &past, &left);
                left.clear();
                pending = [None; PENDING_MAX];
                past.clear();
            }
            _ => {
                let place = pending.iter().position(|pending| *pending == Some(index));
                // A loss has ended it.
                let Some(place) = place else { continue };
                let before: Vec<State> = states.iter().copied().collect();
                states = reach(states, &pending, operations, Some(place), values);
                if states.is_empty() {
                    let possible: BTreeSet<_> = before.iter().map(|state| state.item).collect();
                    let possible = possible.into_iter().collect();
                    return Err(Impossible { operation: operations[index], possible });
                }
                pending[place] = None;
                if operations[index].told == Told::Doubt {
                    leave(&operations[index], &past, &mut left, values);
                }
            }
        }
        if goes_back {
            past.push((at, reach(states.clone(), &pending, operations, None, values)));
        }
    }
    Ok(())
}

/// What a refused write may have left of every state that it could have met.
fn leave(
    operation: &Operation,
    past: &[(u64, BTreeSet<State>)],
    left: &mut BTreeSet<Option<Item>>,
    values: &mut Values,
) {
    let first = past.partition_point(|(at, _)| *at <= operation.called).saturating_sub(1);
    for state in past[first..].iter().flat_map(|(_, states)| states) {
        left.extend(effect(state, operation, values).into_iter().map(|after| after.item));
    }
}

/// What may be there after a loss.
fn lost(
    now: BTreeSet<State>,
    loss: Loss,
    past: &[(u64, BTreeSet<State>)],
    left: &BTreeSet<Option<Item>>,
) -> BTreeSet<State> {
    let floor = now.iter().map(|state| state.floor).max().unwrap_or(0);
    let settled = |state: &State| State { effects: 0, floor, ..*state };
    let left = left.iter().map(|item| State { item: *item, floor, effects: 0 });
    match loss {
        Loss::All => BTreeSet::from([State { item: None, floor: 0, effects: 0 }]),
        Loss::Nothing => now.iter().map(settled).chain(left).collect(),
        Loss::Since(moment) => {
            // The last moment before it counts too: its state lasted until then.
            let first = past.partition_point(|(at, _)| *at <= moment).saturating_sub(1);
            let now = now.iter().map(|state| State { effects: 0, ..*state });
            let mut all: BTreeSet<State> = now.chain(left).collect();
            for (_, states) in &past[first..] {
                // An older item has the id that it had.
                all.extend(states.iter().map(|state| State { effects: 0, ..*state }));
            }
            all
        }
    }
}
