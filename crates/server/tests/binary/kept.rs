//! The binary protocol where items are kept durably: what is acknowledged outlives the server.

use laneway_policy::Form;
use laneway_rig::binary::{get, noop, replies, request, set, with};
use laneway_rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use laneway_rig::{self as rig, Plan, Rig, value};
use laneway_tier::disk::sim::Faults;
use laneway_wire::binary::Opcode;
use laneway_wire::binary::print::echo;
use laneway_wire::binary::reply::Status;

const LOG_BYTES: usize = 32 * SEGMENT_BYTES as usize;
const SSD_BYTES: usize = 16 << 20;
const FORMS: [(usize, Form); 3] = [(1, Form::TimeShare), (2, Form::TimeShare), (3, Form::Roles)];

fn machine() -> Machine {
    Machine::new(LOG_BYTES, SSD_BYTES)
}

fn folder() -> Kept {
    Kept::of(&machine().open(settings()).expect("the media are sound"))
}

/// Every design, NUMA domains, and a data folder.
pub fn all_plans() -> Vec<Plan> {
    let domains = Plan { domains: 2, ..Plan::of(4, Form::TimeShare) };
    let mut plans = rig::plans();
    plans.push(domains);
    plans.extend(
        FORMS.map(|(workers, form)| Plan { kept: Some(folder()), ..Plan::of(workers, form) }),
    );
    plans
}

/// The same plan, with a fresh data folder where it has one.
pub fn with_folder(plan: &Plan) -> Plan {
    Plan { kept: plan.kept.as_ref().map(|_| folder()), ..plan.clone() }
}

fn started(machine: &Machine, (workers, form): (usize, Form)) -> (Rig, Kept) {
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    (Rig::new(&Plan { kept: Some(kept.clone()), ..Plan::of(workers, form) }), kept)
}

fn expiring(key: &str, value: &[u8]) -> Vec<u8> {
    let extras = [7u32.to_be_bytes(), 1_900_000_000u32.to_be_bytes()].concat();
    request(Opcode::Set, &extras, key.as_bytes(), value)
}

#[test]
fn what_is_acknowledged_survives_a_restart() {
    let sizes = [0, 1, 1000, 4096, 15_000, 16_500, 100_000, 600_000];
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        for (salt, &bytes) in sizes.iter().enumerate() {
            let key = format!("k{bytes}");
            let told = rig.say_binary(&client, &expiring(&key, &value(bytes, salt as u64)));
            assert_eq!((told.status, told.cas != 0), (0, true), "{bytes}");
        }
        let numbers = [&5u64.to_be_bytes()[..], &40u64.to_be_bytes(), &[0; 4]].concat();
        for wanted in [40u64, 45] {
            let told = rig.say_binary(&client, &request(Opcode::Increment, &numbers, b"n", b""));
            assert_eq!(told.value, wanted.to_be_bytes());
        }
        let joined = request(Opcode::Append, b"", b"k100000", &value(70_000, 3));
        assert_eq!(rig.say_binary(&client, &joined).status, 0);
        assert_eq!(rig.say_binary(&client, &request(Opcode::Delete, b"", b"k1", b"")).status, 0);
        let touch = request(Opcode::Touch, &100u32.to_be_bytes(), b"k1000", b"");
        assert_eq!(rig.say_binary(&client, &touch).extras, 7u32.to_be_bytes());
        drop((rig, kept));
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        for (salt, &bytes) in sizes.iter().enumerate() {
            let told = rig.say_binary(&client, &get(format!("k{bytes}").as_bytes()));
            if bytes == 1 {
                assert_eq!(told.status, Status::NotFound as u16);
                continue;
            }
            let mut wanted = value(bytes, salt as u64);
            if bytes == 100_000 {
                wanted.extend(value(70_000, 3));
            }
            assert!(told.value == wanted, "{bytes}: {}", told.value.len());
            assert_eq!(told.extras, 7u32.to_be_bytes());
        }
        assert_eq!(rig.say_binary(&client, &get(b"n")).value, b"45");
        // What is cold is deleted unread, and read in a pipeline of quiet requests.
        assert!(rig.shared.store.flush_all());
        let delete = request(Opcode::Delete, b"", b"k4096", b"");
        assert_eq!(rig.say_binary(&client, &delete).status, 0);
        let quiet = |key: &str, opaque| {
            with(echo(Opcode::GetKey, true, opaque), 0, (b"", key.as_bytes(), b""))
        };
        let mut keys: Vec<u8> = (0..)
            .zip(sizes)
            .flat_map(|(number, bytes)| quiet(&format!("k{bytes}"), number))
            .collect();
        keys.extend(noop());
        let told = rig.ask_binary(&client, &keys, sizes.len() - 2 + 1);
        let opaques: Vec<u8> = told.iter().map(|told| told.echo.opaque[3]).collect();
        assert_eq!(opaques, [0, 2, 4, 5, 6, 7, 0], "in their order, the missing ones left out");
        rig.clock.advance(101_000_000_000);
        assert_eq!(rig.say_binary(&client, &get(b"k1000")).status, Status::NotFound as u16);
        let flush = request(Opcode::Flush, b"", b"", b"");
        assert_eq!(rig.say_binary(&client, &flush).status, 0);
        assert_eq!(rig.say_binary(&client, &get(b"n")).status, Status::NotFound as u16);
        let stat = request(Opcode::Stat, b"", b"tier", b"");
        client.send(&stat);
        let got = rig.until(&client, Vec::new(), |got| {
            replies(got).0.last().is_some_and(|told| told.key.is_empty())
        });
        let names: Vec<Vec<u8>> = replies(&got).0.into_iter().map(|told| told.key).collect();
        assert!(names.len() > 10, "{}", names.len());
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        assert_eq!(rig.say_binary(&client, &get(b"n")).status, Status::NotFound as u16);
    }
}

