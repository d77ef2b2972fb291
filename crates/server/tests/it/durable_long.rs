//! Long values and long requests about items that are kept, by streams and by datagrams.

use crate::durable::{FORMS, SSD_BYTES, machine, started, started_with};
use laneway_policy::Form;
use laneway_rig::durable::{Machine, settings};
use laneway_rig::peer::Peer;
use laneway_rig::{Plan, hit, value};
use laneway_tier::Settings;
use laneway_transport::memory_datagram::DatagramFaults;

#[test]
fn datagrams_are_served_durably_too() {
    let machine = machine();
    let plan = || Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(2, Form::TimeShare) };
    let (mut rig, kept) = started_with(&machine, settings(), plan());
    let mut peer = Peer::new(&rig);
    let large = value(300_000, 4);
    peer.small(0, 1, b"set small 0 0 3\r\nabc\r\n");
    assert_eq!(peer.until(&mut rig, 1), b"STORED\r\n");
    let request = [&b"set large 0 0 300000\r\n"[..], &large, b"\r\n"].concat();
    peer.send(1, 2, &request);
    assert_eq!(peer.until(&mut rig, 2), b"STORED\r\n");
    let slices: u64 = rig.shared.workers.iter().map(|worker| worker.lanes.slices.get()).sum();
    assert!(slices >= 300_000 / 32_768, "{slices} slices: it was copied at once");
    drop((rig, kept));
    let (mut rig, _kept) = started_with(&machine, settings(), plan());
    let mut peer = Peer::new(&rig);
    peer.small(0, 1, b"get small\r\n");
    assert_eq!(peer.until(&mut rig, 1), b"VALUE small 0 3\r\nabc\r\nEND\r\n");
    peer.small(1, 2, b"get large small none\r\n");
    let wanted = [&hit("large", &large)[..], &hit("small", b"abc"), b"END\r\n"].concat();
    assert!(peer.until(&mut rig, 2) == wanted);
    peer.small(1, 3, b"mg small v\r\n");
    assert_eq!(peer.until(&mut rig, 3), b"VA 3\r\nabc\r\n");
    peer.small(1, 4, b"incr none 1\r\n");
    assert_eq!(peer.until(&mut rig, 4), b"NOT_FOUND\r\n");
}

#[test]
fn a_large_value_comes_in_by_stretches_and_others_in_between() {
    const TURNS_BEFORE: usize = 3;
    for form in FORMS {
        let machine = machine();
        let large = value(600_000, 4);
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        rig.set(&client, "large", &large);
        rig.set(&client, "small", b"abc");
        drop((rig, kept));
        let (mut rig, kept) = started(&machine, form);
        let (first, second) = (rig.net.connect(), rig.net.connect());
        assert_eq!(rig.send(&first, b"get large\r\n"), b"");
        rig.turns(TURNS_BEFORE);
        assert_eq!(rig.send(&second, b"get small\r\n"), b"");
        let small = rig.until(&second, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert_eq!(small, [&hit("small", b"abc")[..], b"END\r\n"].concat());
        assert!(first.receive(usize::MAX).is_empty(), "the small one waited for the large one");
        let whole = rig.until(&first, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert!(whole == [&hit("large", &large)[..], b"END\r\n"].concat());
        let stats = kept.tier.stats();
        assert_eq!(stats.items.items(), 2);
        let told = rig.ask(&second, b"stats tier\r\n", b"END\r\n");
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("STAT items_brought_in 2\r\n"), "{told}");
        assert!(told.contains("STAT bytes_brought_in 600003\r\n"), "{told}");
    }
}

#[test]
fn a_long_value_that_lies_in_the_log_comes_in_too() {
    const LONG: usize = 100_000;
    let one_path = Settings { split_bytes: usize::MAX, segment_bytes: 512 << 10, ..settings() };
    let machine = Machine::new(8 << 20, SSD_BYTES);
    let long = value(LONG, 7);
    let (mut rig, kept) = started_with(&machine, one_path, Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    rig.set(&client, "long", &long);
    assert_eq!(kept.tier.stats().items.large, 0);
    drop((rig, kept));
    let (mut rig, _kept) = started_with(&machine, one_path, Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    let whole = rig.ask(&client, b"get long\r\n", b"END\r\n");
    assert!(whole == [&hit("long", &long)[..], b"END\r\n"].concat());
}

#[test]
fn long_multigets_by_datagram_are_whole_whether_memory_or_the_folder_has_their_items() {
    const TIMES: usize = 700; // more than one turn looks up
    let machine = machine();
    let plan = || Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(2, Form::TimeShare) };
    let request = [b"get", " small none".repeat(TIMES).as_bytes(), b"\r\n"].concat();
    let wanted = [hit("small", b"abc").repeat(TIMES), b"END\r\n".to_vec()].concat();
    let (mut rig, kept) = started_with(&machine, settings(), plan());
    let mut peer = Peer::new(&rig);
    peer.small(0, 1, b"set small 0 0 3\r\nabc\r\n");
    assert_eq!(peer.until(&mut rig, 1), b"STORED\r\n");
    peer.send(0, 2, &request);
    assert!(peer.until(&mut rig, 2) == wanted, "out of memory");
    drop((rig, kept));
    let (mut rig, _kept) = started_with(&machine, settings(), plan());
    let mut peer = Peer::new(&rig);
    peer.send(0, 1, &request);
    assert!(peer.until(&mut rig, 1) == wanted, "out of the folder");
}
