"""The connections to one origin, in the loop's thread, each with one request at a time.

Who posts takes an idle connection, the one that was used last; who sends may open one, or waits in
order. One look at all connections a few times a second ends what is over its time, so that no
request has a timer, a task or a future of its own.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from pushlane.dispatcher.transport.answer import (
    MOST_BODY,
    Addresses,
    Answered,
    Fate,
    Heard,
    Lost,
)
from pushlane.dispatcher.transport.dial import Dialed, Dialer, tls_context, why_unconnected
from pushlane.dispatcher.transport.http1 import Http1
from pushlane.dispatcher.transport.request import Origin, RequestWriter

_MAX_CONNECT_S = 10.0
_LOOK_S = 0.25


class Seconds(msgspec.Struct, frozen=True):
    """Seconds until all of an answer is there, a connection stands, and an answer begins.

    All but `connect_s` count from the request on, and `first_byte_s` between the parts of an
    answer, too. Of the time until it begins a connection has half unless said, 10 s at most.
    """

    total_s: float
    connect_s: float = 0.0
    first_byte_s: float = 0.0

    @property
    def part_s(self) -> float:
        return self.first_byte_s or self.total_s

    @property
    def to_connect_s(self) -> float:
        return self.connect_s or min(_MAX_CONNECT_S, self.part_s / 2)


class _Waiting(msgspec.Struct, eq=False):
    """A request that has no connection yet."""

    request: Any
    heard: asyncio.Future[Heard]
    began_s: float


C = TypeVar("C", bound=Dialed)
R = TypeVar("R")


class Connections(ABC, Generic[C, R]):
    """At most `most` connections to one origin, and the requests that wait for one of them.

    `each` is how many requests one carries at a time. `addresses` are the only ones that are
    connected to, asked for each connection and request; the name of the origin stays what its
    certificate has to be for. `context` is shared by clients that have it; one is made otherwise.
    Raises BadInput when what TLS needs is not there.
    """

    can_post = True
    alpn: Sequence[str]

    def __init__(
        self,
        origin: Origin,
        seconds: Seconds,
        most: int,
        *,
        each: int = 1,
        addresses: Addresses | None = None,
        context: ssl.SSLContext | None = None,
        fast: bool = False,
        most_body: int = MOST_BODY,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.now = now
        self.most_body = most_body
        if origin.scheme == "https" and context is None:
            context = tls_context(self.alpn)
        self._dialer = Dialer(origin, context, addresses, fast=fast)
        self._seconds = seconds
        self._most = most
        self._each = each
        self._addresses = addresses
        self._open: set[C] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Waiting] = deque()
        self._looking: asyncio.TimerHandle | None = None
        self._look_s = min(_LOOK_S, seconds.part_s / 8)
        self._look_at_s = 0.0
        self._stood_still = False
        self._is_closed = False
        self._all_ended: asyncio.Event = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._open)

    @abstractmethod
    def _write(self, path: str, headers: Mapping[str, str], body: bytes) -> R:
        """Return a request as connections take it. Raises BadInput when it cannot be sent."""

    @abstractmethod
    def _make(self, ip: str) -> C:
        """Return what speaks on a connection to an address."""

    @abstractmethod
    def _take(self, now_s: float) -> C | None:
        """Return a connection that can start a request now."""

    @abstractmethod
    def freed(self, connection: C) -> None:
        """Give a connection that can take requests those that wait."""

    @abstractmethod
    def _more(self) -> int:
        """Return how many connections are missing, those that are being opened counted in."""

    @abstractmethod
    def _drop(self, heard: asyncio.Future[Heard]) -> None:
        """End what is under way of a request that nobody waits for any more."""

    @abstractmethod
    def _look_at(self, connection: C, now_s: float) -> None:
        """End what is over its time on a connection."""

    async def send(self, path: str, headers: Mapping[str, str], body: bytes) -> Heard:
        """Post a request as soon as there is a connection, as `Transport.send` has it."""
        request = self._write(path, headers, body)
        if self._is_closed:
            return Lost(Fate.UNCONNECTED)
        now_s = self.now()
        waiting = _Waiting(request, asyncio.get_running_loop().create_future(), now_s)
        connection = self._take(now_s)
        if connection is not None:
            connection.start(request, hear, waiting.heard, now_s)
        else:
            self._waiting.append(waiting)
            self._open_more()
        try:
            return await waiting.heard
        except asyncio.CancelledError:
            self._drop(waiting.heard)
            raise

    async def close(self) -> None:
        """End all connections, as `Transport.close` has it."""
        self._is_closed = True
        for opening in self._opening:
            opening.cancel()
        self._fail_waiting(Lost(Fate.UNCONNECTED), len(self._waiting))
        for connection in list(self._open):
            connection.end()
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        while self._open:
            self._all_ended.clear()
            await self._all_ended.wait()

    def ended(self, connection: C) -> None:
        """Hear that a connection is over."""
        self._open.discard(connection)
        if not self._open:
            self._all_ended.set()
        self._open_more()

    def _next_waiting(self) -> _Waiting | None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.heard.done():
                return waiting
        return None

    # How connections come to be.

    def _open_more(self) -> None:
        """Open connections for those that wait, as far as there may be more."""
        if self._is_closed:
            return
        for _ in range(self._more() - len(self._opening)):
            opening = asyncio.create_task(self._connect())
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        if self._waiting:
            self._look_later()

    async def _connect(self) -> None:
        try:
            opened = await self._opened()
        finally:
            self._opening.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        if not isinstance(opened, Lost):
            self._open.add(opened)
            self._look_later()
            self.freed(opened)
            return
        has_others = bool(self._open) or opened.in_time
        self._fail_waiting(opened, self._each if has_others else len(self._waiting))
        self._open_more()

    async def _opened(self) -> C | Lost:
        try:
            async with asyncio.timeout(self._seconds.to_connect_s):
                connection = await self._dialer.open(self._make)
        except TimeoutError:
            return Lost(Fate.UNCONNECTED, in_time=False)
        except (OSError, UnicodeError) as error:
            return Lost(Fate.UNCONNECTED, why_unconnected(error))
        return connection if connection.is_open else Lost(Fate.UNCONNECTED)

    def _fail_waiting(self, lost: Lost, most: int) -> None:
        """Give up for the first that wait: nobody took their requests."""
        while self._waiting and most:
            waiting = self._waiting.popleft()
            if not waiting.heard.done():
                waiting.heard.set_result(lost)
                most -= 1

    # How they end in time.

    def _look_later(self) -> None:
        if self._looking is None and not self._is_closed:
            self._looking = asyncio.get_running_loop().call_later(self._look_s, self._look)
            self._look_at_s = self.now() + self._look_s

    def _look(self) -> None:
        """End what is over its time: requests, idle connections, and those that wait for one.

        A process that stood still hears of its timers first: answers that came are read before.
        """
        self._looking = None
        now_s = self.now()
        is_late = now_s - self._look_at_s >= self._look_s
        self._stood_still = is_late and not self._stood_still
        if self._stood_still:
            self._look_later()
            return
        self._fail_late(now_s)
        for connection in list(self._open):
            self._look_at(connection, now_s)
        if self._open or self._waiting:
            self._look_later()

    def _fail_late(self, now_s: float) -> None:
        while self._waiting and now_s - self._waiting[0].began_s >= self._seconds.part_s:
            self._fail_waiting(Lost(Fate.UNCONNECTED, in_time=False), 1)


class LoopClient(Connections[Http1, bytes]):
    """Posts to one origin over connections of one request at a time: a `Transport`.

    `headers` go with each request. `tls` may be aiofastnet's. Raises BadInput when a header cannot
    be sent, or what TLS needs is not there.
    """

    alpn = ("http/1.1",)

    def __init__(
        self,
        origin: Origin,
        seconds: Seconds,
        most: int,
        headers: Mapping[str, str],
        *,
        addresses: Addresses | None = None,
        context: ssl.SSLContext | None = None,
        tls: Literal["", "aiofastnet"] = "",
        most_body: int = MOST_BODY,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._written = RequestWriter(origin, headers).write
        super().__init__(
            origin,
            seconds,
            most,
            addresses=addresses,
            context=context,
            fast=tls == "aiofastnet",
            most_body=most_body,
            now=now,
        )
        self._idle: list[Http1] = []

    def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        answered: Answered,
        token: Any,
    ) -> bool:
        """Write a request if a connection is free, as `Transport.post` has it."""
        if not self._idle:
            return False
        request = self._written(path, headers, body)
        now_s = self.now()
        connection = self._take(now_s)
        if connection is None:
            return False
        connection.start(request, answered, token, now_s)
        return True

    async def close(self) -> None:
        self._idle.clear()
        await super().close()

    # What connections tell.

    def freed(self, connection: Http1) -> None:
        now_s = self.now()
        connection.idle_until_s = now_s + connection.idle_s
        if self._is_closed or not self._may_use(connection, now_s):
            connection.drop()
            return
        self._fail_late(now_s)
        if (waiting := self._next_waiting()) is not None:
            connection.start(waiting.request, hear, waiting.heard, waiting.began_s)
        else:
            self._idle.append(connection)

    def ended(self, connection: Http1) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        super().ended(connection)

    def _write(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        return self._written(path, headers, body)

    def _make(self, ip: str) -> Http1:
        return Http1(self, ip)

    def _more(self) -> int:
        return min(len(self._waiting), self._most - len(self._open))

    def _take(self, now_s: float) -> Http1 | None:
        while self._idle:
            connection = self._idle.pop()
            if self._may_use(connection, now_s):
                return connection
            connection.drop()
        return None

    def _may_use(self, connection: Http1, now_s: float) -> bool:
        if now_s >= connection.idle_until_s or not connection.is_open:
            return False
        return self._addresses is None or connection.ip in self._addresses()

    def _drop(self, heard: asyncio.Future[Heard]) -> None:
        for connection in self._open:
            if connection.is_busy and connection.token is heard:
                connection.drop()
                return

    def _look_at(self, connection: Http1, now_s: float) -> None:
        if not connection.is_busy:
            if now_s >= connection.idle_until_s:
                connection.drop()
        elif (
            now_s - connection.began_s >= self._seconds.total_s
            or now_s - connection.heard_s >= self._seconds.part_s
        ):
            connection.time_out()


def hear(heard: asyncio.Future[Heard], what: Heard) -> None:
    """Tell who waits for it what is heard of a request."""
    if not heard.done():
        heard.set_result(what)
