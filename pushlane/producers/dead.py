"""Finds dead pushes on the dead-letter lanes by task, reason and age, and purges them.

A lane is looked through, not drained: what is not removed stays. One process at a time does so.
Nothing here looks into a push; whoever asks for one decodes its body.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pushlane.backends.backend import Backend
from pushlane.backends.leases import LeaseGuard
from pushlane.backends.queries import MOST_HELD, Browser
from pushlane.core.errors import BadInput, MalformedPush, UnknownFormat, UnknownLane
from pushlane.core.names import DEAD_LANE, DEAD_LEASE, dead_lane, is_dead
from pushlane.core.push import DeadPush, decode_dead
from pushlane.lanes.ports import Taken

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

    @property
    def most(self) -> int:
        """How many pushes may be chosen."""
        return self.limit or sys.maxsize

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


class DeadLane(Browser):
    """A look through one dead-letter lane; what is not removed is there as before in the end."""

    _has_told = False

    async def pages(
        self, selection: Selection, most: int = sys.maxsize
    ) -> AsyncIterator[list[DeadLetter]]:
        """Yield the selected pushes page by page, oldest first, as far as they can be looked at."""
        while most > 0 and (page := await self.page()):
            letters = [DeadLetter(taken, dead) for taken in page if (dead := self._read(taken))]
            chosen = [letter for letter in letters if selection.takes(letter.dead)][:most]
            most -= len(chosen)
            yield chosen

    async def remove_letters(self, letters: Iterable[DeadLetter]) -> None:
        """Take these off the lane for good."""
        await self.remove([letter.taken for letter in letters])

    def _read(self, taken: Taken) -> DeadPush | None:
        """Return the dead push; None for an unknown format, of which every message stays."""
        try:
            return decode_dead(taken.body)
        except MalformedPush as error:
            return DeadPush("", 0, 0, f"malformed: {error}", 0, taken.body)
        except UnknownFormat as error:
            if not self._has_told:
                log.warning("lane %s: %s", self.lane, error, extra={"action": "format_unknown"})
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

    def look(self, lane: str) -> DeadLane:
        """Return a look through one lane, to be entered."""
        return DeadLane(self._backend.broker, lane, self._most_held)

    async def _find(self, selection: Selection) -> FoundDead:
        found = FoundDead()
        for name in await self.lanes(selection):
            if len(found.letters) >= selection.most:
                break
            with suppress(UnknownLane):  # dropped meanwhile with its task
                await self._add(found, name, selection)
        return found

    async def _add(self, found: FoundDead, name: str, selection: Selection) -> None:
        async with self.look(name) as lane:
            async for letters in lane.pages(selection, selection.most - len(found.letters)):
                found.letters += letters
            if lane.is_full and len(found.letters) < selection.most:
                found.cut.append(name)

    async def _purge(self, selection: Selection) -> int:
        purged = 0
        for name in await self.lanes(selection):
            with suppress(UnknownLane):  # dropped meanwhile with its task
                async with self.look(name) as lane:
                    async for letters in lane.pages(selection, selection.most - purged):
                        await lane.remove_letters(letters)
                        purged += len(letters)
        return purged
