"""Names of the Redis keys, and the Lua that every write of tasks and documents uses.

One hash tag for all keys: in a cluster a script may touch several. Nothing here decides whether a
write may happen.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane.model.task_bytes import glimpse


class Keys:
    """The keys under one prefix, each with its content; those of many things are functions."""

    def __init__(self, prefix: str) -> None:
        base = f"{{{prefix}}}:"
        self.version = base + "version"  # number of the latest change; absent: nothing here
        self.filled = base + "filled"  # run id of the server that this was filled on
        self.server = base + "server"  # the run id of `filled`, which 0.2.0 looks for as well
        self.counted = base + "counted"  # Unix ms: since when every finish is counted
        self.tasks = base + "tasks"  # hash: id → task
        self.by_key = base + "by-key"  # hash: key → id
        self.by_name = base + "by-name"  # sorted set of name NUL id
        self.active = base + "active"  # set: ids of tasks that are not finished
        self.changes = base + "changes"  # sorted set: id, scored by its latest change
        self.order = base + "order"  # sorted set of ids, which sort by time of making
        self.open = base + "open"  # the same of tasks that are not finished
        self.ended = base + "ended"  # sorted set: id, scored by when its task ended
        self.forgotten = base + "forgotten"  # sorted set: id, scored by when it was
        self.adding = base + "adding"  # hash: key → task whose add has begun
        self.documents = base + "shelf"  # hash: kind:name → version, line end, body
        self.suppressions = base + "suppressions"  # hash: scope → how many it suppresses
        self.dead_addresses = base + "dead-addresses"  # hash: hash:sink → record
        self.dead_by_age = base + "dead-by-age"  # sorted set: hash:sink, scored by its number
        self.registered = base + "registered"  # sorted set: hash:sink, scored by Unix ms
        self.weights = base + "weights"
        self.processes = base + "processes"  # sorted set: id, scored by the end of its time
        self.rebuilding = base + "rebuilding"  # token of who fills, tasks so far
        # Named like locks and fences, which the roles of earlier versions may reach already.
        self.refused = base + "lock:refused"  # why it is not filled, for a while
        self.followed = base + "fence:followed"  # up to where it has what the journal has
        self.change_channel = base + "notices"  # channel: the number of each change

        def each(kind: str) -> Callable[[str], str]:
            return lambda name: f"{base}{kind}:{name}"

        self.lock = each("lock")  # of what is written: the token of its writer
        self.seen = each("seen")  # of a task: bitmap of the seqs that are finished
        self.moved = each("moved")  # of a task: bitmap of the seqs that left its first lane
        self.counts = each("counts")  # of a task, hash: kind → how many distinct seqs ended in it
        # Of a push: empty when confirmed, else its end, how it was got (won or unknown), its owner.
        self.claim = each("claim")
        self.mark = each("mark")  # token; during a turn also when that ends and whose it is
        self.rate = each("rate")  # of a subject: the tokens that are left, and since when
        self.places = each("places")  # of a subject, hash: who holds and wants how many, and when
        self.tallies = each("tallies")  # of a subject, hash: who got how much of its totals
        self.process = each("process")  # the description that a process gives of itself
        self.lease = each("lease")  # hash: holder and fence
        self.fence = each("fence")  # of a lease: its latest number
        self._day = each("day")
        self._suppressed = each("suppressed")

    @property
    def index(self) -> list[str]:
        """The keys of tasks, in the order in which scripts that store one name them first."""
        of_tasks = [self.version, self.tasks, self.by_key, self.by_name, self.active]
        return [*of_tasks, self.changes, self.change_channel, self.order, self.ended, self.open]

    def put_off(self, task_id: str) -> str:
        """Return the key of the hash of its pushes that were put off, by reason and quarter.

        It is named like counts, which the roles of earlier versions may reach already.
        """
        return f"{self.counts(task_id)}:put-off"

    def progress(self, task_id: str) -> list[str]:
        """Return the keys of all that is counted of a task."""
        return [self.seen(task_id), self.moved(task_id), self.counts(task_id)]

    def day_count(self, day: int, key: int) -> str:
        """Return the key of the tokens that were counted of a recipient on a day."""
        return self._day(f"{day}:{key}")

    def suppressed(self, scope: str) -> str:
        """Return how the keys of a scope's sets of hashes begin."""
        return f"{self._suppressed(scope)}:"


# How long counted seqs are kept once nothing can bring them again, and counts without a task.
KEPT_MS = 24 * 3600 * 1000

# KEYS begin with `Keys.index`, from which the order of tasks, and of their ends, is read. From `at`
# on, ARGV holds what `store_args` gives.
STORE = """
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

local function store(at)
  local id, body, key, name, active, ended_ms = unpack(ARGV, at, at + 5)
  redis.call('HSET', KEYS[2], id, body)
  if key ~= '' then redis.call('HSET', KEYS[3], key, id) end
  if name ~= '' then redis.call('ZADD', KEYS[4], 0, name .. '\\0' .. id) end
  redis.call(active == '1' and 'SADD' or 'SREM', KEYS[5], id)
  index(id, active, ended_ms)
end
"""

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


def remove_args(task_id: str, body: bytes) -> list[str]:
    kept = glimpse(body)
    return [task_id, kept.key, kept.name]
