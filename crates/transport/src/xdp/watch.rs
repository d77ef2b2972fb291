//! What a worker's transport knows of the way past the stack: it waits for packets at the RX queues
//! whose datagrams it serves, keeps asking the kernel to send what it has been shown, and tells
//! when frames to send with have come back.

use super::Bypass;
use crate::datagram::Path;
use crate::{Ready, Wait};
use laneway_xdp::queue::Kick;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::net::RecvFlags;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long a sleep may be while packets wait to be taken by the kernel, or for frames of such to
/// come back: nobody tells when they do.
const PATIENCE: Duration = Duration::from_millis(1);

/// A worker's watch.
pub struct Watch {
    bypass: Arc<Bypass>,
    worker: usize,
    /// Which queues are watched for arrivals.
    queues: Vec<bool>,
    /// Queues of which room is waited for, and by which interface: by each of them, where replies
    /// are parked for several.
    rooms: BTreeSet<(usize, Path, usize)>,
    /// Whether the drivers of RX queues are looked at before each wait.
    is_busy: bool,
}

impl Watch {
    /// Worker `worker`'s, of nothing yet.
    pub fn new(bypass: Arc<Bypass>, worker: usize) -> Watch {
        let queues = vec![false; bypass.queues.len()];
        Watch { bypass, worker, queues, rooms: BTreeSet::new(), is_busy: false }
    }

    /// The same, looking at the drivers of the RX queues that are watched before each wait: their
    /// sockets are busy polled ([`super::busy`]).
    #[must_use]
    pub fn busy(self) -> Watch {
        Watch { is_busy: true, ..self }
    }

    fn is_watched(&self, place: usize) -> bool {
        self.bypass.queues_at(place).any(|queue| self.queues[queue])
    }

    /// Whether arrivals of `queue` are told. The data words of RX queues go downwards from `word`.
    pub(crate) fn watch(
        &mut self,
        queue: usize,
        watch: bool,
        set: &OwnedFd,
        word: u64,
    ) -> io::Result<()> {
        let bypass = self.bypass.clone();
        // They are one worker's, and so watched together.
        let before = bypass.places_of(queue).any(|place| self.is_watched(place));
        self.queues[queue] = watch;
        let state = &bypass.states[self.worker][queue];
        state.is_watched.store(watch, Relaxed);
        state.by_socket.store(true, Relaxed); // whoever begins to watch looks
        let after = bypass.places_of(queue).any(|place| self.is_watched(place));
        if before == after {
            return Ok(());
        }
        for place in bypass.places_of(queue) {
            let Some(socket) = &bypass.places[place].socket else { continue };
            if before {
                epoll::delete(set, socket)?;
                continue;
            }
            // Several workers may watch one RX queue: one waits, one wakes; told once.
            let flags =
                epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE | epoll::EventFlags::ET;
            epoll::add(set, socket, epoll::EventData::new_u64(word - place as u64), flags)?;
        }
        Ok(())
    }

    /// Whether room of `queue` is told. False if that is not for this way to tell.
    pub(crate) fn watch_room(&mut self, queue: usize, path: Path, watch: bool) -> bool {
        if !watch {
            let before = self.rooms.len();
            self.rooms.retain(|(of, by, _)| (*of, *by) != (queue, path));
            return self.rooms.len() < before;
        }
        // Written by this very worker, when it found no frame.
        let waits = self.bypass.waits[self.worker].swap(0, Relaxed);
        let Some(interface) = waits.checked_sub(1) else { return false };
        self.rooms.insert((queue, path, interface));
        true
    }

    /// A packet has come to an RX queue, or its interface is gone.
    pub(crate) fn told(&self, place: usize, ready: &mut Vec<Ready>) {
        for queue in self.bypass.queues_at(place) {
            self.tell(queue, ready);
        }
    }

    fn tell(&self, queue: usize, ready: &mut Vec<Ready>) {
        let told = Ready::Datagrams(queue);
        if self.queues[queue] && !ready.contains(&told) {
            ready.push(told);
        }
    }

    /// Something has come to a queue's socket.
    pub(crate) fn told_by_socket(&self, queue: usize, ready: &mut Vec<Ready>) {
        self.bypass.states[self.worker][queue].by_socket.store(true, Relaxed);
        self.tell(queue, ready);
    }

