await() {
    tries=0
    until [ -b "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "no $1"
        sleep 0.1
    done
}
mkdir -p /pm /run
for word in $(cat /proc/cmdline); do
    case $word in cut_*=*) eval "$word" ;; esac
done
# The console is the writer's from here on: a line of the kernel's in one of its would spoil it.
dmesg -n 1
await /dev/nvme0n1p4
if [ "$cut_files" = 1 ]; then
    if [ "$cut_boot" = 1 ]; then
        /bin/mke2fs -q -t ext4 -b 4096 /dev/nvme0n1p4 || fail "mke2fs"
    fi
    mount -t ext4 /dev/nvme0n1p4 /pm || fail "ext4"
    xtask power-cut guest --log /pm/log --ssd /pm/ssd \
        --seed $cut_seed --lives "$cut_lives" --until $cut_until || fail "the writer to files"
else
await /dev/pmem0
if [ "$cut_boot" = 1 ]; then
    xtask power-cut guest --log /dev/nvme0n1p1 --ssd /dev/nvme0n1p2 --acks /dev/nvme0n1p3 \
        --seed $cut_seed --until $cut_operations || fail "the writer to the logged disk"
    say "the logged run is over"
    # DAX wants page structures for the memory: what `ndctl create-namespace -m fsdax` does.
    bus=/sys/bus/nd
    pfn=$(cat $bus/devices/region0/pfn_seed)
    echo namespace0.0 >$bus/drivers/nd_pmem/unbind || fail "namespace0.0 stays"
    echo ram >$bus/devices/$pfn/mode || fail "mode"
    cat /proc/sys/kernel/random/uuid >$bus/devices/$pfn/uuid || fail "uuid"
    echo namespace0.0 >$bus/devices/$pfn/namespace || fail "namespace"
    echo $pfn >$bus/drivers/nd_pmem/bind || fail "$pfn does not start"
    await /dev/pmem0
    # The shell prefers its own, which knows no ext4: hence the path.
    /bin/mke2fs -q -t ext4 -b 4096 /dev/pmem0 || fail "mke2fs"
fi
mount -t ext4 -o dax=always /dev/pmem0 /pm || fail "ext4 with DAX"
xtask power-cut guest --log /pm/log --dax --ssd /dev/nvme0n1p4 \
    --seed $cut_seed --lives "$cut_lives" --until $cut_until || fail "the writer to the NVDIMM"
fi
