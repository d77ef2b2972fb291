//! What a server of several NUMA domains tells of itself and does as a whole: every item counts
//! once, whichever domain has it.

use crate::rig::{Process, ask, text};

const KEYS: usize = 200;

#[test]
fn items_of_all_domains_are_counted_listed_and_flushed_together() {
    let server = Process::here(&["-t", "4", "--numa", "fake:2"]);
    let mut client = server.connect();
    for key in 0..KEYS {
        let set = format!("set key:{key:03} 0 0 10\r\n0123456789\r\n");
        assert_eq!(ask(&mut client, set.as_bytes(), b"\r\n"), b"STORED\r\n");
    }
    let mut told =
        |question: &str| text(ask(&mut client, format!("{question}\r\n").as_bytes(), b"END\r\n"));
    let lanes = told("stats lanes");
    let jobs = lanes.lines().filter_map(|line| line.split_once(":jobs_of_others "));
    let remote: usize = jobs.map(|(_, number)| number.parse::<usize>().expect("a number")).sum();
    assert!((1..KEYS).contains(&remote), "each domain has some keys: {lanes}");
    let items = told("stats items");
    let (class, _) = items["STAT items:".len()..].split_once(':').expect("a class");
    assert!(items.contains(&format!("STAT items:{class}:number {KEYS}\r\n")), "{items}");
    assert!(told("stats slabs").contains(&format!("STAT {class}:used_chunks {KEYS}\r\n")));
    assert!(told("stats sizes").ends_with(&format!(" {KEYS}\r\nEND\r\n")));
    let list = told(&format!("stats cachedump {class} 0"));
    for key in 0..KEYS {
        let item = format!("ITEM key:{key:03} [10 b; 0 s]\r\n");
        assert_eq!(list.matches(&item).count(), 1, "{list}");
    }
    assert_eq!(ask(&mut client, b"flush_all\r\n", b"\r\n"), b"OK\r\n");
    for key in 0..KEYS {
        let get = format!("get key:{key:03}\r\n");
        assert_eq!(ask(&mut client, get.as_bytes(), b"END\r\n"), b"END\r\n");
    }
}
