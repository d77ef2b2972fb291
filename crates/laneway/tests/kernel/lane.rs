//! The lane: what it answers, when it is refused, and that nothing of it stays behind.

use crate::hosts::{self, Host, INTERFACE};
use crate::servers::{
    ADDRESS, BINARY, Client, HANG, LANE, PUBLIC, Server, available, over_the_wire, value,
    without_rights,
};
use laneway_kernel::ethtool;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn what_was_written_by_tcp_or_udp_is_what_the_next_get_returns() {
    if !available() {
        return;
    }
    let (_hosts, _more, server, mut client) = over_the_wire(&LANE);
    for round in 0..200 {
        let (key, by_tcp) = (format!("key{}", round % 7), format!("tcp {round}"));
        let set = |text: &str| format!("set {key} 0 0 {}\r\n{text}\r\n", text.len());
        assert_eq!(client.tcp(&set(&by_tcp), "STORED"), "STORED\r\n");
        assert_eq!(client.udp(&format!("get {key}\r\n")), value(&key, &by_tcp));
        let by_udp = format!("over udp {round}");
        assert_eq!(client.udp(&set(&by_udp)), "STORED\r\n");
        assert_eq!(client.udp(&format!("get {key}\r\n")), value(&key, &by_udp));
        let meta = client.udp(&format!("mg {key} v s\r\n"));
        assert_eq!(meta, format!("VA {} s{}\r\n{by_udp}\r\n", by_udp.len(), by_udp.len()));
    }
    assert_eq!(client.hits(), 600, "none of them came to the server");
    for (change, reply, expected) in [
        ("set key 0 0 2\r\n41\r\n", "STORED\r\n", "41"),
        ("incr key 1\r\n", "42\r\n", "42"),
        ("append key 0 0 1\r\n7\r\n", "STORED\r\n", "427"),
        ("prepend key 0 0 1\r\n1\r\n", "STORED\r\n", "1427"),
        ("replace key 0 0 1\r\nr\r\n", "STORED\r\n", "r"),
        ("ms key 3 T0\r\nabc\r\n", "HD\r\n", "abc"),
    ] {
        assert_eq!(client.tcp(change, reply.trim_end()), reply, "{change}");
        assert_eq!(client.udp("get key\r\n"), value("key", expected), "after {change}");
    }
    assert_eq!(client.tcp("delete key\r\n", "DELETED"), "DELETED\r\n");
    assert_eq!(client.udp("get key\r\n"), "END\r\n");
    assert_eq!(client.tcp("set key 0 0 1\r\nx\r\n", "STORED"), "STORED\r\n");
    assert_eq!(client.tcp("flush_all\r\n", "OK"), "OK\r\n");
    for key in ["key", "key0", "key6"] {
        assert_eq!(client.udp(&format!("get {key}\r\n")), "END\r\n");
    }
    server.stop();
}

