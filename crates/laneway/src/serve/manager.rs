//! What a service manager is told: systemd's `Type=notify`, and whatever else sets NOTIFY_SOCKET
//! (`sd_notify(3)`). Without that variable nothing is told.

use sd_notify::{NotifyState, notify};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::{env, io};

/// The server serves, or has read its files again.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// SIGHUP has come; [`ready`] follows. With its time, by which `Type=notify-reload` tells it from
/// an earlier one.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => log::warn!("the service manager is not told of the reload: {error}"),
    }
}

/// The server serves, and no worker hangs. Said again and again: that the manager cannot be told
/// goes into the log once, until it can (`is_lost`: it has gone).
pub fn is_well(is_lost: &mut bool) {
    let told = send(&[NotifyState::Watchdog]);
    if let Err(error) = &told
        && !*is_lost
    {
        warn(error);
    }
    *is_lost = told.is_err();
}

/// Requests under way are finished, then the process ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState]) {
    // It may end the process for not having heard; that is its business, and the log says why.
    if let Err(error) = send(states) {
        warn(&error);
    }
}

fn warn(error: &io::Error) {
    log::warn!("NOTIFY_SOCKET: the service manager cannot be told: {error}");
}

/// A name that begins with `@` is of a socket without a file, which the crate takes for a file's.
fn send(states: &[NotifyState]) -> io::Result<()> {
    let name = env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    let Some(bare) = name.as_bytes().strip_prefix(b"@") else { return notify(states) };
    let address = SocketAddr::from_abstract_name(bare)?;
    let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address).map(drop)
}
