//! The order of a turn, move by move.

use crate::{etc_mix, load, plan_after};
use laneway_policy::cores::roles;
use laneway_policy::turn::{
    BURST_BYTES, OFFER_MIN, between_slices, idle, in_turn, looks_into_sockets, may_make, may_offer,
    offers, slice_of, waits_for_its_turn,
};
use laneway_policy::{
    BATCH, CorePlan, Design, EpochLoad, Form, ItemBytes, Move, Others, Readers, Role, Settings,
    Sight, Turn, WorkerId,
};

/// Six workers' queues.
#[derive(Debug, Clone, Default)]
struct Queues {
    me: usize,
    received: [u32; 6],
    unread: [u32; 6],
    transfers: [u32; 6],
    shared: u32,
    /// The wire has no room for another slice.
    full: bool,
}

impl Sight for Queues {
    fn received(&self) -> u32 {
        self.received[self.me]
    }

    fn unread(&self, whose: WorkerId) -> u32 {
        self.unread[whose.index()]
    }

    fn may_slice(&self) -> bool {
        self.transfers[self.me] > 0 && !self.full
    }

    fn has_no_transfer(&self) -> bool {
        self.transfers[self.me] == 0
    }

    fn shared(&self) -> u32 {
        self.shared
    }
}

impl Others for Queues {
    fn takable(&self, whose: WorkerId) -> u32 {
        self.unread[whose.index()]
    }

    fn received_by(&self, whose: WorkerId) -> u32 {
        self.received[whose.index()]
    }
}

fn plan(design: Design) -> CorePlan {
    let settings = Settings { workers: 6, design, ..Settings::default() };
    plan_after(&settings, &mix(), 1)
}

fn mix() -> EpochLoad {
    load(etc_mix(100_000, 0.75, 500_000))
}

/// The moves of worker `me` until it rests, or so many; what it is told to do is done.
fn moves(plan: &CorePlan, raised: bool, queues: &mut Queues, most: usize) -> Vec<Move> {
    moves_of(&Readers::of(plan, raised, BATCH), plan, queues, most)
}

fn moves_of(readers: &Readers, plan: &CorePlan, queues: &mut Queues, most: usize) -> Vec<Move> {
    let (mut turn, mut all) = (Turn::default(), Vec::new());
    for _ in 0..most {
        let me = queues.me;
        let next = turn.next(plan, readers, WorkerId(me as u16), queues);
        all.push(next);
        match next {
            Move::Serve => queues.received[me] -= 1,
            Move::Receive(whose, count) => {
                queues.unread[whose.index()] -= count;
                queues.received[me] += count;
            }
            Move::Slice => {
                turn.slice_begun();
                assert!(turn.in_transfer());
                turn.slice_over(plan, true);
            }
            Move::TakeShared => {
                queues.shared -= 1;
                queues.transfers[me] += 1;
            }
            Move::Steal(whose) => queues.unread[whose.index()] -= 1,
            Move::StealReceived(whose) => queues.received[whose.index()] -= 1,
            Move::Rest => break,
        }
    }
    all
}

#[test]
fn a_small_worker_reads_its_own_queue_then_those_nobody_reads() {
    let plan = plan(Design::Minos);
    let large = plan.workers_small; // the first of them
    let n = plan.workers_small as u32;
    let mut queues = Queues { unread: [2, 9, 0, 0, 0, 0], ..Queues::default() };
    queues.unread[usize::from(large)] = BATCH;
    let from_large = BATCH.div_ceil(n);
    let mut expected = vec![Move::Receive(WorkerId(0), 2), Move::Serve, Move::Serve];
    let mut left = BATCH;
    while left > 0 {
        let count = left.min(from_large);
        expected.push(Move::Receive(WorkerId(large), count));
        expected.extend(vec![Move::Serve; count as usize]);
        left -= count;
    }
    expected.push(Move::Rest);
    assert_eq!(moves(&plan, false, &mut queues, 100), expected);
    assert_eq!(queues.unread[1], 9, "another small worker's queue is its own");
}

