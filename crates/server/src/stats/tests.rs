//! The question is read as memcached reads it; each family is written as its readers expect.

use super::lines::Micros;
use super::*;
use crate::latency::histogram::{Histogram, Reading};
use crate::latency::{Latencies, Operation, Part, ROWS, row};
use laneway_policy::{Access, Placement, Role};
use laneway_store::{ClassStats, Stats};

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("stats are text")
}

#[test]
fn words_behind_stats_are_read_as_memcached_reads_them() {
    for (words, answer) in [
        ("", Ok(Question::General)),
        ("settings", Ok(Question::Settings)),
        ("items", Ok(Question::Items)),
        ("items 3", Ok(Question::Items)),
        ("slabs", Ok(Question::Slabs)),
        ("sizes", Ok(Question::Sizes)),
        ("conns", Ok(Question::Connections)),
        ("reset", Ok(Question::Reset)),
        ("reset now", Ok(Question::Reset)),
        ("detail on", Ok(Question::Detail(true))),
        ("detail  off", Ok(Question::Detail(false))),
        ("detail dump", Err(END)),
        ("detail", Err(DETAIL_USAGE)),
        ("detail up", Err(DETAIL_USAGE)),
        ("lanes", Ok(Question::Lanes)),
        ("latency", Ok(Question::Latency)),
        ("buckets", Ok(Question::Buckets)),
        ("large", Ok(Question::Large)),
        ("clients", Ok(Question::Clients)),
        ("topology", Ok(Question::Topology)),
        ("cachedump 1 10", Ok(Question::Cachedump { class: 1, limit: 10 })),
        ("cachedump 1", Err(BAD_LINE)),
        ("cachedump x 1", Err(BAD_FORMAT)),
        ("cachedump 200 1", Err(ILLEGAL_CLASS)),
        ("sizes_enable", Err(SIZES_ENABLED)),
        ("nonsense", Err(ERROR)),
        ("SETTINGS", Err(ERROR)),
    ] {
        assert_eq!(question(words.as_bytes()), answer, "stats {words}");
    }
}

/// Names that memcached's general `stats` has had since 1.4, which monitoring relies on.
const GENERAL_NAMES: &str = "\
    pid uptime time version pointer_size rusage_user rusage_system max_connections \
    curr_connections total_connections rejected_connections connection_structures reserved_fds \
    cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired get_flushed \
    delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses cas_hits \
    cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds auth_errors \
    bytes_read bytes_written limit_maxbytes accepting_conns listen_disabled_num \
    time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding \
    malloc_fails bytes curr_items total_items expired_unfetched evicted_unfetched evicted_active \
    evictions reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold \
    moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped";

#[test]
fn general_stats_have_memcacheds_names_in_its_order() {
    let snapshot = GeneralSnapshot {
        cpu_user_us: 12_034_567,
        store: Stats { items: 4, metadata_bytes: 110, buckets: 4096, ..Stats::default() },
        ..GeneralSnapshot::default()
    };
    let text = text(|out| write_general(&snapshot, out));
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next()).collect();
    let mut found = names.iter();
    for name in GENERAL_NAMES.split(' ') {
        assert!(found.any(|other| *other == name), "{name} is missing or out of order");
    }
    assert!(text.contains("STAT rusage_user 12.034567\r\n"));
    assert!(text.contains("STAT hash_power_level 12\r\n"));
    assert!(text.contains("STAT metadata_bytes_per_item 27.5\r\n"));
    assert!(text.ends_with("END\r\n"));
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "no name comes twice");
}

