//! `get`s that follow each other on a connection, as a pipeline sends them: lines of one key each
//! are parsed once, their keys are read together (`laneway_store::Group`), and each is answered in
//! its turn, as the keys of one line are ([`crate::multiget`]). So the lookups of a pipeline
//! overlap instead of being waited for one by one (MICA §4.4).

use crate::connection::{Connection, Mode};
use crate::core::Core;
use crate::hand_over::KeysLeft;
use crate::multiget::Asked;
use crate::requests::writes;
use crate::step::{Step, Stop};
use crate::streams::Streams;
use laneway_store::GROUP;
use laneway_transport::Transport;
use laneway_wire::{Get, GetVerb, Request, parse};

const NO_LINE: KeysLeft<'_> =
    KeysLeft { verb: GetVerb::Get, exptime: 0, line: &[], text: &[], at: 0 };

/// The only key of a `get`.
fn only_key<'a>(get: &Get<'a>) -> Option<&'a [u8]> {
    let mut keys = get.keys;
    let key = keys.next()?;
    keys.rest().is_empty().then_some(key)
}

/// The line of a `get` of one key, from that key on.
fn line_of<'a>(get: &Get<'_>, key: &'a [u8], line: &'a [u8]) -> KeysLeft<'a> {
    let key_at = offset_in(line, key);
    KeysLeft { verb: get.verb, exptime: get.exptime, line: &line[key_at..], text: key, at: 0 }
}

/// Where `part` begins, which is a part of `whole`.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

/// A step within the keys of a line as one within the input: the line begins at `from`, its keys at
/// `keys_at`.
fn in_input<S>(
    connection: &mut Connection<S>,
    step: Step,
    (from, keys_at): (usize, usize),
) -> Step {
    match step {
        Step::Took(bytes) => Step::Took(keys_at + bytes),
        // Nothing of the line was served yet: a large worker begins with it.
        Step::Stop(0, Stop::Hand) => {
            connection.mode = Mode::Requests;
            Step::Stop(from, Stop::Hand)
        }
        Step::Stop(bytes, stop) => Step::Stop(keys_at + bytes, stop),
    }
}

impl<T: Transport> Core<T> {
    /// Whether it is known of a key, before its item is looked for, that another worker answers.
    fn is_handed(&self, get: &Get<'_>, key: &[u8]) -> bool {
        self.hands_unseen && self.queue_for(key, writes(get.verb), 0).is_some()
    }
}

impl<T: Transport> Streams<T> {
    /// The `get` at the front of `rest`, whose line ends at `head`, and those behind it that can be
    /// read with it, `most` at most. Returns how many were begun, too.
    pub(crate) fn gets(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (get, head): (&Get<'_>, usize),
        rest: &[u8],
        most: usize,
        arrived: u64,
    ) -> (Step, usize) {
        if head < rest.len()
            && most > 1
            && let Some(key) = only_key(get)
            && !core.is_handed(get, key)
        {
            return self.gets_in_a_row(core, connection, (get, head, key), rest, most, arrived);
        }
        if head == rest.len()
            && let Some(to) = core.offer_get(get)
        {
            return (self.hand_request(core, connection, to, rest, 0, arrived), 1);
        }
        // The keys stand at the end of the line: serve from where they begin.
        let keys_at = offset_in(rest, get.keys.rest());
        let keys = &rest[keys_at..head];
        let step = self.keys(core, connection, get.verb, get.exptime, keys, arrived);
        (in_input(connection, step, (0, keys_at)), 1)
    }

    /// Lines of one key each, from the front of `rest` on.
    fn gets_in_a_row(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (get, head, key): (&Get<'_>, usize, &[u8]),
        rest: &[u8],
        most: usize,
        arrived: u64,
    ) -> (Step, usize) {
        let (mut keys, mut lines) = ([&[][..]; GROUP], [NO_LINE; GROUP]);
        (keys[0], lines[0]) = (key, line_of(get, key, &rest[..head]));
        let mut found = 1;
        let mut at = head;
        // What may turn out to be another's stops the turn there, and the rest is looked up again.
        let group = if core.hands_unseen { GROUP / 2 } else { GROUP };
        while found < most.min(group)
            && let Ok(Some(frame)) = parse(&rest[at..], &core.limits)
            && let Request::Get(get) = &frame.request
            && let Some(key) = only_key(get)
            && !core.is_handed(get, key)
        {
            let line = &rest[at..][..frame.head_bytes];
            if at + line.len() == rest.len() && core.offers.get() > 0 {
                break; // the last of the input may be offered to others
            }
            (keys[found], lines[found]) = (key, line_of(get, key, line));
            at += line.len();
            found += 1;
        }
        let (keys, lines) = (&keys[..found], &lines[..found]);
        core.shared.store.seek(&mut core.group, keys);
        match self.answer_group(core, connection, Asked::Alone(lines), keys, arrived) {
            None => (Step::Took(at), found),
            Some((number, step)) => {
                // A line begins where the one before it ends.
                let before = number.checked_sub(1).map(|number| lines[number].line);
                let from = before.map_or(0, |line| offset_in(rest, line) + line.len());
                let keys_at = offset_in(rest, keys[number]);
                (in_input(connection, step, (from, keys_at)), number + 1)
            }
        }
    }
}
