//! Which designs there are, and by which verbs their messages travel (HERD §2.3, §4, §5.1).

use std::fmt;

/// A verb that carries a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Into memory that the receiver polls: nobody there posts anything.
    Write,
    /// Into a buffer that the receiver has posted a RECV for.
    Send,
}

/// A way to serve GETs and PUTs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Design {
    /// Requests written, replies sent.
    Herd,
    /// Messages sent both ways.
    Send,
    /// GETs by READs of a cuckoo index and of what it points at.
    Pilaf,
    /// GETs by one READ of a neighbourhood that has the values in it.
    Farm,
    /// GETs by READs of a neighbourhood and of the value that it points at.
    FarmVar,
}

impl Design {
    /// All, in the order of the tables.
    pub const ALL: [Design; 5] =
        [Design::Herd, Design::Send, Design::Pilaf, Design::Farm, Design::FarmVar];

    /// As it is called on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Design::Herd => "herd",
            Design::Send => "send",
            Design::Pilaf => "pilaf",
            Design::Farm => "farm",
            Design::FarmVar => "farm-var",
        }
    }

    /// The design of this name.
    pub fn named(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|design| design.name() == name)
    }

    /// How requests travel.
    pub const fn request(self) -> Way {
        match self {
            Design::Herd | Design::Farm | Design::FarmVar => Way::Write,
            Design::Send | Design::Pilaf => Way::Send,
        }
    }

    /// How replies do.
    pub const fn reply(self) -> Way {
        match self {
            Design::Herd | Design::Send | Design::Pilaf => Way::Send,
            Design::Farm | Design::FarmVar => Way::Write,
        }
    }

    /// Whether clients READ what they look for.
    pub const fn reads(self) -> bool {
        matches!(self, Design::Pilaf | Design::Farm | Design::FarmVar)
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for design in Design::ALL {
            assert_eq!(Design::named(&design.to_string()), Some(design));
        }
        assert_eq!(Design::named("Pilaf"), None);
    }
}
