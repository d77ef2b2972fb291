//! Stores of every version of the format there was, as they lie in `golden`, are read item by item
//! as their manifests say, and gone on with. Whoever changes the format keeps these images and adds
//! the new ones, by the command that a failure tells ([`REMAKE`]).

mod golden;

use golden::{FEATURES, Image, REMAKE, found, line, make, make_cut, make_more, manifest};
use laneway_tier::{Error, IndexKind, ItemMeta, Sizes, Tier, fsck};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// An image as it lies there, and its manifest.
struct Stored {
    name: String,
    bytes: Vec<u8>,
    manifest: String,
}

impl Stored {
    /// The version of its superblocks, as its name has it.
    fn version(&self) -> u32 {
        let number = self.name.split('-').nth(1).expect("format-VERSION");
        number.parse().expect("a number")
    }

    /// Whether its index is in persistent memory: the lowest bit above version 2.
    fn has_tree(&self) -> bool {
        self.version() % 2 == 1
    }
}

/// All of them, by name.
fn stored() -> Vec<Stored> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(&folder).expect("the folder of the images");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "image")).collect();
    paths.sort();
    let read = |path: PathBuf| Stored {
        name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
        bytes: fs::read(&path).expect("an image"),
        manifest: fs::read_to_string(path.with_extension("manifest")).expect("its manifest"),
    };
    paths.into_iter().map(read).collect()
}

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
    let settings = image.settings();
    let findings = fsck::check(media.clone(), settings).expect("it can be checked");
    assert!(findings.is_sound(), "{what}: {findings:?}");
    assert!((region.image(), ssd.image()) == (image.log.clone(), image.ssd.clone()));
    let (tier, report) = Tier::open(media.clone(), settings, 1, &mut |_, _| {}).unwrap();
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
    let (tier, _) = Tier::open(media, settings, 1, &mut |_, _| {}).expect("opened");
    assert!(found(&tier) == all, "{what}");
}

#[test]
fn a_store_of_each_version_there_was_is_read_as_its_manifest_says_and_gone_on_with() {
    for stored in stored() {
        let (name, image) = (&stored.name, Image::decode(&stored.bytes));
        assert_eq!(image.version(), stored.version(), "{name}");
        assert!(image.encode() == stored.bytes, "{name}");
        check(&image, &stored.manifest, name);
    }
}

/// But for those that are about it, nothing of them was written by a program that knew of growing.
#[test]
fn a_store_of_each_version_there_was_grows() {
    for stored in stored() {
        let (name, mut image) = (&stored.name, Image::decode(&stored.bytes));
        let before = Sizes { log: image.log.len() as u64, ssd: image.ssd.len() as u64 };
        image.log.resize(image.log.len() / 2 * 3, 0xa5);
        image.ssd.resize(2 * image.ssd.len(), 0xa5);
        // A log does not, in front of an index.
        let log = if stored.has_tree() { before.log } else { before.log / 2 * 3 };
        let sizes = Sizes { log, ssd: 2 * before.ssd };
        let (media, ..) = image.media();
        for grown_from in [Some(before), None] {
            let (tier, report) = Tier::open(media.clone(), image.settings(), 1, &mut |_, _| {})
                .expect("it is whole");
            assert_eq!(report.problems, [""; 0], "{name}");
            assert_eq!((report.sizes, report.grown_from), (sizes, grown_from), "{name}");
            compare(&tier, &stored.manifest, name);
        }
    }
}

#[test]
fn the_images_have_items_of_every_kind() {
    let cut: Vec<Stored> =
        stored().into_iter().filter(|stored| stored.name.ends_with("-cut")).collect();
    assert!(cut.iter().any(Stored::has_tree) && !cut.iter().all(Stored::has_tree));
    for Stored { name, bytes, manifest } in cut {
        let image = Image::decode(&bytes);
        let (tier, _) = Tier::open(image.media().0, image.settings(), 1, &mut |_, _| {}).unwrap();
        let items = tier.stats().items;
        let kinds = [items.small_in_log, items.small_on_ssd, items.large, items.tombstones];
        assert!(!kinds.contains(&0), "{name}: {items:?}");
        let lines = lines(&manifest);
        let of_group = |is_there: bool| {
            lines.iter().any(|(key, it)| key.starts_with("gr-") && (it != "absent") == is_there)
        };
        assert!(of_group(true) && of_group(false), "{name}: a group is half there");
    }
}

/// The versions that this program writes, by what a store has; each image is checked.
fn versions_of_today() -> BTreeSet<u32> {
    let mut versions = BTreeSet::new();
    for kind in [IndexKind::BTree, IndexKind::Fair] {
        let (cut, said) = make_cut(kind);
        // What is made again is the same, as long as this program makes it.
        assert!((make_cut(kind).0.encode(), make_cut(kind).1) == (cut.encode(), said.clone()));
        for (image, manifest) in [(make(kind), manifest()), (cut, said)] {
            check(&image, &manifest, "a new image");
            versions.insert(image.version());
        }
    }
    for features in FEATURES {
        let (image, said) = make_more(features);
        check(&image, &said, "a new image");
        assert!(versions.insert(image.version()), "{features:?} has a version of its own");
    }
    versions
}

#[test]
fn there_is_an_image_of_each_version_that_is_written_and_no_other_version_is_read() {
    let written = versions_of_today();
    let images = stored();
    for version in &written {
        assert!(
            images.iter().any(|stored| stored.version() == *version),
            "no image of format version {version}: keep the others, and add it by: {REMAKE}"
        );
    }
    let image = make(IndexKind::BTree);
    for version in (0..20).filter(|version| !written.contains(version)) {
        let (media, ..) = of_version(&image, version).media();
        let error = Tier::open(media, image.settings(), 1, &mut |_, _| {}).err();
        let found = error.map(|error| match error {
            Error::Version { found } => found,
            error => panic!("version {version}: {error}"),
        });
        assert_eq!(found, Some(version), "it is refused as that");
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
    for Stored { name, bytes, .. } in stored() {
        let image = Image::decode(&bytes);
        let settings = image.settings();
        let mut foreign = image.clone();
        SUPERBLOCKS.iter().for_each(|at| foreign.ssd[*at..][..8].copy_from_slice(b"FOREIGN!"));
        let (written, way_out) = ("nothing was written", "laneway dump");
        for (image, told) in [
            (of_version(&image, 10), ["version 10, which this program does not", written, way_out]),
            // Between those that are written.
            (of_version(&image, 7), ["version 7, which this program does not", written, way_out]),
            (of_version(&image, 1), ["version 1, which this program does not", written, way_out]),
            (foreign, ["neither superblock is whole", written, "--ssd"]),
        ] {
            let (media, region, ssd) = image.media();
            let opened = Tier::open(media.clone(), settings, 1, &mut |_, _| {});
            for error in [opened.err(), fsck::check(media, settings).err()] {
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
