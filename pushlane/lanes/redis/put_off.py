"""Notes of pushes that were put off, in Redis (`model.due`).

A task has one hash, with a field for each reason and quarter. It goes by itself a day after the
last note. When Redis loses it, what waits is known by the broker alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.model.due import KEPT_MS, QUARTER_MS, PutOff

_MOST_FIELDS = 64  # before those of quarters that have passed are looked for

# KEYS: the hash. ARGV: how long it is kept, the first quarter to keep; then of each note its field,
# pushes, first and last time, and zone.
_ADD = """
for at = 3, #ARGV, 5 do
  local field, pushes, first, last, zone = unpack(ARGV, at, at + 4)
  local kept = redis.call('HGET', KEYS[1], field)
  if kept then
    local pushes_before, first_before, last_before, zone_before =
      string.match(kept, '^(%d+) (%d+) (%d+) (.*)$')
    pushes = pushes + pushes_before
    if tonumber(first_before) <= tonumber(first) then first, zone = first_before, zone_before end
    if tonumber(last_before) > tonumber(last) then last = last_before end
  end
  redis.call('HSET', KEYS[1], field, string.format('%d %s %s %s', pushes, first, last, zone))
end
if redis.call('HLEN', KEYS[1]) > MOST_FIELDS then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if tonumber(string.match(field, '%d+$')) < tonumber(ARGV[2]) then
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
""".replace("MOST_FIELDS", str(_MOST_FIELDS))


class RedisPutOff:
    """The part of `core.ports.ProgressStore` about pushes that were put off."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def put_off(self, put_offs: Sequence[PutOff], now_ms: int) -> None:
        by_task: dict[str, list[str | int]] = defaultdict(list)
        for one in put_offs:
            field = f"{one.reason}:{one.quarter}"
            by_task[one.task_id] += [field, one.pushes, one.first_ms, one.last_ms, one.zone]
        for task_id, args in by_task.items():
            key = self._keys.put_off(task_id)
            await self._client.run(_ADD, [key], [KEPT_MS, now_ms // QUARTER_MS - 1, *args])

    async def forget(self, task_id: str) -> None:
        await self._client.call("DEL", self._keys.put_off(task_id))

    async def found(self, task_ids: Sequence[str]) -> list[list[PutOff]]:
        pipeline = self._client.pipeline()
        for task_id in task_ids:
            pipeline.execute_command("HGETALL", self._keys.put_off(task_id))
        with self._client.reach():
            replies = await pipeline.execute()
        with self._client.understood():
            return [_read(*pair) for pair in zip(task_ids, replies, strict=True)]


def _read(task_id: str, fields: Mapping[bytes, bytes]) -> list[PutOff]:
    return [_note(task_id, *pair) for pair in fields.items()]


def _note(task_id: str, field: bytes, value: bytes) -> PutOff:
    reason, _, quarter = field.decode().rpartition(":")
    pushes, first_ms, last_ms, zone = value.decode().split(" ", 3)
    return PutOff(task_id, reason, int(quarter), int(pushes), int(first_ms), int(last_ms), zone)
