//! Whose the data folder of the real server is, what its media may be, and the tools that open it.

use crate::rig::{HERE, Process, SIZES, Scratch, ask, laneway, refused, set, stat, text};
use crate::tier::{get, serve, tool, value};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A server of this folder must not start, but end with status 74 and say these words. Returns all
/// that it says.
fn refused_folder(folder: &str, flags: &[&str], words: &str) -> String {
    refused(&[&HERE[..], &["--data-dir", folder], flags].concat(), 74, words)
}

#[test]
fn a_folder_has_one_server_and_flags_that_cannot_work_are_refused() {
    let folder = Scratch::new("lock");
    let server = serve(&folder, &[]);
    refused_folder(folder.path(), &[], "another process has this store open");
    assert_eq!(tool(&folder, "fsck", &[]).status.code(), Some(74));
    server.stop();
    for (flags, told) in [
        (&["--data-dir", "x", "--design", "minos"][..], "--design lanes only"),
        (&["--data-dir", "x", "-M"], "leave -M out"),
        (&["--data-dir", "x", "--pm-backend", "emu"], "--unsafe-volatile-pm"),
        (&["--data-dir", "x", "--pm-backend", "tape"], "must be wal"),
        (&["--data-dir", "x", "--pm-index", "fair"], "--pm-backend dax"),
        (&["--data-dir", "x", "--pm-index", "hash"], "must be btree"),
        (&["--pm-index", "fair"], "--data-dir"),
        (&["--data-dir", "x", "--durability", "never"], "must be ack"),
        (&["--data-dir", "x", "--durability", "interval:0"], "interval:MS"),
        (&["--data-dir", "x", "--split-bytes", "many"], "or inf, or auto"),
        (&["--data-dir", "x", "--compress", "zstd"], "must be off"),
        (&["--data-dir", "x", "--compress-from", "9k"], "say --compress lz4"),
        (&["--data-dir", "x", "--compress", "lz4", "--compress-from", "1m"], "must be below"),
        (&["--compress", "lz4"], "--data-dir"),
        (&["--ssd-size", "1g"], "--data-dir DIR too"),
    ] {
        refused(flags, 2, told);
    }
    assert!(!Path::new("x").exists(), "what is refused makes nothing");
}

#[test]
fn the_tools_check_list_dump_load_and_repair() {
    let (folder, other) = (Scratch::new("tools"), Scratch::new("tools-other"));
    let missing = tool(&folder, "fsck", &[]);
    assert_eq!(missing.status.code(), Some(74));
    let told = text(&missing.stderr);
    assert!(told.contains("there is no store here") && !told.contains("belong"), "{told}");
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    for (key, bytes) in [("a", 100), ("b", 9000), ("c", 1)] {
        assert_eq!(ask(&mut client, &set(key, &value(7, bytes)), b"\r\n"), b"STORED\r\n");
    }
    server.stop();
    let sound = tool(&folder, "fsck", &[]);
    assert_eq!(text(&sound.stdout), "3 items can be read, 0 cannot\n");
    assert!(sound.status.success());
    assert_eq!(text(&tool(&folder, "scan", &[]).stdout), "a 100 0 0\nb 9000 0 0\nc 1 0 0\n");
    let some = tool(&folder, "scan", &["--from", "a", "--to", "c", "--limit", "1", "--values"]);
    assert_eq!(some.stdout, [&b"a 100 0 0\n"[..], &value(7, 100), b"\n"].concat());
    let file = &*folder.file("all.dump");
    assert!(tool(&folder, "dump", &["--output", file]).status.success());
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(file).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "every value is in it");
    // No dump takes the place of what it is of.
    for name in ["log", "ssd", "lock", "load-not-finished"] {
        let refused = tool(&folder, "dump", &["--output", &folder.file(name)]);
        assert_eq!(refused.status.code(), Some(74), "{name}");
        let told = text(&refused.stderr);
        assert!(told.contains("belongs to the store"), "{name}: {told}");
    }
    assert!(tool(&folder, "fsck", &[]).status.success());
    let load = tool(&other, "load", &[&["--input", file], &SIZES[..]].concat());
    assert!(load.status.success(), "{}", text(&load.stderr));
    assert_eq!(text(&load.stderr), "laneway load: 3 items\n", "nothing is said of a new store");
    assert_eq!(text(&tool(&other, "scan", &[]).stdout), "a 100 0 0\nb 9000 0 0\nc 1 0 0\n");
    // A flipped bit in the large value.
    let path = other.0.join("ssd");
    let mut ssd = fs::read(&path).expect("it is there");
    let wanted = value(7, 9000);
    let at = ssd.windows(9000).position(|bytes| bytes == wanted).expect("it is on the SSD");
    ssd[at + 4000] ^= 4;
    fs::write(&path, ssd).expect("it can be written");
    let damaged = tool(&other, "fsck", &[]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged.stdout).contains("lost: b: "), "{}", text(&damaged.stdout));
    assert!(tool(&other, "fsck", &["--repair"]).status.success());
    assert!(tool(&other, "fsck", &[]).status.success());
    assert_eq!(text(&tool(&other, "scan", &[]).stdout), "a 100 0 0\nc 1 0 0\n");
    assert_eq!(tool(&other, "scan", &["--nonsense"]).status.code(), Some(2));
    // The folder may be named as the server has it; of two, none is passed over.
    let both = tool(&other, "scan", &["--data-dir", folder.path()]);
    assert_eq!((both.status.code(), text(&both.stdout)), (Some(2), String::new()));
    let own = laneway(&["scan", "--data-dir", other.path()]);
    assert_eq!(text(&own.stdout), "a 100 0 0\nc 1 0 0\n");
    // A load makes the store that is there larger, and says what it did not take.
    let again = ["--input", file, "--pm-size", "24m", "--ssd-size", "96m"];
    let again = tool(&other, "load", &again);
    let told = "laneway load: has grown: the SSD from 64 to 96 MiB\n\
                laneway load: --pm-size: 24 MiB is less than the 32 MiB that the store has";
    assert!(text(&again.stderr).starts_with(told), "{}", text(&again.stderr));
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(text(&tool(&other, "scan", &[]).stdout), "a 100 0 0\nb 9000 0 0\nc 1 0 0\n");
}

