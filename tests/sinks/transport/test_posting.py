"""The contract of a transport over HTTP/1.1: one answer a request, one request a connection."""

import asyncio
import socket

import pytest

from pushlane.core.errors import BadInput
from pushlane.dispatcher.transport.answer import Answer, Fate, Lost
from tests.sinks.transport.peers import (
    WAYS,
    Peer,
    closing,
    cutting,
    posted,
    saying,
    within_deadline,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ANSWER = Answer(200, {"content-length": "2"}, b"ok")
BROKEN = Lost(Fate.BROKEN)
PLAIN = WAYS["asyncio"]


class Clock:
    """Seconds that go on only when told to."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Held:
    """A peer's answer that waits for its sign; `asked` counts the requests that wait."""

    def __init__(self):
        self.asked = asyncio.Semaphore(0)
        self.sign = asyncio.Event()

    async def react(self, writer):
        self.asked.release()
        await self.sign.wait()
        writer.write(OK)


async def test_nothing_is_posted_without_a_connection_that_is_free():
    held = Held()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, most=1)
        told = []
        assert not client.post("/push", {}, b"{}", lambda *heard: told.append(heard), 1)
        sending = asyncio.create_task(client.send("/push", {}, b"{}"))
        await held.asked.acquire()
        assert not client.post("/push", {}, b"{}", lambda *heard: told.append(heard), 2)
        held.sign.set()
        assert await sending == ANSWER
        assert await posted(client) == ANSWER
        await client.close()
        assert not client.post("/push", {}, b"{}", lambda *heard: told.append(heard), 3)
    assert told == []
    assert len(peer.bodies) == 2


@pytest.mark.parametrize(
    "react", [saying(OK), saying(OK + OK), closing(OK), cutting(), saying(b"?")]
)
def test_an_answer_is_told_once_and_after_the_post(react, way, certificates):
    async def run():
        told = []
        ended = asyncio.Event()
        peer = Peer(saying(OK))
        async with peer.running(certificates.good if way.is_tls else None):
            client = way.client(peer.url, certificates)
            assert await client.send("/push", {}, b"{}") == ANSWER
            peer.react = react

            def answered(token, heard):
                told.append((token, heard))
                ended.set()

            assert client.post("/push", {}, b"{}", answered, "token")
            assert told == []
            await ended.wait()
            await client.close()
        [(token, _)] = told
        assert token == "token"
        assert len(peer.bodies) == 2

    way.run(within_deadline(run()))


def test_a_post_to_a_peer_that_has_just_hung_up_is_broken_or_not_taken(way, certificates):
    async def run():
        async with Peer(closing(OK)).running(certificates.good if way.is_tls else None) as peer:
            client = way.client(peer.url, certificates)
            for _ in range(20):
                assert await client.send("/push", {}, b"{}") == ANSWER
                assert await posted(client) in (None, BROKEN)
            await client.close()
        assert len(peer.bodies) == 20

    way.run(within_deadline(run()))


async def test_those_that_wait_are_sent_in_order_over_as_many_connections_as_there_may_be():
    held = Held()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, most=2)
        bodies = [b"%d" % n for n in range(6)]
        sending = [asyncio.create_task(client.send("/push", {}, body)) for body in bodies]
        for _ in range(2):
            await held.asked.acquire()
        assert client.connections == 2
        held.sign.set()
        assert await asyncio.gather(*sending) == [ANSWER] * 6
        await client.close()
    assert peer.connections == 2
    assert sorted(peer.bodies[:2]) == bodies[:2]
    assert sorted(peer.bodies[2:4]) == bodies[2:4]


async def test_the_connection_that_was_used_last_is_used_first():
    held = Held()
    clock = Clock()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, now=clock)
        sending = [asyncio.create_task(client.send("/push", {}, b"{}")) for _ in range(2)]
        for _ in range(2):
            await held.asked.acquire()
        held.sign.set()
        await asyncio.gather(*sending)
        clock.now_s += 3.0
        assert await posted(client) == ANSWER
        clock.now_s += 3.0
        assert await posted(client) == ANSWER  # the other one is idle for 6 s
        clock.now_s += 3.9
        assert await posted(client) == ANSWER
        await client.close()
    assert peer.connections == 2


async def test_a_cancelled_send_ends_its_connection_and_nobody_elses():
    held = Held()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, most=2)
        first, second = (asyncio.create_task(client.send("/push", {}, b"{}")) for _ in range(2))
        for _ in range(2):
            await held.asked.acquire()
        third = asyncio.create_task(client.send("/push", {}, b"waits"))
        fourth = asyncio.create_task(client.send("/push", {}, b"goes"))
        await asyncio.sleep(0)
        third.cancel()
        first.cancel()
        held.sign.set()
        assert await second == ANSWER
        assert await fourth == ANSWER
        assert first.cancelled()
        assert third.cancelled()
        await client.close()
    assert b"waits" not in peer.bodies


