/bin/ip link set lo up
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
