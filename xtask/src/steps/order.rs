//! Which step begins next, where several run beside each other.
//!
//! One at a time they run in the order of the list. Otherwise the one begins behind which the
//! longest row of others waits: what is long and begins last keeps all others waiting for its end.
//! Beside a step that computes, one begins that mostly waits, if there is one, and beside that one
//! that computes: two that wait leave CPUs unused.

use super::list::Step;
use std::cmp::Reverse;

/// How far a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Running,
    /// Or left out.
    Ended,
}

/// The place in the list of the step to begin now, if one may.
pub fn next(steps: &[Step], states: &[State], jobs: usize) -> Option<usize> {
    let all = || steps.iter().zip(states);
    let running = || all().filter(|(_, state)| **state == State::Running).map(|(step, _)| step);
    if running().count() >= jobs {
        return None;
    }
    let is_ready = |step: &Step| {
        let waits = all().any(|(other, state)| *state != State::Ended && step.waits_for(other));
        !waits && !running().any(|other| step.excludes(other))
    };
    let mut ready =
        (0..steps.len()).filter(|at| states[*at] == State::Waiting && is_ready(&steps[*at]));
    let wants_light = running().count() > 0 && !running().any(Step::is_light);
    let key = |at: &usize| {
        let is_wanted = steps[*at].is_light() == wants_light;
        (is_wanted, seconds_behind(steps, *at), Reverse(*at))
    };
    match jobs {
        1 => ready.next(),
        _ => ready.max_by_key(key),
    }
}

/// Seconds of the longest row of steps that begins with this one.
fn seconds_behind(steps: &[Step], at: usize) -> u32 {
    // Who waits for a step stands behind it in the list.
    let waiting = (at + 1..steps.len()).filter(|later| steps[*later].waits_for(&steps[at]));
    let behind = waiting.map(|later| seconds_behind(steps, later)).max();
    steps[at].seconds + behind.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::list::STEPS;
    use super::*;

    /// Runs the whole list, each step for as long as it says; the seconds, and the order of
    /// beginnings.
    fn played(steps: &[Step], jobs: usize) -> (u32, Vec<usize>) {
        let mut states = vec![State::Waiting; steps.len()];
        let mut running: Vec<(u32, usize)> = Vec::new();
        let (mut now, mut begun) = (0, Vec::new());
        loop {
            while let Some(at) = next(steps, &states, jobs) {
                let step = &steps[at];
                assert!(running.iter().all(|(_, beside)| !steps[*beside].excludes(step)));
                let is_in_order = |(other, state): (&Step, &State)| {
                    *state == State::Ended || !step.waits_for(other)
                };
                assert!(steps.iter().zip(&states).all(is_in_order), "{}", step.name);
                states[at] = State::Running;
                running.push((now + steps[at].seconds, at));
                begun.push(at);
            }
            assert!(running.len() <= jobs);
            let Some(&first) = running.iter().min() else { break };
            running.retain(|other| *other != first);
            now = first.0;
            states[first.1] = State::Ended;
        }
        assert!(states.iter().all(|state| *state == State::Ended), "some never begin");
        (now, begun)
    }

    #[test]
    fn one_at_a_time_run_in_the_order_of_the_list() {
        let (seconds, begun) = played(&STEPS, 1);
        assert_eq!(begun, (0..STEPS.len()).collect::<Vec<_>>());
        assert_eq!(seconds, STEPS.iter().map(|step| step.seconds).sum::<u32>());
    }

    #[test]
    fn two_at_a_time_leave_hardly_any_time_to_one_alone() {
        let (seconds, _) = played(&STEPS, 2);
        let whole: u32 = STEPS.iter().map(|step| step.seconds).sum();
        assert!(seconds * 2 < whole + whole / 10, "{seconds} of {whole} s");
    }

    #[test]
    fn beside_a_step_that_computes_begins_one_that_waits_and_the_other_way_round() {
        let is_light_beside = |name: &str| {
            let state = |step: &Step| match step.name.as_str() {
                "setup" | "format" | "clippy" | "tidy" | "release build" | "peers" => State::Ended,
                other if other == name => State::Running,
                _ => State::Waiting,
            };
            let states: Vec<State> = STEPS.iter().map(state).collect();
            next(&STEPS, &states, 2).map(|at| STEPS[at].is_light())
        };
        assert_eq!(is_light_beside("build of tests"), Some(true));
        assert_eq!(is_light_beside("clients"), Some(false));
    }

    #[test]
    fn who_waits_for_what_is_left_out_begins() {
        let states: Vec<State> = STEPS
            .iter()
            .map(|step| if step.name == "vopr" { State::Waiting } else { State::Ended })
            .collect();
        assert_eq!(next(&STEPS, &states, 2).map(|at| STEPS[at].name.as_str()), Some("vopr"));
    }
}
