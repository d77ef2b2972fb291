//! Shapes of input and of clients that once did harm, each with the number of workers, forms and
//! designs in which it could: values that end near a read's end, requests that end near a turn's
//! end, bodies refused half-way, clients that do not read, roles that change around them.

use laneway_rig as rig;

use laneway_policy::{Design, Form, Role};
use laneway_server::settings::Binding;
use laneway_transport::memory::{Client, Faults};
use rig::{Plan, Rig, hit, tail, value};
use std::time::Duration;

/// Every design, and low thresholds: values are large and contiguous at once.
fn plans() -> Vec<Plan> {
    let mut plans = rig::plans();
    plans.push(Plan { threshold_bytes: 2000, ..Plan::of(2, Form::TimeShare) });
    plans.push(Plan { threshold_bytes: 2000, ..Plan::of(3, Form::Roles) });
    plans.push(Plan { threshold_bytes: 2000, ..Plan::design(Design::Minos, 3) });
    plans
}

fn what(plan: &Plan) -> String {
    plan.what()
}

fn set_request(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("set {key} 0 0 {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

fn get_reply(key: &str, value: &[u8]) -> Vec<u8> {
    [&hit(key, value)[..], b"END\r\n"].concat()
}

#[test]
fn values_about_as_long_as_a_read_arrive_in_any_pieces() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        for len in (16_300..16_420).step_by(3).chain([14_000, 15_999, 16_384, 32_768, 33_000]) {
            let value = value(len, len as u64);
            let request = set_request("k", &value);
            // Among the cuts: inside the value, before its end, and between `\r` and `\n`.
            for cut in [20, len / 2, len, request.len() - 2, request.len() - 1] {
                let back = rig.send(&client, &request[..cut]);
                rig.turns(3);
                let back = [back, rig.send(&client, &request[cut..])].concat();
                let got = rig.until(&client, back, |got| got.ends_with(b"\r\n"));
                assert_eq!(got, b"STORED\r\n", "{len} bytes cut at {cut}, {}", what(&plan));
            }
            let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
            assert!(got == get_reply("k", &value), "{len} bytes, {}", what(&plan));
        }
    }
}

#[test]
fn a_value_behind_a_full_turn_is_not_taken_for_requests() {
    for plan in plans() {
        for before in (124..=130).chain([254, 255, 256]) {
            for len in [15_000, 17_000, 200_000] {
                let mut rig = Rig::new(&plan);
                let client = rig.net.connect();
                let mut value = value(len, before);
                let trap = b"\r\nset pwned 0 0 3\r\nyes\r\nmn\r\n";
                value[..trap.len()].copy_from_slice(trap);
                let mut request = b"mn\r\n".repeat(before as usize);
                request.extend(set_request("k", &value));
                request.extend_from_slice(b"get pwned\r\n");
                let got = rig.ask(&client, &request, b"END\r\n");
                let wanted =
                    [&b"MN\r\n".repeat(before as usize)[..], b"STORED\r\nEND\r\n"].concat();
                assert!(got == wanted, "{before} before {len}, {}: {}", what(&plan), tail(&got));
                let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
                assert!(got == get_reply("k", &value), "{before} before {len}, {}", what(&plan));
            }
        }
    }
}

/// Lines of stores that are refused; `N` is the length of what follows.
const REFUSED: [&str; 12] = [
    "cas k 0 0 N",
    "cas k 0 0 N noreply",
    "cas k 0 0 N x",
    "set k x 0 N noreply extra",
    "append k 0 x N",
    "ms k N Tx",
    "ms k N q b",
    "set k 0 0 Nx",
    "set k 0 0 -N",
    "set k 0 0 9999999999N",
    "set  0 0 N",
    "ms N",
];

