//! Chooses the segment of the log that migration empties next: the one with the lowest weight
//! (SplitKV, hotness-aware migration), or the oldest.

use crate::background::futile::Barren;
use crate::index::Home;
use crate::log::Slot;
use crate::ssd::tables::{DROPPED_RECORD_BYTES, NAMED_RECORD_BYTES};
use crate::store::{Heat, Maintenance, Shared};
use crate::types::MigrateBy;

/// The weight of records that cannot go to a sort table.
const HEAT_OF_WHAT_STAYS: u64 = 16;

impl Shared {
    /// Whether much of a segment is no longer current.
    pub fn is_sparse(&self, slot: u32) -> bool {
        self.accounts().segments[slot as usize] * 4 < u64::from(self.shape.records_end()) * 3
    }

    /// The sealed segments: slot, generation, end.
    pub fn sealed(&self) -> Vec<(u32, u64, u32)> {
        let writer = self.writer();
        let slots = (0..).zip(writer.log.slots());
        let sealed = slots.filter_map(|(slot, state)| match *state {
            Slot::Sealed { generation, end } => Some((slot, generation, end)),
            _ => None,
        });
        sealed.collect()
    }

    /// The sealed segments that migration may empty: slot, generation, end; and how much of each
    /// slot is current.
    fn choices(&self, turn: &Maintenance) -> (Vec<(u32, u64, u32)>, Vec<u64>) {
        let mut sealed = self.sealed();
        let live = self.accounts().segments.clone();
        sealed.retain(|&(slot, generation, _)| {
            let (live, superblock) = (live[slot as usize], turn.generation);
            let barren = Barren { generation, live, superblock };
            turn.barren.get(&slot) != Some(&barren) && !turn.quarantined.contains(&slot)
        });
        (sealed, live)
    }

    /// The sealed segment to empty next.
    pub fn coldest(&self, turn: &mut Maintenance) -> Option<(u32, u64, u32)> {
        let (sealed, live) = self.choices(turn);
        if sealed.is_empty() {
            return None; // to measure takes a walk over the index, and cools it
        }
        let empty = sealed.iter().find(|(slot, ..)| live[*slot as usize] == 0);
        if empty.is_some() || self.settings.migrates_by() == MigrateBy::Age {
            let oldest = sealed.iter().min_by_key(|(_, generation, _)| *generation);
            return empty.or(oldest).copied();
        }
        if turn.heat.as_ref().is_none_or(|heat| heat.choices == 0) {
            turn.heat = Some(self.measure_heat());
        }
        let heat = turn.heat.as_mut()?;
        heat.choices -= 1;
        let looked_at = sealed.iter().filter(|(_, generation, _)| *generation <= heat.generation);
        let chosen = looked_at.min_by_key(|(slot, generation, _)| {
            (heat.by_slot[*slot as usize], live[*slot as usize], *generation)
        });
        if chosen.is_none() {
            turn.heat = None; // nothing that old is left; the next turn measures again
        }
        chosen.or_else(|| sealed.iter().min_by_key(|(_, generation, _)| *generation)).copied()
    }

    /// The sealed segment of which the least is current, but for this one; where not `even_dense`,
    /// if that is little.
    pub fn sparsest(
        &self,
        turn: &Maintenance,
        but: (u32, u64, u32),
        even_dense: bool,
    ) -> Option<(u32, u64, u32)> {
        let (sealed, live) = self.choices(turn);
        let others = sealed.into_iter().filter(|segment| *segment != but);
        let sparse = others.filter(|(slot, ..)| even_dense || self.is_sparse(*slot));
        sparse.min_by_key(|&(slot, ..)| live[slot as usize])
    }

    /// Begins a migration cycle: sums the weights by segment and halves them.
    fn measure_heat(&self) -> Heat {
        let generation = self.writer().log.tail().generation;
        let mut by_slot = vec![0; self.shape.segments as usize];
        self.index.cool(|entry, weight| {
            if !entry.home.is_ssd() {
                let slot = self.shape.slot_of(entry.home.at()) as usize;
                by_slot[slot] += u64::from(weight) * u64::from(entry.record_bytes);
            }
        });
        // What can only stay in the log is nothing to gain by moving.
        let mut stays = |home: Home, bytes: u32| {
            by_slot[self.shape.slot_of(home.at()) as usize] +=
                HEAT_OF_WHAT_STAYS * u64::from(bytes);
        };
        let accounts = self.accounts();
        accounts.tables.iter().for_each(|table| stays(table.home, NAMED_RECORD_BYTES));
        accounts.tables.dropped.values().for_each(|drop| stays(drop.home, DROPPED_RECORD_BYTES));
        Heat { by_slot, generation, choices: (self.shape.segments / 4).max(1) }
    }
}
