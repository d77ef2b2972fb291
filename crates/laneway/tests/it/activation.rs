//! Sockets that a service manager hands over (`sd_listen_fds(3)`): what comes by them is served,
//! whatever the flags say, and what cannot be used refuses the start.

use crate::rig::{BINARY, HERE, Process, ask, connect, read_to, skip, stat};
use laneway_certs::{Authority, Folder, VERSIONS, session};
use rustls::StreamOwned;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

/// Becomes the server, whose process id is the shell's, with its standard streams as the sockets.
const HAND_OVER: &str = "export LISTEN_PID=${PID_TOLD:-$$}; \
                         exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
/// Exit status of a server that cannot listen.
const STATUS_LISTEN: &str = "exit status: 71";

/// A server with these flags, that is handed one or two sockets of these names.
fn serve<const COUNT: usize>(names: &str, sockets: [OwnedFd; COUNT], flags: &[&str]) -> Process {
    let server = Process::start(command(names, sockets, flags));
    server.unwrap_or_else(|said| panic!("{names} {flags:?}: {said}"))
}

/// The command that starts it.
fn command<const COUNT: usize>(names: &str, sockets: [OwnedFd; COUNT], flags: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", HAND_OVER, BINARY, "serve"]).args(flags);
    command.env("LISTEN_FDS", COUNT.to_string()).env("LISTEN_FDNAMES", names);
    let mut sockets = sockets.into_iter();
    command.stdin(sockets.next().map_or_else(Stdio::null, Stdio::from));
    command.stdout(sockets.next().map_or_else(Stdio::null, Stdio::from));
    command
}

fn tcp() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let place = listener.local_addr().expect("it is bound").to_string();
    (listener, place)
}

fn copy(listener: &TcpListener) -> OwnedFd {
    listener.try_clone().expect("a descriptor is free").into()
}

