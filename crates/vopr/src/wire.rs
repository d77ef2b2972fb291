//! A client's end of a connection: bytes as they are, or encrypted on their way.
//!
//! Who encrypts is rustls' client over the pipe, and not a stream of `laneway-tls`: what is wrong
//! there would be wrong at both ends, and right between them.

use laneway_certs::session;
use laneway_rig::tls::ENCRYPTED;
use laneway_transport::memory::{Client, Net};
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::sync::Arc;

/// A client's end.
pub enum Wire {
    /// As its bytes are.
    Plain(Client),
    /// Encrypted.
    Tls(Box<Session>),
}

/// An encrypted end.
pub struct Session {
    client: Client,
    session: ClientConnection,
    /// Encrypted, and not sent.
    out: Vec<u8>,
}

impl Wire {
    /// A new connection by this listener, or by the one that encrypts where it is told how.
    pub fn connect(net: &Net, listener: usize, config: Option<&Arc<ClientConfig>>) -> Wire {
        let Some(config) = config else { return Wire::Plain(net.connect_at(listener)) };
        let (client, session) = (net.connect_at(ENCRYPTED + listener), session(config));
        Wire::Tls(Box::new(Session { client, session, out: Vec::new() }))
    }

    fn below(&self) -> &Client {
        match self {
            Wire::Plain(client) => client,
            Wire::Tls(session) => &session.client,
        }
    }

    /// Whether the server has closed its end, or the connection was reset.
    pub fn ended(&self) -> bool {
        self.below().ended()
    }

    /// Says by the socket that nothing more is sent.
    pub fn finish(&self) {
        self.below().finish();
    }

    /// Vanishes.
    pub fn reset(&self) {
        self.below().reset();
    }

    /// Whether it is encrypted, and not through its handshake.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(session) => session.session.is_handshaking(),
        }
    }

    /// Whether something is to be sent that nobody has asked for: a part of the handshake, or the
    /// rest of what was encrypted.
    pub fn has_to_send(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(session) => !session.out.is_empty() || session.session.wants_write(),
        }
    }

    /// Sends at most so many bytes; how many of these were taken.
    pub fn send(&mut self, bytes: &[u8], most: usize) -> usize {
        let part = &bytes[..bytes.len().min(most)];
        match self {
            Wire::Plain(client) => client.send(part),
            Wire::Tls(session) => session.send(part, most),
        }
    }

    /// Takes at most so many bytes from the network; what they mean. An error is what the server
    /// did wrong, or why it refuses.
    pub fn receive(&mut self, most: usize) -> Result<Vec<u8>, String> {
        match self {
            Wire::Plain(client) => Ok(client.receive(most)),
            Wire::Tls(session) => session.receive(most),
        }
    }

    /// Ends: who is encrypted says so by TLS alone, and leaves the socket as it is.
    pub fn close(&mut self) {
        match self {
            Wire::Plain(client) => client.finish(),
            Wire::Tls(session) => session.close(),
        }
    }
}

impl Session {
    fn send(&mut self, bytes: &[u8], most: usize) -> usize {
        let mut taken = 0;
        // What the pipe has not taken goes first, or there would be no bound to it.
        if self.out.is_empty() && !self.session.is_handshaking() && !bytes.is_empty() {
            taken = self.session.writer().write(bytes).expect("memory does not fail");
        }
        self.push(most);
        taken
    }

    fn push(&mut self, most: usize) {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.out).expect("memory does not fail");
        }
        let sent = self.client.send(&self.out[..self.out.len().min(most)]);
        self.out.drain(..sent);
    }

    fn receive(&mut self, most: usize) -> Result<Vec<u8>, String> {
        let came = self.client.receive(most);
        let (mut rest, mut plain) = (&came[..], Vec::<u8>::new());
        while !rest.is_empty() {
            let wrong = |what: &dyn std::fmt::Display| format!("no TLS that holds: {what}");
            match self.session.read_tls(&mut rest) {
                Ok(0) => return Err(wrong(&"bytes behind the end")),
                Ok(_) => {}
                Err(error) => return Err(wrong(&error)),
            }
            let state = self.session.process_new_packets().map_err(|error| wrong(&error))?;
            let at = plain.len();
            plain.resize(at + state.plaintext_bytes_to_read(), 0);
            let read = self.session.reader().read_exact(&mut plain[at..]);
            read.map_err(|error| wrong(&error))?;
        }
        Ok(plain)
    }

    fn close(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
            self.push(usize::MAX);
        }
        if self.session.is_handshaking() || !self.out.is_empty() {
            self.client.finish(); // it cannot say it by TLS
        }
    }
}
