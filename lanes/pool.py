"""Keeps how many lanes low tasks share: the setting, until it is changed for all processes."""

from __future__ import annotations

import msgspec

from pushlane.lanes.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.lanes.ports import DocumentStore

MOST = 1024
_KIND = "pool"
_NAME = "lanes"


async def pool_size(documents: DocumentStore, setting: int) -> int:
    """Raises UnknownFormat when it is kept in a way that only a newer version understands."""
    found = await documents.get(_KIND, _NAME)
    if found is None:
        return setting
    try:
        return msgspec.json.decode(found.body, type=int)
    except msgspec.DecodeError as error:
        raise UnknownFormat(0, "the size of the pool") from error


async def set_pool_size(documents: DocumentStore, lanes: int) -> None:
    """Low tasks that come from now on share so many, whatever the setting of who submits them.

    Raises:
        BadInput: it cannot be so many.
        TaskConflict: it is being changed elsewhere.
    """
    if not 1 <= lanes <= MOST:
        raise BadInput(f"a pool of {lanes} lanes cannot be; use 1 to {MOST:,}")
    before = await documents.get(_KIND, _NAME)
    version = before.version if before else None
    if await documents.put(_KIND, _NAME, msgspec.json.encode(lanes), version) is None:
        raise TaskConflict("the pool is being changed elsewhere; look at it, then try again")
