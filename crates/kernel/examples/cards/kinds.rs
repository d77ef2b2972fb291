//! What packets a request comes in, from what a client's stack sends to what none ever would; and
//! what the lane's program must count each as, which is written down here apart from the program.

use crate::frame::{Frame, fold, pseudo, sum};
use crate::requests::Random;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Ethernet header, and the headers behind it.
const ETHERNET_BYTES: usize = 14;
const IP4_BYTES: usize = 20;
const IP6_BYTES: usize = 40;
/// The program reads requests of so many bytes behind the headers of UDP and memcached.
const TEXT_BYTES_MAX: usize = 1024 - 16;
/// What a fragment has of UDP's header and memcached's: a second one shorter than that is nothing
/// that the program looks at.
const FIRST_BYTES: usize = 16;
/// The VLAN that the server has an interface in, and one that it has none in.
pub const VLAN: u16 = 5;
const STRANGE_VLAN: u16 = 7;
const TAG: [u8; 2] = [0x81, 0x00];
const OUTER_TAG: [u8; 2] = [0x88, 0xa8];

/// Names of IP packets: of those that are put together again no two may have the same, whosever
/// they are. Lone fragments have 0.
static IP_IDS: AtomicU16 = AtomicU16::new(1);

/// Where the lane's program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    TrafficControl,
    Xdp,
}

/// How a request is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By an ordinary socket: its card, or whoever stands in for it, completes the checksum.
    Socket,
    /// A whole checksum.
    Whole,
    /// None, which IPv6 does not allow.
    Sumless,
    /// A wrong one.
    Wrong,
    /// The sum of the pseudo header alone, that nobody completes.
    Unfinished,
    /// A whole one that happens to be that of the pseudo header alone.
    Ambiguous,
    /// IP options; over IPv6 an extension header.
    Options,
    /// Two fragments.
    Fragments,
    /// The first of two.
    Lone,
    /// A VLAN tag of a priority only.
    Priority,
    /// A VLAN tag.
    Tagged,
    /// Two tags of a priority only.
    Stacked,
    /// Two tags, the inner of a VLAN that nobody is in.
    Strange,
    /// Bytes behind the packet.
    Padded,
    /// Fewer bytes than the headers say.
    Cut,
    /// UDP says fewer bytes than IP.
    Short,
    /// And more.
    Long,
    /// For everybody's Ethernet address.
    Everybody,
    /// A sequence number that no only datagram has.
    Sequence,
    /// Something in the number that memcached reserves.
    Reserved,
    /// Header bits turned over: a seed.
    Spoilt(u64),
}

/// All but what is spoilt.
const KINDS: [Kind; 20] = [
    Kind::Socket,
    Kind::Whole,
    Kind::Sumless,
    Kind::Wrong,
    Kind::Unfinished,
    Kind::Ambiguous,
    Kind::Options,
    Kind::Fragments,
    Kind::Lone,
    Kind::Priority,
    Kind::Tagged,
    Kind::Stacked,
    Kind::Strange,
    Kind::Padded,
    Kind::Cut,
    Kind::Short,
    Kind::Long,
    Kind::Everybody,
    Kind::Sequence,
    Kind::Reserved,
];

/// A bit for each of them.
pub const ALL: u32 = (1 << KINDS.len()) - 1;

/// Packets, by what the lane's program makes of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// All that were sent, counted or not.
    pub packets: u64,
    /// Answered.
    pub hits: u64,
    /// Passed for their frames.
    pub frame: u64,
    /// For their checksums.
    pub checksum: u64,
    /// For their senders.
    pub stranger: u64,
    /// For anything else.
    pub others: u64,
    /// Sent again, to either server, and not in the numbers above.
    pub repeated: u64,
    /// The kinds that were among them, as bits.
    pub kinds: u32,
}

impl Tally {
    /// Whether each number is another's, or no further from it than this.
    pub fn is_near(&self, other: &Tally, slack: u64) -> bool {
        let all =
            |tally: &Tally| [tally.hits, tally.frame, tally.checksum, tally.stranger, tally.others];
        all(self).iter().zip(all(other)).all(|(one, other)| one.abs_diff(other) <= slack)
    }

    /// With these as well.
    pub fn add(&mut self, more: Tally) {
        self.packets += more.packets;
        self.hits += more.hits;
        self.frame += more.frame;
        self.checksum += more.checksum;
        self.stranger += more.stranger;
        self.others += more.others;
        self.repeated += more.repeated;
        self.kinds |= more.kinds;
    }
}

