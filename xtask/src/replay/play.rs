//! Plays one case over TCP and says where the replies leave the script.
//!
//! A case ends with a request whose reply must come next (`mn`, which asks for `MN`): so nothing
//! that should not be there can hide behind the last expected line. After the first difference the
//! rest of a case means nothing, and it is left.

use super::script::{Act, Case, Compared, Expectation, Numbers, Part, Text};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long we look whether a line that should not be there comes after all.
const ABSENCE: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 64 * 1024;

/// Another server than ours.
#[derive(Clone, Copy, PartialEq)]
pub struct Peer {
    /// As it is called in what is printed, such as `memcached 1.6.45`.
    pub name: &'static str,
    /// What stands behind the `~` of a line that is this one's alone.
    pub mark: &'static str,
}

/// What a protocol asks for at the end of a case, and how that is answered.
#[derive(Clone, Copy)]
pub struct End {
    pub request: &'static [u8],
    pub reply: &'static [u8],
    /// As it is called in what is printed.
    pub name: &'static str,
}

/// What came of one case.
#[derive(Debug, Default)]
pub struct Played {
    /// Reply lines that were as expected.
    pub lines: usize,
    /// The first place that is not as the script says.
    pub wrong: Option<Wrong>,
    /// Lines, in the file, with a `~` that is not needed any more.
    pub stale: Vec<usize>,
}

/// Where and how a reply leaves the script.
#[derive(Debug)]
pub struct Wrong {
    pub line: usize,
    pub expected: String,
    /// What came, escaped; empty if nothing did.
    pub got: String,
    pub closed: bool,
}

impl Wrong {
    /// Whether only digits differ: the scripts tell times in whole seconds, and a second may pass
    /// between two lines.
    pub fn may_be_the_clock(&self) -> bool {
        // Placeholders stand for numbers, too; what came may go on with further lines.
        let mut inside = 0_i32;
        let outside = self.expected.chars().filter(|&c| {
            inside += i32::from(c == '<');
            let kept = inside == 0 && !c.is_ascii_digit();
            inside -= i32::from(c == '>');
            kept
        });
        let got = self.got.split("\\r\\n").next().unwrap_or_default();
        outside.eq(got.chars().filter(|c| !c.is_ascii_digit()))
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "(line {}): expected `{}`, got ", self.line, self.expected)?;
        match (self.got.is_empty(), self.closed) {
            (true, true) => write!(out, "a closed connection"),
            (true, false) => write!(out, "nothing"),
            (false, _) => write!(out, "`{}`", self.got),
        }
    }
}

/// Plays `case` on a new connection to a server in which nothing is live: to this peer, or to ours.
pub fn play(
    case: &Case,
    address: SocketAddr,
    peer: Option<Peer>,
    end: End,
) -> Result<Played, String> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let mut talk = Talk { stream, input: Vec::new(), closed: false, numbers: Numbers::new(), peer };
    let mut played = Played::default();
    talk.run(case, end, &mut played)?;
    Ok(played)
}

struct Talk {
    stream: TcpStream,
    input: Vec<u8>,
    closed: bool,
    numbers: Numbers,
    peer: Option<Peer>,
}

impl Talk {
    fn run(&mut self, case: &Case, end: End, played: &mut Played) -> Result<(), String> {
        let mut ended = false;
        let mut output = Vec::new();
        for step in &case.steps {
            match &step.act {
                Act::Send(text) => output.extend(text.bytes(&self.numbers)?),
                Act::Wait(seconds) => {
                    self.send(&mut output);
                    std::thread::sleep(Duration::from_secs((*seconds).into()));
                }
                Act::Expect(expectation) => {
                    self.send(&mut output);
                    if !self.expect(expectation, step.line, played) {
                        return Ok(());
                    }
                }
                Act::Closed => {
                    self.send(&mut output);
                    ended = true;
                    if !self.closes() {
                        played.wrong = Some(self.wrong(step.line, "the connection closed"));
                        return Ok(());
                    }
                }
            }
        }
        if !ended {
            output.extend_from_slice(end.request);
            self.send(&mut output);
            let last = case.steps.last().map_or(0, |step| step.line);
            let parts = vec![Part::Bytes(end.reply.to_vec())];
            let end = Text { written: format!("{}, for nothing is left over", end.name), parts };
            if self.take(&end).is_none() {
                played.wrong = Some(self.wrong(last, &end.written));
            }
        }
        Ok(())
    }

