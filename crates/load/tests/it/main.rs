//! The load generator against a scripted server.
#![allow(clippy::unwrap_used)]

mod invocation;
mod scripted;
mod sender;
