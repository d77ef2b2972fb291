//! The server: bytes in, parse, dispatch by size, execute, reply, and once per epoch the control
//! loop (Minos §3.1). The files read in the order a request travels: [`worker`] turns the wheel,
//! [`receive`] brings bytes in, [`dispatch`] says where ([`gets`] for reads), [`execute`]
//! does it, [`output`] takes the reply out, [`control`] makes the plan; [`forward`], [`handoff`]
//! and [`jobs`] are the way of a request that another worker executes, [`durable`] of one that
//! concerns what outlives the server; [`recognise`] tells which protocol a client speaks,
//! [`mod@binary`] serves memcached's binary one, [`mod@resp`] Redis' clients; [`hot`] says whose a
//! key is that everybody asks for. [`boot`] gives every worker its thread.
//!
//! A worker's parts do not know each other: [`streams`] has its connections, [`udp`] its datagrams,
//! [`jobs`] what passes between workers. Each is given the worker's [`mod@core`] for a call.
#![forbid(unsafe_code)]

pub mod accept;
pub mod answer;
pub mod askers;
pub mod auth;
pub mod backlog;
pub mod batches;
pub mod binary;
pub mod boot;
pub mod built;
#[cfg(feature = "af-xdp")]
pub mod bypass;
#[cfg(not(feature = "af-xdp"))]
#[path = "bypass_absent.rs"]
pub mod bypass;
pub mod client_limits;
pub mod clients;
pub mod clock;
pub mod connection;
pub mod control;
pub mod core;
pub mod counters;
pub mod cpu_time;
pub mod dispatch;
pub mod domains;
pub mod durable;
pub mod enqueue;
pub mod event_log;
pub mod execute;
pub mod forward;
pub mod gets;
pub mod hand_over;
pub mod handoff;
mod held;
pub mod hot;
pub mod idle;
pub mod input;
pub mod jobs;
pub mod kernel;
pub mod lanes;
pub mod latency;
mod limited;
pub mod listener_rules;
pub mod long_answer;
mod long_steps;
pub mod meta_gets;
mod note;
pub mod offer;
pub mod output;
pub mod per_address;
pub mod perform;
pub mod places;
pub mod plain;
pub mod protocol;
mod read_only;
pub mod receive;
pub mod recognise;
pub mod remote;
pub mod requests;
pub mod resp;
pub mod settings;
pub mod shared;
pub mod sized;
mod slices;
pub mod slow_log;
mod sought;
pub mod stats;
pub mod step;
pub mod streams;
mod totals;
pub mod udp;
pub mod usher;
pub mod watch;
mod watchers;
mod watching;
pub mod welcome;
pub mod wire_wait;
pub mod worker;
