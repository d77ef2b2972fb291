//! A server's host and a client's, each with a card; and on the former two servers with the same
//! items, one with the lane and one without.

use crate::hosts::{Host, PATIENCE};
use crate::kinds::{Hook, Link, VLAN};
use crate::requests::Stored;
use laneway_kernel::{ethtool, redirect};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The server with the lane, and the one without, by their ports.
pub const LANE: usize = 0;
pub const PORTS: [u16; 2] = [11211, 11311];
/// Whom the lane serves, and where else the client is.
const PEERS: &str = "10.9.0.0/24,fd09::/64";
pub const STRANGER: &str = "10.10.0.2";
/// Of the server's card, where it has several: twice the CPUs.
const QUEUES: usize = 4;
const LARGE_BYTES: usize = 900_000;
const TRAINS: &str = "tx-udp-segmentation";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Card {
    /// Several queues; packets come with their checksums unfinished, or not looked at.
    Virtio,
    /// An emulated Intel 82574: checksums are looked at and VLAN tags taken off by the card.
    Intel,
    /// Not a card at all: virtual Ethernet, to try this program without a machine for it.
    Virtual,
}

impl Card {
    /// Where the lane can be on it.
    pub fn hooks(self) -> &'static [Hook] {
        match self {
            Card::Virtio => &[Hook::TrafficControl, Hook::Xdp],
            Card::Intel | Card::Virtual => &[Hook::TrafficControl],
        }
    }
}

pub struct Site {
    pub server: Host,
    pub client: Host,
    pub card: Card,
    /// The two cards' interfaces.
    pub here: String,
    pub there: String,
    pub link: Link,
    /// Whether the server's host is in a VLAN.
    pub has_vlan: bool,
    /// What is lost is waited for so long.
    pub patience: Duration,
}

impl Site {
    /// Takes the two interfaces, or makes a pair of virtual ones of these names.
    pub fn new(card: Card, here: &str, there: &str, patience: Duration) -> Site {
        let (server, client) = (Host::new(), Host::new());
        if card == Card::Virtual {
            let pair = ["link", "add", here, "type", "veth", "peer", "name", there];
            ip(&pair);
        }
        ip(&["link", "set", here, "netns", &server.path()]);
        ip(&["link", "set", there, "netns", &client.path()]);
        let look =
            |host: &Host, name: &str| host.run(|| redirect::look(name)).expect("it is there");
        let link =
            Link { server: look(&server, here).ethernet, client: look(&client, there).ethernet };
        // Trains are cut before they leave, as by a card that cannot.
        if client.run(|| ethtool::is_on(there, TRAINS)).expect("the kernel tells") {
            client.run(|| ethtool::set(there, TRAINS, false)).expect("it can do without");
        }
        let ends = [(&server, here, 1, 2, link.client), (&client, there, 2, 1, link.server)];
        for (host, name, own, other, ethernet) in ends {
            host.ip(&format!("addr add 10.9.0.{own}/24 dev {name}"));
            host.ip(&format!("-6 addr add fd09::{own}/64 dev {name} nodad"));
            host.ip(&format!("link set {name} up"));
            let to = ethernet.map(|byte| format!("{byte:02x}")).join(":");
            for other in [format!("10.9.0.{other}"), format!("fd09::{other}")] {
                host.ip(&format!("neigh replace {other} lladdr {to} dev {name} nud permanent"));
            }
        }
        client.ip(&format!("addr add {STRANGER}/32 dev {there}"));
        server.ip(&format!("route add {STRANGER}/32 via 10.9.0.2 dev {here}"));
        let has_vlan = card != Card::Virtual;
        if has_vlan {
            let vlan = format!("link add link {here} name {here}.{VLAN} type vlan id {VLAN}");
            server.ip(&vlan);
            server.ip(&format!("link set {here}.{VLAN} up"));
        }
        let (here, there) = (here.to_owned(), there.to_owned());
        Site { server, client, card, here, there, link, has_vlan, patience }
    }

    /// Gives the server's card as many queues as it can have. At XDP there must be one to spare for
    /// each CPU: where there is none, and more queues than CPUs, Linux 6.12 sends what the program
    /// sends by queues that there are not, and falls over.
    pub fn use_queues(&self, hook: Hook) {
        if self.card == Card::Virtio {
            let queues = if hook == Hook::Xdp { QUEUES / 2 } else { QUEUES };
            tool(&self.server, &["-L", &self.here, "combined", &queues.to_string()]);
        }
    }

    /// What `ethtool -S` counts of the server's card.
    pub fn counted(&self) -> BTreeMap<String, u64> {
        let told = tool(&self.server, &["-S", &self.here]);
        let line = |line: &str| {
            let (name, number) = line.trim().split_once(": ")?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        told.lines().filter_map(line).collect()
    }

    /// The queues of the server's card that packets came by: those that interrupted.
    pub fn queues_used(&self) -> usize {
        let told = tool(&self.server, &["-i", &self.here]);
        let place = told.lines().find_map(|line| line.strip_prefix("bus-info: "));
        let place = format!("/sys/bus/pci/devices/{}", place.expect("a place").trim());
        let mut parts = std::fs::read_dir(place).expect("sysfs");
        let device = parts.find_map(|part| {
            let name = part.ok()?.file_name().into_string().ok()?;
            name.starts_with("virtio").then_some(name)
        });
        let queue = format!("{}-input.", device.expect("a virtio card"));
        let all = std::fs::read_to_string("/proc/interrupts").expect("procfs");
        let has_come = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next_back().is_some_and(|name| name.starts_with(&queue))
                && words.skip(1).map_while(|word| word.parse::<u64>().ok()).any(|count| count > 0)
        };
        all.lines().filter(has_come).count()
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip, of the package iproute2");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {told}", words.join(" "));
}

