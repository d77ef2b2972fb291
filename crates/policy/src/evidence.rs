//! What thin epochs can tell of the small share of the cost, and how surely.
//!
//! The paper's epochs hold millions of requests, so that its histogram is "highly representative"
//! (Minos §3.1); one of 20 000 holds 25 large requests where one in 800 is large, and the share
//! that follows from them is off by a fifth as often as not. Here thin epochs are pooled for as
//! long as they agree with each other, and what is told is the range of shares that the pool does
//! not speak against: a clear change is believed after one epoch, and a number of workers that
//! fits is kept. An epoch that disagrees begins a new pool.
//!
//! Requests are taken to come independently of each other: counts have their own size for a
//! variance. It knows no worker and no plan. Shares are of the cost, 0 to 1.

use crate::cost::CostModel;
use crate::histogram::{SizeClass, SizeHistogram, SmoothHistogram};
use crate::units::ItemBytes;

/// Standard errors beyond which a difference is not taken for chance.
const CHANCE_MAX: f64 = 2.0;

/// Of fewer requests nothing follows: a server that is hardly used keeps its roles.
const REQUESTS_MIN: f64 = 100.0;

/// Requests in the pool at most: then it is halved, so that a slow change is not averaged away.
const POOL_REQUESTS_MAX: f64 = 1e6;

/// The cost of a histogram's large requests, as far as counting so many tells it.
struct Estimate {
    /// Share of all cost.
    large_share: f64,
    /// Its standard error.
    error: f64,
    requests: f64,
    /// Cost of one large request, if there was one.
    large_cost: Option<f64>,
}

impl Estimate {
    /// `unseen`: cost of a large request of which there might have been one more.
    fn of(sizes: &SmoothHistogram, cost: CostModel, threshold: ItemBytes, unseen: f64) -> Estimate {
        let (mut all, mut large, mut requests_large) = (0.0, 0.0, 0.0);
        let (mut spread_small, mut spread_large) = (0.0, unseen * unseen);
        for class in SizeClass::all() {
            let (weight, below) = (sizes.weight(class), class.share_below(threshold));
            let each = cost.of(class.middle()).0 as f64;
            all += weight * each;
            large += weight * each * (1.0 - below);
            requests_large += weight * (1.0 - below);
            spread_small += weight * each * each * below;
            spread_large += weight * each * each * (1.0 - below);
        }
        if all <= 0.0 {
            return Estimate { large_share: 0.0, error: 1.0, requests: 0.0, large_cost: None };
        }
        let share = large / all;
        let rest = 1.0 - share;
        let spread = rest * rest * spread_large + share * share * spread_small;
        Estimate {
            large_share: share,
            error: square_root(spread / (all * all)),
            requests: sizes.total(),
            large_cost: (requests_large > 0.0).then(|| large / requests_large),
        }
    }

    /// Whether both may be of one mix of requests.
    fn agrees(&self, other: &Estimate) -> bool {
        // Each predicts how far a sample of the other's size strays from it.
        let predicted = |of: &Estimate, size: f64| of.error * square_root(1.0 + of.requests / size);
        let error = predicted(self, other.requests).max(predicted(other, self.requests));
        (self.large_share - other.large_share).abs() <= CHANCE_MAX * error
    }
}

/// Without the standard library: Newton's steps, from above, until they no longer fall.
fn square_root(of: f64) -> f64 {
    if of <= 0.0 {
        return 0.0; // towards it the steps fall for ever
    }
    let mut root = of.max(1.0);
    loop {
        let next = 0.5 * (root + of / root);
        // So asked, what is not a number ends it too.
        if next < root {
            root = next;
        } else {
            return root;
        }
    }
}

/// The pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    pool: SmoothHistogram,
    /// Cost of a large request when one was seen last.
    large_cost: f64,
}

impl Evidence {
    /// After a thin epoch, of at least one request: the lowest and the highest share of the cost
    /// that small requests may have.
    pub fn after_epoch(
        &mut self,
        epoch: &SizeHistogram,
        cost: CostModel,
        threshold: ItemBytes,
    ) -> (f64, f64) {
        let mut alone = SmoothHistogram::new();
        alone.absorb(epoch, 1.0);
        let of = |sizes: &SmoothHistogram, unseen| Estimate::of(sizes, cost, threshold, unseen);
        if self.pool.total() > 0.0 && of(&self.pool, 0.0).agrees(&of(&alone, 0.0)) {
            self.pool.pool(epoch);
        } else {
            self.pool = alone;
        }
        if self.pool.total() > POOL_REQUESTS_MAX {
            self.pool.scale(0.5);
        }
        let seen = of(&self.pool, self.large_cost);
        self.large_cost = seen.large_cost.unwrap_or(self.large_cost);
        if self.pool.total() < REQUESTS_MIN {
            return (0.0, 1.0);
        }
        let reach = CHANCE_MAX * seen.error;
        let small_share = 1.0 - seen.large_share;
        ((small_share - reach).max(0.0), (small_share + reach).min(1.0))
    }

    /// After an epoch of many requests, which speaks for itself.
    pub fn forget(&mut self) {
        self.pool = SmoothHistogram::new();
    }
}
