"""One row of the fault table: one stream, one fault again and again, and the verdict."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

from bench.faults.catalogue import Fault
from bench.faults.feed import Mode
from bench.faults.stream import Stream, streaming
from bench.faults.verdict import Bound, Row, Tally
from bench.faults.world import World

_AT_MOST_APART_S = 0.6


async def measure(fault: Fault, mode: Mode, runs: int, world: World, keep: Path | None) -> Row:
    """Run the faults; with `keep`, logs stay in that folder."""
    with tempfile.TemporaryDirectory(prefix="pushlane-faults-") as temporary:
        async with streaming(world, mode, fault.load, keep or Path(temporary)) as stream:
            return await _Measurement(fault, mode, world.place, stream).run(runs)


class _Measurement:
    def __init__(self, fault: Fault, mode: Mode, broker: str, stream: Stream) -> None:
        self._fault = fault
        self._mode = mode
        self._broker = broker
        self._stream = stream
        self._struck = 0
        self._worst_s = 0.0

    async def run(self, runs: int) -> Row:
        stream = self._stream
        async with stream.flowing():
            await stream.went_on(time.time())
            started = (time.time(), len(stream.oracle.tally.kept))
            await self._strike(runs)
            rate = (len(stream.oracle.tally.kept) - started[1]) / (time.time() - started[0])
            unfinished = await stream.finished()
        await stream.stop_all()
        return await self._row(rate, unfinished)

    async def _strike(self, runs: int) -> None:
        while self._struck < runs and self._worst_s != float("inf"):
            await asyncio.sleep(random.uniform(0, _AT_MOST_APART_S))
            ended_s = await self._fault.strike(self._stream)
            self._struck += 1
            self._worst_s = max(self._worst_s, await self._stream.went_on(ended_s))

    async def _row(self, rate: float, unfinished: int) -> Row:
        stream, tally = self._stream, self._stream.oracle.tally
        return Row(
            fault=self._fault.name,
            mode=self._mode.name,
            broker=self._broker,
            runs=self._struck,
            pushes=stream.feeder.written,
            lost=len(tally.lost(stream.feeder.totals)),
            duplicates=tally.duplicates,
            bound=self._bound(tally),
            buried=await stream.buried(),
            unfinished=unfinished,
            recovery_s=self._worst_s,
            rate_per_s=rate,
            deaths=stream.deaths,
            broken=tuple(stream.broken),
            within_s=self._fault.within_s,
        )

    def _bound(self, tally: Tally) -> Bound:
        return self._fault.bound(self._struck, self._mode, self._stream.load, tally)
