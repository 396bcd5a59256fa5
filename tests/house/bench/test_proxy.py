"""The benchmark's network between a process and a service: whole, cut, stalled, healed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from bench.proxy import Proxy, Way, proxies

DEADLINE_S = 30.0
NEAR, FAR = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def service() -> Iterator[int]:
    """The port of a service that sends back whatever it gets."""

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    try:
        listening = socket.create_server((FAR, 0))
    except OSError:
        pytest.skip(f"{FAR} is no address of this machine")
    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


@pytest.fixture
def proxy(service: int) -> Iterator[Proxy]:
    with proxies([Way(NEAR, FAR, service)]) as (one,):
        yield one


@pytest.fixture
def client(proxy: Proxy, service: int) -> Iterator[socket.socket]:
    with socket.create_connection((NEAR, service), timeout=DEADLINE_S) as connection:
        yield connection


def echoed(connection: socket.socket, data: bytes) -> bytes:
    """What comes back; nothing when the connection is broken."""
    try:
        connection.sendall(data)
        return connection.recv(1024)
    except ConnectionError:
        return b""


def test_it_forwards_both_ways(client: socket.socket) -> None:
    assert echoed(client, b"ping") == b"ping"


def test_a_cut_breaks_what_is_connected(client: socket.socket, proxy: Proxy) -> None:
    echoed(client, b"ping")
    proxy.cut()
    assert echoed(client, b"ping") == b""


def test_while_it_is_cut_nobody_gets_through(proxy: Proxy, service: int) -> None:
    proxy.cut()
    with socket.create_connection((NEAR, service), timeout=DEADLINE_S) as late:
        assert echoed(late, b"ping") == b""


def test_a_stall_holds_what_is_sent_until_it_is_healed(client: socket.socket, proxy: Proxy) -> None:
    echoed(client, b"ping")
    proxy.stall()
    client.sendall(b"late")
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1024)

    proxy.heal()

    client.settimeout(DEADLINE_S)
    assert client.recv(1024) == b"late"


def test_after_a_cut_is_healed_new_ones_get_through(proxy: Proxy, service: int) -> None:
    proxy.cut()
    proxy.heal()
    with socket.create_connection((NEAR, service), timeout=DEADLINE_S) as connection:
        assert echoed(connection, b"ping") == b"ping"
