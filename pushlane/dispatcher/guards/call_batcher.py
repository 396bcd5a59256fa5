"""Calls to a store in groups: what many deliveries ask at the same moment goes in one call.

One call is under way at a time; what is asked for meanwhile goes together into the next one. After
a small one there is a moment's rest, since a call costs much more than a push in it; who asks while
nothing is under way does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from pushlane.core.lane import Job

_SMALL = 16
_REST_S = 0.001

R = TypeVar("R")

BatchCall = Callable[[list[Job]], Awaitable[Sequence[R]]]


class _BatchedCall(NamedTuple, Generic[R]):
    jobs: Sequence[Job]
    answer: asyncio.Future[Sequence[R]]


class CallBatcher(Generic[R]):
    """`call` gives one result a job, in order. It never gets the same push twice at once."""

    def __init__(self, call: BatchCall[R]) -> None:
        self._call = call
        self._asked: list[_BatchedCall[R]] = []
        self._due = asyncio.Event()

    async def ask(self, jobs: Sequence[Job]) -> Sequence[R]:
        """Return the results for these jobs, each of another push, while `run` runs."""
        answer: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        self._asked.append(_BatchedCall(jobs, answer))
        self._due.set()
        return await answer

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            while group := self._next():
                results = await self._call([job for asked in group for job in asked.jobs])
                _give_out(group, results)
                if len(results) < _SMALL:
                    await asyncio.sleep(_REST_S)

    def _next(self) -> list[_BatchedCall[R]]:
        """Return all that waits, except who names a push that another one names already."""
        group: list[_BatchedCall[R]] = []
        waiting: list[_BatchedCall[R]] = []
        named: set[tuple[str, int]] = set()
        for asked in self._asked:
            pushes = {(job.push.task_id, job.push.seq) for job in asked.jobs}
            if asked.answer.done():  # its delivery was given up
                continue
            if named.isdisjoint(pushes):
                named |= pushes
                group.append(asked)
            else:
                waiting.append(asked)
        self._asked = waiting
        return group


def _give_out(group: list[_BatchedCall[R]], results: Sequence[R]) -> None:
    start = 0
    for jobs, answer in group:
        end = start + len(jobs)
        if not answer.done():
            answer.set_result(results[start:end])
        start = end
