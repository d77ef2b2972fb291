//! Values that are asked for: requests that follow each other as a pipeline sends them, the quiet
//! ones of a multiget above all, are read together (`laneway_store::Group`), as those of the text
//! protocol are ([`crate::request::gets`]).

use crate::core::Core;
use crate::execute::{Outcome, binary};
use crate::latency::Operation;
use crate::request::sought::{Head, Simple};
use crate::stream::connection::Connection;
use crate::stream::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::stream::streams::Streams;
use laneway_store::{GROUP, Sought};
use laneway_transport::Transport;
use laneway_wire::binary::reply::{VALUE_HEAD_BYTES_MAX, put_value_head};
use laneway_wire::binary::{Echo, Frame, Get, Request, parse};

/// What the reply to a request that is read with others needs to know of it.
#[derive(Clone, Copy, Default)]
struct Asked {
    echo: Echo,
    with_key: bool,
    /// Bytes of the request.
    bytes: usize,
}

/// Requests that are read together.
struct Row<'a> {
    asked: [Asked; GROUP],
    keys: [&'a [u8]; GROUP],
    found: usize,
    bytes: usize,
}

impl<'a> Row<'a> {
    fn of(frame: &Frame<'a>, get: &Get<'a>) -> Row<'a> {
        let mut row =
            Row { asked: [Asked::default(); GROUP], keys: [b""; GROUP], found: 0, bytes: 0 };
        row.add(frame, get);
        row
    }

    fn add(&mut self, frame: &Frame<'a>, get: &Get<'a>) {
        let (echo, with_key, bytes) = (frame.echo, get.with_key, frame.bytes());
        self.asked[self.found] = Asked { echo, with_key, bytes };
        self.keys[self.found] = get.key;
        self.found += 1;
        self.bytes += bytes;
    }
}

/// The request at the front of `rest`, which is known to ask for a value.
fn read(rest: &[u8]) -> (Frame<'_>, Get<'_>) {
    match parse(rest) {
        Ok(Some(frame)) => match frame.request {
            Request::Get(get) => (frame, get),
            _ => unreachable!("it was read before"),
        },
        _ => unreachable!("it was read before"),
    }
}

impl<T: Transport> Streams<T> {
    /// The request at the front of `rest`, which asks for a value, and those behind it that can be
    /// read with it, `most` at most. Returns how many were begun, too.
    pub(crate) fn binary_gets(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (frame, get): (&Frame<'_>, &Get<'_>),
        rest: &[u8],
        most: usize,
    ) -> (Step, usize) {
        let mut row = Row::of(frame, get);
        while row.found < most.min(GROUP)
            && let Ok(Some(frame)) = parse(&rest[row.bytes..])
            && let Request::Get(get) = &frame.request
            && get.touch.is_none()
        {
            row.add(&frame, get);
        }
        let together = core.reads_together();
        if together {
            core.shared.store.seek(&mut core.group, &row.keys[..row.found]);
        }
        let (mut simple, mut at) = (Simple::default(), 0);
        for number in 0..row.found {
            let (asked, key) = (row.asked[number], row.keys[number]);
            let sought = match together {
                true => self.binary_sought(core, number, (asked, key)),
                false => Sought::Otherwise,
            };
            let mut stop = None;
            match sought {
                Sought::Copied(bytes) => core.note_hit_uncounted(&mut simple, key, bytes),
                Sought::Miss => {
                    core.note_miss_uncounted(&mut simple, key);
                    let (frame, get) = read(&rest[at..]);
                    binary::put_miss(&frame, &get, &mut self.out);
                }
                Sought::Otherwise => {
                    core.account_simple(connection, &std::mem::take(&mut simple));
                    let (frame, get) = read(&rest[at..]);
                    stop = self.binary_get(core, connection, (&frame, &get), &rest[at..]);
                }
            }
            if stop.is_none() && self.out.len() >= OUT_BYTES_PER_TURN {
                stop = Some(Step::Stop(asked.bytes, Stop::Quota));
            }
            if let Some(step) = stop {
                core.account_simple(connection, &simple);
                // What is for another, who has enough, begins in a later turn.
                let begun = number + usize::from(!matches!(step, Step::Stop(0, Stop::Quota)));
                return (step.behind(at), begun);
            }
            at += asked.bytes;
        }
        core.account_simple(connection, &simple);
        (Step::Took(at), row.found)
    }

    /// One value at the front of `rest`, whatever its item is, maybe with a new expiry. Returns how
    /// the turn stops, if it does.
    pub(crate) fn binary_get(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (frame, get): (&Frame<'_>, &Get<'_>),
        rest: &[u8],
    ) -> Option<Step> {
        let before = self.out.len();
        let context = core.context_here(get.key);
        let hash = context.store.hash(get.key);
        let outcome = binary::get(&context, frame, get, hash, &mut self.out);
        let size = core.touched.get();
        match outcome {
            Outcome::Elsewhere => return Some(Step::Stop(0, Stop::Hand)),
            Outcome::Kept => {
                return Some(self.binary_ask(core, connection, frame, (rest, size)));
            }
            _ => {}
        }
        let asked = (get.key, Operation::Get, get.touch.is_some());
        let came = (outcome, size, before);
        let is_large = self.answered(core, connection, asked, came);
        is_large.then_some(Step::Stop(frame.bytes(), Stop::Large))
    }

    /// The answer to one request of the row, if its item is small or missing.
    #[inline]
    fn binary_sought(
        &mut self,
        core: &Core<T>,
        number: usize,
        (asked, key): (Asked, &[u8]),
    ) -> Sought {
        let cas_enabled = core.execute_settings.cas_enabled;
        let told_key = if asked.with_key { key } else { b"" };
        let (sight, around) = (core.sight_of_kept(), (VALUE_HEAD_BYTES_MAX, &b""[..]));
        core.answer_sought((number, key), sight, &mut self.out, around, |item, out| {
            let cas = if cas_enabled { item.seq() } else { 0 };
            let told = (item.flags(), item.value_bytes(), cas);
            put_value_head(&mut Head(out), asked.echo, told_key, told);
            true
        })
    }
}
