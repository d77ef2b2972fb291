//! How many workers serve large requests, and which (Minos §3.1 "How to choose the number of small
//! cores").
//!
//! n_s = ⌈small share of the cost × n⌉; the rest are large. It departs from the paper: where an
//! epoch held too few requests to tell (the paper's epochs hold millions), the number moves no
//! further than its requests can tell (`crate::evidence`), and if so asked only after several
//! epochs in a row; see [`Settled`]. Large workers are those with the highest numbers, so that a
//! change by k touches k workers.
//!
//! It knows no cost model and no queue. Unit: workers, except where a name says otherwise.

use crate::names::named;
use crate::units::WorkerId;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Whether workers have roles or each does everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Every worker serves both lanes: small first, then one slice.
    TimeShare,
    /// Some workers serve small requests, others large ones.
    Roles,
}

/// Up to this many workers time-share unless the settings say otherwise: of two CPUs none can be
/// given away.
pub const TIME_SHARE_WORKERS_MAX: u16 = 2;

impl Form {
    /// Both forms.
    pub const ALL: [Form; 2] = [Form::TimeShare, Form::Roles];

    /// The form that so many workers take by themselves.
    pub const fn of_workers(workers: u16) -> Form {
        if workers <= TIME_SHARE_WORKERS_MAX { Form::TimeShare } else { Form::Roles }
    }

    /// The form's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Form::TimeShare => "time-share",
            Form::Roles => "roles",
        }
    }
}

named! {
    Form,
    /// A name that no form has.
    UnknownForm: "must be time-share or roles; leave the flag out to follow --workers"
}

/// What one worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Serves small requests only; hands large ones over.
    Small,
    /// Serves large requests; never reads an RX queue.
    Large,
    /// Serves small requests until a large one comes, and that one too. There is at most one, and
    /// only where nobody is [`Role::Large`].
    Standby,
    /// Serves both, small first.
    Both,
}

impl Role {
    /// The role's name in `stats`.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Small => "small",
            Role::Large => "large",
            Role::Standby => "standby",
            Role::Both => "both",
        }
    }

    /// Whether large requests are served here.
    pub const fn serves_large(self) -> bool {
        !matches!(self, Role::Small)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A share that should be a whole number of workers may come out this much above it.
const ROUNDING: f64 = 1e-9;

/// n_s: the paper's number of small workers, 1 to `workers`.
pub fn small_workers(small_share: f64, workers: u16) -> u16 {
    assert!(workers > 0);
    ceiling(small_share * f64::from(workers)).clamp(1, workers)
}

/// The next whole number of workers.
fn ceiling(workers: f64) -> u16 {
    let exact = workers - ROUNDING;
    let floor = exact.max(0.0) as u16;
    if exact > f64::from(floor) { floor + 1 } else { floor }
}

/// From this many workers on, `lanes` gives large requests one worker more.
pub const EXTRA_LARGE_WORKERS_MIN: u16 = 3;

/// Where the paper's rule gives a standby, `lanes` takes it for a real large worker from so much
/// large work on, in workers. Below, a single large worker is enough.
pub const STANDBY_COUNTS_MIN: f64 = 0.5;

/// Large workers by the paper's rule, the standby counted where it is busy.
pub fn large_by_rule_lanes(small_share: f64, workers: u16) -> u16 {
    let large = workers - small_workers(small_share, workers);
    let busy = (1.0 - small_share) * f64::from(workers) >= STANDBY_COUNTS_MIN;
    if large == 0 && busy && workers > 1 { 1 } else { large }
}

/// How busy large workers may be when the machine has no time left but for a tenth: above that a
/// worker more is needed.
const LARGE_BUSY_MAX: f64 = 0.9;

/// Large workers without which large requests starve, whatever the wire is like. The rule's number
/// leaves the broken part of their work (1.7 workers' worth of it, say) with nobody, which is what
/// the extra worker is for; a standby is enough for what it is there for.
pub fn large_needed_lanes(small_share: f64, workers: u16) -> u16 {
    let work = (1.0 - small_share) * f64::from(workers);
    if work < STANDBY_COUNTS_MIN || workers == 1 {
        return 0;
    }
    ceiling(LARGE_BUSY_MAX * work).min(workers - 1)
}

/// Large workers of `lanes`: one more than the rule's `large_by_rule` (so that a standby becomes a
/// real one) where there are enough workers and `extra` is granted; one small worker always stays.
pub fn large_workers_lanes(large_by_rule: u16, workers: u16, extra: bool) -> u16 {
    let more = u16::from(extra && workers >= EXTRA_LARGE_WORKERS_MIN);
    (large_by_rule + more).min(workers.saturating_sub(1))
}

/// The role of every worker: the `large` last ones are large; with none, the last is the standby.
/// A single worker has nobody to hand to and does both.
pub fn roles(workers: u16, large: u16) -> Vec<Role> {
    assert!(large < workers, "no worker is left for small requests");
    if workers == 1 {
        return vec![Role::Both];
    }
    let mut roles = vec![Role::Small; usize::from(workers)];
    let first_large = usize::from(workers - large);
    roles[first_large..].fill(Role::Large);
    if large == 0 {
        roles[first_large - 1] = Role::Standby;
    }
    roles
}

/// The number of large workers, and what speaks for changing it.
///
/// The rule: an epoch of at least `samples_min` requests is believed at once. A thinner one only
/// casts a vote for more or for fewer; after `epochs` votes in a row for the same direction the
/// number moves to the value nearest the present one that any of them asked for. A vote for the
/// other direction, or for no change, starts over; an epoch without requests says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    current: u16,
    samples_min: u64,
    epochs: u16,
    votes: u16,
    nearest: u16,
}

