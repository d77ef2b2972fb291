"""Values of 1 MB by shared memory beside pymemcache over loopback, from one server.

    LANEWAY_BIN=target/release/laneway python bench.py [--pairs N] [--operations N] [--size BYTES]

Pairs of runs take turns, each in the order that the one before had not; a run is so many `set`s
and then so many `get`s of one client in one thread. Every value that was read is compared with
what was stored, outside of the time that is taken. CPU time is that of this process (client) and
of the server, in which the other way is idle. With --check the status is 1 where the median of the
ratios (bytes a second by shm over those of pymemcache) is below 3 for `get`, `set` or both.
"""

import argparse
import contextlib
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "tests"))

import pymemcache
from served import Server

import laneway

RATIO_MIN = 3
TICKS = os.sysconf("SC_CLK_TCK")
CALLS = ["set", "get"]
KEYS = 8


def server_seconds(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(client, values, operations):
    """Seconds of each call, and CPU seconds of this process in all of them."""
    took = dict.fromkeys(CALLS, 0.0)
    cpu = 0.0
    for call in CALLS:
        for number in range(operations):
            key, value = f"value:{number % KEYS}", values[number % KEYS]
            began, began_cpu = time.perf_counter(), time.process_time()
            got = client.set(key, value) if call == "set" else client.get(key)
            cpu += time.process_time() - began_cpu
            took[call] += time.perf_counter() - began
            if got != (True if call == "set" else value):
                sys.exit(f"{client}: {call} {key} did not give what was stored")
    return took, cpu


def measure(server, clients, values, options):
    """By name and pair: seconds by call, CPU seconds of the client and of the server."""
    runs = {name: [] for name in clients}
    for pair in range(options.pairs + 1):
        order = list(clients) if pair % 2 else list(reversed(clients))
        for name in order:
            before = server_seconds(server.pid)
            took, cpu = run(clients[name], values, options.operations)
            runs[name].append((took, cpu, server_seconds(server.pid) - before))
    # The first pair warms up: memory is touched for the first time.
    return {name: all_runs[1:] for name, all_runs in runs.items()}


def spread(numbers, digits):
    low, middle, high = min(numbers), statistics.median(numbers), max(numbers)
    return f"{middle:.{digits}f} [{low:.{digits}f}..{high:.{digits}f}]"


def report(runs, options):
    operations, size = options.operations, options.size
    print(f"{options.pairs} pairs of {operations} set and {operations} get, {size} bytes a value")
    print(f"{'way':<12} {'call':<5} {'MB/s, median [least..most]':<30} {'us a call':>10}")
    for name, all_runs in runs.items():
        for call in CALLS:
            rates = [operations * size / took[call] / 1e6 for took, _, _ in all_runs]
            micros = statistics.median(took[call] for took, _, _ in all_runs) / operations * 1e6
            print(f"{name:<12} {call:<5} {spread(rates, 0):<30} {micros:>10.0f}")
    print(f"\n{'way':<12} CPU us a call, client   CPU us a call, server")
    for name, all_runs in runs.items():
        client, server = (
            [each[at] / (2 * operations) * 1e6 for each in all_runs] for at in (1, 2)
        )
        print(f"{name:<12} {spread(client, 0):<23} {spread(server, 0)}")
    print("\nshm over pymemcache, by pair")
    medians = []
    for calls in [["set"], ["get"], CALLS]:
        pairs = zip(runs["shm"], runs["pymemcache"], strict=True)
        ratios = [
            sum(slow[0][call] for call in calls) / sum(fast[0][call] for call in calls)
            for fast, slow in pairs
        ]
        medians.append(statistics.median(ratios))
        print(f"  {' and '.join(calls):<12} {spread(ratios, 2)}")
    return min(medians)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--operations", type=int, default=200)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    values = [random.Random(number).randbytes(options.size) for number in range(KEYS)]
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        server = Server(pathlib.Path(folder) / "door", "-t", "2", "-m", "256", "-I", "16m")
        ends.callback(server.stop)
        shm = ends.enter_context(laneway.Client.shm(server.door))
        # It would take no reply to `set` for stored otherwise.
        tcp = pymemcache.Client(server.address, no_delay=True, default_noreply=False, timeout=60)
        ends.callback(tcp.close)
        least = report(
            measure(server, {"shm": shm, "pymemcache": tcp}, values, options), options
        )
    if options.check and least < RATIO_MIN:
        sys.exit(f"{least:.2f} is below {RATIO_MIN}")


if __name__ == "__main__":
    main()
