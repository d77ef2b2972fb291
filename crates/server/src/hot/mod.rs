//! Hot keys, live (KeySched §2, after `policy::hot`): found where they are executed, given to the
//! least loaded worker slot by slot, looked up by every worker that receives a request.
//!
//! Each worker counts what it executes in a sketch of its own. Under exclusive access all requests
//! for a cold key are executed by its owner, so that one sketch knows them all, and nobody shares a
//! cache line to count; a sketch that all workers wrote would have its busiest lines exactly where
//! the hottest keys are, and merging one per worker would cost more than it counts, at 2 000
//! requests a slot. Reads that are spread over the workers (CREW) are counted by whoever executes
//! them: one worker's share makes a key worth counting everywhere, and the next slot tells.
//!
//! [`board`] is what the workers share: who the hot keys of the slot belong to, posted as a notice
//! that is read without waiting; how often each worker executed each of them; and the scheduler,
//! which whoever notices that a slot is over turns, if nobody else is about to. [`local`] is a
//! worker's own part, [`turn`] how it uses both, [`window`] what the statistics remember, [`slots`]
//! which slots of the kernel's steering table follow the hot keys.
//!
//! Off, [`sample`] tells which keys are asked for most, and that is all.

pub mod board;
pub mod local;
pub mod sample;
pub mod slots;
pub mod turn;
pub mod window;
