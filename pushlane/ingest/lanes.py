"""The lanes of one partition: one, or one more for each level that its records may have.

Each has a task and a position of its own, by which a record of its level that is done is known. So
what holds for the one lane of a partition holds for each: a level follows from its record alone,
and another mapping begins where all lanes have come to the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import Level
from pushlane.ingest.lane import Lost, PartitionLane


@dataclass(eq=False)
class Lanes:
    """The lanes of a partition in the one process that has it.

    `by_level` are those of records that name a level, which the mapping does when `is_leveled`;
    `main` takes all the others.
    """

    main: PartitionLane
    by_level: dict[Level, PartitionLane] = field(default_factory=dict)
    is_leveled: bool = False

    def __iter__(self) -> Iterator[PartitionLane]:
        yield from self.by_level.values()
        yield self.main  # the last to be kept, and what is shown of the partition

    @property
    def at(self) -> int:
        """The lowest offset that is not done."""
        return min(lane.at for lane in self)

    @property
    def are_old(self) -> bool:
        """True where one of them feeds a task that has been open for a day."""
        return any(lane.is_old for lane in self)

    async def seal_old(self) -> None:
        """End tasks that have been open for a day, whether or not more comes. Can be repeated.

        Raises Lost.
        """
        for lane in self:
            if lane.is_old:
                await lane.seal()

    async def open(self) -> None:
        """Take all of them over. Can be repeated. Raises what `PartitionLane.open` does."""
        try:
            for lane in self:
                await lane.open()
            await self._agree()
        except Lost:  # the others are for whoever has that one
            with suppress(Lost):
                await self.let_go()
            raise

    async def _agree(self) -> None:
        """Begin lanes of levels where there are none of this mapping, and end those of another.

        Raises BadInput where records behind the lowest that is not done are on a lane: by another
        mapping they may be of another lane, which does not know them.
        """
        mine = self.main.of if self.is_leveled else ""
        if all(lane.position.mapping == mine for lane in self.by_level.values()):
            return
        had = [self.main, *(lane for lane in self.by_level.values() if lane.position.mapping)]
        for lane in had:
            await lane.seal()
        if len({lane.at for lane in had}) > 1:
            raise BadInput(
                f"the process that read partition {self.main.partition} was killed, and left "
                "some levels ahead of others. Ingest with the previous mapping (--change), stop "
                "that with SIGTERM, then start with this one"
            )
        await self.main.save()
        for lane in self.by_level.values():
            await lane.begin_as(self.main.position, mine)
        if not self.is_leveled:
            self.by_level = {}  # not emptied: a thread that shows metrics may go through it

    async def go_to(self, offset: int, *, again: int = 0) -> None:
        """Go on elsewhere, once nothing is in progress. Can be repeated. Raises Lost.

        With `again`, see `PartitionLane.go_to`; `main` is the last to be there.
        """
        for lane in self:
            if not again or lane.position.sought != again:  # else by one that died in it
                await lane.go_to(offset, again=again)

    async def save(self) -> None:
        """Keep how far each is. Raises Lost."""
        for lane in self:
            await lane.save()

    async def renew(self) -> None:
        """Hold the lease of each for longer. Raises Lost."""
        for lane in self:
            await lane.renew()

    async def let_go(self) -> None:
        """Keep how far each is, and let another process go on. Raises Lost, and Unreachable."""
        failed: Lost | Unreachable | None = None
        for lane in self:
            try:
                await lane.let_go()
            except (Lost, Unreachable) as error:
                failed = error
        if failed is not None:
            raise failed
