//! Who a client is, in memcached's text protocol (`-Y`): the first request is a `set` of any key,
//! and its value is `user password`. The user ends at the first blank; the password is the rest.
//!
//! It departs from memcached 1.6.45: the line may end in a bare newline, and a value of more than
//! [`LOGIN_BYTES_MAX`] bytes is an error at once (memcached waits for it).

/// Longest line, and longest value, of who has not said who he is (memcached closes behind as much
/// without a newline).
pub const LOGIN_BYTES_MAX: usize = 2048;

const VALUE_END: &[u8] = b"\r\n";

/// What stands at the front of the input; each with the bytes that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login<'a> {
    /// A user and a password.
    Pair {
        /// The user.
        user: &'a [u8],
        /// The password.
        password: &'a [u8],
        /// All of the request.
        bytes: usize,
    },
    /// A `set` whose value has no blank, and so no password.
    NoPassword(usize),
    /// A `set` whose value does not end in `\r\n`.
    BadEnd(usize),
    /// An empty line.
    Nothing(usize),
    /// `quit`
    Quit,
    /// A line that is none of these.
    Other(usize),
}

/// The client goes on where nobody would follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// A line without an end.
    Line,
    /// A value.
    Value,
}

/// Reads what stands at the front. `Ok(None)`: more bytes are needed.
pub fn login(input: &[u8]) -> Result<Option<Login<'_>>, TooLong> {
    let window = &input[..input.len().min(LOGIN_BYTES_MAX)];
    let Some(newline) = window.iter().position(|byte| *byte == b'\n') else {
        return if input.len() > LOGIN_BYTES_MAX { Err(TooLong::Line) } else { Ok(None) };
    };
    let head = newline + 1;
    let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
    let bytes = match line {
        b"" => return Ok(Some(Login::Nothing(head))),
        b"quit" => return Ok(Some(Login::Quit)),
        line => match announced(line) {
            Some(bytes) => bytes,
            None => return Ok(Some(Login::Other(head))),
        },
    };
    if bytes > LOGIN_BYTES_MAX {
        return Err(TooLong::Value);
    }
    let whole = head + bytes + VALUE_END.len();
    let Some(value) = input.get(head..whole) else { return Ok(None) };
    let Some(value) = value.strip_suffix(VALUE_END) else {
        return Ok(Some(Login::BadEnd(whole)));
    };
    let Some(blank) = value.iter().position(|byte| *byte == b' ') else {
        return Ok(Some(Login::NoPassword(whole)));
    };
    let (user, password) = (&value[..blank], &value[blank + 1..]);
    Ok(Some(Login::Pair { user, password, bytes: whole }))
}

/// Bytes of the value of `set <key> <flags> <exptime> <bytes> ...`; key, flags and time may be
/// anything, and so may what follows.
fn announced(line: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(b"set ")?;
    let number = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(3)?;
    let is_number = number.len() <= 9 && number.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(number).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_tells_user_and_password_and_nothing_else_does() {
        let pair = |user, password, bytes| Ok(Some(Login::Pair { user, password, bytes }));
        for (input, told) in [
            (&b"set a 0 0 12\r\nalice secret\r\nget k\r\n"[..], pair(b"alice", b"secret", 28)),
            (b"set a x y 3 noreply\r\na b\r\n", pair(b"a", b"b", 26)),
            (b"set a 0 0 3\na b\r\n", pair(b"a", b"b", 17)),
            (b"set a 0 0 5\r\na b c\r\n", pair(b"a", b"b c", 20)),
            (b"set a 0 0 1\r\n \r\n", pair(b"", b"", 16)),
            (b"set a 0 0 3\r\na b\r", Ok(None)),
            (b"set a 0 0 3\r\na bXX", Ok(Some(Login::BadEnd(18)))),
            (b"set a 0 0 3\r\nabc\r\n", Ok(Some(Login::NoPassword(18)))),
            (b"set a 0 0 2049\r\n", Err(TooLong::Value)),
            (b"set a 0 0 9999999999\r\n", Ok(Some(Login::Other(22)))),
            (b"set a 0 0\r\n", Ok(Some(Login::Other(11)))),
            (b"get k\r\nquit\r\n", Ok(Some(Login::Other(7)))),
            (b"\r\nquit", Ok(Some(Login::Nothing(2)))),
            (b"quit\n", Ok(Some(Login::Quit))),
            (b"quit", Ok(None)),
            (b"", Ok(None)),
            (&[b'x'; LOGIN_BYTES_MAX], Ok(None)),
            (&[b'x'; LOGIN_BYTES_MAX + 1], Err(TooLong::Line)),
        ] {
            assert_eq!(login(input), told, "{:?}", input.get(..40));
        }
    }
}
