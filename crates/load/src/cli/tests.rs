use super::*;
use crate::workload::Key;
use crate::workload::named::NAMES;

fn parsed(line: &str) -> Result<Option<Invocation>, String> {
    parse(line.split_whitespace().map(OsString::from).collect())
}

#[test]
fn what_a_bench_writes_if_nothing_is_said_fits_a_server_that_was_told_nothing() {
    let typed = Typed::at_the_command_line();
    let Ok(Some(invocation)) = parse_from(typed, Vec::new()) else { panic!("a run") };
    let workload = &invocation.plan.workload;
    const PER_ITEM: u64 = 128; // that a server keeps beside a value, at most
    const SERVER_BYTES: u64 = 64 << 20; // memcached's default, and Laneway's
    let bytes: u64 = (0..KEYS as u32).map(|key| workload.value_bytes(Key(key)) + PER_ITEM).sum();
    assert!(bytes < SERVER_BYTES * 4 / 5, "{bytes} bytes, in pools of some sizes");
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn a_wrong_flag_says_which_and_why() {
    for (line, words) in [
        ("--rate fast", "--rate fast: requests per second"),
        ("--rate 0", "--rate 0: must be in 1..=100000000"),
        ("--keys", "--keys: needs a value"),
        ("--keys many", "--keys many: not a number"),
        ("--frobnicate", "--frobnicate: no such flag"),
        ("here", "no such argument"),
        ("--connections 0", "--connections 0: must be at least 1"),
        ("--threads 0", "--threads 0: must be at least 1"),
        ("--threads 3 --connections 2", "--threads 3: must be at most --connections (2)"),
        ("--connections-large 2 --closed", "--connections-large 2: for one thread's open loop"),
        ("--connections-large 2 --udp", "--connections-large 2: for one thread's open loop"),
        ("--connections-set 2 --threads 2", "--connections-set 2: for one thread's open loop"),
        ("--connections-set 2 --connections-large 1", "leave out --connections-large"),
        ("--depth 4", "--depth 4: means something with --closed only"),
        ("--dialect binary", "--dialect binary: must be text or resp"),
        ("--late-max 51", "--late-max 51: must be in 0..=50"),
        ("--transport carrier-pigeon", "must be tcp, udp, shm or rdma"),
        ("--transport rdma", "needs --rdma-device NAME"),
        ("--transport rdma --rdma-device a/b", "write DEVICE"),
        ("--rdma-service rc", "with --transport rdma only"),
        ("--transport rdma --rdma-device rxe0 --rdma-service xrc", "must be any, uc, rc or ud"),
        ("--transport shm --udp-port 4", "has no ports"),
        ("--udp --shm-idle 3", "--shm-idle: means something with --transport shm only"),
        ("--udp --timeout-ms 0", "--timeout-ms 0: must be"),
        ("--timeout-ms 5", "--timeout-ms: means something with --udp only"),
        ("--udp --socket /s", "--udp: needs a --server"),
        ("--floor", "--floor: it answers GETs with values of one size"),
        ("--p-large-steps some", "--p-large-steps some: percentages"),
        ("--p-large-steps 1,200", "--p-large 200: must be"),
        ("--closed --p-large-steps 1", "--p-large-steps: a closed loop"),
        ("--duration 0", "--duration 0: must be in 0.001..=86400"),
        ("--rate 1e8 --duration 86400", "the schedule is drawn beforehand and would take 1410"),
        ("--rate 1e8 --warmup 86400", "--rate 100000000 for 86410 s, --warmup and --duration"),
        ("--trace /no/such/trace.csv", "--trace /no/such/trace.csv: "),
        ("--trace x --closed", "--trace: has a schedule"),
        ("--trace x --rate 40000", "leave out --udp, --floor, --closed, --threads, --rate ("),
        ("--trace x --speed 0", "--speed 0: must be"),
        ("--workload fb-all", "--workload fb-all: there are etc fb-usr"),
        ("--workload twitter-5", "twitter-5: its"),
        ("--workload twitter-55", "twitter-55: there are clusters 1 to 54"),
        ("--workload fb-usr --s-large 5000", "--s-large 5000: this workload has no"),
        ("--workload ycsb-e --udp", "--udp, --floor: keys are drawn by popularity"),
        ("--udp --floor --value-bytes 9 --keys-per-get 2", "with --udp, --keys-per-get"),
        ("--udp --keys-per-get 155", "they are 1400, and by --udp a GET has no more than 1392"),
        ("--workload fb-usr --udp --keys-per-get 2", "keys are of one length"),
        ("--floor --value-bytes 100 --key-bytes 20", "keys of 8 bytes, and by --udp one key"),
        ("--workload ycsb-d --keys-per-get 2", "--keys-per-get 2: the newest"),
        ("--keys-per-get 0", "--keys-per-get 0: must be"),
        ("--drain -1", "--drain -1: must be"),
        ("--key-bytes 7", "--key-bytes 7: must be in 8..=250"),
        ("--key-bytes 251", "--key-bytes 251: must be"),
        ("--keys 0", "--keys 0: must be"),
        ("--keys-large 200000", "--keys-large 200000: must be at most --keys (100000)"),
        ("--get-share 1.5", "--get-share 1.5: must be"),
        ("--zipf -1", "--zipf -1: must be"),
        ("--s-large 1400", "--s-large 1400: must be"),
        ("--value-bytes 2147483648", "--value-bytes 2147483648: must be"),
        ("--expiring 100000000", "--expiring 100000000: must be"),
        ("--expiring 1 --dialect resp", "leave out --dialect"),
        ("--beside flush_all --beside-every 0", "--beside-every 0: must be"),
        ("--beside flush_all --beside-every NaN", "--beside-every NaN: must be"),
        ("--handshakes -1", "--handshakes -1: must be"),
        ("--delete-share 0.1", "--delete-share 0.1: must be"),
        ("--p-large 1 --keys-large 0", "--p-large 1: there is no large key"),
        ("--cpu 1 --threads 2", "--cpu: 2 threads"),
        ("--service-times f --closed", "--service-times: has a closed loop of its own"),
        ("--service-times f --keys-per-get 2", "--service-times: measures single requests"),
        ("--service-times f --no-prefill", "--service-times: measures single requests"),
    ] {
        let message = parsed(line).map(|_| ()).expect_err(line);
        assert!(message.contains(words), "{line}: {message}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_asked() {
    // Nobody listens there, which would be told else.
    for flag in ["json", "service-times"] {
        let line = format!("--server 127.0.0.1:1 --{flag} /no/such/folder/file");
        let Ok(Some(invocation)) = parsed(&line) else { panic!("{line}") };
        let words = carry_out(&invocation).expect_err("it cannot be written");
        assert!(words.starts_with(&format!("--{flag} /no/such/folder/file: ")), "{words}");
    }
}

#[test]
fn flags_become_a_plan() {
    let line = "--server 127.0.0.1:1 --rate 1000,2000 --p-large 0.75 --s-large 4000000 \
                --connections 8 --threads 2 --duration 0.5 --no-prefill --runs 3 --json -";
    let plan_of = |line: &str| plan(line.split_whitespace()).expect(line);
    let plan = plan_of(line);
    assert_eq!(plan.target, Target::Tcp("127.0.0.1:1".into()));
    let modes = [1_000.0, 2_000.0].map(|rate_per_s| Mode::Open { rate_per_s });
    assert_eq!(plan.modes, modes);
    assert_eq!(plan.workload.options().large_percent, 0.75);
    assert_eq!((plan.connections, plan.threads, plan.runs), (8, 2, 3));
    assert!(!plan.prefill);
    let closed = plan_of("--closed --depth 16 --value-bytes 100");
    assert_eq!(closed.modes, [Mode::Closed { depth: 16 }]);
    let start = std::time::Instant::now();
    let window = plan_of("--warmup 2 --duration 3").window(start);
    assert_eq!([window.start, window.end].map(|at| (at - start).as_secs()), [2, 5]);
}

#[test]
fn the_help_names_every_flag() {
    const NAMES_OF_FLAGS: &str = "\
        server socket dialect keys keys-large p-large s-large value-bytes get-share zipf \
        seed rate closed depth runs first-run connections threads duration warmup drain \
        p-large-steps late-max distribution count-idle workload trace speed delete-share \
        keys-per-get key-bytes first-key no-prefill floor server-pid cpu json quiet udp \
        service-times tls-ca tls-cert tls-key tls-name handshakes \
        connections-large connections-set transport shm-idle udp-port timeout-ms help";
    for name in NAMES_OF_FLAGS.split_whitespace() {
        assert!(HELP.contains(&format!("--{name}")), "--{name}");
    }
    assert!(NAMES.split(' ').all(|name| HELP.contains(name)));
    assert!(HELP.lines().all(|line| line.chars().count() <= 100));
}