/// The two ends of the link.
#[derive(Clone, Copy)]
pub struct Link {
    pub server: [u8; 6],
    pub client: [u8; 6],
}

/// Who asks, and what is known of the request.
#[derive(Clone, Copy)]
pub struct About {
    pub hook: Hook,
    pub is_v6: bool,
    /// Whether the sender is one of those whom the lane serves.
    pub is_served: bool,
    /// Whether the lane has the whole reply.
    pub is_hit: bool,
    pub text_bytes: usize,
}

impl Kind {
    /// One that suits the request.
    pub fn draw(random: &mut Random, about: &About) -> Kind {
        // Half of them as a client's stack or an honest program sends them.
        let of = if random.one_in(2) { KINDS.len() } else { 2 };
        let kind = KINDS[random.below(of)];
        if kind.suits(about) { kind } else { Kind::Socket }
    }

    fn suits(self, about: &About) -> bool {
        match self {
            // At the driver's hook, before anybody could say that it has no sum yet, what looks
            // like a packet of this machine is taken for one.
            Kind::Unfinished => about.hook == Hook::TrafficControl && about.is_served,
            Kind::Ambiguous => about.text_bytes <= TEXT_BYTES_MAX && about.is_served,
            Kind::Fragments | Kind::Lone => about.text_bytes >= 32,
            // A card fills short frames up.
            Kind::Cut => about.text_bytes >= 48,
            Kind::Sumless | Kind::Wrong => about.is_served,
            _ => true,
        }
    }

    /// Whether the server answers a request that comes so, provided that it answers it at all.
    pub fn is_answered(self, is_v6: bool, has_vlan: bool) -> bool {
        match self {
            Kind::Sumless => !is_v6,
            Kind::Tagged => has_vlan,
            Kind::Wrong | Kind::Unfinished | Kind::Lone | Kind::Strange | Kind::Cut => false,
            Kind::Short | Kind::Long | Kind::Spoilt(_) => false,
            _ => true,
        }
    }

    /// What the program counts it as.
    pub fn tally(self, about: &About, frame: &Frame, port: u16) -> Tally {
        let packets = if self == Kind::Fragments { 2 } else { 1 };
        let bit = KINDS.iter().position(|kind| *kind == self).map_or(0, |at| 1_u32 << at);
        let none = Tally { packets, kinds: bit, ..Tally::default() };
        let (frames, checksum) = (Tally { frame: packets, ..none }, Tally { checksum: 1, ..none });
        let parsed = match about.is_hit {
            true => Tally { hits: 1, ..none },
            false => Tally { others: 1, ..none },
        };
        let summed = |wrong: bool| match about.text_bytes <= TEXT_BYTES_MAX {
            true if wrong => checksum,
            _ => parsed,
        };
        let at_tc = about.hook == Hook::TrafficControl;
        match self {
            Kind::Options | Kind::Fragments | Kind::Lone if about.is_v6 => none,
            // Of fragments the first alone tells its port.
            Kind::Options | Kind::Fragments | Kind::Lone => Tally { frame: 1, ..none },
            // The kernel takes the first tag off before it comes to tc.
            Kind::Priority | Kind::Tagged if at_tc => frames,
            Kind::Priority | Kind::Tagged | Kind::Stacked | Kind::Strange => none,
            Kind::Cut | Kind::Short | Kind::Long | Kind::Everybody | Kind::Sequence => frames,
            _ if !about.is_served => Tally { stranger: 1, ..none },
            Kind::Sumless => summed(about.is_v6),
            Kind::Wrong => summed(true),
            Kind::Unfinished => parsed,
            Kind::Spoilt(_) => none, // nobody foresees it
            _ => summed(at_tc && is_ambiguous(&headed(self, frame), port)),
        }
    }
}

/// Whether the whole checksum of a request is that of its pseudo header alone.
fn is_ambiguous(frame: &Frame, port: u16) -> bool {
    let bytes = whole(frame, port);
    let at = udp_at(&bytes);
    bytes[at + 6..at + 8] == fold(pseudo_of(&bytes)).to_be_bytes()
}

