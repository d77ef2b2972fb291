//! RDMA without a card: a Debian kernel under QEMU's software emulation, in it `rdma_rxe` over a
//! pair of virtual Ethernet interfaces, and over that this tree's server and client.
//!
//! One guest, one device, both ends: what is shown is that the verbs do what we think (WRITE, READ,
//! SEND; inline or not; signalled or not), that every value comes back right, to the client library
//! and to the load generator, and that a client cannot write where it may not. How long anything
//! takes there means nothing. How the guest is made: [`crate::vm`].

use crate::vm::{self, initramfs};
use crate::{Failure, Outcome, passed, process};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const HELP: &str = "\
Run the server and a client over rdma_rxe, RDMA in software, in an emulated machine.

usage: cargo xtask rdma-vm [--clients N]

  --clients N   in place of all that: what N clients cost (`laneway bench verbs --door`). One asks
                for one item at a time, alone and beside the others, which ask for nothing: over
                ud, where a GET may cost no more than 1.1 of one alone, and up to 64 over uc

Needs QEMU (apt-get install --no-install-recommends qemu-system-x86) on an x86-64 Debian; fetches
a kernel and the guest's programs as Debian packages, once, and unpacks them below the target
folder: nothing is installed. Takes some minutes, so `cargo xtask test` leaves it out.";

/// GETs and SETs of each kind, and as many of long values.
const REQUESTS: u32 = 2_000;
/// Work requests of each kind that are tried alone: some batches.
const TRIALS: u32 = 640;
/// The guest starts in well under a minute; emulated, a request takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
const MEMORY_MEGABYTES: usize = 1024;
/// What a client takes: 1.6 MB of places for replies and requests, and its queues in the device.
const CLIENT_KILOBYTES: usize = 2560;
/// What a GET may take beside the others of what it takes alone: p50, SENDs, completions.
const AT_MOST: &str = "1.1";
/// So many have slots where a server is told nothing, and so many are compared.
const WRITERS: usize = 64;
/// One address has half of the places, and the guest has one address.
const CLIENTS_MAX: usize = 2048;
/// Modules that the guest loads, each after what it depends on. (rxe asks for a checksum by name,
/// which no dependency says.)
const MODULES: &[&str] = &["crc32_generic", "veth", "rdma_rxe"];
/// What the guest runs beside our programs: a shell and its tools, `ip` and `rdma`, libibverbs and
/// the provider for rxe, and the libraries of these.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "iproute2",
    "libbpf1",
    "libcap2",
    "libelf1",
    "libibverbs1",
    "ibverbs-providers",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "zlib1g",
];

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut clients = None;
    flags!(parser, { Long("clients") => clients = Some(parser.value()?.parse::<usize>()?), });
    if let Some(clients) = clients.filter(|clients| !(2..=CLIENTS_MAX).contains(clients)) {
        let why = format!("--clients {clients}: must be from 2 to {CLIENTS_MAX}");
        return Err(Failure::Usage(why));
    }
    vm::need()?;
    let folder = process::scratch_dir("rdma-vm")?;
    let debian = vm::ordinary(PACKAGES)?;
    let [server, client] = build()?;
    let contents = initramfs::Contents {
        debian: &debian,
        ours: &[server.as_path(), client.as_path()],
        programs: &["ip", "rdma"],
        loaded: &["libibverbs.so.1"],
        provider: Some("rxe"),
        modules: MODULES,
        script: &script(clients),
    };
    let archive = initramfs::write(&folder, &contents)?;
    let began = Instant::now();
    let log = folder.join("console.log");
    let mut machine = vm::command(&debian, &archive, "");
    let more = clients.unwrap_or(0) * CLIENT_KILOBYTES / 1024;
    machine.arg("-m").arg((MEMORY_MEGABYTES + more).to_string());
    vm::run(&mut machine, &log, PATIENCE, &[vm::SAID])?;
    if let Some(clients) = clients {
        return passed(format!(
            "a GET beside {} idle clients over ud took no more than {AT_MOST} of one alone, every \
             value right, under kernel {} in {:.0} s",
            clients - 1,
            debian.release,
            began.elapsed().as_secs_f64()
        ));
    }
    passed(format!(
        "{REQUESTS} SETs and {REQUESTS} GETs over UC and UD, over RC and UD, and over UD alone, \
         as many of long values, {TRIALS} of each verb in every way, under kernel {} in {:.0} s",
        debian.release,
        began.elapsed().as_secs_f64()
    ))
}

