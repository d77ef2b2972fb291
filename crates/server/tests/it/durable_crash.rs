//! Power fails while the server is at work, at any event of its media, again and again: every
//! acknowledged change is there afterwards, and one that was not is there whole or not at all.
//!
//! Each run repeats from its seed; a failure names it.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_tier::disk::Barrier;
use laneway_tier::disk::sim::{Faults, Random};
use laneway_transport::memory::Client;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::{Plan, Rig, value};
use std::collections::BTreeMap;

const LOG_BYTES: usize = 12 * SEGMENT_BYTES as usize;
const SSD_BYTES: usize = 2 << 20;
/// Power failures of one run.
const CRASHES: usize = 4;
/// A server under test: few items in ample memory, whose every change meets the others, or more
/// than memory holds.
#[derive(Clone, Copy)]
struct World {
    keys: u64,
    memory_bytes: u64,
    ssd_bytes: usize,
    /// Events of the media until the power fails, at most.
    events_max: u64,
}

const FEW: World =
    World { keys: 12, memory_bytes: 16 << 20, ssd_bytes: SSD_BYTES, events_max: 300 };
/// As little memory as a store can have, which holds about 75 values of 10 to 16 KB.
const EVICTED: World =
    World { keys: 150, memory_bytes: 1 << 20, ssd_bytes: 8 << 20, events_max: 2000 };

/// What the server holds, as far as its clients know.
type Model = BTreeMap<String, Vec<u8>>;

/// A change, and what it makes of the model; the reply where it is known.
struct Change {
    request: Vec<u8>,
    reply: &'static str,
    after: Model,
}

fn store(verb: &str, key: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!("{verb} {key} 0 0 {}\r\n", bytes.len());
    [head.as_bytes(), bytes, b"\r\n"].concat()
}

