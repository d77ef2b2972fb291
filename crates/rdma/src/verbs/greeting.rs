//! The greeting: a client and a server exchange one line each over TCP before either can write.
//!
//! ```text
//! laneway-rdma 2 SERVICE LID GID MTU QPN PSN UD_QPN UD_QKEY REPLIES REQUESTS
//! laneway-rdma 2 any LID GID MTU QPN PSN UD_QPN UD_QKEY REPLIES REQUESTS SENDS_QPN
//! OK LANES WINDOW LID GID MTU QPN PSN ADDRESS RKEY GRANT        or        ERROR why
//! OK LANES WINDOW LID GID MTU QKEY QPN ...                      to `ud`
//! OK SERVICE ...                                                to `any`
//! ```
//!
//! SERVICE is `uc`, `rc` or `ud`, GID 32 hexadecimal digits, all else decimal. Who says `any`
//! leaves the choice to the server, has queue pairs for `uc` and for `ud` (SENDS_QPN), and is told
//! `uc` or `ud` in front of what each of these is told. The client tells where its datagrams are to
//! go, the server where its slots are. REPLIES, REQUESTS and GRANT are
//! three words each, ADDRESS RKEY BYTES, of memory for long messages, and `0 0 0` of none: the
//! client's, which the server writes replies into; the client's, which a server READs requests out
//! of (of `uc`, which has no READ, its length alone, and that is a wish); and the server's, which a
//! client of `uc` writes requests into. A client of `ud` has none of these; it is told the key of
//! the queue pairs that take its requests, and their numbers, one for each lane. (HERD has a daemon
//! for it, §4.2.)
//! This module knows no connection: bytes go in, and what they say comes out.

use super::card::{Address, MTU_MAX, MTU_MIN};
use super::pair::{Far, NUMBER_BITS, Service};
use super::parts::PARTS_MAX;
use super::request_ring::Bounds;
use crate::layout::{BULK_BYTES_MAX, LANES_MAX};
use std::fmt;

pub use crate::door::Heard;

/// What a client's line begins with, and the version of all of this.
const HELLO: &str = "laneway-rdma 2 ";
/// Longest line either side says, with its end.
pub const LINE_BYTES_MAX: usize = 256;
/// The same of the line that has a number for each lane.
pub const MAILBOXES_BYTES_MAX: usize = 2048;
/// Keys of datagrams above it are for the privileged alone.
pub const QKEY_MAX: u32 = u32::MAX >> 1;

/// Memory that the other side's device may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub address: u64,
    /// By which key.
    pub rkey: u32,
    /// How much it is; 0: none.
    pub bytes: u32,
}

/// What a client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// How its requests are carried; nothing: as the server chooses.
    pub service: Option<Service>,
    /// From where.
    pub far: Far,
    /// The queue pair that sends them where they are datagrams; of connections 0.
    pub sends_number: u32,
    /// The queue pair that takes replies.
    pub replies_number: u32,
    /// And its key.
    pub replies_qkey: u32,
    /// What the client lends for long replies.
    pub replies: Span,
    /// Where its long requests lie, or how much memory it would have for them.
    pub requests: Span,
}

/// What the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// How the slots are laid out.
    pub bounds: Bounds,
    /// The queue pair that requests go to.
    pub far: Far,
    /// Where the slots begin.
    pub slots_address: u64,
    /// By which key they are written.
    pub slots_rkey: u32,
    /// Where the client writes long requests.
    pub grant: Span,
}

/// What the server answers who sends datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailboxes {
    /// How many lanes there are, fewer than there may be elsewhere, and how many datagrams may be
    /// under way in each.
    pub bounds: Bounds,
    /// The port that takes them.
    pub address: Address,
    /// Its longest packet.
    pub mtu: u8,
    /// What its queue pairs ask of whoever sends.
    pub qkey: u32,
    /// These, by lane.
    pub numbers: Vec<u32>,
}

/// What the server answers who leaves the choice to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// To write, over an unreliable connection.
    Slots(Welcome),
    /// To send.
    Datagrams(Mailboxes),
}

