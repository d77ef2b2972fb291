ulimit -n 65536 || fail "descriptors"
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
