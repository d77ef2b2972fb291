//! The designs that HERD is compared with (HERD §5.1), in code: what a GET and a PUT cost when
//! clients READ the server's memory, or when messages are SENT both ways. For experiments and
//! tests: no server of ours speaks any of this.
//!
//! | design | GET | PUT |
//! |---|---|---|
//! | `herd` | WRITE of the request, SEND of the reply | the same |
//! | `send` | SEND, SEND | the same |
//! | `pilaf` | READs of buckets until the key's is found, READ of what it points at | SEND, SEND |
//! | `farm` | one READ of six slots with their values | WRITE, WRITE |
//! | `farm-var` | READ of six slots, READ of the value that one points at | WRITE, WRITE |
//!
//! What travels how is in [`design`]; [`tally`] counts it as it goes. [`record`] is what stands in
//! memory that clients READ, [`opened`] that memory. [`cuckoo`], [`hopscotch`] and [`extents`]
//! belong to the server, [`lookup`] to the client; [`message`] is what they say to each other where
//! they do, [`server`] and [`client`] are the two ends.
//!
//! It departs from HERD, whose emulations of Pilaf and FaRM have no store behind them: they READ as
//! many bytes as the designs would, from anywhere. Here are the indexes themselves, so that probes
//! are counted instead of assumed and a READ that meets a PUT is seen to be torn. It departs from
//! the designs where the module concerned says so; in all of them a miss is believed when the same
//! was seen twice, and items are not deleted.
//!
//! It knows no clock and no thread: both ends take turns.

pub mod client;
pub mod cuckoo;
pub mod design;
pub mod extents;
pub mod hopscotch;
pub mod lookup;
pub mod message;
pub mod opened;
pub mod record;
pub mod server;
pub mod tally;
