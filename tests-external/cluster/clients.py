"""A client that spreads keys over several servers stores values, or reads them back.

usage: clients.py pymemcache|pylibmc store|read HOST:PORT...

Prints how many keys it stored, or found; ends with 1 where a value is not what was stored. What a
server that is gone had counts as not found.
"""

import random
import sys

KEYS = 300
LENGTHS = [10, 100, 1000, 10, 20000, 400000]


def value(key):
    return random.Random(key).randbytes(LENGTHS[key % len(LENGTHS)])


def by_pymemcache(servers):
    from pymemcache.client.hash import HashClient

    # A server that fails once is left alone for as long as this process runs.
    client = HashClient(servers, ignore_exc=True, retry_attempts=0, dead_timeout=600)
    return client.set, client.get


def by_pylibmc(servers):
    import pylibmc

    behaviors = {"ketama": True, "tcp_nodelay": True, "remove_failed": 1}
    client = pylibmc.Client(servers, behaviors=behaviors)

    def get(key):
        try:
            return client.get(key)
        except pylibmc.Error:
            return None

    return client.set, get


def main():
    name, what, *servers = sys.argv[1:]
    store, get = {"pymemcache": by_pymemcache, "pylibmc": by_pylibmc}[name](servers)
    done = 0
    for key in range(KEYS):
        if what == "store":
            done += bool(store(f"{name}-{key}", value(key)))
            continue
        found = get(f"{name}-{key}")
        if found is not None and found != value(key):
            sys.exit(f"{name}-{key}: {len(found)} bytes are not what was stored")
        done += found is not None
    print(done)


main()
