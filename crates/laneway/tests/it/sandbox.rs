//! `--sandbox`: a server that has given up what it does not need serves everything all the same,
//! and reaches nothing else.

use crate::rig;
use crate::rig::watched::Watched;
use crate::rig::{HANG, Process, SIZES, ask, connect, set, skip, stats};
use laneway_certs::{Authority, Folder, VERSIONS, session};
use rustls::StreamOwned;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

/// A field of what the kernel tells of each of a process's threads.
fn of_each_thread(server: &Process, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).expect("it runs");
    let status =
        tasks.map(|task| fs::read_to_string(task.expect("a thread").path().join("status")));
    let told = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.expect("Linux tells it").trim().to_owned()
    };
    status.map(|text| told(text.expect("it runs"))).collect()
}

fn text_in(folder: &Folder, name: &str) -> String {
    folder.path().join(name).to_str().expect("text").to_owned()
}

/// A file of users, its owner's alone.
fn write_users(path: &Path, users: &str) {
    fs::write(path, users).expect("temp is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// An item by UDP.
fn by_udp(place: &str, key: &str) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(HANG)).expect("a time-out can be set");
    let request = [&[0, 1, 0, 0, 0, 1, 0, 0][..], format!("get {key}\r\n").as_bytes()].concat();
    socket.send_to(&request, place).expect("the loopback is there");
    let mut got = [0; 2048];
    let (bytes, _) = socket.recv_from(&mut got).expect("an answer comes");
    got[8..bytes].to_vec()
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn every_protocol_is_served_files_are_read_again_and_the_folder_is_written() {
    let (folder, authority) = (Folder::new(), Authority::new("laneway's tests"));
    let files = |name: &str| text_in(&folder, name);
    let put = |pair: laneway_certs::Pair| {
        folder.write("cert.pem", &pair.chain);
        folder.write("key.pem", &pair.key);
    };
    put(authority.pair());
    let (cert, key) = (files("cert.pem"), files("key.pem"));
    let (data, door, pid) = (files("data"), files("door"), files("pid"));
    fs::create_dir(&data).expect("temp is writable");
    let ports = ["-p", "-1", "-l", "127.0.0.1,notls:127.0.0.1", "-U", "-1", "--shm", &door];
    let paths = ["--tls-cert", &cert, "--tls-key", &key, "-P", &pid, "--data-dir", &data];
    let others = ["--sandbox", "on", "-t", "2", "-I", "4m"];
    let flags = [&ports[..], &paths, &SIZES, &others].concat();
    let big = vec![b'x'; 3 << 20];
    for round in 0..2 {
        let mut server = Process::serve(&flags);
        assert!(server.said.contains("in a sandbox"), "{}", server.said);
        for (field, wanted) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
            let told = of_each_thread(&server, field);
            assert!(told.len() > 5 && told.iter().all(|told| told == wanted), "{field}: {told:?}");
        }
        let plain = server.places().into_iter().find(|place| place.starts_with("127.")).unwrap();
        let mut client = connect(plain);
        let kept = ask(&mut client, b"get k\r\n", b"END\r\n");
        let hit = b"VALUE k 0 5\r\nvalue\r\nEND\r\n";
        assert_eq!(kept, if round == 0 { &b"END\r\n"[..] } else { hit }, "what it kept");
        assert_eq!(ask(&mut client, b"set k 0 0 5\r\nvalue\r\n", b"\r\n"), b"STORED\r\n");
        assert_eq!(ask(&mut client, &set("big", &big), b"\r\n"), b"STORED\r\n");
        let got = ask(&mut client, b"get big\r\n", b"END\r\n");
        assert!(got.len() > big.len());
        assert_eq!(ask(&mut client, b"mg k v\r\n", b"e\r\n"), b"VA 5\r\nvalue\r\n");
        assert!(stats(&mut client, "settings").contains("STAT sandbox on\r\n"));
        for family in ["", "tier", "conns", "large", "udp", "shm", "tls", "hotkeys"] {
            assert!(stats(&mut client, family).len() > 5, "{family}");
        }
        let mut redis = connect(plain);
        assert_eq!(
            ask(&mut redis, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"e\r\n"),
            b"$5\r\nvalue\r\n"
        );
        let mut binary = connect(plain);
        let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
        binary.write_all(&noop).expect("it is taken");
        let mut reply = [0; 24];
        binary.read_exact(&mut reply).expect("an answer comes");
        assert_eq!(reply[..2], [0x81, 0x0a]);
        assert_eq!(by_udp(&server.place("udp:"), "k"), hit);
        put(authority.pair());
        server.signal("HUP");
        server.await_log("is shown from now on");
        let config = authority.client(VERSIONS[1], None);
        let mut encrypted = StreamOwned::new(session(&config), connect(&server.place("tls:")));
        assert_eq!(ask(&mut encrypted, b"get k\r\n", b"END\r\n"), hit);
        let shm = laneway_client::Client::connect_shm(&door, laneway_client::Settings::default());
        let found = shm.expect("it is let in").get("k").expect("it answers").expect("it is there");
        assert_eq!(found.data, b"value");
        assert!(fs::read_to_string(&pid).is_ok());
        server.stop();
        assert!(!fs::exists(&pid).expect("temp is readable"), "the pid file goes");
    }
}

