//! The flag of a standby: while it is up the standby is a large core, which reads no RX queue, and
//! the others drain its own (Minos §3.1).
//!
//! Of a worker that "handles small requests, but if a large request arrives, it is sent to this
//! core, which then becomes a large core" the paper does not say until when; both readings are
//! here, and what the server does. It knows no queue: that there is large work, or none left, is
//! told.

use laneway_policy::{CorePlan, Readers};

/// When a standby that has become a large core is a small one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standby {
    /// As soon as it has no large request left.
    Returns,
    /// When an epoch ends in which no large request came. It is lost to small requests wherever
    /// there are a few large ones in every epoch.
    UntilEpochEnds,
    /// It is a small one all the while, with one large request between two turns. Others drain its
    /// queue beside it for the whole of an epoch that follows one with large requests. So does a
    /// server, whose standby cannot have others come in the midst of an epoch.
    ReadsOn,
}

impl Standby {
    /// All of them, by their names.
    pub const NAMED: [(&str, Standby); 3] = [
        ("returns", Standby::Returns),
        ("epoch", Standby::UntilEpochEnds),
        ("reads-on", Standby::ReadsOn),
    ];
}

/// Whether the standby is a large core now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    standby: Standby,
    others_drain: bool,
    raised: bool,
}

impl Flag {
    /// Down. Where others cannot drain its queue it stays so, or its small requests would wait.
    pub fn new(standby: Standby, others_drain: bool) -> Flag {
        Flag { standby, others_drain, raised: false }
    }

    /// Who reads which RX queue under the plan that is in force.
    pub fn readers(self, plan: &CorePlan, batch: u32) -> Readers {
        match self.standby {
            Standby::ReadsOn => Readers::beside_standby(plan, self.raised, batch),
            _ => Readers::of(plan, self.raised, batch),
        }
    }

    /// A plan comes into force.
    pub fn follow(&mut self, plan: &CorePlan) {
        let held = self.standby != Standby::Returns;
        self.raised = held && self.others_drain && plan.standby_raised;
    }

    /// The standby has a large request. Whether the flag has gone up.
    #[inline]
    pub fn raise(&mut self) -> bool {
        let rises = self.standby != Standby::ReadsOn;
        let goes_up = rises && self.others_drain && !self.raised;
        self.raised |= goes_up;
        goes_up
    }

    /// It has none left. Whether the flag has gone down.
    #[inline]
    pub fn lower(&mut self) -> bool {
        let goes_down = self.raised && self.standby == Standby::Returns;
        self.raised &= !goes_down;
        goes_down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_policy::{Design, Settings, build};

    /// A plan in which the standby's flag is up as the epoch begins, or down.
    fn plan(standby_raised: bool) -> CorePlan {
        let settings = Settings { workers: 6, design: Design::Minos, ..Settings::default() };
        let plan = build(settings).expect("they fit together").initial();
        CorePlan { standby_raised, ..plan }
    }

    #[test]
    fn the_standby_is_large_while_it_has_large_work_or_until_an_epoch_has_none() {
        for (standby, held) in [(Standby::Returns, false), (Standby::UntilEpochEnds, true)] {
            let mut flag = Flag::new(standby, true);
            assert!(!flag.raised && flag.raise());
            assert!(flag.raised && !flag.raise());
            assert_eq!(flag.lower(), !held);
            assert_eq!(flag.raised, held);
            flag.follow(&plan(true));
            assert_eq!(flag.raised, held, "after an epoch with large requests");
            flag.follow(&plan(false));
            assert!(!flag.raised && !flag.lower(), "after one without");
            let mut alone = Flag::new(standby, false);
            alone.follow(&plan(true));
            assert!(!alone.raise() && !alone.raised, "nobody drains its queue");
        }
    }

    #[test]
    fn a_standby_that_reads_on_stays_as_it_is_until_the_next_plan() {
        for raised in [false, true] {
            let mut flag = Flag::new(Standby::ReadsOn, true);
            flag.follow(&plan(raised));
            assert!(!flag.raise() && !flag.lower());
            assert_eq!(flag.raised, raised);
        }
    }
}
