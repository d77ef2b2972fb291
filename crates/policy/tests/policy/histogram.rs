//! Classes, counts, percentiles, smoothing, costs by size.

use crate::{etc_mix, smooth};
use laneway_policy::cost::UnknownCostModel;
use laneway_policy::histogram::{CLASS_COUNT, CLASSES_PER_OCTAVE};
use laneway_policy::settings::PERCENTILE;
use laneway_policy::threshold::{Clamp, ThresholdControl};
use laneway_policy::{Cost, CostModel, ItemBytes, Packets, Settings, SizeClass};
use laneway_policy::{FRAME_BYTES, ITEM_BYTES_MAX, SLICE_BYTES, SizeHistogram, SmoothHistogram};
use proptest::collection::vec;
use proptest::prelude::*;

/// Sizes spread over octaves rather than bytes, as real ones are.
fn sizes() -> impl Strategy<Value = u64> {
    (0_u32..=30, any::<u64>())
        .prop_map(|(octave, bits)| (1 << octave) | (bits & ((1 << octave) - 1)))
        .prop_map(|size| size.min(ITEM_BYTES_MAX.0))
}

/// Tenths of a percent, so that ranks can be computed in whole numbers.
fn permilles() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..1000, Just(500), Just(990), Just(999)]
}

fn histogram_of(sizes: &[u64]) -> SizeHistogram {
    let mut histogram = SizeHistogram::new();
    sizes.iter().for_each(|&size| histogram.record(ItemBytes(size)));
    histogram
}

#[test]
fn classes_tile_all_sizes() {
    let mut next = 0;
    for class in SizeClass::all() {
        assert_eq!(class.first().0, next);
        assert_eq!(class.end().0, next + class.width());
        assert!(class.first() <= class.middle() && class.middle() < class.end());
        next = class.end().0;
    }
    assert!(next > ITEM_BYTES_MAX.0);
    assert_eq!(SizeClass::all().count(), CLASS_COUNT);
}

#[test]
fn every_octave_has_its_eight_classes() {
    for octave in 4..=30 {
        let first = SizeClass::of(ItemBytes(1 << octave)).index();
        let last = SizeClass::of(ItemBytes((2 << octave) - 1)).index();
        assert_eq!(last - first + 1, CLASSES_PER_OCTAVE, "octave {octave}");
    }
}

#[test]
fn sizes_beyond_the_largest_item_count_in_the_last_class() {
    assert_eq!(SizeClass::of(ItemBytes(u64::MAX)).index(), CLASS_COUNT - 1);
    assert_eq!(SizeClass::of(ItemBytes(1 << 31)).index(), CLASS_COUNT - 1);
}

#[test]
fn counts_go_in_and_out() {
    let histogram = histogram_of(&[1, 1, 1500, 1 << 20]);
    assert_eq!(SizeHistogram::from_fn(|index| histogram.counts()[index]), histogram);
    assert_eq!(histogram.total(), 4);
    assert_eq!(histogram.count(SizeClass::of(ItemBytes(1))), 2);
    let mut emptied = histogram;
    emptied.reset();
    assert_eq!(emptied, SizeHistogram::new());
}

#[test]
fn an_empty_histogram_has_no_percentile() {
    assert_eq!(SizeHistogram::new().percentile(99.0), None);
    assert_eq!(SmoothHistogram::new().percentile(99.0), None);
}

/// Every rank of every number of requests, at the very boundary between two classes: products such
/// as 1000 × 99.9 % are not whole in binary.
#[test]
fn the_rank_is_exact_at_the_boundary() {
    let (below, above) = (SizeClass::of(ItemBytes(10)), SizeClass::of(ItemBytes(1000)));
    for requests in [1_u64, 7, 10, 100, 999, 1000, 60_000, 1_000_000] {
        for permille in 1..1000 {
            let rank = (requests * permille).div_ceil(1000);
            for (in_below, expected) in [(rank, below), (rank - 1, above)] {
                let mut histogram = SizeHistogram::new();
                histogram.add(below, in_below);
                histogram.add(above, requests - in_below);
                let found = histogram.percentile(permille as f64 / 10.0);
                assert_eq!(found, Some(expected), "{permille} permille of {requests}");
            }
        }
    }
}