#[test]
fn the_list_of_items_has_no_flush_to_come() {
    let folder = Scratch::new("scan-flush");
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &set("a", &value(7, 100)), b"\r\n"), b"STORED\r\n");
    assert_eq!(ask(&mut client, b"flush_all 100000\r\n", b"\r\n"), b"OK\r\n");
    server.stop();
    for flags in [&[][..], &["--limit", "1"]] {
        let told = tool(&folder, "scan", flags);
        assert_eq!(text(&told.stdout), "a 100 0 0\n", "{flags:?}: {}", text(&told.stderr));
    }
}

#[test]
fn a_flush_that_was_to_come_is_told_of_by_a_load_and_can_be_left_out() {
    let (folder, other) = (Scratch::new("load-flush"), Scratch::new("load-flush-other"));
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &set("a", &value(7, 100)), b"\r\n"), b"STORED\r\n");
    assert_eq!(ask(&mut client, b"flush_all 100000\r\n", b"\r\n"), b"OK\r\n");
    server.stop();
    let copy = &*folder.file("copy");
    assert!(tool(&folder, "dump", &["--output", copy]).status.success());
    // As every load without the flag; the last one drops what those before have brought.
    for (flags, is_to_come) in [(&[][..], true), (&["--without-flush"], false)] {
        let loaded = tool(&other, "load", &[&["--input", copy], flags, &SIZES[..]].concat());
        let told = text(&loaded.stderr);
        assert!(loaded.status.success(), "{told}");
        assert_eq!(told.contains("a flush_all is still to come"), is_to_come, "{told}");
        let server = serve(&other, &[]);
        assert_eq!(get(&mut server.connect(), "a"), Some(value(7, 100)));
        server.stop();
    }
    assert_eq!(tool(&other, "dump", &["--without-flush"]).status.code(), Some(2));
}