async def test_what_is_under_way_at_the_end_is_broken_and_what_waits_was_never_sent():
    held = Held()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, most=1)
        sending = [asyncio.create_task(client.send("/push", {}, b"{}")) for _ in range(2)]
        await held.asked.acquire()
        await client.close()
        assert await asyncio.gather(*sending) == [BROKEN, Lost(Fate.UNCONNECTED)]
        assert await client.send("/push", {}, b"{}") == Lost(Fate.UNCONNECTED)
        assert client.connections == 0


async def test_an_answer_that_came_while_the_process_stood_still_is_read_before_it_is_late():
    held = Held()
    clock = Clock()

    def now():
        """Tell the time; once the process is awake, the answer is there to be read."""
        if clock.now_s > 1_000.0:
            held.sign.set()
        return clock.now_s

    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, total_s=1.0, now=now)
        sending = asyncio.create_task(client.send("/push", {}, b"{}"))
        await held.asked.acquire()
        clock.now_s += 1_000.0
        assert await sending == ANSWER
        await client.close()


async def test_who_waits_too_long_for_a_connection_was_never_sent():
    held = Held()
    clock = Clock()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, most=1, total_s=30.0, now=clock)
        first = asyncio.create_task(client.send("/push", {}, b"{}"))
        await held.asked.acquire()
        clock.now_s += 20.0
        second = asyncio.create_task(client.send("/push", {}, b"{}"))
        await asyncio.sleep(0)
        clock.now_s += 10.0
        assert await first == Lost(Fate.SILENT)
        held.sign.set()
        assert await second == ANSWER  # on the connection that came for the first one
        await client.close()

    held = Held()
    async with Peer(held.react).running() as peer:
        client = PLAIN.client(peer.url, None, most=1, total_s=30.0, first_byte_s=10.0, now=clock)
        first = asyncio.create_task(client.send("/push", {}, b"{}"))
        second = asyncio.create_task(client.send("/push", {}, b"{}"))
        await held.asked.acquire()
        clock.now_s += 10.0
        heard = await asyncio.gather(first, second)
        assert heard == [Lost(Fate.SILENT), Lost(Fate.UNCONNECTED, in_time=False)]
        await client.close()


@pytest.mark.parametrize(
    ("header", "kept_s"),
    [
        (b"", 4.0),
        (b"Keep-Alive: timeout=5, max=100\r\n", 4.0),
        (b"Keep-Alive: timeout=60\r\n", 4.0),
        (b"Keep-Alive: max=9, timeout=3\r\n", 2.0),
        (b"Keep-Alive: timeout=1\r\n", 0.0),
        (b"Keep-Alive: timeout=0\r\n", 0.0),
        (b"Keep-Alive: soon\r\n", 4.0),
    ],
)
async def test_an_idle_connection_is_left_before_its_server_leaves_it(header, kept_s):
    clock = Clock()
    answer = OK.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n")
    async with Peer(saying(answer)).running() as peer:
        client = PLAIN.client(peer.url, None, now=clock)
        assert (await client.send("/push", {}, b"{}")).status == 200
        if kept_s:
            clock.now_s += kept_s - 0.01
            assert (await posted(client)).status == 200
        clock.now_s += kept_s
        assert await posted(client) is None
        await client.close()
    assert peer.connections == 1


async def test_an_idle_connection_that_nobody_asks_for_is_closed():
    clock = Clock()
    gone = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(OK)
        assert await reader.read() == b""
        gone.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = PLAIN.client(f"http://127.0.0.1:{port}/", None, now=clock)
    await client.send("/push", {}, b"{}")
    clock.now_s += 4.0
    await gone.wait()
    assert client.connections == 0
    await client.close()
    server.close()


@pytest.mark.parametrize("closes_after_s", [2.0, 5.0])
async def test_a_server_that_closes_idle_connections_costs_no_push(closes_after_s):
    """It closes them in the moment when they were idle for so long; we look at ours then, too."""
    clock = Clock()
    writers = []

    async def react(writer):
        writers.append(writer)
        writer.write(OK)

    async with Peer(react).running() as peer:
        client = PLAIN.client(peer.url, None, now=clock)
        for _ in range(50):
            assert await client.send("/push", {}, b"{}") == ANSWER
            clock.now_s += closes_after_s
            writers[-1].close()
            await writers[-1].wait_closed()
            while client.connections and closes_after_s < 4.0:
                await asyncio.sleep(0)  # the loop hears of it; after 4 s that makes no difference
            assert await posted(client) in (None, ANSWER)
        await client.close()
    assert len(peer.bodies) == 50


