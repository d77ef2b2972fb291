//! The load generator: what is asked ([`workload`], [`arrivals`]), how it is sent ([`sender`]),
//! what is recorded ([`recorder`]), whether it may be believed ([`verdict`]), how it is shown
//! ([`report`]); the pair runner that compares servers ([`pairs`]), and a server that does nothing,
//! to compare with ([`floor`]).
//!
//! After the evaluation of Minos (§5), with two differences: TCP and unix sockets beside UDP
//! ([`datagram`]), and latency from the time a request was due instead of the time it left. It
//! speaks to any memcached, and enough RESP to compare with Redis. Every value is checked byte by
//! byte.
#![forbid(unsafe_code)]

pub mod admin;
pub mod arguments;
pub mod arrivals;
pub mod beside;
pub mod cli;
pub mod command;
pub mod compare;
pub mod connection;
pub mod cpu;
pub mod datagram;
pub mod dialect;
pub mod floor;
pub mod laps;
pub mod leftover;
pub mod output;
pub mod pairs;
pub mod phases;
pub mod plot;
pub mod prefill;
pub mod random;
pub mod recorder;
pub mod report;
pub mod run;
pub mod sender;
pub mod service;
pub mod storm;
pub mod trace;
pub mod values;
pub mod verdict;
pub mod watch;
pub mod workload;
pub mod zipf;
