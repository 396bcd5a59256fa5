"""An HTTP/2 server that answers as it is told: late, not at all, or by ending stream or connection.

Without TLS, for clients that know that it speaks HTTP/2. As a process it goes away at SIGUSR1, as
in an outage, and is back at SIGUSR2.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Answer:
    """An answer, sent `after_s` from when the request was there.

    With `most_streams` its connection may have so many open from then on.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    most_streams: int = 0


@dataclass
class Reset:
    """The stream is ended with this error instead of an answer."""

    code: ErrorCodes
    after_s: float = 0.0


@dataclass
class GoAway:
    """The whole connection is ended: streams up to this one were looked at, by default all."""

    code: ErrorCodes = ErrorCodes.NO_ERROR
    looked_at: bool = True
    after_s: float = 0.0


@dataclass
class Silence:
    """No answer ever."""

    after_s: float = 0.0


Reaction = Answer | Reset | GoAway | Silence


class Http2Server:
    """Asks `react` what becomes of each request.

    `most_streams` is what a connection may have open at first; `peak_streams` the most that one
    had, and `peak_early` the most that one had before the client can have known the server's
    settings.
    """

    def __init__(self, react: Callable[[Request], Reaction], most_streams: int = 100) -> None:
        self.react = react
        self.most_streams = most_streams
        self.requests: list[Request] = []
        self.peak_streams = self.peak_early = self.refused = 0
        self.connections: list[_Connection] = []

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[Http2Server]:
        self._listener = await self._listen(port)
        self._port = self._listener.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        try:
            yield self
        finally:
            self.away()

    def away(self) -> None:
        """Break all connections, and take no more."""
        self._listener.close()
        for connection in self.connections:
            connection.abort()

    async def back(self) -> None:
        """Take connections again, at the same port."""
        self._listener = await self._listen(self._port)

    async def serve(self) -> None:
        """Serve until the process ends, which is told of outages by signals."""
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, self.away)
        loop.add_signal_handler(signal.SIGUSR2, ends.set)
        while await ends.wait():
            ends.clear()
            await self.back()

    async def _listen(self, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Connection(self), "127.0.0.1", port)


class _Connection(asyncio.Protocol):
    def __init__(self, server: Http2Server) -> None:
        self.server = server
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        # h2 itself would end the connection over one stream too many; servers refuse the stream.
        limit = {SettingCodes.MAX_CONCURRENT_STREAMS: 2**31 - 1}
        self.h2.local_settings = Settings(client=False, initial_values=limit)
        self.open: dict[int, Request] = {}
        self.answered = 0
        self.most_streams = server.most_streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.append(self)
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self.most_streams})
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.clear()

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            self._flush()
            self.abort()
            return
        for event in events:
            if isinstance(event, RequestReceived):
                self._begin(event)
            elif isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if request := self.open.get(event.stream_id):
                    request.body += event.data
            elif isinstance(event, StreamEnded):
                self._end(event.stream_id)
            elif isinstance(event, StreamReset):
                self.open.pop(event.stream_id, None)
            elif isinstance(event, ConnectionTerminated):
                self.transport.close()
        self._flush()

    def _begin(self, event: RequestReceived) -> None:
        headers = {str(name): str(value) for name, value in event.headers}
        if len(self.open) >= self.most_streams:
            self.server.refused += 1
            self.h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        method, path = headers.pop(":method"), headers.pop(":path")
        self.open[event.stream_id] = Request(method, path, headers)
        server = self.server
        server.peak_streams = max(server.peak_streams, len(self.open))
        if not self.answered:
            server.peak_early = max(server.peak_early, len(self.open))

    def _end(self, stream: int) -> None:
        request = self.open.get(stream)
        if request is None:
            return
        self.server.requests.append(request)
        reaction = self.server.react(request)
        if isinstance(reaction, Silence):
            return
        if reaction.after_s:
            asyncio.get_running_loop().call_later(reaction.after_s, self._send, stream, reaction)
        else:
            self._send(stream, reaction)

    def _send(self, stream: int, reaction: Reaction) -> None:
        if self.transport.is_closing() or stream not in self.open:
            return
        del self.open[stream]
        self.answered += 1
        if isinstance(reaction, Answer):
            self._allow(reaction.most_streams)
            headers = [(":status", str(reaction.status)), *reaction.headers.items()]
            self.h2.send_headers(stream, headers, end_stream=not reaction.body)
            if reaction.body:
                self.h2.send_data(stream, reaction.body, end_stream=True)
        elif isinstance(reaction, Reset):
            self.h2.reset_stream(stream, reaction.code)
        elif isinstance(reaction, GoAway):
            last = stream if reaction.looked_at else max(0, stream - 2)
            self.h2.close_connection(reaction.code, last_stream_id=last)
            self._flush()
            self.transport.close()
        self._flush()

    def _allow(self, most_streams: int) -> None:
        if most_streams and most_streams != self.most_streams:
            self.most_streams = most_streams
            self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: most_streams})

    def _flush(self) -> None:
        if data := self.h2.data_to_send():
            self.transport.write(data)
