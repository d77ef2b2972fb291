//! The binary as it is run, by what is asked of it. One program, because each that is linked with
//! the whole server costs seconds of every build.

#[path = "../rig/mod.rs"]
mod rig;

mod activation;
#[cfg(feature = "research")]
mod adapt;
mod admin;
mod auth;
mod backup;
mod client;
mod config;
mod dashboard;
mod features;
mod listeners;
mod numa;
mod numa_stats;
mod output;
mod packaging;
mod process;
mod rdma;
mod read_only_mount;
mod refusals;
mod resp;
mod sandbox;
mod serve;
mod shm;
mod slow;
mod supervised;
mod tier;
mod tier_folder;
mod tls;
mod top;
mod udp;
