//! Connections that speak RESP: the same worker, store, lanes and execution as memcached's; only
//! requests are read and replies written in another way. In the order of a request: [`consume`]
//! (one turn's input), [`request`] (one request; [`partial`]
//! where it has not arrived whole), then by what it asks: [`gets`], [`each`] (several keys),
//! [`store`] (a value), [`plain`] (one key), [`session`] (the connection and the server;
//! [`clients`], [`commands`] with [`docs`], [`info`], [`help`]), [`multi`] (transactions),
//! [`watch`] (those that watch keys, and what changes several keys in one moment, by way
//! of [`scratch`]). [`asking`] is what they are executed in, [`table`] has the commands,
//! [`options`] reads what stands behind keys and values, [`state`] is what a connection keeps.
//!
//! A request is executed by who received it: in `lanes` its connection moves to a large worker
//! where it is large, as memcached's do; in the rival designs, which hand requests over, nothing
//! is handed over of RESP. Any worker may use any store, so this is routing and never safety.

pub mod alone;
pub mod asking;
pub mod clients;
pub mod commands;
pub mod consume;
pub mod docs;
pub mod each;
pub mod gets;
pub mod glob;
pub mod help;
pub mod info;
pub mod kept;
pub mod multi;
pub mod object;
pub mod one;
pub mod options;
pub mod partial;
pub mod plain;
pub mod request;
pub mod scan;
pub mod scratch;
pub mod session;
pub mod state;
pub mod store;
pub mod table;
pub mod values;
pub mod watch;
