//! What cannot be so, and what does not fit: each has an end and a name, and the next request is
//! served.

use crate::rig::{World, rings};
use laneway_rdma::contract::{Posted, Requester as _, Responder as _};
use laneway_studies::rivals::client::{Access, Answer, Client, Failure, Refused};
use laneway_studies::rivals::design::Design;
use laneway_studies::rivals::lookup::{Lost, TRIES_MAX};
use laneway_studies::rivals::message::{KEY_BYTES_MAX, Reply, VALUE_BYTES_MAX};
use laneway_studies::rivals::opened::RingReader;
use laneway_studies::rivals::record::{self, Bucket, Shape, Slot, Slots, Value};
use laneway_studies::rivals::server::{Server, Sizes, Store};
use std::io::IoSlice;

const READING: [Design; 3] = [Design::Pilaf, Design::Farm, Design::FarmVar];

/// An index of one place, so that it is known where a key is.
fn one_place(design: Design) -> World {
    let sizes = Sizes { places: 1, ..Sizes::of(design, 8, 8, 64) };
    let mut world = World::new(design, sizes, 2);
    assert_eq!(world.put(b"key", b"value").result, Ok(Answer::Done));
    assert_eq!(world.get(b"key").result, Ok(Answer::Value(b"value".to_vec())));
    world
}

fn overwrite(world: &mut World, at: usize, bytes: &[u8]) {
    world.server.store().memory().expect("it is READ").write(at, bytes);
}

#[test]
fn a_pointer_out_of_the_memory_ends_in_an_error_and_is_mended_by_the_next_put() {
    let unit = u32::MAX;
    let bucket = Bucket {
        unit,
        key_bytes: 3,
        value_bytes: 5,
        tag: record::tag(b"key"),
        version: 9,
        extent_checksum: 0,
    };
    let slots = Slots { homes: 1, key_bytes_max: 8, value_bytes_max: None };
    let mut slot = Vec::new();
    let value = Value::There { unit, bytes: 5, checksum: 0 };
    slots.write(&Slot { key: b"key", value, version: 9 }, &mut slot);
    for (design, forged, bytes) in
        [(Design::Pilaf, bucket.to_bytes().to_vec(), 8), (Design::FarmVar, slot, 5)]
    {
        let mut world = one_place(design);
        overwrite(&mut world, 0, &forged);
        let ended = world.get(b"key");
        let address = u64::from(unit) * 8;
        let lost = Failure::Lost(Lost::Beyond { address, bytes });
        assert_eq!((ended.result, ended.torn), (Err(lost), TRIES_MAX), "{design}");
        assert!(lost.to_string().contains(&format!("{bytes} bytes from {address}")), "{lost}");
        assert_eq!(world.put(b"key", b"mended").result, Ok(Answer::Done));
        assert_eq!(world.get(b"key").result, Ok(Answer::Value(b"mended".to_vec())), "{design}");
    }
}

#[test]
fn a_checksum_that_is_always_wrong_ends_in_an_error_after_so_many_tries() {
    for design in READING {
        let mut world = one_place(design);
        overwrite(&mut world, 0, &[0xff; 8]);
        let before = world.client.tally().verbs.reads;
        let ended = world.get(b"key");
        let lost = Failure::Lost(Lost::Torn { tries: TRIES_MAX });
        assert_eq!(ended.result, Err(lost), "{design}");
        assert!(lost.to_string().contains("64 times"), "{lost}");
        assert_eq!(world.client.tally().verbs.reads - before, u64::from(TRIES_MAX), "{design}");
        assert_eq!(world.put(b"key", b"mended").result, Ok(Answer::Done));
        assert_eq!(world.get(b"key").result, Ok(Answer::Value(b"mended".to_vec())), "{design}");
    }
}

#[test]
fn an_extent_that_is_never_whole_ends_in_an_error() {
    for (design, index_bytes) in [(Design::Pilaf, 32), (Design::FarmVar, 6 * 40)] {
        let mut world = one_place(design);
        overwrite(&mut world, index_bytes, &[0xff; 8]);
        let lost = Failure::Lost(Lost::Torn { tries: TRIES_MAX });
        assert_eq!(world.get(b"key").result, Err(lost), "{design}");
    }
}

#[test]
fn an_index_that_is_not_all_in_the_memory_ends_in_an_error() {
    let slots = |value_bytes_max| {
        Shape::Hopscotch(Slots { homes: 1 << 40, key_bytes_max: 8, value_bytes_max })
    };
    for (design, shape) in [
        (Design::Pilaf, Shape::Cuckoo { buckets: 1 << 40 }),
        (Design::Farm, slots(Some(64))),
        (Design::FarmVar, slots(None)),
    ] {
        let mut store = Store::new(design, Sizes::of(design, 8, 8, 64)).expect("memory");
        let reader = store.memory().expect("it is READ").reader();
        let (requester, responder, _stream) = rings();
        let access = Some(Access { shape, reader });
        let client = Client::new(design, requester, access, 1);
        let mut world = World::of(client, Server::new(design, responder, store));
        let result = world.get(b"key").result;
        assert!(matches!(result, Err(Failure::Lost(Lost::Beyond { .. }))), "{design}: {result:?}");
    }
}

#[test]
fn a_full_index_says_so_and_keeps_what_it_has() {
    for design in READING {
        let mut world = World::new(design, Sizes { places: 16, ..Sizes::of(design, 64, 8, 8) }, 1);
        let mut full = 0;
        let stored: Vec<u64> = (0..64_u64)
            .filter(|number| match world.put(&number.to_le_bytes(), b"value").result {
                Ok(Answer::Done) => true,
                Err(Failure::Full) => {
                    full += 1;
                    false
                }
                other => panic!("{design}: {other:?}"),
            })
            .collect();
        assert!(full > 40 && stored.len() > 5, "{design}: {full} full, {} stored", stored.len());
        for number in stored {
            let result = world.get(&number.to_le_bytes()).result;
            assert_eq!(result, Ok(Answer::Value(b"value".to_vec())), "{design} {number}");
        }
    }
}

