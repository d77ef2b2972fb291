"""Python's clients of memcached. Each stores, reads and changes values, a large one too, and
verifies what it gets back.

usage: main.py CLIENT PORT [USER PASSWORD]

With a user the server must have it (-Y), and refuses who has not said who it is: clients of the
binary protocol alone.
"""

import asyncio
import glob
import importlib.metadata
import os
import sys

# pylibmc's wheel has libsasl2 without its mechanisms, and looks for them where Debian has none.
MECHANISMS = glob.glob("/usr/lib/*/sasl2/libplain.so*")
if MECHANISMS:
    os.environ.setdefault("SASL_PATH", os.path.dirname(MECHANISMS[0]))

LARGE = bytes(range(256)) * 3000  # 768 kB
MANY = {f"many{number}": f"value {number}" * number for number in range(300)}
CHECKS = 0


def check(what, got, wanted):
    global CHECKS
    CHECKS += 1
    if got != wanted:
        shown = (repr(got)[:80], repr(wanted)[:80])
        sys.exit(f"{what}: {shown[0]} in place of {shown[1]}")


def python_binary_memcached(address, user, password):
    import bmemcached

    def code_of(call, *args, **names):
        try:
            return call(*args, **names)
        except bmemcached.exceptions.MemcachedException as error:
            return error.code

    client = bmemcached.Client((address,), user, password)
    check("flush_all", client.flush_all(), True)
    check("get", client.get("none"), None)
    check("set", client.set("k", "text"), True)
    check("get", client.get("k"), "text")
    check("add", client.add("k", "other"), False)
    check("replace", client.replace("none", "other"), False)
    check("replace", client.replace("k", 12), True)
    check("get", client.get("k"), 12)
    value, cas = client.gets("k")
    check("gets", (value, cas > 0), (12, True))
    check("cas", client.cas("k", "new", cas), True)
    check("cas", client.cas("k", "newer", cas), False)
    check("delete", client.delete("k", cas=cas), False)
    check("delete", client.delete("k"), True)
    check("incr", client.incr("n", 5, default=10), 10)
    check("incr", client.incr("n", 5), 15)
    check("decr", client.decr("n", 20), 0)
    check("set large", client.set("large", LARGE, compress_level=0), True)
    check("get large", client.get("large"), LARGE)
    check("set too large", code_of(client.set, "too-large", LARGE * 2, compress_level=0), 3)
    check("get behind it", client.get("large"), LARGE)
    check("set_multi", client.set_multi(MANY), [])
    check("get_multi", client.get_multi([*MANY, "none"]), MANY)
    check("delete_multi", client.delete_multi(list(MANY)), True)
    check("get_multi", client.get_multi(list(MANY)), {})
    stats = client.stats()
    check("stats", "curr_items" in next(iter(stats.values())), True)
    client.disconnect_all()
    if user:
        refused(address)
    return "binary"


def refused(address):
    import bmemcached

    client = bmemcached.Client((address,))
    try:
        got = client.get("large")
    except Exception:  # it tells by several kinds that it was refused
        got = None
    check("get without a password", got, None)


def pylibmc(address, user, password):
    import pylibmc

    names = {"username": user, "password": password} if user else {}
    behaviours = {"cas": True}
    pylibmc_values(pylibmc.Client([address], binary=True, **names, behaviors=behaviours))
    if user:
        return "binary"
    pylibmc_values(pylibmc.Client([address], behaviors=behaviours))
    return "text, binary"


def pylibmc_values(client):
    check("flush_all", client.flush_all(), True)
    check("get", client.get("none"), None)
    check("set", client.set("k", "text"), True)
    check("get", client.get("k"), "text")
    check("add", client.add("k", "other"), False)
    check("replace", client.replace("k", "new"), True)
    value, cas = client.gets("k")
    check("gets", (value, cas > 0), ("new", True))
    check("cas", client.cas("k", "newer", cas), True)
    check("append", client.append("k", "!"), True)
    check("prepend", client.prepend("k", "?"), True)
    check("get", client.get("k"), "?newer!")
    check("touch", client.touch("k", 100), True)
    check("delete", client.delete("k"), True)
    check("delete", client.delete("k"), False)
    check("set number", client.set("n", 10), True)
    check("incr", client.incr("n", 5), 15)
    check("decr", client.decr("n", 3), 12)
    check("set large", client.set("large", LARGE), True)
    check("get large", client.get("large"), LARGE)
    check("set_multi", client.set_multi(MANY), [])
    check("get_multi", client.get_multi([*MANY, "none"]), MANY)
    check("delete_multi", client.delete_multi(list(MANY)), True)
    check("stats", "curr_items" in client.get_stats()[0][1], True)
    client.disconnect_all()


