//! `laneway serve --kernel-lane`, `--steer` and `--af-xdp`, in network namespaces of the test's
//! own, over virtual Ethernet: what is written is read at once, hits are answered while the server
//! is stopped, and nothing stays behind when it is killed. Without the features: what flags say.

#[cfg(feature = "af-xdp")]
#[path = "../../kernel/tests/common/hosts.rs"]
mod hosts;

#[cfg(not(feature = "kernel"))]
#[test]
fn a_build_without_the_programs_refuses_their_flags_and_tells_the_way_out() {
    for flags in [&["--kernel-lane", "lo"][..], &["--steer"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["serve", "-p", "-1", "-l", "127.0.0.1", "-U", "-1"])
            .args(flags)
            .output()
            .expect("the binary was built for this test");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{told}");
        let start = format!("{}: built without the feature `kernel`", flags[0]);
        assert!(told.contains(&start) && told.contains("--features kernel"), "{told}");
    }
}

#[test]
fn the_doctor_tells_every_layer_of_the_kernel() {
    let doctor = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.arg("doctor").args(arguments).output().expect("the binary was built for this test")
    };
    let output = doctor(&["kernel"]);
    let told = String::from_utf8_lossy(&output.stdout);
    let missing = told.contains(": missing: ");
    assert_eq!(output.status.code(), Some(i32::from(missing)), "{told}");
    for layer in ["capabilities: ", "tcx links: ", "programs in this build: "] {
        assert!(told.lines().any(|line| line.starts_with(layer)), "{layer} in {told}");
    }
    let without = told.contains("programs in this build: missing: built without the feature");
    assert_eq!(without, cfg!(not(feature = "kernel")), "{told}");
    assert_eq!(doctor(&["eth0"]).status.code(), Some(2));
}

