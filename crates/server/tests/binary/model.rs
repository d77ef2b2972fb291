//! Drawn requests in pipelines, quiet ones among them, whose replies a map knows: in every design,
//! over streams that are cut anywhere, and with a data folder.

use crate::kept::{all_plans, with_folder};
use laneway_rig::binary::{Told, replies, with};
use laneway_rig::{Plan, Rig, value};
use laneway_transport::memory::{Client, Faults};
use laneway_wire::binary::reply::Status;
use laneway_wire::binary::{Echo, NEVER_MADE, Opcode};
use std::collections::BTreeMap;

/// Requests of one run.
const REQUESTS: usize = 400;
/// Requests that are sent before replies are looked at.
const PIPELINE: usize = 24;
const KEYS: usize = 5;
const LENGTHS: [usize; 7] = [0, 1, 30, 900, 17_000, 60_000, 300_000];

#[derive(Clone)]
struct Item {
    flags: u32,
    value: Vec<u8>,
}

/// A reply that is expected; of the ids it tells of whose item they are.
struct Wanted {
    told: Told,
    /// The reply tells the id of what is stored under this key.
    id_of: Option<(usize, u64)>,
}

struct Model {
    random: fastrand::Rng,
    items: BTreeMap<usize, (Item, u64)>,
    /// Counts the changes, so that ids can be compared.
    changes: u64,
    /// What replies told of the item of a change.
    ids: BTreeMap<u64, u64>,
    sent: Vec<u8>,
    wanted: Vec<Wanted>,
    opaque: u32,
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}\0\r\n").into_bytes()
}

