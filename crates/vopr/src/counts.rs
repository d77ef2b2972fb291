//! What happened in a run, or in all of them, and how often.

use laneway_store::meter::Work;
use laneway_tls::{Cause, Told as ToldOfTls};

/// What happened, and how often.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    /// Requests sent.
    pub commands: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Orderly restarts.
    pub restarts: u64,
    /// Changes of roles that were published by the run itself.
    pub role_changes: u64,
    /// Connections that broke.
    pub resets: u64,
    /// Datagrams lost, doubled, held back or refused by a full buffer.
    pub datagram_faults: u64,
    /// Requests that were refused, or whose reply nobody heard.
    pub refusals: u64,
    /// Clients that misbehaved.
    pub hostile: u64,
    /// Wrong passwords.
    pub wrong_passwords: u64,
    /// Items that memory evicted.
    pub evictions: u64,
    /// Items that the tier evicted.
    pub tier_evictions: u64,
    /// Jumps of time.
    pub jumps: u64,
    /// Restarts that found the wall clock stepped back.
    pub steps_back: u64,
    /// `flush_all` with a delay.
    pub flushes_later: u64,
    /// Stores offered a foreign or blank log or SSD, which they must refuse.
    pub wrong_media: u64,
    /// Stores offered an older copy of their log or SSD, and how often they refused.
    pub older_media: u64,
    /// See above.
    pub older_refused: u64,
    /// Starts with bytes of log or SSD changed, or with reads that change them, and how often a
    /// store was refused for it.
    pub rots: u64,
    /// See above.
    pub rots_refused: u64,
    /// Backups that were made, that came to nothing, and that took the place of the disks.
    pub backups: u64,
    /// See above.
    pub backups_failed: u64,
    /// See above.
    pub restores: u64,
    /// Passes of the scrubber beside the clients, and bits that flipped and were found by one.
    pub scrubs: u64,
    /// See above.
    pub flips: u64,
    /// Checkpoints that were asked for and answered, compactions, and those that a server was told
    /// to make beside its clients.
    pub checkpoints: u64,
    /// See above.
    pub compactions: u64,
    /// See above.
    pub compactions_asked: u64,
    /// Starts on larger disks.
    pub enlarged: u64,
    /// Events that watchers were told, and that they have missed.
    pub events_told: u64,
    /// See above.
    pub events_skipped: u64,
    /// TLS handshakes with certificates, sessions taken up again, handshakes that failed, and of
    /// them those for the client's certificate.
    pub handshakes: u64,
    /// See above.
    pub resumed: u64,
    /// See above.
    pub handshakes_failed: u64,
    /// See above.
    pub strangers: u64,
    /// Replacements of certificate and key.
    pub reloads: u64,
    /// Requests in shared memory, of them those that were lent, and replies that were placed there.
    pub shm_requests: u64,
    /// See above.
    pub shm_lent: u64,
    /// See above.
    pub shm_placed: u64,
    /// Times that a client in memory rang, and such clients that vanished.
    pub shm_rings: u64,
    /// See above.
    pub shm_gone: u64,
    /// Steps of workers, of the durable executor and of devices.
    pub steps: u64,
    /// The most that one step of a worker did, of each kind.
    pub work: Work,
}

impl Counts {
    /// Names and numbers.
    pub fn each(&self) -> [(&'static str, u64); 42] {
        [
            ("commands", self.commands),
            ("power cuts", self.power_cuts),
            ("kills", self.kills),
            ("restarts", self.restarts),
            ("role changes", self.role_changes),
            ("broken connections", self.resets),
            ("datagram faults", self.datagram_faults),
            ("refusals", self.refusals),
            ("hostile clients", self.hostile),
            ("wrong passwords", self.wrong_passwords),
            ("evictions", self.evictions),
            ("evictions by the tier", self.tier_evictions),
            ("time jumps", self.jumps),
            ("clock steps back", self.steps_back),
            ("delayed flushes", self.flushes_later),
            ("wrong media", self.wrong_media),
            ("older media", self.older_media),
            ("of them refused", self.older_refused),
            ("rotten media", self.rots),
            ("of them refused", self.rots_refused),
            ("backups", self.backups),
            ("of no avail", self.backups_failed),
            ("restored", self.restores),
            ("scrubs", self.scrubs),
            ("flipped bits found", self.flips),
            ("checkpoints asked for", self.checkpoints),
            ("compactions", self.compactions),
            ("beside clients", self.compactions_asked),
            ("starts on larger disks", self.enlarged),
            ("events watched", self.events_told),
            ("of them missed", self.events_skipped),
            ("TLS handshakes", self.handshakes),
            ("sessions taken up again", self.resumed),
            ("handshakes failed", self.handshakes_failed),
            ("of them for a certificate", self.strangers),
            ("certificates replaced", self.reloads),
            ("requests in memory", self.shm_requests),
            ("of them lent", self.shm_lent),
            ("replies placed there", self.shm_placed),
            ("doorbells rung", self.shm_rings),
            ("clients in memory gone", self.shm_gone),
            ("steps", self.steps),
        ]
    }

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

    /// Both together.
    pub fn add(&mut self, other: &Counts) {
        self.commands += other.commands;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.restarts += other.restarts;
        self.role_changes += other.role_changes;
        self.resets += other.resets;
        self.datagram_faults += other.datagram_faults;
        self.refusals += other.refusals;
        self.hostile += other.hostile;
        self.wrong_passwords += other.wrong_passwords;
        self.evictions += other.evictions;
        self.tier_evictions += other.tier_evictions;
        self.jumps += other.jumps;
        self.steps_back += other.steps_back;
        self.flushes_later += other.flushes_later;
        self.wrong_media += other.wrong_media;
        self.older_media += other.older_media;
        self.older_refused += other.older_refused;
        self.rots += other.rots;
        self.rots_refused += other.rots_refused;
        self.backups += other.backups;
        self.backups_failed += other.backups_failed;
        self.restores += other.restores;
        self.scrubs += other.scrubs;
        self.flips += other.flips;
        self.checkpoints += other.checkpoints;
        self.compactions += other.compactions;
        self.compactions_asked += other.compactions_asked;
        self.enlarged += other.enlarged;
        self.events_told += other.events_told;
        self.events_skipped += other.events_skipped;
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        self.handshakes_failed += other.handshakes_failed;
        self.strangers += other.strangers;
        self.reloads += other.reloads;
        self.shm_requests += other.shm_requests;
        self.shm_lent += other.shm_lent;
        self.shm_placed += other.shm_placed;
        self.shm_rings += other.shm_rings;
        self.shm_gone += other.shm_gone;
        self.steps += other.steps;
        self.work_max(&other.work);
    }
}
