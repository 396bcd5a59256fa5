"""Recipients, known again without being kept: hashes, marks, suppressions, dead addresses.

Whoever has a hash but not the key cannot find out by trying whom it stands for. Targets of sinks
are hashed too (`model.targets`), under a key of their own. Of a dead address the encrypted text is
kept as well if the settings have a key (`model.address_seal`). A mark, by which duplicates and the
newest push are found, never holds a recipient. Tokens of marks compare as texts.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.model.documents import DocumentStore

_KIND = "secret"


class Hasher:
    """64-bit hashes (signed, as Parquet has them) under one key.

    The key goes first, which makes a MAC of BLAKE2 (RFC 7693, 2.9, says why it needs no HMAC), and
    not as BLAKE2's own parameter: that costs every hash a second block.
    """

    def __init__(self, key: bytes) -> None:
        secret = hashlib.blake2b(key, digest_size=32).digest()
        self._start = hashlib.blake2b(secret, digest_size=8)

    def hashes(self, recipients: Sequence[str]) -> list[int]:
        copy = self._start.copy
        digests: list[bytes] = []
        add = digests.append
        for recipient in recipients:
            state = copy()
            state.update(recipient.encode())
            add(state.digest())
        return array("q", b"".join(digests)).tolist()

    def digest(self, value: bytes) -> bytes:
        """Return the eight bytes of one hash."""
        state = self._start.copy()
        state.update(value)
        return state.digest()


async def kept_hasher(documents: DocumentStore, of: str = "recipients") -> Hasher:
    """Return the hasher of recipients, or of others; its key is made once for all processes."""
    found = await documents.get(_KIND, of)
    if found is None:
        await documents.put(_KIND, of, secrets.token_bytes(32), None)
        found = await documents.get(_KIND, of)
    if found is None:
        raise TaskConflict(f"the key of the hashes of {of} was removed just now; try again")
    return Hasher(found.body)


NO_CAP = 2**31 - 1
_LONGEST_NAME = 200

_DAY_MS = 86_400_000


class Mark(NamedTuple):
    """The hash of a recipient and a token.

    Pushes that belong together have the same `key`, in hex; `token` tells them apart, older ones
    first.
    """

    key: str
    token: str


class Cap(NamedTuple):
    """At most so many pushes of one level, and of all levels, to a recipient in a day."""

    of_level: int = NO_CAP
    in_all: int = NO_CAP


class CapDay(NamedTuple):
    """A cap, with the level it is asked for and the day, in days since 1970."""

    day: int
    level: Level
    cap: Cap

    @property
    def over_at_ms(self) -> int:
        """The Unix time in milliseconds at which the date has ended in every zone."""
        return self.day * _DAY_MS + 36 * 3_600_000  # the last is UTC-12


def dedupe_mark(push: Push) -> Mark:
    """Return the mark by which a task's pushes for one recipient are told as duplicates."""
    return Mark(_hashed("dedupe", push.task_id, push.recipient), f"{push.seq:010d}")


def key_mark(app: str, push: Push) -> Mark:
    """Return the mark by which an app's pushes with this key are told as one."""
    return Mark(_hashed("key", app, push.key), f"{push.task_id}-{push.seq:010d}")


def collapse_mark(app: str, push: Push) -> Mark:
    """Return the mark that finds an app's newest push with this collapse key for this recipient.

    Of two tasks the one submitted last is the newer, of two rows of a task the later one.
    """
    token = f"{push.submitted_at_ms:013d}-{push.task_id}-{push.seq:010d}"
    return Mark(_hashed("collapse", app, push.collapse, push.recipient), token)


def _hashed(kind: str, owner: str, *parts: str) -> str:
    return _added(_begun(kind, owner).copy(), parts).hexdigest()


@lru_cache(maxsize=256)
def _begun(kind: str, owner: str) -> blake2b:
    """Return the hash of that with which all marks of an app or a task begin, to be copied."""
    return _added(blake2b(digest_size=16), (kind, owner))


def _added(digest: blake2b, parts: Sequence[str]) -> blake2b:
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest


class SuppressionScope(NamedTuple):
    """Where a value is suppressed: in all apps, as a recipient of one, or as a sink's address."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else self.kind

    @staticmethod
    def parse(text: str) -> SuppressionScope:
        """Return the scope in a text that `str` gave."""
        kind, _, name = text.partition("/")
        return SuppressionScope(kind, name)


EVERYWHERE = SuppressionScope("all")


def scope_of(app: str = "", sink: str = "") -> SuppressionScope:
    """Return the scope of an app or a sink; everywhere without a name.

    Raises BadInput when both are given, or a name cannot be used.
    """
    if app and sink:
        raise BadInput("--app and --sink exclude each other; give one of them, or none for all")
    name = app or sink
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise BadInput(
            f"{name[:40]!r} is not a name of an app or a sink; use at most {_LONGEST_NAME} "
            "printable characters"
        )
    if not name:
        return EVERYWHERE
    return SuppressionScope("app" if app else "sink", name)


REASON_LONGEST = 200


class AddressDeath(NamedTuple):
    """The end of an address, as a sink heard of it from a push of `app`.

    `died_at_ms` is when its provider found it dead, or else when that push was sent. `sealed` is
    empty when no key is set.
    """

    hash: int
    died_at_ms: int
    reason: str
    app: str = ""
    sealed: str = ""


class DeadAddress(NamedTuple):
    """The record of a dead address at a sink, kept since `recorded_at_ms` (Unix ms)."""

    sink: str
    hash: int
    recorded_at_ms: int
    died_at_ms: int
    reason: str
    app: str
    sealed: str

    @property
    def fingerprint(self) -> str:
        """The hash as a text, by which the address is told from others and not known."""
        return f"{self.hash % 2**64:016x}"


class DeadAddressQuery(NamedTuple):
    """The records that are wanted: those made since then, of one sink or of all."""

    since_ms: int = 0
    sink: str = ""
    newest_first: bool = False


class DeadAddressPage(NamedTuple):
    """Some of the records. `after` is where the next page begins, 0 on the last one."""

    addresses: list[DeadAddress]
    after: int = 0
