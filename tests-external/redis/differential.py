"""Random commands to two servers, whose replies must be the same but for what ALLOWED argues.

usage: differential.py PORT PATH-OF-VALKEY-SERVER SEED COMMANDS

Odd seeds speak RESP3. Commands leave alone or several in one write, cut at places that are drawn.
At the end it says how many of each kind were drawn. A server of Redis' may stand in Valkey's place.
"""

import collections
import decimal
import random
import re
import socket
import subprocess
import sys
import threading
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


def number_of(reply):
    """The decimal in a bulk string; None where there is none."""
    try:
        return decimal.Decimal(reply.split(b"\r\n")[1].decode()) if reply[:1] == b"$" else None
    except (IndexError, UnicodeDecodeError, decimal.InvalidOperation):
        return None


def same_sum(ours, theirs, _between_ms):
    """Whether two sums differ by no more than a `long double` rounds, of 64 bits, or by what
    stands behind the 17th place."""
    sums = [number_of(reply) for reply in (ours, theirs)]
    if None in sums:
        return False
    most = max(abs(number) for number in sums)
    return abs(sums[0] - sums[1]) <= most / 2**62 + decimal.Decimal("2e-17")


def has_bad_key(args, *_):
    return any(not 1 <= len(arg) <= KEY_BYTES_MAX for arg in args[1:])


def compares(args, *_):
    return args[0] == b"SET" and b"IFEQ" in args


def is_valkeys(args, draws):
    return compares(args) and not draws.beside_valkey


def named(*names):
    return lambda args, *_: args[0] in names


def nests(args, draws):
    return args == [b"MULTI"] and draws.waits and draws.beside_valkey


def is_close(args, draws):
    """Whether the end that `EXPIRE` or `PEXPIRE` is to give may be near the one that there is."""
    if args[0] not in (b"EXPIRE", b"PEXPIRE") or not set(args) & {b"GT", b"LT"}:
        return False
    if draws.waits or not draws.alone:
        return True  # where the end will be cannot be asked
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
    Allowed(
        "keys have 1 to 250 bytes here", has_bad_key,
        says(b"-ERR the key is empty", b"-ERR the key is longer"), begins_again=True,
    ),
    Allowed(
        "IFEQ compares with values of up to 64 bytes here", compares,
        says(b"-ERR IFEQ compares with"), begins_again=True,
    ),
    Allowed(
        "INCRBYFLOAT adds decimals here, and x87's long doubles in Valkey",
        named(b"INCRBYFLOAT"), same_sum, begins_again=True,
    ),
    Allowed("IFEQ is Valkey's, and unknown to Redis 8.0", is_valkeys),
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


def held(reply):
    """What a bulk string holds."""
    return reply[reply.index(b"\r\n") + 2:-2]


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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

    def send(self, pieces):
        for piece in pieces:
            self.socket.sendall(piece)

    def ask(self, args):
        self.send([encoded(args)])
        return self.reply()

    def ask_all(self, pieces, count):
        """Sends the pieces, and reads so many replies; several at the same time, since either end
        may be full until the other one is read."""
        if count == 1:
            self.send(pieces)
            return [self.reply()]
        sender = threading.Thread(target=self.send, args=(pieces,), daemon=True)
        sender.start()
        replies = [self.reply() for _ in range(count)]
        sender.join()
        return replies


