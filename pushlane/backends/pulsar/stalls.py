"""Finds readers that the broker sends nothing, though it has messages for them, and mends that.

A broker has been seen to stop sending on a shared subscription for good: its dispatcher waits for a
read that nobody makes (apache/pulsar issues 26454 and 23845). All else looks well, so without this
such a lane would wait until somebody unloads its topic. An ack that was lost on its way shows alike
and is mended alike.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from pushlane.core.errors import PushlaneError

log = logging.getLogger("pushlane.pulsar")

_EVERY_S = 1.0
_FIRST_LOOK_S = 5.0
_MOST_APART_S = 300.0
_MOST_LOOKS = 8


class IdleReader(Protocol):
    """A reader that waits for a message, and has had so many."""

    lane: str
    given: int

    @property
    def consumer_name(self) -> str:
        """The name that the broker knows its consumer by."""

    @property
    def is_idle(self) -> bool:
        """Tell whether it waits still, and nothing that it gave out is unacked."""


ReaderT = TypeVar("ReaderT", bound=IdleReader)


@dataclass
class _Silence:
    """Notes since when a reader has been sent nothing; by then it had `given` messages."""

    given: int
    since_s: float
    due_s: float
    looks: int = 0
    is_suspect: bool = False
    mended: int = 0


class Topic(NamedTuple):
    """Asks a broker about a lane, and has it begin anew.

    `unsent` returns how many messages it could send to the consumer of this name; `unload` closes
    the topic, which all its consumers then open again.
    """

    unsent: Callable[[str, str], Awaitable[int]]
    unload: Callable[[str], Awaitable[None]]


@dataclass(eq=False)
class StallWatch(Generic[ReaderT]):
    """Asks about readers that are sent nothing: 5 s after the last message, then ever less often.

    What the broker has is only believed when it says so twice, a second apart, and nothing came
    meanwhile. Then the reader is opened anew; when that changes nothing, as when readers of other
    processes are there, the topic is unloaded. It asks about at most 8 readers a second, first
    those that it has asked about least, so that thousands of idle lanes cost little.
    """

    topic: Topic
    clock_s: Callable[[], float] = time.monotonic
    _silences: dict[ReaderT, _Silence] = field(default_factory=dict)

    async def run(
        self,
        idle: Callable[[], Sequence[ReaderT]],
        reopen: Callable[[ReaderT], Awaitable[None]],
    ) -> None:
        """Look once a second, for ever. `idle` returns the readers that wait now."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.look(idle(), reopen)

    async def look(
        self, idle: Sequence[ReaderT], reopen: Callable[[ReaderT], Awaitable[None]]
    ) -> None:
        """Ask about those that it is time for, and mend what is stalled."""
        now_s = self.clock_s()
        known = self._silences
        self._silences = {one: self._silence(one, known.get(one), now_s) for one in idle}
        due = [one for one in idle if self._silences[one].due_s <= now_s]
        due.sort(key=lambda one: (self._silences[one].looks, self._silences[one].due_s))
        await asyncio.gather(*(self._ask(one, reopen) for one in due[:_MOST_LOOKS]))

    def _silence(self, reader: ReaderT, known: _Silence | None, now_s: float) -> _Silence:
        if known is not None and known.given == reader.given:
            return known
        return _Silence(reader.given, now_s, now_s + _FIRST_LOOK_S)

    async def _ask(self, reader: ReaderT, reopen: Callable[[ReaderT], Awaitable[None]]) -> None:
        silence = self._silences[reader]
        silence.looks += 1
        apart_s = min(_FIRST_LOOK_S * 2**silence.looks, _MOST_APART_S)
        silence.due_s = self.clock_s() + apart_s
        try:
            unsent = await self.topic.unsent(reader.lane, reader.consumer_name)
            if not reader.is_idle or reader.given != silence.given:
                return
            if unsent and silence.is_suspect:
                await self._mend(reader, silence, unsent, reopen)
            elif unsent:
                silence.due_s = self.clock_s() + _EVERY_S
            silence.is_suspect = bool(unsent) and not silence.is_suspect
        except PushlaneError as error:  # the next look is due
            log.debug("lane %s cannot be looked at: %s", reader.lane, error)

    async def _mend(
        self,
        reader: ReaderT,
        silence: _Silence,
        unsent: int,
        reopen: Callable[[ReaderT], Awaitable[None]],
    ) -> None:
        unloads = bool(silence.mended)
        log.warning(
            "lane %s: the broker has %d messages and has sent none for %.0f s; %s",
            reader.lane,
            unsent,
            self.clock_s() - silence.since_s,
            "its topic is unloaded" if unloads else "it is read anew",
            extra={"action": "lane_stalled"},
        )
        silence.mended += 1
        silence.due_s = self.clock_s() + _FIRST_LOOK_S * 2**silence.mended
        await (self.topic.unload(reader.lane) if unloads else reopen(reader))
