//! One round trip per request (HERD §4): the client writes its request into memory that the server
//! polls, the server answers by a message of its own. Neither asks the other's kernel.
//!
//! - [`contract`]: what a kind of such memory offers: `post_request` and `pump` on the client's
//!   side, `poll_slots`, `reply` and `pump` on the server's, and the verbs that a client counts.
//! - [`shmring`]: the kind over shared memory, for clients on the same host: [`layout`] says where
//!   what stands, [`door`] how a client gets its region, [`region`] is the server's side of one,
//!   [`lenders`] what of it carries long messages, by the account of [`reply_places`].
//! - [`verbs`]: the kind over RDMA, for clients on other hosts, with the feature `verbs`; without
//!   it the same names stand there, and whoever asks is told that. [`remote`] is what both builds
//!   say.
//! - [`long`]: what is too long for a slot or a datagram, between hosts: one side says where it
//!   lies, the cards move it, and a seal says whether it arrived.
//!
//! It departs from HERD: slots carry the lines of memcached's protocol behind the eight bytes of
//! its UDP frames, so that one grammar serves every way in; a request's last word, not its key,
//! says that it is whole; and a large value does not go through slots: its client lends the memory
//! where it lies ([`contract::Lent`]), and the server copies it slice by slice; a long reply is
//! written into memory that its client lends ([`contract::Placed`]), and one datagram says so, in
//! shared memory as over RDMA.
//!
//! Whatever a client writes is hostile: it is copied once and judged by the copy. Nothing here
//! reads a clock, starts a thread or knows the protocol. `unsafe` is in [`mapped`] alone, and in
//! four files of [`verbs`].

pub mod contract;
pub mod door;
pub mod layout;
pub mod lenders;
pub mod long;
pub mod mapped;
pub mod place_set;
mod polled;
pub mod region;
pub mod remote;
pub mod reply_places;
pub mod shmring;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "absent.rs"]
pub mod verbs;

/// Whether this build has clients on other hosts ([`verbs`]).
pub const HAS_VERBS: bool = cfg!(feature = "verbs");
