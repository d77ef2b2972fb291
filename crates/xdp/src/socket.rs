//! An AF_XDP socket for one queue of an interface: its memory, its rings, bound to the queue.
//!
//! Zero-copy is asked for first: the card writes packets into our frames and sends out of them.
//! Where the driver cannot, the kernel copies, which any interface can. Packets come only once a
//! BPF program hands the queue's packets to the socket.

use crate::mapped::{Ring, frames};
use crate::queue::{ADDRESS_WORDS, PACKET_WORDS, Receiver, Rings, Sender, Sizes};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, xdp_mmap_offsets, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::sync::Arc;

/// Who moves a packet between the card and our frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The card.
    ZeroCopy,
    /// The kernel.
    Copy,
}

impl Mode {
    /// As statistics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::ZeroCopy => "zero-copy",
            Mode::Copy => "copy",
        }
    }
}

/// A queue's socket and its two halves.
#[derive(Debug)]
pub struct Queue {
    /// What comes.
    pub receiver: Receiver,
    /// What leaves.
    pub sender: Sender,
    /// The socket.
    pub socket: Arc<OwnedFd>,
    /// How packets are moved.
    pub mode: Mode,
}

/// What the kernel counted of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets lost because the RX ring was full.
    pub receive_ring_full: u64,
    /// Packets lost because the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Packets lost for other reasons.
    pub receive_dropped: u64,
    /// Descriptors of ours that the kernel refused.
    pub invalid_descriptors: u64,
}

/// Ask the kernel.
pub fn statistics(socket: impl AsFd) -> io::Result<Statistics> {
    let told = xdp_statistics(socket)?;
    Ok(Statistics {
        receive_ring_full: told.rx_ring_full.unwrap_or(0),
        fill_ring_empty: told.rx_fill_ring_empty_descs.unwrap_or(0),
        receive_dropped: told.rx_dropped,
        invalid_descriptors: told.rx_invalid_descs + told.tx_invalid_descs,
    })
}

/// A socket for queue number `queue` of an interface; none if it has no queue of that number. With
/// [`Mode::ZeroCopy`] the kernel copies all the same where the driver cannot do that.
pub fn open(interface: u32, queue: u32, sizes: Sizes, wanted: Mode) -> io::Result<Option<Queue>> {
    if wanted == Mode::ZeroCopy {
        match open_as(interface, queue, sizes, Mode::ZeroCopy) {
            // The driver cannot, or not with this queue.
            Err(Errno::OPNOTSUPP | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
            Ok(opened) => return Ok(Some(opened)),
        }
    }
    match open_as(interface, queue, sizes, Mode::Copy) {
        Err(Errno::INVAL) if queue > 0 => Ok(None),
        Err(error) => Err(error.into()),
        Ok(opened) => Ok(Some(opened)),
    }
}

fn open_as(interface: u32, queue: u32, sizes: Sizes, mode: Mode) -> Result<Queue, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
    let (memory, mut receiving) = frames(sizes.receive + sizes.send).map_err(errno)?;
    memory.register(&socket).map_err(errno)?;
    let sending = receiving.split_off(sizes.receive as usize);
    let rings = rings(socket.as_fd(), sizes)?;
    let how = match mode {
        Mode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        Mode::Copy => SocketAddrXdpFlags::XDP_COPY,
    };
    let socket = Arc::new(socket);
    // Frames lie in the fill ring before the first packet can come.
    let receiver = Receiver::new(rings.clone(), receiving, Some(socket.clone()));
    let sender = Sender::new(rings, sending, Some(socket.clone()));
    let how = how | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    bind(&socket, &SocketAddrXdp::new(how, interface, queue))?;
    Ok(Queue { receiver, sender, socket, mode })
}

fn rings(socket: BorrowedFd<'_>, sizes: Sizes) -> Result<Rings, Errno> {
    set_xdp_umem_fill_ring_size(socket, sizes.receive)?;
    set_xdp_umem_completion_ring_size(socket, sizes.send)?;
    set_xdp_rx_ring_size(socket, sizes.receive)?;
    set_xdp_tx_ring_size(socket, sizes.send)?;
    let at = xdp_mmap_offsets(socket)?;
    let ring = |page, at, places, words| {
        Ring::of_socket(socket, page, at, places, words).map(Arc::new).map_err(errno)
    };
    Ok(Rings {
        fill: ring(XDP_UMEM_PGOFF_FILL_RING, &at.fr, sizes.receive, ADDRESS_WORDS)?,
        rx: ring(XDP_PGOFF_RX_RING, &at.rx, sizes.receive, PACKET_WORDS)?,
        tx: ring(XDP_PGOFF_TX_RING, &at.tx, sizes.send, PACKET_WORDS)?,
        completion: ring(XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, sizes.send, ADDRESS_WORDS)?,
    })
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