#[test]
fn a_large_worker_takes_small_requests_between_slices_while_a_queue_is_long() {
    let plan = plan(Design::Lanes);
    let me = usize::from(plan.workers_small);
    let mut queues = Queues { me, unread: [4, 0, 0, 0, 0, 0], shared: 1, ..Queues::default() };
    let steal = Move::Steal(WorkerId(0));
    let expected = [steal, steal, steal, Move::TakeShared, Move::Slice, Move::Slice];
    assert_eq!(moves(&plan, false, &mut queues, 6), expected);
    // No more than a batch of them before the next slice.
    let mut queues = Queues { me, unread: [999, 0, 0, 0, 0, 0], shared: 1, ..Queues::default() };
    let all = moves(&plan, false, &mut queues, 2 * BATCH as usize + 2);
    let first = all.iter().position(|next| *next != steal);
    assert_eq!(first, Some(BATCH as usize));
    assert_eq!(all[BATCH as usize], Move::TakeShared);
    assert_eq!(all[BATCH as usize + 1], steal);
}

#[test]
fn who_has_nothing_to_do_takes_one_request_of_another_if_the_design_lets_it() {
    let waiting = Queues { unread: [0, 0, 3, 0, 0, 0], ..Queues::default() };
    for (design, first) in [
        (Design::Lanes, Move::Steal(WorkerId(2))),
        (Design::HkhWs, Move::Steal(WorkerId(2))),
        (Design::Hkh, Move::Rest),
        (Design::Minos, Move::Rest),
    ] {
        assert_eq!(moves(&plan(design), false, &mut waiting.clone(), 1), [first], "{design}");
    }
    let mut received = Queues { received: [0, 0, 0, 2, 0, 0], ..waiting };
    let expected = [3, 3, 2, 2, 2].map(WorkerId);
    let all = moves(&plan(Design::HkhWs), false, &mut received, 9);
    assert_eq!(all[..2], expected.map(Move::StealReceived)[..2], "what is received first");
    assert_eq!(all[2..], [&expected.map(Move::Steal)[2..], &[Move::Rest]].concat());
}

#[test]
fn a_worker_that_time_shares_serves_a_batch_then_a_slice() {
    let settings = Settings { workers: 6, form: Some(Form::TimeShare), ..Settings::default() };
    let plan = plan_after(&settings, &mix(), 1);
    let mut queues =
        Queues { unread: [BATCH + 1, 0, 0, 0, 0, 0], transfers: [1; 6], ..Queues::default() };
    let all = moves(&plan, false, &mut queues, BATCH as usize + 5);
    let batch = BATCH as usize;
    assert_eq!(all[0], Move::Receive(WorkerId(0), BATCH));
    assert!(all[1..=batch].iter().all(|next| *next == Move::Serve));
    let rest = [Move::Slice, Move::Receive(WorkerId(0), 1), Move::Serve, Move::Slice];
    assert_eq!(all[batch + 1..], rest);
    queues.full = true;
    assert_eq!(moves(&plan, false, &mut queues, 2), [Move::Rest], "the wire has no room");
}

#[test]
fn a_standby_with_its_flag_up_reads_nothing_and_others_drain_its_queue() {
    let mut plan = plan(Design::Minos);
    plan.roles.fill(Role::Small);
    plan.roles[5] = Role::Standby;
    plan.workers_small = 6;
    let unread = [0, 0, 0, 0, 0, 12];
    for (raised, me, first) in [
        (false, 5, Move::Receive(WorkerId(5), 12)),
        (false, 0, Move::Rest),
        (true, 5, Move::Slice),
        (true, 0, Move::Receive(WorkerId(5), BATCH.div_ceil(5))),
    ] {
        let transfers = [0, 0, 0, 0, 0, 1];
        let mut queues = Queues { me, unread, transfers, ..Queues::default() };
        assert_eq!(moves(&plan, raised, &mut queues, 1), [first], "{raised} {me}");
    }
    let readers = Readers::of(&plan, true, BATCH);
    assert!(!readers.reads(WorkerId(5)) && readers.unread() == [WorkerId(5)]);
}

#[test]
fn queues_of_large_workers_are_drained_alike() {
    for (workers, large, most) in [(2, 1, BATCH), (6, 3, 11), (6, 1, 7), (64, 1, 1)] {
        let plan = CorePlan { roles: roles(workers, large), ..plan(Design::Lanes) };
        let readers = Readers::of(&plan, false, BATCH);
        let (first, last) = (WorkerId(0), WorkerId(workers - 1));
        let what = format!("{large} large of {workers}");
        assert_eq!(readers.most(first, last), most, "{what}");
        assert_eq!((readers.most(first, first), readers.most(last, first)), (BATCH, 0), "{what}");
        assert_eq!(readers.most(last, last), 0, "{what}");
    }
}

