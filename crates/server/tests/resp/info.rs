//! What `INFO` and `CONFIG GET` tell of the server.

use crate::kept::{all_plans, with_folder};
use laneway_policy::Form;
use laneway_rig::durable::Kept;
use laneway_rig::{Plan, Rig};
use laneway_transport::memory::Client;
use std::time::Duration;

/// redis-py's own tests and ioredis do not begin without these.
#[test]
fn info_has_the_fields_that_clients_look_for() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    let text = rig.say_resp(&client, "INFO");
    let wanted = ["redis_version:7.2.4", "arch_bits:64", "loading:0", "cluster_enabled:0"];
    for field in [&wanted[..], &["redis_mode:standalone", "role:master"]].concat() {
        assert!(text.contains(&format!("\r\n{field}\r\n")), "{field}: {text}");
    }
}

/// The lines of a section of `INFO`.
fn section(rig: &mut Rig, client: &Client, name: &str) -> Vec<String> {
    rig.say_resp(client, &format!("INFO {name}")).lines().map(str::to_owned).collect()
}

#[test]
fn info_counts_what_was_answered_and_the_time_that_it_took() {
    for plan in all_plans() {
        let what = plan.what();
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        let requests =
            ["SET k v", "GET k", "MGET k none", "DEL none", "MULTI", "INCR n", "GET n", "EXEC"];
        for line in requests {
            rig.say_resp(&client, line);
        }
        rig.turns(10);
        let stats = section(&mut rig, &client, "stats");
        let told = stats.iter().find_map(|line| line.strip_prefix("total_commands_processed:"));
        assert_eq!(told, Some("9"), "each key is one, and so are MULTI and EXEC; {what}");
        rig.say_resp(&client, "PING");
        let stats = section(&mut rig, &client, "stats");
        assert!(stats.contains(&"total_commands_processed:11".to_owned()), "{stats:?}, {what}");
        for line in ["FLUSHALL", "MULTI", "PING", "GET n", "EXEC"] {
            rig.say_resp(&client, line);
        }
        rig.turns(10);
        let stats = section(&mut rig, &client, "stats");
        assert!(stats.contains(&"total_commands_processed:17".to_owned()), "{stats:?}, {what}");
        let cpu = section(&mut rig, &client, "CPU");
        assert_eq!(cpu[1], "# CPU");
        for (line, name) in cpu[2..].iter().zip(["used_cpu_sys:", "used_cpu_user:"]) {
            let seconds = line.strip_prefix(name).and_then(|text| text.parse::<f64>().ok());
            assert!(seconds.is_some_and(|seconds| seconds >= 0.0), "{line}, {what}");
        }
    }
}

#[test]
fn info_counts_as_expired_what_has_expired_and_not_what_was_flushed() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    for line in ["SET flushed v", "FLUSHALL", "GET flushed"] {
        rig.say_resp(&client, line);
    }
    assert!(section(&mut rig, &client, "stats").contains(&"expired_keys:0".to_owned()));
    rig.say_resp(&client, "SET ended v PX 10");
    rig.clock.advance(1_000_000_000);
    rig.say_resp(&client, "GET ended");
    assert!(section(&mut rig, &client, "stats").contains(&"expired_keys:1".to_owned()));
}

/// `/metrics` and `/api/state` tell of it, whatever is spoken.
#[test]
fn what_the_protocol_does_not_have_and_what_breaks_it_is_counted() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    for line in ["NOPE", "GET", "MSET k v k", "GET k"] {
        rig.say_resp(&client, line);
    }
    assert_eq!(rig.shared.totals().malformed, 3);
    // At once, and behind a value that streams into its item.
    let value = "v".repeat(100_000);
    let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n";
    let set = [&head[..], value.as_bytes(), b"xx"].concat();
    for broken in [&b"*1\r\nx\r\n"[..], &set[..]] {
        let before = rig.shared.totals().malformed;
        let client = rig.net.connect();
        let told = rig.ask_resp(&client, broken, 1);
        assert!(told.starts_with(b"-ERR Protocol error"), "{}", String::from_utf8_lossy(&told));
        assert_eq!(rig.shared.totals().malformed, before + 1);
    }
}

fn told_as_kept(plan: &Plan, (enabled, settings): (&str, [&str; 2]), what: &str) {
    let mut rig = Rig::new(plan);
    let client = rig.net.connect();
    let persistence = section(&mut rig, &client, "persistence");
    assert!(persistence.contains(&format!("aof_enabled:{enabled}")), "{persistence:?}, {what}");
    let most = plan.item_bytes_max.to_string();
    let [appendonly, appendfsync] = settings;
    let rows = [
        ("appendonly", appendonly),
        ("appendfsync", appendfsync),
        ("proto-max-bulk-len", most.as_str()),
    ];
    for (name, value) in rows {
        let got = rig.say_resp(&client, &format!("CONFIG GET {name}")).replace("\r\n", "|");
        let wanted = format!("*2|${}|{name}|${}|{value}|", name.len(), value.len());
        assert_eq!(got, wanted, "{what}");
    }
}

#[test]
fn config_and_info_tell_whether_items_are_kept_and_how() {
    for plan in all_plans() {
        let what = plan.what();
        let plan = with_folder(&plan);
        let wanted = match &plan.kept {
            None => ("0", ["no", "no"]),
            Some(_) => ("1", ["yes", "always"]),
        };
        told_as_kept(&plan, wanted, &what);
        let plan = with_folder(&plan);
        if let Some(kept) = plan.kept.clone() {
            let interval = Some(Duration::from_millis(5));
            let plan = Plan { kept: Some(Kept { interval, ..kept }), ..plan };
            told_as_kept(&plan, ("1", ["yes", "everysec"]), &what);
        }
    }
}

/// Exporters divide the memory in use, which is that of all domains, by either.
#[test]
fn config_and_info_tell_the_memory_of_all_numa_domains() {
    for domains in [1, 2] {
        let plan = Plan { domains, ..Plan::of(4, Form::TimeShare) };
        let bytes = plan.memory_bytes.to_string();
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let text = rig.say_resp(&client, "INFO memory");
        assert!(text.contains(&format!("\r\nmaxmemory:{bytes}\r\n")), "{domains}: {text}");
        let text = rig.say_resp(&client, "CONFIG GET maxmemory").replace("\r\n", "|");
        let wanted = format!("*2|$9|maxmemory|${}|{bytes}|", bytes.len());
        assert_eq!(text, wanted, "{domains} domains");
    }
}
