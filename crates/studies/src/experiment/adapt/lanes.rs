//! What a server says of its lanes while it is under load: `stats lanes`, asked ten times a second.
//!
//! The questions go over a TCP connection each, from a thread that the scheduler may put anywhere,
//! so that they do not delay the sender. Times are seconds from the first phase's beginning; the
//! last is asked when the run is over. It knows no request.

use laneway_load::connection::Target;
use laneway_load::dialect::Dialect;
use laneway_load::{admin, cpu};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two questions.
const EVERY: Duration = Duration::from_millis(100);

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// When.
    pub(super) at_s: f64,
    /// Workers that serve large requests only.
    pub(super) workers_large: u16,
    /// From this size on a request is large, bytes.
    pub(super) threshold_bytes: u64,
    /// Plans made.
    pub(super) epochs: u64,
}

impl Sample {
    fn of(at_s: f64, stats: &BTreeMap<String, String>) -> Option<Sample> {
        let number = |name: &str| stats.get(name)?.trim().parse::<u64>().ok();
        Some(Sample {
            at_s,
            workers_large: number("workers_large")?.try_into().ok()?,
            threshold_bytes: number("threshold_bytes")?,
            epochs: number("epochs")?,
        })
    }

    /// Asks the server at `target` once.
    pub(super) fn ask(target: &Target, at_s: f64) -> Result<Sample, String> {
        let stats = admin::stats(target, Dialect::Text, "lanes")
            .map_err(|error| format!("stats lanes of {target}: {error}"))?;
        Sample::of(at_s, &stats).ok_or_else(|| format!("{target} has no stats lanes"))
    }
}

/// Asks until it is told to stop.
#[derive(Debug)]
pub(super) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Begins to ask the server at `target`, in seconds from `began`; an error if it does not tell.
    pub(super) fn start(target: &Target, began: Instant) -> Result<Self, String> {
        let target = target.clone();
        let ask = move || Sample::ask(&target, began.elapsed().as_secs_f64());
        ask()?;
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            cpu::unpin();
            let mut samples = Vec::new();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                samples.extend(ask());
            }
            // What came of it, also where this thread had no turn for a long time.
            samples.extend(ask());
            samples
        });
        Ok(Sampler { stop, thread })
    }

    /// Stops asking; what was answered.
    pub(super) fn finish(self) -> Vec<Sample> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_is_a_sample() {
        let names = ["workers_large", "threshold_bytes", "epochs"];
        let mut stats: BTreeMap<String, String> =
            names.map(|name| (name.to_owned(), "1".to_owned())).into();
        let sample = Sample { at_s: 2.0, workers_large: 1, threshold_bytes: 1, epochs: 1 };
        assert_eq!(Sample::of(2.0, &stats), Some(sample));
        stats.remove("epochs");
        assert_eq!(Sample::of(2.0, &stats), None);
    }
}