#[test]
fn nothing_behind_the_line_of_a_refused_store_is_served_as_a_request() {
    let trap = b"flush_all\r\nset pwned 0 0 3\r\nyes\r\n".repeat(600);
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.set(&client, "kept", b"it");
        for length in [9, 33, 15_000, trap.len() - 2] {
            for line in REFUSED {
                let attacker = rig.net.connect();
                let line = line.replace('N', &length.to_string()) + "\r\n";
                let request = [line.as_bytes(), &trap[..length], b"\r\nmn\r\n"].concat();
                for cut in [line.len() - 1, line.len() + 3, line.len() + length] {
                    let attacker = rig.net.connect();
                    attacker.send(&request[..cut]);
                    rig.turns(4);
                    attacker.send(&request[cut..]);
                    rig.turns(8);
                }
                let back = rig.send(&attacker, &request);
                rig.turns(8);
                let got = [back, attacker.receive(usize::MAX)].concat();
                let said = got.strip_suffix(b"MN\r\n").unwrap_or(&got);
                let lives = said.len() < got.len();
                assert!(lives != attacker.ended(), "{line}{}: {}", what(&plan), tail(&got));
                assert!(said.len() < 80 && !said.starts_with(b"OK"), "{line}{}", tail(&got));
                let got = rig.ask(&client, b"get kept pwned\r\n", b"END\r\n");
                assert!(got == get_reply("kept", b"it"), "{line}{}", what(&plan));
            }
        }
    }
}

#[test]
fn a_client_of_the_binary_protocol_is_told_and_closed_at_once_where_it_is_not_served() {
    for plan in plans() {
        let mut rig = Rig::new(&Plan { binding: Binding::Ascii, ..plan.clone() });
        // Version, a get of "k", and one whose key is ten bytes long: that is a newline.
        for (opcode, key) in [(0x0b, ""), (0, "k"), (0, "0123456789")] {
            let client = rig.net.connect();
            let mut request = vec![0; 24];
            (request[0], request[1]) = (0x80, opcode);
            (request[3], request[11]) = (key.len() as u8, key.len() as u8);
            request.extend(key.bytes());
            let got = rig.ask(&client, &request, b"\r\n");
            assert!(got.starts_with(b"CLIENT_ERROR the binary protocol"), "{}", tail(&got));
            assert!(client.ended() && got.len() < 120, "{}: {}", what(&plan), tail(&got));
        }
    }
}

#[test]
fn a_value_refused_half_way_is_answered_to_its_own_client() {
    for plan in plans() {
        let plan = Plan { memory_bytes: 16 << 20, item_bytes_max: 6 << 20, ..plan };
        let mut rig = Rig::new(&plan);
        let victim = rig.net.connect();
        rig.set(&victim, "small", b"s");
        let attackers: Vec<Client> = (0..4).map(|_| rig.net.connect()).collect();
        let body = value(5 << 20, 1);
        for (number, attacker) in attackers.iter().enumerate() {
            attacker.send(format!("set a{number} 0 0 {}\r\n", body.len()).as_bytes());
            let mut sent = 0;
            while sent < body.len() {
                sent += attacker.send(&body[sent..]);
                victim.send(b"get small\r\n");
                rig.turns(6);
                assert_eq!(victim.receive(usize::MAX), get_reply("small", b"s"), "{}", what(&plan));
            }
        }
        let mut refused = 0;
        for attacker in &attackers {
            let got = rig.ask(attacker, b"\r\nmn\r\n", b"MN\r\n");
            refused += usize::from(got.starts_with(b"SERVER_ERROR out of memory"));
            assert!(got.starts_with(b"SERVER_ERROR out of memory") || got.starts_with(b"STORED"));
        }
        assert!(refused > 0, "20 MiB went into 16, {}", what(&plan));
    }
}

/// Make `small` workers small and the others what `rest` says.
fn publish(rig: &mut Rig, small: usize, rest: Role) {
    rig.publish(|plan| {
        plan.workers_small = if rest == Role::Large { small } else { plan.roles.len() } as u16;
        for (number, role) in plan.roles.iter_mut().enumerate() {
            *role = if number < small { Role::Small } else { rest };
        }
    });
}

