"""HTTP/2 connections to one host: the one with the fewest requests in flight is next.

A client of reqwest keeps one HTTP/2 connection a host, on which the peer's settings bound the
streams (hyper follows them; RFC 9113, 5.1.2). So a pool is several clients. Before the peer's first
settings are there hyper takes 100 streams for allowed, and APNs may allow one: so a connection
carries one request until that is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError, RequestTimeoutError

from pushlane.dispatcher.sinks.http_client import (
    close_client,
    is_unconnected,
    is_unprocessed,
    unconnected,
)


class _Connection:
    """A client with one connection. It is new until a request on it was answered."""

    __slots__ = ("client", "in_flight", "is_new", "is_over")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.in_flight = 0
        self.is_new = True
        self.is_over = False


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

        Raises:
            PyreqwestError: no connection came to stand, while this waited for one.
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
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _fail_waiting(self, error: PyreqwestError) -> None:
        """Give up for those that wait: one by one they would wait as long for nobody again."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def _close_later(self, client: Client) -> None:
        closing = asyncio.create_task(close_client(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
