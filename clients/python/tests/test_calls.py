"""What each call answers, and what it refuses."""

import pytest

import laneway

# A unix time that is over: the protocol takes what is above thirty days for one.
OVER = 30 * 24 * 60 * 60 + 1


def test_every_condition_is_answered(client, key):
    assert client.get(key) is None
    assert client.get(key, b"other") == b"other"
    assert client.replace(key, b"1") is False
    assert client.append(key, b"1") is False
    assert client.prepend(key, b"1") is False
    assert client.delete(key) is False
    assert client.touch(key, 60) is False
    assert client.add(key, b"1") is True
    assert client.add(key, b"2") is False
    assert client.replace(key, b"3") is True
    assert client.append(key, bytearray(b"4")) is True
    assert client.prepend(key, memoryview(b"2")) is True
    assert client.get(key) == b"234"
    assert client.touch(key, 60) is True
    assert client.delete(key) is True
    assert client.get(key) is None


def test_numbers_are_counted(client, key):
    assert client.incr(key) is None and client.decr(key, 2) is None
    client.set(key, b"10")
    assert client.incr(key) == 11
    assert client.incr(key, 2**40) == 2**40 + 11
    assert client.decr(key, 2**40 + 1) == 10
    assert client.decr(key, 99) == 0
    client.set(key, b"no number")
    with pytest.raises(laneway.Refused, match="CLIENT_ERROR"):
        client.incr(key)
    for number in [-1, 2**64]:
        with pytest.raises(OverflowError):
            client.incr(key, number)


def test_a_value_is_replaced_only_as_it_was_read(client, key):
    assert client.gets(key) == (None, None)
    assert client.gets(key, b"other") == (b"other", None)
    assert client.cas(key, b"1", 1) is None
    client.set(key, b"1")
    value, cas = client.gets(key)
    assert value == b"1" and cas > 0
    assert client.cas(key, b"2", cas) is True
    assert client.cas(key, b"3", cas) is False
    assert client.get(key) == b"2"


def test_flags_are_kept(client, key):
    assert client.get_with_flags(key) is None
    client.set(key, b"1", flags=2**32 - 1)
    assert client.get_with_flags(key) == (b"1", 2**32 - 1)
    client.set_many({key: b"2"}, flags=7)
    assert client.get_with_flags(key) == (b"2", 7)
    _, cas = client.gets(key)
    client.cas(key, b"3", cas, flags=9)
    assert client.get_with_flags(key) == (b"3", 9)


def test_an_item_ends_when_it_is_to(client, key):
    for expire, is_there in [(0, True), (60, True), (OVER - 1, True), (OVER, False)]:
        client.set(key, b"1", expire)
        assert (client.get(key) is not None) == is_there, expire
        client.set_many({key: b"1"}, expire=expire)
        assert (client.get(key) is not None) == is_there, expire
    client.set(key, b"1")
    assert client.touch(key, OVER) is True
    assert client.get(key) is None
    for expire in [-1, 2**32]:
        for call in [client.set, client.add, client.replace]:
            with pytest.raises(laneway.BadRequest, match="expiry"):
                call(key, b"1", expire)
        with pytest.raises(laneway.BadRequest, match="expiry"):
            client.set_many({key: b"1"}, expire)
        with pytest.raises(laneway.BadRequest, match="expiry"):
            client.touch(key, expire)
    assert client.get(key) is None


def test_keys_are_text_or_bytes(client):
    for key in ["k", "k" * 250, "Schlüssel", b"k", b"\xff\xfe"]:
        client.set(key, b"1")
        assert client.get(key) == b"1"
        assert client.get_many([key]) == {key: b"1"}
    client.set("Schlüssel", b"the same")
    assert client.get("Schlüssel".encode()) == b"the same"
    for key in ["", "k" * 251, "a key", b"a\nkey", "\x7f", b"a\0key", "ü" * 126]:
        for call in [client.get, client.delete, client.gets, client.incr, client.touch]:
            with pytest.raises(laneway.BadRequest, match="a key has"):
                call(key)
        with pytest.raises(ValueError, match="a key has"):
            client.set(key, b"1")
        with pytest.raises(laneway.BadRequest, match="a key has"):
            client.get_many(["k", key])
        with pytest.raises(laneway.BadRequest, match="a key has"):
            client.set_many({"k": b"1", key: b"1"})
    for key in [5, None, ["k"], bytearray(b"k")]:
        with pytest.raises(TypeError, match="a key is str or bytes"):
            client.get(key)
        with pytest.raises(TypeError, match="a key is str or bytes"):
            client.get_many([key])
    with pytest.raises(UnicodeEncodeError):
        client.get("\ud800")
    for keys in ["a string", 5, None]:
        with pytest.raises(TypeError):
            client.get_many(keys)
    with pytest.raises(TypeError):
        client.set_many([("k", b"1")])


def test_statistics_are_told(client, server):
    assert client.stats()["pid"] == str(server.pid)
    assert client.stats("topology")["queues"] == "2"
    for words in ["two\nlines", "x" * 300]:
        with pytest.raises(laneway.BadRequest, match="words"):
            client.stats(words)


def test_a_timeout_is_a_number_above_nothing(server):
    for timeout in [0, -1, float("nan"), float("inf"), 1e300]:
        with pytest.raises(ValueError, match="timeout"):
            laneway.Client.shm(server.door, timeout=timeout)
        with pytest.raises(ValueError, match="timeout"):
            laneway.Client.udp(server.address, timeout=timeout)
    with pytest.raises(TypeError):
        laneway.Client.shm(server.door, timeout="long")


def test_a_place_where_there_is_no_server_is_told(tmp_path):
    with pytest.raises(laneway.Unreachable) as told:
        laneway.Client.shm(tmp_path / "nothing")
    assert isinstance(told.value, ConnectionError) and isinstance(told.value, laneway.LanewayError)
    with pytest.raises(laneway.Unreachable):
        laneway.Client.shm(tmp_path)
    # Port 1 is nobody's: TCP is refused, and no datagram is answered.
    with pytest.raises((laneway.Unreachable, laneway.TimedOut)):
        laneway.Client.udp("127.0.0.1:1", timeout=0.1)
    for address in ["127.0.0.1", "127.0.0.1:port", ""]:
        with pytest.raises(laneway.BadRequest):
            laneway.Client.udp(address)
    for address in [5, None, ("127.0.0.1",), ("127.0.0.1", 70_000)]:
        with pytest.raises((TypeError, OverflowError)):
            laneway.Client.udp(address)
    with pytest.raises(TypeError):
        laneway.Client.shm(5)
    with pytest.raises(TypeError):
        laneway.Client()


def test_addresses_are_text_or_pairs(server, key):
    host, port = server.address
    for address in [(host, port), f"{host}:{port}"]:
        with laneway.Client.udp(address) as client:
            client.set(key, b"1")
            assert client.get(key) == b"1"


def test_every_call_is_documented():
    calls = [name for name in dir(laneway.Client) if not name.startswith("_")]
    assert len(calls) >= 20
    for name in calls:
        assert getattr(laneway.Client, name).__doc__, name
    assert laneway.__doc__
    for name in laneway.__all__:
        assert getattr(laneway, name).__doc__, name
