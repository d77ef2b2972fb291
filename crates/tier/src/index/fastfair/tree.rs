//! The tree: its way from the root to a leaf, its splits, and what it is opened from.

use super::cell::{self, Cell, lines_of, prefix_of};
use super::heap::{Bits, Heap, Room};
use super::journal::{Fits, Journal, Mention};
use super::node::{ENTRIES, Entry, Image, NODE_BYTES, Node};
use super::part::{LINE, Part, Step};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;

const MAGIC: u64 = 0x3152_4941_4659_4e4c; // "LNYFAIR1"
const VERSION: u64 = 1;
const ID_AT: u64 = 16;
const BYTES_AT: u64 = 24;
const ROOT_AT: u64 = LINE;
const POSITION_AT: u64 = 2 * LINE;
const OVERFLOW_AT: u64 = 3 * LINE;
const JOURNAL_AT: u64 = 4096;
/// The journal takes this part of the memory.
const JOURNAL_SHARE: u64 = 32;
/// In the place of a checkpoint's number: whatever the checkpoint, mentions are missing.
const OVERFLOW_ALWAYS: u64 = u64::MAX;
/// More mentions than one operation makes.
const LAST: usize = 4 * LEVELS_MAX;
/// No tree is that high; a way that is longer leads in a circle.
const LEVELS_MAX: usize = 32;

/// What a checkpoint keeps of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The number of the first mention that it does not have.
    pub next: u64,
    /// The lines in use.
    pub bits: Bits,
}

/// What changed since a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A cell is in the tree that was not.
    Came(Cell),
    /// A cell was in the tree.
    Went(Cell),
}

/// The tree. Its owner locks it.
pub struct FairTree {
    pub(super) part: Part,
    pub(super) heap: Heap,
    pub(super) journal: Journal,
    /// The last mentions that were found when it was opened.
    pub(super) last: Vec<Mention>,
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the index has no room in persistent memory")
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the index in persistent memory is damaged")
}

fn journal_bytes(part: &Part) -> u64 {
    (part.bytes() / JOURNAL_SHARE / LINE).max(1) * LINE
}

/// Where the heap begins. Its first node is the first leaf.
pub(super) fn heap_at(part: &Part) -> u64 {
    JOURNAL_AT + journal_bytes(part)
}

impl FairTree {
    /// The least memory that a tree takes.
    pub const BYTES_MIN: u64 = JOURNAL_AT + 128 * NODE_BYTES;

    /// Makes an empty tree of this id, whatever was there.
    pub fn format(part: &Part, id: u64) -> io::Result<()> {
        let root = heap_at(part);
        Image::default().write(part, root)?;
        Journal::new(JOURNAL_AT, journal_bytes(part), 0).clear(part)?;
        let words = [(8, VERSION), (ID_AT, id), (BYTES_AT, part.bytes()), (ROOT_AT, root)];
        for (at, word) in words.into_iter().chain([(POSITION_AT, 0), (OVERFLOW_AT, 0), (0, MAGIC)])
        {
            part.store(at, word)?;
        }
        part.flush(0, JOURNAL_AT, Step::Format)?;
        part.fence(Step::Format)
    }

    /// Whether there is a tree of this id.
    pub fn is_there(part: &Part, id: u64) -> bool {
        let words = [(0, MAGIC), (8, VERSION), (ID_AT, id), (BYTES_AT, part.bytes())];
        words.into_iter().all(|(at, word)| part.load(at) == word)
    }

    /// Opens a tree; writes nothing. From what a checkpoint kept, it reads what was mentioned
    /// since and says what changed. Without that, or where mentions are missing, all of the tree
    /// has to be walked: [`FairTree::walk_all`].
    pub fn open(part: Part, kept: Option<Kept>) -> (FairTree, Option<Vec<Change>>) {
        let (start, end) = (heap_at(&part), part.bytes());
        let next = kept.as_ref().map_or(0, |kept| kept.next);
        let overflow = part.load(OVERFLOW_AT);
        let whole = overflow != OVERFLOW_ALWAYS && overflow != next.wrapping_add(1);
        let journal = Journal::new(JOURNAL_AT, journal_bytes(&part), next);
        let heap = Heap::new(start, end);
        let mut tree = FairTree { part, heap, journal, last: Vec::new() };
        let changes = kept.filter(|_| whole).and_then(|kept| tree.catch_up(kept.bits));
        if changes.is_none() {
            tree.heap = Heap::new(start, end);
            tree.journal.give_up();
        }
        (tree, changes)
    }

