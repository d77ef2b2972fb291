//! Whole servers over networks, devices and clocks of memory, and the execution of requests alone.
//! One program, because each that is linked with the whole server costs seconds of every build;
//! those that have folders of their own are apart.

/// What the clients of several transports ask.
#[path = "../../../client/tests/core/mix.rs"]
mod mix;

mod afar_client;
mod auth;
mod backlog;
mod backup;
mod client_charges;
mod client_limits;
mod clients;
mod durable;
mod durable_admin;
mod durable_before;
mod durable_copies;
mod durable_crash;
mod durable_ends;
mod durable_evicted;
mod durable_groups;
mod durable_interval;
mod durable_long;
mod durable_meetings;
mod durable_memory;
mod durable_pipeline;
mod durable_rest;
mod edges;
mod execute_edges;
mod execute_model;
mod execute_races;
mod hostile;
mod jobs;
mod joins;
mod latency;
mod listener_limits;
mod long_answers;
mod memory_bound;
mod multiget;
mod noted;
mod offers;
mod pace;
mod per_address;
mod read_only;
mod readings;
mod samples;
mod sandbox;
mod scrape;
mod shm_client;
mod stale_plan;
mod steps;
mod tls;
mod udp;
mod udp_admin;
mod udp_client;
mod udp_hostile;
mod udp_stopping;
mod watch;
