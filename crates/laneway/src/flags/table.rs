//! Every flag of `serve`: the one place where its name, memcached's letter, the kind of its value,
//! its default and its help are written. That a default told here is the one in force, and that
//! each choice is taken, is checked by `serve`'s tests.

use super::flag::{Field, Flag, Handover, Section, flags};
use super::foreign::Extended;
use super::origin::Origin;
use std::ffi::OsString;

const fn flag(name: &'static str, value: &'static str) -> Flag<Flags> {
    Flag::new(name, value)
}

const fn switch(name: &'static str) -> Flag<Flags> {
    Flag::new(name, "")
}

flags! {
    /// The flags as typed; `None` where a flag was left out. Nothing is checked against anything
    /// else here; `serve` makes settings of it.
    Flags, SECTIONS;

"Where it listens" {
    Number port: Option<i32> = flag("port", "num").letter('p').default("11211")
        .help("TCP port to listen on; -1: any free one");
    List listen: Vec<String> = flag("listen", "addr").letter('l').unless("all addresses")
        .help("address to listen on, several separated by commas, each with or without :port; \
               readonly: before one refuses whatever changes something there, rate=N: and \
               bytes=BYTES: limit what all who come there ask for a second, notls: see -Z");
    Path unix_socket: Option<OsString> = flag("unix-socket", "file").letter('s')
        .help("unix socket to listen on, instead of the TCP port -p; --resp still listens at the \
               addresses of -l");
    Octal unix_mask: Option<u32> = flag("unix-mask", "mask").letter('a').default("700")
        .help("permissions of the unix socket, in octal");
    Number connections: Option<usize> = flag("conn-limit", "num").letter('c').default("1024")
        .help("max simultaneous connections");
    Number connections_per_address: Option<usize> = flag("connections-per-address", "num")
        .default("0")
        .help("of these, those of one address, or of one /64 of IPv6; 0: any number");
    Number client_rate: Option<u64> = flag("client-rate", "num").default("0")
        .help("requests a second of all connections of one such address; who asks for more waits; \
               0: any number. SIGHUP changes it at once, as does the command client_rate");
    Bytes client_bytes: Option<u64> = flag("client-bytes", "bytes").default("0")
        .help("the same of bytes, in and out; large values wait first. Also the command \
               client_bytes");
    Number backlog: Option<i32> = flag("listen-backlog", "num").letter('b').default("1024")
        .help("connections the kernel queues for us");
    Path auth_file: Option<OsString> = flag("auth-file", "file").letter('Y')
        .help("who may ask: a line user:password for each. memcached's clients send both in a \
               first set, Redis' by AUTH; UDP is off. SIGHUP reads it again (docs/security.md)");
    Switch sasl: bool = switch("enable-sasl").letter('S')
        .help("-B binary, where nothing else is said; clients say who they are by SASL, as the \
               users of -Y, without which there is no -S");
    Switch tls: bool = switch("tls").letter('Z').also(&["enable-ssl"])
        .help("what comes by TCP is encrypted (TLS 1.2 and 1.3), but for addresses of -l that \
               begin with notls:. SIGHUP reads the files again (docs/security.md)");
    Path tls_cert: Option<OsString> = flag("tls-cert", "file")
        .help("the server's certificate in PEM, and those between it and an authority behind it; \
               turns -Z on. Also -o ssl_chain_cert=FILE");
    Path tls_key: Option<OsString> = flag("tls-key", "file").unless("in the same file")
        .help("its private key in PEM. Also -o ssl_key=FILE");
    Path tls_client_ca: Option<OsString> = flag("tls-client-ca", "file")
        .help("clients must show a certificate by one of the authorities in this file. Also -o \
               ssl_ca_cert=FILE,ssl_verify_mode=2");
    Text tls_min_version: Option<String> = flag("tls-min-version", "version").default("1.2")
        .help("the oldest version of TLS that is spoken. Also -o ssl_min_version")
        .choices(&[("1.2", "TLS 1.2 and 1.3"), ("1.3", "TLS 1.3 alone")]);
    Number tls_handshake_milliseconds: Option<u64> = flag("tls-handshake-ms", "ms")
        .default("10000")
        .help("a connection whose TLS handshake takes longer is closed");
    Number resp: Option<u16> = flag("resp", "num")
        .help("a port where nothing but RESP is spoken, Redis' protocol, at the addresses of -l. \
               At -p and -s a connection's first bytes tell (docs/resp.md)");
    Switch no_resp: bool = switch("no-resp")
        .help("no RESP there: what is not memcached's is an error");
    Number udp_port: Option<i32> = flag("udp-port", "num").letter('U').default("0")
        .help("UDP port for memcached's UDP clients; 0: none, -1: any free one");
    Number udp_base: Option<i32> = flag("udp-base", "num")
        .help("a UDP port per worker from here on: a client that knows Laneway chooses the queue \
               (Minos, section 4.1); -1: any free ones");
    Text udp_listen: Option<String> = flag("udp-listen", "addr").default("127.0.0.1")
        .help("address of the UDP ports");
    Switch udp_public: bool = switch("udp-public")
        .help("allow an address that strangers reach; they are answered at most 3 bytes per byte \
               until they echo a cookie");
    Path shm: Option<OsString> = flag("shm", "path")
        .help("clients on this host write their requests into memory that is shared with them, \
               handed out at this unix socket (HERD's way)");
    Octal shm_mask: Option<u32> = flag("shm-mask", "mode").default("700")
        .help("who may open it, in octal");
    Number shm_clients: Option<usize> = flag("shm-clients", "num").default("64")
        .help("such clients at a time");
    Text rdma: Option<String> = flag("rdma", "dev[:port[:gid]]")
        .help("clients write their requests by this RDMA device, as `rdma link` names it (HERD). \
               This needs a build with --features rdma; see laneway doctor");
    Number rdma_port: Option<u16> = flag("rdma-port", "num").default("18515")
        .help("TCP port where they say who they are");
    Number rdma_clients: Option<usize> = flag("rdma-clients", "num").default("512")
        .help("such clients at a time");
    Number rdma_slots: Option<usize> = flag("rdma-slots", "num").default("64")
        .help("of these so many have slots of their own; whoever comes beyond that sends datagrams \
               (0: everybody)");
    List kernel_lane: Vec<String> = flag("kernel-lane", "list")
        .help("answer GETs for small items in the kernel, at these interfaces (such as eth0,lo), \
               before any firewall of this host. This and --steer need a build with --features \
               kernel; see laneway doctor and docs/kernel.md");
    Number kernel_lane_megabytes: Option<u64> = flag("kernel-lane-memory", "num")
        .unless("a quarter")
        .help("megabytes of -m for these items");
    Text kernel_lane_peers: Option<String> = flag("kernel-lane-peers", "list")
        .help("who is answered there (10.0.0.0/8,fd00::1); must be given for all but lo");
    Number kernel_lane_megabits: Option<u32> = flag("kernel-lane-rate", "num").default("1000")
        .help("megabits of these answers a second to one address, on one CPU, at all but lo; the \
               server answers the rest; 0: no limit");
    Text kernel_lane_hook: Option<String> = flag("kernel-lane-hook", "name").default("tc")
        .help("where the program sits")
        .choices(&[("tc", "at tc ingress"), ("xdp", "at the driver's hook")]);
    Switch steer: bool = switch("steer")
        .help("the kernel hands datagrams at -U to their key's owner");
    List af_xdp: Vec<String> = flag("af-xdp", "list")
        .help("UDP from these interfaces (eth0,eth1) comes past the kernel's stack (AF_XDP); an RX \
               queue of each for each worker, one address by --udp-listen. This needs a build with \
               --features af-xdp; see docs/kernel.md");
    Switch af_xdp_copy: bool = switch("af-xdp-copy")
        .help("the kernel copies packets, even where the card need not");
    Switch af_xdp_busy_poll: bool = switch("af-xdp-busy-poll")
        .help("workers look at these cards' drivers themselves, before each wait for interrupts");
}

"What it holds" {
    Megabytes memory_bytes: Option<u64> = flag("memory-limit", "num").letter('m').default("64")
        .help("memory for items in megabytes, or with k, m or g");
    Switch no_evictions: bool = switch("disable-evictions").letter('M')
        .help("answer \"out of memory\" rather than evict (store mode)");
    Bytes item_bytes_max: Option<u64> = flag("max-item-size", "bytes").letter('I').default("1m")
        .help("largest item, with k, m or g; at most 1g and half of -m");
    Switch large_pages: bool = switch("enable-largepages").letter('L')
        .help("items on huge pages too, where the kernel has them (the index is on such anyway)");
    Switch lock_memory: bool = switch("lock-memory").letter('k')
        .help("keep all memory resident");
    Switch no_cas: bool = switch("disable-cas").letter('C')
        .help("no CAS ids: they read 0");
    Switch no_flush: bool = switch("disable-flush-all").letter('F')
        .help("refuse flush_all");
    Switch no_dump: bool = switch("disable-dumping").letter('X')
        .help("refuse stats cachedump, stats hotkeys, lru_crawler metadump and mgdump, watch, and \
               RESP's SCAN and RANDOMKEY, which tell keys");
    Switch no_watch: bool = switch("disable-watch").letter('W')
        .help("refuse watch, which streams what clients ask");
}

"What outlives it (SplitKV, HotStorage'20; docs/operating.md)" {
    Path data_dir: Option<OsString> = flag("data-dir", "folder")
        .help("keep items durably in this folder; memory is a cache over it. A write is durable \
               when it is answered");
    Text durability: Option<String> = flag("durability", "name").default("ack")
        .help("ack, or interval:<ms>: answered at once, durable that often; a crash loses that \
               much");
    Path pm: Option<OsString> = flag("pm", "path").unless("DIR/log")
        .help("the log: a file, device or DAX file");
    Text pm_backend: Option<String> = flag("pm-backend", "name").default("wal")
        .help("how the log is written")
        .choices(&[
            ("wal", "a file or device, written in groups"),
            ("dax", "persistent memory, mapped with MAP_SYNC"),
            ("emu", "any file, mapped; lost with the power, for benchmarks, with \
                     --unsafe-volatile-pm"),
        ]);
    Switch volatile_pm: bool = switch("unsafe-volatile-pm")
        .help("the log may be lost with the power: said for --pm-backend emu");
    Text pm_index: Option<String> = flag("pm-index", "name").unless("what the store has; btree for \
                                                                     a new one")
        .help("where the index is")
        .choices(&[
            ("btree", "in memory"),
            ("fair", "in persistent memory, with --pm-backend dax"),
        ]);
    Bytes pm_bytes: Option<u64> = flag("pm-size", "bytes").default("256m")
        .help("size of the log; where it is there already and smaller, it grows to that");
    Switch pad_groups: bool = switch("pad-groups")
        .help("no block of the log is written again: for devices that may lose a block whose \
               writing the power interrupts");
    Switch accept_lost_log: bool = switch("accept-lost-log")
        .help("a store whose log is lost goes on with what the SSD had at its last checkpoint; \
               otherwise it is refused. For one start: leave it out of unit files");
    Path ssd: Option<OsString> = flag("ssd", "path").unless("DIR/ssd")
        .help("large values and cold items");
    Bytes ssd_bytes: Option<u64> = flag("ssd-size", "bytes").default("4g")
        .help("its size; where it is there already and smaller, it grows to that");
    TextOrNumber split: Option<String> = flag("split-bytes", "bytes").default("4096")
        .help("values from here on go straight to the SSD; 0: all do, inf: none that the log \
               takes, auto: those for which that takes the media less time, as measured");
    Text compress: Option<String> = flag("compress", "name").default("off")
        .help("how values that go straight to the SSD are compressed, where that gains an eighth. \
               A store that had it on once is refused by programs from before")
        .choices(&[("off", "not at all"), ("lz4", "fast, for text and the like")]);
    Bytes compress_from: Option<u64> = flag("compress-from", "bytes").default("8k")
        .help("with --compress: shorter values are stored as they are, as are those of 1m and \
               more");
    Text migrate_by: Option<String> = flag("migrate-by", "name").unless("age; hotness with \
                                                                         --when-full evict")
        .help("what leaves a full log")
        .choices(&[("age", "what is oldest"), ("hotness", "what was not asked for")]);
    Bytes migrate_rate: Option<u64> = flag("migrate-rate", "bytes").default("0")
        .help("what leaving it may write a second; 0, or where the log is short of room: as much \
               as it can. SIGHUP changes it at once, as does the command migrate_rate");
    Text when_full: Option<String> = flag("when-full", "name").default("refuse")
        .help("what becomes of a write when the SSD is full")
        .choices(&[
            ("refuse", "it is refused, and nothing is lost: a store"),
            ("evict", "expired, then cold items are dropped for it: a cache"),
        ]);
    Number read_threads: Option<usize> = flag("read-threads", "num").default("8")
        .help("reads that wait for the SSD at a time");
    Path backup_dir: Option<OsString> = flag("backup-dir", "folder")
        .help("clients may have the data folder copied to a file in this one (laneway backup)");
    Bytes backup_rate: Option<u64> = flag("backup-rate", "bytes").default("64m")
        .help("what a backup writes a second at most; 0: as much as it can");
    Text scrub_every: Option<String> = flag("scrub-every", "time").default("7d")
        .help("so often all that is in use on log and SSD is read and verified beside the requests \
               (90s, 30m, 12h, 7d); off: never");
    Bytes scrub_rate: Option<u64> = flag("scrub-rate", "bytes").default("16m")
        .help("what that reads a second at most; 0: as much as it can");
}

"Lanes (Minos, NSDI'19, sections 3 and 5)" {
    Number workers: Option<usize> = flag("threads", "num").letter('t').also(&["workers"])
        .unless("one per CPU, up to 64")
        .help("worker threads; also --workers");
    Text design: Option<String> = flag("design", "name").default("lanes")
        .help("who serves what")
        .choices(&[
            ("lanes", "large and small requests on lanes of their own"),
            ("minos", "large requests handed to large workers, each with a range of sizes, run to \
                       completion"),
            ("hkh", "every worker serves what it receives (MICA)"),
            ("hkh-ws", "the same, and idle workers steal (ZygOS)"),
            ("sho", "some workers receive and hand over, the others serve (RAMCloud)"),
        ]);
    Text access: Option<String> = flag("access", "name").default("crcw")
        .help("who serves a key under hkh")
        .choices(&[
            ("crew", "its owner writes"),
            ("erew", "its owner reads and writes"),
            ("crcw", "whoever receives the request"),
        ]);
    Text numa: Option<String> = flag("numa", "which").default("off")
        .help("off, auto (the machine's NUMA domains) or fake:N (N domains on any machine): each \
               has workers, memory and queues of its own (Minos, section 3.1)");
    Number handoff_workers: Option<u16> = flag("handoff-workers", "num").default("1")
        .help("workers that hand over under sho");
    Switch extra_large: bool = switch("extra-large")
        .help("one more large worker under minos, and small requests taken from others one at a \
               time");
    Text form: Option<String> = flag("form", "name")
        .unless("time-share up to 2 workers, roles from 3 on")
        .help("what a worker does")
        .choices(&[
            ("time-share", "each worker serves small requests first, then one slice of a large \
                            one"),
            ("roles", "small and large workers"),
        ]);
    Bytes threshold: Option<u64> = flag("threshold", "bytes").unless("found each epoch")
        .help("sizes from here on are large");
    Number percentile: Option<f64> = flag("percentile", "num").default("99")
        .help("requests up to this percentile of sizes are small");
    Number epoch_milliseconds: Option<u64> = flag("epoch-ms", "ms").default("1000")
        .help("time between two plans");
    Number alpha: Option<f64> = flag("alpha", "num").default("0.9")
        .help("weight of the newest epoch");
    Text cost: Option<String> = flag("cost", "name").default("constant-packets")
        .help("what a request costs")
        .choices(&[
            ("packets", "its packets"),
            ("bytes", "its bytes"),
            ("constant-packets", "its packets and a constant"),
        ]);
    Bytes slice: Option<u64> = flag("slice", "bytes").default("32k")
        .help("the most a large transfer moves in one turn");
    Number samples_min: Option<u64> = flag("samples-min", "num").default("60000")
        .help("requests an epoch must hold to be believed at once");
    Number hysteresis_epochs: Option<u16> = flag("hysteresis-epochs", "num").default("1")
        .help("thinner epochs that must agree on new roles");
    Text idle: Option<String> = flag("idle", "name").default("adaptive")
        .help("what a worker with nothing to do does")
        .choices(&[
            ("spin", "it looks on"),
            ("adaptive", "it looks on for a while, then sleeps"),
            ("block", "it sleeps"),
        ]);
}

"Hot keys (KeySched, SIGCOMM'18 poster), with --design hkh --access erew or crew" {
    Text hot: Option<String> = flag("hot", "name").default("off")
        .help("what becomes of keys that everybody asks for")
        .choices(&[
            ("default", "keys asked for so often that they overload their owner go, slot by slot, \
                         to the worker with least to do"),
            ("keysched-2018", "by the poster's rule"),
            ("off", "they stay with their owner"),
        ]);
    Number slot_requests: Option<u32> = flag("slot-requests", "num").default("2000")
        .help("a slot lasts until it has held so many requests");
    Number slot_microseconds: Option<u64> = flag("slot-us", "us").default("1000")
        .help("and at least so many microseconds; both must be over");
    TextOrNumber hot_threshold: Option<String> = flag("hot-threshold", "num")
        .unless("load; keysched-2018: 32")
        .help("requests in a slot that make a key hot, 1 to 65535 (the poster: 256 down to 32, in \
               slots of 15000), or load: 1/16 of a worker's even share, at least 16");
    Number hot_keys: Option<usize> = flag("hot-keys", "num")
        .unless("32, or as many as workers, up to 128; keysched-2018: 32")
        .help("hot keys at a time, 1 to 128");
    Text hot_rank: Option<String> = flag("hot-rank", "name").unless("sum; keysched-2018: past")
        .help("what counts for least to do")
        .choices(&[
            ("sum", "the past 100 slots and this one"),
            ("mean", "the same, the past weighing as much as one slot"),
            ("past", "the past 100 without this one"),
        ]);
    Text hot_carry: Option<String> = flag("hot-carry", "yes|no").unless("yes; keysched-2018: no")
        .help("what was hot in the last slot is hot in the next from its first request on");
    Switch hot_alone: bool = switch("hot-alone")
        .help("the hottest key stays on one worker, and no other hot key goes there");
    Number hot_counters: Option<usize> = flag("hot-counters", "num")
        .help("find hot keys by so many space-saving counters a worker instead of a sketch");
}

"The process" {
    Switch daemon: bool = switch("daemon").letter('d')
        .help("run in the background; returns when it serves, or with the status of a start that \
               failed");
    Text user: Option<String> = flag("user", "name").letter('u')
        .help("become this user (when started as root)");
    Path pid_file: Option<OsString> = flag("pidfile", "file").letter('P')
        .help("write the process id to this file");
    Switch core_dumps: bool = switch("enable-coredumps").letter('r')
        .help("allow core files of any size");
    Switch shutdown: bool = switch("enable-shutdown").letter('A')
        .help("allow the shutdown command");
    Number drain_milliseconds: Option<u64> = flag("drain-ms", "ms").default("5000")
        .help("how long a stop lets requests finish");
    Text sandbox: Option<String> = flag("sandbox", "name").default("auto")
        .help("what it may do to the machine once it serves, whoever has taken it over; what needs \
               more (--kernel-lane, --steer, --af-xdp, --rdma) goes without (docs/security.md)")
        .choices(&[
            ("auto", "as on, where the kernel has it"),
            ("on", "it reaches the files that its flags name, and makes the system calls that \
                    serving takes, and no others (Landlock, seccomp); no start without"),
            ("log", "the kernel logs system calls that would be refused"),
            ("off", "what its user may do"),
        ]);
    Count verbose: u32 = switch("verbose").letter('v')
        .help("log settings and changes of roles; -vvv: each connection. In a file it is a number");
    Text admin: Option<String> = flag("admin", "addr:port")
        .help("dashboard, /metrics for Prometheus, /healthz and /readyz over HTTP at this \
               address, such as 127.0.0.1:11280");
    Text log_format: Option<String> = flag("log-format", "name").default("text")
        .help("the log's form, on stderr")
        .choices(&[("text", "a line for an event"), ("json", "one object a line")]);
    Number slow_milliseconds: Option<u64> = flag("slow-ms", "ms").unless("none are logged")
        .help("log requests that took so long, with what they waited for and their client; stats \
               large tells the last ones, and the last large ones");
    Switch log_keys: bool = switch("log-keys")
        .help("tell the keys of large requests, in that log and in stats large, and in the log \
               those of items that a scrub finds damaged");
    Extended extended: Extended = flag("extended", "keys").letter('o')
        .help("idle_timeout=<seconds> closes connections on which nothing came; ssl_chain_cert, \
               ssl_key, ssl_verify_mode (0 to 3), ssl_ca_cert and ssl_min_version (2, 3) are -Z's; \
               keys that tune memcached's insides are reported on stderr and passed over");
    Protocol protocol: Option<String> = flag("protocol", "name").letter('B').default("auto")
        .help("which of memcached's protocols is served at -p and -s: ascii, binary (and nothing \
               else), or both: a connection's first byte tells (docs/protocol.md)");
    Path config: Option<OsString> = flag("config", "file").typed_only()
        .help("read a configuration from this TOML file, whose keys are the long names here; also \
               LANEWAY_CONFIG");
    Switch print_config: bool = switch("print-config").typed_only()
        .help("print the configuration that would be in force, as such a file, and end");
}
}
