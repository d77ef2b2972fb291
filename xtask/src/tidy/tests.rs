//! Each rule finds a planted violation, and leaves alone what only looks like one.

use super::{Source, Tree, findings};

/// The rules that complain about these files.
fn rules(files: &[(&str, &str)]) -> Vec<&'static str> {
    let files = files.iter().map(|(path, text)| Source::new(*path, *text)).collect();
    let found = findings(&Tree { files });
    let mut rules: Vec<&str> = found.into_iter().map(|finding| finding.rule).collect();
    rules.dedup();
    rules
}

#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    assert_eq!(rules(&[(path, text)]), expected, "{path}: {text}");
}

#[test]
fn figures_are_those_of_the_records() {
    // No record, and no place for a table; what the table says is tested where it is made.
    check("README.md", "# Laneway\n", &["figures"]);
    check("docs/README.md", "# Laneway\n", &[]);
}

#[test]
fn a_drawing_is_what_its_text_makes() {
    let text = "title \"A\"\ndesc \"B\"\ntext 1 1 \"c\"\n";
    let made = crate::drawings::svg(text).expect("a drawing");
    let source = ("docs/drawings/a.txt", text);
    assert_eq!(rules(&[source, ("docs/drawings/a.svg", &made)]), [""; 0]);
    assert_eq!(rules(&[source, ("docs/drawings/a.svg", &made.replace('c', "d"))]), ["drawing"]);
    assert_eq!(rules(&[source]), ["drawing"]);
    check("docs/drawings/a.svg", &made, &["drawing"]);
    check("docs/drawings/a.txt", "circle\n", &["drawing"]);
}

#[test]
fn what_stands_in_comments_and_literals_is_no_code() {
    let check = |text: &str, expected: &[&str]| check("crates/server/src/a.rs", text, expected);
    check("// thread::spawn\nconst A: &str = \"thread::spawn\";", &[]);
    check("const A: &str = r#\"a \" thread::spawn\"#;", &[]);
    check("/* a /* b */ thread::spawn */ fn f() {}", &[]);
    check("const A: char = '\"'; fn f() { thread::spawn(g) }", &["thread"]);
    check("const A: char = '\\''; fn f() { thread::spawn(g) }", &["thread"]);
    check("fn f<'a>(x: &'a str) { thread::spawn(g) }", &["thread"]);
}

#[test]
fn what_is_no_rust_is_told() {
    check("crates/server/src/a.rs", "fn f() {", &["tokens"]);
    check("crates/server/src/a.rs", "const A: &str = \"f", &["tokens"]);
    check("docs/a.txt", "fn f() {", &[]);
}

#[test]
fn threads_start_at_boot_and_tests_never_sleep() {
    check("crates/server/src/worker.rs", "fn f() { std::thread::spawn(g); }", &["thread"]);
    check("crates/server/src/worker.rs", "fn f() { thread::sleep(d); }", &["thread"]);
    check("crates/server/src/boot.rs", "fn f() { std::thread::spawn(g); }", &[]);
    check("crates/store/tests/many.rs", "fn f() { std::thread::scope(g); }", &[]);
    check("crates/store/tests/many.rs", "fn f() { std::thread::sleep(d); }", &["sleep"]);
    let inline = "#[cfg(test)]\nmod tests {\n    fn f() { std::thread::sleep(d); }\n}";
    check("crates/load/src/a.rs", inline, &["sleep"]);
}

#[test]
fn no_test_is_ignored() {
    check("crates/server/tests/a.rs", "#[test]\n#[ignore]\nfn f() {}", &["ignored"]);
    check("crates/server/tests/a.rs", "#[ignore = \"slow\"]\nfn f() {}", &["ignored"]);
    check("crates/server/tests/a.rs", "// #[ignore]\nfn f() {}", &[]);
}

#[test]
fn no_text_names_a_folder_of_this_machine() {
    let path = concat!("see /wo", "rk/main/x");
    check("docs/a.md", path, &["machine-path"]);
    check("docs/a.md", concat!("see net/wo", "rk/main"), &[]);
    check("docs/a.md", concat!("cd /ro", "ot/x"), &["machine-path"]);
}

