"""Names and addresses: looked up for each connection, tried side by side, known failures told."""

import asyncio
import socket
import threading

import pytest

from pushlane.dispatcher.transport import dial
from pushlane.dispatcher.transport.answer import Answer, Fate, Lost
from tests.sinks.transport.peers import WAYS, Peer, saying, within_deadline

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
ANSWER = Answer(204, {})
NAME = "hooks.example.com"


@pytest.fixture(params=["asyncio", "uvloop"])
def way(request):
    return WAYS[request.param]


def found(monkeypatch, *answers):
    """Each look-up has the next of these answers; returns who asked for what."""
    asked = []
    left = list(answers)

    async def resolve(host):
        asked.append(host)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(dial, "resolve_host", resolve)
    return asked


def test_a_name_is_looked_up_for_each_connection(way, monkeypatch):
    asked = found(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])

    async def run():
        async with Peer(saying(OK)).running(host="127.0.0.1") as first:
            client = way.client(f"http://{NAME}:{first.port}/", None)
            assert await client.send("/", {}, b"") == ANSWER
            assert await client.send("/", {}, b"") == ANSWER
            assert asked == [NAME]
            client._idle[0].end()
            heard = await client.send("/", {}, b"")
            assert heard == Lost(Fate.UNCONNECTED, "nothing listens there")
            await client.close()

    way.run(within_deadline(run()))
    assert asked == [NAME, NAME]


def test_who_connects_at_once_asks_once(way, monkeypatch):
    asked = found(monkeypatch, ["127.0.0.1"])

    async def run():
        async with Peer(saying(OK)).running() as peer:
            client = way.client(f"http://{NAME}:{peer.port}/", None, most=10)
            await asyncio.gather(*(client.send("/", {}, b"") for _ in range(10)))
            await client.close()

    way.run(within_deadline(run()))
    assert asked == [NAME]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), "its host name is not known"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "its host name is not known"),
        (UnicodeError("label too long"), "its host name is not known"),
        ([], "its host name is not known"),
        (OSError("no descriptors are left"), ""),
    ],
)
def test_a_name_that_leads_nowhere(error, why, way, monkeypatch):
    found(monkeypatch, error)

    async def run():
        client = way.client(f"http://{NAME}/", None)
        heard = await client.send("/", {}, b"")
        await client.close()
        return heard

    assert way.run(within_deadline(run())) == Lost(Fate.UNCONNECTED, why)


def test_a_look_up_that_never_ends_is_not_in_time(way, monkeypatch):
    async def resolve(host):
        await asyncio.Event().wait()

    monkeypatch.setattr(dial, "resolve_host", resolve)

    async def run():
        client = way.client(f"http://{NAME}/", None, connect_s=0.1)
        heard = await client.send("/", {}, b"")
        await client.close()
        return heard

    assert way.run(within_deadline(run())) == Lost(Fate.UNCONNECTED, in_time=False)


def test_names_are_looked_up_by_the_threads_of_the_guard(way, monkeypatch):
    threads = []

    def look_up(host, *_, **__):
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    async def run():
        async with Peer(saying(OK)).running() as peer:
            client = way.client(f"http://{NAME}:{peer.port}/", None)
            monkeypatch.setattr(socket, "getaddrinfo", look_up)
            heard = await client.send("/", {}, b"")
            await client.close()
            return heard

    assert way.run(within_deadline(run())) == ANSWER
    assert threads == ["look-up"]


def test_an_address_that_swallows_packets_costs_a_quarter_of_a_second(way, monkeypatch):
    """The first one never answers; the next is tried beside it, and the first is left then."""
    found(monkeypatch, ["2001:db8::1", "127.0.0.1"])
    reach, left = dial._reach, []

    async def swallowing(ip, port):
        if ip != "2001:db8::1":
            return await reach(ip, port)
        try:
            await asyncio.Event().wait()
        finally:
            left.append(ip)

    monkeypatch.setattr(dial, "_reach", swallowing)

    async def run():
        async with Peer(saying(OK)).running() as peer:
            client = way.client(f"http://{NAME}:{peer.port}/", None)
            began_s = asyncio.get_running_loop().time()
            heard = await client.send("/", {}, b"")
            took_s = asyncio.get_running_loop().time() - began_s
            await client.close()
            return heard, took_s

    heard, took_s = way.run(within_deadline(run()))
    assert heard == ANSWER
    assert took_s >= 0.24
    assert left == ["2001:db8::1"]


def test_after_an_address_that_refuses_the_next_one_is_tried_at_once(way, monkeypatch):
    found(monkeypatch, ["::1", "127.0.0.3", "127.0.0.1"])
    monkeypatch.setattr(dial, "_NEXT_ADDRESS_S", 3600.0)

    async def run():
        async with Peer(saying(OK)).running() as peer:
            client = way.client(f"http://{NAME}:{peer.port}/", None)
            heard = await client.send("/", {}, b"")
            await client.close()
            return heard

    assert way.run(within_deadline(run())) == ANSWER


def test_both_families_are_tried_by_turns():
    given = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1"]
    assert dial._interleaved(given) == ["2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3"]
    assert dial._interleaved([]) == []


def test_an_address_of_ipv6_is_asked_as_it_stands(way):
    async def run():
        try:
            peer = Peer(saying(OK))
            async with peer.running(host="::1"):
                client = way.client(f"http://[::1]:{peer.port}/", None)
                assert await client.send("/", {}, b"") == ANSWER
                await client.close()
                assert f"\r\nHost: [::1]:{peer.port}\r\n" in peer.heads[0]
        except OSError:
            pytest.skip("this machine has no IPv6")

    way.run(within_deadline(run()))


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_race_closes_what_it_does_not_take(turns, way, monkeypatch):
    """Both connect within a few turns of the loop; one of them is closed, whichever it is."""
    sockets = [socket.socket(), socket.socket()]

    async def run():
        second = asyncio.Event()

        async def reach(ip, port):
            try:
                if ip == "1":
                    second.set()
                    for _ in range(turns):
                        await asyncio.sleep(0)
                await second.wait()
            except BaseException:
                sockets[int(ip)].close()
                raise
            return ip, sockets[int(ip)]

        monkeypatch.setattr(dial, "_reach", reach)
        monkeypatch.setattr(dial, "_NEXT_ADDRESS_S", 0.01)
        _, won = await dial._race(["0", "1"], 80)
        for _ in range(3):
            await asyncio.sleep(0)
        return won

    won = way.run(within_deadline(run()))
    assert [one for one in sockets if one.fileno() != -1] == [won]
    won.close()
