//! The place that meets the requests: programs, sockets, a server; and what its threads used.

use crate::hosts::{self, Host, INTERFACE, PEER};
use crate::writer::{PLAIN, PORT, Writer};
use aya::Ebpf;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use laneway_kernel::{Outcome, Program};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use std::error::Error;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// A port beside that of the lane.
const OTHER_PORT: u16 = PORT + 1;
const OWN: &str = "10.9.0.1";
/// The driver of virtual Ethernet leaves little room behind a packet for a longer reply, so the key
/// is longer than the value.
const KEY_BYTES: usize = 200;
const VALUE_BYTES: usize = 100;
/// How often a thread that reads a socket looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);
/// What a server's log says when it serves.
const READY: &str = "ready on";

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Where requests are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Xdp,
    Tc,
    Queue,
    Socket,
    Worker,
}

impl Place {
    pub fn named(name: &str) -> Option<Place> {
        Some(match name {
            "xdp" => Place::Xdp,
            "tc" => Place::Tc,
            "queue" => Place::Queue,
            "socket" => Place::Socket,
            "worker" => Place::Worker,
            _ => return None,
        })
    }
}

/// What meets them. Held for as long as it is to.
enum Meets {
    /// The lane; and at the driver's hook a program of the client's, without which virtual Ethernet
    /// takes nothing from there.
    Lane {
        writer: Box<Writer>,
        _peer: Option<Box<Writer>>,
    },
    Drops {
        behind: UdpSocket,
        _ebpf: Box<Ebpf>,
    },
    Nobody {
        _socket: UdpSocket,
    },
    Reader(Reader),
    Server(Child),
}

/// The place and the two hosts.
pub struct Site {
    meets: Meets,
    /// The lane, where requests go to another port.
    beside: Option<Box<Writer>>,
    _server: Host,
    pub client: Host,
    /// Where requests go.
    pub address: String,
    request: String,
}

impl Site {
    pub fn new(
        place: Place,
        beside_lane: bool,
        answered: bool,
        laneway: Option<&str>,
    ) -> Result<Site> {
        let (server, client) = hosts::connected();
        let port = if beside_lane { OTHER_PORT } else { PORT };
        let address = format!("{OWN}:{port}");
        let beside = match beside_lane {
            true => Some(Box::new(attached(Program::TrafficControl, &server)?)),
            false => None,
        };
        let meets = match (place, answered) {
            (Place::Xdp, true) => lane(Program::Xdp, &server, &client)?,
            (Place::Tc, true) => lane(Program::TrafficControl, &server, &client)?,
            (Place::Xdp | Place::Tc, false) => drops(place == Place::Xdp, &server, &address)?,
            (Place::Queue, _) => Meets::Nobody { _socket: server.socket(&address) },
            (Place::Socket, _) => Meets::Reader(Reader::start(server.socket(&address), answered)?),
            (Place::Worker, _) => {
                Meets::Server(serve(laneway.unwrap_or("laneway"), &server, port)?)
            }
        };
        if place == Place::Worker {
            let set = format!("set {} 0 0 {VALUE_BYTES}\r\n{}\r\n", key('k'), value());
            let reply = hosts::ask(&client.socket("10.9.0.2:0"), &address, &set);
            if reply != "STORED\r\n" {
                return Err(format!("the server says {reply:?}").into());
            }
        }
        let request = match (place, answered) {
            // A miss that is not told: a request whose reply is left out.
            (Place::Worker, false) => format!("mg {} v q\r\n", key('m')),
            _ => format!("mg {} v\r\n", key('k')),
        };
        Ok(Site { meets, beside, _server: server, client, address, request })
    }

    /// The same at every place, but for the letter and the flag of a miss.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// CPU time that the site's threads have used so far.
    pub fn server_busy_ns(&self) -> u64 {
        let tasks: Vec<PathBuf> = match &self.meets {
            Meets::Reader(reader) => vec![reader.task.clone()],
            Meets::Server(child) => {
                let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id()));
                tasks.into_iter().flatten().flatten().map(|task| task.path()).collect()
            }
            _ => Vec::new(),
        };
        let busy = |task: &PathBuf| {
            let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        tasks.iter().filter_map(busy).sum()
    }

    /// Whether it was met where it should be.
    pub fn check(&self, answered: u64) -> Result<()> {
        if let Some(writer) = &self.beside {
            // It is at the interface, where all packets pass it, and took none of them.
            let get = format!("mg {} v\r\n", key('k'));
            let lane = format!("{OWN}:{PORT}");
            let told = hosts::ask(&self.client.socket("10.9.0.2:0"), &lane, &get);
            let hits = writer.lane.counts()?.of(Outcome::Hit);
            if !told.starts_with("VA ") || hits != 1 {
                return Err(format!("the lane beside: {hits} hits; it says {told:?}").into());
            }
        }
        match &self.meets {
            Meets::Lane { writer, .. } => {
                let hits = writer.lane.counts()?.of(Outcome::Hit);
                (hits >= answered && answered > 0)
                    .then_some(())
                    .ok_or_else(|| format!("{hits} hits, {answered} replies").into())
            }
            Meets::Drops { behind, .. } => match behind.recv(&mut [0; 64]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
                other => Err(format!("a datagram got past the program: {other:?}").into()),
            },
            Meets::Nobody { .. } | Meets::Reader(_) | Meets::Server(_) => Ok(()),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Meets::Server(child) = &mut self.meets {
            let _ = child.kill(); // it may have ended by itself
            let _ = child.wait();
        }
    }
}

