//! What is counted while requests are served, by worker and by client, and read by whoever asks.

pub mod askers;
pub mod clients;
pub mod counters;
pub mod cpu_time;
pub(crate) mod totals;
pub mod watch;
