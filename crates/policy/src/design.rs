//! The names of the designs; what each does is in [`crate::designs`].

use core::fmt;
use core::str::FromStr;

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
