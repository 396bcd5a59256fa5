"""How a task is stored: as a msgpack map, with whatever newer versions have added to it.

A field that is not known here is kept, and written back with a change. A task that cannot be
understood, since its format is higher or one of its values is new, is never changed or guessed at:
it is skipped, said once, and left to processes of a newer version.
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

FORMAT = 1
"""The highest format of tasks that this version reads."""


class Glimpse(msgspec.Struct, frozen=True):
    """What a registry needs to know of a task to keep it, whoever understands the rest."""

    key: str = ""
    name: str = ""
    state: str = ""
    format: int = 1
    finished_at_ms: int = 0
    lane_dropped: bool = False

    @property
    def is_active(self) -> bool:
        """A state that is not known may be anything: the task counts as not finished."""
        return self.state not in TERMINAL_STATES


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Task)
_glimpse_decoder = msgspec.msgpack.Decoder(Glimpse)
_map_decoder = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_FIELDS = frozenset(Task.__struct_fields__) - {"unknown"}
_WHOLE = _encoder.encode(dict.fromkeys(_FIELDS, 0))[:3]  # how a map of just these begins


def encode(task: Task) -> bytes:
    """The bytes to store, with what was not known of the task when it was read."""
    if task.unknown is UNSET:
        return _encoder.encode(task)
    known = _map_decoder.decode(_encoder.encode(replace(task, unknown=UNSET)))
    return _encoder.encode({**_map_decoder.decode(task.unknown), **known})


def decode(task_id: str, body: bytes) -> Task:
    """The task in these bytes.

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
    """What can be told of a task that may be a newer version's."""
    try:
        return _glimpse_decoder.decode(body)
    except _UNREADABLE:
        return Glimpse()


def _with_unknown(task: Task, body: bytes) -> Task:
    fields = _map_decoder.decode(body)
    unknown = {name: fields[name] for name in fields.keys() - _FIELDS}
    return replace(task, unknown=_encoder.encode(unknown)) if unknown else task


class Understood:
    """Reads many tasks, and says once of each that it cannot read."""

    def __init__(self) -> None:
        self._once = Once(log)

    def read(self, bodies: Iterable[tuple[str, bytes]]) -> tuple[list[Task], list[str]]:
        """The tasks among these ids and bodies, and the ids of those that are a newer version's."""
        tasks: list[Task] = []
        unread: list[str] = []
        for task_id, body in bodies:
            try:
                tasks.append(decode(task_id, body))
            except UnknownFormat as error:
                unread.append(task_id)
                self._once.tell(task_id, error)
        return tasks, unread