/// The line that is there, without its end; `None` as long as there is none.
fn line(said: &[u8], bytes_max: usize) -> Option<Result<&str, String>> {
    let nonsense = || Err("it is no line of text".to_owned());
    match said.iter().position(|byte| *byte == b'\n') {
        // Nobody has more to say than a line.
        Some(end) if end + 1 == said.len() && said.len() <= bytes_max => Some(
            std::str::from_utf8(&said[..end]).map_err(|_| String::new()).or_else(|_| nonsense()),
        ),
        Some(_) => Some(nonsense()),
        None if said.len() < bytes_max => None,
        None => Some(nonsense()),
    }
}

/// The greatest number of a queue pair or a packet.
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;

/// The words of a line, taken one by one.
struct Words<'a>(std::str::Split<'a, char>);

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        Words(line.split(' '))
    }

    fn number(&mut self, least: u64, most: u64) -> Option<u64> {
        let word = self.0.next()?;
        // `parse` takes a plus sign, too.
        let number = word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok());
        number.flatten().filter(|number| (least..=most).contains(number))
    }

    fn gid(&mut self) -> Option<[u8; 16]> {
        let word = self.0.next().filter(|word| word.len() == 32)?;
        let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(word, 16).ok().filter(|_| is_hex)?;
        Some(number.to_be_bytes())
    }

    fn port(&mut self) -> Option<(Address, u8)> {
        let lid = self.number(0, u16::MAX.into())? as u16;
        let gid = self.gid()?;
        let mtu = self.number(MTU_MIN.into(), MTU_MAX.into())? as u8;
        // An address of nobody would be found out by the first packet only.
        (lid != 0 || gid != [0; 16]).then_some((Address { lid, gid }, mtu))
    }

    fn far(&mut self) -> Option<Far> {
        let (address, mtu) = self.port()?;
        let number = self.number(1, NUMBER_MAX)? as u32;
        let psn = self.number(0, NUMBER_MAX)? as u32;
        Some(Far { address, mtu, number, psn })
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let lanes = self.number(1, u32::MAX.into())? as usize;
        let window = self.number(1, u32::MAX.into())? as usize;
        let bounds = Bounds { lanes, window };
        bounds.check().ok().map(|()| bounds)
    }

    fn span(&mut self) -> Option<Span> {
        let address = self.number(0, u64::MAX)?;
        let rkey = self.number(0, u32::MAX.into())? as u32;
        let bytes = self.number(0, BULK_BYTES_MAX as u64)? as u32;
        address.checked_add(bytes.into()).map(|_| Span { address, rkey, bytes })
    }

    fn end(mut self) -> Option<()> {
        self.0.next().is_none().then_some(())
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Far { address: Address { lid, gid }, mtu, number, psn } = self;
        write!(f, "{lid} {:032x} {mtu} {number} {psn}", u128::from_be_bytes(*gid))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { address, rkey, bytes } = self;
        write!(f, "{address} {rkey} {bytes}")
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Service::name_of(self.service);
        let Hello { service, far, sends_number, replies_number, replies_qkey, .. } = self;
        let Hello { replies, requests, .. } = self;
        write!(f, "{HELLO}{name} {far} {replies_number} {replies_qkey} {replies} {requests}")?;
        match service {
            None => writeln!(f, " {sends_number}"),
            Some(_) => writeln!(f),
        }
    }
}

impl fmt::Display for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Welcome { bounds, far, slots_address, slots_rkey, grant } = self;
        let Bounds { lanes, window } = bounds;
        writeln!(f, "OK {lanes} {window} {far} {slots_address} {slots_rkey} {grant}")
    }
}

impl fmt::Display for Mailboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mailboxes { bounds, address: Address { lid, gid }, mtu, qkey, numbers } = self;
        let (Bounds { lanes, window }, gid) = (bounds, u128::from_be_bytes(*gid));
        write!(f, "OK {lanes} {window} {lid} {gid:032x} {mtu} {qkey}")?;
        numbers.iter().try_for_each(|number| write!(f, " {number}"))?;
        writeln!(f)
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self {
            Chosen::Slots(welcome) => welcome.to_string(),
            Chosen::Datagrams(mailboxes) => mailboxes.to_string(),
        };
        let behind = said.strip_prefix("OK ").expect("all is well");
        write!(f, "OK {} {behind}", self.service().name())
    }
}

