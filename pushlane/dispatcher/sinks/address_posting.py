"""Posts JSON to URLs that are the addresses of pushes: guarded, and each host by itself.

A client is of one host, whose name it does not resolve itself: it connects to the addresses that
the guard checked, and takes no proxy from the environment, which would resolve the name again.

Who names hosts may name one that never answers. So after three failures in a row, or where it asks
for a wait, a host rests: 1 s, twice as long after each further failure, a minute at most. Then one
push tries it, until one gets through. No answer of a host is about the sink, as others may be well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field

from msgspec.structs import replace
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from pushlane.core.push import Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.sinks.http_client import (
    Http2Pool,
    Timeouts,
    client_builder,
    is_unconnected,
    lost,
)
from pushlane.dispatcher.sinks.posting import Signer, post_request
from pushlane.util.errors import RefusedUrl, UnknownHost
from pushlane.util.url_guard import CheckedUrl, UrlGuard

_IDLE_S = 300.0


@dataclass(slots=True, eq=False)
class _Host:
    """The connections to one address of a host."""

    ip: str
    pool: Http2Pool
    in_use: int = 0
    used_at_s: float = 0.0
    failed: bool = False


@dataclass(eq=False, repr=False)
class GuardedClients:
    """Clients by host, for `slots` requests at a time over all of them.

    `streams` is how many requests a connection carries. Over http it speaks HTTP/1.1, and with
    `only_http2` HTTP/2 at once. Of the hosts that were not asked lately the connections are closed.
    """

    guard: UrlGuard
    slots: int
    timeouts: Timeouts
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: int = 100
    _: KW_ONLY
    only_http2: bool = False
    most_hosts: int = 250
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._hosts: dict[tuple[str, str, int], _Host] = {}
        self._left: set[_Host] = set()
        self._closing: set[asyncio.Task[None]] = set()
        client_builder(1, self.timeouts, self.headers)  # a header that cannot be is refused at once

    @property
    def size(self) -> int:
        return len(self._hosts)

    @asynccontextmanager
    async def to(self, url: str) -> AsyncIterator[Client]:
        """Take the client for one request to this URL. Raises as `UrlGuard.check` does."""
        async with self.at(await self.guard.check(url)) as client:
            yield client

    @asynccontextmanager
    async def at(self, checked: CheckedUrl) -> AsyncIterator[Client]:
        """Take the client for one request to a URL that was checked just now."""
        host = self._host(checked)
        host.in_use += 1
        try:
            async with host.pool.client() as client:
                yield client
        except PyreqwestError as error:
            host.failed = is_unconnected(error)
            raise
        finally:
            host.in_use -= 1
            host.used_at_s = self.now()
            if host in self._left and not host.in_use:
                self._close_later(host)

    async def close(self) -> None:
        await asyncio.gather(*self._closing)
        open_hosts = [*self._hosts.values(), *self._left]
        await asyncio.gather(*(host.pool.close() for host in open_hosts))

    def _host(self, checked: CheckedUrl) -> _Host:
        """Return the connections to the host, which is then the one that was asked last."""
        key = (checked.scheme, checked.host, checked.port)
        host = self._hosts.pop(key, None)
        if host is not None:
            ip = _next_ip(host, checked.ips)
            if ip == host.ip:
                self._hosts[key] = host
                return host
            self._leave(host)
        else:
            ip = checked.ip
        self._leave_idle()
        added = _Host(ip, Http2Pool(lambda: self._connect(checked, ip), self.streams, self.slots))
        self._hosts[key] = added
        return added

    def _connect(self, checked: CheckedUrl, ip: str) -> Client:
        builder = client_builder(self.streams, self.timeouts, self.headers).no_proxy()
        builder = builder.resolve(checked.host, ip, checked.port)
        if checked.scheme == "http" and self.only_http2:
            return builder.http2_prior_knowledge().build()
        return builder.http2(checked.scheme == "https").build()

    def _leave_idle(self) -> None:
        """Close what was not used for long, and as much more as there are hosts too many."""
        too_many = len(self._hosts) + 1 - self.most_hosts
        long_ago_s = self.now() - _IDLE_S
        for key, host in list(self._hosts.items()):
            if host.in_use:
                continue
            if too_many <= 0 and host.used_at_s > long_ago_s:
                break
            del self._hosts[key]
            self._leave(host)
            too_many -= 1

    def _leave(self, host: _Host) -> None:
        self._left.add(host)
        if not host.in_use:
            self._close_later(host)

    def _close_later(self, host: _Host) -> None:
        self._left.discard(host)
        closing = asyncio.create_task(host.pool.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _next_ip(host: _Host, ips: tuple[str, ...]) -> str:
    """Return the address in use while it is one of the host; after it failed, the one after it."""
    if host.ip not in ips:
        return ips[0]
    host.failed, has_failed = False, host.failed
    return ips[(ips.index(host.ip) + has_failed) % len(ips)]


def refusal(error: RefusedUrl | UnknownHost) -> Outcome:
    """Return what becomes of a push to a URL that must not, or cannot, be asked."""
    if isinstance(error, RefusedUrl):
        return Outcome.dead(error.reason)
    if error.may_pass:
        return Outcome.throttled(error.reason, scope=Scope.HOST)
    return Outcome(Kind.RETRY, error.reason, arrival=Arrival.REFUSED, scope=Scope.PUSH)


def of_host(outcome: Outcome) -> Outcome:
    """Narrow an outcome to the host that was asked: it says nothing of others, nor of the sink.

    What costs an attempt goes on costing one. So do credentials that a host refuses.
    """
    if outcome.kind not in (Kind.RETRY, Kind.DEAD) or outcome.scope not in (Scope.SINK, None):
        return outcome
    costs = outcome.kind is Kind.RETRY and (outcome.refuses_us or outcome.scope is None)
    return replace(outcome, scope=Scope.PUSH if costs else Scope.HOST, refuses_us=False)


_FAILURES = 3
_MOST_KNOWN = 10_000
_REST_S = 1.0
_LONGEST_REST_S = 60.0


@dataclass(slots=True)
class _Failing:
    row: int = 0
    rest_s: float = 0.0
    until_s: float = 0.0
    is_tried: bool = False


class HostRests:
    """Knows the hosts that failed lately. Each push that may go is reported to `landed`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failing: dict[Hashable, _Failing] = {}

    def wait_s(self, host: Hashable) -> float | None:
        """Return how long a push to the host has to wait, None if it goes now."""
        failing = self._failing.get(host)
        if failing is None or not failing.rest_s:
            return None
        left_s = failing.until_s - self._now()
        if left_s > 0 or failing.is_tried:
            return max(left_s, _REST_S)
        failing.is_tried = True
        return None

    def landed(self, host: Hashable, outcome: Outcome | None) -> None:
        """Hear of a push that went; None if it was cancelled."""
        if outcome is not None and _is_failure(outcome):
            self._fail(host, outcome.after_s or 0.0)
        elif outcome is not None:
            self._failing.pop(host, None)
        elif failing := self._failing.get(host):
            failing.is_tried = False

    def _fail(self, host: Hashable, asked_s: float) -> None:
        failing = self._failing.pop(host, None) or _Failing()
        self._failing[host] = failing
        if len(self._failing) > _MOST_KNOWN:
            del self._failing[next(iter(self._failing))]
        now_s = self._now()
        if failing.rest_s and now_s < failing.until_s:
            return  # it went before the host rested
        failing.row += 1
        failing.is_tried = False
        if failing.row >= _FAILURES or asked_s:
            failing.rest_s = min(max(2 * failing.rest_s, _REST_S), _LONGEST_REST_S)
            failing.until_s = now_s + min(max(failing.rest_s, asked_s), _LONGEST_REST_S)