/// As the server's does: it reads its own queue, once a turn, and others read it as well while the
/// flag is up.
#[test]
fn a_standby_that_reads_on_shares_its_queue_with_others() {
    let mut plan = plan(Design::Minos);
    plan.roles = roles(6, 0);
    assert_eq!(plan.roles[5], Role::Standby);
    let standby = WorkerId(5);
    for (raised, of_others) in [(false, 0), (true, BATCH.div_ceil(6))] {
        let readers = Readers::beside_standby(&plan, raised, BATCH);
        assert_eq!(readers.most(standby, standby), BATCH, "{raised}");
        assert_eq!(readers.most(WorkerId(0), standby), of_others, "{raised}");
        assert_eq!(readers.most(WorkerId(1), WorkerId(0)), 0, "{raised}");
        let queues =
            Queues { me: 5, unread: [BATCH + 8; 6], transfers: [1; 6], ..Queues::default() };
        let batch = BATCH as usize;
        let all = moves_of(&readers, &plan, &mut queues.clone(), 2 + batch + 9);
        assert_eq!(all[0], Move::Receive(standby, BATCH), "{raised}");
        let more = [Move::Slice, Move::Slice];
        assert_eq!(all[batch + 1..batch + 3], more, "{raised}: its transfer, to its end");
    }
}

#[test]
fn a_transfer_that_nobody_slices_goes_on_before_anything_else() {
    let plan = plan(Design::Minos);
    let me = usize::from(plan.workers_small);
    let mut transfers = [0; 6];
    transfers[me] = 1;
    let mut queues = Queues { me, received: [3; 6], transfers, ..Queues::default() };
    let mut turn = Turn::default();
    turn.slice_begun();
    turn.slice_over(&plan, true);
    let readers = Readers::of(&plan, false, BATCH);
    assert_eq!(turn.next(&plan, &readers, WorkerId(me as u16), &queues), Move::Slice);
    turn.slice_over(&plan, false);
    queues.transfers = [0; 6];
    assert_eq!(turn.next(&plan, &readers, WorkerId(me as u16), &queues), Move::Serve);
}

#[test]
fn a_slice_is_what_the_plan_says_a_burst_or_all_of_it() {
    let (lanes, minos) = (plan(Design::Lanes), plan(Design::Minos));
    let left = ItemBytes(1 << 20);
    let slice = lanes.slice_bytes.expect("lanes has slices");
    assert_eq!(slice_of(&lanes, left, true), slice);
    assert_eq!(slice_of(&lanes, ItemBytes(7), false), ItemBytes(7));
    assert_eq!(slice_of(&minos, left, true), BURST_BYTES);
    assert_eq!(slice_of(&minos, left, false), left);
    let capped = CorePlan { large_unsent_bytes_max: Some(slice), ..lanes.clone() };
    assert!(may_make(&capped, ItemBytes(0), slice) && !may_make(&capped, ItemBytes(1), slice));
    assert!(may_make(&lanes, left, left));
    assert!(waits_for_its_turn(&minos, minos.threshold));
    assert!(!waits_for_its_turn(&plan(Design::Hkh), left));
}

#[test]
fn half_of_a_burst_is_offered_where_somebody_could_take_it() {
    let lanes = plan(Design::Lanes);
    let enough = 2 * lanes.steal.between_slices_queue_min.expect("lanes helps");
    for (received, idle, slices, offered) in [
        (OFFER_MIN - 1, true, true, 0),
        (OFFER_MIN, true, false, OFFER_MIN / 2),
        (OFFER_MIN + 1, true, false, OFFER_MIN / 2),
        (BATCH, false, false, 0),
        (BATCH, false, true, BATCH / 2),
        (enough - 1, false, true, 0), // too few for a large worker to help
    ] {
        let found = offers(&lanes, WorkerId(0), received, || idle, || slices);
        assert_eq!(found, offered, "{received} received, idle: {idle}, slices: {slices}");
    }
    let minos = plan(Design::Minos);
    let found = offers(&minos, WorkerId(0), BATCH, || true, || true);
    assert_eq!(found, 0, "nobody takes any");
    // What lies in the queues of large workers and of a standby is large.
    for role in [Role::Small, Role::Both, Role::Standby, Role::Large] {
        let mut lanes = lanes.clone();
        lanes.roles[2] = role;
        let small = matches!(role, Role::Small | Role::Both);
        assert_eq!(may_offer(&lanes, WorkerId(2)), small, "{role:?}");
        let found = offers(&lanes, WorkerId(2), BATCH, || true, || true);
        assert_eq!(found, if small { BATCH / 2 } else { 0 }, "{role:?}");
    }
}

