//! The service manager's watchdog (`WATCHDOG_USEC`, `sd_watchdog_enabled(3)`): it is told twice in
//! each period that the server is well, as long as every worker makes turns. If one hangs, nothing
//! is told, and the manager does what its unit says.

use super::manager;
use laneway_server::boot::Server;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a worker may make no turn at the least before it counts as hung: its number grows once
/// in up to two seconds where it has nothing to do, and a busy machine needs as much again.
const PATIENCE_MIN: Duration = Duration::from_secs(5);
/// How often it looks: so often that what goes on again is told of in time, whatever the period.
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// What tells the manager; it ends soon after this is dropped. Nobody waits for that, since the
/// manager may be what hangs.
pub struct Watchdog {
    /// Nothing is sent, apart from one word at the beginning.
    begins: Sender<()>,
}

/// Make the thread, if the manager waits to be told; a sandbox lets none begin later.
pub fn prepare(server: &Server) -> io::Result<Option<Watchdog>> {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else {
        return Ok(None);
    };
    let (begins, words) = channel();
    let turns = server.turns();
    let builder = thread::Builder::new().name("watchdog".to_owned());
    builder.spawn(move || {
        // An error says that the server does not serve after all.
        if words.recv().is_ok() {
            tell_until_end(&words, Looks::new(period), turns);
        }
    })?;
    Ok(Some(Watchdog { begins }))
}

impl Watchdog {
    /// The server serves.
    pub fn begin(&self) {
        let _ = self.begins.send(()); // it waits for this word
    }
}

fn tell_until_end(words: &Receiver<()>, mut looks: Looks, turns: impl Fn() -> Vec<u64>) {
    let (began, mut is_lost) = (Instant::now(), false);
    loop {
        match looks.look(began.elapsed(), &turns()) {
            Found::Well => manager::is_well(&mut is_lost),
            Found::Hung(worker) => log::error!(
                "worker {worker} hangs: it has made no turn for {} seconds, so the service \
                 manager's watchdog is not told that the server is well",
                looks.patience.as_secs()
            ),
            Found::Nothing => {}
        }
        if words.recv_timeout(looks.pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The thread's finding after a look; it says what the thread does next.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The manager is to be told that the server is well.
    Well,
    /// This worker hangs, as nobody has been told yet.
    Hung(usize),
    /// Nothing: it was told not long ago, or who hangs is known.
    Nothing,
}

/// Looks whether the number of each worker has grown lately.
struct Looks {
    pause: Duration,
    /// Between two messages.
    half: Duration,
    patience: Duration,
    /// When it looked last.
    looked: Duration,
    /// When the manager was told last.
    told: Option<Duration>,
    /// The worker that hung at the last look.
    hung: Option<usize>,
    /// Of each worker its number, and since when it has that.
    seen: Vec<(u64, Duration)>,
}

impl Looks {
    fn new(period: Duration) -> Looks {
        let half = period / 2;
        Looks {
            pause: (half / 4).clamp(LOOK_MIN, LOOK_MAX),
            half,
            patience: half.max(PATIENCE_MIN),
            looked: Duration::ZERO,
            told: None,
            hung: None,
            seen: Vec::new(),
        }
    }

    /// It is now, and the numbers are these.
    fn look(&mut self, now: Duration, numbers: &[u64]) -> Found {
        // Where it did not look for long itself, as in a process that was halted, no worker is to
        // blame: each is given its time anew.
        let was_halted = now - self.looked > 2 * self.pause + LOOK_MAX;
        self.looked = now;
        self.seen.resize(numbers.len(), (u64::MAX, now));
        for (seen, number) in self.seen.iter_mut().zip(numbers) {
            if seen.0 != *number || was_halted {
                *seen = (*number, now);
            }
        }
        let hangs = |(_, since): &(u64, Duration)| now - *since >= self.patience;
        let hung = self.seen.iter().position(hangs);
        let before = std::mem::replace(&mut self.hung, hung);
        let is_due = self.told.is_none_or(|told| now - told >= self.half);
        match hung {
            Some(worker) if before != hung => Found::Hung(worker),
            None if is_due => {
                self.told = Some(now);
                Found::Well
            }
            _ => Found::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn one_worker_that_makes_no_turn_is_found_until_it_makes_one_again() {
        let mut looks = Looks::new(ms(4_000));
        assert_eq!((looks.half, looks.patience, looks.pause), (ms(2_000), ms(5_000), ms(500)));
        for (now, numbers, found) in [
            (0, &[0, 0, 0][..], Found::Well),
            (500, &[0, 0, 0], Found::Nothing),
            (2_000, &[1, 0, 7], Found::Well),
            (3_500, &[2, 0, 8], Found::Nothing),
            (4_500, &[3, 0, 9], Found::Well),
            (5_000, &[3, 0, 10], Found::Hung(1)),
            (5_500, &[4, 0, 10], Found::Nothing),
            (7_000, &[4, 0, 11], Found::Nothing),
            (7_500, &[5, 1, 12], Found::Well), // at once: the manager has waited for it
            (8_500, &[6, 2, 13], Found::Nothing),
            (9_500, &[6, 3, 14], Found::Well),
            (11_000, &[], Found::Nothing),
            (12_000, &[], Found::Well), // the workers were told to leave
        ] {
            assert_eq!(looks.look(ms(now), numbers), found, "{now}");
        }
    }

    fn stop_at(stops: &[(u64, u64)], now: u64) -> Option<(u64, u64)> {
        stops.iter().copied().find(|(from, to)| (*from..*to).contains(&now))
    }

    /// Looks as often as it does, at numbers that grow once in two seconds but where they do not;
    /// the longest time between two messages.
    fn longest(period: u64, halted: &[(u64, u64)], hung: &[(u64, u64)]) -> u64 {
        let (mut looks, mut now, mut told, mut longest) = (Looks::new(ms(period)), 0, 0, 0);
        while now < 20 * period {
            // A number stands still from the beginning of a stop on.
            let grows = stop_at(hung, now).or(stop_at(halted, now)).map_or(now, |(from, _)| from);
            if looks.look(ms(now), &[grows / 2_000, now]) == Found::Well {
                longest = longest.max(now - told);
                told = now;
            }
            now += looks.pause.as_millis() as u64;
            if let Some((_, to)) = stop_at(halted, now) {
                now = to;
            }
        }
        longest
    }

    #[test]
    fn what_goes_on_again_is_told_of_in_time_whatever_the_period() {
        for period in [40, 1_000, 2_002, 10_000, 30_000, 60_000] {
            assert!(longest(period, &[], &[]) <= period * 3 / 4, "{period}");
        }
        // Halted for a little longer than half of the period, a worker's number not grown yet.
        assert!(longest(30_000, &[(30_500, 46_000)], &[]) < 30_000);
        // A worker that hangs alone for as long.
        assert!(longest(30_000, &[], &[(30_100, 46_000)]) < 30_000);
        // One that hangs for longer is not told of.
        assert!(longest(30_000, &[], &[(30_100, 65_000)]) > 30_000);
    }
}
