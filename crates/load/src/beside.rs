//! What a server has to do beside the requests that are measured: a great many items that all
//! expire in the middle of the window, or a command that is much work, asked again and again.
//!
//! The items are written before the run, by a connection of their own that is closed then; the
//! command is asked by a thread that the scheduler may put anywhere. So neither delays the sender.
//! Both speak memcached's protocol. The third kind is a storm of handshakes of TLS
//! ([`crate::storm`]).

use crate::admin;
use crate::arguments::within;
use crate::connection::{Stream, Target};
use crate::cpu;
use crate::dialect::Dialect;
use crate::storm::Storm;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So many of them are asked for, to see that the server has room for all.
const SAMPLE: u64 = 100;
/// Most items that expire: their keys have eight digits.
const EXPIRING_MAX: u64 = 99_999_999;
/// Bytes of the value of each.
const EXPIRING_BYTES: usize = 100;
/// A server that takes fewer than this a second is too slow for them.
const WRITTEN_PER_S_MIN: u64 = 100_000;
/// Items written by one call.
const WRITTEN_AT_ONCE: u64 = 512;
/// Fewest handshakes a second, where there are any, and most: more than a client makes.
const HANDSHAKES_PER_S_MIN: f64 = 0.001;
const HANDSHAKES_PER_S_MAX: f64 = 100_000.0;
/// Longest time between two commands, seconds: an hour.
const EVERY_S_MAX: f64 = 3_600.0;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Items that expire in the middle of the window.
    pub expiring: u64,
    /// A line of memcached's protocol, without its end.
    pub command: Option<String>,
    /// Seconds between two commands, and before the first.
    pub every_s: f64,
    /// Whole handshakes of TLS a second.
    pub handshakes_per_s: f64,
}

impl Default for Beside {
    fn default() -> Self {
        Beside { expiring: 0, command: None, every_s: 1.0, handshakes_per_s: 0.0 }
    }
}

/// The thread that asks the command.
#[derive(Debug)]
pub struct Commands {
    command: String,
    every: Duration,
    began: Instant,
    stop: Sender<()>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Beside {
    /// Whether this can be asked of a server that speaks `dialect`.
    pub fn check(&self, dialect: Dialect) -> Result<(), String> {
        let Beside { expiring, command, every_s, handshakes_per_s } = self;
        within("expiring", *expiring, 0..=EXPIRING_MAX)?;
        if let Some(line) = command
            && (line.trim().is_empty() || line.contains(['\r', '\n']))
        {
            return Err(format!("--beside {line:?}: one line of memcached's protocol"));
        }
        within("beside-every", *every_s, 0.001..=EVERY_S_MAX)?;
        if *handshakes_per_s != 0.0 {
            let range = HANDSHAKES_PER_S_MIN..=HANDSHAKES_PER_S_MAX;
            within("handshakes", *handshakes_per_s, range)?;
        }
        if dialect != Dialect::Text && (*expiring > 0 || command.is_some()) {
            let words = "--expiring, --beside: memcached's protocol only; leave out --dialect";
            return Err(words.into());
        }
        Ok(())
    }

    /// Whether this server can be asked for it.
    pub fn check_target(&self, target: &Target) -> Result<(), String> {
        match target {
            Target::Tls(..) => Ok(()),
            _ if self.handshakes_per_s == 0.0 => Ok(()),
            _ => Err("--handshakes: of TLS; name the server's authorities by --tls-ca FILE".into()),
        }
    }

    /// Begins the storm of handshakes, if there is one.
    pub fn storm(&self, target: &Target) -> Option<Storm> {
        match target {
            Target::Tls(address, client) if self.handshakes_per_s > 0.0 => {
                Some(Storm::start(address, client, self.handshakes_per_s))
            }
            _ => None,
        }
    }

    /// Writes the items that are to expire, and waits until the run has to begin for that.
    pub fn write_expiring(
        &self,
        target: &Target,
        warmup: Duration,
        duration: Duration,
    ) -> Result<(), String> {
        if self.expiring == 0 {
            return Ok(());
        }
        let ahead = warmup + duration / 2;
        let writing = Duration::from_secs(self.expiring / WRITTEN_PER_S_MIN + 2);
        // Whole seconds of the server's clock: all expire in the same one.
        let expiry_s = (unix() + ahead + writing).as_secs();
        let at = |error: std::io::Error| format!("--expiring {}: {error}", self.expiring);
        write_items(target, self.expiring, expiry_s).map_err(at)?;
        // Its count of items may have those of an earlier run in it that are not taken out yet.
        let asked = self.expiring.min(SAMPLE);
        let sample = (0..asked).map(|number| name(number * (self.expiring / asked)));
        let held = admin::held(target, sample).map_err(at)?;
        if (held as u64) < asked {
            return Err(format!(
                "--expiring {}: of {asked} that were asked for the server holds {held}; start it \
                 with a larger -m",
                self.expiring
            ));
        }
        let begin = Duration::from_secs(expiry_s).saturating_sub(ahead);
        let Some(wait) = begin.checked_sub(unix()) else {
            return Err(format!(
                "--expiring {}: the server took fewer than {WRITTEN_PER_S_MIN} of them a second",
                self.expiring
            ));
        };
        std::thread::sleep(wait);
        Ok(())
    }

    /// Begins to ask the command, if there is one.
    pub fn start(&self, target: &Target) -> Option<Commands> {
        let command = self.command.clone()?;
        let (target, line) = (target.clone(), command.clone());
        let every = Duration::from_secs_f64(self.every_s);
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            cpu::unpin();
            let mut asked = 0;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                let reply = admin::command(&target, &line).map_err(|error| error.to_string())?;
                if reply.contains("ERROR") {
                    return Err(format!("the server answers {:?}", reply.trim_end()));
                }
                asked += 1;
            }
            Ok(asked)
        });
        Some(Commands { command, every, began: Instant::now(), stop, thread })
    }
}