/// What `between_slices` and `idle` say by themselves, as the server asks them, is what a turn
/// comes to.
#[test]
fn what_is_asked_apart_is_what_a_turn_does() {
    for (design, unread) in Design::ALL.iter().flat_map(|&design| [0, 1, 2, 4].map(|n| (design, n)))
    {
        let plan = plan(design);
        let me = plan.roles.len() - 1;
        let id = WorkerId(me as u16);
        let queues = |transfers| Queues {
            me,
            unread: [0, unread, 0, 0, 0, 0],
            transfers: [transfers; 6],
            ..Queues::default()
        };
        let what = format!("{design}, {unread} unread");
        if between_slices(&plan, 0, &queues(0)).is_none() {
            let first = moves(&plan, false, &mut queues(0), 1);
            assert_eq!(first, [idle(&plan, id, &queues(0))], "{what}");
        }
        if plan.role(id) == Role::Large {
            let (mut busy, mut took) = (queues(1), 0);
            while let Some(whose) = between_slices(&plan, took, &busy) {
                busy.unread[whose.index()] -= 1;
                took += 1;
            }
            let all = moves(&plan, false, &mut queues(1), 9);
            let first = all.iter().position(|next| *next == Move::Slice);
            assert_eq!(first, Some(took as usize), "{what}: {all:?}");
        }
    }
}

#[test]
fn an_idle_worker_takes_from_the_longest_queue_the_first_of_equals() {
    let plan = plan(Design::Lanes);
    let mut queues = Queues { unread: [0, 5, 5, 0, 0, 0], ..Queues::default() };
    assert_eq!(moves(&plan, false, &mut queues, 1), [Move::Steal(WorkerId(1))]);
    // What sizes mean nothing to takes of what was received, the last of equals.
    let plan = self::plan(Design::HkhWs);
    let mut queues = Queues { received: [0, 2, 2, 1, 0, 0], ..Queues::default() };
    assert_eq!(moves(&plan, false, &mut queues, 1), [Move::StealReceived(WorkerId(2))]);
}

/// Lengths that one cannot see: only that something is there.
struct Sockets([u32; 6], u16);

impl Others for Sockets {
    fn takable(&self, whose: WorkerId) -> u32 {
        self.0[whose.index()]
    }

    fn received_by(&self, _: WorkerId) -> u32 {
        0
    }

    fn look_first(&self) -> Option<WorkerId> {
        Some(WorkerId(self.1))
    }
}

#[test]
fn sockets_are_looked_into_in_turn() {
    assert_eq!(in_turn(2, 4).collect::<Vec<_>>(), [2, 3, 0, 1]);
    assert_eq!(in_turn(4, 4).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let (lanes, minos) = (plan(Design::Lanes), plan(Design::Minos));
    for (first, found) in [(0, 1), (1, 1), (2, 4), (4, 4), (5, 1), (6, 1)] {
        let sockets = Sockets([0, 9, 0, 0, 1, 0], first);
        let wanted = Move::Steal(WorkerId(found));
        assert_eq!(idle(&lanes, WorkerId(0), &sockets), wanted, "from {first} on");
        assert_eq!(idle(&minos, WorkerId(0), &sockets), Move::Rest);
    }
    assert_eq!(idle(&lanes, WorkerId(0), &Sockets([0; 6], 3)), Move::Rest);
    let large = WorkerId(lanes.workers_small);
    assert!(looks_into_sockets(&lanes, WorkerId(0)) && !looks_into_sockets(&lanes, large));
    assert!(!looks_into_sockets(&minos, WorkerId(0)));
}
