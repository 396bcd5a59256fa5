"""Connections of HTTP/2 to one origin, in the loop's thread, each with many requests at a time.

Frames, windows, compression and what breaks the protocol are ngh2's (nghttp2), which reads and
writes nothing by itself. All that a turn of the loop asks for goes out in one write. A connection
takes one request until the peer's settings came, and none while a ping is unanswered: it is sent
when all was quiet for long, or nothing came in the time that a request had.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from ngh2 import (
    Configuration,
    Connection,
    DataReceived,
    ErrorCode,
    GoAwayReceived,
    Header,
    NeverIndexedHeader,
    NGH2Error,
    PingAcknowledged,
    ResponseReceived,
    Role,
    Setting,
    SettingsReceived,
    StreamClosed,
    TrailersReceived,
)

from pushlane.dispatcher.transport.answer import MOST_BODY, Answer, Answered, Fate, Heard, Lost
from pushlane.dispatcher.transport.dial import Dialed
from pushlane.dispatcher.transport.http1 import MOST_HEAD, MOST_HEADERS
from pushlane.dispatcher.transport.loop_client import Connections, Seconds, hear
from pushlane.dispatcher.transport.request import MOST_FORMS, Origin, RequestWriter

_PING_AFTER_S = 30.0
_PING_S = 10.0
_LAST_STREAM = 2**31 - 1
_ANY = 2**31
_MOST_NOISE = 1_000  # frames between two looks that carry no part of an answer
_NOISE_OF_ONE = 10  # more of these for each request: windows are opened in small steps
_ALPN = "h2"
_PING = b"pushlane"
_COLON = ord(":")
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})

_CONFIGURATION = Configuration(
    peer_max_concurrent_streams=1,
    max_inbound_header_list_size=MOST_HEAD,
    max_inbound_header_count=MOST_HEADERS + 1,  # with the status
)
_SETTINGS = {Setting.ENABLE_PUSH: 0, Setting.MAX_HEADER_LIST_SIZE: MOST_HEAD}

Request2: TypeAlias = tuple[Sequence[Header], bytes]
"""The fields of a request, and its body."""


class _Owner(Protocol):
    most_body: int

    def now(self) -> float: ...

    def freed(self, connection: Http2) -> None: ...

    def ended(self, connection: Http2) -> None: ...


class _Stream(msgspec.Struct, eq=False, gc=False):
    """A request under way, and what came of its answer."""

    answered: Answered
    token: Any
    began_s: float
    heard_s: float
    status: int = 0
    fields: tuple[Header, ...] = ()
    body: bytes = b""

    def tell(self, heard: Heard) -> None:
        self.answered(self.token, heard)

    def tell_cut(self, fate: Fate) -> None:
        """Tell what came, and what became of the rest."""
        self.tell(self.answer(b"", fate) if self.status else Lost(fate))

    def answer(self, body: bytes, cut: Fate | None = None) -> Answer:
        headers: dict[str, str] = {}
        for name, value in self.fields:
            if value.isascii() and name[0] != _COLON:
                headers.setdefault(name.decode("ascii"), value.decode("ascii"))
        return Answer(self.status, headers, body, cut)


class Http2(Dialed):
    """A connection with at most `streams` requests at a time, fewer where the peer says so."""

    __slots__ = (
        "_below", "_ended", "_h2", "_heard_s", "_is_flushing", "_is_last", "_is_paused",
        "_is_settled", "_is_up", "_limit", "_most", "_noise_left", "_owner", "_peer_allows",
        "_pinged_s", "_streams", "_transport", "ip",
    )  # fmt: skip

    def __init__(self, owner: _Owner, ip: str, streams: int) -> None:
        self.ip = ip
        self._owner = owner
        self._most = streams
        self._peer_allows = 1
        self._limit = 0
        self._streams: dict[int, _Stream] = {}
        self._ended: set[int] = set()
        self._noise_left = _MOST_NOISE
        self._pinged_s = 0.0
        self._is_up = self._is_settled = self._is_last = False
        self._is_paused = self._is_flushing = False
        self._h2 = Connection(Role.CLIENT, _CONFIGURATION)
        self._h2.initiate_connection(_SETTINGS)

    @property
    def is_open(self) -> bool:
        return not (self._transport.is_closing() or self._below.is_closing())

    @property
    def has_room(self) -> bool:
        return len(self._streams) < self._limit

    @property
    def is_new(self) -> bool:
        """Tell whether it may yet take more, once the peer's settings came."""
        return not self._is_settled and self.is_usable

    @property
    def speaks_http2(self) -> bool:
        """Tell whether the peer said so, where it was asked over TLS."""
        over_tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return over_tls is None or over_tls.selected_alpn_protocol() == _ALPN

    @property
    def is_usable(self) -> bool:
        """Tell whether it is to take more: it may be full, or the peer may allow none now."""
        return not self._is_last and not self._pinged_s

    @property
    def is_idle(self) -> bool:
        return not self._streams

    def begin(self) -> None:
        """Take requests, now that the connection stands."""
        self._is_up = True
        self._heard_s = self._owner.now()
        self._set_limit()
        self._flush_later()

    def start(self, request: Request2, answered: Answered, token: Any, began_s: float) -> None:
        fields, body = request
        stream = self._h2.send_request(fields, end_stream=not body)
        if body:
            self._h2.send_data(stream, body, end_stream=True)
        self._streams[stream] = _Stream(answered, token, began_s, began_s)
        self._noise_left += _NOISE_OF_ONE
        if stream >= _LAST_STREAM:
            self._leave()
        self._flush_later()

    def drop(self, token: Any) -> bool:
        """Reset the stream of a request that nobody waits for; tell whether it was here."""
        for stream, one in self._streams.items():
            if one.token is token:
                del self._streams[stream]
                self._reset(stream)
                return True
        return False

    def end(self) -> None:
        self._limit = 0
        self._is_last = True
        self._transport.abort()

    def look(self, now_s: float, seconds: Seconds) -> None:
        """Reset the streams that are over their time, and ask whether anybody is there."""
        if self._transport.is_closing():
            return
        late = [
            stream
            for stream, one in self._streams.items()
            if now_s - one.began_s >= seconds.total_s or now_s - one.heard_s >= seconds.part_s
        ]
        quiet_s = now_s - self._heard_s
        self._noise_left = _MOST_NOISE + _NOISE_OF_ONE * len(self._streams)
        if self._pinged_s:
            if now_s - self._pinged_s >= _PING_S:
                self.end()
        elif quiet_s >= _PING_AFTER_S or (late and quiet_s >= seconds.part_s):
            self._ping(now_s)
        for stream in late:
            one = self._streams.pop(stream, None)
            if one is not None:
                self._reset(stream)
                one.tell_cut(Fate.STALLED if one.status else Fate.SILENT)

    def _ping(self, now_s: float) -> None:
        try:
            self._h2.ping(_PING)
        except NGH2Error:
            self.end()
            return
        self._pinged_s = now_s
        self._set_limit()
        self._flush_later()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._below: asyncio.WriteTransport = self._transport

    def is_over(self, below: asyncio.WriteTransport) -> None:
        self._below = below

    def pause_writing(self) -> None:
        self._is_paused = True
        self._set_limit()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._set_limit()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._owner.now()
        try:
            self._h2.receive_data(data)
        except NGH2Error:
            self._read()
            self.end()
            return
        self._read()
        self._flush_later()

    def connection_lost(self, error: Exception | None) -> None:
        self._limit = 0
        self._is_last = True
        self._owner.ended(self)
        streams, self._streams = self._streams, {}
        for one in streams.values():
            one.tell_cut(Fate.BROKEN)

    def _flush_later(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write what there is to write, and end where no more is to come."""
        self._is_flushing = False
        if not self._is_up or self._transport.is_closing():
            return
        try:
            if not self._is_paused and (data := self._h2.data_to_send()):
                self._transport.write(data)
            is_over = not (self._h2.want_read or self._h2.want_write)
        except NGH2Error:
            is_over = True
        self._read()
        if is_over or (self._is_last and not self._streams):
            self.end()

    def _read(self) -> None:
        """Do what the frames say that came, or that ngh2 made of what is wrong."""
        if not self._may_send():
            self._leave()
        streams = self._streams
        for event in self._h2.events():
            if isinstance(event, ResponseReceived):
                one = streams.get(event.stream_id)
                if one is not None:
                    one.status = int(event.headers[0][1])
                    one.fields = event.headers
                    one.heard_s = self._heard_s
                    if event.end_stream:
                        self._finish(event.stream_id)
            elif isinstance(event, DataReceived):
                self._on_data(event)
            elif isinstance(event, StreamClosed):
                self._ended.discard(event.stream_id)
                one = streams.pop(event.stream_id, None)
                if one is not None:
                    is_refused = event.error_code == ErrorCode.REFUSED_STREAM and not one.status
                    one.tell_cut(Fate.UNPROCESSED if is_refused else Fate.BROKEN)
            elif isinstance(event, TrailersReceived):
                self._finish(event.stream_id)
            else:
                self._on_others(event)
        for stream in self._ended:  # answered before its body was all sent
            self._reset(stream)
        self._ended.clear()
        if self._noise_left < 0:
            self.end()
        else:
            self._owner.freed(self)

    def _may_send(self) -> bool:
        """Tell whether ngh2 takes requests: not once it has found what breaks the protocol."""
        try:
            return self._h2.can_send_request
        except NGH2Error:
            return False

    def _on_data(self, event: DataReceived) -> None:
        one = self._streams.get(event.stream_id)
        if one is None:
            return
        one.heard_s = self._heard_s
        one.body = one.body + event.data if one.body else event.data
        self._noise_left -= 1
        if len(one.body) > self._owner.most_body:
            del self._streams[event.stream_id]
            self._reset(event.stream_id)
            one.tell(one.answer(b""))
        elif event.end_stream:
            self._finish(event.stream_id)

    def _finish(self, stream: int) -> None:
        one = self._streams.pop(stream, None)
        if one is not None:
            self._ended.add(stream)
            one.tell(one.answer(one.body))

    def _on_others(self, event: object) -> None:
        self._noise_left -= 1
        if isinstance(event, SettingsReceived):
            allowed = self._peer_allows if self._is_settled else _ANY
            self._peer_allows = event.settings.get(Setting.MAX_CONCURRENT_STREAMS, allowed)
            self._is_settled = True
            self._set_limit()
        elif isinstance(event, GoAwayReceived):
            self._leave()
        elif isinstance(event, PingAcknowledged):
            self._pinged_s = 0.0
            self._set_limit()

    def _leave(self) -> None:
        """Take no more requests; it ends with the last that is under way."""
        self._is_last = True
        self._set_limit()

    def _set_limit(self) -> None:
        is_free = self._is_up and not (self._is_last or self._is_paused or self._pinged_s)
        self._limit = min(self._most, self._peer_allows) if is_free else 0

    def _reset(self, stream: int) -> None:
        with suppress(NGH2Error):  # the connection is over
            self._h2.reset_stream(stream, ErrorCode.CANCEL)
        self._flush_later()


class Http2Writer(RequestWriter):
    """Writes the fields of requests. What one has of its own never is in a table of the peer's."""

    def __init__(self, origin: Origin, headers: Mapping[str, str]) -> None:
        super().__init__(origin, headers)
        self._scheme = origin.scheme.encode()
        self._fields: dict[tuple[str, ...], tuple[list[Header], list[Header], list[bytes]]] = {}

    def fields(self, path: str, headers: Mapping[str, str], body: bytes) -> Request2:
        """Return a request. Raises BadInput when it cannot be sent as it is."""
        names = tuple(headers)
        first, common, own = self._fields.get(names) or self._new_fields(names)
        self._check(path, headers)
        values = [value.strip().encode("ascii") for value in headers.values()]
        return [
            *first,
            (b":path", path.encode("ascii")),
            *common,
            (b"content-length", b"%d" % len(body)),
            *map(NeverIndexedHeader, own, values),
        ], body

    def _new_fields(self, names: tuple[str, ...]) -> tuple[list[Header], list[Header], list[bytes]]:
        common: list[Header] = []
        authority = b""
        for name, value in self._common(names):
            field = name.lower().encode("ascii"), value.strip().encode("ascii")
            if field[0] == b"host":
                authority = field[1]
            else:
                common.append(NeverIndexedHeader(*field) if name.lower() in _SECRET else field)
        first: list[Header] = [(b":method", b"POST"), (b":scheme", self._scheme)]
        first.append((b":authority", authority))
        found = first, common, [name.lower().encode("ascii") for name in names]
        if len(self._fields) >= MOST_FORMS:
            self._fields.clear()
        self._fields[names] = found
        return found


class Http2Client(Connections[Http2, Request2]):
    """Posts to one origin over connections of up to `streams` requests each: a `Transport`.

    There are as many as the requests in flight take, and at most as many as `requests` of them
    need; one that takes no more is not counted. `headers` go with each request. Raises BadInput
    when a header cannot be sent.
    """

    alpn = (_ALPN,)

    def __init__(
        self,
        origin: Origin,
        seconds: Seconds,
        requests: int,
        headers: Mapping[str, str],
        *,
        streams: int,
        context: ssl.SSLContext | None = None,
        most_body: int = MOST_BODY,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._written = Http2Writer(origin, headers).fields
        super().__init__(
            origin,
            seconds,
            -(-requests // streams),
            each=streams,
            context=context,
            most_body=most_body,
            now=now,
        )

    def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        answered: Answered,
        token: Any,
    ) -> bool:
        """Write a request if a connection has room, as `Transport.post` has it."""
        now_s = self.now()
        connection = self._take(now_s)
        if connection is None:
            return False
        connection.start(self._written(path, headers, body), answered, token, now_s)
        return True

    def freed(self, connection: Http2) -> None:
        if not self._waiting or self._is_closed:
            return
        self._fail_late(self.now())
        while (
            connection.has_room
            and connection.is_open
            and (waiting := self._next_waiting()) is not None
        ):
            connection.start(waiting.request, hear, waiting.heard, waiting.began_s)
        if self._waiting:
            self._open_more()

    def _write(self, path: str, headers: Mapping[str, str], body: bytes) -> Request2:
        return self._written(path, headers, body)

    def _make(self, ip: str) -> Http2:
        return Http2(self, ip, self._each)

    def _take(self, now_s: float) -> Http2 | None:
        for connection in self._open:
            if connection.has_room and connection.is_open:
                return connection
        return None

    def _more(self) -> int:
        missing = -(-len(self._waiting) // self._each) - sum(one.is_new for one in self._open)
        return min(missing, self._most - sum(one.is_usable for one in self._open))

    def _drop(self, heard: asyncio.Future[Heard]) -> None:
        any(connection.drop(heard) for connection in self._open)

    def _look_at(self, connection: Http2, now_s: float) -> None:
        connection.look(now_s, self._seconds)
        if connection.is_idle and sum(one.is_usable for one in self._open) > self._most:
            connection.end()  # one more was opened while a ping was under way
        self.freed(connection)

    async def _opened(self) -> Http2 | Lost:
        opened = await super()._opened()
        if isinstance(opened, Lost):
            return opened
        if not opened.speaks_http2:
            opened.end()
            return Lost(Fate.UNCONNECTED, "it speaks no HTTP/2 at that port")
        opened.begin()
        return opened
