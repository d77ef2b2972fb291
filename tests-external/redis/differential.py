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


def says(*words):
    """Whether our reply begins with one of these words."""
    return lambda ours, _theirs, _between_ms: ours.startswith(words)


def named(*names):
    return lambda args, *_: args[0] in names


def nests(args, draws):
    return args == [b"MULTI"] and draws.waits


def is_close(args, draws):
    """Whether the end that `EXPIRE` or `PEXPIRE` is to give may be near the one that there is."""
    if args[0] not in (b"EXPIRE", b"PEXPIRE") or not set(args) & {b"GT", b"LT"}:
        return False
    if draws.waits:
        return True  # where the end is cannot be asked
    end = NUMBER.match(draws.ours.ask([b"PEXPIRETIME", args[1]]))
    try:
        new = time.time() * 1000 + int(args[2]) * (1000 if args[0] == b"EXPIRE" else 1)
    except ValueError:
        return False
    return end is not None and int(end[1]) >= 0 and abs(new - int(end[1])) < 60_000


def keeps_an_end(args, draws):
    return draws.watched is not None and args[0] in (
        b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT", b"GETEX"
    )


def has_no_key(args, draws):
    return draws.watched is not None and args[0] in {line.split(" ")[0].encode() for line in FIXED}


def is_second(_args, draws):
    return draws.watched is not None and draws.watched > 0 and not draws.waits


class Allowed:
    """What may differ, and why. `asks` tells of which commands; `may`, which replies to them. Where
    there is no `may` the command is not asked at all. Where the two servers do not hold the same
    any more both begin again from nothing (`begins_again`)."""

    def __init__(self, why, asks, may=None, begins_again=False):
        self.why, self.asks, self.may, self.begins_again = why, asks, may, begins_again
        self.count = 0


# All that may differ; docs/resp.md gives the reasons at length.
ALLOWED = [
    Allowed(
        "one server is asked after the other, so what is rounded to seconds may be one apart",
        named(b"TTL", b"EXPIRETIME"), near,
    ),
    Allowed(
        "milliseconds that are left count from a request of each server's own",
        named(b"PTTL"), soon,
    ),
    Allowed(
        "so does an end in milliseconds, but for one that was asked for as such",
        named(b"PEXPIRETIME"), same_end,
    ),
    Allowed(
        "what changes in one moment has a bound here",
        named(b"EXEC", b"MSETNX", b"RENAME", b"RENAMENX"),
        says(b"-ERR what changes in one moment"), begins_again=True,
    ),
    Allowed("Valkey 9.1 aborts a transaction for a MULTI in it; Redis and we go on", nests),
    Allowed(
        "GT and LT compare two times to live, and one server may have seen the two requests in one "
        "millisecond, so that neither end is later",
        is_close,
    ),
    Allowed("behind WATCH an end that is the same as before is no change here", keeps_an_end),
    Allowed("behind WATCH a transaction is about keys here, and nothing else", has_no_key),
    Allowed(
        "a key that is made and deleted again behind WATCH has not changed here, and in Valkey it "
        "has: no second command comes between WATCH and MULTI",
        is_second,
    ),
]


def encoded(args):
    head = b"*%d\r\n" % len(args)
    return head + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


def end_of(reply, at):
    """Where the reply that begins at `at` ends."""
    end = reply.index(b"\r\n", at) + 2
    kind, count = reply[at:at + 1], reply[at + 1:end - 2]
    if kind in b"$=!":
        return end + (int(count) + 2 if int(count) >= 0 else 0)
    if kind in b"*%~>":
        for _ in range(max(int(count), 0) * (2 if kind == b"%" else 1)):
            end = end_of(reply, end)
    return end


def elements(reply):
    """The replies in an array; None where it is none."""
    if reply[:1] != b"*" or reply.startswith(b"*-1"):
        return None
    at, found = reply.index(b"\r\n") + 2, []
    while at < len(reply):
        end = end_of(reply, at)
        found.append(reply[at:end])
        at = end
    return found


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind = line[:1]
        if kind in b"$=!":
            length = int(line[1:])
            return line if length < 0 else line + self.file.read(length + 2)
        if kind in b"*%~>":
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