impl Settled {
    /// Starts at `current`.
    pub fn new(current: u16, samples_min: u64, epochs: u16) -> Self {
        Settled { current, samples_min, epochs, votes: 0, nearest: current }
    }

    /// The number in force.
    pub fn current(&self) -> u16 {
        self.current
    }

    /// The number after an epoch of `samples` requests that asks for `asked`.
    pub fn ask(&mut self, asked: u16, samples: u64) -> u16 {
        if samples == 0 {
            return self.current;
        }
        if samples >= self.samples_min {
            self.settle(asked);
            return self.current;
        }
        let same_direction =
            self.votes > 0 && (asked > self.current) == (self.nearest > self.current);
        if asked == self.current {
            self.votes = 0;
        } else if same_direction {
            self.votes += 1;
            if asked.abs_diff(self.current) < self.nearest.abs_diff(self.current) {
                self.nearest = asked;
            }
        } else {
            self.votes = 1;
            self.nearest = asked;
        }
        if self.votes > 0 && self.votes >= self.epochs {
            self.settle(self.nearest);
        }
        self.current
    }

    /// The same of an epoch that asks for `fewest` to `most`, of which a thin one cannot tell more:
    /// the number in force stays if it is one of these, and else the nearest is asked for.
    pub fn ask_within(&mut self, fewest: u16, most: u16, samples: u64) -> u16 {
        assert!(fewest <= most, "there is such a number");
        self.ask(self.current.clamp(fewest, most), samples)
    }

    fn settle(&mut self, number: u16) {
        self.current = number;
        self.votes = 0;
        self.nearest = number;
    }
}

/// The first wait for the extra worker, in hysteresis periods (of one epoch by default): a full
/// wire does not empty within seconds, and each try that fails costs small requests an epoch of it.
pub const GRANT_WAIT: u16 = 24;

/// How many times that wait is doubled at most.
const GRANT_DOUBLINGS_MAX: u32 = 5;

/// Whether the extra large worker of `lanes` is granted: taken away in the first epoch in which
/// the TX queues backed up (more large work only makes a full wire fuller), given back after
/// [`GRANT_WAIT`] times `epochs` in a row without. The wire looks well because the worker is gone,
/// so each time that it must be taken away again within the time it was waited for, the next wait
/// is twice as long, up to 32 times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraGrant {
    epochs: u16,
    /// Length of the last wait.
    wait: u16,
    /// Epochs left of the present one.
    waiting: u16,
    /// Epochs since it was given back.
    granted_for: u16,
}

impl ExtraGrant {
    /// Granted at first.
    pub fn new(epochs: u16) -> Self {
        ExtraGrant {
            epochs: epochs.saturating_mul(GRANT_WAIT),
            wait: 0,
            waiting: 0,
            granted_for: 0,
        }
    }

    /// Whether it is granted after an epoch.
    pub fn after_epoch(&mut self, tx_backed_up: bool) -> bool {
        if !tx_backed_up {
            if self.granted() {
                self.granted_for = self.granted_for.saturating_add(1);
            }
            self.waiting = self.waiting.saturating_sub(1);
            return self.granted();
        }
        if self.granted() {
            let again = self.granted_for < self.wait;
            let longest = self.epochs.saturating_mul(1 << GRANT_DOUBLINGS_MAX);
            self.wait = if again { self.wait.saturating_mul(2).min(longest) } else { self.epochs };
            self.granted_for = 0;
        }
        self.waiting = self.wait;
        self.granted()
    }

    /// Whether it is granted.
    pub fn granted(&self) -> bool {
        self.waiting == 0
    }
}

/// The workers with numbers in `start..end`.
pub(crate) fn ids(start: usize, end: usize) -> impl DoubleEndedIterator<Item = WorkerId> + Clone {
    (start..end).map(|index| WorkerId(index as u16))
}
