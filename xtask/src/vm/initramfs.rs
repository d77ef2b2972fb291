//! The guest's files as one archive, in the form that the kernel unpacks (`cpio -H newc`): the
//! script that it runs first, programs with the libraries that they name, modules with those that
//! they depend on.

use super::packages::Debian;
use crate::package::deb;
use crate::process::{self, read_bytes as read};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where libraries are looked for.
const LIBRARY_FOLDERS: &[&str] =
    &["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64"];
/// How the file of a module ends that is packed: all are, with newer kernels.
const COMPRESSED: &str = ".xz";
const LOADER: &str = "ld-linux-x86-64.so.2";
/// Packs the files of the folder `$0` by the busybox `$1`. The kernel brings a console of its own.
const PACK: &str = "cd \"$0\" && find . | \"$1\" cpio -o -H newc";

/// What busybox is called by.
const APPLETS: &[&str] = &[
    "sh", "mount", "mkdir", "insmod", "cat", "echo", "sleep", "kill", "reboot", "sync", "dmesg",
    "tail",
];

/// A file of the guest's, which can be run.
fn put(tree: &Path, name: &str, content: &[u8]) -> Result<(), String> {
    deb::put(tree, name, content, 0o755).map(drop)
}

/// What a guest is made of.
pub struct Contents<'a> {
    /// The packages.
    pub debian: &'a Debian,
    /// Programs of ours, called by their files' names.
    pub ours: &'a [&'a Path],
    /// Programs of the packages, by name.
    pub programs: &'a [&'a str],
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
    let (debian, tree) = (contents.debian, folder.join("initramfs"));
    let _ = fs::remove_dir_all(&tree); // of an earlier run
    for empty in ["dev", "proc", "sys", "tmp"] {
        process::make_dir(tree.join(empty))?;
    }
    put(&tree, "init", contents.script.as_bytes())?;
    let busybox = under(&debian.root, &["bin", "usr/bin"], "busybox")?;
    put(&tree, "bin/busybox", &read(&busybox)?)?;
    for applet in APPLETS {
        let linked = symlink("busybox", tree.join("bin").join(applet));
        linked.map_err(|e| format!("cannot link {applet}: {e}"))?;
    }
    let mut dynamic: Vec<PathBuf> = contents.ours.iter().map(|path| path.to_path_buf()).collect();
    for name in contents.programs {
        dynamic.push(under(&debian.root, &["bin", "sbin", "usr/bin", "usr/sbin"], name)?);
    }
    for program in &dynamic {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        put(&tree, &format!("bin/{name}"), &read(program)?)?;
    }
    if let Some(device) = contents.provider {
        dynamic.push(provider(&tree, debian, device)?);
    }
    for name in contents.loaded {
        let path = library(&debian.root, name)?;
        put(&tree, &format!("lib/{name}"), &read(&path)?)?;
        dynamic.push(path);
    }
    for (name, path) in libraries(&debian.root, dynamic)? {
        put(&tree, &format!("lib/{name}"), &read(path)?)?;
    }
    put(&tree, &format!("lib64/{LOADER}"), &read(library(&debian.root, LOADER)?)?)?;
    modules(&tree, debian, contents.modules)?;
    let path = folder.join("initramfs.cpio");
    let mut pack = Command::new("sh");
    let packed = process::printed_bytes(pack.args(["-c", PACK]).arg(&tree).arg(&busybox))?;
    process::write(&path, packed)?;
    Ok(path)
}

/// The provider of libibverbs for a kind of device, and the file that names it.
fn provider(tree: &Path, debian: &Debian, device: &str) -> Result<PathBuf, String> {
    let file = format!("etc/libibverbs.d/{device}.driver");
    put(tree, &file, &read(debian.root.join(&file))?)?;
    let place = "usr/lib/x86_64-linux-gnu/libibverbs";
    let found = fs::read_dir(debian.root.join(place)).map_err(|e| format!("{place}: {e}"))?;
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = found.flatten().map(|entry| entry.path());
    let provider = found.find(|path| name(path).starts_with(&format!("lib{device}-")));
    let provider = provider.ok_or_else(|| format!("{place}: no provider for {device}"))?;
    put(tree, &format!("{place}/{}", name(&provider)), &read(&provider)?)?;
    Ok(provider)
}

/// The libraries that files name, and those that these name.
fn libraries(root: &Path, files: Vec<PathBuf>) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut left = VecDeque::from(files);
    while let Some(file) = left.pop_front() {
        let told = process::said(Command::new("objdump").arg("-p").arg(&file))?;
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
fn modules(tree: &Path, debian: &Debian, wanted: &[&str]) -> Result<(), String> {
    let top = ["lib/modules", "usr/lib/modules"].map(|dir| debian.root.join(dir));
    let top = top.into_iter().map(|dir| dir.join(&debian.release)).find(|dir| dir.is_dir());
    let top = top.ok_or_else(|| format!("no modules of kernel {}", debian.release))?;
    let mut find = Command::new("find");
    let found = process::printed(find.arg(&top).args(["-type", "f", "-name", "*.ko*"]))?;
    let all: BTreeMap<String, PathBuf> = found.lines().filter_map(named).collect();
    let mut order = Vec::new();
    for module in wanted {
        place(module, &all, &mut order)?;
    }
    for name in &order {
        put(tree, &format!("modules/{name}.ko"), &module(&all[name])?)?;
    }
    let lines: Vec<String> = order.iter().map(|name| format!("{name}.ko")).collect();
    put(tree, "modules/order", lines.join("\n").as_bytes())
}

/// The name of the module in this file, and the file.
fn named(path: &str) -> Option<(String, PathBuf)> {
    let (_, file) = path.rsplit_once('/')?;
    let name = file.strip_suffix(COMPRESSED).unwrap_or(file).strip_suffix(".ko")?;
    Some((name.replace('-', "_"), path.into()))
}

/// A module's bytes, as the guest takes them.
fn module(path: &Path) -> Result<Vec<u8>, String> {
    match path.to_string_lossy().ends_with(COMPRESSED) {
        true => process::printed_bytes(Command::new("xz").arg("-dc").arg(path)),
        false => read(path),
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
    let text = String::from_utf8_lossy(module);
    let list = text.split("\0depends=").nth(1).and_then(|rest| rest.split('\0').next());
    let names = list.unwrap_or_default().split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_depends_on() {
        let module = b"\x7fELF\0license=GPL\0depends=ib_core,ip6-udp-tunnel\0intree=Y\0";
        assert_eq!(depends(module), ["ib_core", "ip6_udp_tunnel"]);
        assert!(depends(b"\0depends=\0").is_empty() && depends(b"nothing").is_empty());
    }
}
