use super::*;
use laneway_certs::{Authority, Folder};
use laneway_server::settings::Port;
use std::sync::{Arc, LazyLock, OnceLock};

fn given(line: &str) -> Result<Settings, String> {
    settings(&flags::typed(line))
}

#[test]
fn defaults_are_memcacheds() {
    let settings = given("").unwrap();
    assert_eq!(settings.memory_bytes, 64 << 20);
    assert_eq!(settings.item_bytes_max, 1 << 20);
    assert_eq!(settings.connections_max, 1024);
    assert!(settings.addresses.iter().all(|one| one.address.port() == 11211));
}

#[test]
fn who_tells_no_keys_lets_nobody_watch() {
    for (line, dump, watch) in [("", true, true), ("-W", true, false), ("-X", false, false)] {
        let settings = given(line).unwrap();
        assert_eq!((settings.dump, settings.watch), (dump, watch), "{line}");
    }
}

#[test]
fn listen_takes_lists_ports_and_ipv6() {
    let settings = given("-p 5 -l 127.0.0.1,127.0.0.2:77,::1,[::1]:78").unwrap();
    let places: Vec<String> = settings.addresses.iter().map(|a| a.to_string()).collect();
    assert_eq!(places, ["127.0.0.1:5", "127.0.0.2:77", "[::1]:5", "[::1]:78"]);
}

