//! Programs in other languages that test a server: fetched by the package manager of their
//! language, pinned by its lock file, and built below the target folder.
//!
//! Whose tools are not here is left out by name.

use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program came out.
pub enum Told {
    /// What it said in its last line.
    Ran(String),
    /// It could not run here, and why.
    LeftOut(String),
}

/// How a client is run.
pub type Run = fn(&Place) -> Result<Told, String>;

/// Where the scripts lie, where to build, and the server's port.
pub struct Place {
    pub scripts: PathBuf,
    pub built: PathBuf,
    pub port: String,
    /// Arguments behind the port.
    pub further: Vec<String>,
}

impl Place {
    /// A folder with a fresh copy of the files of this script: builds leave nothing in the tree.
    pub fn copy(&self, name: &str) -> Result<PathBuf, String> {
        let (from, to) = (self.scripts.join(name), self.built.join(name));
        copy(&from, &to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
        Ok(to)
    }

    /// Runs a script against the server.
    pub fn script(&self, command: &mut Command) -> Result<Told, String> {
        ran(command.arg(&self.port).args(&self.further))
    }

    /// Runs a client and shows what it said.
    pub fn run(&self, name: &str, run: Run) -> Result<Told, String> {
        let told = run(self).map_err(|why| format!("{name}: {why}"))?;
        if let Told::Ran(said) = &told {
            println!("{said}");
        }
        Ok(told)
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
pub fn ran(command: &mut Command) -> Result<Told, String> {
    let text = process::said(command)?;
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(Told::Ran(last.trim().to_owned()))
}

/// Fetches packages; inside, why the client is left out where they cannot be had.
pub fn fetch(command: &mut Command) -> Result<Result<(), String>, String> {
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

/// A program in Go, of the folder `name`.
pub fn go(place: &Place, name: &str) -> Result<Told, String> {
    if let Some(why) = lacks("go", "version", (1, 24)) {
        return Ok(Told::LeftOut(why));
    }
    let folder = place.copy(name)?;
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

/// Fetches what the file `lock` of this folder asks for, unless that was done; inside, why it
/// cannot be had.
fn installed(
    folder: &Path,
    lock: &str,
    install: impl FnOnce() -> Result<Command, String>,
) -> Result<Result<(), String>, String> {
    let (lock, done) = (folder.join(lock), folder.join(format!("{lock}.installed")));
    if std::fs::read(&lock).ok() == std::fs::read(&done).ok() {
        return Ok(Ok(()));
    }
    let fetched = fetch(install()?.current_dir(folder))?;
    if fetched.is_ok() {
        std::fs::copy(&lock, &done).map_err(|e| format!("{}: {e}", done.display()))?;
    }
    Ok(fetched)
}

/// A script for Node, of the folder `name`.
pub fn node(place: &Place, name: &str) -> Result<Told, String> {
    let missing = lacks("node", "--version", (20, 0)).or_else(|| lacks("npm", "--version", (7, 0)));
    if let Some(why) = missing {
        return Ok(Told::LeftOut(why));
    }
    let folder = place.copy(name)?;
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    if let Err(why) = installed(&folder, "package-lock.json", || Ok(install))? {
        return Ok(Told::LeftOut(why));
    }
    place.script(Command::new("node").arg(folder.join("main.js")))
}

/// What fetches a Java client's libraries, pinned as they are.
const COPY_LIBRARIES: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// A client in Java, of the folder `java`: the name of its library, and that of its class.
pub fn java(place: &Place, (library, class): (&str, &str)) -> Result<Told, String> {
    let missing = lacks("javac", "-version", (17, 0)).or_else(|| lacks("mvn", "-v", (3, 6)));
    if let Some(why) = missing {
        return Ok(Told::LeftOut(why));
    }
    let folder = place.copy("java")?;
    let copy = || -> Result<Command, String> {
        // What an older pom.xml asked for must not lie beside what this one asks for.
        let libraries = folder.join("libraries");
        if libraries.exists() {
            let told = |e| format!("{}: {e}", libraries.display());
            std::fs::remove_dir_all(&libraries).map_err(told)?;
        }
        let mut copy = Command::new("mvn");
        copy.args(["-q", "-B", COPY_LIBRARIES, "-DoutputDirectory=libraries"]);
        Ok(copy)
    };
    if let Err(why) = installed(&folder, "pom.xml", copy)? {
        return Ok(Told::LeftOut(why));
    }
    let version = library_version(&folder.join("libraries"), library)?;
    let mut build = Command::new("javac");
    build
        .args(["-cp", "libraries/*", "-sourcepath", ".", "-d", "classes"])
        .arg(format!("{class}.java"));
    process::run(build.current_dir(&folder))?;
    let mut client = Command::new("java");
    ran(client.current_dir(&folder).args([
        "-cp",
        "classes:libraries/*",
        class,
        &place.port,
        &version,
    ]))
}

/// The version in the name of a library's file, such as `jedis-6.2.0.jar`.
fn library_version(folder: &Path, library: &str) -> Result<String, String> {
    let version = |name: &String| {
        let version = name.strip_prefix(library)?.strip_prefix('-')?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    };
    let found = process::named(folder, ".jar")?.iter().find_map(version);
    found.ok_or_else(|| format!("no {library} in {}", folder.display()))
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
