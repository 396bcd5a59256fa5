"""All streams that one process feeds: what it knows of them, of their keys, and its bounds."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

from pushlane.backends.backend import Backend
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.model.streams import Stream, list_streams
from pushlane.producers.feed import Feed, Lost
from pushlane.producers.producer import Content
from pushlane.producers.stream_tasks import share_limits
from pushlane.settings import Settings
from pushlane.util.errors import BufferFull

log = logging.getLogger("pushlane.streams")

MOST_IN_FLIGHT = 5_000
"""Pushes of all streams that may wait for the broker at once."""

MOST_BYTES_IN_FLIGHT = 64 * 1024 * 1024
MOST_KEYS = 100_000
ANSWER_S = 5.0
"""How long a push waits for the broker before who sent it is told to send it again."""

_LOOK_S = 1.0
_SHARE_S = 30.0

_Place = tuple[str, str]


class Taken(NamedTuple):
    """A push that is on its lane. It is not new when its key was known already."""

    id: str
    is_new: bool


class _Known(NamedTuple):
    """A key that was taken: of a push that is on its lane, or on its way there."""

    until_s: float
    id: str
    coming: asyncio.Task[str] | None


class Feeds:
    """Takes single pushes of streams, and ends with what it feeds sealed.

    `clock_s` is a monotonic clock.
    """

    def __init__(
        self, backend: Backend, settings: Settings, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._clock_s = clock_s
        self._feeds: dict[_Place, Feed] = {}
        self._streams: list[Stream] = []
        self._seen_at_s = -math.inf
        self._keys: OrderedDict[_Place, _Known] = OrderedDict()
        self._in_flight = self._bytes = 0
        self._looking: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str:
        """Why one of the streams takes nothing new now; empty while all do."""
        return next((feed.trouble for feed in self._feeds.values() if feed.trouble), "")

    async def find(self, name: str, apps: Collection[str] | None) -> list[Stream]:
        """Return the streams of this name of some apps, None for all, as a second ago at most."""
        is_fresh = self._clock_s() - self._seen_at_s < _LOOK_S
        found = _named(self._streams, name, apps) if is_fresh else []
        return found or _named(await self.follow(), name, apps)

    async def follow(self) -> list[Stream]:
        """Look at the streams now. Those that are there no more are no longer fed."""
        asked_at_s = self._clock_s()
        self._streams = await list_streams(self._backend.documents)
        self._seen_at_s = asked_at_s
        there = {(one.app, one.name) for one in self._streams}
        for place in [place for place in self._feeds if place not in there]:
            self._feeds[place].close()
            if self._feeds[place].is_idle:
                del self._feeds[place]
        return self._streams

    async def push(self, stream: Stream, content: Content, size: int) -> Taken:
        """Put a push with a key on the lane of a stream. A key of its app that is known is enough.

        `size` is about how many bytes it holds.

        Raises:
            BadInput: it cannot be a push.
            Unreachable: it is not on its lane, or nobody knows yet; send it again.
            BufferFull: too many wait.
            NotNow: older dispatchers may be there, which do not know keys.
        """
        assert content.key
        place, now_s = (stream.app, content.key), self._clock_s()
        known = self._keys.get(place)
        if known is not None and now_s < known.until_s:
            return Taken(known.id or await self._answered(known), is_new=False)
        self._refuse_more(stream)
        self._in_flight += 1
        self._bytes += size
        coming = asyncio.create_task(
            self._put(place, stream, content, size), name="push of a stream"
        )
        coming.add_done_callback(_told)
        known = _Known(now_s + self._settings.key_window_s, "", coming)
        self._keys[place] = known
        self._keys.move_to_end(place)
        return Taken(await self._answered(known), is_new=True)

    async def close(self, within_s: float) -> None:
        """Seal all that is fed, as far as that can be done in this time."""
        if self._looking is not None:
            self._looking.cancel()
        feeds, self._feeds = list(self._feeds.values()), {}
        await asyncio.gather(*(feed.ended(within_s) for feed in feeds))

    async def _answered(self, known: _Known) -> str:
        assert known.coming is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(known.coming)
        except TimeoutError:
            raise Unreachable(
                f"the push was not on its lane after {ANSWER_S:g} s, but may still arrive there; "
                "send it again with the same key"
            ) from None
        except Lost as error:
            raise Unreachable(f"{error}; send the push again with the same key") from error

    async def _put(self, place: _Place, stream: Stream, content: Content, size: int) -> str:
        try:
            found = await self._feed(stream).put(stream, content)
        except BaseException:
            self._keys.pop(place, None)
            raise
        finally:
            self._in_flight -= 1
            self._bytes -= size
        self._keys[place] = self._keys[place]._replace(id=found, coming=None)
        self._forget_keys()
        return found

    def _feed(self, stream: Stream) -> Feed:
        place = stream.app, stream.name
        feed = self._feeds.get(place)
        if feed is None:
            feed = self._feeds[place] = Feed(self._backend, self._settings, self._clock_s)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="streams")
        return feed

    def _refuse_more(self, stream: Stream) -> None:
        """Raise for a push that could not be on its lane soon."""
        if self._in_flight >= MOST_IN_FLIGHT or self._bytes >= MOST_BYTES_IN_FLIGHT:
            raise BufferFull(
                f"{self._in_flight:,} pushes wait for the broker in this process, the most it "
                "takes; send it again, here or to another process"
            )
        feed = self._feeds.get((stream.app, stream.name))
        if feed is not None and feed.trouble:
            raise Unreachable(f"{feed.trouble}; the push was not taken, send it again")

    def _forget_keys(self) -> None:
        now_s = self._clock_s()
        while self._keys:
            place, oldest = next(iter(self._keys.items()))
            if oldest.coming is not None or (
                now_s < oldest.until_s and len(self._keys) <= MOST_KEYS
            ):
                return
            del self._keys[place]

    async def _look(self) -> None:
        """Follow the streams: one that was ended here or elsewhere is sealed within seconds."""
        share_at_s = self._clock_s() + _SHARE_S
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                found = await self.follow()
                if self._clock_s() >= share_at_s:
                    share_at_s = self._clock_s() + _SHARE_S
                    for stream in found:
                        if (stream.app, stream.name) in self._feeds:
                            await share_limits(self._backend, stream)
            except PushlaneError as error:
                extra = {"action": "streams_unseen"}
                log.warning("streams cannot be read: %s", error, extra=extra)


def _named(streams: list[Stream], name: str, apps: Collection[str] | None) -> list[Stream]:
    return [one for one in streams if one.name == name and (apps is None or one.app in apps)]


def _told(coming: asyncio.Task[str]) -> None:
    """Take note of an error that nobody waits for any more: who sent the push was told to wait."""
    if not coming.cancelled():
        coming.exception()
