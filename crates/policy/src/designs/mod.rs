//! The designs: complete rules for who serves what, behind one trait.
//!
//! Each is a file of its own that puts the parts of this crate together; the rivals are built
//! from the same parts, so that only the idea differs (as Minos §5 does with its rivals).

mod hkh;
mod hkh_ws;
mod lanes;
mod minos;
mod sho;

pub use hkh::Hkh;
pub use hkh_ws::HkhWs;
pub use lanes::Lanes;
pub use minos::Minos;
pub use sho::Sho;

use crate::plan::{CorePlan, EpochLoad};
use crate::settings::{Settings, SettingsError};
use crate::units::Nanos;
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

/// A design's control loop: counts in, plan out, once per epoch.
pub trait CorePolicy {
    /// The plan in force before the first epoch has ended.
    fn initial(&self) -> CorePlan;

    /// The plan for the next epoch, given what the last one was like.
    fn plan(&mut self, now: Nanos, load: &EpochLoad) -> CorePlan;
}

/// Which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Design {
    /// Our own: Minos's control loop, one large worker more, a shared large queue, slices.
    #[default]
    Lanes,
    /// Size-aware sharding as published.
    Minos,
    /// Key-hash sharding, as MICA does it: every worker serves what it receives, to completion.
    Hkh,
    /// The same, and idle workers steal, as in ZygOS.
    HkhWs,
    /// Software hand-off, as in RAMCloud: some workers receive, the others serve.
    Sho,
}

impl Design {
    /// All designs, in the order the help names them.
    pub const ALL: [Design; 5] =
        [Design::Lanes, Design::Minos, Design::Hkh, Design::HkhWs, Design::Sho];

    /// The design's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Design::Lanes => "lanes",
            Design::Minos => "minos",
            Design::Hkh => "hkh",
            Design::HkhWs => "hkh-ws",
            Design::Sho => "sho",
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no design has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownDesign;

impl fmt::Display for UnknownDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be lanes, minos, hkh, hkh-ws or sho; leave the flag out for lanes")
    }
}

impl core::error::Error for UnknownDesign {}

impl FromStr for Design {
    type Err = UnknownDesign;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|design| design.name() == name).ok_or(UnknownDesign)
    }
}

/// The control loop of the design that the settings name.
pub fn build(settings: Settings) -> Result<Box<dyn CorePolicy + Send>, SettingsError> {
    settings.check()?;
    Ok(match settings.design {
        Design::Lanes => Box::new(Lanes::new(settings)),
        Design::Minos => Box::new(Minos::new(settings)),
        Design::Hkh => Box::new(Hkh::new(settings)),
        Design::HkhWs => Box::new(HkhWs::new(settings)),
        Design::Sho => Box::new(Sho::new(settings)),
    })
}
