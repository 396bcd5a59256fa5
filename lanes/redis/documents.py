"""The document store on Redis: one hash of documents, each journalled before it is put.

The order is as with tasks (`lanes.redis.writes`): lock, journal, then Redis. A writer that was
refused after it had journalled puts the kept document into the journal again.
"""

from __future__ import annotations

from typing import Any

from pushlane.lanes.ports import Document, Journal
from pushlane.lanes.ports.documents import check_body, check_place
from pushlane.lanes.redis.client import RedisClient, numbers_only, turn, words
from pushlane.lanes.redis.codec import PUT_DOCUMENT, READY
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.redis.locks import LOCK, LOCK_MS, attempts, unlock, unlocked_on_error
from pushlane.lanes.redis.rebuild import DOCUMENT_KEY, Rebuild

_A_PAGE = 100
_ANY = "any"
_NONE = ""

_READ = READY + "return ready(KEYS[1], KEYS[2]) and {redis.call('HGET', KEYS[3], ARGV[1])}"

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


class RedisDocuments:
    """See `lanes.ports.DocumentStore`."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        self._client = client
        self._keys = keys
        self._journal = journal
        self._rebuild = Rebuild(client, keys, journal)

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
        async for token in attempts(f"the document {field!r}"):
            how, _ = await self._begin(field, token, expected)
            if how == b"unready":
                await self._rebuild.until_ready()
            elif how == b"other":
                if refused:
                    await self._journal_kept(field)
                return None
            elif how == b"ours":
                written = await self._journal_and_commit(field, token, body)
                if written is not None:
                    return written
                refused = True
        raise AssertionError("attempts end with a return or an error")

    async def _journal_kept(self, field: str) -> None:
        """Journal the kept document again, behind the one that was journalled and then refused."""
        async for token in attempts(f"the document {field!r}"):
            how, kept = await self._begin(field, token, _ANY)
            if how == b"unready":
                await self._rebuild.until_ready()
            elif how == b"ours":
                await self._append(field, token, kept.partition(b"\n")[2])
                if await unlock(self._client, self._lock(field), token):
                    return

    async def _begin(self, field: str, token: str, expected: str) -> tuple[bytes, bytes]:
        keys = [*self._document_keys(), self._lock(field)]
        args: list[str | bytes | int] = [token, LOCK_MS, field, expected]
        return await self._client.run(_BEGIN, keys, args, read=turn)

    async def _journal_and_commit(self, field: str, token: str, body: bytes) -> int | None:
        """Journal the body, then keep it. None when the lock ended before."""
        await self._append(field, token, body)
        keys = [*self._document_keys(), self._lock(field)]
        async with unlocked_on_error(self._client, self._lock(field), token):
            return await self._client.run(_COMMIT, keys, [token, field, body], read=numbers_only)

    async def _append(self, field: str, token: str, body: bytes) -> None:
        async with unlocked_on_error(self._client, self._lock(field), token):
            if self._journal is not None:
                await self._journal.append(DOCUMENT_KEY + field, body)

    def _document_keys(self) -> list[str]:
        return [self._keys.version, self._keys.filled, self._keys.documents]

    def _lock(self, field: str) -> str:
        return self._keys.lock(f"shelf:{field}")

    async def list(self, kind: str) -> list[Document]:
        check_place(kind, "any")
        await self._read("")
        found: dict[bytes, bytes] = {}  # a scan may show one twice
        cursor, first = 0, True
        while cursor or first:
            first = False
            cursor, page = await self._client.call(
                "HSCAN",
                self._keys.documents,
                cursor,
                "MATCH",
                f"{kind}:*",
                "COUNT",
                _A_PAGE,
                read=lambda answer: (int(answer[0]), dict(answer[1])),
            )
            found |= page
        with self._client.understood():
            named = {field.partition(b":")[2].decode(): value for field, value in found.items()}
            return [_document(name, named[name]) for name in sorted(named)]


def _found(answer: Any) -> list[bytes] | None:
    """Read a list of the value, empty when there is none; None when that cannot be known."""
    return None if answer is None else words([value for value in answer if value is not None])


def _document(name: str, value: bytes) -> Document:
    version, _, body = value.partition(b"\n")
    return Document(name, int(version), body)
