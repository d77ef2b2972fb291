//! Answers that are as long as there are items or connections: `stats cachedump`, `stats conns`,
//! and `lru_crawler metadump` and `mgdump`.
//! They are written a bounded step at a time, one in a turn of their connection, and leave before
//! the next; so nobody waits for all of one, and no more than a step of it is held in memory.
//!
//! Here is only where such an answer stands; `long_steps` writes it. What comes, goes or moves
//! meanwhile may be missed or told twice. Sizes are bytes.

use crate::stats::{Form, Question};
use laneway_store::Listing;

/// An answer under way.
pub enum LongAnswer {
    /// The items of a class.
    Items {
        /// Number of the class.
        class: u32,
        /// The store that is walked, of those of all domains.
        store: usize,
        /// Where in it.
        walk: Listing,
        /// Items that may still be told.
        left: usize,
        /// Bytes told.
        bytes: usize,
    },
    /// The items of some classes, or of all.
    Dump {
        /// How each is told.
        form: Form,
        /// A bit for each class.
        classes: u64,
        /// Its first line was told.
        begun: bool,
        /// The store that is walked, of those of all domains.
        store: usize,
        /// Where in it.
        walk: Listing,
    },
    /// The connections.
    Connections {
        /// From this number on.
        from: u64,
        /// The one that asks; 0 where that is none.
        asker: u64,
    },
}

impl LongAnswer {
    /// The answer to this question of this connection's, if it is one of these.
    pub fn of(question: &Question, asker: u64) -> Option<LongAnswer> {
        Some(match *question {
            Question::Cachedump { class, limit } => {
                let left = if limit == 0 { usize::MAX } else { limit as usize };
                LongAnswer::Items { class, store: 0, walk: Listing::default(), left, bytes: 0 }
            }
            Question::Dump { form, classes } => {
                LongAnswer::Dump { form, classes, begun: false, store: 0, walk: Listing::default() }
            }
            Question::Connections => LongAnswer::Connections { from: 0, asker },
            _ => return None,
        })
    }
}
