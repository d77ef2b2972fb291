//! `GET`s, and those that follow each other as a pipeline sends them: their keys are read together
//! (`laneway_store::Group`), as memcached's are ([`crate::request::gets`]).

use crate::core::Core;
use crate::execute::{Outcome, redis};
use crate::latency::Operation;
use crate::request::sought::{Head, Simple};
use crate::stream::connection::Connection;
use crate::stream::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::stream::streams::Streams;
use laneway_store::{GROUP, KeyHash, Sought};
use laneway_transport::Transport;
use laneway_wire::KEY_BYTES_MAX;
use laneway_wire::reply::CRLF;
use laneway_wire::resp::reply::{BULK_HEAD_BYTES_MAX, put_bulk_head, put_null};
use laneway_wire::resp::{Args, Scan, Scanned};

/// Why a group of keys comes to a stop at one of them.
pub(crate) enum Halt {
    /// It is served.
    Served(Stop),
    /// It is for a large worker to serve.
    Hand,
    /// It is for the executor, which has to bring so many bytes into memory.
    Kept(u64),
}

/// The key of a `GET` that has one the store takes.
#[inline]
fn key_of_get<'a>(mut args: Args<'a>) -> Option<&'a [u8]> {
    if args.left() != 2 || !args.next()?.eq_ignore_ascii_case(b"get") {
        return None;
    }
    args.next().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()))
}

impl<T: Transport> Core<T> {
    /// Whether keys are looked up together: all of them are in this worker's store.
    pub(crate) fn reads_together(&self) -> bool {
        !self.has_domains()
    }
}

impl<T: Transport> Streams<T> {
    /// If the request at the front of `rest` is a `GET` to be served now: its answer, and those of
    /// the ones behind it that can be read with it, `most` at most. Returns how many were begun.
    pub(crate) fn resp_gets(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        args: Args<'_>,
        bytes: usize,
        rest: &[u8],
        most: usize,
    ) -> Option<(Step, usize)> {
        let key = key_of_get(args)?;
        if connection.session().transaction.is_some() {
            return None;
        }
        let (mut keys, mut ends) = ([&[][..]; GROUP], [0; GROUP]);
        (keys[0], ends[0]) = (key, bytes);
        let (mut found, mut at) = (1, bytes);
        while found < most.min(GROUP)
            && let Ok(Scanned::Whole(args, bytes)) = Scan::default().advance(&rest[at..])
            && let Some(key) = key_of_get(args)
        {
            at += bytes;
            (keys[found], ends[found]) = (key, at);
            found += 1;
        }
        let (stopped, simple) = self.resp_group(core, connection, &keys[..found]);
        core.account_simple(connection, &simple);
        let Some((number, halt)) = stopped else { return Some((Step::Took(at), found)) };
        let before = number.checked_sub(1).map_or(0, |last| ends[last]);
        Some(match halt {
            Halt::Served(stop) => (Step::Stop(ends[number], stop), number + 1),
            Halt::Hand => (Step::Stop(before, Stop::Hand), number),
            Halt::Kept(size) => {
                let request = (ends[number] - before, &rest[before..]);
                let step = self.resp_ask(core, connection, request, size);
                // Where the executor has enough it begins in a later turn.
                let begun = number + usize::from(!matches!(step, Step::Stop(0, Stop::Quota)));
                (step.behind(before), begun)
            }
        })
    }

    /// The answers for keys that follow each other. At which of them it stops and why, if it does,
    /// and what was answered simply and not counted yet.
    pub(crate) fn resp_group(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        keys: &[&[u8]],
    ) -> (Option<(usize, Halt)>, Simple) {
        let version = connection.session().version;
        let mut simple = Simple::default();
        let together = core.reads_together();
        if together {
            core.shared.store.seek(&mut core.group, keys);
        }
        for (number, key) in keys.iter().enumerate() {
            let sought = match together {
                true => self.resp_sought(core, number, key),
                false => Sought::Otherwise,
            };
            let mut halt = None;
            match sought {
                Sought::Copied(bytes) => core.note_hit_uncounted(&mut simple, key, bytes),
                Sought::Miss => {
                    core.note_miss_uncounted(&mut simple, key);
                    put_null(&mut self.out, version);
                }
                Sought::Otherwise => {
                    core.account_simple(connection, &std::mem::take(&mut simple));
                    let hash = core.shared.store.hash(key);
                    halt = self.resp_get(core, connection, key, hash);
                }
            }
            if halt.is_none() && self.out.len() >= OUT_BYTES_PER_TURN {
                halt = Some(Halt::Served(Stop::Quota));
            }
            if let Some(halt) = halt {
                return (Some((number, halt)), simple);
            }
        }
        (None, simple)
    }

    /// One key, whatever its item is; how the turn stops, if it does.
    fn resp_get(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<Halt> {
        let before = self.out.len();
        let asking = core.asking(connection, key);
        let outcome = redis::get(&asking, key, hash, &mut self.out);
        let size = core.touched.get();
        match outcome {
            Outcome::Elsewhere => return Some(Halt::Hand),
            Outcome::Kept => return Some(Halt::Kept(size)),
            _ => {}
        }
        let (asked, came) = ((key, Operation::Get, false), (outcome, size, before));
        let is_large = self.answered(core, connection, asked, came);
        is_large.then_some(Halt::Served(Stop::Large))
    }

    /// The answer for one key of the group, if it is a small item or a miss.
    #[inline]
    fn resp_sought(&mut self, core: &Core<T>, number: usize, key: &[u8]) -> Sought {
        let (sight, around) = (core.sight_of_kept(), (BULK_HEAD_BYTES_MAX, CRLF));
        core.answer_sought((number, key), sight, &mut self.out, around, |item, out| {
            put_bulk_head(&mut Head(out), item.value_bytes());
            true
        })
    }
}
