//! Restores: what a store that was loaded gives out afterwards, and one that was not loaded to its
//! end.

use crate::common::{self, Kind, Machine, settings, value};
use laneway_tier::backup::{Bounds, Step};
use laneway_tier::disk::sim::Faults;
use laneway_tier::dump::{Stream, load};
use laneway_tier::{Backend, Directory, DirectorySettings, Error, ItemMeta, Tier};

fn machine() -> Machine {
    Machine::new(Kind::Wal, &Faults::default())
}

fn stream_of(tier: &Tier) -> Vec<u8> {
    let (mut backup, mut stream) = (tier.backup(Bounds::NONE).unwrap(), Vec::new());
    while backup.step(&mut stream).unwrap() == Step::More {}
    stream
}

/// A stream of a store with an item of this CAS id.
fn stream_with(cas: u64) -> Vec<u8> {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    let meta = ItemMeta { cas, ..ItemMeta::default() };
    tier.put(b"chosen", b"value", meta).unwrap();
    tier.put(b"other", &value(1, 3000), ItemMeta::default()).unwrap();
    stream_of(&tier)
}

#[test]
fn no_sequence_and_no_cas_id_comes_again_after_a_restore() {
    let stream = stream_with(1 << 40);
    let machine = machine();
    let (copy, _) = machine.open(settings()).unwrap();
    load(&copy, &stream[..]).unwrap();
    assert!(1 << 40 < copy.sequence());
    copy.close().unwrap();
    let (copy, _) = machine.open(settings()).unwrap();
    assert!(1 << 40 < copy.sequence(), "neither after a restart");
}

#[test]
fn what_a_store_has_given_out_since_it_was_copied_does_not_come_again_however_often_it_began() {
    let source = machine();
    let (tier, _) = source.open(settings()).unwrap();
    tier.put(b"key", b"value", ItemMeta::default()).unwrap();
    let stream = stream_of(&tier);
    // As an owner does at each of its starts, for what an interval may have lost.
    for _ in 0..10 {
        tier.pass_over(tier.sequence() + (1 << 30)).unwrap();
    }
    let since = tier.put(b"key", b"newer", ItemMeta::default()).unwrap();
    let machine = machine();
    let (copy, _) = machine.open(settings()).unwrap();
    load(&copy, &stream[..]).unwrap();
    assert!(since < copy.sequence());
}

#[test]
fn a_cas_id_that_a_client_has_chosen_leaves_numbers_for_writes() {
    for cas in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 62) - 1] {
        let stream = stream_with(cas);
        let machine = machine();
        let (copy, _) = machine.open(settings()).unwrap();
        assert_eq!(load(&copy, &stream[..]).unwrap(), 2);
        // Again and again: what is loaded may have been loaded before.
        for round in 0..3 {
            let again = stream_of(&copy);
            assert_eq!(load(&copy, &again[..]).unwrap(), 2 + round);
            let key = format!("new-{round}");
            copy.put(key.as_bytes(), &value(round, 700), ItemMeta::default()).unwrap();
            copy.put(b"other", &value(round + 7, 3000), ItemMeta::default()).unwrap();
        }
        copy.close().unwrap();
        let (copy, report) = machine.open(settings()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        let item = |key: &[u8]| copy.get(key).unwrap().expect("it was acknowledged");
        assert_eq!((item(b"chosen").value, item(b"chosen").meta.cas), (b"value".to_vec(), cas));
        assert_eq!(item(b"other").value, value(9, 3000));
        assert!((0..3).all(|n| item(format!("new-{n}").as_bytes()).value == value(n, 700)));
        assert!(copy.sequence() < 1 << 63, "{cas}: {}", copy.sequence());
    }
}

#[test]
fn numbers_that_no_store_gives_out_are_refused_and_so_is_to_pass_over_all() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    for sequence in [u64::MAX, u64::MAX - (1 << 29)] {
        assert!(matches!(tier.pass_over(sequence), Err(Error::Setting(_))), "{sequence}");
    }
    let kept = tier.submit_put(b"key", b"value", ItemMeta::default(), Some(u64::MAX - 5)).unwrap();
    tier.wait(kept).unwrap();
    let stream = stream_of(&tier);
    for loads in [false, true] {
        let copy = common::Machine::new(Kind::Wal, &Faults::default());
        let (copy, _) = copy.open(settings()).unwrap();
        let told = match loads {
            true => load(&copy, &stream[..]),
            false => Stream::open(&stream[..]).unwrap().verify(),
        };
        assert!(told.unwrap_err().to_string().contains("the dump is damaged"));
        assert!(copy.get(b"key").unwrap().is_none());
        copy.put(b"key", b"other", ItemMeta::default()).unwrap();
    }
}

#[test]
fn a_folder_that_was_not_loaded_to_its_end_is_opened_to_be_loaded_and_not_otherwise() {
    let name = format!("laneway-restore-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    let mut place = DirectorySettings::new(&folder);
    (place.backend, place.pm_bytes, place.ssd_bytes) = (Backend::Wal, 32 << 20, 64 << 20);
    place.settings.background = false;
    let stream = stream_with(5);
    // One that cannot be made is no half of anything.
    let tiny = DirectorySettings { ssd_bytes: 4096, ..place.clone() };
    assert!(Directory::open_to_load(&tiny, &mut |_, _| {}).is_err());
    let (empty, _) = Directory::open(&place, &mut |_, _| {}).unwrap();
    empty.close().unwrap();
    let (half, _) = Directory::open_to_load(&place, &mut |_, _| {}).unwrap();
    assert!(load(&half, &stream[..stream.len() - 20]).is_err());
    drop(half);
    for open in [Directory::open, Directory::open_existing] {
        let told = open(&place, &mut |_, _| {}).err().expect("it is half a store").to_string();
        assert!(told.contains("did not come to its end") && told.contains("remove"), "{told}");
    }
    let (whole, _) = Directory::open_to_load(&place, &mut |_, _| {}).unwrap();
    assert_eq!(load(&whole, &stream[..]).unwrap(), 2);
    whole.close_loaded().unwrap();
    let (whole, _) = Directory::open(&place, &mut |_, _| {}).unwrap();
    assert_eq!(whole.get(b"chosen").unwrap().unwrap().value, b"value");
    whole.close().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
