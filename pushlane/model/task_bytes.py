"""The stored form of a task, and the rule by which one of several stored values stands.

A task is a msgpack map. A field that is not known here is kept, and written back with a change. A
task that cannot be read is never changed or guessed at: it is skipped, logged once, and left to
processes of a newer version if its format is higher. Otherwise it is damaged, and can only be
removed. What could not be read back is not encoded.

Two servers of Redis may each take changes of a task for a while, without the other's. A cancelled
value stands over any other, so that nothing cancelled is sent; else the higher version does, and of
equal ones the later in the journal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pushlane.core.errors import InvalidChange, UnknownFormat
from pushlane.core.task import TERMINAL_STATES, State, Task, Weights
from pushlane.model.documents import checked, place_of
from pushlane.util.errors import DamagedRecord

log = logging.getLogger("pushlane.tasks")

FORMAT = 2
"""The highest format of tasks that this version reads: 2 is one for a sink that has a name."""


class Glimpse(msgspec.Struct, frozen=True):
    """The few fields that a registry needs to keep a task, even one that it does not understand."""

    id: str = ""
    key: str = ""
    name: str = ""
    state: str = ""
    format: int = 1
    version: int = 0
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
    """Return the bytes to store, with the fields that were not known when the task was read.

    Raises Unstorable when it could not be read back.
    """
    return checked(f"task {task.id}", lambda: _encoded(task), partial(decode, task.id))


def encode_weights(weights: Weights) -> str:
    """Return the weights as they are stored. Raises Unstorable if they could not be read back."""
    body = checked(
        "the level weights", str(weights).encode, lambda body: Weights.parse(body.decode())
    )
    return body.decode()


def _encoded(task: Task) -> bytes:
    if task.unknown is UNSET:
        return _encoder.encode(task)
    known = _map_decoder.decode(_encoder.encode(replace(task, unknown=UNSET)))
    return _encoder.encode({**_map_decoder.decode(task.unknown), **known})


def decode(task_id: str, body: bytes) -> Task:
    """Return the task in these bytes.

    Raises:
        UnknownFormat: only a newer version understands it; names the task.
        DamagedRecord: no version understands it.
    """
    try:
        task = _decoder.decode(body)
    except _UNREADABLE as error:
        number = glimpse(body).format
        if number > FORMAT:
            raise UnknownFormat(number, f"task {task_id}", task_id=task_id) from error
        remove = f"remove it: pushlane forget {task_id} --force"
        place = place_of(error)
        raise DamagedRecord(f"task {task_id}", place, remove, task_id=task_id) from error
    if task.format > FORMAT:
        raise UnknownFormat(task.format, f"task {task_id}", task_id=task_id)
    if body.startswith(_WHOLE):
        return task
    fields = _map_decoder.decode(body)
    unknown = {name: fields[name] for name in fields.keys() - _FIELDS}
    return replace(task, unknown=_encoder.encode(unknown)) if unknown else task


def read_or_id(task_id: str, body: bytes) -> Task | str:
    """Return the task in these bytes, or its id if it cannot be read."""
    try:
        return decode(task_id, body)
    except UnknownFormat:
        return task_id


def refuse_readable(task_id: str, body: bytes) -> None:
    """Raise InvalidChange for a task that can be read, and so can be cancelled and forgotten."""
    with suppress(UnknownFormat):
        decode(task_id, body)
        raise InvalidChange(f"task {task_id} can be read: cancel and forget it as any other task")


def faults(bodies: Iterable[tuple[str, bytes]]) -> Iterator[UnknownFormat]:
    """Yield what is wrong with each of these tasks that cannot be read."""
    for task_id, body in bodies:
        try:
            decode(task_id, body)
        except UnknownFormat as error:
            yield error


def glimpse(body: bytes) -> Glimpse:
    """Return the few fields that can be read of any task, even a newer version's."""
    with suppress(*_UNREADABLE):
        return _glimpse_decoder.decode(body)
    found: dict[str, Any] = {}  # of a damaged one those that can be read, each by itself
    with suppress(*_UNREADABLE):
        fields = _map_decoder.decode(body)
        for field in msgspec.structs.fields(Glimpse):
            with suppress(KeyError, *_UNREADABLE):
                found[field.name] = msgspec.msgpack.decode(fields[field.name], type=field.type)
    return Glimpse(**found)


class Understood:
    """Reads many tasks. Of those that it cannot read it logs the new ones in one line a look."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def read(self, bodies: Iterable[tuple[str, bytes]]) -> tuple[list[Task], list[str]]:
        """Return the tasks among these ids and bodies, and the ids of those that cannot be read."""
        tasks: list[Task] = []
        unread: dict[str, UnknownFormat] = {}
        for task_id, body in bodies:
            try:
                tasks.append(decode(task_id, body))
            except UnknownFormat as error:
                unread[task_id] = error
        if new := [error for task_id, error in unread.items() if task_id not in self._told]:
            self._told.update(unread)
            log.warning("%s", _summary(new), extra={"action": "format_unknown"})
        return tasks, list(unread)


def _summary(errors: Sequence[UnknownFormat]) -> str:
    """Say in one line what cannot be read; of one alone all that is known."""
    if len(errors) == 1:
        return str(errors[0])
    damaged = sum(isinstance(error, DamagedRecord) for error in errors)
    return unread_text(damaged, len(errors) - damaged)


def unread_text(damaged: int, newer: int) -> str:
    """Say how many tasks cannot be read, since they are damaged or of a newer version."""
    counts = {"damaged": damaged, "of a newer version": newer}
    parts = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    return (
        f"{damaged + newer:,} tasks cannot be read ({parts}), and are left as they are: `pushlane "
        "doctor` says which, and what to do"
    )


class Precedence(NamedTuple):
    """What one value has against another."""

    is_cancelled: bool = False
    version: int = -1


class Merged(NamedTuple):
    """What values of one task come to, in the order of the journal.

    `body` is the one that stands, as it was written: empty when the task was removed, or there was
    none. `last` is the latest, `top` the highest version of those since the last removal.
    """

    body: bytes = b""
    rank: Precedence = Precedence()
    last: bytes = b""
    top: int = -1

    def then(self, later: bytes) -> Merged:
        """Return what comes of it with a later value; an empty one removes the task."""
        return merged(later).behind(self) if later else Merged()

    def behind(self, earlier: Merged) -> Merged:
        """Return what these values come to behind earlier ones."""
        body, rank = self[:2] if self.rank >= earlier.rank else earlier[:2]
        return Merged(body, rank, self.last, max(earlier.top, self.top))

    def standing(self, task_id: str) -> bytes:
        """Return the value to keep: what was cancelled as the newest version of all.

        Whoever knows the task under a higher version takes no notice of an older one. Raises
        UnknownFormat when only a newer version of pushlane could write it so.
        """
        if not self.rank.is_cancelled or self.rank.version >= self.top:
            return self.body
        return encode(replace(decode(task_id, self.body), version=self.top + 1))


def merged(body: bytes) -> Merged:
    """Return what a single value comes to; nothing when it is empty."""
    if not body:
        return Merged()
    found = glimpse(body)
    rank = Precedence(found.state == State.CANCELLED, found.version)
    return Merged(body, rank, body, found.version)
