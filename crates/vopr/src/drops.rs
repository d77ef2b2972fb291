//! What the tier drops to make room on the SSD: only that may be missed.
//!
//! The tier tells the key and the sequence of each item that it drops. Clients know no sequences;
//! so the index is looked at after every step, and the moment is noted at which a key first had
//! each sequence. What a client asked for later than that is not what was dropped.

use crate::request::{key_name, key_number};
use laneway_tier::Tier;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Keys and sequences.
type Told = Arc<Mutex<Vec<(Box<[u8]>, u64)>>>;

/// What one tier has dropped, and what it was seen to hold.
pub struct Drops {
    tier: Arc<Tier>,
    told: Told,
    /// Of each key: sequences, and when each was first seen.
    seen: HashMap<usize, Vec<(u64, u64)>>,
}

impl Drops {
    /// Hears of what this tier drops from now on.
    pub fn of(tier: &Arc<Tier>) -> Drops {
        let told = Told::default();
        let heard = told.clone();
        tier.hear_of_evictions(Box::new(move |key, sequence| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push((key.into(), sequence));
        }));
        Drops { tier: tier.clone(), told, seen: HashMap::new() }
    }

    /// Keys of which something was dropped since this was asked last, and the moment at which what
    /// was dropped of each was there.
    pub fn take(&mut self, now: u64) -> Vec<(usize, u64)> {
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let mut dropped = Vec::new();
        for (name, sequence) in told {
            let Some(key) = key_number(&name) else { continue };
            let seen = self.seen.get(&key).into_iter().flatten();
            let until = seen.copied().find(|(seen, _)| sequence <= *seen).map_or(now, |(_, at)| at);
            dropped.push((key, until));
        }
        dropped
    }

    /// Looks at what the index has.
    pub fn look(&mut self, keys: usize, now: u64) {
        for key in 0..keys {
            let Some(look) = self.tier.look(key_name(key).as_bytes()) else { continue };
            let seen = self.seen.entry(key).or_default();
            if seen.last().is_none_or(|(last, _)| *last < look.sequence) {
                seen.push((look.sequence, now));
            }
        }
    }
}
