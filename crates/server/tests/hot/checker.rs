//! Is a history of one key linearizable (Herlihy and Wing, 1990)? Whether each operation can be
//! given one moment between its call and its return, so that in the order of these moments every
//! outcome is what a single item would have answered.
//!
//! Walks through the calls and returns in their order and keeps every state that the item may be
//! in, each with the set of pending operations that have taken effect in it. At a return only those
//! states stay in which the operation has taken effect, and answered what it was seen to answer.
//! The cost is one step per event, times what may be pending at once: so millions of operations are
//! no trouble, as long as few are pending on one key. Knows no server.

use std::collections::BTreeSet;

/// What a client asked of the key. Values are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Get,
    Set(u64),
    Add(u64),
    Delete,
    Increase(u64),
}

/// What it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The value read, or there is none.
    Value(Option<u64>),
    /// It was done, or not.
    Done(bool),
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub asked: Asked,
    pub told: Told,
    /// When it was asked; of all events of a history none have the same time.
    pub called: u64,
    /// When it was told.
    pub returned: u64,
}

/// Most operations pending at once.
const PENDING_MAX: usize = 64;

/// The item, and which pending operations have taken effect.
type State = (Option<u64>, u64);

/// The item after an operation; `None` if it would have told something else.
fn effect(item: Option<u64>, operation: &Operation) -> Option<Option<u64>> {
    let (told, after) = match operation.asked {
        Asked::Get => (Told::Value(item), item),
        Asked::Set(value) => (Told::Done(true), Some(value)),
        Asked::Add(value) => (Told::Done(item.is_none()), item.or(Some(value))),
        Asked::Delete => (Told::Done(item.is_some()), None),
        Asked::Increase(by) => {
            let after = item.map(|item| item.wrapping_add(by));
            (Told::Value(after), after)
        }
    };
    (told == operation.told).then_some(after)
}

/// Check a history that begins with `item`. `Err` tells the operation that cannot be.
pub fn check(item: Option<u64>, operations: &[Operation]) -> Result<(), Operation> {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * operations.len());
    for (index, operation) in operations.iter().enumerate() {
        assert!(operation.called < operation.returned, "{operation:?}");
        events.extend([(operation.called, false, index), (operation.returned, true, index)]);
    }
    events.sort_unstable();
    let mut pending: [Option<usize>; PENDING_MAX] = [None; PENDING_MAX];
    let mut states: BTreeSet<State> = BTreeSet::from([(item, 0)]);
    for (_, returns, index) in events {
        if !returns {
            let free = pending.iter_mut().find(|place| place.is_none());
            *free.expect("no more are pending than there is room for") = Some(index);
            continue;
        }
        let place = pending.iter().position(|pending| *pending == Some(index));
        let place = place.expect("it was called");
        states = with_effect(states, &pending, operations, place);
        if states.is_empty() {
            return Err(operations[index]);
        }
        pending[place] = None;
    }
    Ok(())
}

