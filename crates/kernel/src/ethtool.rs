//! This module asks the kernel what an interface does with packets by itself, as `ethtool -k` lists
//! it, and how many queues it has (`ethtool -l`). It asks by generic netlink (the family `ethtool`,
//! since Linux 5.6), in the calling thread's network namespace. sysfs shows that of whoever mounted
//! it.

use crate::error::Error;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{netlink, recv, send, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// The card takes VLAN tags off what it receives.
pub const VLAN_TAKEN_OFF: &str = "rx-vlan-hw-parse";
/// Datagrams of one sender are joined though no socket asks for it.
pub const JOINED_UNASKED: &str = "rx-gro-list";

/// Longest answer: every feature's name and number.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 16;
const REQUEST: u16 = 1;
/// Message types: an error, or an acknowledgement; the family of families.
const ERROR: u16 = 2;
const CONTROLLER: u16 = 0x10;
/// An attribute that is made of attributes.
const NESTED: u16 = 1 << 15;

/// Commands and attributes (`linux/genetlink.h`, `linux/ethtool_netlink.h`).
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const CHANNELS_GET: u8 = 17;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const CHANNELS_COMBINED_MAX: u16 = 5;
const CHANNELS_COMBINED_COUNT: u16 = 9;
const HEADER_DEVICE_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Of a link (`linux/rtnetlink.h`, `linux/if_link.h`).
const GET_LINK: u16 = 18;
/// What stands before a link's attributes: its kind, number and flags.
const LINK_BYTES: usize = 16;
const LINK_NAME: u16 = 3;
const LINK_BUS: u16 = 57;

/// Whether an interface has a feature on, by the name that `ethtool -k` gives it.
pub fn is_on(interface: &str, feature: &str) -> Result<bool, Error> {
    let what = || format!("asking what {interface} does with packets");
    let failed = |why: io::Error| Error::new(what(), &why);
    let answer = ask(FEATURES_GET, &device(interface)).map_err(failed)?;
    let active = attributes(&answer).find(|(kind, _)| *kind == FEATURES_ACTIVE);
    let (_, active) = active.ok_or_else(|| Error::said(what(), "the kernel does not tell"))?;
    // Without a mask, so what is listed is on.
    let bits = attributes(active).filter(|(kind, _)| *kind == BITSET_BITS);
    let mut names = bits.flat_map(|(_, bits)| attributes(bits)).flat_map(|(_, bit)| {
        attributes(bit).filter(|(kind, _)| *kind == BIT_NAME).map(|(_, name)| name)
    });
    Ok(names.any(|name| name.strip_suffix(&[0]) == Some(feature.as_bytes())))
}

/// Turn a feature of an interface on or off, as `ethtool -K` does.
pub fn set(interface: &str, feature: &str, on: bool) -> Result<(), Error> {
    let mut bit = attribute(BIT_NAME, &[feature.as_bytes(), &[0]].concat());
    bit.extend(on.then(|| attribute(BIT_VALUE, &[])).into_iter().flatten());
    let bits = attribute(BITSET_BITS | NESTED, &attribute(BITS_BIT | NESTED, &bit));
    let wanted = attribute(FEATURES_WANTED | NESTED, &bits);
    let asked = ask(FEATURES_SET, &[device(interface), wanted].concat());
    let what = || format!("turning {feature} of {interface} on or off");
    asked.map(drop).map_err(|why| Error::new(what(), &why))
}

/// The queues of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// How many it has.
    pub count: u32,
    /// How many it may have.
    pub most: u32,
}

impl Queues {
    /// Whether a program at XDP sends by queues that there are not, if the driver is that of virtio
    /// (Linux 6.12): where no queue is left for each CPU it counts them behind those that there
    /// are, unless these are no more than the CPUs.
    pub fn are_overrun(self, cpus: u32) -> bool {
        self.count > cpus && u64::from(self.count) + u64::from(cpus) > u64::from(self.most)
    }
}

/// The queues of an interface whose card is of virtio; of another one nothing.
pub fn virtio_queues(interface: &str) -> Result<Option<Queues>, Error> {
    let failed = |why: io::Error| Error::new(format!("asking for queues of {interface}"), &why);
    let bus = bus(interface).map_err(failed)?;
    if bus.is_none_or(|bus| bus != b"virtio\0") {
        return Ok(None);
    }
    let answer = ask(CHANNELS_GET, &device(interface)).map_err(failed)?;
    let number = |wanted| {
        let (_, number) = attributes(&answer).find(|(kind, _)| *kind == wanted)?;
        number.try_into().ok().map(u32::from_ne_bytes)
    };
    let (count, most) = (number(CHANNELS_COMBINED_COUNT), number(CHANNELS_COMBINED_MAX));
    Ok(count.zip(most).map(|(count, most)| Queues { count, most }))
}

