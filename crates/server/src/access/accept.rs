//! Connections come and go: they are accepted, idle ones are closed, those of a worker that turns
//! large go to small ones, and those of a server that stops end. Each in bounded steps.

use crate::access::per_address::Counted;
use crate::clock::seconds_of;
use crate::core::Core;
use crate::event_log::Parting;
use crate::shared::Phase;
use crate::stream::streams::Streams;
use laneway_policy::migrate::LEAVERS_PER_TURN;
use laneway_policy::{BATCH, Role};
use laneway_transport::{Token, Transport};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

impl<T: Transport> Streams<T> {
    /// Stop accepting; idle connections close, those under way get their reply first. All of them
    /// in one step: only who may stop the server causes it, and nothing new is begun behind it.
    pub(crate) fn end_idle(&mut self, core: &mut Core<T>) -> io::Result<()> {
        core.transport.watch_listeners(false)?;
        self.kicking = None; // all that is idle closes
        let tokens: Vec<Token> = self.table.tokens_from(0).collect();
        for token in tokens {
            let Some(connection) = self.table.take(token) else { continue };
            // A log has no end that could be waited for.
            if connection.is_idle() || connection.is_watching() {
                self.close(core, token, *connection);
            } else {
                self.table.put(token, connection);
            }
        }
        Ok(())
    }

    /// A worker that turned large sends its connections to small ones, a batch per turn; those in
    /// the middle of a large request are already where they belong, and those that wait for a reply
    /// leave once they have it.
    pub(crate) fn let_leave(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let Some(from) = self.leaving else { return Ok(()) };
        let tokens: Vec<Token> =
            self.table.tokens_from(from).take(LEAVERS_PER_TURN as usize).collect();
        self.leaving = tokens.last().map(|token| token.slot + 1);
        for token in tokens {
            let Some(connection) = self.table.take(token) else { continue };
            let waits = connection.output.is_waiting();
            if connection.large || waits || connection.visit.is_some() {
                self.table.put(token, connection);
            } else {
                self.send_home(core, token, connection)?;
            }
        }
        Ok(())
    }

    /// Look for connections to close from now on, if there may be any; who is looking goes on.
    pub(crate) fn begin_kicking(&mut self, core: &Core<T>) {
        let settings = &core.shared.settings;
        if !settings.idle_timeout.is_zero() || settings.auth.is_some() {
            self.kicking.get_or_insert(0);
        }
    }

    /// Close idle connections, and those that have not said who they are in time: a batch per turn.
    pub(crate) fn kick_idle(&mut self, core: &mut Core<T>) {
        let Some(from) = self.kicking else { return };
        let timeout = seconds_of(core.shared.settings.idle_timeout);
        let tokens: Vec<Token> = self.table.tokens_from(from).take(BATCH as usize).collect();
        self.kicking = tokens.last().map(|token| token.slot + 1);
        for token in tokens {
            let Some(mut connection) = self.table.take(token) else { continue };
            if connection.is_late(core.now.seconds()) {
                let (connection_number, peer) = (connection.card.number, &*connection.card.peer);
                log::trace!(connection = connection_number, peer; "no password came in time");
                self.close(core, token, *connection);
                continue;
            }
            // As with memcached, who is being served is not idle, nor is who waits for a turn here,
            // as what takes many does; and its client has had no reply to go on with until then.
            // Who has stopped in the middle of a value is, unlike there: it holds memory that reads
            // of others may wait for.
            let waits = connection.queued || !connection.output.is_empty();
            if waits {
                connection.waited_seconds = core.now.seconds();
            }
            let asked = connection.card.last_seconds.load(Relaxed);
            let last = asked.max(connection.waited_seconds);
            let served = waits || connection.is_watching();
            if timeout > 0 && !served && core.now.seconds().saturating_sub(last) > timeout {
                core.shared.connections.idle_kicked.fetch_add(1, Relaxed);
                connection.parting = Parting::IdleTimeout;
                self.close(core, token, *connection);
            } else {
                self.table.put(token, connection);
            }
        }
    }

    /// New connections: each goes to the small worker that has the fewest.
    pub(crate) fn accept(&mut self, core: &mut Core<T>, listener: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let stream = match core.transport.accept(listener) {
                Ok(Some(stream)) => stream,
                Ok(None) => return Ok(()),
                // The listeners are closed: this worker stops watching them in its next turn.
                Err(_) if core.shared.phase() != Phase::Running => return Ok(()),
                Err(error) => {
                    // No descriptors or memory left: pause, or level-triggered polling would spin.
                    log::warn!("accepting pauses for a second: {error}");
                    core.shared.connections.paused.fetch_add(1, Relaxed);
                    self.accept_paused = true;
                    return core.transport.watch_listeners(false);
                }
            };
            self.welcome(core, stream, listener)?;
        }
        Ok(())
    }

    fn welcome(
        &mut self,
        core: &mut Core<T>,
        stream: T::Stream,
        listener: usize,
    ) -> io::Result<()> {
        let shared = &core.shared;
        let dialect = shared.dialect_at(listener);
        let (plan, now) = (&core.plan, core.now.seconds());
        let guest = shared.take_in(plan, core.id, stream, dialect, Counted::Now, now);
        let Some(mut connection) = guest else { return Ok(()) };
        if let Some(rules) = core.shared.rules_at(listener) {
            rules.apply(&mut connection);
        }
        match connection.home {
            home if home == core.id => self.settle_in(core, connection),
            home => self.mail(core, home, connection),
        }
    }

    /// Accept again after a pause.
    pub(crate) fn accept_again(&mut self, core: &mut Core<T>) {
        if self.accept_paused && core.plan.role(core.id) != Role::Large {
            self.listen(core);
        }
    }

    /// Accept from now on; after a pause where the kernel has no room to watch the listeners.
    pub(crate) fn listen(&mut self, core: &mut Core<T>) {
        self.accept_paused = false;
        if let Err(error) = core.transport.watch_listeners(true) {
            log::warn!("accepting pauses for a second: {error}");
            core.shared.connections.paused.fetch_add(1, Relaxed);
            self.accept_paused = true;
        }
    }
}
