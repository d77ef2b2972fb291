//! For tests and benchmarks: authorities, certificates by them, and the clients' end of a
//! connection. Nothing is kept in a repository that looks like a secret, and nothing expires.
#![forbid(unsafe_code)]

use laneway_tls::{Files, Identity, Terms, TlsStream, Verify};
use laneway_transport::Stream;
use laneway_transport::memory::Client;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// TLS 1.2 and TLS 1.3, each alone.
pub const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];
/// The name that certificates are for, beside 127.0.0.1.
pub const NAME: &str = "localhost";

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub chain: String,
    /// The key.
    pub key: String,
}

/// A certificate authority: it signs the certificates of servers and clients in tests.
pub struct Authority {
    /// Its own certificate, in PEM.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

// Keys of Ed25519 sign in a fixed number of bytes: a run repeats to the byte.
fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ED25519).expect("a key")
}

/// What stands before the 32 bytes of a key of Ed25519 in PKCS #8 (RFC 8410, section 7).
const ED25519_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The key of a number. A certificate's length depends on its key by a byte, since its serial
/// number is made of that: with keys of numbers all runs are the same, and not only this one.
fn key_of(number: u8) -> KeyPair {
    let der = PrivatePkcs8KeyDer::from([&ED25519_HEAD[..], &[number; 32]].concat());
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).expect("a key")
}

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Authority {
        Authority::with_key(name, key())
    }

    /// One that is the same in every run: its key is made of a number.
    pub fn fixed(name: &str, number: u8) -> Authority {
        Authority::with_key(name, key_of(number))
    }

    fn with_key(name: &str, key: KeyPair) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate by it, for a server or a client.
    pub fn pair(&self) -> Pair {
        self.pair_until(4000)
    }

    /// The same with a key whose form every library reads; of varying length.
    pub fn pair_p256(&self) -> Pair {
        self.sign(4000, KeyPair::generate().expect("a key"))
    }

    /// The same, whose key is made of a number.
    pub fn pair_fixed(&self, number: u8) -> Pair {
        self.sign(4000, key_of(number))
    }

    /// The same, that expires when this year begins.
    pub fn pair_until(&self, year: i32) -> Pair {
        self.sign(year, key())
    }

    fn sign(&self, year: i32, key: KeyPair) -> Pair {
        let names = vec![NAME.to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("good names");
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Pair { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// A client that trusts it, by this version alone, and shows what it is given.
    pub fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        shows: Option<&Pair>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.pem)).expect("a good authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).expect("a version");
        let builder = builder.with_root_certificates(roots);
        Arc::new(match shows {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
                let chain = vec![certificate(&pair.chain)];
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

/// A client's session with a server of [`NAME`].
pub fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from(NAME).expect("a name");
    ClientConnection::new(config.clone(), name).expect("a session")
}

/// Files that are removed with it.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty one.
    pub fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("laneway-tls-{process}-{number}"));
        fs::create_dir_all(&path).expect("temp is writable");
        Folder(path)
    }

    /// Write a file, or write it anew, at once.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let unfinished = self.0.join(format!("{name}.new"));
        fs::write(&unfinished, text).expect("it is writable");
        fs::rename(&unfinished, &path).expect("it is ours");
        path
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The files of a pair, and of clients' authorities.
    pub fn files(&self, pair: &Pair, client_ca: Option<&str>) -> Files {
        let named = |name: &str, text: &str| self.write(name, text);
        Files::new(
            ("--tls-cert", named("cert.pem", &pair.chain)),
            ("--tls-key", named("key.pem", &pair.key)),
            client_ca.map(|text| ("--tls-client-ca", named("ca.pem", text))),
        )
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the test is over
    }
}

/// The identity that a server with this certificate and key shows to its clients.
pub fn identity(pair: &Pair, terms: &Terms, client_ca: Option<&str>) -> Identity {
    let folder = Folder::new();
    Identity::read(&folder.files(pair, client_ca), terms, 1).expect("a good pair")
}

/// As a server has it that nobody configured further.
pub const TERMS: Terms = Terms { verify: Verify::No, only_1_3: false };

/// A client's end of a connection in memory, as a stream.
pub struct ClientEnd(pub Client);

impl Stream for ClientEnd {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.receive(room.len());
        room[..bytes.len()].copy_from_slice(&bytes);
        match (bytes.len(), self.0.ended()) {
            (0, false) if !room.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            (bytes, _) => Ok(bytes),
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for piece in pieces {
            let taken = self.0.send(piece);
            sent += taken;
            if taken < piece.len() {
                break;
            }
        }
        let empty = pieces.iter().all(|piece| piece.is_empty());
        if sent == 0 && !empty { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(sent) }
    }

    fn limit_unsent(&mut self, _bytes_max: Option<usize>) {}

    fn peer(&self) -> String {
        "memory".to_owned()
    }
}

/// A client that encrypts, over a connection in memory.
pub fn client(end: Client, config: &Arc<ClientConfig>) -> TlsStream<ClientEnd> {
    TlsStream::new(ClientEnd(end), Connection::Client(session(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_numbers_are_the_same_each_time_and_are_accepted() {
        let pairs = [1, 1, 2].map(|number| Authority::fixed("fixed", 9).pair_fixed(number));
        assert_eq!(pairs[0].chain, pairs[1].chain);
        assert_eq!(pairs[0].key, pairs[1].key);
        assert_ne!(pairs[0].chain, pairs[2].chain);
        identity(&pairs[2], &TERMS, Some(&Authority::fixed("fixed", 9).pem));
        Authority::fixed("fixed", 9).client(VERSIONS[1], Some(&pairs[0]));
    }
}
