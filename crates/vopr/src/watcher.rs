//! A connection that watches a server at work (`watch`), reads at a pace of its own, and sees to it
//! that each event is told or counted.
//!
//! The judge: events have numbers, and each follows the one before, or as many behind it as the
//! `skipped` lines between them say; at a rest it has been told of all that were logged; and of
//! what the server has counted as done, as many events were told as there must be.

use crate::swarm::Swarm;
use laneway_rig::Rig;
use laneway_server::counts::counters::Totals;
use laneway_tier::disk::sim::Random;
use laneway_transport::memory::Client;
use std::collections::BTreeMap;

/// Turns in which it must have been told `OK`.
const TURNS_MAX: u32 = 2_000;
/// Bytes that it reads at once at most.
const BYTES_MAX: u64 = 6_000;

/// The connection.
pub struct Watcher {
    client: Client,
    random: Random,
    /// Of so many steps that it could have it has one.
    pace: u64,
    /// What came and is no whole line yet.
    text: Vec<u8>,
    /// Lines that it was told, by kind.
    told: BTreeMap<String, u64>,
    /// The number of the next event, if none is skipped.
    next: u64,
    /// Events that were skipped, of all and since the last line.
    skipped: u64,
    skipped_now: u64,
}

impl Watcher {
    /// Watches this server, which has served nobody; none where its connection broke.
    pub fn new(rig: &mut Rig, seed: u64) -> Option<Watcher> {
        let client = rig.net.connect();
        let mut random = Random::new(seed ^ 0x3a7c_4e55);
        let line = b"watch fetchers mutations deletions evictions connevents\r\n";
        let (mut sent, mut got) = (0, Vec::new());
        for _ in 0..TURNS_MAX {
            if got.len() >= b"OK\r\n".len() || client.ended() {
                break;
            }
            sent += client.send(&line[sent..]);
            rig.turn();
            got.extend(client.receive(b"OK\r\n".len() - got.len()));
        }
        let pace = [1, 20, 400][random.below(3) as usize];
        let watcher = Watcher {
            client,
            random,
            pace,
            text: Vec::new(),
            told: BTreeMap::new(),
            next: 1,
            skipped: 0,
            skipped_now: 0,
        };
        (got == b"OK\r\n").then_some(watcher)
    }

    /// Reads now and then. False: its connection broke.
    pub fn turn(&mut self) -> Result<bool, String> {
        if !self.random.one_in(self.pace) {
            return Ok(true);
        }
        let most = 1 + self.random.below(BYTES_MAX) as usize;
        self.read(most)
    }

    /// Reads so many bytes at most.
    pub fn read(&mut self, most: usize) -> Result<bool, String> {
        self.text.extend(self.client.receive(most));
        let end = self.text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.text.drain(..end).collect();
        let whole = String::from_utf8(whole).map_err(|_| "a watcher is told what is no text")?;
        whole.lines().try_for_each(|line| self.line(line))?;
        Ok(!self.client.ended())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let wrong = || format!("a watcher is told {line:?}");
        if let Some(skipped) = line.strip_prefix("skipped=") {
            let skipped: u64 = skipped.parse().map_err(|_| wrong())?;
            self.skipped += skipped;
            self.skipped_now += skipped;
            return Ok(());
        }
        let (time, event) = line.split_once(" gid=").ok_or_else(wrong)?;
        let (gid, event) = event.split_once(" type=").ok_or_else(wrong)?;
        let gid: u64 = gid.parse().map_err(|_| wrong())?;
        let wanted = self.next + std::mem::take(&mut self.skipped_now);
        if !time.starts_with("ts=") || gid != wanted {
            return Err(format!("a watcher is told {line:?}, and the next event is {wanted}"));
        }
        self.next = gid + 1;
        let command = event.split(' ').find_map(|word| word.strip_prefix("cmd="));
        let kind = event.split(' ').next().unwrap_or_default();
        *self.told.entry(format!("{kind} {}", command.unwrap_or_default())).or_default() += 1;
        Ok(())
    }

    /// Whether it has been told of all of so many events.
    pub fn knows(&self, logged: u64) -> bool {
        self.next + self.skipped_now > logged
    }

    /// How many events it was told, and how many it has missed.
    pub fn counts(&self) -> (u64, u64) {
        (self.told.values().sum(), self.skipped)
    }

    /// Of what these counters have counted since the server began, as many events were told as
    /// there must be; where none was skipped.
    pub fn judge(&self, counted: &Totals, swarm: &Swarm) -> Result<(), String> {
        if self.skipped > 0 {
            return Ok(());
        }
        let told =
            |kinds: &[&str]| -> u64 { kinds.iter().filter_map(|kind| self.told.get(*kind)).sum() };
        let reads = counted.get_hits + counted.get_misses;
        let touches = counted.touch_hits + counted.touch_misses;
        let numbers = counted.incr_hits + counted.decr_hits;
        let stores = ["set", "add", "replace", "append", "prepend", "cas"];
        let stores = stores.map(|by| format!("item_store {by}"));
        let stores = told(&stores.each_ref().map(String::as_str));
        // What RESP tries out is counted there, and told where it is carried out.
        let is_exact = !swarm.resp;
        // What is counted of a value that does not end as it should was no change.
        let may_be_wrong = swarm.wrong || swarm.hostile > 0;
        for (what, told, counted, applies) in [
            ("reads", told(&["item_get "]), reads + touches, is_exact),
            ("numbers", told(&["item_store incr", "item_store decr"]), numbers, is_exact),
            ("stores", stores, counted.cmd_set, is_exact && !may_be_wrong),
            ("deletions", told(&["deleted delete", "deleted md"]), counted.delete_hits, is_exact),
        ] {
            if applies && told < counted {
                return Err(format!("{counted} {what} are counted, and a watcher is told {told}"));
            }
        }
        Ok(())
    }

    /// Vanishes.
    pub fn vanish(&self) {
        self.client.reset();
    }
}
