"""Measures the cost of a feature by switching it on and off many times within one run.

Two runs on the same machine can differ by 15 %, which hides a small cost. Two windows of 0.2 s in a
row hardly differ. So windows with the feature and windows without it take turns while one
dispatcher drains, and the two of each pair are compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median
from typing import NamedTuple

from pushlane.core.errors import PushlaneError
from pushlane.core.push import Kind
from pushlane.dispatcher import Dispatcher

_WINDOW_S = 0.2
_ORDER = (False, True, True, False)  # so that nothing periodic falls into one kind alone
_CUT = 4  # windows at either end, when not all of it runs
_LEAST = 4


class Window(NamedTuple):
    """A fifth of a second of a run, with the feature on or off: pushes delivered, and seconds.

    `took_s` is wall time and `cpu_s` processor time of the process. `aside_s` is what a thread of
    the feature used of that: it works at its own times, in either kind of window.
    """

    is_on: bool
    pushes: int
    took_s: float
    cpu_s: float
    aside_s: float = 0.0


class Cost(NamedTuple):
    """The cost of a feature: 0.01 is 1 % less rate, or 1 % more processor time a push.

    `rate` (pushes a second) and `cpu_us` (microseconds a push) are those with the feature on.
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
    """Run a dispatcher until it has drained, and switch the feature on and off meanwhile.

    `aside_s` tells the processor seconds that a thread of the feature has used so far.
    """
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
    for is_on in cycle(_ORDER):
        switch(is_on)
        before = _delivered(dispatcher), time.perf_counter(), time.process_time(), aside_s()
        await asyncio.sleep(_WINDOW_S)
        after = _delivered(dispatcher), time.perf_counter(), time.process_time(), aside_s()
        pushes, took_s, cpu_s, aside = (b - a for a, b in zip(before, after, strict=True))
        found.append(Window(is_on, int(pushes), took_s, cpu_s, aside))


def _delivered(dispatcher: Dispatcher) -> int:
    counts = dispatcher.stats.outcomes.items()
    return sum(count for (_, kind), count in counts if kind is Kind.DELIVERED)


def cost(run: Sequence[Window]) -> Cost:
    """Return the cost by the windows of one run: the median over its pairs of two in a row.

    The median leaves out what falls into few windows, such as a checkpoint of the store. The time
    of the feature's own thread is taken out of the windows that it fell into, since it holds the
    interpreter; its average over the run is added to the windows with the feature.
    Raises PushlaneError if there are too few windows, or pushes in them.
    """
    inner = run[_CUT : len(run) - _CUT]
    if len(inner) < _LEAST:
        raise PushlaneError(f"{len(run)} windows are too few to compare: send more pushes")
    if not all(window.pushes for window in inner):
        raise PushlaneError("no push came in one of the windows: send more pushes")
    aside = sum(window.aside_s for window in inner) / sum(window.took_s for window in inner)
    pairs = [
        sorted((_a_push(one, aside) for one in pair), key=lambda one: one.is_on)
        for pair in zip(inner[::2], inner[1::2], strict=False)
    ]
    return Cost(
        1 - median(off.took_s / on.took_s for off, on in pairs),
        median(on.cpu_s / off.cpu_s for off, on in pairs) - 1,
        1 / median(on.took_s for _, on in pairs),
        median(on.cpu_s for _, on in pairs) * 1e6,
    )


def _a_push(one: Window, aside: float) -> Window:
    """Return a window's seconds a push, with the thread's average in place of its time there."""
    more_s = (aside * one.took_s if one.is_on else 0.0) - one.aside_s
    took_s, cpu_s = one.took_s + more_s, one.cpu_s + more_s
    return Window(one.is_on, 1, took_s / one.pushes, cpu_s / one.pushes)
