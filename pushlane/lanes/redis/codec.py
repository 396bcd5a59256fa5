"""The form of tasks and documents in Redis, with the Lua that puts them there.

Every write of tasks uses this; it never decides whether a write may happen.
"""

from __future__ import annotations

from pushlane.model.task_bytes import glimpse

# How long counted seqs are kept once nothing can bring them again, and counts without a task.
KEPT_MS = 24 * 3600 * 1000

# KEYS begin with `Keys.index`. The order of tasks, and of their ends, is read from this index.
INDEX = """
local function index(id, active, ended_ms)
  redis.call('ZADD', KEYS[8], 0, id)
  if active == '1' then
    redis.call('ZADD', KEYS[10], 0, id)
    redis.call('ZREM', KEYS[9], id)
  else
    redis.call('ZREM', KEYS[10], id)
    redis.call('ZADD', KEYS[9], ended_ms, id)
  end
end
"""

# From `at` on, ARGV holds what `store_args` gives.
STORE = (
    INDEX
    + """
local function store(at)
  local id, body, key, name, active, ended_ms = unpack(ARGV, at, at + 5)
  redis.call('HSET', KEYS[2], id, body)
  if key ~= '' then redis.call('HSET', KEYS[3], key, id) end
  if name ~= '' then redis.call('ZADD', KEYS[4], 0, name .. '\\0' .. id) end
  redis.call(active == '1' and 'SADD' or 'SREM', KEYS[5], id)
  index(id, active, ended_ms)
end
"""
)

# The reverse of storing a task. Its counts go too.
REMOVE = """
local function remove(id, key, name, seen, moved, counts)
  redis.call('HDEL', KEYS[2], id)
  if key ~= '' and redis.call('HGET', KEYS[3], key) == id then redis.call('HDEL', KEYS[3], key) end
  redis.call('ZREM', KEYS[4], name .. '\\0' .. id)
  redis.call('SREM', KEYS[5], id)
  redis.call('ZREM', KEYS[8], id)
  redis.call('ZREM', KEYS[9], id)
  redis.call('ZREM', KEYS[10], id)
  redis.call('DEL', seen, moved, counts)
end
"""

# A server that was started anew may have read older data than the journal's from its disk, and a
# replica may have had older data: only the server that filled the registry is trusted.
READY = """
local function ready(version, filled)
  if redis.call('EXISTS', version) == 0 then return false end
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  return redis.call('GET', filled) == run_id
end
"""

# Gives a change its number and tells everybody. The number is what `since` compares.
ANNOUNCE = """
local function announce(id)
  local version = redis.call('INCR', KEYS[1])
  if id then redis.call('ZADD', KEYS[6], version, id) end
  redis.call('PUBLISH', KEYS[7], version)
end
"""

# Versions of documents are microseconds of the server's clock: a document that is removed and put
# again, or filled in anew, does not get one that it had before.
PUT_DOCUMENT = """
local function put_document(documents, field, body)
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  local kept = tonumber(string.match(redis.call('HGET', documents, field) or '', '^%d+') or 0)
  local version = string.format('%.0f', math.max(now_us, kept + 1))
  redis.call('HSET', documents, field, version .. '\\n' .. body)
  return version
end
"""


def store_args(task_id: str, body: bytes) -> list[str | bytes | int]:
    kept = glimpse(body)
    active = "1" if kept.is_active else ""
    return [task_id, body, kept.key, kept.name, active, kept.finished_at_ms]


def index_args(task_id: str, body: bytes) -> list[str | bytes | int]:
    return [task_id, *store_args(task_id, body)[4:]]


def remove_args(task_id: str, body: bytes) -> list[str]:
    kept = glimpse(body)
    return [task_id, kept.key, kept.name]
