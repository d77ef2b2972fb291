//! AF_XDP sockets (`Documentation/networking/af_xdp.rst` of the kernel): packets of one RX queue of
//! a network card come into frames of memory that this process shares with the kernel, and leave by
//! frames, without the kernel's network stack.
//!
//! - [`packet`]: Ethernet, IP and UDP headers: what may be believed of a frame that came, and the
//!   headers of one that leaves.
//! - [`queue`]: a queue's two halves, receiving and sending: which frames lie in which ring.
//! - `frames`: which frames are out of our hands, so that each is in exactly one.
//! - [`socket`]: a socket for a queue, zero-copy where the driver can.
//! - [`twin`]: the kernel's side of the rings in software, for tests that need neither a kernel nor
//!   privileges.
//! - [`mapped`]: the memory of rings and frames, the only place of this crate with `unsafe` but for
//!   the twin's calls into it.
//!
//! Nothing outside this crate reaches a ring but by the halves: whoever put a frame's address into
//! one while he holds the frame would have the kernel write where he reads.
//!
//! The rings themselves are `laneway_sync::descriptors`. Nothing here reads a clock, waits, starts
//! a thread or knows what a datagram says; which packets come at all is decided by a BPF program of
//! somebody else's. Unit: bytes.

mod frames;
pub mod mapped;
pub mod packet;
pub mod queue;
pub mod socket;
pub mod twin;
