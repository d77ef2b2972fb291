//! Messages that are too long for a slot or a datagram, between a client and a server on different
//! hosts: one side says where the bytes lie, and the cards move them. (HERD §4 leaves both
//! directions open.)
//!
//! - **Replies** are written into memory that the client lends at the greeting; behind the last
//!   WRITE one datagram says where: a [`sealed_descriptor`], with a number and a seal over every
//!   byte.
//! - **Requests** lie in memory that the server may READ, or were written by the client into
//!   memory that the server granted at the greeting; what stands in the slot is a sealed
//!   descriptor, too.
//!
//! [`ledger`] says who holds which bytes and until when; [`rendezvous`] is the server's side of one
//! client, slice by slice, over any [`rendezvous::Carrier`]: a card, or in tests [`twin`], which
//! loses; [`stage`] has what is on its way out.
//! Whoever opens a sealed descriptor copies it once and judges the copy by its seal; what is torn,
//! late or overwritten is as if it had not come, and goes in frames. So nothing depends on a write
//! that arrived, on memory that was free, or on what the other side says.
//!
//! It knows no card, no clock (time is an argument, in nanoseconds) and no request.

pub mod ledger;
pub mod rendezvous;
pub mod sealed_descriptor;
pub mod stage;
#[doc(hidden)]
pub mod twin;