async def test_a_byte_that_nobody_asked_for_closes_an_idle_connection():
    writers = []

    async def react(writer):
        writers.append(writer)
        writer.write(OK)

    async with Peer(react).running() as peer:
        client = PLAIN.client(peer.url, None)
        await client.send("/push", {}, b"{}")
        writers[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        while client.connections:
            await asyncio.sleep(0)
        assert await posted(client) is None
        await client.close()


def test_an_answer_before_all_is_written_counts(way, certificates):
    """As a server does with what is too large: it reads the head alone."""
    large = b"x" * 30_000_000

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.Event().wait()

    async def run():
        context = certificates.good if way.is_tls else None
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        url = f"{'https' if context else 'http'}://127.0.0.1:{port}/"
        client = way.client(url, certificates)
        assert await client.send("/push", {}, large) == Answer(413, {"content-length": "0"})
        assert await posted(client) is None
        await client.close()
        server.close()

    way.run(within_deadline(run()))


def test_a_peer_that_never_reads_costs_one_request_and_its_time_out(way, certificates):
    async def serve(reader, writer):
        writer.transport.pause_reading()
        await asyncio.Event().wait()

    async def run():
        context = certificates.good if way.is_tls else None
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        url = f"{'https' if context else 'http'}://127.0.0.1:{port}/"
        client = way.client(url, certificates, most=1, total_s=0.5)
        assert await client.send("/push", {}, b"x" * 30_000_000) == Lost(Fate.SILENT)
        await client.close()
        server.close()

    way.run(within_deadline(run()))


async def test_an_answer_may_post_the_next_request():
    async with Peer(saying(OK)).running() as peer:
        client = PLAIN.client(peer.url, None, most=1)
        await client.send("/push", {}, b"{}")
        ended = asyncio.Event()
        left = [b"3", b"2", b"1"]

        def answered(token, heard):
            assert heard == ANSWER
            if left:
                assert client.post("/push", {}, left.pop(), answered, None)
            else:
                ended.set()

        assert client.post("/push", {}, b"0", answered, None)
        await ended.wait()
        await client.close()
    assert peer.bodies == [b"{}", b"0", b"1", b"2", b"3"]
    assert peer.connections == 1


async def test_a_request_that_cannot_be_sent_costs_no_connection():
    async with Peer(saying(OK)).running() as peer:
        client = PLAIN.client(peer.url, None)
        await client.send("/push", {}, b"{}")
        with pytest.raises(BadInput, match="the header X-Trace-Id cannot be sent"):
            client.post("/push", {"X-Trace-Id": "a\r\nb"}, b"{}", print, None)
        with pytest.raises(BadInput, match="a path cannot be sent"):
            await client.send("/pu sh", {}, b"{}")
        assert await posted(client) == ANSWER
        await client.close()
    assert peer.connections == 1


async def test_a_guarded_connection_is_used_while_its_address_is_among_those_checked():
    allowed = ["127.0.0.1"]
    async with Peer(saying(OK)).running() as peer:
        url = f"http://hooks.example.com:{peer.port}/push"
        client = PLAIN.client(url, None, addresses=lambda: allowed)
        assert await client.send("/push", {}, b"{}") == ANSWER
        assert await posted(client) == ANSWER
        allowed[:] = ["127.0.0.2"]
        assert await posted(client) is None
        heard = await client.send("/push", {}, b"{}")
        assert heard == Lost(Fate.UNCONNECTED, "nothing listens there")
        await client.close()
    assert peer.connections == 1
    assert f"\r\nHost: hooks.example.com:{peer.port}\r\n" in peer.heads[0]


async def test_nothing_listens_there():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        client = PLAIN.client(f"http://127.0.0.1:{bound.getsockname()[1]}/", None, most=2)
        heard = await asyncio.gather(*(client.send("/", {}, b"") for _ in range(10)))
        await client.close()
    assert heard == [Lost(Fate.UNCONNECTED, "nothing listens there")] * 10


async def test_a_checked_address_may_be_written_in_any_way():
    async with Peer(saying(OK)).running() as peer:
        url = f"http://hooks.example.com:{peer.port}/push"
        client = PLAIN.client(url, None, addresses=lambda: ("::ffff:7f00:1",))
        heard = await client.send("/push", {}, b"{}")
        assert heard in (ANSWER, Lost(Fate.UNCONNECTED))  # the latter without IPv6
        await client.close()
