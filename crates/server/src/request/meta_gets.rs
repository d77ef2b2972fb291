//! `mg`s that follow each other on a connection, as a pipeline sends them: their keys are read
//! together, as those of `get`s are ([`crate::request::gets`]), and each is answered in its turn.
//! What asks for more than to read its item is served as it is alone, between its neighbours.

use crate::core::Core;
use crate::execute::put_miss;
use crate::request::sought::Simple;
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{OUT_BYTES_PER_TURN, Step};
use crate::stream::streams::Streams;
use laneway_store::{GROUP, Sought};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::{Request, parse, scan};

/// The keys of the `mg` lines at the front of `input`, as many as there is room for. They are
/// guesses, for what is asked of memory ahead: who parses a line knows its key.
fn keys_ahead<'a>(input: &'a [u8], keys: &mut [&'a [u8]]) -> usize {
    let mut rest = input;
    for (found, place) in keys.iter_mut().enumerate() {
        let Some(words) = rest.strip_prefix(b"mg ") else { return found };
        let Some(key) = words.iter().position(|byte| byte.is_ascii_whitespace()) else {
            return found;
        };
        let Some(end) = scan::find(&words[key..], b'\n') else { return found };
        *place = &words[..key];
        rest = &words[key + end + 1..];
    }
    keys.len()
}

impl<T: Transport> Core<T> {
    /// Count what was answered simply so far, and begin anew.
    fn account_metas(&self, connection: &mut Connection<T::Stream>, simple: &mut Simple) {
        let mut simple = std::mem::take(simple);
        simple.metas = simple.requests();
        self.account_simple(connection, &simple);
    }
}

impl<T: Transport> Streams<T> {
    /// The `mg` at the front of `rest`, whose line ends at `head`, and those behind it, `most` at
    /// most. Returns how many were begun, too; `None` where it is alone, and nothing was done.
    pub(crate) fn meta_gets(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (first, head): (&Request<'_>, usize),
        rest: &[u8],
        most: usize,
    ) -> Option<(Step, usize)> {
        let mut keys = [&[][..]; GROUP];
        let group = if core.hands_unseen { GROUP / 2 } else { GROUP };
        let found = keys_ahead(rest, &mut keys[..most.min(group)]);
        if found < 2 {
            return None;
        }
        core.shared.store.seek(&mut core.group, &keys[..found]);
        let (mut simple, mut at, mut begun) = (Simple::default(), 0, 0);
        while begun < found && self.out.len() < OUT_BYTES_PER_TURN {
            let parsed;
            let (request, head) = if begun == 0 {
                (first, head)
            } else if let Ok(Some(frame)) = parse(&rest[at..], &core.limits) {
                parsed = frame;
                (&parsed.request, parsed.head_bytes)
            } else {
                break; // the next step says what is wrong with it
            };
            let Request::MetaGet(meta) = request else { break };
            match core.meta_sought(meta, begun, keys[begun], &mut self.out) {
                Sought::Copied(bytes) => core.note_hit(&mut simple, keys[begun], bytes),
                Sought::Miss => {
                    if !is_planted(Bug::MissOfRowLost) {
                        put_miss(meta, &mut self.out);
                    }
                    core.note_miss(&mut simple, keys[begun]);
                }
                Sought::Otherwise => {
                    core.account_metas(connection, &mut simple);
                    let line = (&rest[at..], head);
                    let step = self.plain(core, connection, request, line);
                    match step {
                        Step::Stop(bytes, stop) => {
                            return Some((Step::Stop(at + bytes, stop), begun + 1));
                        }
                        // What is behind it has gone along with it, or may yet.
                        Step::Took(bytes) if matches!(connection.mode, Mode::Batches { .. }) => {
                            return Some((Step::Took(at + bytes), begun + 1));
                        }
                        Step::Took(_) => {}
                    }
                }
            }
            at += head;
            begun += 1;
        }
        core.account_metas(connection, &mut simple);
        Some((Step::Took(at), begun))
    }
}
