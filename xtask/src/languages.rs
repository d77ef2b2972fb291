//! Programs in other languages that test a server: fetched by the package manager of their
//! language, pinned by its lock file, and built below the target folder.
//!
//! Whose tools are not here is left out by name.

use crate::{Failure, Outcome, failed, passed, process, skipped};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a client is run; what it said in its last line.
pub type Run = fn(&Place) -> Outcome;

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
        let to = self.built.join(name);
        // Not with their times: cargo would not build anew what has changed and is older than the
        // last build, such as the files of another worktree with the same target folder.
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--no-target-directory"]).arg(self.scripts.join(name));
        process::run(copy.arg(&to))?;
        Ok(to)
    }

    /// Runs a script against the server.
    pub fn script(&self, command: &mut Command) -> Outcome {
        ran(command.arg(&self.port).args(&self.further))
    }

    /// Runs a client and shows what it said; inside, why it is left out.
    pub fn run(
        &self,
        name: &str,
        run: impl FnOnce(&Place) -> Outcome,
    ) -> Result<Result<String, String>, Failure> {
        match run(self) {
            Ok(said) => {
                println!("{said}");
                Ok(Ok(said))
            }
            Err(Failure::Skipped(why)) => Ok(Err(why)),
            Err(failure) => failed(format!("{name}: {}", failure.why())),
        }
    }
}

/// What a script said at its end, or how it failed.
pub fn ran(command: &mut Command) -> Outcome {
    let text = process::said(command)?;
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    passed(last.trim())
}

/// Fetches packages; the client is left out where they cannot be had.
pub fn fetch(command: &mut Command) -> Result<(), Failure> {
    let (status, text) = process::capture(command)?;
    let (typed, last) = (process::typed(command), text.lines().last().unwrap_or_default());
    if status.success() { Ok(()) } else { skipped(format!("`{typed}` failed: {last}")) }
}

/// Leaves the client out where a tool is missing, or older than this.
fn need(program: &str, argument: &str, wanted: &str) -> Result<(), Failure> {
    let told = process::capture(Command::new(program).arg(argument));
    let text = told.map_or(String::new(), |(_, text)| text);
    match process::version(&text) {
        None => skipped(format!("no {program} here")),
        Some(found) if process::numbers(found) < process::numbers(wanted) => {
            skipped(format!("{program} is {found} here, and {wanted} is wanted"))
        }
        Some(_) => Ok(()),
    }
}

/// A program in Go, of the folder `name`.
pub fn go(place: &Place, name: &str) -> Outcome {
    need("go", "version", "1.24")?;
    let folder = place.copy(name)?;
    let go = |words: &[&str]| {
        let mut command = Command::new("go");
        command.args(words).env("GOTOOLCHAIN", "local").current_dir(&folder);
        command
    };
    fetch(&mut go(&["mod", "download"]))?;
    process::run(&mut go(&["build", "-mod=readonly", "-o", "client", "."]))?;
    place.script(&mut Command::new(folder.join("client")))
}

/// Fetches what the file `lock` of this folder asks for, unless that was done.
fn install(
    folder: &Path,
    lock: &str,
    installer: impl FnOnce() -> Result<Command, String>,
) -> Result<(), Failure> {
    let (lock, done) = (folder.join(lock), folder.join(format!("{lock}.installed")));
    if std::fs::read(&lock).ok() == std::fs::read(&done).ok() {
        return Ok(());
    }
    fetch(installer()?.current_dir(folder))?;
    std::fs::copy(&lock, &done).map_err(|e| format!("{}: {e}", done.display()))?;
    Ok(())
}

/// A script for Node, of the folder `name`.
pub fn node(place: &Place, name: &str) -> Outcome {
    need("node", "--version", "20.0")?;
    need("npm", "--version", "7.0")?;
    let folder = place.copy(name)?;
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    install(&folder, "package-lock.json", || Ok(npm))?;
    place.script(Command::new("node").arg(folder.join("main.js")))
}

/// What fetches a Java client's libraries, pinned as they are.
const COPY_LIBRARIES: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// A client in Java, of the folder `java`: the name of its library, and that of its class.
pub fn java(place: &Place, (library, class): (&str, &str)) -> Outcome {
    need("javac", "-version", "17.0")?;
    need("mvn", "-v", "3.6")?;
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
    install(&folder, "pom.xml", copy)?;
    let version = library_version(&folder.join("libraries"), library)?;
    let mut build = Command::new("javac");
    build
        .args(["-cp", "libraries/*", "-sourcepath", ".", "-d", "classes"])
        .arg(format!("{class}.java"));
    process::run(build.current_dir(&folder))?;
    let mut client = Command::new("java");
    client.args(["-cp", "classes:libraries/*", class, &place.port, &version]);
    ran(client.current_dir(&folder))
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
    fn a_tool_that_is_missing_or_old_is_told() {
        let why = |tool, argument| need(tool, argument, "999999.0").expect_err(tool).why();
        assert_eq!(why("no-such-tool", "-v"), "no no-such-tool here");
        assert!(why("rustc", "--version").ends_with(" here, and 999999.0 is wanted"));
    }
}
