//! A multiget of very many keys: looked up a turn's worth at a time, so that no small request
//! waits for more. One datagram holds hundreds of keys, a request of many frames half a million.
//!
//! A worker gathers one reply at a time; the others wait as the lines they came as. So what they
//! take is bounded by the length of lines and of one reply. Sizes are bytes.

use super::buffers::Buffers;
use super::deliver::hand_over;
use super::state::{At, From, Gathering, Udp, UdpWorker};
use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::jobs::handoff::{Finished, Job, Origin, Served, Work};
use crate::request::requests::verb_words;
use crate::stream::output::Output;
use crate::stream::step::{KEYS_PER_TURN, OUT_BYTES_PER_TURN};
use laneway_policy::ItemBytes;
use laneway_transport::Transport;
use laneway_wire::reply::END;
use laneway_wire::udp::MESSAGE_BYTES_MAX;
use laneway_wire::{Get, Keys, Limits, Request, parse};
use std::sync::Arc;

/// Lines of keys that wait at one worker; more are thrown away.
const GATHERINGS_MAX: usize = 64;

/// So many keys and the spaces between them take this much, at least.
const LONG_BYTES_MIN: usize = 2 * KEYS_PER_TURN;

/// Keys of one turn, and bytes of their values.
const MOST: (usize, usize) = (KEYS_PER_TURN, OUT_BYTES_PER_TURN);

/// Keys that a job looks up at once; their values are small.
const KEYS_AT_ONCE: usize = 16;

/// Whether a `get` has more keys than one turn looks up.
pub fn is_long(get: &Get<'_>) -> bool {
    let mut keys = get.keys;
    keys.rest().len() >= LONG_BYTES_MIN && keys.nth(KEYS_PER_TURN).is_some()
}

/// The gathering that a job of a datagram is, if it is one.
fn gathering(job: &mut Job, buffers: &Arc<Buffers>, limits: &Limits) -> Option<Gathering> {
    let (Origin::Datagram(to), Work::Request { bytes, .. }) = (job.origin, &job.work) else {
        return None;
    };
    // Few are: the others are parsed once, when they are executed.
    let line = bytes.iter().take_while(|&&byte| byte != b'\n');
    if line.filter(|&&byte| byte == b' ').count() <= KEYS_AT_ONCE {
        return None;
    }
    let Ok(Some(frame)) = parse(bytes, limits) else { return None };
    let Request::Get(get) = &frame.request else { return None };
    let mut keys = get.keys;
    keys.nth(KEYS_AT_ONCE).is_some().then(|| Gathering {
        to,
        verb: get.verb,
        exptime: get.exptime,
        keys: get.keys.rest().to_vec(),
        at: 0,
        reply: Output::default(),
        reply_bytes: 0,
        served: Served::new(job.arrived_nanos),
        held: job.held.take().unwrap_or_else(|| buffers.nothing()),
    })
}

impl Udp {
    /// Begin a job slowly if it is a multiget of many keys; others are given back.
    pub(crate) fn begin_gathering<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        job: Job,
    ) -> Option<Job> {
        if !matches!(job.origin, Origin::Datagram(_)) {
            return Some(job);
        }
        let at = At::of(&self.shared, core.id);
        self.desk.gather_here(core, at, job)
    }
}

impl UdpWorker {
    /// The same, of a job that this worker has received itself.
    pub(super) fn gather_here<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        mut job: Job,
    ) -> Option<Job> {
        let buffers = &at.shared.buffers;
        let Some(gathering) = gathering(&mut job, buffers, &core.limits) else { return Some(job) };
        self.gather_later(core, at, gathering);
        None
    }

    fn gather_later<T: Transport>(&mut self, core: &mut Core<T>, at: At<'_>, gathering: Gathering) {
        if self.gatherings.len() < GATHERINGS_MAX {
            return self.gatherings.push_back(gathering);
        }
        at.has_no_room(&gathering.to, core.clock.nanos());
    }

    /// Look up a turn's worth of keys.
    pub(super) fn gather_slice<T: Transport>(&mut self, core: &mut Core<T>, at: At<'_>) {
        let Some(mut gathering) = self.gatherings.pop_front() else { return };
        let Gathering { verb, exptime, keys, at: done, reply, served, .. } = &mut gathering;
        let mut left = Keys::new(&keys[*done..]);
        let pinned = served.pinned_bytes;
        let added = core.perform_keys(served, (*verb, *exptime), &mut left, MOST, reply);
        let copied = added - (served.pinned_bytes - pinned);
        *done = keys.len() - left.rest().len();
        let is_last = left.next().is_none();
        if served.kept {
            return gather_at_executor(core, at, gathering);
        }
        gathering.reply_bytes += added;
        let to = gathering.to;
        if !gathering.held.grow(copied) {
            at.counts.messages_no_room.add_owner(1);
            return at.shared.given_up(to.queue, &(to.peer, to.request_id), core.clock.nanos());
        }
        if gathering.reply_bytes + END.len() > MESSAGE_BYTES_MAX {
            let now = core.clock.nanos();
            at.shared.given_up(to.queue, &(to.peer, to.request_id), now);
            let mut from = From { to, once: false, allowance: usize::MAX, arrived_nanos: now };
            return self.answer_too_long(at, &mut from);
        }
        if !is_last {
            return self.gatherings.push_front(gathering);
        }
        let Gathering { mut reply, served: Served { tally, large, .. }, held, .. } = gathering;
        drop(held); // from here on the reply counts what it holds
        reply.push_bytes(END);
        let origin = Origin::Datagram(to);
        let (fails, home, undone) = (false, None, None);
        let finished = Finished { origin, reply, tally, large, fails, home, undone };
        self.finish_datagram(core, at, finished);
    }
}

/// Memory alone does not know all of it: the executor begins again, from the first key.
fn gather_at_executor<T: Transport>(core: &mut Core<T>, at: At<'_>, gathering: Gathering) {
    let Gathering { to, verb, exptime, keys, served, held, .. } = gathering;
    let mut line = verb_words(verb, exptime);
    line.extend_from_slice(&keys);
    line.extend_from_slice(b"\r\n");
    let origin = Origin::Datagram(to);
    let job = Job::request(line, ItemBytes(0), served.arrived_nanos, origin);
    let job = Job { held: Some(held), ..job };
    hand_over(core, at, EXECUTOR, job);
}
