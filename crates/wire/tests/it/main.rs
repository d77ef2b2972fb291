//! The wire formats from outside: rows, and what holds of every input. One program: the crate is
//! linked once.

#[path = "../common/mod.rs"]
mod common;

mod binary;
mod frames;
mod properties;
mod replies;
mod resp;
mod vectors;
