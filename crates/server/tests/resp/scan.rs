//! Walking over the keys, and what is told of one item.

use crate::kept::{FORMS, all_plans, machine, started, with_folder};
use laneway_policy::Form;
use laneway_rig::resp::{reply_bytes, request, words};
use laneway_rig::{Plan, Rig, value};
use laneway_transport::memory::Client;
use std::collections::BTreeMap;

/// The texts of a reply, arrays apart.
fn texts(reply: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut all) = (0, Vec::new());
    while at < reply.len() {
        let head = at + reply[at..].iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        if reply[at] == b'*' {
            at = head;
            continue;
        }
        let end = at + reply_bytes(&reply[at..]).expect("it is whole");
        all.push(reply[head..end - 2].to_vec());
        at = end;
    }
    all
}

/// How often each key is told by a whole walk, and by how many requests.
fn walk(rig: &mut Rig, client: &Client, options: &str) -> (BTreeMap<Vec<u8>, u32>, u32) {
    let (mut told, mut requests) = (BTreeMap::new(), 0);
    let mut cursor = b"0".to_vec();
    loop {
        let line = format!("SCAN {}{options}", String::from_utf8_lossy(&cursor));
        let reply = rig.ask_resp(client, &words(&line), 1);
        let mut all = texts(&reply).into_iter();
        cursor = all.next().expect("a cursor");
        all.for_each(|key| *told.entry(key).or_insert(0) += 1);
        requests += 1;
        if cursor == b"0" {
            return (told, requests);
        }
    }
}

#[test]
fn a_walk_tells_each_key_once_by_bounded_requests() {
    for plan in all_plans() {
        let what = plan.what();
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        assert_eq!(rig.say_resp(&client, "RANDOMKEY"), "$-1\r\n", "{what}");
        assert_eq!(walk(&mut rig, &client, "").0.len(), 0, "{what}");
        let names: Vec<String> = (0..700).map(|number| format!("key:{number:03}")).collect();
        let mut pairs = vec![&b"MSET"[..]];
        names.iter().for_each(|name| pairs.extend([name.as_bytes(), b"v"]));
        rig.ask_resp(&client, &request(&pairs), 1);
        rig.ask_resp(&client, &request(&[b"SET", b"large", &value(90_000, 1)]), 1);
        rig.say_resp(&client, "SET over x EXAT 1");
        let (told, requests) = walk(&mut rig, &client, "");
        assert_eq!(told.len(), 701, "{what}");
        assert!(told.values().all(|times| *times == 1), "{what}");
        assert!(requests >= 20, "{requests} requests, {what}");
        assert!(walk(&mut rig, &client, " COUNT 100000").1 > 1, "a request is bounded, {what}");
        let (told, _) = walk(&mut rig, &client, " MATCH key:1?[0-4] COUNT 50");
        assert_eq!(told.len(), 50, "{what}");
        assert_eq!(walk(&mut rig, &client, " MATCH large TYPE string").0.len(), 1, "{what}");
        assert_eq!(walk(&mut rig, &client, " TYPE list COUNT 1000").0.len(), 0, "{what}");
        let long = format!(" MATCH {}*", "*".repeat(250));
        assert_eq!(walk(&mut rig, &client, &long).0.len(), 701, "{what}");
        let mut chosen = BTreeMap::new();
        for _ in 0..40 {
            rig.clock.advance(1_000_003);
            let got = texts(&rig.ask_resp(&client, &words("RANDOMKEY"), 1)).remove(0);
            assert!(got == b"large" || names.iter().any(|name| name.as_bytes() == got), "{what}");
            *chosen.entry(got).or_insert(0) += 1;
        }
        assert!(chosen.len() > 20, "{} of 40 differ, {what}", chosen.len());
    }
}