#[cfg(feature = "af-xdp")]
mod with {
    use super::hosts::{self, Host, INTERFACE};
    use laneway_kernel::ethtool;
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpStream, UdpSocket};
    use std::process::{Child, ChildStderr, Command, Stdio};
    use std::time::{Duration, Instant};

    const BINARY: &str = env!("CARGO_BIN_EXE_laneway");
    /// A server that takes longer hangs.
    const HANG: Duration = Duration::from_secs(60);
    const ADDRESS: &str = "10.9.0.1:11211";
    /// What a client far away asks for here.
    const PUBLIC: [&str; 5] = ["-U", "11211", "--udp-listen", "10.9.0.1", "--udp-public"];

    /// The lane for that client.
    const LANE: [&str; 4] = ["--kernel-lane", INTERFACE, "--kernel-lane-peers", "10.9.0.0/24"];

    /// Whether the layers are there; if not, says so (the runner shows it).
    fn available() -> bool {
        has(|layer| layer != "AF_XDP")
    }

    /// Those of the way past the stack, too.
    fn bypass_available() -> bool {
        has(|_| true)
    }

    fn has(needed: impl Fn(&str) -> bool) -> bool {
        let mut layers = laneway_server::kernel::layers();
        layers.retain(|layer| needed(layer.name) && layer.missing.is_some());
        for layer in &layers {
            let told = layer.to_string();
            // A program that the verifier walked through and refused is our mistake, no lack.
            assert!(!told.contains("processed "), "{told}");
            println!("SKIPPED: {told}");
        }
        layers.is_empty()
    }

    struct Server {
        child: Child,
        log: BufReader<ChildStderr>,
        said: String,
    }

    impl Server {
        fn start(host: &Host, flags: &[&str]) -> Server {
            let mut command = Command::new(BINARY);
            command.args(["serve", "-p", "11211", "-l", "0.0.0.0"]).args(flags);
            let child = host.run(|| command.stderr(Stdio::piped()).spawn());
            let mut child = child.expect("the binary was built for this test");
            let mut log = BufReader::new(child.stderr.take().expect("it was piped"));
            let mut said = String::new();
            while !said.contains("ready on") {
                let bytes = log.read_line(&mut said).expect("stderr can be read");
                assert!(bytes > 0, "it ended before it was ready: {:?} {said}", child.wait());
            }
            Server { child, log, said }
        }

        fn signal(&self, name: &str) {
            let pid = self.child.id().to_string();
            let status = Command::new("kill").args(["-s", name, &pid]).status();
            assert!(status.expect("kill exists").success());
        }

        /// Whether every thread of it has stopped.
        fn is_stopped(&self) -> bool {
            let tasks = format!("/proc/{}/task", self.child.id());
            let stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
                stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
            };
            std::fs::read_dir(tasks).expect("it runs").all(stopped)
        }

        fn stop(mut self) {
            self.signal("TERM");
            assert_eq!(self.child.wait().expect("it can be waited for").code(), Some(0));
            let mut rest = String::new();
            self.log.read_to_string(&mut rest).expect("stderr can be read");
            assert!(!rest.contains("panicked"), "{rest}");
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill(); // gone already, unless a test failed
            let _ = self.child.wait();
        }
    }

    /// One client, with a socket of each kind.
    struct Client {
        tcp: BufReader<TcpStream>,
        udp: UdpSocket,
        to: &'static str,
    }

    impl Client {
        fn new(host: &Host, from: &str, to: &'static str) -> Client {
            let tcp = host.run(|| TcpStream::connect(to)).expect("it listens");
            tcp.set_read_timeout(Some(HANG)).expect("a time-out can be set");
            Client { tcp: BufReader::new(tcp), udp: host.socket(from), to }
        }

        /// Ask over TCP; the reply up to a line that begins with `last`.
        fn tcp(&mut self, request: &str, last: &str) -> String {
            self.tcp.get_mut().write_all(request.as_bytes()).expect("the server reads");
            let (mut reply, mut line) = (String::new(), String::new());
            while !line.starts_with(last) {
                line.clear();
                assert!(self.tcp.read_line(&mut line).expect("a reply") > 0, "{request}: {reply}");
                reply.push_str(&line);
            }
            reply
        }

        fn udp(&self, request: &str) -> String {
            hosts::ask(&self.udp, self.to, request)
        }

        fn stats(&mut self, family: &str) -> BTreeMap<String, String> {
            let text = self.tcp(&format!("stats {family}\r\n"), "END");
            let stat = |line: &str| {
                let mut words = line.strip_prefix("STAT ")?.splitn(2, ' ');
                Some((words.next()?.to_owned(), words.next()?.to_owned()))
            };
            text.lines().filter_map(stat).collect()
        }

        fn count(&mut self, family: &str, name: &str) -> u64 {
            self.stats(family)[name].parse().expect("a number")
        }

        fn hits(&mut self) -> u64 {
            self.count("kernel", "hits")
        }
    }

    /// A server with a lane, and a client on another host.
    fn over_the_wire(flags: &[&str]) -> (Host, Host, Server, Client) {
        let (server_host, client_host) = hosts::connected();
        let server = Server::start(&server_host, &[&PUBLIC, flags].concat());
        let client = Client::new(&client_host, "10.9.0.2:0", ADDRESS);
        (server_host, client_host, server, client)
    }

    fn value(key: &str, value: &str) -> String {
        format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
    }

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
        for (key, value) in
            [("number:one", "1"), ("number:two", "22"), (&long, "long"), ("empty", "")]
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
    fn steered_requests_reach_their_owners_and_none_is_handed_over() {
        if !available() {
            return;
        }
        let host = Host::new();
        let handed_over = |flags: &[&str]| {
            let flags = [&["-U", "11211", "-t", "4", "--design", "hkh", "--access", "erew"], flags];
            let server = Server::start(&host, &flags.concat());
            let mut client = Client::new(&host, "127.0.0.1:0", "127.0.0.1:11211");
            for number in 0..500 {
                let set = format!("set key{number} 0 0 5\r\nvalue\r\n");
                assert_eq!(client.udp(&set), "STORED\r\n");
                let key = format!("key{number}");
                assert_eq!(client.udp(&format!("get {key}\r\n")), value(&key, "value"));
            }
            let counts = client.stats("udp")["requests_handed_over"].parse::<u64>();
            let steered = client.stats("kernel").get("steered").map(|count| count.parse::<u64>());
            server.stop();
            (counts.expect("a number"), steered.map(|count| count.expect("a number")))
        };
        assert_eq!(handed_over(&["--steer"]), (0, Some(1000)));
        let (software, steered) = handed_over(&[]);
        assert!(software > 500 && steered.is_none(), "{software}");
    }

    /// What came of a crowd.
    struct Crowd {
        requests: u64,
        writes: u64,
        handed_over: u64,
        /// Workers that executed reads of the key.
        readers: usize,
    }

    /// A crowd of many senders on one key, which is written now and then and must be read as it was
    /// written last, until the server has rewritten so many slots, and for a while after that.
    fn crowd(access: &str, rewritten_least: u64) -> Crowd {
        const SENDERS: usize = 16;
        const READS_PER_WRITE: usize = 20;
        const ROUNDS_AFTER: u32 = 300;
        const TO: &str = "127.0.0.1:11211";
        let host = Host::new();
        let flags = ["-U", "11211", "-t", "4", "--design", "hkh", "--access", access, "--steer"];
        let hot = ["--hot", "default", "--slot-requests", "200"];
        let server = Server::start(&host, &[&flags[..], &hot].concat());
        let mut client = Client::new(&host, "127.0.0.1:0", TO);
        let senders: Vec<UdpSocket> = (0..SENDERS).map(|_| host.socket("127.0.0.1:0")).collect();
        let (mut requests, mut writes, mut rounds_after) = (0, 0, 0);
        let began = Instant::now();
        while rounds_after < ROUNDS_AFTER {
            let written = format!("written {writes}");
            let set = format!("set crowded 0 0 {}\r\n{written}\r\n", written.len());
            assert_eq!(hosts::ask(&senders[writes as usize % SENDERS], TO, &set), "STORED\r\n");
            for sender in senders.iter().cycle().take(READS_PER_WRITE) {
                let read = hosts::ask(sender, TO, "get crowded\r\n");
                assert_eq!(read, value("crowded", &written));
            }
            assert_eq!(client.udp(&format!("get cold{writes}\r\n")), "END\r\n");
            writes += 1;
            requests += 2 + READS_PER_WRITE as u64;
            if rounds_after > 0 {
                rounds_after += 1;
            } else if client.count("kernel", "slots_rewritten") >= rewritten_least {
                rounds_after = 1;
            }
            assert!(began.elapsed() < HANG, "{:?}", client.stats("hotkeys"));
        }
        assert_eq!(client.count("kernel", "steered"), requests);
        let hot = client.stats("hotkeys");
        let reads = |worker| hot.get(&format!("worker:{worker}:reads")).map(|count| count != "0");
        let readers = (0..4).filter(|worker| reads(*worker) == Some(true)).count();
        let handed_over = client.count("udp", "requests_handed_over");
        server.stop();
        Crowd { requests, writes, handed_over, readers }
    }

    #[test]
    fn the_slot_of_a_hot_key_goes_where_its_owner_is() {
        if !available() {
            return;
        }
        let Crowd { requests, handed_over, readers, .. } = crowd("erew", 3);
        assert!(readers > 1, "nobody else got it");
        assert!(handed_over * 10 < requests, "{handed_over} of {requests} were handed over");
    }

    #[test]
    fn reads_that_need_no_owner_are_spread_by_the_kernel_when_their_key_is_hot() {
        if !available() {
            return;
        }
        let Crowd { writes, handed_over, readers, .. } = crowd("crew", 1);
        assert!(readers > 1, "nobody else reads it");
        assert!(handed_over <= writes, "only writes have an owner: {handed_over} of {writes}");
    }

    /// The same program with no right to what it is asked for.
    fn without_rights(host: &Host, flags: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set",
            "-cap_39,-cap_12,-cap_38,-cap_21,-cap_13",
            BINARY,
            "serve",
        ]);
        command.args(["-p", "11311", "-l", "127.0.0.1", "-U", "11311"]).args(flags);
        let mut child = host.run(|| command.stderr(Stdio::piped()).spawn()).expect("setpriv");
        let mut log = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut said = String::new();
        while !said.contains("ready on") && log.read_line(&mut said).expect("stderr") > 0 {}
        if said.contains("ready on") {
            let _ = child.kill();
        }
        (child.wait().expect("it can be waited for").code(), said)
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
        let large: Vec<u8> =
            (0..60_000_u32).map(|at| b'a' + (at * 7 + at / 251) as u8 % 26).collect();
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
            assert_eq!(
                client.udp(&format!("get k{number}\r\n")),
                value(&format!("k{number}"), "x")
            );
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
}
