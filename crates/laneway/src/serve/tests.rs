use super::*;

fn given(line: &str) -> Result<Settings, String> {
    match flags::parse(line.split_whitespace().map(OsString::from)) {
        Ok(Asked::Serve(flags)) => settings(&flags),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults_are_memcacheds() {
    let settings = given("").unwrap();
    assert_eq!(settings.memory_bytes, 64 << 20);
    assert_eq!(settings.item_bytes_max, 1 << 20);
    assert_eq!(settings.connections_max, 1024);
    assert!(settings.addresses.iter().all(|address| address.port() == 11211));
}

#[test]
fn listen_takes_lists_ports_and_ipv6() {
    let settings = given("-p 5 -l 127.0.0.1,127.0.0.2:77,::1,[::1]:78").unwrap();
    let places: Vec<String> = settings.addresses.iter().map(|a| a.to_string()).collect();
    assert_eq!(places, ["127.0.0.1:5", "127.0.0.2:77", "[::1]:5", "[::1]:78"]);
}

#[test]
fn what_cannot_be_says_flag_and_way_out() {
    for (line, words) in [
        ("-c 0", "-c 0"),
        ("-I 100", "at least"),
        ("-I 2g -m 8192", "at most 1g"),
        ("-I 64m -m 64", "half of -m"),
        ("-p 70000", "65535"),
        ("--design nonsense", "hkh-ws or sho"),
        ("--design sho --workers 1", "choose --design hkh"),
        ("--design sho --workers 4 --handoff-workers 4", "below --workers (4)"),
        ("--access crow --design hkh", "crew, erew or crcw"),
        ("--access crew", "add --design hkh"),
        ("--extra-large", "add --design minos"),
        ("--profile-sample 0", "at least 1"),
        ("--form roles --workers 1", "--form"),
        ("--idle never", "adaptive"),
        ("--epoch-ms 0", "at least 1"),
        ("-l no.such.host.invalid", "-l no.such.host.invalid"),
    ] {
        let error = given(line).expect_err(line);
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn every_design_is_served_with_its_variants() {
    for (line, design) in [
        (
            "--design minos --extra-large --put-lock --profile-sample 16 --workers 6",
            policy::Design::Minos,
        ),
        ("--design hkh --access erew", policy::Design::Hkh),
        ("--design hkh-ws", policy::Design::HkhWs),
        ("--design sho --handoff-workers 3 --workers 6", policy::Design::Sho),
    ] {
        let settings = given(line).expect(line);
        assert_eq!(settings.policy.design, design);
        assert!(policy::build(settings.policy).is_ok(), "{line}");
    }
}
