//! Small requests over TCP that another worker takes: rules (d) and (e) of `lanes`, and
//! `--extra-large` of `minos`. Each is one parsed request, and replies keep their order.

use laneway_rig as rig;

use laneway_policy::{Design, Form};
use laneway_transport::memory::Client;
use rig::{Plan, Rig, hit, value};

const LARGE: usize = 4_000_000;

fn plans() -> Vec<Plan> {
    vec![
        Plan::of(2, Form::TimeShare),
        Plan::of(6, Form::TimeShare),
        Plan::of(6, Form::Roles),
        Plan { extra_large: true, ..Plan::design(Design::Minos, 6) },
    ]
}

fn reply(key: &str, value: &[u8]) -> Vec<u8> {
    [&hit(key, value)[..], b"END\r\n"].concat()
}

/// Connections that all call worker 0 home.
fn at_worker_0(rig: &mut Rig, count: usize) -> Vec<Client> {
    let mut mine = Vec::new();
    while mine.len() < count {
        let before = home_of_0(rig);
        let client = rig.net.connect();
        rig.turns(3);
        if home_of_0(rig) > before {
            mine.push(client);
        } else {
            // It stays open, so that the next one goes elsewhere.
            std::mem::forget(client);
        }
    }
    mine
}

fn home_of_0(rig: &Rig) -> usize {
    rig.shared.workers[0].connections.load(std::sync::atomic::Ordering::Relaxed)
}

fn stolen(rig: &Rig, by: impl Fn(usize) -> bool) -> u64 {
    let workers = rig.shared.workers.iter().enumerate().filter(|(number, _)| by(*number));
    workers.map(|(_, worker)| worker.lanes.stolen.get()).sum()
}

fn ask_all(rig: &mut Rig, clients: &[Client], request: &[u8], reply: &[u8], what: &str) {
    for client in clients {
        client.send(request);
    }
    for client in clients {
        let got = rig.until(client, Vec::new(), |got| got.len() >= reply.len());
        assert!(got == reply, "{what}: {}", rig::tail(&got));
    }
}

#[test]
fn idle_workers_take_single_requests_of_a_busy_one() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { connections_max: 200, ..plan });
        let clients = at_worker_0(&mut rig, 10);
        rig.set(&clients[0], "k", b"value");
        for _ in 0..10 {
            ask_all(&mut rig, &clients, b"get k\r\n", &reply("k", b"value"), &what);
            ask_all(&mut rig, &clients, b"set k 0 0 5\r\nvalue\r\n", b"STORED\r\n", &what);
        }
        assert!(stolen(&rig, |number| number != 0) > 10, "{what}");
        assert_eq!(stolen(&rig, |number| number == 0), 0, "{what}");
        // Large items are not offered; of a pipeline at most the last one is.
        rig.set(&clients[0], "big", &value(100_000, 1));
        let before = stolen(&rig, |_| true);
        ask_all(&mut rig, &clients, b"get big\r\n", &reply("big", &value(100_000, 1)), &what);
        assert_eq!(stolen(&rig, |_| true), before, "{what}");
        let (line, thrice) = (b"get k\r\n".repeat(3), reply("k", b"value").repeat(3));
        ask_all(&mut rig, &clients, &line, &thrice, &what);
        assert!(stolen(&rig, |_| true) <= before + clients.len() as u64, "{what}");
    }
}

#[test]
fn a_lone_request_is_served_where_it_is() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.set(&client, "k", b"value");
        for _ in 0..20 {
            assert_eq!(rig.ask(&client, b"get k\r\n", b"END\r\n"), reply("k", b"value"), "{what}");
        }
        assert_eq!(stolen(&rig, |_| true), 0, "{what}");
    }
}

#[test]
fn a_large_worker_takes_small_requests_between_two_slices() {
    let mut rig = Rig::new(&Plan::of(2, Form::Roles));
    rig.publish_large(1);
    rig.turns(3);
    let clients = at_worker_0(&mut rig, 24);
    let reader = rig.net.connect();
    rig.set(&reader, "big", &value(LARGE, 1));
    rig.set(&clients[0], "k", b"value");
    reader.send(b"get big\r\n");
    let mut got = Vec::new();
    let whole = reply("big", &value(LARGE, 1));
    let mut rounds = 0;
    while got.len() < whole.len() {
        ask_all(&mut rig, &clients, b"get k\r\n", &reply("k", b"value"), "");
        got.extend(reader.receive(usize::MAX));
        rounds += 1;
        assert!(rounds < 10_000, "the large reply never comes");
    }
    assert!(got == whole);
    assert!(stolen(&rig, |number| number == 1) > 0, "the large worker helped out");
}
