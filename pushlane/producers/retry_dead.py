"""Retries dead pushes in a new task, and only then takes them off the dead-letter lane.

A dead push was counted as dead in its own task, which may have ended, so it is a new task's push:
that keeps the counts of both exact. Dispatchers leave the new task alone until it is sealed. What
a crash cuts off before that is cancelled by the next retry; what it cuts off after that is known by
the mark that was written first, and never goes out twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pushlane.backends.backend import Backend
from pushlane.backends.queries import Browser
from pushlane.core.errors import (
    BadInput,
    MalformedPush,
    UnknownFormat,
    UnknownLane,
    UnknownTask,
    UserError,
)
from pushlane.core.names import RETRIED_LANE
from pushlane.core.publish import Ended, Publication
from pushlane.core.push import Push, RetryMark, decode, decode_mark, encode, encode_mark
from pushlane.core.task import Task
from pushlane.lanes.ports import Taken
from pushlane.model import task_changes
from pushlane.producers.dead import NO_TASK, DeadLane, DeadLetter, DeadLetters, Selection
from pushlane.producers.replay import first_attempt, heir
from pushlane.settings import Settings

_Id = tuple[str, int, int]
_Readable = list[tuple[DeadLetter, Push]]

_MARKED_AT_ONCE = 10_000
_MALFORMED = (
    "they are damaged, or were written by something else: they stay, and can be looked at by "
    "`pushlane dead show TASK-SEQ --reveal`, or purged"
)
_RETRY_AGAIN = "retry the dead pushes again"


@dataclass(frozen=True)
class Retried:
    """The retry of `count` dead pushes of a task: the task they go on in, or why they cannot.

    A task has several where some of its pushes cannot be read.
    """

    task_id: str
    count: int
    retried_as: str = ""
    problem: str = ""


class DeadRetry:
    """Retries selected pushes: a new task for each task that has dead pushes on a lane."""

    def __init__(self, backend: Backend, settings: Settings, letters: DeadLetters) -> None:
        self._backend = backend
        self._settings = settings
        self._letters = letters
        self._gone_on: set[_Id] = set()

    async def run(self, selection: Selection) -> list[Retried]:
        """Retry the selected pushes. Raises TaskConflict when another command works on
        dead ones.
        """
        return await self._letters.alone(lambda: self._run(selection))

    async def _run(self, selection: Selection) -> list[Retried]:
        await self._backend.broker.open_lane(RETRIED_LANE)
        results: list[Retried] = []
        async with Browser(self._backend.broker, RETRIED_LANE) as marks:
            await self._finish_earlier(marks)
            for name in await self._letters.lanes(selection):
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
        task = await self._backend.find(task_id)
        if task is None:
            return False
        if task.total is None and not task.state.is_terminal:
            await self._backend.registry.change(task_id, task_changes.cancel)
        return task.total is not None

    async def _remove(self, task_id: str, gone_on: set[_Id]) -> bool:
        """Remove these from their task's lanes; return whether all of each lane could be seen."""
        is_whole = True
        selection = Selection(task=task_id)
        for name in await self._letters.lanes(selection):
            async with self._letters.look(name) as lane:
                async for letters in lane.pages(selection):
                    await lane.remove_letters(one for one in letters if _id(one) in gone_on)
                is_whole = is_whole and not lane.is_full
        return is_whole

    async def _retry_lane(self, name: str, selection: Selection, most: int) -> list[Retried]:
        """Retry at most so many pushes of the lane, in several tasks if need be."""
        results: list[Retried] = []
        async with self._letters.look(name) as lane:
            while letters := await self._collect(lane, selection, most):
                most -= len(letters)
                for task_id, of_task in _by_task(letters).items():
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
        left_out = [Retried(task_id, count, problem=why) for why, count in problems.items()]
        return (
            [await self._retry_readable(lane, old, readable), *left_out] if readable else left_out
        )

    async def _retry_readable(self, lane: DeadLane, old: Task, readable: _Readable) -> Retried:
        letters, task_id = [letter for letter, _ in readable], old.id
        name = f"{old.name or old.id} (retried)"
        new = heir(old, name=name, retention_s=0.0, reason="")
        bodies = _bodies(new, readable)
        await self._mark(task_id, new.id, letters)
        new = await self._backend.add(new, self._settings)
        publication = Publication(self._backend, new, hidden=True, advice=_RETRY_AGAIN)
        try:
            await publication.open()
            await publication.publish(bodies, f"submit-{new.id}")
            await publication.seal(len(bodies))
        except Ended as error:
            return Retried(task_id, len(letters), problem=str(error))
        await lane.remove_letters(letters)
        return Retried(task_id, len(letters), new.id)

    async def _known(self, task_id: str) -> Task:
        if task_id == NO_TASK:
            raise BadInput("they are no pushes of any task: they can only be purged")
        task = await self._backend.registry.get(task_id)
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
        await self._backend.broker.publish(RETRIED_LANE, marks)


async def _all_marks(marks: Browser) -> list[tuple[Taken, RetryMark]]:
    """Return the marks that have not been shown yet."""
    found: list[tuple[Taken, RetryMark]] = []
    while page := await marks.page():
        found += [(taken, decode_mark(taken.body)) for taken in page]
    return found


def _id(letter: DeadLetter) -> _Id:
    return letter.dead.task_id, letter.dead.seq, letter.dead.died_at_ms


def _by_task(letters: Sequence[DeadLetter]) -> dict[str, list[DeadLetter]]:
    by_task: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for letter in letters:
        by_task[letter.dead.task_id or NO_TASK].append(letter)
    return by_task


def _readable(letters: Sequence[DeadLetter]) -> tuple[_Readable, Counter[str]]:
    """Return the letters whose pushes can be read, and why how many others cannot be.

    Of a malformed push of a bundle a letter holds what follows its seq, with attempt 0: that may
    look like a message of a later format, or like the push of another.
    """
    readable: _Readable = []
    problems: Counter[str] = Counter()
    for letter in letters:
        dead = letter.dead
        try:
            push = decode(dead.body)
        except MalformedPush:
            problems[_MALFORMED] += 1
        except UnknownFormat as error:
            problems[str(error) if dead.attempt else _MALFORMED] += 1
        else:
            if (push.task_id, push.seq) == (dead.task_id, dead.seq):
                readable.append((letter, push))
            else:
                problems[_MALFORMED] += 1
    return readable, problems


def _bodies(new: Task, readable: _Readable) -> list[bytes]:
    """Encode the pushes, each once, numbered anew in their order."""
    by_seq = {letter.dead.seq: (push, letter.dead.body) for letter, push in readable}
    numbers = {seq: number for number, seq in enumerate(sorted(by_seq), start=1)}
    return [
        encode(first_attempt(push, new, numbers[seq], numbers.get(push.after_seq, 0)), body)
        for seq, (push, body) in sorted(by_seq.items())
    ]
