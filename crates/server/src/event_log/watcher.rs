//! One reader of the log: what it wants to see, and where it stands. Dropped, it watches no more.

use super::asked::Asked;
use super::event::WORDS;
use super::line;
use super::record::{EventLog, PLACES, WATCHERS_MAX};
use laneway_sync::journal::{Found, Journal};
use laneway_sync::planted::{Bug, is_planted};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Events that a watcher passes over at once where it is too slow: to go on at the oldest event
/// that is remembered would be to lose that one, too.
const MARGIN: u64 = PLACES as u64 / 4;

/// Events that one turn looks at.
const LOOKS_MAX: usize = 512;

/// The reader.
#[derive(Debug)]
pub struct Watcher {
    log: Arc<EventLog>,
    asked: Asked,
    /// The number of the next event.
    next: u64,
    /// Events of its classes that it has read.
    seen: u64,
    /// Events that it has missed and was not told of.
    skipped: u64,
    /// The last turn found that the next event's writer is on its way.
    has_waited: bool,
    /// The last event that was read.
    words: Vec<u64>,
}

impl EventLog {
    /// One more watches from now on; `None` where as many do as may.
    pub fn watch(self: &Arc<EventLog>, asked: Asked) -> Option<Watcher> {
        let mut watchers = self.watchers();
        if watchers.len() >= WATCHERS_MAX {
            return None;
        }
        watchers.push(asked.classes);
        let journal = self.journal.get_or_init(|| Journal::new(PLACES, WORDS));
        self.watched.fetch_or(asked.classes, Relaxed); // see `EventLog::is_watched`
        let (log, next) = (self.clone(), journal.end());
        let words = Vec::new();
        Some(Watcher { log, asked, next, seen: 0, skipped: 0, has_waited: false, words })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut watchers = self.log.watchers();
        if let Some(place) = watchers.iter().position(|classes| *classes == self.asked.classes) {
            watchers.swap_remove(place);
        }
        let watched = watchers.iter().fold(0, |all, classes| all | classes);
        self.log.watched.store(watched, Relaxed); // see `EventLog::is_watched`
    }
}

impl Watcher {
    /// Whether there is something that it has not seen.
    pub fn has_news(&self) -> bool {
        self.log.journal.get().is_some_and(|journal| journal.end() > self.next)
    }

    /// Puts lines behind `out`, until that has `bytes_most` or there are no more. Returns whether
    /// there may be more at once.
    pub fn tell(&mut self, out: &mut Vec<u8>, bytes_most: usize) -> bool {
        let log = self.log.clone();
        let Some(journal) = log.journal.get() else { return false };
        for _ in 0..LOOKS_MAX {
            if !self.tell_next(journal, out) {
                self.tell_skipped(out);
                return false;
            }
            if out.len() >= bytes_most {
                self.next += u64::from(is_planted(Bug::WatcherLosesLines));
                break;
            }
        }
        self.tell_skipped(out);
        true
    }

    /// Puts the line of the next event, if that is to be seen. False: there is none now.
    fn tell_next(&mut self, journal: &Journal, out: &mut Vec<u8>) -> bool {
        let end = journal.end();
        if self.next >= end {
            return false;
        }
        match journal.read(self.next, &mut self.words) {
            Found::Entry => {
                let is_asked = line::class_of(&self.words) & self.asked.classes != 0;
                self.seen += u64::from(is_asked);
                // Not by the event's number: those of classes that others watch would decide.
                if is_asked && self.seen.is_multiple_of(self.asked.sample) {
                    self.tell_skipped(out);
                    line::put(&self.words, out);
                    self.log.sent.fetch_add(1, Relaxed); // a number that orders nothing
                }
                self.pass(self.next + 1);
            }
            Found::Lost => {
                let oldest = (end + MARGIN).saturating_sub(PLACES as u64);
                self.skip(oldest.clamp(self.next + 1, end));
            }
            // Its writer has been on its way for a whole turn, or has left it out.
            Found::Nothing if self.has_waited => self.skip(self.next + 1),
            Found::Nothing => {
                self.has_waited = true;
                return false;
            }
        }
        true
    }

    fn pass(&mut self, next: u64) {
        (self.next, self.has_waited) = (next, false);
    }

    fn skip(&mut self, next: u64) {
        self.skipped += next - self.next;
        self.pass(next);
    }

