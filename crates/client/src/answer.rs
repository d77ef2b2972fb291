//! Checks a whole reply message against the request that it answers: the length, the key and the
//! end must all agree before the client believes anything. The application checks the bytes of a
//! value.

use crate::error::{Error, Refusal};
use crate::request::{Command, Request};
use laneway_rdma::shmring::LyingReply;
use laneway_wire::StoreVerb;
use laneway_wire::answer::{self as line, parse_reply};
use laneway_wire::limits::VALUE_END_BYTES;
use laneway_wire::udp::Message;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A value, as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    /// Its bytes.
    pub data: Vec<u8>,
    /// What [`Request::flags`] gave it.
    pub flags: u32,
    /// Its CAS id, if [`Request::gets`] asked for it.
    pub cas: Option<u64>,
}

impl fmt::Debug for Value {
    /// Tells how long the value is, not what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value")
            .field("bytes", &self.data.len())
            .field("flags", &self.flags)
            .field("cas", &self.cas)
            .finish()
    }
}

/// What the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `get`, `gets`: it is there.
    Value(Value),
    /// There is no such item.
    Missing,
    /// Stored, deleted, touched.
    Done,
    /// `add`, `replace`, `append`, `prepend`: the condition did not hold.
    NotStored,
    /// `cas`: the id has changed.
    Exists,
    /// What `increment` or `decrement` made of the number.
    Number(u64),
    /// `stats`: names and values, in the server's order.
    Stats(Vec<(String, String)>),
}

/// The line of a value is not longer, whatever its key, flags, length and CAS id are.
const LINE_BYTES_MAX: usize = 512;

/// The reply is not one to this request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch;

/// Reads the reply to `request`.
pub(crate) fn read<M: Message + ?Sized>(
    request: &Request,
    reply: &M,
) -> Result<Result<Answer, Error>, Mismatch> {
    // A reply line lies within the first frame, and the first piece holds at least that.
    let first = if reply.message_bytes() == 0 { return Err(Mismatch) } else { reply.piece(0) };
    let frame = parse_reply(first).ok().flatten().ok_or(Mismatch)?;
    if let (line::Answer::Stat { .. }, Command::Stats) = (frame.answer, request.command) {
        return stats(&in_one(reply)).map(Ok);
    }
    if let line::Answer::Value(told) = frame.answer {
        let whole = (frame.head_bytes, reply.message_bytes());
        return value(request, told, whole, |range| copied(reply, range)).map(Ok);
    }
    if frame.head_bytes != reply.message_bytes() {
        return Err(Mismatch);
    }
    simple(request.command, frame.answer)
}

/// Reads the reply to `request` where it lies: of a value each byte is copied once. `None`: it is
/// not there any more.
pub(crate) fn read_lying(
    request: &Request,
    reply: &LyingReply<'_>,
) -> Option<Result<Result<Answer, Error>, Mismatch>> {
    let read = match find(request, reply) {
        Some((range, value)) => {
            let data = reply.copied(range);
            Ok(Ok(Answer::Value(Value { data, ..value })))
        }
        None => read(request, reply.copied(0..reply.bytes()).as_slice()),
    };
    reply.is_there().then_some(read)
}

/// Finds the value in the reply to `request` where it lies: which bytes of the reply it is, and a
/// value without its bytes. `None`: it is another reply, or not there any more.
pub(crate) fn find_lying(
    request: &Request,
    reply: &LyingReply<'_>,
) -> Option<(Range<usize>, Value)> {
    find(request, reply).filter(|_| reply.is_there())
}

/// The same of what may have been written over meanwhile.
fn find(request: &Request, reply: &LyingReply<'_>) -> Option<(Range<usize>, Value)> {
    let bytes = reply.bytes();
    let first = reply.copied(0..bytes.min(LINE_BYTES_MAX));
    let frame = parse_reply(&first).ok().flatten()?;
    let line::Answer::Value(told) = frame.answer else { return None };
    let found =
        place(request, told, (frame.head_bytes, bytes), |range| reply.copied(range)).ok()?;
    Some((found, Value { data: Vec::new(), flags: told.flags, cas: told.cas }))
}

/// Reads the reply to a `get` of several keys: what was found of those that were asked for; `None`
/// if the server refused to look.
pub(crate) fn read_several<M: Message + ?Sized>(
    reply: &M,
    is_asked: impl Fn(&[u8]) -> bool,
) -> Result<Option<BTreeMap<Vec<u8>, Value>>, Mismatch> {
    let whole = in_one(reply);
    let mut rest = &*whole;
    let mut found = BTreeMap::new();
    loop {
        let frame = parse_reply(rest).ok().flatten().ok_or(Mismatch)?;
        let behind = &rest[frame.head_bytes..];
        match frame.answer {
            line::Answer::Value(told) if told.cas.is_none() && is_asked(told.key) => {
                let (data, end) = behind.split_at_checked(told.value_bytes).ok_or(Mismatch)?;
                rest = end.strip_prefix(b"\r\n").ok_or(Mismatch)?;
                let value = Value { data: data.to_vec(), flags: told.flags, cas: None };
                found.insert(told.key.to_vec(), value);
            }
            line::Answer::End if behind.is_empty() => return Ok(Some(found)),
            answer if answer.is_error() && found.is_empty() && behind.is_empty() => {
                return Ok(None);
            }
            _ => return Err(Mismatch),
        }
    }
}

