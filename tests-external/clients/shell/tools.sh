#!/bin/sh
# libmemcached's command-line tools against a server, in both protocols.
# usage: tools.sh PORT FOLDER; FOLDER is for files of this script
set -eu
port=$1
folder=$2
checks=0
cd "$folder"

fail() {
    echo "$*"
    exit 1
}

holds() {
    what=$1
    shift
    checks=$((checks + 1))
    "$@" >out 2>&1 || fail "$what: status $?: $(tail -n 1 out)"
}

fails() {
    what=$1
    shift
    checks=$((checks + 1))
    if "$@" >out 2>&1; then fail "$what: it did not fail"; fi
}

echo small >small
head -c 768000 /dev/urandom >large
for how in "" --binary; do
    servers="--servers=127.0.0.1:$port"
    holds "ping" memcping $servers
    holds "flush" memcflush $servers $how
    fails "exist of nothing" memcexist $servers $how small
    holds "cp" memccp $servers $how small large
    holds "exist" memcexist $servers $how small
    holds "cat" memccat $servers $how --file=back small
    holds "what cat gives" cmp small back
    holds "cat of a large value" memccat $servers $how --file=back large
    holds "what cat gives of it" cmp large back
    holds "touch" memctouch $servers $how --expire=100 small
    holds "rm" memcrm $servers $how small
    fails "exist of what is gone" memcexist $servers $how small
done
holds "stat" memcstat $servers
version=$(memccp --version | sed -n "s,.*libmemcached v\([0-9.]*\).*,\1,p")
echo "libmemcached's tools ${version:-?} (text, binary): $checks checks"
