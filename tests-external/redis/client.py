"""redis-py against a server, by each protocol that it speaks. usage: client.py PORT"""

import os
import sys

import redis


def refused(call, words):
    try:
        call()
    except redis.ResponseError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"{words}: it was not refused")


def check(port, protocol):
    options = {} if protocol is None else {"protocol": protocol}
    text = redis.Redis(port=port, decode_responses=True, **options)
    assert text.flushall() and text.ping() and text.dbsize() >= 0
    assert text.info()["loading"] == 0 and "maxmemory" in text.config_get("max*")
    assert text.command_count() > 40 and "get" in text.command()
    assert text.client_setname("tester") and text.client_getname() == "tester"
    assert text.set("k", "v", ex=100, nx=True) is True and text.set("k", "w", nx=True) is None
    assert text.set("k", "w", get=True, keepttl=True) == "v" and text.ttl("k") > 90
    assert text.get("k") == "w" and text.get("none") is None
    assert text.mset({"a": 1, "b": 2}) and text.mget("a", "none", "b") == ["1", None, "2"]
    assert text.incr("n") == 1 and text.incrby("n", 41) == 42 and text.decr("n", 43) == -1
    assert text.delete("a", "b", "none") == 2 and text.exists("k", "n", "none") == 2
    assert text.expire("k", 50) and text.persist("k") and text.ttl("k") == -1
    assert text.type("k") == "string" and text.append("k", "x") == 2 and text.strlen("k") == 2
    pipe = text.pipeline()  # a transaction, by default
    pipe.set("t", 1).incr("t").get("t")
    assert pipe.execute() == [True, 2, "2"]
    assert text.transaction(lambda pipe: pipe.multi() or pipe.incr("t"), "t") == [3]
    with text.pipeline() as pipe:
        pipe.watch("t")
        value = int(pipe.get("t"))
        text.set("t", 7)
        pipe.multi()
        pipe.set("t", value + 1)
        try:
            pipe.execute()
            raise AssertionError("what was watched has changed")
        except redis.WatchError:
            assert text.get("t") == "7"
    assert not text.msetnx({"t": 1, "new": 2}) and text.rename("t", "u") and text.get("u") == "7"
    pipe = text.pipeline(transaction=False)
    for number in range(2000):
        pipe.set(f"p{number}", number).get(f"p{number}")
    assert pipe.execute()[1::2] == [str(number) for number in range(2000)]
    raw = redis.Redis(port=port, **options)
    large = os.urandom(900_000)
    key = b"\r\n\x00 \xff"
    assert raw.set(key, large, ex=50, get=True) is None and raw.get(key) == large
    assert raw.getex(key, ex=10) == large and raw.getdel(key) == large and raw.get(key) is None
    refused(lambda: raw.set("huge", b"x" * (65 << 20)), "larger than this server takes")
    refused(lambda: raw.lpush("l", 1), "unknown command 'LPUSH'")
    refused(lambda: raw.eval("return 1", 0), "unknown command 'EVAL'")
    lock = raw.lock("lock", timeout=5)
    assert lock.acquire()  # SET NX; giving it back takes Lua
    refused(lock.release, "unknown command 'EVALSHA'")
    assert raw.ping()


PROTOCOLS = (None, 2, 3)
for protocol in PROTOCOLS:
    check(int(sys.argv[1]), protocol)
print(f"redis-py {redis.__version__}, {len(PROTOCOLS)} ways")
