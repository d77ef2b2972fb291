//! A device for RDMA, opened: which there are, one of its ports, what stands for that port as an
//! address, and memory that the device may write and read.
#![allow(unsafe_code)]

use super::ffi::{self, Gid, Library};
use super::inbox::{Port, is_v4};
use super::parts::PACKET_BYTES_MIN;
use crate::mapped::{self, Mapped};
use laneway_sync::prim::AtomicU64;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::remote::Place;

/// Why there is no RDMA, and what to do.
#[derive(Debug)]
pub enum Trouble {
    /// The library is not there.
    NoLibrary(&'static str),
    /// A message too long to travel in its request: how many bytes may, and how many it has.
    Inline(usize, usize),
    /// What else is not there, or was refused.
    Other(String),
}

impl Trouble {
    /// There is no device at all.
    pub(super) fn no_device() -> Trouble {
        let told = "there is no RDMA device; `rdma link` lists them, and `modprobe rdma_rxe; rdma \
                    link add rxe0 type rxe netdev IFACE` makes one of any network interface";
        Trouble::Other(told.to_owned())
    }

    /// A resource that was refused.
    pub(super) fn of(what: &str, why: io::Error) -> Trouble {
        let way_out = match why.raw_os_error() {
            Some(libc::ENOMEM) => "; memory that a device uses is locked: see ulimit -l",
            _ => "",
        };
        Trouble::Other(format!("{what}: {why}{way_out}"))
    }

    /// Whether it is only that a message is too long to travel in its request.
    pub fn is_about_inline(&self) -> bool {
        matches!(self, Trouble::Inline(..))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoLibrary(why) => write!(
                f,
                "libibverbs cannot be loaded ({why}); install it (Debian: apt-get install \
                 libibverbs1 ibverbs-providers)"
            ),
            Trouble::Inline(most, bytes) => {
                write!(f, "the device takes {most} bytes in a request, and not {bytes}")
            }
            Trouble::Other(told) => f.write_str(told),
        }
    }
}

impl std::error::Error for Trouble {}

/// What the last call refused, by errno.
pub(super) fn refused(what: &'static str) -> Trouble {
    Trouble::of(what, io::Error::last_os_error())
}

/// The same of a call that returns its errno.
pub(super) fn check(what: &'static str, status: i32) -> Result<(), Trouble> {
    match status {
        0 => Ok(()),
        status => Err(Trouble::of(what, io::Error::from_raw_os_error(status.abs()))),
    }
}

/// The devices that there are, until this is dropped.
struct Devices {
    library: &'static Library,
    list: NonNull<*mut ffi::Device>,
    count: usize,
}

