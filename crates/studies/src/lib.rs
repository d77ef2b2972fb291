//! Studies, which no user of a server needs: the papers' experiments on servers that run
//! ([`experiment`]), and what requests in memory cost in verbs ([`verbs`]), beside the designs that
//! HERD is compared with ([`rivals`]). They use the load generator and its pair runner, which know
//! nothing of them.
#![forbid(unsafe_code)]

pub mod command;
pub mod experiment;
pub mod rivals;
pub mod verbs;
