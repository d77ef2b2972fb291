//! Flags from a file and from the environment, and the file that `--print-config` writes.

use super::command_line::all;
use super::flag::Field;
use super::foreign::STATUS_UNKNOWN;
use super::layers::place;
use super::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file of the test's own, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &str) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-config-{}-{number}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("temp is writable");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the test is over
    }
}

/// Returns the flags that a file, variables written as `NAME=value`, and a command line make.
fn layers(file: &str, variables: &str, line: &str) -> Result<Flags, Refused> {
    let file = Scratch::new(file);
    let variables = variables.split_whitespace().map(|pair| {
        let (name, value) = pair.split_once('=').expect("NAME=value");
        (OsString::from(format!("LANEWAY_{name}")), OsString::from(value))
    });
    let args = line.split_whitespace().map(OsString::from);
    let args = ["--config".into(), file.0.clone().into_os_string()].into_iter().chain(args);
    match read(args, variables)? {
        Asked::Serve(mut flags) => {
            flags.config = None;
            flags.origins.retain(|(name, _)| *name != "config");
            Ok(*flags)
        }
        other => panic!("{other:?}"),
    }
}

/// The same without where each was given.
fn values_of(mut flags: Flags) -> Flags {
    flags.origins.clear();
    flags
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let file = "port = 1\nlisten = [\"127.0.0.1\", \"::1\"]\nverbose = 2\nsteer = true\n\
                extended = \"idle_timeout=9\"\nthreads = 3";
    let flags = layers(file, "PORT=2 LISTEN=10.0.0.1,10.0.0.2 WORKERS=4", "-p 3 -l 10.0.0.3 -l x")
        .expect("all of it is known");
    assert_eq!((flags.port, flags.workers, flags.verbose), (Some(3), Some(4), 2));
    assert_eq!(flags.listen, ["10.0.0.3", "x"], "a list replaces a list");
    assert!(flags.steer && flags.extended.idle_timeout == Some(9));
    let flags = layers(file, "PORT=2 LISTEN=10.0.0.1,10.0.0.2 VERBOSE=1", "").expect("known");
    assert_eq!((flags.port, flags.workers, flags.verbose), (Some(2), Some(3), 1));
    assert_eq!(flags.listen, ["10.0.0.1,10.0.0.2"]);
    let flags = layers(file, "STEER=no", "-v").expect("known");
    assert_eq!((flags.port, flags.steer, flags.verbose), (Some(1), false, 1));
    assert_eq!(flags.listen, ["127.0.0.1", "::1"]);
    assert!(!layers(file, "", "--steer=false").expect("known").steer);
}

#[test]
fn the_environment_names_a_file_too_and_the_command_line_another() {
    let (one, two) = (Scratch::new("port = 1"), Scratch::new("port = 2"));
    let variable = || (OsString::from("LANEWAY_CONFIG"), one.0.clone().into_os_string());
    let port = |args: Vec<OsString>| match read(args, [variable()]) {
        Ok(Asked::Serve(flags)) => flags.port,
        other => panic!("{other:?}"),
    };
    assert_eq!(port(Vec::new()), Some(1));
    assert_eq!(port(vec!["--config".into(), two.0.clone().into()]), Some(2));
}