class Draws:
    def __init__(self, seed, ours):
        self.random = random.Random(seed)
        self.one = self.random.choice
        self.block = []
        self.ours = ours
        # Whether a transaction waits for its EXEC; how many commands were drawn since a WATCH.
        self.waits = False
        self.watched = None

    def next(self):
        """The next command; now and then a transaction behind WATCH."""
        if not self.block and not self.waits and self.random.random() < 0.03:
            self.block = self.behind_watch()
        args = self.block.pop(0) if self.block else self.asked(self.command)
        if not self.block and not self.waits and {b"PXAT", b"PEXPIREAT"} & set(args):
            self.block = [[b"PEXPIRETIME", args[1]]]
        if args == [b"MULTI"]:
            self.waits = True
        elif args[0] in (b"EXEC", b"DISCARD"):
            self.waits = False
        return args

    def behind_watch(self):
        block, self.watched = [[b"WATCH", self.key()] + self.keys()], 0
        for _ in range(self.one([0, 0, 1, 2])):
            args = self.about_keys()
            if not is_refused(args, self):
                block.append(args)
                self.watched += 1
        block += self.one([[], [], [], [[b"UNWATCH"]]]) + [[b"MULTI"]]
        self.waits = True
        block += [self.asked(self.about_keys) for _ in range(self.one([0, 1, 2, 3]))]
        block += [self.one([[b"EXEC"], [b"EXEC"], [b"EXEC"], [b"DISCARD"]])]
        self.waits, self.watched = False, None
        return block

    def asked(self, draw):
        """A command that ALLOWED lets be asked."""
        while True:
            args = draw()
            if not is_refused(args, self):
                return args

    def about_keys(self):
        while True:
            args = self.command()
            if args[0] not in (b"MULTI", b"EXEC", b"DISCARD"):
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


def is_refused(args, draws):
    """Whether a command is not asked, as ALLOWED says."""
    return any(allowed.asks(args, draws) for allowed in ALLOWED if allowed.may is None)


class Differs(Exception):
    """Two replies that nothing allows to differ: to which command, and what they say."""

    def __init__(self, args, ours, theirs):
        super().__init__()
        at = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), 0)
        at = max(0, at - 20)
        self.said = b" ".join(arg[:40] for arg in args), ours[at:][:100], theirs[at:][:100]


def judge(args, ours, theirs, between_ms, queued=()):
    """What allows these replies to differ; nothing where they are the same. Of EXEC, whose
    commands were `queued`, each element is judged as the reply to its command."""
    if ours == theirs:
        return []
    rows = [elements(reply) for reply in (ours, theirs)] if args == [b"EXEC"] else [None]
    if all(row is not None and len(row) == len(queued) for row in rows):
        needed = []
        for command, mine, other in zip(queued, *rows):
            needed += judge(command, mine, other, between_ms)
            if any(allowed.begins_again for allowed in needed):
                break  # what stands behind it may be of other values
        return needed
    for allowed in ALLOWED:
        if allowed.may and allowed.asks(args) and allowed.may(ours, theirs, between_ms):
            return [allowed]
    raise Differs(args, ours, theirs)


def compare(ours, theirs, seed, commands):
    draws = Draws(seed, ours)
    queued = []
    between = collections.deque([0], maxlen=500)  # until both servers have seen a command, ms
    for connection in (ours, theirs):
        connection.ask([b"FLUSHALL"])
    for number in range(commands):
        args = draws.next()
        began = time.monotonic()
        mine, other = ours.ask(args), theirs.ask(args)
        between.append((time.monotonic() - began) * 1000)
        try:
            needed = judge(args, mine, other, max(between), queued)
        except Differs as differs:
            command, mine, other = differs.said
            queue = "; ".join(str(b" ".join(arg[:20] for arg in args)) for args in queued)
            behind = f", behind {queue}" if args == [b"EXEC"] else ""
            said = f"{command}: {mine}, and Valkey {other}{behind}"
            sys.exit(f"seed {seed}, command {number}: {said}")
        if not draws.waits:
            queued = []
        elif mine == b"+QUEUED\r\n":
            queued.append(args)
        for allowed in needed:
            allowed.count += 1
        if any(allowed.begins_again for allowed in needed):
            for connection in (ours, theirs):
                connection.ask([b"UNWATCH"])
                connection.ask([b"FLUSHALL"])


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
    for allowed in ALLOWED:
        if allowed.may:
            print(f"{allowed.count} times: {allowed.why}")
    print(f"{commands} commands as Valkey's")


main()
