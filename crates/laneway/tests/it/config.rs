//! The binary configured by a file, by variables and by flags; what it prints for shells, for `man`
//! and as a configuration.

use crate::rig::{BINARY, Process, Scratch, stat, text};
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(args).envs(variables.iter().copied()).output().expect("it runs")
}

#[test]
fn a_server_is_configured_by_a_file_a_variable_and_a_flag() {
    let file =
        Scratch::file_of("serve.toml", "port = -1\nlisten = \"127.0.0.1\"\nmemory-limit = 16\n");
    let mut command = Command::new(BINARY);
    command.args(["serve", "-I", "4096"]);
    command.env("LANEWAY_CONFIG", file.path()).env("LANEWAY_MEMORY_LIMIT", "32");
    let process = Process::start(command).expect("it serves");
    let mut client = process.connect();
    assert_eq!(stat(&mut client, "settings", "maxbytes"), 32 << 20);
    assert_eq!(stat(&mut client, "settings", "item_size_max"), 4096);
    process.stop();
}

#[test]
fn users_are_read_again_though_the_file_of_config_is_wrong() {
    let users = Scratch::file_of("hup-wrong-users", "a:b\n");
    let file = Scratch::file_of("hup-wrong.toml", "port = -1\nlisten = \"127.0.0.1\"\n");
    let mut server = Process::serve(&["--config", file.path(), "-Y", users.path()]);
    std::fs::write(&file.0, "port = \"none\"\n").expect("temp is writable");
    std::fs::write(&users.0, "a:b\nc:d\n").expect("temp is writable");
    server.signal("HUP");
    server.await_log("2 users from now on");
    assert!(server.said.contains("everything in the file stays as it was"), "{}", server.said);
    server.stop();
}

#[test]
fn hup_tells_what_has_changed_and_changes_what_can_be() {
    let text_of = |rest: &str| format!("port = -1\nlisten = \"127.0.0.1\"\n{rest}");
    let file = Scratch::file_of("hup.toml", &text_of("memory-limit = 64\n"));
    let write = |rest: &str| std::fs::write(&file.0, text_of(rest)).expect("temp is writable");
    let mut server = Process::serve(&["--config", file.path()]);
    let mut client = server.connect();
    let mut limit = || stat(&mut client, "", "limit_maxbytes");
    assert_eq!(limit(), 64 << 20);
    write("memory-limit = 96\nverbose = 1\nconn-limit = 9\n");
    server.signal("HUP");
    for words in [
        "SIGHUP: conn-limit: 1024 (the default) -> 9, at the next start",
        "SIGHUP: memory-limit: 64 -> 96, now",
        "SIGHUP: verbose: off -> 1, now",
    ] {
        server.await_log(words);
    }
    assert_eq!(limit(), 96 << 20);
    // Files that no server could be started with, one after the other.
    for (rest, words) in [
        ("memory-limit = 32\nnonsense = 1\n", ":4: nonsense: not a key of this file"),
        ("memory-limit = 32\nconn-limit = 0\n", "-c 0: must be at least 1"),
        ("memory-limit = ", "this is no TOML"),
    ] {
        write(rest);
        server.signal("HUP");
        server.await_log(words);
        assert!(
            server.said.ends_with("everything in the file stays as it was\n"),
            "{}",
            server.said
        );
        assert_eq!(limit(), 96 << 20, "{rest}");
    }
    // The server tells once of each key that it passes over.
    for _ in 0..2 {
        write("memory-limit = 96\nverbose = 1\nextended = \"hashpower=20\"\n");
        server.signal("HUP");
        server.await_log("SIGHUP: the configuration is as it was");
        let words = "SIGHUP: -o hashpower=20 has no effect";
        assert_eq!(server.said.matches(words).count(), 1, "{}", server.said);
    }
    server.stop();
}

/// Nothing is left of a pipe, and a file with nothing in it has the defaults.
#[test]
fn a_configuration_that_came_by_a_pipe_is_not_read_again() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let all = b"port = -1\nlisten = \"127.0.0.1\"\nmemory-limit = 96\n";
    writer.write_all(all).expect("it has room");
    drop(writer);
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config", "/dev/stdin"]).stdin(reader);
    let mut server = Process::start(command).expect("it serves");
    server.signal("HUP");
    server.await_log("SIGHUP: --config /dev/stdin: it is no file, and is read once");
    assert_eq!(stat(&mut server.connect(), "", "limit_maxbytes"), 96 << 20);
    server.stop();
}

