//! Fuzzes what a server with users reads of a connection before it has said who it is: arbitrary
//! bytes, arriving in pieces of any size.
//!
//! The first bytes of the input are the sizes of the pieces, the rest is the stream. What is
//! checked: a verdict takes at least one byte and no more than there are; verdicts are the same
//! whatever the cut; nothing long is waited for; and a user and a password that are read are
//! written and read again as the same.

#![no_main]

use laneway_wire::login::{LOGIN_BYTES_MAX, Login, TooLong, login};
use libfuzzer_sys::fuzz_target;

/// How many sizes of pieces the input begins with.
const CUTS: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_first_chunk::<CUTS>() else { return };
    let whole = read(stream, [stream.len()].into_iter());
    let mut arrived = 0;
    let mut pieces = cuts.iter().cycle();
    let cuts = std::iter::from_fn(|| {
        let piece = usize::from(*pieces.next().expect("a cycle has no end")) + 1;
        let before = arrived;
        arrived = (arrived + piece).min(stream.len());
        (before < stream.len()).then_some(arrived)
    });
    assert_eq!(read(stream, cuts), whole);
});

#[derive(Debug, PartialEq)]
enum Verdict {
    Pair(usize, Vec<u8>, Vec<u8>),
    Refused(usize, u8),
    Over(usize, Option<TooLong>),
}

/// The verdicts on a stream that arrives up to each of the `cuts`, one after the other.
fn read(stream: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<Verdict> {
    let (mut verdicts, mut at) = (Vec::new(), 0);
    for cut in cuts {
        while let Some((verdict, bytes)) = one(at, &stream[at..cut]) {
            let is_over = matches!(verdict, Verdict::Over(..));
            verdicts.push(verdict);
            if is_over {
                return verdicts;
            }
            assert!(0 < bytes && bytes <= cut - at);
            at += bytes;
        }
        assert!(cut - at <= 2 * LOGIN_BYTES_MAX + 2, "more than that is not waited for");
    }
    verdicts
}

fn one(at: usize, input: &[u8]) -> Option<(Verdict, usize)> {
    Some(match login(input) {
        Ok(None) => return None,
        Err(long) => (Verdict::Over(at, Some(long)), 0),
        Ok(Some(Login::Quit)) => (Verdict::Over(at, None), 0),
        Ok(Some(Login::Nothing(bytes))) => (Verdict::Refused(at, 0), bytes),
        Ok(Some(Login::Other(bytes))) => (Verdict::Refused(at, 1), bytes),
        Ok(Some(Login::BadEnd(bytes))) => (Verdict::Refused(at, 2), bytes),
        Ok(Some(Login::NoPassword(bytes))) => (Verdict::Refused(at, 3), bytes),
        Ok(Some(Login::Pair { user, password, bytes })) => {
            check_pair(user, password);
            (Verdict::Pair(at, user.to_vec(), password.to_vec()), bytes)
        }
    })
}

fn check_pair(user: &[u8], password: &[u8]) {
    let value = [user, b" ", password].concat();
    let head = format!("set any 0 0 {}\r\n", value.len());
    let request = [head.as_bytes(), &value, b"\r\n"].concat();
    let bytes = request.len();
    assert_eq!(login(&request), Ok(Some(Login::Pair { user, password, bytes })));
}