#[test]
fn a_link_leads_to_a_file_and_a_heading() {
    let other = "# One *two*\n```sh\n# no heading\n```\n## One two\n### `a_b` (c), d\n";
    for (target, is_there) in [
        ("b.md", true),
        ("./b.md#one-two", true),
        ("b.md#one-two-1", true),
        ("b.md#a_b-c-d", true),
        ("../docs/b.md", true),
        ("#here", true),
        ("..", true),
        ("https://example.org/no.md#no", true),
        ("b.md#one-two-2", false),
        ("b.md#no-heading", false),
        ("#there", false),
        ("no.md", false),
        ("docs/b.md", false),
    ] {
        let page = format!("# Here\nSee [`this`]({target}) and `[that](no.md)`.\n");
        let expected: &[&str] = if is_there { &[] } else { &["link"] };
        assert_eq!(rules(&[("docs/a.md", &page), ("docs/b.md", other)]), expected, "{target}");
    }
    check("docs/a.md", "```text\n[a](no.md)\n```\n[a](no.md)\n", &["link"]);
}

#[test]
fn a_page_names_tasks_that_there_are() {
    check("docs/a.md", "`cargo xtask tidy`, `cargo xtask\nbench ID`, `cargo xtask TASK`", &[]);
    check("docs/a.md", "`cargo xtask` and `cargo xtask --help`", &[]);
    check("docs/a.md", "```sh\ncargo xtask tydi\n```\n", &["task"]);
}

#[test]
fn a_walk_leads_through_files_and_functions_that_there_are() {
    let worker = ("crates/server/src/worker.rs", "fn step() {}\n");
    let many = ("crates/store/src/many.rs", "fn seek<T>() {}\n");
    for (walk, is_there) in [
        ("worker.rs        step: it polls\nstore's many.rs  seek: an item", true),
        ("worker.rs        step, as ever, and wire::parse", true),
        ("worker.rs        step, seek: it polls", false),
        ("worker.rs        step: it polls; seek: an item", false),
        ("worker.rs        step: it polls\n                 seek: an item", false),
        ("worker.rs        on              store's many.rs  seek: an item", true),
        ("worker.rs        on              store's many.rs  step: it polls", false),
        ("many.rs          seek: an item", false),
        ("client's many.rs  on", false),
    ] {
        let page = format!("# Walks\n\n```\n{walk}\n```\n");
        let expected: &[&str] = if is_there { &[] } else { &["walk"] };
        assert_eq!(rules(&[worker, many, ("ARCHITECTURE.md", &page)]), expected, "{walk}");
        let elsewhere = format!("# Walks\n\n{}\n", walk.replace('\n', " "));
        assert!(!rules(&[worker, many, ("ARCHITECTURE.md", &elsewhere)]).contains(&"walk"));
    }
}

#[test]
fn the_book_lists_every_page() {
    let summary = ("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n");
    let a = ("docs/a.md", "# A\n");
    assert_eq!(rules(&[summary, a, ("docs/plots/b.svg", ""), ("c.md", "")]), [""; 0]);
    for page in ["docs/b.md", "docs/below/b.md"] {
        assert_eq!(rules(&[summary, a, (page, "# B\n")]), ["book"]);
    }
    assert_eq!(rules(&[summary]), ["link"]);
}

#[test]
fn a_sentence_has_a_verb_and_a_subject() {
    let rows: [(&str, &[&str]); 10] = [
        ("The worker reads a request. It is small.", &[]),
        ("The one worker.", &["prose-verb"]),
        ("A worker reads. And then the other one.", &["prose-verb"]),
        ("A worker reads\nthe request. Knows\nno clock.", &["prose-subject"]),
        ("It stopped, e.g. for a client.", &[]),
        ("# The one worker.\n\n| the one worker. |\n\n```\nThe one worker.\n```", &[]),
        ("- The one worker: a thread.\n- **The worker.** It reads.\n- The worker", &[]),
        ("- **The worker** (`a`). The one.", &["prose-verb"]),
        ("- **The worker:** the one.\n- `a`, `b` and `c`.", &[]),
        ("1. The worker [reads](b.md) this.\n2. The [worker](b.md).", &["prose-verb"]),
    ];
    for (text, expected) in rows {
        assert_eq!(rules(&[("docs/a.md", text), ("docs/b.md", "")]), expected, "{text}");
    }
    let doc = |text: &str, expected: &[&str]| check("crates/store/src/a.rs", text, expected);
    doc("//! Knows the size.\n//! It is in bytes.\n\n/// No doc of a module.\n", &[]);
    doc("//! It has a size.\n//!\n//! Knows no clock.\n", &["prose-subject"]);
    doc("//! The one\n//! worker.\n", &["prose-verb"]);
    check("crates/store/src/a_tests.rs", "//! The one worker.\n", &[]);
    check("CHANGELOG.md", "The one worker.", &[]);
}

