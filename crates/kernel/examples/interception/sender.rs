//! Sends datagrams when a Poisson schedule says so, whether or not replies have come, counts each
//! latency from when it was due, and times its own calls. Spins. Knows no place.
#![allow(clippy::disallowed_methods, reason = "it measures")]

use crate::hosts::{self, Host};
use crate::site::Result;
use std::net::UdpSocket;
use std::time::Instant;

/// Flows.
const SOCKETS: usize = 8;
/// Replies are known by their request's number, of 16 bits, on its socket.
const NUMBERS: usize = 1 << 16;
/// How long after the end replies are waited for.
const DRAIN_NS: u64 = 100_000_000;
/// Nothing is due there.
const NEVER: u64 = u64::MAX;

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    pub sent: u64,
    pub sent_per_s: f64,
    pub answered: u64,
    /// Inside calls that sent.
    pub send_ns: u64,
    /// Inside calls that received something.
    pub receive_ns: u64,
    /// Of each reply, sorted.
    pub latencies_ns: Vec<u64>,
}

struct Flow {
    socket: UdpSocket,
    number: u16,
    outstanding: u32,
    /// When each was due, by its number.
    due: Vec<u64>,
}

pub struct Sender {
    flows: Vec<Flow>,
    datagram: Vec<u8>,
    is_answered: bool,
    random: u64,
}

impl Sender {
    pub fn new(client: &Host, address: &str, request: &str, is_answered: bool) -> Result<Sender> {
        let flow = |_| -> Result<Flow> {
            let socket = client.socket("10.9.0.2:0");
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            let due = vec![NEVER; if is_answered { NUMBERS } else { 0 }];
            Ok(Flow { socket, number: 0, outstanding: 0, due })
        };
        let flows = (0..SOCKETS).map(flow).collect::<Result<_>>()?;
        let datagram = hosts::datagram(request);
        Ok(Sender { flows, datagram, is_answered, random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Send at `rate` for so long.
    pub fn send(&mut self, rate: f64, seconds: f64) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        outcome.latencies_ns.reserve((rate * seconds * 1.2) as usize);
        for flow in &mut self.flows {
            flow.due.fill(NEVER); // what was lost before is not this run's
            flow.outstanding = 0;
        }
        let (end_ns, mut due_ns, mut turn) = ((seconds * 1e9) as u64, 0.0, 0);
        let began = Instant::now();
        let elapsed = || began.elapsed().as_nanos() as u64;
        loop {
            let now = elapsed();
            let is_due = (due_ns as u64) < end_ns && due_ns as u64 <= now;
            if is_due {
                turn = outcome.sent as usize % SOCKETS;
                outcome.send_ns += self.flows[turn].send(&mut self.datagram, due_ns as u64)?;
                outcome.sent += 1;
                outcome.sent_per_s = outcome.sent as f64 * 1e9 / elapsed() as f64;
                due_ns += self.gap_ns(rate);
            } else if self.is_over(due_ns as u64, end_ns, now) {
                break;
            }
            // The socket that was just used first: a reply may be there when the call returns.
            if self.is_answered && !self.flows[turn].receive(&elapsed, &mut outcome)? {
                turn = (turn + 1) % SOCKETS;
            }
        }
        outcome.latencies_ns.sort_unstable();
        Ok(outcome)
    }

    fn is_over(&self, due_ns: u64, end_ns: u64, now: u64) -> bool {
        let waits = self.is_answered && self.flows.iter().any(|flow| flow.outstanding > 0);
        due_ns >= end_ns && (!waits || now > end_ns.saturating_add(DRAIN_NS))
    }

    /// Until the next is due: exponential.
    fn gap_ns(&mut self, rate: f64) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = ((self.random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -uniform.ln() * 1e9 / rate
    }
}

impl Flow {
    /// Send one; how long that took.
    fn send(&mut self, datagram: &mut [u8], due_ns: u64) -> Result<u64> {
        self.number = self.number.wrapping_add(1);
        datagram[..2].copy_from_slice(&self.number.to_be_bytes());
        if let Some(due) = self.due.get_mut(usize::from(self.number)) {
            *due = due_ns;
            self.outstanding += 1;
        }
        let began = Instant::now();
        let sent = self.socket.send(datagram);
        let took = began.elapsed().as_nanos() as u64;
        sent.map_err(|why| format!("sending: {why}"))?;
        Ok(took)
    }

    /// Take one reply, if there is any to come and one has come.
    fn receive(&mut self, elapsed: &impl Fn() -> u64, outcome: &mut Outcome) -> Result<bool> {
        if self.outstanding == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 2048];
        let began = Instant::now();
        let got = match self.socket.recv(&mut bytes) {
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(format!("receiving: {error}").into()),
        };
        let took = began.elapsed().as_nanos() as u64;
        if got < 8 || bytes[8..got].starts_with(b"EN") {
            return Err("a reply that is none".into());
        }
        let due = &mut self.due[usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))];
        if *due != NEVER {
            outcome.latencies_ns.push(elapsed().saturating_sub(*due));
            outcome.answered += 1;
            outcome.receive_ns += took;
            *due = NEVER;
            self.outstanding -= 1;
        }
        Ok(true)
    }
}