fn random_change(model: &Model, random: &mut Random, world: World) -> Change {
    let number = random.below(world.keys);
    let key = if number < 3 { format!("n{number}") } else { format!("k{number}") };
    let mut after = model.clone();
    let there = model.get(&key);
    let done = |done: bool| if done { "STORED\r\n" } else { "NOT_STORED\r\n" };
    if number < 3 && !random.one_in(4) {
        // A number is only ever counted up.
        let (request, reply) = match there {
            None => (store("set", &key, b"1"), "STORED\r\n"),
            Some(_) => (format!("incr {key} 1\r\n").into_bytes(), "\r\n"),
        };
        let count = there.map_or(0, |text| String::from_utf8_lossy(text).parse().expect("digits"));
        let count: u64 = count;
        after.insert(key, (count + 1).to_string().into_bytes());
        return Change { request, reply, after };
    }
    let bytes = match random.below(4) {
        _ if world.keys > FEW.keys => 10_000 + random.below(6_000) as usize,
        0 => 3000 + random.below(40_000) as usize,
        _ => random.below(400) as usize,
    };
    let new = value(bytes, random.number());
    let kind = if number < 3 { 4 } else { random.below(12) };
    let (request, reply) = match (kind, there) {
        (0..=1, there) => {
            let reply = done(there.is_none());
            after.entry(key.clone()).or_insert(new.clone());
            (store("add", &key, &new), reply)
        }
        (2..=3, there) => {
            let short = &new[..new.len().min(50)];
            let reply = done(there.is_some());
            after.entry(key.clone()).and_modify(|old| old.extend_from_slice(short));
            (store("append", &key, short), reply)
        }
        (4..=5, there) => {
            let reply = if there.is_some() { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
            after.remove(&key);
            (format!("delete {key}\r\n").into_bytes(), reply)
        }
        (6, there) => {
            let reply = if there.is_some() { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" };
            (format!("touch {key} 0\r\n").into_bytes(), reply)
        }
        (7, _) if random.one_in(world.keys / 2) => {
            after.clear();
            (b"flush_all\r\n".to_vec(), "OK\r\n")
        }
        _ => {
            after.insert(key.clone(), new.clone());
            (store("set", &key, &new), "STORED\r\n")
        }
    };
    Change { request, reply, after }
}

/// What the server holds now.
fn read_all(rig: &mut Rig, client: &Client, keys: u64) -> Result<Model, String> {
    let mut found = Model::new();
    for number in 0..keys {
        let key = if number < 3 { format!("n{number}") } else { format!("k{number}") };
        let got = rig.ask(client, format!("mg {key} v\r\nmn\r\n").as_bytes(), b"MN\r\n");
        if got == b"EN\r\nMN\r\n" {
            continue;
        }
        let newline = got.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        if !got.starts_with(b"VA ") {
            return Err(format!("{key}: {}", rig::tail(&got)));
        }
        found.insert(key, got[newline + 1..got.len() - b"\r\nMN\r\n".len()].to_vec());
    }
    Ok(found)
}

/// Changes until the power fails. Returns what is acknowledged, and what may have become of it.
fn work(
    rig: &mut Rig,
    machine: &Machine,
    mut model: Model,
    random: &mut Random,
    world: World,
) -> Result<(Model, Model), String> {
    let client = rig.net.connect();
    loop {
        let change = random_change(&model, random, world);
        let back = rig.send(&client, &change.request);
        let told = rig.until(&client, back, |got| got.ends_with(b"\r\n"));
        if told.starts_with(b"SERVER_ERROR") {
            assert!(machine.power.is_off(), "{}", rig::tail(&told));
            return Ok((model, change.after));
        }
        if !told.ends_with(change.reply.as_bytes())
            || (told == b"NOT_STORED\r\n") != (change.reply == "NOT_STORED\r\n")
        {
            let head = String::from_utf8_lossy(&change.request[..change.request.len().min(30)])
                .into_owned();
            return Err(format!(
                "{head:?} is answered {:?}, not {:?}",
                rig::tail(&told),
                change.reply
            ));
        }
        model = change.after;
        if random.one_in(5) && world.keys == FEW.keys {
            while !rig.shared.store.flush_all() {} // memory forgets everything
        }
        if random.one_in(20) {
            let tier = &rig.shared.durable.get().expect("kept").tier;
            // Where the power fails in it, the next change finds out.
            let _ = tier.maintain();
        }
        if machine.power.is_off() {
            return Ok((model.clone(), model));
        }
    }
}

/// One run: how many items memory has evicted, or what was lost.
fn run(world: World, seed: u64, ignored: Option<Barrier>) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let mut machine = Machine::new(LOG_BYTES, world.ssd_bytes);
    // Made while the power is on.
    drop(machine.open(settings()).map_err(|error| error.to_string())?);
    let mut model = Model::new();
    let mut evictions = 0;
    for crash in 0..CRASHES {
        let form = [Form::TimeShare, Form::Roles][random.below(2) as usize];
        let memory_bytes = world.memory_bytes;
        let plan = Plan { memory_bytes, item_bytes_max: 256 << 10, ..Plan::of(3, form) };
        let faults = Faults { ignored: ignored.into_iter().collect(), ..Faults::default() };
        let tier = machine.open(settings()).map_err(|error| format!("crash {crash}: {error}"))?;
        machine.log.set_faults(faults.clone());
        machine.ssd.set_faults(faults);
        machine.power.restore(1 + random.below(world.events_max));
        let mut rig = Rig::new(&Plan { kept: Some(Kept::of(&tier)), ..plan.clone() });
        let worked = work(&mut rig, &machine, model, &mut random, world);
        evictions += rig.shared.store.stats().evictions;
        let (acknowledged, perhaps) = worked.map_err(|what| format!("crash {crash}: {what}"))?;
        drop((rig, tier));
        machine = machine.crashed(random.number());
        let tier = machine.open(settings()).map_err(|error| format!("crash {crash}: {error}"))?;
        let mut rig = Rig::new(&Plan { kept: Some(Kept::of(&tier)), ..plan });
        let client = rig.net.connect();
        let found = read_all(&mut rig, &client, world.keys);
        let found = found.map_err(|what| format!("crash {crash}: {what}"))?;
        if found != acknowledged && found != perhaps {
            let differs = |key: &&String| found.get(*key) != acknowledged.get(*key);
            let keys: Vec<&String> =
                acknowledged.keys().chain(found.keys()).filter(differs).collect();
            return Err(format!("crash {crash}: not as acknowledged: {keys:?}"));
        }
        model = found;
    }
    Ok(evictions)
}

#[test]
fn no_acknowledged_change_is_lost_and_none_is_torn() {
    for seed in 0..150 {
        if let Err(what) = run(FEW, seed, None) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn without_a_barrier_something_is_lost() {
    for barrier in [Barrier::Group, Barrier::Data] {
        let lost = (0..100).find(|&seed| run(FEW, seed, Some(barrier)).is_err());
        assert!(lost.is_some(), "{barrier:?} could be left out, and no run noticed");
    }
}

#[test]
fn what_memory_has_no_room_for_is_neither_lost_nor_taken_for_absent() {
    let mut evictions = 0;
    for seed in 0..12 {
        match run(EVICTED, seed, None) {
            Ok(count) => evictions += count,
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(evictions > 1000, "{evictions} items were evicted in all");
}
