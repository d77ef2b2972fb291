//! The clients (`list.toml`), how each is run, and what who uses it needs to know.

use crate::languages::{Place, go, java, node, ran};
use crate::{Outcome, process, python, setup, skipped};
use serde::Deserialize;
use std::process::Command;
use std::sync::LazyLock;

/// One client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// As its script calls it.
    pub name: String,
    pub language: String,
    run: Run,
    /// Whether it is the one that Debian has; else a lock file of ours tells the version.
    #[serde(default)]
    pub is_debians: bool,
    /// Whether it is run a second time, with users.
    #[serde(default)]
    pub knows_sasl: bool,
    /// What is worth knowing who uses it with Laneway.
    pub advice: String,
}

/// How its script is run.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Run {
    /// With the client's name.
    Python(String),
    /// In this folder.
    Go(String),
    Node(String),
    /// With the name of its library, and that of its class.
    Java((String, String)),
    Ruby,
    Php,
    Tools,
}

/// The file's own form.
#[derive(Deserialize)]
struct List {
    client: Vec<Client>,
}

pub static CLIENTS: LazyLock<Vec<Client>> = LazyLock::new(|| {
    let list: List = toml::from_str(include_str!("list.toml")).expect("clients");
    list.client
});

impl Client {
    /// Runs its script; what that said in its last line.
    pub fn run(&self, place: &Place) -> Outcome {
        match &self.run {
            Run::Python(name) => python(place, name),
            Run::Go(folder) => go(place, folder),
            Run::Node(folder) => node(place, folder),
            Run::Java((library, class)) => java(place, (library, class)),
            Run::Ruby => interpreter(place, ("ruby", "ruby/main.rb"), "ruby-dalli"),
            Run::Php => interpreter(place, ("php", "php/main.php"), "php-memcached"),
            Run::Tools => tools(place),
        }
    }
}

fn python(place: &Place, name: &str) -> Outcome {
    let folder = place.scripts.join("python");
    let python = match python::environment("venv-clients", &folder.join("requirements.txt")) {
        Ok(python) => python,
        Err(why) => return skipped(format!("it cannot be fetched from PyPI ({why})")),
    };
    place.script(Command::new(python).arg(folder.join("main.py")).arg(name))
}

/// A script for an interpreter of Debian's, and the package that brings the client to it.
fn interpreter(place: &Place, (program, script): (&str, &str), package: &str) -> Outcome {
    match setup::has(package) {
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
