"""Readings of the journal: their sum, and which tasks it does not have."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from pushlane.backends.ports import Journal, JournalPage
from pushlane.model.task_bytes import Merged

WEIGHTS_KEY = ":weights"  # no task id begins with a colon
DOCUMENT_KEY = ":shelf:"


def is_task(key: str) -> bool:
    """Tell whether the journal has a task under this key."""
    return key != WEIGHTS_KEY and not key.startswith(DOCUMENT_KEY)


@dataclass(kw_only=True, eq=False, repr=False)
class JournalSum:
    """Sums up what of the journal was read: weights, documents, and of the tasks their ids.

    `is_beside_others` says that Redis may hold a task which the journal does not. `fresh` are tasks
    of the latest page of which nothing counts that was before it. `overruling` are those of which
    another value stands than the last.
    """

    weights: bytes = b""
    documents: dict[str, bytes] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)
    overruling: set[str] = field(default_factory=set)
    position: bytes = b""
    is_beside_others: bool = False

    def take(self, page: JournalPage) -> dict[str, Merged]:
        """Take in a page; return what its records of each task come to."""
        tasks: dict[str, Merged] = {}
        self.position = page.position
        self.fresh.clear()
        for key, body in page.records:
            if key == WEIGHTS_KEY:
                self.weights = body
            elif key.startswith(DOCUMENT_KEY):
                name = key.removeprefix(DOCUMENT_KEY)
                self.documents.pop(name, None)  # the new one comes behind all others
                if body:
                    self.documents[name] = body
            elif body:
                if key not in tasks and self._is_fresh(key):
                    self.fresh.add(key)
                tasks[key] = tasks.pop(key, Merged()).then(body)  # keeps the order
                self.known.add(key)
                self.removed.discard(key)
            else:
                tasks.pop(key, None)
                self._note_removed(key)
        return tasks

    def tells_of(self, task_id: str) -> bool:
        """Tell whether the journal has the task, or says that it is gone."""
        return task_id in self.known or task_id in self.removed

    def note_stored(self, task_id: str, *, is_last: bool) -> None:
        """Note whether the value that stands is the last of the journal."""
        (self.overruling.discard if is_last else self.overruling.add)(task_id)

    def _is_fresh(self, task_id: str) -> bool:
        if task_id in self.removed:
            return True
        return not self.is_beside_others and task_id not in self.known

    def _note_removed(self, task_id: str) -> None:
        self.removed.add(task_id)
        if task_id in self.known:
            self.known.remove(task_id)
            self.is_beside_others = True  # an earlier page of it may be filled in


KEPT_S = 60.0
MOST_KEPT = 100_000


class _JournalAnswer(NamedTuple):
    """Whether the journal has a task, and when that was found, on a monotonic clock."""

    is_there: bool
    at_s: float


@dataclass(eq=False, repr=False)
class JournalAnswers:
    """Tells which tasks the journal does not have, from readings that begin after the question.

    A reading of the whole journal takes seconds when it is long, so one answers all who ask while
    it is waited for, and its answers are kept for a minute. No journal (None) has no task; an empty
    one answers nothing: it may have been made anew.
    """

    _journal: Journal | None
    _clock_s: Callable[[], float] = time.monotonic
    _answers: OrderedDict[str, _JournalAnswer] = field(default_factory=OrderedDict)  # oldest first
    _questions: list[Set[str]] = field(default_factory=list)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def lacking(self, task_ids: Collection[str]) -> Set[str]:
        """Return which of these tasks the journal does not have, to an end behind the question."""
        if self._journal is None:
            return set(task_ids)
        question = frozenset(task_ids)
        self._questions.append(question)
        try:
            async with self._turn:
                self._drop_old()
                if not question <= self._answers.keys():
                    await self._read(self._journal, frozenset().union(*self._questions))
                return {one for one in question if not self._answers[one].is_there}
        finally:
            self._questions.remove(question)

    async def _read(self, journal: Journal, asked: Set[str]) -> None:
        there: set[str] = set()
        is_empty = True
        async with aclosing(journal.pages()) as pages:
            async for page in pages:
                if page.is_first:
                    there.clear()
                    is_empty = True
                for key, body in page.records:
                    is_empty = is_empty and not body
                    if key in asked:
                        (there.add if body else there.discard)(key)
        now_s = self._clock_s()
        for task_id in asked:
            self._answers.pop(task_id, None)
            self._answers[task_id] = _JournalAnswer(is_empty or task_id in there, now_s)

    def _drop_old(self) -> None:
        oldest_s = self._clock_s() - KEPT_S
        while self._answers:
            first = next(iter(self._answers))
            if self._answers[first].at_s > oldest_s and len(self._answers) <= MOST_KEPT:
                return
            del self._answers[first]
