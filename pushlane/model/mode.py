"""Keeps the read-only mode: during an incident an admin forbids every change."""

from __future__ import annotations

import msgspec

from pushlane.model.documents import DocumentStore, as_json
from pushlane.util.errors import NotNow

_KIND = "mode"
_NAME = "read-only"


class ReadOnly(msgspec.Struct, frozen=True):
    """The record that every change is refused: by whose word, why, and since when (Unix ms)."""

    by: str
    reason: str
    since_ms: int


async def read_only(documents: DocumentStore) -> ReadOnly | None:
    """Return that nothing may be changed; None when it may."""
    found = await documents.get(_KIND, _NAME)
    return None if found is None else msgspec.json.decode(found.body, type=ReadOnly)


async def set_read_only(documents: DocumentStore, mode: ReadOnly | None) -> None:
    """Forbid changes, for every process; None allows them again."""
    if mode is None:
        await documents.remove(_KIND, _NAME)
        return
    found = await documents.get(_KIND, _NAME)
    body = as_json("the read-only mode", mode, ReadOnly)
    await documents.put(_KIND, _NAME, body, found.version if found else None)


async def refuse_read_only(documents: DocumentStore) -> None:
    """Raise NotNow while nothing may be changed."""
    mode = await read_only(documents)
    if mode is not None:
        why = f": {mode.reason}" if mode.reason else ""
        raise NotNow(
            f"nothing may be changed now, as {mode.by} has said{why}; to allow changes again: "
            "pushlane access read-only off"
        )
