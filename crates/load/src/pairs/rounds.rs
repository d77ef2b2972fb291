//! Which rounds are made, in which order, and how often one that does not count is made again.

use super::Round;
use std::fmt::Display;

/// How many rounds may be made again, for each that is wanted.
const AGAIN_PER_ROUND: usize = 2;
/// How often one run is made before its round is given up. Made again at once it still stands a few
/// seconds from its neighbours; after more tries they would not be of the same minutes.
pub const TRIES_PER_RUN: usize = 4;

/// The runs of round `number`: as defined in even rounds, backwards in odd ones, so that what
/// drifts during a round favours nobody.
pub fn order<T>(runs: &[T], number: usize) -> Vec<&T> {
    let mut order: Vec<&T> = runs.iter().collect();
    if number % 2 == 1 {
        order.reverse();
    }
    order
}

/// Makes one run, and makes it again while it does not count, a few times: on a machine that others
/// disturb, a round of four good runs in a row is rare, and one bad run says nothing of the others.
/// `tries` at most. The outer error is final.
pub fn insist<T, Doubt: Display>(
    tries: usize,
    mut run: impl FnMut() -> Result<Result<T, Doubt>, String>,
) -> Result<Result<T, Doubt>, String> {
    for _ in 1..tries {
        match run()? {
            Ok(measured) => return Ok(Ok(measured)),
            Err(why) => eprintln!("the same run once more: {why}"),
        }
    }
    run()
}

/// Makes `wanted` rounds. `round` is told its number; its inner error says why the round does not
/// count, and then the same number is tried again as long as there are tries. `is_enough` is told
/// how many there are, one at least, and may end it early.
pub fn collect(
    wanted: usize,
    mut is_enough: impl FnMut(usize) -> bool,
    mut round: impl FnMut(usize) -> Result<Result<Round, String>, String>,
) -> Result<Vec<Round>, String> {
    let mut rounds = Vec::new();
    let mut again = wanted * AGAIN_PER_ROUND;
    while rounds.len() < wanted {
        match round(rounds.len())? {
            Ok(round) => {
                rounds.push(round);
                if is_enough(rounds.len()) {
                    break;
                }
            }
            Err(why) if again > 0 => {
                again -= 1;
                eprintln!("once more: {why}");
            }
            Err(why) => return Err(format!("no round can be believed: {why}")),
        }
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_turns_round() {
        let runs = ["one", "two", "three"];
        assert_eq!([0, 2].map(|number| order(&runs, number)), [[&"one", &"two", &"three"]; 2]);
        assert_eq!(order(&runs, 1), [&"three", &"two", &"one"]);
    }

    #[test]
    fn a_round_that_does_not_count_is_made_again_in_the_same_order_up_to_a_limit() {
        // Rounds of which those in `bad`, by the number of the try, do not count.
        let tried = |wanted: usize, bad: &[usize], enough: usize| {
            let mut numbers = Vec::new();
            let round = |number| {
                numbers.push(number);
                let is_bad = bad.contains(&(numbers.len() - 1));
                Ok(if is_bad { Err("late".into()) } else { Ok(Round::new()) })
            };
            let made = collect(wanted, |made| made == enough, round).map(|rounds| rounds.len());
            (made, numbers)
        };
        assert_eq!(tried(3, &[], 9), (Ok(3), vec![0, 1, 2]));
        assert_eq!(tried(3, &[1, 2], 9), (Ok(3), vec![0, 1, 1, 1, 2]));
        assert_eq!(tried(5, &[], 2), (Ok(2), vec![0, 1]));
        let (made, numbers) = tried(2, &[0, 1, 2, 3, 4], 9);
        assert!(made.is_err_and(|words| words.ends_with("late")));
        assert_eq!(numbers, [0; 5]);
    }

    #[test]
    fn one_bad_run_is_made_again_and_a_broken_server_ends_all() {
        for (bad, outcome) in [(0, Ok(1)), (3, Ok(4)), (4, Err("late".to_owned()))] {
            let mut tries = 0;
            let made = insist(TRIES_PER_RUN, || {
                tries += 1;
                Ok(if tries > bad { Ok(tries) } else { Err("late".to_owned()) })
            });
            assert_eq!((made, tries), (Ok(outcome), TRIES_PER_RUN.min(bad + 1)));
        }
        let (mut runs, gone) = (0, || "the server is gone".to_owned());
        let broken = insist(TRIES_PER_RUN, || -> Result<Result<(), String>, String> {
            runs += 1;
            Err(gone())
        });
        assert_eq!((broken, runs), (Err(gone()), 1));
        assert_eq!(collect(3, |_| false, |_| Err(gone())), Err(gone()));
    }
}
