//! Hot keys: counting, ranking, the mapping of a slot, and what carries over to the next.

use laneway_policy::hot::loads::{CoreLoads, LOAD_SLOTS, Rank};
use laneway_policy::hot::mapping::{HotKey, Mapping, Standing};
use laneway_policy::hot::routes::{Routes, SlotHead, encode, words_max};
use laneway_policy::hot::scheduler::{Found, Scheduler};
use laneway_policy::hot::sketch::{KeyHash, SKETCH_COLUMNS, Sketch};
use laneway_policy::hot::space_saving::SpaceSaving;
use laneway_policy::hot::{
    Access, Detector, HOT_KEYS_MAX, HotKeys, HotRoute, HotSettings, HotThreshold, Slot,
};
use laneway_policy::{Nanos, WorkerId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;

/// A well-mixed hash of a small number (splitmix64's finalizer).
fn hash(number: u64) -> KeyHash {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    KeyHash(z ^ (z >> 31))
}

/// Routes a request, charges whoever serves it, and says who does; cold keys live at worker 0.
fn serve(hot: &mut HotKeys, key: u64, access: Access) -> HotRoute {
    let route = hot.route(hash(key), access);
    if let HotRoute::Owner(worker) = route {
        hot.charge(worker, 1);
    }
    route
}

#[test]
fn a_slot_ends_after_a_millisecond_of_enough_requests() {
    let Slot { nanos, requests: least } = Slot::DEFAULT;
    for (since, requests, over) in [
        (nanos.0, least, true),
        (nanos.0 - 1, least, false),
        (nanos.0, least - 1, false),
        (1 << 40, 0, false),
    ] {
        let is_over = Slot::DEFAULT.is_over(Nanos(since), requests);
        assert_eq!(is_over, over, "{since} ns, {requests}");
    }
}

#[test]
fn the_sketch_forgets_at_the_slots_end_without_clearing() {
    let mut sketch = Sketch::new(7);
    for expected in 1..=5 {
        assert_eq!(sketch.count(hash(7)), expected);
    }
    sketch.slot_ended();
    assert_eq!(sketch.estimate(hash(7)), 0);
    assert_eq!(sketch.count(hash(7)), 1);
}

#[test]
fn a_count_stops_at_its_largest_value() {
    let mut sketch = Sketch::new(7);
    for _ in 0..70_000 {
        sketch.count(hash(1));
    }
    assert_eq!(sketch.count(hash(1)), u16::MAX);
    assert_eq!(sketch.estimate(hash(2)), 0);
}

#[test]
fn a_thousand_keys_leave_the_estimates_almost_exact() {
    let mut sketch = Sketch::new(7);
    for key in 0..SKETCH_COLUMNS as u64 {
        sketch.count(hash(key));
    }
    let wrong = (0..SKETCH_COLUMNS as u64).filter(|&key| sketch.estimate(hash(key)) != 1).count();
    assert!(wrong < SKETCH_COLUMNS / 20, "{wrong} of {SKETCH_COLUMNS} are too high");
}

#[test]
fn the_least_loaded_is_ranked_by_the_rule() {
    let mut loads = CoreLoads::new(3);
    for (worker, load) in [(0, 30), (1, 20), (2, 10)] {
        loads.charge(WorkerId(worker), load);
    }
    assert_eq!(loads.least(Rank::PastSlots), WorkerId(0), "nothing is past yet");
    assert_eq!(loads.least(Rank::MeanAndThisSlot), WorkerId(2));
    loads.slot_ended();
    loads.slot_ended(); // an empty one: means are 15, 10, 5
    assert_eq!(loads.least(Rank::PastSlots), WorkerId(2));
    loads.charge(WorkerId(2), 6);
    assert_eq!(loads.least(Rank::PastSlots), WorkerId(2), "this slot does not count");
    assert_eq!(loads.least(Rank::MeanAndThisSlot), WorkerId(1), "10 is below 5 + 6");
    loads.promise(WorkerId(1), 2);
    assert_eq!(loads.least(Rank::MeanAndThisSlot), WorkerId(2), "11 is below 10 + 2");
    loads.keep(WorkerId(1), 2);
    assert_eq!(loads.least(Rank::MeanAndThisSlot), WorkerId(1));
    // By the sum 20 is not below 10 + 6, and is below 10 + 11.
    assert_eq!(loads.least(Rank::SumAndThisSlot), WorkerId(2));
    loads.charge(WorkerId(2), 5);
    assert_eq!(loads.least(Rank::SumAndThisSlot), WorkerId(1));
}

#[test]
fn a_slot_is_forgotten_after_a_hundred() {
    let mut loads = CoreLoads::new(2);
    loads.charge(WorkerId(0), 5);
    for slot in 0..=LOAD_SLOTS {
        let remembered = slot > 0 && slot <= LOAD_SLOTS;
        let least = WorkerId(u16::from(remembered));
        assert_eq!(loads.least(Rank::PastSlots), least, "after {slot} slots");
        loads.slot_ended();
    }
    assert_eq!(loads.least(Rank::PastSlots), WorkerId(0));
}

#[test]
fn the_table_holds_what_fits_and_finds_it() {
    let mut mapping = Mapping::new(3);
    let key = |number: u64| HotKey {
        key: hash(number),
        owner: WorkerId(number as u16),
        requests: 0,
        owned: 0,
        expected: 0,
        moves: 0,
        standing: Standing::Certain,
    };
    let taken: Vec<bool> = (0..4).map(|number| mapping.insert(key(number))).collect();
    assert_eq!(taken, [true, true, true, false]);
    for number in 0..4 {
        let found = mapping.get_mut(hash(number)).map(|hot| hot.owner);
        assert_eq!(found, (number < 3).then_some(WorkerId(number as u16)));
    }
    mapping.clear();
    assert_eq!(mapping.get_mut(hash(0)), None);
}

#[test]
fn space_saving_knows_every_frequent_key_and_how_far_it_may_be_off() {
    let mut list = SpaceSaving::new(4);
    let stream: Vec<u64> = (0..400).map(|i| if i % 2 == 0 { 1 } else { 100 + i }).collect();
    for &key in &stream {
        list.count(hash(key));
    }
    let counter = list.counters().iter().find(|c| c.key == hash(1)).expect("half of all requests");
    assert!(counter.count >= 200 && counter.count - counter.error_max <= 200, "{counter:?}");
    assert_eq!(list.counters().len(), 4);
    list.slot_ended();
    assert_eq!(list.counters(), []);
}

#[test]
fn a_key_is_hot_from_the_threshold_on_until_the_slot_ends() {
    let mut hot = HotKeys::new(HotSettings::keysched_2018(4, 10));
    for request in 1..=15 {
        let route = serve(&mut hot, 1, Access::Read);
        assert_eq!(route != HotRoute::Home, request >= 10, "request {request}");
    }
    assert_eq!((hot.hot().len(), hot.found()), (1, 1));
    assert_eq!(hot.hot()[0].requests, 15);
    hot.slot_ended();
    assert_eq!(hot.hot(), []);
    assert_eq!(serve(&mut hot, 1, Access::Read), HotRoute::Home);
}

#[test]
fn an_owner_stays_the_owner_for_the_slot() {
    let mut hot = HotKeys::new(HotSettings::lanes_exclusive(4));
    let owners: Vec<HotRoute> = (0..500)
        .map(|_| serve(&mut hot, 1, Access::Write))
        .filter(|&r| r != HotRoute::Home)
        .collect();
    assert!(owners.len() > 400 && owners.iter().all(|route| *route == owners[0]));
}

/// The herd: by past slots alone all hot keys of a slot meet at one worker.
#[test]
fn past_slots_alone_herd_and_this_slot_spreads() {
    for (settings, owners_distinct) in
        [(HotSettings::keysched_2018(4, 16), 1), (HotSettings::lanes_exclusive(4), 4)]
    {
        let settings = HotSettings { threshold: HotThreshold::Requests(16), ..settings };
        let mut hot = HotKeys::new(settings);
        for _ in 0..100 {
            for key in 0..4 {
                serve(&mut hot, key, Access::Write);
            }
        }
        let mut owners: Vec<WorkerId> = hot.hot().iter().map(|hot| hot.owner).collect();
        owners.sort();
        owners.dedup();
        assert_eq!(owners.len(), owners_distinct, "{settings:?}");
    }
}

#[test]
fn what_was_hot_is_hot_from_the_first_request_of_the_next_slot() {
    let mut hot = HotKeys::new(HotSettings::lanes_exclusive(4));
    for _ in 0..1000 {
        for key in 0..6 {
            serve(&mut hot, key, Access::Write);
        }
    }
    hot.slot_ended();
    assert_eq!(hot.hot().len(), 6);
    let load = |worker| hot.hot().iter().filter(|h| h.owner == WorkerId(worker)).count();
    let spread: Vec<usize> = (0..4).map(load).collect();
    assert!(spread.iter().all(|&keys| (1..=2).contains(&keys)), "{spread:?}");
    assert_ne!(serve(&mut hot, 3, Access::Write), HotRoute::Home);
    // Nobody asked for the others: they are cold in the slot after next.
    for _ in 0..2000 {
        serve(&mut hot, 3, Access::Write);
    }
    hot.slot_ended();
    assert_eq!(hot.hot().iter().map(|h| h.key).collect::<Vec<_>>(), [hash(3)]);
}

#[test]
fn reads_are_spread_and_writes_are_not() {
    let mut hot = HotKeys::new(HotSettings::lanes(4));
    for _ in 0..Slot::DEFAULT.requests {
        serve(&mut hot, 1, Access::Read);
    }
    assert_eq!(serve(&mut hot, 1, Access::Read), HotRoute::Anyone);
    assert!(matches!(serve(&mut hot, 1, Access::Write), HotRoute::Owner(_)));
}

#[test]
fn there_are_never_more_hot_keys_than_allowed() {
    for detector in [Detector::Sketch, Detector::SpaceSaving(64)] {
        let mut hot = HotKeys::new(HotSettings { detector, ..HotSettings::keysched_2018(4, 2) });
        for _ in 0..3 {
            for key in 0..50 {
                serve(&mut hot, key, Access::Read);
            }
        }
        assert_eq!(hot.hot().len(), HOT_KEYS_MAX);
        assert_eq!(serve(&mut hot, 49, Access::Read), HotRoute::Home);
    }
}

#[test]
fn hot_means_a_sixteenth_of_a_workers_even_share() {
    let mut hot = HotKeys::new(HotSettings::lanes(4));
    for (requests, threshold) in [(32_000, 501), (3_200, 51), (10, 16)] {
        for key in 0..requests {
            hot.route(hash(key), Access::Read);
        }
        hot.slot_ended();
        assert_eq!(hot.threshold(), threshold, "after a slot of {requests}");
    }
}

/// What a server does: counts elsewhere, and tells the scheduler before it asks.
#[test]
fn counts_told_at_once_are_as_good_as_request_by_request() {
    let settings = HotSettings::lanes_exclusive(3);
    let mut scheduler = Scheduler::new(settings);
    scheduler.tell([300, 100, 200], []);
    let found = |number, requests| Found {
        key: hash(number),
        requests,
        owned: requests,
        is_estimate: false,
    };
    assert_eq!(scheduler.found(found(1, 50)), Some(WorkerId(1)));
    scheduler.tell([300, 350, 200], [(300, 300)]);
    assert_eq!(scheduler.found(found(2, 60)), Some(WorkerId(2)));
    assert_eq!(scheduler.found(found(1, 60)), Some(WorkerId(1)), "it is hot already");
    scheduler.tell([300, 350, 400], [(300, 300), (260, 260)]);
    scheduler.slot_ended(1050);
    // Heaviest first, each to who has least to expect: the past, plus promises.
    let owners: Vec<(KeyHash, WorkerId)> =
        scheduler.hot().iter().map(|hot| (hot.key, hot.owner)).collect();
    assert_eq!(owners, [(hash(1), WorkerId(0)), (hash(2), WorkerId(1))]);
    assert_eq!(scheduler.hot()[0].expected, 300);
    assert_eq!((scheduler.found_count(), scheduler.moved_count()), (2, 2));
    // What was promised and has come is promised no more.
    scheduler.tell([300, 0, 0], [(300, 300), (0, 0)]);
    assert_eq!(scheduler.found(found(3, 20)), Some(WorkerId(2)));
}

#[test]
fn who_finds_no_room_gets_in_at_the_slots_end_by_its_weight() {
    let settings = HotSettings { keys_max: 2, ..HotSettings::lanes_exclusive(4) };
    let mut scheduler = Scheduler::new(settings);
    let found = |number, requests| Found {
        key: hash(number),
        requests,
        owned: requests,
        is_estimate: false,
    };
    assert!(scheduler.found(found(1, 100)).is_some());
    assert!(scheduler.found(found(2, 40)).is_some());
    // Of those that wait the heaviest two are remembered, and a weight grows.
    for (number, requests) in [(3, 30), (4, 20), (5, 60), (6, 10), (3, 90)] {
        assert_eq!(scheduler.found(found(number, requests)), None);
    }
    scheduler.tell([0; 4], [(100, 100), (40, 40)]);
    scheduler.slot_ended(100);
    let mut keys: Vec<KeyHash> = scheduler.hot().iter().map(|hot| hot.key).collect();
    keys.sort();
    let mut wanted = vec![hash(1), hash(3)];
    wanted.sort();
    assert_eq!(keys, wanted);
    scheduler.slot_ended(100);
    assert_eq!(scheduler.hot(), [], "who waited is forgotten too");
}

/// One worker's share times the workers is a guess: the first slot in which all requests are
/// counted decides, by the whole threshold.
#[test]
fn an_estimate_is_hot_only_after_a_slot_that_proves_it() {
    let settings = HotSettings { threshold: HotThreshold::Requests(16), ..HotSettings::lanes(8) };
    for (requests, is_hot) in [(10, false), (16, true)] {
        let mut scheduler = Scheduler::new(settings);
        let found = Found { key: hash(1), requests: 32, owned: 0, is_estimate: true };
        assert!(scheduler.found(found).is_some());
        scheduler.tell([0; 8], [(33, 0)]);
        scheduler.slot_ended(2_000);
        assert_eq!((scheduler.hot().len(), scheduler.found_count()), (1, 0), "it is on trial");
        scheduler.tell([0; 8], [(requests, 0)]);
        scheduler.slot_ended(2_000);
        let found = u64::from(is_hot);
        assert_eq!((scheduler.hot().len(), scheduler.found_count()), (found as usize, found));
        // From then on half of it is enough.
        scheduler.tell([0; 8], [(8, 0)]);
        scheduler.slot_ended(2_000);
        assert_eq!((scheduler.hot().len(), scheduler.found_count()), (found as usize, found));
    }
}

/// Who is heaviest may be known from the last slot, or be the first that is found.
#[test]
fn the_heaviest_hot_key_has_a_worker_of_its_own_and_stays_there() {
    for rule in [HotSettings::lanes_exclusive(4), HotSettings::keysched_2018(4, 16)] {
        let mut hot = HotKeys::new(HotSettings { alone: true, ..rule });
        let mut stays = None;
        for slot in 0..20 {
            for request in 0..600 {
                serve(&mut hot, 0, Access::Write);
                serve(&mut hot, 1 + request % 9, Access::Write);
            }
            let owner = |key| hot.hot().iter().find(|hot| hot.key == hash(key)).map(|h| h.owner);
            let own = owner(0).expect("it is hot");
            assert_eq!(*stays.get_or_insert(own), own, "slot {slot}: it does not move");
            for other in 1..10 {
                assert_ne!(owner(other).expect("hot too"), own, "slot {slot}: {rule:?}");
            }
            hot.slot_ended();
        }
    }
}

#[test]
fn another_heaviest_key_gets_the_least_loaded_worker_for_itself() {
    let mut scheduler =
        Scheduler::new(HotSettings { alone: true, ..HotSettings::lanes_exclusive(3) });
    let found = |number, requests| Found {
        key: hash(number),
        requests,
        owned: requests,
        is_estimate: false,
    };
    scheduler.tell([10, 20, 30], []);
    assert_eq!(scheduler.found(found(1, 100)), Some(WorkerId(0)));
    scheduler.tell([100, 120, 130], [(100, 100)]);
    assert_eq!(scheduler.found(found(2, 100)), Some(WorkerId(1)), "worker 0 has least");
    let owners = |scheduler: &Scheduler| -> Vec<(KeyHash, WorkerId)> {
        scheduler.hot().iter().map(|hot| (hot.key, hot.owner)).collect()
    };
    scheduler.tell([200, 900, 130], [(200, 200), (800, 800)]);
    scheduler.slot_ended(1230);
    assert_eq!(owners(&scheduler), [(hash(2), WorkerId(2)), (hash(1), WorkerId(0))]);
    // From now on it stays, however much it brings, and the other goes between the other two.
    scheduler.tell([0, 0, 900], [(900, 900), (20, 20)]);
    assert_eq!(scheduler.found(found(3, 90)), Some(WorkerId(0)), "200 and what is promised");
    scheduler.tell([1000, 0, 900], [(900, 900), (20, 20), (90, 90)]);
    scheduler.slot_ended(1900);
    assert_eq!(owners(&scheduler)[0], (hash(2), WorkerId(2)));
    assert!(owners(&scheduler)[1..].iter().all(|&(_, owner)| owner == WorkerId(1)));
    // Nothing is hot any more: the next begins anew, with who has least.
    scheduler.tell([0, 5000, 0], [(0, 0); 3]);
    scheduler.slot_ended(5000);
    assert_eq!(owners(&scheduler), []);
    scheduler.tell([100, 0, 0], []);
    assert_eq!(scheduler.found(found(4, 90)), Some(WorkerId(2)));
}

#[test]
fn spread_requests_are_told_from_a_workers_share_on() {
    for (workers, reads_spread, local) in [(8, true, 4), (2, true, 8), (8, false, 16)] {
        let settings = if reads_spread {
            HotSettings::lanes(workers)
        } else {
            HotSettings::lanes_exclusive(workers)
        };
        let settings = HotSettings { threshold: HotThreshold::Requests(16), ..settings };
        assert_eq!(Scheduler::new(settings).threshold_local(), local, "{workers} workers");
    }
}

proptest! {
    /// Whatever is hot, a worker that has read the words finds it, and nothing else.
    #[test]
    fn a_table_read_from_words_finds_what_was_written(
        numbers in proptest::collection::btree_set(0_u64..1 << 40, 0..128),
        head in (any::<u64>(), any::<u16>(), any::<u16>(), any::<bool>()),
        strange in vec(any::<u64>(), 0..300),
    ) {
        let hot = |number: &u64| HotKey {
            key: hash(*number),
            owner: WorkerId(*number as u16),
            requests: 1,
            owned: 1,
            expected: 1,
            moves: 1,
            standing: Standing::Certain,
        };
        let keys: Vec<HotKey> = numbers.iter().map(hot).collect();
        let counted: Vec<u16> = (0..keys.len() as u16).map(|n| n ^ 0x155).collect();
        let (slot, threshold, threshold_local, has_room) = head;
        let head = SlotHead { slot, threshold, threshold_local, has_room };
        let mut words = Vec::new();
        encode(head, &keys, &counted, &mut words);
        prop_assert!(words.len() <= words_max(128));
        let mut routes = Routes::new(128);
        routes.decode(&strange); // whatever was there before
        routes.decode(&words);
        prop_assert_eq!(routes.head(), head);
        prop_assert_eq!(routes.keys().len(), keys.len());
        for (key, number) in keys.iter().zip(&counted) {
            let found = routes.get(key.key).expect("it is hot");
            prop_assert_eq!((found.owner, found.number), (key.owner, *number));
        }
        for other in (0..100).filter(|other| !numbers.contains(other)) {
            prop_assert_eq!(routes.get(hash(other)), None);
        }
    }

    #[test]
    fn the_sketch_never_counts_too_few(slots in vec(vec(0_u64..3000, 0..2000), 1..4)) {
        let mut sketch = Sketch::new(7);
        for slot in slots {
            let mut exact: HashMap<u64, u16> = HashMap::new();
            for key in slot {
                *exact.entry(key).or_default() += 1;
                prop_assert!(sketch.count(hash(key)) >= exact[&key]);
            }
            for (&key, &count) in &exact {
                prop_assert!(sketch.estimate(hash(key)) >= count);
            }
            sketch.slot_ended();
        }
    }

    #[test]
    fn space_saving_keeps_its_bounds(keys in vec(0_u64..40, 1..800), counters in 1_usize..20) {
        let mut list = SpaceSaving::new(counters);
        let mut exact: HashMap<KeyHash, u32> = HashMap::new();
        for &key in &keys {
            *exact.entry(hash(key)).or_default() += 1;
            let certain = list.count(hash(key));
            prop_assert!(certain <= exact[&hash(key)]);
        }
        let total: u32 = list.counters().iter().map(|c| c.count).sum();
        prop_assert_eq!(total as usize, keys.len());
        for counter in list.counters() {
            let true_count = exact[&counter.key];
            prop_assert!(counter.count >= true_count);
            prop_assert!(counter.count - counter.error_max <= true_count);
            prop_assert!(counter.error_max as usize <= keys.len() / counters);
        }
        for (key, &count) in &exact {
            if count as usize > keys.len() / counters {
                prop_assert!(list.counters().iter().any(|c| c.key == *key));
            }
        }
    }

    /// The ring against a plain list of slots.
    #[test]
    fn ranks_match_a_naive_oracle(slots in vec((0_u16..4, 1_u32..50), 1..250)) {
        let mut loads = CoreLoads::new(4);
        let mut past: Vec<[u64; 4]> = Vec::new();
        for (worker, load) in slots {
            let recent = &past[past.len().saturating_sub(LOAD_SLOTS)..];
            let sums: Vec<u64> =
                (0..4).map(|w| recent.iter().map(|slot| slot[w]).sum()).collect();
            loads.charge(WorkerId(worker), load);
            let least = loads.least(Rank::PastSlots);
            prop_assert_eq!(sums[least.index()], sums.iter().copied().min().unwrap_or(0));
            let now: Vec<f64> = (0..4)
                .map(|w| {
                    let mean = sums[w] as f64 / recent.len().max(1) as f64;
                    mean + if w == usize::from(worker) { f64::from(load) } else { 0.0 }
                })
                .collect();
            let least = loads.least(Rank::MeanAndThisSlot);
            let best = now.iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert!(now[least.index()] <= best + 1e-9);
            let mut slot = [0; 4];
            slot[usize::from(worker)] = u64::from(load);
            past.push(slot);
            loads.slot_ended();
        }
    }

    /// Whatever is asked, by either rule: one key at most is set apart, nobody else is where it is,
    /// and as long as it is the heaviest it does not move.
    #[test]
    fn nobody_is_where_the_heaviest_key_is(
        workers in 1_u16..7,
        carry_over: bool,
        slots in vec(vec((0_u64..12, 0_u64..12), 50..400), 1..8),
    ) {
        let rule = HotSettings::lanes_exclusive(workers);
        let threshold = HotThreshold::Requests(8);
        let mut hot = HotKeys::new(HotSettings { alone: true, threshold, carry_over, ..rule });
        let (mut apart, mut seen) = (None, None);
        for slot in slots {
            for (one, two) in slot {
                serve(&mut hot, one.min(two), Access::Write); // low numbers are asked for more
            }
            let now = hot.hot().iter().find(|hot| Some(hot.key) == apart).copied();
            if let Some(HotKey { key, owner, .. }) = now {
                prop_assert_eq!(*seen.get_or_insert(owner), owner);
                let beside = |hot: &&HotKey| hot.key != key && hot.owner == owner;
                let beside = hot.hot().iter().find(beside);
                prop_assert!(workers == 1 || beside.is_none(), "{:?}", hot.hot());
            }
            let most = hot.hot().iter().max_by_key(|h| (h.owned, h.requests, h.key)).map(|h| h.key);
            hot.slot_ended();
            let next = if carry_over { hot.hot().first().map(|hot| hot.key) } else { most };
            if next != apart {
                (apart, seen) = (next, None);
            }
        }
    }

    #[test]
    fn a_hot_key_has_one_owner_in_a_slot(keys in vec(0_u64..30, 1..2000)) {
        let mut hot = HotKeys::new(HotSettings::lanes_exclusive(8));
        let mut owners: HashMap<u64, WorkerId> = HashMap::new();
        for (at, key) in keys.into_iter().enumerate() {
            if let HotRoute::Owner(owner) = serve(&mut hot, key, Access::Read) {
                prop_assert_eq!(*owners.entry(key).or_insert(owner), owner);
            } else {
                prop_assert!(!owners.contains_key(&key), "hot until the slot ends");
            }
            if at % 500 == 499 {
                hot.slot_ended();
                owners.clear();
            }
        }
    }
}
