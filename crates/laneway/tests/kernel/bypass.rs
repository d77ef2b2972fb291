//! Datagrams past the kernel's stack.

use crate::hosts::{self, Host, INTERFACE};
use crate::servers::{
    ADDRESS, BINARY, Client, PUBLIC, Server, bypass_available, value, without_rights,
};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;

/// What a client far away asks for past the stack here, by two RX queues.
const BYPASS: [&str; 4] = ["-t", "2", "--af-xdp", INTERFACE];

/// A message in frames of memcached's format.
fn frames(id: u8, message: &[u8]) -> Vec<Vec<u8>> {
    let chunks: Vec<&[u8]> = message.chunks(1392).collect();
    let total = chunks.len() as u16;
    let frame = |(number, chunk): (usize, &&[u8])| {
        let [high, low] = (number as u16).to_be_bytes();
        let [total_high, total_low] = total.to_be_bytes();
        [&[0, id, high, low, total_high, total_low, 0, 0], *chunk].concat()
    };
    chunks.iter().enumerate().map(frame).collect()
}

/// Set and get a value of many frames, by a socket whose address the server comes to believe.
fn large_both_ways(socket: &UdpSocket) {
    let hear = || {
        let mut room = [0; 2048];
        let bytes = socket.recv(&mut room).expect("a datagram within a minute");
        room[..bytes].to_vec()
    };
    let large: Vec<u8> = (0..60_000_u32).map(|at| b'a' + (at * 7 + at / 251) as u8 % 26).collect();
    let set = [&b"set large 0 0 60000\r\n"[..], &large, b"\r\n"].concat();
    let send =
        |frame: &[u8]| assert_eq!(socket.send_to(frame, ADDRESS).expect("sent"), frame.len());
    send(&frames(9, b"stats topology\r\n")[0]);
    let cookie = hear();
    assert!(cookie[8..].starts_with(b"ERROR cookie "), "{cookie:?}");
    send(&cookie); // the kind of an echo is that of the cookie, in its header's last bytes
    frames(1, &set).iter().for_each(|frame| send(frame));
    assert_eq!(hear()[8..], *b"STORED\r\n");
    send(&frames(2, b"get large\r\n")[0]);
    let mut parts = BTreeMap::new();
    let expected = [&b"VALUE large 0 60000\r\n"[..], &large, b"\r\nEND\r\n"].concat();
    let total = frames(2, &expected).len();
    while parts.len() < total {
        let part = hear();
        parts.insert(u16::from_be_bytes([part[2], part[3]]), part[8..].to_vec());
    }
    assert!(parts.into_values().flatten().eq(expected), "another value came back");
}

#[test]
fn datagrams_come_and_leave_past_the_stack_small_and_large() {
    if !bypass_available() {
        return;
    }
    let (server_host, client_host) = hosts::connected_by(2);
    let server = Server::start(&server_host, &[&PUBLIC[..], &BYPASS].concat());
    let told = "comes past the stack, by 2 RX queues, copied by the kernel";
    assert!(server.said.contains(told), "{}", server.said);
    let mut client = Client::new(&client_host, "10.9.0.2:0", ADDRESS);
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    for number in 0..20 {
        let socket = client_host.socket("10.9.0.2:0");
        assert_eq!(hosts::ask(&socket, ADDRESS, "get key\r\n"), value("key", "value"));
        let text = format!("set k{number} 0 0 1\r\nx\r\n");
        assert_eq!(hosts::ask(&socket, ADDRESS, &text), "STORED\r\n");
        assert_eq!(client.udp(&format!("get k{number}\r\n")), value(&format!("k{number}"), "x"));
    }
    large_both_ways(&client_host.socket("10.9.0.2:0"));
    let stats = client.stats("kernel");
    let count = |name: &str| stats[&format!("af_xdp:{name}")].parse::<u64>().expect("a number");
    assert_eq!((&stats["af_xdp"][..], &stats["af_xdp:queues"][..]), ("yes", "2"));
    assert!(count("received") >= 60 + 44 && count("sent") >= 60 + 44, "{stats:?}");
    for name in ["dropped:checksum", "dropped:length", "invalid_descriptors", "sent_by_stack"] {
        assert_eq!(count(name), 0, "{name}: {stats:?}");
    }
    server.stop();
}

#[test]
fn workers_poll_the_driver_where_the_kernel_lets_them_and_serve_in_any_case() {
    if !bypass_available() {
        return;
    }
    let (server_host, client_host) = hosts::connected_by(2);
    let flags = [&PUBLIC[..], &BYPASS, &["--af-xdp-busy-poll"]].concat();
    let server = Server::start(&server_host, &flags);
    // A kernel without it is told of once.
    let is_polled = server.said.contains("; workers poll its driver");
    let refusals = server.said.matches("without --af-xdp-busy-poll").count();
    assert_eq!(refusals, usize::from(!is_polled), "{}", server.said);
    let mut client = Client::new(&client_host, "10.9.0.2:0", ADDRESS);
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    for _ in 0..20 {
        let socket = client_host.socket("10.9.0.2:0");
        assert_eq!(hosts::ask(&socket, ADDRESS, "get key\r\n"), value("key", "value"));
    }
    let stats = client.stats("kernel");
    assert_eq!(stats["af_xdp:busy_poll"] == "yes", is_polled);
    assert!(stats["af_xdp:received"].parse::<u64>().expect("a number") >= 20, "{stats:?}");
    server.stop();
}

