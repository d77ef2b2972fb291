use super::*;
use crate::auth::gate::Auth;
use crate::auth::users::Users;
use crate::counts::counters::{StatsRegistry, Totals};
use crate::execute::VERSION;
use laneway_wire::binary::Echo;
use laneway_wire::binary::print::put_parts;
use laneway_wire::binary::reply::{Status, put};

const BESIDE: Beside = Beside { resp: true, binary: true };
const ALICE: &[u8] = b"set a 0 0 12\r\nalice secret\r\n";

/// What a connection is told that sends these pieces, one at a time, with what is left of them
/// before the next; what became of it; what was not consumed; and what was counted.
fn told(unproven: &mut Unproven, pieces: &[&[u8]]) -> (String, &'static str, String, Totals) {
    let users = Users::read("alice:secret\nbob:two:colons and blanks").expect("users");
    let (auth, board) = (Auth::new(users, 1), StatsRegistry::new(1));
    let door = Door {
        auth: &auth,
        peer: "tcp:10.0.0.1:5000",
        number: 7,
        now_seconds: 100,
        counters: board.worker(0),
    };
    let (mut out, mut input) = (Vec::new(), Vec::new());
    let mut end = "more";
    for piece in pieces {
        input.extend_from_slice(piece);
        let (taken, outcome) = unproven.hear(&input, (&door, BESIDE), &mut out);
        input.drain(..taken);
        end = match outcome {
            Outcome::More => "more",
            Outcome::Close => "close",
            Outcome::Proven(Dialect::Memcached) => "memcached",
            Outcome::Proven(Dialect::Resp(_)) => "resp",
            Outcome::Proven(Dialect::Binary) => "binary",
            Outcome::Proven(_) => "neither",
        };
        if end != "more" {
            break;
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", "|");
    (text(&out), end, text(&input), board.totals())
}

/// The same, whole and cut at each place.
fn check(new: fn() -> Box<Unproven>, input: &[u8], words: &str, end: &str, left: &str) {
    let shown = input[..input.len().min(60)].escape_ascii();
    let whole = told(&mut new(), &[input]);
    let told_of = (&*whole.0, whole.1, &*whole.2);
    assert_eq!(told_of, (words, end, left), "{shown}");
    if input.len() > 200 {
        return;
    }
    for cut in 1..input.len() {
        let (said, became, ..) = told(&mut new(), &[&input[..cut], &input[cut..]]);
        assert_eq!((&*said, became), (words, end), "{shown}, cut at {cut}");
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    let (said, became, ..) = told(&mut new(), &bytes);
    assert_eq!((&*said, became), (words, end), "{shown}, byte by byte");
}

fn both() -> Box<Unproven> {
    Unproven::new(Spoken::Undecided)
}

#[test]
fn memcacheds_first_request_is_a_set_with_user_and_password() {
    const NOT_YET: &str = "CLIENT_ERROR unauthenticated|";
    const FAILED: &str = "CLIENT_ERROR authentication failure|";
    const FORM: &str = "CLIENT_ERROR bad authentication token format|";
    const END: &str = "CLIENT_ERROR bad command line termination|";
    for (input, words, end, left) in [
        (ALICE, "STORED|", "memcached", ""),
        (b"set a 0 0 12\r\nalice secret\r\nget k\r\n", "STORED|", "memcached", "get k|"),
        (b"set a x y 12 noreply more\r\nalice secret\r\n", "STORED|", "memcached", ""),
        (b"set  a  0  0  12\r\nalice secret\r\n", "STORED|", "memcached", ""),
        (b"set a 0 0 25\r\nbob two:colons and blanks\r\n", "STORED|", "memcached", ""),
        (b"get k\r\n", NOT_YET, "more", ""),
        (b"version\r\n", NOT_YET, "more", ""),
        (b"\r\n", "", "more", ""),
        (b"quit\r\n", "", "close", ""),
        (b"set a 0 0\r\n", NOT_YET, "more", ""),
        (b"set a 0 0 x\r\n", NOT_YET, "more", ""),
        (b"set a 0 0 -1\r\n", NOT_YET, "more", ""),
        (b"set a 0 0 +12\r\n", NOT_YET, "more", ""),
        (b"set a 0 0 99999999999999999999\r\n", NOT_YET, "more", ""),
        (b" set a 0 0 12\r\n", NOT_YET, "more", ""),
        (b"SET a 0 0 12\r\n", NOT_YET, "more", ""),
        (b"ms a 12\r\n", NOT_YET, "more", ""),
        (b"set a 0 0 11\r\nalice wrong\r\n", FAILED, "more", ""),
        (b"set a 0 0 12\r\nALICE secret\r\n", FAILED, "more", ""),
        (b"set a 0 0 18\r\nalice secret extra\r\n", FAILED, "more", ""),
        (b"set a 0 0 13\r\nalice  secret\r\n", FAILED, "more", ""),
        (b"set a 0 0 14\r\n  alice secret\r\n", FAILED, "more", ""),
        (b"set a 0 0 27\r\nbob:two colons:and blanks x\r\n", FAILED, "more", ""),
        (b"set a 0 0 5\r\nalice\r\n", FORM, "more", ""),
        (b"set a 0 0 0\r\n\r\n", FORM, "more", ""),
        (b"set a 0 0 12\r\nalice secretXX", END, "more", ""),
        (
            b"set a 0 0 11\r\nalice wrong\r\nget k\r\nset a 0 0 12\r\nalice secret\r\n",
            "CLIENT_ERROR authentication failure|CLIENT_ERROR unauthenticated|STORED|",
            "memcached",
            "",
        ),
        (b"set a 0 0 2049\r\n", FORM, "close", ""),
        (&[b'x'; 2048], "", "more", &"x".repeat(2048)),
        (&[b'x'; 2049], "", "close", ""),
        (b"\x80\x00\x00\x00", "", "more", "\u{fffd}\0\0\0"),
    ] {
        check(both, input, words, end, left);
        check(|| Unproven::new(Spoken::Memcached), input, words, end, left);
    }
    // RESP is no protocol where it is not spoken.
    check(|| Unproven::new(Spoken::Memcached), b"*1\r\n", NOT_YET, "more", "");
}

#[test]
fn resp_asks_auth_or_hello_and_nothing_else_before_it() {
    const NO_AUTH: &str = "-NOAUTH Authentication required.|";
    const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.|";
    for (input, words, end, left) in [
        (&b"AUTH alice secret\r\n"[..], "+OK|", "resp", ""),
        (b"*3\r\n$4\r\nAUTH\r\n$5\r\nalice\r\n$6\r\nsecret\r\nPING\r\n", "+OK|", "resp", "PING|"),
        (b"AUTH bob \"two:colons and blanks\"\r\n", "+OK|", "resp", ""),
        (b"PING\r\n", NO_AUTH, "more", ""),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", NO_AUTH, "more", ""),
        (b"*1\r\n$5\r\nMULTI\r\n", NO_AUTH, "more", ""),
        (
            b"*1\r\n$4\r\nNOPE\r\n",
            "-ERR unknown command 'NOPE', with args beginning with: |",
            "more",
            "",
        ),
        (b"AUTH\r\n", "-ERR wrong number of arguments for 'auth' command|", "more", ""),
        (b"AUTH alice wrong\r\n", WRONG, "more", ""),
        (b"AUTH secret\r\n", WRONG, "more", ""),
        (b"AUTH default secret\r\n", WRONG, "more", ""),
        (b"HELLO 3 AUTH alice wrong\r\n", WRONG, "more", ""),
        (b"HELLO 4 AUTH alice secret\r\n", "-NOPROTO unsupported protocol version|", "more", ""),
        (b"*1\r\n$4\r\nQUIT\r\n", "+OK|", "close", ""),
        (b"*1\r\n$5\r\nRESET\r\n", "+RESET|", "more", ""),
        (b"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length|", "close", ""),
        (
            b"*2\r\n$3\r\nGET\r\n$16385\r\n",
            "-ERR Protocol error: unauthenticated bulk length|",
            "close",
            "",
        ),
        (b"*1\r\nx", "-ERR Protocol error: expected '$', got 'x'|", "close", ""),
    ] {
        check(both, input, words, end, left);
        check(Unproven::resp, input, words, end, left);
    }
    let (said, end, ..) =
        told(&mut both(), &[b"HELLO 3\r\nHELLO 3 AUTH alice secret SETNAME me\r\n"]);
    assert!(said.starts_with("-NOAUTH HELLO must be called"), "{said}");
    assert!(said.contains("|%7|") && said.contains("$2|id|:7|"), "{said}");
    assert_eq!(end, "resp");
}

/// A request of the binary protocol: opcode, key and value.
fn binary(opcode: u8, key: &str, value: &str) -> Vec<u8> {
    let (mut request, echo) = (Vec::new(), Echo { opcode, opaque: *b"1234" });
    put_parts(&mut request, echo, 0, (b"", key.as_bytes(), value.as_bytes()));
    request
}

/// Its reply: opcode, status and text.
fn replied(opcode: u8, status: Status, text: &[u8]) -> String {
    let mut reply = Vec::new();
    put(&mut reply, Echo { opcode, opaque: *b"1234" }, status, b"", text);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn sasl_says_who_a_client_of_the_binary_protocol_is() {
    let auth = |value: &str| binary(0x21, "PLAIN", value);
    let right = || replied(0x21, Status::Done, b"Authenticated");
    let wrong = |opcode| replied(opcode, Status::Refused, b"Auth failure.");
    let get = binary(0x00, "k", "");
    let proven = [auth("\0alice\0secret"), get.clone()].concat();
    for (input, words, end, left) in [
        (auth("\0alice\0secret"), right(), "binary", ""),
        (auth("alice\0alice\0secret"), right(), "binary", ""),
        (auth("\0bob\0two:colons and blanks"), right(), "binary", ""),
        (proven, right(), "binary", &*String::from_utf8_lossy(&get)),
        (auth("bob\0alice\0secret"), wrong(0x21), "more", ""),
        (auth("\0alice\0secre"), wrong(0x21), "more", ""),
        (auth("\0alice\0secret\0"), wrong(0x21), "more", ""),
        (auth("alice secret"), wrong(0x21), "more", ""),
        (binary(0x21, "CRAM-MD5", "x"), wrong(0x21), "more", ""),
        (binary(0x22, "PLAIN", "\0alice\0secret"), wrong(0x22), "more", ""),
        (
            [auth(""), binary(0x22, "PLAIN", "\0alice\0secret")].concat(),
            replied(0x21, Status::GoesOn, b"") + &replied(0x22, Status::Done, b"Authenticated"),
            "binary",
            "",
        ),
        (
            [auth(""), auth("\0x\0y"), binary(0x22, "PLAIN", "\0alice\0secret")].concat(),
            replied(0x21, Status::GoesOn, b"") + &wrong(0x21) + &wrong(0x22),
            "more",
            "",
        ),
        (binary(0x20, "", ""), replied(0x20, Status::Done, b"PLAIN"), "more", ""),
        (binary(0x0b, "", ""), replied(0x0b, Status::Done, VERSION.as_bytes()), "more", ""),
        (binary(0x07, "", ""), replied(0x07, Status::Done, b""), "close", ""),
        (get.clone(), wrong(0x00), "close", ""),
        (binary(0x0a, "", ""), wrong(0x0a), "close", ""),
        (binary(0x77, "", "x"), wrong(0x77), "close", ""),
        (auth(&"x".repeat(768)), replied(0x21, Status::Invalid, b"Invalid arguments"), "close", ""),
    ] {
        let words = words.replace("\r\n", "|");
        check(Unproven::binary, &input, &words, end, left);
        check(both, &input, &words, end, left);
    }
    let many = binary(0x20, "", "").repeat(100);
    let (said, end, ..) = told(&mut both(), &[&many]);
    assert_eq!((said.matches("PLAIN").count(), end), (REFUSED_MAX as usize, "close"));
}

#[test]
fn each_refusal_is_counted_by_its_cause_and_there_are_not_many() {
    let counts = |input: &[u8]| {
        let (.., end, _, totals) = told(&mut both(), &[input]);
        let Totals { auth_cmds, auth_errors, auth_limited, auth_malformed, auth_missing, .. } =
            totals;
        (end, [auth_cmds, auth_errors, auth_limited, auth_malformed, auth_missing])
    };
    assert_eq!(counts(ALICE), ("memcached", [1, 0, 0, 0, 0]));
    assert_eq!(counts(b"set a 0 0 11\r\nalice wrong\r\n"), ("more", [1, 1, 0, 0, 0]));
    assert_eq!(counts(b"set a 0 0 1\r\nx\r\n"), ("more", [0, 0, 0, 1, 0]));
    assert_eq!(counts(b"get k\r\n"), ("more", [0, 0, 0, 0, 1]));
    assert_eq!(counts(b"HELLO\r\nPING\r\n"), ("more", [0, 0, 0, 0, 2]));
    let many = b"get k\r\n".repeat(100);
    assert_eq!(counts(&many), ("close", [0, 0, 0, 0, REFUSED_MAX.into()]));
    let resets = b"RESET\r\n".repeat(100);
    assert_eq!(counts(&[b"PING\r\n", &resets[..]].concat()), ("close", [0, 0, 0, 0, 1]));
}

#[test]
fn nothing_that_comes_breaks_it_or_lets_it_in() {
    let words: [&[u8]; 14] = [
        b"set ", b"a 0 0 ", b"5\r\n", b"alice ", b"secret", b"\r\n", b"*", b"2\r\n", b"$4\r\n",
        b"AUTH", b"HELLO", b" ", b"\0\xff", b"-1",
    ];
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let pieces: Vec<&[u8]> =
            (0..random.usize(1..24)).map(|_| *random.choice(&words).expect("some")).collect();
        let sent = pieces.concat();
        let knows = sent.windows(12).any(|window| window == b"alice secret");
        let (said, end, left, _) = told(&mut both(), &pieces);
        let again = format!("seed {seed}: {}: {said}", sent.escape_ascii());
        assert!(knows || !["memcached", "resp", "neither"].contains(&end), "{again}");
        assert!(left.len() <= 2 * sent.len() + 2, "{again}");
    }
}
