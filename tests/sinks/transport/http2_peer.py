"""A server of HTTP/2 that misbehaves as it is told to, on h2 and on frames written by hand."""

import asyncio
import struct
from contextlib import asynccontextmanager

import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    PingAckReceived,
    PingReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes, Settings

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, END_HEADERS, ACK = 1, 4, 1
REFUSED, CANCEL, CALM = 7, 8, 11


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def fields(*pairs):
    """A block of fields that needs no table."""
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in pairs])


def head(stream, status=200, *pairs, ends=True):
    block = fields((":status", str(status)), *pairs)
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream, block)


def data(stream, body, *, ends=True):
    return frame(DATA, END_STREAM if ends else 0, stream, body)


def reset(stream, code):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last, code=0):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code))


def settings(**values):
    codes = {"streams": 3, "window": 4}
    return frame(
        SETTINGS, 0, 0, b"".join(struct.pack(">HI", codes[name], values[name]) for name in values)
    )


class Http2Peer:
    """Calls `react(connection, stream)` for each request that came whole.

    It says it allows `streams`, nothing of it for None, and no settings at all unless it `greets`.
    It opens windows of requests as it reads them while `reads`.
    """

    def __init__(self, react, *, streams=100, greets=True, reads=True):
        self.react = react
        self.streams = streams
        self.greets = greets
        self.reads = reads
        self.acks_pings = True
        self.connections = []
        self.requests = []
        self.resets = []
        self.news = asyncio.Condition()

    @asynccontextmanager
    async def running(self, context=None):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: PeerConnection(self), "127.0.0.1", 0, ssl=context)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/push"
        try:
            yield self
        finally:
            server.close()
            for connection in self.connections:
                connection.transport.abort()

    async def until(self, is_so):
        """Wait until this is so of what came."""
        async with self.news:
            await self.news.wait_for(is_so)


class PeerConnection(asyncio.Protocol):
    def __init__(self, peer):
        self.peer = peer
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        # What is refused is up to the test: h2 would end the connection.
        self.h2.local_settings = Settings(
            client=False, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: 2**31 - 1}
        )
        self.open = {}
        self.peak = 0
        self.pings = 0
        self.goaways = 0
        self.is_over = False

    def connection_made(self, transport):
        self.transport = transport
        self.peer.connections.append(self)
        self.h2.initiate_connection()
        self.h2.clear_outbound_data_buffer()
        if self.peer.greets:
            allows = {} if self.peer.streams is None else {"streams": self.peer.streams}
            transport.write(settings(**allows))

    def connection_lost(self, error):
        self.is_over = True
        self._tell()

    def write(self, *frames):
        self.transport.write(b"".join(frames))

    def data_received(self, given):
        for event in self.h2.receive_data(given):
            match event:
                case RequestReceived():
                    self.open[event.stream_id] = [dict(event.headers), b"", event.headers]
                    self.peak = max(self.peak, len(self.open))
                case DataReceived():
                    self.open[event.stream_id][1] += event.data
                    if self.peer.reads:
                        self.h2.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                case StreamEnded():
                    self.peer.requests.append(self.open[event.stream_id])
                    self.peer.react(self, event.stream_id)
                case StreamReset():
                    self.peer.resets.append((event.stream_id, int(event.error_code)))
                    self.open.pop(event.stream_id, None)
                case PingReceived():
                    self.pings += 1
                case PingAckReceived():
                    pass
                case ConnectionTerminated():
                    self.goaways += 1
        out = self.h2.data_to_send()
        if self.peer.acks_pings and self.peer.greets:
            self.transport.write(out)
        self._tell()

    def _tell(self):
        async def tell():
            async with self.peer.news:
                self.peer.news.notify_all()

        asyncio.get_running_loop().create_task(tell())

    def answer(self, stream, *frames):
        """Answer a stream, which is over then."""
        self.open.pop(stream, None)
        self.write(*frames)


def answering(*make):
    """Answer each request with these frames, made for its stream."""

    def react(connection, stream):
        connection.answer(stream, *(one(stream) for one in make))

    return react


def holding(connection, stream):
    """Answer nothing."""


def ok(stream):
    return head(stream, 200, ("content-length", "2"), ends=False) + data(stream, b"ok")