VALUES = [b"", b"1", b"-5", b"10", b"abc", b"007", b" 5", b"3.5", b"9223372036854775807"]
VALUES += [b"x" * 300, b"v" * 20_000, b"w" * 70_000]
KEY_BYTES_MAX = 250
POSITIONS = [b"0", b"0", b"1", b"3", b"-1", b"-1", b"-3", b"5", b"299", b"-300", b"19999"]
POSITIONS += [b"100000", b"x", b"", b"9223372036854775807", b"-9223372036854775808"]
OFFSETS = [b"0", b"0", b"1", b"3", b"10", b"300", b"20000", b"70000", b"-1", b"x"]
FLOATS = [b"0.1", b"0.2", b"-0.25", b"1.5", b"10", b"-7", b"3.0e3", b"1e-3", b"+5", b"1e19"]
FLOATS += [b"0.00000000000000001", b"-1e1", b"x", b"", b" 1", b"1.2.3", b"inf", b"nan"]
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
# Kinds that a long run must have drawn, beside the names of commands.
KINDS = {"SET IFEQ", "GETRANGE", "SUBSTR", "SETRANGE", "INCRBYFLOAT", "EXEC behind WATCH"}
KINDS |= {"walks by SCAN"}
KINDS |= {f"a key of {length} bytes" for length in (0, KEY_BYTES_MAX, KEY_BYTES_MAX + 1)}
LONG_RUN = 10_000
# Requests of one walk over the keys: an index of a million buckets, of which each looks at 64.
WALK_STEPS_MAX = 20_000


class Draws:
    def __init__(self, seed, ours, beside_valkey):
        self.random = random.Random(seed)
        self.one = self.random.choice
        self.block = []
        self.ours, self.beside_valkey = ours, beside_valkey
        # Whether the next command leaves alone.
        self.alone = True
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

    def together(self):
        """The commands that leave in one write, and the pieces that they are cut into."""
        count = self.one([1, 1, 1, 1, 2, 3, 8])
        self.alone = count == 1
        commands = [self.next() for _ in range(count)]
        sent = b"".join(encoded(args) for args in commands)
        cuts = {0, len(sent)}
        cuts |= {self.random.randrange(len(sent)) for _ in range(self.one([0, 0, 1, 3]))}
        cuts = sorted(cuts)
        return commands, [sent[begin:end] for begin, end in zip(cuts, cuts[1:])]

    def begin_again(self):
        self.block, self.waits = [], False

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
        one = self.random.random()
        if one < 0.05:
            length = 0 if one < 0.004 else KEY_BYTES_MAX + (one < 0.008)
            return b"k" * length
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
            plain += [[b"IFEQ", self.one(VALUES)], [b"IFEQ"]]
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
            [self.one([b"GETRANGE", b"SUBSTR"]), key, self.one(POSITIONS), self.one(POSITIONS)],
            self.one([
                [b"SETRANGE", key, self.one(OFFSETS), value],
                [b"SETRANGE", key, b"9223372036854775807", b"x"],
            ]),
            [b"INCRBYFLOAT", key, self.one(FLOATS)],
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


def kinds_of(args, is_behind_watch):
    """What is counted of a command: its name, and what is special about it."""
    name = args[0].decode()
    yield "SET IFEQ" if compares(args) else name
    if args == [b"EXEC"] and is_behind_watch:
        yield "EXEC behind WATCH"
    if args[0] not in {line.split(" ")[0].encode() for line in FIXED}:
        for length in (0, KEY_BYTES_MAX, KEY_BYTES_MAX + 1):
            if b"k" * length in args[1:2]:
                yield f"a key of {length} bytes"


