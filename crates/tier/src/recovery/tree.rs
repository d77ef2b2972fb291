//! A start with an index in persistent memory: the tree is opened, what a checkpoint counted is
//! made good by what changed since, and what the log has behind the tree is offered to it.
//!
//! Without a checkpoint that knows the tree, or where more changed than is mentioned, all of the
//! tree is walked, once.

use crate::checkpoint::outline::Outline;
use crate::index::fair::FairIndex;
use crate::index::fastfair::{Change, FairTree, Part};
use crate::index::{Builder, Counts, Entry, Index};
use crate::recovery::ledger::Ledger;
use crate::ssd::tables::Table;
use crate::types::{Position, Result, doing};
use std::collections::BTreeMap;

/// A tree, opened.
pub struct Tree {
    part: Part,
    tree: FairTree,
    /// What changed since the checkpoint; none where all of it has to be walked.
    changes: Option<Vec<Change>>,
}

impl Tree {
    /// Makes one for a new store.
    pub fn make(part: &Part, store_id: u64) -> Result<()> {
        doing("make the index", FairTree::format(part, store_id))
    }

    /// Opens it, from what a checkpoint has of it if it is that the newest; writes nothing. Gives
    /// back the checkpoint's count if it is of use.
    pub fn open(part: Part, outline: Option<Outline>) -> (Tree, Option<Ledger>) {
        let (kept, ledger) = match outline {
            Some(outline) => (Some(outline.kept), Some(outline.ledger)),
            None => (None, None),
        };
        let (tree, changes) = FairTree::open(part.clone(), kept);
        let ledger = ledger.filter(|_| changes.is_some());
        (Tree { part, tree, changes }, ledger)
    }

    /// Whether it is this store's.
    pub fn is_of(&self, store_id: u64) -> bool {
        FairTree::is_there(&self.part, store_id)
    }

    /// Up to where it holds the log.
    pub fn holds(&self) -> Position {
        FairIndex::position_of(&self.tree)
    }

    /// The index, and how many entries were looked at; `ledger` becomes the count of it.
    pub fn into_index(
        mut self,
        ledger: &mut Ledger,
        blocks: u64,
        problems: &mut Vec<String>,
    ) -> Result<(Index, u64)> {
        let read = match self.changes.take() {
            None => self.walk(blocks, problems, |_, entry| ledger.add(&entry)),
            Some(changes) => {
                let read = changes.len() as u64;
                match FairIndex::entries_of(changes, blocks) {
                    Some((went, came)) => {
                        went.iter().for_each(|entry| ledger.remove(entry));
                        came.iter().for_each(|entry| ledger.add(entry));
                    }
                    None => ledger.give_up(),
                }
                read
            }
        };
        doing("begin to use the index", self.tree.begin())?;
        Ok((Index::Fair(Box::new(FairIndex::new(self.tree, blocks))), read))
    }

    /// The same in memory.
    pub fn into_memory(
        mut self,
        ledger: &mut Ledger,
        blocks: u64,
        problems: &mut Vec<String>,
    ) -> (Index, u64) {
        let (mut builder, mut counts) = (Builder::default(), Counts::default());
        let read = self.walk(blocks, problems, |key, entry| {
            ledger.add(&entry);
            counts.add(&entry);
            builder.push(key, &entry);
        });
        (Index::built(builder, counts), read)
    }

    fn walk(
        &mut self,
        blocks: u64,
        problems: &mut Vec<String>,
        mut visit: impl FnMut(&[u8], Entry),
    ) -> u64 {
        let (mut read, mut senseless) = (0, 0);
        let damages = self.tree.walk_all(|key, payload| {
            read += 1;
            // One of which only the key can be read was counted.
            let entry = FairIndex::entry_of(payload, blocks);
            senseless += u64::from(entry.is_none() && !payload.is_empty());
            visit(key, entry.unwrap_or_else(Entry::unreadable));
        });
        if damages + senseless != 0 {
            problems.push(format!(
                "the index in persistent memory is damaged in {} places: keys may be missing",
                damages + senseless
            ));
        }
        read
    }

    /// The store is used from now on: the log up to `position` is in the index, which counts on
    /// with `ledger`.
    pub fn begin(
        fair: &FairIndex,
        mut ledger: Ledger,
        tables: &BTreeMap<u64, Table>,
        position: Position,
    ) -> Result<()> {
        let gone: Vec<u64> =
            ledger.tables.iter().map(|t| t.id).filter(|id| !tables.contains_key(id)).collect();
        gone.into_iter().for_each(|id| ledger.table_gone(id));
        fair.count_with(ledger);
        fair.settled(position)?;
        fair.fence()
    }
}
