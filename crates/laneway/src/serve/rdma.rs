//! By which device clients come over RDMA, and how many: `--rdma`, `--rdma-port`, `--rdma-clients`,
//! `--rdma-slots`, checked. Whether the device is there is found when it is opened.

use super::places::resolve_places;
use super::shm::{CLIENTS_MAX, check_lanes, clients_max};
use crate::flags::{self, Flags};
use laneway_server::settings::{ClientLimits, DOOR_PORT, Place, RdmaSettings, SLOTS};
use std::net::SocketAddr;

/// Clients at a time where the flag is left out: those that have slots, and many that send.
const CLIENTS: usize = 512;

/// Descriptors that all clients take: a connection each, twice (the door watches one, and by the
/// other a client that lies is sent away), and a few of the device's.
pub fn descriptors(rdma: Option<&RdmaSettings>) -> usize {
    rdma.map_or(0, |rdma| 2 * rdma.limits.clients + DEVICE_DESCRIPTORS)
}

const DEVICE_DESCRIPTORS: usize = 8;

/// Of `fit` descriptors that are not all that were asked for, have such clients take a quarter at
/// most; say so if it is less.
pub fn keep_to(rdma: Option<&mut RdmaSettings>, fit: usize) {
    let Some(rdma) = rdma else { return };
    let most = ((fit / 4).saturating_sub(DEVICE_DESCRIPTORS) / 2).max(1);
    let asked = rdma.limits.clients;
    if asked > most {
        log::warn!("--rdma-clients {asked}: descriptors for {most} are left; see ulimit -n");
        rdma.limits.clients = most;
    }
}

/// The settings, or none where no flag asks for it.
pub fn settings(flags: &Flags, workers: usize) -> Result<Option<RdmaSettings>, String> {
    let Some(wanted) = &flags.rdma else {
        let why = "nobody comes over RDMA; add --rdma DEVICE";
        return flags::refuse(flags, "rdma-port rdma-clients rdma-slots", why).map(|()| None);
    };
    let place: Place = wanted.parse().map_err(|why| format!("--rdma {wanted}: {why}"))?;
    let clients = clients_max("--rdma-clients", flags.rdma_clients, CLIENTS)?;
    let slots = flags.rdma_slots.unwrap_or(SLOTS);
    if slots > CLIENTS_MAX {
        return Err(format!(
            "--rdma-slots {slots}: must be from 0 to {CLIENTS_MAX}; leave it out for {SLOTS}"
        ));
    }
    check_lanes("--rdma", workers)?;
    if flags.rdma_port == Some(0) {
        return Err("--rdma-port 0: must be from 1 to 65535; leave it out for 18515".to_owned());
    }
    let addresses = addresses(flags, flags.rdma_port.unwrap_or(DOOR_PORT))?;
    let limits = ClientLimits { clients, slots };
    Ok(Some(RdmaSettings { place, addresses, limits }))
}

/// Where the door is: at the addresses of `-l`.
fn addresses(flags: &Flags, port: u16) -> Result<Vec<SocketAddr>, String> {
    let places = resolve_places(flags, port)?;
    let read_only = match () {
        () if flags.handed.read_only => {
            Some("a socket that was handed over (LISTEN_FDS) is readonly")
        }
        () if places.iter().any(|place| place.rules.read_only) => Some("one of -l is readonly:"),
        () => None,
    };
    if let Some(what) = read_only {
        return Err(format!("--rdma: clients over RDMA may write, and {what}; leave either out"));
    }
    // The sockets say where the server is to be reached, and all interfaces may be far more.
    if flags.handed.clients && flags.listen.is_empty() {
        return Err("--rdma: sockets were handed over (LISTEN_FDS), and none is for RDMA; say at \
                    which addresses its clients come by -l"
            .to_owned());
    }
    let mut addresses: Vec<_> = places.into_iter().map(|place| place.address).collect();
    // Ports of -l are those of TCP.
    addresses.iter_mut().for_each(|address| address.set_port(port));
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_descriptors_clients_over_rdma_leave_three_quarters() {
        for (asked, fit, kept) in [(64, 4000, 64), (512, 1000, 121), (512, 40, 1), (1, 0, 1)] {
            let limits = ClientLimits { clients: asked, slots: SLOTS };
            let place = "rxe0".parse().expect("a name");
            let mut rdma = RdmaSettings { place, addresses: Vec::new(), limits };
            keep_to(Some(&mut rdma), fit);
            assert_eq!(rdma.limits.clients, kept, "{asked} clients in {fit}");
        }
    }
}