    /// To be called before a tree is changed. What was found may have been in a cache, where a
    /// process ended and no power failed: from here on it is durable. Of one that was walked the
    /// newest checkpoint does not know what follows.
    pub fn begin(&mut self) -> io::Result<()> {
        self.flush_found()?;
        match self.journal.is_over() {
            true => {
                self.set_overflow(OVERFLOW_ALWAYS)?;
                self.journal.clear(&self.part)
            }
            false => Ok(()),
        }
    }

    /// Says, before a mention is missing, that one is.
    fn overflow(&mut self) -> io::Result<()> {
        // Of the checkpoint that is being made it is not known yet whether it will be the newest.
        let word = match self.journal.give_up() {
            true => OVERFLOW_ALWAYS,
            false => self.journal.kept().wrapping_add(1),
        };
        self.set_overflow(word)
    }

    fn set_overflow(&mut self, word: u64) -> io::Result<()> {
        self.part.store(OVERFLOW_AT, word)?;
        self.part.persist(OVERFLOW_AT, Step::Overflow)
    }

    /// Looks at what was mentioned; `None` if it makes no sense.
    fn catch_up(&mut self, bits: Bits) -> Option<Vec<Change>> {
        if !self.heap.restore(bits) {
            return None;
        }
        let found = self.journal.read(&self.part);
        self.last = found[found.len().saturating_sub(LAST)..].to_vec();
        let mentions: BTreeSet<Mention> = found.into_iter().collect();
        let mut changes = Vec::new();
        for mention in mentions {
            match mention {
                Mention::Node(at) => {
                    if let Some(low) = self.linked(at) {
                        self.mark_node(at, low.as_ref());
                    }
                }
                Mention::Cell(at) if self.heap.holds_line(at) => {
                    let was = self.heap.kept().get(at / LINE);
                    let cell = self.cell(at);
                    let is = cell.as_ref().is_some_and(|cell| self.leads_to(cell));
                    if cell.as_ref().is_some_and(|cell| self.is_low(cell)) {
                        continue; // an old mention of a line that a node's lowest key has now
                    }
                    match (was, is) {
                        (true, false) => {
                            let cell = cell?;
                            self.heap.give_cell(&cell.lines);
                            changes.push(Change::Went(cell));
                        }
                        (false, true) => {
                            let cell = cell?;
                            self.heap.mark_cell(&cell.lines).then_some(())?;
                            changes.push(Change::Came(cell));
                        }
                        _ => {}
                    }
                }
                Mention::Cell(_) => {}
            }
        }
        Some(changes)
    }

    /// Whether the tree leads to this cell.
    fn leads_to(&self, cell: &Cell) -> bool {
        let found = self.descend(&cell.key, 0).and_then(|leaf| self.find(leaf, &cell.key));
        found.is_some_and(|entry| entry.pointer == cell.at)
    }

    fn is_low(&self, cell: &Cell) -> bool {
        self.descend(&cell.key, 0).is_some_and(|leaf| leaf.low() == cell.at)
    }

    /// If the tree leads to the node at an offset: the cell of its lowest key, where it has one.
    fn linked(&self, at: u64) -> Option<Option<Cell>> {
        let node = self.node(at)?;
        let low = match node.low() {
            0 => None,
            low => Some(self.cell(low)?),
        };
        let key = low.as_ref().map_or(&[][..], |cell| &cell.key);
        (self.descend(key, node.level())?.at == at).then_some(low)
    }

    pub(super) fn mark_node(&mut self, at: u64, low: Option<&Cell>) {
        self.heap.mark_node(at);
        if let Some(low) = low {
            self.heap.mark_cell(&low.lines);
        }
    }

