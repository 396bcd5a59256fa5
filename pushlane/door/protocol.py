"""A connection of the server: uvicorn's protocol, with bounds for who is not known yet.

Before a request is whole nobody has shown a token. So its head has a longest length and a longest
time, a connection that asks nothing ends, and so does one whose other end reads nothing of its last
answer. What two servers could understand in two ways is refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pushlane.door.events import ABORT

MOST_HEAD = 64 * 1024
"""The longest head of a request, in bytes."""

HEAD_S = 10.0
"""The longest time from one request on a connection to the whole head of the next, in seconds."""

UNREAD_S = 60.0
"""A connection that is closed waits no longer for its other end to read."""

_MOST_WAITING = 16
_FROM_HEAD = 4  # of the bytes of a header: those around its name and its value


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._cycles: list[RequestResponseCycle] = []
        self._is_in_head = self._is_all_head = True
        self._head = self._unparsed = 0
        self._refusal = ""
        self._quiet: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell each request that nobody reads its answer: uvicorn tells the newest alone."""
        for timer in (self._quiet, self._unread):
            if timer is not None:
                timer.cancel()
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._is_all_head = self._is_in_head
        super().data_received(data)
        if self.transport.is_closing():
            self._end_unread()
            return
        if self._is_all_head:
            self._unparsed += len(data)
            if self._unparsed > MOST_HEAD:  # of one header, which is not told in parts
                self._refusal = _too_long()
                self.send_400_response("")
                self._end_unread()
                return
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self.scope["extensions"] = {ABORT: {"abort": self.transport.abort}}

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _FROM_HEAD)
        if name.lower() == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self._refuse("Transfer-Encoding has to be chunked, or not there.")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = self._is_all_head = False
        self._unparsed = 0
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        names = {name for name, _ in self.headers}
        if b"transfer-encoding" in names and self.parser.get_http_version() != "1.1":
            self._refuse("HTTP/1.0 has no Transfer-Encoding.")
        self._cycles = [one for one in self._cycles if not one.response_complete]
        if len(self._cycles) > _MOST_WAITING:
            self._refuse("Too many requests wait on this connection.")
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._cycles.append(self.cycle)

    def on_message_complete(self) -> None:
        self._is_in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_unread()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(self._refusal or msg)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            self._refuse(_too_long())

    def _refuse(self, why: str) -> None:
        """Have the parser give up, and the answer say why."""
        self._refusal = why
        raise ValueError(why)

    def _await_head(self) -> None:
        if self._quiet is None:
            self._quiet = self.loop.call_later(HEAD_S, self._end_quiet)

    def _end_quiet(self) -> None:
        self._quiet = None
        if not self.transport.is_closing():
            self.transport.close()
        self._end_unread()

    def _end_unread(self) -> None:
        """End a connection that is closed, in a while, whether all that was sent is read or not."""
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)


def _too_long() -> str:
    return f"The head of a request may have {MOST_HEAD:,} bytes."
