//! Real clients of Redis, each with a script of its own that verifies what it gets back
//! (tests-external/redis/clients).

use crate::languages::{self, Place, Run, go, java, node, ran};
use crate::{Failure, Outcome, peers, process, setup, skipped};
use std::path::{Path, PathBuf};
use std::process::Command;

const CLIENTS: &[(&str, Run)] = &[
    ("go-redis", |place| go(place, "go-redis")),
    ("ioredis", |place| node(place, "ioredis")),
    ("node-redis", |place| node(place, "node-redis")),
    ("redis-rs", redis_rs),
    ("hiredis", hiredis),
    ("redis-cli", |place| cli(place, "redis-cli")),
    ("valkey-cli", |place| cli(place, "valkey-cli")),
    ("redis-benchmark", |place| benchmark(place, "redis-benchmark")),
    ("valkey-benchmark", |place| benchmark(place, "valkey-benchmark")),
    ("lettuce", |place| java(place, ("lettuce-core", "LettuceClient"))),
    ("jedis", |place| java(place, ("jedis", "JedisClient"))),
];

/// Runs all clients; what each said, and which were left out.
pub fn run(glue: &Path, port: u16) -> Result<(Vec<String>, Vec<String>), Failure> {
    let place = Place {
        scripts: glue.join("clients"),
        built: process::scratch_dir("redis-clients")?,
        port: port.to_string(),
        further: Vec::new(),
    };
    let (mut said_all, mut left_out) = (Vec::new(), Vec::new());
    for (name, client) in CLIENTS {
        match place.run(name, *client)? {
            Ok(said) => said_all.push(said),
            Err(why) => left_out.push(format!("{name}: {why}")),
        }
    }
    Ok((said_all, left_out))
}

fn redis_rs(place: &Place) -> Outcome {
    let folder = place.copy("redis-rs")?;
    let cargo = |word: &str| {
        let mut command = process::cargo();
        command.args([word, "--locked", "--quiet", "--manifest-path"]);
        command.arg(folder.join("Cargo.toml"));
        command
    };
    languages::fetch(&mut cargo("fetch"))?;
    process::run(cargo("build").arg("--target-dir").arg(folder.join("target")))?;
    place.script(&mut Command::new(folder.join("target/debug/laneway-redis-rs")))
}

fn hiredis(place: &Place) -> Outcome {
    if !setup::has("libhiredis-dev") || process::find_program("cc").is_none() {
        return skipped("no libhiredis-dev, or no C compiler here");
    }
    let folder = place.copy("hiredis")?;
    let mut build = Command::new("cc");
    build.args(["-std=c11", "-Wall", "-Werror", "main.c", "-lhiredis", "-o", "client"]);
    process::run(build.current_dir(&folder))?;
    place.script(&mut Command::new(folder.join("client")))
}

fn cli(place: &Place, name: &str) -> Outcome {
    let folder = place.built.join(name);
    process::make_dir(&folder)?;
    shell(place, "shell/cli.sh", name, folder)
}

fn benchmark(place: &Place, name: &str) -> Outcome {
    shell(place, "shell/benchmark.sh", name, peer("valkey-cli")?)
}

fn shell(place: &Place, script: &str, name: &str, last: PathBuf) -> Outcome {
    let mut command = Command::new("sh");
    command.arg(place.scripts.join(script)).arg(peer(name)?).arg(&place.port);
    ran(command.arg(last))
}

fn peer(name: &str) -> Result<PathBuf, Failure> {
    let why = || Failure::Skipped("it is not unpacked: cargo xtask peers".into());
    peers::program(name).ok_or_else(why)
}
