"""Names of the Redis keys, and the form of what is kept under them.

Names of the Redis keys. One hash tag for all: in a cluster a script may touch several.

The form of tasks and documents in Redis, with the Lua that puts them there.

Every write of tasks uses this; it never decides whether a write may happen.
"""

from __future__ import annotations

from pushlane.model.task_bytes import glimpse


class Keys:
    """The keys under one prefix, each with its content."""

    def __init__(self, prefix: str) -> None:
        self._base = f"{{{prefix}}}:"
        self.version = self._base + "version"  # number of the latest change; absent: nothing here
        self.filled = self._base + "filled"  # run id of the server that this was filled on
        self.server = self._base + "server"  # the run id of `filled`, which 0.2.0 looks for as well
        self.counted = self._base + "counted"  # Unix ms: since when every finish is counted
        self.tasks = self._base + "tasks"  # hash: id → task
        self.by_key = self._base + "by-key"  # hash: key → id
        self.by_name = self._base + "by-name"  # sorted set of name NUL id
        self.active = self._base + "active"  # set: ids of tasks that are not finished
        self.changes = self._base + "changes"  # sorted set: id, scored by its latest change
        self.order = self._base + "order"  # sorted set of ids, which sort by time of making
        self.open = self._base + "open"  # the same of tasks that are not finished
        self.ended = self._base + "ended"  # sorted set: id, scored by when its task ended
        self.forgotten = self._base + "forgotten"  # sorted set: id, scored by when it was
        self.adding = self._base + "adding"  # hash: key → task whose add has begun
        self.documents = self._base + "shelf"  # hash: kind:name → version, line end, body
        self.suppressions = (
            self._base + "suppressions"
        )  # hash: scope → how many are suppressed in it
        self.dead_addresses = self._base + "dead-addresses"  # hash: hash:sink → record
        self.dead_by_age = self._base + "dead-by-age"  # sorted set: hash:sink, scored by its number
        self.registered = self._base + "registered"  # sorted set: hash:sink, scored by Unix ms
        self.weights = self._base + "weights"
        self.processes = self._base + "processes"  # sorted set: id, scored by the end of its time
        self.rebuilding = self._base + "rebuilding"  # token of who fills, tasks so far
        # Named like locks and fences, which the roles of earlier versions may reach already.
        self.refused = self._base + "lock:refused"  # why it is not filled, for a while
        self.followed = self._base + "fence:followed"  # up to where it has what the journal has
        self.change_channel = self._base + "notices"  # channel: the number of each change

        # In the order in which scripts that store a task name them, before other keys.
        self.index = [self.version, self.tasks, self.by_key, self.by_name, self.active]
        self.index += [self.changes, self.change_channel, self.order, self.ended, self.open]

    def lock(self, what: str) -> str:
        return f"{self._base}lock:{what}"

    def seen(self, task_id: str) -> str:
        """Return the key of the bitmap of the seqs that are finished."""
        return f"{self._base}seen:{task_id}"

    def moved(self, task_id: str) -> str:
        """Return the key of the bitmap of the seqs that left the task's first lane for another."""
        return f"{self._base}moved:{task_id}"

    def counts(self, task_id: str) -> str:
        """Return the key of the hash of how many distinct seqs ended in each kind."""
        return f"{self._base}counts:{task_id}"

    def put_off(self, task_id: str) -> str:
        """Return the key of the hash of its pushes that were put off, by reason and quarter.

        It is named like counts, which the roles of earlier versions may reach already.
        """
        return f"{self._base}counts:{task_id}:put-off"

    def progress(self, task_id: str) -> list[str]:
        """Return the keys of all that is counted of a task."""
        return [self.seen(task_id), self.moved(task_id), self.counts(task_id)]

    def claim(self, push_id: str) -> str:
        """Return the key of a claim.

        Its value is empty when confirmed, else its end, how it was got (won or unknown) and its
        owner.
        """
        return f"{self._base}claim:{push_id}"

    def mark(self, key: str) -> str:
        """Return the key of a mark's token and, during a turn, when that ends and whose it is."""
        return f"{self._base}mark:{key}"

    def rate(self, subject: str) -> str:
        """Return the key of the tokens that a subject's rate has left, and since when."""
        return f"{self._base}rate:{subject}"

    def places(self, subject: str) -> str:
        """Return the key of the hash of who holds how many places, wants how many, and when."""
        return f"{self._base}places:{subject}"

    def tallies(self, subject: str) -> str:
        """Return the key of the hash of who was allotted how much of a subject's totals."""
        return f"{self._base}tallies:{subject}"

    def day_count(self, day: int, key: int) -> str:
        """Return the key of the tokens that were counted of a recipient on a day."""
        return f"{self._base}day:{day}:{key}"

    def suppressed(self, scope: str) -> str:
        """Return how the keys of a scope's sets of hashes begin."""
        return f"{self._base}suppressed:{scope}:"

    def process(self, process_id: str) -> str:
        """Return the key of the description that a process gives of itself."""
        return f"{self._base}process:{process_id}"

    def lease(self, name: str) -> str:
        return f"{self._base}lease:{name}"

    def fence(self, name: str) -> str:
        return f"{self._base}fence:{name}"


# How long counted seqs are kept once nothing can bring them again, and counts without a task.
KEPT_MS = 24 * 3600 * 1000

# KEYS begin with `Keys.index`. The order of tasks, and of their ends, is read from this index.
_INDEX = """
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
    _INDEX
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


def remove_args(task_id: str, body: bytes) -> list[str]:
    kept = glimpse(body)
    return [task_id, kept.key, kept.name]