#[test]
fn without_a_port_of_tcp_there_is_another_way_in() {
    for line in ["-p 0", "-p 0 -U 0", "-p 0 -l 127.0.0.1:5"] {
        let refused = given(line).expect_err(line);
        assert!(refused.starts_with("-p 0 ") && refused.contains("-U PORT"), "{line}: {refused}");
    }
    for line in ["-U 5", "-U -1 -l 127.0.0.1:7", "--udp-base 5", "--resp 5", "--shm door"] {
        let line = format!("-p 0 {line}");
        let settings = given(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(settings.addresses.is_empty(), "{line}");
    }
}

#[test]
fn operators_come_by_no_address_of_clients() {
    for (line, is_apart) in [
        ("-l 127.0.0.1 -p 5 --admin 127.0.0.1:5", false),
        ("-p 5 --admin 127.0.0.1:5", false),
        ("-l 127.0.0.1 -p 5 --resp 6 --admin 0.0.0.0:6", false),
        ("-l 127.0.0.1 -p 5 --admin [::]:5", false),
        ("-l 127.0.0.1 -p 5 --admin 127.0.0.1:6", true),
        ("-l 127.0.0.1 -p 5 --admin [::]:6", true),
        ("-l 127.0.0.1 -p 5 --admin [::1]:5", true),
        ("-l 127.0.0.1 -p -1 --admin 127.0.0.1:0", true),
        ("-s /run/door --admin 127.0.0.1:11211", true),
    ] {
        let refused = checked(&flags::typed(line)).err().unwrap_or_default();
        assert_eq!(refused.is_empty(), is_apart, "{line}: {refused}");
        assert!(is_apart || refused.starts_with("--admin "), "{line}: {refused}");
    }
}

/// No listener is needed.
#[test]
fn a_server_of_datagrams_alone_starts() {
    let settings = given("-p 0 -U -1 -t 2").expect("they are sound");
    let server = Server::prepare(settings, None, Vec::new()).expect("a port is free");
    server.open();
    assert!(server.addresses().is_empty());
    let queue = server.queues()[0].address;
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
    let mut got = [0; 64];
    client.send_to(b"\0\x07\0\0\0\x01\0\0mn\r\n", queue).expect("the loopback takes it");
    let bytes = client.recv(&mut got).expect("it answers");
    server.stop().expect("it keeps nothing");
    assert_eq!(&got[..bytes], b"\0\x07\0\0\0\x01\0\0MN\r\n");
}

#[test]
fn addresses_that_begin_with_readonly_are() {
    for (line, addresses, resp) in [
        ("-l readonly:127.0.0.1:5,127.0.0.1:6", "readonly:127.0.0.1:5 127.0.0.1:6", ""),
        ("-p 7 -l readonly:[::1]", "readonly:[::1]:7", ""),
        ("-l readonly:notls:127.0.0.1:5", "readonly:127.0.0.1:5", ""),
        ("-l notls:readonly:127.0.0.1:5", "readonly:127.0.0.1:5", ""),
        ("-p 5 -l readonly:127.0.0.1 --resp 9", "readonly:127.0.0.1:5", "readonly:127.0.0.1:9"),
        // What may be written to by one port may by another.
        (
            "-p 5 -l readonly:127.0.0.1:6,127.0.0.1 --resp 9",
            "readonly:127.0.0.1:6 127.0.0.1:5",
            "127.0.0.1:9",
        ),
    ] {
        let settings = given(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let told = |all: &[Port]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let both = (told(&settings.addresses), told(&settings.resp.addresses));
        assert_eq!(both, (addresses.to_owned(), resp.to_owned()), "{line}");
    }
}

#[test]
fn nobody_is_served_before_the_server_is_opened() {
    use std::io::{Read, Write};
    for opens in [false, true] {
        let settings = given("-p -1 -l 127.0.0.1 -t 2").expect("they are sound");
        let server = Server::prepare(settings, None, Vec::new()).expect("a port is free");
        let place = server.addresses()[0];
        let mut client = std::net::TcpStream::connect(place).expect("it listens");
        client.write_all(b"mn\r\nquit\r\n").expect("the kernel takes it");
        let watch = server.watch();
        assert_eq!((watch().connections.total, watch().ready), (0, false));
        let mut got = Vec::new();
        if opens {
            server.open();
            assert!(watch().ready, "who comes now is served");
            client.read_to_end(&mut got).expect("it answers and closes");
            assert_eq!(got, b"MN\r\n");
        }
        server.stop().expect("nothing is kept");
        assert_eq!((watch().connections.total, watch().ready), (u64::from(opens), false));
    }
}

#[test]
fn who_comes_while_a_data_folder_closes_is_refused() {
    use std::io::ErrorKind;
    use std::net::TcpStream;
    let folder = std::env::temp_dir().join(format!("laneway-closing-{}", std::process::id()));
    let place = format!("--data-dir {} --pm-size 32m --ssd-size 64m", folder.display());
    let line = format!("-p -1 -l 127.0.0.1 -t 2 {place}");
    let (settings, durable, ..) = checked(&flags::typed(&line)).expect("they are sound");
    let opened = durable.map(|durable| tier::open(durable).expect("temp is writable"));
    let server = Server::prepare(settings, opened, Vec::new()).expect("a port is free");
    server.open();
    let address = server.addresses()[0];
    // As with a device that does not answer.
    let closes = Arc::new(OnceLock::new());
    let waits = closes.clone();
    let kept = server.shared().durable.get().expect("there is a folder");
    kept.backups.enable(Box::new(move || {
        waits.wait();
    }));
    let stopped = std::thread::spawn(move || server.stop().is_ok());
    let refused = loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(60)) {
            Ok(_) => std::thread::yield_now(),
            // The listener was closed just behind the handshake.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => break error.kind(),
        }
    };
    closes.set(()).expect("nobody else does");
    assert!(stopped.join().expect("it stops"));
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert_eq!(refused, ErrorKind::ConnectionRefused);
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn what_cannot_be_says_flag_and_way_out() {
    for (line, words) in [
        ("-c 0", "-c 0"),
        ("-m 0", "-m 0: must be at least 1"),
        ("-l 127.0.0.1:5,127.0.0.1:5", "-l: 127.0.0.1:5 is given twice"),
        ("-p 5 -l readonly:[::1],[::1]", "-l: [::1]:5 is given twice"),
        ("-p 5 -l 127.0.0.1 --resp 5", "--resp: 127.0.0.1:5 is given twice"),
        ("-p 5 --resp 5", "--resp: 0.0.0.0:5 is given twice"),
        ("-p 5 -l 0.0.0.0,127.0.0.1", "-l: 0.0.0.0:5 has all addresses, 127.0.0.1:5 among them"),
        ("-l [::1]:5,readonly:[::]:5", "-l: [::]:5 has all addresses, [::1]:5 among them"),
        ("-t 100000", "-t 100000: must be from 1 to 1024"),
        ("-t 0", "-t 0: must be from 1 to 1024"),
        ("-l ,", "-l ',': names no address"),
        ("-a 700", "add -s PATH"),
        ("-I 100", "at least"),
        ("-I 2g -m 8192", "at most 1g"),
        ("-I 64m -m 64", "half of -m"),
        ("-p 70000", "65535"),
        ("--design nonsense", "hkh-ws or sho"),
        ("--design sho --workers 1", "choose --design hkh"),
        ("--design sho --workers 4 --handoff-workers 4", "below --workers (4)"),
        ("--access crow --design hkh", "crew, erew or crcw"),
        ("--access crew", "add --design hkh"),
        ("--extra-large", "add --design minos"),
        ("--hot default", "add --design hkh --access erew"),
        ("--hot default --design hkh", "add --design hkh --access erew"),
        ("--hot often --design hkh --access crew", "off, default or keysched-2018"),
        ("--hot-keys 3", "add --hot default"),
        ("--slot-us 5 --hot off", "--slot-us"),
        ("--design hkh --access erew --hot default --hot-keys 0", "from 1 to 128"),
        ("--design hkh --access erew --hot default --hot-keys 0", "or as many as workers"),
        ("--design hkh --access erew --hot default --hot-keys 129", "from 1 to 128"),
        ("--design hkh --access erew --hot default --hot-threshold 0", "at least 1"),
        ("--design hkh --access erew --hot default --hot-threshold 65536", "at most 65535"),
        ("--design hkh --access erew --hot default --hot-threshold warm", "or load"),
        ("--design hkh --access erew --hot default --hot-alone -t 1", "--workers 2 or more"),
        ("--hot-alone", "add --hot default"),
        ("--design hkh --access erew --hot default --slot-requests 0", "at least 1"),
        ("--design hkh --access erew --hot default --slot-us 99999999999999999", "any run"),
        ("--design hkh --access erew --hot default --hot-counters 0", "from 1 to 4096"),
        ("--design hkh --access erew --hot default --hot-rank best", "past, mean or sum"),
        ("--design hkh --access erew --hot default --hot-carry maybe", "yes or no"),
        ("--numa far", "off, auto or fake:N"),
        ("--numa fake:0", "from 1 to 16"),
        ("--numa fake:17", "from 1 to 16"),
        ("--numa fake:3 -t 2", "3 domains need --workers 3"),
        ("--numa fake:2 -t 2 --design hkh --access crew", "does not go with --access"),
        ("--numa fake:2 -t 2 --data-dir /d", "does not go with --data-dir"),
        ("--form roles --workers 1", "--form"),
        ("--idle never", "adaptive"),
        ("--epoch-ms 0", "at least 1"),
        ("-U 70000", "-U 70000"),
        ("--udp-base 0", "--udp-base 0"),
        ("--udp-base 65530 -t 8", "from 1 to 65528"),
        ("--udp-base 5000 -t 4 -U 5003", "worker 3"),
        ("--udp-public", "-U PORT"),
        ("--udp-listen 127.0.0.1", "-U PORT"),
        ("-U 5000 --udp-listen 10.0.0.1", "--udp-public"),
        ("-U 5000 --udp-listen here", "not an address"),
        ("--steer", "-U PORT"),
        ("--steer --udp-base 7000 -t 2", "-U PORT"),
        ("--kernel-lane lo", "-U PORT"),
        ("--kernel-lane lo, -U 5000", "commas between"),
        ("--kernel-lane eth0,lo -U 5000", "nothing for it comes to eth0"),
        ("--kernel-lane lo -U 5000 -C", "-C turns off"),
        ("--kernel-lane lo -U 5000 --data-dir d", "leave it or --data-dir out"),
        ("--kernel-lane lo -U 5000 --kernel-lane-hook tx", "must be tc or xdp"),
        ("--kernel-lane lo -U 5000 --kernel-lane-memory 0", "from 1 to 48"),
        ("--kernel-lane lo -U 5000 --kernel-lane-memory 49", "from 1 to 48"),
        ("--kernel-lane lo -U 5000 --kernel-lane-peers 10/8", "not a list"),
        (
            "--kernel-lane lo -U 5000 --kernel-lane-peers ::1,::2,::3,::4,::5,::6,::7,::8,::9",
            "9 ranges",
        ),
        ("--kernel-lane-memory 4 -U 5000", "--kernel-lane IFACE"),
        ("--kernel-lane-hook xdp -U 5000", "--kernel-lane IFACE"),
        ("--kernel-lane-peers ::/0 -U 5000", "--kernel-lane IFACE"),
        ("--kernel-lane-rate 1 -U 5000", "--kernel-lane IFACE"),
        ("--kernel-lane lo -U 5000 --kernel-lane-rate 1000001", "at most 1000000"),
        (
            "--kernel-lane eth0,lo -U 5000 --udp-listen 10.0.0.1 --udp-public",
            "name who is served with --kernel-lane-peers",
        ),
        ("--af-xdp eth0", "-U PORT"),
        ("--af-xdp eth0, -U 5000", "commas between"),
        ("--af-xdp eth0 -U 5000", "--udp-listen ADDRESS"),
        ("--af-xdp eth0 -U 5000 --udp-listen 0.0.0.0 --udp-public", "one address"),
        (
            "--af-xdp eth0 --af-xdp eth1 -U 5000 --udp-listen ::2 --udp-public \
             --kernel-lane eth0 --kernel-lane lo --kernel-lane-peers ::/0",
            "does not go with --kernel-lane at the same interface",
        ),
        ("--af-xdp-copy -U 5000", "--af-xdp IFACE"),
        ("--af-xdp-busy-poll -U 5000", "--af-xdp-busy-poll: nothing comes past the stack"),
        ("--numa fake:2 -t 2 --af-xdp eth0 -U 5000", "does not go with --af-xdp"),
        ("--numa fake:2 -t 2 --kernel-lane lo -U 5000", "does not go with --kernel-lane"),
        ("--numa fake:2 -t 2 --steer -U 5000", "does not go with --steer"),
        ("--shm-clients 3", "add --shm PATH"),
        ("--shm-mask 777", "add --shm PATH"),
        ("--shm /s --shm-clients 0", "from 1 to 4096"),
        ("--shm /s -s /s", "choose another"),
        ("--shm /s -t 129", "at most 128"),
        ("--rdma-clients 3", "add --rdma DEVICE"),
        ("--rdma-slots 3", "add --rdma DEVICE"),
        ("--rdma-port 3", "add --rdma DEVICE"),
        ("--rdma rxe0:0", "from 1 to 255"),
        ("--rdma rxe0 --rdma-clients 0", "from 1 to 4096"),
        ("--rdma rxe0 --rdma-clients 4097", "leave it out for 512"),
        ("--rdma rxe0 --rdma-slots 4097", "from 0 to 4096; leave it out for 64"),
        ("--rdma rxe0 --rdma-port 0", "from 1 to 65535"),
        ("--rdma rxe0 -t 129", "at most 128"),
        ("-l no.such.host.invalid", "-l no.such.host.invalid"),
    ] {
        let error = given(line).expect_err(line);
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn every_design_is_served_with_its_variants() {
    for (line, design) in [
        ("--design minos --extra-large --workers 6", policy::Design::Minos),
        ("--design hkh --access erew", policy::Design::Hkh),
        ("--design hkh-ws", policy::Design::HkhWs),
        ("--design sho --handoff-workers 3 --workers 6", policy::Design::Sho),
    ] {
        let settings = given(line).expect(line);
        assert_eq!(settings.policy.design, design);
        assert!(policy::build(settings.policy).is_ok(), "{line}");
    }
}

#[test]
fn hot_keys_have_a_rule_and_each_choice_by_itself() {
    use laneway_policy::hot::{Detector, HotSettings, HotThreshold, Reads};
    let hot = |line: &str| {
        let line = format!("--design hkh --workers 6 --access {line}");
        given(&line).expect(&line).policy.hot
    };
    assert_eq!(hot("crew --hot off"), None);
    assert_eq!(hot("erew --hot default"), Some(HotSettings::lanes_exclusive(6)));
    assert_eq!(hot("crew --hot default"), Some(HotSettings::lanes(6)));
    let poster = HotSettings::keysched_2018(6, 32);
    assert_eq!(hot("erew --hot keysched-2018"), Some(poster));
    let choices = "erew --hot keysched-2018 --hot-threshold 256 --slot-requests 500 --slot-us 0 \
                   --hot-keys 8 --hot-counters 64 --hot-rank sum --hot-carry yes";
    let mixed = hot(choices).expect("it is on");
    assert_eq!(mixed.threshold, HotThreshold::Requests(256));
    assert_eq!((mixed.slot.requests, mixed.slot.nanos.0, mixed.keys_max), (500, 0, 8));
    assert_eq!((mixed.detector, mixed.carry_over), (Detector::SpaceSaving(64), true));
    assert_eq!((mixed.reads, mixed.rule()), (Reads::ByOwner, "default"));
    assert_eq!(hot("erew --hot default --hot-carry no").expect("on").rule(), "mixed");
    let alone = hot("erew --hot keysched-2018 --hot-alone --hot-threshold 65535").expect("on");
    let poster = HotSettings::keysched_2018(6, 65_535);
    assert_eq!(alone, HotSettings { alone: true, ..poster });
    assert_eq!((alone.rule(), poster.rule()), ("mixed", "keysched-2018"));
}

#[test]
fn udp_is_off_then_on_loopback_then_where_it_is_told() {
    assert_eq!(given("").unwrap().udp, None);
    assert_eq!(given("-U 0").unwrap().udp, None);
    let udp = given("-U 11211 -l 10.1.2.3").unwrap().udp.unwrap();
    assert_eq!((udp.address.to_string(), udp.port), ("127.0.0.1".to_owned(), Some(11211)));
    assert!(!udp.public);
    for line in ["--udp-base -1", "--udp-base=-1"] {
        let udp = given(line).expect(line).udp.expect("it is on");
        assert_eq!(udp.port_base, Some(0), "the kernel chooses");
    }
    let line = "--udp-base 7000 --udp-listen [::] --udp-public -t 2";
    let udp = given(line).unwrap().udp.unwrap();
    assert_eq!((udp.address.to_string(), udp.port_base), ("::".to_owned(), Some(7000)));
    assert!(udp.public && udp.port.is_none());
}

#[test]
fn a_kernel_lane_takes_a_quarter_of_the_memory_or_what_it_is_given() {
    assert_eq!(given("-U 5000").unwrap().kernel, Default::default());
    let lane = given("-U 5000 --kernel-lane lo,lo").unwrap().kernel.lane.unwrap();
    assert_eq!((lane.items_bytes, lane.interfaces), (16 << 20, vec!["lo".to_owned()]));
    assert!(!lane.xdp && lane.peers.is_empty() && lane.rate_megabits == 1000);
    let line = "-U 5000 --udp-listen 10.0.0.1 --udp-public --kernel-lane eth1,eth0 \
                --kernel-lane-hook xdp --kernel-lane-memory 48 --kernel-lane-peers 10.0.0.0/8,::1 \
                --kernel-lane-rate 0 --steer";
    let kernel = given(line).unwrap().kernel;
    let lane = kernel.lane.unwrap();
    assert_eq!((lane.items_bytes, lane.peers.len()), (48 << 20, 2));
    assert_eq!(lane.interfaces, ["eth0", "eth1"]);
    assert!(lane.xdp && kernel.steer && lane.rate_megabits == 0);
}

#[test]
fn lane_and_steering_go_with_a_way_past_the_stack_at_another_interface() {
    // Lists that are given in parts add up.
    let line = "-U 5000 --udp-listen 10.0.0.1 --udp-public --af-xdp eth2 --af-xdp eth0,eth2 \
                --af-xdp-busy-poll --kernel-lane lo --kernel-lane eth1 \
                --kernel-lane-peers 10.0.0.0/8 --steer";
    let kernel = given(line).unwrap().kernel;
    let bypass = kernel.bypass.unwrap();
    assert_eq!(bypass.interfaces, ["eth0", "eth2"]);
    assert_eq!((bypass.copy, bypass.busy_poll), (false, true));
    assert_eq!(kernel.lane.unwrap().interfaces, ["eth1", "lo"]);
    assert!(kernel.steer);
}

#[test]
fn redis_clients_come_by_the_common_port_and_by_one_of_their_own() {
    for (line, shared, addresses) in [
        ("-l 127.0.0.1", true, ""),
        ("-l 127.0.0.1 --no-resp", false, ""),
        ("-l 127.0.0.1:11999,127.0.0.2 --resp 6379", true, "127.0.0.1:6379 127.0.0.2:6379"),
        ("-l 127.0.0.1:1,127.0.0.1:2 --resp 6379", true, "127.0.0.1:6379"),
        ("--resp 6379 --no-resp", false, "0.0.0.0:6379 [::]:6379"),
    ] {
        let resp = given(line).expect(line).resp;
        let told: Vec<String> = resp.addresses.iter().map(ToString::to_string).collect();
        assert_eq!((resp.shared, &*told.join(" ")), (shared, addresses), "{line}");
    }
}

#[test]
fn which_of_memcacheds_protocols_are_served_is_said_by_b_and_s() {
    let bound = |line: &str| binding(&flags::typed(line));
    for (line, wanted) in [
        ("", Binding::Auto),
        ("-B auto", Binding::Auto),
        ("-B auto-negotiate -Y /users", Binding::Auto),
        ("-B ascii", Binding::Ascii),
        ("-B binary", Binding::Binary),
        ("-Y /users", Binding::Auto),
        ("-S -Y /users", Binding::Binary),
        ("--enable-sasl --auth-file /users -B binary", Binding::Binary),
        ("-S -Y /users -B auto", Binding::Auto),
    ] {
        assert_eq!(bound(line), Ok(wanted), "{line}");
    }
    for (line, words) in [
        ("-S", "-S: there are no users; name them in a file (-Y FILE)"),
        ("-S -Y /users -B ascii", "-S: there is no SASL in the text protocol"),
    ] {
        let why = bound(line).expect_err(line);
        assert!(why.starts_with(words), "{line}: {why}");
    }
}

/// Files of a server that encrypts, for as long as the tests run.
fn tls_flags() -> &'static str {
    static FLAGS: LazyLock<(Folder, String)> = LazyLock::new(|| {
        let folder = Folder::new();
        let pair = Authority::new("tests").pair();
        let path = folder.write("both.pem", &(pair.chain + &pair.key));
        let flags = format!("--tls-cert {}", path.display());
        (folder, flags)
    });
    &FLAGS.1
}

/// What a default needs beside it to mean anything.
fn beside(flag: &str) -> &'static str {
    match flag {
        "unix-mask" => "-s /s",
        "udp-listen" => "-U 5000",
        "shm-mask" | "shm-clients" => "--shm /s",
        "rdma-port" | "rdma-clients" | "rdma-slots" => "--rdma rxe0",
        "kernel-lane-rate" | "kernel-lane-hook" => "-U 5000 --kernel-lane lo",
        "tls-min-version" | "tls-handshake-ms" => tls_flags(),
        "access" => "--design hkh",
        "slot-requests" | "slot-us" => "--design hkh --access erew --hot default",
        "handoff-workers" => "--design sho -t 4",
        "pm-backend" | "pm-size" | "durability" | "ssd-size" | "split-bytes" | "migrate-rate"
        | "when-full" | "read-threads" | "scrub-every" | "scrub-rate" | "compress" => {
            "--data-dir /d"
        }
        "compress-from" => "--data-dir /d --compress lz4",
        "backup-rate" => "--data-dir /d --backup-dir /",
        _ => "",
    }
}

/// Settings of the server, of the store and of the log, as they would be printed.
fn all_settings(line: &str) -> String {
    let flags = flags::typed(line);
    let mut settings = settings(&flags).unwrap_or_else(|error| panic!("{line}: {error}"));
    settings.secret_seed = Default::default();
    let durable = tier::settings(&flags, settings.policy.design);
    let durable = durable.unwrap_or_else(|error| panic!("{line}: {error}"));
    let format = Format::named(flags.log_format.as_deref());
    format!("{settings:?} {durable:?} {format:?}")
}

#[test]
fn addresses_that_begin_with_notls_stay_plain_and_the_others_encrypt() {
    let addresses = |line: &str| {
        let settings = given(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let text = |all: &[Port]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let tls = settings.tls.map(|tls| [text(&tls.addresses), text(&tls.resp_addresses)]);
        (text(&settings.addresses), text(&settings.resp.addresses), tls.unwrap_or_default())
    };
    let tls = tls_flags();
    let [none, own] = ["", "127.0.0.1:5"].map(String::from);
    let both = format!("{tls} -p 5 -l 127.0.0.1,notls:127.0.0.1:6,notls:[::1]:7");
    assert_eq!(
        addresses(&both),
        ("127.0.0.1:6 [::1]:7".to_owned(), none.clone(), [own.clone(), none.clone()])
    );
    // Where nothing is encrypted the word means nothing.
    let plain = addresses("-p 5 -l notls:127.0.0.1");
    assert_eq!(plain, (own.clone(), none.clone(), [none.clone(), none.clone()]));
    // One address both ways is encrypted.
    let resp = addresses(&format!("{tls} -p 5 -l 127.0.0.1,notls:127.0.0.1:6 --resp 8"));
    assert_eq!(resp, ("127.0.0.1:6".to_owned(), none, [own, "127.0.0.1:8".to_owned()]));
}

#[test]
fn each_default_that_the_help_tells_is_the_one_in_force() {
    let mut checked = 0;
    for (name, value) in flags::defaults() {
        let beside = beside(name);
        let (without, with) = (all_settings(beside), format!("{beside} --{name}={value}"));
        // That a size was given is what makes a smaller store grow.
        let with_it = all_settings(&with).replace("_grows: true", "_grows: false");
        assert_eq!(without, with_it, "{with}");
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn each_choice_that_the_help_names_is_taken_and_no_other() {
    let beside = |flag: &str, choice: &str| match (flag, choice) {
        ("kernel-lane-hook", _) => "-U 5000 --kernel-lane lo",
        ("tls-min-version", _) => tls_flags(),
        ("access", _) => "--design hkh",
        ("hot" | "hot-rank", _) => "--design hkh --access erew --hot default",
        ("design", "sho") => "-t 4",
        ("form", "roles") => "-t 4",
        ("pm-backend", _) => "--data-dir /d --unsafe-volatile-pm",
        ("pm-index", _) => "--data-dir /d --pm-backend dax",
        ("migrate-by" | "when-full" | "compress", _) => "--data-dir /d",
        _ => "",
    };
    let mut told = Vec::new();
    for (name, choice) in flags::choices() {
        let line = format!("{} --{name}={choice}", beside(name, choice));
        told.push((name, all_settings(&line)));
        let wrong = format!("{} --{name}=neither", beside(name, choice));
        let wrong = flags::typed(&wrong);
        let refused = settings(&wrong).is_err()
            || tier::settings(&wrong, policy::Design::Lanes).is_err()
            || Format::named(wrong.log_format.as_deref()).is_err();
        assert!(refused, "--{name} neither");
    }
    // No two choices of a flag mean the same, but a sandbox that there is if there can be one.
    let count = told.len();
    told.sort();
    told.dedup();
    assert_eq!(told.len() + 1, count);
    assert!(count > 25, "{count}");
}

#[test]
fn a_folder_that_may_not_be_written_to_is_told_with_the_way_out() {
    let flags = flags::typed("--data-dir /of/others");
    let durable = tier::settings(&flags, policy::Design::Lanes).expect("it is sound");
    let directory = durable.expect("it was asked for").directory;
    for (kind, way_out) in [
        (std::io::ErrorKind::PermissionDenied, "chown -R"),
        (std::io::ErrorKind::ReadOnlyFilesystem, "ReadWritePaths="),
    ] {
        let error = laneway_tier::Error::Io { what: "opening the log", source: kind.into() };
        let told = tier::place(&directory, &error);
        let begins = format!("--data-dir /of/others: opening the log: {kind}");
        assert!(told.starts_with(&begins) && told.contains(way_out), "{told}");
    }
}