/// Replies of one line.
fn simple(command: Command, answer: line::Answer<'_>) -> Result<Result<Answer, Error>, Mismatch> {
    use line::Answer as Line;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ok(match (answer, command) {
        (Line::Error(why), _) => return Ok(Err(Error::Refused(Refusal::Unknown(text(why))))),
        (Line::ClientError(why), _) => return Ok(Err(Error::Refused(Refusal::Client(text(why))))),
        (Line::ServerError(why), _) => return Ok(Err(Error::Refused(Refusal::Server(text(why))))),
        (Line::End, Command::Get { .. }) => Answer::Missing,
        (Line::End, Command::Stats) => Answer::Stats(Vec::new()),
        (Line::Reset | Line::Ok, Command::Stats) => Answer::Done,
        (Line::Stored, Command::Store(_)) => Answer::Done,
        (Line::NotStored, Command::Store(verb)) if verb != StoreVerb::Set => Answer::NotStored,
        (Line::Exists, Command::Store(StoreVerb::Cas(_))) => Answer::Exists,
        (Line::NotFound, Command::Store(StoreVerb::Cas(_))) => Answer::Missing,
        (Line::NotFound, Command::Delete | Command::Touch | Command::Arith { .. }) => {
            Answer::Missing
        }
        (Line::Deleted, Command::Delete) | (Line::Touched, Command::Touch) => Answer::Done,
        (Line::Number(number), Command::Arith { .. }) => Answer::Number(number),
        _ => return Err(Mismatch),
    }))
}

/// A value behind its line, of a reply of which both lengths are given.
fn value(
    request: &Request,
    told: line::Value<'_>,
    lengths: (usize, usize),
    copied: impl Fn(Range<usize>) -> Vec<u8>,
) -> Result<Answer, Mismatch> {
    let data = copied(place(request, told, lengths, &copied)?);
    Ok(Answer::Value(Value { data, flags: told.flags, cas: told.cas }))
}

/// Where its bytes are, if all around them is right.
fn place(
    request: &Request,
    told: line::Value<'_>,
    (head_bytes, reply_bytes): (usize, usize),
    copied: impl Fn(Range<usize>) -> Vec<u8>,
) -> Result<Range<usize>, Mismatch> {
    const END: &[u8] = b"\r\nEND\r\n";
    const _: () = assert!(END.len() > VALUE_END_BYTES);
    let Command::Get { with_cas } = request.command else { return Err(Mismatch) };
    let end = head_bytes.checked_add(told.value_bytes).ok_or(Mismatch)?;
    let fits = told.key == request.key() && told.cas.is_some() == with_cas;
    if !fits || end.checked_add(END.len()) != Some(reply_bytes) {
        return Err(Mismatch);
    }
    if copied(end..reply_bytes) != END {
        return Err(Mismatch);
    }
    Ok(head_bytes..end)
}

fn stats(reply: &[u8]) -> Result<Answer, Mismatch> {
    let mut rest = reply;
    let mut all = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    loop {
        let frame = parse_reply(rest).ok().flatten().ok_or(Mismatch)?;
        rest = &rest[frame.head_bytes..];
        match frame.answer {
            line::Answer::Stat { name, value } => all.push((text(name), text(value))),
            line::Answer::End if rest.is_empty() => return Ok(Answer::Stats(all)),
            _ => return Err(Mismatch),
        }
    }
}

/// All of a message in one piece of memory: where it lies, if it is in one.
fn in_one<M: Message + ?Sized>(message: &M) -> Cow<'_, [u8]> {
    let bytes = message.message_bytes();
    let piece: &[u8] = if bytes == 0 { &[] } else { message.piece(0) };
    match piece.get(..bytes) {
        Some(whole) => Cow::Borrowed(whole),
        None => Cow::Owned(copied(message, 0..bytes)),
    }
}