impl Devices {
    fn list() -> Result<Devices, Trouble> {
        let library = ffi::library().map_err(Trouble::NoLibrary)?;
        let mut count = 0;
        // SAFETY: the count is ours to be written.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        // A kernel without any of it has no list at all.
        let list = NonNull::new(list).ok_or_else(Trouble::no_device)?;
        Ok(Devices { library, list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn each(&self) -> impl Iterator<Item = (*mut ffi::Device, String)> {
        (0..self.count).map(|number| {
            // SAFETY: the list has `count` entries and lasts as long as `self`; a device's name is
            // a C string that lasts as long as the device.
            unsafe {
                let device = self.list.add(number).read();
                let name = CStr::from_ptr((self.library.get_device_name)(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: the list is the library's own; a device that was opened stays open.
        unsafe { (self.library.free_device_list)(self.list.as_ptr()) };
    }
}

/// The names of all devices.
pub fn names() -> Result<Vec<String>, Trouble> {
    Ok(Devices::list()?.each().map(|(_, name)| name).collect())
}

/// MTUs as verbs number them: 1024 holds half of a reply, 4096 is the longest.
pub const MTU_MIN: u8 = 3;
/// See above.
pub const MTU_MAX: u8 = 5;

/// Bytes of the longest packet with such a number.
pub const fn packet_bytes(mtu: u8) -> usize {
    128 << mtu
}

const _: () = assert!(packet_bytes(MTU_MIN) == PACKET_BYTES_MIN && packet_bytes(MTU_MAX) == 4096);

/// Where a port is, as another port reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// In the subnet; 0 where the link is Ethernet.
    pub lid: u16,
    /// Of the world.
    pub gid: [u8; 16],
}

/// A device, and one of its ports.
pub struct Card {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<ffi::Context>,
    place: Place,
    address: Address,
    gid_index: u8,
    mtu: u8,
    is_ethernet: bool,
}

// SAFETY: the library's calls lock what they share; the pointers belong to no thread.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

impl Card {
    /// Open a device.
    pub fn open(place: &Place) -> Result<Arc<Card>, Trouble> {
        let devices = Devices::list()?;
        let found = devices.each().find(|(_, name)| *name == place.device);
        let Some((device, _)) = found else {
            let there: Vec<String> = devices.each().map(|(_, name)| name).collect();
            let (name, there) = (&place.device, there.join(", "));
            return Err(match there.is_empty() {
                true => Trouble::no_device(),
                false => {
                    Trouble::Other(format!("there is no RDMA device {name}; there is {there}"))
                }
            });
        };
        let library = devices.library;
        // SAFETY: the device is of a list that is still there.
        let context = unsafe { (library.open_device)(device) };
        let closed = || {
            let (name, why) = (&place.device, io::Error::last_os_error());
            Trouble::Other(format!(
                "the RDMA device {name} cannot be opened: {why}; the user needs to read and write \
                 /dev/infiniband/uverbs*"
            ))
        };
        let context = NonNull::new(context).ok_or_else(closed)?;
        let mut card = Card {
            library,
            context,
            place: place.clone(),
            address: Address { lid: 0, gid: [0; 16] },
            gid_index: 0,
            mtu: 0,
            is_ethernet: false,
        };
        card.look_at_port()?;
        Ok(Arc::new(card))
    }

    fn look_at_port(&mut self) -> Result<(), Trouble> {
        let mut port = ffi::PortAttributes::default();
        let (context, number) = (self.context.as_ptr(), self.place.port);
        // SAFETY: the context is open, and `port` has room for the attributes of any version.
        let status = unsafe { (self.library.query_port)(context, number, &raw mut port) };
        let device = &self.place.device;
        let wrong = |why: &str| Trouble::Other(format!("port {number} of {device} {why}"));
        if status != 0 {
            return Err(wrong("is not there; see `rdma link`"));
        }
        if port.state != ffi::PORT_ACTIVE {
            return Err(wrong("is not up; see `rdma link`"));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&(port.mtu_active as u8)) {
            return Err(wrong(
                "has packets of less than 1024 bytes; give its interface an MTU of 1500, or of \
                 2200 or more, where every reply is one packet (ip link set IFACE mtu 4200)",
            ));
        }
        self.is_ethernet = port.link_layer == ffi::LINK_ETHERNET;
        self.mtu = port.mtu_active as u8;
        self.address.lid = port.lid;
        let most = port.gids.clamp(0, 256) as usize;
        let wanted = match self.place.gid {
            Some(index) => Some(index).filter(|index| usize::from(*index) < most),
            None => self.best_gid(most),
        };
        let there = wanted.and_then(|index| Some((index, self.gid(index)?)));
        let (index, gid) = there.ok_or_else(|| {
            let place = &self.place;
            Trouble::Other(format!(
                "{place} has no address; name one that `rdma link` or show_gids shows"
            ))
        })?;
        (self.gid_index, self.address.gid) = (index, gid);
        Ok(())
    }

    /// An address of a port; none where there is none.
    fn gid(&self, index: u8) -> Option<[u8; 16]> {
        let mut gid = Gid::default();
        let (context, port) = (self.context.as_ptr(), self.place.port);
        // SAFETY: the context is open, `gid` is ours to be written.
        let status = unsafe { (self.library.query_gid)(context, port, index.into(), &raw mut gid) };
        (status == 0 && gid != Gid::default()).then_some(gid.0)
    }

    /// The first address, where the link is InfiniBand's; of an Ethernet's the first of RoCE v2
    /// that is IPv4's, or the first of v2, or any.
    fn best_gid(&self, most: usize) -> Option<u8> {
        let there = (0..most.min(256)).map(|index| index as u8);
        let there = there.filter_map(|index| Some((index, self.gid(index)?)));
        let rank =
            |(index, gid): &(u8, [u8; 16])| match (self.is_ethernet, self.is_routable(*index)) {
                (false, _) => 0,
                (true, true) if is_v4(gid) => 0,
                (true, true) => 1,
                (true, false) => 2,
            };
        there.min_by_key(rank).map(|(index, _)| index)
    }

    /// Whether an address is RoCE v2's. The library has no public question for it.
    fn is_routable(&self, index: u8) -> bool {
        let Place { device, port, .. } = &self.place;
        let base = PathBuf::from("/sys/class/infiniband").join(device);
        let path = base.join(format!("ports/{port}/gid_attrs/types/{index}"));
        std::fs::read_to_string(path).is_ok_and(|kind| kind.contains("v2"))
    }

    /// Where it was opened.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// How another reaches this port.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes of the longest packet, as the number by which verbs call it: 256 is 1, 4096 is 5.
    pub fn mtu(&self) -> u8 {
        self.mtu
    }

    /// Whether packets to and from there are led by addresses of the world.
    fn is_global(&self, there: &Address) -> bool {
        self.is_ethernet || there.lid == 0
    }

    /// What a datagram from there says of where it comes from.
    pub(super) fn port(&self, there: &Address) -> Port {
        if self.is_global(there) { Port::Global(there.gid) } else { Port::Local(there.lid) }
    }

    /// Whether the route of what comes to this port is a header of IPv4: with RoCE v1 it is one of
    /// InfiniBand's, whatever the addresses are.
    pub(super) fn has_v4_routes(&self) -> bool {
        is_v4(&self.address.gid) && self.is_routable(self.gid_index)
    }

    /// How packets get from here to `to`.
    pub(super) fn path(&self, to: &Address) -> ffi::AddressVector {
        ffi::AddressVector {
            route: ffi::GlobalRoute {
                destination: Gid(to.gid),
                source_index: self.gid_index,
                hop_limit: HOPS_MAX,
                ..Default::default()
            },
            lid: to.lid,
            is_global: u8::from(self.is_global(to)),
            port: self.place.port,
            ..Default::default()
        }
    }
}

/// A protection domain of a card: a queue pair reaches memory of its own domain and no other,
/// whatever key somebody guesses. So each client of a server has one.
pub struct Domain {
    card: Arc<Card>,
    pub(super) domain: NonNull<ffi::Domain>,
}

// SAFETY: the library's calls lock what they share; the pointer belongs to no thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// With nothing in it.
    pub fn new(card: &Arc<Card>) -> Result<Arc<Domain>, Trouble> {
        // SAFETY: the card's context is open.
        let domain = unsafe { (card.library.alloc_pd)(card.context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(|| refused("a protection domain"))?;
        Ok(Arc::new(Domain { card: card.clone(), domain }))
    }

    /// The card that it is of.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whatever was made in the domain holds an `Arc` of it, so it is gone.
        unsafe { (self.card.library.dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Routers that a packet may pass.
const HOPS_MAX: u8 = 64;

impl Drop for Card {
    fn drop(&mut self) {
        // SAFETY: whatever was made in the context holds an `Arc` of this card, so it is gone; it
        // is closed once.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// Who may write to memory that was registered, beside its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// This side's device.
    Device,
    /// And whoever is connected and knows its key.
    Remote,
    /// Whoever is connected and knows its key may READ it, and nobody else write.
    Readers,
    /// These may READ it, too. No server of ours gives such memory away: [`super::trial`] does.
    RemoteReaders,
}

/// Memory that a device may use. It is locked as long as this lasts.
pub struct Registered {
    domain: Arc<Domain>,
    region: NonNull<ffi::MemoryRegion>,
    // Behind the region: the device lets go of the memory before it is unmapped.
    map: Mapped,
}

// SAFETY: the region belongs to no thread; the memory is atomic words.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Zeroes, `bytes` of them behind a page that nobody uses; in whole pages.
    pub fn new(
        domain: &Arc<Domain>,
        bytes: usize,
        writers: Writers,
    ) -> Result<Registered, Trouble> {
        let bytes = bytes.next_multiple_of(crate::layout::HEAD_BYTES) + crate::layout::HEAD_BYTES;
        let mapping = |why| Trouble::of("memory", why);
        let memory = mapped::create(bytes, bytes).map_err(mapping)?;
        let map = Mapped::of(&memory, bytes).map_err(mapping)?;
        let access = match writers {
            Writers::Device => ffi::ACCESS_LOCAL_WRITE,
            Writers::Remote => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE,
            Writers::Readers => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_READ,
            Writers::RemoteReaders => {
                ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_READ
            }
        };
        let words = map.words();
        let (start, length) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
        let reg_mr = domain.card.library.reg_mr;
        // SAFETY: the memory is mapped until `map` is dropped, which is behind the region's end;
        // what a device writes there is seen through atomic words only.
        let region = unsafe { reg_mr(domain.domain.as_ptr(), start, length, access) };
        let region = NonNull::new(region).ok_or_else(|| refused("registered memory"))?;
        Ok(Registered { domain: domain.clone(), region, map })
    }

    /// The memory.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        self.map.words()
    }

    /// How much it is.
    pub fn bytes(&self) -> usize {
        size_of_val(self.words())
    }

    /// Where it begins, as devices call it.
    pub fn address(&self) -> u64 {
        self.map.words().as_ptr() as u64
    }

    /// By which this side's device knows it.
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region is there until `drop`.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// By which the other side's device does.
    pub fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the region is ours and let go of once. Queue pairs whose work requests name the
        // memory hold an `Arc` of this, so none does; what another's device asks for by its key is
        // refused from here on, before the memory is unmapped.
        unsafe { (self.domain.card.library.dereg_mr)(self.region.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_shown_and_nothing_else_is() {
        let place = |device: &str, port, gid| Place { device: device.into(), port, gid };
        for (text, read, shown) in [
            ("mlx5_0", place("mlx5_0", 1, None), "mlx5_0:1"),
            ("rxe0:2", place("rxe0", 2, None), "rxe0:2"),
            ("rxe0:1:3", place("rxe0", 1, Some(3)), "rxe0:1:3"),
        ] {
            assert_eq!(text.parse(), Ok(read.clone()));
            assert_eq!((read.to_string().as_str(), shown.parse()), (shown, Ok(read)));
        }
        for bad in ["", ":1", "a/b", "..", "rxe0:0", "rxe0:256", "rxe0:x", "rxe0:1:256", "a:1:2:3"]
        {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_with_a_way_out() {
        let place = "no_such_device".parse().expect("a name");
        let said = Card::open(&place).err().expect("nothing has that name").to_string();
        let ways = ["apt-get install", "rdma link", "there is no RDMA device no_such_device"];
        assert!(ways.iter().any(|way| said.contains(way)), "{said}");
    }
}
