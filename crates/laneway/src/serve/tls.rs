//! Where connections are encrypted: `-Z`, `--tls-...` and memcached's `-o ssl_...`, checked; the
//! certificate, read at the start and again at SIGHUP.

use super::places::Place;
use crate::flags::Flags;
use laneway_server::boot::Server;
use laneway_server::settings::{Acceptor, Files, Identity, Port, Terms, TlsSettings, Verify};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Handshakes under way at once; each takes about 20 KiB.
const HANDSHAKES_MAX: usize = 1024;
/// Descriptors of the threads that make them.
const THREADS_DESCRIPTORS: usize = 16;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// A certificate that expires sooner is warned of at the start.
const EXPIRES_SOON_DAYS: u64 = 14;

/// The settings, or none where nothing is encrypted.
pub fn settings(
    flags: &Flags,
    memcached: &[Place],
    resp: &[Place],
) -> Result<Option<TlsSettings>, String> {
    if !flags.tls && flags.tls_cert.is_none() {
        return match given(flags) {
            None => Ok(None),
            Some(flag) => Err(format!(
                "{flag}: nothing is encrypted without -Z and a certificate; say both, or leave it \
                 out"
            )),
        };
    }
    let files = files(flags)?;
    let verify = verify(flags, files.client_ca.is_some())?;
    if verify == Verify::Always {
        all_show_certificates(flags)?;
    }
    let terms = Terms { verify, only_1_3: only_1_3(flags)? };
    let encrypted = |places: &[Place]| {
        let encrypted = places.iter().filter(|place| place.encrypts);
        encrypted.map(Place::port).collect::<Vec<Port>>()
    };
    let (addresses, resp_addresses) = (encrypted(memcached), encrypted(resp));
    if addresses.is_empty() && resp_addresses.is_empty() && !flags.handed.clients {
        return Err(
            "-Z: there is no TCP port to encrypt: a unix socket (-s) is never, nor is an address \
             of -l that begins with notls:; leave -Z out, or listen on a port"
                .to_owned(),
        );
    }
    let handshake = match flags.tls_handshake_milliseconds {
        Some(0) => return Err("--tls-handshake-ms 0: must be at least 1".to_owned()),
        given => given.map_or(HANDSHAKE, Duration::from_millis),
    };
    let identity = Identity::read(&files, &terms, now_seconds())?;
    let acceptor = Arc::new(Acceptor::new(identity, terms));
    Ok(Some(TlsSettings {
        acceptor,
        files,
        addresses,
        resp_addresses,
        handshake,
        handshakes_max: HANDSHAKES_MAX,
    }))
}

/// Descriptors of handshakes under way, of connections on their way from there to a worker, and of
/// the threads that make them.
pub fn descriptors(tls: Option<&TlsSettings>) -> usize {
    tls.map_or(0, |tls| tls.guests_max() + THREADS_DESCRIPTORS)
}

/// So many handshakes may be under way where there are `fit` descriptors for them and for
/// `connections`, fewer than both would take: what those leave, or else an eighth.
pub fn handshakes_within(fit: usize, connections: usize) -> usize {
    let left = fit.saturating_sub(connections + THREADS_DESCRIPTORS) / 2; // two for each: see above
    left.max(fit / 8).clamp(2, HANDSHAKES_MAX)
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A flag that means nothing without `-Z`, if one was given.
fn given(flags: &Flags) -> Option<&'static str> {
    let ssl = &flags.extended.ssl;
    let given = [
        ("--tls-key", flags.tls_key.is_some()),
        ("--tls-client-ca", flags.tls_client_ca.is_some()),
        ("--tls-min-version", flags.tls_min_version.is_some()),
        ("--tls-handshake-ms", flags.tls_handshake_milliseconds.is_some()),
        ("-o ssl_chain_cert", ssl.chain_cert.is_some()),
        ("-o ssl_key", ssl.key.is_some()),
        ("-o ssl_ca_cert", ssl.ca_cert.is_some()),
        ("-o ssl_verify_mode", ssl.verify_mode.is_some_and(|mode| mode > 0)),
        ("-o ssl_min_version", ssl.min_version.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
}

fn files(flags: &Flags) -> Result<Files, String> {
    let ssl = &flags.extended.ssl;
    let own = |flag: &'static str, path: &Option<std::ffi::OsString>| {
        path.as_ref().map(|path| (flag, PathBuf::from(path)))
    };
    let theirs = |flag: &'static str, path: &Option<String>| {
        path.as_ref().map(|path| (flag, PathBuf::from(path)))
    };
    let chain = own("--tls-cert", &flags.tls_cert);
    let chain = chain.or_else(|| theirs("-o ssl_chain_cert", &ssl.chain_cert));
    let Some(chain) = chain else {
        return Err(
            "-Z: needs a certificate; name its file by --tls-cert FILE, and that of its key by \
             --tls-key FILE"
                .to_owned(),
        );
    };
    let key = own("--tls-key", &flags.tls_key).or_else(|| theirs("-o ssl_key", &ssl.key));
    let client_ca = own("--tls-client-ca", &flags.tls_client_ca);
    let client_ca = client_ca.or_else(|| theirs("-o ssl_ca_cert", &ssl.ca_cert));
    Ok(Files::new(chain.clone(), key.unwrap_or(chain), client_ca))
}

