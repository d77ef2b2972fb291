//! Which connections of a worker stream the event log, and when it looks for news of theirs: soon
//! again while there are some, and ever more seldom while there are none. Times are nanoseconds.

use laneway_transport::Token;

/// How often it looks for news while there are some.
const PACE_NANOS_MIN: u64 = 1_000_000;
/// How often while there are none.
const PACE_NANOS_MAX: u64 = 128 * PACE_NANOS_MIN;

/// The connections of one worker that watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Their names; stale ones among them.
    tokens: Vec<Token>,
    looked_nanos: u64,
    pace_nanos: u64,
}

impl Watchers {
    /// One more.
    pub(crate) fn add(&mut self, token: Token) {
        self.tokens.push(token);
        self.pace_nanos = PACE_NANOS_MIN;
    }

    /// When it looks next.
    pub(crate) fn due_nanos(&self) -> u64 {
        match self.tokens.is_empty() {
            true => u64::MAX,
            false => self.looked_nanos + self.pace_nanos,
        }
    }

    /// Forgets those who do not watch any more.
    pub(crate) fn retain(&mut self, watches: impl FnMut(&Token) -> bool) {
        self.tokens.retain(watches);
    }

    /// It has looked then.
    pub(crate) fn has_looked(&mut self, now: u64, has_news: bool) {
        self.looked_nanos = now;
        self.pace_nanos = match has_news {
            true => PACE_NANOS_MIN,
            false => (2 * self.pace_nanos).min(PACE_NANOS_MAX),
        };
    }
}
