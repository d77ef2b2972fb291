//! Patterns of names: `*`, `?`, `[abc]`, `[^a-c]`, and `\\` before what is meant as it stands.

/// Whether a name fits a pattern; where it `folds`, in any case.
pub fn fits(pattern: &[u8], name: &[u8], folds: bool) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // What stands behind the last star, and how much of the name it has left.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', behind @ ..] = pattern {
            (star, pattern) = (Some((behind, name)), behind);
            continue;
        }
        let fit = match name {
            [] if pattern.is_empty() => return true,
            [] => return false, // what the star has taken was too little, or nothing helps
            [first, rest @ ..] => one(pattern, *first, folds).map(|behind| (behind, rest)),
        };
        (pattern, name) = match (fit, star) {
            (Some(fit), _) => fit,
            (None, Some((behind, [_, rest @ ..]))) => {
                star = Some((behind, rest));
                (behind, rest)
            }
            (None, _) => return false,
        };
    }
}

/// Whether a byte fits the front of a pattern that is no star: what stands behind that.
fn one(pattern: &[u8], byte: u8, folds: bool) -> Option<&[u8]> {
    let fold = |byte: u8| if folds { byte.to_ascii_lowercase() } else { byte };
    let is = |wanted: u8| fold(wanted) == fold(byte);
    match pattern {
        [] => None,
        [b'?', behind @ ..] => Some(behind),
        [b'\\', wanted, behind @ ..] => is(*wanted).then_some(behind),
        [b'[', behind @ ..] => {
            let (is_not, mut behind) = match behind {
                [b'^', behind @ ..] => (true, behind),
                behind => (false, behind),
            };
            let mut found = false;
            loop {
                behind = match behind {
                    // One that is not closed ends with the pattern.
                    [] => return (found != is_not).then_some(&[]),
                    [b']', behind @ ..] => return (found != is_not).then_some(behind),
                    [b'\\', wanted, behind @ ..] => {
                        found |= is(*wanted);
                        behind
                    }
                    [from, b'-', to, behind @ ..] => {
                        let (from, to) = (fold(*from), fold(*to));
                        found |= (from.min(to)..=from.max(to)).contains(&fold(byte));
                        behind
                    }
                    [wanted, behind @ ..] => {
                        found |= is(*wanted);
                        behind
                    }
                };
            }
        }
        [wanted, behind @ ..] => is(*wanted).then_some(behind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by trying everything.
    fn slowly(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], name) => name.is_empty(),
            ([b'*', behind @ ..], name) => {
                (0..=name.len()).any(|taken| slowly(behind, &name[taken..]))
            }
            (_, []) => false,
            (pattern, [first, rest @ ..]) => {
                one(pattern, *first, false).is_some_and(|behind| slowly(behind, rest))
            }
        }
    }

    #[test]
    fn random_patterns_fit_what_trying_everything_fits() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut fit = 0;
        for round in 0..200_000 {
            let mut text = |letters: &[u8], most: usize| -> Vec<u8> {
                (0..random.usize(..most)).map(|_| letters[random.usize(..letters.len())]).collect()
            };
            let (pattern, name) = (text(b"ab*?[]^-\\", 9), text(b"ab", 9));
            let wanted = slowly(&pattern, &name);
            let told = (pattern.escape_ascii(), name.escape_ascii());
            assert_eq!(
                fits(&pattern, &name, false),
                wanted,
                "round {round}: {} {}",
                told.0,
                told.1
            );
            fit += usize::from(wanted);
        }
        assert!(fit > 1_000, "{fit} fit");
    }

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, fit) in [
            ("save", "save", true),
            ("sav", "save", false),
            ("save", "sav", false),
            ("*", "", true),
            ("*", "save", true),
            ("max*", "maxmemory-policy", true),
            ("*mem*y", "maxmemory-policy", true),
            ("*mem*z", "maxmemory-policy", false),
            ("s?ve", "save", true),
            ("s?ve", "sve", false),
            ("", "save", false),
            ("", "", true),
            ("**", "save", true),
            ("save*", "save", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("h[\\]]llo", "h]llo", true),
            ("h[ab", "hb", true),
            ("h[ab", "hc", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("x\\", "x\\", true),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("Save", "save", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes(), false), fit, "{pattern} {name}");
        }
        assert!(fits(b"SAVE", b"save", true) && fits(b"[A-C]b", b"BB", true));
    }
}
