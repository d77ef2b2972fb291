//! Stores of every version of the format there was, as they lie in `golden`, are read and gone on
//! with. Whoever changes the format keeps these images and adds the new one
//! (`cargo run -p laneway-tier --example golden -- crates/tier/tests/golden`).

mod golden;

use golden::{Image, Items, items, make, settings};
use laneway_tier::{IndexKind, ItemMeta, Tier, fsck};

const IMAGES: [(u32, IndexKind, &[u8]); 2] = [
    (2, IndexKind::BTree, include_bytes!("golden/format-2.image")),
    (3, IndexKind::Fair, include_bytes!("golden/format-3.image")),
];

fn found(tier: &Tier) -> Items {
    let all = tier.scan(b"", None, usize::MAX).into_iter();
    all.map(|(key, item)| item.map(|item| (key, (item.value, item.meta))).expect("whole")).collect()
}

fn check(image: &Image) {
    let (media, region, ssd) = image.media();
    let findings = fsck::check(media.clone(), settings(None)).expect("it can be checked");
    assert!(findings.is_sound(), "{findings:?}");
    assert!((region.image(), ssd.image()) == (image.log.clone(), image.ssd.clone()));
    let (tier, report) = Tier::open(media.clone(), settings(None), 1, &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty() && !report.is_new, "{report:?}");
    assert!(found(&tier) == items(), "{:?}", found(&tier).keys());
    // It is gone on with.
    let mut all = items();
    for number in 0..40u8 {
        let (key, value) = (vec![b'n', number], vec![number; 300]);
        tier.put(&key, &value, ItemMeta::default()).expect("room");
        all.insert(key, (value, ItemMeta::default()));
        while tier.maintain().expect("room") {}
    }
    tier.close().expect("closed");
    let (tier, _) = Tier::open(media, settings(None), 1, &mut |_, _| {}).expect("opened");
    assert!(found(&tier) == all);
}

#[test]
fn a_store_of_each_version_there_was_is_read_checked_and_gone_on_with() {
    for (version, _, bytes) in IMAGES {
        let image = Image::decode(bytes);
        assert_eq!(image.ssd[8..12], version.to_le_bytes());
        assert_eq!(image.encode(), bytes);
        check(&image);
    }
}

#[test]
fn the_images_of_today_have_the_version_of_today() {
    let newest = IMAGES.iter().rev();
    for kind in [IndexKind::BTree, IndexKind::Fair] {
        let image = make(kind);
        check(&image);
        let (version, ..) = newest.clone().find(|(_, of, _)| *of == kind).expect("there is one");
        assert_eq!(image.ssd[8..12], version.to_le_bytes(), "keep the images, and add a new one");
    }
}
