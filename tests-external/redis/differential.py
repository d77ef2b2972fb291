"""Random commands to two servers, whose replies must be the same but for what ALLOWED argues.

usage: differential.py PORT PATH-OF-VALKEY-SERVER SEED COMMANDS
"""

import collections
import random
import re
import socket
import subprocess
import sys
import time

TOO_MUCH = b"-ERR what changes in one moment"
NUMBER = re.compile(rb":(-?\d+)\r\n$")


# The two clocks may drift apart by so many milliseconds, beside what lies between two requests.
DRIFT_MS = 20


def apart(ours, theirs):
    """How far two times are apart; None where one of them is no time, but says that there is none,
    or where a reply is no number."""
    ours, theirs = NUMBER.match(ours), NUMBER.match(theirs)
    times = [int(match[1]) for match in (ours, theirs) if match]
    return abs(times[0] - times[1]) if len(times) == 2 and min(times) >= 0 else None


def near(ours, theirs, _between_ms):
    difference = apart(ours, theirs)
    return difference is not None and difference <= 1


def soon(ours, theirs, between_ms):
    difference = apart(ours, theirs)
    # Both the end and the time that is left until then may have counted from two requests.
    return difference is not None and difference <= 2 * between_ms + DRIFT_MS


def same_end(ours, theirs, between_ms):
    """An end that was asked for as such is the same to the millisecond."""
    if not soon(ours, theirs, between_ms):
        return False
    return not {int(NUMBER.match(reply)[1]) for reply in (ours, theirs)} & FIXED_ENDS


# What may differ: which command, and how. docs/resp.md gives the reasons at length.
ALLOWED = [
    # One server is asked after the other, so that what is rounded to seconds may be one apart.
    (lambda args: args[0] in (b"TTL", b"EXPIRETIME"), near),
    # For the same reason milliseconds differ where a time to live counted from a request.
    (lambda args: args[0] == b"PTTL", soon),
    (lambda args: args[0] == b"PEXPIRETIME", same_end),
]


def encoded(args):
    head = b"*%d\r\n" % len(args)
    return head + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind = line[:1]
        if kind in b"$=":
            length = int(line[1:])
            return line if length < 0 else line + self.file.read(length + 2)
        if kind in b"*%~":
            replies = max(int(line[1:]), 0) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(replies))
        return line

    def ask(self, args):
        self.socket.sendall(encoded(args))
        return self.reply()


VALUES = [b"", b"1", b"-5", b"10", b"abc", b"007", b" 5", b"3.5", b"9223372036854775807"]
VALUES += [b"x" * 300, b"v" * 20_000, b"w" * 70_000]
NUMBERS = [b"1", b"-1", b"0", b"x", b"9223372036854775807", b"-9223372036854775808", b"+5", b""]
TIMES = [b"900000", b"5000000", b"0", b"-1", b"x", b"9223372036854775807"]
MOMENTS = {
    b"EXAT": [b"1900000000", b"1", b"0", b"x"],
    b"PXAT": [b"1900000000000", b"1900000000123", b"1900000000124", b"1", b"x"],
}
# In milliseconds; no time to live from TIMES ends near one of them.
FIXED_ENDS = {int(time) for time in MOMENTS[b"PXAT"][:3]} | {1900000000000, 1950000000000}
FIXED = [
    "PING", "PING x", "PING x y", "ECHO x", "ECHO", "SELECT 0", "SELECT x", "SELECT 99",
    "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT SETINFO lib-name x", "CLIENT SETINFO what x",
    "CLIENT NO-EVICT on", "CLIENT NO-TOUCH maybe", "CONFIG GET nosuch", "FLUSHALL bad", "CLIENT",
    "CONFIG", "EXEC 1", "nosuch a b", "COMMAND INFO nosuch", "AUTH default x", "HELLO 5",
]


