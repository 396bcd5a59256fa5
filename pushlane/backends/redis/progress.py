"""Counts how far each task is: a bitmap of finished seqs a task, and a counter a kind.

A seq counts once however often it is recorded, which also makes a repeated call harmless. These
counts live in Redis only: they cannot be rebuilt from the journal.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from pushlane.backends.redis.client import OnRedis, mapping, words
from pushlane.backends.redis.keys import KEPT_MS, READY
from pushlane.core.errors import BadInput
from pushlane.core.task import Finished, Moved, Progress, Span
from pushlane.model.reasons import DEAD_ADDRESS, MOST_REASONS, Reasons, has_failed
from pushlane.util.texts import paged

MAX_SEQ = 2**32 - 1  # the last bit of a Redis bitmap
SEQS_A_CALL = 2_000  # about 1 ms during which Redis serves nobody else
GROUPS_A_CALL = 500

READ_A_CALL = 500

_KINDS = ("delivered", "dead", "expired", "dropped", "failed")

# KEYS: counts of each task. ARGV: the kinds. One answer for all is read in a third of the time that
# an answer for each takes.
_READ = """
local found = {}
for at, counts in ipairs(KEYS) do found[at] = redis.call('HMGET', counts, unpack(ARGV)) end
return found
"""

# KEYS: version, filled and tasks; seen and counts of each group. ARGV: how long what is counted of
# no task is kept; how many reasons are told apart of each kind, and which one always is; of each
# group id, kind, packed seqs, the reason, and whether they failed. What is counted of one reason is
# in the field `kind:reason`. Counts without their bitmap are of a task whose lanes are long
# dropped: they stay as they are.
_RECORD = READY
_RECORD += """
local replies = {}
local function count_reason(counts, kind, reason, new)
  local prefix = kind .. ':'
  local field = prefix .. reason
  if reason ~= ARGV[3] and redis.call('HEXISTS', counts, field) == 0 then
    local known = 0
    for _, one in ipairs(redis.call('HKEYS', counts)) do
      if string.sub(one, 1, #prefix) == prefix then known = known + 1 end
    end
    if known >= tonumber(ARGV[2]) then field = prefix .. 'other' end
  end
  redis.call('HINCRBY', counts, field, new)
end
local function count(id, kind, packed, reason, failed, seen, counts)
  local is_first = redis.call('EXISTS', seen) == 0
  if is_first and redis.call('EXISTS', counts) == 1 then return end
  local new = 0
  for at = 1, #packed, 4 do
    if redis.call('SETBIT', seen, struct.unpack('<I4', packed, at), 1) == 0 then new = new + 1 end
  end
  if new > 0 then
    redis.call('HINCRBY', counts, kind, new)
    if failed ~= '' then redis.call('HINCRBY', counts, 'failed', new) end
    if reason ~= '' then count_reason(counts, kind, reason, new) end
  end
  if is_first and ready(KEYS[1], KEYS[2]) and redis.call('HEXISTS', KEYS[3], id) == 0 then
    redis.call('PEXPIRE', seen, ARGV[1])
    redis.call('PEXPIRE', counts, ARGV[1])
  end
end
for group = 1, (#KEYS - 3) / 2 do
  local seen, counts = KEYS[2 * group + 2], KEYS[2 * group + 3]
  local id, kind, packed, reason, failed = unpack(ARGV, 5 * group - 1, 5 * group + 3)
  count(id, kind, packed, reason, failed, seen, counts)
  replies[#replies + 1] =
    redis.call('HMGET', counts, 'delivered', 'dead', 'expired', 'dropped', 'failed')
end
return replies
"""

# KEYS: version, filled and tasks; a bitmap. ARGV: as of `_RECORD`, for one group.
_MARK = READY
_MARK += """
local is_first = redis.call('EXISTS', KEYS[4]) == 0
for at = 1, #ARGV[3], 4 do
  redis.call('SETBIT', KEYS[4], struct.unpack('<I4', ARGV[3], at), 1)
end
if is_first and ready(KEYS[1], KEYS[2]) and redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then
  redis.call('PEXPIRE', KEYS[4], ARGV[1])
end
"""

# KEYS: the bitmaps of each span. ARGV: first and last byte of each.
_BYTES = """
local replies = {}
for at, key in ipairs(KEYS) do
  replies[at] = redis.call('GETRANGE', key, ARGV[2 * at - 1], ARGV[2 * at])
end
return replies
"""

# Redis counts the bits of a byte from its highest: ours from the lowest.
_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_BITMAPS_A_CALL = 1_000

# Task id, kind, seqs as packed 32-bit numbers, reason, whether they failed.
_Group = tuple[str, str, bytes, str, str]


class TaskProgress(OnRedis):
    """The progress of tasks; see `backends.ports.ProgressStore`."""

    async def record(self, finished: Sequence[Finished]) -> list[Progress]:
        """Count these seqs, in Redis alone: when it loses its data the counts start from zero."""
        progress: dict[str, Progress] = {}
        for chunk in _chunks(finished):
            task_ids = [group[0] for group in chunk]
            counted = [(self._keys.seen(one), self._keys.counts(one)) for one in task_ids]
            keys = [*self._registry_keys(), *chain.from_iterable(counted)]
            args: list[str | bytes | int] = [KEPT_MS, MOST_REASONS, DEAD_ADDRESS]
            args += chain.from_iterable(chunk)
            found = await self._client.run(_RECORD, keys, args, read=partial(_read, task_ids))
            progress |= {one.task_id: one for one in found}
        return list(progress.values())

    async def move(self, moved: Sequence[Moved]) -> None:
        for item in moved:
            for seqs in paged(item.seqs, SEQS_A_CALL):
                packed = _packed(item.task_id, seqs)
                keys = [*self._registry_keys(), self._keys.moved(item.task_id)]
                await self._client.run(_MARK, keys, [KEPT_MS, item.task_id, packed])

    async def gone(self, spans: Sequence[Span]) -> list[int]:
        asked = [(span, key) for span in spans for key in self._bitmaps(span)]
        gone: dict[Span, int] = dict.fromkeys(spans, 0)
        for some in paged(asked, _BITMAPS_A_CALL):
            ends = [end for span, _ in some for end in (span.first >> 3, span.last >> 3)]
            keys = [key for _, key in some]
            replies: list[bytes] = await self._client.run(_BYTES, keys, ends, read=words)
            with self._client.understood():
                for (span, _), reply in zip(some, replies, strict=True):
                    gone[span] |= _bits(span, reply)
        return [gone[span] for span in spans]

    def _registry_keys(self) -> list[str]:
        return [self._keys.version, self._keys.filled, self._keys.tasks]

    def _bitmaps(self, span: Span) -> list[str]:
        seen = self._keys.seen(span.task_id)
        return [seen, self._keys.moved(span.task_id)] if span.moves else [seen]

    async def progress(self, task_ids: Sequence[str]) -> list[Progress]:
        found: list[Progress] = []
        for some in paged(task_ids, READ_A_CALL):
            keys = [self._keys.counts(task_id) for task_id in some]
            found += await self._client.run(_READ, keys, _KINDS, read=partial(_read, some))
        return found

    async def reasons(self, task_ids: Sequence[str]) -> list[Reasons]:
        asked = [("HGETALL", self._keys.counts(task_id)) for task_id in task_ids]
        return await self._client.call_each(
            asked,
            read=lambda found: [_reasons(*pair) for pair in zip(task_ids, found, strict=True)],
        )


def _chunks(finished: Sequence[Finished]) -> Iterator[list[_Group]]:
    """Yield groups in their order, as many as one call of the script should take."""
    chunk: list[_Group] = []
    room = SEQS_A_CALL
    for item in finished:
        for seqs in paged(item.seqs, SEQS_A_CALL) if item.seqs else [item.seqs]:
            if chunk and (len(seqs) > room or len(chunk) == GROUPS_A_CALL):
                yield chunk
                chunk, room = [], SEQS_A_CALL
            failed = "1" if has_failed(item) else ""
            packed = _packed(item.task_id, seqs)
            chunk.append((item.task_id, str(item.kind), packed, item.reason, failed))
            room -= len(seqs)
    if chunk:
        yield chunk


def _packed(task_id: str, seqs: Sequence[int]) -> bytes:
    try:
        return struct.pack(f"<{len(seqs)}I", *seqs)
    except struct.error as error:
        raise BadInput(
            f"a seq of task {task_id} is not from 1 to {MAX_SEQ}: publish it in several tasks"
        ) from error


def _bits(span: Span, reply: bytes) -> int:
    """Return a mask where bit n is seq `first + n`; the reply begins with the byte of `first`."""
    bits = int.from_bytes(reply.translate(_TURNED), "little") >> (span.first & 7)
    return bits & ((1 << (span.last - span.first + 1)) - 1)


def _read(task_ids: Sequence[str], answer: Any) -> list[Progress]:
    rows = zip(task_ids, answer, strict=True)
    return [Progress(task_id, *(int(count or 0) for count in counts)) for task_id, counts in rows]


def _reasons(task_id: str, counts: Any) -> Reasons:
    by_kind: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for name, count in mapping(counts).items():
        kind, colon, reason = name.decode().partition(":")
        if colon:
            by_kind[kind][reason] = int(count)
    return Reasons.of(task_id, by_kind)