    fn tell_skipped(&mut self, out: &mut Vec<u8>) {
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 {
            self.log.skipped.fetch_add(skipped, Relaxed); // a number that orders nothing
            line::put_skipped(skipped, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Class, Event, Fetched, Subject};
    use super::*;

    fn log_get(log: &EventLog, key: &str) {
        log.log(Event::Get(Fetched::Found), Subject { text: key.as_bytes(), ..Subject::default() });
    }

    fn log_open(log: &EventLog) {
        log.log(Event::Open, Subject { text: b"tcp:1.2.3.4:5", ..Subject::default() });
    }

    fn watch(log: &Arc<EventLog>, classes: u32) -> Watcher {
        log.watch(Asked { classes, sample: 1 }).expect("there is room")
    }

    /// All that it is told, by lines.
    fn lines(watcher: &mut Watcher) -> Vec<String> {
        let mut out = Vec::new();
        while watcher.tell(&mut out, usize::MAX) {}
        String::from_utf8(out).expect("text").lines().map(str::to_owned).collect()
    }

    const FETCHERS: u32 = Class::Fetchers as u32;

    #[test]
    fn a_watcher_sees_what_it_asked_for_since_it_asked() {
        let log = Arc::new(EventLog::default());
        log_get(&log, "nobody");
        assert_eq!(log.counts(), Default::default());
        let mut first = watch(&log, FETCHERS);
        log_get(&log, "first");
        let mut second = watch(&log, Class::Connections as u32);
        log_open(&log);
        log_get(&log, "both");
        assert!(first.has_news() && second.has_news());
        let keys = lines(&mut first);
        assert_eq!(keys.len(), 2, "{keys:?}");
        assert!(keys[0].contains("key=first ") && keys[1].contains("key=both "), "{keys:?}");
        assert_eq!(lines(&mut second).len(), 1);
        assert!(!first.has_news() && !second.has_news());
        let counts = log.counts();
        assert_eq!((counts.logged, counts.sent, counts.skipped, counts.watchers), (3, 3, 0, 2));
        drop(first);
        log_get(&log, "nobody again");
        assert_eq!((log.counts().logged, log.counts().watchers), (3, 1));
        drop(second);
        assert!(!log.is_watched());
    }

    #[test]
    fn a_slow_watcher_is_told_how_many_it_has_missed() {
        let log = Arc::new(EventLog::default());
        let mut watcher = watch(&log, FETCHERS);
        let events = PLACES + 100;
        (0..events).for_each(|number| log_get(&log, &number.to_string()));
        let lines = lines(&mut watcher);
        let skipped = lines[0].strip_prefix("skipped=").expect("it comes first");
        let skipped: usize = skipped.parse().expect("a number");
        assert!(skipped >= 100, "{skipped}");
        assert_eq!(skipped + lines.len() - 1, events, "each is told or counted");
        assert!(lines[1].contains(&format!("key={skipped} ")), "{}", lines[1]);
        assert_eq!(log.counts().skipped, skipped as u64);
    }

    #[test]
    fn a_turn_is_bounded_and_the_next_one_goes_on() {
        let log = Arc::new(EventLog::default());
        let mut watcher = watch(&log, FETCHERS);
        (0..10).for_each(|number| log_get(&log, &number.to_string()));
        let mut out = Vec::new();
        assert!(watcher.tell(&mut out, 1));
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(lines(&mut watcher).len(), 9);
    }

    #[test]
    fn of_a_sample_the_others_are_not_missed() {
        let log = Arc::new(EventLog::default());
        let mut watcher = log.watch(Asked { classes: FETCHERS, sample: 10 }).expect("room");
        (0..100).for_each(|number| log_get(&log, &number.to_string()));
        assert_eq!((lines(&mut watcher).len(), log.counts().skipped), (10, 0));
    }

    #[test]
    fn a_sample_does_not_depend_on_what_others_watch() {
        let log = Arc::new(EventLog::default());
        let mut watcher = log.watch(Asked { classes: FETCHERS, sample: 2 }).expect("room");
        let _other = watch(&log, Class::Connections as u32);
        // The one kind has odd numbers, the other even ones.
        for number in 0..50 {
            log_get(&log, &number.to_string());
            log_open(&log);
        }
        assert_eq!(lines(&mut watcher).len(), 25);
    }

    #[test]
    fn no_more_than_twenty_watch() {
        let log = Arc::new(EventLog::default());
        let mut all: Vec<_> = (0..WATCHERS_MAX).map(|_| watch(&log, FETCHERS)).collect();
        assert!(log.watch(Asked { classes: FETCHERS, sample: 1 }).is_none());
        all.pop();
        watch(&log, FETCHERS);
    }
}
