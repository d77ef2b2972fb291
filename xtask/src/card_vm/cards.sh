/bin/ip link set lo up
laneway doctor kernel
# A driver may look for its cards after its module is there.
for interface in eth0 eth1 eth2 eth3; do
    tries=0
    until [ -e /sys/class/net/$interface ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || fail "no $interface"
        sleep 1
    done
done
cards /bin/laneway virtio @PACKETS@ @SEED@ eth0 eth1 || fail "the virtio cards"
cards /bin/laneway intel @PACKETS@ @SEED@ eth2 eth3 || fail "the Intel cards"
# It is to find the planted value, which only the other has, not merely something lost.
told=$(cards /bin/laneway control 2000 @SEED@ lane0 lane1 2>&1) && fail "a planted difference"
case "$told" in
*"the other: ["*'n?'*) say "a planted difference is found" ;;
*) fail "the control ended otherwise: $told" ;;
esac
