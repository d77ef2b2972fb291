//! The Debian package: a tree put together here and packed by `dpkg-deb`, which every Debian has.
//! (cargo-deb would have to be compiled by everybody who builds or checks the package.)

use crate::process::{self, read_bytes as read};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that every crate of the workspace has.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How hard the packer tries: for a check, after which nobody keeps it, and for a release.
pub const QUICK: &[&str] = &["-Zgzip", "-z1"];
pub const SMALL: &[&str] = &["-Zxz"];

/// Files of the repository, and where they lie on a Debian.
const FILES: &[(&str, &str)] = &[
    ("packaging/laneway.toml", "etc/laneway/laneway.toml"),
    ("packaging/systemd/laneway.service", "usr/lib/systemd/system/laneway.service"),
    ("packaging/systemd/laneway.socket", "usr/lib/systemd/system/laneway.socket"),
    ("packaging/systemd/sysusers.conf", "usr/lib/sysusers.d/laneway.conf"),
    ("packaging/prometheus/alerts.yaml", "usr/share/laneway/alerts.yaml"),
    ("packaging/grafana/laneway.json", "usr/share/laneway/grafana.json"),
    ("packaging/debian/conffiles", "DEBIAN/conffiles"),
];
/// Pages of docs/ that go with it.
const DOCUMENTS: &str = "operating security protocol binary clients cluster disk-format install \
    kernel migrating python reliability resp tour troubleshooting";
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
/// What the binary prints, and where it lies.
const PRINTED: &[(&[&str], &str)] = &[
    (&["completions", "bash"], "usr/share/bash-completion/completions/laneway"),
    (&["completions", "zsh"], "usr/share/zsh/vendor-completions/_laneway"),
    (&["completions", "fish"], "usr/share/fish/vendor_completions.d/laneway.fish"),
];
const PAGES: &[(&[&str], &str)] =
    &[(&["man"], "laneway.1.gz"), (&["man", "serve"], "laneway-serve.1.gz")];
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Laneway

Files: *
Copyright: The Laneway developers
License: Apache-2.0
 On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.
";

/// Build the package of this binary in `folder`; its path.
pub fn build(binary: &Path, folder: &Path, packing: &[&str]) -> Result<PathBuf, String> {
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree); // of an earlier run
    let program = put(&tree, "usr/bin/laneway", &read(binary)?, 0o755)?;
    process::run(Command::new("strip").arg(&program))?;
    for (from, to) in FILES {
        put(&tree, to, &read(process::root().join(from))?, 0o644)?;
    }
    for name in DOCUMENTS.split(' ') {
        let page = read(process::root().join(format!("docs/{name}.md")))?;
        put(&tree, &format!("usr/share/doc/laneway/{name}.md"), &page, 0o644)?;
    }
    for (words, to) in PRINTED {
        put(&tree, to, &printed(&program, words)?, 0o644)?;
    }
    for (words, name) in PAGES {
        let page = zipped(folder, &printed(&program, words)?)?;
        put(&tree, &format!("usr/share/man/man1/{name}"), &page, 0o644)?;
    }
    let changes = zipped(folder, &read(process::root().join("CHANGELOG.md"))?)?;
    put(&tree, "usr/share/doc/laneway/changelog.gz", &changes, 0o644)?;
    put(&tree, "usr/share/doc/laneway/copyright", COPYRIGHT.as_bytes(), 0o644)?;
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
pub fn printed(program: &Path, words: &[&str]) -> Result<Vec<u8>, String> {
    let printed = process::printed_bytes(Command::new(program).args(words))?;
    match printed.is_empty() {
        false => Ok(printed),
        true => Err(format!("laneway {} prints nothing", words.join(" "))),
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

/// Packed by gzip, without the time of the packing.
fn zipped(folder: &Path, text: &[u8]) -> Result<Vec<u8>, String> {
    let draft = folder.join("draft");
    process::write(&draft, text)?;
    process::printed_bytes(Command::new("gzip").args(["-9", "-n", "-c"]).arg(&draft))
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
