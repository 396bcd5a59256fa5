"""Watches tasks, shares and sinks for all who ask: one look a second, none while nobody watches.

What changes from look to look is kept once, for all watchers, in a log of bounded size. A watcher
has no more than its place there: one that reads so slowly that its place is dropped is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import NamedTuple

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import PushlaneError
from pushlane.door.gate import FACE, Gate
from pushlane.door.problems import encode, refusal_of
from pushlane.door.watched import ALL, SHARES, SINKS, TASKS, Shown, Things, Topic, Wanted
from pushlane.model.access import REFUSED
from pushlane.operations.session import Caller, Session
from pushlane.settings import Settings
from pushlane.util.errors import NotNow, TooMany, Unauthorized

log = logging.getLogger("pushlane.serve")

EVERY_S = 1.0
HEARTBEAT_S = 15.0
MOST_STREAMS = 4_000
MOST_OF_TOKEN = 1_000
_AGAIN_S = 5.0
_MOST_BYTES = 8 * 1024 * 1024
CUT_OFF = {"action": "watcher_cut_off"}
_HEARTBEAT = b":\n\n"
_RETRY = b"retry: 2000\n\n"
_SNAPSHOT = "snapshot"
_PROBLEM = "problem"


class Entry(NamedTuple):
    """A change: of the thing of this key, of an app. Without a key it concerns all watchers."""

    key: str
    app: str | None
    is_listed: bool
    frame: bytes


class Log:
    """The present items of a topic, and the newest changes that led to them.

    A change has a number; `last` is that of the newest.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.things: Things = {}
        self.last = 0
        self._name = secrets.token_hex(4)
        self._is_new = True
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def id(self) -> str:
        """Return the id of the newest change."""
        return f"{self._name}-{self.last}"

    def number(self, event_id: str) -> int | None:
        """Return the number of a change, None for one that is not kept or never was here."""
        name, _, number = event_id.partition("-")
        if name != self._name or not number.isdecimal() or len(number) > 15:
            return None
        return None if self.after(int(number)) is None else int(number)

    def after(self, number: int) -> Sequence[Entry] | None:
        """Return the changes after this one, None where not all of them are kept."""
        behind = self.last - number
        if not 0 <= behind <= len(self._entries):
            return None
        return list(islice(self._entries, len(self._entries) - behind, None))

    def take(self, found: Things, watched: Iterable[str] = ()) -> None:
        """Note what has changed since the look before; `watched` are asked for by their keys."""
        before, self.things = self.things, found
        if self._is_new:
            self._is_new = False
            return
        for key, one in found.items():
            was = before.get(key)
            if was is None or was.body != one.body or was.is_listed != one.is_listed:
                is_listed = one.is_listed or (was is not None and was.is_listed)
                self._add(key, one._replace(is_listed=is_listed))
        gone = before.keys() - found.keys()
        for key in sorted(gone):
            if before[key].is_listed or key in watched:
                told = msgspec.json.encode({self.topic.key: key})
                self._add(key, before[key]._replace(event="gone", body=told))

    def tell(self, error: PushlaneError) -> None:
        """Tell all watchers of an error."""
        self._add("", Shown(_PROBLEM, encode(refusal_of(error).problem)))

    def _add(self, key: str, one: Shown) -> None:
        self.last += 1
        frame = b"".join(framed(one.event, [one.body], self.id()))
        self._entries.append(Entry(key, one.app, one.is_listed, frame))
        self._bytes += len(frame)
        while self._bytes > _MOST_BYTES:
            self._bytes -= len(self._entries.popleft().frame)


def framed(event: str, data: Iterable[bytes], event_id: str = "") -> list[bytes]:
    """Return the parts of an event, as `text/event-stream` has it."""
    head = f"id: {event_id}\n" if event_id else ""
    return [f"{head}event: {event}\ndata: ".encode(), *data, b"\n\n"]


class Watch:
    """A watcher, who sees what its caller may see: of tasks only the one that it names, if any."""

    def __init__(
        self, topic: Topic, caller: Caller, authorization: str, *, task: str = "", app: str = ""
    ) -> None:
        self.topic = topic
        self.caller = caller
        self.authorization = authorization
        self.task = task
        self.apps = frozenset({app}) if app else caller.access.apps
        self.log = Log(topic)
        self.is_looked_for = False
        self.is_over = False
        self.news = asyncio.Event()
        self._problem: PushlaneError | None = None

    def end(self, problem: PushlaneError | None = None) -> None:
        """End it, with what is wrong if anything is."""
        self.is_over, self._problem = True, problem
        self.news.set()

    async def looked(self) -> None:
        """Return once the first look is done. Raises what that does."""
        while not (self.is_looked_for or self.is_over):
            await self.news.wait()
            self.news.clear()
        if self.is_over:
            raise self._problem or NotNow("this process stops; ask another")

    async def ended_task(self) -> None:
        """Return once its task has ended or is forgotten, or the process stops.

        Raises Unauthorized when its token is no longer valid.
        """
        while not self.is_over:
            shown = self.log.things.get(self.task)
            if shown is None or shown.has_ended:
                return
            await self.news.wait()
            self.news.clear()
        if self._problem is not None:
            raise self._problem

    async def frames(self, last_id: str = "") -> AsyncIterator[Sequence[bytes]]:
        """Yield events in parts: what there is, unless it goes on after `last_id`; then changes."""
        yield [_RETRY]
        seen, place = self.log, self.log.number(last_id)
        loop = asyncio.get_running_loop()
        beat_s = loop.time() + HEARTBEAT_S
        while not self.is_over:
            frames: Sequence[bytes] = ()
            if self.log is not seen or place is None:
                seen, place, frames = self.log, self.log.last, self._snapshot()
            else:
                entries = seen.after(place)
                if entries is None:
                    log.info("a watcher reads too slowly: its connection is closed", extra=CUT_OFF)
                    return
                place, frames = seen.last, [one.frame for one in entries if self._sees_change(one)]
            if not frames and loop.time() >= beat_s:
                frames = (_HEARTBEAT,)
            if frames:
                yield frames
                beat_s = loop.time() + HEARTBEAT_S
            else:
                await self._news_until(beat_s)
        if self._problem is not None:
            yield framed(_PROBLEM, [encode(refusal_of(self._problem).problem)])

    async def _news_until(self, end_s: float) -> None:
        try:
            async with asyncio.timeout_at(end_s):
                await self.news.wait()
        except TimeoutError:
            return
        self.news.clear()

    def _snapshot(self) -> list[bytes]:
        things = self.log.things
        if self.task:
            shown = things.get(self.task)
            if shown is None:
                gone = msgspec.json.encode({self.topic.key: self.task})
                return framed("gone", [gone], self.log.id())
            data = [shown.body]
        else:
            mine = (one for one in things.values() if one.is_listed and self._sees(one.app))
            data = self.topic.listing(mine)
        return framed(_SNAPSHOT, data, self.log.id())

    def _sees_change(self, entry: Entry) -> bool:
        if not entry.key:
            return True
        if self.task:
            return entry.key == self.task
        return entry.is_listed and self._sees(entry.app)

    def _sees(self, app: str | None) -> bool:
        return self.apps is None or app in self.apps


