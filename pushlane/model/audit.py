"""The audit: who changed what, from what to what, when, and through which face.

Each change is a document of its own, whose name begins with its time, and so is each look at what a
push holds. It names tasks, apps, sinks, pushes and counts; never a recipient, an address or a
token.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from pushlane.model.documents import DocumentStore, as_json

KIND = "audit"
MOST_KEPT = 10_000
"""The newest so many are kept."""

_MOST_TEXT = 200


class Entry(msgspec.Struct, frozen=True):
    """One change of one subject, like `task/ID`: the fields that differ, before and after it.

    `app` is whose it is; empty for what all apps share. What is done in parts, as with the values
    of a file, is one entry, with the time of the first part.
    """

    at_ms: int
    who: str
    face: str
    operation: str
    subject: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    app: str = ""

    @property
    def is_look(self) -> bool:
        """True for one that changed nothing: somebody had a push revealed."""
        return self.subject.startswith("push/")


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what differs of both, without what has no value. A long text is cut."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]

    def of(side: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _short(side[name]) for name in names if side.get(name) is not None}

    return of(before), of(after)


def _short(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > _MOST_TEXT
    return f"{value[:_MOST_TEXT]}..." if is_long else value


def new_name() -> str:
    """Return a name for an entry that is made now: entries are in the order of their names."""
    return f"{time.time_ns():020d}-{secrets.token_hex(6)}"


async def write(documents: DocumentStore, entry: Entry, name: str = "") -> None:
    """Add an entry, under a name that was made for it before or a new one."""
    await documents.put(KIND, name or new_name(), _encode(entry), None)


async def count_into(documents: DocumentStore, name: str, entry: Entry) -> bool:
    """Add the counts of an entry to those of an earlier one; tell whether that could be.

    It has to be of the same caller, operation and subject, and of the same counts.
    """
    found = await documents.get(KIND, name)
    earlier = None if found is None else _decode(found.body)
    if found is None or earlier is None or earlier.after.keys() != entry.after.keys():
        return False
    if replace(earlier, at_ms=entry.at_ms, after=entry.after) != entry:
        return False
    total = {what: earlier.after[what] + count for what, count in entry.after.items()}
    body = _encode(replace(earlier, after=total))
    return await documents.put(KIND, name, body, found.version) is not None


async def entries(documents: DocumentStore) -> list[tuple[str, Entry]]:
    """Return all entries that can be read with their names, by which they are, newest first."""
    found = ((one.name, _decode(one.body)) for one in reversed(await documents.list(KIND)))
    return [(name, entry) for name, entry in found if entry is not None]


async def forget_oldest(documents: DocumentStore) -> None:
    """Remove all but the newest."""
    for one in (await documents.list(KIND))[:-MOST_KEPT]:
        await documents.remove(KIND, one.name)


def _encode(entry: Entry) -> bytes:
    return as_json("an entry of the audit", entry, Entry)


def _decode(body: bytes) -> Entry | None:
    """Return an entry, None for one of a newer version that cannot be read."""
    try:
        return msgspec.json.decode(body, type=Entry)
    except msgspec.DecodeError:
        return None
