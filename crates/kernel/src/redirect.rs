//! The program that leads datagrams past the kernel's stack, to AF_XDP sockets; as a server uses
//! it.
//!
//! It knows no socket but by its descriptor: who made them says which RX queue each is bound to.
//! The link is a file descriptor: whatever ends the process detaches the program.

use crate::capabilities;
use crate::error::Error;
use crate::interfaces;
use crate::program;
use aya::maps::{Array, PerCpuArray, XskMap};
use aya::programs::xdp::XdpLinkId;
use aya::programs::{TestRun, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

pub use crate::layout::Interface;

/// RX queues that the program knows, at most.
pub const QUEUES_MAX: usize = 64;

/// What is led past the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectSettings {
    /// The interface.
    pub interface: String,
    /// The address that datagrams must be for.
    pub address: IpAddr,
    /// The port that all workers share.
    pub ordinary: Option<u16>,
    /// The first of those that clients choose, one per worker.
    pub base: Option<u16>,
    /// How many workers there are.
    pub workers: usize,
}

/// Where a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// In the driver.
    Driver,
    /// Behind it, where the driver has no such place: the kernel has made a buffer of its own of
    /// each packet already.
    Generic,
}

impl Hook {
    /// As statistics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Hook::Driver => "driver",
            Hook::Generic => "generic",
        }
    }
}

/// What became of packets at the interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RedirectCounts {
    /// Led to a socket.
    pub led: u64,
    /// Passed up: not UDP for our ports at this address.
    pub other: u64,
    /// Passed up: UDP for this address in fragments or with IP options, whatever its port.
    pub unfit: u64,
    /// Passed up: for a port that clients choose, at an RX queue of another worker.
    pub elsewhere: u64,
    /// Passed up: the queue has no socket.
    pub socketless: u64,
}

impl RedirectCounts {
    /// Every count of packets that went up the stack, by cause.
    pub fn passed(&self) -> [(&'static str, u64); 4] {
        let RedirectCounts { led: _, other, unfit, elsewhere, socketless } = *self;
        [("other", other), ("unfit", unfit), ("elsewhere", elsewhere), ("socketless", socketless)]
    }
}

const NAME: &str = "redirect";
/// Words of what the program is told.
const WORDS: usize = 6;
const FATES: usize = 5;
/// The kernel's number for a packet that is led elsewhere.
const XDP_REDIRECT: u32 = 4;

/// The program, loaded, and attached if it is not loaded for a trial.
#[derive(Debug)]
pub struct Redirect {
    ebpf: Ebpf,
    link: Option<XdpLinkId>,
}

/// Whether this process may make AF_XDP sockets and load the program; if not, what would help.
pub fn require(interface: &str) -> Result<(), Error> {
    capabilities::require(&format!("--af-xdp {interface}"), capabilities::BYPASS)
}

/// What is known of an interface.
pub fn look(name: &str) -> Result<Interface, Error> {
    interfaces::look_at(name)
}

impl Redirect {
    /// Load the program. It leads nothing anywhere.
    pub fn load() -> Result<Redirect, Error> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.o"));
        let mut ebpf = EbpfLoader::new()
            .load(object)
            .map_err(|why| Error::new("creating the redirecting program's arrays", &why))?;
        let what = "loading the redirecting program";
        let program = program::find::<Xdp>(&mut ebpf, NAME)?;
        program::load(|| program.load()).map_err(|why| Error::new(what, &why))?;
        Ok(Redirect { ebpf, link: None })
    }

