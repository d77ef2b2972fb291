//! Where it listens: `-l`, `-p` and `--resp`, as memcached reads them, with what may stand before
//! an address.

use crate::flags::{Flags, bytes};
use laneway_server::access::client_limits::Rates;
use laneway_server::settings::{Port, Rules};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// memcached's port.
const PORT: u16 = 11211;
/// Before an address of `-l` where nothing is encrypted, and where nothing may be changed.
const NO_TLS: &str = "notls:";
pub const READ_ONLY: &str = "readonly:";
/// Before one whose clients are limited together: requests and bytes a second stand behind these.
pub const RATE: &str = "rate=";
pub const BYTES: &str = "bytes=";

/// An address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// It.
    pub address: SocketAddr,
    /// Connections to it are encrypted, if the server has a certificate (`-Z`).
    pub encrypts: bool,
    /// What holds of them.
    pub rules: Rules,
}

impl Place {
    /// The same for the server.
    pub fn port(&self) -> Port {
        Port { address: self.address, rules: self.rules }
    }
}

/// The addresses of `-l` and `-p`, as memcached reads them: names or numbers, separated by commas,
/// each with or without a port; all interfaces where none is given.
pub fn places(flags: &Flags) -> Result<Vec<Place>, String> {
    let port = match flags.port {
        None => PORT,
        Some(-1) => 0, // the kernel chooses
        Some(port) => u16::try_from(port)
            .map_err(|_| format!("-p {port}: must be from 1 to 65535, or -1 for any free port"))?,
    };
    if flags.port == Some(0) {
        return match is_served_elsewhere(flags) {
            true => Ok(Vec::new()),
            false => Err("-p 0 turns TCP off, and nothing else is left; listen on a unix socket \
                          with -s PATH, or for datagrams with -U PORT, or leave -p out"
                .to_owned()),
        };
    }
    resolve_places(flags, port)
}

/// Whether there is another way in than a port of memcached's over TCP.
fn is_served_elsewhere(flags: &Flags) -> bool {
    flags.udp_port.is_some_and(|port| port != 0)
        || flags.udp_base.is_some()
        || flags.resp.is_some()
        || flags.shm.is_some()
        || flags.rdma.is_some()
}

/// Where Redis' clients may come.
pub fn resp(flags: &Flags) -> Result<Vec<Place>, String> {
    let Some(port) = flags.resp else { return Ok(Vec::new()) };
    // A port of -l is memcached's. Where that leaves an address both ways, it is encrypted, and has
    // the looser rules, as the address has by another port.
    let mut all = resolve_places(flags, port)?;
    all.iter_mut().for_each(|place| place.address.set_port(port));
    all.sort_by_key(|place| (place.address, !place.encrypts));
    let mut places: Vec<Place> = Vec::new();
    for place in all {
        match places.last_mut().filter(|last| last.address == place.address) {
            Some(last) => last.rules = last.rules.looser(place.rules),
            None => places.push(place),
        }
    }
    // One that is served as a wildcard's addresses are is one of them. Another would lose its own
    // rules, or give the wildcard those.
    let all = places.clone();
    let is_alike = |all: &Place, place: &Place| {
        has(&all.address, &place.address)
            && (all.encrypts, all.rules) == (place.encrypts, place.rules)
    };
    places.retain(|place| !all.iter().any(|all| is_alike(all, place)));
    Ok(places)
}

