"""The law of waits: in whatever runs, the parts of each are positive, and they are its whole."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.core.errors import PushlaneError
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Scope
from pushlane.core.task import DeliveryMode, Level, Weights, now_ms
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher import waits as dispatcher_waits
from pushlane.model import task_changes, waits
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.names import new_task_id
from pushlane.model.waits import Cause
from tests.waits.scenes import SETTINGS, TakesTime, Told, add, add_up, told
from tests.waits.virtual import Clock, run_in

LASTS_S = 60.0
ENDS_S = 400.0
LOOKS_S = 20e-6
ROUNDED_MS = 5.0
"""What parts lack by the rounding of times to milliseconds."""

SINKS = "default", "sms"


class Run:
    """Tasks, processes and an operator at random, for a minute, and a process that ends it.

    With `true_clocks` nobody's is wrong.
    """

    def __init__(self, seed: int, clock: Clock, *, true_clocks: bool) -> None:
        self._true_clocks = true_clocks
        self._random = random.Random(seed)
        self._clock = clock
        self._memory = MemoryBackend()
        self._tasks: list[str] = []

    async def play(self) -> list[Told]:
        async with self._memory.connect(SETTINGS) as backend:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit(backend))
                group.create_task(self._operate(backend))
                for _ in range(self._random.randint(1, 3)):
                    group.create_task(self._serve())
            await self._resume(backend)
            await self._process(ENDS_S, kill=False, drain=True)
            return await told(backend)

    def _chance(self, part: float) -> bool:
        return self._random.random() < part

    async def _submit(self, backend: Backend) -> None:
        for _ in range(self._random.randint(2, 6)):
            await asyncio.sleep(self._random.choice([0.0, 1.0, 20.0]))
            task_id = new_task_id()
            if self._chance(0.3):
                limit = Limit(rate_per_s=self._random.choice([2.0, 20.0]))
                subject = Subject("task", task_id)
                await change_limit(backend.documents, subject, partial(_other, limit))
            level = self._random.choice(list(Level))
            pushes = self._random.randint(1, 100)
            await add(backend, level, pushes, self._of_push(), task_id, **self._fields())
            self._tasks.append(task_id)

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"quota": self._random.randint(1, 3)}
        if self._chance(0.3):
            fields["ordered"] = True
        if self._chance(0.3):
            fields["delivery"] = self._random.choice(list(DeliveryMode))
        if self._chance(0.3):
            fields["sinks"] = SINKS
        if self._chance(0.3):
            fields["not_before_ms"] = now_ms() + self._random.randint(-10_000, 60_000)
        if self._chance(0.2):
            fields["expires_at_ms"] = now_ms() + self._random.randint(1_000, 60_000)
        if self._chance(0.3):
            begins = datetime.fromtimestamp(now_ms() / 1_000, UTC)
            begins += timedelta(minutes=self._random.randint(-2, 2))
            ends = begins + timedelta(minutes=self._random.randint(1, 4))
            fields |= {"quiet": f"{begins:%H:%M}-{ends:%H:%M}", "zone": "UTC"}
        return fields

    def _of_push(self) -> Any:
        wrong_ms = 0 if self._true_clocks else self._random.choice([0, 60_000, -60_000])
        later_ms, keys = self._random.choice([0, 0, 30_000]), self._random.randint(1, 10)

        def fields(seq: int) -> dict[str, Any]:
            return {
                "submitted_at_ms": now_ms() + wrong_ms,
                "not_before_ms": now_ms() + later_ms if later_ms and seq % 3 else 0,
                "after_seq": max(0, seq - keys),
            }

        return fields

    async def _operate(self, backend: Backend) -> None:
        """Pause, resume, move and end tasks, weigh levels, and set the clocks of all."""
        until_s = time.monotonic() + LASTS_S
        while time.monotonic() < until_s:
            await asyncio.sleep(self._random.uniform(0.5, 20.0))
            if not self._true_clocks and self._chance(0.3):
                self._clock.step_s += self._random.choice([-30.0, 0.5, 3_600.0])
            if self._chance(0.1):
                await backend.registry.set_weights(Weights(self._random.randint(0, 9), 1, 1))
            if self._tasks:
                with suppress(PushlaneError):
                    await self._change(backend, self._random.choice(self._tasks))

    async def _change(self, backend: Backend, task_id: str) -> None:
        what = self._random.choice(["pause", "resume", "resume", "promote", "isolate", "cancel"])
        if what == "pause":
            await backend.pause(task_id)
        elif what == "resume":
            await backend.registry.change(task_id, task_changes.resume)
        elif what == "promote":
            await backend.promote(task_id, self._random.choice([Level.HIGH, Level.MEDIUM]))
        elif what == "isolate":
            await backend.isolate(task_id)
        elif self._chance(0.3):
            await backend.registry.change(task_id, task_changes.cancel)

    async def _resume(self, backend: Backend) -> None:
        for task_id in self._tasks:
            with suppress(PushlaneError):
                await backend.registry.change(task_id, task_changes.resume)

    async def _serve(self) -> None:
        until_s = time.monotonic() + LASTS_S
        while time.monotonic() < until_s:
            await asyncio.sleep(self._random.choice([0.0, 2.0, 15.0]))
            await self._process(self._random.uniform(0.5, 60.0), kill=self._chance(0.5))

    async def _process(self, lasts_s: float, *, kill: bool, drain: bool = False) -> None:
        """Be a dispatcher for so long, that is killed or stopped."""
        took_s = self._random.choice([0.01, 0.05, 1.0])
        sinks = {name: TakesTime(took_s, self._answer) for name in SINKS}
        async with self._memory.connect(SETTINGS) as backend:
            dispatcher = Dispatcher(backend, sinks, SETTINGS, drain=drain, clock_s=time.monotonic)
            running = asyncio.create_task(dispatcher.run())
            await asyncio.wait([running], timeout=lasts_s)
            if kill:
                running.cancel()
            dispatcher.stop()
            with suppress(asyncio.CancelledError):
                await running
            for stats in dispatcher.stats_by_sink().values():
                assert stats.receipts_left_out == 0

    def _answer(self, _: Delivery) -> Outcome:
        scope = self._random.choice([Scope.PUSH, Scope.RECIPIENT, Scope.SINK, None])
        answers = [
            DELIVERED,
            Outcome.retry("HTTP 500", after_s=self._random.choice([None, 0.0, 2.0, 40.0])),
            Outcome.throttled("HTTP 503", self._random.choice([None, 5.0, 40.0])),
            Outcome.dead("HTTP 410", scope=scope),
        ]
        return self._random.choices(answers, [8, 2, 1, 1])[0]


def _other(limit: Limit, _: Limit) -> Limit:
    return limit


SEEDS = st.integers(0, 1_000_000)
RUNS = settings(max_examples=settings().max_examples // 4)


def receipts_of(seed: int, patch: pytest.MonkeyPatch, *, true_clocks: bool) -> list[Told]:
    clock = Clock(LOOKS_S)
    return run_in(clock, patch, Run(seed, clock, true_clocks=true_clocks).play())


@RUNS
@given(SEEDS)
def test_the_parts_of_every_receipt_are_its_wait(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        add_up(receipts_of(seed, patch, true_clocks=False))


@RUNS
@given(SEEDS)
def test_with_true_clocks_they_are_so_before_they_are_rounded(seed: int) -> None:
    lacking_ms: list[float] = []

    def whole(parts: Mapping[Cause, float], total_ms: int) -> dict[Cause, int]:
        lacking_ms.append(total_ms - sum(parts.values()))
        return waits.whole(parts, total_ms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatcher_waits, "whole", whole)
        add_up(receipts_of(seed, patch, true_clocks=True))

    assert max(map(abs, lacking_ms)) <= ROUNDED_MS