#[test]
fn a_file_with_a_mistake_is_refused_with_its_line_and_what_belongs_there() {
    for (file, status, words) in [
        (
            "port = 1\nprot = 2",
            STATUS_UNKNOWN,
            ".toml:2: prot: not a key of this file; did you mean port?",
        ),
        (
            "\n\nmemory_limit = 2",
            STATUS_UNKNOWN,
            ".toml:3: memory_limit: not a key of this file; did you mean memory-limit?",
        ),
        ("config = \"x\"", STATUS_UNKNOWN, ".toml:1: config: is for the command line alone"),
        ("[port]\nx = 1", 2, ".toml:1: port = "),
        ("[lanes]\nform = \"roles\"", STATUS_UNKNOWN, ".toml:1: lanes: not a key"),
        ("port = \"abc\"", 2, ".toml:1: port = \"abc\": expected a whole number, such as 64"),
        ("port = 1.5", 2, ".toml:1: port = 1.5: expected a whole number"),
        ("port = 99999999999", 2, ".toml:1: port: 99999999999 is not a number this flag can take"),
        ("alpha = true", 2, ".toml:1: alpha = true: expected a number, such as 0.9"),
        ("steer = 1", 2, ".toml:1: steer = 1: expected true or false"),
        ("user = 5", 2, ".toml:1: user = 5: expected a string"),
        ("listen = [\"a\", 5]", 2, ".toml:1: listen = [\"a\", 5]: expected a string, or an array"),
        ("listen = []", 2, ".toml:1: listen = []: expected"),
        ("unix-mask = 700", 2, ".toml:1: unix-mask = 700: expected a string in octal"),
        ("memory-limit = 1.5", 2, "expected a number of MiB, or a string with k, m or g"),
        ("max-item-size = \"8x\"", 2, ".toml:1: max-item-size: 8x is not a size"),
        ("port = 1\n\nport = 2", 2, ".toml:3: this is no TOML: duplicate key"),
        ("threads = 1\nworkers = 2", 2, ".toml:2: workers: line 1 has this key by its other name"),
        ("port = ", 2, ".toml:1: this is no TOML: "),
        ("protocol = \"http\"", STATUS_UNKNOWN, ".toml:1: protocol: http: not a protocol"),
        ("extended = \"idle_timout=1\"", STATUS_UNKNOWN, "did you mean idle_timeout?"),
        ("auth-flie = \"x\"", STATUS_UNKNOWN, ".toml:1: auth-flie: not a key"),
    ] {
        let refused = layers(file, "", "").expect_err(file);
        assert!(refused.why.contains(words), "{file}: {}", refused.why);
        assert_eq!(refused.status, status, "{file}: {}", refused.why);
    }
    let nowhere = ["--config", "/no/such/file"].map(OsString::from);
    let refused = read(nowhere, []).expect_err("it is not there");
    assert!(refused.why.contains("--config /no/such/file: it cannot be read"), "{}", refused.why);
}

#[test]
fn a_variable_with_a_mistake_is_refused_and_those_of_others_are_passed_over() {
    for (variables, status, words) in [
        (
            "PROT=1",
            STATUS_UNKNOWN,
            "LANEWAY_PROT: not a variable of this server; did you mean LANEWAY_PORT?",
        ),
        ("port=1", STATUS_UNKNOWN, "LANEWAY_port: not a variable"),
        ("MEMORY-LIMIT=1", STATUS_UNKNOWN, "LANEWAY_MEMORY-LIMIT: not a variable"),
        ("PRINT_CONFIG=true", STATUS_UNKNOWN, "LANEWAY_PRINT_CONFIG: not a variable"),
        ("PORT=x", 2, "LANEWAY_PORT: x is not a number"),
        ("CLIENT_RATE=5k", 2, "5k is not a number this flag can take; write digits alone"),
        ("LISTEN=", 2, "LANEWAY_LISTEN: is empty"),
        ("STEER=maybe", 2, "LANEWAY_STEER: maybe: must be true or false"),
        ("THREADS=1 WORKERS=2", 2, "LANEWAY_WORKERS: is the same as LANEWAY_THREADS"),
    ] {
        let refused = layers("", variables, "").expect_err(variables);
        assert!(refused.why.contains(words), "{variables}: {}", refused.why);
        assert_eq!(refused.status, status, "{variables}: {}", refused.why);
    }
    // A pod beside a service that is called laneway, or laneway-cache.
    let pod = "SERVICE_HOST=10.0.0.1 SERVICE_PORT=11211 SERVICE_PORT_MEMCACHE=11211 \
               PORT=tcp://10.0.0.1:11211 PORT_11211_TCP=tcp://10.0.0.1:11211 \
               PORT_11211_TCP_PROTO=tcp PORT_11211_TCP_PORT=11211 PORT_11211_TCP_ADDR=10.0.0.1 \
               CACHE_SERVICE_HOST=10.0.0.1 CACHE_PORT=tcp://10.0.0.1:1 CACHE_PORT_1_TCP_ADDR=::1 \
               IN_BACKGROUND=1 SEED=7";
    assert_eq!(layers("", pod, ""), Ok(Flags::default()));
}

