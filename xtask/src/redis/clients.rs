//! Real clients of Redis, each with a script of its own that verifies what it gets back.
//!
//! A client is pinned by its lock file (tests-external/redis/clients), fetched by the package
//! manager of its language and built below the target folder. Whose tools are not here is left out
//! by name.

use crate::peers;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One client: its name, and what its script says at the end; or why it cannot run here.
struct Client {
    name: &'static str,
    run: fn(&Place) -> Result<Told, String>,
}

enum Told {
    Ran(String),
    /// It could not run here, and why.
    LeftOut(String),
}

/// Where the scripts lie, where to build, and the server's port.
struct Place {
    scripts: PathBuf,
    built: PathBuf,
    port: String,
}

const CLIENTS: &[Client] = &[
    Client { name: "go-redis", run: go_redis },
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

impl Place {
    /// A folder with a fresh copy of the files of this script: builds leave nothing in the tree.
    fn copy(&self, name: &str) -> Result<PathBuf, String> {
        let (from, to) = (self.scripts.join(name), self.built.join(name));
        copy(&from, &to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
        Ok(to)
    }

    fn script(&self, command: &mut Command) -> Result<Told, String> {
        let (status, text) = process::capture(command.arg(&self.port))?;
        told(command, status.success(), &text)
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &to)?,
            // An equal file stays as it is, or everything would be built anew each time.
            false if std::fs::read(&to).ok() == Some(std::fs::read(&path)?) => {}
            false => std::fs::copy(&path, &to).map(drop)?,
        }
    }
    Ok(())
}

/// What a script said at its end, or how it failed.
fn told(command: &Command, is_good: bool, text: &str) -> Result<Told, String> {
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    match is_good {
        true => Ok(Told::Ran(last.trim().to_owned())),
        false => Err(format!("`{}` failed: {}", process::typed(command), text.trim())),
    }
}

/// Fetches packages; inside, why the client is left out where they cannot be had.
fn fetch(command: &mut Command) -> Result<Result<(), String>, String> {
    let (status, text) = process::capture(command)?;
    let typed = process::typed(command);
    Ok(match status.success() {
        true => Ok(()),
        false => Err(format!("`{typed}` failed: {}", text.lines().last().unwrap_or_default())),
    })
}

/// The numbers of the first version in what `program` says of itself, such as 20 and 18.
fn version(program: &str, argument: &str) -> Option<(u32, u32)> {
    let (_, text) = process::capture(Command::new(program).arg(argument)).ok()?;
    version_in(&text)
}

