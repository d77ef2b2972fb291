//! File systems that are mounted read-only: under a data folder, under one of its media, and under
//! the folder of backups. Each is a mount of its own, in a namespace that ends with the program.

use crate::rig::{BINARY, HERE, Process, SIZES, Scratch, ask, laneway, set, skip, text};
use crate::tier::{get, serve, tool, value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Makes the folder `$0` a mount for the command behind it alone.
const MOUNTED: &str = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
/// The same, and nothing can be written there.
const READ_ONLY: &str =
    "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
/// The program says this of every file that it cannot open to write.
const TOLD: [&str; 2] = ["Read-only file system", "have it mounted to be written to"];

/// `program`, which has this folder as the script makes it.
fn in_namespace(script: &str, folder: &str, program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, folder, program]);
    command
}

/// Runs `laneway` where this folder cannot be written to.
fn ran(folder: &str, args: &[&str]) -> Output {
    let mut command = in_namespace(READ_ONLY, folder, BINARY);
    command.args(args).output().expect("unshare was there a moment ago")
}

/// Whether this process may mount; if not, the test is skipped and says so.
fn may_mount(folder: &str) -> bool {
    let why = match in_namespace(READ_ONLY, folder, "true").output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => text(&output.stderr),
        Err(error) => error.to_string(),
    };
    skip("a read-only mount: no right to mount", why.trim());
    false
}

/// Every file below a folder, with what is in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).expect("it can be read"))),
        }
    }
    found
}

/// Fails unless it was refused with status 74 and all of these words.
fn assert_refused(ran: &Output, words: &[&str]) {
    let told = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(74), "{told}");
    for word in TOLD.iter().chain(words) {
        assert!(told.contains(word), "`{word}` is not in: {told}");
    }
}

fn store(server: Process) {
    let mut client = server.connect();
    for (key, bytes) in [("small", 100), ("large", 50_000)] {
        assert_eq!(ask(&mut client, &set(key, &value(7, bytes)), b"\r\n"), b"STORED\r\n");
    }
    server.stop();
}

/// What [`store`] stored is there.
fn assert_kept(server: Process) {
    let mut client = server.connect();
    for (key, bytes) in [("small", 100), ("large", 50_000)] {
        assert!(get(&mut client, key) == Some(value(7, bytes)), "{key}");
    }
    server.stop();
}

#[test]
fn a_store_on_a_read_only_mount_can_be_checked_and_everything_else_is_refused() {
    let folder = Scratch::new("mount");
    store(serve(&folder, &[]));
    if !may_mount(folder.path()) {
        return;
    }
    let (copy, new) = (folder.file("copy"), folder.file("new"));
    assert!(tool(&folder, "dump", &["--output", &copy]).status.success());
    let before = files(&folder.0);
    let place = format!("--data-dir {}: ", folder.path());
    let start = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
    for args in [
        &start[..],
        &[&start[..], &["--pm-size", "48m", "--ssd-size", "96m"]].concat(),
        &["fsck", folder.path(), "--repair"],
        &["compact", folder.path()],
        &["scan", folder.path()],
        &["dump", folder.path()],
        &["load", folder.path(), "--input", &copy],
    ] {
        assert_refused(&ran(folder.path(), args), &[&place, "laneway fsck checks it as it is"]);
    }
    // Of one that is to be made the folder that cannot be is named.
    let made = [&["serve", "--data-dir", &new], &HERE[..]].concat();
    assert_refused(&ran(folder.path(), &made), &[&format!("make the store's folder: {new}: ")]);
    let checked = ran(folder.path(), &["fsck", folder.path()]);
    assert_eq!(text(&checked.stdout), "2 items can be read, 0 cannot\n");
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(files(&folder.0) == before, "something was written");
    assert_kept(serve(&folder, &[]));
}

#[test]
fn a_log_or_an_ssd_on_a_read_only_mount_is_refused_and_the_other_one_is_left_alone() {
    for (flag, name) in [("--pm", "log"), ("--ssd", "ssd")] {
        let (folder, fresh) = (Scratch::new("mount-one"), Scratch::new("mount-fresh"));
        let apart = folder.0.join("apart");
        fs::create_dir_all(&apart).expect("made");
        let mounted = apart.to_str().expect("plain");
        if !may_mount(mounted) {
            return;
        }
        let (medium, new) = (format!("{mounted}/{name}"), format!("{mounted}/new"));
        store(serve(&folder, &[flag, &medium]));
        let before = files(&folder.0);
        let start = [&["serve", "--data-dir", folder.path(), flag, &medium], &HERE[..]].concat();
        assert_refused(&ran(mounted, &start), &[&format!("{medium}: ")]);
        let checked = ran(mounted, &["fsck", folder.path(), flag, &medium]);
        assert_eq!(text(&checked.stdout), "2 items can be read, 0 cannot\n", "{flag}");
        // A new store is made of both or of none.
        let start = ["serve", "--data-dir", fresh.path(), flag, &new];
        let made = [&start[..], &HERE, &SIZES].concat();
        assert_refused(&ran(mounted, &made), &[&new]);
        let left: Vec<PathBuf> = files(&fresh.0).into_keys().collect();
        assert_eq!(left, [fresh.0.join("lock")], "{flag}");
        assert!(files(&folder.0) == before, "{flag}: something was written");
        assert_kept(serve(&folder, &[flag, &medium]));
    }
}

#[test]
fn backups_to_a_read_only_mount_are_refused_and_can_be_made_once_it_is_writable() {
    let place = Scratch::new("mount-copies");
    let (data, copies) = (place.file("data"), place.file("copies"));
    fs::create_dir_all(&copies).expect("made");
    if !may_mount(&copies) {
        return;
    }
    let own = ["serve", "--data-dir", &data, "--backup-dir", &copies];
    let start = [&own[..], &HERE, &SIZES].concat();
    let name = format!("--backup-dir {copies}: ");
    assert_refused(&ran(&copies, &start), &[&name, "or name another"]);
    // One that becomes so while the server runs.
    let mut command = in_namespace(MOUNTED, &copies, BINARY);
    command.args(&start);
    let server = Process::start(command).expect("it may mount");
    let remounted = |how: &str| -> Result<(), String> {
        let id = server.child.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &id, "--mount", "mount", "-o", how, &copies]);
        let output = command.output().map_err(|error| error.to_string())?;
        output.status.success().then_some(()).ok_or_else(|| text(&output.stderr))
    };
    if let Err(why) = remounted("remount,bind,ro") {
        return skip("a read-only mount: no right to enter a namespace", why.trim());
    }
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &set("small", &value(7, 100)), b"\r\n"), b"STORED\r\n");
    let backup = || laneway(&["backup", "--server", server.places()[0], "day"]);
    let refused = backup();
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    let way_out = "have the folder of backups mounted to be written to";
    let part = format!("{copies}/day.part");
    for word in [part.as_str(), TOLD[0], way_out] {
        assert!(told.contains(word), "`{word}` is not in: {told}");
    }
    assert!(files(Path::new(&copies)).is_empty());
    assert_eq!(get(&mut client, "small"), Some(value(7, 100)));
    remounted("remount,bind,rw").expect("as before");
    let made = backup();
    assert!(made.status.success(), "{}", text(&made.stderr));
    server.stop();
    let day = format!("{copies}/day");
    let checked = laneway(&["backup", "--check", &day]);
    assert!(text(&checked.stdout).contains(": 1 items, whole"), "{}", text(&checked.stderr));
}
