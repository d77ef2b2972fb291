//! What `COMMAND DOCS` tells of each command: clients on a command line show it while one types.

/// What is told of a command.
#[derive(Debug)]
pub struct Docs {
    /// Its name, in lower case.
    pub name: &'static str,
    /// The group that Redis has it in.
    pub group: &'static str,
    /// The version of Redis that had it first.
    pub since: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Its arguments, a word each: `?` before one that may be left out, `+` behind one that may
    /// come several times, `TOKEN=name` for one behind a word of its own, `TOKEN` for such a word
    /// alone.
    pub arguments: &'static str,
}

/// The rows of the table below.
macro_rules! docs {
    ($($name:literal $group:ident $since:literal $summary:literal $arguments:literal;)*) => {
        &[$(Docs {
            name: $name,
            group: stringify!($group),
            since: $since,
            summary: $summary,
            arguments: $arguments,
        },)*]
    };
}

/// All of them, in the order of the table of commands: name, group, version, what it does, and its
/// arguments.
pub static DOCS: &[Docs] = docs! {
    "get" string "1.0.0" "Tells the value of a key." "key";
    "set" string "1.0.0" "Stores a value."
        "key value ?NX ?XX ?IFEQ=comparison ?GET ?EX=seconds ?PX=milliseconds \
         ?EXAT=unix-second ?PXAT=unix-millisecond ?KEEPTTL";
    "del" generic "1.0.0" "Deletes keys, and tells how many there were." "key+";
    "mget" string "1.0.0" "Tells the values of several keys." "key+";
    "incr" string "1.0.0" "Adds one to a number." "key";
    "expire" generic "1.0.0" "Has a key end in so many seconds." "key seconds ?NX ?XX ?GT ?LT";
    "setex" string "2.0.0" "Stores a value that ends in so many seconds." "key seconds value";
    "exists" generic "1.0.0" "Tells how many of these keys there are." "key+";
    "ttl" generic "1.0.0" "Tells the seconds that a key has left." "key";
    "mset" string "1.0.1" "Stores several values, one after the other." "key+ value+";
    "setnx" string "1.0.0" "Stores a value if there is none." "key value";
    "psetex" string "2.6.0" "Stores a value that ends in so many milliseconds."
        "key milliseconds value";
    "getset" string "1.0.0" "Stores a value, and tells the one before." "key value";
    "getdel" string "6.2.0" "Tells a value, and deletes its key." "key";
    "getex" string "6.2.0" "Tells a value, and changes when it ends."
        "key ?EX=seconds ?PX=milliseconds ?EXAT=unix-second ?PXAT=unix-millisecond ?PERSIST";
    "append" string "2.0.0" "Puts bytes behind a value." "key value";
    "getrange" string "2.4.0" "Tells a part of a value." "key start end";
    "substr" string "1.0.0" "Tells a part of a value." "key start end";
    "setrange" string "2.2.0" "Writes bytes over a part of a value." "key offset value";
    "incrbyfloat" string "2.6.0" "Adds a decimal number to a number." "key increment";
    "strlen" string "2.2.0" "Tells the length of a value." "key";
    "decr" string "1.0.0" "Takes one off a number." "key";
    "incrby" string "1.0.0" "Adds to a number." "key increment";
    "decrby" string "1.0.0" "Takes off a number." "key decrement";
    "unlink" generic "4.0.0" "Deletes keys, and tells how many there were." "key+";
    "touch" generic "3.2.1" "Counts keys as used, and tells how many there are." "key+";
    "type" generic "1.0.0" "Tells the type of a value: string." "key";
    "pexpire" generic "2.6.0" "Has a key end in so many milliseconds."
        "key milliseconds ?NX ?XX ?GT ?LT";
    "expireat" generic "1.2.0" "Has a key end at a unix second." "key unix-second ?NX ?XX ?GT ?LT";
    "pexpireat" generic "2.6.0" "Has a key end at a unix millisecond."
        "key unix-millisecond ?NX ?XX ?GT ?LT";
    "pttl" generic "2.6.0" "Tells the milliseconds that a key has left." "key";
    "expiretime" generic "7.0.0" "Tells the unix second at which a key ends." "key";
    "pexpiretime" generic "7.0.0" "Tells the unix millisecond at which a key ends." "key";
    "persist" generic "2.2.0" "Takes the end off a key." "key";
    // The version is Valkey's: Redis has no such command.
    "delifeq" string "9.0.0" "Deletes a key whose value is this one." "key value";
    "ping" connection "1.0.0" "Answers PONG, or what was said." "?message";
    "multi" transactions "1.2.0" "Begins a transaction." "";
    "exec" transactions "1.2.0" "Executes a transaction." "";
    "discard" transactions "2.0.0" "Gives a transaction up." "";
    "watch" transactions "2.2.0"
        "Has the next transaction executed only if these keys do not change until then." "key+";
    "unwatch" transactions "2.2.0" "Forgets the keys that are watched." "";
    "msetnx" string "1.0.1" "Stores several values in one moment if none of the keys is there."
        "key+ value+";
    "rename" generic "1.0.0" "Gives an item another key." "key newkey";
    "renamenx" generic "1.0.0" "Gives an item another key that there is not." "key newkey";
    "echo" connection "1.0.0" "Answers what was said." "message";
    "hello" connection "6.0.0" "Chooses a version of the protocol, and says who the client is."
        "?protover ?AUTH=username ?password ?SETNAME=clientname";
    "auth" connection "1.0.0" "Says who the client is." "?username password";
    "select" connection "1.0.0" "Chooses a database: 0." "index";
    "quit" connection "1.0.0" "Closes the connection." "?argument+";
    "reset" connection "6.2.0" "Begins the connection anew." "";
    "client" connection "2.4.0" "Tells of connections, and is told of this one."
        "subcommand ?argument+";
    "command" server "2.8.13" "Tells of the commands." "?subcommand ?argument+";
    "info" server "1.0.0" "Tells of the server." "?section+";
    "config" server "2.0.0" "Tells settings: CONFIG GET." "subcommand ?parameter+";
    "dbsize" server "1.0.0" "Tells how many items there are." "";
    "flushall" server "1.0.0" "Deletes everything." "?ASYNC ?SYNC";
    "flushdb" server "1.0.0" "Deletes everything." "?ASYNC ?SYNC";
    "time" server "2.6.0" "Tells the time." "";
    "keys" generic "1.0.0" "Is not served: use SCAN." "pattern";
    "scan" generic "2.8.0" "Tells some keys, and where to go on."
        "cursor ?MATCH=pattern ?COUNT=count ?TYPE=type";
    "randomkey" generic "1.0.0" "Tells any key." "";
    "object" generic "2.2.3" "Tells what is known of an item." "subcommand ?key";
    "memory" server "4.0.0" "Tells what an item takes of memory: MEMORY USAGE."
        "subcommand ?key ?SAMPLES=count";
    "wait" generic "3.0.0" "Tells how many replicas there are: none." "numreplicas timeout";
};

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument<'a> {
    /// What it is called.
    pub name: &'a str,
    /// The word before it, or that it is.
    pub token: Option<&'a str>,
    /// It is its token alone.
    pub is_token: bool,
    /// It may be left out.
    pub is_optional: bool,
    /// It may come several times.
    pub is_multiple: bool,
}

