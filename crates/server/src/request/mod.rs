//! Requests of every text protocol: what they ask, who serves them, and the steps from a parsed
//! request to its reply.

pub mod batches;
pub mod dispatch;
pub mod forward;
pub mod gets;
pub mod meta_gets;
pub mod perform;
pub mod plain;
pub mod requests;
pub mod sized;
pub(crate) mod sought;