#[test]
fn what_is_wrong_later_says_where_it_was_given() {
    let flags = layers("\nport = 70000", "UDP_PORT=70000", "-c 0").expect("each fits its type");
    for (error, told) in [
        ("-p 70000: must be", Some(".toml:2)")),
        ("-U 70000: must be", Some("(udp-port is given by LANEWAY_UDP_PORT)")),
        ("-c 0: must be", None),
        ("-t 0: must be", None),
        ("no flag at all", None),
    ] {
        let place = place(&flags, error);
        assert_eq!(place.is_some(), told.is_some(), "{error}: {place:?}");
        assert!(place.unwrap_or_default().ends_with(told.unwrap_or_default()), "{error}");
    }
}

/// A value that a row's flag takes, as it is typed.
fn example(field: Field<'_>, choice: Option<&'static str>) -> &'static str {
    let own = match field {
        Field::Switch(_) => "true",
        Field::Count(_) => "3",
        Field::Number(number) if number.is_decimal() => "0.5",
        Field::Number(_) => "7",
        Field::Bytes(_) => "12345",
        Field::Megabytes(_) => "1025k",
        Field::Octal(_) => "640",
        Field::Text(_) => "a \"b\"\\c",
        Field::TextOrNumber(_) => "12",
        Field::Path(_) => "/with 'quotes'/ü",
        Field::List(_) => "127.0.0.1,[::1]:5",
        Field::Extended(_) => "idle_timeout=60",
        Field::Protocol(_) => "ascii",
    };
    choice.unwrap_or(own)
}

#[test]
fn each_flag_is_a_key_and_a_variable_and_what_is_printed_reads_back_to_the_same() {
    let mut all_of_them = Flags::default();
    for flag in all().filter(|flag| !flag.typed_only) {
        let choice = flag.choices.first().map(|(name, _)| *name);
        let value = example((flag.field)(&mut Flags::default()), choice);
        let is_switch = command_line::is_switch(flag);
        for typed in flag
            .letter
            .map(|letter| format!("-{letter}"))
            .into_iter()
            .chain(flag.names().map(|name| format!("--{name}")))
        {
            let args = match is_switch {
                true => vec![OsString::from(&typed)],
                false => vec![OsString::from(&typed), OsString::from(value)],
            };
            let Ok(Asked::Serve(by_line)) = read(args, []) else { panic!("{typed} {value}") };
            if flag.name != "verbose" {
                let set = [(OsString::from(flag.variable()), OsString::from(value))];
                let Ok(Asked::Serve(by_variable)) = read([], set) else { panic!("{typed}") };
                assert_eq!(values_of(*by_variable), values_of((*by_line).clone()), "{typed}");
            }
            let printed = config(&by_line);
            let again = layers(&printed, "", "").unwrap_or_else(|error| panic!("{error:?}"));
            assert_eq!(values_of(again), values_of(*by_line), "{typed}: {printed}");
        }
        values::put((flag.field)(&mut all_of_them), value.as_ref()).expect("it is an example");
    }
    let printed = config(&all_of_them);
    assert_eq!(layers(&printed, "", "").map(values_of), Ok(all_of_them), "{printed}");
    // Without the signs of a comment the defaults are a file, too.
    let defaults = config(&Flags::default());
    let lines = defaults.lines().filter_map(|line| line.strip_prefix("# "));
    let lines: Vec<&str> = lines.filter(|line| line.contains(" = ")).collect();
    assert!(lines.len() > 30, "{defaults}");
    layers(&lines.join("\n"), "", "").unwrap_or_else(|error| panic!("{error:?}"));
}

#[test]
fn the_table_has_no_name_twice_and_says_something_of_each() {
    let mut names: Vec<String> = all()
        .flat_map(|flag| flag.names().map(str::to_owned).chain(flag.letter.map(String::from)))
        .chain(
            help::ACTIONS
                .iter()
                .flat_map(|(letter, name, _)| [letter.to_string(), name.to_string()]),
        )
        .collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    let text = super::help();
    for flag in all() {
        assert!(!flag.help.is_empty(), "{}", flag.name);
        assert!(text.contains(&format!("--{}", flag.name)), "{}", flag.name);
    }
    let long = text.lines().filter(|line| line.chars().count() > 82).collect::<Vec<_>>();
    assert_eq!(long, Vec::<&str>::new());
}
