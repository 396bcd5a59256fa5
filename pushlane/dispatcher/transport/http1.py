"""One connection that speaks HTTP/1.1: a request goes out in one write, and its answer is read.

The parser is httptools (llhttp). It knows no end of the connection, no limits, and calls an interim
answer a whole one: these three are here. A connection is free for another request only when all
that came is read and none of it is left over. What is wrong behind an answer's head costs the
connection and the body, what is wrong behind the answer the connection alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from pushlane.dispatcher.transport.answer import Answer, Answered, Fate, Heard, Lost
from pushlane.dispatcher.transport.dial import Dialed

MOST_HEAD = 64 * 1024
MOST_HEADERS = 100
MOST_INTERIM = 10
_MOST_READ = 8  # times what a body may have: a chunk may have more around it than in it
_IDLE_S = 4.0  # most servers keep an idle connection for 5 s or longer
_BEFORE_SERVER_S = 1.0
_SWITCHING = 101
_NO_BODY = frozenset({204, 304})
_KEPT_S = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


class Owner(Protocol):
    """Who opened a connection: hears when it is free, and when it is over."""

    most_body: int

    def now(self) -> float: ...

    def freed(self, connection: Http1) -> None: ...

    def ended(self, connection: Http1) -> None: ...


class _Excess(Exception):
    """The answer is larger than any that is read, or is none."""


class Http1(Dialed):
    """A connection to `ip`. It has one request at a time, of `token`, that began at `began_s`.

    `heard_s` is when the last part of the answer came; before there is one it is `began_s`. An
    idle connection may be used until `idle_until_s`.
    """

    __slots__ = (
        "_answered",
        "_below",
        "_body",
        "_feed",
        "_headers",
        "_headers_left",
        "_interim",
        "_is_complete",
        "_is_last",
        "_owner",
        "_parser",
        "_read",
        "_room",
        "_status",
        "_transport",
        "_until_end",
        "began_s",
        "heard_s",
        "idle_s",
        "idle_until_s",
        "ip",
        "token",
    )

    def __init__(self, owner: Owner, ip: str) -> None:
        self.ip = ip
        self._owner = owner
        self._parser = HttpResponseParser(self)
        # As other clients read them: both lengths (it is chunked then), and lines without a CR.
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True, lenient_optional_cr_before_lf=True
        )
        self._feed = self._parser.feed_data
        self._answered: Answered | None = None
        self.token: Any = None
        self._is_last = False
        self.idle_s = _IDLE_S
        self.idle_until_s = 0.0

    @property
    def is_busy(self) -> bool:
        return self._answered is not None

    @property
    def is_open(self) -> bool:
        return not (self._transport.is_closing() or self._below.is_closing())

    def start(self, request: bytes, answered: Answered, token: Any, began_s: float) -> None:
        self._answered = answered
        self.token = token
        self.began_s = self.heard_s = began_s
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._status = self._read = self._interim = 0
        self._room = MOST_HEAD
        self._headers_left = MOST_HEADERS
        self._is_complete = False
        self._transport.write(request)

    def time_out(self) -> None:
        """End it, as what it waits for did not come in time."""
        self._give_up(Fate.STALLED if self._status else Fate.SILENT)

    def end(self) -> None:
        self._give_up(Fate.BROKEN)

    def drop(self) -> None:
        """End it, and have nobody hear of its request."""
        self._answered = None
        self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._below: asyncio.WriteTransport = self._transport

    def is_over(self, below: asyncio.WriteTransport) -> None:
        self._below = below

    def data_received(self, data: bytes) -> None:
        if self._answered is None:  # nobody has asked
            self.drop()
            return
        try:
            self._feed(data)
        except (HttpParserError, HttpParserUpgrade):
            self._is_last = True
            if not self._is_complete:
                self.end()
                return
        if self._is_complete:
            self._finish()
            return
        self.heard_s = self._owner.now()
        self._read += len(data)
        most = _MOST_READ * self._owner.most_body if self._status else MOST_HEAD
        if self._read > most:
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.ended(self)
        if self._answered is None:
            return
        is_cut = isinstance(error, ConnectionError)
        if self._status and self._until_end and not is_cut:
            self._tell(self._answer(b"".join(self._body)))
        else:
            self._tell(self._answer_or(Fate.BROKEN))

    # What the parser calls. It hides what is raised here in an error of its own.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise _Excess

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status:
            return  # behind a chunked body
        self._room -= len(name) + len(value) + 4
        self._headers_left -= 1
        if self._room < 0 or self._headers_left < 0:
            raise _Excess
        self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 and status != _SWITCHING:
            self._interim += 1
            if status < 100 or self._interim > MOST_INTERIM:
                raise _Excess
            return
        headers = self._headers
        coding = headers.get(b"transfer-encoding")
        self._is_last = not self._parser.should_keep_alive()
        if self._is_last and self._parser.get_http_version() not in ("1.1", "1.0"):
            raise _Excess
        if coding is not None and b"content-length" in headers:
            self._is_last = True
        self._until_end = (
            self._is_last
            and status not in _NO_BODY
            and (b"chunked" not in coding.lower() if coding else b"content-length" not in headers)
        )
        if b"keep-alive" in headers:
            self._keep_as(headers[b"keep-alive"])
        self._room = self._owner.most_body
        self._status = status

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._room -= len(data)
        if self._room < 0:
            raise _Excess

    def on_message_complete(self) -> None:
        if self._status:
            self._is_complete = True
        else:
            self._headers.clear()

    def _keep_as(self, header: bytes) -> None:
        found = _KEPT_S.search(header)
        if found is not None:
            self.idle_s = min(_IDLE_S, int(found[1]) - _BEFORE_SERVER_S)

    def _finish(self) -> None:
        answer = self._answer(b"".join(self._body))
        answered, self._answered = self._answered, None
        token = self.token
        transport = self._transport
        if self._is_last or self._below.get_write_buffer_size() or transport.is_closing():
            transport.abort()
        else:
            self._owner.freed(self)
        if answered is not None:
            answered(token, answer)

    def _give_up(self, fate: Fate) -> None:
        self._transport.abort()
        if self._answered is not None:
            self._tell(self._answer_or(fate))

    def _answer_or(self, fate: Fate) -> Heard:
        if not self._status:
            return Lost(fate)
        is_too_long = self._room < 0
        return self._answer(b"", None if is_too_long else fate)

    def _answer(self, body: bytes, cut: Fate | None = None) -> Answer:
        return Answer(self._status, _texts(self._headers), body, cut)

    def _tell(self, heard: Heard) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(self.token, heard)


def _texts(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    return {
        name.decode("ascii"): value.decode("ascii").rstrip()
        for name, value in headers.items()
        if value.isascii()
    }
