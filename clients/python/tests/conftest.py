import pytest
from served import Server

import laneway

# More than any answer takes on a machine that does many other things.
PATIENT = 60


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One for all tests that leave it alive."""
    server = Server(tmp_path_factory.mktemp("shm") / "door", "-t", "2", "-m", "256", "-I", "4m")
    yield server
    assert server.stop() == 0


@pytest.fixture
def fresh(tmp_path):
    """One for a test that stops it."""
    server = Server(tmp_path / "door", "-t", "1", "-m", "64")
    yield server
    if server.process.poll() is None:
        server.kill()


@pytest.fixture
def connect():
    """Makes a client by a way; all are closed at the end."""
    clients = []

    def connect(way, server, timeout=PATIENT):
        make = {
            "shm": lambda: laneway.Client.shm(server.door, timeout=timeout),
            "udp": lambda: laneway.Client.udp(server.address, timeout=timeout),
        }
        clients.append(make[way]())
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture(params=["shm", "udp"])
def way(request):
    return request.param


@pytest.fixture
def client(way, server, connect):
    return connect(way, server)


@pytest.fixture
def key(request):
    """A key of this test alone."""
    return request.node.name.replace(" ", "_")[:200]
