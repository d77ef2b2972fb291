//! The store on simulated media, by what is asked of it. One program: its parts are compiled once.

#[path = "../common/mod.rs"]
mod common;
#[path = "../golden/mod.rs"]
mod golden;
#[path = "../timed/mod.rs"]
mod timed;

mod adapts;
mod backup;
mod backup_room;
mod compression;
mod condense;
mod crash;
mod damage;
mod due;
mod evict;
mod expiry;
mod fair;
mod full_log;
mod groups;
mod grow;
mod index_memory;
mod lost_log;
mod no_space;
mod overlap;
mod pace;
mod refusals;
mod restore;
mod reuse;
mod scrub;
mod slide_12;
mod split;
mod starts;
mod store;
mod tally;
mod tools;
mod ycsb;
