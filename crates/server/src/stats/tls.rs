//! `stats tls`: what became of handshakes, by cause where they failed, and until when the
//! certificate is good.

use super::lines::Lines;
use laneway_tls::{Cause, Told};

/// Answer `stats tls`. `None`: nothing is encrypted.
pub fn write_tls(told: Option<&Told>, now_seconds: u32, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("tls", told.is_some());
    if let Some(told) = told {
        lines.number("handshakes_tls12", told.full_1_2);
        lines.number("handshakes_tls13", told.full_1_3);
        lines.number("handshakes_resumed", told.resumed);
        lines.number("handshakes_under_way", told.underway);
        lines.number("handshakes_failed", told.failed());
        for (cause, count) in Cause::ALL.into_iter().zip(told.failed) {
            lines.number(&format!("handshakes_failed_{}", cause.name()), count);
        }
        lines.number("certificate_expires", told.expires_seconds);
        lines.number(
            "certificate_expires_in",
            told.expires_seconds.saturating_sub(now_seconds.into()),
        );
        lines.number("certificate_read", told.read_seconds);
    }
    lines.end();
}
