//! Authentication: [`users`] and their passwords, [`limit`]s for clients that guess, [`gate`],
//! which has both, and connections that are [`unproven`]. [`sasl`] is authentication in the binary
//! protocol.

pub mod gate;
mod heard;
pub mod limit;
pub mod sasl;
pub mod unproven;
pub mod users;
