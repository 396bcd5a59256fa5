"""Makes the clients of sinks that speak HTTP, pools them, and reads lost answers, waits and clocks.

No client follows a redirect or keeps what a server answers. What a status means is the sink's.

A client of reqwest keeps one HTTP/2 connection a host, on which the peer's settings bound the
streams (hyper follows them; RFC 9113, 5.1.2). So a pool is several clients: the one with the fewest
requests in flight is next. Before the peer's first settings are there hyper takes 100 streams for
allowed, and APNs may allow one: so a connection carries one request until that is answered.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime

import msgspec
from msgspec.structs import replace
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    ConnectError,
    ConnectTimeoutError,
    PyreqwestError,
    ReadTimeoutError,
    RequestTimeoutError,
)
from pyreqwest.response import Response

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome

MAX_RETRY_AFTER_S = 3600.0
MAX_ANSWER_BYTES = 64 * 1024
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that reading JSON from outside may raise."""
_MAX_CONNECT_S = 10.0
_CLOCK_MAY_BE_OFF_S = 60.0
_THREADS_END_S = 0.1  # a thread of the client that still holds an object aborts a process that ends
_NOT_CONNECTED = "client error (Connect)"
_WHY_NOT_CONNECTED = {
    "connection refused": "nothing listens there",
    "dns error": "its host name is not known",
    "invalidcontenttype": "it speaks no TLS at that port",
    "not valid for name": "its certificate is for another host",
    "certificate expired": "its certificate has expired",
    "invalid peer certificate": "its certificate is not trusted",
}


class OneByOne(ABC):
    """A sink that takes one push at a time."""

    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self.send(delivery) for delivery in batch]

    @abstractmethod
    async def send(self, delivery: Delivery) -> Outcome:
        """Return what became of a push."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds until a connection stands, an answer begins, and all of it is there.

    `is_final`: a push whose answer did not come in time is dead, as it may have arrived.
    """

    total_s: float
    connect_s: float = 0.0
    first_byte_s: float = 0.0
    is_final: bool = True

    def outcome(self, has_begun: bool = False) -> Outcome:
        """Return what becomes of a push whose answer did not begin, or not go on, in time."""
        reason = f"timed out after {self.first_byte_s or self.total_s:g} s"
        if has_begun:
            reason = "timed out in the middle of the answer"
        kind = Kind.DEAD if self.is_final else Kind.RETRY
        return Outcome(kind, reason, arrival=Arrival.UNKNOWN, is_silent=True)


def client_builder(slots: int, timeouts: Timeouts, headers: Mapping[str, str]) -> ClientBuilder:
    """Return the builder of a client for `slots` requests at a time, with our rules.

    Raises BadInput when a header cannot be sent.
    """
    first_byte_s = timeouts.first_byte_s or timeouts.total_s  # from the request on, as it counts
    connect_s = timeouts.connect_s or min(_MAX_CONNECT_S, first_byte_s / 2)
    try:
        return (
            ClientBuilder()
            .user_agent("pushlane")
            .default_headers(dict(headers))
            .timeout(timedelta(seconds=timeouts.total_s))
            .read_timeout(timedelta(seconds=first_byte_s))
            .connect_timeout(timedelta(seconds=connect_s))
            .pool_max_idle_per_host(slots)
            .follow_redirects(False)
            .referer(False)
            .gzip(False)
            .brotli(False)
            .zstd(False)
            .deflate(False)
        )
    except (PyreqwestError, ValueError):
        raise BadInput(
            "a header of the sink cannot be sent; check its name and value"
        ) from None  # the error holds the value


def http2_builder(url: str, timeouts: Timeouts, headers: Mapping[str, str]) -> ClientBuilder:
    """Return the builder of a client that keeps one HTTP/2 connection to the host of a URL."""
    builder = client_builder(1, timeouts, headers)
    if url.startswith("http://"):
        return builder.http2_prior_knowledge()
    return builder.http2(True)


def lost(error: PyreqwestError, timeouts: Timeouts, who: str) -> Outcome:
    """Return what it means that no answer came; `who` names the sink.

    The cause of an error, not its class, tells a failed connect from a lost answer.
    """
    if is_unconnected(error):
        causes = " ".join(causes_of(error)).lower()
        known = (f": {why}" for sign, why in _WHY_NOT_CONNECTED.items() if sign in causes)
        away = Outcome.throttled(f"no connection to {who}{next(known, '')}")
        return replace(away, is_silent=isinstance(error, RequestTimeoutError))
    if is_unprocessed(error):
        return Outcome.throttled(f"{who} refused the stream")
    if isinstance(error, RequestTimeoutError):
        return timeouts.outcome(has_begun=isinstance(error, ReadTimeoutError))
    return Outcome.retry(f"{who}'s connection broke", arrival=Arrival.UNKNOWN)


def causes_of(error: PyreqwestError) -> list[str]:
    """Return what led to an error, from the outside in. Not to be shown: it may have the URL."""
    return [cause["message"] for cause in getattr(error, "details", {}).get("causes") or ()]


def is_unconnected(error: PyreqwestError) -> bool:
    """Tell whether no connection stood, of TCP or of TLS, that could have carried the request."""
    return any(_NOT_CONNECTED in cause for cause in causes_of(error))


def unconnected(*, in_time: bool = True) -> PyreqwestError:
    """Return the error of a request that never had a connection to go on, or not `in_time`."""
    kind = ConnectError if in_time else ConnectTimeoutError
    return kind("no connection", {"causes": [{"message": _NOT_CONNECTED}]})


