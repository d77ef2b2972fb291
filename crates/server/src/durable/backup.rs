//! What clients ask of backups, and what they are told: `backup start NAME`, `backup stop`,
//! `stats backup`.
//!
//! There is one backup at a time. It belongs to the connection that asked for it, and is given up
//! when that is closed. Workers leave an order here and wait for nothing; who carries it out is
//! [`super::copier`].

use laneway_tier::backup::file::is_name;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Who asks where no backup can be made.
pub const DISABLED: &[u8] =
    b"CLIENT_ERROR backups are not enabled; serve --data-dir DIR --backup-dir DIR enables them\r\n";
/// The same of what is about the data folder itself, where there is none.
pub const NOT_KEPT: &[u8] =
    b"CLIENT_ERROR nothing is kept durably; serve --data-dir DIR keeps items in a folder\r\n";
const BAD_NAME: &[u8] = b"CLIENT_ERROR a backup's name is made of letters, digits, '.', '-' and \
    '_', begins with a letter or digit and does not end in .part\r\n";
const USAGE: &[u8] = b"CLIENT_ERROR usage: backup start NAME|stop\r\n";
const UNDER_WAY: &[u8] =
    b"SERVER_ERROR a backup is under way; stats backup tells how far it is\r\n";
const NONE_UNDER_WAY: &[u8] = b"CLIENT_ERROR no backup is under way\r\n";
const STOPPING: &[u8] = b"SERVER_ERROR the server is stopping\r\n";
const OK: &[u8] = b"OK\r\n";
/// Why a backup came to nothing.
const ASKER_LEFT: &str = "whoever asked for it has closed the connection";
const SERVER_STOPPED: &str = "the server was stopped";

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `backup start NAME`.
    Start(String),
    /// `backup stop`.
    Stop,
}

/// How a backup stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// None was asked for since the start.
    #[default]
    None,
    /// It is under way.
    UnderWay,
    /// It is whole, durable, and has its name.
    Done,
    /// It came to nothing.
    Failed,
}

impl Standing {
    /// As `stats backup` tells it.
    pub fn name(self) -> &'static str {
        match self {
            Standing::None => "none",
            Standing::UnderWay => "running",
            Standing::Done => "done",
            Standing::Failed => "failed",
        }
    }
}

/// The last backup, as it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// How it stands.
    pub standing: Standing,
    /// Its name.
    pub name: String,
    /// Items copied.
    pub items: u64,
    /// Items that there were when it began.
    pub items_total: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Items that could not be read.
    pub lost: u64,
    /// Why it came to nothing.
    pub error: String,
    /// Unix times; 0 while it is not known.
    pub began_seconds: u32,
    /// See above.
    pub ended_seconds: u32,
    /// One that was asked for since, and was not begun.
    pub refused: Option<Refused>,
}

/// A backup of which nothing was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: String,
}

/// Backups that have ended since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// That are whole.
    pub done: u64,
    /// That came to nothing.
    pub failed: u64,
    /// The unix time at which the last whole one ended; 0 if there was none.
    pub done_seconds: u64,
}

/// What is to be done about the backup that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// Begin one of this name.
    Begin(String),
    /// Give it up, for this reason.
    GiveUp(&'static str),
}

#[derive(Default)]
struct State {
    order: Option<Order>,
    told: Told,
    /// As it was told of the one before, which stays the last one if this one cannot be begun.
    before: Told,
    is_closed: bool,
}

/// What workers and the copier share.
#[derive(Default)]
pub struct Backups {
    is_enabled: AtomicBool,
    /// The number of the connection whose backup is under way; 0 for nobody's. A hint for who
    /// leaves: the rest is looked at under the lock.
    asker: AtomicU64,
    /// As [`Ended`] has them: statistics, for who takes no lock.
    done: AtomicU64,
    failed: AtomicU64,
    done_seconds: AtomicU64,
    state: Mutex<State>,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The words behind `backup`.
pub fn asked(words: &[&[u8]]) -> Result<Asked, &'static [u8]> {
    match words {
        [b"start", name] => match std::str::from_utf8(name) {
            Ok(name) if is_name(name) => Ok(Asked::Start(name.to_owned())),
            _ => Err(BAD_NAME),
        },
        [b"stop"] => Ok(Asked::Stop),
        _ => Err(USAGE),
    }
}

impl Backups {
    /// From now on somebody carries orders out, whom `bell` wakes.
    pub fn enable(&self, bell: Box<dyn Fn() + Send + Sync>) {
        assert!(self.bell.set(bell).is_ok(), "there is one copier");
        self.is_enabled.store(true, Relaxed); // whoever sees it late is told that there is none
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    /// The reply to what the connection of this number asks; 0 where there is no connection.
    pub fn answer(&self, asked: &Asked, asker: u64) -> &'static [u8] {
        if !self.is_enabled.load(Relaxed) {
            return DISABLED;
        }
        let mut state = self.lock();
        let is_under_way = state.told.standing == Standing::UnderWay;
        match asked {
            Asked::Start(_) if state.is_closed => return STOPPING,
            Asked::Start(_) if is_under_way => return UNDER_WAY,
            Asked::Start(name) => {
                let standing = Standing::UnderWay;
                let told = Told { standing, name: name.clone(), ..Told::default() };
                state.before = mem::replace(&mut state.told, told);
                state.order = Some(Order::Begin(name.clone()));
                self.asker.store(asker, Relaxed); // under the lock, as where it is taken away
            }
            Asked::Stop if !is_under_way => return NONE_UNDER_WAY,
            Asked::Stop => state.order = Some(Order::GiveUp("it was stopped by a client")),
        }
        drop(state);
        self.ring();
        OK
    }

