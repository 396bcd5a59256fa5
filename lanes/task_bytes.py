"""The stored form of a task: a msgpack map, with all that newer versions have added to it.

A field that is not known here is kept, and written back with a change. A task that cannot be
understood, since its format is higher or one of its values is new, is never changed or guessed at:
it is skipped, logged once, and left to processes of a newer version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pushlane.lanes.errors import UnknownFormat
from pushlane.lanes.once import Once
from pushlane.lanes.task import TERMINAL_STATES, Task

log = logging.getLogger("pushlane.tasks")

FORMAT = 2
"""The highest format of tasks that this version reads: 2 is one for a sink that has a name."""


class Glimpse(msgspec.Struct, frozen=True):
    """The few fields that a registry needs to keep a task, even one that it does not understand."""

    key: str = ""
    name: str = ""
    state: str = ""
    format: int = 1
    finished_at_ms: int = 0
    lane_dropped: bool = False

    @property
    def is_active(self) -> bool:
        """True when the task counts as not finished, as one in an unknown state does."""
        return self.state not in TERMINAL_STATES


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Task)
_glimpse_decoder = msgspec.msgpack.Decoder(Glimpse)
_map_decoder = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_FIELDS = frozenset(Task.__struct_fields__) - {"unknown"}
_WHOLE = _encoder.encode(dict.fromkeys(_FIELDS, 0))[:3]  # how a map of just these begins


def encode(task: Task) -> bytes:
    """Return the bytes to store, with the fields that were not known when the task was read."""
    if task.unknown is UNSET:
        return _encoder.encode(task)
    known = _map_decoder.decode(_encoder.encode(replace(task, unknown=UNSET)))
    return _encoder.encode({**_map_decoder.decode(task.unknown), **known})


def decode(task_id: str, body: bytes) -> Task:
    """Return the task in these bytes.

    Raises:
        UnknownFormat: only a newer version understands it; names the task.
    """
    try:
        task = _decoder.decode(body)
    except _UNREADABLE as error:
        number = glimpse(body).format
        raise UnknownFormat(number if number > FORMAT else 0, f"task {task_id}") from error
    if task.format > FORMAT:
        raise UnknownFormat(task.format, f"task {task_id}")
    return task if body.startswith(_WHOLE) else _with_unknown(task, body)


def glimpse(body: bytes) -> Glimpse:
    """Return the few fields that can be read of any task, even a newer version's."""
    try:
        return _glimpse_decoder.decode(body)
    except _UNREADABLE:
        return Glimpse()


def _with_unknown(task: Task, body: bytes) -> Task:
    fields = _map_decoder.decode(body)
    unknown = {name: fields[name] for name in fields.keys() - _FIELDS}
    return replace(task, unknown=_encoder.encode(unknown)) if unknown else task


class Understood:
    """Reads many tasks, and logs once of each that it cannot read it."""

    def __init__(self) -> None:
        self._once = Once(log)

    def read(self, bodies: Iterable[tuple[str, bytes]]) -> tuple[list[Task], list[str]]:
        """Return the tasks among these ids and bodies, and the ids of those that cannot be read."""
        tasks: list[Task] = []
        unread: list[str] = []
        for task_id, body in bodies:
            try:
                tasks.append(decode(task_id, body))
            except UnknownFormat as error:
                unread.append(task_id)
                self._once.tell(task_id, error)
        return tasks, unread
