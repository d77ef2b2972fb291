//! Equal-cost ranges of large sizes.

use crate::{etc_mix, smooth};
use laneway_policy::ranges::SizeRanges;
use laneway_policy::{CostModel, FRAME_BYTES, ItemBytes, SizeClass, SizeHistogram};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn one_range_holds_everything() {
    let ranges =
        SizeRanges::equal_cost(&smooth(&SizeHistogram::new()), CostModel::Packets, FRAME_BYTES, 1);
    assert_eq!(ranges.count(), 1);
    assert_eq!(ranges.range_of(ItemBytes(0)), 0);
    assert_eq!(ranges.range_of(ItemBytes(u64::MAX - 1)), 0);
}

#[test]
fn without_large_requests_the_first_range_holds_everything() {
    let sizes = smooth(&etc_mix(1000, 0.0, 500_000));
    let ranges = SizeRanges::equal_cost(&sizes, CostModel::Packets, ItemBytes(2048), 3);
    assert_eq!(ranges.count(), 3);
    assert_eq!(ranges.range_of(ItemBytes(1 << 30)), 0);
}

/// Sizes spread evenly from 1500 B to 500 kB, cost in bytes: half of it lies below 500/√2 kB.
#[test]
fn an_even_spread_is_cut_where_calculus_says() {
    let sizes = smooth(&etc_mix(1_000_000, 10.0, 500_000));
    let ranges = SizeRanges::equal_cost(&sizes, CostModel::Bytes, FRAME_BYTES, 2);
    let cut = ranges.boundaries()[0].0;
    assert!((345_000..362_000).contains(&cut), "{cut}");
}

/// The part of a class below the threshold is not the large workers' business.
#[test]
fn a_class_that_the_threshold_cuts_counts_from_the_threshold_on() {
    let mut sizes = SizeHistogram::new();
    sizes.add(SizeClass::of(ItemBytes(4096)), 1000);
    let threshold = ItemBytes(4096 + 256);
    let ranges = SizeRanges::equal_cost(&smooth(&sizes), CostModel::Packets, threshold, 2);
    assert_eq!(ranges.boundaries(), [ItemBytes(4096 + 256 + 128)]);
}

/// One size makes all of the cost: wherever a boundary lay, one range would have all of it.
#[test]
fn ranges_share_a_class_that_costs_more_than_one_of_them() {
    let mut sizes = SizeHistogram::new();
    let (one, other) = (ItemBytes(1_472_000), ItemBytes(40_000));
    sizes.add(SizeClass::of(one), 1000);
    for count in 1..=8 {
        let ranges =
            SizeRanges::equal_cost(&smooth(&sizes), CostModel::Packets, FRAME_BYTES, count);
        assert_eq!(ranges.ranges_of(one), (0, usize::from(count) - 1));
        assert_eq!(ranges.ranges_of(other), (0, 0));
    }
    // Half of the cost, and less than a share of it.
    sizes.add(SizeClass::of(other), 1000 * 1_472_000 / 40_000);
    for (count, shared) in [(4, (2, 3)), (2, (1, 1))] {
        let ranges = SizeRanges::equal_cost(&smooth(&sizes), CostModel::Bytes, FRAME_BYTES, count);
        let (low, high) = ranges.ranges_of(one);
        assert!(high == shared.1 && (low == shared.0 || low + 1 == shared.0), "{low} to {high}");
    }
}

proptest! {
    #[test]
    fn ranges_cost_the_same_within_a_class(
        sizes in vec(2_000_u64..2_000_000, 20..400),
        count in 1_u16..=8,
    ) {
        let mut histogram = SizeHistogram::new();
        sizes.iter().for_each(|&size| histogram.record(ItemBytes(size)));
        for model in CostModel::ALL {
            let ranges = SizeRanges::equal_cost(&smooth(&histogram), model, FRAME_BYTES, count);
            prop_assert_eq!(ranges.count(), usize::from(count));
            prop_assert!(ranges.boundaries().is_sorted());
            let class_cost = |class: SizeClass| {
                histogram.count(class) as f64 * model.of(class.middle()).0 as f64
            };
            let dearest = SizeClass::all().map(class_cost).fold(0.0, f64::max);
            let mut costs = vec![0.0; usize::from(count)];
            for &size in &sizes {
                let class = SizeClass::of(ItemBytes(size));
                costs[ranges.range_of(ItemBytes(size))] += model.of(class.middle()).0 as f64;
            }
            let share = costs.iter().sum::<f64>() / f64::from(count);
            for cost in costs {
                // One class's cost at either end.
                prop_assert!((cost - share).abs() <= 2.0 * dearest + 1e-6, "{model}: {cost}");
            }
        }
    }

    #[test]
    fn larger_sizes_go_to_later_ranges(
        sizes in vec(1_u64..2_000_000, 1..200),
        count in 1_u16..=8,
        (size, more) in (0_u64..3_000_000, 0_u64..3_000_000),
    ) {
        let mut histogram = SizeHistogram::new();
        sizes.iter().for_each(|&size| histogram.record(ItemBytes(size)));
        let ranges =
            SizeRanges::equal_cost(&smooth(&histogram), CostModel::default(), FRAME_BYTES, count);
        prop_assert!(ranges.range_of(ItemBytes(size)) <= ranges.range_of(ItemBytes(size + more)));
        prop_assert!(ranges.range_of(ItemBytes(size)) < usize::from(count));
    }
}
