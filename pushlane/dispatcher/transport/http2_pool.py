"""Several connections of HTTP/2 to one host, as one transport over clients of pyreqwest.

A client of reqwest keeps one HTTP/2 connection a host, on which the peer's settings bound the
streams (hyper follows them; RFC 9113, 5.1.2). So a pool is several clients: the one with the fewest
requests in flight is next. Before the peer's first settings are there hyper takes 100 streams for
allowed, and APNs may allow one: so a connection carries one request until that is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyreqwest.client import Client

from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.transport.answer import (
    MOST_BODY,
    Addresses,
    Answer,
    Fate,
    Heard,
    Lost,
    OpenGuarded,
)
from pushlane.dispatcher.transport.pyreqwest_client import (
    NeverPosts,
    built,
    client_builder,
    close_client,
    exchange,
)
from pushlane.dispatcher.transport.request import read_url


@dataclass(slots=True, eq=False)
class _Connection:
    """A client with one connection, to `ip` if that is given. It is new until it was answered."""

    client: Client
    ip: str
    in_flight: int = 0
    is_new: bool = True
    is_over: bool = False


class Http2Pool(NeverPosts):
    """Opens as many connections as the requests in flight take, at most `streams` of them on each.

    `connect` makes a client to an address, to any of the host where it is empty. A connection that
    broke, or whose address is not among `addresses` any more, is closed when what is in flight on
    it has ended; after an address that failed comes the one behind it. Who waits while a new one
    gives no answer in time was never sent, and is told that there is no connection. Where it
    `reads_ahead`, an answer is waited for as a whole.
    """

    def __init__(
        self,
        origin: str,
        connect: Callable[[str], Client],
        streams: int,
        requests: int,
        *,
        addresses: Addresses | None = None,
        reads_ahead: bool = True,
    ) -> None:
        self._origin = origin
        self._connect = connect
        self._streams = streams
        self._ahead = MOST_BODY if reads_ahead else 0
        self._most = -(-requests // streams)
        self._addresses = addresses
        self._failed_ip = ""
        self._connections: list[_Connection] = []
        self._open()
        self._waiting: deque[asyncio.Future[Lost | None]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def size(self) -> int:
        return len(self._connections)

    async def send(self, path: str, headers: Mapping[str, str], body: bytes) -> Heard:
        while (connection := self._free()) is None:
            waiter: asyncio.Future[Lost | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            if (lost := await waiter) is not None:
                return lost
        connection.in_flight += 1
        heard = None
        try:
            heard = await exchange(
                connection.client, self._origin + path, headers, body, ahead=self._ahead
            )
        finally:
            self._give_back(connection, heard)
        return heard

    async def close(self) -> None:
        self._is_closed = True
        self._end_waiting(Lost(Fate.UNCONNECTED))
        await asyncio.gather(*self._closing)
        await asyncio.gather(*(close_client(one.client) for one in self._connections))

    def _give_back(self, connection: _Connection, heard: Heard | None) -> None:
        """Note what came of a request, None if it was cancelled."""
        if isinstance(heard, Answer):
            connection.is_new = False
        elif heard is not None:
            self._on_lost(connection, heard)
        connection.in_flight -= 1
        if connection.is_over and not connection.in_flight:
            self._close_later(connection.client)
        if self._waiting:
            self._end_waiting(None)

    def _on_lost(self, connection: _Connection, lost: Lost) -> None:
        if lost.fate is not Fate.UNPROCESSED:
            self._end(connection)
        if lost.fate is Fate.UNCONNECTED:
            self._failed_ip = connection.ip
            self._end_waiting(lost)
        elif connection.is_new and lost.fate in (Fate.SILENT, Fate.STALLED):
            self._end_waiting(Lost(Fate.UNCONNECTED, in_time=False))

    def _free(self) -> _Connection | None:
        """Return the connection with the least in flight, a new one if all are full."""
        if self._addresses is not None:
            ips = self._addresses()
            for moved in [one for one in self._connections if one.ip not in ips]:
                self._end(moved)
        free = [
            one for one in self._connections if one.in_flight < (1 if one.is_new else self._streams)
        ]
        if free:
            return min(free, key=lambda one: one.in_flight)
        return self._open() if len(self._connections) < self._most else None

    def _open(self) -> _Connection:
        ip = self._next_ip()
        opened = _Connection(self._connect(ip), ip)
        self._connections.append(opened)
        return opened

    def _next_ip(self) -> str:
        if self._addresses is None:
            return ""
        ips = self._addresses()
        failed = self._failed_ip
        return ips[(ips.index(failed) + 1) % len(ips)] if failed in ips else ips[0]

    def _end(self, connection: _Connection) -> None:
        if not connection.is_over and not self._is_closed:
            connection.is_over = True
            self._connections.remove(connection)
            if not connection.in_flight:
                self._close_later(connection.client)

    def _end_waiting(self, lost: Lost | None) -> None:
        """Let those that wait look again, all, as a connection that is not new takes many.

        Where there is no connection they give up: one by one they would wait as long for nobody.
        """
        waiting = [waiter for waiter in self._waiting if not waiter.done()]
        self._waiting.clear()
        for waiter in waiting:
            waiter.set_result(lost)

    def _close_later(self, client: Client) -> None:
        closing = asyncio.create_task(close_client(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def http2_pool(
    origin: str,
    streams: int,
    requests: int,
    timeouts: Timeouts,
    headers: Mapping[str, str],
    *,
    addresses: Addresses | None = None,
    only_http2: bool = True,
    reads_ahead: bool = True,
) -> Http2Pool:
    """Return the pool to a host. Raises BadInput for a header that cannot be sent.

    Over http it speaks HTTP/2 at once, or HTTP/1.1 unless `only_http2`. With `addresses` it
    connects to these alone, and takes no proxy, which would resolve the name again.
    """
    to, _ = read_url(origin)
    at_once = only_http2 and to.scheme == "http"

    def connect(ip: str) -> Client:
        builder = client_builder(streams, timeouts, headers)
        if ip:
            builder = builder.no_proxy().resolve(to.host, ip, to.port)
        return built(builder, only_http2=at_once)

    return Http2Pool(
        origin, connect, streams, requests, addresses=addresses, reads_ahead=reads_ahead
    )


def guarded_pools(
    streams: int,
    requests: int,
    timeouts: Timeouts,
    headers: Mapping[str, str],
    *,
    only_http2: bool,
    reads_ahead: bool,
) -> OpenGuarded:
    """Return what opens pools to hosts that rows name.

    Raises BadInput, here and not for a host, for a header that cannot be sent.
    """
    client_builder(streams, timeouts, headers)
    return partial(
        http2_pool,
        streams=streams,
        requests=requests,
        timeouts=timeouts,
        headers=headers,
        only_http2=only_http2,
        reads_ahead=reads_ahead,
    )
