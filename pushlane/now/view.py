"""Keeps the picture of now up to date while anybody looks: one look a second, whoever asks.

Nobody is asked for more than the registry, presence and the limits have anyway. The last hour is
kept as far as somebody looked: it is lost with the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pushlane.backends.backend import Backend
from pushlane.backends.ports import Registry
from pushlane.core.errors import PushlaneError
from pushlane.core.task import now_ms
from pushlane.diagnosis.look import loads
from pushlane.now.index import TaskIndex
from pushlane.now.picture import Picture, picture_of, shares
from pushlane.now.rates import Rates

log = logging.getLogger("pushlane.now")

EVERY_S = 1.0
_UNWATCHED_S = 10.0
_ENDS_S = 3.0
_MADE_S = 5.0
_MOST_MADE = 1_000
HOUR_MS = 3_600_000
_POINTS = 720
_POINT_MS = HOUR_MS // _POINTS


class Point(NamedTuple):
    """What went a second at a moment (Unix ms): by sink, level and app."""

    at_ms: int
    per_s: Mapping[tuple[str, str, str], float]


class View:
    """The view of now of a process on a backend, which each call names."""

    def __init__(self) -> None:
        self.index = TaskIndex()
        self.hour: deque[Point] = deque(maxlen=_POINTS)
        self.error: PushlaneError | None = None
        self._rates = Rates()
        self._picture: Picture | None = None
        self._ends_until_s = 0.0
        self._asked_s = self._looked_s = -_UNWATCHED_S
        self._made: dict[Hashable, tuple[float, str]] = {}
        self._lock = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    async def picture(self, backend: Backend) -> Picture:
        """Return the picture, a second old at most while all answers; else the last one.

        `error` says why it is old. Raises what is wrong where there was no look before.
        """
        self._asked_s = time.monotonic()
        if self._picture is None or time.monotonic() - self._looked_s > 2 * EVERY_S:
            await self._look_or_keep(backend)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on(backend), name="view of now")
        if self._picture is None:
            assert self.error is not None
            raise self.error
        return self._picture

    async def once(self, key: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Return what was made for a key in the last seconds; else make it."""
        known = self._made.get(key)
        if known is None or time.monotonic() - known[0] > _MADE_S:
            if len(self._made) > _MOST_MADE:
                self._made.clear()
            known = self._made[key] = time.monotonic(), await make()
        return known[1]

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look_on(self, backend: Backend) -> None:
        """Look again and again, until nobody has asked for a while."""
        while time.monotonic() - self._asked_s < _UNWATCHED_S:
            await asyncio.sleep(max(0.0, self._looked_s + EVERY_S - time.monotonic()))
            await self._look_or_keep(backend)

    async def _look_or_keep(self, backend: Backend) -> None:
        """Look; where something is away keep the last picture, with what is wrong."""
        asked_s = time.monotonic()
        async with self._lock:
            if self._looked_s > asked_s:  # somebody else has looked meanwhile
                return
            try:
                await self._look(backend)
                self.error = None
            except PushlaneError as error:
                self.error = error
            self._looked_s = time.monotonic()

    async def _look(self, backend: Backend) -> None:
        index = self.index
        await index.follow(backend.registry)
        tasks = [*index.unfinished.values()]
        ids = self._rates.to_count([*index.unfinished])
        began_s = time.monotonic()
        self._rates.take(await backend.registry.progress(ids) if ids else (), began_s)
        self._rates.keep_only(index.unfinished)
        processes = await backend.presence.list()
        at_ms = now_ms()
        load_of, unread = await loads(backend, tasks, at_ms)
        ends = self._picture.ends if self._picture and began_s < self._ends_until_s else None
        if ends is None:
            self._ends_until_s = began_s + _ENDS_S
        picture = picture_of(tasks, self._rates, processes, load_of, at_ms, ends)
        self._picture = replace(picture, unread_limits=unread)
        self._note(self._picture)

    def _note(self, picture: Picture) -> None:
        """Keep a point of the last hour."""
        if self.hour and picture.at_ms - self.hour[-1].at_ms < _POINT_MS:
            return
        per_s = {
            (one.sink, one.level.value, one.app): one.observed_per_s
            for one in shares(picture.tasks)
            if one.app is not None and one.observed_per_s
        }
        self.hour.append(Point(picture.at_ms, per_s))


_views: WeakKeyDictionary[Registry, View] = WeakKeyDictionary()


def view_of(backend: Backend) -> View:
    """Return the view of now of this process on a backend."""
    view = _views.get(backend.registry)
    if view is None:
        view = _views[backend.registry] = View()
    return view


async def close_view(backend: Backend) -> None:
    """Look no more at a backend, if it was looked at."""
    if (view := _views.pop(backend.registry, None)) is not None:
        await view.close()
