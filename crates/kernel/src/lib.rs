//! The lane in the kernel: GETs answered below the socket (Hippos §3), and keys steered to the
//! socket of their owner (MICA §4.1.2, KeySched §2), by BPF programs.
//!
//! - [`layout`]: the mapped arrays, shared with the programs in `bpf/`.
//! - [`probe`]: which of the layers this machine offers, what it lacks, and what to do.
//! - `mapped` (the one place with `unsafe`): arrays of the kernel's, mapped here.
//! - `lane`, `steer`: the two programs, loaded, configured, attached, counted. Both need the
//!   feature `kernel`.
//! - [`service`], [`steering`]: the same as a server uses them, in any build.
//! - `redirect`: the program that leads datagrams past the stack, to AF_XDP sockets; only with the
//!   feature, too.
//!
//! It departs from Hippos, whose kernel module keeps a cache of its own: here the program reads the
//! very bytes that user space owns, under the version of the bucket, so nothing must be
//! invalidated. User space is the only writer of everything but the hit marks. Links are file
//! descriptors: whatever ends the process detaches the programs.
//!
//! It knows the layouts of `store`; knows no protocol beyond what `bpf/request.h` parses, and no
//! clock: the difference between wall clock and time since boot is given.

/// Functions of what has no value: whoever calls one would have to hold a value.
#[cfg(not(feature = "kernel"))]
macro_rules! none {
    (
        $($(#[$what:meta])* fn $name:ident(&self $(, $given:ident: $kind:ty)*) $(-> $result:ty)?;)*
    ) => {
        $($(#[$what])* pub fn $name(&self $(, $given: $kind)*) $(-> $result)? { match *self {} })*
    };
}

mod capabilities;
mod counts;
mod error;
#[cfg(feature = "kernel")]
pub mod ethtool;
#[cfg(feature = "kernel")]
mod interfaces;
#[cfg(feature = "kernel")]
mod lane;
pub mod layout;
#[cfg(feature = "kernel")]
mod mapped;
pub mod probe;
#[cfg(feature = "kernel")]
mod program;
mod realtime;
#[cfg(feature = "kernel")]
pub mod redirect;
pub mod service;
#[cfg(feature = "kernel")]
mod steer;
pub mod steering;

pub use capabilities::drop_capabilities;
pub use counts::{Counts, Outcome, SteerCounts};
pub use error::Error;
#[cfg(feature = "kernel")]
pub use lane::{Answered, Lane, Memory, Program, Room};
#[cfg(feature = "kernel")]
pub use mapped::Mapped;
#[cfg(feature = "kernel")]
pub use steer::{Steer, SteerTable};