#[test]
fn a_check_makes_no_file_and_asks_for_no_right_to_write() {
    let folder = Scratch::new("read-only");
    let server = serve(&folder, &[]);
    assert_eq!(ask(&mut server.connect(), &set("a", &value(7, 100)), b"\r\n"), b"STORED\r\n");
    server.stop();
    let lock = folder.0.join("lock");
    let is_sound = || {
        let checked = tool(&folder, "fsck", &[]);
        assert!(checked.status.success(), "{}", text(&checked.stderr));
        assert_eq!(text(&checked.stdout), "1 items can be read, 0 cannot\n");
    };
    // As of a copy of log and SSD alone.
    fs::remove_file(&lock).expect("it is there");
    is_sound();
    assert!(!lock.exists(), "it was made");
    // Nobody can open a folder to write, not even root.
    fs::create_dir(&lock).expect("made");
    is_sound();
    assert_eq!(tool(&folder, "scan", &[]).status.code(), Some(74));
    fs::remove_dir(&lock).expect("removed");
    // Without it nobody else has the media all the same.
    let server = serve(&folder, &[]);
    fs::remove_file(&lock).expect("it is there");
    let refused = tool(&folder, "fsck", &[]);
    assert_eq!(refused.status.code(), Some(74));
    assert!(text(&refused.stderr).contains("another process has this store open"));
    server.stop();
}

#[test]
fn the_tools_tell_by_their_status_of_damage_that_they_can_name_no_item_for() {
    let folder = Scratch::new("status");
    let server = serve(&folder, &[]);
    assert_eq!(ask(&mut server.connect(), &set("a", &value(7, 100)), b"\r\n"), b"STORED\r\n");
    server.stop();
    let file = &*folder.file("all.dump");
    let sound = tool(&folder, "dump", &["--output", file]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound.stderr));
    // A flipped bit in the first superblock.
    let path = folder.0.join("ssd");
    let mut ssd = fs::read(&path).expect("it is there");
    ssd[40] ^= 4;
    fs::write(&path, ssd).expect("it can be written");
    for (command, flags) in [
        ("fsck", &[][..]),
        ("scan", &[]),
        ("dump", &["--output", file]),
        ("load", &["--input", file]),
    ] {
        let ran = tool(&folder, command, flags);
        let told = text([ran.stdout, ran.stderr].concat());
        assert!(told.contains("superblock 0 is damaged"), "{command}: {told}");
        assert_eq!(ran.status.code(), Some(1), "{command}: {told}");
    }
    // What the load has written at its end is whole.
    let sound = tool(&folder, "scan", &[]);
    assert_eq!((sound.status.code(), text(&sound.stdout)), (Some(0), "a 100 0 0\n".to_owned()));
}

#[test]
fn a_log_that_is_missing_or_another_stores_is_refused_and_nothing_is_lost() {
    let (folder, other) = (Scratch::new("log-lost"), Scratch::new("log-other"));
    for (folder, count) in [(&folder, 20), (&other, 3)] {
        let server = serve(folder, &[]);
        let mut client = server.connect();
        for number in 0..count {
            let request = set(&format!("k{number}"), &value(number, 100));
            assert_eq!(ask(&mut client, &request, b"\r\n"), b"STORED\r\n");
        }
        server.stop();
    }
    let refused = |flags: &[&str], told: &str| {
        let own = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
        for args in [&own[..], &["fsck", folder.path()], &["scan", folder.path()]] {
            let ran = laneway(&[args, flags].concat());
            assert_eq!(ran.status.code(), Some(74), "{args:?}: {}", text(&ran.stderr));
            assert!(text(&ran.stderr).contains(told), "{args:?}: {}", text(&ran.stderr));
        }
    };
    let missing = folder.file("not-mounted/log");
    refused(&["--pm", &missing], "is missing; nothing was written");
    assert!(!Path::new(&missing).exists(), "it was not made");
    refused(&["--pm", &other.file("log")], "is another store's");
    let (log, kept) = (folder.file("log"), folder.file("kept"));
    fs::rename(&log, &kept).expect("renamed");
    refused(&[], "--accept-lost-log");
    assert!(!Path::new(&log).exists(), "it was not made");
    fs::write(&log, []).expect("written");
    refused(&[], "nothing was written");
    fs::write(&log, vec![0; 32 << 20]).expect("written");
    refused(&[], "the log is blank");
    fs::rename(&kept, &log).expect("renamed");
    for (folder, count) in [(&folder, 20), (&other, 3)] {
        let told = format!("{count} items can be read, 0 cannot\n");
        assert_eq!(text(&tool(folder, "fsck", &[]).stdout), told);
    }
    // It is lost: without --pm-size the new one is as long as the old one was.
    fs::remove_file(&log).expect("removed");
    let accepting = ["--data-dir", folder.path(), "--accept-lost-log"];
    let process = Process::here(&accepting);
    let request = set("new", &value(1, 100));
    assert_eq!(ask(&mut process.connect(), &request, b"\r\n"), b"STORED\r\n");
    assert!(!process.said.contains("was not needed"), "{}", process.said);
    process.stop();
    assert_eq!(fs::metadata(&log).expect("it is there").len(), 32 << 20);
    let process = Process::here(&accepting);
    assert!(process.said.contains("--accept-lost-log was not needed"), "{}", process.said);
    process.stop();
    let repaired = tool(&folder, "fsck", &["--repair"]);
    assert_eq!(text(&repaired.stdout).lines().last(), Some("1 items can be read, 20 cannot"));
    assert!(tool(&folder, "fsck", &[]).status.success());
}