def _is_failure(outcome: Outcome) -> bool:
    """Tell whether the host cannot take pushes, or holds their slots until the time is over."""
    if outcome.kind is Kind.DELIVERED:
        return False
    is_away = outcome.kind is Kind.RETRY and outcome.scope is Scope.HOST
    return is_away or outcome.arrival is Arrival.UNKNOWN


GONE = 410

Read = Callable[[Response], Awaitable[Outcome]]


class AddressPoster:
    """Posts to the URL that it is given with each push. `now` is the Unix time in seconds."""

    def __init__(
        self,
        guard: UrlGuard,
        clients: GuardedClients,
        timeouts: Timeouts,
        secrets: str | Sequence[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._guard = guard
        self._clients = clients
        self._timeouts = timeouts
        self._signer = Signer(secrets)
        self._now = now
        self._rests = HostRests(time.monotonic)

    async def post(
        self, url: str, key: str, body: bytes, more: Mapping[str, str] | None, read: Read
    ) -> Outcome:
        """Return what became of a push to this URL; `read` says what an answer means."""
        try:
            checked = await self._guard.check(url)
        except (RefusedUrl, UnknownHost) as error:
            return refusal(error)
        host = (checked.host, checked.port)
        if (wait_s := self._rests.wait_s(host)) is not None:
            return Outcome.throttled("its host takes no pushes now", wait_s, Scope.HOST)
        outcome = None
        try:
            outcome = of_host(await self._ask(checked, key, body, more or {}, read))
        finally:
            self._rests.landed(host, outcome)
        return outcome

    async def close(self) -> None:
        await self._clients.close()

    async def _ask(
        self, checked: CheckedUrl, key: str, body: bytes, more: Mapping[str, str], read: Read
    ) -> Outcome:
        headers = {"Idempotency-Key": key, **self._signer.headers(key, body, self._now()), **more}
        try:
            async with (
                self._clients.at(checked) as client,
                post_request(client, checked.url, body, headers) as response,
            ):
                outcome = await read(response)
                if response.status == GONE:
                    return Outcome.gone(f"HTTP {GONE}")
                return outcome
        except PyreqwestError as error:
            return lost(error, self._timeouts, "the host of its URL")
