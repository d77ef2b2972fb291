//! How a worker ends: it takes on nothing new, finishes what is under way, and says when there is
//! nothing left.

use crate::clock::Clock;
use crate::shared::Phase;
use crate::worker::Worker;
use laneway_transport::{Token, Transport};
use std::io;

impl<T: Transport, C: Clock> Worker<T, C> {
    /// A turn begins: if the server is stopping, this worker is not drained until the turn sleeps
    /// or has ended with nothing under way.
    pub(crate) fn begin_stopping(&mut self) {
        self.stopping = self.shared.phase() != Phase::Running;
        self.take_on();
    }

    /// What comes now may be taken.
    pub(crate) fn take_on(&self) {
        if self.stopping {
            self.shared.workers[self.id.index()].drained.take_on();
        }
    }

    /// A turn ends, or sleeps.
    pub(crate) fn tell_drained(&self) {
        if !self.stopping {
            return;
        }
        let idle =
            self.undelivered.is_empty() && self.udp.as_deref().is_none_or(|udp| udp.desk.is_idle());
        self.shared.workers[self.id.index()].drained.tell(idle);
    }

    /// Stop accepting; idle connections close, those under way get their reply first. All of them
    /// in one step: only who may stop the server causes it, and nothing new is begun behind it.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        self.transport.watch_listeners(false)?;
        self.kicking = None; // all that is idle closes
        let tokens: Vec<Token> = self.table.tokens_from(0).collect();
        for token in tokens {
            let Some(connection) = self.table.take(token) else { continue };
            if connection.is_idle() {
                self.close(token, *connection);
            } else {
                self.table.put(token, connection);
            }
        }
        Ok(())
    }
}
