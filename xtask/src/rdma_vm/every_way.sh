laneway doctor rdma || fail "the doctor"
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