def is_unprocessed(error: PyreqwestError) -> bool:
    """Tell whether the server said that it has not looked at the request (RFC 9113, 8.7)."""
    return any("refused stream before processing" in cause for cause in causes_of(error))


async def drain(response: Response) -> None:
    """Read the rest of the answer, within bounds, so that its connection can be used again."""
    with suppress(PyreqwestError):  # the status is known, and all that counts
        await response.body_reader.read(MAX_ANSWER_BYTES)


async def read_answer(response: Response) -> bytes:
    """Return what a provider says of a push, within bounds; empty when it broke off."""
    try:
        body = await response.body_reader.read(MAX_ANSWER_BYTES)
    except PyreqwestError:
        return b""
    return b"" if body is None else bytes(body)


def header_of(response: Response, name: str) -> str | None:
    """Return a header of an answer, None when it has none or one that is no text."""
    try:
        return response.get_header(name)
    except ValueError:  # its bytes are not ASCII
        return None


async def close_client(client: Client) -> None:
    await client.close()
    await asyncio.sleep(_THREADS_END_S)


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Seconds from a Retry-After (RFC 9110, 10.2.3), from 0 to an hour; None if unreadable."""
    if header is None:
        return None
    header = header.strip()
    if header.isascii() and header.isdigit():
        return min(float(header), MAX_RETRY_AFTER_S)
    try:
        wait_s = parsedate_to_datetime(header).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
    return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)


def clock_off_s(date: str | None, now_s: float) -> float | None:
    """Return by how many seconds our clock is ahead of a server's `Date`; None if unreadable."""
    if date is None:
        return None
    try:
        return now_s - parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def clock_note(off_s: float | None, whose: str = "the provider's") -> str:
    """Say how far our clock is off; empty when it is within a minute.

    A signature or token with a time in it is refused by a server whose clock is another.
    """
    if off_s is None or abs(off_s) <= _CLOCK_MAY_BE_OFF_S:
        return ""
    side = "ahead of" if off_s > 0 else "behind"
    return f"our clock is {abs(off_s) / 60:.0f} min {side} {whose}"


@dataclass(slots=True, eq=False)
class _Connection:
    """A client with one connection. It is new until a request on it was answered."""

    client: Client
    in_flight: int = 0
    is_new: bool = True
    is_over: bool = False


class _Use:
    """One request's use of a connection: a class, as a generator would cost each request more."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Http2Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Client:
        self._connection = connection = await self._pool.take()
        return connection.client

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pool.give_back(self._connection, error)


class Http2Pool:
    """Opens as many connections as the requests in flight take, at most `streams` of them on each.

    `connect` makes a client. A connection that broke is replaced, and closed when what is in flight
    on it has ended. Who waits while a new one gives no answer in time was never sent, and is told
    that there is no connection.
    """

    def __init__(self, connect: Callable[[], Client], streams: int, requests: int) -> None:
        self._connect = connect
        self._streams = streams
        self._most = -(-requests // streams)
        self._connections: list[_Connection] = [_Connection(connect())]
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def size(self) -> int:
        return len(self._connections)

    def client(self) -> _Use:
        """Take the client for one request. A PyreqwestError that is raised inside ends it.

        Raises PyreqwestError when no connection came to stand, while this waited for one.
        """
        return _Use(self)

    async def close(self) -> None:
        self._is_closed = True
        self._fail_waiting(unconnected())
        await asyncio.gather(*self._closing)
        await asyncio.gather(*(close_client(one.client) for one in self._connections))

    async def take(self) -> _Connection:
        """Return a connection that has room, and count a request on it."""
        while (connection := self._free()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        connection.in_flight += 1
        return connection

    def give_back(self, connection: _Connection, error: BaseException | None) -> None:
        """Note what came of a request: an answer, an error of the client's, or a cancel."""
        if error is None:
            connection.is_new = False
        elif isinstance(error, PyreqwestError):
            self._on_error(connection, error)
        connection.in_flight -= 1
        if connection.is_over and not connection.in_flight:
            self._close_later(connection.client)
        if self._waiting:
            self._wake()

    def _on_error(self, connection: _Connection, error: PyreqwestError) -> None:
        if not is_unprocessed(error):
            self._end(connection)
        if is_unconnected(error):
            self._fail_waiting(error)
        elif connection.is_new and isinstance(error, RequestTimeoutError):
            self._fail_waiting(unconnected(in_time=False))

    def _free(self) -> _Connection | None:
        """Return the connection with the least in flight, a new one if all are full."""
        best = min(self._connections, key=lambda one: one.in_flight)
        if best.in_flight < (1 if best.is_new else self._streams):
            return best
        warm = [one for one in self._connections if not one.is_new]
        best = min(warm, key=lambda one: one.in_flight, default=best)
        if not best.is_new and best.in_flight < self._streams:
            return best
        if len(self._connections) >= self._most:
            return None
        added = _Connection(self._connect())
        self._connections.append(added)
        return added

    def _end(self, connection: _Connection) -> None:
        if not connection.is_over and not self._is_closed:
            connection.is_over = True
            self._connections.remove(connection)
            self._connections.append(_Connection(self._connect()))

    def _wake(self) -> None:
        """Let those that wait look again: all, as a connection that is not new takes many."""
        for waiter in self._take_waiting():
            waiter.set_result(None)

    def _fail_waiting(self, error: PyreqwestError) -> None:
        """Give up for those that wait: one by one they would wait as long for nobody again."""
        for waiter in self._take_waiting():
            waiter.set_exception(error)

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting = [waiter for waiter in self._waiting if not waiter.done()]
        self._waiting.clear()
        return waiting

    def _close_later(self, client: Client) -> None:
        closing = asyncio.create_task(close_client(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
