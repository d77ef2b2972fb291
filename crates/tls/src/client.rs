//! The client's end: for who asks or measures a server whose ports encrypt, over a socket of the
//! standard library's.

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A stream that is encrypted on its way.
pub type ClientStream = StreamOwned<ClientConnection, TcpStream>;

/// Files, all in PEM, by which a client and a server know each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that the server's certificate must be by.
    pub ca: Option<PathBuf>,
    /// The certificate to show, where the server asks for one (`serve --tls-client-ca`).
    pub cert: Option<PathBuf>,
    /// The key of that certificate; where it is missing, it stands in the certificate's file.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate is for, where it is not that of the address.
    pub name: Option<String>,
}

impl ClientFiles {
    /// Whether anything is named: otherwise nobody wants TLS.
    pub fn is_asked_for(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some() || self.name.is_some()
    }

    /// Read them, for connections to a server at `HOST:PORT`. An error is a sentence.
    pub fn read(&self, address: &str) -> Result<Client, String> {
        let name = self.name.as_deref().unwrap_or(host(address));
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| format!("{name}: {error}; --tls-name NAME gives the server's"))?;
        Ok(Client { config: Arc::new(self.config()?), name })
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let Some(ca) = &self.ca else {
            return Err("TLS needs --tls-ca FILE, the authorities that the server's certificate \
                        is by (those of Debian: /etc/ssl/certs/ca-certificates.crt)"
                .into());
        };
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(chain("--tls-ca", ca)?);
        if added == 0 {
            return Err(format!("--tls-ca {}: holds no certificate, in PEM", ca.display()));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS: {error}"))?;
        let builder = builder.with_root_certificates(roots);
        match (&self.cert, &self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (None, Some(_)) => Err("--tls-key is the key of --tls-cert FILE".into()),
            (Some(cert), key) => {
                let from = key.as_ref().unwrap_or(cert);
                let key = PrivateKeyDer::from_pem_file(from).map_err(|error| match key {
                    Some(key) => format!("--tls-key {}: {error}", key.display()),
                    None => format!(
                        "--tls-cert {}: its key: {error}; --tls-key FILE names another file",
                        cert.display()
                    ),
                })?;
                builder.with_client_auth_cert(chain("--tls-cert", cert)?, key).map_err(|error| {
                    format!("--tls-cert {}: cannot be used: {error}", cert.display())
                })
            }
        }
    }
}

/// Makes sessions with one server.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl PartialEq for Client {
    fn eq(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for Client {}

impl Client {
    /// The same, that takes no session up again: each handshake is a whole one.
    pub fn without_resumption(&self) -> Client {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Client { config: Arc::new(config), name: self.name.clone() }
    }

    /// A stream over this one, which blocks, once the handshake is done.
    pub fn over(&self, stream: TcpStream) -> io::Result<ClientStream> {
        let session = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut session = session.map_err(io::Error::other)?;
        let mut stream = stream;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }
}

fn chain(flag: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("{flag} {}: {error}", file.display());
    CertificateDer::pem_file_iter(file).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)
}

/// The host of `HOST:PORT`, without the brackets around an address of IPv6.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_a_certificate_names() {
        for (address, expected) in
            [("cache:11211", "cache"), ("[::1]:11211", "::1"), ("127.0.0.1:1", "127.0.0.1")]
        {
            assert_eq!(host(address), expected);
        }
    }
}
