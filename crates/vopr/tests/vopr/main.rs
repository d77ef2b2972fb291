//! The simulation's own tests: that its judges judge, and that a seed is the same run.

mod backup;
mod encrypted;
mod scrub;
mod shm;