/// What memory has forgotten is told as well; keys come in their order, and what comes and goes
/// meanwhile changes nothing for the others.
#[test]
fn a_walk_over_a_data_folder_tells_what_lies_on_the_disk_alone() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let names: Vec<String> = (0..900).map(|number| format!("key:{number:03}")).collect();
        let mut pairs = vec![&b"MSET"[..]];
        names.iter().for_each(|name| pairs.extend([name.as_bytes(), b"v"]));
        rig.ask_resp(&client, &request(&pairs), 1);
        rig.say_resp(&client, "DEL key:100 key:101");
        rig.say_resp(&client, "SET ends x EX 50");
        let before = rig.say_resp(&client, "SCAN 0");
        let before = String::from_utf8(texts(before.as_bytes()).remove(0)).expect("a number");
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        let got = rig.say_resp(&client, &format!("SCAN {before}"));
        assert!(got.starts_with("-ERR the cursor is not known"), "{got}");
        let (told, _) = walk(&mut rig, &client, "");
        assert_eq!(told.len(), 899);
        rig.clock.advance(60_000_000_000);

        let other = rig.net.connect();
        let (mut cursor, mut told, mut round) = (b"0".to_vec(), Vec::new(), 0);
        loop {
            let line = format!("SCAN {} COUNT 7", String::from_utf8_lossy(&cursor));
            let reply = rig.ask_resp(&client, &words(&line), 1);
            // Its reply was lost, and it is asked again.
            if cursor != b"0" {
                assert_eq!(rig.ask_resp(&client, &words(&line), 1), reply);
            }
            let mut all = texts(&reply).into_iter();
            cursor = all.next().expect("a cursor");
            told.extend(all);
            round += 1;
            rig.say_resp(&other, &format!("MSET key:{0:03}x v zz{0} v", 997 * round % 900));
            rig.say_resp(&other, &format!("DEL zz{}", round - 1));
            if cursor == b"0" {
                break;
            }
        }
        let is_in_order = |pair: &[Vec<u8>]| pair[0] < pair[1];
        assert!(told.windows(2).all(is_in_order), "each is told once, in order");
        let there = |name: &&String| !["key:100", "key:101"].contains(&name.as_str());
        for name in names.iter().filter(there) {
            assert!(told.iter().any(|key| key == name.as_bytes()), "{name} is missing");
        }
        assert!(!told.iter().any(|key| key == b"key:100" || key == b"ends"));
    }
}

#[test]
fn any_key_is_found_where_memory_has_none() {
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    rig.say_resp(&client, "MSET a 1 b 2 c 3");
    assert!(rig.shared.store.flush_all());
    let mut chosen = BTreeMap::new();
    for _ in 0..30 {
        rig.clock.advance(1_000_003);
        let got = rig.say_resp(&client, "RANDOMKEY");
        assert!(["$1\r\na\r\n", "$1\r\nb\r\n", "$1\r\nc\r\n"].contains(&got.as_str()), "{got}");
        *chosen.entry(got).or_insert(0) += 1;
    }
    assert_eq!(chosen.len(), 3);
    rig.say_resp(&client, "FLUSHALL");
    assert_eq!(rig.say_resp(&client, "RANDOMKEY"), "$-1\r\n");
}

#[test]
fn who_walks_in_a_wrong_way_is_told() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let client = rig.net.connect();
    let long = format!("SCAN 0 MATCH {}", "x".repeat(257));
    for (line, wanted) in [
        ("SCAN x", "-ERR invalid cursor\r\n"),
        ("SCAN -1", "-ERR invalid cursor\r\n"),
        ("SCAN 99999999999999999999", "-ERR invalid cursor\r\n"),
        ("SCAN 18446744073709551615", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ("SCAN 0 COUNT 0", "-ERR syntax error\r\n"),
        ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range\r\n"),
        ("SCAN 0 COUNT", "-ERR syntax error\r\n"),
        ("SCAN 0 WHAT 1", "-ERR syntax error\r\n"),
        ("SCAN", "-ERR wrong number of arguments for 'scan' command\r\n"),
        (&long, "-ERR the pattern is longer than 256 bytes, and no key is\r\n"),
        ("KEYS *", "-ERR KEYS is not served: it would look at every item at once; use SCAN\r\n"),
    ] {
        assert_eq!(rig.say_resp(&client, line), wanted, "{line}");
    }
}

