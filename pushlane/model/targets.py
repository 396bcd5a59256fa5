"""What a sink delivers to (its kind, its host and, as a keyed hash, its place there), and whether
that has ever delivered.

Two processes that serve one name tell by it whether they deliver to the same place, however each
has written it down. A user, a password, a query or a credential is never part of it. The key of the
hashes is in the document store alone, so whoever reads what a process says of itself cannot find
out a path by trying some.

A target that never has delivered may be the wrong one, so its final answers are not believed at
once (`dispatcher.failures`), unless somebody has said that they are right. What is kept of it is
one small document under its hash; fields that a newer version has added stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.core.ports import Sink
from pushlane.model.documents import DocumentStore
from pushlane.model.presence import SinkTarget
from pushlane.model.recipients import Hasher, kept_hasher

_KEY = "sink-targets"
_MOST_SHOWN = 100


class PlainTarget(msgspec.Struct, frozen=True):
    """What a sink delivers to, before it is hashed: `place` never leaves the process.

    `kind` and `host` may be shown. `delivers` is False of what throws pushes away, or only writes
    or checks them. `is_object` is True of somebody's own object, whose name does not count.
    """

    kind: str
    host: str = ""
    place: tuple[str, ...] = ()
    delivers: bool = True
    is_object: bool = False

    def __repr__(self) -> str:
        return f"PlainTarget({self})"

    def __str__(self) -> str:
        """Return it for people, as a `SinkTarget` is."""
        return str(SinkTarget(self.kind, self.host))


def url_target(kind: str, url: str, *more: str, delivers: bool = True) -> PlainTarget:
    """Return the target at a URL: scheme, host, port and path count, and what `more` there is.

    The URL is read as the client reads it that will ask it: in which case its host is written, and
    whether its usual port is given, makes no difference. Raises BadInput when it is no URL with a
    host; does not show it.
    """
    from pyreqwest.http import Url  # loads much that only this needs

    try:
        read = Url(url)
    except ValueError:
        raise BadInput(f"the URL of a sink of the kind {kind} cannot be read") from None
    host, port = read.host_str, read.port_or_known_default
    if not host:
        raise BadInput(f"the URL of a sink of the kind {kind} has no host")
    shown = host if read.port is None else f"{host}:{port}"
    return PlainTarget(kind, shown, (read.scheme, host, str(port), read.path, *more), delivers)


def file_target(kind: str, path: str) -> PlainTarget:
    """Return the target of a sink that writes to a file of this machine."""
    return PlainTarget(kind, "", (str(Path(path).absolute()),), delivers=False)


def target_of(sink: Sink) -> PlainTarget:
    """Return the target of a sink: by its class if it is an object of somebody's own."""
    known = getattr(sink, "target", None)
    if isinstance(known, PlainTarget):
        return known
    own = type(sink)
    kind = str(sink.name)[:_MOST_SHOWN]
    place = (own.__module__, own.__qualname__)
    delivers = kind not in ("null", "log", "print")  # these throw pushes away, or write them down
    return PlainTarget(kind, "", place, delivers, is_object=True)


class SinkTargets:
    """Hashes targets under the key of the store that all of its processes share."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._hasher: Hasher | None = None
        self._hashed: dict[PlainTarget, SinkTarget] = {}

    async def load(self) -> None:
        """Read the key, which is made once."""
        self._hasher = await kept_hasher(self._documents, _KEY)

    def of(self, target: PlainTarget) -> SinkTarget | None:
        """Return what may be said of a target; None before the key is there."""
        if self._hasher is None:
            return None
        known = self._hashed.get(target)
        if known is None:
            known = self._hashed[target] = hashed(target, self._hasher)
        return known


def hashed(target: PlainTarget, hasher: Hasher) -> SinkTarget:
    """Return what may be said of a target."""
    kind = "" if target.is_object else target.kind  # an object's name may be each process's own
    body = msgspec.json.encode((kind, target.place, target.delivers))
    host = target.host[:_MOST_SHOWN]
    return SinkTarget(target.kind, host, hasher.digest(body).hex(), target.delivers)


_KIND = "target"
_TRIES = 10


class TargetHistory(msgspec.Struct, frozen=True):
    """When a target delivered first and when its answers were accepted: Unix ms, 0 for not yet."""

    delivered_at_ms: int = 0
    accepted_at_ms: int = 0


async def target_history(documents: DocumentStore, target: str) -> TargetHistory:
    """Return what is kept of the target of this hash.

    Raises UnknownFormat when only a newer version understands it.
    """
    found = await documents.get(_KIND, target)
    return _read(found.body if found else b"{}")


async def note_delivered(documents: DocumentStore, target: str, at_ms: int) -> None:
    """Keep that a target has delivered, unless that is known.

    Raises UnknownFormat if only a newer version understands what is kept of it, TaskConflict if it
    is being changed elsewhere again and again.
    """
    await _change(documents, target, "delivered_at_ms", at_ms, once=True)


Check = Callable[[TargetHistory], None]
"""Refuses a change by raising, by what is kept of the target before it."""


async def accept(
    documents: DocumentStore, target: str, at_ms: int, check: Check | None = None
) -> None:
    """Believe the final answers of a target from now on; with 0 no longer. Raises as above.

    The check is made in the step that changes it.
    """
    await _change(documents, target, "accepted_at_ms", at_ms, check=check)


async def _change(
    documents: DocumentStore,
    target: str,
    field: str,
    value: int,
    *,
    once: bool = False,
    check: Check | None = None,
) -> None:
    for _ in range(_TRIES):
        found = await documents.get(_KIND, target)
        before = found.body if found else b"{}"
        history = _read(before)
        if check is not None:
            check(history)
        known = getattr(history, field)
        if known == value or (known and once):
            return
        kept: dict[str, Any] = msgspec.json.decode(before)
        body = msgspec.json.encode({**kept, field: value})
        version = found.version if found else None
        if await documents.put(_KIND, target, body, version) is not None:
            return
    raise TaskConflict("another process is changing what is stored about this target; try again")


def _read(body: bytes) -> TargetHistory:
    try:
        return msgspec.json.decode(body, type=TargetHistory)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownFormat(0, "what is kept of a target") from error
