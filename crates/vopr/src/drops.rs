//! What the tier drops to make room on the SSD: only that may be missed.
//!
//! The tier tells the key and the sequence of each item that it drops. Clients know no sequences;
//! so the index is looked at after every step, and the moment is noted at which a key first had
//! each sequence. What a client asked for later than that is not what was dropped.

use crate::request::{key_name, key_number};
use laneway_tier::Tier;
use std::sync::{Arc, Mutex, PoisonError};

/// Keys and sequences.
type Told = Arc<Mutex<Vec<(Box<[u8]>, u64)>>>;

/// A key, and what the tier was seen to hold of it.
struct Key {
    name: String,
    /// Sequences, and when each was first seen.
    seen: Vec<(u64, u64)>,
}

/// What one tier has dropped, and what it was seen to hold.
pub struct Drops {
    tier: Arc<Tier>,
    told: Told,
    /// By number.
    keys: Vec<Key>,
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
        Drops { tier: tier.clone(), told, keys: Vec::new() }
    }

    /// Keys of which something was dropped since this was asked last, and the moment at which what
    /// was dropped of each was there.
    pub fn take(&mut self, now: u64) -> Vec<(usize, u64)> {
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let mut dropped = Vec::new();
        for (name, sequence) in told {
            let Some(key) = key_number(&name) else { continue };
            let mut seen = self.keys.get(key).into_iter().flat_map(|key| &key.seen);
            let until = seen.find(|(seen, _)| sequence <= *seen).map_or(now, |(_, at)| *at);
            dropped.push((key, until));
        }
        dropped
    }

    /// Looks at what the index has.
    pub fn look(&mut self, keys: usize, now: u64) {
        for number in self.keys.len()..keys {
            self.keys.push(Key { name: key_name(number), seen: Vec::new() });
        }
        for Key { name, seen } in &mut self.keys {
            let Some(look) = self.tier.look(name.as_bytes()) else { continue };
            if seen.last().is_none_or(|(last, _)| *last < look.sequence) {
                seen.push((look.sequence, now));
            }
        }
    }
}
