#!/bin/sh
# redis-benchmark or valkey-benchmark, and what it must leave. usage: benchmark.sh PROGRAM PORT CLI
set -eu
program=$1 port=$2 cli=$3

# same WHAT GOT WANTED
same() {
    [ "$2" = "$3" ] || { echo "$1: got '$2', and not '$3'"; exit 1; }
}

for protocol in "" -3; do
    for depth in 1 16; do
        "$cli" -p "$port" FLUSHALL > /dev/null
        said=$("$program" -p "$port" $protocol -q -n 8000 -c 16 -P $depth -d 100 \
            -t ping,set,get,incr,mset 2>&1 | tr '\r' '\n' | grep -v overall) || true
        case $said in *[Ee]rror*) echo "$said"; exit 1 ;; esac
        same "kinds measured" "$(echo "$said" | grep -c 'requests per second')" 6
        same "the counter" "$("$cli" -p "$port" GET counter:__rand_int__)" 8000
        same "the value" "$("$cli" -p "$port" STRLEN key:__rand_int__)" 100
    done
done
"$program" --version | cut -d' ' -f1-2
