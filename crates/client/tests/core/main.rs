//! Tests of the core through its public face, in simulated time.

mod lossy;
mod model;
mod rules;
