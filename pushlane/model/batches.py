"""Keeps changes of many tasks, so that every process of `serve` knows how far each is.

A change is a document. The ids of its tasks are others, in parts, for as long as some are left to
change. Who makes it holds its lease, and alone writes how far it is; anybody may ask for its stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import TaskConflict
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.util.errors import NotFound, Superseded

MOST_KEPT = 50
"""The newest so many are kept, each for a day."""

_KEPT_MS = 24 * 3_600_000
_KIND, _TASKS = "batch", "batch-tasks"
_PART_BYTES = 60_000
_FAILURES_BYTES = 32_000
_LONGEST_WHY = 300
_TRIES = 10


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A change of `count` tasks, one after another in their order, and how far it is.

    `process` says where it is made, `run` is another word each time that it is begun or gone on
    with. `failures` are the first tasks that could not be changed, each with why. `why` says why it
    has stopped before its end.
    """

    id: str
    who: str
    word: str
    count: int
    began_ms: int
    run: str
    process: str
    done: int = 0
    failed: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    is_stopping: bool = False
    is_running: bool = True
    why: str = ""

    @property
    def ended(self) -> int:
        """So many of the first are changed, or could not be."""
        return self.done + self.failed

    @property
    def left(self) -> int:
        return self.count - self.ended

    def with_failed(self, task: str, why: str) -> Batch:
        """Return it with a task that could not be changed, which is named while there is room."""
        failed = replace(self, failed=self.failed + 1)
        named = (*self.failures, (task, why[:_LONGEST_WHY]))
        if sum(len(text.encode()) for each in named for text in each) > _FAILURES_BYTES:
            return failed
        return replace(failed, failures=named)


Edit = Callable[[Batch], Batch]


def lease_of(batch_id: str) -> str:
    """Return the name of the lease that who makes a change holds."""
    return f"batch-{batch_id}"


def newest(mine: Batch) -> Edit:
    """Put how far it is now. Raises Superseded where another goes on with it."""

    def edit(kept: Batch) -> Batch:
        if kept.run != mine.run:
            raise Superseded("another process goes on with it")
        return replace(mine, is_stopping=kept.is_stopping)

    return edit


async def add_batch(documents: DocumentStore, batch: Batch, tasks: Sequence[str]) -> None:
    """Keep a change that is new, with the ids of its tasks."""
    await forget_batches(documents, batch.began_ms)
    await documents.put(_KIND, batch.id, as_json("a change of many tasks", batch, Batch), None)
    body = " ".join(tasks).encode()
    for number, start in enumerate(range(0, len(body), _PART_BYTES)):
        part = body[start : start + _PART_BYTES]
        await documents.put(_TASKS, f"{batch.id}/{number}", part, None)


async def find_batch(documents: DocumentStore, batch_id: str) -> Batch | None:
    """Return a change, None when it is not there (any more)."""
    found = await documents.get(_KIND, batch_id)
    return None if found is None else _decoded(found)


async def tasks_of(documents: DocumentStore, batch_id: str) -> list[str]:
    """Return the ids of the tasks of a change that is not through."""
    body, number = b"", 0
    while (part := await documents.get(_TASKS, f"{batch_id}/{number}")) is not None:
        body, number = body + part.body, number + 1
    return body.decode().split()


async def change_batch(documents: DocumentStore, batch_id: str, edit: Edit) -> Batch:
    """Replace a change by `edit(change)`, and return it as it is then.

    Once it is through, the ids of its tasks are removed. Raises NotFound when it is not there, and
    TaskConflict when it is being written elsewhere again and again.
    """
    for _ in range(_TRIES):
        found = await documents.get(_KIND, batch_id)
        if found is None:
            raise NotFound(
                "this change is no longer kept; the audit (`pushlane audit`, for operators) shows "
                "what was done"
            )
        after = edit(_decoded(found))
        body = as_json("a change of many tasks", after, Batch)
        if await documents.put(_KIND, batch_id, body, found.version) is not None:
            if not after.is_running and not after.left:
                await _remove_tasks(documents, batch_id)
            return after
    raise TaskConflict("another process is writing this change; try again")


async def forget_batches(documents: DocumentStore, now_ms: int) -> None:
    """Remove those that are older than a day, and all but the newest."""
    kept = sorted(map(_decoded, await documents.list(_KIND)), key=lambda one: -one.began_ms)
    for at, one in enumerate(kept):
        if at >= MOST_KEPT - 1 or one.began_ms < now_ms - _KEPT_MS:
            await documents.remove(_KIND, one.id)
            await _remove_tasks(documents, one.id)


async def _remove_tasks(documents: DocumentStore, batch_id: str) -> None:
    number = 0
    while await documents.remove(_TASKS, f"{batch_id}/{number}"):
        number += 1


def _decoded(found: Document) -> Batch:
    return msgspec.json.decode(found.body, type=Batch)