/// Clients of the same host ask by its loopback, and those of others past the stack.
#[test]
fn a_lane_and_steering_serve_what_comes_by_another_interface_than_past_the_stack() {
    if !bypass_available() {
        return;
    }
    let (server_host, client_host) = hosts::connected_by(2);
    let together = ["--kernel-lane", "lo", "--kernel-lane-peers", "10.9.0.1", "--steer"];
    let hkh = ["--design", "hkh", "--access", "erew"];
    let flags = [&PUBLIC[..], &BYPASS, &together, &hkh].concat();
    let server = Server::start(&server_host, &flags);
    let mut client = Client::new(&client_host, "10.9.0.2:0", ADDRESS);
    let here = server_host.socket("10.9.0.1:0");
    // Which worker its datagrams come to hangs on its port; another than the owner of the key
    // serves nobody who has not proved an address.
    hosts::prove(&client.udp, ADDRESS);
    assert_eq!(client.udp("set key 0 0 5\r\nvalue\r\n"), "STORED\r\n");
    let before = client.count("kernel", "af_xdp:received");
    let counts = |client: &mut Client| {
        let names = ["hits", "steered", "af_xdp:received"];
        let [hits, steered, received] = names.map(|name| client.count("kernel", name));
        [hits, steered, received - before]
    };
    assert_eq!(client.udp("get key\r\n"), value("key", "value"));
    assert_eq!(counts(&mut client), [0, 0, 1], "the lane sees nothing of it");
    assert_eq!(hosts::ask(&here, ADDRESS, "get key\r\n"), value("key", "value"));
    assert_eq!(counts(&mut client), [1, 0, 1], "no socket sees it");
    assert_eq!(hosts::ask(&here, ADDRESS, "set key 0 0 2\r\nv2\r\n"), "STORED\r\n");
    assert_eq!(counts(&mut client), [1, 1, 1], "its owner's socket does");
    assert_eq!(client.udp("get key\r\n"), value("key", "v2"));
    server.stop();
}

#[test]
fn one_address_is_served_past_the_stack_at_two_interfaces() {
    if !bypass_available() {
        return;
    }
    let (server_host, client_host) = hosts::connected_by(2);
    let other_host = Host::new();
    hosts::join(&server_host, &other_host, ["lane2", "lane3"], 2);
    for (host, interface, number) in [(&server_host, "lane2", 1), (&other_host, "lane3", 2)] {
        host.ip(&format!("addr add 10.9.1.{number}/24 dev {interface}"));
        host.ip(&format!("link set {interface} up"));
    }
    other_host.ip("route add 10.9.0.1/32 dev lane3");
    let both = ["-t", "2", "--af-xdp", "lane0,lane2"];
    let server = Server::start(&server_host, &[&PUBLIC[..], &both].concat());
    let told = "UDP at lane0,lane2 comes past the stack, by 4 RX queues";
    assert!(server.said.contains(told), "{}", server.said);
    let mut client = Client::new(&client_host, "10.9.0.2:0", ADDRESS);
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    for _ in 0..10 {
        for (host, from) in [(&client_host, "10.9.0.2:0"), (&other_host, "10.9.1.2:0")] {
            let socket = host.socket(from);
            assert_eq!(hosts::ask(&socket, ADDRESS, "get key\r\n"), value("key", "value"));
        }
    }
    let stats = client.stats("kernel");
    let count = |name: &str| stats[&format!("af_xdp:{name}")].parse::<u64>().expect("a number");
    assert_eq!(&stats["af_xdp:interface"], "lane0,lane2");
    assert_eq!((count("queues"), count("sent_by_stack")), (4, 0), "{stats:?}");
    assert_eq!((count("received"), count("sent")), (20, 20), "{stats:?}");
    server.stop();
}

#[test]
fn nothing_of_the_way_past_the_stack_is_left_when_the_server_is_killed() {
    if !bypass_available() {
        return;
    }
    let (server_host, client_host) = hosts::connected_by(2);
    for _ in 0..2 {
        let mut server = Server::start(&server_host, &[&PUBLIC[..], &BYPASS].concat());
        let socket = client_host.socket("10.9.0.2:0");
        assert_eq!(hosts::ask(&socket, ADDRESS, "get key\r\n"), "END\r\n");
        server.child.kill().expect("it runs");
        server.child.wait().expect("it can be waited for");
    }
    // Sockets by the stack hear what came past it before.
    let plain = Server::start(&server_host, &PUBLIC);
    let socket = client_host.socket("10.9.0.2:0");
    assert_eq!(hosts::ask(&socket, ADDRESS, "get key\r\n"), "END\r\n");
    plain.stop();
}

#[test]
fn the_way_past_the_stack_is_refused_with_the_way_out() {
    if !bypass_available() {
        return;
    }
    let (host, _client) = hosts::connected_by(2);
    let flags = ["--udp-listen", "10.9.0.1", "--udp-public", "--af-xdp"];
    let (status, said) = without_rights(&host, &[&flags[..], &[INTERFACE]].concat());
    assert_eq!(status, Some(71), "{said}");
    assert!(said.contains("lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_NET_RAW"), "{said}");
    let rights = "cap_bpf,cap_net_admin,cap_perfmon,cap_net_raw+ep";
    assert!(said.contains(&format!("`setcap {rights} {BINARY}`")), "{said}");
    for (interface, workers, way_out) in [
        (INTERFACE, "3", "it has 2 RX queues, and there are 3 workers"),
        ("lo", "1", "it is no Ethernet interface"),
        ("nowhere0", "1", "there are lane0, lo"),
    ] {
        let mut command = Command::new(BINARY);
        command.args(["serve", "-p", "11211", "-l", "127.0.0.1", "-U", "11211"]);
        command.args(flags).args([interface, "-t", workers]);
        let output = host.run(|| command.output()).expect("the binary was built for this test");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{told}");
        assert!(told.contains(interface) && told.contains(way_out), "{told}");
    }
}