/// A range of a message in one piece of memory.
fn copied<M: Message + ?Sized>(message: &M, range: Range<usize>) -> Vec<u8> {
    let mut out = Vec::with_capacity(range.len());
    while out.len() < range.len() {
        let piece = message.piece(range.start + out.len());
        let wanted = range.len() - out.len();
        out.extend_from_slice(&piece[..piece.len().min(wanted)]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Expiry;
    use laneway_wire::udp::Parts;

    fn check(request: &Request, reply: &[u8]) -> Result<Answer, String> {
        match read(request, reply) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(Mismatch) => Err("mismatch".into()),
        }
    }

    #[test]
    fn a_value_is_believed_only_whole_and_under_its_key() {
        let get = Request::get("k");
        let value =
            |data: &[u8], flags, cas| Ok(Answer::Value(Value { data: data.to_vec(), flags, cas }));
        assert_eq!(check(&get, b"VALUE k 7 3\r\nabc\r\nEND\r\n"), value(b"abc", 7, None));
        assert_eq!(check(&get, b"VALUE k 0 0\r\n\r\nEND\r\n"), value(b"", 0, None));
        assert_eq!(check(&get, b"END\r\n"), Ok(Answer::Missing));
        let gets = Request::gets("k");
        assert_eq!(check(&gets, b"VALUE k 0 1 9\r\nx\r\nEND\r\n"), value(b"x", 0, Some(9)));
        for bad in [
            &b"VALUE other 7 3\r\nabc\r\nEND\r\n"[..],
            b"VALUE k 7 4\r\nabc\r\nEND\r\n",
            b"VALUE k 7 2\r\nabc\r\nEND\r\n",
            b"VALUE k 7 3\r\nabcdeEND\r\n",
            b"VALUE k 7 3\r\nabc\r\n",
            b"VALUE k 7 3\r\nabc\r\nEND\r\nEND\r\n",
            b"VALUE k 7 3 1\r\nabc\r\nEND\r\n",
            b"VALUE k 7 99999999999999999999\r\n",
            b"STORED\r\n",
            b"END",
            b"",
            b"END\r\nmore",
        ] {
            let told = String::from_utf8_lossy(bad);
            assert_eq!(check(&get, bad), Err("mismatch".into()), "{told:?}");
        }
    }

    #[test]
    fn lines_answer_only_the_commands_that_have_them() {
        let lines: [&[u8]; 8] = [
            b"STORED\r\n",
            b"NOT_STORED\r\n",
            b"EXISTS\r\n",
            b"NOT_FOUND\r\n",
            b"DELETED\r\n",
            b"TOUCHED\r\n",
            b"18\r\n",
            b"END\r\n",
        ];
        let (done, missing, not_stored) = (Answer::Done, Answer::Missing, Answer::NotStored);
        // Every line that answers a command, and how; no other does.
        let known: [(Request, &[(usize, &Answer)]); 10] = [
            (Request::set("k", "v"), &[(0, &done)]),
            (Request::add("k", "v"), &[(0, &done), (1, &not_stored)]),
            (Request::append("k", "v"), &[(0, &done), (1, &not_stored)]),
            (
                Request::cas("k", "v", 3),
                &[(0, &done), (1, &not_stored), (2, &Answer::Exists), (3, &missing)],
            ),
            (Request::delete("k"), &[(3, &missing), (4, &done)]),
            (Request::touch("k", Expiry::Never), &[(3, &missing), (5, &done)]),
            (Request::increment("k", 1), &[(3, &missing), (6, &Answer::Number(18))]),
            (Request::get("k"), &[(7, &missing)]),
            (Request::gets("k"), &[(7, &missing)]),
            (Request::stats(""), &[(7, &Answer::Stats(Vec::new()))]),
        ];
        for (request, answers) in &known {
            for (at, line) in lines.iter().enumerate() {
                let told = check(request, line);
                let expected = answers.iter().find(|(answered, _)| *answered == at);
                let expected = expected.map(|(_, answer)| *answer);
                assert_eq!(told.as_ref().ok(), expected, "{request:?}: {told:?} to line {at}");
            }
        }
        let refused = check(&Request::set("k", "v"), b"SERVER_ERROR out of memory\r\n");
        assert_eq!(refused, Err("the server refused: SERVER_ERROR out of memory".into()));
    }

    #[test]
    fn a_reply_of_one_datagram_is_read_where_it_lies() {
        let reply = b"VALUE k 0 1\r\nx\r\nEND\r\n".as_slice();
        assert!(matches!(in_one(reply), Cow::Borrowed(whole) if whole == reply));
        let parts = Parts { head: b"VALUE k 0 1\r\n", body: b"x".as_slice(), tail: b"\r\nEND\r\n" };
        assert_eq!(&*in_one(&parts), reply);
        assert!(in_one(b"".as_slice()).is_empty());
    }

    #[test]
    fn statistics_end_where_they_say() {
        let request = Request::stats("topology");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let told = check(&request, b"STAT queues 2\r\nSTAT hash owner-1\r\nEND\r\n");
        let stats = vec![pair("queues", "2"), pair("hash", "owner-1")];
        assert_eq!(told, Ok(Answer::Stats(stats)));
        for bad in [&b"STAT queues 2\r\n"[..], b"STAT queues 2\r\nEND\r\nmore\r\n"] {
            assert_eq!(check(&request, bad), Err("mismatch".into()));
        }
    }
}
