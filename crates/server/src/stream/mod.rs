//! Connections as streams of bytes: what came in, what goes out, and whose turn it is.

pub mod backlog;
pub mod connection;
pub mod input;
pub mod output;
pub mod places;
pub mod protocol;
pub mod receive;
pub mod step;
pub mod streams;
pub mod wire_wait;
