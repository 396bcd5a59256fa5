"""The base of guards that ask a store: in groups, and as the settings say while it is away.

What many deliveries ask at the same moment goes in one call. One is under way at a time; what is
asked for meanwhile goes together into the next one. After a small one there is a moment's rest,
since a call costs much more than a push in it; who asks while nothing is under way does not wait.

What a guard takes in the store for a push (a claim, a turn) it takes under an owner's name. Each
call has a name of its own: even within a process, no two attempts at a push may both win, and only
the name that took something gives it back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from pushlane.core.errors import PushlaneError
from pushlane.core.lane import Job
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.task import Task
from pushlane.dispatcher.gates import BaseOption
from pushlane.dispatcher.stats import Stats
from pushlane.settings import Settings

_SMALL = 16
_REST_S = 0.001

R = TypeVar("R")

_Asked = tuple[Sequence[Job], asyncio.Future[Sequence[R]]]
"""Jobs, and where their results are awaited."""


class CallBatcher(Generic[R]):
    """`call` gives one result a job, in order. It never gets the same push twice at once."""

    def __init__(self, call: Callable[[list[Job]], Awaitable[Sequence[R]]]) -> None:
        self._call = call
        self._asked: list[_Asked[R]] = []
        self._due = asyncio.Event()

    async def ask(self, jobs: Sequence[Job]) -> Sequence[R]:
        """Return the results for these jobs, each of another push, while `run` runs."""
        answer: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        self._asked.append((jobs, answer))
        self._due.set()
        return await answer

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            while group := self._next():
                results = await self._call([job for jobs, _ in group for job in jobs])
                left = iter(results)
                for jobs, answer in group:
                    own = list(islice(left, len(jobs)))
                    if not answer.done():
                        answer.set_result(own)
                if len(results) < _SMALL:
                    await asyncio.sleep(_REST_S)

    def _next(self) -> list[_Asked[R]]:
        """Return all that waits, except who names a push that another one names already."""
        group: list[_Asked[R]] = []
        waiting: list[_Asked[R]] = []
        named: set[tuple[str, int]] = set()
        for asked in self._asked:
            jobs, answer = asked
            pushes = {(job.push.task_id, job.push.seq) for job in jobs}
            if answer.done():  # its delivery was given up
                continue
            if named.isdisjoint(pushes):
                named |= pushes
                group.append(asked)
            else:
                waiting.append(asked)
        self._asked = waiting
        return group


log = logging.getLogger("pushlane.ledger")


class StoreGuard(BaseOption, ABC):
    """Sees to copies of one push and to the calls of its store; a subclass adds its own rule.

    Of a push that comes twice in one batch, the second copy is offered again after `repeat_s`.
    `owners` has the names under which things were taken for pushes that are in flight.
    """

    def __init__(
        self, settings: Settings, settler: Settler, stats: Stats, *, repeat_s: float
    ) -> None:
        self._owners: dict[Job, str] = {}
        self._ttl_s = claim_ttl_s(settings)
        self._repeat_s = repeat_s
        self._settler = settler
        self._stats = stats
        self._waits = settings.ledger_away == "wait"
        self._backoff = Backoff(log, "the record of claims")
        self._is_away = False
        self._process = secrets.token_hex(6)
        self._calls = itertools.count(1)
        self._batchers: list[CallBatcher[Any]] = []

    @abstractmethod
    def concerns(self, task: Task) -> bool:
        """Tell whether the guard has a say about the pushes of a task."""

    @abstractmethod
    async def _admit(self, jobs: list[Job]) -> list[Job]:
        """Return those of these distinct pushes that may go, and take care of the others."""

    async def run(self) -> None:
        await asyncio.gather(*(batcher.run() for batcher in self._batchers))

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        firsts, repeats = _parted(jobs)
        for job in repeats:
            self._settler.later(job, self._repeat_s)
        return await self._admit(firsts)

    async def _ask(self, call: Callable[[], Awaitable[R]], pushes: int) -> R | None:
        """Return the store's answer, or None when it is away and the settings go on without it."""
        while True:
            try:
                answer = await call()
            except PushlaneError as error:
                if not self._waits:
                    self._degrade(error, pushes)
                    return None
                await self._backoff.wait(error)
                continue
            self._backoff.reset()
            self._is_away = False
            return answer

    def _degrade(self, error: PushlaneError, pushes: int) -> None:
        self._stats.degraded += pushes
        if not self._is_away:
            log.warning(
                "delivering at least once, as the record of claims does not answer: %s",
                error,
                extra={"action": "ledger_degraded"},
            )
        self._is_away = True

    def _batched(
        self, call: Callable[[list[Job]], Awaitable[Sequence[R] | None]]
    ) -> CallBatcher[R | None]:
        """Batch a call that gives an answer a job; each is None while the store is away."""

        async def ask(jobs: list[Job]) -> Sequence[R | None]:
            answers = await self._ask(lambda: call(jobs), len(jobs))
            return [None] * len(jobs) if answers is None else answers

        return self._added(CallBatcher(ask))

    def _batched_take(
        self, take: Callable[[list[Job], str], Awaitable[Sequence[R]]]
    ) -> CallBatcher[R | None]:
        """Batch a call that takes something for its jobs, under an owner's name of its own."""

        async def ask(jobs: list[Job]) -> Sequence[R | None]:
            owner = f"{self._process}-{next(self._calls)}"
            answers = await self._ask(lambda: take(jobs, owner), len(jobs))
            return [None] * len(jobs) if answers is None else answers

        return self._added(CallBatcher(ask))

    def _batched_give_back(
        self, give_back: Callable[[list[Job], str], Awaitable[None]]
    ) -> CallBatcher[None]:
        """Batch a call that gives back what was taken for its jobs, one call an owner."""

        async def give_back_of(owner: str, jobs: list[Job]) -> None:
            await self._ask(lambda: give_back(jobs, owner), len(jobs))

        async def ask(jobs: list[Job]) -> Sequence[None]:
            owned: dict[str, list[Job]] = defaultdict(list)
            for job in jobs:
                owned[self._owners.pop(job, "")].append(job)
            await asyncio.gather(*(give_back_of(owner, owned[owner]) for owner in owned))
            return [None] * len(jobs)

        return self._added(CallBatcher(ask))

    def _added(self, batcher: CallBatcher[R]) -> CallBatcher[R]:
        self._batchers.append(batcher)
        return batcher


def claim_ttl_s(settings: Settings) -> float:
    """Return how long what is taken lasts if its process is lost: longer than a delivery."""
    return settings.sink_timeout_s + settings.claim_timeout_s


def _parted(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Return jobs of distinct pushes, and those whose push is among them already."""
    if len(jobs) == 1:
        return list(jobs), []
    firsts: dict[tuple[str, int], Job] = {}
    repeats = []
    for job in jobs:
        if firsts.setdefault((job.push.task_id, job.push.seq), job) is not job:
            repeats.append(job)
    return list(firsts.values()), repeats
