//! This is a persistent B+-tree in byte-addressable memory: FAST&FAIR (Hwang et al., FAST'18,
//! "Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree").
//!
//! Nodes change in place by stores of 8 bytes, each of which leaves a tree that reads right
//! ([`node`]); a node splits by its sibling pointer (§4, "FAIR"). There is no log and no copy of a
//! node. What a loss of power interrupted is ended by the next writer that comes by ("lazy
//! recovery"), so that opening a tree looks at none of it.
//!
//! Where we depart from the paper:
//! - Keys of any length lie out of line, with what they lead to, in a [`cell`] that is written
//!   before an entry leads there and never changed. An entry has the key's first 8 bytes.
//! - One lock around the tree, shared by readers. The paper's readers take none; cells are used
//!   again, so they would need to announce themselves, and here one thread changes the index at a
//!   time anyway, whoever settles a group. Readers tolerate what a loss of power left all the same.
//! - A node that becomes empty stays; nodes are never merged.
//! - Memory: which lines are free is known in memory ([`heap`]), kept by checkpoints, and made
//!   good by a [`journal`] of mentions; so a node or cell that was taken when the power failed is
//!   found without a walk over the tree.
//!
//! It counts in bytes from the tree's front; pointers are such offsets.

mod cell;
#[cfg(test)]
mod explore_tests;
mod heap;
mod journal;
mod node;
mod part;
mod tree;
mod walk;

pub use cell::{Cell, LINES_MAX, lines_of};
pub use heap::{Bits, Room};
pub use part::Part;
pub use tree::{Change, FairTree, Kept};