fn key(letter: char) -> String {
    letter.to_string().repeat(KEY_BYTES)
}

fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

/// The lane, attached, with the item that is asked for.
fn attached(program: Program, server: &Host) -> Result<Writer> {
    let mut writer = Writer::new(program, &[OWN])?;
    writer.set(key('k').as_bytes(), value().as_bytes(), PLAIN);
    server.run(|| writer.lane.attach(INTERFACE))?;
    Ok(writer)
}

fn lane(program: Program, server: &Host, client: &Host) -> Result<Meets> {
    let writer = attached(program, server)?;
    let mut closed = None;
    if program == Program::Xdp {
        let mut peer = Writer::new(Program::Xdp, &[OWN])?;
        peer.lane.control().close();
        client.run(|| peer.lane.attach(PEER))?;
        closed = Some(Box::new(peer));
    }
    Ok(Meets::Lane { writer: Box::new(writer), _peer: closed })
}

/// The program that drops, and a socket that is to receive nothing.
fn drops(at_driver: bool, server: &Host, address: &str) -> Result<Meets> {
    let behind = server.socket(address);
    behind.set_nonblocking(true)?;
    let object = match at_driver {
        true => aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/drop_xdp.o")),
        false => aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/drop_tc.o")),
    };
    let mut ebpf = Box::new(Ebpf::load(object)?);
    let program = ebpf.program_mut("drop_requests").ok_or("its program is not in its object")?;
    if at_driver {
        let program: &mut Xdp = program.try_into()?;
        program.load()?;
        server.run(|| program.attach(INTERFACE, XdpMode::Driver).map_err(told))?;
    } else {
        let program: &mut SchedClassifier = program.try_into()?;
        program.load()?;
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let ingress = TcAttachType::Ingress;
        server.run(|| program.attach_with_options(INTERFACE, ingress, order).map_err(told))?;
    }
    Ok(Meets::Drops { behind, _ebpf: ebpf })
}

fn told(why: ProgramError) -> String {
    format!("attaching to {INTERFACE}: {why}")
}

fn serve(laneway: &str, server: &Host, port: u16) -> Result<Child> {
    let port = port.to_string();
    let flags = ["serve", "-p", &port, "-l", OWN, "-t", "1", "-m", "64"];
    let udp = ["-U", &port, "--udp-listen", OWN, "--udp-public"];
    let mut command = Command::new(laneway);
    command.args(flags).args(udp).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = server.run(|| command.spawn()).map_err(|why| format!("{laneway}: {why}"))?;
    let mut log = BufReader::new(child.stderr.take().ok_or("it was piped")?);
    let mut said = String::new();
    while !said.contains(READY) {
        if log.read_line(&mut said)? == 0 {
            let _ = child.wait();
            return Err(format!("{laneway} ended: {said}").into());
        }
    }
    // It says little from now on; what it says is not to block it.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Ok(child)
}

/// A thread that reads a socket, and answers or does not.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    task: PathBuf,
}

impl Reader {
    fn start(socket: UdpSocket, answers: bool) -> Result<Reader> {
        socket.set_read_timeout(Some(LOOK))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, (sender, receiver)) = (stop.clone(), channel());
        let thread = std::thread::spawn(move || {
            let _ = sender.send(gettid());
            let mut bytes = [0; 2048];
            let reply = format!("VA {VALUE_BYTES}\r\n{}\r\n", value());
            let mut answer = hosts::datagram(&reply);
            while !seen.load(Relaxed) {
                let Ok((got, from)) = socket.recv_from(&mut bytes) else { continue };
                if answers && got > 8 {
                    answer[..2].copy_from_slice(&bytes[..2]);
                    let _ = socket.send_to(&answer, from); // a client that is gone
                }
            }
        });
        let task = PathBuf::from(format!("/proc/self/task/{}", receiver.recv()?));
        Ok(Reader { stop, thread: Some(thread), task })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed); // it looks again and again
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Keep the calling thread, and those that it starts, on one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus).map_err(|why| format!("CPU {cpu}: {why}").into())
}
