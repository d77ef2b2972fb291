//! memcached's UDP frames, and what we add to them: cutting a message into frames, putting one
//! together again, and asking for the frames that are missing.
//!
//! Pure: knows no socket, reads no clock (time is an argument, in nanoseconds), and names a message
//! by whatever key its caller chooses: peer and request id on a server, request id on a client.
//!
//! - [`header`]: the eight bytes in front of every datagram (memcached doc/protocol.txt, "UDP
//!   protocol");
//! - [`frames`]: a message cut into frames, without copying it;
//! - [`reassembly`]: frames put together in bounded memory, whatever order they come in;
//! - [`resend`]: naming frames that are missing;
//! - [`retain`]: what was sent, kept for a while in case it is asked for again.

pub mod frames;
pub mod header;
pub mod reassembly;
pub mod resend;
pub mod retain;

pub use frames::{Message, Parts, TRAIN_BYTES_MAX, TRAIN_FRAMES_MAX};
pub use header::*;
pub use reassembly::{Reassembly, Refused, Taken, Whole};
pub use resend::{Gap, gaps};
pub use retain::Retained;