/// What the request is about: opcode, whether it is quiet, and what its reply repeats.
#[derive(Clone, Copy)]
struct Asked {
    opcode: Opcode,
    quiet: bool,
    echo: Echo,
    number: usize,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            random: fastrand::Rng::with_seed(seed),
            items: BTreeMap::new(),
            changes: 0,
            ids: BTreeMap::new(),
            sent: Vec::new(),
            wanted: Vec::new(),
            opaque: 0,
        }
    }

    fn tell(&mut self, asked: Asked, status: Status, key: &[u8], value: &[u8]) {
        let told = Told {
            echo: asked.echo,
            status: status as u16,
            cas: 0,
            extras: Vec::new(),
            key: key.to_vec(),
            value: value.to_vec(),
        };
        self.wanted.push(Wanted { told, id_of: None });
    }

    fn fail(&mut self, asked: Asked, status: Status) {
        self.tell(asked, status, b"", status.words());
    }

    /// It was done, and the reply tells the id of the item that there is now.
    fn done(&mut self, asked: Asked, extras: &[u8], key: &[u8], value: &[u8]) {
        self.tell(asked, Status::Done, key, value);
        let change = self.items.get(&asked.number).map(|(_, change)| *change);
        let wanted = self.wanted.last_mut().expect("it was put there");
        wanted.told.extras = extras.to_vec();
        wanted.id_of = change.map(|change| (asked.number, change));
    }

    fn put(&mut self, number: usize, flags: u32, value: Vec<u8>) {
        self.changes += 1;
        self.items.insert(number, (Item { flags, value }, self.changes));
    }

    /// An id to ask with: none, that of the item where it is known, or a wrong one. Returns whether
    /// it fits.
    fn id(&mut self, number: usize) -> (u64, bool) {
        let known = self.items.get(&number).and_then(|(_, change)| self.ids.get(change)).copied();
        match (self.random.u8(0..6), known) {
            (0, Some(id)) => (id, true),
            (1, Some(id)) => (id ^ 1 << 60, false),
            _ => (0, true),
        }
    }

    /// One more request, and the reply that it must bring, if any.
    fn request(&mut self) {
        use Opcode::{Append, Decrement, Delete, Flush, Increment, Noop, Prepend, Touch};
        const OPCODES: [Opcode; 16] = [
            Opcode::Get,
            Opcode::GetKey,
            Opcode::GetAndTouch,
            Opcode::GetKeyAndTouch,
            Opcode::Get,
            Opcode::Set,
            Opcode::Set,
            Opcode::Add,
            Opcode::Replace,
            Append,
            Prepend,
            Increment,
            Decrement,
            Delete,
            Touch,
            Noop,
        ];
        let mut opcode = *self.random.choice(&OPCODES).expect("there are some");
        if self.random.u8(0..80) == 0 {
            opcode = Flush;
        }
        let has_twin = !matches!(opcode, Touch | Noop);
        let quiet = has_twin && self.random.bool();
        self.opaque += 1;
        let opaque = self.opaque.to_be_bytes();
        let echo = Echo { opcode: opcode.byte(quiet), opaque };
        let number = self.random.usize(0..KEYS);
        let asked = Asked { opcode, quiet, echo, number };
        match opcode {
            Opcode::Set | Opcode::Add | Opcode::Replace | Append | Prepend => self.store(asked),
            Increment | Decrement => self.arith(asked),
            Delete => self.delete(asked),
            Noop | Flush => {
                self.sent.extend(with(echo, 0, (b"", b"", b"")));
                if opcode == Flush {
                    self.items.clear();
                }
                if !quiet {
                    self.tell(asked, Status::Done, b"", b"");
                }
            }
            _ => self.read(asked),
        }
    }

    fn read(&mut self, asked: Asked) {
        let Asked { opcode, quiet, echo, number } = asked;
        let touches = !matches!(opcode, Opcode::Get | Opcode::GetKey);
        let expiry = 1000u32.to_be_bytes();
        let extras: &[u8] = if touches { &expiry } else { b"" };
        self.sent.extend(with(echo, 0, (extras, &key(number), b"")));
        let with_key = matches!(opcode, Opcode::GetKey | Opcode::GetKeyAndTouch);
        let told_key = if with_key { key(number) } else { Vec::new() };
        match self.items.get(&number).cloned() {
            None if quiet => {}
            None if with_key => self.tell(asked, Status::NotFound, &told_key, b""),
            None => self.fail(asked, Status::NotFound),
            Some((item, _)) => {
                let value = if opcode == Opcode::Touch { Vec::new() } else { item.value };
                self.done(asked, &item.flags.to_be_bytes(), &told_key, &value);
            }
        }
    }

    fn store(&mut self, asked: Asked) {
        let Asked { opcode, quiet, echo, number } = asked;
        let joins = matches!(opcode, Opcode::Append | Opcode::Prepend);
        let (id, fits) = self.id(number);
        let length = *self.random.choice(&LENGTHS).expect("there are some");
        let new = match self.random.u8(0..4) {
            0 => self.random.u32(..).to_string().into_bytes(),
            _ => value(length, u64::from(self.opaque)),
        };
        let flags = self.random.u32(0..3);
        let mut extras = [0; 8];
        extras[..4].copy_from_slice(&flags.to_be_bytes());
        let extras: &[u8] = if joins { b"" } else { &extras };
        self.sent.extend(with(echo, id, (extras, &key(number), &new)));
        let old = self.items.get(&number).map(|(item, _)| item.clone());
        let status = match (&old, opcode) {
            (Some(_), _) if !fits => Status::Exists,
            (None, _) if joins => Status::NotStored,
            (None, Opcode::Replace) => Status::NotFound,
            (Some(_), Opcode::Add) if id == 0 => Status::Exists,
            _ => Status::Done,
        };
        if status != Status::Done {
            return self.fail(asked, status);
        }
        match (old, opcode) {
            (Some(old), Opcode::Append) => self.put(number, old.flags, [old.value, new].concat()),
            (Some(old), Opcode::Prepend) => self.put(number, old.flags, [new, old.value].concat()),
            _ => self.put(number, flags, new),
        }
        if !quiet {
            self.done(asked, b"", b"", b"");
        }
    }

    fn arith(&mut self, asked: Asked) {
        let Asked { opcode, quiet, echo, number } = asked;
        let (delta, initial) = (self.random.u64(0..100), self.random.u64(0..1000));
        let expiration = if self.random.bool() { 0 } else { NEVER_MADE };
        let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &expiration.to_be_bytes()];
        let (id, fits) = self.id(number);
        self.sent.extend(with(echo, id, (&extras.concat(), &key(number), b"")));
        let Some(old) = self.items.get(&number).map(|(item, _)| item.clone()) else {
            if expiration == NEVER_MADE {
                return self.fail(asked, Status::NotFound);
            }
            self.put(number, 0, initial.to_string().into_bytes());
            if !quiet {
                self.done(asked, b"", b"", &initial.to_be_bytes());
            }
            return;
        };
        let text = std::str::from_utf8(&old.value).ok().map(str::trim_end);
        let before = text.and_then(|text| text.parse::<u64>().ok());
        let is_long = old.value.len() >= 16_384; // the model's values of digits are short
        match before.filter(|_| !is_long) {
            // What has bytes, and another id, is not looked at further.
            _ if !fits && !old.value.is_empty() && !is_long => self.fail(asked, Status::Exists),
            None => self.fail(asked, Status::NotANumber),
            Some(before) => {
                let after = match opcode {
                    Opcode::Increment => before.wrapping_add(delta),
                    _ => before.saturating_sub(delta),
                };
                let width = old.value.len();
                let text = format!("{after:<width$}");
                self.put(number, old.flags, text.into_bytes());
                if !quiet {
                    self.done(asked, b"", b"", &after.to_be_bytes());
                }
            }
        }
    }

    fn delete(&mut self, asked: Asked) {
        let Asked { quiet, echo, number, .. } = asked;
        let (id, fits) = self.id(number);
        self.sent.extend(with(echo, id, (b"", &key(number), b"")));
        match self.items.contains_key(&number) {
            false => self.fail(asked, Status::NotFound),
            true if !fits => self.fail(asked, Status::Exists),
            true => {
                self.items.remove(&number);
                if !quiet {
                    self.tell(asked, Status::Done, b"", b"");
                }
            }
        }
    }

    /// Holds the replies against what was expected, and learns the ids that they tell.
    fn judge(&mut self, got: Vec<Told>, what: &str) {
        assert_eq!(got.len(), self.wanted.len(), "{what}");
        for (mut told, wanted) in got.into_iter().zip(std::mem::take(&mut self.wanted)) {
            let echo = wanted.told.echo;
            if let Some((_, change)) = wanted.id_of {
                assert_ne!(told.cas, 0, "{what}: {echo:?}");
                let known = *self.ids.entry(change).or_insert(told.cas);
                assert_eq!(told.cas, known, "{what}: {echo:?}: another id of the same item");
                told.cas = 0;
            }
            assert!(told == wanted.told, "{what}: {} {}", shown(&told), shown(&wanted.told));
        }
    }
}

