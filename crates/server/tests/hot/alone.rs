//! `--hot-alone`: the hottest key on a worker of its own, live.

use crate::crowd::{Crowd, get, hot_keys, number, plan, stats};
use crate::rig::{Plan, Rig};
use laneway_load::random::Random;
use laneway_policy::Access;
use laneway_policy::hot::HotSettings;
use laneway_server::stats::Question;

const SLOT: usize = 2_000;

/// After a few slots it stays where it is, and no other hot key comes there; without the setting
/// it goes round.
#[test]
fn the_hottest_key_stays_on_a_worker_of_its_own() {
    for (workers, alone) in [(4, true), (2, true), (2, false)] {
        let base = plan(Access::Erew, workers, SLOT as u32);
        let hot = base.hot.map(|hot| HotSettings { alone, ..hot });
        let mut rig = Rig::new(&Plan { hot, ..base });
        let mut crowd = Crowd::new(&rig, 96, 7);
        // So much is hot that others would have to go where the hottest is.
        let next = |random: &mut Random| match random.below(100) {
            0..18 => get("hottest"),
            18..78 => get(&format!("hot:{}", random.below(5))),
            _ => get(&format!("cold:{}", random.below(10_000))),
        };
        crowd.ask(&mut rig, 4 * SLOT, next, |_| {});
        let before = number(&hot_keys(&rig)["hottest"], "moves");
        let mut shared = 0;
        for _ in 0..12 {
            crowd.ask(&mut rig, SLOT, next, |_| {});
            let keys = hot_keys(&rig);
            let own = &keys["hottest"]["worker"];
            assert_eq!(keys.len(), 6, "{keys:?}");
            shared += keys
                .iter()
                .filter(|(name, _)| *name != "hottest")
                .fold(0, |sum, (_, key)| sum + usize::from(key["worker"] == *own));
        }
        let moves = number(&hot_keys(&rig)["hottest"], "moves") - before;
        let told = stats(&rig, &Question::HotKeys);
        if alone {
            assert_eq!((moves, shared), (0.0, 0), "{told:?}");
            assert_eq!(told["hot"], "mixed");
        } else {
            assert!(moves > 0.0 && shared > 0, "{moves} moves, {shared} beside: {told:?}");
        }
    }
}