#[test]
fn sockets_that_are_handed_over_take_the_place_of_the_listeners() {
    let folder = Folder::new();
    let path = folder.path().join("socket");
    let unix = UnixListener::bind(&path).expect("temp is writable");
    let (listener, place) = tcp();
    for _ in 0..2 {
        // Who comes while nobody serves waits in the socket's queue.
        let mut early = TcpStream::connect(&place).expect("it listens already");
        early.write_all(b"mn\r\n").expect("the kernel takes it");
        let sockets = [copy(&listener), unix.try_clone().expect("a descriptor is free").into()];
        let server = serve("laneway.socket:readonly", sockets, &HERE);
        let path = path.to_str().expect("text");
        assert_eq!(server.places(), [&place, &format!("readonly:{path}")], "{}", server.said);
        for flag in ["listen (-l)", "port (-p)"] {
            assert!(server.said.contains(&format!("{flag} is passed over")), "{}", server.said);
        }
        assert_eq!(read_to(&mut early, b"\r\n"), b"MN\r\n");
        assert_eq!(ask(&mut early, b"set k 0 0 1\r\nv\r\n", b"\r\n"), b"STORED\r\n");
        let mut reader = UnixStream::connect(path).expect("it is served");
        let refused = b"CLIENT_ERROR this port is read-only\r\n";
        assert_eq!(ask(&mut reader, b"delete k\r\n", b"\r\n"), refused);
        assert_eq!(ask(&mut reader, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\nv\r\nEND\r\n");
        let port = place.rsplit(':').next().expect("it has one");
        assert_eq!(stat(&mut early, "settings", "tcpport").to_string(), port);
        for descriptor in [3, 4] {
            let file = format!("/proc/{}/fdinfo/{descriptor}", server.child.id());
            let told = std::fs::read_to_string(file).expect("it is open");
            let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
            let flags = flags.expect("octal");
            assert_ne!(flags & 0o2_000_000, 0, "other programs would inherit {descriptor}");
        }
        server.stop();
        assert!(std::fs::exists(path).expect("temp is readable"), "it is the manager's");
    }
}

#[test]
fn names_say_what_comes_by_a_socket_and_a_sandbox_changes_nothing() {
    let (resp, resp_place) = tcp();
    let (admin, admin_place) = tcp();
    let flags = [&HERE[..], &["--sandbox", "on"]].concat();
    let server = serve("resp:admin", [copy(&resp), copy(&admin)], &flags);
    assert_eq!(server.places(), [format!("resp:{resp_place}")]);
    assert_eq!(ask(&mut connect(&resp_place), b"PING\r\n", b"\r\n"), b"+PONG\r\n");
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin_place}\r\n\r\n");
    let answer = ask(&mut connect(&admin_place), request.as_bytes(), b"ready\n");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    server.stop();
    // A socket for operators alone leaves clients to the flags.
    let server = serve("admin", [copy(&admin)], &HERE);
    assert_eq!(ask(&mut server.connect(), b"mn\r\n", b"\r\n"), b"MN\r\n");
    assert!(server.said.contains(&format!("metrics on http://{admin_place}/")), "{}", server.said);
    server.stop();
}

#[test]
fn a_socket_is_encrypted_where_the_server_is_unless_its_name_says_otherwise() {
    let (folder, authority) = (Folder::new(), Authority::new("laneway's tests"));
    let pair = authority.pair();
    folder.write("cert.pem", &pair.chain);
    folder.write("key.pem", &pair.key);
    let [cert, key] = ["cert.pem", "key.pem"]
        .map(|name| folder.path().join(name).to_str().expect("text").to_owned());
    let flags = [&HERE[..], &["--tls-cert", &cert, "--tls-key", &key]].concat();
    let ((listener, place), (open, open_place)) = (tcp(), tcp());
    let sockets = [copy(&listener), copy(&open)];
    let server = serve("laneway.socket:notls+readonly", sockets, &flags);
    assert_eq!(server.places(), [format!("readonly:{open_place}"), format!("tls:{place}")]);
    let stream = TcpStream::connect(&place).expect("it is served");
    let mut encrypted = StreamOwned::new(session(&authority.client(VERSIONS[1], None)), stream);
    assert_eq!(ask(&mut encrypted, b"set k 0 0 1\r\nv\r\n", b"\r\n"), b"STORED\r\n");
    let got = ask(&mut connect(&open_place), b"get k\r\n", b"END\r\n");
    assert_eq!(got, b"VALUE k 0 1\r\nv\r\nEND\r\n");
    server.stop();
}

#[test]
fn what_cannot_be_used_refuses_the_start_and_says_why() {
    let listener = || OwnedFd::from(tcp().0);
    let datagrams = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
    let connection = || {
        let (listener, place) = tcp();
        let stream = TcpStream::connect(place).expect("it listens");
        drop(listener);
        OwnedFd::from(stream)
    };
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
    let unix = |name: &str| {
        let folder = Folder::new();
        OwnedFd::from(UnixListener::bind(folder.path().join(name)).expect("temp is writable"))
    };
    for (names, socket, said) in [
        ("a.socket", datagrams(), "descriptor 3 (a.socket): a UDP socket cannot be taken"),
        ("a.socket", connection(), "the unit needs Accept=no"),
        ("a.socket", file(), "it is neither a TCP nor a unix socket for streams"),
        ("rsep", listener(), "'rsep' says nothing of a socket; write admin, bytes=BYTES, notls"),
        ("tls", listener(), "'tls' needs a certificate"),
        ("tls", unix("s"), "'tls' needs a certificate"),
        ("admin", unix("s"), "the admin endpoint is served by TCP"),
        ("admin", connection(), "the unit needs Accept=no"),
        ("admin+resp", listener(), "'admin' goes with no other word"),
        ("a:b", listener(), "invalid LISTEN_FDNAMES"),
    ] {
        let ended = Process::start(command(names, [socket], &HERE)).err();
        let ended = ended.unwrap_or_else(|| panic!("{names} serves, but should say: {said}"));
        assert!(ended.contains(said) && ended.contains(STATUS_LISTEN), "{names}, {said}: {ended}");
        assert!(ended.contains("sockets handed over (LISTEN_FDS): "), "{ended}");
    }
    let two = [listener(), listener()];
    let ended = Process::start(command("admin:admin", two, &HERE)).err();
    assert!(ended.as_ref().is_some_and(|said| said.contains("admin already")), "{ended:?}");
    for (count, said) in [("many", "invalid LISTEN_FDS"), ("900", "Bad file descriptor")] {
        let mut command = command("", [listener()], &HERE);
        command.env("LISTEN_FDS", count).env_remove("LISTEN_FDNAMES");
        let ended = Process::start(command).err();
        assert!(ended.as_ref().is_some_and(|ended| ended.contains(said)), "{count}: {ended:?}");
    }
    let mut elsewhere = command("a.socket", [listener()], &HERE);
    elsewhere.env("LISTEN_FDS_FIRST_FD", "5");
    let ended = Process::start(elsewhere).err();
    let said = "LISTEN_FDS_FIRST_FD=5: they must begin with descriptor 3";
    assert!(ended.as_ref().is_some_and(|ended| ended.contains(said)), "{ended:?}");
    let in_background = [&HERE[..], &["-d"]].concat();
    let ended = Process::start(command("a.socket", [listener()], &in_background)).err();
    assert!(ended.as_ref().is_some_and(|said| said.contains("leave -d out")), "{ended:?}");
}

#[test]
fn flags_that_are_passed_over_refuse_nothing() {
    for flags in [
        &["-p", "0"][..],
        &["-l", "no-such-name.invalid"],
        &["-s", "/no/such/folder/socket", "-a", "700"],
        &["-a", "700"],
        &["--resp", "1"],
    ] {
        let (listener, place) = tcp();
        let server = serve("a.socket", [copy(&listener)], flags);
        assert_eq!(server.places(), [&place], "{flags:?}");
        assert!(server.said.contains(" is passed over, "), "{flags:?}: {}", server.said);
        server.stop();
    }
    let (listener, place) = tcp();
    let flags = [&HERE[..], &["--admin", "no-such-name.invalid:1"]].concat();
    let server = serve("admin", [copy(&listener)], &flags);
    assert!(server.said.contains("admin is passed over, "), "{}", server.said);
    assert!(server.said.contains(&format!("metrics on http://{place}/")), "{}", server.said);
    assert!(!server.said.contains("listen (-l) is passed over"), "{}", server.said);
    server.stop();
}

/// Whoever comes over RDMA may write, whatever the sockets say.
#[cfg(feature = "rdma")]
#[test]
fn rdma_is_refused_beside_a_socket_for_readers_and_where_no_address_is_named() {
    const RDMA: [&str; 2] = ["--rdma", "no_such_device"];
    let here = [&RDMA[..], &["-l", "127.0.0.1"]].concat();
    for (names, flags, said, status) in [
        ("readonly", &here[..], "handed over (LISTEN_FDS) is readonly; leave either out", 2),
        ("resp+readonly", &RDMA, "handed over (LISTEN_FDS) is readonly; leave either out", 2),
        ("a.socket", &RDMA, "say at which addresses its clients come by -l", 2),
        // Here nothing is wrong but the device.
        ("a.socket", &here, "see laneway doctor", 71),
    ] {
        let socket = OwnedFd::from(tcp().0);
        let ended = Process::start(command(names, [socket], flags)).err();
        let ended = ended.unwrap_or_else(|| panic!("{names} serves, but should say: {said}"));
        let status = format!("exit status: {status}");
        assert!(ended.contains(said) && ended.ends_with(&status), "{names} {flags:?}: {ended}");
        assert!(!ended.contains("passed over"), "{names}: -l is not: {ended}");
    }
}

#[test]
fn what_is_handed_to_another_process_is_left_alone() {
    let (listener, place) = tcp();
    let mut command = command("a.socket", [copy(&listener)], &HERE);
    command.env("PID_TOLD", "1");
    let server = Process::start(command).unwrap_or_else(|said| panic!("{said}"));
    assert_ne!(server.places(), [&place]);
    assert_eq!(ask(&mut server.connect(), b"mn\r\n", b"\r\n"), b"MN\r\n");
    server.stop();
    listener.set_nonblocking(true).expect("it can be");
    let mut nobody = TcpStream::connect(&place).expect("it is ours still");
    let (mut ours, _) = listener.accept().expect("it is ours still");
    ours.write_all(b"x").expect("it is open");
    assert_eq!(nobody.read(&mut [0; 4]).expect("a byte comes"), 1);
}

#[test]
fn systemd_itself_hands_a_socket_over_with_the_first_connection() {
    const PROGRAM: &str = "systemd-socket-activate";
    if !Command::new(PROGRAM).arg("--version").output().is_ok_and(|told| told.status.success()) {
        return skip("activation", &format!("there is no {PROGRAM} (Debian: systemd)"));
    }
    let place = tcp().1; // free by now
    let mut command = Command::new(PROGRAM);
    command.args(["-l", &place, BINARY, "serve"]).args(HERE).stdin(Stdio::null());
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            // It says on stderr when it listens, where nobody reads before the server is ready.
            let mut client = loop {
                match TcpStream::connect(&place) {
                    Ok(client) => break client,
                    Err(_) => std::thread::yield_now(),
                }
            };
            ask(&mut client, b"mn\r\n", b"\r\n")
        });
        let server = Process::start(command).unwrap_or_else(|said| panic!("{said}"));
        assert_eq!(server.places(), [&place], "{}", server.said);
        assert_eq!(client.join().expect("it is served"), b"MN\r\n");
        server.stop();
    });
}