/// The addresses of `-l`, those without a port with this one; all interfaces where none is given.
pub fn resolve_places(flags: &Flags, port: u16) -> Result<Vec<Place>, String> {
    let places: Vec<&str> = flags.listen.iter().flat_map(|list| list.split(',')).collect();
    let places: Vec<&str> = places.into_iter().filter(|place| !place.is_empty()).collect();
    // An empty variable of a script must not open the server to everybody.
    if !flags.listen.is_empty() && places.is_empty() {
        return Err(format!(
            "-l '{}': names no address; write one, or leave -l out for all interfaces",
            flags.listen.join(",")
        ));
    }
    if places.is_empty() {
        let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let all = [v4, v6].map(|ip| SocketAddr::new(ip, port));
        let place = |address| Place { address, encrypts: true, rules: Rules::default() };
        return Ok(all.map(place).to_vec());
    }
    let mut all = Vec::new();
    for place in places {
        let words = Words::before(place);
        let (encrypts, rules) = (!words.is_plain, words.rules(place)?);
        let mut found = resolve(flags, words.bare, port)?;
        // Names are told with an address twice, by some files of hosts.
        let mut seen = BTreeSet::new();
        found.retain(|address| seen.insert(*address));
        all.extend(found.into_iter().map(|address| Place { address, encrypts, rules }));
    }
    Ok(all)
}

/// Refuses an address that these places have twice, or that is one of those of a wildcard among
/// them: the kernel would refuse the second as it does one of another server.
pub fn check_once(memcached: &[Place], resp: &[Place]) -> Result<(), String> {
    let all = memcached.iter().map(|place| ("-l", place));
    let all = all.chain(resp.iter().map(|place| ("--resp", place)));
    // At port 0 the kernel chooses another each time.
    let all = all.map(|(flag, place)| (flag, place.address)).filter(|(_, place)| place.port() != 0);
    let mut seen: Vec<SocketAddr> = Vec::new();
    for (flag, address) in all {
        if seen.contains(&address) {
            return Err(format!(
                "{flag}: {address} is given twice by -l, -p and --resp; leave it out once, or \
                 choose another port"
            ));
        }
        let is_met = |other: &&SocketAddr| has(other, &address) || has(&address, other);
        if let Some(other) = seen.iter().find(is_met) {
            let (wide, one) =
                if has(other, &address) { (*other, address) } else { (address, *other) };
            return Err(format!(
                "{flag}: {wide} has all addresses, {one} among them, and both are given by -l, -p \
                 and --resp; leave one of them out, or choose another port"
            ));
        }
        seen.push(address);
    }
    Ok(())
}

/// Whether the kernel lets nobody listen at both; at port 0 it chooses another each time.
pub fn meet(one: &SocketAddr, other: &SocketAddr) -> bool {
    one.port() != 0 && (one == other || has(one, other) || has(other, one))
}

/// Whether the first is a wildcard that has the second. That of IPv6 has none of IPv4.
fn has(all: &SocketAddr, one: &SocketAddr) -> bool {
    let is_of_kind = all.port() == one.port() && all.is_ipv4() == one.is_ipv4();
    is_of_kind && all.ip().is_unspecified() && !one.ip().is_unspecified()
}

/// An address of `-l`, and the words before it, which are in any order.
#[derive(Default)]
struct Words<'a> {
    bare: &'a str,
    is_plain: bool,
    read_only: bool,
    /// As they are written.
    rate: Option<&'a str>,
    bytes: Option<&'a str>,
    /// One of these that is written again.
    again: Option<&'static str>,
}

impl Words<'_> {
    /// Those before this address.
    fn before(place: &str) -> Words<'_> {
        let mut words = Words { bare: place, ..Words::default() };
        loop {
            if let Some(rest) = words.bare.strip_prefix(NO_TLS) {
                (words.bare, words.is_plain) = (rest, true);
            } else if let Some(rest) = words.bare.strip_prefix(READ_ONLY) {
                (words.bare, words.read_only) = (rest, true);
            } else if let Some((number, rest)) = numbered(words.bare, RATE) {
                words.again = words.again.or(words.rate.map(|_| RATE));
                (words.bare, words.rate) = (rest, Some(number));
            } else if let Some((number, rest)) = numbered(words.bare, BYTES) {
                words.again = words.again.or(words.bytes.map(|_| BYTES));
                (words.bare, words.bytes) = (rest, Some(number));
            } else {
                return words;
            }
        }
    }

    fn rules(&self, place: &str) -> Result<Rules, String> {
        if let Some(word) = self.again {
            return Err(format!("-l {place}: {word} is said twice; say it once"));
        }
        let rates = rates(self.rate, self.bytes).map_err(|why| format!("-l {place}: {why}"))?;
        Ok(Rules { read_only: self.read_only, rates })
    }
}

