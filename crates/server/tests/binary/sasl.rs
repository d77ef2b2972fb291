//! Users, by the binary protocol: who has not said who it is asks nothing, and who has asks all.

use laneway_policy::Form;
use laneway_rig::binary::{get, noop, replies, request, set};
use laneway_rig::{Plan, Rig, value};
use laneway_server::settings::Binding;
use laneway_wire::binary::Opcode;
use laneway_wire::binary::reply::Status;

fn plans() -> [Plan; 2] {
    let plan = Plan { users: Some("alice:secret"), ..Plan::of(3, Form::Roles) };
    [plan.clone(), Plan { binding: Binding::Binary, ..plan }]
}

fn auth(message: &[u8]) -> Vec<u8> {
    request(Opcode::SaslAuth, b"", b"PLAIN", message)
}

#[test]
fn a_client_asks_once_it_has_said_who_it_is() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let mechanisms = request(Opcode::SaslList, b"", b"", b"");
        assert_eq!(rig.say_binary(&client, &mechanisms).value, b"PLAIN");
        let wrong = rig.say_binary(&client, &auth(b"\0alice\0guess"));
        assert_eq!((wrong.status, &*wrong.value), (0x20, &b"Auth failure."[..]));
        // What stands behind the password is served, a large value too.
        let big = value(300_000, 1);
        let requests = [auth(b"\0alice\0secret"), set(b"k", &big), get(b"k")].concat();
        let told = rig.ask_binary(&client, &requests, 3);
        assert_eq!((told[0].status, &*told[0].value), (0, &b"Authenticated"[..]));
        assert_eq!(told[1].status, 0);
        assert!(told[2].value == big);
    }
}

#[test]
fn who_asks_before_that_is_refused_and_closed() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        for asked in [get(b"k"), noop(), set(b"k", b"v"), set(b"k", &value(100_000, 2))] {
            let client = rig.net.connect();
            client.send(&asked);
            rig.turns(20);
            let got = client.receive(usize::MAX);
            let told = replies(&got).0;
            assert_eq!((told.len(), told[0].status), (1, Status::Refused as u16));
            assert!(client.ended());
        }
        assert_eq!(rig.shared.store.stats().items, 0);
    }
}

/// Who says anew who it is has not said it until it is found right.
#[test]
fn a_second_password_that_is_wrong_takes_the_first_back() {
    let mut rig = Rig::new(&plans()[0]);
    let client = rig.net.connect();
    assert_eq!(rig.say_binary(&client, &auth(b"\0alice\0secret")).status, 0);
    assert_eq!(rig.say_binary(&client, &noop()).status, 0);
    assert_eq!(rig.say_binary(&client, &auth(b"\0alice\0secret")).status, 0);
    assert_eq!(rig.say_binary(&client, &noop()).status, 0);
    assert_eq!(rig.say_binary(&client, &auth(b"\0alice\0guess")).status, 0x20);
    assert_eq!(rig.say_binary(&client, &noop()).status, 0x20);
    rig.turns(5);
    assert!(client.ended());
}