#[test]
fn a_class_is_stood_for_by_its_middle_and_shared_out_by_width() {
    let class = SizeClass::of(ItemBytes(1500));
    assert_eq!((class.first(), class.end()), (ItemBytes(1408), ItemBytes(1536)));
    assert_eq!(class.middle(), ItemBytes(1472));
    let mut sizes = SizeHistogram::new();
    sizes.add(class, 100);
    for (threshold, share) in [(1408, 0.0), (1440, 0.25), (1472, 0.5), (1536, 1.0)] {
        let got = CostModel::Packets.small_share(&smooth(&sizes), ItemBytes(threshold));
        assert_eq!(got, share, "threshold {threshold}");
    }
}

#[test]
fn no_requests_cost_nothing_large() {
    assert_eq!(CostModel::Bytes.small_share(&SmoothHistogram::new(), FRAME_BYTES), 1.0);
}

proptest! {
    #[test]
    fn a_size_lies_in_its_class(size in sizes()) {
        let class = SizeClass::of(ItemBytes(size));
        prop_assert!(class.first().0 <= size && size < class.end().0);
        prop_assert!(class.width() <= (size / 8).max(1));
    }

    /// Against the exact percentile of the sorted sizes, by nearest rank.
    #[test]
    fn cut_error_is_bounded(sizes in vec(sizes(), 1..400), permille in permilles()) {
        let class = histogram_of(&sizes).percentile(permille as f64 / 10.0).expect("not empty");
        let mut sorted = sizes;
        sorted.sort_unstable();
        let rank = (sorted.len() as u64 * permille).div_ceil(1000);
        let exact = sorted[rank as usize - 1];
        prop_assert!(class.first().0 <= exact && exact < class.end().0);
        prop_assert!(class.end().0 <= exact + (exact / 8).max(1));
    }

    #[test]
    fn merging_is_counting_together(mine in vec(sizes(), 0..50), theirs in vec(sizes(), 0..50)) {
        let mut merged = histogram_of(&mine);
        merged.merge(&histogram_of(&theirs));
        let together: Vec<u64> = mine.into_iter().chain(theirs).collect();
        prop_assert_eq!(merged, histogram_of(&together));
    }

    /// Against the sum written out: epoch k of n weighs α·(1-α)^(n-k).
    #[test]
    fn smoothing_weighs_epochs_geometrically(
        epochs in vec(0_u64..1_000_000, 1..12),
        alpha in 0.05_f64..=1.0,
    ) {
        let class = SizeClass::of(ItemBytes(700));
        let mut smooth = SmoothHistogram::new();
        for &count in &epochs {
            let mut epoch = SizeHistogram::new();
            epoch.add(class, count);
            smooth.absorb(&epoch, alpha);
        }
        let expected: f64 = (epochs.iter().rev().enumerate())
            .map(|(age, &count)| alpha * (1.0 - alpha).powi(age as i32) * count as f64)
            .sum();
        prop_assert!((smooth.weight(class) - expected).abs() <= 1e-6 * expected.max(1.0));
        prop_assert_eq!(smooth.total(), smooth.weight(class));
    }

    #[test]
    fn shares_of_a_class_grow_with_the_cut(size in sizes(), cut in sizes()) {
        let class = SizeClass::of(ItemBytes(size));
        let share = class.share_below(ItemBytes(cut));
        prop_assert!((0.0..=1.0).contains(&share));
        prop_assert!(share <= class.share_below(ItemBytes(cut + 1)));
        prop_assert_eq!(class.share_below(class.first()), 0.0);
        prop_assert_eq!(class.share_below(class.end()), 1.0);
    }

    /// The small share of the cost, against the sum over single requests at a class boundary.
    #[test]
    fn the_small_share_is_the_sum_over_small_requests(
        sizes in vec(sizes(), 1..200),
        cut in sizes(),
    ) {
        let cut = SizeClass::of(ItemBytes(cut)).first();
        for model in CostModel::ALL {
            let cost = |size: &u64| model.of(SizeClass::of(ItemBytes(*size)).middle()).0 as f64;
            let all: f64 = sizes.iter().map(cost).sum();
            let small: f64 = sizes.iter().filter(|size| **size < cut.0).map(cost).sum();
            let share = model.small_share(&smooth(&histogram_of(&sizes)), cut);
            prop_assert!((share - small / all).abs() < 1e-9, "{model}: {share}");
        }
    }
}