#[test]
fn sentences_are_short_on_the_average() {
    let long = format!("It is {}long.", "so ".repeat(20));
    check("docs/a.md", &format!("{long} It is short."), &[]);
    check("docs/a.md", &long, &["prose-length"]);
    let (a, b) = (format!("//! {long}\n"), "//! It is short.\n");
    let module = ("crates/store/src/a.rs", a.as_str());
    assert_eq!(rules(&[module]), ["prose-length"]);
    assert_eq!(rules(&[module, ("crates/store/src/b.rs", b)]), [""; 0]);
    assert_eq!(rules(&[module, ("crates/tier/src/b.rs", b)]), ["prose-length"]);
}

#[test]
fn an_exception_of_prose_argues_and_excepts() {
    let page = ("docs/a.md", "The one worker.");
    let with = |rule: &str, reason: &str| {
        let entry = format!("[[exception]]\nrule = {rule:?}\nplace = \"docs/a.md\"\n{reason}\n");
        rules(&[page, ("xtask/prose-exceptions.toml", &entry)])
    };
    assert_eq!(rules(&[page, ("xtask/prose-exceptions.toml", "# none\n")]), ["prose-verb"]);
    assert_eq!(with("prose-verb", "reason = \"A diary.\""), [""; 0]);
    assert_eq!(with("prose-verb", "reason = \" \""), ["prose-exception"]);
    assert_eq!(with("prose-verb", ""), ["prose-exception", "prose-verb"]);
    assert_eq!(with("prose-length", "reason = \"Long.\""), ["prose-exception", "prose-verb"]);
}

#[test]
fn what_is_quoted_is_said() {
    let source = "const A: &str = \"the {device} is full, \\\n    and waits\";";
    let source = ("crates/server/src/a.rs", source);
    let test = ("crates/server/src/a/tests.rs", "const A: &str = \"only here\";");
    for (cell, is_said) in [
        ("`the ... is full, and waits`", true),
        ("no words of the program's", true),
        ("`...`", true),
        ("`the ... is empty`", false),
        ("`only here`", false),
    ] {
        let page = format!("| you see | why |\n|---|---|\n| {cell} | `anything` |\n");
        let expected: &[&str] = if is_said { &[] } else { &["quote"] };
        let files = [source, test, ("docs/troubleshooting.md", page.as_str())];
        assert_eq!(rules(&files), expected, "{cell}");
    }
}

#[test]
fn files_and_lines_stay_small() {
    let lines = "const A: u8 = 1;\n".repeat(600);
    check("crates/server/src/a.rs", &lines, &[]);
    check("crates/server/src/a.rs", &format!("{lines}const B: u8 = 1;\n"), &["file-lines"]);
    let tests = format!("{lines}#[cfg(test)]\nmod tests {{\n    fn a() {{}}\n}}\n");
    check("crates/server/src/a.rs", &tests, &[]);
    check("crates/server/src/tests.rs", &format!("{lines}{lines}"), &[]);
    check("crates/server/src/a.rs", &format!("// {}", "é".repeat(97)), &[]);
    check("crates/server/src/a.rs", &format!("// {}", "é".repeat(98)), &["line-columns"]);
}

#[test]
fn who_may_know_whom_is_kept() {
    let check = |name: &str, text: &str, expected: &[&str]| {
        let text = format!("{text}\n[lints]\nworkspace = true\n");
        check(&format!("crates/{name}/Cargo.toml"), &text, expected);
    };
    check("server", "[dependencies]\nlaneway-policy.workspace = true", &[]);
    check("server", "[dependencies]\nlaneway-load.workspace = true", &["who-knows"]);
    check("store", "[build-dependencies]\nlaneway-wire = \"1\"", &["who-knows"]);
    check("store", "[target.'cfg(unix)'.dependencies]\nlaneway-wire = \"1\"", &["who-knows"]);
    check("server", "[dev-dependencies]\nlaneway-load.workspace = true", &[]);
    check("server", "[dependencies]\nlaneway = \"1\"", &["who-knows"]);
    check("common", "[package]\nname = \"laneway-common\"", &["who-knows"]);
    check("policy", "[dependencies]\nserde = \"1\"", &["alone"]);
    check("policy", "[dev-dependencies]\nproptest = \"1\"", &[]);
    check("sync", "[target.'cfg(loom)'.dependencies]\nloom = \"0.7\"", &[]);
    check("sync", "[dependencies]\nloom = \"0.7\"", &["alone"]);
    let sync = ("crates/sync/Cargo.toml", "[package]\nname = \"laneway-sync\"");
    assert_eq!(rules(&[sync]), ["lints"]);
}