# Commands that are not drawn for what is done between WATCH and EXEC: an end that is the same as
# before is no change here, and what is not about keys cannot be part of it.
NOT_WATCHED = {b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT", b"GETEX"}
NOT_WATCHED |= {b"MULTI", b"EXEC", b"DISCARD"}
NOT_WATCHED |= {line.split(" ")[0].encode() for line in FIXED}


class Draws:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.one = self.random.choice
        self.block = []

    def next(self, waits):
        """The next command; now and then a transaction behind WATCH. One command at most comes in
        between: a key that is made and deleted again has not changed here, and in Valkey it has."""
        if not self.block and not waits and self.random.random() < 0.03:
            self.block = [[b"WATCH", self.key()] + self.keys()]
            self.block += [self.keyed() for _ in range(self.one([0, 0, 1]))]
            self.block += self.one([[], [], [], [[b"UNWATCH"]]]) + [[b"MULTI"]]
            self.block += [self.keyed() for _ in range(self.one([0, 1, 2, 3]))]
            self.block += [self.one([[b"EXEC"], [b"EXEC"], [b"EXEC"], [b"DISCARD"]])]
        args = self.block.pop(0) if self.block else self.command()
        if not self.block and not waits and {b"PXAT", b"PEXPIREAT"} & set(args):
            self.block = [[b"PEXPIRETIME", args[1]]]
        return args

    def keyed(self):
        while True:
            args = self.command()
            if args[0] not in NOT_WATCHED:
                return args

    def key(self):
        return b"k%d" % self.random.randrange(8)

    def keys(self):
        return [self.key() for _ in range(self.random.randrange(4))]

    def timed(self, units):
        unit = self.one(units)
        time = self.one(MOMENTS.get(unit, TIMES))
        return [unit, time] if self.random.random() < 0.95 else [unit]

    def set_options(self):
        options = []
        for _ in range(self.one([0, 0, 1, 1, 2, 3])):
            plain = [[b"NX"], [b"XX"], [b"GET"], [b"KEEPTTL"], [b"bad"]]
            options += self.one(plain + [self.timed([b"EX", b"PX", b"EXAT", b"PXAT"])] * 3)
        return options

    def pairs(self):
        pairs = [(self.key(), self.one(VALUES)) for _ in range(self.random.randrange(4))]
        return [part for pair in pairs for part in pair] + self.one([[], [], [b"odd"]])

    def command(self):
        key, value, number = self.key(), self.one(VALUES), self.one(NUMBERS)
        getex = [[], [b"PERSIST"], [b"PERSIST", b"1"], [b"bad"]]
        getex += [self.timed([b"EX", b"PX", b"EXAT", b"PXAT"])]
        when = [[], [], [b"NX"], [b"XX"], [b"GT"], [b"LT"]]
        when += [[b"NX", b"XX"], [b"GT", b"LT"], [b"what"]]
        expire = self.one([b"EXPIRE", b"PEXPIRE"])
        rows = [
            [b"GET", key], [b"GET", key], [b"GET", key],
            [b"SET", key, value] + self.set_options(), [b"SET", key, value] + self.set_options(),
            [b"SETNX", key, value], [b"GETSET", key, value], [b"GETDEL", key],
            [self.one([b"SETEX", b"PSETEX"]), key, self.one(TIMES), value],
            [b"GETEX", key] + self.one(getex), [b"MGET"] + self.keys(), [b"MSET"] + self.pairs(),
            [b"APPEND", key, value], [b"STRLEN", key], [self.one([b"INCR", b"DECR"]), key],
            [self.one([b"INCRBY", b"DECRBY"]), key, number],
            [self.one([b"DEL", b"UNLINK", b"EXISTS", b"TOUCH"])] + self.keys(),
            [b"MSETNX"] + self.pairs(), [b"RENAME", key, self.key()],
            [b"RENAMENX", key, self.key()], [b"TYPE", key],
            [expire, key, self.one(TIMES)] + self.one(when),
            [b"EXPIREAT", key, self.one([b"1900000000", b"1950000000", b"1"])] + self.one(when),
            [b"PEXPIREAT", key, self.one(MOMENTS[b"PXAT"])] + self.one(when),
            [self.one([b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME"]), key], [b"PERSIST", key],
            self.one(FIXED).encode().split(b" "), [self.one([b"MULTI", b"EXEC", b"DISCARD"])],
        ]
        return self.one(rows)


def is_close(connection, args):
    """Whether the end that `EXPIRE` or `PEXPIRE` is to give is near the one that there is: both
    count from requests then, and one server may have seen two of them come in one millisecond,
    so that neither end is later."""
    if args[0] not in (b"EXPIRE", b"PEXPIRE") or not set(args) & {b"GT", b"LT"}:
        return False
    end = int(NUMBER.match(connection.ask([b"PEXPIRETIME", args[1]]))[1])
    try:
        new = time.time() * 1000 + int(args[2]) * (1000 if args[0] == b"EXPIRE" else 1)
    except ValueError:
        return False
    return end >= 0 and abs(new - end) < 60_000


def compare(ours, theirs, seed, commands):
    draws = Draws(seed)
    queued, waits = [], False
    between = collections.deque([0], maxlen=500)  # until both servers have seen a command, ms
    for connection in (ours, theirs):
        connection.ask([b"FLUSHALL"])
    for number in range(commands):
        args = draws.next(waits)
        if args == [b"MULTI"] and waits:
            continue  # Valkey 9.1 aborts the transaction for it, Redis and we go on
        if not waits and is_close(ours, args):
            continue
        began = time.monotonic()
        mine, other = ours.ask(args), theirs.ask(args)
        between.append((time.monotonic() - began) * 1000)
        if args == [b"MULTI"]:
            queued, waits = [], True
        elif args[0] in (b"EXEC", b"DISCARD"):
            waits = False
        queued.append(args)
        # One moment has a bound here: both begin again from nothing.
        if TOO_MUCH in mine:
            for connection in (ours, theirs):
                connection.ask([b"FLUSHALL"])
            continue
        # What EXEC tells is a row of replies: compared whole, but for those that may differ.
        if args == [b"EXEC"] and any(asks(q) for q in queued for asks, _ in ALLOWED):
            continue
        may_differ = (may for asks, may in ALLOWED if asks(args))
        if mine != other and not any(may(mine, other, max(between)) for may in may_differ):
            shown = b" ".join(arg[:40] for arg in args)
            if args == [b"EXEC"]:
                shown = b"; ".join(b" ".join(arg[:20] for arg in args) for args in queued)
            at = next((at for at, pair in enumerate(zip(mine, other)) if pair[0] != pair[1]), 0)
            at = max(0, at - 20)
            said = f"{mine[at:][:100]}, and Valkey {other[at:][:100]}"
            sys.exit(f"seed {seed}, command {number}: {shown}: {said}")


def main():
    program = sys.argv[2]
    port, seed, commands = (int(sys.argv[place]) for place in (1, 3, 4))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        other = free.getsockname()[1]
    flags = ["--port", str(other), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]
    valkey = subprocess.Popen([program] + flags, stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                theirs = Connection(other)
                break
            except OSError:
                time.sleep(0.05)
        else:
            sys.exit("Valkey does not answer")
        compare(Connection(port), theirs, seed, commands)
    finally:
        valkey.terminate()
        valkey.wait()
    print(f"{commands} commands as Valkey's")


main()