/// Requests and bytes a second, as they are written behind their words.
pub fn rates(rate: Option<&str>, size: Option<&str>) -> Result<Rates, String> {
    let rate = rate.unwrap_or("0");
    let requests: u64 = rate.parse().map_err(|_| {
        format!("{RATE}{rate} is no number of requests a second; write digits alone")
    })?;
    let size = bytes(size.unwrap_or("0")).map_err(|why| format!("{BYTES}{why}"))?;
    Ok(Rates::new(requests, size))
}

/// What stands behind this word up to a colon, and behind that.
fn numbered<'a>(bare: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    bare.strip_prefix(word)?.split_once(':')
}

/// What stands before the port, and the port if there is one.
fn apart(place: &str) -> (&str, Option<u16>) {
    let port = place.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    port.map_or((place, None), |(host, port)| (host, Some(port)))
}

/// Look up the names of `-l` and `--admin`, once for as long as the process lives: SIGHUP needs no
/// network then, which a sandbox leaves nobody. A name that is not found is left out; whoever needs
/// it says so.
pub fn look_up(flags: &Flags) -> BTreeMap<String, Vec<SocketAddr>> {
    let places = flags.listen.iter().flat_map(|list| list.split(','));
    let places = places.map(|place| Words::before(place).bare).chain(flags.admin.as_deref());
    let names = places.filter(|place| !is_number(place)).map(|place| apart(place).0);
    let names = names.filter(|name| !is_number(name) && !is_no_name(name));
    let found = names.filter_map(|name| {
        let found = (name, 0).to_socket_addrs().ok()?;
        Some((name.to_owned(), found.collect()))
    });
    found.collect()
}

/// A name of `-l` or `--admin` that was not looked up when the server started, with its flag.
pub fn unknown(flags: &Flags) -> Option<(&'static str, &str)> {
    // Where nobody would look it up, it does not matter.
    let is_meant = !flags.handed.clients && (flags.unix_socket.is_none() || flags.resp.is_some());
    let listen = flags.listen.iter().filter(|_| is_meant).flat_map(|list| list.split(','));
    let listen = listen.map(|place| ("-l", Words::before(place).bare));
    let admin = flags.admin.as_deref().filter(|_| !flags.handed.admin);
    let mut all = listen.chain(admin.map(|place| ("--admin", place)));
    all.find(|(_, place)| {
        let name = apart(place).0;
        !is_number(place) && !is_number(name) && !flags.names.contains_key(name)
    })
}

/// Whether it is no name.
fn is_number(place: &str) -> bool {
    let bare = place.trim_start_matches('[').trim_end_matches(']');
    place.is_empty() || bare.parse::<IpAddr>().is_ok()
}

/// Whether it cannot be a name, nor an address with its scope: most of the time a word of `-l` that
/// is mistyped stands before it.
fn is_no_name(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_scoped = bare.split_once('%').is_some_and(|(ip, _)| ip.parse::<Ipv6Addr>().is_ok());
    bare.contains([':', '=']) && !is_scoped && !is_number(name)
}

/// Addresses of a name that was looked up already, with its port or else this one.
pub fn known(flags: &Flags, place: &str, otherwise: Option<u16>) -> Option<Vec<SocketAddr>> {
    let (name, port) = apart(place);
    let (found, port) = (flags.names.get(name)?, port.or(otherwise)?);
    let mut found = found.clone(); // with the scope that an IPv6 address may have
    found.iter_mut().for_each(|address| address.set_port(port));
    Some(found)
}