/// The server and the client that checks it, with every assertion on.
fn build() -> Result<[PathBuf; 2], String> {
    let server = ["-p", "laneway", "--features", "research"];
    process::run(process::cargo().args(["build", "--quiet"]).args(server))?;
    let client = ["-p", "laneway-client", "--features", "rdma", "--example", "rdma_check"];
    process::run(process::cargo().args(["build", "--quiet"]).args(client))?;
    let built = process::target_dir().join("debug");
    Ok([built.join("laneway"), built.join("examples").join("rdma_check")])
}

fn script(clients: Option<usize>) -> String {
    let body = match clients {
        None => SCRIPT.replace("@TRIALS@", &TRIALS.to_string()),
        Some(clients) => MANY
            .replace("@PLACES@", &(2 * clients).to_string())
            .replace("@CLIENTS@", &clients.to_string())
            .replace("@WRITERS@", &clients.min(WRITERS).to_string())
            .replace("@SLOTS@", &(2 * WRITERS).to_string())
            .replace("@AT_MOST@", AT_MOST),
    };
    vm::script(&(SETTING.to_owned() + &body.replace("@REQUESTS@", &REQUESTS.to_string())))
}

/// Words of both scripts, and a device.
const SETTING: &str = r#"/bin/ip link set lo up
ulimit -l unlimited
# One of the server's counts, and whether it is more than it was.
told() {
    laneway stats --server 10.77.0.1:11211 rdma | while read -r name number; do
        [ "$name" != "$1" ] || echo "$number"
    done
}
grew() { [ "$(told $1)" -gt "$2" ]; }
# How often the server's workers have gone to sleep.
sleeps() {
    sum=0
    for task in /proc/$server/task/*; do
        case "$(cat $task/comm)" in worker-*) ;; *) continue ;; esac
        while read -r name number; do
            [ "$name" != voluntary_ctxt_switches: ] || sum=$((sum + number))
        done <$task/status
    done
    echo $sum
}
# Until so many clients are there.
clients() {
    tries=0
    until [ "$(told clients)" = $1 ]; do
        tries=$((tries + 1))
        [ $tries -lt 120 ] || fail "there are not $1 clients"
        sleep 1
    done
}
# How often in ten seconds, beside one client over a service that asks for nothing.
idle() {
    clients 0
    rdma_check 10.77.0.1:18515 rxe0 $1 idle &
    client=$!
    clients 1
    before=$(sleeps)
    sleep 10
    slept=$(($(sleeps) - before))
    [ "$(told clients)" = 1 ] || fail "an idle client over $1 that is not there"
    kill $client
    wait $client
}
# Until the server answers there.
await() {
    tries=0
    until laneway stats --server $1 topology >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 120 ] || fail "the server does not listen"
        kill -0 $server || fail "the server ended"
        sleep 1
    done
}
/bin/ip link add veth0 type veth peer name veth1 || fail "a pair of interfaces"
# Packets of 4096 bytes: a reply is one packet. The second server has shorter ones.
/bin/ip link set veth0 mtu 4200 && /bin/ip link set veth1 mtu 4200
/bin/ip link set veth0 up && /bin/ip link set veth1 up
/bin/ip addr add 10.77.0.1/24 dev veth0
rdma link add rxe0 type rxe netdev veth0 || fail "rdma_rxe"
rdma link
"#;

/// What one client pays for others. Each of them has four descriptors: its connection, two of its
/// device, and one that wakes it.
const MANY: &str = r#"ulimit -n 65536 || fail "descriptors"
# One worker: with the client as many threads as the machine has processors.
laneway serve --rdma rxe0 -l 10.77.0.1 -t 1 -m 64 --rdma-clients @PLACES@ --rdma-slots @SLOTS@ &
server=$!
await 10.77.0.1:11211
measure() {
    told=$(laneway bench verbs --rdma rxe0 --door 10.77.0.1:18515 --keys 256 \
        --value-bytes 32,1024 --operations @REQUESTS@ --rounds 3 $* 2>&1)
    right=$?
    echo "$told" | while read -r line; do say "$line"; done
    [ $right = 0 ] || fail "$*"
}
measure --rdma-service ud --clients @CLIENTS@ --at-most @AT_MOST@
measure --rdma-service uc --clients @WRITERS@
clients 0
laneway stats --server 10.77.0.1:11211 rdma
kill $server
wait $server || fail "the server's end"
"#;

const SCRIPT: &str = r#"laneway doctor rdma || fail "the doctor"
told=$(laneway bench verbs --rdma rxe0 --value-bytes 32,256 --operations @TRIALS@)
right=$?
echo "$told" | while read -r line; do say "$line"; done
[ $right = 0 ] || fail "a verb that does not do what it is asked"
case "$told" in *refused*) fail "messages that may not be inline" ;; esac
say "WRITE over uc and rc, READ, SEND: @TRIALS@ of each, inline or not, signalled or not"
laneway serve --rdma rxe0 -l 10.77.0.1 -t 2 -m 64 &
server=$!
await 10.77.0.1:11211
for service in uc rc; do
    rdma_check 10.77.0.1:18515 rxe0 $service @REQUESTS@ || fail "the client over $service"
    say "$service and ud: @REQUESTS@ SETs and GETs, every value right"
    before_writes=$(told verbs_write) before_reads=$(told verbs_read)
    before_claimed=$(told loans_claimed) before_notices=$(told notices)
    rdma_check 10.77.0.1:18515 rxe0 $service @REQUESTS@ long || fail "long values over $service"
    say "$service and ud: @REQUESTS@ SETs and GETs of 16 KiB to 1 MiB, every value right"
    # In frames every value would have been right, too.
    grew verbs_write $before_writes && grew notices $before_notices || fail "no reply was placed"
    grew loans_claimed $before_claimed || fail "no request was lent"
    case $service in
    uc) grew grants 0 || fail "no memory was granted" ;;
    rc) grew verbs_read $before_reads || fail "no request was READ" ;;
    esac
    laneway stats --server 10.77.0.1:11211 rdma >/tmp/told
    while read -r stat; do
        case "$stat" in
        *verbs_*|*notices*|*loans_*|*grants*|*places_*|*unplaced*) say "so far: $stat" ;;
        esac
    done </tmp/told
done
rdma_check 10.77.0.1:18515 rxe0 ud @REQUESTS@ || fail "the client over ud"
rdma_check 10.77.0.1:18515 rxe0 ud 64 long || fail "long values over ud"
say "ud both ways: @REQUESTS@ SETs and GETs, 64 of 16 KiB to 1 MiB, every value right"
idle uc
slept_uc=$slept
idle ud
# Beside one that writes a worker looks up each millisecond, as far as the emulated machine is fast
# enough; so it is held to that, and not to a number.
[ $((4 * slept)) -lt $slept_uc ] || fail "workers that woke $slept times, over uc $slept_uc times"
say "the workers slept $slept times in 10 s beside an idle client over ud, over uc $slept_uc times"
for service in uc ud; do
told=$(laneway bench --server 10.77.0.1:11211 --transport rdma --rdma-device rxe0 \
    --rdma-service $service \
    --closed --depth 4 --connections 1 --keys 300 --keys-large 4 --s-large 20000 --p-large 1 \
    --timeout-ms 20000 --warmup 1 --duration 10 --drain 60 --quiet --json - 2>/tmp/said)
right=$?
[ $right = 0 ] || { cat /tmp/said; echo "$told"; fail "the load generator"; }
case "$told" in *'"hits": 0,'*) fail "a load generator that has no answers" ;; esac
say "the load generator over $service: every value right"
done
before_strangers=$(told strangers)
rdma_check 10.77.0.1:18515 rxe0 strangers || fail "a client that sends what it may not"
grew strangers $before_strangers || fail "datagrams of nobody were not thrown away"
say "under a wrong key nothing arrives, and what a former client sends is thrown away"
before_floods=$(told floods)
rdma_check 10.77.0.1:18515 rxe0 flood || fail "a client that sends too much"
grew floods $before_floods || fail "nobody was cut off"
say "a client that sends too much is sent away, and alone: all of the other's are answered"
rdma_check 10.77.0.1:18515 rxe0 outside || fail "a client that writes where it may not"
say "a client that writes where it may not is refused by the device, and alone is cut off"
rdma_check 10.77.0.1:18515 rxe0 neighbour || fail "a client that writes where its neighbour may"
say "a client that knows its neighbour's addresses and keys reaches neither slots nor grant"
rdma_check 10.77.0.1:18515 rxe0 lies || fail "a client that lends what is not its own"
case "$(laneway stats --server 10.77.0.1:11211 rdma)" in
*"clients_cut_off 0"*) fail "a client that lied and was not sent away" ;;
*clients_cut_off*) ;;
*) fail "the server does not tell" ;;
esac
say "a client that lends what is not its own is sent away, and alone"
laneway stats --server 10.77.0.1:11211 rdma
kill $server
wait $server || fail "the server's end"
say "the server stopped as it should"
# Two clients may have slots, and of one address one. Who asks for no service sends beyond that.
laneway serve --rdma rxe0 -l 10.77.0.1 -t 2 -m 64 --rdma-slots 2 &
server=$!
await 10.77.0.1:11211
# So many write, and so many send.
either() {
    [ "$(told slots_clients) $(told datagram_clients)" = "$1 $2" ] || fail "not $1 and $2"
}
rdma_check 10.77.0.1:18515 rxe0 any idle &
first=$!
clients 1
either 1 0
rdma_check 10.77.0.1:18515 rxe0 any idle &
second=$!
clients 2
either 1 1
rdma_check 10.77.0.1:18515 rxe0 uc 1 && fail "slots for more than may have some"
rdma_check 10.77.0.1:18515 rxe0 any @REQUESTS@ || fail "a client that sends, as it was told"
rdma_check 10.77.0.1:18515 rxe0 any 64 long || fail "long values of such a client"
clients 2
kill $first
wait $first
clients 1
either 0 1
before_writes=$(told verbs_write)
rdma_check 10.77.0.1:18515 rxe0 any 64 long || fail "a client that has the slots that are free"
grew verbs_write $before_writes || fail "it has no slots"
kill $second
wait $second
clients 0
say "without a service: slots while there are some, datagrams beyond, every value right"
kill $server
wait $server || fail "the end of a server with few slots"
# An interface as it comes, with an MTU of 1500: packets of 1024 bytes, and long replies are two.
/bin/ip link add veth2 type veth peer name veth3 || fail "a second pair of interfaces"
/bin/ip link set veth2 up && /bin/ip link set veth3 up
/bin/ip addr add 10.78.0.1/24 dev veth2
rdma link add rxe1 type rxe netdev veth2 || fail "a second rdma_rxe"
laneway serve --rdma rxe1 -l 10.78.0.1 -t 2 -m 64 &
server=$!
await 10.78.0.1:11211
for service in uc rc ud; do
    rdma_check 10.78.0.1:18515 rxe1 $service @REQUESTS@ || fail "short packets over $service"
    rdma_check 10.78.0.1:18515 rxe1 $service 64 long || fail "long values in such packets"
done
say "with packets of 1024 bytes: every value right"
kill $server
wait $server || fail "the second server's end"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_asks_for_what_was_asked() {
        let script = script(None);
        assert!(script.contains("rxe0 $service 2000 ") && script.contains("$service 2000 long"));
        assert!(!script.contains('@'));
        assert!(script.contains(&format!("--operations {TRIALS})")));
        assert!(!script.contains("--door"));
    }

    #[test]
    fn many_clients_find_places_and_slots_from_one_address() {
        let many = script(Some(500));
        assert!(!many.contains('@') && !many.contains("laneway doctor"), "{many}");
        assert!(many.contains("--rdma-clients 1000 --rdma-slots 128 "), "{many}");
        assert!(many.contains("--rdma-service ud --clients 500 --at-most 1.1\n"), "{many}");
        assert!(many.contains("--rdma-service uc --clients 64\n"), "{many}");
        assert!(many.contains("--operations 2000 --rounds 3 "), "{many}");
        assert!(script(Some(9)).contains("--rdma-service uc --clients 9\n"));
    }
}
