//! Which lines of the tree's memory are in use: a bit for each, in memory only.
//!
//! Nothing of it is written when lines are taken or given back. A checkpoint keeps the bits; what
//! changed since then is mentioned in the journal, and what is mentioned is looked at when the tree
//! is opened. So a line that was taken when the power failed, and that nothing leads to, is free
//! again. Cells that the checkpoint knows are not written over before the next: their bytes tell
//! what went.

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

/// Lines in a row: the first, and how many.
type Run = (u64, u64);

/// The lines.
pub struct Heap {
    first: u64,
    lines: u64,
    used: Bits,
    free: u64,
    /// As the newest checkpoint has them, and as the one has that is being made.
    kept: Bits,
    next: Option<Bits>,
    /// Given back, and known to a checkpoint: free when the next one is made, or is when made.
    held: Vec<Run>,
    held_before: Vec<Run>,
    cursor: u64,
}

impl Heap {
    /// All lines free from the offset `first` to `end`.
    pub fn new(first: u64, end: u64) -> Heap {
        let lines = end / LINE;
        let first = first / LINE;
        Heap {
            first,
            lines,
            used: Bits::new(lines),
            free: lines.saturating_sub(first),
            kept: Bits::new(lines),
            next: None,
            held: Vec::new(),
            held_before: Vec::new(),
            cursor: first,
        }
    }

    /// Whether lines that begin at an offset are all in here.
    pub fn holds(&self, at: u64, lines: u64) -> bool {
        let first = at / LINE;
        at.is_multiple_of(LINE)
            && self.first <= first
            && first.checked_add(lines).is_some_and(|end| end <= self.lines)
    }

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.lines - self.first
    }

    /// How many are free, or can be made so.
    pub fn room(&self) -> u64 {
        let held = self.held.iter().chain(&self.held_before);
        self.free + held.map(|(_, lines)| lines).sum::<u64>()
    }

    /// The bits that the newest checkpoint has.
    pub fn kept(&self) -> &Bits {
        &self.kept
    }

    /// Begins with what a checkpoint has; false if those bits are of another memory.
    pub fn restore(&mut self, bits: Bits) -> bool {
        let fits = bits.0.len() == self.used.0.len();
        if fits {
            self.used = bits.clone();
            self.kept = bits;
            let used: u64 = self.used.0.iter().map(|word| u64::from(word.count_ones())).sum();
            self.free = (self.lines - self.first).saturating_sub(used);
        }
        fits
    }

    /// Takes lines in a row; their offset.
    pub fn take(&mut self, lines: u64) -> Option<u64> {
        let found = self.search(self.cursor, self.lines, lines);
        let start = found.or_else(|| self.search(self.first, self.lines, lines))?;
        self.mark(start * LINE, lines);
        self.cursor = start + lines;
        Some(start * LINE)
    }

    fn search(&self, from: u64, end: u64, lines: u64) -> Option<u64> {
        let (mut line, mut run) = (from, 0);
        while line < end {
            if self.used.0[(line / BITS) as usize] == u64::MAX {
                line = (line / BITS + 1) * BITS;
                run = 0;
                continue;
            }
            run = if self.used.get(line) { 0 } else { run + 1 };
            line += 1;
            if run == lines {
                return Some(line - lines);
            }
        }
        None
    }

    /// Lines are in use; false if some were already.
    pub fn mark(&mut self, at: u64, lines: u64) -> bool {
        let mut fresh = true;
        for line in at / LINE..at / LINE + lines {
            if self.used.get(line) {
                fresh = false;
            } else {
                self.used.put(line, true);
                self.free -= 1;
            }
        }
        fresh
    }

    /// Gives lines back.
    pub fn give(&mut self, at: u64, lines: u64) {
        let line = at / LINE;
        let is_known = self.kept.get(line) || self.next.as_ref().is_some_and(|bits| bits.get(line));
        match is_known {
            true => self.held.push((line, lines)),
            false => self.release((line, lines)),
        }
    }

    fn release(&mut self, (first, lines): Run) {
        for line in first..first + lines {
            self.free += u64::from(self.used.get(line));
            self.used.put(line, false);
        }
    }

    /// The bits for a checkpoint that is being made.
    pub fn snapshot(&mut self) -> Bits {
        self.abandon();
        self.held_before = std::mem::take(&mut self.held);
        let mut bits = self.used.clone();
        for &(first, lines) in &self.held_before {
            (first..first + lines).for_each(|line| bits.put(line, false));
        }
        self.next = Some(bits.clone());
        bits
    }

    /// That checkpoint is the newest now.
    pub fn keep(&mut self) {
        if let Some(bits) = self.next.take() {
            self.kept = bits;
        }
        let free = std::mem::take(&mut self.held_before);
        free.into_iter().for_each(|run| self.release(run));
    }

    /// It came to nothing.
    fn abandon(&mut self) {
        self.next = None;
        self.held.append(&mut self.held_before);
    }

    /// No start will ask for what checkpoints know: what was held for them is free.
    pub fn forget(&mut self) {
        self.abandon();
        self.kept = Bits::new(self.lines);
        let free = std::mem::take(&mut self.held);
        free.into_iter().for_each(|run| self.release(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_checkpoint_knows_is_written_over_only_behind_the_next() {
        let mut heap = Heap::new(2 * LINE, 12 * LINE);
        let one = heap.take(4).unwrap();
        heap.snapshot();
        heap.keep();
        let two = heap.take(4).unwrap();
        heap.give(two, 4); // unknown to any
        assert_eq!(heap.take(6), Some(two));
        heap.give(one, 4);
        assert_eq!((heap.take(1), heap.room()), (None, 4));
        heap.snapshot();
        assert_eq!(heap.take(1), None, "it is not made yet");
        heap.snapshot();
        heap.keep();
        assert_eq!(heap.take(4), Some(one));
        heap.give(one, 4);
        heap.give(two, 6);
        assert_eq!((heap.take(6), heap.take(5)), (None, None), "known to the checkpoint");
        heap.forget();
        assert_eq!(heap.take(10), Some(2 * LINE));
    }
}
