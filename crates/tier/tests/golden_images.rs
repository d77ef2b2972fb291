//! Stores of every version of the format there was, as they lie in `golden`, are read item by item
//! as their manifests say, and gone on with. Whoever changes the format keeps these images and adds
//! the new ones, by the command that a failure tells ([`REMAKE`]).

mod golden;

use golden::{Image, REMAKE, found, line, make, make_cut, manifest, settings};
use laneway_tier::{Error, IndexKind, ItemMeta, Sizes, Tier, fsck};
use std::collections::BTreeMap;

/// An image as it lies there, and its manifest.
struct Stored {
    name: &'static str,
    version: u32,
    index: IndexKind,
    bytes: &'static [u8],
    manifest: &'static str,
}

macro_rules! stored {
    ($name:literal, $version:literal, $index:ident) => {
        Stored {
            name: $name,
            version: $version,
            index: IndexKind::$index,
            bytes: include_bytes!(concat!("golden/", $name, ".image")),
            manifest: include_str!(concat!("golden/", $name, ".manifest")),
        }
    };
}

const IMAGES: [Stored; 4] = [
    stored!("format-2", 2, BTree),
    stored!("format-3", 3, Fair),
    stored!("format-2-cut", 2, BTree),
    stored!("format-3-cut", 3, Fair),
];

/// Where the superblocks lie, and the version in each.
const SUPERBLOCKS: [usize; 2] = [0, 16 * 4096];
const VERSION_AT: usize = 8;

/// What a manifest says, by the key as it is written there.
fn lines(manifest: &str) -> BTreeMap<String, String> {
    let lines = manifest.lines().filter(|line| !line.starts_with('#'));
    let split = lines.map(|line| line.split_once(": ").expect("key: item"));
    split.map(|(key, item)| (key.to_owned(), item.to_owned())).collect()
}

/// Each item is as the manifest says, and nothing else is there.
fn compare(tier: &Tier, manifest: &str, what: &str) {
    let expected = lines(manifest);
    let mut there = BTreeMap::new();
    for (key, (value, meta)) in found(tier) {
        there.insert(key.escape_ascii().to_string(), line(&value, &meta));
    }
    for (key, said) in &expected {
        let is = there.get(key).map_or("absent", |item| &item[..]);
        assert_eq!(is, said, "{what}: {key} is not as its manifest says, and was written so");
        let is_read = tier.get(key.as_bytes()).expect("it is whole").is_some();
        assert_eq!(is_read, said != "absent", "{what}: {key}");
    }
    let more = there.keys().find(|key| !expected.contains_key(*key));
    assert_eq!(more, None, "{what}: no item of this key was acknowledged");
}

fn check(image: &Image, manifest: &str, what: &str) {
    let (media, region, ssd) = image.media();
    let findings = fsck::check(media.clone(), settings(None)).expect("it can be checked");
    assert!(findings.is_sound(), "{what}: {findings:?}");
    assert!((region.image(), ssd.image()) == (image.log.clone(), image.ssd.clone()));
    let (tier, report) = Tier::open(media.clone(), settings(None), 1, &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty() && !report.is_new, "{what}: {report:?}");
    compare(&tier, manifest, what);
    // It is gone on with.
    let mut all = found(&tier);
    for number in 0..40u8 {
        let (key, value) = (vec![b'n', number], vec![number; 300]);
        tier.put(&key, &value, ItemMeta::default()).expect("room");
        all.insert(key, (value, ItemMeta::default()));
        while tier.maintain().expect("room") {}
    }
    tier.close().expect("closed");
    let (tier, _) = Tier::open(media, settings(None), 1, &mut |_, _| {}).expect("opened");
    assert!(found(&tier) == all, "{what}");
}

#[test]
fn a_store_of_each_version_there_was_is_read_as_its_manifest_says_and_gone_on_with() {
    for Stored { name, version, bytes, manifest, .. } in IMAGES {
        let image = Image::decode(bytes);
        assert_eq!(image.ssd[VERSION_AT..][..4], version.to_le_bytes(), "{name}");
        assert_eq!(image.encode(), bytes, "{name}");
        check(&image, manifest, name);
    }
}

