//! The load generator against a scripted server.
#![allow(clippy::unwrap_used)]

mod datagram;
mod floor;
mod invocation;
mod scripted;
mod scripted_udp;
mod sender;
