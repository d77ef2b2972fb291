"""Clients of memcached's binary protocol: python-binary-memcached, and pylibmc (libmemcached) in
its binary mode. Each stores, reads and changes values, a large one too, and verifies what it gets
back.

usage: clients.py PORT [USER PASSWORD]

With a user the server must have it (-Y), and refuses who has not said who it is.
"""

import glob
import os
import sys

# pylibmc's wheel has libsasl2 without its mechanisms, and looks for them where Debian has none.
MECHANISMS = glob.glob("/usr/lib/*/sasl2/libplain.so*")
if MECHANISMS:
    os.environ.setdefault("SASL_PATH", os.path.dirname(MECHANISMS[0]))

import bmemcached
import pylibmc

LARGE = bytes(range(256)) * 3000  # 768 kB
MANY = {f"many{number}": f"value {number}" * number for number in range(300)}


def check(what, got, wanted):
    if got != wanted:
        shown = (repr(got)[:80], repr(wanted)[:80])
        sys.exit(f"{what}: {shown[0]} in place of {shown[1]}")


def code_of(call, *args, **names):
    try:
        return call(*args, **names)
    except bmemcached.exceptions.MemcachedException as error:
        return error.code


def by_bmemcached(address, user, password):
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


def by_pylibmc(address, user, password):
    names = {"username": user, "password": password} if user else {}
    client = pylibmc.Client([address], binary=True, **names, behaviors={"cas": True})
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


def refused(address):
    client = bmemcached.Client((address,))
    try:
        got = client.get("large")
    except Exception:  # it tells by several kinds that it was refused
        got = None
    check("get without a password", got, None)


def main():
    port, user, password = (sys.argv[1:] + [None, None])[:3]
    address = f"127.0.0.1:{port}"
    by_bmemcached(address, user, password)
    print("python-binary-memcached: passed")
    if user and not MECHANISMS:
        print("SKIPPED: pylibmc by SASL: PLAIN is not installed (Debian: libsasl2-modules)")
    else:
        by_pylibmc(address, user, password)
        print("pylibmc: passed")
    if user:
        refused(address)
        print("without a password: refused")


main()
