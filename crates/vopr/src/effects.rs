//! What an operation does to an item, and what it would have told.

use crate::model::{
    Asked, Count, Expires, Fetch, Item, Marks, New, Operation, Seen, Told, Ttl, ValueId, Values,
    full_seconds,
};

/// Longest value that is looked at as a number.
const NUMBER_BYTES_MAX: usize = 16_300;

/// The item, the highest CAS id told before it, and which pending operations have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) item: Option<Item>,
    /// What is not there because it has ended, as long as nothing has taken its place.
    pub(crate) ended: Option<Item>,
    pub(crate) floor: u64,
    pub(crate) effects: u32,
}

/// The flags of an item that came from another key, whose flags RESP does not tell.
const FLAGS_UNKNOWN: u32 = u32::MAX;

/// No item, and nothing known of one.
pub(crate) const NOTHING: State = State { item: None, ended: None, floor: 0, effects: 0 };

fn number_of(bytes: &[u8]) -> Option<u64> {
    if bytes.len() > NUMBER_BYTES_MAX {
        return None;
    }
    // A zero ends a number for memcached, as a space does.
    let text = bytes.trim_ascii_start();
    let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let end = text.iter().position(ends).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

/// An item after an operation, with the reply that would have been given.
type Outcome = (Option<Item>, Told);

fn stored(new: New, operation: &Operation) -> Option<Item> {
    let expires = new.ttl.expires(operation);
    let (stale, sent, since) = (false, false, operation.called);
    Some(Item { value: new.value, flags: new.flags, expires, since, cas: 0, stale, sent })
}

/// The item with another value.
fn changed(old: Item, value: ValueId) -> Option<Item> {
    Some(Item { value, cas: 0, stale: false, sent: false, ..old })
}

fn flags_of(item: Item) -> Option<u32> {
    (item.flags != FLAGS_UNKNOWN).then_some(item.flags)
}

fn read(item: Option<Item>) -> Told {
    let seen = |item: Item| Seen {
        value: item.value,
        flags: flags_of(item),
        cas: (item.cas != 0).then_some(item.cas),
        marks: None,
    };
    Told::Value(item.map(seen))
}

/// What the operation does to `item`, which is there or not.
fn outcomes(
    item: Option<Item>,
    floor: u64,
    operation: &Operation,
    values: &mut Values,
) -> Vec<Outcome> {
    let one = |item, told| vec![(item, told)];
    if let Some((item, told)) = by_resp(item, operation, values) {
        return one(item, told);
    }
    if let Some(all) = at_once(item, operation) {
        return all;
    }
    match (operation.asked, item) {
        (Asked::Get, item) => one(item, read(item)),
        (Asked::GetTouch(ttl), item) => {
            let after = item.map(|item| Item { expires: ttl.given(operation), ..item });
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
        (Asked::Cas(new, id), Some(old)) => compared(old, new, id, floor, operation),
        (Asked::Append(more), Some(old)) => {
            one(changed(old, values.joined(old.value, more)), Told::Done)
        }
        (Asked::Prepend(more), Some(old)) => {
            one(changed(old, values.joined(more, old.value)), Told::Done)
        }
        (Asked::Delete | Asked::Touch(_), None) => one(None, Told::NotFound),
        (Asked::Delete, Some(_)) => one(None, Told::Done),
        (Asked::Touch(ttl), Some(old)) => {
            one(Some(Item { expires: ttl.given(operation), ..old }), Told::Done)
        }
        (Asked::Increase(by), Some(old)) => one_number(old, true, by, values),
        (Asked::Decrease(by), Some(old)) => one_number(old, false, by, values),
        (Asked::Flush, _) => one(None, Told::Done),
        (Asked::Fetch(fetch), Some(old)) => fetched(old, fetch, operation),
        (Asked::Fetch(fetch), None) => made(fetch, operation, values),
        (Asked::Invalidate(_) | Asked::Older(..), None) => one(None, Told::NotFound),
        (Asked::Invalidate(ttl), Some(old)) => {
            let expires = ttl.map_or(old.expires, |ttl| ttl.expires(operation));
            one(Some(Item { expires, cas: 0, stale: true, sent: false, ..old }), Told::Done)
        }
        (Asked::Older(new, id), Some(old)) => older(old, new, id, floor, operation),
        (Asked::Count(Count { ttl, initial, .. }), None) => {
            let value = values.id(initial.to_string().as_bytes());
            let item = stored(New { value, flags: 0, ttl }, operation);
            one(item, Told::Number(initial))
        }
        (Asked::Count(Count { is_up, by, .. }), Some(old)) => one_number(old, is_up, by, values),
        _ => unreachable!("these are RESP's"),
    }
}

/// What is done with several keys in one moment, or not.
fn at_once(item: Option<Item>, operation: &Operation) -> Option<Vec<Outcome>> {
    let not = [(item, Told::NotStored), (item, Told::TooMuch)];
    let or_not = |done: &[Outcome]| [done, &not].concat();
    Some(match operation.asked {
        Asked::Guarded(new) | Asked::AddAll(new) => perhaps(item, new, operation),
        Asked::MoveOut(_) => or_not(&[(None, read(item))]),
        Asked::MoveIn(only_absent) => moved_in(item, only_absent, operation),
        // The second is what nobody heard of: it was made, and stayed.
        Asked::Emptied(new) => {
            or_not(&[(None, Told::Done), (stored(new, operation), Told::Exists)])
        }
        Asked::Moved(new) => or_not(&[(stored(new, operation), Told::Done)]),
        _ => return None,
    })
}

/// What is stored, or not for the sake of a change in between, of which there may have been one, or
/// of another key's item.
fn perhaps(item: Option<Item>, new: New, operation: &Operation) -> Vec<Outcome> {
    let told = match (operation.asked, item) {
        (Asked::Guarded(_), item) => read(item),
        (_, None) => Told::Done,
        (_, some) => return vec![(some, Told::NotStored), (some, Told::TooMuch)],
    };
    let mut all = vec![(stored(new, operation), told), (item, Told::TooMuch)];
    let ends =
        item.is_some_and(|item| item.expires.to != 0 && item.expires.from <= operation.returned_ms);
    if !operation.is_alone || ends {
        all.push((item, Told::NotStored));
    }
    all
}

/// What came from another key is known by the reply alone; of its marks nothing is.
fn moved_in(item: Option<Item>, only_absent: bool, operation: &Operation) -> Vec<Outcome> {
    let not = [Told::NotStored, Told::TooMuch, Told::Value(None)];
    let mut all = not.map(|told| (item, told)).to_vec();
    if only_absent && item.is_some() {
        all.push((item, Told::Exists));
    } else if let told @ Told::Moved(value, end) = operation.told {
        let ttl = u64::try_from(end).map_or(Ttl::Never, Ttl::At);
        let new = stored(New { value, flags: FLAGS_UNKNOWN, ttl }, operation);
        for (stale, sent) in [(false, false), (false, true), (true, false), (true, true)] {
            all.push((new.map(|item| Item { stale, sent, ..item }), told));
        }
    }
    all
}

/// What RESP alone has.
fn by_resp(item: Option<Item>, operation: &Operation, values: &mut Values) -> Option<Outcome> {
    let after = |value| match item {
        None => stored(New { value, flags: 0, ttl: Ttl::Never }, operation),
        Some(old) => changed(old, value),
    };
    Some(match operation.asked {
        Asked::Left => (item, left(item, operation)),
        Asked::Take => (None, read(item)),
        Asked::Swap(new) => (stored(new, operation), read(item)),
        Asked::Join(more) => {
            let value = item.map_or(more, |old| values.joined(old.value, more));
            (after(value), Told::Number(values.bytes(value).len() as u64))
        }
        Asked::Over(at, more) => {
            let before = item.map_or(Vec::new(), |old| values.bytes(old.value).to_vec());
            let value = values.over(&before, more, at as usize);
            (after(value), Told::Number(values.bytes(value).len() as u64))
        }
        Asked::Sum(by) => {
            let before = match item {
                None => Some(0),
                Some(old) => signed_of(values.bytes(old.value)),
            };
            let Some(before) = before else { return Some((item, Told::NotNumber)) };
            let number = before + by;
            (after(values.id(number.to_string().as_bytes())), Told::Signed(number))
        }
        _ => return None,
    })
}

/// What `PTTL` may have said: what was told, if it may, and else what it could have been.
fn left(item: Option<Item>, operation: &Operation) -> Told {
    let Some(item) = item else { return Told::Left(-2) };
    let Expires { from, to } = item.expires;
    if to == 0 {
        return Told::Left(-1);
    }
    let least = from.saturating_sub(operation.returned_ms) as i64;
    let most = i64::try_from(to.saturating_sub(operation.called_ms)).unwrap_or(i64::MAX);
    match operation.told {
        told @ Told::Left(left) if (least..=most).contains(&left) => told,
        _ => Told::Left(most),
    }
}

/// A number as Redis writes it, and spaces behind it, as memcached does.
fn signed_of(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?.trim_ascii_end();
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A `cas` of an item that is there.
fn compared(old: Item, new: New, id: u64, floor: u64, operation: &Operation) -> Vec<Outcome> {
    let mut all = Vec::new();
    if old.cas == id || (old.cas == 0 && floor < id) {
        all.push((stored(new, operation), Told::Done));
    }
    if old.cas != id {
        all.push((Some(old), Told::Exists));
    }
    all
}

/// The same in mode `I`: an id that is older stores a stale item.
fn older(old: Item, new: New, id: u64, floor: u64, operation: &Operation) -> Vec<Outcome> {
    let fresh = stored(new, operation);
    // A record that was begun without room for milliseconds ends with the second.
    let to = old.expires.to.div_ceil(1000).saturating_mul(1000);
    let expires = Expires { to, ..old.expires };
    let stale = fresh.map(|item| Item { stale: true, sent: old.sent, expires, ..item });
    let is_known = old.cas != 0;
    let mut all = Vec::new();
    if old.cas == id || (!is_known && floor < id) {
        all.push((fresh, Told::Done));
    }
    if id < old.cas || !is_known {
        all.push((stale, Told::Done));
    }
    if (is_known && old.cas < id) || (!is_known && floor + 1 < id) {
        all.push((Some(old), Told::Exists));
    }
    all
}

/// An `mg` of an item that is there: who reads a stale one first has won its token, and so has who
/// asks for the token of one that ends soon.
fn fetched(old: Item, fetch: Fetch, operation: &Operation) -> Vec<Outcome> {
    let expires = fetch.touch.map_or(old.expires, |ttl| ttl.expires(operation));
    let recache = fetch.recache.filter(|_| !old.sent && old.expires.to != 0);
    let must = recache.is_some_and(|by| old.expires.to < full_seconds(operation.called_ms, by));
    let may = recache.is_some_and(|by| old.expires.from < full_seconds(operation.returned_ms, by));
    let is_first = old.stale && !old.sent && !fetch.read_only;
    let mut all = Vec::new();
    for won in [false, true] {
        if won && !(is_first || may) || !won && (is_first || must) {
            continue;
        }
        let marks = Some(Marks { won, sent: old.sent, stale: old.stale });
        let cas = (old.cas != 0).then_some(old.cas);
        let seen = Seen { value: old.value, flags: flags_of(old), cas, marks };
        let item = Item { expires, sent: old.sent || won, ..old };
        all.push((Some(item), Told::Value(Some(seen))));
    }
    all
}

/// An `mg` of an item that is not there.
fn made(fetch: Fetch, operation: &Operation, values: &mut Values) -> Vec<Outcome> {
    let miss = (None, Told::Value(None));
    let Some(ttl) = fetch.vivify else { return vec![miss] };
    let value = values.id(b"");
    let item = stored(New { value, flags: 0, ttl }, operation);
    let item = item.map(|item| Item { sent: true, ..item });
    let marks = Some(Marks { won: true, sent: false, stale: false });
    let seen = Seen { value, flags: Some(0), cas: None, marks };
    let mut all = vec![(item, Told::Value(Some(seen)))];
    if operation.memory_is_short {
        all.push(miss); // memory was too short for it
    }
    all
}

fn one_number(old: Item, is_up: bool, by: u64, values: &mut Values) -> Vec<Outcome> {
    let bytes = values.bytes(old.value);
    let width = bytes.len();
    let Some(number) = number_of(bytes) else { return vec![(Some(old), Told::NotNumber)] };
    let number = if is_up { number.wrapping_add(by) } else { number.saturating_sub(by) };
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
                && (seen.flags == there.flags || seen.flags.is_none() || there.flags.is_none())
                && (seen.marks == there.marks || there.marks.is_none());
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

/// When an item was made that an operation leaves where `before` was: with it, if anything changed
/// but who has the token, which is known in memory alone.
fn made_at(item: Item, before: Option<Item>, operation: &Operation) -> u64 {
    let alike = |item: Item| Item { sent: false, since: 0, ..item };
    match before.filter(|before| alike(*before) == alike(item)) {
        Some(before) => before.since,
        None => operation.called,
    }
}

/// Every state after the operation has taken effect in `state`.
pub(crate) fn effect(state: &State, operation: &Operation, values: &mut Values) -> Vec<State> {
    let mut after = Vec::new();
    let mut starts = Vec::new();
    match state.item {
        None => starts.push((None, state.ended)),
        Some(item) => {
            let Expires { from, to } = item.expires;
            if to == 0 || operation.called_ms < to {
                starts.push((Some(item), None));
            }
            if to != 0 && from <= operation.returned_ms {
                starts.push((None, Some(item)));
            } else if item.since <= operation.gone_until {
                starts.push((None, None));
            }
        }
    }
    for (start, ended) in starts {
        let floor = state.floor.max(start.map_or(0, |item| item.cas));
        if matches!(operation.told, Told::Unknown | Told::Refused | Told::Doubt) {
            after.push(State { item: start, ended, ..*state });
            if operation.asked.stores() {
                after.push(State { item: None, ended: None, floor, ..*state });
            }
            if operation.told == Told::Refused {
                continue;
            }
        }
        let joins = matches!(operation.asked, Asked::Append(_) | Asked::Prepend(_));
        if joins && operation.memory_is_short && operation.told == Told::NotStored {
            after.push(State { item: start, ended, ..*state });
        }
        // What has ended has changed.
        let is_alone = operation.is_alone && ended.is_none();
        let operation = &Operation { is_alone, ..*operation };
        for (item, would) in outcomes(start, state.floor, operation, values) {
            let Some(told_id) = fits(would, operation.told, state.floor) else { continue };
            let since = item.map_or(0, |item| made_at(item, start, operation));
            let item = item.map(|item| Item { cas: told_id.unwrap_or(item.cas), since, ..item });
            let is_flushed = operation.asked == Asked::Flush;
            let ended = ended.filter(|_| item.is_none() && !is_flushed);
            after.push(State { item, ended, floor, ..*state });
        }
    }
    after
}