class Comparison:
    """Both servers, and what is known of where they are."""

    def __init__(self, ours, theirs, seed):
        self.both, self.seed = (ours, theirs), seed
        beside_valkey = b"\r\nvalkey_version:" in theirs.ask([b"INFO", b"server"])
        self.draws = Draws(seed, ours, beside_valkey)
        self.queued, self.is_watching = [], False
        self.between = collections.deque([0], maxlen=500)  # until both have seen a command, ms
        self.drawn = collections.Counter()
        for connection in self.both:
            if seed % 2 == 1:
                connection.ask([b"HELLO", b"3"])
            connection.ask([b"FLUSHALL"])

    def step(self, number):
        """Sends what leaves together, and compares the replies; how many commands that were."""
        commands, pieces = self.draws.together()
        self.drawn[f"{len(commands)} in one write"] += 1
        began = time.monotonic()
        replies = [connection.ask_all(pieces, len(commands)) for connection in self.both]
        self.between.append((time.monotonic() - began) * 1000)
        is_apart = False
        for place, (args, mine, other) in enumerate(zip(commands, *replies)):
            self.drawn.update(kinds_of(args, self.is_watching))
            if not is_apart:
                is_apart = self.judge(number + place, args, mine, other)
            if args[0] in (b"EXEC", b"DISCARD") or (args == [b"MULTI"] and mine == b"+OK\r\n"):
                self.queued = []
            elif mine == b"+QUEUED\r\n":
                self.queued.append(args)
            if args[0] in (b"WATCH", b"UNWATCH", b"EXEC", b"DISCARD"):
                self.is_watching = args[0] == b"WATCH"
        if is_apart:
            self.begin_again()
        return len(commands)

    def may_walk(self):
        """Now and then, where no transaction is under way."""
        is_free = not (self.draws.waits or self.draws.block or self.is_watching)
        return is_free and self.draws.random.random() < 0.01

    def walk(self, number):
        """Compares which keys a whole walk tells; cursors and their order are each server's own."""
        one = self.draws.one
        options = one([[], [b"MATCH", b"*"], [b"MATCH", b"k[1-4]"], [b"match", b"?k*"]])
        options = options + one([[], [b"COUNT", b"1"], [b"COUNT", b"100"]])
        options += one([[], [b"TYPE", b"string"], [b"TYPE", b"hash"]])
        told = []
        for connection in self.both:
            keys, cursor = set(), b"0"
            for _ in range(WALK_STEPS_MAX):
                cursor, found = elements(connection.ask([b"SCAN", cursor] + options))
                cursor = held(cursor)
                keys.update(held(key) for key in elements(found))
                if cursor == b"0":
                    break
            else:
                sys.exit(f"seed {self.seed}, command {number}: SCAN {options} does not end")
            told.append(sorted(keys))
        self.drawn["walks by SCAN"] += 1
        if told[0] != told[1]:
            said = f"{told[0]}, and Valkey {told[1]}"
            sys.exit(f"seed {self.seed}, command {number}: SCAN {options}: {said}")

    def judge(self, number, args, mine, other):
        """Whether the servers hold something different now. Ends the run where they must not."""
        try:
            needed = judge(args, mine, other, max(self.between), self.queued)
        except Differs as differs:
            command, mine, other = differs.said
            queue = "; ".join(str(b" ".join(arg[:20] for arg in row)) for row in self.queued)
            behind = f", behind {queue}" if args == [b"EXEC"] else ""
            said = f"{command}: {mine}, and Valkey {other}{behind}"
            sys.exit(f"seed {self.seed}, command {number}: {said}")
        for allowed in needed:
            allowed.count += 1
        return any(allowed.begins_again for allowed in needed)

    def begin_again(self):
        for connection in self.both:
            if self.draws.waits:
                connection.ask([b"DISCARD"])
            connection.ask([b"UNWATCH"])
            connection.ask([b"FLUSHALL"])
        self.draws.begin_again()
        self.queued, self.is_watching = [], False

    def tell(self, commands):
        """Says what was drawn, and what differed; fails if something was never drawn."""
        print(", ".join(f"{kind} {count}" for kind, count in sorted(self.drawn.items())))
        for allowed in ALLOWED:
            if allowed.may:
                print(f"{allowed.count} times: {allowed.why}")
        wanted = KINDS if self.draws.beside_valkey else KINDS - {"SET IFEQ"}
        never = sorted(kind for kind in wanted if not self.drawn[kind])
        if commands >= LONG_RUN and never:
            sys.exit(f"seed {self.seed}: never drawn: {', '.join(never)}")


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
        comparison = Comparison(Connection(port), theirs, seed)
        number = 0
        while number < commands:
            number += comparison.step(number)
            if comparison.may_walk():
                comparison.walk(number)
    finally:
        valkey.terminate()
        valkey.wait()
    comparison.tell(number)
    print(f"{number} commands as Valkey's")


main()
