//! The names of the designs, and of MICA's access modes; what each does is in [`crate::designs`]
//! and [`mod@crate::route`].

use crate::names::named;

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

named! {
    Design,
    /// A name that no design has.
    UnknownDesign: "must be lanes, minos, hkh, hkh-ws or sho; leave the flag out for lanes"
}

/// Who may read and who may write a key's item (MICA §4.1 "Parallel Data Access").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Concurrent read, exclusive write: the key's owner writes it.
    Crew,
    /// Exclusive read, exclusive write: the key's owner does both.
    Erew,
    /// Concurrent read, concurrent write: whoever receives a request serves it.
    #[default]
    Crcw,
}

impl Access {
    /// All modes, in the order the help names them.
    pub const ALL: [Access; 3] = [Access::Crew, Access::Erew, Access::Crcw];

    /// The mode's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Crew => "crew",
            Access::Erew => "erew",
            Access::Crcw => "crcw",
        }
    }

    /// Whether a request that writes, or only reads, is the owner's alone.
    pub const fn is_owners(self, writes: bool) -> bool {
        match self {
            Access::Crew => writes,
            Access::Erew => true,
            Access::Crcw => false,
        }
    }
}

named! {
    Access,
    /// A name that no access mode has.
    UnknownAccess: "must be crew, erew or crcw; leave the flag out for crcw"
}
