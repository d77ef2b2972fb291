//! A bit that flips is found by a pass of the scrubber.

use laneway_policy::Form;
use laneway_rig::durable::{Kept, Machine, settings};
use laneway_rig::{Plan, Rig};
use laneway_tier::ItemMeta;
use laneway_vopr::media::LOG_BYTES;
use laneway_vopr::scrub::Scrubs;

#[test]
fn a_bit_that_flips_is_found_and_is_then_as_it_was() {
    let machine = Machine::new(LOG_BYTES, 4 << 20);
    let tier = machine.open(settings()).unwrap();
    let rig = Rig::new(&Plan { kept: Some(Kept::of(&tier)), ..Plan::of(1, Form::TimeShare) });
    let mut scrubs = Scrubs::new(&rig.shared, 1, 0).expect("items are kept");
    assert_eq!(scrubs.flip_and_find(&machine, &tier, (0, 0)), Ok(false), "there is nothing");
    for number in 0..30 {
        let bytes = if number % 2 == 0 { 100 } else { 9000 };
        tier.put(&[b'k', number], &vec![number; bytes], ItemMeta::default()).unwrap();
    }
    let images = || (machine.log.image(), machine.ssd.image());
    let before = images();
    for _ in 0..20 {
        assert_eq!(scrubs.flip_and_find(&machine, &tier, (0, 0)), Ok(true));
        assert!(images() == before, "every bit is as it was");
    }
    assert_eq!(scrubs.whole_pass(0, 0), Ok(0));
}
