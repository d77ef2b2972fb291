//! The rings and frames of a queue against a model, with the kernel's side in software: whatever is
//! done in whatever order, each frame is in exactly one pair of hands, packets come and leave whole
//! and in order, and none is lost that was not told as lost.
#![forbid(unsafe_code)]

use laneway_xdp::queue::Sizes;
use laneway_xdp::twin;
use proptest::prelude::*;
use std::collections::VecDeque;

const SIZES: Sizes = Sizes { receive: 8, send: 4 };

/// One thing that one of the two sides does.
#[derive(Debug, Clone)]
enum Step {
    Deliver(u16),
    Look,
    Pass,
    Refill,
    Post { bytes: u16, spare: usize },
    PutBack,
    Publish,
    Transmit,
    Complete(usize),
    Reap,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u16..1900).prop_map(Step::Deliver),
        2 => Just(Step::Look),
        4 => Just(Step::Pass),
        2 => Just(Step::Refill),
        4 => ((1_u16..2048), (0_usize..4)).prop_map(|(bytes, spare)| Step::Post { bytes, spare }),
        1 => Just(Step::PutBack),
        2 => Just(Step::Publish),
        4 => Just(Step::Transmit),
        2 => (1_usize..6).prop_map(Step::Complete),
        1 => Just(Step::Reap),
    ]
}

/// A packet that tells its number in every byte.
fn packet(number: usize, bytes: u16) -> Vec<u8> {
    (0..usize::from(bytes)).map(|at| (at ^ (7 * number)) as u8).collect()
}

#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn check(steps: &[Step]) {
    let (mut receiver, mut sender, mut other) = twin::queue(SIZES).expect("memory");
    let (mut arriving, mut leaving, mut posted) = (VecDeque::new(), VecDeque::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Deliver(bytes) => {
                let packet = packet(number, *bytes);
                let may = *bytes <= 2048 - 256 && arriving.len() < SIZES.receive as usize;
                let came = other.deliver(&packet);
                assert!(!came || may, "more packets than frames");
                arriving.extend(came.then_some(packet));
            }
            Step::Look => {
                let seen = receiver.look().map(<[u8]>::to_vec);
                assert_eq!(seen.as_ref(), arriving.front());
            }
            Step::Pass => {
                if receiver.look().is_some() {
                    receiver.pass();
                    arriving.pop_front();
                }
            }
            Step::Refill => receiver.refill(),
            Step::Post { bytes, spare } => {
                let idle = sender.held_and_away().0;
                let Some(mut frame) = sender.frame(*spare) else { continue };
                assert!(sender.held_and_away().0 >= *spare, "{idle} {spare}");
                let packet = packet(number, *bytes);
                frame.bytes_mut()[..packet.len()].copy_from_slice(&packet);
                if sender.post(frame, packet.len()) {
                    posted.push(packet);
                }
            }
            Step::PutBack => {
                if let Some(frame) = sender.frame(0) {
                    sender.put_back(frame);
                }
            }
            Step::Publish => {
                sender.publish();
                leaving.extend(posted.drain(..));
            }
            Step::Transmit => assert_eq!(other.transmit(), leaving.pop_front()),
            Step::Complete(count) => other.complete(*count),
            Step::Reap => sender.reap(),
        }
        let (idle, away) = receiver.held_and_away();
        assert_eq!(idle + away, SIZES.receive as usize);
        let (idle, away) = sender.held_and_away();
        assert_eq!(idle + away, SIZES.send as usize);
        assert!(away >= posted.len() + leaving.len() + other.held().1);
        assert_eq!((receiver.astray(), sender.astray()), (0, 0));
    }
    // Nothing is lost: everything comes back once both sides go on.
    sender.publish();
    leaving.extend(posted.drain(..));
    while let Some(packet) = other.transmit() {
        assert_eq!(Some(packet), leaving.pop_front());
    }
    other.complete(usize::MAX);
    sender.reap();
    assert!(leaving.is_empty());
    assert_eq!(sender.held_and_away(), (SIZES.send as usize, 0));
    while receiver.look().is_some() {
        receiver.pass();
        arriving.pop_front();
    }
    receiver.refill();
    assert!(arriving.is_empty());
    assert_eq!(receiver.held_and_away(), (0, SIZES.receive as usize));
    let more = (0..SIZES.receive).filter(|_| other.deliver(b"again")).count();
    assert_eq!(more, SIZES.receive as usize, "all frames can be received into again");
}

proptest! {
    #[test]
    fn each_frame_is_in_one_pair_of_hands(steps in prop::collection::vec(step(), 0..400)) {
        check(&steps);
    }
}

#[test]
fn rings_wrap_and_fill_up_and_drain() {
    let mut steps = Vec::new();
    for round in 0..100_u16 {
        steps.extend((0..10).map(|_| Step::Deliver(round + 1)));
        steps.extend((0..6).map(|_| Step::Post { bytes: round + 60, spare: 0 }));
        steps.push(Step::Publish);
        steps.extend((0..=round % 5).flat_map(|_| [Step::Transmit, Step::Complete(1)]));
        steps.extend((0..=round % 9).flat_map(|_| [Step::Look, Step::Pass]));
        steps.push(Step::Refill);
    }
    check(&steps);
}