#[test]
fn several_keys_are_answered_in_the_kernel_as_the_server_answers_them() {
    if !available() {
        return;
    }
    let (_hosts, _more, server, mut client) = over_the_wire(&LANE);
    let long = "k".repeat(240);
    for (key, value) in [("number:one", "1"), ("number:two", "22"), (&long, "long"), ("empty", "")]
    {
        let set = format!("set {key} 7 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(client.tcp(&set, "STORED"), "STORED\r\n");
    }
    // Names so long that a reply is less than three times its request: to strangers longer ones
    // are not sent by the server.
    let many = |count: usize| ["number:one", "number:two"].repeat(count)[..count].join(" ");
    let rows = [
        (many(2), 2),
        (format!("empty {long} number:one"), 3),
        ("number:one number:one number:two number:one".to_owned(), 4),
        (many(16), 16),
        (format!("{long} {long} {long} {long}"), 4),
        // These are the server's: all keys or none.
        ("number:one never number:two".to_owned(), 0),
        ("number:one number:two never".to_owned(), 0),
        (many(17), 0),
        ("number:one  number:two".to_owned(), 0),
        (format!("{long} {long} {long} {long} {long}"), 0),
    ];
    let mut hits = 0;
    for (keys, in_the_kernel) in rows {
        let request = format!("get {keys}\r\n");
        let by_tcp = client.tcp(&request, "END");
        assert_eq!(client.udp(&request), by_tcp, "{keys}");
        hits += in_the_kernel;
        assert_eq!(client.hits(), hits, "{keys}");
    }
    assert_eq!(client.count("kernel", "datagrams"), 5);
    // Every key is a GET, wherever it was answered: by TCP as many as by UDP.
    let keys = 2 * (2 + 3 + 4 + 16 + 4 + 3 + 3 + 17 + 2 + 5);
    assert_eq!(client.count("", "cmd_get"), keys);
    assert_eq!(client.count("", "get_misses"), 4);
    server.stop();
}

#[test]
fn items_end_when_their_time_is_up() {
    if !available() {
        return;
    }
    let (_hosts, _more, _server, mut client) = over_the_wire(&LANE);
    let began = Instant::now();
    client.tcp("set soon 0 2 1\r\nx\r\n", "STORED");
    client.tcp("set later 0 1000 1\r\nx\r\n", "STORED");
    client.tcp("set past 0 -1 1\r\nx\r\n", "STORED");
    assert_eq!(client.udp("get past\r\n"), "END\r\n");
    while client.udp("get soon\r\n") == value("soon", "x") {
        assert!(began.elapsed() < HANG, "it never ends");
    }
    assert!(began.elapsed() > Duration::from_millis(500), "it had a second at least");
    assert_eq!(client.udp("get later\r\n"), value("later", "x"));
    assert_eq!(client.tcp("touch later -1\r\n", "TOUCHED"), "TOUCHED\r\n");
    assert_eq!(client.udp("get later\r\n"), "END\r\n");
}

#[test]
fn hits_are_counted_wherever_gets_are_counted() {
    if !available() {
        return;
    }
    let (_hosts, _more, _server, mut client) = over_the_wire(&LANE);
    client.tcp("set key 0 0 20\r\nvvvvvvvvvvvvvvvvvvvv\r\n", "STORED");
    for _ in 0..5 {
        client.udp("get key\r\n");
    }
    client.udp("get other\r\n");
    client.udp("gets other\r\n");
    let lane = client.stats("kernel");
    let told = |name: &str| lane.get(name).map(String::as_str);
    assert_eq!(told("kernel_lane"), Some("yes"));
    assert_eq!(told("interfaces"), Some(INTERFACE));
    assert_eq!((told("hits"), told("hits:from_16_bytes")), (Some("5"), Some("5")));
    assert_eq!((told("passed:miss"), told("passed:request")), (Some("1"), Some("1")));
    assert_eq!(told("memory_bytes"), Some("16777216"));
    let general = client.stats("");
    assert_eq!((&general["get_hits"][..], &general["cmd_get"][..]), ("5", "7"));
    assert_eq!(client.stats("latency")["get:kernel:count"], "5");
    assert_eq!(client.tcp("stats reset\r\n", "RESET"), "RESET\r\n");
    assert_eq!((client.hits(), &client.stats("")["get_hits"][..]), (0, "0"));
    client.udp("get key\r\n");
    assert_eq!((client.hits(), &client.stats("")["get_hits"][..]), (1, "1"));
    // h: was it fetched since it was stored? Yes, in the kernel.
    client.tcp("set key 0 0 1\r\nx\r\n", "STORED");
    assert_eq!(client.tcp("mg key h\r\n", "HD"), "HD h0\r\n");
    client.tcp("set key 0 0 1\r\nx\r\n", "STORED");
    client.udp("get key\r\n");
    assert_eq!(client.tcp("mg key h\r\n", "HD"), "HD h1\r\n");
}

#[test]
fn a_stopped_server_still_answers_what_it_holds() {
    if !available() {
        return;
    }
    let (_hosts, _more, server, mut client) = over_the_wire(&LANE);
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    server.signal("STOP");
    let began = Instant::now();
    while !server.is_stopped() {
        assert!(began.elapsed() < HANG, "it does not stop");
        std::thread::yield_now();
    }
    for _ in 0..1000 {
        assert_eq!(client.udp("get key\r\n"), value("key", "value"));
    }
    // A miss is the server's to answer, and waits until it goes on.
    client.udp.send_to(&hosts::datagram("get other\r\n"), ADDRESS).expect("sent");
    client.udp.set_nonblocking(true).expect("an option");
    assert!(client.udp.recv(&mut [0; 64]).is_err(), "nobody could answer this");
    client.udp.set_nonblocking(false).expect("an option");
    assert!(server.is_stopped());
    server.signal("CONT");
    assert_eq!(hosts::heard(&client.udp).0, "END\r\n");
    server.stop();
}

#[test]
fn a_server_that_is_killed_leaves_nothing_behind() {
    if !available() {
        return;
    }
    let flags = [LANE[0], LANE[1], LANE[2], LANE[3], "--steer"];
    let (server_host, _client_host, mut server, mut client) = over_the_wire(&flags);
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    assert_eq!(client.udp("get key\r\n"), value("key", "value"));
    server.child.kill().expect("it runs");
    server.child.wait().expect("it can be waited for");
    // Whoever listens there next gets every datagram.
    let listening = server_host.socket(ADDRESS);
    for _ in 0..10 {
        client.udp.send_to(&hosts::datagram("get key\r\n"), ADDRESS).expect("sent");
        let (heard, from) = hosts::heard(&listening);
        assert_eq!(heard, "get key\r\n");
        assert_eq!(from, client.udp.local_addr().expect("an address"));
    }
    // And a new server begins anew.
    drop(listening);
    let again = Server::start(&server_host, &[&PUBLIC[..], &flags].concat());
    assert_eq!(client.udp("get key\r\n"), "END\r\n");
    again.stop();
}

#[test]
fn loopback_is_served_too_and_strangers_never() {
    if !available() {
        return;
    }
    let host = Host::new();
    let server = Server::start(&host, &["-U", "11211", "--kernel-lane", "lo"]);
    let mut client = Client::new(&host, "127.0.0.1:0", "127.0.0.1:11211");
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    assert_eq!(client.udp("get key\r\n"), value("key", "value"));
    assert_eq!(client.hits(), 1);
    server.stop();
    let peers = ["--kernel-lane", "lo", "--kernel-lane-peers", "127.7.0.0/16"];
    let server = Server::start(&host, &[&["-U", "11211"], &peers[..]].concat());
    let mut client = Client::new(&host, "127.0.0.1:0", "127.0.0.1:11211");
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    assert_eq!(client.udp("get key\r\n"), value("key", "value"));
    assert_eq!(client.hits(), 0);
    assert_eq!(client.stats("kernel")["passed:stranger"], "1");
    client.udp = host.socket("127.7.1.2:0");
    assert_eq!(client.udp("get key\r\n"), value("key", "value"));
    assert_eq!(client.hits(), 1);
    server.stop();
}

#[test]
fn queues_that_clients_choose_are_served_like_the_ordinary_port() {
    if !available() {
        return;
    }
    let host = Host::new();
    let flags = ["-U", "11211", "--udp-base", "7000", "-t", "3", "--kernel-lane", "lo"];
    let _server = Server::start(&host, &flags);
    let mut client = Client::new(&host, "127.0.0.1:0", "127.0.0.1:11211");
    client.tcp("set key 0 0 5\r\nvalue\r\n", "STORED");
    for to in ["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:11211"] {
        assert_eq!(hosts::ask(&client.udp, to, "get key\r\n"), value("key", "value"), "{to}");
    }
    assert_eq!(client.hits(), 4);
}

#[test]
fn without_the_right_to_it_the_lane_is_refused_with_the_command_and_steering_done_without() {
    if !available() {
        return;
    }
    let host = Host::new();
    let (status, said) = without_rights(&host, &["--kernel-lane", "lo"]);
    assert_eq!(status, Some(71), "{said}");
    assert!(said.contains("lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"), "{said}");
    let command = format!("`setcap cap_bpf,cap_net_admin,cap_perfmon+ep {BINARY}`");
    assert!(said.contains(&command), "{said}");
    let (_, said) = without_rights(&host, &["--steer"]);
    assert!(said.contains("ready on") && said.contains("handed over in software"), "{said}");
    // What is done without costs no sandbox.
    assert!(!said.contains("in no sandbox, since --steer"), "{said}");
}

#[test]
fn an_interface_that_is_not_there_is_refused_and_the_others_are_named() {
    if !available() {
        return;
    }
    let host = Host::new();
    let mut command = Command::new(BINARY);
    command.args(["serve", "-p", "11211", "-l", "127.0.0.1", "-U", "11211"]);
    command.args(["--udp-listen", "0.0.0.0", "--udp-public", "--kernel-lane", "nowhere0"]);
    command.args(["--kernel-lane-peers", "10.9.0.0/24"]);
    let output = host.run(|| command.output()).expect("the binary was built for this test");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{told}");
    assert!(told.contains("nowhere0") && told.contains("there are lo"), "{told}");
}

#[test]
fn what_an_interface_does_with_packets_before_the_lane_is_refused_with_the_way_out() {
    if !available() {
        return;
    }
    let (host, _client) = hosts::connected();
    let refused = |flags: &[&str], way_out: &str| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "-p", "11211", "-l", "127.0.0.1"]).args(PUBLIC).args(LANE);
        let output = host.run(|| command.args(flags).output()).expect("it was built");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{told}");
        assert!(told.contains(way_out), "{told}");
    };
    // Virtual Ethernet takes tags off, as most cards do until they are told not to.
    refused(&["--kernel-lane-hook", "xdp"], "`ethtool -K lane0 rxvlan off`");
    let set = |feature, on| host.run(|| ethtool::set(INTERFACE, feature, on));
    set(ethtool::JOINED_UNASKED, true).expect("virtual Ethernet can");
    refused(&[], "`ethtool -K lane0 rx-gro-list off`");
}

#[test]
fn the_rights_are_given_up_once_they_have_served() {
    if !available() {
        return;
    }
    let host = Host::new();
    // The endpoint's thread begins before the programs are loaded.
    let flags = ["-U", "11211", "--kernel-lane", "lo", "--steer", "--admin", "127.0.0.1:11280"];
    let server = Server::start(&host, &flags);
    assert!(server.said.contains("GETs at lo are answered in the kernel"), "{}", server.said);
    for task in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).expect("runs") {
        let path = task.expect("a thread").path().join("status");
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = u64::from_str_radix(line.expect("a line").trim(), 16).expect("a mask");
        assert_eq!(mask & (1 << 39 | 1 << 12 | 1 << 38), 0, "{status}");
    }
    let mut client = Client::new(&host, "127.0.0.1:0", "127.0.0.1:11211");
    client.tcp("set key 0 0 1\r\nx\r\n", "STORED");
    assert_eq!(client.udp("get key\r\n"), value("key", "x"));
    assert_eq!(client.hits(), 1, "counts are read without them");
    server.stop();
}