#[test]
fn of_an_item_is_told_what_is_known() {
    for plan in all_plans() {
        let (what, is_kept) = (plan.what(), plan.kept.is_some());
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        for line in ["SET n 12", "SET s text", "SET r plus+1"] {
            assert_eq!(rig.say_resp(&client, line), "+OK\r\n");
        }
        rig.ask_resp(&client, &request(&[b"SET", b"large", &value(90_000, 1)]), 1);
        rig.ask_resp(&client, &request(&[b"SET", b"empty", b""]), 1);
        for (line, wanted) in [
            ("OBJECT ENCODING n", "$3\r\nint\r\n"),
            ("OBJECT ENCODING s", "$6\r\nembstr\r\n"),
            ("OBJECT encoding large", "$3\r\nraw\r\n"),
            ("OBJECT ENCODING none", "$-1\r\n"),
            ("OBJECT FREQ none", "$-1\r\n"),
            ("OBJECT REFCOUNT s", ":1\r\n"),
            ("MEMORY USAGE large", ":90034\r\n"),
            ("MEMORY USAGE large SAMPLES 0", ":90034\r\n"),
            ("MEMORY USAGE large samples 5 SAMPLES 1", ":90034\r\n"),
            ("MEMORY USAGE none", "$-1\r\n"),
            ("MEMORY USAGE none SAMPLES 3", "$-1\r\n"),
            ("MEMORY USAGE large junk", "-ERR syntax error\r\n"),
            ("MEMORY USAGE none junk", "-ERR syntax error\r\n"),
            ("MEMORY USAGE large junk 1", "-ERR syntax error\r\n"),
            ("MEMORY USAGE large SAMPLES", "-ERR syntax error\r\n"),
            ("MEMORY USAGE large SAMPLES 1 2", "-ERR syntax error\r\n"),
            ("MEMORY USAGE large SAMPLES -1", "-ERR syntax error\r\n"),
            ("MEMORY USAGE large SAMPLES x", "-ERR value is not an integer or out of range\r\n"),
            ("MEMORY DOCTOR", "-ERR unknown subcommand 'DOCTOR'. Try MEMORY HELP.\r\n"),
            ("OBJECT FREQ", "-ERR wrong number of arguments for 'object|freq' command\r\n"),
            ("OBJECT", "-ERR wrong number of arguments for 'object' command\r\n"),
            ("WAIT 0 100", ":0\r\n"),
            ("WAIT 1 -1", "-ERR timeout is negative\r\n"),
            ("WAIT x 1", "-ERR value is not an integer or out of range\r\n"),
        ] {
            assert_eq!(rig.say_resp(&client, line), wanted, "{line}, {what}");
        }
        assert!(rig.say_resp(&client, "OBJECT FREQ s").starts_with("-ERR how often"), "{what}");
        rig.clock.advance(100_000_000_000);
        let idle = rig.say_resp(&client, "OBJECT IDLETIME s");
        let seconds: u32 = idle[1..].trim().parse().expect("a number");
        assert!((60..=140).contains(&seconds), "{idle} {what}");
        if is_kept {
            assert!(rig.shared.store.flush_all());
            let got = rig.say_resp(&client, "OBJECT IDLETIME s");
            assert!(got.starts_with("-ERR the item is on the disk alone"), "{got}");
            assert!(rig.say_resp(&client, "OBJECT FREQ s").starts_with("-ERR how often"));
            let got = rig.say_resp(&client, "MEMORY USAGE empty");
            assert!(got.starts_with("-ERR the item is on the disk alone"), "{got}");
        }
        let list = rig.say_resp(&client, "CLIENT LIST");
        assert!(list.contains("id=1 addr=") && list.contains(" idle=0 "), "{list}");
    }
}

/// As in Redis a transaction with a request that cannot be is not executed.
#[test]
fn second_words_are_looked_at_when_a_request_is_queued() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let client = rig.net.connect();
    for (line, wanted) in [
        ("CLIENT NOPE", "-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n"),
        ("CLIENT ID 1", "-ERR wrong number of arguments for 'client|id' command\r\n"),
        ("CONFIG SET a b", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"),
        ("COMMAND NOPE", "-ERR unknown subcommand 'NOPE'. Try COMMAND HELP.\r\n"),
        ("OBJECT NOPE k", "-ERR unknown subcommand 'NOPE'. Try OBJECT HELP.\r\n"),
        ("MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command\r\n"),
    ] {
        for (line, wanted) in [
            ("MULTI", "+OK\r\n"),
            ("SET k v", "+QUEUED\r\n"),
            (line, wanted),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
            ("EXISTS k", ":0\r\n"),
            (line, wanted),
        ] {
            assert_eq!(rig.say_resp(&client, line), wanted, "{line}");
        }
    }
}

#[test]
fn one_key_is_found_among_empty_buckets() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    assert_eq!(rig.say_resp(&client, "SET only v"), "+OK\r\n");
    for _ in 0..50 {
        rig.clock.advance(1_000_003);
        assert_eq!(rig.say_resp(&client, "RANDOMKEY"), "$4\r\nonly\r\n");
    }
    for line in ["MULTI", "RANDOMKEY", "GET only", "RANDOMKEY"] {
        rig.say_resp(&client, line);
    }
    let got = rig.say_resp(&client, "EXEC");
    assert_eq!(got, "*3\r\n$4\r\nonly\r\n$1\r\nv\r\n$4\r\nonly\r\n");
}

