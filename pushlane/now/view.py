"""Keeps the picture of now up to date while anybody looks: a look every 0.6 s, whoever asks.

Nobody is asked for more than the registry, presence and the limits have anyway. The last hour is
kept as far as somebody looked: it is lost with the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from pushlane.backends.backend import Backend
from pushlane.backends.ports import Registry
from pushlane.core.errors import PushlaneError
from pushlane.core.task import now_ms
from pushlane.diagnosis.index import TaskIndex, index_of
from pushlane.diagnosis.look import loads
from pushlane.now.picture import Picture, picture_of
from pushlane.now.rates import Rates
from pushlane.now.ring import Ring
from pushlane.now.spans import Spans
from pushlane.now.verdict import Held, held

T = TypeVar("T")

EVERY_S = 0.6
_ENDS_S = 5.0
_MADE_S = 5.0
_MOST_MADE = 1_000
_MOST_BEGUN = 1_000


class View:
    """The view of now of a process on a backend, which each call names."""

    def __init__(self, index: TaskIndex) -> None:
        self.index = index
        self.hour = Ring()
        self.holds: Sequence[Held] = ()
        self.spans = Spans()
        self.first_ends: dict[str, tuple[int, int]] = {}
        self.error: PushlaneError | None = None
        self._rates = Rates()
        self._picture: Picture | None = None
        self._ends_until_s = 0.0
        self._looked_s = -EVERY_S
        self._made: dict[Hashable, tuple[float, object]] = {}
        self._lock = asyncio.Lock()

    async def picture(self, backend: Backend) -> Picture:
        """Return the picture, 0.6 s old at most while all answers; else the last one.

        `error` says why it is old. Raises what is wrong where there was no look before.
        """
        async with self._lock:  # one look for all who ask
            if time.monotonic() - self._looked_s >= EVERY_S:
                try:
                    await self._look(backend)
                    self.error = None
                except PushlaneError as error:
                    self.error = error
                self._looked_s = time.monotonic()
            if self._picture is not None:
                return self._picture
        assert self.error is not None
        raise self.error

    async def followed(self, backend: Backend) -> Picture:
        """Return the picture, and have the index of all tasks as the registry is at this moment.

        Where the registry is away it stays as it was; raises what is wrong where it has not been
        read yet.
        """
        picture = await self.picture(backend)
        async with self._lock:
            try:
                await self.index.follow(backend.registry)
            except PushlaneError as error:
                if not self.index.is_whole:
                    raise
                self.error = error
        return picture

    async def once(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what was made for a key in the last seconds; else make it."""
        known = self._made.get(key)
        if known is None or time.monotonic() - known[0] > _MADE_S:
            if len(self._made) > _MOST_MADE:
                self._made.clear()
            known = self._made[key] = time.monotonic(), await make()
        return cast(T, known[1])

    async def _look(self, backend: Backend) -> None:
        index = self.index
        await index.follow_unfinished(backend.registry)
        tasks = [*index.unfinished.values()]
        ids = self._rates.to_count([*index.unfinished])
        began_s = time.monotonic()
        begun = self._rates.take(await backend.registry.progress(ids) if ids else (), began_s)
        self._begin(begun, now_ms())
        self._rates.keep_only(index.unfinished)
        processes = await backend.presence.list()
        at_ms = now_ms()
        load_of, unread = await loads(backend, tasks, at_ms)
        ends = self._picture.ends if self._picture and began_s < self._ends_until_s else None
        if ends is None:
            self._ends_until_s = began_s + _ENDS_S
        picture = picture_of(tasks, self._rates, processes, load_of, at_ms, ends, self._picture)
        self._picture = replace(picture, unread_limits=unread)
        self._note(self._picture)

    def _note(self, picture: Picture) -> None:
        """Keep what holds tasks, and what is of the last hour."""
        self.holds = held(picture, picture.tasks)
        self.spans.take(self.holds, picture.at_ms)
        self.hour.note(picture)

    def _begin(self, begun: Mapping[str, float], at_ms: int) -> None:
        """Keep between which looks the first push of a task ended."""
        for task_id, since_s in begun.items():
            self.first_ends[task_id] = (at_ms - round(since_s * 1000), at_ms)
        while len(self.first_ends) > _MOST_BEGUN:
            del self.first_ends[next(iter(self.first_ends))]


_views: WeakKeyDictionary[Registry, View] = WeakKeyDictionary()


def view_of(backend: Backend) -> View:
    """Return the view of now of this process on a backend."""
    view = _views.get(backend.registry)
    if view is None:
        view = _views[backend.registry] = View(index_of(backend.registry))
    return view