/// The id with which a request's checksum is so, if there is one.
pub fn ambiguous_id(frame: &Frame, port: u16) -> Option<u16> {
    let blank = Frame { head: [0, frame.head[1], frame.head[2], frame.head[3]], ..frame.clone() };
    let mut bytes = whole(&blank, port);
    let at = udp_at(&bytes);
    bytes[at + 6..at + 8].fill(0);
    let pseudo = pseudo_of(&bytes);
    let rest = fold(sum(&bytes[at..]) + pseudo);
    let id = fold(u64::from(!fold(pseudo)) + u64::from(!rest));
    let chosen = Frame { head: [id, frame.head[1], frame.head[2], frame.head[3]], ..blank };
    is_ambiguous(&chosen, port).then_some(id)
}

/// A request with the numbers in front that this kind has.
fn headed(kind: Kind, frame: &Frame) -> Frame {
    let mut headed = frame.clone();
    match kind {
        Kind::Sequence => headed.head[1] = 7,
        Kind::Reserved => headed.head[3] = 0x1234,
        _ => {}
    }
    headed
}

/// The frames of a request.
pub fn pack(kind: Kind, frame: &Frame, port: u16, link: &Link) -> Vec<Vec<u8>> {
    let mut bytes = whole(&headed(kind, frame), port);
    bytes[..6].copy_from_slice(&link.server);
    bytes[6..12].copy_from_slice(&link.client);
    let at = udp_at(&bytes);
    let pseudo = fold(pseudo_of(&bytes));
    match kind {
        Kind::Sumless => put(&mut bytes, at + 6, 0),
        Kind::Unfinished => put(&mut bytes, at + 6, pseudo),
        Kind::Wrong => {
            let right = number(&bytes, at + 6);
            let mut wrong = (0..16).map(|bit| right ^ (1 << bit));
            let wrong = wrong.find(|sum| ![0, 0xffff, pseudo].contains(sum));
            put(&mut bytes, at + 6, wrong.expect("three are not sixteen"));
        }
        Kind::Options => optioned(&mut bytes),
        Kind::Fragments => return fragments(&bytes, IP_IDS.fetch_add(1, Relaxed).max(1)),
        Kind::Lone => return fragments(&bytes, 0)[..1].to_vec(),
        Kind::Priority => tag(&mut bytes, TAG, 5 << 13),
        Kind::Tagged => tag(&mut bytes, TAG, VLAN),
        Kind::Stacked => {
            tag(&mut bytes, TAG, 0);
            tag(&mut bytes, TAG, 3 << 13);
        }
        Kind::Strange => {
            let outer = if frame.head[0].is_multiple_of(2) { TAG } else { OUTER_TAG };
            tag(&mut bytes, TAG, STRANGE_VLAN);
            tag(&mut bytes, outer, VLAN);
        }
        Kind::Padded => bytes.extend(vec![0xaa; 1 + usize::from(frame.head[0] % 32)]),
        Kind::Cut => bytes.truncate(bytes.len() - 1 - usize::from(frame.head[0] % 16)),
        Kind::Short => relength(&mut bytes, -2),
        Kind::Long => relength(&mut bytes, 8),
        Kind::Everybody => bytes[..6].fill(0xff),
        Kind::Spoilt(seed) => spoil(&mut bytes, seed),
        Kind::Socket | Kind::Whole | Kind::Ambiguous | Kind::Sequence | Kind::Reserved => {}
    }
    vec![bytes]
}

/// A request from this port, with whole checksums.
fn whole(frame: &Frame, port: u16) -> Vec<u8> {
    let mut bytes = frame.bytes();
    let at = udp_at(&bytes);
    put(&mut bytes, at, port);
    seal(&mut bytes);
    bytes
}

