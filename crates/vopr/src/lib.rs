//! Runs the whole server under simulation.
//!
//! The server is that of [`laneway_rig`], without threads, kernel or time: its workers and its
//! durable executor are stepped by hand over networks and disks in memory, so that a run repeats
//! exactly from its seed.
//!
//! [`swarm`] draws what a run looks like, [`world`] carries the run out, [`life`] is one life of
//! the server in it, `steps` has the single steps of everybody, and [`run`] repeats and shrinks a
//! run that failed.
#![forbid(unsafe_code)]

pub mod ask;
pub mod asking;
pub mod backup;
mod backup_steps;
mod beside_steps;
pub mod binary;
pub mod books;
mod check;
pub mod counts;
pub mod datagrams;
pub mod devices;
mod drops;
mod effects;
pub mod encryption;
pub mod hostile;
mod ids;
pub mod judge;
pub mod life;
pub mod media;
pub mod meta;
pub mod model;
pub mod operator;
pub mod regressions;
pub mod request;
pub mod resp;
mod rests;
pub mod run;
mod scene;
pub mod scrub;
pub mod shm;
pub mod shm_hostile;
mod shm_steps;
mod steps;
pub mod streams;
pub mod swarm;
pub mod users;
pub mod watcher;
pub mod wire;
pub mod world;
