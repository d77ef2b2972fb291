//! The guest's files as one archive, in the form that the kernel unpacks (`cpio -H newc`): the
//! script that it runs first, programs with the libraries that they name, modules with those that
//! they depend on.

use super::packages::Debian;
use crate::process::{self, read_bytes as read};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where libraries are looked for.
const LIBRARY_FOLDERS: &[&str] =
    &["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64"];
/// How the file of a module ends that is packed: all are, with newer kernels.
const COMPRESSED: &str = ".xz";
const LOADER: &str = "ld-linux-x86-64.so.2";
const PROGRAM_MODE: u32 = 0o100_755;
const FOLDER_MODE: u32 = 0o040_755;
const LINK_MODE: u32 = 0o120_777;
const DEVICE_MODE: u32 = 0o020_600;

/// An archive under way.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The folders above `name`, each once.
    fn folders_of(&mut self, name: &str) {
        for (at, _) in name.match_indices('/') {
            if self.folders.insert(name[..at].to_owned()) {
                self.entry(&name[..at], FOLDER_MODE, (0, 0), b"");
            }
        }
    }

    fn file(&mut self, name: &str, content: &[u8]) {
        self.folders_of(name);
        self.entry(name, PROGRAM_MODE, (0, 0), content);
    }

    fn link(&mut self, name: &str, to: &str) {
        self.folders_of(name);
        self.entry(name, LINK_MODE, (0, 0), to.as_bytes());
    }

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), b"");
        self.bytes
    }
}

/// What a guest is made of.
pub struct Contents<'a> {
    /// The packages.
    pub debian: &'a Debian,
    /// Programs of ours, called by their files' names.
    pub ours: &'a [&'a Path],
    /// Programs of the packages, by name.
    pub programs: &'a [&'a str],
    /// What busybox is called by.
    pub applets: &'a [&'a str],
    /// Libraries that nothing names, since they are loaded when they are asked for.
    pub loaded: &'a [&'a str],
    /// The provider of libibverbs for this kind of device, if it has one.
    pub provider: Option<&'a str>,
    /// Modules that the guest loads, each after what it depends on.
    pub modules: &'a [&'a str],
    /// What the kernel runs first.
    pub script: &'a str,
}

/// Writes it; where it is.
pub fn write(folder: &Path, contents: &Contents<'_>) -> Result<PathBuf, String> {
    let debian = contents.debian;
    let mut archive = Archive::default();
    // Before anything is mounted the kernel gives the script this to speak by.
    archive.folders_of("dev/console");
    archive.entry("dev/console", DEVICE_MODE, (5, 1), b"");
    for empty in ["proc/x", "sys/x", "tmp/x"] {
        archive.folders_of(empty);
    }
    archive.file("init", contents.script.as_bytes());
    let busybox = under(&debian.root, &["bin", "usr/bin"], "busybox")?;
    archive.file("bin/busybox", &read(&busybox)?);
    for applet in contents.applets {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    let mut dynamic: Vec<PathBuf> = contents.ours.iter().map(|path| path.to_path_buf()).collect();
    for name in contents.programs {
        dynamic.push(under(&debian.root, &["bin", "sbin", "usr/bin", "usr/sbin"], name)?);
    }
    for program in &dynamic {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.file(&format!("bin/{name}"), &read(program)?);
    }
    if let Some(device) = contents.provider {
        provider(&mut archive, debian, device, &mut dynamic)?;
    }
    for name in contents.loaded {
        let path = library(&debian.root, name)?;
        archive.file(&format!("lib/{name}"), &read(&path)?);
        dynamic.push(path);
    }
    let named = libraries(&debian.root, dynamic)?;
    for (name, path) in named.iter().filter(|one| !contents.loaded.contains(&one.0.as_str())) {
        archive.file(&format!("lib/{name}"), &read(path)?);
    }
    archive.file(&format!("lib64/{LOADER}"), &read(&library(&debian.root, LOADER)?)?);
    modules(&mut archive, debian, contents.modules)?;
    let path = folder.join("initramfs.cpio");
    process::write(&path, archive.end())?;
    Ok(path)
}

/// The provider of libibverbs for a kind of device, and the file that names it.
fn provider(
    archive: &mut Archive,
    debian: &Debian,
    device: &str,
    dynamic: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let file = format!("etc/libibverbs.d/{device}.driver");
    archive.file(&file, &read(debian.root.join(&file))?);
    let place = "usr/lib/x86_64-linux-gnu/libibverbs";
    let found = fs::read_dir(debian.root.join(place)).map_err(|e| format!("{place}: {e}"))?;
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = found.flatten().map(|entry| entry.path());
    let provider = found.find(|path| name(path).starts_with(&format!("lib{device}-")));
    let provider = provider.ok_or_else(|| format!("{place}: no provider for {device}"))?;
    archive.file(&format!("{place}/{}", name(&provider)), &read(&provider)?);
    dynamic.push(provider);
    Ok(())
}

/// The libraries that files name, and those that these name.
fn libraries(root: &Path, files: Vec<PathBuf>) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut left = VecDeque::from(files);
    while let Some(file) = left.pop_front() {
        let (status, told) = process::capture(Command::new("objdump").arg("-p").arg(&file))?;
        if !status.success() {
            return Err(format!("objdump -p {}: {}", file.display(), told.trim()));
        }
        let names = told.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
        for name in names.map(str::trim).filter(|name| *name != LOADER) {
            if !found.contains_key(name) {
                let path = library(root, name)?;
                left.push_back(path.clone());
                found.insert(name.to_owned(), path);
            }
        }
    }
    Ok(found)
}

