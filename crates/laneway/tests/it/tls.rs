//! TLS of the binary: both protocols by both versions, certificates that are refused at the start
//! and swapped under load, clients that must show one, and clients of other making (`openssl
//! s_client`, Python's `ssl`, pymemcache) where they are at hand.

use crate::rig::watched::Watched;
use crate::rig::{
    HERE, Process, ask, connect as tcp, laneway, read_to, refused, set, skip, stat, stats, text,
};
use laneway_certs::{Authority, Folder, Pair, VERSIONS, session};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Files of a server, and who signed its certificate.
struct Certified {
    folder: Folder,
    authority: Authority,
    cert: String,
    key: String,
}

impl Certified {
    fn new() -> Certified {
        let (folder, authority) = (Folder::new(), Authority::new("laneway's tests"));
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        let (cert, key) = (path("cert.pem"), path("key.pem"));
        folder.write("ca.pem", &authority.pem);
        let certified = Certified { folder, authority, cert, key };
        certified.put(&certified.authority.pair());
        certified
    }

    fn put(&self, pair: &Pair) {
        self.folder.write("cert.pem", &pair.chain);
        self.folder.write("key.pem", &pair.key);
    }

    fn ca(&self) -> String {
        self.folder.path().join("ca.pem").to_str().expect("text").to_owned()
    }

    fn flags(&self) -> [&str; 4] {
        ["--tls-cert", &self.cert, "--tls-key", &self.key]
    }

    fn start(&self, more: &[&str]) -> Process {
        Process::here(&[&self.flags(), more].concat())
    }
}

fn connect(place: &str, config: &Arc<ClientConfig>) -> Client {
    StreamOwned::new(session(config), tcp(place))
}

/// A connection that is through, however often that has to be tried before a short deadline.
fn connect_through(place: &str, config: &Arc<ClientConfig>) -> Client {
    loop {
        let mut client = connect(place, config);
        let mut end = [0; 5];
        let asked = client.write_all(b"get none\r\n");
        if asked.and_then(|()| client.read_exact(&mut end)).is_ok() {
            assert_eq!(&end, b"END\r\n");
            return client;
        }
    }
}

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + ((at * 7 + at / 251) % 26) as u8).collect()
}

/// Whatever arrives until the server has closed.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut got = Vec::new();
    if let Err(error) = stream.read_to_end(&mut got) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it does not close");
    }
    got
}

#[test]
fn small_and_large_values_go_both_ways_by_both_versions_and_both_protocols() {
    let files = Certified::new();
    let server = files.start(&["-I", "8m", "-m", "64", "--resp", "0"]);
    let (memcached, resp) = (server.place("tls:"), server.place("resp+tls:"));
    let large = value(4 << 20);
    for version in VERSIONS {
        let config = files.authority.client(version, None);
        let client = &mut connect(&memcached, &config);
        assert_eq!(ask(client, b"set k 0 0 5\r\nvalue\r\n", b"\r\n"), b"STORED\r\n");
        let mut small = b"VALUE k 0 5\r\nvalue\r\nEND\r\n".to_vec();
        assert_eq!(ask(client, b"get k\r\n", b"END\r\n"), small);
        assert_eq!(ask(client, &set("large", &large), b"\r\n"), b"STORED\r\n");
        let head = format!("VALUE large 0 {}\r\n", large.len());
        let mut hit = [head.as_bytes(), &large, b"\r\nEND\r\n"].concat();
        assert!(ask(client, b"get large\r\n", b"\r\nEND\r\n") == hit, "{version:?}");
        // A pipeline with a large one in the middle.
        hit.append(&mut small);
        client.write_all(b"get large\r\nget k\r\n").expect("it reads");
        let mut got = vec![0; hit.len()];
        client.read_exact(&mut got).expect("it answers");
        assert!(got == hit, "{version:?}");
        // Redis' protocol, where nothing else is spoken and where a first byte tells.
        for place in [&resp, &memcached] {
            let client = &mut connect(place, &config);
            let told = [format!("${}\r\n", large.len()).as_bytes(), &large, b"\r\n"].concat();
            let set = [&b"*3\r\n$3\r\nSET\r\n$1\r\nr\r\n"[..], &told].concat();
            assert_eq!(ask(client, &set, b"\r\n"), b"+OK\r\n");
            client.write_all(b"*2\r\n$3\r\nGET\r\n$1\r\nr\r\n").expect("it reads");
            let mut got = vec![0; told.len()];
            client.read_exact(&mut got).expect("it answers");
            assert!(got == told, "{version:?}");
        }
    }
    server.stop();
}

