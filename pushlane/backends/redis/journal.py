"""Tells which tasks the journal does not have.

A reading of the whole journal takes seconds when it is long, so one answers all who ask while it is
waited for, and its answers are kept for a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Set
from contextlib import aclosing
from typing import NamedTuple

from pushlane.lanes.ports import Journal

KEPT_S = 60.0
MOST_KEPT = 100_000


class _JournalAnswer(NamedTuple):
    """Whether the journal has a task, and when that was found, on a monotonic clock."""

    is_there: bool
    at_s: float


class JournalAnswers:
    """Answers from readings that begin after the question. Without a journal (None) it has none.

    An empty journal answers nothing: it may have been made anew.
    """

    def __init__(
        self, journal: Journal | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._journal = journal
        self._clock_s = clock_s
        self._answers: OrderedDict[str, _JournalAnswer] = OrderedDict()  # the oldest first
        self._questions: list[Set[str]] = []
        self._turn = asyncio.Lock()

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
