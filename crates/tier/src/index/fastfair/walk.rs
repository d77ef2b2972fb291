//! Going over all of a tree: where no checkpoint knows which lines are in use, and to look for
//! damage.

use super::journal::Mention;
use super::node::NODE_BYTES;
use super::part::{LINE, Step};
use super::tree::{FairTree, heap_at};
use std::io;

impl FairTree {
    /// Goes over all of the tree, marks what is in use and shows every cell in order. Says how much
    /// cannot be read.
    pub fn walk_all(&mut self, mut visit: impl FnMut(&[u8], &[u8])) -> u64 {
        let mut damages = 0;
        let mut first = self.root();
        while let Some(node) = first {
            let (at, level, left) = (node.at, node.level(), node.left());
            damages += self.mark_level(at);
            // A child is one level down: of what leads elsewhere there would be no end.
            let child = || self.node(left).filter(|child| child.level() + 1 == level);
            first = if level == 0 { None } else { child() };
            damages += u64::from(level != 0 && first.is_none());
        }
        let mut leaf = self.first_leaf().map(|node| node.at);
        let mut steps = self.heap.lines();
        while let Some(at) = leaf.filter(|_| 0 < steps) {
            steps -= 1;
            let Some(node) = self.node(at) else { break };
            let (entries, next) = (self.own_entries(node), node.sibling());
            for entry in entries {
                match self.cell(entry.pointer) {
                    Some(cell) => {
                        self.heap.mark_cell(&cell.lines);
                        visit(&cell.key, &cell.payload);
                    }
                    None => {
                        damages += 1;
                        self.cell_or_name(&entry).iter().for_each(|cell| visit(&cell.key, &[]));
                    }
                }
            }
            leaf = (next != 0).then_some(next);
        }
        damages + u64::from(self.root().is_none())
    }

    /// Marks the nodes of a level from its first on.
    fn mark_level(&mut self, first: u64) -> u64 {
        let mut damages = 0;
        let (mut at, mut steps) = (first, self.heap.lines());
        while at != 0 && 0 < steps {
            steps -= 1;
            let Some(node) = self.node(at) else { return damages + 1 };
            let (low_at, next) = (node.low(), node.sibling());
            let low = if low_at == 0 { None } else { self.cell(low_at) };
            damages += u64::from(low_at != 0 && low.is_none());
            self.mark_node(at, low.as_ref());
            at = next;
        }
        damages + u64::from(at != 0)
    }

    /// Makes durable what an operation may have left in a cache that a process which ended was at:
    /// of a tree that was walked, all; else its mentions, and what they are about. Whatever came
    /// before that operation was durable when it began.
    pub(super) fn flush_found(&mut self) -> io::Result<()> {
        let front = heap_at(&self.part);
        self.part.flush(0, front, Step::Found)?;
        if self.journal.is_over() {
            let used = (front..self.part.bytes()).step_by(LINE as usize);
            for at in used.filter(|at| self.heap.is_used(*at)) {
                self.part.flush(at, LINE, Step::Found)?;
            }
        }
        for mention in std::mem::take(&mut self.last) {
            match mention {
                Mention::Cell(at) => self.flush_way(at)?,
                Mention::Node(at) => {
                    if let Some(low) = self.node(at).map(|node| node.low()) {
                        self.part.flush(at, NODE_BYTES, Step::Found)?;
                        self.flush_way(low)?;
                    }
                }
            }
        }
        self.part.fence(Step::Found)
    }

    /// A cell, and all nodes on the way to its key.
    fn flush_way(&self, at: u64) -> io::Result<()> {
        let cell = self.cell(at);
        let lines = cell.iter().flat_map(|cell| &cell.lines);
        lines.into_iter().try_for_each(|line| self.part.flush(*line, LINE, Step::Found))?;
        let key = cell.as_ref().map_or(&[][..], |cell| &cell.key);
        let mut met = Vec::new();
        self.descend_by(key, 0, |node| met.extend([node.at, node.sibling()]));
        let nodes = met.into_iter().filter(|at| *at != 0 && self.heap.holds_node(*at));
        nodes.into_iter().try_for_each(|at| self.part.flush(at, NODE_BYTES, Step::Found))
    }
}