#[test]
fn packets_are_whole_frames_and_at_least_one() {
    let rows = [(0, 1), (1, 1), (1472, 1), (1473, 2), (2944, 2), (2945, 3), (500_000, 340)];
    for (bytes, packets) in rows {
        assert_eq!(ItemBytes(bytes).packets(), Packets(packets), "{bytes} bytes");
    }
}

#[test]
fn costs_by_model() {
    let rows = [
        (CostModel::Packets, 100, 1),
        (CostModel::Packets, 3000, 3),
        (CostModel::Bytes, 3000, 3000),
        (CostModel::ConstantPackets, 100, 1141),
        (CostModel::ConstantPackets, 3000, 2541),
    ];
    for (model, bytes, cost) in rows {
        assert_eq!(model.of(ItemBytes(bytes)), Cost(cost), "{model} of {bytes}");
    }
}

/// Minos §6.1: 6.2 Mops on 8 cores with the default mix is 1.29 µs a request.
#[test]
fn the_default_cost_fits_the_papers_peak() {
    let sizes = etc_mix(1_000_000, 0.125, 500_000);
    let cost: u64 = SizeClass::all()
        .map(|class| sizes.count(class) * CostModel::default().of(class.middle()).0)
        .sum();
    let mean_ns = cost as f64 / 1e6;
    assert!((1_250.0..1_330.0).contains(&mean_ns), "{mean_ns} ns");
}

#[test]
fn cost_models_go_by_their_names() {
    for model in CostModel::ALL {
        assert_eq!(model.to_string().parse(), Ok(model));
    }
    assert_eq!("packet".parse::<CostModel>(), Err(UnknownCostModel));
    assert_eq!(
        UnknownCostModel.to_string(),
        "must be packets, bytes or constant-packets; leave the flag out for constant-packets"
    );
}

fn control(settings: Settings) -> ThresholdControl {
    ThresholdControl::new(&settings, Clamp::frame_to_slice(settings.slice_bytes))
}

/// One epoch of these sizes only.
fn threshold_of(sizes: &SizeHistogram) -> ItemBytes {
    control(Settings::default()).after_epoch(&smooth(sizes), sizes.total())
}

#[test]
fn the_threshold_stays_between_a_frame_and_a_slice() {
    assert_eq!(threshold_of(&etc_mix(100_000, 0.0, 500_000)), FRAME_BYTES);
    assert_eq!(threshold_of(&etc_mix(100_000, 5.0, 500_000)), SLICE_BYTES);
    let mut between = SizeHistogram::new();
    between.add(SizeClass::of(ItemBytes(4000)), 1000);
    assert_eq!(threshold_of(&between), ItemBytes(4096));
}

#[test]
fn a_fixed_threshold_never_moves_and_is_not_clamped() {
    let fixed = Settings { threshold_fixed: Some(ItemBytes(100_000)), ..Settings::default() };
    let mut control = control(fixed);
    let sizes = etc_mix(100_000, 0.5, 500_000);
    assert_eq!(control.after_epoch(&smooth(&sizes), sizes.total()), ItemBytes(100_000));
}

#[test]
fn the_threshold_waits_for_as_many_requests_as_its_percentile_needs() {
    for (requests, moved) in [(0, false), (99, false), (100, true)] {
        let mut sizes = SizeHistogram::new();
        sizes.add(SizeClass::of(ItemBytes(100)), requests);
        let mut control = control(Settings { percentile: PERCENTILE, ..Settings::default() });
        assert_eq!(control.current(), SLICE_BYTES);
        let threshold = control.after_epoch(&smooth(&sizes), requests);
        assert_eq!(threshold == FRAME_BYTES, moved, "{requests} requests: {threshold}");
    }
}