/// The process in the background reads it again, and would listen at every address.
#[test]
fn a_configuration_that_comes_by_standard_input_starts_nothing_in_the_background() {
    let all = "port = -1\nlisten = \"127.0.0.1\"\n";
    let file = Scratch::file_of("background.toml", all);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(all.as_bytes()).expect("it has room");
    drop(writer);
    let asks = Scratch::file_of("asks-for-background.toml", &format!("{all}daemon = true\n"));
    let opened = |file: &Scratch| Stdio::from(std::fs::File::open(&file.0).expect("it is there"));
    for (input, words) in [
        (Stdio::from(reader), &["-d"][..]),
        (opened(&file), &["-d"]),
        // Nothing tells the process in the background that it is to be one.
        (opened(&asks), &[]),
    ] {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config", "/dev/stdin"]).args(words).stdin(input);
        let output = command.output().expect("it runs");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{told}");
        assert!(told.contains("-d: --config /dev/stdin is no file"), "{told}");
    }
}

#[test]
fn what_is_printed_as_configuration_prints_itself() {
    let variables = [("LANEWAY_HOT", "off"), ("LANEWAY_UDP_PORT", "5000")];
    let first = run(&["serve", "-m", "1g", "-vv", "-l", "::1", "--print-config"], &variables);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let file = Scratch::file_of("printed.toml", &text(&first.stdout));
    let again = run(&["serve", "--config", file.path(), "--print-config"], &[]);
    let settings = |output: &Output| {
        let lines = text(&output.stdout);
        let lines = lines.lines().map(|line| line.split("  # by").next().map(str::to_owned));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(settings(&first), settings(&again));
    assert!(text(&again.stdout).contains("\nmemory-limit = 1024  # by "), "{again:?}");
}

#[test]
fn a_configuration_that_cannot_be_says_where_it_stands() {
    let file = Scratch::file_of("wrong.toml", "\nport = 70000\n");
    let place = format!("(port is given by {}:2)", file.path());
    let typo = Scratch::file_of("typo.toml", "\n\nlisen = \"127.0.0.1\"\n");
    let typo_place =
        format!("{}:3: lisen: not a key of this file; did you mean listen?", typo.path());
    for (args, variables, status, words) in [
        (&["serve", "--config", file.path()][..], &[][..], 2, &*place),
        (&["serve", "--config", typo.path()], &[], 1, &typo_place),
        (&["serve"], &[("LANEWAY_LISEN", "127.0.0.1")], 1, "did you mean LANEWAY_LISTEN?"),
        (&["serve"], &[("LANEWAY_THREADS", "0")], 2, "(threads is given by LANEWAY_THREADS)"),
        (&["serve", "--print-config", "-t", "0"], &[], 2, "-t 0: must be from 1"),
    ] {
        let output = run(args, variables);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {told}");
        assert!(told.contains(words) && told.lines().count() == 1, "{args:?}: {told}");
    }
}

/// As a start does, which becomes nobody else where it is not root's.
#[test]
fn a_user_who_is_not_there_is_refused_where_the_configuration_is_printed() {
    let is_root = nix::unistd::geteuid().is_root();
    for (user, is_there) in [("root", true), ("no-such-user-here", false)] {
        let output = run(&["serve", "--print-config", "-u", user], &[]);
        let told = text(&output.stderr);
        let is_taken = is_there || !is_root;
        assert_eq!(output.status.code(), Some(if is_taken { 0 } else { 70 }), "{user}: {told}");
        assert_eq!(told.contains("-u no-such-user-here: there is no such user"), !is_taken);
        assert_eq!(output.stdout.is_empty(), !is_taken, "{user}");
    }
}

#[test]
fn shells_complete_the_flags_and_man_tells_them() {
    for (args, words) in [
        (&["completions", "bash"][..], &["--memory-limit", "hkh-ws", "_laneway()"][..]),
        (&["completions", "zsh"], &["#compdef laneway", "--memory-limit=", "hkh-ws"]),
        (&["completions", "fish"], &["complete -c laneway", "-l memory-limit", "hkh-ws"]),
        (&["man", "serve"], &[".TH laneway-serve 1", "memory\\-limit", "hkh\\-ws", "SIGTERM"]),
        (&["man"], &[".TH laneway 1", "doctor"]),
    ] {
        let output = run(args, &[]);
        let told = text(&output.stdout);
        assert!(output.status.success(), "{args:?}");
        for word in words {
            assert!(told.contains(word), "{args:?}: {word}");
        }
    }
    for args in [&["completions"][..], &["completions", "tcsh"], &["man", "bench"]] {
        assert_eq!(run(args, &[]).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn bash_completes_what_is_printed_for_it() {
    let script = text(&run(&["completions", "bash"], &[]).stdout);
    // As bash calls it for `laneway serve --desi<TAB>`.
    let ask = "COMP_WORDS=(laneway serve --desi); COMP_CWORD=2; _laneway laneway --desi serve; \
               echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output();
    let output = output.expect("there is bash");
    assert_eq!(text(&output.stdout), "--design\n", "{}", text(&output.stderr));
}
