//! The designs: complete rules for who serves what, behind one trait.
//!
//! Each is a file of its own that puts the parts of this crate together; the rivals are built
//! from the same parts, so that only the idea differs (as Minos §5 does with its rivals).

mod hkh;
mod hkh_ws;
mod lanes;
mod learned;
mod minos;
mod sho;

pub use hkh::Hkh;
pub use hkh_ws::HkhWs;
pub use lanes::{Lanes, SLICES_UNSENT_MAX};
pub use minos::Minos;
pub use sho::Sho;

use crate::design::Design;
use crate::plan::{CorePlan, EpochLoad};
use crate::settings::{Settings, SettingsError};
use alloc::boxed::Box;

/// A design's control loop: counts in, plan out, once per epoch.
pub trait CorePolicy {
    /// The plan in force before the first epoch has ended.
    fn initial(&self) -> CorePlan;

    /// The plan for the next epoch, given what the last one was like.
    fn plan(&mut self, load: &EpochLoad) -> CorePlan;
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