fn udp_at(bytes: &[u8]) -> usize {
    ETHERNET_BYTES + if bytes[12..14] == [8, 0] { IP4_BYTES } else { IP6_BYTES }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

fn address<const N: usize>(bytes: &[u8], at: usize) -> IpAddr
where
    IpAddr: From<[u8; N]>,
{
    <[u8; N]>::try_from(&bytes[at..at + N]).expect("as many").into()
}

/// The sum of the pseudo header, with the length that UDP says.
pub fn pseudo_of(bytes: &[u8]) -> u64 {
    let at = udp_at(bytes);
    let (source, to) = match at - ETHERNET_BYTES {
        IP4_BYTES => (address::<4>(bytes, at - 8), address::<4>(bytes, at - 4)),
        _ => (address::<16>(bytes, at - 32), address::<16>(bytes, at - 16)),
    };
    pseudo(source, to, usize::from(number(bytes, at + 4)))
}

/// Checksums that hold for what the headers say.
fn seal(bytes: &mut [u8]) {
    let at = udp_at(bytes);
    if at - ETHERNET_BYTES == IP4_BYTES {
        put(bytes, at - 10, 0);
        let sum = !fold(sum(&bytes[ETHERNET_BYTES..at]));
        put(bytes, at - 10, sum);
    }
    let end = bytes.len().min(at + usize::from(number(bytes, at + 4)).max(8));
    put(bytes, at + 6, 0);
    let sum = !fold(sum(&bytes[at..end]) + pseudo_of(bytes));
    put(bytes, at + 6, if sum == 0 { 0xffff } else { sum });
}

/// Another length in UDP's header.
fn relength(bytes: &mut [u8], by: i16) {
    let at = udp_at(bytes);
    let length = number(bytes, at + 4).wrapping_add_signed(by);
    put(bytes, at + 4, length);
    seal(bytes);
}

/// A tag behind the Ethernet addresses.
fn tag(bytes: &mut Vec<u8>, kind: [u8; 2], control: u16) {
    bytes.splice(12..12, [kind, control.to_be_bytes()].concat());
}

/// Three that do nothing and an end; or a header of them.
fn optioned(bytes: &mut Vec<u8>) {
    let (at, ip) = (udp_at(bytes), ETHERNET_BYTES);
    if at - ip == IP4_BYTES {
        bytes.splice(at..at, [1, 1, 1, 0]);
        bytes[ip] += 1;
        let length = number(bytes, ip + 2) + 4;
        put(bytes, ip + 2, length);
        put(bytes, ip + 10, 0);
        let sum = !fold(sum(&bytes[ip..at + 4]));
        put(bytes, ip + 10, sum);
    } else {
        bytes.splice(at..at, [17, 0, 1, 4, 0, 0, 0, 0]);
        bytes[ip + 6] = 60;
        let length = number(bytes, ip + 4) + 8;
        put(bytes, ip + 4, length);
    }
}

/// A packet in two.
fn fragments(bytes: &[u8], id: u16) -> Vec<Vec<u8>> {
    let at = udp_at(bytes);
    let (first, second) = bytes[at..].split_at(FIRST_BYTES);
    let offset = (FIRST_BYTES / 8) as u16;
    let fragment = |offset: u16, more: bool, part: &[u8]| {
        let mut frame = bytes[..at].to_vec();
        if at - ETHERNET_BYTES == IP4_BYTES {
            put(&mut frame, at - 18, (IP4_BYTES + part.len()) as u16);
            put(&mut frame, at - 16, id);
            put(&mut frame, at - 14, u16::from(more) << 13 | offset);
            put(&mut frame, at - 10, 0);
            let sum = !fold(sum(&frame[ETHERNET_BYTES..at]));
            put(&mut frame, at - 10, sum);
        } else {
            put(&mut frame, at - 36, (8 + part.len()) as u16);
            frame[at - 34] = 44;
            frame.extend([17, 0]);
            frame.extend((offset << 3 | u16::from(more)).to_be_bytes());
            frame.extend(u32::from(id).to_be_bytes());
        }
        frame.extend(part);
        frame
    };
    vec![fragment(0, true, first), fragment(offset, false, second)]
}

/// One to three bits of the headers turned over; half of the time the sums are made to hold for
/// what is there then, so that more looks at it. What is not the same in the packets for both
/// servers is left alone (ports, names of packets, and sums, in which a bit could mend another),
/// and so are Ethernet addresses.
fn spoil(bytes: &mut [u8], seed: u64) {
    let at = udp_at(bytes);
    let is_v4 = at - ETHERNET_BYTES == IP4_BYTES;
    if is_v4 {
        // Nobody's fragments are to be put together with another's.
        put(bytes, at - 16, IP_IDS.fetch_add(1, Relaxed).max(1));
        seal(bytes);
    }
    let is_own = |place: usize| {
        let (id, sum) = (at - 16..at - 14, at - 10..at - 8);
        let of_ip = is_v4 && (id.contains(&place) || sum.contains(&place));
        of_ip || (at..at + 4).contains(&place) || (at + 6..at + 8).contains(&place)
    };
    let mut random = Random(seed);
    for _ in 0..1 + random.below(3) {
        let place = loop {
            let place = 12 + random.below(at + 8 - 12);
            if !is_own(place) {
                break place;
            }
        };
        bytes[place] ^= 1 << random.below(8);
    }
    if random.one_in(2) && udp_at(bytes) == at {
        seal(bytes);
    }
}
