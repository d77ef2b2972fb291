#!/bin/sh
# redis-cli or valkey-cli, from the command line and from a pipe. usage: cli.sh PROGRAM PORT FOLDER
set -eu
cli() { "$program" -p "$port" "$@"; }
program=$1 port=$2 folder=$3

# same WHAT GOT WANTED
same() {
    [ "$2" = "$3" ] || { echo "$1: got '$2', and not '$3'"; exit 1; }
}

for protocol in -2 -3; do
    same FLUSHALL "$(cli $protocol FLUSHALL)" OK
    same SET "$(cli $protocol SET k v EX 100)" OK
    same GET "$(cli $protocol GET k)" v
    left=$(cli $protocol TTL k)
    [ "$left" -gt 90 ] || same TTL "$left" 100 # A machine may be busy.
    same MGET "$(cli $protocol MGET k none k | tr '\n' ' ')" "v  v "
    same INCRBY "$(cli $protocol INCRBY n 42)" 42
    same LPUSH "$(cli $protocol LPUSH l 1 | cut -c1-26)" "ERR unknown command 'LPUSH"
done
head -c 5000000 /dev/urandom > "$folder/large"
same "SET of 5 MB" "$(cli -x SET large < "$folder/large")" OK
cli GET large > "$folder/large-back"
printf '\n' >> "$folder/large"
cmp "$folder/large" "$folder/large-back"
rm "$folder/large" "$folder/large-back"

number=0
while [ $number -lt 1000 ]; do
    printf 'SET p%d %d\nGET p%d\n' $number $number $number
    number=$((number + 1))
done > "$folder/lines"
sum='{ s += $1 } END { print NR, s }'
same "lines from a pipe" "$(cli < "$folder/lines" | grep -vx OK | awk "$sum")" "1000 499500"
printf 'MULTI\nSET t 1\nINCR t\nEXEC\n' > "$folder/lines"
same "a transaction" "$(cli < "$folder/lines" | tr '\n' ' ')" "OK QUEUED QUEUED OK 2 "
printf '*3\r\n$3\r\nSET\r\n$1\r\nq\r\n$2\r\nhi\r\n*2\r\n$3\r\nGET\r\n$1\r\nq\r\n' > "$folder/lines"
same "--pipe" "$(cli --pipe < "$folder/lines" | tail -n 1)" "errors: 0, replies: 2"
rm "$folder/lines"
"$program" --version | cut -d' ' -f1-2
