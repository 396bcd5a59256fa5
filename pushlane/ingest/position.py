"""Keeps how far each partition of a stream is: a document of some hundred bytes for each.

It is written before an offset is committed, by the process that has the partition: a version that
is not the expected one says that another process has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import TaskConflict
from pushlane.core.task import Level
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.model.streams import Stream

KIND = "ingest-partition"


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a partition as a process saw it at `at_ms`, in Unix milliseconds.

    The source ended at `end`. So many records were `in_progress`, were done each second lately, and
    have been `bad` in all.
    """

    at_ms: int
    end: int = 0
    in_progress: int = 0
    per_s: float = 0.0
    bad: int = 0


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place up to which a partition is done, in offsets of its source.

    `source_id` tells the partition from one of the same name that was made later. Each record below
    `at` is done, and `pushes` of them are of the task that is fed now, whose seq 1 is the offset
    `base`; `order` has the last seq of each order key among them, packed. `of` is the fingerprint
    of the mapping that this task began with, and `number` tells how many tasks the partition has
    had. `sought` is the version of the last seek that began a task; records below `again` were done
    before it, and are asked for once more from `at` on. Of a level's lane, `mapping` is the
    fingerprint of the one it is used by, empty for none. `seen` is for who looks.
    """

    source_id: str
    at: int
    task_id: str = ""
    base: int = 0
    pushes: int = 0
    of: str = ""
    number: int = 0
    sought: int = 0
    order: bytes = b""
    again: int = 0
    mapping: str = ""
    seen: Seen | None = None

    def without_task(self, at: int) -> Position:
        """Return it as it is once its task is over: what comes from `at` on is another's."""
        return replace(self, at=at, task_id="", base=0, pushes=0, of="", order=b"")


class Positions(NamedTuple):
    """The positions of one partition: `main`, and those of the levels that its records name."""

    main: Position
    by_level: Mapping[Level, Position]

    @property
    def all(self) -> Sequence[Position]:
        return self.main, *self.by_level.values()

    @property
    def lowest(self) -> int:
        """The offset from which the partition is read: all below is done."""
        return min(one.at for one in self.all)

    @property
    def highest(self) -> int:
        """The offset that no record which is done reaches; above `lowest` after a kill."""
        return max(one.at for one in self.all)


@dataclass(eq=False)
class Kept:
    """The position of one partition as it is kept, with its version there."""

    documents: DocumentStore
    name: str
    version: int | None = None
    position: Position | None = None
    kind: str = KIND

    async def save(self, position: Position) -> None:
        """Keep another position. Raises TaskConflict where another process has changed it."""
        if position == self.position:
            return
        body = as_json(f"position of {self.name}", position, Position)
        version = await self.documents.put(self.kind, self.name, body, self.version)
        if version is None:
            there = await self.documents.get(self.kind, self.name)
            if there is None or there.body != body:  # else the answer was lost, and it is ours
                raise TaskConflict(f"partition {self.name} is read by another process")
            version = there.version
        self.version, self.position = version, position


def name_of(stream: Stream, partition: str) -> str:
    """Return the name of the document of a partition."""
    return f"{stream.place}/{partition}"


async def kept_of(
    documents: DocumentStore, stream: Stream, partition: str, level: Level | None = None
) -> Kept:
    """Return the position of a partition as it is kept now, or that of one level of it."""
    name, kind = name_of(stream, partition), _kind(level)
    return _kept(documents, name, await documents.get(kind, name), kind)


async def all_kept(
    documents: DocumentStore, stream: Stream, level: Level | None = None
) -> dict[str, Kept]:
    """Return those of all partitions of a stream, by partition, or those of one level of them."""
    start, kind = name_of(stream, ""), _kind(level)
    found = [one for one in await documents.list(kind) if one.name.startswith(start)]
    return {one.name.removeprefix(start): _kept(documents, one.name, one, kind) for one in found}


async def kept_of_each(
    documents: DocumentStore, stream: Stream, partitions: Sequence[str], level: Level | None = None
) -> dict[str, Kept]:
    """Return those of these partitions, known or new: asks once, however many they are."""
    if len(partitions) == 1:  # a list has all there are
        return {partitions[0]: await kept_of(documents, stream, partitions[0], level)}
    found = await all_kept(documents, stream, level)
    return {
        one: found.get(one) or Kept(documents, name_of(stream, one), kind=_kind(level))
        for one in partitions
    }


def positions_of(main: Position, levels: Mapping[Level, Kept]) -> Positions:
    """Return the positions of a partition, with those of levels that its mapping uses."""
    found = {level: one.position for level, one in levels.items() if one.position is not None}
    return Positions(main, {level: one for level, one in found.items() if one.mapping})


async def all_positions(documents: DocumentStore, stream: Stream) -> dict[str, Positions]:
    """Return those of all partitions of a stream, by partition."""
    by_level = {level: await all_kept(documents, stream, level) for level in Level}
    return {
        name: positions_of(
            kept.position, {level: some[name] for level, some in by_level.items() if name in some}
        )
        for name, kept in (await all_kept(documents, stream)).items()
        if kept.position is not None
    }


def _kind(level: Level | None) -> str:
    return KIND if level is None else f"{KIND}-{level}"


def _kept(documents: DocumentStore, name: str, found: Document | None, kind: str) -> Kept:
    if found is None:
        return Kept(documents, name, kind=kind)
    position = msgspec.json.decode(found.body, type=Position)
    return Kept(documents, name, found.version, position, kind)