def pymemcache(address, *_):
    from pymemcache import serde
    from pymemcache.client.base import Client

    client = Client(address, serde=serde.pickle_serde, default_noreply=False, timeout=10)
    check("flush_all", client.flush_all(), True)
    check("get", client.get("none"), None)
    check("set", client.set("k", "text", expire=100), True)
    check("get", client.get("k"), "text")
    check("add", client.add("k", "other"), False)
    check("replace", client.replace("none", "other"), False)
    check("replace", client.replace("k", "new"), True)
    check("append", client.append("k", "!"), True)
    check("prepend", client.prepend("k", "?"), True)
    value, cas = client.gets("k")
    check("gets", value, "?new!")
    check("cas", client.cas("k", "swapped", cas), True)
    check("cas", client.cas("k", "again", cas), False)
    check("cas", client.cas("none", "again", cas), None)
    check("touch", client.touch("k", 100), True)
    check("delete", client.delete("k"), True)
    check("delete", client.delete("k"), False)
    check("set number", client.set("n", "10"), True)
    check("incr", client.incr("n", 5), 15)
    check("decr", client.decr("n", 20), 0)
    check("set_many", client.set_many(MANY), [])
    check("get_many", client.get_many([*MANY, "none"]), MANY)
    check("set large", client.set("large", LARGE), True)
    check("get large", client.get("large"), LARGE)
    refuses("set too large", lambda: client.set("too-large", LARGE * 2))
    check("get behind it", client.get("many7"), MANY["many7"])
    check("version", client.version() != b"", True)
    client.close()
    return "text"


def refuses(what, call):
    try:
        got = call()
    except Exception as error:
        got = error
    check(what, isinstance(got, Exception) or not got, True)


def python_memcached(address, *_):
    import memcache

    # Its own limit of 1 MiB is raised, so that the server is asked.
    client = memcache.Client(
        [address], cache_cas=True, server_max_value_length=16 << 20, socket_timeout=10
    )
    client.flush_all()
    check("get", client.get("none"), None)
    check("set", bool(client.set("k", "text", time=100)), True)
    check("get", client.get("k"), "text")
    check("add", bool(client.add("k", "other")), False)
    check("replace", bool(client.replace("none", "other")), False)
    check("replace", bool(client.replace("k", "new")), True)
    check("append", bool(client.append("k", "!")), True)
    check("prepend", bool(client.prepend("k", "?")), True)
    check("gets", client.gets("k"), "?new!")
    check("set by another", bool(memcache.Client([address]).set("k", "mine")), True)
    check("cas", bool(client.cas("k", "again")), False)
    client.reset_cas()
    check("gets", client.gets("k"), "mine")
    check("cas", bool(client.cas("k", "swapped")), True)
    check("touch", bool(client.touch("k", 100)), True)
    check("get", client.get("k"), "swapped")
    check("delete", bool(client.delete("k")), True)
    check("set number", bool(client.set("n", 10)), True)
    check("incr", client.incr("n", 5), 15)
    check("decr", client.decr("n", 20), 0)
    check("incr", client.incr("none"), None)
    check("set_multi", client.set_multi(MANY), [])
    check("get_multi", client.get_multi([*MANY, "none"]), MANY)
    check("set large", bool(client.set("large", LARGE)), True)
    check("get large", client.get("large"), LARGE)
    check("set too large", bool(client.set("too-large", LARGE * 2)), False)
    check("get behind it", client.get("n"), 0)
    check("stats", "curr_items" in client.get_stats()[0][1], True)
    client.disconnect_all()
    return "text"


def aiomcache(address, *_):
    asyncio.run(aiomcache_values(int(address.rpartition(":")[2])))
    return "text"


async def aiomcache_values(port):
    import aiomcache

    client = aiomcache.Client("127.0.0.1", port)
    await client.flush_all()
    check("get", await client.get(b"none"), None)
    check("set", await client.set(b"k", b"text", exptime=100), True)
    check("get", await client.get(b"k"), b"text")
    check("add", await client.add(b"k", b"other"), False)
    check("replace", await client.replace(b"none", b"other"), False)
    check("replace", await client.replace(b"k", b"new"), True)
    check("append", await client.append(b"k", b"!"), True)
    check("prepend", await client.prepend(b"k", b"?"), True)
    value, cas = await client.gets(b"k")
    check("gets", value, b"?new!")
    check("cas", await client.cas(b"k", b"swapped", cas), True)
    check("cas", await client.cas(b"k", b"again", cas), False)
    check("touch", await client.touch(b"k", 100), True)
    check("get", await client.get(b"k"), b"swapped")
    check("delete", await client.delete(b"k"), True)
    check("delete", await client.delete(b"k"), False)
    check("set number", await client.set(b"n", b"10"), True)
    check("incr", await client.incr(b"n", 5), 15)
    check("decr", await client.decr(b"n", 20), 0)
    many = {key.encode(): value.encode() for key, value in MANY.items() if value}
    for key, value in many.items():
        check("set", await client.set(key, value), True)
    check("multi_get", await client.multi_get(*many, b"none"), (*many.values(), None))
    check("set large", await client.set(b"large", LARGE), True)
    check("get large", await client.get(b"large"), LARGE)
    check("stats", b"curr_items" in await client.stats(), True)
    check("version", len(await client.version()) > 0, True)
    await client.close()


CLIENTS = [python_binary_memcached, pylibmc, pymemcache, python_memcached, aiomcache]


def main():
    name, port, user, password = (sys.argv[1:] + [None, None])[:4]
    if name == "pylibmc" and user and not MECHANISMS:
        print("SKIPPED: pylibmc by SASL: PLAIN is not installed (Debian: libsasl2-modules)")
        return
    run = next(run for run in CLIENTS if run.__name__ == name.replace("-", "_"))
    protocols = run(f"127.0.0.1:{port}", user, password)
    version = importlib.metadata.version(name)
    print(f"{name} {version} ({protocols}): {CHECKS} checks")


main()