#[test]
fn a_client_that_reads_late_gets_everything_though_its_worker_turned_large() {
    let faults = Faults { pipe_bytes: 10_000, ..Faults::NONE };
    let mut rig = Rig::new(&Plan { faults, ..Plan::of(3, Form::Roles) });
    publish(&mut rig, 2, Role::Large);
    let clients: Vec<Client> = (0..6).map(|_| rig.net.connect()).collect();
    let value = value(9_000, 1);
    rig.set(&clients[0], "k", &value);
    for client in &clients {
        client.send(&b"get k\r\n".repeat(3));
    }
    rig.turns(20); // every reply is blocked now, and no request is left to serve
    publish(&mut rig, 1, Role::Large);
    rig.turns(20);
    publish(&mut rig, 2, Role::Large);
    for client in &clients {
        let wanted = get_reply("k", &value).repeat(3);
        let got = rig.until(client, Vec::new(), |got| got.len() >= wanted.len());
        assert!(got == wanted, "{}", tail(&got));
        assert_eq!(rig.ask(client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
}

#[test]
fn large_requests_are_served_though_the_large_worker_becomes_the_standby() {
    let mut rig = Rig::new(&Plan::of(2, Form::Roles));
    let clients: Vec<Client> = (0..10).map(|_| rig.net.connect()).collect();
    let value = value(1 << 20, 2);
    rig.set(&clients[0], "big", &value);
    let wanted = get_reply("big", &value);
    for round in 0..10 {
        publish(&mut rig, 1, Role::Large);
        rig.turns(1);
        for client in &clients {
            client.send(b"get big\r\n");
        }
        rig.turns(round % 4);
        publish(&mut rig, 1, Role::Standby);
        for client in &clients {
            let got = rig.until(client, Vec::new(), |got| got.len() >= wanted.len());
            assert!(got == wanted, "round {round}: {}", tail(&got));
        }
    }
}

#[test]
fn what_is_pipelined_behind_a_blocked_large_reply_is_answered() {
    for plan in plans() {
        let faults = Faults { pipe_bytes: 5_000, ..Faults::NONE };
        let plan = Plan { faults, ..plan };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let value = value(300_000, 3);
        rig.set(&client, "big", &value);
        client.send(b"get big big\r\nversion\r\nget big\r\nmn\r\n");
        rig.turns(10);
        let two = [&hit("big", &value)[..], &hit("big", &value), b"END\r\n"].concat();
        let wanted =
            [&two[..], b"VERSION 1.6.45-laneway\r\n", &get_reply("big", &value), b"MN\r\n"]
                .concat();
        let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"MN\r\n"));
        assert!(got == wanted, "{}: {}", what(&plan), tail(&got));
    }
}

#[test]
fn a_multiget_of_nothing_but_misses_lets_others_in_between() {
    for plan in plans() {
        let faults = Faults { pipe_bytes: 1 << 20, ..Faults::NONE };
        let plan = Plan { faults, ..plan };
        let mut rig = Rig::new(&plan);
        let (endless, other) = (rig.net.connect(), rig.net.connect());
        rig.turns(3);
        let keys = [&b"get"[..], &b" k".repeat(100_000), b"\r\n"].concat();
        assert_eq!(endless.send(&keys), keys.len());
        let mut between = 0;
        while endless.receive(10).is_empty() {
            other.send(b"mn\r\n");
            rig.turns(2);
            between += usize::from(other.receive(10) == b"MN\r\n");
        }
        assert!(between > 50, "{between} others were served, {}", what(&plan));
    }
}

#[test]
fn half_open_appends_hold_no_more_than_other_values_may() {
    let plan =
        Plan { memory_bytes: 16 << 20, item_bytes_max: 1 << 20, ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let clients: Vec<Client> = (0..20).map(|_| rig.net.connect()).collect();
    let piece = value(900_000, 4);
    for client in &clients {
        rig.send(client, b"append nokey 0 0 1000000\r\n");
        rig.send(client, &piece);
    }
    rig.turns(20);
    let held = rig.shared.store.stats().unpublished_bytes;
    assert!(held > 4 << 20 && held <= 9 << 20, "{held} bytes are held of the 8 MiB allowed");
    clients.iter().for_each(Client::reset);
    rig.turns(20);
    assert_eq!(rig.shared.store.stats().unpublished_bytes, 0);
}

#[test]
fn connections_that_arrive_while_their_worker_turns_large_go_on_to_a_small_one() {
    let mut rig = Rig::new(&Plan::of(3, Form::Roles));
    publish(&mut rig, 2, Role::Large);
    rig.turns(1);
    let clients: Vec<Client> = (0..4).map(|_| rig.net.connect()).collect();
    rig.workers[0].step().expect("memory transports do not fail"); // two of them are in the mail
    publish(&mut rig, 1, Role::Large);
    rig.turns(5);
    for client in &clients {
        assert_eq!(rig.ask(client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
    rig.turns(5);
    let home = |number: usize| {
        let connections = &rig.shared.workers[number].connections;
        connections.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!((home(0), home(1)), (4, 0));
}

/// A multiget without its end, nearly as long as one may be, and what is told where it has no room.
fn half_multigets() -> [(Vec<u8>, &'static str); 2] {
    let text = [&b"get"[..], &b" key".repeat(250_000)].concat();
    let resp = [&b"*200001\r\n$4\r\nMGET\r\n"[..], &b"$3\r\nkey\r\n".repeat(110_000)].concat();
    [
        (text, "SERVER_ERROR out of memory reading request\r\n"),
        (resp, "-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
    ]
}

#[test]
fn half_multigets_of_many_connections_stay_within_the_memory_limit() {
    let plans = || rig::plans_of_lanes().into_iter();
    for ((half, no_room), plan) in
        half_multigets().iter().flat_map(|asked| plans().map(move |plan| (asked, plan)))
    {
        let what = format!("{}, told {no_room:?}", what(&plan));
        let mut rig = Rig::new(&Plan { connections_max: 100, ..plan });
        let clients: Vec<Client> = (0..40).map(|_| rig.net.connect()).collect();
        let mut refused = 0;
        for client in &clients {
            let mut sent = 0;
            for _ in 0..1000 {
                sent += client.send(&half[sent..]);
                rig.turn();
                if sent == half.len() || client.ended() {
                    break;
                }
            }
            rig.turns(3);
            if client.ended() {
                let told = client.receive(usize::MAX);
                assert_eq!(String::from_utf8_lossy(&told), *no_room, "{what}");
                refused += 1;
            }
        }
        let held = rig.shared.store.stats().unpublished_bytes;
        assert!(held <= 32 << 20, "{held} bytes, {what}");
        assert!(refused >= 40 - 32, "{refused} were refused, {what}");
        // Others are served meanwhile, and what was taken is given back.
        let other = rig.net.connect();
        assert_eq!(rig.ask(&other, b"mn\r\n", b"\r\n"), b"MN\r\n", "{what}");
        for client in clients.iter().filter(|client| !client.ended()) {
            client.reset();
        }
        rig.turns(20);
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
        assert_eq!(rig.ask(&other, b"mn\r\n", b"\r\n"), b"MN\r\n", "{what}");
    }
}

/// A request without its end, the end, and the reply.
const HALVES: [(&[u8], &[u8], &[u8]); 4] = [
    (b"get hal", b"f\r\n", b"END\r\n"),
    (b"set key 0 0 4\r\nha", b"lf\r\n", b"STORED\r\n"),
    (b"mg half v", b" t\r\n", b"EN\r\n"),
    (b"*2\r\n$3\r\nGET\r\n$4\r\nha", b"lf\r\n", b"$-1\r\n"),
];

#[test]
fn ten_thousand_connections_with_half_a_request_each_hold_up_nobody() {
    const CONNECTIONS: usize = 10_000;
    for plan in
        [(1, Form::TimeShare), (6, Form::Roles)].map(|(workers, form)| Plan::of(workers, form))
    {
        let what = what(&plan);
        let mut rig = Rig::new(&Plan { connections_max: CONNECTIONS + 10, ..plan });
        let other = rig.net.connect();
        rig.set(&other, "kept", b"it");
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for (half, ..) in HALVES.iter().cycle().take(CONNECTIONS) {
            let client = rig.net.connect();
            assert_eq!(client.send(half), half.len());
            clients.push(client);
            if clients.len() % 100 == 0 {
                rig.turn();
                let before = rig.steps;
                let got = rig.ask(&other, b"get kept\r\n", b"END\r\n");
                assert!(got == get_reply("kept", b"it"), "{what}: {}", tail(&got));
                let waited = rig.steps - before;
                assert!(waited <= 16, "{waited} turns beside {}, {what}", clients.len());
            }
        }
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
        for (client, (_, end, _)) in clients.iter().zip(HALVES.iter().cycle()) {
            client.send(end);
        }
        for (client, (half, _, reply)) in clients.iter().zip(HALVES.iter().cycle()) {
            let got = rig.until(client, Vec::new(), |got| got.len() >= reply.len());
            assert!(got == *reply, "{} has {}, {what}", tail(half), tail(&got));
        }
    }
}

/// A client asks on and on and reads nothing: no more of its requests are taken than buffers hold,
/// and few of the values that it asked for are kept.
#[test]
fn a_million_large_gets_whose_replies_nobody_reads_take_no_memory_and_hold_up_nobody() {
    const LARGE: usize = 1 << 20;
    let asked = b"get big\r\n".repeat(1_000_000);
    let small = get_reply("small", b"s");
    for plan in rig::plans_of_lanes().into_iter().chain(rig::one_of_each_design()) {
        let what = what(&plan);
        let mut rig = Rig::new(&plan);
        let (stuck, other) = (rig.net.connect(), rig.net.connect());
        rig.set(&other, "small", b"s");
        let mut taken = 0;
        for round in 0..8 {
            // What was stored before is kept for as long as somebody is being sent it.
            rig.set(&other, "big", &value(LARGE, round));
            for _ in 0..20 {
                taken += stuck.send(&asked[taken..]);
                rig.turn();
            }
            let got = rig.ask(&other, b"get small\r\n", b"END\r\n");
            assert!(got == small, "{what}: {}", tail(&got));
            let kept = rig.shared.store.stats().pinned_dead_bytes;
            assert!(kept <= 4 * LARGE as u64, "{kept} bytes are kept in round {round}, {what}");
        }
        assert!(taken <= 256 << 10, "{taken} bytes of requests were taken, {what}");
        stuck.reset();
        rig.turns(20);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0, "{what}");
        let got = rig.ask(&other, b"get big\r\n", b"END\r\n");
        assert!(got == get_reply("big", &value(LARGE, 7)), "{what}");
    }
}

#[test]
fn who_stops_in_the_middle_of_a_value_is_idle_and_who_is_sent_one_is_not() {
    const LARGE: usize = 1 << 20;
    for plan in rig::plans_of_lanes() {
        let what = what(&plan);
        let mut rig = Rig::new(&Plan { idle_timeout: Duration::from_secs(10), ..plan });
        let (writer, reader) = (rig.net.connect(), rig.net.connect());
        rig.set(&reader, "large", &value(LARGE, 1));
        reader.send(b"get large\r\n");
        let request = set_request("stalled", &value(LARGE, 2));
        let mut sent = 0;
        for _ in 0..200 {
            sent += writer.send(&request[sent..LARGE / 2]);
            rig.turn();
        }
        assert_eq!(sent, LARGE / 2, "{what}");
        assert!(0 < rig.shared.store.stats().unpublished_bytes, "{what}");
        // One reads nothing, the other sends nothing.
        for _ in 0..30 {
            rig.clock.advance(1_000_000_000);
            rig.turns(3);
        }
        assert!(writer.ended(), "{what}");
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
        let got = rig.until(&reader, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert!(got == get_reply("large", &value(LARGE, 1)), "{what}");
        // Nor has it been since it asked.
        for _ in 0..3 {
            rig.clock.advance(1_000_000_000);
            rig.turns(3);
        }
        assert_eq!(rig.ask(&reader, b"mn\r\n", b"\r\n"), b"MN\r\n", "{what}");
    }
}
