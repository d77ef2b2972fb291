//! The reader of scripts: what it makes of each kind of line, and what it refuses.

use crate::script::{Act, Part, read};

#[test]
fn every_kind_of_line_is_read() {
    let text = "# c\n\n== a\n$ cas=off live=no\n> get <a*3>\n>> \\r\\x00\\0\n< VALUE <CAS:id>\n\
                ~ END -- because\n~ -- and no more\n~1.6.18 OK -- was\n<~ STAT <NUM> <ANY>\n\
                + 2\n! closed\n";
    let cases = read("f.txt", text).expect("a good script");
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].id, "f.txt: a");
    assert_eq!(cases[0].conditions, ["cas=off", "live=no"]);
    let Act::Send(text) = &cases[0].steps[0].act else { panic!("not a send") };
    assert_eq!(text.parts, [Part::Bytes(b"get aaa".to_vec()), Part::Bytes(b"\r\n".to_vec())]);
    let Act::Send(text) = &cases[0].steps[1].act else { panic!("not a send") };
    assert_eq!(text.parts, [Part::Bytes(b"\r\0\0".to_vec())]);
    let Act::Expect(expectation) = &cases[0].steps[2].act else { panic!("not expected") };
    assert_eq!(expectation.text.parts[1], Part::Cas("id".into(), 0));
    assert_eq!(expectation.instead("1.6.45").map(|lines| lines.len()), Some(1));
    assert_eq!(expectation.instead("1.6.18").map(|lines| lines.len()), Some(2));
    assert_eq!(cases[0].steps.len(), 6);
}

#[test]
fn a_difference_without_a_line_stands_for_none() {
    let cases = read("f.txt", "== a\n< x\n~ -- no value\n").expect("a good script");
    let Act::Expect(expectation) = &cases[0].steps[0].act else { panic!("not expected") };
    assert_eq!(expectation.instead("1.6.45"), Some(Vec::new()));
}

#[test]
fn a_difference_of_one_version_is_none_of_another() {
    let cases = read("f.txt", "== a\n< x\n~1.6.18 y -- older\n").expect("a good script");
    let Act::Expect(expectation) = &cases[0].steps[0].act else { panic!("not expected") };
    assert_eq!(expectation.instead("1.6.18").map(|lines| lines.len()), Some(1));
    assert_eq!(expectation.instead("1.6.45"), None);
}

#[test]
fn what_is_no_script_is_refused_with_its_line() {
    for bad in
        ["> a", "== a\n? b", "== a\n> a\n~ b -- c", "== a\n< b\n~ c", "== a\n== a", "== a\n> \\q"]
    {
        let why = read("f.txt", bad).expect_err(bad);
        assert!(why.starts_with("f.txt:"), "{why}");
    }
}

#[test]
fn words_are_sent_as_a_request_of_resp() {
    let cases = read("f.txt", "== a\n*> SET a\\x20b \"\" <x*3>\n").expect("a good script");
    let Act::Send(text) = &cases[0].steps[0].act else { panic!("not a send") };
    let wanted = b"*4\r\n$3\r\nSET\r\n$3\r\na b\r\n$0\r\n\r\n$3\r\nxxx\r\n";
    assert_eq!(text.parts, [Part::Bytes(wanted.to_vec())]);
    assert!(read("f.txt", "== a\n*> GET <NUM>\n").is_err(), "a number cannot be sent");
}