#[test]
fn a_session_is_taken_up_again_and_counted() {
    let files = Certified::new();
    let server = files.start(&[]);
    let place = server.place("tls:");
    for version in VERSIONS {
        let config = files.authority.client(version, None);
        let mut client = connect(&place, &config);
        let before = stat(&mut client, "tls", "handshakes_resumed");
        let mut client = connect(&place, &config);
        assert_eq!(stat(&mut client, "tls", "handshakes_resumed"), before + 1, "{version:?}");
    }
    let mut client = connect(&place, &files.authority.client(VERSIONS[1], None));
    let counted = ["handshakes_tls12", "handshakes_tls13", "handshakes_failed"];
    assert_eq!(counted.map(|name| stat(&mut client, "tls", name)), [1, 2, 0]);
    server.stop();
}

#[test]
fn plain_text_at_an_encrypted_port_is_closed_and_notls_leaves_one_plain() {
    let files = Certified::new();
    let both = ["-p", "-1", "-l", "127.0.0.1,notls:127.0.0.1"];
    let server = Process::serve(&[both, files.flags()].concat());
    let encrypted = server.place("tls:");
    let plain = server.places()[0].to_owned();
    let mut client = tcp(&encrypted);
    client.write_all(b"get k\r\n").expect("it reads");
    let got = rest(&mut client);
    assert!(!got.windows(3).any(|window| window == b"END"), "{got:?}");
    let mut client = connect(&encrypted, &files.authority.client(VERSIONS[1], None));
    assert_eq!(stat(&mut client, "tls", "handshakes_failed_not_tls"), 1);
    assert_eq!(ask(&mut tcp(&plain), b"get k\r\n", b"\r\n"), b"END\r\n");
    server.stop();
}

