//! Canaries: each takes away one ordering or one check, and the loom model that its name begins
//! with must then fail. At most one of them sings in a process, the one that [`VARIABLE`] names,
//! and only under `cfg(loom)`: without that [`sings`] is a constant `false`, and nothing of this is
//! left in the program. So a model is built once, for all of its canaries.

/// The variable of the environment that names the canary.
pub const VARIABLE: &str = "LANEWAY_CANARY";

macro_rules! canaries {
    ($($name:ident => $text:literal,)*) => {
        /// A canary.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Canary { $(#[doc = $text] $name,)* }

        impl Canary {
            /// All of them, with their names.
            pub const ALL: &[(Canary, &str)] = &[$((Canary::$name, $text),)*];
        }
    };
}

canaries! {
    SeqlockFenceReader => "seqlock-fence-reader",
    SeqlockFenceWriter => "seqlock-fence-writer",
    SeqlockFenceReuse => "seqlock-fence-reuse",
    RingOrder => "ring-order",
    PinCheck => "pin-check",
    NoticeCheck => "notice-check",
    NoticeUnchanged => "notice-unchanged",
    JournalNumber => "journal-number",
    SlotPublish => "slot-publish",
    SlotFree => "slot-free",
    SlotDoorbell => "slot-doorbell",
    SlotRaised => "slot-raised",
    SlotMark => "slot-mark",
    SlotClaim => "slot-claim",
    PlaceTell => "place-tell",
    PlaceEnded => "place-ended",
    PlaceReader => "place-reader",
    DescriptorsPublish => "descriptors-publish",
    DescriptorsRoom => "descriptors-room",
    SleepSleeper => "sleep-sleeper",
    SleepPoster => "sleep-poster",
    IdleTaker => "idle-taker",
    IdleTell => "idle-tell",
    IdleAsker => "idle-asker",
    EditionPublish => "edition-publish",
    EditionFollower => "edition-follower",
    EditionPoster => "edition-poster",
    CoverLower => "cover-lower",
    CoverLook => "cover-look",
}

/// Whether what this one takes away is missing.
#[cfg(not(loom))]
#[inline(always)]
pub const fn sings(_: Canary) -> bool {
    false
}

/// Whether what this one takes away is missing.
///
/// # Panics
///
/// If there is no canary of the name that the environment has.
#[cfg(loom)]
pub fn sings(canary: Canary) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<Canary>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let wanted = std::env::var(VARIABLE).ok()?;
        let found = Canary::ALL.iter().find(|(_, name)| *name == wanted);
        let (chosen, _) = found.unwrap_or_else(|| panic!("{VARIABLE}={wanted}: no such canary"));
        Some(*chosen)
    });
    *chosen == Some(canary)
}