#[test]
fn keys_and_values_that_are_too_long_are_refused() {
    for design in Design::ALL {
        let mut world = World::new(design, Sizes::of(design, 8, 20, 100), 2);
        let (key, value) = ([1; KEY_BYTES_MAX + 1], [2; VALUE_BYTES_MAX + 1]);
        assert_eq!(world.client.get(0, b""), Err(Refused::KeyBytes(0)));
        assert_eq!(world.client.get(0, &key), Err(Refused::KeyBytes(251)));
        assert_eq!(world.client.put(0, &key, b""), Err(Refused::KeyBytes(251)));
        assert_eq!(world.client.put(0, b"key", &value), Err(Refused::ValueBytes(1025)));
        assert!(Refused::ValueBytes(1025).to_string().contains("at most 1024"));
        // What the client may say and this server does not keep.
        assert_eq!(world.put(&[1; 21], b"").result, Err(Failure::TooLong), "{design}");
        assert_eq!(world.put(b"key", &[2; 101]).result, Err(Failure::TooLong), "{design}");
        assert_eq!(world.put(&[1; 20], &[2; 100]).result, Ok(Answer::Done), "{design}");
        assert_eq!(world.get(&[1; 20]).result, Ok(Answer::Value(vec![2; 100])), "{design}");
        assert_eq!(world.get(&[1; 21]).result, Ok(Answer::Missing), "{design}");
    }
    let sizes = Sizes::of(Design::Herd, 8, 251, 100);
    assert!(Store::new(Design::Herd, sizes).is_err());
    let sizes = Sizes::of(Design::Farm, 8, 16, 1025);
    let said = Store::new(Design::Farm, sizes).expect_err("too long").to_string();
    assert!(said.contains("at most 250 and 1024"), "{said}");
}

#[test]
fn a_window_that_is_full_says_so() {
    for design in Design::ALL {
        let mut world = World::new(design, Sizes::of(design, 8, 8, 8), 2);
        assert_eq!((world.client.get(1, b"a"), world.client.put(2, b"b", b"v")), (Ok(()), Ok(())));
        assert_eq!(world.client.get(3, b"c"), Err(Refused::WindowFull));
        let mut tickets = [world.end().ticket, world.end().ticket];
        tickets.sort_unstable();
        assert_eq!((tickets, world.client.under_way()), ([1, 2], 0));
    }
}

#[test]
fn messages_that_are_no_requests_are_answered_so_or_thrown_away() {
    for design in Design::ALL {
        let (mut requester, responder, _stream) = rings();
        let store = Store::new(design, Sizes::of(design, 8, 8, 8)).expect("memory");
        let mut server = Server::new(design, responder, store);
        let mut replies = |message: &[u8]| {
            assert_eq!(requester.post_request(0, message), Posted::Done);
            assert_eq!(server.turn().expect("memory does not fail"), 1);
            let mut replies = Vec::new();
            requester.poll_replies(8, &mut |_, bytes| replies.push(bytes.to_vec()));
            replies
        };
        let mut malformed = Vec::new();
        Reply::Malformed.write(0x0403_0201, &mut malformed);
        for message in [&[9, 1, 0, 0, 1, 2, 3, 4, b'k'][..], &[2, 9, 0, 0, 1, 2, 3, 4, b'k']] {
            assert_eq!(replies(message), std::slice::from_ref(&malformed), "{design}");
        }
        if design.reads() {
            let get = [1, 1, 0, 0, 1, 2, 3, 4, b'k'];
            assert_eq!(replies(&get), [malformed], "{design}: clients look for themselves");
        }
        assert!(replies(b"").is_empty() && replies(&[1; 7]).is_empty());
        assert_eq!(server.met().unintelligible, 2, "{design}");
    }
}

#[test]
fn replies_to_nothing_that_was_asked_are_counted_and_end_nothing() {
    let (requester, mut responder, _stream) = rings();
    let mut client: Client<_, RingReader> = Client::new(Design::Herd, requester, None, 2);
    client.get(7, b"key").expect("there is room");
    assert_eq!(client.turn().expect("memory does not fail"), 1);
    assert_eq!(responder.poll_slots(0, 8), 1);
    let peer = responder.request(0).peer;
    let id: [u8; 4] = responder.request(0).bytes[4..8].try_into().expect("it has a number");
    let id = u32::from_le_bytes(id);
    let mut say = |id: u32, cut: usize| {
        let mut bytes = Vec::new();
        Reply::Found(b"value").write(id, &mut bytes);
        let pieces = [IoSlice::new(&bytes[..bytes.len() - cut])];
        assert_eq!(responder.reply(peer, 0, &pieces, 0), Posted::Done);
    };
    for (id, cut) in
        [(id, 1), (id, 6), (id ^ 0x100, 0), (id ^ 1, 0), (id ^ 0x80, 0), (id, 0), (id, 0)]
    {
        say(id, cut);
    }
    client.turn().expect("memory does not fail");
    let ended = client.take().expect("it was answered");
    assert_eq!((ended.ticket, ended.result), (7, Ok(Answer::Value(b"value".to_vec()))));
    assert!(client.take().is_none());
    assert_eq!((client.unintelligible(), client.under_way()), (5, 0), "the last says it again");
}
