"""Follows the limits that are set, so that a change holds here within a second.

It reads them all again and again; there are few, and they are small.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from pushlane.core.retrying import Backoff
from pushlane.core.turns import Scheduler
from pushlane.lanes.once import Once
from pushlane.lanes.ports import DocumentStore
from pushlane.model.limits import Limit, Limits, Subject, readable_limits
from pushlane.settings import Settings

log = logging.getLogger("pushlane.limits")

_EVERY_S = 0.5

LaneT = TypeVar("LaneT", bound=Hashable)


def limits_in(settings: Settings, sinks: Iterable[str]) -> Limits:
    """Return the limits of sinks by the settings, which hold until others are set."""
    named = {name: settings.sinks.get(name) for name in sinks}
    return {
        Subject("sink", name): Limit(rate_per_s=own.rate_per_s, in_flight=own.in_flight)
        if own
        else Limit()
        for name, own in named.items()
    }


class LimitsListener(Protocol):
    """What has to know of limits."""

    def on_limits(self, limits: Limits) -> None:
        """Apply these: they are all that are set now."""


class LimitsFollower:
    """Tells its listeners all limits, at first and whenever one has changed.

    While the store is away, those it knows of hold on. A limit that only a newer version
    understands stays as it was known last.
    """

    def __init__(self, documents: DocumentStore, every_s: float = _EVERY_S) -> None:
        self._documents = documents
        self._every_s = every_s
        self._listeners: list[LimitsListener] = []
        self._known: Limits | None = None
        self._once = Once(log)

    def add_listener(self, listener: LimitsListener) -> None:
        """Tell this one, too; what is known already it hears now."""
        self._listeners.append(listener)
        if self._known is not None:
            listener.on_limits(self._known)

    @property
    def limits(self) -> Limits:
        """All that are set, as far as it has heard."""
        return self._known or {}

    async def run(self) -> None:
        """Follow, for ever."""
        backoff = Backoff(log, "the limits")
        while True:
            await backoff.until_done(self.look)
            await asyncio.sleep(self._every_s)

    async def look(self) -> None:
        """Read them once, and tell them if one has changed."""
        limits = await self._read()
        if limits != self._known:
            self._known = limits
            for listener in self._listeners:
                listener.on_limits(limits)

    async def _read(self) -> Limits:
        found = await readable_limits(self._documents)
        for name, error in found.unread.items():
            self._once.tell(name, error)
        before = self._known or {}
        kept = {one: limit for one, limit in before.items() if str(one) in found.unread}
        return found.limits | kept


class _Share(NamedTuple):
    quota: int | None = None
    high_part: float | None = None


class AppLimits(Generic[LaneT]):
    """Gives a scheduler the quotas of apps and their parts of the high level."""

    def __init__(self, scheduler: Scheduler[LaneT]) -> None:
        self._scheduler = scheduler
        self._known: dict[str, _Share] = {}

    def on_limits(self, limits: Limits) -> None:
        shares = {
            subject.name: _Share(limit.quota, limit.high_part)
            for subject, limit in limits.items()
            if subject.kind == "app"
        }
        for app in shares.keys() | self._known.keys():
            share, known = shares.get(app, _Share()), self._known.get(app, _Share())
            if share.quota != known.quota:
                self._scheduler.set_app_quota(app, share.quota)
            if share.high_part != known.high_part:
                self._scheduler.set_high_part(app, share.high_part)
        self._known = shares
