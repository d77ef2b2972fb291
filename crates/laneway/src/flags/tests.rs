use super::*;

fn flags(line: &str) -> Flags {
    match parse(line.split_whitespace().map(OsString::from)) {
        Ok(Asked::Serve(flags)) => *flags,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn memcached_flags_are_read_in_each_spelling() {
    for line in [
        "-p 11999 -m 128 -t 3",
        "-p11999 -m128 -t3",
        "--port=11999 --memory-limit=128 \
         --threads=3",
        "--port 11999 --memory-limit 128 --workers 3",
    ] {
        let flags = flags(line);
        assert_eq!(flags.port, Some(11999), "{line}");
        assert_eq!(flags.memory_megabytes, Some(128), "{line}");
        assert_eq!(flags.workers, Some(3), "{line}");
        assert!(flags.warnings.is_empty(), "{line}: {:?}", flags.warnings);
    }
}

#[test]
fn flags_that_mean_nothing_here_are_warned_of_and_swallow_their_value() {
    let flags = flags("-f 1.25 -R 20 -n 48 -D : -S -X --no-such-thing -p 4 -o slab_chunk_max=5");
    assert_eq!(flags.port, Some(4));
    assert_eq!(flags.warnings.len(), 8, "{:?}", flags.warnings);
}

#[test]
fn clustered_v_counts() {
    assert_eq!(flags("-vvv").verbose, 3);
    assert_eq!(flags("-v -v").verbose, 2);
}

#[test]
fn sizes_take_a_suffix() {
    for (text, value) in [("1024", 1024), ("8m", 8 << 20), ("1G", 1 << 30), ("3k", 3072)] {
        assert_eq!(bytes(text), Ok(value), "{text}");
    }
    for text in ["", "m", "-1", "8mb", "99999999999g"] {
        assert!(bytes(text).is_err(), "{text}");
    }
}

#[test]
fn a_value_that_is_no_number_names_its_flag() {
    let error = parse(["-p", "abc"].map(OsString::from)).unwrap_err();
    assert!(error.contains("-p") && error.contains("abc"), "{error}");
}

#[test]
fn extended_keys_are_honoured_or_named() {
    let flags = flags("-o idle_timeout=30,maxconns_fast,hashpower=20");
    assert_eq!(flags.idle_timeout, Some(30));
    assert_eq!(flags.warnings.len(), 1);
    assert!(flags.warnings[0].contains("hashpower"), "{:?}", flags.warnings);
}

#[test]
fn a_flag_with_a_slip_is_told_which_was_meant() {
    for (typed, meant) in [
        ("--data-dri", Some("--data-dir")),
        ("--treshold", Some("--threshold")),
        ("--desing", Some("--design")),
        ("--nothing-like-it", None),
    ] {
        let warning = flags(typed).warnings.concat();
        assert!(warning.contains("ignored"), "{typed}: {warning}");
        let told = meant.map(|meant| format!("did you mean {meant}?"));
        assert_eq!(warning.contains("did you mean"), told.is_some(), "{typed}: {warning}");
        assert!(warning.contains(&told.unwrap_or_default()), "{typed}: {warning}");
    }
}