fn shown(told: &Told) -> String {
    let value = &told.value[..told.value.len().min(40)];
    let Told { echo, status, cas, .. } = told;
    format!("{echo:?} {status:#x} {cas} {} [{}]", value.escape_ascii(), told.value.len())
}

fn run(rig: &mut Rig, client: &Client, model: &mut Model, what: &str) {
    for _ in 0..REQUESTS / PIPELINE {
        for _ in 0..model.random.usize(1..PIPELINE) {
            model.request();
        }
        // Quiet requests at the end are answered when this is.
        model.opaque += 1;
        let echo = Echo { opcode: Opcode::Noop as u8, opaque: model.opaque.to_be_bytes() };
        model.sent.extend(with(echo, 0, (b"", b"", b"")));
        let asked = Asked { opcode: Opcode::Noop, quiet: false, echo, number: 0 };
        model.tell(asked, Status::Done, b"", b"");
        let sent = std::mem::take(&mut model.sent);
        let back = rig.send(client, &sent);
        let is_last = |told: &Told| told.echo == echo;
        let got = rig.until(client, back, |got| replies(got).0.last().is_some_and(is_last));
        let (told, bytes) = replies(&got);
        assert_eq!(bytes, got.len(), "{what}: bytes behind the last reply");
        model.judge(told, what);
    }
}

#[test]
fn every_request_is_answered_as_a_map_would() {
    for (number, plan) in all_plans().into_iter().enumerate() {
        for seed in 0..3 {
            let faults = Faults { seed, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
            let faults = if seed == 0 { Faults::NONE } else { faults };
            let what = format!("{} seed {seed}", plan.what());
            let mut rig = Rig::new(&with_folder(&Plan { faults, ..plan.clone() }));
            let client = rig.net.connect();
            let mut model = Model::new(1000 * number as u64 + seed);
            run(&mut rig, &client, &mut model, &what);
            assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
        }
    }
}