#[test]
fn an_ssd_file_that_was_made_shorter_is_refused_and_put_back_loses_nothing() {
    const SHORT_BYTES: u64 = 32 << 20;
    let folder = Scratch::new("shorter");
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    for (key, bytes) in [("small", 100), ("large", 500_000)] {
        assert_eq!(ask(&mut client, &set(key, &value(7, bytes)), b"\r\n"), b"STORED\r\n");
    }
    server.stop();
    let (ssd, log) = (folder.0.join("ssd"), folder.0.join("log"));
    let (whole, log_before) = (fs::read(&ssd).expect("read"), fs::read(&log).expect("read"));
    let file = fs::File::options().write(true).open(&ssd).expect("it can be written");
    file.set_len(SHORT_BYTES).expect("made shorter");
    let start = ["serve", "-p", "-1", "-l", "127.0.0.1", "--data-dir", folder.path()];
    for args in [
        &start[..],
        // What makes a store larger does not take this for one that is to grow.
        &[&start[..], &["--pm-size", "48m", "--ssd-size", "96m"]].concat(),
        &[&start[..], &["--accept-lost-log"]].concat(),
        &["fsck", folder.path()],
        &["fsck", folder.path(), "--repair"],
        &["compact", folder.path()],
        &["scan", folder.path()],
        &["dump", folder.path()],
    ] {
        let refused = laneway(args);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(74), "{args:?}: {told}");
        for words in [
            "the SSD has 33554432 bytes, and the store 67108864: it was made shorter",
            "nothing was written",
            "truncate --size 67108864",
        ] {
            assert!(told.contains(words), "{args:?}: {told}");
        }
        assert_eq!(fs::metadata(&ssd).expect("it is there").len(), SHORT_BYTES, "{args:?}");
    }
    assert!(fs::read(&log).expect("read") == log_before, "the log was written");
    file.write_all_at(&whole[SHORT_BYTES as usize..], SHORT_BYTES).expect("as long as before");
    let sound = tool(&folder, "fsck", &[]);
    assert_eq!(text(&sound.stdout), "2 items can be read, 0 cannot\n");
    let server = serve(&folder, &[]);
    let mut client = server.connect();
    for (key, bytes) in [("small", 100), ("large", 500_000)] {
        assert!(get(&mut client, key) == Some(value(7, bytes)), "{key}");
    }
    server.stop();
}

#[test]
fn a_log_or_an_ssd_has_one_store_whatever_the_folder() {
    let (folder, other) = (Scratch::new("shared"), Scratch::new("shared-too"));
    let server = serve(&folder, &[]);
    for (flag, name) in [("--pm", "log"), ("--ssd", "ssd")] {
        let path = &*folder.file(name);
        let flags = [&[flag, path], &SIZES[..]].concat();
        refused_folder(other.path(), &flags, &format!("{path} is in use"));
        let left = fs::read_dir(&other.0).expect("it was made").count();
        assert_eq!(left, 1, "{flag}: a lock and no half of a store");
    }
    server.stop();
}

