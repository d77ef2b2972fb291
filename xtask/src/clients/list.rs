//! The clients, how each is run, and what who uses it needs to know.

use crate::languages::{Place, Run, go, java, node, ran};
use crate::{Outcome, failed, process, python, setup, skipped};
use std::process::Command;

/// One client.
pub struct Client {
    /// As its script calls it.
    pub name: &'static str,
    pub language: &'static str,
    /// Whether a lock file of ours tells the version; else it is what Debian has.
    pub is_pinned: bool,
    /// Whether it is run a second time, with users.
    pub knows_sasl: bool,
    /// What is worth knowing who uses it with Laneway.
    pub advice: &'static str,
    pub run: Run,
}

const NOTHING: &str = "nothing";

const PINNED: Client = Client {
    name: "",
    language: "",
    is_pinned: true,
    knows_sasl: false,
    advice: NOTHING,
    run: |_| failed("it has no script"),
};

pub const CLIENTS: &[Client] = &[
    Client {
        name: "pymemcache",
        language: "Python",
        advice: "it waits for no reply to `set` unless `default_noreply=False`: a value that is \
                  refused is not told. Its own suite runs, too (`cargo xtask pymemcache`)",
        run: |place| python(place, "pymemcache"),
        ..PINNED
    },
    Client {
        name: "pylibmc",
        language: "Python",
        knows_sasl: true,
        advice: "binary mode and SASL by `binary=True`, `username`, `password`",
        run: |place| python(place, "pylibmc"),
        ..PINNED
    },
    Client {
        name: "python-binary-memcached",
        language: "Python",
        knows_sasl: true,
        advice: "each value is compressed unless `compress_level=0`, so that its size on the wire \
                  is not that of the value",
        run: |place| python(place, "python-binary-memcached"),
        ..PINNED
    },
    Client {
        name: "python-memcached",
        language: "Python",
        advice: "it refuses values above 1 MiB by itself: `server_max_value_length` belongs to a \
                  larger `-I`",
        run: |place| python(place, "python-memcached"),
        ..PINNED
    },
    Client {
        name: "aiomcache",
        language: "Python",
        advice: "keys and values are bytes; two connections by default (`pool_size`)",
        run: |place| python(place, "aiomcache"),
        ..PINNED
    },
    Client {
        name: "gomemcache",
        language: "Go",
        advice: "500 ms for a reply and two idle connections by default: raise `Timeout` and \
                  `MaxIdleConns` where values are large",
        run: |place| go(place, "gomemcache"),
        ..PINNED
    },
    Client {
        name: "memjs",
        language: "JavaScript",
        advice: "0.5 s for a reply by default (`timeout`), then it asks again; its `prepend` of \
                  1.3.2 sends what `append` sends",
        run: |place| node(place, "memjs"),
        ..PINNED
    },
    Client {
        name: "memcached (npm)",
        language: "JavaScript",
        advice: "it refuses values above 1 MiB by itself: `maxValue` belongs to a larger `-I`; a \
                  `Buffer` is half as long again on its way, since its bytes travel as UTF-8; it \
                  takes a server that refuses a value for one that is gone",
        run: |place| node(place, "memcached"),
        ..PINNED
    },
    Client {
        name: "spymemcached",
        language: "Java",
        advice: "one connection for all threads, so that small requests stand behind large ones \
                  in it: Laneway hurries these; values above 16 KiB are compressed",
        run: |place| java(place, ("spymemcached", "SpyClient")),
        ..PINNED
    },
    Client {
        name: "xmemcached",
        language: "Java",
        advice: "one connection by default (`setConnectionPoolSize`); it refuses values above \
                  1 MiB by itself (`SerializingTranscoder`), and compresses those above 16 KiB",
        run: |place| java(place, ("xmemcached", "XClient")),
        ..PINNED
    },
    Client {
        name: "dalli",
        language: "Ruby",
        is_pinned: false,
        advice: "binary by default, meta commands by `protocol: :meta`; it refuses values above 1 \
                  MiB by itself (`value_max_bytes`)",
        run: |place| interpreter(place, ("ruby", "ruby/main.rb"), setup::dalli),
        ..PINNED
    },
    Client {
        name: "php-memcached",
        language: "PHP",
        is_pinned: false,
        advice: "sessions work, with their locks (`session.save_handler = memcached`); values \
                  above 2000 bytes are compressed by default",
        run: |place| interpreter(place, ("php", "php/main.php"), setup::php_memcached),
        ..PINNED
    },
    Client {
        name: "libmemcached's tools",
        language: "C",
        is_pinned: false,
        advice: "Debian calls `memcp` `memccp`, and so on",
        run: tools,
        ..PINNED
    },
];

fn python(place: &Place, name: &str) -> Outcome {
    let folder = place.scripts.join("python");
    let python = match python::environment("venv-clients", &folder.join("requirements.txt")) {
        Ok(python) => python,
        Err(why) => return skipped(format!("it cannot be fetched from PyPI ({why})")),
    };
    place.script(Command::new(python).arg(folder.join("main.py")).arg(name))
}

/// A script for an interpreter of Debian's, and whether that has the client.
fn interpreter(place: &Place, (program, script): (&str, &str), has_it: fn() -> bool) -> Outcome {
    match has_it() {
        true => place.script(Command::new(program).arg(place.scripts.join(script))),
        false => skipped(format!("{program} does not have it: cargo xtask setup")),
    }
}

fn tools(place: &Place) -> Outcome {
    if process::find_program("memccp").is_none() {
        return skipped("no memccp here: cargo xtask setup");
    }
    let folder = place.built.join("tools");
    process::make_dir(&folder)?;
    let mut command = Command::new("sh");
    ran(command.arg(place.scripts.join("shell/tools.sh")).arg(&place.port).arg(&folder))
}
