//! UDP: requests that come in datagrams, and their replies (Minos §4.1; the frames are memcached's,
//! doc/protocol.txt "UDP protocol", and [`laneway_wire::udp`] says what we add).
//!
//! The files read as a request travels. [`receive`]: a worker reads its own queues in bursts of 32,
//! a small worker also 32/n_s from each large worker's, and large workers read none (Minos §3.1).
//! [`request`]: parse in place, dispatch by size, execute into the burst's [`batch`] of replies,
//! which one call sends. [`assemble`]: frames of longer messages go unparsed to the one worker that
//! puts them together, which serves what is [`whole`]. [`deliver`] sends replies. [`lent`]:
//! messages that a client lends, by whom [`lending`] says, into memory that is [`spare`]. [`send`]:
//! large values go in and out slice by slice, by a send buffer of their own, or are [`placed`] in
//! memory that their client lends. [`guard`] bounds what strangers may cause, [`answers`] what was
//! carried out once, [`shared`] is what the workers share, [`counts`] what `stats udp` tells,
//! [`deaf`] what the log is told.
//!
//! Departs from the paper: large transfers go in slices, also where a worker serves both lanes;
//! frames that are missing are asked for, both ways; and where the datagrams of a request lie in
//! several trains, the worker that puts them together is chosen by a hash of peer and request.
//!
//! Nothing here waits: what finds a full ring is thrown away and counted, as a network would; what
//! finds a full send buffer stays until there is room.

pub mod ahead;
pub mod answers;
pub mod assemble;
pub mod batch;
pub mod buffers;
pub mod counts;
mod deaf;
pub mod deliver;
pub mod gather;
pub mod guard;
pub mod lending;
pub mod lent;
mod passed_over;
mod placed;
pub mod receive;
pub mod reply;
pub mod request;
pub mod send;
pub mod shared;
mod spare;
pub mod state;
pub mod whole;
