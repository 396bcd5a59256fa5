"""An event loop whose time goes on only while everything waits: an hour takes milliseconds.

`time.monotonic`, `time.time` and `time.time_ns` tell its time. What is computed takes none of it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from pushlane.core.intake import Intake
from pushlane.core.task import SteadyTime
from pushlane.dispatcher import line
from pushlane.dispatcher.gates.budgets import Budgets

T = TypeVar("T")

_IDLE_S = 0.01


class _Selector(selectors.DefaultSelector):
    """Has what is due next come at once, by going on to its time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:  # only another thread, or a socket, can bring it on
            return super().select(_IDLE_S)
        found = super().select(0)
        if not found and timeout > 0:
            self._clock.now_s += timeout
        return found


class Clock:
    """The time of such a loop, which begins at the real one; the wall is stepped by `step_s`.

    With `looks_s` each look at a clock takes so long.
    """

    def __init__(self, looks_s: float = 0.0) -> None:
        self._looks_s = looks_s
        self._tie_s = time.time() - time.monotonic()
        self.now_s = time.monotonic()
        self.step_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += self._looks_s
        return self.now_s

    def wall_s(self) -> float:
        return self._tie_s + self.monotonic_s() + self.step_s


def run_in(clock: Clock, patch: pytest.MonkeyPatch, scene: Coroutine[Any, Any, T]) -> T:
    """Run a scene in a loop of its own, in the time of this clock."""
    patch.setattr(time, "monotonic", clock.monotonic_s)
    patch.setattr(SteadyTime, "tie_ms", (clock.wall_s() - clock.monotonic_s()) * 1_000)
    for made in (Intake, Budgets):  # their clock is what `time.monotonic` was at first
        patch.setattr(line, made.__name__, partial(made, clock_s=lambda: clock.now_s))
    patch.setattr(time, "time", clock.wall_s)
    patch.setattr(time, "time_ns", lambda: int(clock.wall_s() * 1e9))
    loop = asyncio.SelectorEventLoop(_Selector(clock))
    loop.time = lambda: clock.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(scene)
