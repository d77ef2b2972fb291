//! Whether every reply about one key can have been given.
//!
//! A history of a key is linearizable (Herlihy and Wing, 1990) if each operation can be given one
//! moment between its call and its return, so that in the order of these moments every reply is
//! what a single item would have said. [`check`] walks through calls and returns in their order and
//! keeps every state the item may be in, with the set of pending operations that have taken effect
//! in it. A loss of power ends what is pending: each of it took effect, or did not. What a
//! connection asks of a key takes effect in the order in which it was asked.

use crate::effects::{NOTHING, State, effect};
use crate::model::{Asked, History, Impossible, Item, Loss, Operation, Told, Values};
use std::collections::{BTreeMap, BTreeSet};

/// Most operations pending on one key at once.
const PENDING_MAX: usize = 24;
/// States of one key at one moment; more would mean that the clients ask too much at once.
const STATES_MAX: usize = 200_000;

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
            // What its connection asked before has taken effect, or is over.
            let behind = operations[*index].behind;
            let first = pending.iter().position(|index| index.is_some() && *index == behind);
            if first.is_some_and(|first| state.effects & (1 << first) == 0) {
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

/// The requests that did nothing since one of their keys had an item, and whether this one may
/// have had one.
#[derive(Default)]
pub struct Refusals(pub BTreeMap<u64, bool>);

impl Refusals {
    /// Looks at those under way; `may_be_there` tells whether the key may have an item now.
    fn look(
        &mut self,
        history: &History,
        pending: &[Option<usize>; PENDING_MAX],
        may_be_there: impl FnOnce() -> bool,
    ) {
        let is_refused = |operation: &&Operation| {
            let asks = matches!(operation.asked, Asked::AddAll(_));
            asks && operation.told == Told::NotStored && operation.gone_until == 0
        };
        let under_way = pending.iter().flatten().map(|index| &history.operations[*index]);
        let requests: Vec<u64> = match history.is_exact {
            true => under_way.filter(is_refused).map(|operation| operation.request).collect(),
            false => Vec::new(),
        };
        if requests.iter().all(|request| self.0.get(request) == Some(&true)) {
            return; // there are none, or it is known already
        }
        let may_be_there = may_be_there();
        for request in requests {
            *self.0.entry(request).or_default() |= may_be_there;
        }
    }
}

/// The operations, of which those are marked that were told of a change of the item where there was
/// none while they were under way.
fn compared(history: &History) -> Vec<Operation> {
    let mut operations = history.operations.clone();
    for operation in &mut operations {
        let is_told =
            operation.told == Told::NotStored && matches!(operation.asked, Asked::Guarded(_));
        if history.is_exact && is_told && operation.gone_until == 0 {
            let meets = |other: &&Operation| {
                other.called < operation.returned && operation.called < other.returned
            };
            let may_change = |other: &Operation| !other.asked.reads();
            let others = history.operations.iter().filter(meets);
            operation.is_alone = others.filter(|other| may_change(other)).count() == 1; // itself
        }
    }
    operations
}

/// Check the history of one key that begins without an item.
pub fn check(history: &History, values: &mut Values) -> Result<Refusals, Box<Impossible>> {
    let operations = &compared(history);
    // (moment, kind, number): returns come before calls of the same moment.
    let mut events: Vec<(u64, u8, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        assert!(operation.called < operation.returned, "{operation:?}");
        events.extend([(operation.called, 2, index), (operation.returned, 0, index)]);
    }
    events.extend(history.losses.iter().enumerate().map(|(index, (at, _))| (*at, 1, index)));
    events.sort_unstable();
    let mut pending: [Option<usize>; PENDING_MAX] = [None; PENDING_MAX];
    let mut states = BTreeSet::from([NOTHING]);
    // What could have been there at each moment, where a loss may go back to it, or where what a
    // device refused is made of it.
    let goes_back = history.losses.iter().any(|(_, loss)| matches!(loss, Loss::Since(_)))
        || operations.iter().any(|operation| operation.told == Told::Doubt);
    // What refused writes may have left, for a loss to bring to light.
    let mut left: BTreeSet<Option<Item>> = BTreeSet::new();
    let mut past: Vec<(u64, BTreeSet<State>)> = vec![(0, states.clone())];
    let is_damaged = history.losses.iter().any(|(_, loss)| matches!(loss, Loss::Any));
    let mut ever: BTreeSet<Option<Item>> = BTreeSet::from([None]);
    let mut refusals = Refusals::default();
    for (at, kind, index) in events {
        refusals.look(history, &pending, || {
            let all = reach(states.clone(), &pending, operations, None, values);
            all.iter().any(|state| state.item.is_some())
        });
        match kind {
            2 => {
                let free = pending.iter_mut().find(|place| place.is_none());
                *free.expect("clients bound what is pending on a key") = Some(index);
            }
            1 => {
                states = reach(states, &pending, operations, None, values);
                states = match history.losses[index].1 {
                    Loss::Any => anything(&states, &ever),
                    loss => lost(states, loss, &past, &left),
                };
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
                    return Err(Box::new(Impossible { operation: operations[index], possible }));
                }
                pending[place] = None;
                if operations[index].told == Told::Doubt {
                    leave(&operations[index], &past, &mut left, values);
                }
            }
        }
        if is_damaged {
            ever.extend(states.iter().map(|state| state.item));
        }
        if goes_back {
            past.push((at, reach(states.clone(), &pending, operations, None, values)));
        }
    }
    Ok(refusals)
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

/// An item that a loss brings back. What is written from now on has an id above all that were told.
/// Its own is older, and if nobody was told it, it is only known to be above the floor of its time.
fn back(item: Option<Item>, (then, now): (u64, u64)) -> State {
    let floor = if item.is_some_and(|item| item.cas == 0) { then } else { now };
    State { item, floor, ..NOTHING }
}

/// What may be there after damage that was told.
fn anything(now: &BTreeSet<State>, ever: &BTreeSet<Option<Item>>) -> BTreeSet<State> {
    let floor = now.iter().map(|state| state.floor).max().unwrap_or(0);
    let before = ever.iter().map(|item| back(*item, (0, floor)));
    now.iter().copied().chain(before).collect()
}

/// What may be there after a loss.
fn lost(
    now: BTreeSet<State>,
    loss: Loss,
    past: &[(u64, BTreeSet<State>)],
    left: &BTreeSet<Option<Item>>,
) -> BTreeSet<State> {
    let floor = now.iter().map(|state| state.floor).max().unwrap_or(0);
    let settled = |state: &State| {
        let State { floor, .. } = back(state.item, (state.floor, floor));
        State { effects: 0, floor, ..*state }
    };
    let left = left.iter().map(|item| back(*item, (0, floor)));
    match loss {
        Loss::All => BTreeSet::from([NOTHING]),
        Loss::Back(ms) => {
            let mut all = now;
            for state in all.clone() {
                let has_ended = |item: Item| item.expires.to != 0 && item.expires.from <= ms;
                if state.item.is_none() && state.ended.is_some() {
                    all.insert(State { item: state.ended, ended: None, ..state });
                } else if state.item.is_some_and(has_ended) {
                    all.insert(State { item: None, ended: state.item, ..state });
                }
            }
            all
        }
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
        Loss::Any => unreachable!("it is not a loss by itself"),
    }
}
