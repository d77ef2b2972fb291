//! What the tests of this crate share: the text form of a verdict.
//!
//! A verdict is one line that a program in any language can print:
//!
//! ```text
//! more                                       the line has not arrived whole
//! ok HEAD COMMAND FIELD=VALUE...             served; the line is HEAD bytes long
//! bad HEAD THEN [unlink=KEY] REPLY           refused; THEN is continue, close or swallow=BYTES
//! ```
//!
//! Keys are the bytes as stored, those of a multiget separated by commas; what is not printable
//! ASCII is escaped as in Rust. REPLY is the line without its newline, or nothing.

use laneway_wire::*;

/// The verdict on `input` under the default limits.
pub fn verdict(input: &[u8]) -> String {
    match parse(input, &Limits::default()) {
        Ok(None) => "more".into(),
        Ok(Some(frame)) => format!("ok {} {}", frame.head_bytes, served(&frame.request)),
        Err(malformed) => refused(&malformed),
    }
}

fn refused(malformed: &Malformed<'_>) -> String {
    let then = match malformed.then {
        Then::Continue => "continue".to_string(),
        Then::Close => "close".to_string(),
        Then::Swallow(bytes) => format!("swallow={bytes}"),
    };
    let mut words = format!("bad {} {then}", malformed.head_bytes);
    if let Some(key) = malformed.unlink {
        words += &format!(" unlink={}", stored(&key));
    }
    let reply = malformed.reply.strip_suffix(b"\r\n").unwrap_or(malformed.reply);
    words += &format!(" {}", reply.escape_ascii());
    words.trim_end().to_string()
}

fn stored(key: &MetaKey<'_>) -> String {
    key.bytes(&mut [0; KEY_BYTES_MAX]).escape_ascii().to_string()
}

fn served(request: &Request<'_>) -> String {
    match request {
        Request::Get(get) => {
            let verb = format!("{:?}", get.verb).to_lowercase();
            let keys: Vec<_> = get.keys.map(|key| key.escape_ascii().to_string()).collect();
            format!("{verb} exptime={} keys={}", get.exptime, keys.join(","))
        }
        Request::Store(store) => {
            let (verb, cas) = match store.verb {
                StoreVerb::Cas(id) => ("cas".to_string(), format!(" cas={id}")),
                verb => (format!("{verb:?}").to_lowercase(), String::new()),
            };
            let Store { key, flags, exptime, value_bytes, noreply, .. } = store;
            let key = key.escape_ascii();
            format!(
                "{verb} key={key} flags={flags} exptime={exptime} bytes={value_bytes}{cas}{}",
                silence(*noreply)
            )
        }
        Request::Arith(Arith { increment, key, delta, noreply }) => {
            let verb = if *increment { "incr" } else { "decr" };
            format!("{verb} key={} delta={delta}{}", key.escape_ascii(), silence(*noreply))
        }
        Request::Delete(delete) => {
            format!("delete key={}{}", delete.key.escape_ascii(), silence(delete.noreply))
        }
        Request::Touch(Touch { key, exptime, noreply }) => {
            format!("touch key={} exptime={exptime}{}", key.escape_ascii(), silence(*noreply))
        }
        Request::MetaGet(meta) => served_meta("mg", meta),
        Request::MetaSet(set) => {
            format!("{} bytes={}", served_meta("ms", &set.meta), set.value_bytes)
        }
        Request::MetaDelete(meta) => served_meta("md", meta),
        Request::MetaArith(meta) => served_meta("ma", meta),
        Request::MetaDebug(meta) => served_meta("me", meta),
        request => served_rare(request),
    }
}

fn served_rare(request: &Request<'_>) -> String {
    match request {
        Request::MetaNoop => "mn".into(),
        Request::FlushAll { delay: None, noreply } => format!("flush_all{}", silence(*noreply)),
        Request::FlushAll { delay: Some(delay), noreply } => {
            format!("flush_all delay={delay}{}", silence(*noreply))
        }
        Request::Stats(words) => format!("stats {}", words.escape_ascii()).trim_end().into(),
        Request::Verbosity { level, noreply } => {
            format!("verbosity level={level}{}", silence(*noreply))
        }
        Request::MemoryLimit { megabytes, noreply } => {
            format!("cache_memlimit megabytes={megabytes}{}", silence(*noreply))
        }
        Request::Shutdown(mode) => format!("shutdown {mode:?}"),
        Request::Admin(line) => format!("admin {}", line.escape_ascii()),
        Request::Version => "version".into(),
        Request::Quit => "quit".into(),
        request => panic!("{request:?} is not rare"),
    }
}

fn silence(noreply: bool) -> &'static str {
    if noreply { " noreply" } else { "" }
}

fn served_meta(verb: &str, meta: &Meta<'_>) -> String {
    let flags = &meta.flags;
    let mut words = format!("{verb} key={}", stored(&meta.key));
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words += &format!(" {name}={value}");
        }
    };
    let given = |on: bool| on.then(|| "1".to_string());
    say("base64", given(meta.key.base64));
    say("quiet", given(flags.quiet));
    say("value", given(flags.value));
    say("compare", flags.cas_compare.map(|id| id.to_string()));
    say("explicit", flags.cas_explicit.map(|id| id.to_string()));
    say("client_flags", flags.client_flags.map(|flags| flags.to_string()));
    say("exptime", flags.exptime.map(|seconds| seconds.to_string()));
    say("vivify", flags.vivify.map(|seconds| seconds.to_string()));
    say("recache", flags.recache.map(|seconds| seconds.to_string()));
    say("invalidate", given(flags.invalidate));
    say("drop_value", given(flags.drop_value));
    let mode = flags.set_mode;
    say("mode", (mode != MetaSetMode::Set).then(|| format!("{mode:?}").to_lowercase()));
    say("decrement", given(flags.decrement));
    say("delta", flags.delta.map(|delta| delta.to_string()));
    say("initial", flags.initial.map(|initial| initial.to_string()));
    say("opaque", flags.opaque().map(|opaque| opaque.escape_ascii().to_string()));
    words
}
