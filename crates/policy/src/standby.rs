//! The flag of a standby: while it is up the standby is a large core, which reads no RX queue, and
//! the others drain its own (Minos §3.1).
//!
//! Of a worker that "handles small requests, but if a large request arrives, it is sent to this
//! core, which then becomes a large core" the paper does not say until when; both readings are
//! here, and what the server does. Knows no queue: that there is large work, or none left, is told.

use crate::plan::CorePlan;
use crate::turn::Readers;

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

    /// Whether it is up.
    #[inline]
    pub fn is_raised(self) -> bool {
        self.raised
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
