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
from bench.faults.verdict import Row
from bench.faults.world import World

_AT_MOST_APART_S = 0.6


async def measure(
    fault: Fault, mode: Mode, runs: int, world: World, keep: Path | None
) -> list[Row]:
    """Run the faults, for a row of each mode; with `keep`, logs stay in that folder."""
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

    async def run(self, runs: int) -> list[Row]:
        stream = self._stream
        async with stream.flowing():
            await stream.went_on(time.time())
            started = (time.time(), len(stream.oracle.tally.kept))
            await self._strike(runs)
            rate = (len(stream.oracle.tally.kept) - started[1]) / (time.time() - started[0])
            unfinished = await stream.finished()
        await stream.stop_all()
        modes = self._mode.among or (self._mode,)
        return [await self._row(mode, rate, unfinished) for mode in modes]

    async def _strike(self, runs: int) -> None:
        while self._struck < runs and self._worst_s != float("inf"):
            await asyncio.sleep(random.uniform(0, _AT_MOST_APART_S))
            ended_s = await self._fault.strike(self._stream)
            self._struck += 1
            self._worst_s = max(self._worst_s, await self._stream.went_on(ended_s))

    async def _row(self, mode: Mode, rate: float, unfinished: int) -> Row:
        stream = self._stream
        totals = stream.feeder.totals_of(mode)
        tally = stream.oracle.tally_of(totals) if self._mode.among else stream.oracle.tally
        ages_s = [one.age_s(stream.struck_s) for one in tally.repeats if self._mode.among]
        return Row(
            fault=self._fault.name,
            mode=f"{mode.name}, mixed" if self._mode.among else mode.name,
            broker=self._broker,
            runs=self._struck,
            pushes=sum(totals.values()),
            lost=len(tally.lost(totals)),
            duplicates=tally.duplicates,
            bound=self._fault.bound(self._struck, mode, stream.load, tally),
            buried=await stream.buried(totals),
            unfinished=unfinished,
            recovery_s=self._worst_s,
            rate_per_s=rate,
            deaths=stream.deaths,
            broken=tuple(stream.broken),
            within_s=self._fault.within_s,
            oldest_s=max((age_s for age_s in ages_s if age_s < float("inf")), default=0.0),
            unprompted=ages_s.count(float("inf")),
            sent_again=tally.sent_again if mode.is_strict else 0,
        )
