use super::foreign::STATUS_UNKNOWN;
use super::typed as flags;
use super::*;
use std::ffi::OsString;

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, Refused> {
    read(args, [])
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
        assert_eq!(flags.memory_bytes, Some(128 << 20), "{line}");
        assert_eq!(flags.workers, Some(3), "{line}");
        assert!(flags.warnings.is_empty(), "{line}: {:?}", flags.warnings);
    }
}

#[test]
fn flags_that_only_tune_memcached_are_warned_of_and_swallow_their_value() {
    for line in [
        "-f 1.25 -R 20 -n 48 -D : -N 4 -p 4 -o slab_chunk_max=5,ext_threads=2",
        "--napi_ids=4 --napi_ids 4 -o inline_ascii_resp,relaxed_privileges -p 4 \
         -o no_inline_ascii_resp,meta_response_old,no_hashexpand,hot_lru_pct=3",
    ] {
        let flags = flags(line);
        assert_eq!(flags.port, Some(4), "{line}");
        assert_eq!(flags.warnings.len(), 7, "{:?}", flags.warnings);
    }
}

#[test]
fn what_would_restrict_or_is_not_known_refuses_the_start_with_memcacheds_status() {
    for (line, words) in [
        ("-e /f", "-e: /f: a restart from a memory file is not supported"),
        ("-B http", "-B: http: not a protocol of memcached's; write auto, ascii or binary"),
        ("-o ssl_ciphers=NULL", "-o: ssl_ciphers=NULL: of TLS there are ssl_chain_cert"),
        ("-o drop_privileges", "-o: drop_privileges: write --sandbox on instead"),
        ("-o ext_path=/f:1G", "-o: ext_path=/f:1G: extstore"),
        ("-o proxy_config=/f", "-o: proxy_config=/f: "),
        ("-o idle_timout=3", "-o: idle_timout=3: not a key of -o; did you mean idle_timeout?"),
        (
            "-o modern,no_such_key",
            "-o: no_such_key: not a key of -o; the keys with an effect are idle_timeout, \
             ssl_chain_cert, ssl_key, ssl_verify_mode, ssl_ca_cert, ssl_min_version",
        ),
        ("-o ssl_verify_mod=1", "-o: ssl_verify_mod=1: of TLS there are ssl_chain_cert"),
        ("-l 127.0.0.1, 10.0.0.1", "10.0.0.1: no flag stands before this word"),
        ("-y", "-y: not a flag of this server"),
        ("--nothing-like-it=7", "--nothing-like-it: 7: not a flag of this server"),
    ] {
        let refused = parse(line.split_whitespace().map(OsString::from)).expect_err(line);
        assert_eq!(refused.status, STATUS_UNKNOWN, "{line}");
        assert!(refused.why.starts_with(words), "{line}: {}", refused.why);
    }
}

#[test]
fn clustered_v_counts() {
    assert_eq!(flags("-vvv").verbose, 3);
    assert_eq!(flags("-v -v").verbose, 2);
}

#[test]
fn memory_is_in_mebibytes_or_takes_a_suffix() {
    for (text, value) in [("64", 64 << 20), ("1g", 1 << 30), ("512M", 512 << 20), ("0", 0)] {
        assert_eq!(flags(&format!("-m {text}")).memory_bytes, Some(value), "{text}");
    }
    for text in ["x", "1t", "99999999999999999"] {
        let refused = parse(["-m", text].map(OsString::from)).unwrap_err();
        assert!(refused.why.contains("-m") && refused.why.contains(text), "{}", refused.why);
    }
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
    let Refused { status, why } = parse(["-p", "abc"].map(OsString::from)).unwrap_err();
    assert!(why.contains("-p") && why.contains("abc"), "{why}");
    assert_eq!(status, crate::STATUS_USAGE);
}

#[test]
fn extended_keys_are_honoured_or_named() {
    let flags = flags("-o idle_timeout=30,maxconns_fast,hashpower=20");
    assert_eq!(flags.extended.idle_timeout, Some(30));
    assert_eq!(flags.warnings.len(), 1);
    assert!(flags.warnings[0].contains("hashpower"), "{:?}", flags.warnings);
}

#[test]
fn memcacheds_keys_of_tls_are_read_told_and_checked() {
    let line =
        "-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=1,ssl_ca_cert=/a,ssl_min_version=1";
    let flags = flags(line);
    let ssl = &flags.extended.ssl;
    assert!(flags.tls && ssl.chain_cert.as_deref() == Some("/c"));
    assert_eq!((ssl.verify_mode, ssl.min_version), (Some(1), Some(1)));
    assert!(flags.warnings[0].contains("TLS 1.2 is the oldest"), "{:?}", flags.warnings);
    let (_, keys) = line.split_once("-o ").expect("it has keys");
    assert_eq!(flags.extended.told().as_deref(), Some(keys));
    for (keys, words) in [
        ("ssl_key", "ssl_key needs a value: -o ssl_key=FILE"),
        ("ssl_chain_cert=", "ssl_chain_cert needs a value"),
        ("ssl_verify_mode=4", "ssl_verify_mode=4: must be a number from 0 to 3"),
        ("ssl_min_version=tls", "ssl_min_version=tls: must be a number"),
    ] {
        let refused = parse(["-o", keys].map(OsString::from)).expect_err(keys);
        assert_eq!(refused.status, crate::STATUS_USAGE, "{keys}");
        assert!(refused.why.contains(words), "{keys}: {}", refused.why);
    }
}

#[test]
fn a_flag_with_a_slip_is_told_which_was_meant() {
    for (typed, meant) in [
        ("--data-dri", Some("--data-dir")),
        ("--treshold", Some("--threshold")),
        ("--desing", Some("--design")),
        ("--memroy", Some("--memory-limit")),
        ("--nothing-like-it", None),
    ] {
        let refused = parse([OsString::from(typed)]).expect_err(typed);
        let warning = refused.why;
        let told = meant.map(|meant| format!("did you mean {meant}?"));
        assert_eq!(warning.contains("did you mean"), told.is_some(), "{typed}: {warning}");
        assert!(warning.contains(&told.unwrap_or_default()), "{typed}: {warning}");
    }
}
