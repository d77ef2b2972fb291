//! Where clients on this host get memory to write into: `--shm`, `--shm-mask`, `--shm-clients`,
//! checked.

use super::UNIX_MASK;
use crate::flags::{self, Flags};
use laneway_server::settings::{LANES_MAX, ShmSettings};
use std::path::PathBuf;

/// Clients at a time where the flag is left out.
const CLIENTS: usize = 64;
/// And at most: each takes a descriptor for every worker and one more. (Of those over RDMA a card
/// holds the state of their connections: HERD §3.3 has some hundreds before they cost.)
pub const CLIENTS_MAX: usize = 4096;

/// Descriptors that all clients take: a connection each, and a doorbell for each worker.
pub fn descriptors(shm: Option<&ShmSettings>, workers: usize) -> usize {
    shm.map_or(0, |shm| shm.clients_max * (1 + workers))
}

/// Of `fit` descriptors that are not all that were asked for, have such clients take half at most;
/// say so if it is less.
pub fn keep_to(shm: Option<&mut ShmSettings>, workers: usize, fit: usize) {
    let Some(shm) = shm else { return };
    let most = (fit / 2 / (1 + workers)).max(1);
    if shm.clients_max > most {
        let asked = shm.clients_max;
        log::warn!("--shm-clients {asked}: descriptors for {most} are left; see ulimit -n");
        shm.clients_max = most;
    }
}

/// The settings, or none where no flag asks for it.
pub fn settings(flags: &Flags, workers: usize) -> Result<Option<ShmSettings>, String> {
    let Some(path) = &flags.shm else {
        let why = "nobody comes by memory; add --shm PATH";
        return flags::refuse(flags, "shm-mask shm-clients", why).map(|()| None);
    };
    if flags.unix_socket.as_ref() == Some(path) {
        let path = path.display();
        return Err(format!("--shm {path}: -s has this path; choose another for one of them"));
    }
    let clients_max = clients_max("--shm-clients", flags.shm_clients, CLIENTS)?;
    check_lanes("--shm", workers)?;
    let mode = flags.shm_mask.unwrap_or(UNIX_MASK);
    Ok(Some(ShmSettings { path: PathBuf::from(path), mode, clients_max }))
}

/// Clients at a time, by the flag of this name; `usual` where it is left out.
pub fn clients_max(flag: &str, given: Option<usize>, usual: usize) -> Result<usize, String> {
    match given.unwrap_or(usual) {
        clients if (1..=CLIENTS_MAX).contains(&clients) => Ok(clients),
        clients => Err(format!(
            "{flag} {clients}: must be from 1 to {CLIENTS_MAX}; leave it out for {usual}"
        )),
    }
}

/// Refuses more workers than the clients that `flag` asks for have lanes.
pub fn check_lanes(flag: &str, workers: usize) -> Result<(), String> {
    if workers <= LANES_MAX {
        return Ok(());
    }
    Err(format!(
        "{flag}: each client has a lane for each worker, at most {LANES_MAX}; choose fewer than \
         {workers} --workers"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_descriptors_clients_in_memory_leave_half() {
        let of = |clients_max| ShmSettings { path: "/s".into(), mode: 0o700, clients_max };
        for (asked, workers, fit, kept) in
            [(64, 4, 2000, 64), (64, 4, 400, 40), (4096, 1, 1000, 250), (8, 100, 90, 1)]
        {
            let mut shm = of(asked);
            keep_to(Some(&mut shm), workers, fit);
            assert_eq!(shm.clients_max, kept, "{asked} clients of {workers} workers in {fit}");
        }
        assert_eq!((descriptors(Some(&of(8)), 4), descriptors(None, 4)), (40, 0));
    }
}
