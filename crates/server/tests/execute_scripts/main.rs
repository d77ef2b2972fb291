//! Runs the protocol scripts (`tests/scripts`, see its README) against parser, execution and store,
//! without a socket: the input comes whole, and in pieces of several sizes.

mod reading;
mod script;
mod session;

use script::{Act, Case, Expectation};
use session::{Delivery, Session};
use std::path::{Path, PathBuf};

/// How the input arrives: a value that lies whole in the input and one that streams in are stored
/// by different ways and must come out the same.
const DELIVERIES: [Delivery; 3] = [Delivery::Whole, Delivery::Pieces(4096), Delivery::Pieces(7)];

/// Values in pieces of a few bytes are slow where they are large, and prove nothing more.
const SENT_BYTES_MAX_IN_SMALL_PIECES: usize = 100_000;

fn run(case: &Case, delivery: Delivery) -> Result<(), String> {
    let mut session = Session::new(case, delivery);
    let mut numbers = script::Numbers::new();
    // Where the reply to the lines since the last send begins to be looked at.
    let mut seen = 0;
    let mut looking = false;
    for step in &case.steps {
        let at = |what: String| format!("{} (line {}): {what}", case.id, step.line);
        match &step.act {
            Act::Send(text) => {
                if looking && seen < session.out.len() {
                    let left = String::from_utf8_lossy(&session.out[seen..]).into_owned();
                    return Err(at(format!("before this, the server also said {left:?}")));
                }
                looking = false;
                let bytes = text.bytes(&numbers).map_err(at)?;
                session.send(&bytes);
            }
            Act::Expect(Expectation { text, anywhere, .. }) => {
                looking = true;
                let out = &session.out[seen..];
                match text.find(out, *anywhere, &mut numbers) {
                    Some(taken) => seen += taken,
                    None => {
                        let got = String::from_utf8_lossy(&out[..out.len().min(300)]).into_owned();
                        return Err(at(format!("expected `{}`, got {got:?}", text.written)));
                    }
                }
            }
            Act::Wait(seconds) => session.pass(*seconds),
            Act::Closed => {
                if !session.closed {
                    return Err(at("the connection is still open".to_owned()));
                }
            }
        }
    }
    if seen < session.out.len() {
        let left = String::from_utf8_lossy(&session.out[seen..]).into_owned();
        return Err(format!("{}: left over: {left:?}", case.id));
    }
    Ok(())
}

fn check(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(file);
    let cases = script::read_file(&path).expect("a good script");
    assert!(!cases.is_empty(), "{file} holds no case");
    let mut failures = Vec::new();
    for case in &cases {
        for delivery in DELIVERIES {
            let small = matches!(delivery, Delivery::Pieces(size) if size < 1000);
            if small && case.sent_bytes() > SENT_BYTES_MAX_IN_SMALL_PIECES {
                continue;
            }
            if let Err(what) = run(case, delivery) {
                failures.push(format!("{} ({delivery:?}): {what}", case.id));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(concat!(stringify!($name), ".txt"));
        })*

        const SCRIPTS: &[&str] = &[$(concat!(stringify!($name), ".txt")),*];
    };
}

scripts! {
    admin arithmetic delete_touch errors expiry meta_arith meta_delete meta_get meta_set retrieval
    stats storage
}

#[test]
fn every_script_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let run: Vec<PathBuf> = SCRIPTS.iter().map(|file| folder.join(file)).collect();
    assert_eq!(script::files(&folder).expect("the scripts' folder"), run);
}

/// Shortest thing that can be called a reason, bytes.
const REASON_BYTES_MIN: usize = 6;

#[test]
fn differences_from_memcached_have_reasons() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut differences = 0;
    for file in SCRIPTS {
        let text = std::fs::read_to_string(folder.join(file)).expect("a script");
        let mut above = "";
        for (index, line) in text.lines().enumerate() {
            let reason = if line.starts_with('~') {
                line.split_once("-- ").map_or("", |(_, reason)| reason)
            } else if line.starts_with("$ since=") {
                above.strip_prefix("# ").unwrap_or("")
            } else {
                above = line;
                continue;
            };
            differences += 1;
            assert!(reason.len() >= REASON_BYTES_MIN, "{file}:{}: no reason", index + 1);
            above = line;
        }
    }
    assert!(0 < differences, "`cargo xtask replay` counts them for each version");
}

#[test]
fn a_wrong_reply_fails_a_case() {
    for (text, what) in [
        ("== a\n> get k\n< VALUE k 0 1", "expected"),
        ("== a\n> get k\n< END\n< END", "expected"),
        ("== a\n> get k\n> get k\n< END\n> mn\n< MN", "also said"),
        ("== a\n> get k", "left over"),
        ("== a\n> get k\n<~ OTHER", "expected"),
        ("== a\n> ms k 1 c\n> a\n< HD c<CAS:x>\n> ms k 1 c\n> a\n< HD c<CAS:x>", "expected"),
        ("== a\n> mn\n< MN\n! closed", "still open"),
    ] {
        let cases = script::read("test", text).expect("a good script");
        let failure = run(&cases[0], Delivery::Whole).expect_err(text);
        assert!(failure.contains(what), "{text}: {failure}");
    }
}
