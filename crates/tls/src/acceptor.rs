//! What a server shows to clients, and can be replaced while it runs; and what became of their
//! handshakes.

use crate::stream::Failure;
use crate::{Identity, Terms, TlsStream};
use laneway_transport::Stream;
use rustls::{Connection, Error, ProtocolVersion, ServerConnection};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a handshake came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// What came was not TLS: a client that speaks in plain text, most of the time.
    NotTls,
    /// No version, cipher suite or key exchange in common.
    NothingInCommon,
    /// The client has shown no certificate, or no good one.
    ClientCertificate,
    /// The client has refused, our certificate most of the time.
    RefusedByClient,
    /// The client has gone.
    Gone,
    /// It took too long.
    Late,
    /// Anything else.
    Other,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 7] = [
        Cause::NotTls,
        Cause::NothingInCommon,
        Cause::ClientCertificate,
        Cause::RefusedByClient,
        Cause::Gone,
        Cause::Late,
        Cause::Other,
    ];

    /// As statistics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::NotTls => "not_tls",
            Cause::NothingInCommon => "nothing_in_common",
            Cause::ClientCertificate => "client_certificate",
            Cause::RefusedByClient => "refused_by_client",
            Cause::Gone => "gone",
            Cause::Late => "late",
            Cause::Other => "other",
        }
    }

    /// Why it failed.
    pub(crate) fn of(failure: &Failure) -> Cause {
        let Failure::Refused(error) = failure else { return Cause::Gone };
        match error {
            Error::InvalidMessage(_) => Cause::NotTls,
            Error::PeerIncompatible(_) => Cause::NothingInCommon,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
                Cause::ClientCertificate
            }
            Error::AlertReceived(_) => Cause::RefusedByClient,
            _ => Cause::Other,
        }
    }
}

/// What became of handshakes. Several threads add; anybody reads.
#[derive(Debug, Default)]
pub struct Counts {
    full_1_2: AtomicU64,
    full_1_3: AtomicU64,
    resumed: AtomicU64,
    failed: [AtomicU64; Cause::ALL.len()],
    underway: AtomicU64,
}

impl Counts {
    pub(crate) fn begins(&self) {
        self.underway.fetch_add(1, Relaxed);
    }

    pub(crate) fn fails(&self, cause: Cause) {
        self.underway.fetch_sub(1, Relaxed);
        self.failed[cause as usize].fetch_add(1, Relaxed);
    }

    /// It ends for no fault of its client's: the server stops.
    pub(crate) fn is_left(&self) {
        self.underway.fetch_sub(1, Relaxed);
    }

    pub(crate) fn is_done<S: Stream>(&self, stream: &TlsStream<S>) {
        self.underway.fetch_sub(1, Relaxed);
        let count = match (stream.is_resumed(), stream.version()) {
            (true, _) => &self.resumed,
            (false, Some(ProtocolVersion::TLSv1_2)) => &self.full_1_2,
            (false, _) => &self.full_1_3,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// What is told of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Handshakes with certificates by TLS 1.2.
    pub full_1_2: u64,
    /// By TLS 1.3.
    pub full_1_3: u64,
    /// Sessions taken up again.
    pub resumed: u64,
    /// Those that failed, by [`Cause::ALL`].
    pub failed: [u64; Cause::ALL.len()],
    /// Under way now.
    pub underway: u64,
    /// When the certificate expires, in Unix time.
    pub expires_seconds: u64,
    /// When it was read, in Unix time.
    pub read_seconds: u64,
}

impl Told {
    /// All that failed.
    pub fn failed(&self) -> u64 {
        self.failed.iter().sum()
    }
}

/// What a server shows to clients.
pub struct Acceptor {
    /// As it was started with.
    pub terms: Terms,
    identity: Mutex<Arc<Identity>>,
    counts: Counts,
}

impl fmt::Debug for Acceptor {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Of a server that shows this.
    pub fn new(identity: Identity, terms: Terms) -> Acceptor {
        let identity = Mutex::new(Arc::new(identity));
        Acceptor { terms, identity, counts: Counts::default() }
    }

    /// Show something else to those who come from now on.
    pub fn replace(&self, identity: Identity) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(identity);
    }

    /// What is shown now. No worker takes this lock: handshakes do, and whoever reads statistics.
    pub fn identity(&self) -> Arc<Identity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What became of handshakes so far.
    pub fn told(&self) -> Told {
        let (counts, identity) = (&self.counts, self.identity());
        let get = |count: &AtomicU64| count.load(Relaxed);
        Told {
            full_1_2: get(&counts.full_1_2),
            full_1_3: get(&counts.full_1_3),
            resumed: get(&counts.resumed),
            failed: std::array::from_fn(|cause| get(&counts.failed[cause])),
            underway: get(&counts.underway),
            expires_seconds: identity.valid_seconds.1,
            read_seconds: identity.read_seconds,
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Our end of a connection that a client has opened.
    pub fn stream<S: Stream>(&self, inner: S) -> Result<TlsStream<S>, Error> {
        let session = ServerConnection::new(self.identity().config.clone())?;
        Ok(TlsStream::new(inner, Connection::Server(session)))
    }
}
