"""Remembers up to which row a submit that is made in parts (`first`) has come, and was to come.

A broker knows a repeated message by the seq of its last push. So where a part was to end, a message
ends whenever these rows are published again: then the broker has a message once, or none of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import TaskConflict
from pushlane.core.task import State, Task
from pushlane.model.documents import as_json, place_of
from pushlane.model.names import PARTS
from pushlane.util.errors import DamagedRecord


class Parts(msgspec.Struct, frozen=True):
    """The seq up to which all is on the lane, and those behind it at which a part was to end."""

    reached: int = 0
    ends: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The seq up to which any part was to come."""
        return self.ends[-1] if self.ends else self.reached

    def to(self, seq: int) -> Parts:
        """Return these with one that is to end at this seq, which is not before the last."""
        return self if seq == self.last else Parts(self.reached, (*self.ends, seq))

    def cut(self, bodies: list[bytes], before: int) -> Iterator[list[bytes]]:
        """Yield the pushes behind the seq `before` in pieces, none beyond the end of a part.

        Those behind the last end are left out.
        """
        for end in (self.reached, *self.ends):
            piece, bodies = bodies[: max(0, end - before)], bodies[max(0, end - before) :]
            if piece:
                yield piece
                before += len(piece)


class PartsStore:
    """The parts of one task, which only who holds its submit's lease reads and writes."""

    def __init__(self, backend: Backend, task: Task) -> None:
        self._documents = backend.documents
        self._task = task
        self._version: int | None = None

    async def read(self) -> Parts | None:
        """Return the parts; None when the task was never submitted in parts.

        Raises DamagedRecord when they cannot be read.
        """
        found = await self._documents.get(PARTS, self._task.id)
        if found is None:
            return None
        self._version = found.version
        try:
            return msgspec.json.decode(found.body, type=Parts)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f"how far task {self._task.id} is submitted"
            way_out = "cancel the task, and submit all of it under a new key"
            raise DamagedRecord(what, place_of(error), way_out) from error

    async def write(self, parts: Parts) -> None:
        """Keep the parts, durably. Raises TaskConflict when another process writes them, too."""
        what = f"how far task {self._task.id} is submitted"
        body = as_json(what, parts, Parts)
        self._version = await self._documents.put(PARTS, self._task.id, body, self._version)
        if self._version is None:
            raise TaskConflict(f"{what} was written by another process; run this again")

    async def remove(self) -> None:
        if self._version is not None:
            await self._documents.remove(PARTS, self._task.id)


def begun(task: Task, parts: Parts | None, end: int) -> Parts:
    """Return the parts of a task of which a part is to end at this seq.

    One that is behind what was submitted before stays as it is.

    Raises:
        TaskConflict: more may be submitted of it already, since it was to come further.
    """
    if parts is None:
        if task.state is not State.SUBMITTED:
            raise TaskConflict(
                f"a submit of all rows of task {task.id} (key {task.key!r}) was begun and stopped "
                "half-way, so more than the first may be sent already; go on without --first, or "
                f"hold it: pushlane pause {task.id}"
            )
        return Parts(ends=(end,))
    if parts.reached < end < parts.last:
        raise TaskConflict(
            f"a submit of the first {parts.last:,} rows of task {task.id} (key {task.key!r}) was "
            f"begun and stopped half-way; go on with --first {parts.last}, or without --first"
        )
    return parts if end <= parts.reached else parts.to(end)