#[test]
fn settings_say_what_was_asked_for() {
    let snapshot = SettingsSnapshot {
        memory_bytes: 64 << 20,
        tcp_port: 11211,
        unix_mode: 0o700,
        evicts: true,
        cas: true,
        own: vec![("design", "lanes".to_owned())],
        ..SettingsSnapshot::default()
    };
    let text = text(|out| write_settings(&snapshot, out));
    for line in [
        "STAT maxbytes 67108864\r\n",
        "STAT tcpport 11211\r\n",
        "STAT inter NULL\r\n",
        "STAT evictions on\r\n",
        "STAT domain_socket NULL\r\n",
        "STAT umask 700\r\n",
        "STAT cas_enabled yes\r\n",
        "STAT flush_enabled no\r\n",
        "STAT design lanes\r\nEND\r\n",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

#[test]
fn settings_have_every_name_that_memcached_1_6_45_has_without_tls_and_proxy() {
    let text = text(|out| write_settings(&SettingsSnapshot::default(), out));
    let names = "maxbytes maxconns tcpport udpport inter verbosity oldest evictions domain_socket \
        umask shutdown_command growth_factor chunk_size num_threads num_threads_per_udp \
        stat_key_prefix detail_enabled reqs_per_event cas_enabled tcp_backlog binding_protocol \
        auth_enabled_sasl auth_enabled_ascii item_size_max maxconns_fast hashpower_init \
        slab_reassign slab_automove slab_automove_ratio slab_automove_window slab_chunk_max \
        lru_crawler lru_crawler_sleep lru_crawler_tocrawl tail_repair_time flush_enabled \
        dump_enabled hash_algorithm lru_maintainer_thread lru_segmented hot_lru_pct warm_lru_pct \
        hot_max_factor warm_max_factor temp_lru temporary_ttl idle_timeout watcher_logbuf_size \
        worker_logbuf_size read_buf_mem_limit track_sizes inline_ascii_response ext_item_size \
        ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size ext_compact_under ext_drop_under \
        ext_max_sleep ext_max_frag slab_automove_freeratio ext_drop_unread ssl_enabled \
        num_napi_ids memory_file client_flags_size";
    let told = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next());
    assert_eq!(told.collect::<Vec<_>>(), names.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn classes_are_told_three_ways() {
    let class = ClassStats {
        slot_bytes: 96,
        chunks: 2,
        slots: 200,
        used: 3,
        items: 2,
        bytes: 250,
        evicted: 7,
        class: 5,
    };
    let classes = [ClassStats { class: 1, ..ClassStats::default() }, class];
    let items = text(|out| write_items(&classes, out));
    assert!(items.starts_with("STAT items:5:number 2\r\n"), "empty classes are left out");
    assert!(items.contains("STAT items:5:evicted 7\r\n"));
    let store = Stats { pool_bytes: 4096, ..Stats::default() };
    let slabs = text(|out| write_slabs(&classes, &store, out));
    assert!(slabs.contains("STAT 5:chunks_per_page 100\r\n"));
    assert!(slabs.contains("STAT 5:free_chunks 197\r\n"));
    assert!(slabs.ends_with("STAT active_slabs 1\r\nSTAT total_malloced 4096\r\nEND\r\n"));
    assert_eq!(text(|out| write_sizes(&classes, out)), "STAT 96 3\r\nEND\r\n");
}

#[test]
fn lanes_are_told_per_worker() {
    let small = WorkerLane {
        role: Role::Small,
        range_bytes: None,
        moved: 4,
        numbers: vec![("requests_small".to_owned(), 10), ("stolen".to_owned(), 1)],
    };
    let large = WorkerLane {
        role: Role::Large,
        range_bytes: Some((1456, 1 << 20)),
        moved: 7,
        numbers: Vec::new(),
    };
    let both = WorkerLane { role: Role::Both, range_bytes: None, moved: 0, numbers: Vec::new() };
    let domain =
        DomainLanes { threshold_bytes: 1456, epochs: 5, role_changes: 2, workers_large: 1 };
    let mut snapshot = LanesSnapshot {
        design: "lanes",
        form: "roles",
        percentile: 99.0,
        epoch_ms: 1000,
        domains: vec![domain],
        queue_shared: 1,
        queue_shared_jobs: 9,
        workers: vec![small, large, both],
    };
    let text = text(|out| write_lanes(&snapshot, out));
    for line in [
        "STAT design lanes\r\n",
        "STAT threshold_bytes 1456\r\n",
        "STAT queue_shared_jobs 9\r\n",
        "STAT worker:0:stolen 1\r\n",
        "STAT percentile 99\r\n",
        "STAT workers_small 1\r\n",
        "STAT workers_large 1\r\n",
        "STAT workers_shared 1\r\n",
        "STAT migrations 11\r\n",
        "STAT worker:0:role small\r\nSTAT worker:0:requests_small 10\r\n",
        "STAT worker:1:role large\r\nSTAT worker:1:range_bytes_from 1456\r\n",
        "STAT worker:2:role shared\r\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("domain:"), "{text}");
    snapshot.domains.push(snapshot.domains[0].clone());
    let several = self::text(|out| write_lanes(&snapshot, out));
    assert!(several.contains("STAT domain:1:threshold_bytes 1456\r\n"), "{several}");
    assert!(several.contains("STAT role_changes 4\r\n"), "{several}");
}

#[test]
fn latency_is_in_microseconds_and_leaves_empty_rows_out() {
    for (nanos, told) in
        [(8_449, "8.4"), (8_450, "8.5"), (1_000_000, "1000.0"), (1_000_049, "1000.0")]
    {
        assert_eq!(Micros(nanos).to_string(), told);
    }
    let mut rows = vec![Reading::default(); ROWS];
    let times = Histogram::default();
    for (nanos, requests) in [((1 << 10) - 1, 90), ((1 << 13) - 1, 9), (u64::MAX, 1)] {
        times.add_owner(nanos, requests);
    }
    rows[row(Operation::Get, false)].add(&times);
    assert_eq!(
        text(|out| write_latency(&rows, 3, out)),
        "STAT get:small:count 100\r\n\
         STAT get:small:latency_us_p50 1.0\r\n\
         STAT get:small:latency_us_p90 1.0\r\n\
         STAT get:small:latency_us_p99 8.2\r\n\
         STAT get:small:latency_us_p99.9 18446744073709551.6\r\n\
         STAT get:small:latency_us_max 18446744073709551.6\r\n\
         STAT get:kernel:count 3\r\nEND\r\n"
    );
}

#[test]
fn buckets_have_ends_that_stay_and_leave_empty_ones_out() {
    let mut rows = vec![Latencies::default(); ROWS];
    assert_eq!(text(|out| write_buckets(&rows, out)), "END\r\n");
    let times = Histogram::default();
    for (nanos, requests) in [(0, 1), (1_023, 2), (1_024, 3), (1_280, 4), (1 << 33, 5)] {
        times.add_owner(nanos, requests);
    }
    times.add_owner(1 << 34, 6);
    rows[row(Operation::Get, true)].whole.add(&times);
    rows[row(Operation::Set, false)].parts[Part::Drain as usize].add(&times);
    let lines = |name: &str| {
        [(1_024, 3), (1_280, 3), (1_536, 4), (10_737_418_240u64, 5)]
            .map(|(end, count)| format!("STAT {name}:{end} {count}\r\n"))
            .concat()
            + &format!("STAT {name}:more 6\r\n")
    };
    let all = lines("get:large:whole_ns") + &lines("set:small:drain_ns") + "END\r\n";
    assert_eq!(text(|out| write_buckets(&rows, out)), all);
}

#[test]
fn topology_tells_where_keys_belong_only_where_clients_place_them() {
    let mut snapshot = TopologySnapshot {
        tcp_ports: vec![11211],
        queues: 2,
        workers: vec![WorkerPlace::default(); 2],
        ..TopologySnapshot::default()
    };
    let private = text(|out| write_topology(&snapshot, out));
    assert!(private.contains("STAT tcp_port 11211\r\n"));
    assert!(private.contains("STAT queues 2\r\nSTAT workers 2\r\nEND\r\n"));
    snapshot.placement = Placement::new(0xff, 2, 1);
    snapshot.workers[1].udp_port = Some(11300);
    snapshot.udp_address = Some("127.0.0.1".to_owned());
    let told = text(|out| write_topology(&snapshot, out));
    assert!(told.contains("STAT hash owner-1\r\nSTAT hash_seed 00000000000000ff\r\n"));
    assert!(told.contains("STAT domains 1\r\n"));
    assert!(told.contains("STAT udp_address 127.0.0.1\r\n") && !private.contains("udp_address"));
    snapshot.access = Some(Access::Erew);
    let told = text(|out| write_topology(&snapshot, out));
    assert!(told.contains("STAT domains 1\r\nSTAT access erew\r\n"));
    assert!(told.contains("STAT worker:1:udp_port 11300\r\n"));
}

#[test]
fn connections_are_told_in_memcacheds_words() {
    let listener = ConnectionSnapshot {
        number: 23,
        address: "tcp:127.0.0.1:11211".to_owned(),
        state: "conn_listening",
        idle_seconds: 61,
        ..ConnectionSnapshot::default()
    };
    assert_eq!(
        text(|out| write_connection(&listener, out)),
        "STAT 23:addr tcp:127.0.0.1:11211\r\n\
         STAT 23:state conn_listening\r\n\
         STAT 23:secs_since_last_cmd 61\r\n"
    );
}

#[test]
fn udp_tells_its_queues_its_counts_and_the_kernels() {
    let none = text(|out| write_udp(None, out));
    assert_eq!(none, "STAT udp no\r\nEND\r\n");
    let snmp = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors RcvbufErrors\nUdp: 9 3 7 5\n";
    let snapshot = UdpSnapshot {
        queues: vec![("127.0.0.1:7000".to_owned(), true)],
        counts: vec![("truncated", 4)],
        kernel: kernel_counts(snmp),
        ..UdpSnapshot::default()
    };
    let told = text(|out| write_udp(Some(&snapshot), out));
    for line in [
        "queues 1",
        "queue:0:address 127.0.0.1:7000",
        "truncated 4",
        "kernel_no_such_queue 3",
        "kernel_receive_buffer_full 5",
    ] {
        assert!(told.contains(&format!("STAT {line}\r\n")), "{line}: {told}");
    }
    assert!(kernel_counts("Udp: InDatagrams\n").is_empty() && kernel_counts("").is_empty());
}

#[test]
fn the_kernel_tells_its_hits_and_why_it_passed_the_rest() {
    let none = text(|out| write_kernel(&KernelSnapshot::default(), out));
    assert_eq!(none, "STAT kernel_lane no\r\nSTAT steering no\r\nSTAT af_xdp no\r\nEND\r\n");
    let lane = KernelLaneSnapshot {
        interfaces: vec!["eth0".to_owned(), "lo".to_owned()],
        hook: "tcx",
        hits: 5,
        datagrams: 2,
        passes: vec![("miss", 2)],
        hits_of_class: vec![0, 0, 0, 5],
        ..KernelLaneSnapshot::default()
    };
    let bypass = BypassSnapshot {
        interface: "eth1".to_owned(),
        mode: "copy",
        hook: "driver",
        queues: 4,
        busy_poll: true,
        counts: vec![("dropped:checksum".to_owned(), 3)],
    };
    let steering = Some(vec![("steered", 7)]);
    let snapshot = KernelSnapshot { lane: Some(lane), steering, bypass: Some(bypass) };
    let told = text(|out| write_kernel(&snapshot, out));
    for line in [
        "kernel_lane yes",
        "interfaces eth0,lo",
        "hook tcx",
        "hits 5",
        "datagrams 2",
        "passed:miss 2",
        "hits:from_8_bytes 5",
        "steering yes",
        "steered 7",
        "af_xdp yes",
        "af_xdp:interface eth1",
        "af_xdp:mode copy",
        "af_xdp:hook driver",
        "af_xdp:queues 4",
        "af_xdp:busy_poll yes",
        "af_xdp:dropped:checksum 3",
    ] {
        assert!(told.contains(&format!("STAT {line}\r\n")), "{line}: {told}");
    }
}