/// A library of the packages, or of this machine, which our programs were linked with.
fn library(root: &Path, name: &str) -> Result<PathBuf, String> {
    under(root, LIBRARY_FOLDERS, name).or_else(|_| under(Path::new("/"), LIBRARY_FOLDERS, name))
}

fn under(root: &Path, folders: &[&str], name: &str) -> Result<PathBuf, String> {
    let places = folders.iter().map(|folder| root.join(folder).join(name));
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is in none of {}", folders.join(", ")))
}

/// Modules, and the order in which they can be loaded.
fn modules(archive: &mut Archive, debian: &Debian, wanted: &[&str]) -> Result<(), String> {
    let top = ["lib/modules", "usr/lib/modules"].map(|dir| debian.root.join(dir));
    let top = top.into_iter().map(|dir| dir.join(&debian.release)).find(|dir| dir.is_dir());
    let top = top.ok_or_else(|| format!("no modules of kernel {}", debian.release))?;
    let mut all = BTreeMap::new();
    collect(&top, &mut all)?;
    let mut order = Vec::new();
    for module in wanted {
        place(module, &all, &mut order)?;
    }
    for name in &order {
        archive.file(&format!("modules/{name}.ko"), &module(&all[name])?);
    }
    let lines: Vec<String> = order.iter().map(|name| format!("{name}.ko")).collect();
    archive.file("modules/order", lines.join("\n").as_bytes());
    Ok(())
}

/// Every module of a folder, by name.
fn collect(folder: &Path, all: &mut BTreeMap<String, PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            collect(&path, all)?;
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        let name = name.strip_suffix(COMPRESSED).unwrap_or(&name);
        if let Some(name) = name.strip_suffix(".ko") {
            all.insert(name.to_owned(), path.clone());
        }
    }
    Ok(())
}

/// A module's bytes, as the guest takes them.
fn module(path: &Path) -> Result<Vec<u8>, String> {
    if !path.to_string_lossy().ends_with(COMPRESSED) {
        return read(path);
    }
    let output = Command::new("xz").arg("-dc").arg(path).output();
    let output = output.map_err(|e| format!("cannot start xz: {e}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("xz -dc {}: {}", path.display(), process::told(output.status))),
    }
}

/// Puts a module behind what it depends on. One that is not there is part of the kernel.
fn place(
    name: &str,
    all: &BTreeMap<String, PathBuf>,
    order: &mut Vec<String>,
) -> Result<(), String> {
    let Some(path) = all.get(name) else { return Ok(()) };
    if order.iter().any(|placed| placed == name) {
        return Ok(());
    }
    for needed in depends(&module(path)?) {
        place(&needed, all, order)?;
    }
    order.push(name.to_owned());
    Ok(())
}

/// What a module says that it depends on.
fn depends(module: &[u8]) -> Vec<String> {
    const SAID: &[u8] = b"\0depends=";
    let Some(at) = module.windows(SAID.len()).position(|window| window == SAID) else {
        return Vec::new();
    };
    let rest = &module[at + SAID.len()..];
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let list = String::from_utf8_lossy(&rest[..end]);
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_every_folder_once_and_is_aligned() {
        let mut archive = Archive::default();
        archive.file("a/b/c", b"12345");
        archive.file("a/b/d", b"");
        archive.link("a/e", "b/c");
        let bytes = archive.end();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 6, "a, a/b, three files, the end");
        assert!(bytes.len().is_multiple_of(4) && text.contains("TRAILER!!!"));
    }

    #[test]
    fn a_module_says_what_it_depends_on() {
        let module = b"\x7fELF\0license=GPL\0depends=ib_core,ip6-udp-tunnel\0intree=Y\0";
        assert_eq!(depends(module), ["ib_core", "ip6_udp_tunnel"]);
        assert!(depends(b"\0depends=\0").is_empty() && depends(b"nothing").is_empty());
    }
}
