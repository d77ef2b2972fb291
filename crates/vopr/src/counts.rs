//! What happened in a run, or in all of them, and how often.

use laneway_store::meter::Work;
use laneway_tls::{Cause, Told as ToldOfTls};

macro_rules! counts {
    ($($(#[$what:meta])* $count:ident: $name:literal,)*) => {
        /// What happened, and how often.
        #[derive(Debug, Default, Clone)]
        pub struct Counts {
            $($(#[$what])* #[doc = $name] pub $count: u64,)*
            /// The most that one step of a worker did, of each kind.
            pub work: Work,
        }

        impl Counts {
            /// Names and numbers.
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$count)),*]
            }

            /// Both together.
            pub fn add(&mut self, other: &Counts) {
                $(self.$count += other.$count;)*
                self.work_max(&other.work);
            }
        }
    };
}

counts! {
    /// Requests sent.
    commands: "commands",
    power_cuts: "power cuts",
    /// Kills of the process.
    kills: "kills",
    /// Orderly restarts.
    restarts: "restarts",
    /// Changes of roles that were published by the run itself.
    role_changes: "role changes",
    resets: "broken connections",
    /// Datagrams lost, doubled, held back or refused by a full buffer.
    datagram_faults: "datagram faults",
    /// Requests that were refused, or whose reply nobody heard.
    refusals: "refusals",
    hostile: "hostile clients",
    wrong_passwords: "wrong passwords",
    /// Items that memory evicted.
    evictions: "evictions",
    tier_evictions: "evictions by the tier",
    jumps: "time jumps",
    /// Restarts that found the wall clock stepped back.
    steps_back: "clock steps back",
    /// `flush_all` with a delay.
    flushes_later: "delayed flushes",
    /// Stores offered a foreign or blank log or SSD, which they must refuse.
    wrong_media: "wrong media",
    /// Stores offered an older copy of their log or SSD, and how often they refused.
    older_media: "older media",
    older_refused: "of them refused",
    /// Starts with bytes of log or SSD changed, or with reads that change them, and how often a
    /// store was refused for it.
    rots: "rotten media",
    rots_refused: "of them refused",
    /// Backups that were made, that came to nothing, and that took the place of the disks.
    backups: "backups",
    backups_failed: "of no avail",
    restores: "restored",
    /// Passes of the scrubber beside the clients, and bits that flipped and were found by one.
    scrubs: "scrubs",
    flips: "flipped bits found",
    /// Checkpoints that were asked for and answered, compactions, and those that a server was told
    /// to make beside its clients.
    checkpoints: "checkpoints asked for",
    compactions: "compactions",
    compactions_asked: "beside clients",
    enlarged: "starts on larger disks",
    /// Events that watchers were told, and that they have missed.
    events_told: "events watched",
    events_skipped: "of them missed",
    /// TLS handshakes with certificates, sessions taken up again, handshakes that failed, and of
    /// them those for the client's certificate.
    handshakes: "TLS handshakes",
    resumed: "sessions taken up again",
    handshakes_failed: "handshakes failed",
    strangers: "of them for a certificate",
    reloads: "certificates replaced",
    /// Requests in shared memory, of them those that were lent, and replies that were placed there.
    shm_requests: "requests in memory",
    shm_lent: "of them lent",
    shm_placed: "replies placed there",
    /// Times that a client in memory rang, and such clients that vanished.
    shm_rings: "doorbells rung",
    shm_gone: "clients in memory gone",
    /// Steps of workers, of the durable executor and of devices.
    steps: "steps",
}

impl Counts {
    /// What a server tells of its handshakes when it ends.
    pub fn shaken(&mut self, told: &ToldOfTls) {
        self.handshakes += told.full_1_2 + told.full_1_3;
        self.resumed += told.resumed;
        self.handshakes_failed += told.failed();
        self.strangers += told.failed[Cause::ClientCertificate as usize];
    }

    /// What a server tells of its clients in memory when it ends, by name.
    pub fn in_memory(&mut self, sums: &[(&str, u64)]) {
        for (name, sum) in sums {
            match *name {
                "requests" => self.shm_requests += sum,
                "loans_claimed" => self.shm_lent += sum,
                "notices" => self.shm_placed += sum,
                _ => {}
            }
        }
    }

    /// Keeps the most of each kind.
    pub fn work_max(&mut self, work: &Work) {
        self.work.bytes = self.work.bytes.max(work.bytes);
        self.work.slots = self.work.slots.max(work.slots);
        self.work.items = self.work.items.max(work.items);
        self.work.keys = self.work.keys.max(work.keys);
        self.work.waits = self.work.waits.max(work.waits);
    }
}
