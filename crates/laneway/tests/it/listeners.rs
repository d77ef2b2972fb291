//! Read-only ports, and how many connections an address may have, of the binary.

use crate::rig::{Process, ask, stat};
use std::io::Read;
use std::net::TcpStream;

fn connect(place: &str) -> TcpStream {
    let place = place.rsplit_once("readonly:").map_or(place, |(_, place)| place);
    let place = place.rsplit_once("resp:").map_or(place, |(_, place)| place);
    TcpStream::connect(place).expect("it serves")
}

#[test]
fn a_read_only_port_reads_what_another_port_writes() {
    let flags = ["-p", "-1", "-l", "readonly:127.0.0.1,127.0.0.1,127.0.0.2"];
    let server = Process::serve(&flags);
    let places = server.places();
    assert_eq!(places.len(), 3, "{places:?}");
    let read_only: Vec<bool> = places.iter().map(|place| place.starts_with("readonly:")).collect();
    assert_eq!(read_only, [true, false, false], "{places:?}");
    let (mut reader, mut writer) = (connect(places[0]), connect(places[1]));
    assert_eq!(ask(&mut writer, b"set k 0 0 5\r\nvalue\r\n", b"\r\n"), b"STORED\r\n");
    let refused = b"CLIENT_ERROR this port is read-only\r\n";
    assert_eq!(ask(&mut reader, b"set k 0 0 3\r\nnew\r\n", b"\r\n"), refused);
    let hit = b"VALUE k 0 5\r\nvalue\r\nEND\r\n";
    assert_eq!(ask(&mut reader, b"get k\r\n", b"END\r\n"), hit);
    assert_eq!(stat(&mut reader, "settings", "read_only_ports"), 1);
    server.stop();
}

#[test]
fn a_port_for_redis_clients_is_read_only_as_its_address_is() {
    let server = Process::serve(&["-p", "-1", "-l", "readonly:127.0.0.1", "--resp", "0"]);
    let places = server.places();
    assert!(places[1].starts_with("readonly:resp:"), "{places:?}");
    let mut client = connect(places[1]);
    let refused = b"-READONLY You can't write against a read only replica.\r\n";
    assert_eq!(ask(&mut client, b"SET k v\r\n", b"\r\n"), refused);
    assert_eq!(ask(&mut client, b"GET k\r\n", b"\r\n"), b"$-1\r\n");
    server.stop();
}

#[test]
fn who_comes_by_a_port_with_a_limit_waits_and_the_others_do_not() {
    let server = Process::serve(&["-p", "-1", "-l", "rate=20:127.0.0.1,127.0.0.1"]);
    let places = server.places();
    let [mut limited, mut other] = [0, 1].map(|number| connect(places[number]));
    // Three at once, and one each 50 ms.
    let ten = b"mn\r\n".repeat(10);
    assert_eq!(ask(&mut limited, &ten, &b"MN\r\n".repeat(10)), b"MN\r\n".repeat(10));
    assert!(stat(&mut other, "", "listener_throttled") > 0);
    assert_eq!(stat(&mut other, "", "client_throttled"), 0);
    assert_eq!(stat(&mut other, "settings", "limited_ports"), 1);
    server.stop();
}

#[test]
fn an_address_has_no_more_connections_than_it_may() {
    let server = Process::here(&["--connections-per-address", "2"]);
    let place = server.places()[0].to_owned();
    let (mut first, mut second) = (connect(&place), connect(&place));
    assert_eq!(ask(&mut first, b"mn\r\n", b"\r\n"), b"MN\r\n");
    assert_eq!(ask(&mut second, b"mn\r\n", b"\r\n"), b"MN\r\n");
    let mut told = String::new();
    connect(&place).read_to_string(&mut told).expect("it is told, and closed");
    assert_eq!(told, "ERROR Too many open connections of this address\r\n");
    server.stop();
}