/// The bus that an interface's device is at, if it has one (since Linux 5.14), with a zero behind.
fn bus(interface: &str) -> io::Result<Option<Vec<u8>>> {
    let socket = open(None)?;
    let name = attribute(LINK_NAME, &[interface.as_bytes(), &[0]].concat());
    let link = exchange(&socket, GET_LINK, &[0; LINK_BYTES], &name)?;
    let bus = attributes(&link).find(|(kind, _)| *kind == LINK_BUS);
    Ok(bus.map(|(_, name)| name.to_vec()))
}

/// How many CPUs this machine may have, whether they are there or not; nothing where it does not
/// tell.
pub fn cpus_possible() -> Option<u32> {
    last_of(&std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)
}

/// Of numbers written as `0-3,8`, how many there may be up to the last.
fn last_of(list: &str) -> Option<u32> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<u32>().ok()?.checked_add(1)
}

fn device(interface: &str) -> Vec<u8> {
    let name = attribute(HEADER_DEVICE_NAME, &[interface.as_bytes(), &[0]].concat());
    attribute(FEATURES_HEADER | NESTED, &name)
}

/// A socket to ask at, of the family of links (number 0) if none is said.
fn open(family: Option<Protocol>) -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, family)
}

/// One request of the family; the attributes of its answer.
fn ask(command: u8, attributes_of: &[u8]) -> io::Result<Vec<u8>> {
    let socket = open(Some(netlink::GENERIC))?;
    let name = attribute(FAMILY_NAME, b"ethtool\0");
    let family = exchange(&socket, CONTROLLER, &[GET_FAMILY, 1, 0, 0], &name)?;
    let id = attributes(&family).find(|(kind, _)| *kind == FAMILY_ID).map(|(_, id)| id);
    let id = id.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
    let id = id.ok_or(io::ErrorKind::Unsupported)?;
    exchange(&socket, id, &[command, 1, 0, 0], attributes_of)
}

/// One question of a kind, and what is behind the head of the answer, which is as long as its own.
fn exchange(socket: &OwnedFd, kind: u16, head: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
    let bytes = (HEADER_BYTES + head.len() + body.len()) as u32;
    let mut message = bytes.to_ne_bytes().to_vec();
    message.extend([kind.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    message.extend([0; 8]); // a number and a sender: one question at a time
    message.extend(head);
    message.extend(body);
    send(socket, &message, SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (count, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(count);
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    if kind == Some(ERROR) {
        let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4);
        let code = code.and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
        return match code {
            0 => Ok(Vec::new()),
            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        };
    }
    Ok(answer.split_off((HEADER_BYTES + head.len()).min(answer.len())))
}

fn attribute(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = [(4 + body.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// What a run of attributes is made of: kinds, without their flags, and bodies.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let number = |at: usize| Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let (length, kind) = (usize::from(number(0)?), number(2)?);
        let body = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !NESTED, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written_and_no_further() {
        let bytes = [attribute(3, b"abcde"), attribute(4 | NESTED, &attribute(1, b""))].concat();
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(3, &b"abcde"[..]), (4, &[4, 0, 1, 0])]);
        for cut in 0..bytes.len() {
            assert!(attributes(&bytes[..cut]).count() < 2, "{cut}");
        }
        for wrong in [[0, 0, 1, 0], [3, 0, 1, 0], [5, 0, 1, 0], [255, 255, 1, 0]] {
            assert_eq!(attributes(&wrong).count(), 0, "{wrong:?}");
        }
    }

    #[test]
    fn virtio_has_a_queue_for_each_cpu_to_spare_or_no_more_than_cpus() {
        for (count, most, cpus, are_overrun) in [
            (1, 1, 1, false),
            (2, 2, 1, true),
            (2, 3, 1, false),
            (2, 4, 2, false),
            (2, 2, 2, false),
            (4, 4, 2, true),
            (4, 5, 2, true),
            (4, 6, 2, false),
            (u32::MAX, u32::MAX, 2, true),
        ] {
            let queues = Queues { count, most };
            assert_eq!(queues.are_overrun(cpus), are_overrun, "{queues:?}, {cpus} CPUs");
        }
        for (list, last) in [("0-3\n", Some(4)), ("0\n", Some(1)), ("0-1,4-7", Some(8)), ("", None)]
        {
            assert_eq!(last_of(list), last, "{list:?}");
        }
        assert!(cpus_possible().is_some_and(|cpus| cpus > 0));
    }

    #[test]
    fn the_loopback_is_asked_and_an_interface_that_is_not_there_is_named() {
        assert!(!is_on("lo", VLAN_TAKEN_OFF).expect("the kernel tells"));
        assert!(is_on("lo", "tx-nocache-copy").is_ok_and(|on| !on));
        assert!(is_on("lo", "rx-checksum").expect("the kernel tells"), "always on there");
        assert_eq!(bus("lo").expect("the kernel tells"), None);
        assert_eq!(virtio_queues("lo").expect("the kernel tells"), None);
        let features = is_on("nowhere0", JOINED_UNASKED).map(|_| ());
        for told in [features, virtio_queues("nowhere0").map(|_| ())] {
            let told = told.expect_err("there is none").to_string();
            assert!(told.contains("nowhere0") && told.contains("No such device"), "{told}");
        }
    }
}