    pub(super) fn node(&self, at: u64) -> Option<Node<'_>> {
        self.heap.holds_node(at).then(|| Node::of(&self.part, at)).flatten()
    }

    pub(super) fn cell(&self, at: u64) -> Option<Cell> {
        cell::read(&self.part, at, |line| self.heap.holds_line(line))
    }

    pub(super) fn root(&self) -> Option<Node<'_>> {
        self.node(self.part.load(ROOT_AT))
    }

    pub(super) fn first_leaf(&self) -> Option<Node<'_>> {
        self.descend(&[], 0)
    }

    /// The order of `key` and the key of a pointer: a cell's, or a child's lowest.
    fn order(&self, key: &[u8], prefix: u64, cell_at: u64) -> Ordering {
        prefix_of(key).cmp(&prefix).then_with(|| {
            let other = cell::key(&self.part, cell_at, |line| self.heap.holds_line(line));
            key.cmp(&other.unwrap_or_default())
        })
    }

    fn order_of_entry(&self, key: &[u8], entry: &Entry, level: u64) -> Ordering {
        let cell_at = match level {
            0 => entry.pointer,
            _ => self.node(entry.pointer).map_or(0, Node::low),
        };
        self.order(key, entry.prefix, cell_at)
    }

    /// The sibling, if `key` is its or of one behind it.
    fn behind<'a>(&'a self, node: Node<'a>, key: &[u8]) -> Option<Node<'a>> {
        let next = self.node(node.sibling())?;
        let order = self.order(key, next.low_prefix(), next.low());
        (order != Ordering::Less).then_some(next)
    }

    fn child<'a>(&'a self, node: Node<'a>, key: &[u8]) -> Option<Node<'a>> {
        let level = node.level();
        let below = node
            .entries()
            .take_while(|entry| self.order_of_entry(key, entry, level) != Ordering::Less);
        self.node(below.last().map_or(node.left(), |entry| entry.pointer))
    }

    /// The node of a level that holds `key`. Changes nothing.
    fn descend(&self, key: &[u8], level: u64) -> Option<Node<'_>> {
        self.descend_by(key, level, |_| ())
    }

    /// The same, and shows every node on the way.
    pub(super) fn descend_by<'a>(
        &'a self,
        key: &[u8],
        level: u64,
        mut visit: impl FnMut(Node<'a>),
    ) -> Option<Node<'a>> {
        let mut node = self.root()?;
        let mut steps = self.heap.lines();
        for _ in 0..LEVELS_MAX {
            visit(node);
            while let Some(next) = self.behind(node, key) {
                node = next;
                visit(node);
                steps = steps.checked_sub(1)?; // in a circle
            }
            match node.level().cmp(&level) {
                Ordering::Equal => return Some(node),
                Ordering::Less => return None,
                Ordering::Greater => node = self.child(node, key)?,
            }
        }
        None
    }

    fn find(&self, leaf: Node<'_>, key: &[u8]) -> Option<Entry> {
        let prefix = prefix_of(key);
        let same = leaf.entries().filter(|entry| entry.prefix == prefix);
        let mut same = same.skip_while(|entry| self.order_of_entry(key, entry, 0).is_gt());
        same.next().filter(|entry| self.order_of_entry(key, entry, 0).is_eq())
    }

    /// The entries of a node that its sibling does not have too.
    pub(super) fn own_entries(&self, node: Node<'_>) -> Vec<Entry> {
        let entries = node.entries();
        match self.node(node.sibling()) {
            None => entries.collect(),
            Some(next) => {
                entries.take_while(|entry| self.is_below(entry, node.level(), next)).collect()
            }
        }
    }

    /// Whether an entry is below a node's lowest key.
    fn is_below(&self, entry: &Entry, level: u64, node: Node<'_>) -> bool {
        match entry.prefix.cmp(&node.low_prefix()) {
            Ordering::Equal => {}
            order => return order.is_lt(),
        }
        let low = self.cell(node.low()).map(|cell| cell.key).unwrap_or_default();
        self.order_of_entry(&low, entry, level).is_gt()
    }

    /// What `key` leads to; without payload where that cannot be read.
    pub fn get(&self, key: &[u8]) -> Option<Cell> {
        let entry = self.find(self.descend(key, 0)?, key)?;
        self.cell_or_name(&entry)
    }

    pub(super) fn cell_or_name(&self, entry: &Entry) -> Option<Cell> {
        self.cell(entry.pointer).or_else(|| {
            let key = cell::key(&self.part, entry.pointer, |line| self.heap.holds_line(line))?;
            let is_it = prefix_of(&key) == entry.prefix;
            is_it.then_some(Cell { at: entry.pointer, lines: Vec::new(), key, payload: Vec::new() })
        })
    }

    /// Up to `limit` cells from `from` on, in order.
    pub fn page(&self, from: &[u8], limit: usize) -> Vec<Cell> {
        let mut found = Vec::new();
        let mut leaf = self.descend(from, 0);
        let mut steps = self.heap.lines();
        while let Some(node) = leaf.filter(|_| 0 < steps) {
            steps -= 1;
            for entry in self.own_entries(node) {
                if self.order_of_entry(from, &entry, 0).is_gt() {
                    continue;
                }
                if found.len() == limit {
                    return found;
                }
                found.extend(self.cell_or_name(&entry));
            }
            leaf = self.node(node.sibling());
        }
        found
    }

    /// The leaf of `key`, and the way there as whole as if no power had failed.
    fn leaf_for(&mut self, key: &[u8]) -> io::Result<u64> {
        self.reach(key, 0)
    }

    fn reach(&mut self, key: &[u8], level: u64) -> io::Result<u64> {
        for _ in 0..self.heap.lines() {
            if let Some(at) = self.mend_way(key, level)? {
                return Ok(at);
            }
        }
        Err(damaged())
    }

    /// Goes down once. `None`: something was ended on the way, so that it begins anew.
    fn mend_way(&mut self, key: &[u8], level: u64) -> io::Result<Option<u64>> {
        let root = self.root().ok_or_else(damaged)?;
        if root.sibling() != 0 {
            self.grow()?;
            return Ok(None);
        }
        let mut at = root.at;
        let mut parent = None;
        for _ in 0..LEVELS_MAX {
            let node = self.node(at).ok_or_else(damaged)?;
            let node_level = node.level();
            if let Some(next) = self.node(node.sibling()) {
                let twice = |entry: &Entry| !self.is_below(entry, node_level, next);
                if let Some(entry) = node.entries().find(twice) {
                    node.cut(entry.index)?;
                }
            }
            node.mend()?;
            if let Some(next) = self.behind(node, key).map(|next| next.at) {
                // Its parent would have led there.
                let parent = parent.ok_or_else(damaged)?;
                self.adopt(parent, next)?;
                return Ok(None);
            }
            if node_level == level {
                return Ok(Some(at));
            }
            parent = Some(at);
            at = self.child(node, key).ok_or_else(damaged)?.at;
        }
        Err(damaged())
    }

    /// Makes a root over the one that was split.
    fn grow(&mut self) -> io::Result<()> {
        let (old, level) = self.root().map(|node| (node.at, node.level())).ok_or_else(damaged)?;
        let at = self.take(Heap::take_node)?;
        Image { level: level + 1, left: Some(old), ..Image::default() }.write(&self.part, at)?;
        self.mention(&[Mention::Node(at)])?;
        self.part.fence(Step::Node)?;
        self.part.store(ROOT_AT, at)?;
        self.part.persist(ROOT_AT, Step::Root)
    }

    /// Has `parent` lead to a node, or splits it where it has no room.
    fn adopt(&mut self, parent: u64, child: u64) -> io::Result<()> {
        let node = self.node(parent).ok_or_else(damaged)?;
        if node.is_full() {
            return self.split(parent, false);
        }
        let child = self.node(child).ok_or_else(damaged)?;
        let (low, prefix) = (self.cell(child.low()).ok_or_else(damaged)?, child.low_prefix());
        node.insert(self.place(node, &low.key), prefix, child.at)
    }

    /// Where an entry of this key goes.
    fn place(&self, node: Node<'_>, key: &[u8]) -> usize {
        let level = node.level();
        node.entries().take_while(|entry| self.order_of_entry(key, entry, level).is_gt()).count()
    }

    /// Splits a full node whose entries all count; the upper half's node is adopted, too.
    fn split(&mut self, at: u64, in_order: bool) -> io::Result<()> {
        let node = self.node(at).ok_or_else(damaged)?;
        let level = node.level();
        let entries: Vec<Entry> = node.entries().collect();
        let middle = if in_order { ENTRIES - 1 } else { ENTRIES / 2 };
        let first = entries[middle];
        let as_pair = |entry: &Entry| (entry.prefix, entry.pointer);
        let mut image = Image { level, sibling: node.sibling(), ..Image::default() };
        image.low_prefix = first.prefix;
        let mut low_key = Vec::new();
        match level {
            0 => {
                image.entries = entries[middle..].iter().map(as_pair).collect();
                low_key = self.cell(first.pointer).ok_or_else(damaged)?.key;
            }
            _ => {
                image.entries = entries[middle + 1..].iter().map(as_pair).collect();
                image.left = Some(first.pointer);
                image.low = self.node(first.pointer).ok_or_else(damaged)?.low();
            }
        }
        let new = self.take(Heap::take_node)?;
        if level == 0 {
            let lines = lines_of(low_key.len(), 0);
            let low = self.take(|heap| heap.take_cell(lines)).inspect_err(|_| {
                self.heap.give_node(new);
            })?;
            cell::write(&self.part, &low, &low_key, &[])?;
            image.low = low[0];
        } else {
            low_key = self.cell(image.low).ok_or_else(damaged)?.key;
        }
        image.write(&self.part, new)?;
        self.mention(&[Mention::Node(new)])?;
        self.part.fence(Step::Node)?;
        let node = self.node(at).ok_or_else(damaged)?;
        node.link(new)?;
        node.cut(middle)?;
        self.reach(&low_key, level).map(drop)
    }

    fn take<T>(&mut self, take: impl Fn(&mut Heap) -> Option<T>) -> io::Result<T> {
        if let Some(taken) = take(&mut self.heap) {
            return Ok(taken);
        }
        // What is held for a start from a checkpoint; that start has to walk, then.
        while self.journal.fits(0) != Fits::NotNeeded {
            self.overflow()?;
        }
        self.heap.forget();
        take(&mut self.heap).ok_or_else(full)
    }

    /// Mentions what an operation is about, durable with its next fence.
    fn mention(&mut self, mentions: &[Mention]) -> io::Result<()> {
        loop {
            match self.journal.fits(mentions.len() as u64) {
                Fits::Yes => break,
                Fits::NotNeeded => return Ok(()),
                Fits::No => self.overflow()?,
            }
        }
        mentions.iter().try_for_each(|mention| self.journal.put(&self.part, *mention))
    }

    /// Has `key` lead to `payload`, durable when this returns. Says what it led to before.
    pub fn put(&mut self, key: &[u8], payload: &[u8]) -> io::Result<Option<Cell>> {
        let lines = lines_of(key.len(), payload.len());
        let taken = self.take(|heap| heap.take_cell(lines))?;
        self.put_cell(&taken, key, payload).inspect_err(|error| {
            if error.kind() == io::ErrorKind::StorageFull {
                self.heap.give_cell(&taken); // nothing leads there yet
            }
        })
    }

    fn put_cell(&mut self, taken: &[u64], key: &[u8], payload: &[u8]) -> io::Result<Option<Cell>> {
        cell::write(&self.part, taken, key, payload)?;
        let at = taken[0];
        loop {
            let leaf = self.leaf_for(key)?;
            let node = self.node(leaf).ok_or_else(damaged)?;
            if let Some(entry) = self.find(node, key) {
                self.mention(&[Mention::Cell(at), Mention::Cell(entry.pointer)])?;
                self.part.fence(Step::Cell)?;
                let before = self.cell(entry.pointer);
                self.node(leaf).ok_or_else(damaged)?.update(entry.index, at)?;
                if let Some(before) = &before {
                    self.heap.give_cell(&before.lines);
                }
                return Ok(before);
            }
            let place = self.place(node, key);
            if node.is_full() {
                self.split(leaf, place == ENTRIES)?;
                continue;
            }
            self.mention(&[Mention::Cell(at)])?;
            self.part.fence(Step::Cell)?;
            let node = self.node(leaf).ok_or_else(damaged)?;
            node.insert(place, prefix_of(key), at)?;
            return Ok(None);
        }
    }

    /// Takes `key` out, durable when this returns. Says what it led to.
    pub fn remove(&mut self, key: &[u8]) -> io::Result<Option<Cell>> {
        let leaf = self.leaf_for(key)?;
        let node = self.node(leaf).ok_or_else(damaged)?;
        let Some(entry) = self.find(node, key) else { return Ok(None) };
        self.mention(&[Mention::Cell(entry.pointer)])?;
        self.part.fence(Step::Cell)?;
        let before = self.cell(entry.pointer);
        self.node(leaf).ok_or_else(damaged)?.remove(entry.index)?;
        if let Some(before) = &before {
            self.heap.give_cell(&before.lines);
        }
        Ok(before)
    }

    /// What can be taken, and what there is in all.
    pub fn room(&self) -> Room {
        self.heap.room()
    }

    /// The owner's word: up to where the tree holds the log.
    pub fn position(&self) -> u64 {
        self.part.load(POSITION_AT)
    }

    /// Sets it behind all changes so far. Until it is durable an older one may be found.
    pub fn set_position(&mut self, word: u64) -> io::Result<()> {
        self.part.store(POSITION_AT, word)?;
        self.part.flush(POSITION_AT, LINE, Step::Position)
    }

    /// Makes it durable.
    pub fn fence_position(&self) -> io::Result<()> {
        self.part.fence(Step::Position)
    }

    /// Whether a checkpoint would spare a start from looking at much.
    pub fn wants_checkpoint(&self) -> bool {
        self.journal.is_long()
    }

    /// What a checkpoint keeps that is made of the tree as it is now.
    pub fn snapshot(&mut self) -> Kept {
        Kept { next: self.journal.snapshot(), bits: self.heap.snapshot() }
    }

    /// That checkpoint is durable and the newest.
    pub fn keep(&mut self) -> io::Result<()> {
        self.heap.keep();
        match self.journal.keep() {
            true => self.set_overflow(0),
            false => Ok(()),
        }
    }
}
