"""Measures the CPU time a push in the middle of a run, without its start, warm-up and end.

Of another process it is sampled from outside, of a dispatcher in this one beside its counts.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from bench.counting import Mark, steady_cpu_us
from dev.receiver import ArrivalLine
from pushlane.core.errors import PushlaneError
from pushlane.core.push import Kind
from pushlane.dispatcher import Dispatcher

_CUT = 0.15
_EVERY_S = 0.01
_LEAST_S = 0.1


class Middle(NamedTuple):
    """The part of a run that its figures are of, in Unix time, and the pushes that came in it."""

    start_s: float
    end_s: float
    pushes: int

    @property
    def rate(self) -> float:
        return self.pushes / (self.end_s - self.start_s)


def middle(log: Sequence[ArrivalLine], slots: int = 1) -> Middle:
    """Return a run without its first and its last part, over whole rounds of the slots.

    Slots that began together stay together: between two arrivals so many whole rounds apart lie
    exactly so many times what a round takes. Raises PushlaneError when too little came.
    """
    first = int(len(log) * _CUT) // slots * slots
    last = first + (len(log) - 2 * first - 1) // slots * slots
    if last <= first or log[last].at_s <= log[first].at_s:
        raise PushlaneError(f"{len(log):,} arrivals have no middle to measure: send more pushes")
    return Middle(log[first].at_s, log[last].at_s, last - first)


def cpu_s(pid: int) -> float:
    """Return the CPU time, user and system, of all threads of a process so far."""
    return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it on Linux


class CpuMeter:
    """Samples the CPU time, user and system, of all threads of a process, while it is entered.

    It ends by itself with the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at_s: list[float] = []
        self._cpu_s: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> CpuMeter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def cpu_us(self, part: Middle) -> float:
        """Return the microseconds that a push of this part cost the process."""
        return self._spent_s(part) / part.pushes * 1e6

    def share(self, part: Middle) -> float:
        """Return what the process used of a core meanwhile."""
        return self._spent_s(part) / (part.end_s - part.start_s)

    def _spent_s(self, part: Middle) -> float:
        """Raise PushlaneError when it was not sampled, or too seldom, over this part."""
        took_s = part.end_s - part.start_s
        if took_s < _LEAST_S:
            raise PushlaneError(f"{took_s:.3f} s are too short for CPU figures: send more pushes")
        return self._until(part.end_s) - self._until(part.start_s)

    def _until(self, at_s: float) -> float:
        place = bisect_left(self._at_s, at_s)
        if not 0 < place < len(self._at_s):
            raise PushlaneError("a process ended before its CPU was measured: send more pushes")
        (before_s, after_s), (less_s, more_s) = (
            each[place - 1 : place + 1] for each in (self._at_s, self._cpu_s)
        )
        return less_s + (more_s - less_s) * (at_s - before_s) / (after_s - before_s)

    def _sample(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                spent_s = cpu_s(self._pid)
            except OSError:  # it has ended
                return
            self._at_s.append(time.time())
            self._cpu_s.append(spent_s)


def run_metered(command: Sequence[str], variables: Mapping[str, str]) -> CpuMeter:
    """Run a process to its end, with these variables besides ours.

    Raises PushlaneError when it does not end well.
    """
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, env=environment) as process, CpuMeter(process.pid) as meter:
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if code:
        raise PushlaneError(f"{' '.join(command[1:4])} ended with exit code {code}")
    return meter


class Spent(NamedTuple):
    """The time that a dispatcher in this process took, and the CPU time of the process a push.

    `took_s` is until all is delivered and acked; `cpu_us` is of the middle 80 % of the pushes.
    """

    took_s: float
    cpu_us: float


async def spent(dispatcher: Dispatcher, pushes: int) -> Spent:
    """Run a dispatcher that drains so many pushes, all of which are delivered."""
    marks: list[Mark] = []
    noting = asyncio.create_task(_note(dispatcher, marks))
    started_s = time.perf_counter()
    await dispatcher.run()
    took_s = time.perf_counter() - started_s
    noting.cancel()
    return Spent(took_s, steady_cpu_us(marks, pushes // 10, pushes * 9 // 10))


async def _note(dispatcher: Dispatcher, marks: list[Mark]) -> None:
    while True:
        counts = dispatcher.stats.outcomes.items()
        delivered = sum(count for (_, kind), count in counts if kind is Kind.DELIVERED)
        marks.append(Mark(time.perf_counter(), delivered, time.process_time()))
        await asyncio.sleep(_EVERY_S)
