//! Who may ask: [`users`] and their passwords, [`limit`]s for those who guess, [`gate`], which is
//! both, and connections that are [`unproven`].

pub mod gate;
pub mod limit;
pub mod unproven;
pub mod users;
