"""Keeps the read-only mode: during an incident an admin forbids every change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pushlane.core.errors import TaskConflict
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.util.errors import NotNow

_TRIES = 10
_KIND = "mode"
_NAME = "read-only"


class ReadOnly(msgspec.Struct, frozen=True):
    """The record that every change is refused: by whose word, why, and since when (Unix ms)."""

    by: str
    reason: str
    since_ms: int


async def read_only(documents: DocumentStore) -> ReadOnly | None:
    """Return that nothing may be changed; None when it may."""
    return _mode(await documents.get(_KIND, _NAME))


async def set_read_only(
    documents: DocumentStore,
    mode: ReadOnly | None,
    check: Callable[[ReadOnly | None], None] | None = None,
) -> ReadOnly | None:
    """Forbid changes, for every process; None allows them again.

    Returns what was set before; the check is made of that in the same step. Raises TaskConflict
    when it is being changed elsewhere again and again.
    """
    for _ in range(_TRIES):
        found = await documents.get(_KIND, _NAME)
        if check is not None:
            check(_mode(found))
        if await _set_over(documents, found, mode):
            return _mode(found)
    raise TaskConflict("the mode is being changed elsewhere; look at it, then try again")


async def _set_over(
    documents: DocumentStore, found: Document | None, mode: ReadOnly | None
) -> bool:
    """Set the mode where the document that was found is still the one that is there."""
    if mode is not None:
        body = as_json("the read-only mode", mode, ReadOnly)
        version = found.version if found else None
        return await documents.put(_KIND, _NAME, body, version) is not None
    return found is None or await documents.remove(_KIND, _NAME, found.version)


def _mode(found: Document | None) -> ReadOnly | None:
    return None if found is None else msgspec.json.decode(found.body, type=ReadOnly)


async def refuse_read_only(documents: DocumentStore) -> None:
    """Raise NotNow while nothing may be changed."""
    mode = await read_only(documents)
    if mode is not None:
        why = f": {mode.reason}" if mode.reason else ""
        raise NotNow(
            f"changes are forbidden now: {mode.by} set the read-only mode{why}; to allow them "
            "again: pushlane access read-only off"
        )
