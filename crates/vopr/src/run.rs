//! A run of one seed, and how a run that failed is made smaller.

use crate::counts::Counts;
use crate::swarm::Swarm;
use crate::world::World;
use laneway_store::meter;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Smaller runs that are tried after a failure.
const SHRINKS_MAX: usize = 300;

/// How a run came out.
pub struct Report {
    /// What went wrong.
    pub failure: Option<String>,
    /// What happened.
    pub counts: Counts,
    /// Equal runs have equal ones.
    pub digest: u64,
    /// What a person reads, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs it. A panic of the server is a failure like any other.
pub fn run(swarm: &Swarm, traced: bool) -> Report {
    let mut world = World::new(swarm, traced);
    meter::refuse(swarm.refuse_memory, swarm.seed);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    meter::refuse(0, 0);
    let failure = match ended {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => Some(format!("panic: {}", message(&*panic))),
    };
    let counts = world.books.counts.clone();
    Report { failure, counts, digest: world.books.digest, trace: world.books.trace() }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").into()
}

/// The smallest run found that fails, and how.
pub fn shrink(swarm: &Swarm) -> (Swarm, Report) {
    let mut best = (swarm.clone(), run(swarm, true));
    let mut tried = 0;
    'smaller: while tried < SHRINKS_MAX {
        for smaller in best.0.smaller() {
            tried += 1;
            let report = run(&smaller, true);
            if report.failure.is_some() {
                best = (smaller, report);
                continue 'smaller;
            }
            if tried >= SHRINKS_MAX {
                break;
            }
        }
        break;
    }
    best
}
