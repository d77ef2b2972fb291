//! Who may ask: [`users`] and their passwords, [`limit`]s for those who guess, [`gate`], which is
//! both, and connections that are [`unproven`]; [`sasl`] is how the binary
//! protocol says it.

pub mod gate;
mod heard;
pub mod limit;
pub mod sasl;
pub mod unproven;
pub mod users;
