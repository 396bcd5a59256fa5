"""Keeps of each target, by its hash, whether it has ever delivered, for all processes.

A target that never has may be the wrong one, so its final answers are not believed at once
(`dispatcher.standing`), unless somebody has said that they are right. One small document a target;
fields that a newer version has added stay.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pushlane.core.errors import TaskConflict, UnknownFormat
from pushlane.lanes.ports import DocumentStore

_KIND = "target"
_TRIES = 10


class TargetHistory(msgspec.Struct, frozen=True):
    """When a target delivered first and when its answers were accepted: Unix ms, 0 for not yet."""

    delivered_at_ms: int = 0
    accepted_at_ms: int = 0


async def target_history(documents: DocumentStore, target: str) -> TargetHistory:
    """Return what is kept of the target of this hash.

    Raises:
        UnknownFormat: only a newer version understands it.
    """
    found = await documents.get(_KIND, target)
    return _read(found.body if found else b"{}")


async def note_delivered(documents: DocumentStore, target: str, at_ms: int) -> None:
    """Keep that a target has delivered, unless that is known.

    Raises:
        UnknownFormat: only a newer version understands what is kept of it.
        TaskConflict: it is being changed elsewhere again and again.
    """
    await _change(documents, target, "delivered_at_ms", at_ms, once=True)


async def accept(documents: DocumentStore, target: str, at_ms: int) -> None:
    """Believe the final answers of a target from now on; with 0 no longer. Raises as above."""
    await _change(documents, target, "accepted_at_ms", at_ms)


async def _change(
    documents: DocumentStore, target: str, field: str, value: int, *, once: bool = False
) -> None:
    for _ in range(_TRIES):
        found = await documents.get(_KIND, target)
        before = found.body if found else b"{}"
        known = getattr(_read(before), field)
        if known == value or (known and once):
            return
        kept: dict[str, Any] = msgspec.json.decode(before)
        body = msgspec.json.encode({**kept, field: value})
        version = found.version if found else None
        if await documents.put(_KIND, target, body, version) is not None:
            return
    raise TaskConflict("what is kept of the target is being changed elsewhere; try again")


def _read(body: bytes) -> TargetHistory:
    try:
        return msgspec.json.decode(body, type=TargetHistory)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownFormat(0, "what is kept of a target") from error
