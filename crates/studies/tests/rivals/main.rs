//! The designs that HERD is compared with: what they cost, what their clients make of a server that
//! is halfway through a write, and what becomes of bad input.
//!
//! Another seed: `LANEWAY_SEED=7 cargo test -p laneway-studies --test rivals`.

mod bad_input;
mod costs;
mod halfway;
mod rig;