/// Every state that can be reached by letting pending operations take effect, the one at `place`
/// among them; and which then is pending no more.
fn with_effect(
    states: BTreeSet<State>,
    pending: &[Option<usize>],
    operations: &[Operation],
    place: usize,
) -> BTreeSet<State> {
    let bit = 1_u64 << place;
    let mut done = BTreeSet::new();
    let mut seen = states.clone();
    let mut open: Vec<State> = states.into_iter().collect();
    while let Some((item, effects)) = open.pop() {
        if effects & bit != 0 {
            done.insert((item, effects & !bit));
            continue; // what else may have taken effect can as well do so later
        }
        for (other, index) in pending.iter().enumerate() {
            let Some(index) = index else { continue };
            if effects & (1 << other) == 0
                && let Some(after) = effect(item, &operations[*index])
                && seen.insert((after, effects | 1 << other))
            {
                open.push((after, effects | 1 << other));
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::Asked::{Add, Delete, Get, Increase, Set};
    use super::Told::{Done, Value};
    use super::*;
    use laneway_load::random::Random;

    fn operation(called: u64, returned: u64, asked: Asked, told: Told) -> Operation {
        Operation { asked, told, called, returned }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
    fn what_one_item_could_have_answered_is_accepted_and_nothing_else() {
        let rows: [(&str, bool, Vec<Operation>); 9] = [
            ("nothing", true, vec![]),
            (
                "a read of what was written",
                true,
                vec![operation(1, 2, Set(5), Done(true)), operation(3, 4, Get, Value(Some(5)))],
            ),
            (
                "a stale read",
                false,
                vec![
                    operation(1, 2, Set(5), Done(true)),
                    operation(3, 4, Set(6), Done(true)),
                    operation(5, 6, Get, Value(Some(5))),
                ],
            ),
            (
                "a read beside a write sees either",
                true,
                vec![
                    operation(1, 2, Set(5), Done(true)),
                    operation(3, 8, Set(6), Done(true)),
                    operation(4, 5, Get, Value(Some(5))),
                    operation(6, 7, Get, Value(Some(6))),
                ],
            ),
            (
                "but not the new before the old",
                false,
                vec![
                    operation(1, 2, Set(5), Done(true)),
                    operation(3, 8, Set(6), Done(true)),
                    operation(4, 5, Get, Value(Some(6))),
                    operation(6, 7, Get, Value(Some(5))),
                ],
            ),
            (
                "a lost increment",
                false,
                vec![
                    operation(1, 2, Set(0), Done(true)),
                    operation(3, 6, Increase(1), Value(Some(1))),
                    operation(4, 5, Increase(1), Value(Some(1))),
                ],
            ),
            (
                "increments in either order",
                true,
                vec![
                    operation(1, 2, Set(0), Done(true)),
                    operation(3, 6, Increase(1), Value(Some(2))),
                    operation(4, 5, Increase(1), Value(Some(1))),
                ],
            ),
            (
                "of two adds one is first",
                true,
                vec![
                    operation(1, 4, Add(1), Done(true)),
                    operation(2, 3, Add(2), Done(false)),
                    operation(5, 6, Delete, Done(true)),
                    operation(7, 8, Delete, Done(false)),
                ],
            ),
            (
                "two adds that both were first",
                false,
                vec![operation(1, 4, Add(1), Done(true)), operation(2, 3, Add(2), Done(true))],
            ),
        ];
        for (what, is_fine, operations) in rows {
            assert_eq!(check(None, &operations).is_ok(), is_fine, "{what}");
        }
    }

    /// A true item, asked at moments drawn between call and return: always accepted; and with one
    /// answer bent, refused.
    #[test]
    fn true_histories_are_accepted_and_bent_ones_are_not() {
        let mut bent_found = 0;
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let mut moments: Vec<(u64, Operation)> = (0..200)
                .map(|number| {
                    let moment = number * 1_000 + 500;
                    let called = (moment - 1 - random.below(400)) * 1_000 + number;
                    let returned = (moment + 1 + random.below(3_000)) * 1_000 + 500 + number;
                    let asked = match random.below(5) {
                        0 => Set(number),
                        1 => Add(number),
                        2 => Delete,
                        3 => Increase(1),
                        _ => Get,
                    };
                    (moment, operation(called, returned, asked, Done(false)))
                })
                .collect();
            let mut item = None;
            for (_, operation) in &mut moments {
                let answers =
                    [Value(None), Value(item), Value(item.map(|i| i + 1)), Done(false), Done(true)];
                let fits = |told: &&Told| {
                    effect(item, &Operation { told: **told, ..*operation }).is_some()
                };
                operation.told = *answers.iter().find(fits).expect("one of them");
                item = effect(item, operation).expect("it fits");
            }
            let mut operations: Vec<Operation> = moments.into_iter().map(|(_, o)| o).collect();
            assert_eq!(check(None, &operations), Ok(()), "seed {seed}");
            let reads = operations.iter_mut().filter(|o| matches!(o.told, Value(Some(_))));
            let bent = reads.last().expect("something was read");
            bent.told = Value(Some(1_000_000));
            bent_found += u32::from(check(None, &operations).is_err());
        }
        assert_eq!(bent_found, 60);
    }
}