#[test]
fn a_file_that_its_flags_do_not_name_is_refused_in_the_sandbox_alone() {
    for (sandbox, wanted) in [
        ("on", "it cannot be read: Permission denied"),
        ("log", "2 users from now on"),
        ("off", "2 users from now on"),
    ] {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        let users = text_in(&folder, "users");
        write_users(Path::new(&users), "a:b\n");
        write_users(&elsewhere.path().join("users"), "a:b\nc:d\n");
        let mut server = Process::here(&["-Y", &users, "--sandbox", sandbox]);
        // Whoever may change the file could have it lead anywhere.
        fs::remove_file(&users).expect("it is ours");
        symlink(elsewhere.path().join("users"), &users).expect("temp is writable");
        server.signal("HUP");
        server.await_log(wanted);
        // A file in its place is another's matter: its folder is named.
        fs::remove_file(&users).expect("it is ours");
        folder.write("users", "a:b\nc:d\ne:f\n");
        server.signal("HUP");
        server.await_log("3 users from now on");
        server.stop();
    }
}

#[test]
fn files_are_read_again_behind_a_folder_that_is_a_link_to_another() {
    let folder = Folder::new();
    let release = |name: &str, users: &str| {
        let release = folder.path().join("releases").join(name);
        fs::create_dir_all(&release).expect("temp is writable");
        write_users(&release.join("users"), users);
    };
    release("7", "a:b\n");
    let current = folder.path().join("current");
    symlink("releases/7", &current).expect("temp is writable");
    let users = text_in(&folder, "current/users");
    let mut server = Process::here(&["-Y", &users, "--sandbox", "on"]);
    release("8", "a:b\nc:d\n");
    fs::remove_file(&current).expect("it is ours");
    symlink("releases/8", &current).expect("temp is writable");
    server.signal("HUP");
    server.await_log("2 users from now on");
    server.stop();
}

#[test]
fn the_file_of_config_is_read_again_without_looking_names_up() {
    let folder = Folder::new();
    // Not every machine that has the name has its second address.
    let mut localhost = ("localhost", 0).to_socket_addrs().expect("every machine has it");
    let name = match localhost.all(|address| TcpListener::bind(address).is_ok()) {
        true => "localhost",
        false => "127.0.0.1",
    };
    let write = |megabytes: u32| {
        let text =
            format!("listen = [\"{name}\"]\nadmin = \"localhost:0\"\nmemory-limit = {megabytes}\n");
        folder.write("laneway.toml", &text);
    };
    write(64);
    let config = text_in(&folder, "laneway.toml");
    let mut server = Process::serve(&["--config", &config, "-p", "-1", "--sandbox", "on"]);
    for (before, after) in [(64, 128), (128, 96)] {
        write(after);
        server.signal("HUP");
        server.await_log(&format!("memory-limit: {before} -> {after}, now"));
    }
    // What it does not know it cannot look up, and says so.
    folder.write("laneway.toml", "listen = [\"no-such-name.invalid\"]\nmemory-limit = 64\n");
    server.signal("HUP");
    server.await_log("everything in the file stays as it was");
    let why = "SIGHUP: -l no-such-name.invalid: the sandbox (--sandbox) lets this server look \
               no name up";
    assert!(server.said.contains(why), "{}", server.said);
    server.stop();
    // Without a sandbox it is the name that is at fault.
    write(64);
    let mut server = Process::serve(&["--config", &config, "-p", "-1", "--sandbox", "off"]);
    folder.write("laneway.toml", "listen = [\"no-such-name.invalid\"]\nmemory-limit = 64\n");
    server.signal("HUP");
    server.await_log("everything in the file stays as it was");
    assert!(server.said.contains("SIGHUP: -l no-such-name.invalid: "), "{}", server.said);
    assert!(!server.said.contains("the sandbox"), "{}", server.said);
    server.stop();
}

