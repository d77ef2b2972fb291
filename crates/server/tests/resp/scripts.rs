//! What each command answers: rows of request and reply.

use crate::kept::{all_plans, with_folder};
use laneway_rig::resp::{reply_bytes, words};
use laneway_rig::{Plan, Rig};
use laneway_transport::memory::Faults;

/// Requests and their replies, `\r\n` written as `|`. A reply that ends with `~` is a beginning.
type Rows<'a> = &'a [(&'a str, &'a str)];

fn faults(seed: u64) -> Faults {
    Faults { seed, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 }
}

/// Each design, with whole reads and with cut ones, request by request and as one pipeline.
fn check(rows: Rows<'_>) {
    for (number, plan) in all_plans().into_iter().enumerate() {
        let what = plan.what();
        let plan = Plan { faults: if number % 2 == 0 { Faults::NONE } else { faults(7) }, ..plan };
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        for (request, wanted) in rows {
            let got = rig.say_resp(&client, request).replace("\r\n", "|");
            agree(request, &got, wanted, &what);
        }
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        let pipeline: Vec<u8> = rows.iter().flat_map(|(request, _)| words(request)).collect();
        let all = rig.ask_resp(&client, &pipeline, rows.len());
        let mut at = 0;
        for (request, wanted) in rows {
            let end = at + reply_bytes(&all[at..]).expect("they are whole");
            let got = String::from_utf8_lossy(&all[at..end]).replace("\r\n", "|");
            agree(request, &got, wanted, &what);
            at = end;
        }
    }
}

fn agree(request: &str, got: &str, wanted: &str, what: &str) {
    let fits = match wanted.strip_suffix('~') {
        Some(beginning) => got.starts_with(beginning),
        None => got == wanted,
    };
    assert!(fits, "{request}: {got} and not {wanted}; {what}");
}

#[test]
fn values_are_set_and_got() {
    check(&[
        ("GET k", "$-1|"),
        ("SET k v", "+OK|"),
        ("get k", "$1|v|"),
        ("Set k w NX", "$-1|"),
        ("SET k w XX", "+OK|"),
        ("SET other w XX", "$-1|"),
        ("SET other w NX", "+OK|"),
        ("SET k x GET", "$1|w|"),
        ("SET k y NX GET", "$1|x|"),
        ("SET new y NX GET", "$-1|"),
        ("GET new", "$1|y|"),
        ("SET none y XX GET", "$-1|"),
        ("GET none", "$-1|"),
        ("GETSET k z", "$1|x|"),
        ("GETSET fresh z", "$-1|"),
        ("SETNX k q", ":0|"),
        ("SETNX n q", ":1|"),
        ("GETDEL n", "$1|q|"),
        ("GETDEL n", "$-1|"),
        ("STRLEN k", ":1|"),
        ("STRLEN n", ":0|"),
        ("APPEND k tail", ":5|"),
        ("APPEND n tail", ":4|"),
        ("GET k", "$5|ztail|"),
        ("GET n", "$4|tail|"),
        ("MSET a 1 b 2 c 3", "+OK|"),
        ("MGET a b x c a", "*5|$1|1|$1|2|$-1|$1|3|$1|1|"),
        ("EXISTS a b x a", ":3|"),
        ("TOUCH a x", ":1|"),
        ("TYPE a", "+string|"),
        ("TYPE x", "+none|"),
        ("DEL a x b a", ":2|"),
        ("UNLINK c", ":1|"),
        ("MGET a b c", "*3|$-1|$-1|$-1|"),
    ]);
}

/// Valkey's way to store only over what one has read: its locks are given back so.
#[test]
fn a_value_is_compared_with_in_the_moment_of_storing() {
    let long = format!("SET k w IFEQ {}", "v".repeat(65));
    let rows = [
        ("SET k v IFEQ v", "$-1|"),
        ("EXISTS k", ":0|"),
        ("SET k v", "+OK|"),
        ("SET k w IFEQ x", "$-1|"),
        ("SET k w IFEQ vv", "$-1|"),
        ("GET k", "$1|v|"),
        ("SET k w IFEQ v EXAT 4000000000", "+OK|"),
        ("SET k x IFEQ v GET", "$1|w|"),
        ("SET k x IFEQ w GET KEEPTTL", "$1|w|"),
        ("GET k", "$1|x|"),
        ("EXPIRETIME k", ":4000000000|"),
        ("SET none x IFEQ w GET", "$-1|"),
        ("EXISTS none", ":0|"),
        ("SET k y IFEQ x NX", "-ERR syntax error|"),
        ("SET k y XX IFEQ x", "-ERR syntax error|"),
        ("SET k y IFEQ", "-ERR syntax error|"),
        (long.as_str(), "-ERR IFEQ compares with values of up to 64 bytes here|"),
        ("SETRANGE k 100000 x", ":100001|"),
        ("SET k y IFEQ x", "$-1|"),
        ("STRLEN k", ":100001|"),
    ];
    check(&rows);
}

