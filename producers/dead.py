"""Finds dead pushes on the dead-letter lanes by task, reason and age, and purges them.

A lane is looked through, not drained: what is not removed stays. One process at a time does so.
Nothing here looks into a push; whoever asks for one decodes its body.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pushlane.lanes.backend import Backend
from pushlane.lanes.browse import MOST_HELD, Browser
from pushlane.lanes.errors import BadInput, MalformedPush, UnknownFormat, UnknownLane
from pushlane.lanes.naming import DEAD_LANE, DEAD_LEASE, dead_lane, is_dead
from pushlane.lanes.ports import Taken
from pushlane.lanes.push import DeadPush, decode_dead
from pushlane.producers.lease_guard import LeaseGuard

log = logging.getLogger("pushlane.dead")

Result = TypeVar("Result")

NO_TASK = "-"


class DeadLetter(NamedTuple):
    """A dead push, and the message on the lane that holds it."""

    taken: Taken
    dead: DeadPush


@dataclass(frozen=True)
class Selection:
    """The choice of dead pushes: those that fit every part that is given.

    `task` is an id, `-` for messages that are no push. `reason` is a part of the reason, in any
    case. `pushes` are ids like TASK-SEQ. Times are Unix milliseconds. A `limit` of 0 is none.
    """

    task: str = ""
    pushes: frozenset[str] = frozenset()
    reason: str = ""
    died_before_ms: int = 0
    died_after_ms: int = 0
    limit: int = 0

    def takes(self, dead: DeadPush) -> bool:
        return (
            (not self.task or self.task == (dead.task_id or NO_TASK))
            and (not self.pushes or push_id(dead) in self.pushes)
            and self.reason.lower() in dead.reason.lower()
            and (not self.died_before_ms or dead.died_at_ms <= self.died_before_ms)
            and (not self.died_after_ms or dead.died_at_ms >= self.died_after_ms)
        )

    def takes_lane(self, lane: str) -> bool:
        """Return whether a dead push of this selection can be on the lane."""
        tasks = {self.task} if self.task else {task_of_push(push) for push in self.pushes}
        return lane == DEAD_LANE or not tasks or lane in map(dead_lane, tasks)


def push_id(dead: DeadPush) -> str:
    """Return its id; a message that is no push has one by the time of its death."""
    if not dead.task_id:
        return f"malformed-{dead.died_at_ms}"
    return f"{dead.task_id}-{dead.seq}"


def task_of_push(push: str) -> str:
    """Return the task in a push's id.

    Raises:
        BadInput: it is no id of a push.
    """
    task, dash, seq = push.rpartition("-")
    if not (task and dash and seq.isascii() and seq.isdigit()):
        raise BadInput(f"{push!r} is no push; give TASK-SEQ, as `pushlane dead list` shows it")
    return task


@dataclass
class FoundDead:
    """The result of a search, and the lanes that it could not look through to the end."""

    letters: list[DeadLetter] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


class DeadLane:
    """One dead-letter lane that is being looked through."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.name = browser.lane
        self.remove = browser.remove
        self._has_told = False

    @property
    def is_cut(self) -> bool:
        """Whether the lane may have more pushes than could be looked at."""
        return self._browser.is_full

    async def pages(self, selection: Selection) -> AsyncIterator[list[DeadLetter]]:
        """Yield the selected pushes page by page, oldest first, as far as they can be looked at."""
        while page := await self._browser.page():
            letters = [DeadLetter(taken, dead) for taken in page if (dead := self._read(taken))]
            yield [letter for letter in letters if selection.takes(letter.dead)]

    def _read(self, taken: Taken) -> DeadPush | None:
        """Return the dead push; None for an unknown format, of which every message stays."""
        try:
            return decode_dead(taken.body)
        except MalformedPush as error:
            return DeadPush("", 0, 0, f"malformed: {error}", 0, taken.body)
        except UnknownFormat as error:
            if not self._has_told:
                log.warning("lane %s: %s", self.name, error, extra={"action": "format_unknown"})
            self._has_told = True
            return None


class DeadLetters:
    """The dead-letter lanes of a backend; a look at one holds at most `most_held` messages."""

    def __init__(self, backend: Backend, most_held: int = MOST_HELD) -> None:
        self._backend = backend
        self._most_held = most_held

    async def alone(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do the work while no other process looks through the dead pushes.

        Raises:
            TaskConflict: another one does, and goes on.
        """
        busy = "another command looks through the dead pushes; wait for it to end, then try again"
        guard = LeaseGuard(self._backend.lease, DEAD_LEASE, busy, asyncio.sleep)
        return await guard.run(work, lambda: None)

    async def find(self, selection: Selection) -> FoundDead:
        """Return the selected dead pushes; see `alone` for what it raises."""
        return await self.alone(lambda: self._find(selection))

    async def purge(self, selection: Selection) -> int:
        """Remove the selected dead pushes for good; return how many there were."""
        return await self.alone(lambda: self._purge(selection))

    async def lanes(self, selection: Selection) -> list[str]:
        """Return the dead-letter lanes on which a selected push can be."""
        names = await self._backend.broker.lanes()
        return [name for name in names if is_dead(name) and selection.takes_lane(name)]

    @asynccontextmanager
    async def look(self, lane: str) -> AsyncIterator[DeadLane]:
        """Look through one lane; in the end, what is not removed is there as before."""
        async with Browser(self._backend.broker, lane, self._most_held) as browser:
            yield DeadLane(browser)

    async def _find(self, selection: Selection) -> FoundDead:
        found = FoundDead()
        for lane in await self.lanes(selection):
            if selection.limit and len(found.letters) >= selection.limit:
                break
            with suppress(UnknownLane):  # dropped meanwhile with its task
                await self._add(found, lane, selection)
        if selection.limit:
            del found.letters[selection.limit :]
        return found

    async def _add(self, found: FoundDead, name: str, selection: Selection) -> None:
        async with self.look(name) as lane:
            async for letters in lane.pages(selection):
                found.letters += letters
                if selection.limit and len(found.letters) >= selection.limit:
                    return
            if lane.is_cut:
                found.cut.append(name)

    async def _purge(self, selection: Selection) -> int:
        purged = 0
        for name in await self.lanes(selection):
            most = selection.limit - purged if selection.limit else sys.maxsize
            with suppress(UnknownLane):  # dropped meanwhile with its task
                purged += await self._purge_lane(name, selection, most)
        return purged

    async def _purge_lane(self, name: str, selection: Selection, most: int) -> int:
        purged = 0
        async with self.look(name) as lane:
            async for letters in lane.pages(selection):
                if purged >= most:
                    break
                taken = [letter.taken for letter in letters[: most - purged]]
                await lane.remove(taken)
                purged += len(taken)
        return purged
