//! The connections with a slice to move: those whose clients wait for more than the transfer, and
//! the others (`policy::share`). First come, first served in each line.

use crate::resp::state::{Dialect, Under};
use crate::stream::connection::{Connection, Mode, Unread};
use laneway_policy::share::{Share, Waiting};
use laneway_transport::Token;
use std::collections::VecDeque;

/// Two lines of connections.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    plain: VecDeque<Token>,
    urgent: VecDeque<Token>,
    share: Share,
}

impl Slices {
    /// To the end of its line.
    pub fn push_back(&mut self, token: Token, urgent: bool) {
        self.line(urgent).push_back(token);
    }

    /// To the front of its line.
    pub fn push_front(&mut self, token: Token, urgent: bool) {
        self.line(urgent).push_front(token);
    }

    /// Whose slice is next, and whether it was in line as an urgent one.
    pub fn pop(&mut self) -> Option<(Token, bool)> {
        let urgent = self.share.next_is_urgent(self.waiting())?;
        self.line(urgent).pop_front().map(|token| (token, urgent))
    }

    /// How many wait.
    pub fn waiting(&self) -> Waiting {
        Waiting { urgent: self.urgent.len() as u32, plain: self.plain.len() as u32 }
    }

    /// How many wait, in all.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.plain.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn line(&mut self, urgent: bool) -> &mut VecDeque<Token> {
        if urgent { &mut self.urgent } else { &mut self.plain }
    }
}

impl<S> Connection<S> {
    /// Whether requests wait behind the large one that is under way: received and not consumed, the
    /// rest of a transaction among them, or told of and not read. The keys that are left of a
    /// multiget are the same request. What lies in the stream behind a value that still arrives
    /// cannot be told from that value: there the client's ways decide, whether the turn in which it
    /// came had other requests.
    pub(crate) fn is_urgent(&self) -> bool {
        let own = match &self.mode {
            Mode::Body(_) => return self.pipelined,
            Mode::Keys { line_bytes, .. } => *line_bytes,
            Mode::Resp(Under::Keys { bytes, .. }) => *bytes,
            _ => 0,
        };
        let front = match &self.dialect {
            Dialect::Resp(session) => session.front.rest().len(),
            _ => 0,
        };
        self.unread == Unread::Bytes || own < front + self.input.bytes().len()
    }
}
