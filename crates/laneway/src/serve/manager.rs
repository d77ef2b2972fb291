//! What a service manager is told: systemd's `Type=notify`, and whatever else sets NOTIFY_SOCKET
//! (`sd_notify(3)`). Without that variable nothing is told.

use sd_notify::{NotifyState, notify};

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

/// The server serves, and no worker hangs.
pub fn is_well() {
    tell(&[NotifyState::Watchdog]);
}

/// Requests under way are finished, then the process ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState]) {
    // It may end the process for not having heard; that is its business, and the log says why.
    if let Err(error) = notify(states) {
        log::warn!("NOTIFY_SOCKET: the service manager cannot be told: {error}");
    }
}