/// `ethtool` on a host.
pub fn tool(host: &Host, words: &[&str]) -> String {
    let output = host.run(|| Command::new("ethtool").args(words).output());
    let output = output.expect("ethtool, of the package of that name");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ethtool {}: {told}", words.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The two servers.
pub struct Pair {
    _servers: [Server; 2],
    /// Where each answers UDP.
    pub to: [SocketAddr; 2],
    pub hook: Hook,
    /// One client's TCP connection to each.
    control: [BufReader<TcpStream>; 2],
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill(); // gone already, unless something failed
        let _ = self.0.wait();
    }
}

impl Pair {
    /// Starts both, and gives both these items.
    pub fn start(site: &Site, laneway: &str, hook: Hook, address: IpAddr, stored: &Stored) -> Pair {
        let name = if hook == Hook::Xdp { "xdp" } else { "tc" };
        let lane = ["--kernel-lane", &site.here, "--kernel-lane-peers", PEERS];
        let lane = [&lane[..], &["--kernel-lane-hook", name, "--kernel-lane-rate", "0"]].concat();
        let with = |at: usize| if at == LANE { &lane[..] } else { &[] };
        let servers = [0, 1].map(|at| serve(site, laneway, address, PORTS[at], with(at)));
        let control = PORTS.map(|port| {
            let to = SocketAddr::from(([10, 9, 0, 1], port));
            let stream = site.client.run(|| TcpStream::connect(to)).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
            BufReader::new(stream)
        });
        let to = PORTS.map(|port| SocketAddr::new(address, port));
        let mut pair = Pair { _servers: servers, to, hook, control };
        for (key, (value, flags)) in stored {
            let head = format!(" {flags} 0 {}\r\n", value.len());
            let set = [b"set ", &key[..], head.as_bytes(), value, b"\r\n"].concat();
            pair.both(&set, "STORED");
            // What has been read before says so (`h`): of all of them that is so now.
            pair.both(&[b"get ", &key[..], b"\r\n"].concat(), "END");
        }
        pair
    }

    /// Gives the server without the lane another value of this key.
    pub fn differ(&mut self, key: &[u8], flags: u32) {
        let set = [b"set ", key, format!(" {flags} 0 1\r\n?\r\n").as_bytes()].concat();
        self.ask(1 - LANE, &set, "STORED");
    }

    /// The same to both, by TCP, up to a line that begins so.
    fn both(&mut self, request: &[u8], last: &str) {
        for at in 0..PORTS.len() {
            self.ask(at, request, last);
        }
    }

    fn ask(&mut self, at: usize, request: &[u8], last: &str) -> String {
        let control = &mut self.control[at];
        control.get_mut().write_all(request).expect("the server reads");
        let (mut reply, mut line) = (String::new(), String::new());
        while !line.starts_with(last) {
            line.clear();
            let bytes = control.read_line(&mut line).expect("a reply");
            assert!(bytes > 0 && !line.contains("ERROR"), "{}: {line}", request.escape_ascii());
            reply.push_str(&line);
        }
        reply
    }

    /// What the lane has counted.
    pub fn counted(&mut self) -> BTreeMap<String, u64> {
        let told = self.ask(LANE, b"stats kernel\r\n", "END");
        let stat = |line: &str| {
            let (name, value) = line.trim_end().strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        told.lines().filter_map(stat).collect()
    }

    /// A large value there and back by TCP, which the card cuts and joins, past the lane's program.
    pub fn large_by_tcp(&mut self) {
        let value: Vec<u8> = (0..LARGE_BYTES).map(|i| b'a' + (i * 7 % 23) as u8).collect();
        let set = [format!("set large 0 0 {LARGE_BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat();
        self.ask(LANE, &set, "STORED");
        self.ask(LANE, b"get large\r\n", "VALUE large");
        let mut back = vec![0; LARGE_BYTES];
        self.control[LANE].read_exact(&mut back).expect("a value");
        assert!(back == value, "a large value came back as another");
        self.ask(LANE, b"", "END");
    }
}

fn command(laneway: &str, address: IpAddr, port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(laneway);
    let (address, port) = (address.to_string(), port.to_string());
    command.args(["serve", "-l", "0.0.0.0", "-p", &port, "-U", &port, "-t", "2", "-m", "64"]);
    command.args(["--udp-listen", &address, "--udp-public"]).args(more);
    command
}

fn serve(site: &Site, laneway: &str, address: IpAddr, port: u16, more: &[&str]) -> Server {
    let mut command = command(laneway, address, port, more);
    let child = site.server.run(|| command.stderr(Stdio::piped()).spawn());
    let mut server = Server(child.expect("laneway can be started"));
    let mut log = BufReader::new(server.0.stderr.take().expect("it was piped"));
    let mut said = String::new();
    while !said.contains("ready on") {
        let bytes = log.read_line(&mut said).expect("stderr can be read");
        assert!(bytes > 0, "it ended before it was ready: {said}");
    }
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            eprintln!("server {port}: {line}");
        }
    });
    server
}

/// What a server says that refuses to start so.
pub fn refused(site: &Site, laneway: &str, more: &[&str]) -> String {
    let mut command = command(laneway, [10, 9, 0, 1].into(), PORTS[LANE], more);
    let lane = ["--kernel-lane", &site.here, "--kernel-lane-peers", PEERS];
    let output = site.server.run(|| command.args(lane).output()).expect("laneway can be started");
    assert!(!output.status.success(), "it was to be refused: {more:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