impl Hello {
    /// From what a client has said so far.
    pub fn hear(said: &[u8]) -> Heard<Hello> {
        let begins = said.len().min(HELLO.len());
        let nonsense = || Heard::Nonsense("say laneway-rdma 2 and who you are".into());
        if said[..begins] != HELLO.as_bytes()[..begins] {
            return nonsense();
        }
        match line(said, LINE_BYTES_MAX) {
            None => Heard::More,
            Some(line) => {
                let rest = line.ok().and_then(|line| line.strip_prefix(HELLO));
                rest.and_then(Hello::read).map_or_else(nonsense, Heard::Whole)
            }
        }
    }

    fn read(line: &str) -> Option<Hello> {
        let (service, rest) = line.split_once(' ')?;
        let service = Service::wanted(service).ok()?;
        let mut words = Words::of(rest);
        let far = words.far()?;
        let replies_number = words.number(1, NUMBER_MAX)? as u32;
        let replies_qkey = words.number(0, QKEY_MAX.into())? as u32;
        let (replies, requests) = (words.span()?, words.span()?);
        let sends_number = match service {
            None => words.number(1, NUMBER_MAX)? as u32,
            Some(Service::Datagrams) => far.number,
            Some(Service::Unreliable | Service::Reliable) => 0,
        };
        words.end()?;
        Some(Hello { service, far, sends_number, replies_number, replies_qkey, replies, requests })
    }
}

/// The server's line, of what it has said so far.
fn answered<T>(said: &[u8], bytes_max: usize, read: impl FnOnce(&str) -> Option<T>) -> Heard<T> {
    let line = match line(said, bytes_max) {
        None => return Heard::More,
        Some(Err(why)) => return Heard::Nonsense(why),
        Some(Ok(line)) => line,
    };
    if let Some(why) = line.strip_prefix("ERROR ") {
        return Heard::Nonsense(why.to_owned());
    }
    let read = line.strip_prefix("OK ").and_then(read);
    read.map_or_else(|| Heard::Nonsense("it does not speak laneway-rdma 2".into()), Heard::Whole)
}

impl Mailboxes {
    /// From what a server has said so far.
    pub fn hear(said: &[u8]) -> Heard<Mailboxes> {
        answered(said, MAILBOXES_BYTES_MAX, Mailboxes::read)
    }

    fn read(line: &str) -> Option<Mailboxes> {
        let mut words = Words::of(line);
        // The longest message is to fit the window, and no lane is what marks a request.
        let fits = |bounds: &Bounds| bounds.window >= PARTS_MAX && bounds.lanes < LANES_MAX;
        let bounds = words.bounds().filter(fits)?;
        let (address, mtu) = words.port()?;
        let qkey = words.number(0, QKEY_MAX.into())? as u32;
        let numbers = (0..bounds.lanes).map(|_| words.number(1, NUMBER_MAX));
        let numbers = numbers.map(|number| Some(number? as u32)).collect::<Option<_>>()?;
        words.end()?;
        Some(Mailboxes { bounds, address, mtu, qkey, numbers })
    }
}

impl Welcome {
    /// From what a server has said so far.
    pub fn hear(said: &[u8]) -> Heard<Welcome> {
        answered(said, LINE_BYTES_MAX, Welcome::read)
    }

    fn read(line: &str) -> Option<Welcome> {
        let mut words = Words::of(line);
        let bounds = words.bounds()?;
        let far = words.far()?;
        let slots_address = words.number(0, u64::MAX - bounds.bytes() as u64)?;
        let slots_rkey = words.number(0, u32::MAX.into())? as u32;
        let grant = words.span()?;
        words.end()?;
        Some(Welcome { bounds, far, slots_address, slots_rkey, grant })
    }
}

impl Chosen {
    /// From what a server has said so far.
    pub fn hear(said: &[u8]) -> Heard<Chosen> {
        answered(said, MAILBOXES_BYTES_MAX, Chosen::read)
    }

    /// Which it is.
    pub fn service(&self) -> Service {
        match self {
            Chosen::Slots(_) => Service::Unreliable,
            Chosen::Datagrams(_) => Service::Datagrams,
        }
    }

