//! HERD's microbenchmark of verbs on a device (§3.2): every kind of work request, how many complete
//! in a second, and whether every byte came. What is timed is from the call that posts a batch to
//! its last completion; messages are made before that and looked at behind it.

use super::flags::Trials;
use super::report::Tried;
use laneway_rdma::verbs::trial::{BATCH, Kind, Told, Trial};
use std::time::{Duration, Instant};

/// How long a batch may take. A device in software on an emulated machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries every kind with messages of so many bytes.
pub(super) fn run(asked: &Trials, bytes: usize) -> Result<Vec<Tried>, String> {
    let each = |kind: Kind| {
        let told = |error: String| format!("--rdma {}: {}: {error}", asked.place, kind.verb);
        one(asked, kind, bytes).map_err(told)
    };
    Kind::all().into_iter().map(each).collect()
}

fn one(asked: &Trials, kind: Kind, bytes: usize) -> Result<Tried, String> {
    let row = Tried {
        verb: kind.verb.to_string(),
        bytes,
        inline: kind.is_inline,
        signalled: kind.is_signalled,
        ..Tried::default()
    };
    let mut trial = match Trial::new(&asked.place, kind, bytes) {
        Ok(trial) => trial,
        // Not every device takes so much in a request, and some take nothing.
        Err(why) if why.is_about_inline() => {
            return Ok(Tried { refused: Some(why.to_string()), ..row });
        }
        Err(why) => return Err(why.to_string()),
    };
    let mut took = Duration::ZERO;
    for _ in 0..asked.operations.div_ceil(BATCH as u64) {
        trial.prepare();
        let begun = Instant::now();
        let mut go_on = || begun.elapsed() < PATIENCE;
        trial.carry_out(&mut go_on).map_err(|error| error.to_string())?;
        took += begun.elapsed();
        trial.look(&mut go_on).map_err(|error| error.to_string())?;
        if trial.told().lost > 0 {
            // Waiting for each that is lost would take for ever.
            break;
        }
    }
    let Told { operations, completions, wrong, lost } = trial.told();
    let operations_per_s = operations as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE);
    Ok(Tried { operations, completions, wrong, lost, operations_per_s, ..row })
}