/// The same of deleting, by which one gives back a lock that is one's own still.
#[test]
fn a_value_is_compared_with_in_the_moment_of_deleting() {
    let most = "v".repeat(64);
    let lines = [
        format!("SET k {most}"),
        format!("DELIFEQ k {}", &most[1..]),
        format!("DELIFEQ k {most}v"),
        format!("DELIFEQ k {most}"),
    ];
    let rows = [
        ("DELIFEQ k v", ":0|"),
        ("SET k v NX EX 100", "+OK|"),
        ("DELIFEQ k w", ":0|"),
        ("DELIFEQ k vv", ":0|"),
        ("delifeq k ", ":0|"),
        ("GET k", "$1|v|"),
        ("TTL k", ":100|"),
        ("DELIFEQ k v", ":1|"),
        ("EXISTS k", ":0|"),
        ("DELIFEQ k v", ":0|"),
        ("SET k ", "+OK|"),
        ("DELIFEQ k v", ":0|"),
        ("DELIFEQ k ", ":1|"),
        (lines[0].as_str(), "+OK|"),
        (lines[1].as_str(), ":0|"),
        (lines[2].as_str(), "-ERR DELIFEQ compares with values of up to 64 bytes here|"),
        (lines[3].as_str(), ":1|"),
        ("SETRANGE k 100000 x", ":100001|"),
        ("DELIFEQ k ", ":0|"),
        ("STRLEN k", ":100001|"),
        ("DELIFEQ k", "-ERR wrong number of arguments for 'delifeq' command|"),
        ("DELIFEQ k a b", "-ERR wrong number of arguments for 'delifeq' command|"),
        ("DELIFEQ  a", "-ERR the key is empty, which this server does not take|"),
        ("SET n 1", "+OK|"),
        ("WATCH n", "+OK|"),
        ("MULTI", "+OK|"),
        ("DELIFEQ n 2", "+QUEUED|"),
        ("DELIFEQ n 1", "+QUEUED|"),
        ("DELIFEQ n 1", "+QUEUED|"),
        ("EXEC", "*3|:0|:1|:0|"),
        ("GET n", "$-1|"),
        ("COMMAND INFO delifeq", "*1|*10|$7|delifeq|:3|*2|+write|+fast|:1|:1|:1|*0|*0|*0|*0|"),
    ];
    check(&rows);
}

#[test]
fn parts_of_values_are_read_and_written() {
    check(&[
        ("GETRANGE k 0 -1", "$0||"),
        ("SETRANGE k 3 abc", ":6|"),
        ("GETRANGE k 3 -1", "$3|abc|"),
        ("GETRANGE k 0 2", "$3|\0\0\0|"),
    ]);
    check(&[
        ("SET k HelloWorld", "+OK|"),
        ("GETRANGE k 0 4", "$5|Hello|"),
        ("SUBSTR k -5 -1", "$5|World|"),
        ("GETRANGE k 5 1", "$0||"),
        ("GETRANGE k 8 100", "$2|ld|"),
        ("GETRANGE k x 1", "-ERR value is not an integer or out of range|"),
        ("GETRANGE k 1", "-ERR wrong number of arguments for 'getrange' command|"),
        ("SETRANGE k 5 Redis", ":10|"),
        ("GET k", "$10|HelloRedis|"),
        ("SETRANGE k 0 J", ":10|"),
        ("SETRANGE k 9 sters", ":14|"),
        ("GET k", "$14|JelloRedisters|"),
        ("SETRANGE k 16 x", ":17|"),
        ("GETRANGE k 12 -1", "$5|rs\0\0x|"),
        ("SETRANGE k -1 x", "-ERR offset is out of range|"),
        ("SETRANGE k x x", "-ERR value is not an integer or out of range|"),
        ("SETRANGE k 999999999999 x", "-ERR string exceeds maximum allowed size~"),
        ("SETRANGE k 500000000 x", "-ERR the joined value is larger than this server takes~"),
        ("STRLEN k", ":17|"),
        ("EXPIREAT k 4000000000", ":1|"),
        ("SETRANGE k 0 H", ":17|"),
        ("EXPIRETIME k", ":4000000000|"),
        ("INCRBYFLOAT f 10.5", "$4|10.5|"),
        ("INCRBYFLOAT f 0.1", "$4|10.6|"),
        ("INCRBYFLOAT f -5", "$3|5.6|"),
        ("SET f 5.0e3", "+OK|"),
        ("INCRBYFLOAT f 2.0e2", "$4|5200|"),
        ("INCR f", ":5201|"),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float|"),
        ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity|"),
        ("INCRBYFLOAT k 1", "-ERR value is not a valid float|"),
        ("GET f", "$4|5201|"),
    ]);
}