    /// Make a socket that of an RX queue.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let what = "giving the redirecting program a socket";
        let map = self.ebpf.map_mut("redirect_sockets");
        let map = map.ok_or_else(|| Error::said(what, "no array"))?;
        let mut sockets = XskMap::try_from(map).map_err(|why| Error::new(what, &why))?;
        sockets.set(queue, socket, 0).map_err(|why| Error::new(what, &why))
    }

    /// Lead datagrams to the sockets from now on.
    pub fn attach(
        &mut self,
        settings: &RedirectSettings,
        interface: &Interface,
    ) -> Result<Hook, Error> {
        self.tell(settings, interface)?;
        let what = format!("--af-xdp {}", settings.interface);
        let program = program::find::<Xdp>(&mut self.ebpf, NAME)?;
        let modes = [(XdpMode::Driver, Hook::Driver), (XdpMode::Skb, Hook::Generic)];
        let mut last = None;
        for (mode, hook) in modes {
            match program.attach(&settings.interface, mode) {
                Ok(link) => {
                    self.link = Some(link);
                    return Ok(hook);
                }
                Err(why) => last = Some(Error::new(&what[..], &why)),
            }
        }
        Err(last.expect("there are two"))
    }

    /// Lead nothing past the stack any more.
    pub fn detach(&mut self) -> Result<(), Error> {
        let Some(link) = self.link.take() else { return Ok(()) };
        let detached = program::find::<Xdp>(&mut self.ebpf, NAME)?.detach(link);
        detached.map_err(|why| Error::new("detaching the redirecting program", &why))
    }

    /// What was counted since it was loaded.
    pub fn counts(&self) -> Result<RedirectCounts, Error> {
        let what = "reading the redirecting program's counters";
        let map = self.ebpf.map("redirect_counts");
        let map = map.ok_or_else(|| Error::said(what, "no array"))?;
        let array: PerCpuArray<_, u64> =
            PerCpuArray::try_from(map).map_err(|why| Error::new(what, &why))?;
        let mut sums = [0; FATES];
        for (fate, sum) in (0_u32..).zip(&mut sums) {
            let cpus = array.get(&fate, 0).map_err(|why| Error::new(what, &why))?;
            *sum = cpus.iter().sum();
        }
        let [led, other, unfit, elsewhere, socketless] = sums;
        Ok(RedirectCounts { led, other, unfit, elsewhere, socketless })
    }

    /// Whether a packet that comes to RX queue 0 is led to its socket; in a trial run, which
    /// sends nothing.
    pub fn would_lead(&self, packet: &[u8]) -> Result<bool, Error> {
        let what = "a trial run of the redirecting program";
        let program = self.ebpf.program(NAME).ok_or_else(|| Error::said(what, "no program"))?;
        let program: &Xdp = program.try_into().map_err(|why| Error::new(what, &why))?;
        let options = TestRunOptions { data_in: Some(packet), repeat: 1, ..TestRunOptions::new() };
        let result = program.test_run(options).map_err(|why| Error::new(what, &why))?;
        Ok(result.return_value == XDP_REDIRECT)
    }

    /// Tell the program what to lead past the stack, without attaching it.
    pub fn tell(
        &mut self,
        settings: &RedirectSettings,
        interface: &Interface,
    ) -> Result<(), Error> {
        let what = format!("--af-xdp {}", settings.interface);
        let map = self.ebpf.map_mut("redirect_control");
        let map = map.ok_or_else(|| Error::said(&what[..], "no array"))?;
        let mut told: Array<_, [u64; WORDS]> =
            Array::try_from(map).map_err(|why| Error::new(&what[..], &why))?;
        let words = words(settings, interface);
        told.set(0, words, 0).map_err(|why| Error::new(&what[..], &why))
    }

    /// Instructions that the verifier walked through to accept the program.
    pub fn verified_instructions(&self) -> Option<u32> {
        self.ebpf.program(NAME)?.info().ok()?.verified_instruction_count()
    }
}

/// `struct redirect` of the program.
fn words(settings: &RedirectSettings, interface: &Interface) -> [u64; WORDS] {
    let address = match settings.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let (halves, _) = address.as_chunks::<8>();
    let port = |port: Option<u16>| u64::from(port.unwrap_or(0));
    [
        u64::from_ne_bytes(halves[0]),
        u64::from_ne_bytes(halves[1]),
        interface.ethernet_word(),
        port(settings.ordinary),
        port(settings.base),
        settings.workers as u64,
    ]
}
