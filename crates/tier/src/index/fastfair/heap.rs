//! Allocates the lines of the tree's memory: a bit for each, in memory only.
//!
//! Nothing of it is written when lines are taken or given back. A checkpoint keeps the bits; what
//! changed since then is mentioned in the journal, and what is mentioned is looked at when the tree
//! is opened. So a line that was taken when the power failed, and that nothing leads to, is free
//! again. Cells that the checkpoint knows are not written over before the next: their bytes tell
//! what went.
//!
//! Nothing in here can lie badly: nodes have an area of their own, cut into nodes, and a cell is
//! made of single lines, wherever they are ([`super::cell`]). So what is counted as free can be
//! taken, whatever came and went before.

use super::node::NODE_LINES;
use super::part::LINE;

const BITS: u64 = u64::BITS as u64;

/// A bit for each line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits(pub Vec<u64>);

impl Bits {
    fn new(count: u64) -> Bits {
        Bits(vec![0; count.div_ceil(BITS) as usize])
    }

    /// Whether a line is in use.
    pub fn get(&self, line: u64) -> bool {
        self.0.get((line / BITS) as usize).is_some_and(|word| word >> (line % BITS) & 1 == 1)
    }

    fn put(&mut self, line: u64, is_used: bool) {
        let word = &mut self.0[(line / BITS) as usize];
        *word = *word & !(1 << (line % BITS)) | u64::from(is_used) << (line % BITS);
    }
}

/// This part of the lines is for nodes: one that is half full has 14 entries, each of which has a
/// cell of at least a line, so that short keys use up both areas at once.
const NODE_SHARE: u64 = 3;

/// What is free, or can be made so, and how much there is in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Lines for cells.
    pub lines: u64,
    /// The same, used or not.
    pub all_lines: u64,
    /// Nodes.
    pub nodes: u64,
    /// The same, used or not.
    pub all_nodes: u64,
}

/// Lines of one kind: from `first` to below `end`, taken `step` at a time.
struct Area {
    first: u64,
    end: u64,
    step: u64,
    free: u64,
    cursor: u64,
}

impl Area {
    fn new(first: u64, end: u64, step: u64) -> Area {
        Area { first, end, step, free: end - first, cursor: first }
    }

    fn holds(&self, at: u64) -> bool {
        let line = at / LINE;
        at.is_multiple_of(LINE)
            && (self.first..self.end).contains(&line)
            && (line - self.first).is_multiple_of(self.step)
    }

    fn find(&mut self, used: &Bits) -> Option<u64> {
        let in_turn = (self.cursor..self.end).chain(self.first..self.cursor);
        let found = in_turn.step_by(self.step as usize).find(|line| !used.get(*line))?;
        self.cursor = found;
        Some(found)
    }
}

/// The lines.
pub struct Heap {
    nodes: Area,
    cells: Area,
    used: Bits,
    /// As the newest checkpoint has them, and as the one has that is being made.
    kept: Bits,
    next: Option<Bits>,
    /// Given back, and known to a checkpoint: free when the next one is made, or is when made. Only
    /// cells: nodes are never given back, but those that nothing ever led to.
    held: Vec<u64>,
    held_before: Vec<u64>,
}

impl Heap {
    /// All lines free from the offset `first` to `end`.
    pub fn new(first: u64, end: u64) -> Heap {
        let (first, lines) = (first / LINE, end / LINE);
        let nodes = lines.saturating_sub(first) / NODE_SHARE / NODE_LINES;
        let border = first + nodes.max(1) * NODE_LINES;
        Heap {
            nodes: Area::new(first, border, NODE_LINES),
            cells: Area::new(border, lines.max(border), 1),
            used: Bits::new(lines),
            kept: Bits::new(lines),
            next: None,
            held: Vec::new(),
            held_before: Vec::new(),
        }
    }

    /// Whether a node may begin at an offset.
    pub fn holds_node(&self, at: u64) -> bool {
        self.nodes.holds(at)
    }

    /// Whether a line of a cell may be at an offset.
    pub fn holds_line(&self, at: u64) -> bool {
        self.cells.holds(at)
    }

    /// How many lines there are: no way through the tree has more steps.
    pub fn lines(&self) -> u64 {
        self.cells.end - self.nodes.first
    }

    /// What is free, or can be made so.
    pub fn room(&self) -> Room {
        Room {
            lines: self.cells.free + (self.held.len() + self.held_before.len()) as u64,
            all_lines: self.cells.end - self.cells.first,
            nodes: self.nodes.free / NODE_LINES,
            all_nodes: (self.nodes.end - self.nodes.first) / NODE_LINES,
        }
    }

    /// The bits that the newest checkpoint has.
    pub fn kept(&self) -> &Bits {
        &self.kept
    }

    /// Begins with what a checkpoint has; false if those bits are of another memory.
    pub fn restore(&mut self, bits: Bits) -> bool {
        let fits = bits.0.len() == self.used.0.len();
        if fits {
            let free = |area: &Area| (area.first..area.end).filter(|line| !bits.get(*line)).count();
            (self.nodes.free, self.cells.free) =
                (free(&self.nodes) as u64, free(&self.cells) as u64);
            self.used = bits.clone();
            self.kept = bits;
        }
        fits
    }