fn resolve(flags: &Flags, place: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let wrong = |error: &dyn std::fmt::Display| {
        format!("-l {place}: {error}; write an address, a name, or ADDRESS:PORT, [IPV6]:PORT")
    };
    let bare = place.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if let Some(known) = known(flags, place, Some(port)) {
        return Ok(known);
    }
    if is_no_name(apart(place).0) {
        return Err(format!(
            "-l {place}: neither an address nor a name; write ADDRESS, ADDRESS:PORT or \
             [IPV6]:PORT, and before it, where they are meant, {READ_ONLY}, {NO_TLS}, {RATE}N: or \
             {BYTES}N:"
        ));
    }
    let found = match place.rsplit_once(':') {
        Some((_, digits)) if digits.parse::<u16>().is_ok() => place.to_socket_addrs(),
        _ => (place, port).to_socket_addrs(),
    };
    let found: Vec<SocketAddr> = found.map_err(|error| wrong(&error))?.collect();
    if found.is_empty() { Err(wrong(&"no address of that name")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::typed as flags;
    use std::net::SocketAddrV6;

    #[test]
    fn names_are_looked_up_and_numbers_are_not() {
        for (line, wanted) in [
            ("-l 127.0.0.1,[::1],::1,10.0.0.1:5,[::1]:6 --admin 127.0.0.1:1", &[][..]),
            ("-l readonly:notls:10.0.0.1,,notls:[::1]:5", &[]),
            ("-l readonly:localhost:5,notls:localhost", &["localhost"]),
            ("-l rate=5:localhost:5,bytes=1m:10.0.0.1", &["localhost"]),
            ("--admin localhost:1", &["localhost"]),
            ("-l no-such-name.invalid", &[]),
        ] {
            let names = look_up(&flags(line));
            assert_eq!(names.keys().collect::<Vec<_>>(), wanted, "{line}");
            assert!(names.values().flatten().all(|found| found.ip().is_loopback()), "{line}");
        }
    }

    #[test]
    fn what_clients_of_an_address_may_ask_for_together_stands_before_it() {
        let found = |line: &str| places(&flags(line));
        let told = |line: &str| {
            let places = found(line).expect("they are sound");
            let told = places.iter().map(|place| (place.port().to_string(), place.encrypts));
            told.collect::<Vec<_>>()
        };
        let all =
            told("-p 7 -l rate=50:10.0.0.1,notls:bytes=2k:rate=9:readonly:[::1]:5,rate=0:::1");
        let wanted = [
            ("rate=50:10.0.0.1:7".to_owned(), true),
            ("readonly:rate=9:bytes=2048:[::1]:5".to_owned(), false),
            ("[::1]:7".to_owned(), true),
        ];
        assert_eq!(all, wanted);
        for (line, wrong) in [
            ("-l rate=5:rate=60:10.0.0.1", ": rate= is said twice; "),
            ("-l bytes=5:notls:bytes=5:10.0.0.1", ": bytes= is said twice; "),
            ("-l rate=1k:10.0.0.1", ": rate=1k is no number of requests a second; "),
            ("-l bytes=x:10.0.0.1", ": bytes=x is not a size; "),
        ] {
            let told = found(line).expect_err("it is no number");
            assert!(told.starts_with(&format!("{line}{wrong}")), "{told}");
        }
    }

    #[test]
    fn a_word_that_is_mistyped_is_no_name() {
        for place in [
            "rdonly:127.0.0.1",
            "READONLY:127.0.0.1:5",
            "foo=5:127.0.0.1",
            "limit=5:localhost",
            "rate:127.0.0.1",
            "rate=5",
        ] {
            let flags = flags(&format!("-l {place}"));
            let told = places(&flags).expect_err("there is no such word");
            let begin = format!("-l {place}: neither an address nor a name; ");
            assert!(
                told.starts_with(&begin) && told.contains("readonly:, notls:, rate=N:"),
                "{told}"
            );
        }
        for name in ["localhost", "[::1]", "::1", "fe80::1%eth0", "[fe80::1%eth0]", "10.0.0.1", ""]
        {
            assert!(!is_no_name(name), "{name}");
        }
    }

    #[test]
    fn a_port_for_redis_clients_has_the_looser_limits_of_its_address() {
        let line = "--resp 5 -l rate=50:bytes=1k:10.0.0.1:1,rate=60:10.0.0.1:2,rate=7:10.0.0.2";
        let places = resp(&flags(line)).expect("they are sound");
        let told: Vec<_> = places.iter().map(|place| place.port().to_string()).collect();
        assert_eq!(told, ["rate=60:10.0.0.1:5", "rate=7:10.0.0.2:5"]);
    }

    #[test]
    fn an_address_that_is_served_as_a_wildcards_is_one_of_them_for_redis_clients() {
        for (line, wanted) in [
            ("--resp 5 -l 0.0.0.0:1,127.0.0.1:2", Some("0.0.0.0:5")),
            ("--resp 5 -l [::]:1,[::1]:2,10.0.0.1:3", Some("10.0.0.1:5 [::]:5")),
            ("--resp 5 -l rate=9:0.0.0.0:1,rate=9:127.0.0.1:2", Some("rate=9:0.0.0.0:5")),
            ("--resp 5 -l readonly:0.0.0.0:1,127.0.0.1:2", None),
            ("--resp 5 -l 0.0.0.0:1,notls:127.0.0.1:2", None),
            ("--resp 5 -l 0.0.0.0:5,127.0.0.1:2", None), // memcached's has that port
        ] {
            let flags = flags(line);
            let memcached = places(&flags).expect("they are sound");
            let resp = resp(&flags).expect("they are sound");
            let told: Vec<_> = resp.iter().map(|place| place.port().to_string()).collect();
            let checked = check_once(&memcached, &resp);
            assert_eq!(checked.is_ok().then(|| told.join(" ")).as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn what_was_not_looked_up_is_told_with_its_flag() {
        let looked_up = look_up(&flags("-l localhost"));
        for (line, wanted) in [
            ("-l 127.0.0.1,[::1]:5,readonly:localhost:7,,notls:10.0.0.1", None),
            ("-l localhost --admin localhost:5", None),
            ("-l readonly:other.invalid:7 --admin 127.0.0.1:5", Some(("-l", "other.invalid:7"))),
            ("-l ::1 --admin other.invalid:5", Some(("--admin", "other.invalid:5"))),
            ("-s socket -l other.invalid", None),
            ("-s socket -l other.invalid --resp 5", Some(("-l", "other.invalid"))),
        ] {
            let flags = Flags { names: looked_up.clone(), ..flags(line) };
            assert_eq!(unknown(&flags), wanted, "{line}");
        }
    }

    #[test]
    fn a_name_that_was_looked_up_is_not_again() {
        let mut flags = flags("-l readonly:cache.invalid,cache.invalid:5 -p 7");
        assert!(places(&flags).is_err(), "there is no such name");
        let ip: IpAddr = "192.0.2.1".parse().expect("it is one");
        flags.names.insert("cache.invalid".into(), vec![SocketAddr::new(ip, 0)]);
        let place = |port, read_only| Place {
            address: SocketAddr::new(ip, port),
            encrypts: true,
            rules: Rules { read_only, rates: Rates::default() },
        };
        assert_eq!(places(&flags), Ok(vec![place(7, true), place(5, false)]));
        assert_eq!(known(&flags, "cache.invalid:9", None), Some(vec![SocketAddr::new(ip, 9)]));
        assert_eq!(known(&flags, "cache.invalid", None), None);
        let scoped = |port| SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 2));
        flags.names.insert("fe80::1%eth0".into(), vec![scoped(0)]);
        assert_eq!(known(&flags, "fe80::1%eth0", Some(7)), Some(vec![scoped(7)]));
    }
}
