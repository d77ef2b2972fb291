//! The limits of this process on descriptors and memory are compared with what the settings need.
//! The log tells what is short, and the settings are lowered to the limits.

use super::{admin, memory, rdma, shm, tls};
use crate::process;
use laneway_server::settings::{Settings, TlsSettings};

/// Descriptors of a worker: its epoll set, what wakes it, and its timer.
const WORKER_DESCRIPTORS: usize = 3;

/// Descriptors of the workers' queues of datagrams, of which each has two sockets.
fn udp_descriptors(settings: &Settings) -> usize {
    let udp = settings.udp.as_ref();
    let queues = udp.map_or(0, |udp| [udp.port, udp.port_base].iter().flatten().count());
    settings.workers * 2 * queues
}

/// Descriptors that are taken whoever comes: those of workers, of their queues, and of the admin
/// endpoint.
fn descriptors(settings: &Settings, has_admin: bool) -> usize {
    let admin = if has_admin { admin::DESCRIPTORS } else { 0 };
    settings.workers * WORKER_DESCRIPTORS + udp_descriptors(settings) + admin
}

/// What is said where the server's own leave none for a client; all that was asked for takes so
/// many.
fn none_left(settings: &Settings, wanted: usize) -> String {
    let udp = match udp_descriptors(settings) {
        0 => String::new(),
        sockets => format!(" (UDP takes {sockets})"),
    };
    format!(
        "-c {}: no descriptor is left for a client beside what the server takes itself{udp}; \
         allow {} (ulimit -n, or LimitNOFILE= in the unit), or choose fewer with --workers",
        settings.connections_max,
        process::limit_for_descriptors(wanted)
    )
}

/// Whether the server listens for streams by itself.
fn listens(settings: &Settings) -> bool {
    let by_tls = |tls: &TlsSettings| !(tls.addresses.is_empty() && tls.resp_addresses.is_empty());
    !settings.addresses.is_empty()
        || !settings.resp.addresses.is_empty()
        || settings.unix.is_some()
        || settings.tls.as_ref().is_some_and(by_tls)
}

/// Ask the machine for what the settings need; say what it does not have. An error where no client
/// could connect, though there is a listener, of the server's own or one that it `is_handed`.
pub fn keep_to(settings: &mut Settings, has_admin: bool, is_handed: bool) -> Result<(), String> {
    let own = descriptors(settings, has_admin);
    let wanted = settings.connections_max
        + own
        + tls::descriptors(settings.tls.as_ref())
        + shm::descriptors(settings.shm.as_ref(), settings.workers)
        + rdma::descriptors(settings.rdma.as_ref());
    let fit = process::raise_descriptors(wanted);
    let (is_short, fit) = (fit < wanted, fit.saturating_sub(own));
    if is_short {
        shm::keep_to(settings.shm.as_mut(), settings.workers, fit);
        rdma::keep_to(settings.rdma.as_mut(), fit);
    }
    let fit = fit.saturating_sub(shm::descriptors(settings.shm.as_ref(), settings.workers));
    let fit = fit.saturating_sub(rdma::descriptors(settings.rdma.as_ref()));
    if let Some(tls) = settings.tls.as_mut().filter(|_| is_short) {
        tls.handshakes_max = tls::handshakes_within(fit, settings.connections_max);
    }
    let fit = fit.saturating_sub(tls::descriptors(settings.tls.as_ref()));
    if fit < settings.connections_max {
        let asked = settings.connections_max;
        if fit == 0 && (is_handed || listens(settings)) {
            return Err(none_left(settings, wanted));
        }
        log::warn!("-c {asked}: only {fit} descriptors are allowed; see ulimit -n");
        settings.connections_max = fit;
    }
    if let Some(words) = memory::too_much(settings.memory_bytes) {
        log::warn!("{words}");
    }
    Ok(())
}