impl Commands {
    /// Stops asking. An error where the server refused, or was not asked in a run that was long
    /// enough for it.
    pub fn finish(self) -> Result<(), String> {
        let Commands { command, every, began, stop, thread } = self;
        let was_due = 2 * every < began.elapsed();
        drop(stop);
        let asked = thread.join().unwrap_or_else(|_| Err("its thread panicked".into()));
        match asked {
            Ok(0) if was_due => Err(format!("--beside {command:?}: nobody came to ask it")),
            Ok(_) => Ok(()),
            Err(why) => Err(format!("--beside {command:?}: {why}")),
        }
    }
}

fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn write_items(target: &Target, items: u64, expiry_s: u64) -> std::io::Result<()> {
    let mut stream = Stream::connect(target)?;
    let mut next = 0;
    while next < items {
        let upto = items.min(next + WRITTEN_AT_ONCE);
        stream.write_all(sets(next..upto, expiry_s).as_bytes())?;
        next = upto;
    }
    // What comes back says that all before it was carried out.
    admin::version_on(&mut stream).map(drop)
}

/// SETs without replies.
fn sets(items: std::ops::Range<u64>, expiry_s: u64) -> String {
    let value = "e".repeat(EXPIRING_BYTES);
    let set =
        |item| format!("set {} 0 {expiry_s} {EXPIRING_BYTES} noreply\r\n{value}\r\n", name(item));
    items.map(set).collect()
}

fn name(item: u64) -> String {
    format!("expires{item:08}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_names_and_an_expiry_of_their_own() {
        let text = sets(7..9, 1_900_000_000);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], "set expires00000007 0 1900000000 100 noreply");
        assert_eq!((lines[1].len(), lines.len()), (EXPIRING_BYTES, 5));
        assert_eq!(lines[2], "set expires00000008 0 1900000000 100 noreply");
    }

    #[test]
    fn a_command_is_one_line() {
        for (line, is_good) in
            [("stats cachedump 5 0", true), ("flush_all\r\nquit", false), (" ", false)]
        {
            let beside = Beside { command: Some(line.into()), ..Beside::default() };
            let checked = beside.check(Dialect::Text);
            assert_eq!(checked.is_ok(), is_good, "{checked:?}");
        }
        let storm = Beside { handshakes_per_s: 1.0, ..Beside::default() };
        let refused = storm.check_target(&Target::Tcp("here:1".into()));
        assert!(refused.is_err_and(|words| words.contains("--tls-ca")));
    }
}