    /// Have the drivers look for packets now, and tell what has come. No event need tell it later.
    fn look_at_drivers(&self, ready: &mut Vec<Ready>) {
        for (number, place) in self.bypass.places.iter().enumerate() {
            if !self.is_watched(number) {
                continue;
            }
            if let Some(socket) = &place.socket {
                // Packets come to the ring. An interface that is down tells it when one leaves.
                let _ = rustix::net::recv(socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
            }
            if self.bypass.waiting(number).is_some_and(|packets| packets > 0) {
                self.told(number, ready);
            }
        }
    }

    /// Before the kernel is asked what is ready: what is known already, and how long to wait.
    pub(crate) fn look(&mut self, ready: &mut Vec<Ready>, wait: Wait) -> Wait {
        let before = ready.len();
        if self.is_busy {
            self.look_at_drivers(ready);
        }
        for (queue, state) in self.bypass.states[self.worker].iter().enumerate() {
            if state.again.load(Relaxed) {
                state.again.store(false, Relaxed);
                self.tell(queue, ready);
            }
        }
        let mut is_left = false;
        for (interface, place) in self.bypass.outs[self.worker].iter().enumerate() {
            let outlet = &self.bypass.places[*place].outlet;
            let kick = if outlet.is_drained() { Kick::Drained } else { outlet.kick() };
            is_left |= kick == Kick::Left;
            if !self.rooms.is_empty() && (outlet.has_completions() || kick == Kick::Down) {
                for (queue, path, _) in self.rooms.iter().filter(|(.., at)| *at == interface) {
                    let told = Ready::Room(*queue, *path);
                    if !ready.contains(&told) {
                        ready.push(told);
                    }
                }
            }
        }
        match wait {
            _ if ready.len() > before => Wait::No,
            Wait::AtMost(time) if is_left || !self.rooms.is_empty() => {
                Wait::AtMost(time.min(PATIENCE))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::failing::Failing;
    use crate::datagram::{Datagrams, Departure, Queue};
    use crate::memory_datagram::{DatagramFaults, DatagramNet};
    use crate::xdp::handle::XdpDatagrams;
    use crate::xdp::{Interface, Part};
    use laneway_xdp::packet::{Link, Own, compose};
    use laneway_xdp::queue::Sizes;
    use laneway_xdp::twin::{self, Twin};
    use std::io::IoSlice;
    use std::net::SocketAddr;

    const PORTS: [u16; 2] = [7000, 11_211];

    /// One worker with two ports and one RX queue, both ports watched.
    fn world() -> (XdpDatagrams, Watch, Twin) {
        let (handle, watch, mut twins) = world_of(1);
        (handle, watch, twins.pop().expect("one"))
    }

    /// The same with so many interfaces of one RX queue.
    fn world_of(interfaces: usize) -> (XdpDatagrams, Watch, Vec<Twin>) {
        world_before(Box::new(DatagramNet::new(DatagramFaults::NONE, 2).datagrams()), interfaces)
    }

    /// The same before these sockets.
    fn world_before(
        others: Box<dyn Datagrams>,
        interfaces: usize,
    ) -> (XdpDatagrams, Watch, Vec<Twin>) {
        let here = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        let queue = |port| Queue { worker: 0, address: here(port), chosen: port == PORTS[0] };
        let own = Own { address: here(0).ip(), scope: 1 };
        let mut twins = Vec::new();
        let interface = |_| {
            let sizes = Sizes { receive: 8, send: 4 };
            let (receiver, sender, twin) = twin::queue(sizes).expect("memory");
            twins.push(twin);
            let parts = vec![Part { receiver, sender, socket: None }];
            Interface { parts, own, mtu_bytes: 1500 }
        };
        let interfaces = (0..interfaces).map(interface).collect();
        let opened = Bypass::new(interfaces, PORTS.map(queue).to_vec());
        let (bypass, mut senders) = opened.expect("a queue for the worker");
        let senders = senders.pop().expect("the worker's");
        let handle = XdpDatagrams::new(bypass.clone(), 0, senders, others);
        let mut watch = Watch::new(bypass, 0);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll works");
        for queue in 0..PORTS.len() {
            watch.watch(queue, true, &set, u64::MAX).expect("it can be watched");
        }
        (handle, watch, twins)
    }

    fn deliver(twin: &mut Twin, peer: u8, port: usize) {
        let (from, to) = (([10, 0, 0, peer], 9).into(), ([10, 0, 0, 1], PORTS[port]).into());
        let link = Link { peer: [2; 6], own: [4; 6] };
        let mut room = [0; 100];
        let bytes = compose(&mut room, &link, &from, &to, [&b"get k\r\n"[..]]).expect("it fits");
        assert!(twin.deliver(&room[..bytes]));
    }

    fn looks(watch: &mut Watch) -> (Vec<Ready>, Wait) {
        let mut ready = Vec::new();
        let wait = watch.look(&mut ready, Wait::AtMost(Duration::from_secs(9)));
        (ready, wait)
    }

    const BOTH: [Ready; 2] = [Ready::Datagrams(0), Ready::Datagrams(1)];
    const SLEEP: Wait = Wait::AtMost(Duration::from_secs(9));

    #[test]
    fn what_the_sockets_fail_to_receive_is_told() {
        let (mut handle, ..) = world_before(Box::new(Failing { failures: 3 }), 1);
        assert_eq!((handle.take_failures(), handle.take_failures()), (3, 0));
    }

    #[test]
    fn what_a_poll_leaves_to_the_other_queue_is_told_again() {
        let (mut handle, mut watch, mut twin) = world();
        assert_eq!(looks(&mut watch), (vec![], SLEEP));
        for port in [0, 1, 0] {
            deliver(&mut twin, 2, port);
        }
        let mut ready = Vec::new();
        watch.told(0, &mut ready);
        assert_eq!(ready, BOTH);
        // In an order in which each poll finds the other queue's packet first, or behind its own.
        for (queue, count, is_left) in
            [(1, 0, true), (0, 1, true), (0, 0, true), (1, 1, true), (0, 1, false), (1, 0, false)]
        {
            assert_eq!(handle.poll(queue, 32).expect("polls"), count, "{queue}");
            let expected = if is_left { (BOTH.to_vec(), Wait::No) } else { (vec![], SLEEP) };
            assert_eq!(looks(&mut watch), expected, "after {queue}");
        }
        // A full burst is asked for more anyway.
        deliver(&mut twin, 2, 0);
        deliver(&mut twin, 2, 1);
        assert_eq!(handle.poll(0, 1).expect("polls"), 1);
        assert_eq!(looks(&mut watch), (vec![], SLEEP));
    }

    #[test]
    fn who_polls_busily_finds_what_has_come_before_an_event_tells_it() {
        let (mut handle, mut plain, mut twin) = world();
        deliver(&mut twin, 2, 0);
        assert_eq!(looks(&mut plain), (vec![], SLEEP), "an event is to tell it");
        let mut busy = plain.busy();
        assert_eq!(looks(&mut busy), (BOTH.to_vec(), Wait::No));
        assert_eq!(handle.poll(0, 32).expect("polls"), 1);
        assert_eq!(looks(&mut busy), (vec![], SLEEP));
        // Nobody serves what is not watched.
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll works");
        for queue in 0..PORTS.len() {
            busy.watch(queue, false, &set, u64::MAX).expect("it was watched");
        }
        deliver(&mut twin, 2, 0);
        assert_eq!(looks(&mut busy), (vec![], SLEEP));
    }

    #[test]
    fn room_is_told_when_frames_have_come_back_and_sleep_is_short_until_then() {
        let (mut handle, mut watch, mut twin) = world();
        assert!(!watch.watch_room(0, Path::Small, true), "there is some: the socket tells");
        deliver(&mut twin, 2, 0);
        assert_eq!(handle.poll(0, 32).expect("polls"), 1);
        let pieces = [IoSlice::new(b"END\r\n")];
        let peer = ([10, 0, 0, 2], 9).into();
        let reply = [Departure { peer, segment_bytes: None, pieces: &pieces }; 6];
        assert_eq!(handle.send(0, Path::Small, &reply).expect("sends").done, 4);
        assert!(watch.watch_room(0, Path::Small, true));
        assert_eq!(looks(&mut watch), (vec![], Wait::AtMost(PATIENCE)));
        while twin.transmit().is_some() {}
        twin.complete(1);
        assert_eq!(looks(&mut watch), (vec![Ready::Room(0, Path::Small)], Wait::No));
        assert!(watch.watch_room(0, Path::Small, false));
        assert_eq!(looks(&mut watch), (vec![], SLEEP));
        assert_eq!(handle.send(0, Path::Small, &reply[4..]).expect("sends").done, 1);
    }

    /// Large replies of one queue are parked for want of frames at two interfaces.
    #[test]
    fn room_is_told_by_each_interface_that_it_is_waited_for_at() {
        let (mut handle, mut watch, mut twins) = world_of(2);
        let pieces = [IoSlice::new(b"END\r\n")];
        for (twin, last) in twins.iter_mut().zip([2, 3]) {
            deliver(twin, last, 0);
            assert_eq!(handle.poll(0, 32).expect("polls"), 1);
            let peer = ([10, 0, 0, last], 9).into();
            let reply = [Departure { peer, segment_bytes: None, pieces: &pieces }; 3];
            assert_eq!(handle.send(0, Path::Large, &reply).expect("sends").done, 2);
            assert!(watch.watch_room(0, Path::Large, true));
            while twin.transmit().is_some() {}
        }
        assert_eq!(looks(&mut watch), (vec![], Wait::AtMost(PATIENCE)));
        for twin in &mut twins {
            twin.complete(1);
            let told = vec![Ready::Room(0, Path::Large)];
            assert_eq!(looks(&mut watch), (told, Wait::No), "by either, and once by both");
        }
        assert!(watch.watch_room(0, Path::Large, false));
        assert!(!watch.watch_room(0, Path::Large, false), "by none any more");
        assert_eq!(looks(&mut watch), (vec![], SLEEP));
    }
}
