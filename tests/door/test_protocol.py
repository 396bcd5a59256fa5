"""Connections by their bytes: bounds for who has shown no token, one meaning of each request."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from pushlane import Settings
from pushlane.backends.ports import listed
from pushlane.core.task import Level, Task
from pushlane.door import events, protocol, single, watching
from pushlane.door.protocol import MOST_HEAD, BoundedProtocol
from pushlane.door.server import Listening, Place, listening
from pushlane.model import task_changes
from tests.core.support import DEADLINE_S
from tests.door.asking import Asking, asking

BODY = b'{"weights":"7:2:1"}'
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
_SOCKET_BYTES = 16 * 1024


@dataclass
class Connection:
    """One connection to a server, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def until(self, end: bytes) -> bytes:
        return await self.reader.readuntil(end)

    async def see(self, text: bytes) -> None:
        """Read until this has come, and keep nothing of what came before."""
        tail = b""
        while text not in tail:
            part = await self.reader.read(_SOCKET_BYTES)
            assert part, "it is closed"
            tail = tail[-len(text) :] + part

    async def rest(self) -> bytes:
        """All that comes until the other end closes it."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def statuses(self) -> list[int]:
        """The statuses of all answers until it is closed."""
        return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d+) ", await self.rest())]


@dataclass
class Served:
    """An application that listens, and a token of an admin."""

    ask: Asking
    listening: Listening

    @property
    def token(self) -> bytes:
        return b"authorization: Bearer %b\r\n" % self.ask.token.encode()

    def head(self, start: str, *headers: str) -> bytes:
        lines = [f"{start} HTTP/1.1", "host: x", f"authorization: Bearer {self.ask.token}"]
        return "\r\n".join([*lines, *headers, "", ""]).encode()

    @property
    def connections(self) -> set[BoundedProtocol]:
        """Those that the server has."""
        found: set[Any] = self.listening.server.server_state.connections
        return found

    @asynccontextmanager
    async def connected(self, *, buffers: int = 0) -> AsyncIterator[Connection]:
        """A connection, whose end here takes no more than so many bytes unread."""
        end = socket.socket()
        if buffers:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
        end.setblocking(False)
        await asyncio.get_running_loop().sock_connect(end, self.listening.at.getsockname())
        given = {"limit": buffers} if buffers else {}
        reader, writer = await asyncio.open_connection(sock=end, **given)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Served]:
    async with asyncio.timeout(DEADLINE_S), asking(settings) as ask:
        there = listening(ask.app, Place("127.0.0.1", 0))
        there.at.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        running = asyncio.ensure_future(there.run())
        try:
            yield Served(ask, there)
        finally:
            ask.door.stopping.set()
            there.stop()
            await running


FRAMED = {
    "both": "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "both, the other way round": "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "another coding": "Transfer-Encoding: xchunked",
    "two codings": "Transfer-Encoding: gzip, chunked",
    "another coding at last": "Transfer-Encoding: chunked, identity",
    "two headers": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "a space before the colon": "Transfer-Encoding : chunked",
    "a control character": "Transfer-Encoding:\x0bchunked",
    "a folded line": "Transfer-Encoding:\r\n chunked",
    "a line that ends with LF": "X: y\nTransfer-Encoding: chunked",
    "two lengths": "Content-Length: 19\r\nContent-Length: 5",
    "a list of lengths": "Content-Length: 19, 19",
    "a signed length": "Content-Length: +19",
    "a length that overflows": f"Content-Length: {'9' * 30}",
    "a NUL": "X: a\x00b\r\nContent-Length: 19",
    "a CR": "X: a\rb\r\nContent-Length: 19",
}


@pytest.mark.parametrize("headers", FRAMED.values(), ids=FRAMED)
async def test_a_body_that_has_two_ends_is_refused_with_its_connection(
    settings: Settings, headers: str
) -> None:
    async with serving(settings) as at, at.connected() as connection:
        hidden = at.head("GET /v1/levels")
        await connection.send(at.head("PUT /v1/levels", "if-match: *", headers), CHUNKS, hidden)

        assert await connection.statuses() == [400]
        assert (await at.ask("GET", "/v1/levels")).json["high"]["weight"] == 6


@pytest.mark.parametrize(
    "chunks",
    [b"-13\r\n", b"0x13\r\n", b"13\n", b"15\r\n", b"13;\n"],
    ids=["negative", "hex", "LF", "too long", "extension"],
)
async def test_a_chunk_that_is_none_ends_the_connection(settings: Settings, chunks: bytes) -> None:
    async with serving(settings) as at, at.connected() as connection:
        head = at.head("PUT /v1/levels", "if-match: *", "transfer-encoding: chunked")
        await connection.send(head, chunks, BODY, b"\r\n0\r\n\r\n", at.head("GET /v1/levels"))

        assert await connection.statuses() == [400]
        assert (await at.ask("GET", "/v1/levels")).json["high"]["weight"] == 6


async def test_http_of_before_has_no_chunks(settings: Settings) -> None:
    async with serving(settings) as at, at.connected() as connection:
        head = at.head("PUT /v1/levels", "if-match: *", "transfer-encoding: chunked")
        await connection.send(head.replace(b"HTTP/1.1", b"HTTP/1.0"), CHUNKS)

        assert await connection.statuses() == [400]


async def test_chunks_of_now_are_taken(settings: Settings) -> None:
    async with serving(settings) as at, at.connected() as connection:
        headers = ("if-match: *", "transfer-encoding: Chunked", "connection: close")
        await connection.send(at.head("PUT /v1/levels", *headers), CHUNKS)

        assert await connection.statuses() == [200]


LONG: dict[str, Callable[[bytes], bytes]] = {
    "one header": lambda token: b"GET /v1/levels HTTP/1.1\r\nx: " + b"a" * 4_000_000,
    "many headers": lambda token: b"GET /v1/levels HTTP/1.1\r\n" + b"x: y\r\n" * 400_000,
    "a path": lambda token: b"GET /v1/" + b"a" * 4_000_000,
    "a whole head": lambda token: (
        b"GET /v1/levels HTTP/1.1\r\n" + token + b"x: " + b"a" * MOST_HEAD + b"\r\n\r\n"
    ),
}


@pytest.mark.parametrize("made", LONG.values(), ids=LONG)
async def test_a_head_has_a_longest_length(
    settings: Settings, made: Callable[[bytes], bytes]
) -> None:
    async with serving(settings) as at, at.connected() as connection:
        try:
            await connection.send(made(at.token))
        except ConnectionError:
            return  # which is closed before all of it is taken
        told = await connection.rest()

        assert not told or b"The head of a request may have 65,536 bytes." in told


async def test_a_long_body_in_one_piece_with_its_head_is_no_head(settings: Settings) -> None:
    async with serving(settings) as at, at.connected() as connection:
        body = b" " * 200_000 + BODY
        head = at.head("PUT /v1/levels", "if-match: *", f"content-length: {len(body)}")
        last = at.head("GET /v1/levels", "connection: close")
        await connection.send(head, body, last)

        assert await connection.statuses() == [200, 200]


@pytest.mark.parametrize("sent", [b"", b"GET /v1/levels HTTP/1.1\r\nhost:"], ids=["none", "part"])
async def test_a_connection_that_asks_nothing_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.01)
    async with serving(settings) as at, at.connected() as connection:
        await connection.send(sent)

        assert await connection.rest() == b""


async def test_what_comes_of_a_refused_body_keeps_no_connection(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(settings) as at, at.connected() as connection:
        await connection.send(
            b"PUT /v1/levels HTTP/1.1\r\nhost: x\r\ncontent-length: 999999\r\n\r\n"
        )
        assert b" 401 " in await connection.until(b"\r\n")
        monkeypatch.setattr(protocol, "HEAD_S", 0.01)
        await connection.send(b"a")

        assert await connection.rest()


async def test_a_body_that_does_not_come_is_not_waited_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single, "BODY_S", 0.01)
    async with serving(settings) as at, at.connected() as connection:
        await connection.send(at.head("PUT /v1/levels", "if-match: *", "content-length: 19"), b"{")

        assert b" 408 " in await connection.until(b"\r\n")


async def test_json_that_is_nested_without_end_is_refused(settings: Settings) -> None:
    deep = b'{"weights":' + b"[" * 100_000
    line = b'{"recipient":"a","data":{"a":' + b"[" * 100_000
    async with asking(settings) as ask:
        whatever = {"if-match": "*"}
        body = await ask("PUT", "/v1/levels", parts=[deep], headers=whatever)
        task = (await ask("POST", "/v1/tasks", {"level": "high"})).json["id"]
        of_task = await ask("POST", f"/v1/tasks/{task}/pushes", parts=[line])
        await ask("PUT", "/v1/streams/orders", {"level": "high"})
        alone = await ask("PUT", "/v1/streams/orders/pushes/k", parts=[line])

    assert [one.status for one in (body, of_task, alone)] == [400, 400, 400]


async def test_requests_that_wait_behind_another_have_a_bound(settings: Settings) -> None:
    async with serving(settings) as at, at.connected() as connection:
        await connection.send(at.head("GET /v1/watch/tasks"))
        await connection.until(b"snapshot")
        await connection.send(at.head("GET /v1/levels") * 100)
        await connection.rest()

        await nobody_watches(at)


async def test_a_stream_with_a_request_behind_it_ends_with_its_connection(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "HEARTBEAT_S", 0.01)
    async with serving(settings) as at:
        async with at.connected() as connection:
            await connection.send(at.head("GET /v1/watch/tasks"))
            await connection.until(b"snapshot")
            await connection.send(at.head("GET /v1/levels"))

        await nobody_watches(at)


async def nobody_watches(at: Served) -> None:
    """Wait until the last look is over, which is once the last watcher has gone."""
    looking = at.ask.door.watching._looking
    assert looking is not None
    await looking
    assert len(at.ask.door.watching) == 0


async def add_tasks(at: Served, count: int) -> None:
    """Add tasks whose views are long."""
    for number in range(count):
        name = f"{number}-{'x' * 8_000}"
        task = Task(id=f"t{number}", level=Level.HIGH, lane=f"task-t{number}", name=name, total=3)
        await at.ask.backend.registry.add(task)


async def tell_news(at: Served, number: int, reading: Connection) -> None:
    """Change all tasks, and return when the one who reads has been told of all of it."""
    registry = at.ask.backend.registry
    for task in await listed(registry):
        await registry.change(task.id, task_changes.set_quota(number + 2))
    last = Task(id=f"last{number}", level=Level.HIGH, lane=f"task-last{number}", total=3)
    await registry.add(last)
    await reading.see(f'"last{number}"'.encode())


async def test_who_does_not_read_holds_nobody_up_and_little_memory(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "EVERY_S", 0.005)
    async with serving(settings) as at, at.connected() as reading:
        await add_tasks(at, 40)
        await reading.send(at.head("GET /v1/watch/tasks"))
        await reading.see(b"snapshot")
        async with at.connected(buffers=_SOCKET_BYTES) as silent:
            await silent.send(at.head("GET /v1/watch/tasks"))
            await silent.see(b"snapshot")
            unread = 0
            for number in range(6):
                await tell_news(at, number, reading)
                unread = max(
                    unread, *(one.transport.get_write_buffer_size() for one in at.connections)
                )

            assert len(at.ask.door.watching) == 2

    assert 0 < unread < 4 * 64 * 1024  # of two megabytes that it was sent


async def test_who_does_not_read_is_cut_off_with_what_is_unread(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SLOW_S", 0.02)
    async with serving(settings) as at:
        await add_tasks(at, 100)
        async with at.connected(buffers=_SOCKET_BYTES) as silent:
            await silent.send(at.head("GET /v1/watch/tasks"))
            await silent.see(b"snapshot")

            await nobody_watches(at)
            while at.connections:
                await asyncio.sleep(0)


async def test_a_closed_connection_does_not_wait_for_who_does_not_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "UNREAD_S", 0.01)
    async with serving(settings) as at:
        await add_tasks(at, 100)
        async with at.connected(buffers=_SOCKET_BYTES) as silent:
            await silent.send(at.head("GET /v1/tasks", "connection: close"))
            await silent.see(b" 200 ")

            while at.connections:
                await asyncio.sleep(0)
