"""Threads, forks, servers that go, clients that close."""

import os
import random
import signal
import threading
import time

import pytest

import laneway

# Within which a call of a client with a timeout of TIMEOUT is over, on whatever machine.
BOUND = 30
TIMEOUT = 2


def run(count, work):
    """Runs `work(number)` in so many threads; raises what one of them raised."""
    failed = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def mix(client, key, number):
    """Stores and reads values that only this thread knows."""
    draws = random.Random(number)
    for turn in range(40):
        name = f"{key}:{number}:{turn % 5}"
        value = draws.randbytes(draws.choice([10, 1000, 40_000, 300_000]))
        client.set(name, value)
        assert client.get(name) == value
        room = bytearray(len(value))
        assert client.get_into(name, room) == len(value) and room == value
        assert client.get_many([name, "nothing"]) == {name: value}
        assert client.incr(f"{key}:count") is not None


def test_threads_share_a_client(client, key):
    client.set(f"{key}:count", b"0")
    run(8, lambda number: mix(client, key, number))
    assert client.get(f"{key}:count") == b"320"


def test_threads_have_clients_of_their_own(way, server, connect, key):
    counting = connect(way, server)
    counting.set(f"{key}:count", b"0")
    run(8, lambda number: mix(connect(way, server), key, number))
    assert counting.get(f"{key}:count") == b"320"


def test_other_threads_run_while_one_waits(way, fresh, connect):
    client = connect(way, fresh, timeout=BOUND)
    client.set("k", b"1")
    fresh.pause()
    begun, got = threading.Event(), []

    def wait():
        begun.set()
        got.append(client.get("k"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.wait()
    # The other thread is in its call long before this is over, and has an answer only behind it:
    # did it keep the interpreter to itself, nobody would let the server go on in time.
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    assert got == []
    fresh.send(signal.SIGCONT)
    waiting.join()
    assert got == [b"1"]


def test_a_call_that_gets_no_answer_ends_in_time(way, fresh, connect):
    client = connect(way, fresh, timeout=1)
    client.set("k", b"1")
    fresh.pause()
    began = time.monotonic()
    with pytest.raises(laneway.TimedOut) as told:
        client.get("k")
    assert isinstance(told.value, TimeoutError)
    for change in [lambda: client.set("k", b"2"), lambda: client.incr("n")]:
        with pytest.raises(laneway.OutcomeUnknown):
            change()
    assert time.monotonic() - began < BOUND
    fresh.send(signal.SIGCONT)
    patient = connect(way, fresh)
    assert patient.get("k") in (b"1", b"2")  # what nobody knew was done or was not


@pytest.mark.parametrize("call", ["get", "set", "set_many"])
def test_a_server_that_is_killed_ends_the_call_that_waits_for_it(way, fresh, connect, call):
    client = connect(way, fresh, timeout=TIMEOUT)
    fresh.pause()
    calls = {
        "get": lambda: client.get("k"),
        "set": lambda: client.set("k", bytes(1_000_000)),
        "set_many": lambda: client.set_many({f"k{number}": bytes(9000) for number in range(99)}),
    }
    begun, ended = threading.Event(), []

    def wait():
        begun.set()
        try:
            ended.append(calls[call]())
        except laneway.LanewayError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    began = time.monotonic()
    waiting.start()
    begun.wait()
    fresh.kill()
    waiting.join(BOUND)
    assert not waiting.is_alive() and time.monotonic() - began < BOUND
    kinds = (laneway.Unreachable, laneway.TimedOut, laneway.OutcomeUnknown)
    assert len(ended) == 1 and isinstance(ended[0], kinds), ended
    with pytest.raises(kinds):
        client.get("k")


def test_a_server_that_is_started_anew_is_found_by_the_same_client(fresh, connect):
    client = connect("shm", fresh, timeout=TIMEOUT)
    client.set("k", b"1")
    fresh.kill()
    with pytest.raises((laneway.Unreachable, laneway.TimedOut)):
        client.get("k")
    fresh.start()
    assert client.get("k") is None
    assert client.set("k", bytes(1_000_000)) is True
    assert client.get("k") == bytes(1_000_000)


def test_a_closed_client_says_so(way, server, connect):
    with connect(way, server) as client:
        assert client.get("nothing") is None
        assert repr(client) == f"<laneway.Client {way} {place(way, server)}>"
    client.close()
    calls = [
        lambda: client.get("k"),
        lambda: client.get_into("k", bytearray(1)),
        lambda: client.set("k", b"1"),
        lambda: client.get_many(["k"]),
        lambda: client.set_many({"k": b"1"}),
        lambda: client.cas("k", b"1", 1),
        lambda: client.stats(),
    ]
    for call in calls:
        with pytest.raises(laneway.Closed, match="closed"):
            call()
    assert repr(client) == f"<laneway.Client {way} {place(way, server)}, closed>"
    with pytest.raises(KeyError), connect(way, server) as other:
        raise KeyError
    with pytest.raises(laneway.Closed):
        other.get("k")


def place(way, server):
    return server.door if way == "shm" else ":".join(map(str, server.address))


def test_places_of_closed_clients_are_free_again(server):
    for _ in range(200):  # more than --shm-clients
        laneway.Client.shm(server.door).close()
        laneway.Client.shm(server.door)  # let go of as nobody has it


def test_a_fork_refuses_and_its_parent_goes_on(way, server, connect, key):
    client = connect(way, server)
    client.set(key, b"1")
    child = os.fork()
    if child == 0:
        try:
            client.get(key)
        except laneway.Closed as error:
            client.close()
            own = connect(way, server)
            is_good = "fork" in str(error) and own.get(key) == b"1"
            os._exit(0 if is_good else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert client.get(key) == b"1"