#[test]
fn files_that_use_each_other_are_a_cycle() {
    let a = ("crates/store/src/a.rs", "use crate::b::B;");
    let library = ("crates/store/src/lib.rs", "mod a;\nmod b;");
    let c = ("crates/store/src/c.rs", "use crate::a::A;");
    let with = |b: &str| rules(&[a, library, ("crates/store/src/b.rs", b), c]);
    assert_eq!(with("use super::a::{self, A};"), ["cycle"]);
    assert_eq!(with("struct B;"), [""; 0]);
    assert_eq!(with("#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"), [""; 0]);
    assert_eq!(with("use crate::{x::Y, c::{C}};"), ["cycle"]);
}

#[test]
fn a_call_of_a_method_that_another_file_gives_is_a_use() {
    let library = ("crates/server/src/lib.rs", "mod a;\nmod b;");
    let a = "pub struct A;\nimpl A {\n    fn f(&self) {\n        self.g();\n    }\n}\n";
    let check = |block: &str, expected: &[&str]| {
        let b = format!("use crate::a::A;\n{block}");
        let files = [library, ("crates/server/src/a.rs", a), ("crates/server/src/b.rs", &b)];
        assert_eq!(rules(&files), expected, "{block}");
    };
    let g = "{\n    pub fn g(&self) {}\n}\n";
    check(&format!("impl A {g}"), &["cycle"]);
    check(&format!("impl<T: Fn() -> u8> crate::a::A<T> {g}"), &["cycle"]);
    // A type of its own has one of that name, too: nobody can tell which is called.
    check(&format!("impl A {g}struct B;\nimpl B {g}"), &[]);
    check(&format!("impl Drop for A {g}"), &[]);
}

#[test]
fn a_public_item_that_only_tests_use_is_told() {
    let tested = "#[cfg(test)]\nmod tests {\n    fn g() {\n        super::f()\n    }\n}\n";
    let text = format!("pub const fn f() {{}}\n{tested}");
    let file = ("crates/store/src/a.rs", text.as_str());
    assert_eq!(rules(&[file]), ["unused-public"]);
    let call = "fn g() { f() }";
    assert_eq!(rules(&[file, ("crates/store/tests/b.rs", call)]), ["unused-public"]);
    assert_eq!(rules(&[file, ("crates/vopr/src/b.rs", call)]), [""; 0]);
    check("crates/store/src/a.rs", "pub(crate) fn f() {}\npub mod a {}", &[]);
    check("crates/store/src/a.rs", "pub struct A<T>(T);", &["unused-public"]);
    check("crates/sim/src/a.rs", "pub fn f() {}", &[]);
    // It may, as long as it has to.
    let excepted = ("crates/store/src/a.rs", "pub fn plus_seconds() {}");
    let user = ("crates/server/src/b.rs", "use plus_seconds;");
    assert_eq!(rules(&[excepted]), [""; 0]);
    assert_eq!(rules(&[excepted, user]), ["unused-public"]);
}

#[test]
fn a_reexport_is_no_use_and_leads_on_to_its_source() {
    let a = ("crates/store/src/a.rs", "use crate::B;");
    let b = ("crates/store/src/b.rs", "pub struct B;");
    let library = ("crates/store/src/lib.rs", "mod a;\nmod b;\npub use b::B;\npub use a::A;");
    assert_eq!(rules(&[a, b, library]), [""; 0]);
    let b = ("crates/store/src/b.rs", "use crate::a::A;\npub struct B;");
    assert_eq!(rules(&[a, b, library]), ["cycle"]);
}

#[test]
fn a_file_may_use_the_one_it_is_nested_in() {
    let library = ("crates/store/src/lib.rs", "mod a;\nfn f() { a::g() }\nstruct B;");
    assert_eq!(rules(&[library, ("crates/store/src/a.rs", "use crate::B;")]), [""; 0]);
    let a = ("crates/store/src/a.rs", "mod c;\nfn f() { c::g() }\nstruct A;");
    let c = ("crates/store/src/a/c.rs", "use super::A;\nuse super::super::B;");
    assert_eq!(rules(&[a, c]), [""; 0]);
}