#[test]
fn larger_sizes_of_a_start_make_the_store_larger_and_smaller_ones_are_told() {
    let folder = Scratch::new("grows");
    let server = serve(&folder, &[]);
    let request = set("kept", &value(1, 100_000));
    assert_eq!(ask(&mut server.connect(), &request, b"\r\n"), b"STORED\r\n");
    server.stop();
    let lengths = || ["log", "ssd"].map(|name| fs::metadata(folder.0.join(name)).unwrap().len());
    // Where there is no room for the one neither is longer.
    let huge = (1u64 << 60).to_string();
    let asked = ["--pm-size", "48m", "--ssd-size", &huge];
    refused_folder(folder.path(), &asked, "more cannot be reserved");
    assert_eq!(lengths(), [32 << 20, 64 << 20]);
    let server = serve(&folder, &["--pm-size", "48m", "--ssd-size", "96m"]);
    let told = "has grown: the log from 32 to 48 MiB, the SSD from 64 to 96 MiB";
    assert!(server.said.contains(told), "{}", server.said);
    assert_eq!(lengths(), [48 << 20, 96 << 20]);
    let mut client = server.connect();
    assert_eq!(stat(&mut client, "tier", "log_bytes"), 48 << 20);
    assert_eq!(stat(&mut client, "tier", "ssd_bytes"), 96 << 20);
    assert_eq!(get(&mut client, "kept"), Some(value(1, 100_000)));
    server.kill();
    let server = serve(&folder, &[]);
    for told in [
        "--pm-size: 32 MiB is less than the 48 MiB that the store has and keeps",
        "--ssd-size: 64 MiB is less than the 96 MiB that the store has and keeps",
    ] {
        assert!(server.said.contains(told), "{}", server.said);
    }
    assert_eq!(get(&mut server.connect(), "kept"), Some(value(1, 100_000)));
    server.stop();
    // By default they are what the store has.
    let process = Process::here(&["--data-dir", folder.path()]);
    assert!(!process.said.contains("is less than"), "{}", process.said);
    process.stop();
    // The tools take it as it is, whatever they are given.
    for command in ["fsck", "compact", "scan"] {
        let ran = tool(&folder, command, &["--pm-size", "64m", "--ssd-size", "128m"]);
        assert!(ran.status.success(), "{command}: {}", text(&ran.stderr));
        assert_eq!(lengths(), [48 << 20, 96 << 20], "{command}");
    }
    assert!(text(&tool(&folder, "scan", &[]).stdout).contains("kept"));
    let server = serve(&folder, &["--pm-size", "48m", "--ssd-size", "112m"]);
    let told = "has grown: the SSD from 96 to 112 MiB";
    assert!(server.said.contains(told), "{}", server.said);
    server.stop();
}

#[test]
fn a_folder_that_cannot_be_made_is_named_with_the_way_out_and_nothing_is_said_to_be_made() {
    let folder = Scratch::folder("unmade");
    let file = folder.file("file");
    fs::write(&file, b"no folder").expect("written");
    let whose = format!("{file}: this folder cannot be made: ");
    let told = refused_folder(&format!("{file}/store"), &SIZES, &whose);
    assert!(told.contains("mkdir -p"), "{told}");
    assert!(!told.contains(": makes "), "{told}");
}

#[test]
fn a_store_that_cannot_be_made_leaves_nothing_behind() {
    let folder = Scratch::new("half-made");
    let huge = (1u64 << 60).to_string();
    for (flags, told) in [
        (&["--pm-size", "16m", "--ssd-size", "64m"][..], "--pm-size"),
        (&["--pm-size", "32m", "--ssd-size", "64k"], "--ssd-size"),
        (&["--pm-size", "32m", "--ssd-size", &huge], "must be at most 17592186040320"),
        (&["--pm-size", &huge, "--ssd-size", "64m"], "bytes: a log has at most"),
    ] {
        refused_folder(folder.path(), flags, told);
        assert_eq!(fs::read_dir(&folder.0).expect("it was made").count(), 1, "{flags:?}");
    }
    serve(&folder, &[]).stop();
}

#[test]
fn a_stream_that_is_no_dump_is_named_and_makes_no_store() {
    let folder = Scratch::folder("no-dump");
    let garbage = &*folder.file("garbage");
    for (bytes, told) in [(&b"some other file"[..], "is no dump"), (b"", "is no dump")] {
        fs::write(garbage, bytes).expect("written");
        let store = folder.file("store");
        let ran = laneway(&["load", &store, "--input", garbage]);
        assert_eq!(ran.status.code(), Some(74));
        let stderr = text(&ran.stderr);
        assert!(stderr.contains(told) && stderr.contains(garbage), "{stderr}");
        assert!(!stderr.contains("fsck") && !Path::new(&store).exists(), "{stderr}");
    }
}
