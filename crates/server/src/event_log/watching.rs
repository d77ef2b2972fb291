//! Connections that stream the event log (`watch`). Whoever watches is served by the worker that
//! has its connection, as any client in the small lane: a turn of it writes so many lines at most,
//! and where the client takes no more, it waits for room and the log does not.
//!
//! It knows no event. Times are nanoseconds.

use crate::core::Core;
use crate::event_log::asked::{Asked, NOT_ALLOWED, TOO_MANY};
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::{Interest, Transport};
use laneway_wire::reply::OK;

impl<T: Transport> Streams<T> {
    /// A connection watches from now on, if it may.
    pub(crate) fn begin_watching(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        asked: Asked,
    ) {
        if !core.shared.settings.watch {
            return self.out.extend_from_slice(NOT_ALLOWED);
        }
        core.events.tell_time(core.now);
        match core.events.watch(asked) {
            Some(watcher) => {
                self.out.extend_from_slice(OK);
                connection.mode = Mode::Watching(Box::new(watcher));
                self.watchers.add(connection.token);
            }
            None => self.out.extend_from_slice(TOO_MANY),
        }
    }

    /// What it is told in this turn. What its client sends is read over, as memcached does.
    pub(crate) fn watch_on(&mut self, connection: &mut Connection<T::Stream>, rest: &[u8]) -> Step {
        let Mode::Watching(watcher) = &mut connection.mode else { return Step::Took(0) };
        let is_more = watcher.tell(&mut self.out, OUT_BYTES_PER_TURN);
        Step::Stop(rest.len(), if is_more { Stop::Quota } else { Stop::Starved })
    }

    /// A turn for those who watch and have not seen all, if it is time to look.
    #[inline]
    pub(crate) fn turn_watchers(&mut self, now: u64) {
        if self.watchers.due_nanos() <= now {
            self.look_for_news(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_for_news(&mut self, now: u64) {
        let (table, small) = (&mut self.table, &mut self.small);
        let mut has_news = false;
        self.watchers.retain(|token| {
            let Some(connection) = table.get_mut(*token) else { return false };
            let Mode::Watching(watcher) = &connection.mode else { return false };
            // One that waits for room has its turn when there is some.
            let is_free = !connection.queued && connection.interest == Some(Interest::Read);
            if is_free && watcher.has_news() {
                has_news = true;
                connection.unserved = true;
                connection.queued = true;
                small.push_back(*token);
            }
            true
        });
        self.watchers.has_looked(now, has_news);
    }
}
