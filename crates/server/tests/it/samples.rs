//! `stats hotkeys` where nobody looks after hot keys: what everybody asks for is named.

use laneway_rig as rig;

use laneway_policy::Form;
use rig::{Plan, Rig, value};

/// The value of a line of `stats hotkeys`.
fn line<'a>(stats: &'a str, name: &str) -> Option<&'a str> {
    stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")))
}

#[test]
fn a_hot_key_and_one_that_is_hot_by_bytes_are_told_in_each_form() {
    for form in [Form::TimeShare, Form::Roles] {
        let mut rig = Rig::new(&Plan::of(3, form));
        let client = rig.net.connect();
        rig.set(&client, "hot", &value(10, 1));
        rig.set(&client, "heavy", &value(50_000, 2));
        (0..50).for_each(|number| rig.set(&client, &format!("cold{number}"), &value(10, number)));
        for round in 0..40_000_u32 {
            let line = match round % 8 {
                0 => "get heavy\r\n".to_owned(),
                1 => "touch hot 0\r\n".to_owned(),
                2..6 => "get hot\r\n".to_owned(),
                _ => format!("get cold{}\r\n", round % 50),
            };
            let end: &[u8] = if line.starts_with("get") { b"END\r\n" } else { b"TOUCHED\r\n" };
            rig.ask(&client, line.as_bytes(), end);
        }
        let stats = rig.ask(&client, b"stats hotkeys\r\n", b"END\r\n");
        let stats = String::from_utf8(stats).expect("stats are text");
        let number = |name: &str| line(&stats, name).and_then(|value| value.parse::<f64>().ok());
        assert_eq!(line(&stats, "key:0:key"), Some("hot"), "{form:?}: {stats}");
        let share = number("key:0:share").expect("it is told");
        assert!((0.45..0.8).contains(&share), "{form:?}: 5 of 8 are for it: {stats}");
        let reads = number("key:0:reads").expect("it is told");
        assert!((0.6..0.95).contains(&reads), "{form:?}: a fifth touches it: {stats}");
        assert_eq!(line(&stats, "key:0:large"), Some("no"));
        let place = (0..32).find(|n| line(&stats, &format!("key:{n}:key")) == Some("heavy"));
        let place = place.unwrap_or_else(|| panic!("{form:?}: no heavy key in {stats}"));
        assert_eq!(line(&stats, &format!("key:{place}:large")), Some("yes"), "{stats}");
        assert_eq!(line(&stats, &format!("key:{place}:rank_by_bytes")), Some("0"), "{stats}");
        rig.ask(&client, b"stats reset\r\n", b"RESET\r\n");
        let stats = rig.ask(&client, b"stats hotkeys\r\n", b"END\r\n");
        let samples = String::from_utf8(stats).expect("stats are text");
        assert_eq!(line(&samples, "keys"), Some("0"), "{form:?}: {samples}");
    }
}