/// memcached's `ssl_verify_mode`: 0 asks nobody, 1 asks and goes on without, 2 and 3 insist (3:
/// once, and there is no second time in TLS 1.3).
fn verify(flags: &Flags, has_ca: bool) -> Result<Verify, String> {
    let mode = flags.extended.ssl.verify_mode;
    match (mode, has_ca) {
        (None | Some(0), false) => Ok(Verify::No),
        (Some(mode), false) => Err(format!(
            "-o ssl_verify_mode={mode}: needs the authorities of clients' certificates; name \
             their file by --tls-client-ca FILE or -o ssl_ca_cert=FILE"
        )),
        (None, true) if flags.tls_client_ca.is_some() => Ok(Verify::Always),
        (None | Some(0), true) => Err(
            "-o ssl_ca_cert: nobody is asked for a certificate without ssl_verify_mode=2; say it \
             too, or leave both out"
                .to_owned(),
        ),
        (Some(1), true) => Ok(Verify::IfGiven),
        (Some(_), true) => Ok(Verify::Always),
    }
}

/// Refuses flags that let clients in by a way on which they show no certificate.
fn all_show_certificates(flags: &Flags) -> Result<(), String> {
    let open = [
        ("-U", flags.udp_port.is_some_and(|port| port != 0), "over UDP"),
        ("--udp-base", flags.udp_base.is_some(), "over UDP"),
        ("--shm", flags.shm.is_some(), "in shared memory"),
        ("--rdma", flags.rdma.is_some(), "over RDMA"),
    ];
    match open.into_iter().find(|(_, is_open, _)| *is_open) {
        None => Ok(()),
        Some((flag, _, clients)) => Err(format!(
            "--tls-client-ca: clients {clients} show no certificate; leave {flag} out, or do not \
             ask for certificates"
        )),
    }
}

fn only_1_3(flags: &Flags) -> Result<bool, String> {
    match flags.tls_min_version.as_deref() {
        Some("1.2") => Ok(false),
        Some("1.3") => Ok(true),
        Some(other) => Err(format!(
            "--tls-min-version {other}: must be 1.2 (the default) or 1.3; older versions are \
             broken, and not spoken"
        )),
        None => Ok(flags.extended.ssl.min_version == Some(3)),
    }
}

/// Read the files again. If one is wrong, what was shown before is shown on.
pub fn reload(tls: &TlsSettings) {
    let (now, path) = (now_seconds(), &tls.files.chain.path);
    match Identity::read(&tls.files, &tls.acceptor.terms, now) {
        Ok(identity) => {
            let valid_seconds = identity.valid_seconds;
            tls.acceptor.replace(identity);
            log::info!(
                "SIGHUP: the certificate in {} is shown from now on; it is good for {} days",
                path.display(),
                days_left(valid_seconds, now)
            );
            if let Some(trouble) = trouble(valid_seconds, now) {
                log::warn!("SIGHUP: the certificate in {} {trouble}", path.display());
            }
        }
        Err(error) => log::error!("SIGHUP: {error}; the certificate before it stays"),
    }
}

fn days_left((_, to): (u64, u64), now: u64) -> u64 {
    to.saturating_sub(now) / DAY_SECONDS
}

/// What is wrong with a certificate that is valid from then to then, Unix time.
fn trouble(valid_seconds: (u64, u64), now: u64) -> Option<String> {
    match days_left(valid_seconds, now) {
        _ if valid_seconds.0 > now => Some("is not valid yet; clients will refuse it".to_owned()),
        days if days < EXPIRES_SOON_DAYS => {
            Some(format!("expires in {days} days; renew it, and send SIGHUP"))
        }
        _ => None,
    }
}

/// Say so where the certificate is not good for long, or not yet.
pub fn warn(server: &Server) {
    let Some(tls) = &server.shared().settings.tls else { return };
    if let Some(trouble) = trouble(tls.acceptor.identity().valid_seconds, now_seconds()) {
        log::warn!("the certificate in {} {trouble}", tls.files.chain.path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_descriptors_handshakes_take_what_connections_leave_and_at_least_an_eighth() {
        for (fit, connections, handshakes) in [
            (4096, 1024, 1024),
            (1000, 100, 442),
            (1000, 1000, 125),
            (1000, 4096, 125),
            (10, 1024, 2),
            (0, 1024, 2),
        ] {
            assert_eq!(handshakes_within(fit, connections), handshakes, "{fit} {connections}");
        }
    }

    #[test]
    fn a_certificate_that_clients_refuse_or_soon_will_is_told() {
        const NOW: u64 = 1_000 * DAY_SECONDS;
        for (from_days, to_days, told) in [
            (900, 1_100, None),
            (1_000, 1_014, None),
            (900, 1_013, Some("expires in 13 days")),
            (900, 1_000, Some("expires in 0 days")),
            (1_001, 1_100, Some("is not valid yet")),
        ] {
            let valid_seconds = (from_days * DAY_SECONDS, to_days * DAY_SECONDS);
            let trouble = trouble(valid_seconds, NOW);
            assert_eq!(trouble.is_some(), told.is_some(), "{trouble:?}");
            assert!(trouble.unwrap_or_default().starts_with(told.unwrap_or_default()));
        }
    }
}