#[test]
fn a_file_that_the_file_of_config_names_elsewhere_is_said_to_be_refused_by_the_sandbox() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    for folder in [&folder, &elsewhere] {
        write_users(&folder.path().join("users"), "a:b\n");
    }
    let write = |users: &Folder| {
        let users = text_in(users, "users");
        folder.write("laneway.toml", &format!("auth-file = \"{users}\"\n"));
    };
    write(&folder);
    let config = text_in(&folder, "laneway.toml");
    let mut server = Process::here(&["--config", &config, "--sandbox", "on"]);
    write(&elsewhere);
    server.signal("HUP");
    server.await_log("everything in the file stays as it was");
    assert!(server.said.contains("; the sandbox (--sandbox) lets"), "{}", server.said);
    server.stop();
}

#[test]
fn another_user_serves_in_a_sandbox_too() {
    if fs::metadata("/proc/self").expect("Linux has it").uid() != 0 {
        return skip("sandbox", "root alone can become another user");
    }
    let folder = Folder::new();
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), mode).expect("it is ours");
    let users = text_in(&folder, "users");
    folder.write("users", "a:b\n");
    let mut server = Process::here(&["-u", "nobody", "-Y", &users, "--sandbox", "on"]);
    let told = of_each_thread(&server, "Uid");
    assert!(told.iter().all(|uids| !uids.split_whitespace().any(|uid| uid == "0")), "{told:?}");
    folder.write("users", "a:b\nc:d\n");
    server.signal("HUP");
    server.await_log("2 users from now on");
    let mut client = server.connect();
    assert_eq!(ask(&mut client, b"set x 0 0 3\r\nc d\r\n", b"\r\n"), b"STORED\r\n");
    server.stop();
}

#[test]
fn a_service_manager_is_told_from_a_sandbox() {
    let folder = Folder::new();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("temp is writable");
    manager.set_read_timeout(Some(HANG)).expect("a time-out can be set");
    let hears = |word: &str| {
        let mut message = [0; 512];
        let bytes = rig::awaited(|| manager.recv(&mut message));
        let text = String::from_utf8_lossy(&message[..bytes]).into_owned();
        assert!(text.starts_with(word), "{word}: {text}");
    };
    let mut command = Command::new(rig::BINARY);
    command.args(["serve", "-p", "-1", "-l", "127.0.0.1", "--sandbox", "on"]);
    command.env("NOTIFY_SOCKET", &path);
    let server = Process::start(command).expect("it serves");
    hears("READY=1");
    server.signal("HUP");
    hears("RELOADING=1");
    hears("READY=1");
    server.signal("TERM");
    hears("STOPPING=1");
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn metrics_and_the_dashboard_are_served_from_a_sandbox() {
    let server = Watched::start(&["--sandbox", "on"]);
    let mut client = server.client();
    assert_eq!(ask(&mut client, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    let scrape = server.scrape();
    assert!(scrape.value("laneway_process_resident_memory_bytes") > 0);
    for path in ["/", "/healthz", "/readyz", "/api/state"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
}

#[test]
fn a_unix_socket_and_its_folder_are_reached_from_a_sandbox() {
    let folder = Folder::new();
    let socket = text_in(&folder, "socket");
    for _ in 0..2 {
        let server = Process::serve(&["-s", &socket, "--sandbox", "on"]);
        let mut client = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        assert_eq!(ask(&mut client, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
        server.stop();
    }
}
