"""Steers an ingest from outside: which mapping a stream has, where to go on, and a new beginning.

Whoever steers writes a document, which the processes look for; none of them has to be known.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, TaskConflict, UserError
from pushlane.core.task import Level
from pushlane.ingest.lane import HELD_S, Forgotten, Lost, PartitionLane
from pushlane.ingest.position import Position, all_kept, name_of
from pushlane.model.documents import DocumentStore, as_json
from pushlane.model.streams import Stream
from pushlane.settings import Settings

log = logging.getLogger("pushlane.ingest")

_MAPPING = "ingest-mapping"
_SEEK = "ingest-seek"


class _Mapping(msgspec.Struct, frozen=True):
    fingerprint: str


async def agree(documents: DocumentStore, stream: Stream, mine: str, *, change: bool) -> None:
    """See that all processes of a stream have one mapping; `change` makes it this one.

    Raises BadInput where it is another.
    """
    body = as_json(f"mapping of stream {stream.name}", _Mapping(mine), _Mapping)
    while True:
        there = await documents.get(_MAPPING, stream.place)
        if there is not None and there.body == body:
            return
        if there is not None and not change:
            raise BadInput(
                f"stream {stream.name} is ingested with another mapping file. To replace it, add "
                "--change: new tasks start where each partition is, and the processes with the "
                "other file end"
            )
        version = None if there is None else there.version
        if await documents.put(_MAPPING, stream.place, body, version) is not None:
            return


async def refuse_other(documents: DocumentStore, stream: Stream, mine: str) -> None:
    """Raises BadInput once another process has changed the mapping of a stream."""
    there = await documents.get(_MAPPING, stream.place)
    if there is not None and msgspec.json.decode(there.body, type=_Mapping).fingerprint != mine:
        raise BadInput(
            f"stream {stream.name} has a new mapping file (--change); this process ends. Start "
            "it again with that file"
        )


class Seek(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place where a partition is to go on: an offset, or the first record of a Unix time.

    With `again` what was sent from there on is sent once more, by a new task.
    """

    offset: int | None = None
    at_ms: int = 0
    again: bool = False


class Asked(NamedTuple):
    """A seek that was asked for, with the version of its document."""

    seek: Seek
    version: int


async def ask_for(
    documents: DocumentStore, stream: Stream, partitions: Sequence[str], seek: Seek
) -> None:
    """Ask whoever has these partitions, now or next, to go on elsewhere; the last one counts."""
    body = as_json("a seek", seek, Seek)
    for partition in partitions:
        name = name_of(stream, partition)
        done = None
        while done is None:
            there = await documents.get(_SEEK, name)
            done = await documents.put(_SEEK, name, body, there and there.version)


async def asked_for(documents: DocumentStore, stream: Stream) -> Mapping[str, Asked]:
    """Return the seeks of a stream that nobody has carried out, by partition."""
    start = name_of(stream, "")
    return {
        one.name.removeprefix(start): Asked(msgspec.json.decode(one.body, type=Seek), one.version)
        for one in await documents.list(_SEEK)
        if one.name.startswith(start)
    }


async def carried_out(
    documents: DocumentStore, stream: Stream, partition: str, asked: Asked
) -> None:
    """Forget a seek, unless another was asked for meanwhile."""
    await documents.remove(_SEEK, name_of(stream, partition), asked.version)


async def reset(backend: Backend, settings: Settings, stream: Stream) -> int:
    """Forget how far each partition was read, and end its task; return how many there were.

    What is on lanes is sent. A task of which nobody knows any more what is on its lane is left as
    it is. Raises UserError while a process reads one. Can be repeated.
    """
    kept = await all_kept(backend.documents, stream)
    for level in (*Level, None):
        await _reset(backend, settings, stream, level)
    for partition, asked in (await asked_for(backend.documents, stream)).items():
        await carried_out(backend.documents, stream, partition, asked)
    await backend.documents.remove(_MAPPING, stream.place)
    return len(kept)


async def _reset(backend: Backend, settings: Settings, stream: Stream, level: Level | None) -> None:
    """End the tasks of one level, and forget its positions, but for how many tasks there were."""
    for partition, one in (await all_kept(backend.documents, stream, level)).items():
        was = one.position
        if was is None:
            continue
        lane = PartitionLane(backend, settings, stream, partition, was.of, one, was, level=level)
        try:
            try:
                await lane.close_task()
            except Forgotten:
                told = (
                    "task %s is not closed, as it is unknown how many pushes it has; to end it: %s"
                )
                extra = {"action": "ingest_task_left"}
                log.warning(told, was.task_id, f"pushlane cancel {was.task_id}", extra=extra)
            await one.save(Position(source_id="", at=0, number=lane.position.number))
        except (Lost, TaskConflict) as error:
            raise UserError(
                f"partition {partition} of stream {stream.name} is being read; stop all processes "
                f"that ingest it first (one that was killed counts for {HELD_S:.0f} s)"
            ) from error