fn version_in(text: &str) -> Option<(u32, u32)> {
    let mut words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    let word = words.find(|word| word.contains('.') && !word.starts_with('.'))?;
    let mut numbers = word.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Why a tool will not do: it is missing, or older than this.
fn lacks(program: &str, argument: &str, wanted: (u32, u32)) -> Option<String> {
    match process::find_program(program).and_then(|_| version(program, argument)) {
        None => Some(format!("no {program} here")),
        Some(found) if found < wanted => {
            let ((a, b), (c, d)) = (found, wanted);
            Some(format!("{program} is {a}.{b} here, and {c}.{d} is wanted"))
        }
        Some(_) => None,
    }
}

fn go_redis(place: &Place) -> Result<Told, String> {
    if let Some(why) = lacks("go", "version", (1, 24)) {
        return Ok(Told::LeftOut(why));
    }
    let folder = place.copy("go-redis")?;
    let go = |words: &[&str]| {
        let mut command = Command::new("go");
        command.args(words).env("GOTOOLCHAIN", "local").current_dir(&folder);
        command
    };
    if let Err(why) = fetch(&mut go(&["mod", "download"]))? {
        return Ok(Told::LeftOut(why));
    }
    process::run(&mut go(&["build", "-mod=readonly", "-o", "client", "."]))?;
    place.script(&mut Command::new(folder.join("client")))
}

fn node(place: &Place, name: &str) -> Result<Told, String> {
    let missing = lacks("node", "--version", (20, 0)).or_else(|| lacks("npm", "--version", (7, 0)));
    if let Some(why) = missing {
        return Ok(Told::LeftOut(why));
    }
    let folder = place.copy(name)?;
    let (lock, installed) = (folder.join("package-lock.json"), folder.join("installed.json"));
    if std::fs::read(&lock).ok() != std::fs::read(&installed).ok() {
        let mut install = Command::new("npm");
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        if let Err(why) = fetch(install.current_dir(&folder))? {
            return Ok(Told::LeftOut(why));
        }
        std::fs::copy(&lock, &installed).map_err(|e| format!("{}: {e}", installed.display()))?;
    }
    place.script(Command::new("node").arg(folder.join("main.js")))
}

/// What fetches a Java client's libraries, pinned as they are.
const COPY_LIBRARIES: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

fn java(place: &Place, (library, class): (&str, &str)) -> Result<Told, String> {
    let missing = lacks("javac", "-version", (17, 0)).or_else(|| lacks("mvn", "-v", (3, 6)));
    if let Some(why) = missing {
        return Ok(Told::LeftOut(why));
    }
    let folder = place.copy("java")?;
    let (pom, installed) = (folder.join("pom.xml"), folder.join("installed.xml"));
    if std::fs::read(&pom).ok() != std::fs::read(&installed).ok() {
        // What an older pom.xml asked for must not lie beside what this one asks for.
        let libraries = folder.join("libraries");
        if libraries.exists() {
            let told = |e| format!("{}: {e}", libraries.display());
            std::fs::remove_dir_all(&libraries).map_err(told)?;
        }
        let mut copy = Command::new("mvn");
        copy.args(["-q", "-B", COPY_LIBRARIES, "-DoutputDirectory=libraries"]);
        if let Err(why) = fetch(copy.current_dir(&folder))? {
            return Ok(Told::LeftOut(why));
        }
        std::fs::copy(&pom, &installed).map_err(|e| format!("{}: {e}", installed.display()))?;
    }
    let version = library_version(&folder.join("libraries"), library)?;
    let mut build = Command::new("javac");
    build.args(["-cp", "libraries/*", "-d", "classes"]).arg(format!("{class}.java"));
    process::run(build.current_dir(&folder))?;
    let mut client = Command::new("java");
    client.current_dir(&folder).args(["-cp", "classes:libraries/*", class, &place.port, &version]);
    let (status, text) = process::capture(&mut client)?;
    told(&client, status.success(), &text)
}

/// The version in the name of a library's file, such as `jedis-6.2.0.jar`.
fn library_version(folder: &Path, library: &str) -> Result<String, String> {
    let files = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let version = |name: String| {
        let version = name.strip_prefix(library)?.strip_prefix('-')?.strip_suffix(".jar")?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    };
    let found = names.filter_map(version).next();
    found.ok_or_else(|| format!("no {library} in {}", folder.display()))
}

fn redis_rs(place: &Place) -> Result<Told, String> {
    let folder = place.copy("redis-rs")?;
    let cargo = |word: &str| {
        let mut command = process::cargo();
        command.args([word, "--locked", "--quiet", "--manifest-path"]);
        command.arg(folder.join("Cargo.toml"));
        command
    };
    if let Err(why) = fetch(&mut cargo("fetch"))? {
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
    told(&command, status.success(), &text)
}

fn benchmark(place: &Place, name: &str) -> Result<Told, String> {
    let both = (peers::program(name), peers::program("valkey-cli"));
    let (Some(program), Some(cli)) = both else { return Ok(Told::LeftOut(no_peers())) };
    let mut command = Command::new("sh");
    command.arg(place.scripts.join("shell/benchmark.sh")).arg(program).arg(&place.port).arg(cli);
    let (status, text) = process::capture(&mut command)?;
    told(&command, status.success(), &text)
}

fn no_peers() -> String {
    "it is not unpacked: cargo xtask peers".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_tools_say() {
        assert_eq!(version_in("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version_in("v20.20.2\n"), Some((20, 20)));
        assert_eq!(version_in("10.8.2\n"), Some((10, 8)));
        assert_eq!(version_in("no such thing"), None);
    }

    #[test]
    fn a_tool_that_is_missing_or_old_is_told() {
        assert_eq!(lacks("no-such-tool", "-v", (1, 0)).as_deref(), Some("no no-such-tool here"));
        assert!(lacks("sh", "--help", (u32::MAX, 0)).is_some());
    }
}