impl Docs {
    /// Its arguments.
    pub fn arguments(&self) -> impl Iterator<Item = Argument<'static>> {
        self.arguments.split_ascii_whitespace().map(|word| {
            let (is_optional, word) = match word.strip_prefix('?') {
                Some(word) => (true, word),
                None => (false, word),
            };
            let (is_multiple, word) = match word.strip_suffix('+') {
                Some(word) => (true, word),
                None => (false, word),
            };
            let is_token = word.bytes().all(|byte| byte.is_ascii_uppercase());
            let (token, name) = match word.split_once('=') {
                Some((token, name)) => (Some(token), name),
                None => (is_token.then_some(word), word),
            };
            Argument { name, token, is_token, is_optional, is_multiple }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::table::TABLE;

    #[test]
    fn every_command_has_its_docs_which_agree_with_the_table() {
        let named: Vec<&str> = DOCS.iter().map(|docs| docs.name).collect();
        let wanted: Vec<&str> = TABLE.iter().map(|spec| spec.name).collect();
        assert_eq!(named, wanted);
        for (docs, spec) in DOCS.iter().zip(TABLE) {
            let least: i32 = docs
                .arguments()
                .filter(|argument| !argument.is_optional)
                .map(|argument| if argument.token.is_some() && !argument.is_token { 2 } else { 1 })
                .sum();
            assert_eq!(1 + least, spec.arity.abs(), "{}", docs.name);
            let goes_on = docs.arguments().any(|one| one.is_optional || one.is_multiple);
            assert_eq!(goes_on, spec.arity < 0, "{}", docs.name);
            assert!(docs.summary.ends_with('.') && docs.since.split('.').count() == 3);
        }
    }

    #[test]
    fn arguments_are_read() {
        let docs = Docs { name: "x", group: "", since: "", summary: "", arguments: "k+ ?EX=s ?NX" };
        let plain = Argument {
            name: "k",
            token: None,
            is_token: false,
            is_optional: false,
            is_multiple: true,
        };
        let expected = [
            plain,
            Argument {
                name: "s",
                token: Some("EX"),
                is_optional: true,
                is_multiple: false,
                ..plain
            },
            Argument {
                name: "NX",
                token: Some("NX"),
                is_token: true,
                is_optional: true,
                is_multiple: false,
            },
        ];
        assert!(docs.arguments().eq(expected));
    }
}
