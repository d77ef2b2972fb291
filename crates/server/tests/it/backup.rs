//! Backups as clients ask for them, with time and the place they go to in a test's hands.

use laneway_policy::Form;
use laneway_rig::durable::{Kept, Machine, settings};
use laneway_rig::{Plan, Rig, value};
use laneway_server::durable::backup::{Refused, Standing, Told};
use laneway_server::durable::copier::{Copier, Place};
use laneway_server::shared::Phase;
use laneway_tier::backup::file::Target;
use laneway_tier::backup::{Bounds, MAGIC};
use laneway_tier::{Error, Result, dump};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

const SECOND_NANOS: u64 = 1_000_000_000;
const KEYS: u64 = 40;
/// A name under which nothing can be begun.
const TAKEN: &str = "taken";

/// What was written so far, what there is room for, and whether it was finished.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<(Vec<u8>, usize, bool)>>);

impl Memory {
    fn with_room(room: usize) -> Memory {
        Memory(Arc::new(Mutex::new((Vec::new(), room, false))))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().0.clone()
    }

    fn is_finished(&self) -> bool {
        self.0.lock().unwrap().2
    }
}

impl Place for Memory {
    fn begin(&self, name: &str) -> Result<Box<dyn Target>> {
        match name {
            TAKEN => Err(Error::Backup("it is there already".into())),
            _ => Ok(Box::new(self.clone())),
        }
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        if state.1 < state.0.len() + bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Target for Memory {
    fn finish(self: Box<Self>) -> Result<()> {
        self.0.lock().unwrap().2 = true;
        Ok(())
    }
}

/// A server with some items, and who copies them.
fn begin(memory: &Memory, bytes_per_second: u64) -> (Machine, Rig, Copier) {
    let machine = Machine::new(1 << 20, 8 << 20);
    let tier = machine.open(settings()).unwrap();
    let kept = Some(Kept::of(&tier));
    let mut rig = Rig::new(&Plan { kept, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    for number in 0..KEYS {
        rig.set(&client, &format!("k{number}"), &value(900, number));
    }
    let durable = rig.shared.durable.get().unwrap().clone();
    durable.backups.enable(Box::new(|| {}));
    let bounds = Bounds { items_at_once: 1, ..Bounds::NONE };
    let copier = Copier::new(durable, Box::new(memory.clone()), bytes_per_second, bounds);
    (machine, rig, copier)
}

fn told(rig: &Rig) -> Told {
    rig.shared.durable.get().unwrap().backups.told()
}

#[test]
fn a_backup_that_cannot_be_begun_leaves_the_one_before_as_the_last() {
    let memory = Memory::with_room(usize::MAX);
    let (_machine, mut rig, mut copier) = begin(&memory, 0);
    let client = rig.net.connect();
    assert_eq!(rig.ask(&client, b"backup start one\r\n", b"\r\n"), b"OK\r\n");
    while copier.step(5, 9).is_some() {}
    let done = told(&rig);
    assert_eq!((done.standing, done.items, done.ended_seconds), (Standing::Done, KEYS, 9));
    assert_eq!(rig.ask(&client, b"backup start taken\r\n", b"\r\n"), b"OK\r\n");
    assert_eq!(told(&rig).standing, Standing::UnderWay);
    while copier.step(6, 10).is_some() {}
    let refused = Refused { name: TAKEN.into(), error: "it is there already".into() };
    assert_eq!(told(&rig), Told { refused: Some(refused), ..done });
    let stats = String::from_utf8(rig.ask(&client, b"stats backup\r\n", b"END\r\n")).unwrap();
    assert!(stats.contains("STAT backup_state done\r\nSTAT backup_name one\r\n"), "{stats}");
    let line = "STAT backup_refused taken\r\nSTAT backup_refused_error it is there already\r\n";
    assert!(stats.contains(line), "{stats}");
    // The next one that is begun is the last one, and nothing is told of the other any more.
    assert_eq!(rig.ask(&client, b"backup start two\r\n", b"\r\n"), b"OK\r\n");
    while copier.step(7, 11).is_some() {}
    let two = told(&rig);
    assert_eq!((two.standing, two.name.as_str(), two.refused), (Standing::Done, "two", None));
}

#[test]
fn a_backup_keeps_to_its_rate_and_makes_no_burst_of_what_it_was_late() {
    const RATE: u64 = 10_000;
    let memory = Memory::with_room(usize::MAX);
    let (_machine, mut rig, mut copier) = begin(&memory, RATE);
    let client = rig.net.connect();
    assert_eq!(rig.ask(&client, b"backup start one\r\n", b"\r\n"), b"OK\r\n");
    let mut now = 5 * SECOND_NANOS;
    let (began, mut late) = (now, 0);
    let mut steps = 0;
    while let Some(due) = copier.step(now, 9) {
        steps += 1;
        let written = memory.bytes().len() as u64;
        // One step is ahead, and a tenth of a second's worth is made good.
        let most = (now - began - late) * RATE / SECOND_NANOS + RATE / 10 + 1100;
        assert!(written <= most, "{written} bytes, and may {most}");
        now = now.max(due);
        if steps == 10 {
            late = 60 * SECOND_NANOS;
            now += late;
        }
    }
    assert!(KEYS < steps && memory.is_finished());
    let end = told(&rig);
    assert_eq!((end.standing, end.items, end.items_total), (Standing::Done, KEYS, KEYS));
    assert_eq!((end.bytes, end.lost), (memory.bytes().len() as u64, 0));
    assert!((KEYS * 900 * SECOND_NANOS / RATE) < now - began);
    assert_eq!(dump::Stream::open(&memory.bytes()[..]).unwrap().verify().unwrap(), KEYS);
}

#[test]
fn whoever_asked_and_leaves_ends_it_and_so_does_a_place_that_is_full() {
    let memory = Memory::with_room(20_000);
    let (_machine, mut rig, mut copier) = begin(&memory, 0);
    let (asker, other) = (rig.net.connect(), rig.net.connect());
    assert_eq!(rig.ask(&asker, b"backup start one\r\n", b"\r\n"), b"OK\r\n");
    let refused = rig.ask(&other, b"backup start two\r\n", b"\r\n");
    assert!(refused.starts_with(b"SERVER_ERROR a backup is under way"));
    (0..5).for_each(|now| assert!(copier.step(now, 1).is_some()));
    assert!(copier.is_copying() && MAGIC.len() < memory.bytes().len());
    let running = rig.ask(&other, b"stats backup\r\n", b"END\r\n");
    let running = String::from_utf8(running).unwrap();
    assert!(running.contains("STAT backup_state running\r\nSTAT backup_name one\r\n"), "{running}");
    asker.reset();
    // The server hears of it in its next turns.
    (0..50).for_each(|_| rig.turn());
    assert_eq!(copier.step(6, 2), None);
    let end = told(&rig);
    assert!(!copier.is_copying() && !memory.is_finished());
    assert_eq!((end.standing, end.ended_seconds), (Standing::Failed, 2));
    assert_eq!(end.error, "whoever asked for it has closed the connection");
    // The next one meets a full place, and the server goes on.
    assert_eq!(rig.ask(&other, b"backup start two\r\n", b"\r\n"), b"OK\r\n");
    while copier.step(7, 3).is_some() {}
    let failed = String::from_utf8(rig.ask(&other, b"stats backup\r\n", b"END\r\n")).unwrap();
    assert!(
        failed.contains("backup_state failed") && failed.contains("write the copy"),
        "{failed}"
    );
    rig.set(&other, "k1", &value(900, 7));
    let refused = rig.ask(&other, b"backup stop\r\n", b"\r\n");
    assert_eq!(refused, b"CLIENT_ERROR no backup is under way\r\n");
}

/// Its connection is closed before the workers end.
#[test]
fn a_backup_that_a_stop_ends_is_told_so() {
    let memory = Memory::with_room(usize::MAX);
    let (_machine, mut rig, mut copier) = begin(&memory, 0);
    let asker = rig.net.connect();
    assert_eq!(rig.ask(&asker, b"backup start one\r\n", b"\r\n"), b"OK\r\n");
    (0..5).for_each(|now| assert!(copier.step(now, 1).is_some()));
    assert!(copier.is_copying());
    rig.shared.enter_phase(Phase::Draining);
    rig.turns(50);
    assert!(asker.ended());
    assert_eq!(copier.step(6, 2), None);
    let end = told(&rig);
    assert_eq!((end.standing, end.error.as_str()), (Standing::Failed, "the server was stopped"));
}
