//! Connections that speak memcached's binary protocol: the same worker, store, lanes and execution
//! as the text protocol's; only requests are read and replies written in another way. In the order
//! of a request: [`consume`] (one turn's input), [`request`] (one request), then by what it asks:
//! [`gets`] (values), [`store`] (a [`value`] to be stored), [`plain`] (one key, or none); [`kept`]
//! has the requests that the durable executor executes where items are kept durably. Where there
//! are users, a connection authenticates before all that, by [`crate::auth::sasl`].
//!
//! A request is executed by who received it: in `lanes` its connection moves to a large worker
//! where it is large; in the rival designs, which hand requests over, nothing is handed over of the
//! binary protocol. Any worker may use any store, so this is routing and never safety.

pub mod consume;
pub mod gets;
pub mod kept;
pub mod plain;
pub mod request;
pub mod store;
pub mod value;
