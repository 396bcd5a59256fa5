"""What something costs that is switched on and off many times within one run.

A machine's speed drifts by more between two runs than a small cost is. Between two windows of a
tenth of a second it hardly does, so windows with it and without it alternate while one dispatcher
drains, and their sums are compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pushlane.core.errors import PushlaneError
from pushlane.core.push import Kind
from pushlane.dispatcher import Dispatcher

_WINDOW_S = 0.1
_CUT = 2  # windows at either end, when not all of it runs
_LEAST = 4


class Window(NamedTuple):
    """What came in a part of a run, in which it was on or not. `aside_s` is what another thread
    used of a processor for it: at its own times, which have nothing to do with the windows.
    """

    is_on: bool
    pushes: int
    took_s: float
    cpu_s: float
    aside_s: float = 0.0


class Cost(NamedTuple):
    """What it costs: the part of the rate, and of the processor time a push.

    `rate` and `cpu_us` are those with it.
    """

    of_rate: float
    of_cpu: float
    rate: float
    cpu_us: float


async def windows(
    dispatcher: Dispatcher,
    switch: Callable[[bool], None],
    aside_s: Callable[[], float] = lambda: 0.0,
) -> list[Window]:
    """Run a dispatcher that drains, and switch it on and off until that has ended."""
    found: list[Window] = []
    switching = asyncio.create_task(_switch(dispatcher, switch, aside_s, found))
    await dispatcher.run()
    switching.cancel()
    return found


async def _switch(
    dispatcher: Dispatcher,
    switch: Callable[[bool], None],
    aside_s: Callable[[], float],
    found: list[Window],
) -> None:
    is_on = False
    while True:
        switch(is_on)
        before = _delivered(dispatcher), time.perf_counter(), time.process_time(), aside_s()
        await asyncio.sleep(_WINDOW_S)
        after = _delivered(dispatcher), time.perf_counter(), time.process_time(), aside_s()
        pushes, took_s, cpu_s, aside = (b - a for a, b in zip(before, after, strict=True))
        found.append(Window(is_on, int(pushes), took_s, cpu_s, aside))
        is_on = not is_on


def _delivered(dispatcher: Dispatcher) -> int:
    counts = dispatcher.stats.outcomes.items()
    return sum(count for (_, kind), count in counts if kind is Kind.DELIVERED)


def cost(run: Sequence[Window]) -> Cost:
    """Return what it costs by the windows of one run; as many count with it as without.

    Work aside holds the interpreter, so it is taken out of the windows that it fell into, and all
    of it counts on those with it by their part of the time. Raises PushlaneError if there are few.
    """
    inner = run[_CUT : len(run) - _CUT]
    inner = inner[: len(inner) // 2 * 2]
    if len(inner) < _LEAST:
        raise PushlaneError(f"{len(run)} windows are too few to compare: send more pushes")
    aside = sum(window.aside_s for window in inner) / sum(window.took_s for window in inner)
    took_off, cpu_off = _a_push([window for window in inner if not window.is_on], 0.0)
    took_on, cpu_on = _a_push([window for window in inner if window.is_on], aside)
    return Cost(1 - took_off / took_on, cpu_on / cpu_off - 1, 1 / took_on, cpu_on * 1e6)


def _a_push(some: Sequence[Window], aside: float) -> tuple[float, float]:
    """Return the seconds a push, and those of a processor, with `aside` of the time besides."""
    pushes = sum(window.pushes for window in some)
    if not pushes:
        raise PushlaneError("no push came in half of the windows: send more pushes")
    took_s = sum(window.took_s for window in some)
    more_s = aside * took_s - sum(window.aside_s for window in some)
    cpu_s = sum(window.cpu_s for window in some)
    return (took_s + more_s) / pushes, (cpu_s + more_s) / pushes