#[test]
fn a_server_that_tells_no_keys_is_not_walked() {
    let mut rig = Rig::new(&Plan { dump: false, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    rig.say_resp(&client, "SET secret v");
    for line in ["SCAN 0", "SCAN 0 COUNT 1000", "RANDOMKEY"] {
        let got = rig.say_resp(&client, line);
        assert!(got.starts_with("-ERR SCAN and RANDOMKEY tell keys"), "{line}: {got}");
    }
}

/// Whole replies.
fn replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty()
        && let Some(length) = reply_bytes(bytes)
    {
        bytes = &bytes[length..];
        count += 1;
    }
    count
}

/// Each is as much work as many requests, and a pattern that fits nothing makes no reply that would
/// end the turn.
#[test]
fn a_pipeline_of_walks_or_of_questions_about_the_server_lets_others_in_after_each() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (walker, other) = (rig.net.connect(), rig.net.connect());
    rig.say_resp(&other, "SET k v");
    let of_server = ["INFO", "CONFIG GET *", "CLIENT LIST", "COMMAND LIST", "DBSIZE"];
    for line in [&of_server[..], &["SCAN 0 MATCH none*", "RANDOMKEY"]].concat() {
        walker.send(&words(line).repeat(60));
        rig.turn();
        other.send(&words("GET k"));
        let mut turns = 0;
        let got = loop {
            rig.turn();
            turns += 1;
            let got = other.receive(usize::MAX);
            if !got.is_empty() {
                break got;
            }
        };
        assert_eq!(got, b"$1\r\nv\r\n");
        assert!(turns <= 3, "it waited for {turns} turns");
        let walked = walker.receive(usize::MAX);
        assert!((1..20).contains(&replies(&walked)), "{} walks came first", replies(&walked));
        rig.until(&walker, walked, |got| replies(got) == 60);
    }
}

#[test]
fn what_one_request_is_told_of_commands_is_bounded() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    let most = format!("COMMAND INFO{}", " get".repeat(512));
    assert!(rig.say_resp(&client, &most).starts_with("*512\r\n"));
    let more = format!("{most} get");
    let got = rig.say_resp(&client, &more);
    assert_eq!(got, "-ERR COMMAND INFO, DOCS and GETKEYS take 512 words at most\r\n");
}

/// Each pattern is compared with each setting, each section with each, each password and option is
/// looked at: a request of 1 MiB of them would be one long step.
#[test]
fn what_one_request_compares_is_bounded() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    const PATTERNS: &str = "-ERR CONFIG GET takes 64 patterns of 1 KiB in all at most\r\n";
    let long = " *[abcdefghijklmnopqrstuvwxyz]";
    for (asked, refused) in [
        (format!("CONFIG GET{}", " save".repeat(64)), None),
        (format!("CONFIG GET{}", " save".repeat(65)), Some(PATTERNS)),
        (format!("CONFIG GET{}", long.repeat(35)), None),
        (format!("CONFIG GET{}", long.repeat(36)), Some(PATTERNS)),
        (format!("INFO{}", " cpu".repeat(64)), None),
        (format!("INFO{}", " cpu".repeat(65)), Some("-ERR INFO takes 64 sections at most\r\n")),
        (format!("SET k v{}", " NX".repeat(8)), None),
        (format!("SET k v{}", " XX".repeat(9)), Some("-ERR syntax error\r\n")),
        (format!("EXPIRE k 10{}", " NX".repeat(8)), None),
        (format!("EXPIRE k 10{}", " NX".repeat(9)), Some("-ERR syntax error\r\n")),
        (format!("SCAN 0{}", " COUNT 1".repeat(4)), None),
        (format!("SCAN 0{}", " COUNT 1".repeat(5)), Some("-ERR syntax error\r\n")),
        (format!("MEMORY USAGE k{}", " SAMPLES 1".repeat(4)), None),
        (format!("MEMORY USAGE k{}", " SAMPLES 1".repeat(5)), Some("-ERR syntax error\r\n")),
        (format!("HELLO 2{}", " SETNAME n".repeat(7)), None),
        (format!("HELLO 2{}", " SETNAME n".repeat(8)), Some("-ERR syntax error\r\n")),
    ] {
        let got = rig.say_resp(&client, &asked);
        assert_eq!(got.starts_with('-').then_some(&*got), refused, "{asked:.20}: {got}");
    }
}
