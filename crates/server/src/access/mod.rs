//! Who may come in and how much they may ask: connections are accepted, recognised, counted by
//! address and kept within their limits.

pub mod accept;
pub mod client_limits;
pub(crate) mod held;
pub(crate) mod limited;
pub mod listener_rules;
pub mod per_address;
pub(crate) mod read_only;
pub mod recognise;
pub mod usher;
pub mod welcome;
