//! Busy polling of an AF_XDP socket (Linux 5.11): whoever asks it for packets has the card's driver
//! look for some within that call. Otherwise the driver looks after an interrupt, and on the CPU
//! that this came to.
//!
//! How long interrupts are put off for it is said to the interface (`napi_defer_hard_irqs`,
//! `gro_flush_timeout`), and none of ours to set.
#![allow(unsafe_code)] // of nix's macros, which make the calls

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use std::io;
use std::os::fd::AsFd;

/// How long a call may look, in microseconds. One that is not to wait looks once, whatever this
/// says; without it, not at all.
const LOOK_MICROS: usize = 20;
/// Packets that one look takes at most: what a driver takes at a time otherwise, too.
const PACKETS: usize = 64;

sockopt_impl!(
    /// The driver is looked at by calls, and its interrupts are put off as long as these come.
    Prefer,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_PREFER_BUSY_POLL,
    bool
);
sockopt_impl!(
    /// Calls look at the driver, so many microseconds.
    Look,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_BUSY_POLL,
    usize
);
sockopt_impl!(
    /// And take so many packets.
    Budget,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_BUSY_POLL_BUDGET,
    usize
);

/// Have calls on `socket` look at the driver. It takes CAP_NET_ADMIN.
pub fn prefer(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, Prefer, &true)?;
    setsockopt(socket, Look, &LOOK_MICROS)?;
    setsockopt(socket, Budget, &PACKETS)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Any socket takes the options, from whoever has the right.
    #[test]
    fn the_options_are_taken_or_refused_with_the_reason() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let refused = prefer(&socket).err().and_then(|error| error.raw_os_error());
        assert!(matches!(refused, None | Some(libc::EPERM | libc::ENOPROTOOPT)), "{refused:?}");
    }
}