/// Nothing of it was written by a program that knew of growing.
#[test]
fn a_store_of_each_version_there_was_grows() {
    for Stored { name, index, bytes, manifest, .. } in IMAGES {
        let mut image = Image::decode(bytes);
        let before = Sizes { log: image.log.len() as u64, ssd: image.ssd.len() as u64 };
        image.log.resize(2 * image.log.len(), 0xa5);
        image.ssd.resize(2 * image.ssd.len(), 0xa5);
        // A log does not, in front of an index.
        let log = if index == IndexKind::Fair { before.log } else { 2 * before.log };
        let sizes = Sizes { log, ssd: 2 * before.ssd };
        let (media, ..) = image.media();
        for grown_from in [Some(before), None] {
            let (tier, report) =
                Tier::open(media.clone(), settings(None), 1, &mut |_, _| {}).expect("it is whole");
            assert_eq!(report.problems, [""; 0], "{name}");
            assert_eq!((report.sizes, report.grown_from), (sizes, grown_from), "{name}");
            compare(&tier, manifest, name);
        }
    }
}

#[test]
fn the_images_have_items_of_every_kind() {
    for Stored { name, bytes, manifest, .. } in IMAGES.iter().filter(|it| it.name.contains("cut")) {
        let (media, ..) = Image::decode(bytes).media();
        let (tier, _) = Tier::open(media, settings(None), 1, &mut |_, _| {}).unwrap();
        let items = tier.stats().items;
        let kinds = [items.small_in_log, items.small_on_ssd, items.large, items.tombstones];
        assert!(!kinds.contains(&0), "{name}: {items:?}");
        let lines = lines(manifest);
        let of_group = |is_there: bool| {
            lines.iter().any(|(key, it)| key.starts_with("gr-") && (it != "absent") == is_there)
        };
        assert!(of_group(true) && of_group(false), "{name}: a group is half there");
    }
}

#[test]
fn the_images_of_today_have_the_version_of_today() {
    let newest = IMAGES.iter().rev();
    for kind in [IndexKind::BTree, IndexKind::Fair] {
        let (cut, said) = make_cut(kind);
        // What is made again is the same, as long as this program makes it.
        assert!((make_cut(kind).0.encode(), make_cut(kind).1) == (cut.encode(), said.clone()));
        for (image, manifest) in [(make(kind), manifest()), (cut, said)] {
            check(&image, &manifest, "a new image");
            let of_kind = newest.clone().find(|stored| stored.index == kind).expect("there is one");
            assert_eq!(
                image.ssd[VERSION_AT..][..4],
                of_kind.version.to_le_bytes(),
                "the format has another version: keep the images, and add those of the new one, \
                 under its number, by: {REMAKE}"
            );
        }
    }
}

/// The image with this version in both superblocks, which no checksum covers.
fn of_version(image: &Image, version: u32) -> Image {
    let mut image = image.clone();
    for at in SUPERBLOCKS {
        image.ssd[at + VERSION_AT..][..4].copy_from_slice(&version.to_le_bytes());
    }
    image
}

#[test]
fn a_store_of_a_version_to_come_or_of_another_program_is_refused_with_the_way_out() {
    for Stored { name, bytes, .. } in IMAGES {
        let image = Image::decode(bytes);
        let mut foreign = image.clone();
        SUPERBLOCKS.iter().for_each(|at| foreign.ssd[*at..][..8].copy_from_slice(b"FOREIGN!"));
        let (written, way_out) = ("nothing was written", "laneway dump");
        for (image, told) in [
            (of_version(&image, 10), ["written by format version 10", written, way_out]),
            (of_version(&image, 1), ["written by format version 1", written, way_out]),
            (foreign, ["neither superblock is whole", written, "--ssd"]),
        ] {
            let (media, region, ssd) = image.media();
            let opened = Tier::open(media.clone(), settings(None), 1, &mut |_, _| {});
            for error in [opened.err(), fsck::check(media, settings(None)).err()] {
                let error = error.expect("it is refused");
                assert!(matches!(error, Error::Version { .. } | Error::Corrupt(_)), "{error:?}");
                let error = error.to_string();
                for words in told {
                    assert!(error.contains(words), "{name}: {error}");
                }
            }
            assert!(region.image() == image.log && ssd.image() == image.ssd, "{name}");
        }
    }
}
