"""The law of ingest: each record is on a lane once, in its partition's order, over anything."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane import Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.push import Push
from pushlane.ingest import ingest
from pushlane.ingest.mapping import Made, compiled
from pushlane.ingest.steering import Seek, ask_for
from pushlane.model.names import submit_lease
from tests.ingest.sources import STREAM, Log, Reader, pushes, reading, recipients, value

PARTITIONS = ("0", "1")
MAPPING = compiled(
    {"recipient": "device", "ordered_by": "who", "data": ["who"], "when": {"paid": True}}, "one"
)
BY_LEVEL = compiled({"recipient": "device", "level": "how", "when": {"paid": True}}, "levels")
_LEVELS = "high", "low", ""
_OFTEN = "add", "work"
_WHAT = [*_OFTEN * 2, "read", "keep", "seek", "kill", "end", "move", "freeze", "thaw"]
_STEPS = st.lists(st.tuples(st.sampled_from(_WHAT), st.integers(0, 7)), max_size=25)


class Group:
    """Processes that share the partitions of a log. A frozen one goes on later with what others
    have taken over meanwhile.
    """

    def __init__(
        self, backend: Backend, settings: Settings, stack: AsyncExitStack, mapping: Made
    ) -> None:
        self.mapping = mapping
        self.log = Log()
        self.log.of = {name: [] for name in PARTITIONS}
        self.wanted: dict[str, list[str]] = {name: [] for name in PARTITIONS}
        self._backend = backend
        self._settings = settings
        self._stack = stack
        self._owners: dict[str, Reader] = {}
        self._frozen: list[tuple[Reader, str]] = []

    async def do(self, what: str, number: int) -> None:
        partition = PARTITIONS[number % len(PARTITIONS)]
        owner = self._owners.get(partition)
        match what:
            case "add":
                self._add(partition, number)
            case "read":
                await self.read(partition)
            case "work":
                await self._work(partition)
            case "thaw":
                for reader, name in self._frozen:
                    await reader.source.read(name)
            case "keep" if owner is not None:
                await owner.ingest._tended(owner.ingest.held[partition], renew=True)
            case "kill" if owner is not None:
                del self._owners[partition]
                await owner.kill(self._backend)
            case "end" if owner is not None:
                del self._owners[partition]
                await owner.end()
            case "move" if owner is not None:
                del self._owners[partition]
                await owner.source.take_away(partition)
            case "seek" if owner is not None:
                await self._seek(partition, owner, number)
            case "freeze" if owner is not None:
                await self._freeze(partition, owner)

    def _add(self, partition: str, number: int) -> None:
        for n in range(number + 1):
            device, is_paid = f"{partition}-{self.log.end(partition)}", n % 3 < 2
            how = _LEVELS[(n + number) % len(_LEVELS)]
            made = value(device, paid=is_paid, who=f"w{n}", how=how)
            self.log.add(partition, made, step=1 + number % 3)
            if is_paid:
                self.wanted[partition].append(device)

    async def read(self, partition: str) -> None:
        """Read all that there is, by the owner or a new one; what comes of it goes on beside."""
        if partition not in self._owners:
            self._owners[partition] = await self._reader(partition)
        await self._owners[partition].source.read(partition)

    async def _work(self, partition: str) -> None:
        """Read, and wait for what comes of it, which no position tells of as yet."""
        await self.read(partition)
        ingest = self._owners[partition].ingest
        await ingest._idle(ingest.held[partition])

    async def finish(self, partition: str) -> None:
        """Read until all is done."""
        while True:
            await self.read(partition)
            owner = self._owners[partition]
            if owner.running.done():
                await owner.running
            held = owner.ingest.held[partition]
            if not held.seeks and held.partition.lanes.at >= self.log.end(partition):
                return
            await asyncio.sleep(0)

    async def _seek(self, partition: str, owner: Reader, back: int) -> None:
        """Have records read again that are done, or on their way."""
        held = owner.ingest.held[partition]
        if not held.seeks:
            seek = Seek(offset=max(0, held.partition.lanes.at - back))
            await ask_for(self._backend.documents, STREAM, [partition], seek)
            await owner.ingest._steered({partition: held})

    async def _reader(self, partition: str) -> Reader:
        opened = reading(self._backend, self._settings, self.log, partition, mapping=self.mapping)
        return await self._stack.enter_async_context(opened)

    async def _freeze(self, partition: str, owner: Reader) -> None:
        """Leave a process as it is, with records on their way, while its lease runs out."""
        del self._owners[partition]
        self._frozen.append((owner, partition))
        for lane in owner.ingest.held[partition].partition.lanes:
            if not lane.position.task_id:
                continue
            await self._backend.lease.release(submit_lease(lane.position.task_id), lane.holder)


def refuse_out_of_order(some: list[Push]) -> None:
    """See that each push goes after the one before it, in its task, that has the same key."""
    last: dict[tuple[str, str], int] = {}
    for push in some:
        assert push.data is not None
        key = push.task_id, str(push.data["who"])
        assert push.after_seq == last.get(key, 0)
        last[key] = push.seq


async def _try(steps: list[tuple[str, int]], folder: Path, mapping: Made) -> None:
    settings = Settings(broker="embedded", data_dir=folder)
    async with connect(settings) as backend, AsyncExitStack() as stack:
        group = Group(backend, settings, stack, mapping)
        for what, number in steps:
            await group.do(what, number)
        for partition in PARTITIONS:
            await group.finish(partition)

        found = await recipients(backend)
        for name in PARTITIONS:
            mine = [one for one in found if one.startswith(name)]
            if mapping.leveled:
                assert sorted(mine) == sorted(group.wanted[name])
            else:
                assert mine == group.wanted[name]
        if mapping.ordered:
            refuse_out_of_order(await pushes(backend))
        await stack.aclose()


@pytest.mark.parametrize("mapping", [MAPPING, BY_LEVEL], ids=["one lane", "a lane a level"])
@given(steps=_STEPS)
def test_each_record_is_on_a_lane_once_over_kills_moves_and_processes_that_were_frozen(
    steps: list[tuple[str, int]], mapping: Made
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(ingest, "_AGAIN_S", 0.005)
        asyncio.run(_try(steps, Path(folder), mapping))
