"""Posts JSON to URLs that are the addresses of pushes: guarded, and each host by itself.

A transport is of one host, whose name it does not resolve itself: it connects to the addresses that
the guard checked, and takes no proxy from the environment, which would resolve the name again.

Who names hosts may name one that never answers. So after three failures in a row, or where it asks
for a wait, a host rests: 1 s, twice as long after each further failure, a minute at most. Then one
push tries it, until one gets through. No answer of a host is about the sink, as others may be well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from msgspec.structs import replace

from pushlane.core.push import Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.sinks.http_client import Timeouts, lost
from pushlane.dispatcher.sinks.posting import Signer
from pushlane.dispatcher.transport.answer import Answer, Heard, Lost, OpenGuarded, Transport
from pushlane.util.errors import RefusedUrl, UnknownHost
from pushlane.util.url_guard import CheckedUrl, UrlGuard

_IDLE_S = 300.0


@dataclass(slots=True, eq=False)
class _Host:
    """The connections to a host, and the addresses of it that were checked last."""

    ips: tuple[str, ...]
    transport: Transport = field(init=False)
    in_use: int = 0
    used_at_s: float = 0.0


@dataclass(eq=False, repr=False)
class GuardedClients:
    """A transport a host, which `open` makes; those of hosts not asked lately are closed."""

    open: OpenGuarded
    _: KW_ONLY
    most_hosts: int = 250
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._hosts: dict[tuple[str, str, int], _Host] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def size(self) -> int:
        return len(self._hosts)

    async def send(self, checked: CheckedUrl, headers: Mapping[str, str], body: bytes) -> Heard:
        """Post a request to a URL that was checked just now."""
        host = self.take(checked)
        try:
            return await host.transport.send(checked.path, headers, body)
        finally:
            self.give_back(host)

    def take(self, checked: CheckedUrl) -> _Host:
        """Take the connections to a host for one request; it is then the one asked last."""
        key = (checked.scheme, checked.host, checked.port)
        host = self._hosts.pop(key, None)
        if host is None:
            self._leave_idle()
            host = _Host(checked.ips)
            host.transport = self.open(checked.origin, addresses=lambda: host.ips)
        host.ips = checked.ips
        host.in_use += 1
        self._hosts[key] = host
        return host

    def give_back(self, host: _Host) -> None:
        host.in_use -= 1
        host.used_at_s = self.now()

    async def close(self) -> None:
        transports = [host.transport for host in self._hosts.values()]
        await asyncio.gather(*self._closing, *(one.close() for one in transports))

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
            too_many -= 1
            closing = asyncio.create_task(host.transport.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


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

Read = Callable[[Answer], Outcome]


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
        self, url: str, key: str, body: bytes, more: Mapping[str, str], read: Read
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
            signed = self._signer.headers(key, body, self._now())
            headers = {"Idempotency-Key": key, **signed, **more}
            outcome = self._outcome(await self._clients.send(checked, headers, body), read)
        finally:
            self._rests.landed(host, outcome)
        return outcome

    async def close(self) -> None:
        await self._clients.close()

    def lost(self, heard: Lost) -> Outcome:
        """Return what it means that no answer came."""
        return lost(heard, self._timeouts, "the host of its URL")

    def _outcome(self, heard: Heard, read: Read) -> Outcome:
        if isinstance(heard, Lost):
            return of_host(self.lost(heard))
        return Outcome.gone(f"HTTP {GONE}") if heard.status == GONE else of_host(read(heard))
