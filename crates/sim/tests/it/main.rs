//! The simulator from outside, by what it is held to. One program: the simulator is linked once.

mod drawn;
mod exact;
mod inputs;
mod plan;
mod rivals;
mod rows;
mod shared_policy;
mod streams;
