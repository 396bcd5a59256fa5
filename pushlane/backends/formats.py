"""The lowest format of messages that every process must read: `min_format`, 1 until it is raised.

Producers write no higher format, so that messages which an older process cannot read are on lanes
only once no such process is left. The number is kept in the document store, which every backend
has, and so outlives a loss of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from pushlane.backends.ports import Presence, TaskQuery, TaskStore
from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat, UserError
from pushlane.core.push import FORMAT
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.model.presence import Process

KEYED = 3
"""The format from which on a push may have a key: an older dispatcher would send each copy."""

_KIND = "format"
_NAME = "min"


async def format_to_write(documents: DocumentStore, registry: TaskStore, presence: Presence) -> int:
    """Return the format in which to publish now: `min_format`, or our own if that is lower.

    Where there has never been a task, and no live process reads less, `min_format` is raised to our
    own format first.
    """
    found = await documents.get(_KIND, _NAME)
    if found is not None:
        return min(_number(found), FORMAT)
    if not (await registry.page(TaskQuery(), most=1)).tasks:
        with suppress(TaskConflict):  # an older process is there, or another was first
            await set_min_format(documents, presence, FORMAT)
    return min(await min_format(documents), FORMAT)  # read again: a task may be another's first


async def min_format(documents: DocumentStore) -> int:
    """Return `min_format`.

    Raises UnknownFormat when only a newer version understands how it is kept.
    """
    return _number(await documents.get(_KIND, _NAME))


async def require_format(documents: DocumentStore, reads: int) -> None:
    """Raise UserError when lanes may hold messages over the format that a process reads."""
    lowest = await min_format(documents)
    if reads < lowest:
        raise UserError(
            f"lanes may hold messages of format {lowest}, and this version of pushlane reads up to "
            f"{reads}: upgrade this process (`pushlane formats` shows who reads what)"
        )


async def set_min_format(
    documents: DocumentStore,
    presence: Presence,
    number: int,
    reads: int = FORMAT,
    check: Callable[[int], None] | None = None,
) -> int:
    """Let producers write messages of this format, once every live process reads it.

    `reads` is the highest format of this process. Returns what was set before; the check is made of
    that in the same step.

    Raises:
        BadInput: there is no such format, or this process does not read it.
        TaskConflict: a live process does not read it, or another has changed it meanwhile.
    """
    if not 1 <= number <= reads:
        raise BadInput(
            f"format {number} is not one from 1 to {reads}, which is what this version of pushlane "
            "reads; upgrade first, then raise it"
        )
    before = await documents.get(_KIND, _NAME)
    if check is not None:
        check(_number(before))
    _refuse_older(await presence.list(), number)
    try:
        version = await _put(documents, number, before.version if before else None)
    except TaskConflict:
        if check is not None:
            check(await min_format(documents))
        raise
    try:
        _refuse_older(await presence.list(), number)  # one that has just come
    except TaskConflict:
        await _put(documents, _number(before), version)
        raise
    return _number(before)


async def _put(documents: DocumentStore, number: int, expected: int | None) -> int:
    version = await documents.put(_KIND, _NAME, as_json("min_format", number, int), expected)
    if version is None:
        raise TaskConflict("min_format is being changed elsewhere; look at it, then try again")
    return version


def _number(found: Document | None) -> int:
    if found is None:
        return 1
    try:
        return msgspec.json.decode(found.body, type=int)
    except msgspec.DecodeError as error:
        raise UnknownFormat(0, "min_format") from error


def _refuse_older(processes: list[Process], number: int) -> None:
    older = [process for process in processes if process.format < number]
    if older:
        names = ", ".join(f"{process.id} (pid {process.pid})" for process in older[:5])
        raise TaskConflict(
            f"{len(older)} live processes do not read format {number}, like {names}; upgrade them "
            "first (`pushlane processes` lists them)"
        )
