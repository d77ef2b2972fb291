//! `stats backup`: how far the backup is that was asked for last.

use super::lines::Lines;
use crate::durable::backup::{Standing, Told};

/// Answer `stats backup`. `None`: no backup can be asked for.
pub fn write_backup(told: Option<&Told>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("backup", told.is_some());
    if let Some(told) = told {
        lines.text("backup_state", told.standing.name());
        if told.standing != Standing::None {
            lines.text("backup_name", &told.name);
            lines.number("backup_items", told.items);
            lines.number("backup_items_at_start", told.items_total);
            lines.number("backup_items_lost", told.lost);
            lines.number("backup_bytes", told.bytes);
            lines.number("backup_began", told.began_seconds.into());
            lines.number("backup_ended", told.ended_seconds.into());
        }
        let one_line = |error: &str| error.replace(['\r', '\n'], " ");
        if told.standing == Standing::Failed {
            lines.text("backup_error", &one_line(&told.error));
        }
        if let Some(refused) = &told.refused {
            lines.text("backup_refused", &refused.name);
            lines.text("backup_refused_error", &one_line(&refused.error));
        }
    }
    lines.end();
}
