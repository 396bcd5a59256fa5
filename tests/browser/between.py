"""A proxy between a browser and servers: it balances, holds streams back, stalls and breaks.

Each request is a connection of its own, and goes to the next server that takes it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_READ_AT_ONCE = 64 * 1024
_ENDS_HEAD = b"\r\n\r\n"
_IS_STREAM = re.compile(rb"^content-type: text/event-stream", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_CONNECTION = re.compile(rb"^connection:.*\r\n", re.IGNORECASE | re.MULTILINE)


class Between:
    """The proxy, on a thread of its own. Its methods are for any thread, and hold at once."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = [*urls]
        self._asked = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._holds = ""
        self._under_way: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop
        self._port = 0

    @property
    def url(self) -> str:
        there = urlsplit(self.urls[0])
        return f"http://127.0.0.1:{self._port}{there.path}"

    def hold(self, what: str) -> None:
        """Hold back of a stream its `body`, or `all` of it with its head; "" for nothing."""
        self._do(lambda: setattr(self, "_holds", what))

    def cut(self) -> None:
        """Break each connection; new ones break at once."""
        self._do(self._cut)

    def stall(self) -> None:
        """Connections stay, and nothing gets through."""
        self._do(self._flows.clear)

    def flow(self) -> None:
        """Let everything through again."""
        self._do(self._flow)

    def end(self, stopping: asyncio.Event) -> None:
        self._do(stopping.set)

    def _do(self, change: Callable[[], object]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            change()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(30)

    def _cut(self) -> None:
        self._is_cut = True
        for one in self._under_way:
            one.cancel()

    def _flow(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def serve(self, is_ready: Future[asyncio.Event]) -> None:
        self._loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        is_ready.set_result(stopping)
        await stopping.wait()
        server.close()
        self._cut()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        one = asyncio.create_task(self._pass_on(reader, writer))
        self._under_way.add(one)
        one.add_done_callback(self._under_way.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one request on, and its answer back; a connection that breaks breaks the other."""
        server: asyncio.StreamWriter | None = None
        try:
            head = await reader.readuntil(_ENDS_HEAD)
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            answers, server = await self._next()
            alone = _CONNECTION.sub(b"", head).replace(_ENDS_HEAD, b"\r\nConnection: close\r\n\r\n")
            server.write(alone + body)
            gone = asyncio.ensure_future(reader.read())
            back = asyncio.ensure_future(self._answer(answers, writer))
            try:
                await asyncio.wait([gone, back], return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                back.cancel()
        except (OSError, asyncio.IncompleteReadError):
            pass  # a broken connection is what this is for; both ends are closed below
        finally:
            if server is not None:
                server.transport.abort()
            if self._is_cut:
                writer.transport.abort()
            writer.close()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the next server. Raises OSError when none takes it."""
        for _ in self.urls:
            self._asked += 1
            port = urlsplit(self.urls[self._asked % len(self.urls)]).port
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        raise OSError("no server is there")

    async def _answer(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await answers.readuntil(_ENDS_HEAD)
        holds = self._holds if _IS_STREAM.search(head) else ""
        if holds != "all":
            await self._send(writer, head)
        held = head if holds == "all" else b""
        while some := await answers.read(_READ_AT_ONCE):
            held += some
            if not holds:
                await self._send(writer, held)
                held = b""
        await self._send(writer, held)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await self._flows.wait()
        writer.write(data)
        await writer.drain()


@contextmanager
def between(urls: Sequence[str]) -> Iterator[Between]:
    """A proxy before the servers at these URLs, which its `urls` may make others later."""
    proxy, is_ready = Between(urls), Future[asyncio.Event]()
    thread = threading.Thread(target=asyncio.run, args=(proxy.serve(is_ready),))
    thread.start()
    stopping = is_ready.result(30)
    try:
        yield proxy
    finally:
        proxy.end(stopping)
        thread.join()
