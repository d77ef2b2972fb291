//! Frames as they are, to a card and from one.

use crate::hosts::Host;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType};
use nix::sys::socket::{recv, sendto, socket};
use std::os::fd::{AsRawFd, OwnedFd};

/// Sends frames by one interface.
pub struct Raw {
    socket: OwnedFd,
    link: LinkAddr,
}

impl Raw {
    pub fn open(host: &Host, interface: &str) -> Raw {
        host.run(|| {
            let mut all = getifaddrs().expect("interfaces");
            let link = all.find_map(|one| {
                let link = *one.address.as_ref()?.as_link_addr()?;
                (one.interface_name == interface).then_some(link)
            });
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket =
                socket(AddressFamily::Packet, SockType::Raw, flags, None).expect("root may");
            Raw { socket, link: link.expect("it is there") }
        })
    }

    pub fn send(&self, frame: &[u8]) {
        loop {
            match sendto(self.socket.as_raw_fd(), frame, &self.link, MsgFlags::empty()) {
                Ok(_) => return,
                // The card has no room for it now.
                Err(Errno::ENOBUFS | Errno::EINTR) => std::thread::yield_now(),
                Err(why) => panic!("sending {} bytes: {why}", frame.len()),
            }
        }
    }
}

/// Sees the frames that come to a host.
pub struct Watch(OwnedFd);

impl Watch {
    pub fn open(host: &Host) -> Watch {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = (AddressFamily::Packet, SockType::Raw);
        let socket = host.run(|| socket(kind.0, kind.1, flags, SockProtocol::EthAll));
        Watch(socket.expect("root may"))
    }

    /// The next one, if there is one.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 2048];
        match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Ok(length) => {
                bytes.truncate(length);
                Some(bytes)
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => None,
            Err(why) => panic!("watching: {why}"),
        }
    }
}