    fn read(line: &str) -> Option<Chosen> {
        let (service, rest) = line.split_once(' ')?;
        match service.parse().ok()? {
            Service::Unreliable => Welcome::read(rest).map(Chosen::Slots),
            Service::Datagrams => Mailboxes::read(rest).map(Chosen::Datagrams),
            Service::Reliable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said is understood, and less of it is not enough.
    fn check<T: PartialEq + fmt::Debug>(said: &str, hear: fn(&[u8]) -> Heard<T>, whole: T) {
        for cut in 0..said.len() {
            assert_eq!(hear(&said.as_bytes()[..cut]), Heard::More, "{cut}");
        }
        assert_eq!(hear(said.as_bytes()), Heard::Whole(whole));
    }

    fn is_nonsense<T>(hear: fn(&[u8]) -> Heard<T>, said: &[u8]) -> bool {
        matches!(hear(said), Heard::Nonsense(_))
    }

    const FAR: Far = Far {
        address: Address { lid: 7, gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8] },
        mtu: 5,
        number: 0xff_ffff,
        psn: 12,
    };

    const SPAN: Span = Span { address: u64::MAX - (1 << 31), rkey: u32::MAX, bytes: 1 << 31 };

    fn hello() -> Hello {
        Hello {
            service: Some(Service::Unreliable),
            far: FAR,
            sends_number: 0,
            replies_number: 18,
            replies_qkey: QKEY_MAX,
            replies: SPAN,
            requests: SPAN,
        }
    }

    fn welcome() -> Welcome {
        let bounds = Bounds { lanes: 2, window: 32 };
        Welcome { bounds, far: FAR, slots_address: 1 << 40, slots_rkey: u32::MAX, grant: SPAN }
    }

    fn mailboxes(lanes: usize) -> Mailboxes {
        let bounds = Bounds { lanes, window: 8 };
        let numbers = (0..lanes as u32).map(|lane| (1 << NUMBER_BITS) - 1 - lane).collect();
        Mailboxes { bounds, address: FAR.address, mtu: 5, qkey: QKEY_MAX, numbers }
    }

    #[test]
    fn numbers_of_as_many_lanes_as_there_may_be_are_one_line() {
        for lanes in [1, 2, LANES_MAX - 1] {
            let said = mailboxes(lanes).to_string();
            assert!(said.len() <= MAILBOXES_BYTES_MAX, "{}", said.len());
            check(&said, Mailboxes::hear, mailboxes(lanes));
        }
        let good = mailboxes(2);
        let of = |numbers: &[u32]| Mailboxes { numbers: numbers.to_vec(), ..good.clone() };
        for wrong in [
            of(&[1]),
            of(&[1, 2, 3]),
            mailboxes(LANES_MAX),
            of(&[1, 0]),
            of(&[1, 1 << NUMBER_BITS]),
            Mailboxes { qkey: QKEY_MAX + 1, ..good.clone() },
            Mailboxes { bounds: Bounds { lanes: 2, window: 7 }, ..good.clone() },
            Mailboxes { bounds: Bounds { lanes: 2, window: 1 }, ..good.clone() },
        ] {
            assert!(is_nonsense(Mailboxes::hear, wrong.to_string().as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn greetings_are_read_as_they_were_said_however_they_were_cut() {
        let others = [
            hello(),
            Hello { service: Some(Service::Reliable), ..hello() },
            Hello { service: Some(Service::Datagrams), sends_number: FAR.number, ..hello() },
            Hello { service: None, sends_number: 0xff_fffe, ..hello() },
        ];
        for hello in others {
            let said = hello.to_string();
            assert!(said.len() <= LINE_BYTES_MAX, "{}", said.len());
            check(&said, Hello::hear, hello);
        }
        check(&welcome().to_string(), Welcome::hear, welcome());
    }

    #[test]
    fn what_clients_from_before_the_choice_say_and_hear_is_what_it_was() {
        let far = "7 fe800000000000000102030405060708 5 16777215 12";
        let span = "18446744071562067967 4294967295 2147483648";
        let line = format!("laneway-rdma 2 uc {far} 18 2147483647 {span} {span}\n");
        assert_eq!(hello().to_string(), line);
        assert_eq!(Hello::hear(line.as_bytes()), Heard::Whole(hello()));
        let line = format!("OK 2 32 {far} 1099511627776 4294967295 {span}\n");
        assert_eq!(welcome().to_string(), line);
        let line = "OK 2 8 7 fe800000000000000102030405060708 5 2147483647 16777215 16777214\n";
        assert_eq!(mailboxes(2).to_string(), line);
    }

    #[test]
    fn who_leaves_the_choice_to_the_server_is_told_it_in_front_of_the_rest() {
        for (chosen, service) in [
            (Chosen::Slots(welcome()), Service::Unreliable),
            (Chosen::Datagrams(mailboxes(LANES_MAX - 1)), Service::Datagrams),
        ] {
            assert_eq!(chosen.service(), service);
            let said = chosen.to_string();
            assert!(said.starts_with(&format!("OK {} ", service.name())), "{said}");
            check(&said, Chosen::hear, chosen);
            // Nobody else takes it for an answer.
            assert!(is_nonsense(Mailboxes::hear, said.as_bytes()), "{said}");
            assert!(is_nonsense(Welcome::hear, said.as_bytes()), "{said}");
        }
        let others = [welcome().to_string(), mailboxes(2).to_string()];
        let as_others = others.iter().map(|said| said.replace("OK ", "OK rc "));
        for wrong in others.iter().cloned().chain(as_others).chain(["OK any\n".into()]) {
            assert!(is_nonsense(Chosen::hear, wrong.as_bytes()), "{wrong}");
        }
        // Who may be told to send says from which queue pair.
        let said = Hello { service: None, sends_number: 0, ..hello() }.to_string();
        assert!(is_nonsense(Hello::hear, said.as_bytes()), "{said}");
        let said = hello().to_string().replace(" uc ", " any ");
        assert!(is_nonsense(Hello::hear, said.as_bytes()), "{said}");
    }

    #[test]
    fn a_word_that_is_wrong_missing_or_too_many_is_refused() {
        let said = hello().to_string();
        let words: Vec<&str> = said.trim_end().split(' ').collect();
        for number in 2..words.len() {
            for wrong in ["", "x", "-1", "+1", "99999999999999999999", "1 1"] {
                let mut words = words.clone();
                words[number] = wrong;
                let line = words.join(" ") + "\n";
                assert!(is_nonsense(Hello::hear, line.as_bytes()), "{line:?}");
            }
            let line = [&words[..number], &words[number + 1..]].concat().join(" ") + "\n";
            assert!(is_nonsense(Hello::hear, line.as_bytes()), "{line:?}");
        }
        for wrong in [
            &b"laneway-rdma 1 "[..],
            b"get k\r\n",
            b"laneway-rdma 2 uc\n",
            b"laneway-rdma 2 \xff\n",
            [said.as_bytes(), b"more"].concat().as_slice(),
            [b"laneway-rdma 2 ".as_slice(), &[b'1'; LINE_BYTES_MAX]].concat().as_slice(),
        ] {
            assert!(is_nonsense(Hello::hear, wrong), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_that_no_device_gives_are_refused() {
        let line = |far: Far, qkey: u32| {
            Hello { far, replies_qkey: qkey, ..hello() }.to_string().into_bytes()
        };
        let nobody = Address { lid: 0, gid: [0; 16] };
        for (far, qkey) in [
            (Far { number: 0, ..FAR }, 1),
            (Far { number: 1 << NUMBER_BITS, ..FAR }, 1),
            (Far { psn: 1 << NUMBER_BITS, ..FAR }, 1),
            (Far { mtu: 2, ..FAR }, 1),
            (Far { mtu: 6, ..FAR }, 1),
            (Far { address: nobody, ..FAR }, 1),
            (FAR, QKEY_MAX + 1),
        ] {
            assert!(is_nonsense(Hello::hear, &line(far, qkey)), "{far:?}");
        }
        let bounds = |lanes, window| Bounds { lanes, window };
        for wrong in [
            Welcome { bounds: bounds(0, 32), ..welcome() },
            Welcome { bounds: bounds(129, 32), ..welcome() },
            Welcome { bounds: bounds(1, 31), ..welcome() },
            Welcome { slots_address: u64::MAX - 5, ..welcome() },
            Welcome { grant: Span { address: SPAN.address + 1, ..SPAN }, ..welcome() },
            Welcome { grant: Span { address: 0, bytes: SPAN.bytes + 1, ..SPAN }, ..welcome() },
        ] {
            assert!(is_nonsense(Welcome::hear, wrong.to_string().as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn a_server_that_says_no_is_quoted() {
        let no = b"ERROR there are 64 clients already\n";
        let why = "there are 64 clients already".to_owned();
        assert_eq!(Welcome::hear(no), Heard::Nonsense(why.clone()));
        assert_eq!(Mailboxes::hear(no), Heard::Nonsense(why));
        assert!(is_nonsense(Welcome::hear, b"OK\n") && is_nonsense(Welcome::hear, b"OK 2 32\nOK"));
    }
}