class Watching:
    """All watchers of a process."""

    def __init__(
        self, backend: Backend, settings: Settings, gate: Gate, stopping: asyncio.Event
    ) -> None:
        self._at = Session(backend, settings, Caller("watching", FACE))
        self._gate = gate
        self._stopping = stopping
        self._watches: set[Watch] = set()
        self._logs = {topic: Log(topic) for topic in (TASKS, SHARES, SINKS)}
        self._failing: set[Topic] = set()
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._watches)

    @asynccontextmanager
    async def joined(self, watch: Watch) -> AsyncIterator[Watch]:
        """Keep a watcher up to date, from the next look on.

        Raises NotNow and TooMany when there are too many, and what that look does.
        """
        self._refuse_too_many(watch.caller)
        self._watches.add(watch)
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_on(), name="watching")
            await watch.looked()
            yield watch
        finally:
            self._watches.discard(watch)

    async def close(self) -> None:
        """End all of them, and look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _refuse_too_many(self, caller: Caller) -> None:
        if self._stopping.is_set():
            raise NotNow("this process stops; ask another")
        if len(self._watches) >= MOST_STREAMS:
            raise NotNow(f"this process has {MOST_STREAMS:,} watchers, the most it takes")
        if sum(one.caller.name == caller.name for one in self._watches) >= MOST_OF_TOKEN:
            raise TooMany(
                f"{caller.name} has {MOST_OF_TOKEN:,} watchers at this process, the most that a "
                "token may have; end some",
                _AGAIN_S,
            )

    async def _look_on(self) -> None:
        """Look again and again, until nobody watches or the process stops."""
        try:
            while self._watches and not self._stopping.is_set():
                await self._end_unauthorized()
                for topic in {one.topic for one in self._watches}:
                    await self._look_or_tell(topic)
                await self._stops_within(EVERY_S)
        except Exception as error:
            told = "watching ended in an unexpected %s: this is a defect in pushlane; report it"
            extra = {"action": "watching_failed"}
            log.error(told, type(error).__name__, exc_info=error, extra=extra)
        finally:
            for one in self._watches:
                one.end()

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def _end_unauthorized(self) -> None:
        given = {one.authorization for one in self._watches}
        await asyncio.gather(*map(self._end_if_unauthorized, given))

    async def _end_if_unauthorized(self, given: str) -> None:
        try:
            is_valid = await self._gate.is_still_valid(given)
        except PushlaneError:  # nobody knows: what is away is told by looks
            return
        if not is_valid:
            for one in self._watches:
                if one.authorization == given:
                    one.end(Unauthorized(REFUSED))

    async def _look_or_tell(self, topic: Topic) -> None:
        try:
            await self._look(topic)
        except PushlaneError as error:
            for one in self._of(topic):
                if not one.is_looked_for:
                    one.end(error)
            if topic not in self._failing:
                self._failing.add(topic)
                self._logs[topic].tell(error)
                self._wake(topic)

    async def _look(self, topic: Topic) -> None:
        """Look at a topic for all who watch it now. After an error they get all of it anew."""
        mine = self._of(topic)
        tasks = {one.task for one in mine if one.task}
        known = self._logs[topic]
        found = await topic.look(self._at, Wanted(_apps(mine), tasks), known.things)
        if topic in self._failing:
            self._failing.discard(topic)
            known = self._logs[topic] = Log(topic)
        known.take(found, tasks)
        for one in mine:
            one.is_looked_for = True
        self._wake(topic)

    def _wake(self, topic: Topic) -> None:
        for one in self._of(topic):
            if one.is_looked_for:
                one.log = self._logs[topic]
                one.news.set()

    def _of(self, topic: Topic) -> list[Watch]:
        return [one for one in self._watches if one.topic is topic]


def _apps(watches: Iterable[Watch]) -> set[str]:
    """Return the apps of which tasks are listed for watchers."""
    lists = [one for one in watches if not one.task]
    return {app for one in lists for app in (one.apps if one.apps is not None else (ALL,))}
