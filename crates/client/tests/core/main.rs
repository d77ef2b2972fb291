//! Tests of the core through its public face, in simulated time.

mod lossy;
mod mix;
mod model;
mod rules;
mod several;
