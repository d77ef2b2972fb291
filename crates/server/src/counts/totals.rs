//! Totals of what was counted, wherever a request was answered.

use crate::counts::counters::Totals;
use crate::kernel::Kernel;
use crate::shared::Shared;

impl<S> Shared<S> {
    /// What the workers of all domains counted, and the GETs that the kernel lane answered, since
    /// the start or the last reset.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.each_domain(|shared| totals.add_totals(&shared.board.totals()));
        let hits = self.kernel_hits();
        totals.cmd_get += hits;
        totals.get_hits += hits;
        totals
    }

    /// GETs that the kernel lane answered, since the start or the last reset.
    pub fn kernel_hits(&self) -> u64 {
        self.kernel.get().map_or(0, Kernel::hits)
    }
}