    /// The connection of this number is closed; `stops`: the server does, which closes all.
    pub fn asker_left(&self, number: u64, stops: bool) {
        if self.asker.load(Relaxed) != number || number == 0 {
            return;
        }
        self.give_up(Some(number), if stops { SERVER_STOPPED } else { ASKER_LEFT });
    }

    /// The server stops.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.give_up(None, SERVER_STOPPED);
        self.ring();
    }

    /// Whether it does.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Has the backup that is under way given up: whosever it is, or only this connection's.
    fn give_up(&self, asker: Option<u64>, why: &'static str) {
        let mut state = self.lock();
        // Before the lock was had, that one may have ended, and another's may have been begun.
        let is_his = asker.is_none_or(|number| self.asker.load(Relaxed) == number);
        if is_his && state.told.standing == Standing::UnderWay {
            state.order = Some(Order::GiveUp(why));
            drop(state);
            self.ring();
        }
    }

    /// The last backup.
    pub fn told(&self) -> Told {
        self.lock().told.clone()
    }

    /// How many have ended, and when. Read one by one: statistics.
    pub fn ended(&self) -> Ended {
        let read = |count: &AtomicU64| count.load(Relaxed);
        Ended {
            done: read(&self.done),
            failed: read(&self.failed),
            done_seconds: read(&self.done_seconds),
        }
    }

    /// Whether there can be one.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// What is to be done, once.
    pub(super) fn take_order(&self) -> Option<Order> {
        self.lock().order.take()
    }

    /// What was asked for cannot be begun: the backup before is the last one again.
    pub(super) fn refuse(&self, error: String) {
        let mut state = self.lock();
        let before = mem::take(&mut state.before);
        let Told { name, .. } = mem::replace(&mut state.told, before);
        state.told.refused = Some(Refused { name, error });
        state.order = None;
        self.asker.store(0, Relaxed);
        self.failed.fetch_add(1, Relaxed);
    }

    /// Tells how the backup stands.
    pub(super) fn tell(&self, change: impl FnOnce(&mut Told)) {
        let mut state = self.lock();
        change(&mut state.told);
        match state.told.standing {
            Standing::Done => {
                self.done.fetch_add(1, Relaxed);
                self.done_seconds.store(state.told.ended_seconds.into(), Relaxed);
            }
            Standing::Failed => drop(self.failed.fetch_add(1, Relaxed)),
            Standing::None | Standing::UnderWay => {}
        }
        if state.told.standing != Standing::UnderWay {
            state.order = None; // of one that is over
            self.asker.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_and_words_that_mean_nothing_are_refused() {
        for (words, expected) in [
            (&[&b"start"[..], b"day-1.dump"][..], Ok(Asked::Start("day-1.dump".into()))),
            (&[b"stop"], Ok(Asked::Stop)),
            (&[b"start", b"../day"], Err(BAD_NAME)),
            (&[b"start", b"a/b"], Err(BAD_NAME)),
            (&[b"start", b"day.part"], Err(BAD_NAME)),
            (&[b"start", b"\xff"], Err(BAD_NAME)),
            (&[b"start"], Err(USAGE)),
            (&[b"stop", b"now"], Err(USAGE)),
            (&[], Err(USAGE)),
        ] {
            assert_eq!(asked(words), expected, "{words:?}");
        }
    }

    #[test]
    fn a_backup_belongs_to_the_connection_that_asked_for_it() {
        let backups = Backups::default();
        let start = Asked::Start("day".into());
        assert_eq!(backups.answer(&start, 7), DISABLED);
        backups.enable(Box::new(|| {}));
        assert_eq!(backups.answer(&Asked::Stop, 7), NONE_UNDER_WAY);
        assert_eq!(backups.answer(&start, 7), OK);
        assert_eq!(backups.answer(&start, 8), UNDER_WAY);
        assert_eq!(backups.take_order(), Some(Order::Begin("day".into())));
        backups.asker_left(8, false);
        backups.asker_left(0, false);
        assert_eq!(backups.take_order(), None);
        backups.asker_left(7, false);
        assert!(matches!(backups.take_order(), Some(Order::GiveUp(_))));
        backups.tell(|told| told.standing = Standing::Failed);
        backups.asker_left(7, false);
        assert_eq!(backups.take_order(), None);
        assert_eq!(backups.ended(), Ended { done: 0, failed: 1, done_seconds: 0 });
        assert_eq!(backups.answer(&start, 7), OK);
        backups.tell(|told| (told.standing, told.ended_seconds) = (Standing::Done, 99));
        assert_eq!(backups.ended(), Ended { done: 1, failed: 1, done_seconds: 99 });
        backups.close();
        assert_eq!(backups.answer(&start, 7), STOPPING);
    }

    #[test]
    fn who_leaves_too_late_ends_nobody_else_s_and_a_stop_is_told_as_one() {
        let backups = Backups::default();
        let start = Asked::Start("day".into());
        backups.enable(Box::new(|| {}));
        assert_eq!(backups.answer(&start, 8), OK);
        // The backup of 7 ended, and that of 8 was begun, after it was found that 7 had left.
        backups.give_up(Some(7), ASKER_LEFT);
        assert_eq!(backups.take_order(), Some(Order::Begin("day".into())));
        backups.asker_left(8, true);
        assert_eq!(backups.take_order(), Some(Order::GiveUp(SERVER_STOPPED)));
    }
}
