//! What a program must know of the interfaces it is attached to: their addresses, who is on their
//! links, and how long a packet may be. Read in the calling thread's network namespace.

use crate::error::Error;
use crate::layout::{Interface, Range};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;
use std::net::IpAddr;

/// What an interface that does not tell its MTU can carry in any case: IPv6 asks for it.
const MTU_BYTES_LEAST: u32 = 1280;

/// Several interfaces together.
#[derive(Debug)]
pub struct Interfaces {
    /// Their addresses, each with the prefix of its link.
    pub links: Vec<Range>,
    /// Each by its number and Ethernet address.
    pub interfaces: Vec<Interface>,
    /// The least of their MTUs.
    pub mtu_bytes: u32,
}

/// Look at the interfaces of these names, each of which must be there.
pub fn look(names: &[String]) -> Result<Interfaces, Error> {
    let what = "looking for the kernel lane's interfaces";
    let all: Vec<_> = getifaddrs().map_err(|why| Error::new(what, &why))?.collect();
    let (mut links, mut interfaces) = (Vec::new(), Vec::new());
    for name in names {
        if !all.iter().any(|one| one.interface_name == *name) {
            return Err(absent(&format!("--kernel-lane {name}"), &all));
        }
        for one in all.iter().filter(|one| one.interface_name == *name) {
            interfaces.extend(link(one));
            let (Some(address), Some(mask)) = (one.address.as_ref(), one.netmask.as_ref()) else {
                continue;
            };
            if let (Some(address), Some(mask)) = (ip(address), ip(mask)) {
                links.push(Range { address, prefix_bits: leading_ones(mask) });
            }
        }
    }
    let mtu_bytes = names.iter().map(|name| mtu(name)).min().unwrap_or(MTU_BYTES_LEAST);
    Ok(Interfaces { links, interfaces, mtu_bytes })
}

fn absent(what: &str, all: &[InterfaceAddress]) -> Error {
    let mut there: Vec<&str> = all.iter().map(|one| &one.interface_name[..]).collect();
    there.sort_unstable();
    there.dedup();
    Error::said(what, format!("there is no interface of that name; there are {}", there.join(", ")))
}

/// One interface by its name, which must be there and have an Ethernet address.
pub fn look_at(name: &str) -> Result<Interface, Error> {
    let what = format!("--af-xdp {name}");
    let all: Vec<_> = getifaddrs().map_err(|why| Error::new(&what[..], &why))?.collect();
    let mut here = all.iter().filter(|one| one.interface_name == name).peekable();
    if here.peek().is_none() {
        return Err(absent(&what, &all));
    }
    match here.find_map(link) {
        Some(interface) if interface.ethernet != [0; 6] => Ok(interface),
        _ => Err(Error::said(what, "it is no Ethernet interface: packets there have no link")),
    }
}

/// What the interface of a link's address is.
fn link(one: &InterfaceAddress) -> Option<Interface> {
    let link = *one.address.as_ref()?.as_link_addr()?;
    let mtu_bytes = mtu(&one.interface_name) as usize;
    Some(Interface { index: link.ifindex() as u32, ethernet: link.addr()?, mtu_bytes })
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
}

fn leading_ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    ones as u8 // 128 at most
}

/// By procfs, which shows the network namespace of whoever looks; sysfs that of whoever mounted it.
fn mtu(interface: &str) -> u32 {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/mtu");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(MTU_BYTES_LEAST)
}
