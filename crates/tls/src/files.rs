//! The certificate, its key and the authorities of clients, read from files in PEM. What is wrong
//! with one is told in a sentence that begins with what asked for the file.

use der::asn1::{GeneralizedTime, UtcTime};
use der::{DateTime, Decode, Header, Reader, SliceReader, Tag};
use laneway_sync::planted::{Bug, is_planted};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// They are not asked.
    No,
    /// Who shows one must show a good one.
    IfGiven,
    /// All must show a good one.
    Always,
}

/// A file, and which flag names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As the user knows it.
    pub flag: &'static str,
    /// Where it is.
    pub path: PathBuf,
}

impl Named {
    fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("{} {}: {what}", self.flag, self.path.display())
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        fs::read(&self.path).map_err(|error| self.wrong(format_args!("cannot be read: {error}")))
    }
}

/// What TLS is asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Whether clients show certificates.
    pub verify: Verify,
    /// TLS 1.2 is not spoken.
    pub only_1_3: bool,
}

/// Where what a server shows is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Its certificate, and those between it and an authority.
    pub chain: Named,
    /// The key of the certificate.
    pub key: Named,
    /// The authorities that clients' certificates are by.
    pub client_ca: Option<Named>,
}

impl Files {
    /// Files by the flags that name them.
    pub fn new(
        chain: (&'static str, PathBuf),
        key: (&'static str, PathBuf),
        client_ca: Option<(&'static str, PathBuf)>,
    ) -> Files {
        let named = |(flag, path)| Named { flag, path };
        Files { chain: named(chain), key: named(key), client_ca: client_ca.map(named) }
    }
}

/// What a server shows: read, and found good.
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    /// When the certificate begins to be valid, and when it ends, in Unix time.
    pub valid_seconds: (u64, u64),
    /// When it was read, in Unix time.
    pub read_seconds: u64,
}

impl Identity {
    /// Read what `files` hold. The certificate must not have expired at `now_seconds`, in Unix
    /// time; whoever asks warns of one that is not valid yet.
    pub fn read(files: &Files, terms: &Terms, now_seconds: u64) -> Result<Identity, String> {
        let chain = chain(&files.chain)?;
        let valid_seconds = validity(&files.chain, &chain[0], now_seconds)?;
        let key = key(&files.key)?;
        let provider = Arc::new(ring::default_provider());
        let versions: &[&SupportedProtocolVersion] = match terms.only_1_3 {
            true => &[&rustls::version::TLS13],
            false => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let wrong = |error: Error| files.chain.wrong(format_args!("cannot be used: {error}"));
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(versions).map_err(wrong)?;
        let builder = match client_verifier(files, terms, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                files.key.wrong(format_args!(
                    "is not the key of the certificate in {}; name the files of one pair",
                    files.chain.path.display()
                ))
            }
            error => files.key.wrong(format_args!("cannot be used: {error}")),
        });
        let mut config = config?;
        // Sessions are taken up again by tickets, which take no memory here. Their keys are this
        // identity's: who was let in by another's authorities is asked again.
        config.ticketer = ring::Ticketer::new().map_err(wrong)?;
        Ok(Identity { config: Arc::new(config), valid_seconds, read_seconds: now_seconds })
    }
}

fn chain(file: &Named) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = file.read()?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| file.wrong(told(&error)))?;
    match chain.is_empty() {
        true => Err(file.wrong(
            "holds no certificate; it must begin with the server's own, in PEM (-----BEGIN \
             CERTIFICATE-----)",
        )),
        false => Ok(chain),
    }
}

fn told(error: &PemError) -> String {
    format!("is no PEM file: {error:?}")
}

/// When a certificate is valid; an error once it is not.
fn validity(
    file: &Named,
    certificate: &CertificateDer<'_>,
    now_seconds: u64,
) -> Result<(u64, u64), String> {
    let is_none =
        |error: &dyn std::fmt::Display| file.wrong(format_args!("is no certificate: {error}"));
    ParsedCertificate::try_from(certificate).map_err(|error| is_none(&error))?;
    let (from, to) = dates(certificate).map_err(|error| is_none(&error))?;
    let seconds = (from.unix_duration().as_secs(), to.unix_duration().as_secs());
    match seconds.1 < now_seconds {
        true => Err(file.wrong(format_args!("the certificate expired at {to}; renew it"))),
        false => Ok(seconds),
    }
}

/// When a certificate begins to be valid, and when it ends, which rustls does not tell: the fifth
/// field of what is signed (RFC 5280, section 4.1), behind version, number, algorithm and issuer.
/// rustls takes none whose version is left out.
fn dates(certificate: &[u8]) -> der::Result<(DateTime, DateTime)> {
    let mut signed = entered(&mut entered(&mut SliceReader::new(certificate)?)?)?;
    for _ in 0..4 {
        signed.tlv_bytes()?;
    }
    let mut validity = entered(&mut signed)?;
    Ok((date(&mut validity)?, date(&mut validity)?))
}

/// What is in the sequence that begins here.
fn entered<'a>(reader: &mut SliceReader<'a>) -> der::Result<SliceReader<'a>> {
    let header = Header::decode(reader)?;
    header.tag.assert_eq(Tag::Sequence)?;
    SliceReader::new(reader.read_slice(header.length)?)
}

/// From 2050 on a date has four digits of its year, and another tag.
fn date(reader: &mut SliceReader<'_>) -> der::Result<DateTime> {
    match reader.peek_tag()? {
        Tag::UtcTime => Ok(UtcTime::decode(reader)?.to_date_time()),
        _ => Ok(GeneralizedTime::decode(reader)?.to_date_time()),
    }
}

fn key(file: &Named) -> Result<PrivateKeyDer<'static>, String> {
    let text = file.read()?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound if is_locked(&text) => file.wrong(
            "the key is encrypted, and nobody is here to type its password; write it without one \
             (openssl pkey -in FILE -out KEY), and let only the server's user read it",
        ),
        PemError::NoItemsFound => file.wrong(
            "holds no private key, in PEM (-----BEGIN PRIVATE KEY-----); --tls-key FILE names the \
             file that does",
        ),
        error => file.wrong(told(&error)),
    })
}

fn is_locked(text: &[u8]) -> bool {
    const MARK: &[u8] = b"ENCRYPTED";
    text.windows(MARK.len()).any(|window| window == MARK)
}

fn client_verifier(
    files: &Files,
    terms: &Terms,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let Some(file) = &files.client_ca else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for certificate in chain(file)? {
        let added = roots.add(certificate);
        added.map_err(|error| file.wrong(format_args!("holds no good authority: {error}")))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match terms.verify {
        _ if is_planted(Bug::StrangerLetIn) => return Ok(None),
        Verify::No => return Ok(None),
        Verify::IfGiven => builder.allow_unauthenticated(),
        Verify::Always => builder,
    };
    let verifier = builder.build();
    verifier.map(Some).map_err(|error| file.wrong(format_args!("holds no good authority: {error}")))
}
