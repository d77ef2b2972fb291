//! Whether a run may be believed: a run that could not keep its schedule prints no latency.
//!
//! The rule: where more than [`LATE_WARN`] of the requests left over 100 µs after they were due,
//! say so; where more than a limit did (`--late-max`, usually [`LATE_REFUSE`]), or fewer than
//! [`ANSWERED_MIN`] of those due were answered within the window, the latencies are not the
//! server's under the load that was asked for, and are not shown. A wrong value or a refusal fails
//! the run whatever else it measured. This is pure arithmetic.

use crate::recorder::Counts;
use serde::{Deserialize, Serialize};

/// Share of late requests from which the report warns.
pub const LATE_WARN: f64 = 0.001;
/// Share of late requests from which no latency is shown, where nothing else was asked for.
pub const LATE_REFUSE: f64 = 0.05;
/// Share of the requests due that must be answered within the window.
pub const ANSWERED_MIN: f64 = 0.95;
/// Share of misses from which the report warns: a miss is cheaper than the hit it stands for.
pub const MISSES_WARN: f64 = 0.001;

/// What may be said about a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Why the latencies are not shown.
    pub refused: Option<String>,
    /// Whether that is because the server fell behind.
    pub fell_behind: bool,
    /// Why the run fails.
    pub failed: Option<String>,
    /// What to bear in mind.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Whether the run counts.
    pub fn is_good(&self) -> bool {
        self.refused.is_none() && self.failed.is_none()
    }
}

/// Judges the counts of an open-loop run, of which at most `late_max` (a share) may leave late, or
/// of a closed-loop one (`None`), which has no schedule to fall behind.
pub fn judge(counts: &Counts, late_max: Option<f64>, first_fault: Option<&str>) -> Verdict {
    let mut verdict = Verdict::default();
    let due = counts.due.max(1) as f64;
    let late_share = (counts.late + counts.never_sent) as f64 / due;
    let fault = first_fault.unwrap_or("no words kept");
    if counts.corrupt > 0 {
        verdict.failed = Some(format!("{} wrong replies; the first: {fault}", counts.corrupt));
    } else if counts.refused > 0 {
        verdict.failed = Some(format!("{} refusals; the first: {fault}", counts.refused));
    } else if counts.unanswered > 0 {
        verdict.failed = Some(format!("{} requests got no reply", counts.unanswered));
    } else if counts.due == 0 {
        verdict.failed = Some("no request was due within the window; give more time".into());
    }
    let gets = counts.hits + counts.misses;
    if counts.misses as f64 > MISSES_WARN * gets as f64 {
        verdict.warnings.push(format!(
            "{:.2} % of the GETs missed: give the server more memory (-m), or lower --keys",
            100.0 * counts.misses as f64 / gets as f64
        ));
    }
    if counts.lost > 0 {
        verdict.warnings.push(format!(
            "{} requests were lost ({:.3} %); each counts with the time that was waited for it",
            counts.lost,
            100.0 * counts.lost as f64 / due
        ));
    }
    let Some(late_max) = late_max else { return verdict };
    let answered_share = counts.ended_within as f64 / due;
    if late_share > late_max {
        verdict.refused = Some(format!(
            "the generator fell behind its schedule: {:.2} % of the requests left over 100 us \
             late; have others leave CPUs to it (taskset), or lower --rate",
            100.0 * late_share
        ));
    } else if answered_share < ANSWERED_MIN {
        verdict.fell_behind = true;
        verdict.refused = Some(format!(
            "the server fell behind: {:.2} % of the requests due were answered in time",
            100.0 * answered_share
        ));
    } else if late_share > LATE_WARN {
        verdict.warnings.push(format!(
            "{:.2} % of the requests left over 100 us late, at most {:.0} us: mistrust the tail",
            100.0 * late_share,
            counts.late_ns_max as f64 / 1e3
        ));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Counts {
        Counts {
            due: 10_000,
            hits: 9_500,
            stored: 500,
            ended_within: 10_000,
            ended: 12_000,
            ..Counts::default()
        }
    }

    fn seen(counts: Counts, open_loop: bool) -> &'static str {
        let verdict = judge(&counts, open_loop.then_some(LATE_REFUSE), None);
        match verdict {
            Verdict { failed: Some(_), .. } => "failed",
            Verdict { refused: Some(_), .. } => "refused",
            Verdict { ref warnings, .. } if !warnings.is_empty() => "warned",
            _ => "good",
        }
    }

    #[test]
    fn the_rule_row_by_row() {
        for (counts, open, closed) in [
            (good(), "good", "good"),
            (Counts { late: 10, ..good() }, "good", "good"),
            (Counts { late: 11, ..good() }, "warned", "good"),
            (Counts { late: 500, ..good() }, "warned", "good"),
            (Counts { late: 501, ..good() }, "refused", "good"),
            (Counts { never_sent: 501, ..good() }, "refused", "good"),
            (Counts { ended_within: 9_500, ..good() }, "good", "good"),
            (Counts { ended_within: 9_499, ..good() }, "refused", "good"),
            (Counts { misses: 10, ..good() }, "warned", "warned"),
            (Counts { corrupt: 1, ..good() }, "failed", "failed"),
            (Counts { refused: 1, ..good() }, "failed", "failed"),
            (Counts { lost: 1, ..good() }, "warned", "warned"),
            (Counts { unanswered: 1, ..good() }, "failed", "failed"),
            (Counts { due: 0, ..good() }, "failed", "failed"),
        ] {
            assert_eq!(seen(counts, true), open, "open loop {counts:?}");
            assert_eq!(seen(counts, false), closed, "closed loop {counts:?}");
        }
    }
}
