//! Why a backup was given up is held against what was written meanwhile.

use laneway_rig::durable::{Machine, settings};
use laneway_tier::ItemMeta;
use laneway_tier::backup::Bounds;
use laneway_vopr::backup::Cut;
use laneway_vopr::media::LOG_BYTES;

#[test]
fn what_was_written_meanwhile_must_bear_out_why_a_backup_was_given_up() {
    let machine = Machine::new(LOG_BYTES, 4 << 20);
    let tier = machine.open(settings()).unwrap();
    let put = |key: &[u8], bytes| {
        tier.put(key, &vec![7; bytes], ItemMeta::default()).unwrap();
    };
    put(b"large", 9000); // three blocks
    put(b"small", 100);
    let cut = Cut::of(&tier, 1);
    let borne_out = |blocks, memory_bytes, why: &str| {
        let bounds = Bounds { blocks, memory_bytes, ..Bounds::NONE };
        cut.bears_out(&format!("the backup was given up: {why}"), &bounds, &tier, 2)
    };
    let [blocks, memory, room] =
        ["more than 2 blocks of the SSD", "more than 0 MiB of memory", "no room left"];
    put(b"small", 9000);
    assert!(!borne_out(0, 1 << 28, blocks) && !borne_out(0, 1 << 28, room));
    assert!(!borne_out(0, 1 << 28, memory) && borne_out(0, 100, memory));
    put(b"large", 10);
    assert!(borne_out(2, 1 << 28, blocks) && borne_out(2, 1 << 28, room));
    assert!(!borne_out(3, 1 << 28, blocks));
    assert!(!borne_out(0, 0, "for no reason"));
}
