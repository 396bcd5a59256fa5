"""One dispatcher in a process of its own that drains a backlog into a counting sink.

As `pushlane dispatch --drain` does, but for the sink, and that its counts come back.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import uvloop

from bench.counting import CountingSink, steady_cpu_us, steady_rate
from pushlane.backends.backend import connect
from pushlane.dispatcher import Dispatcher
from pushlane.settings import Settings

_SHOWN = 20


class Drained(NamedTuple):
    """`rate` is of the steady part, and `cpu_us` is what a push of it cost the process."""

    rate: float
    cpu_us: float
    lost: int
    duplicates: int


def drained(settings: Settings, totals: Mapping[str, int]) -> Drained:
    """`totals` says how many pushes each task was written with. Prints the seqs that were lost."""
    own = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=own) as process:
        return process.submit(_drain, settings, dict(totals)).result()


def _drain(settings: Settings, totals: dict[str, int]) -> Drained:
    sink = CountingSink(totals)
    uvloop.run(_dispatch(settings, sink))
    lost = sink.lost()
    for task, seq in lost[:_SHOWN]:
        print(f"lost: seq {seq} of task {task}", file=sys.stderr)
    total = sum(totals.values())
    start = max(total // 10, min(sink.all_seen_at, total // 2))
    steady = sink.marks, start, total * 9 // 10
    cpu_us = round(steady_cpu_us(*steady), 2)
    return Drained(round(steady_rate(*steady)), cpu_us, len(lost), sink.duplicates)


async def _dispatch(settings: Settings, sink: CountingSink) -> None:
    async with connect(settings) as backend:
        dispatcher = Dispatcher(backend, sink, settings, drain=True)
        gc.freeze()
        await dispatcher.run()
