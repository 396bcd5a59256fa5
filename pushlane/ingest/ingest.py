"""Reads a source in this process: takes partitions over, lets them go, and commits what is done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.core.task import Level, now_ms
from pushlane.ingest.bad_records import BadRecordFile
from pushlane.ingest.functions import InThread
from pushlane.ingest.lane import HELD_S, Lost, PartitionLane
from pushlane.ingest.lanes import Lanes
from pushlane.ingest.mapping import Made
from pushlane.ingest.partition import Counted, Partition
from pushlane.ingest.position import Kept, Position, Seen, kept_of_each, positions_of
from pushlane.ingest.record import Record
from pushlane.ingest.source import Given, RecordSource, SourceChanged
from pushlane.ingest.steering import Asked, agree, asked_for, carried_out, refuse_other
from pushlane.model.streams import Stream
from pushlane.settings import Settings
from pushlane.util.retrying import until_reachable

log = logging.getLogger("pushlane.ingest")

T = TypeVar("T")

_ByLevel = Mapping[Level | None, Mapping[str, Kept]]
"""The positions kept of each partition, by level; None for its main lane."""

LET_GO_S = 5.0
"""Seconds in which records in progress are finished when a partition is taken away."""

_COMMIT_EVERY_S = 1.0
_AGAIN_S = 1.0
_RATE_OVER_S = 5.0
_MOST_TOLD = 5
_STEERED_EVERY = 2
"""So many commits come between two looks at what was asked for."""


class OnGap(StrEnum):
    """Says if an ingest stops where the source has lost records that were not read."""

    STOP = "stop"
    GO = "go"


class Start(StrEnum):
    """The record with which the reading of a new partition begins."""

    FIRST = "first"
    END = "end"


@dataclass(eq=False)
class Held:
    """A partition that this process has, and the work on it."""

    given: Given
    partition: Partition
    running: asyncio.Task[None]
    seeks: bool = False
    """True until the source has found the place to go on: records of before are dropped."""
    done: int = 0
    bad: int = 0
    per_s: float = 0.0
    """The records that were done, and bad, at the last look, and the rate since the one before."""

    def seen(self, end: int, passed_s: float) -> Seen:
        """Return what is to be seen of it, so many seconds after the last look."""
        partition, was = self.partition, self.partition.lane.position.seen
        lately = (partition.done - self.done) / passed_s
        self.done = partition.done
        self.per_s += (lately - self.per_s) * min(1.0, passed_s / _RATE_OVER_S)
        before, self.bad = self.bad, partition.kept_as_bad
        return Seen(
            at_ms=now_ms(),
            end=end,
            in_progress=partition.offsets.in_progress,
            per_s=round(self.per_s, 1),
            bad=(was.bad if was else 0) + self.bad - before,
        )


@dataclass(eq=False)
class Ingest:
    """One process that makes pushes of a source's records: a `source.Receiver`."""

    backend: Backend
    settings: Settings
    stream: Stream
    source: RecordSource
    mapping: Made
    bad: BadRecordFile
    map_timeout_s: float = 5.0
    on_gap: OnGap = OnGap.STOP
    start: Start = Start.FIRST
    change: bool = False
    """True where the mapping may be another one than the stream had."""
    held: dict[str, Held] = field(default_factory=dict)
    counted: Counted = field(default_factory=Counted)

    def __post_init__(self) -> None:
        self._in_thread = (
            InThread(self.mapping.of, self.map_timeout_s) if self.mapping.runs_code else None
        )
        self._beside: set[asyncio.Task[None]] = set()
        """Seeks, and a commit, which nothing waits for but the end."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Read until `stop`. Raises what ends an ingest: see `Partition.run` and the source's."""
        mine = self.mapping.fingerprint
        await agree(self.backend.documents, self.stream, mine, change=self.change)
        reading = asyncio.create_task(self.source.run(self), name="source")
        keeping = asyncio.create_task(self._keep_up(), name="commits")
        try:
            await asyncio.wait(
                {reading, keeping, self._failed}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self.source.close()
            await asyncio.gather(reading, return_exceptions=True)  # it lets go of what it has
            for task in (keeping, *self._beside):
                task.cancel()
            await asyncio.gather(keeping, *self._beside, return_exceptions=True)
            await self._drop(list(self.held))
            self._failed.cancel()
        for ended in (self._failed, keeping, reading):
            if not ended.cancelled():
                ended.result()

    def troubles(self) -> list[str]:
        """Return what it waits for, a line for each; for another thread to read."""
        found = [("", self.source.trouble)]
        for name, one in list(self.held.items()):
            found.append((f"partition {name}: ", one.partition.trouble))
        return [f"{where}{trouble}" for where, trouble in found if trouble][:_MOST_TOLD]

    def stop(self) -> None:
        """End once what is in progress is done."""
        self.source.close()

    async def given(self, partitions: Sequence[Given]) -> Mapping[str, int]:
        found = await self._kept_of([given.partition for given in partitions])
        return {given.partition: self._begin(given, found) for given in partitions}

    async def _kept_of(self, partitions: Sequence[str]) -> _ByLevel:
        """Return what is kept of partitions: asks once for each level, and once for the others."""
        where = self.backend.documents, self.stream, partitions
        return {
            level: await self._retried(partial(kept_of_each, *where, level))
            for level in (None, *Level)
        }

    def _begin(self, given: Given, found: _ByLevel, *, is_end_new: bool = True) -> int:
        """Begin to work on a partition; return where it is to be read from.

        Raises SourceChanged and BadInput.
        """
        kept = found[None][given.partition]
        levels = {level: found[level][given.partition] for level in Level}
        position = self._position(given, kept, levels, is_end_new)
        lanes = self._lanes(given.partition, kept, levels, position)

        def on_room() -> None:
            self.source.resume(given.partition)

        partition = Partition(lanes, self.mapping, self._in_thread, self.bad, self.counted, on_room)
        name = f"partition {given.partition}"
        running = asyncio.create_task(self._run(given, partition), name=name)
        self.held[given.partition] = Held(given, partition, running)
        return lanes.at

    def _lanes(
        self, partition: str, kept: Kept, levels: Mapping[Level, Kept], position: Position
    ) -> Lanes:
        def lane(of: Kept, level: Level | None = None) -> PartitionLane:
            was = of.position or Position(source_id="", at=0)
            mine = was if was.mapping else replace(was, at=position.at)
            return PartitionLane(
                self.backend,
                self.settings,
                self.stream,
                partition,
                self.mapping.fingerprint,
                of,
                position if level is None else mine,
                self.mapping.ordered,
                level,
            )

        is_leveled = self.mapping.leveled
        used = levels if is_leveled else positions_of(position, levels).by_level
        return Lanes(lane(kept), {level: lane(levels[level], level) for level in used}, is_leveled)

    def _position(
        self, given: Given, kept: Kept, levels: Mapping[Level, Kept], is_end_new: bool
    ) -> Position:
        """Return where a partition is gone on with. Raises SourceChanged and BadInput.

        An end that is not new may lie before what others have read since.
        """
        was = kept.position
        if was is None or not was.source_id:
            at = given.low if self.start is Start.FIRST else given.high
            return Position(
                source_id=given.source_id, at=at, number=0 if was is None else was.number
            )
        positions = positions_of(was, levels)
        first, last = positions.lowest, positions.highest
        where = f"partition {given.partition} of {self.source.name}"
        reset = f"start over with: pushlane ingest reset {self.stream.name}"
        if was.source_id != given.source_id:
            raise SourceChanged(
                f"{where} was recreated after it was read up to {last:,}: its offsets start "
                f"again, and would be mistaken for known ones. If that was intended, {reset}"
            )
        if is_end_new and given.high < last:
            raise SourceChanged(
                f"{where} ends at {given.high:,}, and was read up to {last:,}: it was cut off. "
                f"If that was intended, {reset}"
            )
        if given.low > first and self.on_gap is OnGap.STOP:
            raise BadInput(
                f"{where} begins at {given.low:,}, and was read up to {first:,}: the "
                f"{given.low - first:,} records between are gone. To go on without them: "
                "--on-gap go"
            )
        return was

    async def _run(self, given: Given, partition: Partition) -> None:
        """Work on a partition until it is taken away; what ends the ingest is told to `run`."""
        try:
            await partition.run()
        except Lost as error:
            held = self.held.get(given.partition)
            if held is not None and held.partition is partition:  # else it was taken away
                self._again_soon(given, partition, error)
        except Exception as error:  # noqa: BLE001 - of ours, too: it ends the process
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _again_soon(self, given: Given, partition: Partition, error: Lost) -> None:
        told = "partition %s: %s; it is tried again"
        log.warning(told, given.partition, error, extra={"action": "ingest_partition_lost"})
        self.source.pause(given.partition)
        again = asyncio.create_task(self._again(given, partition), name=f"again {given.partition}")
        self.held[given.partition] = Held(given, partition, again, seeks=True)

    async def _again(self, given: Given, partition: Partition) -> None:
        """Take a partition over again that was lost, unless the source takes it away first."""
        await asyncio.sleep(_AGAIN_S)
        with suppress(Lost, Unreachable):  # of its lanes, some may not be lost
            await partition.lanes.let_go()
        try:
            found = await self._kept_of([given.partition])
            at = self._begin(given, found, is_end_new=False)
        except PushlaneError as error:
            self._fail(error)
            return
        self.held[given.partition].seeks = True
        self.source.seek(given.partition, at)
        self.source.resume(given.partition)

    def sought(self, partition: str) -> None:
        if partition in self.held:
            self.held[partition].seeks = False

    def take(self, partition: str, records: Sequence[Record]) -> None:
        held = self.held.get(partition)
        if held is not None and not held.seeks and held.partition.take(records):
            self.source.pause(partition)

    async def let_go(self, partitions: Sequence[str]) -> Mapping[str, int]:
        held = {name: self.held[name] for name in partitions if name in self.held}
        with suppress(TimeoutError):
            async with asyncio.timeout(LET_GO_S):
                await asyncio.gather(*(self._idle(one) for one in held.values()))
        await self._stop_work(held.values())
        done: dict[str, int] = {}
        await asyncio.gather(*(self._let_go_of(name, one, done) for name, one in held.items()))
        return done

    async def _let_go_of(self, name: str, held: Held, done: dict[str, int]) -> None:
        """Have others go on with a partition; note in `done` what to commit of it."""
        with suppress(Lost, Unreachable):
            await held.partition.lanes.let_go()
            done[name] = held.partition.offsets.committable()
        await self._drop([name])  # if it was lost meanwhile, it is about to be taken over again

    async def _idle(self, held: Held) -> None:
        idle = asyncio.ensure_future(held.partition.idle())
        await asyncio.wait({idle, held.running}, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()

    def lost(self, partitions: Sequence[str]) -> None:
        for name in partitions:
            held = self.held.pop(name, None)
            if held is not None:
                held.running.cancel()

    async def _drop(self, partitions: Sequence[str]) -> None:
        held = [self.held.pop(name) for name in partitions if name in self.held]
        await self._stop_work(held)

    async def _stop_work(self, held: Iterable[Held]) -> None:
        some = [one.running for one in held]
        for running in some:
            running.cancel()
        await asyncio.gather(*some, return_exceptions=True)

    async def _keep_up(self) -> None:
        """Keep positions and commit them every second; hold the leases."""
        ticks = 0
        looked_at_s = renewed_at_s = time.monotonic()
        committing: asyncio.Task[None] | None = None
        while True:
            await asyncio.sleep(_COMMIT_EVERY_S)
            ticks += 1
            held = {name: one for name, one in self.held.items() if not one.seeks}
            ends, now_s = await self.source.ends(), time.monotonic()
            for name, one in held.items():
                end = ends.get(name, one.given.high)
                one.partition.offsets.committable()  # else done ones count as in progress
                one.partition.lane.note(one.seen(end, now_s - looked_at_s))
            looked_at_s = now_s
            if ticks % _STEERED_EVERY == 0:
                with suppress(Unreachable):
                    await self._steered(held)
            if is_due := now_s - renewed_at_s >= HELD_S / 3:
                renewed_at_s = now_s
            await asyncio.gather(*(self._tended(one, renew=is_due) for one in held.values()))
            if committing is None or committing.done():
                offsets = {name: one.partition.offsets.committable() for name, one in held.items()}
                committing = self._do_beside(self._commit(offsets), "commit")

    async def _commit(self, offsets: Mapping[str, int]) -> None:
        """Commit to the source, which may take long while it is away: leases go on meanwhile."""
        ours = {name: at for name, at in offsets.items() if name in self.held}
        try:
            with suppress(Unreachable):
                await self.source.commit(ours)
        except Exception as error:  # noqa: BLE001 - of ours, too: it ends the process
            self._fail(error)

    def _do_beside(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _steered(self, held: Mapping[str, Held]) -> None:
        """Do what others have asked for. Raises BadInput once the mapping is another one."""
        documents = self.backend.documents
        await refuse_other(documents, self.stream, self.mapping.fingerprint)
        for name, asked in (await asked_for(documents, self.stream)).items():
            if name not in held:
                continue
            if held[name].partition.lane.position.sought == asked.version:  # by one that died then
                await carried_out(documents, self.stream, name, asked)
            else:
                held[name].seeks = True  # what still comes is of before
                self._do_beside(self._seek(name, held[name], asked), "seek")

    async def _seek(self, name: str, held: Held, asked: Asked) -> None:
        """Go on elsewhere with a partition, unless it is taken away first."""
        seek, partition = asked.seek, held.partition
        self.source.pause(name)
        try:
            to = seek.offset
            if to is None:
                to = await self._retried(lambda: self.source.offset_at(name, seek.at_ms))
            await self._idle(held)
            to = min(to, max((await self.source.ends()).get(name, 0), partition.lanes.at))
            if self.held.get(name) is not held or held.running.done():
                return  # whoever has it now, or next, does what was asked for
            await partition.go_to(to, again=asked.version if seek.again else 0)
            told = "partition %s goes on at %d"
            log.info(told, name, to, extra={"action": "ingest_sought"})
        except Lost as error:
            if self.held.get(name) is held:
                held.running.cancel()
                self._again_soon(held.given, partition, error)
            return
        except BadInput as error:
            to = partition.offsets.committable()
            log.warning("%s", error, extra={"action": "ingest_seek_refused"})
        except Exception as error:  # noqa: BLE001 - of ours, too: it ends the process
            self._fail(error)
            return
        await self._retried(lambda: carried_out(self.backend.documents, self.stream, name, asked))
        self.source.seek(name, to)
        self.source.resume(name)

    async def _tended(self, held: Held, *, renew: bool) -> None:
        lanes = held.partition.lanes
        try:
            if renew:
                await lanes.renew()
            await lanes.save()
            if not held.seeks:
                held.partition.end_old()
        except Unreachable:  # it is tried again
            return
        except Lost as error:
            if self.held.get(lanes.main.partition) is held:
                held.running.cancel()
                self._again_soon(held.given, held.partition, error)

    async def _retried(self, action: Callable[[], Awaitable[T]]) -> T:
        def tell(note: str) -> None:
            log.warning("%s: %s", self.source.name, note, extra={"action": "ingest_waits"})

        return await until_reachable(action, tell, asyncio.sleep)
