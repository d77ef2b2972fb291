//! How much holds: the search for the highest rate.

/// Halvings of the logarithm.
const HALVINGS: u32 = 9;

/// The highest rate between these two at which `holds` says yes, if it does at any that is tried:
/// each halves what is left of the logarithm, on the side on which the last answer was.
pub fn highest(low: f64, high: f64, mut holds: impl FnMut(f64) -> bool) -> Option<f64> {
    let (mut low, mut high) = (low.ln(), high.ln());
    let mut found = None;
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if holds(middle.exp()) {
            low = middle;
            found = Some(middle.exp());
        } else {
            high = middle;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_holds_and_little_more_would_not() {
        for wanted in [3.0, 77.0, 511.0] {
            let found = highest(1.0, 512.0, |rate| rate <= wanted).expect("there is one");
            assert!(found <= wanted && wanted < found * 1.013, "{found}, {wanted}");
        }
        assert_eq!(highest(1.0, 512.0, |_| false), None);
    }
}