#[test]
fn options_are_read_as_redis_reads_them() {
    check(&[
        ("SET k v NX XX", "-ERR syntax error|"),
        ("SET k v EX", "-ERR syntax error|"),
        ("SET k v EX 1 PX 1", "-ERR syntax error|"),
        ("SET k v EX x EX 1 PX 1", "-ERR syntax error|"),
        ("SET k v EX 1 KEEPTTL", "-ERR syntax error|"),
        ("SET k v KEEPTTL EX 1", "-ERR syntax error|"),
        ("SET k v what", "-ERR syntax error|"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command|"),
        ("SET k v PX -1", "-ERR invalid expire time in 'set' command|"),
        ("SET k v EX 9223372036854775807", "-ERR invalid expire time in 'set' command|"),
        ("SET k v EX x", "-ERR value is not an integer or out of range|"),
        ("SETEX k 0 v", "-ERR invalid expire time in 'setex' command|"),
        ("PSETEX k 0 v", "-ERR invalid expire time in 'psetex' command|"),
        ("SETEX k x v", "-ERR value is not an integer or out of range|"),
        ("EXISTS k", ":0|"),
        ("SET k v EX x EX 10", "+OK|"),
        ("DEL k", ":1|"),
        ("SET k v ex 10 nx get", "$-1|"),
        ("GETEX k EX 0", "-ERR invalid expire time in 'getex' command|"),
        ("GETEX k EX", "-ERR syntax error|"),
        ("GETEX k PERSIST 1", "-ERR syntax error|"),
        ("GETEX k what", "-ERR syntax error|"),
        (
            "EXPIRE k 10 NX XX",
            "-ERR NX and XX, GT or LT options at the same time are not compatible|",
        ),
        ("EXPIRE k 10 GT LT", "-ERR GT and LT options at the same time are not compatible|"),
        ("EXPIRE k 10 what", "-ERR Unsupported option what|"),
        ("EXPIRE k x", "-ERR value is not an integer or out of range|"),
        ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command|"),
        ("GET", "-ERR wrong number of arguments for 'get' command|"),
        ("GET a b", "-ERR wrong number of arguments for 'get' command|"),
        ("SET a", "-ERR wrong number of arguments for 'set' command|"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command|"),
        ("DEL", "-ERR wrong number of arguments for 'del' command|"),
        ("nope a b", "-ERR unknown command 'nope', with args beginning with: 'a' 'b' |"),
        ("LPUSH l 1", "-ERR unknown command 'LPUSH', with args beginning with: 'l' '1' |"),
        ("KEYS *", "-ERR KEYS is not served~"),
    ]);
}

#[test]
fn numbers_are_signed_and_begin_at_zero() {
    check(&[
        ("INCR n", ":1|"),
        ("INCRBY n 41", ":42|"),
        ("DECR n", ":41|"),
        ("DECRBY n 100", ":-59|"),
        ("GET n", "$3|-59|"),
        ("DECR fresh", ":-1|"),
        ("SET n 9223372036854775807", "+OK|"),
        ("INCR n", "-ERR increment or decrement would overflow|"),
        ("INCRBY n x", "-ERR value is not an integer or out of range|"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow|"),
        ("GET n", "$19|9223372036854775807|"),
        ("SET n 01", "+OK|"),
        ("INCR n", "-ERR value is not an integer or out of range|"),
        ("SET n x", "+OK|"),
        ("INCR n", "-ERR value is not an integer or out of range|"),
        ("SETEX n 100 5", "+OK|"),
        ("INCR n", ":6|"),
        ("TTL n", ":100|"),
    ]);
}

#[test]
fn items_live_as_long_as_they_were_told() {
    check(&[
        ("TTL k", ":-2|"),
        ("PTTL k", ":-2|"),
        ("SET k v", "+OK|"),
        ("TTL k", ":-1|"),
        ("PERSIST k", ":0|"),
        ("EXPIRE k 100", ":1|"),
        ("TTL k", ":100|"),
        ("EXPIRE k 50 GT", ":0|"),
        ("EXPIRE k 200 GT", ":1|"),
        ("EXPIRE k 300 LT", ":0|"),
        ("EXPIRE k 90 LT", ":1|"),
        ("EXPIRE k 70 NX", ":0|"),
        ("EXPIRE k 70 XX", ":1|"),
        ("TTL k", ":70|"),
        ("SET k w KEEPTTL", "+OK|"),
        ("TTL k", ":70|"),
        ("APPEND k w", ":2|"),
        ("TTL k", ":70|"),
        ("PERSIST k", ":1|"),
        ("TTL k", ":-1|"),
        ("SET k v EX 100", "+OK|"),
        ("SET k v", "+OK|"),
        ("TTL k", ":-1|"),
        ("SET k v PX 100000", "+OK|"),
        ("TTL k", ":100|"),
        ("GETEX k EX 20", "$1|v|"),
        ("TTL k", ":20|"),
        ("GETEX k", "$1|v|"),
        ("TTL k", ":20|"),
        ("GETEX k PERSIST", "$1|v|"),
        ("TTL k", ":-1|"),
        ("EXPIREAT k 1800000000", ":1|"),
        ("EXPIRETIME k", ":1800000000|"),
        ("PEXPIRETIME k", ":1800000000000|"),
        ("PEXPIREAT k 1800000000001", ":1|"),
        ("EXPIRETIME k", ":1800000000|"),
        ("PEXPIRETIME k", ":1800000000001|"),
        ("PEXPIREAT k 1800000000500", ":1|"),
        ("EXPIRETIME k", ":1800000001|"),
        ("SET k v EXAT 1800000000", "+OK|"),
        ("EXPIRETIME k", ":1800000000|"),
        ("SET k v PXAT 1800000000000", "+OK|"),
        ("EXPIRETIME k", ":1800000000|"),
        ("EXPIREAT k 1", ":1|"),
        ("EXISTS k", ":0|"),
        ("EXPIRE k 10", ":0|"),
        ("SET k v", "+OK|"),
        ("EXPIRE k -1", ":1|"),
        ("GET k", "$-1|"),
        ("SET k v", "+OK|"),
        ("SET k v EXAT 1 GET", "$1|v|"),
        ("DBSIZE", ":0|"),
        ("SET k v", "+OK|"),
        ("GETEX k PXAT 1", "$1|v|"),
        ("DBSIZE", ":0|"),
        ("SETEX k 10 v", "+OK|"),
        ("GETSET k w", "$1|v|"),
        ("TTL k", ":-1|"),
    ]);
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn clients_may_say_hello() {
    check(&[
        ("PING", "+PONG|"),
        ("PING hi", "$2|hi|"),
        ("ECHO hi", "$2|hi|"),
        ("SELECT 0", "+OK|"),
        ("SELECT 1", "-ERR DB index is out of range|"),
        ("SELECT x", "-ERR value is not an integer or out of range|"),
        ("AUTH secret", "-ERR AUTH <password> called without any password configured~"),
        ("AUTH default secret", "+OK|"),
        ("AUTH bob secret", "-WRONGPASS~"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK|"),
        ("CLIENT SETINFO lib-ver 8.1.0", "+OK|"),
        ("CLIENT SETINFO what 1", "-ERR Unrecognized option 'what'|"),
        ("CLIENT GETNAME", "$-1|"),
        ("CLIENT SETNAME me", "+OK|"),
        ("CLIENT GETNAME", "$2|me|"),
        ("CLIENT NO-EVICT on", "+OK|"),
        ("CLIENT NO-TOUCH off", "+OK|"),
        ("CLIENT ID", ":~"),
        ("CLIENT HELP", "*19|+CLIENT with one of these behind it:|+GETNAME|+    Tells what~"),
        ("client help x", "-ERR wrong number of arguments for 'client|help' command|"),
        ("COMMAND help", "*15|+COMMAND with one of these behind it:|~"),
        (
            "CONFIG HELP",
            "*5|+CONFIG with one of these behind it:|+GET pattern [pattern ...]|+    Tells the \
settings whose names fit one of the patterns.|+HELP|+    Tells this.|",
        ),
        ("MEMORY HELP", "*5|+MEMORY with one of these behind it:|+USAGE key [SAMPLES count]|~"),
        ("OBJECT HELP", "*11|+OBJECT with one of these behind it:|+ENCODING key|~"),
        ("CLIENT what", "-ERR unknown subcommand 'what'. Try CLIENT HELP.|"),
        ("HELLO", "*14|$6|server|~"),
        ("HELLO 4", "-NOPROTO unsupported protocol version|"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range|"),
        ("HELLO 3 AUTH bob x", "-WRONGPASS~"),
        ("HELLO 3 SETNAME you", "%7|$6|server|$7|laneway|$7|version|~"),
        ("CLIENT GETNAME", "$3|you|"),
        ("GET none", "_|"),
        ("MGET none", "*1|_|"),
        ("CONFIG GET save", "%1|$4|save|$0||"),
        ("CONFIG GET nothing", "%0|"),
        ("CONFIG SET save 1", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.|"),
        ("COMMAND COUNT", ":~"),
        ("COMMAND DOCS nope", "%0|"),
        ("COMMAND DOCS get nope", "%1|$3|get|%4|$7|summary|$25|Tells the value of a key.|~"),
        ("COMMAND DOCS", "%~"),
        ("COMMAND LIST FILTERBY PATTERN incr*", "*3|$4|incr|$11|incrbyfloat|$6|incrby|"),
        ("COMMAND LIST FILTERBY MODULE x", "*0|"),
        ("COMMAND LIST what", "-ERR syntax error|"),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2|$1|a|$1|b|"),
        ("COMMAND GETKEYS rename a b", "*2|$1|a|$1|b|"),
        ("COMMAND GETKEYS OBJECT ENCODING k", "*1|$1|k|"),
        ("COMMAND GETKEYS nope", "-ERR Invalid command specified|"),
        ("COMMAND GETKEYS GET", "-ERR Invalid number of arguments specified for command|"),
        ("COMMAND GETKEYS PING", "-ERR The command has no key arguments|"),
        ("COMMAND INFO get nope", "*2|*10|$3|get|:2|~2|+readonly|+fast|:1|:1|:1|~0|*0|*0|*0|_|"),
        ("INFO persistence", "=~"),
        ("RESET", "+RESET|"),
        ("GET none", "$-1|"),
        ("CLIENT GETNAME", "$-1|"),
        ("CONFIG GET max?lients", "*2|$10|maxclients|$2|64|"),
        ("INFO persistence", "$41|# Persistence|loading:0|aof_enabled:~"),
        ("COMMAND", "*~"),
        ("TIME", "*2|$10|17000000~"),
        ("DBSIZE", ":0|"),
        ("MSET a 1 b 2", "+OK|"),
        ("DBSIZE", ":2|"),
        ("FLUSHALL what", "-ERR syntax error|"),
        ("FLUSHALL ASYNC", "+OK|"),
        ("GET a", "$-1|"),
        ("FLUSHDB", "+OK|"),
    ]);
}

#[test]
fn a_transaction_is_executed_when_exec_comes() {
    check(&[
        ("EXEC", "-ERR EXEC without MULTI|"),
        ("DISCARD", "-ERR DISCARD without MULTI|"),
        ("MULTI", "+OK|"),
        ("SET k 1", "+QUEUED|"),
        ("INCR k", "+QUEUED|"),
        ("GET k", "+QUEUED|"),
        ("LPUSH", "-ERR unknown command 'LPUSH', with args beginning with: |"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
        ("GET k", "$-1|"),
        ("MULTI", "+OK|"),
        ("SET k 1", "+QUEUED|"),
        ("INCR k", "+QUEUED|"),
        ("INCRBY k x", "+QUEUED|"),
        ("MGET k none", "+QUEUED|"),
        ("GET k", "+QUEUED|"),
        ("GET k", "+QUEUED|"),
        ("EXEC", "*6|+OK|:2|-ERR value is not an integer or out of range|*2|$1|2|$-1|$1|2|$1|2|"),
        ("MULTI", "+OK|"),
        ("EXEC", "*0|"),
        ("MULTI", "+OK|"),
        ("DEL k", "+QUEUED|"),
        ("DISCARD", "+OK|"),
        ("GET k", "$1|2|"),
        ("MULTI", "+OK|"),
        ("MULTI", "-ERR MULTI calls can not be nested|"),
        ("EXEC", "*0|"),
        ("MULTI", "+OK|"),
        ("GET", "-ERR wrong number of arguments for 'get' command|"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
        ("MULTI", "+OK|"),
        ("EXEC 1", "-EXECABORT Transaction discarded because of: wrong number of arguments~"),
        ("PING", "+PONG|"),
        ("WATCH k", "+OK|"),
        ("SET k 1", "+OK|"),
        ("MULTI", "+OK|"),
        ("EXEC", "*-1|"),
        ("MULTI", "+OK|"),
        ("PING", "+QUEUED|"),
        ("RESET", "+RESET|"),
        ("PING", "+PONG|"),
    ]);
}

#[test]
fn who_is_connected_is_told_by_name_and_number() {
    for plan in all_plans() {
        let mut rig = Rig::new(&with_folder(&plan));
        let clients = [(); 3].map(|()| rig.net.connect());
        let mut ids = Vec::new();
        for (client, name) in clients.iter().zip(["one", "two", "three"]) {
            rig.say_resp(client, &format!("CLIENT SETNAME {name}"));
            let id = rig.say_resp(client, "CLIENT ID");
            ids.push(id.trim_matches([':', '\r', '\n']).to_owned());
        }
        let [first, second, third] = &clients;
        rig.say_resp(second, "CLIENT SETINFO LIB-NAME lib");
        rig.say_resp(second, "CLIENT SETINFO lib-ver 1.2");
        rig.say_resp(third, "HELLO 3 SETNAME drei");
        let told = |rig: &mut Rig, line: &str| -> Vec<String> {
            let got = rig.say_resp(first, line);
            got.lines().filter(|line| line.starts_with("id=")).map(str::to_owned).collect()
        };
        let all = told(&mut rig, "CLIENT LIST");
        assert_eq!(all.len(), 3);
        assert!(all[0].contains(" name=one ") && all[2].contains(" name=drei "), "{all:?}");
        assert!(all[1].ends_with(" flags=N db=0 lib-name=lib lib-ver=1.2"), "{all:?}");
        let two = told(&mut rig, &format!("CLIENT LIST ID {} {} 999", ids[1], ids[2]));
        assert_eq!(two, all[1..]);
        assert_eq!(told(&mut rig, "CLIENT LIST TYPE normal").len(), 3);
        assert_eq!(told(&mut rig, "CLIENT LIST TYPE pubsub").len(), 0);
        let info = told(&mut rig, "CLIENT INFO");
        assert!(info[0].starts_with(&format!("id={} ", ids[0])) && info[0].ends_with(" resp=2"));
        rig.say_resp(second, "RESET");
        assert!(told(&mut rig, "CLIENT LIST")[1].contains(" name= "), "its name is gone");
        let many = format!("CLIENT LIST ID{}", " 1".repeat(257));
        for (line, wanted) in [
            ("CLIENT LIST TYPE what", "-ERR Unknown client type 'what'\r\n"),
            ("CLIENT LIST ID x", "-ERR Invalid client ID\r\n"),
            ("CLIENT LIST ID 0", "-ERR Invalid client ID\r\n"),
            ("CLIENT LIST ID", "-ERR syntax error\r\n"),
            ("CLIENT LIST what", "-ERR syntax error\r\n"),
            (&many, "-ERR CLIENT LIST takes 256 ids at most\r\n"),
        ] {
            assert_eq!(rig.say_resp(first, line), wanted, "{line}");
        }
    }
}
