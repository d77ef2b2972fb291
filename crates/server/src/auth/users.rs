//! The file of `-Y`: a line `user:password` for each user, as memcached has it; a user may have
//! several lines. Looking for a pair takes the same time whatever is wrong about it: each line is
//! compared whole, as a record of fixed length (crate `subtle`).
//!
//! Departs from memcached: blank lines are passed over, a user or password that is empty is an
//! error, since it is a slip, and so are more than [`USERS_MAX`] lines or [`LINE_BYTES_MAX`] bytes.

use subtle::{Choice, ConstantTimeEq};

/// Lines at most: an attempt compares all of them.
pub const USERS_MAX: usize = 64;
/// Bytes of a line (memcached: 256, its end included).
pub const LINE_BYTES_MAX: usize = 255;

/// A line, filled up with zeroes, and its length.
struct Entry {
    bytes: [u8; LINE_BYTES_MAX],
    length: u16,
}

impl Entry {
    /// None if it is too long.
    fn new(user: &[u8], password: &[u8]) -> Option<Entry> {
        let mut bytes = [0; LINE_BYTES_MAX];
        let length = user.len() + 1 + password.len();
        let place = bytes.get_mut(..length)?;
        place[..user.len()].copy_from_slice(user);
        place[user.len()] = b':';
        place[user.len() + 1..].copy_from_slice(password);
        Some(Entry { bytes, length: length as u16 })
    }

    fn is(&self, other: &Entry) -> Choice {
        self.length.ct_eq(&other.length) & self.bytes[..].ct_eq(&other.bytes[..])
    }
}

/// Users with their passwords.
pub struct Users(Vec<Entry>);

impl Users {
    /// Those of a file. The error says which line is wrong; it tells nothing of a password.
    pub fn read(text: &str) -> Result<Users, String> {
        let mut users = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: &str| Err(format!("line {}: {why}", number + 1));
            if line.is_empty() {
                continue;
            }
            let Some((user, password)) = line.split_once(':') else {
                return wrong("no colon; write user:password");
            };
            if user.is_empty() || password.is_empty() {
                return wrong("user or password is empty; write user:password");
            }
            // A user is told from the password by the first blank.
            if user.contains(' ') || line.contains(char::is_control) {
                return wrong(
                    "a blank in the user, or a control character; no client could send it",
                );
            }
            match Entry::new(user.as_bytes(), password.as_bytes()) {
                Some(entry) => users.push(entry),
                None => return wrong(&format!("longer than {LINE_BYTES_MAX} bytes")),
            }
        }
        match users.len() {
            0 => Err("there is no user in it; write a line user:password".to_owned()),
            count if count > USERS_MAX => {
                Err(format!("{count} users; there may be {USERS_MAX} at most"))
            }
            _ => Ok(Users(users)),
        }
    }

    /// How many lines there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether these belong together.
    pub fn has(&self, user: &[u8], password: &[u8]) -> bool {
        // `a:b` with `c` is not `a` with `b:c`.
        let is_told_apart = !user.contains(&b':');
        let Some(asked) = Entry::new(user, password) else { return false };
        let found = self.0.iter().fold(Choice::from(0), |found, entry| found | entry.is(&asked));
        bool::from(found & Choice::from(u8::from(is_told_apart)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_own_password_whole() {
        let users = Users::read("alice:secret\r\n\nbob:a:b c\nalice:old").expect("it is sound");
        assert_eq!(users.count(), 3);
        for (user, password, right) in [
            ("alice", "secret", true),
            ("alice", "old", true),
            ("bob", "a:b c", true),
            ("bob", "a:b", false),
            ("bob:a", "b c", false),
            ("bob", "secret", false),
            ("alice", "secre", false),
            ("alice", "secret\0", false),
            ("alice", "", false),
            ("", "", false),
            ("Alice", "secret", false),
            ("carol", "secret", false),
        ] {
            assert_eq!(users.has(user.as_bytes(), password.as_bytes()), right, "{user} {password}");
        }
        assert!(!users.has(b"alice", &[b'x'; 100_000]));
    }

    #[test]
    fn a_file_that_is_wrong_says_where_and_no_password() {
        let long = format!("a:b\nalice:{}", "x".repeat(LINE_BYTES_MAX));
        let many = "a:secret\n".repeat(USERS_MAX + 1);
        for (text, words) in [
            ("", "there is no user in it"),
            ("\n\n", "there is no user in it"),
            ("a:b\nsecret", "line 2: no colon"),
            (":secret", "line 1: user or password is empty"),
            ("a:b\nsecret:", "line 2: user or password is empty"),
            ("a b:secret", "line 1: a blank in the user"),
            ("a:se\tcret", "line 1: a blank in the user, or a control"),
            (&long, "line 2: longer than 255 bytes"),
            (&many, "65 users; there may be 64"),
        ] {
            let why = Users::read(text).err().expect(text);
            assert!(why.contains(words) && !why.contains("secret"), "{why}");
        }
        assert!(Users::read(&format!("a:{}", "x".repeat(LINE_BYTES_MAX - 2))).is_ok());
    }
}
