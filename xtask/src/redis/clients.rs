//! Real clients of Redis, each with a script of its own that verifies what it gets back
//! (tests-external/redis/clients).

use crate::languages::{self, Place, Told, go, java, node};
use crate::peers;
use crate::process;
use std::path::Path;
use std::process::Command;

/// One client: its name, and what its script says at the end; or why it cannot run here.
struct Client {
    name: &'static str,
    run: fn(&Place) -> Result<Told, String>,
}

const CLIENTS: &[Client] = &[
    Client { name: "go-redis", run: |place| go(place, "go-redis") },
    Client { name: "ioredis", run: |place| node(place, "ioredis") },
    Client { name: "node-redis", run: |place| node(place, "node-redis") },
    Client { name: "redis-rs", run: redis_rs },
    Client { name: "hiredis", run: hiredis },
    Client { name: "redis-cli", run: |place| cli(place, "redis-cli") },
    Client { name: "valkey-cli", run: |place| cli(place, "valkey-cli") },
    Client { name: "redis-benchmark", run: |place| benchmark(place, "redis-benchmark") },
    Client { name: "valkey-benchmark", run: |place| benchmark(place, "valkey-benchmark") },
    Client { name: "lettuce", run: |place| java(place, ("lettuce-core", "LettuceClient")) },
    Client { name: "jedis", run: |place| java(place, ("jedis", "JedisClient")) },
];

/// Runs all clients whose name contains `only`; what each said, and which were left out.
pub fn run(glue: &Path, port: u16, only: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let place = Place {
        scripts: glue.join("clients"),
        built: process::scratch_dir("redis-clients")?,
        port: port.to_string(),
        further: Vec::new(),
    };
    let (mut ran, mut left_out) = (Vec::new(), Vec::new());
    for client in CLIENTS.iter().filter(|client| client.name.contains(only)) {
        match (client.run)(&place).map_err(|why| format!("{}: {why}", client.name))? {
            Told::Ran(said) => {
                println!("{said}");
                ran.push(said);
            }
            Told::LeftOut(why) => left_out.push(format!("{}: {why}", client.name)),
        }
    }
    Ok((ran, left_out))
}

fn redis_rs(place: &Place) -> Result<Told, String> {
    let folder = place.copy("redis-rs")?;
    let cargo = |word: &str| {
        let mut command = process::cargo();
        command.args([word, "--locked", "--quiet", "--manifest-path"]);
        command.arg(folder.join("Cargo.toml"));
        command
    };
    if let Err(why) = languages::fetch(&mut cargo("fetch"))? {
        return Ok(Told::LeftOut(why));
    }
    process::run(cargo("build").arg("--target-dir").arg(folder.join("target")))?;
    place.script(&mut Command::new(folder.join("target/debug/laneway-redis-rs")))
}

fn hiredis(place: &Place) -> Result<Told, String> {
    if !Path::new("/usr/include/hiredis/hiredis.h").is_file() {
        return Ok(Told::LeftOut("no libhiredis-dev here".into()));
    }
    let Some(compiler) = ["cc", "gcc", "clang-14"].into_iter().find_map(process::find_program)
    else {
        return Ok(Told::LeftOut("no C compiler here".into()));
    };
    let folder = place.copy("hiredis")?;
    let mut build = Command::new(compiler);
    build.args(["-std=c11", "-Wall", "-Werror", "main.c", "-lhiredis", "-o", "client"]);
    process::run(build.current_dir(&folder))?;
    place.script(&mut Command::new(folder.join("client")))
}

fn cli(place: &Place, name: &str) -> Result<Told, String> {
    let Some(program) = peers::program(name) else { return Ok(Told::LeftOut(no_peers())) };
    let folder = place.built.join(name);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut command = Command::new("sh");
    command.arg(place.scripts.join("shell/cli.sh")).arg(program).arg(&place.port).arg(&folder);
    let (status, text) = process::capture(&mut command)?;
    languages::told(&command, status.success(), &text)
}

fn benchmark(place: &Place, name: &str) -> Result<Told, String> {
    let both = (peers::program(name), peers::program("valkey-cli"));
    let (Some(program), Some(cli)) = both else { return Ok(Told::LeftOut(no_peers())) };
    let mut command = Command::new("sh");
    command.arg(place.scripts.join("shell/benchmark.sh")).arg(program).arg(&place.port).arg(cli);
    let (status, text) = process::capture(&mut command)?;
    languages::told(&command, status.success(), &text)
}

fn no_peers() -> String {
    "it is not unpacked: cargo xtask peers".into()
}
