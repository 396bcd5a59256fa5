"""Finds dead pushes on the dead-letter lanes by task, reason and age, retries and purges them.

A lane is looked through, not drained: what is not removed stays. One process at a time does so.

A dead push was counted as dead in its own task, which may have ended, so a retry makes it a new
task's push, and only then takes it off the dead-letter lane: that keeps the counts of both exact.
Dispatchers leave the new task alone until it is sealed. What a crash cuts off before that is
cancelled by the next retry; what it cuts off after that is known by the mark that was written
first, and never goes out twice.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pushlane.backends.backend import Backend
from pushlane.backends.leases import LeaseGuard
from pushlane.backends.queries import MOST_HELD, Browser
from pushlane.core.errors import BadInput, MalformedPush, UnknownFormat, UnknownLane, UserError
from pushlane.core.names import DEAD_LANE, dead_lane, is_dead
from pushlane.core.ports import Taken
from pushlane.core.publish import Ended, Publication
from pushlane.core.push import DeadPush, Push, decode, encode
from pushlane.core.task import Task
from pushlane.model import task_changes
from pushlane.model.dead_letters import RetryMark, decode_dead, decode_mark, encode_mark
from pushlane.model.names import DEAD_LEASE, RETRIED_LANE
from pushlane.producers.replay import first_attempt, heir
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask

log = logging.getLogger("pushlane.dead")

Result = TypeVar("Result")

NO_TASK = "-"
_SEPARATOR = "\0"
_LEAST_LOOKED_AT = 100
_MOST_LOOKED_AT = 1_000


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


async def chosen(
    backend: Backend,
    *,
    task: str = "",
    pushes: Iterable[str] = (),
    reason: str = "",
    older_than_ms: int = 0,
    newer_than_ms: int = 0,
    limit: int = 0,
) -> Selection:
    """Return the selection of dead pushes by the task's id, key or name, and by ages as of now.

    Raises:
        BadInput: one of the pushes is no id of a push.
        UnknownTask: there is no such task.
    """
    for push in pushes:
        task_of_push(push)
    now_ms = task_changes.now_ms()
    if task and task != NO_TASK:
        task = (await backend.registry.get(task)).id
    return Selection(
        task=task,
        pushes=frozenset(pushes),
        reason=reason,
        died_before_ms=now_ms - older_than_ms if older_than_ms else 0,
        died_after_ms=now_ms - newer_than_ms if newer_than_ms else 0,
        limit=limit,
    )


def push_id(dead: DeadPush) -> str:
    """Return its id; a message that is no push has one by the time of its death."""
    if not dead.task_id:
        return f"malformed-{dead.died_at_ms}"
    return f"{dead.task_id}-{dead.seq}"


def task_of_push(push: str) -> str:
    """Return the task in a push's id. Raises BadInput when it is no id of a push."""
    task, dash, seq = push.rpartition("-")
    if not (task and dash and seq.isascii() and seq.isdigit()):
        raise BadInput(f"{push!r} is not a push; give TASK-SEQ, as `pushlane dead list` shows it")
    return task


@dataclass
class FoundDead:
    """The result of a search, and the lanes that it could not look through to the end."""

    letters: list[DeadLetter] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


class PlacedDead(NamedTuple):
    """A dead push, and its place among all, which it has as long as it is there."""

    place: str
    dead: DeadPush


@dataclass
class Purge:
    """How far a purge has come: so many are removed; of `in_doubt` more nobody knows, as yet."""

    removed: int = 0
    in_doubt: int = 0


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
            return _dead_of(taken.body)
        except UnknownFormat as error:
            if not self._has_told:
                _tell_unknown(self.lane, error)
            self._has_told = True
            return None


def _dead_of(body: bytes) -> DeadPush:
    """Return the dead push, or the message that is no push. Raises UnknownFormat."""
    try:
        return decode_dead(body)
    except MalformedPush as error:
        return DeadPush("", 0, 0, f"malformed: {error}", 0, body)


def _tell_unknown(lane: str, error: UnknownFormat) -> None:
    log.warning("lane %s: %s", lane, error, extra={"action": "format_unknown"})


