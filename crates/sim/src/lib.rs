//! The simulator: a machine of n workers driven by the very policies that the server runs.
//!
//! [`workload`] draws requests, of files too ([`inputs`]), by bursts or one by one ([`bursts`]);
//! `sample` is what draws say of a mix;
//! [`machine`] serves them in the order that [`events`] says, and [`stats`] counts latencies;
//! [`bounds`] are what queueing alone allows. [`study`] runs many points with many seeds; each of
//! [`scenarios`] is one figure of a paper or one question of ours, [`sweep`] is any grid of points,
//! and [`plan`] is how many cores each of them needs ([`search`]). [`row`], [`plot`] and [`report`]
//! show what came out; [`cli`], [`run_cli`] and [`plan_cli`] are the command. Time in it is
//! counted, never measured: the same seed gives the same run on any machine.
#![forbid(unsafe_code)]

mod arguments;
pub mod bounds;
pub mod bursts;
pub mod cli;
pub mod events;
pub mod inputs;
pub mod machine;
pub mod plan;
pub mod plan_cli;
pub mod plot;
pub mod report;
pub mod row;
pub mod run_cli;
mod sample;
pub mod scenarios;
pub mod search;
pub mod stats;
pub mod study;
pub mod sweep;
pub mod workload;
