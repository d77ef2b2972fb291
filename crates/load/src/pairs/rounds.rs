//! Which rounds are made, in which order, and how often one that does not count is made again.

use super::Round;

/// How many rounds may be made again, for each that is wanted.
const AGAIN_PER_ROUND: usize = 2;

/// The runs of round `number`: as defined in even rounds, backwards in odd ones, so that what
/// drifts during a round favours nobody.
pub fn order<T>(runs: &[T], number: usize) -> Vec<&T> {
    let mut order: Vec<&T> = runs.iter().collect();
    if number % 2 == 1 {
        order.reverse();
    }
    order
}

/// Makes `wanted` rounds. `round` is told its number; its inner error says why the round does not
/// count, and then the same number is tried again as long as there are tries.
pub fn collect(
    wanted: usize,
    mut round: impl FnMut(usize) -> Result<Result<Round, String>, String>,
) -> Result<Vec<Round>, String> {
    let mut rounds = Vec::new();
    let mut again = wanted * AGAIN_PER_ROUND;
    while rounds.len() < wanted {
        match round(rounds.len())? {
            Ok(round) => rounds.push(round),
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
        assert_eq!(order(&runs, 0), [&"one", &"two", &"three"]);
        assert_eq!(order(&runs, 1), [&"three", &"two", &"one"]);
        assert_eq!(order(&runs, 2), [&"one", &"two", &"three"]);
    }

    /// Tries rounds of which those in `bad`, by the number of the try, do not count.
    fn tried(wanted: usize, bad: &[usize]) -> (Result<usize, String>, Vec<usize>) {
        let mut numbers = Vec::new();
        let rounds = collect(wanted, |number| {
            numbers.push(number);
            let is_bad = bad.contains(&(numbers.len() - 1));
            Ok(if is_bad { Err("late".into()) } else { Ok(Round::new()) })
        });
        (rounds.map(|rounds| rounds.len()), numbers)
    }

    #[test]
    fn a_round_that_does_not_count_is_made_again_in_the_same_order() {
        assert_eq!(tried(3, &[]), (Ok(3), vec![0, 1, 2]));
        assert_eq!(tried(3, &[1, 2]), (Ok(3), vec![0, 1, 1, 1, 2]));
    }

    #[test]
    fn there_is_a_limit_to_trying_again() {
        let (rounds, numbers) = tried(2, &[0, 1, 2, 3, 4]);
        assert!(rounds.is_err_and(|words| words.ends_with("late")));
        assert_eq!(numbers, [0; 5]);
    }

    #[test]
    fn a_broken_server_is_not_tried_again() {
        let mut tries = 0;
        let rounds = collect(3, |_| {
            tries += 1;
            Err("the server is gone".into())
        });
        assert_eq!((rounds, tries), (Err("the server is gone".into()), 1));
    }
}