@dataclass(frozen=True)
class DeadLetters:
    """The dead-letter lanes of a backend; a look at one holds at most `most_held` messages."""

    backend: Backend
    most_held: int = MOST_HELD

    async def alone(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do the work. Raises TaskConflict while another process looks through the dead pushes."""
        busy = "another command looks through the dead pushes; wait for it to end, then try again"
        guard = LeaseGuard(self.backend.lease, DEAD_LEASE, busy, asyncio.sleep)
        return await guard.run(work, lambda: None)

    async def find(self, selection: Selection) -> FoundDead:
        """Return the selected dead pushes; see `alone` for what it raises."""
        return await self.alone(lambda: self._find(selection))

    async def page(self, selection: Selection, after: str = "") -> list[PlacedDead]:
        """Return the selected dead pushes behind a place, lane by lane, as they came there.

        Nothing is taken off a lane for it, so it may be done beside a retry or a purge. Raises
        BadInput for what is no place.
        """
        last_lane, _, place = after.partition(_SEPARATOR)
        found: list[PlacedDead] = []
        for lane in await self.lanes(selection):
            if lane >= last_lane:
                behind = place if lane == last_lane else ""
                await self._add_placed(found, lane, behind, selection)
        return found

    async def purge(self, selection: Selection, purged: Purge | None = None) -> int:
        """Remove the selected dead pushes for good; return how many there were.

        `purged` is kept up to date, so it says what was done when a fault breaks it off.
        """
        counted = Purge() if purged is None else purged
        await self.alone(lambda: self._purge(selection, counted))
        return counted.removed

    async def lanes(self, selection: Selection) -> list[str]:
        """Return the dead-letter lanes on which a selected push can be, in their order."""
        names = await self.backend.broker.lanes()
        return sorted(name for name in names if is_dead(name) and selection.takes_lane(name))

    def look(self, lane: str) -> DeadLane:
        """Return a look through one lane, to be entered."""
        return DeadLane(self.backend.broker, lane, self.most_held)

    async def _find(self, selection: Selection) -> FoundDead:
        found = FoundDead()
        for name in await self.lanes(selection):
            if len(found.letters) >= selection.most:
                break
            with suppress(UnknownLane):  # dropped meanwhile with its task
                await self._add(found, name, selection)
        return found

    async def _add_placed(
        self, found: list[PlacedDead], lane: str, place: str, selection: Selection
    ) -> None:
        """Add those of a lane behind a place there, as many as may be chosen."""
        has_told = False
        while (left := selection.most - len(found)) > 0:
            most = max(_LEAST_LOOKED_AT, min(left, _MOST_LOOKED_AT))
            looked_at = await self.backend.broker.unacked(lane, place, most)
            for one in looked_at:
                try:
                    dead = _dead_of(one.body)
                except UnknownFormat as error:
                    if not has_told:
                        _tell_unknown(lane, error)
                    has_told = True
                    continue
                if selection.takes(dead):
                    found.append(PlacedDead(f"{lane}{_SEPARATOR}{one.place}", dead))
            del found[selection.most :]
            if len(looked_at) < most:
                return
            place = looked_at[-1].place

    async def _add(self, found: FoundDead, name: str, selection: Selection) -> None:
        async with self.look(name) as lane:
            async for letters in lane.pages(selection, selection.most - len(found.letters)):
                found.letters += letters
            if lane.is_full and len(found.letters) < selection.most:
                found.cut.append(name)

    async def _purge(self, selection: Selection, purged: Purge) -> None:
        for name in await self.lanes(selection):
            with suppress(UnknownLane):  # dropped meanwhile with its task
                async with self.look(name) as lane:
                    async for letters in lane.pages(selection, selection.most - purged.removed):
                        purged.in_doubt = len(letters)
                        await lane.remove_letters(letters)
                        purged.removed, purged.in_doubt = purged.removed + len(letters), 0


_Id = tuple[str, int, int]
_Readable = list[tuple[DeadLetter, Push]]

_MARKED_AT_ONCE = 10_000
_MALFORMED = (
    "they are damaged, or were written by something else: they stay; see them with `pushlane "
    "dead show TASK-SEQ --reveal`, or purge them"
)


@dataclass(frozen=True)
class Retried:
    """The retry of `count` dead pushes of a task: the task they go on in, or why they cannot.

    A task has several where some of its pushes cannot be read.
    """

    task_id: str
    count: int
    retried_as: str = ""
    problem: str = ""


@dataclass(eq=False, repr=False)
class DeadRetry:
    """Retries selected pushes: a new task for each task that has dead pushes on a lane.

    `sent` are the retries that go on, also when a fault breaks off the others. Of the one
    `in_doubt` nobody knows, as yet.
    """

    backend: Backend
    settings: Settings
    letters: DeadLetters
    sent: list[Retried] = field(default_factory=list, init=False)
    in_doubt: Retried | None = field(default=None, init=False)
    _gone_on: set[_Id] = field(default_factory=set, init=False)

    async def run(self, selection: Selection) -> list[Retried]:
        """Retry the selected pushes. Raises TaskConflict if another command works on dead ones."""
        return await self.letters.alone(lambda: self._run(selection))

    async def _run(self, selection: Selection) -> list[Retried]:
        await self.backend.broker.open_lane(RETRIED_LANE)
        results: list[Retried] = []
        async with Browser(self.backend.broker, RETRIED_LANE) as marks:
            await self._finish_earlier(marks)
            for name in await self.letters.lanes(selection):
                most = selection.most - sum(result.count for result in results)
                if most <= 0:
                    break
                with suppress(UnknownLane):  # dropped meanwhile with its task
                    results += await self._retry_lane(name, selection, most)
            made = {result.retried_as for result in results}
            for taken, mark in await _all_marks(marks):
                if mark.retried_as in made:
                    await marks.remove([taken])
        return results

    async def _finish_earlier(self, marks: Browser) -> None:
        """Finish what a crash cut off: remove pushes that go on, cancel tasks not sealed."""
        for taken, mark in await _all_marks(marks):
            if await self._is_sealed(mark.retried_as):
                gone_on = {(mark.task_id, seq, died_at_ms) for seq, died_at_ms in mark.pushes}
                if not await self._remove(mark.task_id, gone_on):
                    self._gone_on |= gone_on
                    continue
            await marks.remove([taken])

    async def _is_sealed(self, task_id: str) -> bool:
        """Return whether the task is sealed; cancel one that is not, since it was never begun."""
        task = await self.backend.find(task_id)
        if task is None:
            return False
        if task.total is None and not task.state.is_terminal:
            await self.backend.registry.change(task_id, task_changes.cancel)
        return task.total is not None

    async def _remove(self, task_id: str, gone_on: set[_Id]) -> bool:
        """Remove these from their task's lanes; return whether all of each lane could be seen."""
        is_whole = True
        selection = Selection(task=task_id)
        for name in await self.letters.lanes(selection):
            async with self.letters.look(name) as lane:
                async for letters in lane.pages(selection):
                    await lane.remove_letters(one for one in letters if _id(one) in gone_on)
                is_whole = is_whole and not lane.is_full
        return is_whole

    async def _retry_lane(self, name: str, selection: Selection, most: int) -> list[Retried]:
        """Retry at most so many pushes of the lane, in several tasks if need be."""
        results: list[Retried] = []
        async with self.letters.look(name) as lane:
            while letters := await self._collect(lane, selection, most):
                most -= len(letters)
                by_task: defaultdict[str, list[DeadLetter]] = defaultdict(list)
                for letter in letters:
                    by_task[letter.dead.task_id or NO_TASK].append(letter)
                for task_id, of_task in by_task.items():
                    results += await self._retry_task(lane, task_id, of_task)
                if not any(result.retried_as for result in results):
                    break
        return results

    async def _collect(self, lane: DeadLane, selection: Selection, most: int) -> list[DeadLetter]:
        """Return the selected pushes that do not go on already, as far as they can be held."""
        found: list[DeadLetter] = []
        pages = lane.pages(selection)
        while len(found) < most and (letters := await anext(pages, None)) is not None:
            await lane.remove_letters(one for one in letters if _id(one) in self._gone_on)
            found += [one for one in letters if _id(one) not in self._gone_on]
        return found[:most]

    async def _retry_task(
        self, lane: DeadLane, task_id: str, letters: list[DeadLetter]
    ) -> list[Retried]:
        """Retry those of a task that can be read; the others stay where they are."""
        try:
            old = await self._known(task_id)
        except (UserError, UnknownFormat) as error:
            return [Retried(task_id, len(letters), problem=str(error))]
        readable, problems = _readable(letters)
        retried = [await self._retry_readable(lane, old, readable)] if readable else []
        return retried + [Retried(task_id, count, problem=why) for why, count in problems.items()]

    async def _retry_readable(self, lane: DeadLane, old: Task, readable: _Readable) -> Retried:
        letters, task_id = [letter for letter, _ in readable], old.id
        name = f"{old.name or old.id} (retried)"
        new = heir(old, name=name, retention_s=0.0, reason="")
        bodies = _bodies(new, readable)
        await self._mark(task_id, new.id, letters)
        new = await self.backend.add(new, self.settings)
        publication = Publication(
            self.backend, new, hidden=True, advice="retry the dead pushes again"
        )
        try:
            await publication.open()
            await publication.publish(bodies, f"submit-{new.id}")
            self.in_doubt = Retried(task_id, len(letters), new.id)
            await publication.seal(len(bodies))
        except Ended as error:
            self.in_doubt = None
            return Retried(task_id, len(letters), problem=str(error))
        sent, self.in_doubt = self.in_doubt, None
        self.sent.append(sent)
        await lane.remove_letters(letters)
        return sent

    async def problem_of(self, task_id: str) -> str:
        """Return why no dead push of a task can be retried; empty where they can."""
        try:
            await self._known(task_id)
        except (UserError, UnknownFormat) as error:
            return str(error)
        return ""

    async def _known(self, task_id: str) -> Task:
        if task_id == NO_TASK:
            raise BadInput("they belong to no task: they can only be purged")
        task = await self.backend.registry.get(task_id)
        if task.id != task_id:
            raise UnknownTask(f"task {task_id} is no longer kept: they can only be purged")
        if task.expires_at_ms and task.expires_at_ms <= task_changes.now_ms():
            raise BadInput(f"task {task_id} has expired: none would be sent; purge them")
        return task

    async def _mark(self, task_id: str, retried_as: str, letters: Sequence[DeadLetter]) -> None:
        pushes = [(letter.dead.seq, letter.dead.died_at_ms) for letter in letters]
        marks = [
            encode_mark(RetryMark(task_id, retried_as, pushes[first : first + _MARKED_AT_ONCE]))
            for first in range(0, len(pushes), _MARKED_AT_ONCE)
        ]
        await self.backend.broker.publish(RETRIED_LANE, marks)


async def _all_marks(marks: Browser) -> list[tuple[Taken, RetryMark]]:
    """Return the marks that have not been shown yet."""
    found: list[tuple[Taken, RetryMark]] = []
    while page := await marks.page():
        found += [(taken, decode_mark(taken.body)) for taken in page]
    return found


def _id(letter: DeadLetter) -> _Id:
    return letter.dead.task_id, letter.dead.seq, letter.dead.died_at_ms


def _readable(letters: Sequence[DeadLetter]) -> tuple[_Readable, Counter[str]]:
    """Return the letters whose pushes can be read, and why how many others cannot be."""
    readable: _Readable = []
    problems: Counter[str] = Counter()
    for letter in letters:
        push = push_of(letter.dead)
        if isinstance(push, Push):
            readable.append((letter, push))
        else:
            problems[push] += 1
    return readable, problems


def push_of(dead: DeadPush) -> Push | str:
    """Return the push that a letter holds, or why it cannot be read.

    Of a malformed push of a bundle a letter holds what follows its seq, with attempt 0: that may
    look like a message of a later format, or like the push of another.
    """
    try:
        push = decode(dead.body)
    except MalformedPush:
        return _MALFORMED
    except UnknownFormat as error:
        return str(error) if dead.attempt else _MALFORMED
    return push if (push.task_id, push.seq) == (dead.task_id, dead.seq) else _MALFORMED


def _bodies(new: Task, readable: _Readable) -> list[bytes]:
    """Encode the pushes, each once, numbered anew in their order."""
    by_seq = {letter.dead.seq: (push, letter.dead.body) for letter, push in readable}
    numbers = {seq: number for number, seq in enumerate(sorted(by_seq), start=1)}
    return [
        encode(first_attempt(push, new, numbers[seq], numbers.get(push.after_seq, 0)), body)
        for seq, (push, body) in sorted(by_seq.items())
    ]
