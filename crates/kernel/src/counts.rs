//! What the programs counted, summed over the CPUs. Unit: packets, unless it says otherwise.

macro_rules! outcomes {
    ($($(#[$what:meta])* $outcome:ident $name:literal,)*) => {
        /// What became of a packet addressed to the lane's port. All but `Hit` and `Lost` went up
        /// to user space as they came. Of several keys the first one that is not answered decides.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Outcome {
            $($(#[$what])* $outcome,)*
        }

        impl Outcome {
            /// All of them, in the order of the program's counters.
            pub const ALL: [Outcome; [$($name),*].len()] = [$(Outcome::$outcome),*];

            /// One word, as statistics have it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Outcome::$outcome => $name,)*
                }
            }
        }
    };
}

outcomes! {
    /// Answered, all its keys.
    Hit "hit",
    /// No such key, as far as the lane looked.
    Miss "miss",
    /// Expired or flushed.
    Dead "dead",
    /// Its bucket or bytes are not in the lane's memory, or it is stale or large.
    Elsewhere "elsewhere",
    /// A writer was inside the bucket.
    Writing "writing",
    /// It changed during every attempt.
    Torn "torn",
    /// The reply would not fit.
    Long "long",
    /// Not one plain `get` or `mg`, or a `get` of too many keys.
    Request "request",
    /// Fragments, options, a VLAN tag, several datagrams, lengths that disagree, another host's
    /// Ethernet address.
    Frame "frame",
    /// A wrong checksum.
    Checksum "checksum",
    /// From an address that is not served, or from one of our own.
    Stranger "stranger",
    /// The packet could not grow.
    Room "room",
    /// Could not be written after it had grown: dropped.
    Lost "lost",
    /// Its sender's address was sent as much as it may be for now.
    Rate "rate",
}

const SIZE_CLASSES: usize = 32;
/// Words of one CPU's counters in `bpf/lane.h`.
pub(crate) const COUNTER_WORDS: usize = Outcome::ALL.len() + 1 + SIZE_CLASSES;

/// The lane's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    words: [u64; COUNTER_WORDS],
}

impl Counts {
    #[cfg(feature = "kernel")]
    pub(crate) fn sum(cpus: impl Iterator<Item = [u64; COUNTER_WORDS]>) -> Counts {
        let mut words = [0; COUNTER_WORDS];
        for cpu in cpus {
            words.iter_mut().zip(cpu).for_each(|(sum, more)| *sum += more);
        }
        Counts { words }
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let mut words = self.words;
        words.iter_mut().zip(before.words).for_each(|(now, then)| *now = now.wrapping_sub(then));
        Counts { words }
    }

    /// Packets with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.words[outcome as usize]
    }

    /// Looks that began again, because the bucket changed meanwhile.
    pub fn retries(&self) -> u64 {
        self.words[Outcome::ALL.len()]
    }

    /// Keys answered: a packet may ask for several.
    pub fn hits(&self) -> u64 {
        self.hits_of_class().iter().sum()
    }

    /// The same by size class: floor log2 of key + value bytes.
    pub fn hits_of_class(&self) -> &[u64] {
        &self.words[Outcome::ALL.len() + 1..]
    }
}

/// The steering program's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SteerCounts {
    /// Went where its key's slot leads.
    pub steered: u64,
    /// No key was found in it: the kernel chose.
    pub unsteered: u64,
    /// The slot's socket is gone: the kernel chose.
    pub socketless: u64,
}