#[test]
fn a_start_with_files_that_are_wrong_is_refused_with_a_clear_word() {
    let files = Certified::new();
    let other = files.authority.pair();
    let other_key = files.folder.write("other.pem", &other.key);
    let old = files.folder.write("old.pem", &files.authority.pair_until(2000).chain);
    let (other_key, old) = (other_key.to_str().expect("text"), old.to_str().expect("text"));
    let (cert, key, ca) = (&*files.cert, &*files.key, &*files.ca());
    let pair = format!("ssl_chain_cert={cert},ssl_key={key}");
    let with = |more: &str| format!("{pair},{more}");
    let (ca_alone, mode_alone) = (with(&format!("ssl_ca_cert={ca}")), with("ssl_verify_mode=2"));
    for (flags, words) in [
        (&["-Z"][..], "-Z: needs a certificate; name its file by --tls-cert FILE"),
        (&["--tls-key", key], "--tls-key: nothing is encrypted without -Z"),
        (&["-o", &pair], "-o ssl_chain_cert: nothing is encrypted without -Z"),
        (&["--tls-min-version", "1.3"], "--tls-min-version: nothing is encrypted without -Z"),
        (&["--tls-cert", "/no/file"], "--tls-cert /no/file: cannot be read: No such file"),
        (
            &["--tls-cert", cert],
            "cert.pem: holds no private key, in PEM (-----BEGIN PRIVATE KEY-----); --tls-key FILE",
        ),
        (&["--tls-cert", key, "--tls-key", key], "key.pem: holds no certificate"),
        (&["--tls-cert", cert, "--tls-key", other_key], "is not the key of the certificate in"),
        (&["--tls-cert", old, "--tls-key", key], "the certificate expired at 2000-01-01"),
        (&["-Z", "-o", &ca_alone], "nobody is asked for a certificate without ssl_verify_mode=2"),
        (&["-Z", "-o", &mode_alone], "needs the authorities of clients' certificates"),
        (
            &["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca, "-U", "5000"],
            "clients over UDP show no certificate; leave -U out",
        ),
        (
            &["--tls-cert", cert, "--tls-key", key, "--tls-min-version", "1.1"],
            "--tls-min-version 1.1: must be 1.2",
        ),
        (
            &["--tls-cert", cert, "--tls-key", key, "--tls-handshake-ms", "0"],
            "--tls-handshake-ms 0: must be at least 1",
        ),
        (
            &["--tls-cert", cert, "--tls-key", key, "-s", "/tmp/no-socket"],
            "there is no TCP port to encrypt",
        ),
    ] {
        let told = refused(&[&HERE[..], flags].concat(), 2, words);
        assert_eq!(told.lines().count(), 1, "{flags:?}: {told}");
    }
}

#[test]
fn memcacheds_own_flags_start_a_server_that_encrypts_and_its_settings_are_told() {
    let files = Certified::new();
    let keys = format!(
        "ssl_chain_cert={},ssl_key={},ssl_min_version=3,ssl_session_cache",
        files.cert, files.key
    );
    let server = Process::here(&["-Z", "-o", &keys]);
    let place = server.place("tls:");
    let mut old = connect(&place, &files.authority.client(VERSIONS[0], None));
    assert!(old.write_all(b"get k\r\n").and_then(|()| old.flush()).is_err(), "1.2 is refused");
    let mut client = connect(&place, &files.authority.client(VERSIONS[1], None));
    let told = stats(&mut client, "settings");
    for line in [
        "STAT ssl_enabled yes".to_owned(),
        format!("STAT ssl_chain_cert {}", files.cert),
        format!("STAT ssl_key {}", files.key),
        "STAT ssl_verify_mode 0".to_owned(),
        "STAT ssl_min_version tlsv1.3".to_owned(),
    ] {
        assert!(told.contains(&format!("{line}\r\n")), "{line} in {told}");
    }
    // A client hears of it just before it is counted.
    let mut refused = || stat(&mut client, "tls", "handshakes_failed_nothing_in_common");
    assert!((0..100_000).any(|_| refused() == 1));
    server.stop();
}

#[test]
fn certificates_are_swapped_under_load_and_a_bad_one_changes_nothing() {
    let files = Certified::new();
    let mut server = files.start(&[]);
    let place = server.place("tls:");
    let old = files.authority.client(VERSIONS[1], None);
    let next = Authority::new("the next one");
    let new = next.client(VERSIONS[1], None);
    let mut stays = connect(&place, &old);
    assert_eq!(ask(&mut stays, b"set k 0 0 1\r\nx\r\n", b"\r\n"), b"STORED\r\n");
    // New connections all the while: each is shown a whole pair, the old one or the new one.
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load = {
        let (place, both, is_over) = (place.clone(), [old.clone(), new.clone()], is_over.clone());
        std::thread::spawn(move || {
            let mut through = [0, 0];
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                for (number, config) in both.iter().enumerate() {
                    let mut client = connect(&place, config);
                    if client.write_all(b"get k\r\n").is_ok() {
                        assert_eq!(
                            read_to(&mut client, b"END\r\n"),
                            b"VALUE k 0 1\r\nx\r\nEND\r\n"
                        );
                        through[number] += 1;
                    }
                }
            }
            through
        })
    };
    files.put(&next.pair());
    server.signal("HUP");
    server.await_log("is shown from now on");
    assert_eq!(ask(&mut connect(&place, &new), b"get none\r\n", b"\r\n"), b"END\r\n");
    files.folder.write("key.pem", "no key");
    server.signal("HUP");
    server.await_log("the certificate before it stays");
    assert!(server.said.contains("key.pem: holds no private key"), "{}", server.said);
    assert_eq!(ask(&mut connect(&place, &new), b"get none\r\n", b"\r\n"), b"END\r\n");
    assert_eq!(ask(&mut stays, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\nx\r\nEND\r\n");
    is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    let through = load.join().expect("each answer was right");
    assert!(through[1] > 0, "{through:?}");
    server.stop();
}

#[test]
fn clients_must_show_a_certificate_where_authorities_are_named() {
    let files = Certified::new();
    let ca = files.ca();
    let server = files.start(&["--tls-client-ca", &ca]);
    let place = server.place("tls:");
    let (good, bad) = (files.authority.pair(), Authority::new("another").pair());
    for version in VERSIONS {
        for shown in [None, Some(&bad)] {
            let mut client = connect(&place, &files.authority.client(version, shown));
            // By 1.3 a client hears of it only when it reads.
            let _ = client.write_all(b"get k\r\n");
            assert!(rest(&mut client).is_empty(), "{version:?}");
        }
        let mut client = connect(&place, &files.authority.client(version, Some(&good)));
        assert_eq!(ask(&mut client, b"get k\r\n", b"\r\n"), b"END\r\n");
    }
    let mut client = connect(&place, &files.authority.client(VERSIONS[1], Some(&good)));
    // A client hears of it just before it is counted.
    let mut refused = || stat(&mut client, "tls", "handshakes_failed_client_certificate");
    let counted = (0..100_000).map(|_| refused()).find(|refused| 4 <= *refused);
    assert_eq!(counted, Some(4));
    server.stop();
}

/// What a command that asks this server prints, on both outputs, and its status.
fn asked(command: &[&str], place: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = laneway(&[command, &["--server", place], more].concat());
    (output.status.code(), text([output.stdout, output.stderr].concat()))
}

#[test]
fn stats_top_and_ping_speak_tls_and_say_what_is_missing() {
    let files = Certified::new();
    let ca = &*files.ca();
    let server = files.start(&["--tls-client-ca", ca]);
    let place = &*server.place("tls:");
    let good = files.authority.pair();
    let shown = files.folder.write("client.pem", &format!("{}{}", good.chain, good.key));
    let shown = shown.to_str().expect("text");
    let flags = ["--tls-ca", ca, "--tls-cert", shown];
    for (command, told) in [
        (&["stats", "tls"][..], "handshakes_tls13"),
        (&["stats"], "curr_items"),
        (&["ping"], "answers: VERSION"),
        (&["top", "--once", "--interval", "0.1"], "small"),
    ] {
        let (status, said) = asked(command, place, &flags);
        assert_eq!(status, Some(0), "{command:?}: {said}");
        assert!(said.contains(told), "{command:?}: {said}");
        // By a name that the certificate is not for.
        let (status, said) = asked(command, place, &[&flags[..], &["--tls-name", "no"]].concat());
        assert_eq!(status, Some(1), "{command:?}: {said}");
        assert!(said.contains("cannot be asked by TLS"), "{command:?}: {said}");
        let (status, said) = asked(command, place, &[]);
        assert_eq!(status, Some(1), "{command:?}: {said}");
        assert!(said.contains("speaks TLS") && said.contains("--tls-ca FILE"), "{said}");
    }
    let other = files.folder.write("other.pem", &Authority::new("another").pem);
    let other = other.to_str().expect("text");
    for (more, told) in [
        (&["--tls-ca", other, "--tls-cert", shown][..], "invalid peer certificate"),
        (&["--tls-ca", "/no/file"], "--tls-ca /no/file: "),
        (&["--tls-ca", &files.key], "holds no certificate"),
        (&["--tls-cert", shown], "TLS needs --tls-ca FILE"),
        (&["--tls-ca", ca, "--tls-key", shown], "--tls-key is the key of --tls-cert FILE"),
        (&["--tls-ca", ca, "--tls-cert", ca], "ca.pem: its key: "),
        (&["--tls-ca", ca], "TLS"),
    ] {
        let (status, said) = asked(&["ping"], place, more);
        assert_eq!(status, Some(1), "{more:?}: {said}");
        assert!(said.contains(told) && said.lines().count() == 1, "{more:?}: {said}");
    }
    server.stop();
}

#[test]
fn no_password_goes_in_plain_text_to_a_port_that_encrypts() {
    let files = Certified::new();
    let login = files.folder.write("login", "app:secret\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
    let place = listener.local_addr().expect("it has one").to_string();
    let served = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("it comes");
        let mut got = [0; 9];
        client.read_exact(&mut got).expect("it asks");
        client.write_all(&[21, 3, 3, 0, 2, 2, 70]).expect("it reads"); // an alert of TLS
        client.shutdown(Shutdown::Write).expect("it is open");
        [&got[..], &rest(&mut client)].concat()
    });
    let (status, said) = asked(&["stats"], &place, &["--login", login.to_str().expect("text")]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("speaks TLS; --tls-ca FILE"), "{said}");
    assert_eq!(served.join().expect("it ends"), b"version\r\n");
}

#[test]
fn bench_speaks_tls_and_checks_every_byte() {
    let files = Certified::new();
    let server = files.start(&["-I", "2m", "-m", "128"]);
    let place = &*server.place("tls:");
    let ca = &*files.ca();
    for load in [
        "--value-bytes 100 --keys 1000 --depth 16 --handshakes 0.001",
        "--value-bytes 1000000 --keys 20 --first-key 1000 --depth 4 --get-share 0.5",
    ] {
        let load = format!("{load} --closed --connections 2 --duration 0.2 --warmup 0");
        let words: Vec<&str> = load.split(' ').chain(["--tls-ca", ca]).collect();
        let (status, said) = asked(&["bench"], place, &words);
        assert_eq!(status, Some(0), "{load}: {said}");
    }
    let mut client = connect(place, &files.authority.client(VERSIONS[1], None));
    let made =
        ["handshakes_tls13", "handshakes_resumed"].map(|name| stat(&mut client, "tls", name));
    assert!(made[0] > 1, "the prefill's first one, and the storm's: {made:?}");
    assert!(made[0] + made[1] > 8, "the prefill's and the run's, twice: {made:?}");
    let (status, said) = asked(&["bench"], place, &["--handshakes", "5"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("name the server's authorities by --tls-ca"), "{said}");
    server.stop();
}

#[test]
fn half_handshakes_are_closed_and_clients_that_vanish_harm_nobody() {
    let files = Certified::new();
    let server = files.start(&["--tls-handshake-ms", "200", "-I", "8m"]);
    let place = server.place("tls:");
    let mut silent: Vec<TcpStream> = (0..20).map(|_| tcp(&place)).collect();
    for (number, client) in silent.iter_mut().enumerate() {
        let hello = [22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
        client.write_all(&hello[..number % hello.len()]).expect("it reads");
    }
    for client in &mut silent {
        assert!(rest(client).is_empty());
    }
    let config = files.authority.client(VERSIONS[1], None);
    let mut client = connect_through(&place, &config);
    assert!(stat(&mut client, "tls", "handshakes_failed_late") >= 20);
    // In the middle of a value, and of a reply.
    let large = value(4 << 20);
    let set = set("large", &large);
    assert_eq!(ask(&mut client, &set, b"\r\n"), b"STORED\r\n");
    for _ in 0..10 {
        let mut gone = connect_through(&place, &config);
        gone.write_all(&set[..1 << 20]).expect("it reads");
        gone.sock.shutdown(Shutdown::Both).expect("it is open");
        let mut gone = connect_through(&place, &config);
        gone.write_all(b"get large\r\n").expect("it reads");
        gone.read_exact(&mut [0; 100_000]).expect("it answers");
        gone.sock.shutdown(Shutdown::Both).expect("it is open");
    }
    let got = ask(&mut client, b"get large\r\n", b"\r\nEND\r\n");
    assert_eq!(got.len(), large.len() + "VALUE large 0 4194304\r\n\r\nEND\r\n".len());
    server.stop();
}

#[test]
fn a_stop_ends_idle_connections_in_good_order_and_handshakes_at_once() {
    let files = Certified::new();
    let server = files.start(&["--drain-ms", "600000"]);
    let place = server.place("tls:");
    let mut half = tcp(&place);
    let mut client = connect(&place, &files.authority.client(VERSIONS[1], None));
    assert_eq!(ask(&mut client, b"get k\r\n", b"\r\n"), b"END\r\n");
    server.signal("TERM");
    assert_eq!(client.read(&mut [0; 8]).expect("it says that it ends"), 0);
    assert!(rest(&mut half).is_empty());
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn metrics_tell_of_handshakes_and_until_when_the_certificate_is_good() {
    let files = Certified::new();
    let watched = Watched::start(&files.flags());
    let place = watched.process.place("tls:");
    let mut client = connect(&place, &files.authority.client(VERSIONS[1], None));
    assert_eq!(ask(&mut client, b"get k\r\n", b"\r\n"), b"END\r\n");
    let mut plain = tcp(&place);
    plain.write_all(b"get k\r\n").expect("it reads");
    rest(&mut plain);
    assert_eq!(stat(&mut client, "tls", "handshakes_under_way"), 0);
    // 4000-01-01.
    assert_eq!(stat(&mut client, "tls", "certificate_expires"), 64_060_588_800);
    let scrape = watched.scrape();
    assert_eq!(scrape.value("laneway_tls_handshakes_total{kind=\"tls13\"}"), 1);
    let expiry = "laneway_tls_certificate_expiry_timestamp_seconds";
    assert_eq!(scrape.value(expiry), 64_060_588_800);
}

#[test]
fn a_server_that_encrypts_for_everybody_says_that_it_asks_nobody() {
    let files = Certified::new();
    let ca = files.ca();
    for (more, is_told) in [(&[][..], true), (&["--tls-client-ca", &*ca], false)] {
        let open = ["-p", "-1", "-l", "0.0.0.0"];
        let server = Process::serve(&[&open[..], &files.flags(), more].concat());
        let told = "it is encrypted, but there is no password";
        assert_eq!(server.said.contains(told), is_told, "{}", server.said);
        assert!(!server.said.contains("nothing is encrypted"), "{}", server.said);
        server.stop();
    }
}

/// What a program prints, or none where there is no such program.
fn run(program: &str, args: &[&str], input: &[u8]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut stdin = child.stdin.take().expect("it was piped");
    stdin.write_all(input).expect("it reads");
    let output = match program {
        "openssl" => {
            // It goes on until its connection ends, which `quit` does.
            let output = child.wait_with_output().expect("it ends");
            drop(stdin);
            output
        }
        _ => {
            drop(stdin);
            child.wait_with_output().expect("it ends")
        }
    };
    Some(text([output.stdout, output.stderr].concat()))
}

#[test]
fn openssl_s_client_gets_an_answer() {
    let files = Certified::new();
    let server = files.start(&[]);
    let (place, ca) = (server.place("tls:"), files.ca());
    for version in ["-tls1_2", "-tls1_3"] {
        let args =
            ["s_client", "-connect", &*place, "-CAfile", &ca, "-verify_return_error", version];
        let args = [&args[..], &["-quiet", "-servername", "localhost"]].concat();
        let Some(told) = run("openssl", &args, b"get k\r\nquit\r\n") else {
            return skip("tls", "there is no openssl");
        };
        assert!(told.contains("END"), "{version}: {told}");
        assert!(!told.contains("verify error"), "{version}: {told}");
    }
    server.stop();
}

/// By Python's own `ssl`, and by pymemcache where it is installed.
const PYTHON: &str = r#"
import socket, ssl, sys
host, port, ca, cert, key = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(cert, key)
plain = socket.create_connection((host, int(port)))
stream = context.wrap_socket(plain, server_hostname="localhost")
value = bytes(range(256)) * 4096
stream.sendall(b"set k 0 0 %d\r\n" % len(value) + value + b"\r\nget k\r\n")
wanted = b"STORED\r\nVALUE k 0 %d\r\n" % len(value) + value + b"\r\nEND\r\n"
got = b""
while len(got) < len(wanted):
    more = stream.recv(65536)
    assert more, "closed"
    got += more
assert got == wanted
print("ssl", stream.version())
try:
    from pymemcache.client.base import Client
except ImportError:
    print("no pymemcache")
    sys.exit()
context.check_hostname = False
client = Client((host, int(port)), tls_context=context)
client.set("key", b"value")
assert client.get("key") == b"value"
print("pymemcache")
"#;

#[test]
fn python_and_pymemcache_get_answers_and_show_certificates() {
    let files = Certified::new();
    let ca = files.ca();
    let server = files.start(&["--tls-client-ca", &ca, "-I", "8m"]);
    let place = server.place("tls:");
    let (host, port) = place.split_once(':').expect("a port");
    let shown = files.authority.pair_p256();
    let cert = files.folder.write("client.pem", &shown.chain);
    let key = files.folder.write("client-key.pem", &shown.key);
    let (cert, key) = (cert.to_str().expect("text"), key.to_str().expect("text"));
    let args = ["-c", PYTHON, host, port, &*ca, cert, key];
    let Some(told) = run("python3", &args, b"") else { return skip("tls", "there is no python3") };
    assert!(told.contains("ssl TLSv1.3"), "{told}");
    match told.contains("no pymemcache") {
        true => skip("tls", "there is no pymemcache"),
        false => assert!(told.contains("pymemcache"), "{told}"),
    }
    server.stop();
}

#[test]
fn handshakes_under_way_are_among_the_connections_of_their_address() {
    let files = Certified::new();
    let limited = ["--connections-per-address", "2"];
    let server = Watched::start(&[&files.flags()[..], &limited].concat());
    let place = server.process.place("tls:");
    let until_under_way = |wanted: u64| {
        while server.scrape().value("laneway_tls_handshakes_under_way") != wanted {
            std::thread::yield_now();
        }
    };
    // Two that say nothing, and one more.
    let (first, second) = (tcp(&place), tcp(&place));
    until_under_way(2);
    assert_eq!(rest(&mut tcp(&place)), b"", "it is closed before a handshake");
    let refused = "laneway_errors_total{cause=\"too_many_of_address\"}";
    assert_eq!(server.scrape().value(refused), 1);
    assert_eq!(server.scrape().value("laneway_tls_handshakes_under_way"), 2);
    // Who gives up makes room, and who is through has it.
    drop(first);
    until_under_way(1);
    let config = files.authority.client(VERSIONS[1], None);
    let mut client = connect_through(&place, &config);
    assert_eq!(rest(&mut tcp(&place)), b"", "one is through, one under way");
    drop(second);
    until_under_way(0);
    let mut another = connect_through(&place, &config);
    assert_eq!(rest(&mut tcp(&place)), b"", "two are through");
    for client in [&mut client, &mut another] {
        assert_eq!(ask(client, b"mn\r\n", b"\r\n"), b"MN\r\n");
    }
    // A connection that closes is not counted twice.
    drop((client, another));
    let mut clients = [0; 2].map(|_| connect_through(&place, &config));
    clients.iter_mut().for_each(|client| assert_eq!(ask(client, b"mn\r\n", b"\r\n"), b"MN\r\n"));
}
