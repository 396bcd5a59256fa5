"""The document store on Redis: one hash of documents, each journalled before it is put.

The order is as with tasks (`lanes.redis.writes`): lock, journal, then Redis. A writer that was
refused after it had journalled puts the kept document into the journal again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pushlane.lanes.ports import Document
from pushlane.lanes.ports.documents import check_body, check_place
from pushlane.lanes.redis.client import numbers_only, words
from pushlane.lanes.redis.codec import PUT_DOCUMENT, READY
from pushlane.lanes.redis.journal_sum import DOCUMENT_KEY
from pushlane.lanes.redis.locks import LOCK, LockedWrites, unended

_A_PAGE = 100
_ANY = "any"
_NONE = ""

_READ = READY + "return ready(KEYS[1], KEYS[2]) and {redis.call('HGET', KEYS[3], ARGV[1])}"

_SCAN = (
    READY
    + """
if not ready(KEYS[1], KEYS[2]) then return false end
return redis.call('HSCAN', KEYS[3], ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
"""
)

_BEGIN = (
    LOCK
    + READY
    + """
if not ready(KEYS[1], KEYS[2]) then return {'unready'} end
local kept = redis.call('HGET', KEYS[3], ARGV[3]) or ''
if ARGV[4] ~= 'any' and string.match(kept, '^%d*') ~= ARGV[4] then return {'other'} end
if not lock(KEYS[4], ARGV[1], ARGV[2]) then return {'busy'} end
return {'ours', kept}
"""
)

_COMMIT = (
    READY
    + PUT_DOCUMENT
    + """
if redis.call('GET', KEYS[4]) ~= ARGV[1] then return false end
redis.call('DEL', KEYS[4])
if not ready(KEYS[1], KEYS[2]) then return false end
if ARGV[3] == '' then return redis.call('HDEL', KEYS[3], ARGV[2]) end
return put_document(KEYS[3], ARGV[2], ARGV[3])
"""
)


class RedisDocuments(LockedWrites):
    """See `lanes.ports.DocumentStore`."""

    async def put(self, kind: str, name: str, body: bytes, expected: int | None) -> int | None:
        check_place(kind, name)
        check_body(kind, name, body)
        wanted = _NONE if expected is None else str(expected)
        return await self._write(f"{kind}:{name}", body, wanted)

    async def get(self, kind: str, name: str) -> Document | None:
        check_place(kind, name)
        found = await self._read(f"{kind}:{name}")
        with self._client.understood():
            return _document(name, found) if found else None

    async def remove(self, kind: str, name: str) -> bool:
        check_place(kind, name)
        return bool(await self._write(f"{kind}:{name}", b"", _ANY))

    async def _read(self, field: str) -> bytes | None:
        """Return the value of a field, from a Redis that is known to have all."""
        keys = self._document_keys()
        while (found := await self._client.run(_READ, keys, [field], read=_found)) is None:
            await self._rebuild.until_ready()
        return found[0] if found else None

    async def _write(self, field: str, body: bytes, expected: str) -> int | None:
        """Return the new version, or whether one was removed; None when another version is kept."""
        refused = False
        lock = self._lock(field)
        async for token, how, _ in self._begin(field, expected):
            if how == b"other":
                if refused:
                    await self._journal_kept(field)
                return None
            async with self._unlocked_on_error(lock, token):
                await self._append(DOCUMENT_KEY + field, body)
                written = await self._client.run(
                    _COMMIT, [*self._document_keys(), lock], [token, field, body], read=numbers_only
                )
            if written is not None:
                return written
            refused = True
        raise unended()

    async def _journal_kept(self, field: str) -> None:
        """Journal the kept document again, behind the one that was journalled and then refused."""
        lock = self._lock(field)
        async for token, _, kept in self._begin(field, _ANY):
            async with self._unlocked_on_error(lock, token):
                await self._append(DOCUMENT_KEY + field, kept.partition(b"\n")[2])
            if await self._unlock(lock, token):
                return

    def _begin(self, field: str, expected: str) -> AsyncIterator[tuple[str, bytes, bytes]]:
        keys = [*self._document_keys(), self._lock(field)]
        return self._begun(f"the document {field!r}", _BEGIN, keys, [field, expected])

    def _document_keys(self) -> list[str]:
        return [self._keys.version, self._keys.filled, self._keys.documents]

    def _lock(self, field: str) -> str:
        return self._keys.lock(f"shelf:{field}")

    async def list(self, kind: str) -> list[Document]:
        check_place(kind, "any")
        while (found := await self._scan(kind)) is None:
            await self._rebuild.until_ready()
        with self._client.understood():
            named = {field.partition(b":")[2].decode(): value for field, value in found.items()}
            return [_document(name, named[name]) for name in sorted(named)]

    async def _scan(self, kind: str) -> dict[bytes, bytes] | None:
        """Return all fields of a kind; None when this Redis turned out not to have all."""
        found: dict[bytes, bytes] = {}
        cursor: int | None = None
        while cursor != 0:
            page = await self._client.run(
                _SCAN, self._document_keys(), [cursor or 0, f"{kind}:*", _A_PAGE], read=_page
            )
            if page is None:
                return None
            cursor = page[0]
            found |= page[1]  # one may come twice
        return found


def _found(answer: Any) -> list[bytes] | None:
    """Read a list of the value, empty when there is none; None when that cannot be known."""
    return None if answer is None else words([value for value in answer if value is not None])


def _page(answer: Any) -> tuple[int, dict[bytes, bytes]] | None:
    """Read a cursor and the fields with their values; None when they cannot be known."""
    if answer is None:
        return None
    cursor, found = answer
    fields = words(found)
    return int(cursor), dict(zip(fields[::2], fields[1::2], strict=True))


def _document(name: str, value: bytes) -> Document:
    version, _, body = value.partition(b"\n")
    return Document(name, int(version), body)
