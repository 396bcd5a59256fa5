"""Keeps open pages up to date: a look every 0.75 s at each that somebody sees, none at any other.

Who sees the same page with the same rights is sent the same bytes, which are rendered once. A
stream ends with its token, within a second, however long a look takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from time import monotonic, thread_time

from pushlane.core.errors import PushlaneError
from pushlane.core.task import now_ms
from pushlane.util.errors import NotNow

log = logging.getLogger("pushlane.serve")

EVERY_S = 0.75
_TOKENS_EVERY_S = 0.6
BEAT_S = 5.0
"""A browser that hears nothing for longer than twice this says that its connection is lost."""
MOST_OF_A_CORE = 0.15
"""Looks at more than a few different pages take this part at most: each is looked at less often."""
_FEW = 4
MOST_OPEN = 1_000

Look = Callable[[], Awaitable[bytes]]
IsValid = Callable[[str], Awaitable[bool]]

_RETRY = b"retry: 500\n\n"
_ENDED = b"event: ended\ndata: \n\n"


class Open:
    """A page that is open in somebody's browser."""

    def __init__(self, seen: Seen, authorization: str) -> None:
        self.seen = seen
        self.authorization = authorization
        self.news = asyncio.Event()
        self.is_over = False
        self.is_refused = False

    def end(self) -> None:
        """End it: its reader has gone, or this process stops."""
        self.is_over = True
        self.news.set()

    def refuse(self) -> None:
        """End it, as its token is valid no longer."""
        self.is_refused = True
        self.end()

    async def frames(self, own: Callable[[bytes], bytes]) -> AsyncIterator[Sequence[bytes]]:
        """Yield events: the page as it is, then whenever it changes, and beats between.

        `own` puts what is the reader's own into what all are sent.
        """
        yield [_RETRY]
        shown = away = b""
        loop = asyncio.get_running_loop()
        beat_s = loop.time()
        while not self.is_over:
            frames: list[bytes] = []
            if self.seen.away != away:
                away = self.seen.away
                frames.append(_event("away", away))
            if not away and self.seen.html != shown:
                shown = self.seen.html
                frames.append(_event("", own(shown)))
            if loop.time() >= beat_s:
                frames.append(_event("beat", str(now_ms()).encode()))
                beat_s = loop.time() + BEAT_S
            if frames:
                yield frames
            else:
                await self._news_until(beat_s)
        if self.is_refused:
            yield [_ENDED]

    async def _news_until(self, end_s: float) -> None:
        try:
            async with asyncio.timeout_at(end_s):
                await self.news.wait()
        except TimeoutError:
            return
        self.news.clear()


class Seen:
    """A page as all who see the same of it do: its newest bytes, or what is away since."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.html = b""
        self.away = b""

    async def look(self) -> bool:
        """Look again. Returns whether there is something new."""
        before = self.html, self.away
        try:
            self.html, self.away = await self._look(), b""
        except PushlaneError as error:
            self.away = str(error).encode()
        return before != (self.html, self.away)


class Live:
    """All pages that are open at this process."""

    def __init__(self, is_valid: IsValid, stopping: asyncio.Event) -> None:
        self._is_valid = is_valid
        self._stopping = stopping
        self._open: set[Open] = set()
        self._seen: dict[Hashable, Seen] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def looked_at(self) -> int:
        """So many different pages are looked at."""
        return len(self._seen)

    def opened(self, key: Hashable, look: Look, authorization: str) -> Open:
        """Return a page to join. Who has the same key sees the same. Raises NotNow at the bound."""
        if self._stopping.is_set():
            raise NotNow("this process stops; ask another")
        if len(self._open) >= MOST_OPEN:
            raise NotNow(f"this process has {MOST_OPEN:,} open pages, the most it takes")
        return Open(self._seen.get(key) or self._seen.setdefault(key, Seen(look)), authorization)

    @asynccontextmanager
    async def joined(self, page: Open) -> AsyncIterator[Open]:
        """Keep a page up to date."""
        self._open.add(page)
        self._keep_at("looks of the console", self._look_on)
        self._keep_at("tokens of the console", self._check_on)
        try:
            if not page.seen.html:
                await self._look(page.seen)
            yield page
        finally:
            self._open.discard(page)
            self._forget_unseen()

    def _forget_unseen(self) -> None:
        still = {one.seen for one in self._open}
        self._seen = {key: seen for key, seen in self._seen.items() if seen in still}

    def _keep_at(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Have some work done until no page is open or the process stops."""
        if (known := self._at_work.get(name)) is None or known.done():
            self._at_work[name] = asyncio.create_task(self._guarded(work), name=name)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            told = "the console ended in an unexpected %s: this is a defect in pushlane; report it"
            extra = {"action": "console_failed"}
            log.error(told, type(error).__name__, exc_info=error, extra=extra)
        finally:
            for one in self._open:
                one.end()

    async def _look_on(self) -> None:
        due_s = 0.0
        while self._open and not await self._stops_within(EVERY_S):
            if len(self._seen) > _FEW and monotonic() < due_s:
                continue
            began_s = thread_time()
            await asyncio.gather(*map(self._look, {one.seen for one in self._open}))
            due_s = monotonic() + (thread_time() - began_s) / MOST_OF_A_CORE

    async def _check_on(self) -> None:
        while self._open and not await self._stops_within(_TOKENS_EVERY_S):
            given = {one.authorization for one in self._open}
            await asyncio.gather(*map(self._end_if_refused, given))

    async def _look(self, seen: Seen) -> None:
        if await seen.look():
            for one in self._open:
                if one.seen is seen:
                    one.news.set()

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def _end_if_refused(self, authorization: str) -> None:
        try:
            if await self._is_valid(authorization):
                return
        except PushlaneError:  # nobody knows: what is away is told by looks
            return
        for one in self._open:
            if one.authorization == authorization:
                one.refuse()


def _event(name: str, data: bytes) -> bytes:
    """Return an event of `text/event-stream`; one without a name is HTML, to be shown."""
    head = f"event: {name}\n".encode() if name else b""
    lines = b"".join(b"data: " + line + b"\n" for line in data.splitlines() or [b""])
    return head + lines + b"\n"
