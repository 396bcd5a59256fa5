"""Keeps streams: what single pushes are sent as, whichever process takes them.

A stream is a document of an app. One process alone can feed a task, so each process that takes
pushes of a stream feeds a task of its own, whose key names the stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.task import Level, Task
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.util.errors import NotFound

MOST_STREAMS = 1_000
"""So many there may be, of all apps together."""

_KIND = "stream"
_TRIES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY = "stream/"
_LEVELS = frozenset(Level)
_PARTITION = "@"  # with which no id of a task begins


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an app's stream. Each push of it expires `expires_after_s` after it came."""

    name: str
    app: str
    level: Level
    quota: int = 1
    sinks: tuple[str, ...] = ()
    max_attempts: int | None = None
    expires_after_s: float | None = None
    rate_per_s: float | None = None
    in_flight: int | None = None
    paused: bool = False
    reason: str = ""
    created_at_ms: int = 0

    @property
    def place(self) -> str:
        """The name of its document, by which the audit names it, too."""
        return place_of(self.app, self.name)

    @property
    def key(self) -> str:
        """The beginning of the keys of its tasks."""
        return f"{_KEY}{self.place}/"

    @property
    def fixed(self) -> tuple[object, ...]:
        """The options that a task keeps for good; changed ones are for the next task."""
        return (self.created_at_ms, self.sinks, self.max_attempts)


def place_of(app: str, name: str) -> str:
    """Return the name of a stream's document."""
    return f"{app}/{name}"


def is_of_stream(task: Task) -> bool:
    """Tell whether a task is one that a process feeds for a stream, and no other goes on with."""
    return task.is_fed and task.key.startswith(_KEY) and not is_of_partition(task)


def partition_key(stream: Stream, partition: str, number: int, level: Level | None = None) -> str:
    """Return the key of the task of this number of a partition of an ingested source.

    A task has a `level` there when it is that of its records, not that of the stream.
    """
    return f"{stream.key}{_PARTITION}{partition}/{level + '/' if level else ''}{number}"


def level_of(task: Task, stream: Stream) -> Level:
    """Return the level of a task of a stream."""
    steps = task.key.split("/")
    is_own = is_of_partition(task) and steps[-2] in _LEVELS
    return Level(steps[-2]) if is_own else stream.level


def is_of_partition(task: Task) -> bool:
    """Tell whether a task is one of an ingested partition: whoever has that goes on with it."""
    return task.is_fed and task.key.startswith(_KEY) and f"/{_PARTITION}" in task.key


def producer_key(task_id: str) -> str:
    """Return the key of the task of a producer without a spool, which no other goes on with."""
    return f"producer:{task_id}"


def is_of_producer(task: Task) -> bool:
    """Tell whether a task is one of a producer without a spool, beside the backend or a server."""
    return task.key.endswith(producer_key(task.id))  # a server puts the app before it


def source_of(task: Task) -> str:
    """Return the name by which the pushes of a stream's or a producer's task are published."""
    return f"producer-{task.id}" if task.is_fed else lines_source(task.id)


def lines_source(task_id: str) -> str:
    """Return the name by which the pushes of a task are published that come as lines."""
    return f"submit-{task_id}"


def check_name(name: str) -> str:
    """Return a name for a new stream. Raises BadInput."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name[:40]!r} is not a name for a stream; use 1 to 64 letters, digits, dots, "
            "dashes and underscores, the first a letter or a digit"
        )
    return name


async def find_stream(documents: DocumentStore, app: str, name: str) -> Stream | None:
    """Return the stream of this name, None when there is none."""
    if not _NAME.fullmatch(name):
        return None
    found = await documents.get(_KIND, place_of(app, name))
    return None if found is None else _decoded(found)


async def list_streams(documents: DocumentStore) -> list[Stream]:
    """Return all streams, by app and name."""
    return [_decoded(one) for one in await documents.list(_KIND)]


async def change_stream(
    documents: DocumentStore, app: str, name: str, edit: Callable[[Stream | None], Stream]
) -> tuple[Stream | None, Stream]:
    """Replace a stream by `edit(stream)`, None for a new one; return it as it was and as it is.

    Raises:
        BadInput: there are as many as there may be.
        TaskConflict: it is being changed elsewhere again and again.
    """
    place = place_of(app, name)
    for _ in range(_TRIES):
        found = await documents.get(_KIND, place)
        before = None if found is None else _decoded(found)
        after = edit(before)
        if after == before:
            return before, after
        if found is None and len(await documents.list(_KIND)) >= MOST_STREAMS:
            raise BadInput(
                f"there are {MOST_STREAMS:,} streams already, the most allowed; end some"
            )
        body = as_json(f"stream {place}", after, Stream)
        version = found.version if found else None
        if await documents.put(_KIND, place, body, version) is not None:
            return before, after
    raise TaskConflict(f"stream {name} is being changed elsewhere; look at it, then try again")


def existing(stream: Stream | None) -> Stream:
    """Return a stream that has to be there. Raises NotFound."""
    if stream is None:
        raise NotFound("the stream was ended meanwhile; make it again, then try again")
    return stream


def only_stream(found: Sequence[Stream], name: str) -> Stream:
    """Return the stream that was found. Raises NotFound for none, BadInput for several."""
    if not found:
        raise NotFound(f"there is no stream {name[:60]!r} of an app that you may see")
    if len(found) > 1:
        apps = ", ".join(one.app for one in found)
        raise BadInput(f"several apps have a stream {name!r}: {apps}; give one of them as app")
    return found[0]


async def remove_stream(documents: DocumentStore, app: str, name: str) -> bool:
    """End a stream. False when there was none."""
    return await documents.remove(_KIND, place_of(app, name))


def _decoded(found: Document) -> Stream:
    return msgspec.json.decode(found.body, type=Stream)
