//! The Debian package: a tree put together here and packed by `dpkg-deb`, which every Debian has.
//! (cargo-deb would have to be compiled by everybody who builds or checks the package.)

use crate::process::{self, read_bytes as read};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that every crate of the workspace has.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How hard the packer tries: for a check, after which nobody keeps it, and for a release.
pub const QUICK: &[&str] = &["-Zgzip", "-z1"];
pub const SMALL: &[&str] = &["-Zxz"];

/// Pages of docs/ that go with it.
const DOCUMENTS: &str = "operating security protocol binary clients cluster disk-format install \
    kernel migrating python reliability resp tour troubleshooting";
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// What is put into a folder, as packaging/contents.toml has it.
#[derive(Deserialize)]
pub struct Contents {
    /// By files of the repository, where they lie.
    files: BTreeMap<String, String>,
    /// By words, where that lies which the program prints with them.
    printed: BTreeMap<String, String>,
}

impl Contents {
    /// Of a release's folder, or of the Debian package's tree.
    pub fn of(name: &str) -> Result<Contents, String> {
        let text = process::read(process::root().join("packaging/contents.toml"))?;
        let mut all: BTreeMap<String, Contents> =
            toml::from_str(&text).map_err(|e| format!("packaging/contents.toml: {e}"))?;
        all.remove(name).ok_or_else(|| format!("packaging/contents.toml has no {name}"))
    }

    /// Put all of it there.
    pub fn put(&self, tree: &Path, program: &Path) -> Result<(), String> {
        for (from, to) in &self.files {
            put_packed(tree, to, read(process::root().join(from))?)?;
        }
        for (words, to) in &self.printed {
            put_packed(tree, to, printed(program, words)?)?;
        }
        Ok(())
    }
}

/// Build the package of this binary in `folder`; its path.
pub fn build(binary: &Path, folder: &Path, packing: &[&str]) -> Result<PathBuf, String> {
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree); // of an earlier run
    let program = put(&tree, "usr/bin/laneway", &read(binary)?, 0o755)?;
    process::run(Command::new("strip").arg(&program))?;
    Contents::of("debian")?.put(&tree, &program)?;
    for name in DOCUMENTS.split(' ') {
        let page = read(process::root().join(format!("docs/{name}.md")))?;
        put(&tree, &format!("usr/share/doc/laneway/{name}.md"), &page, 0o644)?;
    }
    for name in SCRIPTS {
        let script = read(process::root().join("packaging/debian").join(name))?;
        put(&tree, &format!("DEBIAN/{name}"), &script, 0o755)?;
    }
    let architecture = architecture()?;
    let control = control(&read(&program)?, &architecture, kibibytes(&tree)?)?;
    put(&tree, "DEBIAN/control", control.as_bytes(), 0o644)?;
    let package = folder.join(format!("laneway_{VERSION}_{architecture}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(packing).args(["--build", "--root-owner-group"]).arg(&tree).arg(&package);
    process::run(&mut command)?;
    Ok(package)
}

/// What Debian calls this machine's kind.
pub fn architecture() -> Result<String, String> {
    let told = process::printed(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(told.trim().to_owned())
}

/// What this program prints with these words.
fn printed(program: &Path, words: &str) -> Result<Vec<u8>, String> {
    let printed = process::printed_bytes(Command::new(program).args(words.split(' ')))?;
    match printed.is_empty() {
        false => Ok(printed),
        true => Err(format!("laneway {words} prints nothing")),
    }
}

/// Write a file of the tree, its folders too, with modes that do not depend on the umask.
pub fn put(tree: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<PathBuf, String> {
    let path = tree.join(name);
    let whine = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    fs::create_dir_all(tree).map_err(whine)?;
    let mut folder = tree.to_path_buf();
    for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        fs::create_dir_all(&folder).map_err(whine)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).map_err(whine)?;
    }
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755)).map_err(whine)?;
    fs::write(&path, bytes).map_err(whine)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(whine)?;
    Ok(path)
}

/// Write a file of the tree; by gzip, without the time of the packing, if its name says so.
fn put_packed(tree: &Path, name: &str, bytes: Vec<u8>) -> Result<(), String> {
    let Some(plain) = name.strip_suffix(".gz") else {
        return put(tree, name, &bytes, 0o644).map(drop);
    };
    let path = put(tree, plain, &bytes, 0o644)?;
    process::run(Command::new("gzip").args(["-9", "-n", "-f"]).arg(path))
}

fn kibibytes(tree: &Path) -> Result<u64, String> {
    let text = process::printed(Command::new("du").arg("-sk").arg(tree))?;
    let number = text.split_whitespace().next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| format!("du says {text}"))
}

/// The control file, its blanks filled.
fn control(program: &[u8], architecture: &str, kib: u64) -> Result<String, String> {
    let libc = libc(program).ok_or("the program names no version of the C library")?;
    let form = read(process::root().join("packaging/debian/control"))?;
    let filled = String::from_utf8_lossy(&form)
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@INSTALLED_KIB@", &kib.to_string())
        .replace("@LIBC@", &libc);
    Ok(filled)
}

/// The newest version of the C library that a program's symbols ask for: `GLIBC_2.34` stands in it
/// as text.
fn libc(program: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(program);
    let marks = text.split("GLIBC_").skip(1);
    let is_end = |c: char| !c.is_ascii_digit() && c != '.';
    let versions = marks.filter_map(|rest| rest.split(is_end).next().map(str::to_owned));
    versions.filter(|found| found.contains('.')).max_by_key(|found| process::numbers(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_the_package_lead_to_documents_of_the_package() {
        /// These are about how Laneway is measured, and are in the repository alone.
        const LEFT_OUT: [&str; 4] = ["bench-method", "figures", "papers", "performance-log"];
        let mut links = 0;
        for from in DOCUMENTS.split(' ') {
            let path = process::root().join(format!("docs/{from}.md"));
            let text = process::read(path).expect("it is part of the repository");
            for link in text.split("](").skip(1) {
                let name = link.split([')', '#']).next().and_then(|name| name.strip_suffix(".md"));
                let name = name.filter(|name| !name.contains('/') && !LEFT_OUT.contains(name));
                let Some(name) = name else { continue };
                links += 1;
                let is_packed = DOCUMENTS.split(' ').any(|packed| packed == name);
                assert!(is_packed, "{from} leads to {name}, which is not packed");
            }
        }
        assert!(links > 20, "{links} links were looked at");
    }

    #[test]
    fn the_newest_c_library_that_is_named_is_the_one_needed() {
        let program = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(libc(program).as_deref(), Some("2.34"));
        assert_eq!(libc(b"GLIBC_"), None);
    }
}
