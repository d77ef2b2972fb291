//! `COMMAND`: what there is, and what is told of each ([`super::docs`]).

use crate::resp::docs::{Argument, DOCS, Docs};
use crate::resp::glob::fits;
use crate::resp::options::{LONG_PATTERN, PATTERN_BYTES_MAX, SYNTAX, is};
use crate::resp::scratch::keys_of;
use crate::resp::table::{Spec, TABLE, find};
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{
    Version, put_array_head, put_bulk, put_integer, put_map_head, put_null, put_set_head,
    put_simple,
};

/// Commands that one `COMMAND INFO` or `COMMAND DOCS` asks about.
const COMMANDS_TOLD_MAX: usize = 512;
const MANY_COMMANDS: &[u8] = b"-ERR COMMAND INFO, DOCS and GETKEYS take 512 words at most\r\n";
const NO_COMMAND: &[u8] = b"-ERR Invalid command specified\r\n";
const BAD_ARITY: &[u8] = b"-ERR Invalid number of arguments specified for command\r\n";
const NO_KEYS: &[u8] = b"-ERR The command has no key arguments\r\n";

/// `COMMAND [part ...]`; the words were counted.
pub fn answer(version: Version, mut args: Args<'_>, out: &mut Vec<u8>) {
    let Some(part) = args.next() else { return put_specs(version, out) };
    let is_long = args.left() as usize > COMMANDS_TOLD_MAX;
    match () {
        () if is(part, "count") => put_integer(out, TABLE.len() as i64),
        () if is(part, "list") => list(args, out),
        () if is_long => out.extend_from_slice(MANY_COMMANDS),
        () if is(part, "getkeys") => get_keys(args, out),
        () if is(part, "info") && args.left() == 0 => put_specs(version, out),
        () if is(part, "info") => {
            put_array_head(out, args.left() as usize);
            for name in args {
                match find(name) {
                    Some(spec) => put_spec(version, spec, out),
                    None => put_null(out, version),
                }
            }
        }
        () if args.left() == 0 => {
            put_map_head(out, version, DOCS.len());
            DOCS.iter().for_each(|docs| put_docs(version, docs, out));
        }
        () => {
            let found: Vec<&Docs> = args.filter_map(docs_of).collect();
            put_map_head(out, version, found.len());
            found.iter().for_each(|docs| put_docs(version, docs, out));
        }
    }
}

fn docs_of(name: &[u8]) -> Option<&'static Docs> {
    DOCS.iter().find(|docs| is(name, docs.name))
}

/// `COMMAND LIST [FILTERBY how what]`
fn list(mut args: Args<'_>, out: &mut Vec<u8>) {
    let names: Vec<&str> = match (args.next(), args.next(), args.next(), args.left()) {
        (None, ..) => TABLE.iter().map(|spec| spec.name).collect(),
        (Some(by), Some(how), Some(what), 0) if is(by, "filterby") && is(how, "pattern") => {
            if what.len() > PATTERN_BYTES_MAX {
                return out.extend_from_slice(LONG_PATTERN);
            }
            let all = TABLE.iter().map(|spec| spec.name);
            all.filter(|name| fits(what, name.as_bytes(), true)).collect()
        }
        // There are no modules.
        (Some(by), Some(how), Some(_), 0) if is(by, "filterby") && is(how, "module") => Vec::new(),
        _ => return out.extend_from_slice(SYNTAX),
    };
    put_array_head(out, names.len());
    names.iter().for_each(|name| put_bulk(out, name.as_bytes()));
}

/// `COMMAND GETKEYS command ...`
fn get_keys(args: Args<'_>, out: &mut Vec<u8>) {
    let mut behind = args;
    let Some(spec) = behind.next().and_then(find) else {
        return out.extend_from_slice(NO_COMMAND);
    };
    let keys: Vec<&[u8]> = match spec.keys.0 {
        0 => return out.extend_from_slice(NO_KEYS),
        _ if !spec.takes(args.left()) => return out.extend_from_slice(BAD_ARITY),
        _ => keys_of(spec, behind).collect(),
    };
    put_array_head(out, keys.len());
    keys.iter().for_each(|key| put_bulk(out, key));
}

fn put_specs(version: Version, out: &mut Vec<u8>) {
    put_array_head(out, TABLE.len());
    TABLE.iter().for_each(|spec| put_spec(version, spec, out));
}

/// Name, arity, flags, keys; and of access, hints, keys and parts nothing more.
fn put_spec(version: Version, spec: &Spec, out: &mut Vec<u8>) {
    put_array_head(out, 10);
    put_bulk(out, spec.name.as_bytes());
    put_integer(out, spec.arity.into());
    put_set_head(out, version, spec.flags.len());
    spec.flags.iter().for_each(|flag| put_simple(out, flag.as_bytes()));
    let (first, last, step) = spec.keys;
    [first, last, step].iter().for_each(|place| put_integer(out, i64::from(*place)));
    put_set_head(out, version, 0);
    (0..3).for_each(|_| put_array_head(out, 0));
}

/// A command's name and what is told of it.
fn put_docs(version: Version, docs: &Docs, out: &mut Vec<u8>) {
    put_bulk(out, docs.name.as_bytes());
    let count = docs.arguments().count();
    put_map_head(out, version, 3 + usize::from(count > 0));
    for (field, text) in [("summary", docs.summary), ("since", docs.since), ("group", docs.group)] {
        put_bulk(out, field.as_bytes());
        put_bulk(out, text.as_bytes());
    }
    if count > 0 {
        put_bulk(out, b"arguments");
        put_array_head(out, count);
        docs.arguments().for_each(|argument| put_argument(version, &argument, out));
    }
}

fn put_argument(version: Version, argument: &Argument<'_>, out: &mut Vec<u8>) {
    let Argument { name, token, is_token, is_optional, is_multiple } = *argument;
    let name = name.to_ascii_lowercase();
    let kind = match () {
        () if is_token => "pure-token",
        () if name == "key" || name == "newkey" => "key",
        () if name == "pattern" => "pattern",
        () if ["seconds", "milliseconds", "count", "offset", "start", "end", "index"]
            .contains(&name.as_str()) =>
        {
            "integer"
        }
        () if name.starts_with("unix-") => "unix-time",
        () => "string",
    };
    let flags = usize::from(is_optional) + usize::from(is_multiple);
    let fields = 2 + usize::from(token.is_some()) + usize::from(flags > 0);
    put_map_head(out, version, fields);
    put_bulk(out, b"name");
    put_bulk(out, name.as_bytes());
    put_bulk(out, b"type");
    put_bulk(out, kind.as_bytes());
    if let Some(token) = token {
        put_bulk(out, b"token");
        put_bulk(out, token.as_bytes());
    }
    if flags > 0 {
        put_bulk(out, b"flags");
        put_set_head(out, version, flags);
        let flag = |out: &mut Vec<u8>, is_set: bool, name: &[u8]| {
            if is_set {
                put_simple(out, name);
            }
        };
        flag(out, is_optional, b"optional");
        flag(out, is_multiple, b"multiple");
    }
}