/// A pipeline is given to the executor in rows, and its writes are made durable together.
#[test]
fn a_pipeline_of_quiet_writes_waits_for_one_group() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let before = kept.tier.stats().groups;
        let quiet = |number: u32| {
            let key = format!("k{number}");
            with(echo(Opcode::Set, true, number), 0, (&[0; 8], key.as_bytes(), b"v"))
        };
        let mut requests: Vec<u8> = (0..60).flat_map(quiet).collect();
        requests.extend(noop());
        assert_eq!(rig.say_binary(&client, &requests).echo.opcode, Opcode::Noop as u8);
        let commits = kept.tier.stats().groups - before;
        assert!(commits < 10, "{commits} commits of 60 writes");
    }
}

#[test]
fn what_a_flush_failed_for_is_refused_and_not_shown() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.say_binary(&client, &set(b"k", b"old"));
        kept.gate.commits_wait.store(true, std::sync::atomic::Ordering::Relaxed);
        let quietly = with(echo(Opcode::Set, true, 9), 0, (&[0; 8], b"k", b"newer"));
        client.send(&[set(b"k", b"new"), get(b"k"), quietly, noop()].concat());
        rig.turns(100);
        machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
        kept.gate.commits_wait.store(false, std::sync::atomic::Ordering::Relaxed);
        let got = rig.until(&client, Vec::new(), |got| replies(got).0.len() == 4);
        let told = replies(&got).0;
        let statuses: Vec<u16> = told.iter().map(|told| told.status).collect();
        let failed = Status::Failed as u16;
        assert_eq!(statuses, [failed, 0, failed, 0], "a quiet failure is told, too");
        assert_eq!((&*told[1].value, told[2].echo.opaque[3]), (&b"old"[..], 9));
        assert_eq!(rig.say_binary(&other, &get(b"k")).value, b"old");
        let told = rig.ask_binary(&client, &[set(b"k", &value(300_000, 1)), get(b"k")].concat(), 2);
        assert_eq!((told[0].status, &*told[1].value), (failed, &b"old"[..]));
    }
}

#[test]
fn who_adds_where_there_is_an_item_has_nothing_read() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        for (key, bytes) in [(b"small", 1), (b"large", 5000)] {
            assert_eq!(rig.say_binary(&client, &set(key, &value(bytes, 1))).status, 0);
        }
        assert!(rig.shared.store.flush_all(), "memory forgets them");
        let add = |key: &[u8]| request(Opcode::Add, &[0; 8], key, b"x");
        for key in [b"small", b"large"] {
            assert_eq!(rig.say_binary(&client, &add(key)).status, Status::Exists as u16);
        }
        assert_eq!(rig.say_binary(&client, &add(b"fresh")).status, 0);
        let durable = rig.shared.durable.get().expect("it is kept");
        let faults = durable.counts.faults.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(faults, 0, "the index says that they are there");
        assert_eq!(rig.say_binary(&client, &get(b"small")).value, value(1, 1));
    }
}