    /// Sends; a server that does not take it shows in what it answers.
    fn send(&mut self, output: &mut Vec<u8>) {
        if !output.is_empty() {
            let _ = self.stream.write_all(output);
            output.clear();
        }
    }

    /// One expected line, or what memcached has instead; false if neither came.
    fn expect(&mut self, expected: &Expectation, line: usize, played: &mut Played) -> bool {
        if expected.anywhere {
            self.skip_to(&expected.text);
        }
        match self.peer.and_then(|peer| expected.instead(peer.mark)) {
            Some(lines) if lines.is_empty() => {
                if self.next(&expected.text, ABSENCE).is_some() {
                    played.stale.push(line);
                }
            }
            Some(lines) => {
                if *lines[0] != expected.text && self.next(&expected.text, PATIENCE).is_some() {
                    played.stale.push(line);
                    self.take(&expected.text);
                    return true;
                }
                for text in lines {
                    if self.take(text).is_none() {
                        played.wrong = Some(self.wrong(line, &text.written));
                        return false;
                    }
                }
            }
            None => {
                if self.take(&expected.text).is_none() {
                    played.wrong = Some(self.wrong(line, &expected.text.written));
                    return false;
                }
            }
        }
        played.lines += 1;
        true
    }

    /// Takes lines away until one matches; leaves all if none does.
    fn skip_to(&mut self, text: &Text) {
        let mut skipped = 0;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match text.compare(&self.input[skipped..], &self.numbers) {
                Compared::Same(..) => {
                    self.input.drain(..skipped);
                    return;
                }
                Compared::Open if self.fill(deadline) => {}
                Compared::Open => return,
                Compared::Differs => {
                    let next = self.input[skipped..].windows(2).position(|pair| pair == b"\r\n");
                    match next {
                        Some(at) => skipped += at + 2,
                        None if self.fill(deadline) => {}
                        None => return,
                    }
                }
            }
        }
    }

    /// Takes a line that matches off the input, and remembers its numbers.
    fn take(&mut self, text: &Text) -> Option<()> {
        let (length, found) = self.next(text, PATIENCE)?;
        self.numbers.extend(found);
        self.input.drain(..length);
        Some(())
    }

    /// How long the line that comes next is, and its numbers, if it matches.
    fn next(&mut self, text: &Text, patience: Duration) -> Option<(usize, Numbers)> {
        let deadline = Instant::now() + patience;
        loop {
            match text.compare(&self.input, &self.numbers) {
                Compared::Same(length, found) => return Some((length, found)),
                Compared::Open if self.fill(deadline) => {}
                Compared::Open | Compared::Differs => return None,
            }
        }
    }

    /// Reads what is there; false if nothing more comes before the deadline.
    fn fill(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        if self.closed || left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
            return false;
        }
        let held = self.input.len();
        self.input.resize(held + READ_BYTES, 0);
        let got = self.stream.read(&mut self.input[held..]);
        self.input.truncate(held + got.as_ref().copied().unwrap_or(0));
        match got {
            Ok(0) => self.closed = true,
            Ok(_) => return true,
            Err(e) if e.kind() == ErrorKind::Interrupted => return true,
            Err(e) => self.closed = matches!(e.kind(), ErrorKind::ConnectionReset),
        }
        false
    }

    fn closes(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        self.input.is_empty() && !self.fill(deadline) && self.closed
    }

    fn wrong(&self, line: usize, expected: &str) -> Wrong {
        const SHOWN_BYTES: usize = 100;
        let shown = &self.input[..self.input.len().min(SHOWN_BYTES)];
        let got = shown.escape_ascii().to_string();
        let expected = expected.chars().take(SHOWN_BYTES).collect();
        Wrong { line, expected, got, closed: self.closed }
    }
}

#[cfg(test)]
mod tests {
    use super::Wrong;

    #[test]
    fn only_digits_may_be_the_clock() {
        let may = |expected: &str, got: &str| {
            let (expected, got) = (expected.to_owned(), got.to_owned());
            Wrong { line: 1, expected, got, closed: false }.may_be_the_clock()
        };
        assert!(may("HD t30 c<NUM>", "HD t29 c77\\r\\nMN\\r\\n"));
        assert!(may("HD h1 l0 t-1", "HD h1 l1 t-1\\r\\n"));
        assert!(!may("HD t30", "NF\\r\\n"));
        assert!(!may("HD t30", "HD t-1\\r\\n"));
        assert!(!may("HD t30", ""));
    }
}
