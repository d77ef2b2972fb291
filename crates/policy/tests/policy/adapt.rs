//! The scenario of Minos figure 10 on a machine that serves 20 000 requests an epoch, where the
//! paper's serves millions: p_L steps in the middle of an epoch, requests come at random, and the
//! number of large workers must follow within two epochs and then keep still.

use laneway_policy::evidence::Evidence;
use laneway_policy::{
    CostModel, Design, EpochLoad, Form, ItemBytes, Settings, SizeClass, SizeHistogram, build,
};

const REQUESTS: u64 = 20_000;
const EPOCHS: usize = 20;
/// Percent of large requests in each part.
const PARTS: [f64; 3] = [0.125, 0.75, 0.125];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ word >> 31) % sides
    }
}

/// So many requests, each large with that chance; sizes as in Minos §5.
fn draw(dice: &mut Dice, sizes: &mut SizeHistogram, requests: u64, large_percent: f64) {
    let large_below = (large_percent * 10_000.0) as u64;
    for _ in 0..requests {
        let bytes = match dice.roll(1_000_000) {
            large if large < large_below => 1500 + dice.roll(498_500),
            small if small % 5 < 2 => 1 + dice.roll(13),
            _ => 14 + dice.roll(1387),
        };
        sizes.record(ItemBytes(8 + bytes));
    }
}

/// The number of large workers after each epoch, part by part. Each part begins in the middle of
/// the epoch that is counted as the last of the part before.
fn run(design: Design, workers: u16, seed: u64) -> Vec<Vec<u16>> {
    let form = (design == Design::Lanes).then_some(Form::Roles);
    let settings = Settings { design, workers, form, ..Settings::default() };
    let mut policy = build(settings).expect("the settings fit");
    let mut dice = Dice(seed);
    let mut parts = Vec::new();
    for (number, part) in PARTS.iter().enumerate() {
        let mut numbers = Vec::new();
        for epoch in 0..EPOCHS {
            let next = PARTS.get(number + 1).copied().unwrap_or(*part);
            let second_half = if epoch + 1 == EPOCHS { next } else { *part };
            let mut sizes = SizeHistogram::new();
            draw(&mut dice, &mut sizes, REQUESTS / 2, *part);
            draw(&mut dice, &mut sizes, REQUESTS / 2, second_half);
            let load = EpochLoad { sizes, large_requests: 25, ..EpochLoad::default() };
            numbers.push(policy.plan(&load).workers_large());
        }
        parts.push(numbers);
    }
    parts
}

#[test]
fn the_number_of_large_workers_follows_within_two_epochs_and_keeps_still() {
    // What the rule gives by the true shares, which are work for 0.9 and 3.5 workers of 8, with
    // what `lanes` adds; give or take the one that an epoch's requests cannot tell from it.
    let rows = [
        (Design::Minos, 8, [0..=1, 2..=4, 0..=1]),
        (Design::Lanes, 8, [2..=2, 3..=5, 2..=2]),
        (Design::Minos, 16, [0..=2, 5..=8, 1..=2]),
        (Design::Lanes, 16, [2..=3, 6..=9, 2..=3]),
    ];
    for (design, workers, expected) in rows {
        let mut restless = 0;
        for seed in 1..=20 {
            let parts = run(design, workers, seed);
            for (numbers, expected) in parts.iter().zip(&expected) {
                let what = format!("{design}, {workers} workers, seed {seed}: {parts:?}");
                // The epoch of the change has ended already: one more, and it is there. The last
                // holds half of the next part.
                let settled = &numbers[1..EPOCHS - 1];
                assert!(settled.iter().all(|number| expected.contains(number)), "{what}");
                restless += settled.windows(2).filter(|pair| pair[0] != pair[1]).count();
            }
        }
        // One in twenty of the epochs in which nothing changes.
        assert!(restless <= 54, "{design}, {workers}: {restless} changes in 60 quiet parts");
    }
}

fn one(counts: [(u64, u64); 2]) -> SizeHistogram {
    let mut sizes = SizeHistogram::new();
    for (bytes, count) in counts {
        sizes.add(SizeClass::of(ItemBytes(bytes)), count);
    }
    sizes
}

#[test]
fn the_range_narrows_while_epochs_agree_and_moves_at_once_when_one_does_not() {
    let mut evidence = Evidence::default();
    let mut after =
        |counts| evidence.after_epoch(&one(counts), CostModel::Bytes, ItemBytes(10_000));
    // Half of all bytes are large: 10 of 100 000 against 10 000 of 100.
    let half = [(100, 10_000), (100_000, 10)];
    let (low, high) = after(half);
    assert!(low < 0.4 && 0.6 < high, "{low} to {high}");
    let mut width = high - low;
    for _ in 0..20 {
        let (low, high) = after(half);
        assert!(high - low < width && low < 0.52 && 0.48 < high, "{low} to {high}");
        width = high - low;
    }
    assert!(width < 0.25, "{width}");
    let (low, high) = after([(100, 10_000), (100_000, 200)]);
    assert!(high < 0.15, "{low} to {high}");
}

#[test]
fn an_epoch_without_large_requests_is_no_proof_that_there_are_none() {
    let mut evidence = Evidence::default();
    let mut after =
        |counts| evidence.after_epoch(&one(counts), CostModel::Bytes, ItemBytes(10_000));
    after([(100, 10_000), (100_000, 10)]);
    let (low, _) = after([(100, 100), (100_000, 0)]);
    assert!(low < 0.6, "a hundred requests say little: {low}");
    for _ in 0..3 {
        after([(100, 1_000_000), (100_000, 0)]);
    }
    let (low, high) = after([(100, 1_000_000), (100_000, 0)]);
    assert!(low > 0.99 && high == 1.0, "{low} to {high}");
}

#[test]
fn a_handful_of_requests_says_nothing() {
    let mut evidence = Evidence::default();
    let few = one([(100, 0), (100_000, 9)]);
    for _ in 0..11 {
        let range = evidence.after_epoch(&few, CostModel::Bytes, ItemBytes(10_000));
        assert_eq!(range, (0.0, 1.0));
    }
    let (_, high) = evidence.after_epoch(&few, CostModel::Bytes, ItemBytes(10_000));
    assert!(high < 0.1, "a hundred of them do: {high}");
}