    /// Whether the line at an offset is in use.
    pub fn is_used(&self, at: u64) -> bool {
        self.used.get(at / LINE)
    }

    /// Takes a node; its offset.
    pub fn take_node(&mut self) -> Option<u64> {
        let line = self.nodes.find(&self.used)?;
        self.mark_node(line * LINE);
        Some(line * LINE)
    }

    /// Takes so many lines for a cell, all or none; their offsets.
    pub fn take_cell(&mut self, lines: u64) -> Option<Vec<u64>> {
        if self.cells.free < lines {
            return None;
        }
        let mut taken = Vec::with_capacity(lines as usize);
        for _ in 0..lines {
            let line = self.cells.find(&self.used)?;
            self.mark_cell(&[line * LINE]);
            taken.push(line * LINE);
        }
        Some(taken)
    }

    fn set_used(&mut self, line: u64) -> bool {
        let fresh = !self.used.get(line);
        if fresh {
            self.used.put(line, true);
            let is_node = line < self.nodes.end;
            let area = if is_node { &mut self.nodes } else { &mut self.cells };
            area.free -= 1;
        }
        fresh
    }

    /// A node is in use.
    pub fn mark_node(&mut self, at: u64) {
        for line in at / LINE..at / LINE + NODE_LINES {
            self.set_used(line);
        }
    }

    /// The lines of a cell are in use; false if some were already.
    pub fn mark_cell(&mut self, lines: &[u64]) -> bool {
        let fresh = lines.iter().filter(|at| self.set_used(**at / LINE)).count();
        fresh == lines.len()
    }

    /// Gives a node back that nothing ever led to.
    pub fn give_node(&mut self, at: u64) {
        (at / LINE..at / LINE + NODE_LINES).for_each(|line| self.release(line));
    }

    /// Gives the lines of a cell back.
    pub fn give_cell(&mut self, lines: &[u64]) {
        for line in lines.iter().map(|at| at / LINE) {
            let next = self.next.as_ref();
            match self.kept.get(line) || next.is_some_and(|bits| bits.get(line)) {
                true => self.held.push(line),
                false => self.release(line),
            }
        }
    }

    fn release(&mut self, line: u64) {
        let area = if line < self.nodes.end { &mut self.nodes } else { &mut self.cells };
        area.free += u64::from(self.used.get(line));
        self.used.put(line, false);
    }

    /// The bits for a checkpoint that is being made.
    pub fn snapshot(&mut self) -> Bits {
        self.abandon();
        self.held_before = std::mem::take(&mut self.held);
        let mut bits = self.used.clone();
        self.held_before.iter().for_each(|line| bits.put(*line, false));
        self.next = Some(bits.clone());
        bits
    }

    /// That checkpoint is the newest now.
    pub fn keep(&mut self) {
        if let Some(bits) = self.next.take() {
            self.kept = bits;
        }
        let free = std::mem::take(&mut self.held_before);
        free.into_iter().for_each(|line| self.release(line));
    }

    /// It came to nothing.
    fn abandon(&mut self) {
        self.next = None;
        self.held.append(&mut self.held_before);
    }

    /// No start will ask for what checkpoints know: what was held for them is free.
    pub fn forget(&mut self) {
        self.abandon();
        self.kept = Bits::new(self.cells.end);
        let free = std::mem::take(&mut self.held);
        free.into_iter().for_each(|line| self.release(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_checkpoint_knows_is_written_over_only_behind_the_next() {
        let mut heap = Heap::new(2 * LINE, 30 * LINE);
        assert_eq!((heap.room().all_nodes, heap.room().all_lines), (2, 20));
        let one = heap.take_cell(8).unwrap();
        heap.snapshot();
        heap.keep();
        let two = heap.take_cell(8).unwrap();
        heap.give_cell(&two); // unknown to any
        let three = heap.take_cell(12).unwrap();
        heap.give_cell(&one);
        assert_eq!((heap.take_cell(1), heap.room().lines), (None, 8));
        heap.snapshot();
        assert_eq!(heap.take_cell(1), None, "it is not made yet");
        heap.snapshot();
        heap.keep();
        assert_eq!(heap.take_cell(8), Some(one.clone()));
        heap.give_cell(&one);
        heap.give_cell(&three);
        assert_eq!((heap.take_cell(9), heap.room().lines), (None, 20), "known to the checkpoint");
        heap.forget();
        assert!(heap.take_cell(20).is_some());
    }

    #[test]
    fn all_that_is_free_can_be_taken_whatever_came_and_went() {
        let mut heap = Heap::new(2 * LINE, 302 * LINE);
        let all = heap.room();
        assert_eq!((all.all_nodes, all.all_lines), (25, 200));
        let cells: Vec<Vec<u64>> = (0..100).map(|_| heap.take_cell(2).unwrap()).collect();
        // Holes of two lines, none beside another.
        cells.iter().step_by(2).for_each(|cell| heap.give_cell(cell));
        assert_eq!(heap.room().lines, 100);
        assert!(heap.take_cell(100).is_some(), "holes are as good as any");
        assert_eq!((0..30).filter_map(|_| heap.take_node()).count(), 25);
    }
}
