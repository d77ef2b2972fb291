//! The server: bytes in, parse, dispatch by size, execute, reply, and once per epoch the control
//! loop (Minos §3.1).
//!
//! The rooms are in the order in which a request travels. [`boot`] gives every worker its thread,
//! and [`worker`] turns the wheel. [`access`] lets connections in, and [`stream`] brings their
//! bytes in ([`stream::receive`]) and replies out ([`stream::output`]). [`request`] says where each
//! request goes ([`request::dispatch`]; [`request::gets`] for reads). [`execute`] carries it out,
//! [`lanes`] moves what is large by slices, [`jobs`] takes a request to another worker, and
//! [`durable`] executes what outlives the server. [`control`] makes the plan, and [`hot`] says
//! whose a key is that everybody asks for. [`mod@binary`] serves memcached's binary protocol,
//! [`mod@resp`] Redis' clients, [`udp`] whoever comes by datagrams.
//!
//! A worker's parts do not know each other: [`stream::streams`] has its connections, [`udp`] its
//! datagrams, [`jobs`] what passes between workers. Each is given the worker's [`mod@core`] for a
//! call. [`counts`] is what they count, and [`stats`], [`latency`] and [`event_log`] tell it.
#![forbid(unsafe_code)]

pub mod access;
pub mod auth;
pub mod binary;
pub mod boot;
pub mod built;
#[cfg(feature = "af-xdp")]
pub mod bypass;
#[cfg(not(feature = "af-xdp"))]
#[path = "bypass_absent.rs"]
pub mod bypass;
pub mod clock;
pub mod control;
pub mod core;
pub mod counts;
pub mod durable;
pub mod event_log;
pub mod execute;
pub mod hot;
pub mod idle;
pub mod jobs;
pub mod kernel;
pub mod lanes;
pub mod latency;
pub mod request;
pub mod resp;
pub mod settings;
pub mod shared;
pub mod stats;
pub mod stream;
pub mod udp;
pub mod worker;
