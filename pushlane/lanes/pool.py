"""Keeps how many lanes low tasks share: the setting, until it is changed for all processes."""

from __future__ import annotations

import msgspec

from pushlane.core.errors import TaskConflict, UnknownFormat
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.stored import as_json
from pushlane.util.conversion import whole

MOST = 1024
_KIND = "pool"
_NAME = "lanes"


async def pool_size(documents: DocumentStore, setting: int) -> int:
    """Return how many lanes low tasks share: the setting, unless a size was set for all.

    Raises UnknownFormat when only a newer version understands how it is kept.
    """
    found = await documents.get(_KIND, _NAME)
    if found is None:
        return setting
    try:
        return msgspec.json.decode(found.body, type=int)
    except msgspec.DecodeError as error:
        raise UnknownFormat(0, "the size of the pool") from error


async def set_pool_size(documents: DocumentStore, lanes: int) -> None:
    """Let all low tasks from now on share so many lanes, whatever the setting of a submitter.

    Raises:
        BadInput: it cannot be so many.
        TaskConflict: it is being changed elsewhere.
    """
    body = as_json("the size of the pool", whole("pool size", lanes, 1, MOST), int)
    before = await documents.get(_KIND, _NAME)
    version = before.version if before else None
    if await documents.put(_KIND, _NAME, body, version) is None:
        raise TaskConflict("the pool is being changed elsewhere; look at it, then try again")
