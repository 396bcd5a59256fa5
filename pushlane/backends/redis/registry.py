"""The registry port on Redis: tasks, weights and progress, shared by every process.

Reads come from Redis, and each asks in the same script whether the registry is filled: a server
that lost its data, or took over from another, would else seem to have no tasks. Writes go through
the journal (`backends.redis.writes`). A registry that lost its data, or was set back to older ones,
fills itself from the journal again, but for the counts and the notes of pushes that were put off.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.asyncio.client import PubSub

from pushlane.backends.ports import (
    PAGE,
    Changes,
    Edit,
    Fence,
    FoundTasks,
    Journal,
    TaskPage,
    TaskQuery,
)
from pushlane.backends.queries import finished_seqs
from pushlane.backends.redis.client import (
    Arg,
    OnRedis,
    Read,
    RedisClient,
    bodies_only,
    body_or_empty,
    numbers_only,
    words,
)
from pushlane.backends.redis.journal import JournalAnswers
from pushlane.backends.redis.journal_follower import JournalFollower
from pushlane.backends.redis.keys import READY, Keys
from pushlane.backends.redis.progress import TaskProgress
from pushlane.backends.redis.rebuild import Rebuild
from pushlane.backends.redis.writes import LOCK, LOCK_MS, Held, LockedWrites, Writes
from pushlane.core.errors import UnknownFormat, Unreachable
from pushlane.core.task import Task, Weights, now_ms
from pushlane.model.due import KEPT_MS, QUARTER_MS, PutOff
from pushlane.model.task_bytes import Understood, decode, encode_weights, glimpse
from pushlane.util.errors import DamagedRecord
from pushlane.util.texts import MOST_NAMED, ambiguous_task, paged, unknown_task

RECHECK_S = 0.5  # a message that is lost delays a change by this much


class ChangeSignal:
    """Wakes callers that wait for a change, by one subscription, opened when one first waits.

    A message may get lost, so no caller waits for long. It never says what changed: the registry's
    version number does.
    """

    def __init__(self, client: RedisClient, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._pubsub: PubSub | None = None
        self._reading = asyncio.Lock()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next change, and after RECHECK_S or `timeout_s` at the latest."""
        patience_s = min(timeout_s, RECHECK_S)
        until = time.monotonic() + patience_s
        try:
            async with asyncio.timeout(patience_s):
                await self._reading.acquire()
        except TimeoutError:
            return
        try:
            with self._client.reach():
                if self._pubsub is None:
                    self._pubsub = self._client.redis.pubsub()
                    await self._pubsub.subscribe(self._channel)
                left_s = max(0.0, until - time.monotonic())
                await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=left_s)
        except BaseException:  # the next who waits subscribes anew
            await self.close()
            raise
        finally:
            self._reading.release()

    async def close(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with suppress(Unreachable), self._client.reach():
                await pubsub.aclose()  # type: ignore[no-untyped-call]


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


class RedisPutOff(OnRedis):
    """The part of `backends.ports.ProgressStore` about pushes that were put off (`model.due`).

    A task has one hash, with a field for each reason and quarter. It goes by itself a day after the
    last note. When Redis loses it, what waits is known by the broker alone.
    """

    async def put_off(self, put_offs: Sequence[PutOff]) -> None:
        by_task: dict[str, list[str | int]] = defaultdict(list)
        for one in put_offs:
            field = f"{one.reason}:{one.quarter}"
            by_task[one.task_id] += [field, one.pushes, one.first_ms, one.last_ms, one.zone]
        for task_id, args in by_task.items():
            key = self._keys.put_off(task_id)
            await self._client.run(_ADD, [key], [KEPT_MS, now_ms() // QUARTER_MS - 1, *args])

    async def put_offs(self, task_ids: Sequence[str]) -> list[list[PutOff]]:
        asked = [("HGETALL", self._keys.put_off(task_id)) for task_id in task_ids]

        def read(answers: Any) -> list[list[PutOff]]:
            pairs = zip(task_ids, answers, strict=True)
            return [[_note(one, *note) for note in notes.items()] for one, notes in pairs]

        return await self._client.call_each(asked, read=read)

    async def clear_put_offs(self, task_id: str) -> None:
        await self._client.call("DEL", self._keys.put_off(task_id))


def _note(task_id: str, field: bytes, value: bytes) -> PutOff:
    reason, _, quarter = field.decode().rpartition(":")
    pushes, first_ms, last_ms, zone = value.decode().split(" ", 3)
    return PutOff(task_id, reason, int(quarter), int(pushes), int(first_ms), int(last_ms), zone)


T = TypeVar("T")

TASKS_A_CALL = 200  # so many are read without a pause: two or three ms
_NEAREST_AMONG = 1_000

_SOME = READY
_SOME += """
if not ready(KEYS[1], KEYS[2]) then return false end
local bodies, forgotten = redis.call('HMGET', KEYS[3], unpack(ARGV)), {}
for at, body in ipairs(bodies) do
  if not body and redis.call('ZSCORE', KEYS[4], ARGV[at]) then
    forgotten[#forgotten + 1] = ARGV[at]
  end
end
return {bodies, forgotten}
"""

_FIND = READY
_FIND += """
if not ready(KEYS[1], KEYS[2]) then return false end
local body, keyed = redis.call('HGET', KEYS[3], ARGV[1]), redis.call('HGET', KEYS[4], ARGV[1])
local names = redis.call('ZREVRANGEBYLEX', KEYS[5], ARGV[3], ARGV[2], 'LIMIT', 0, ARGV[4])
return {body or '', keyed or '', names}
"""


class TaskReads(OnRedis):
    """Reads tasks from a Redis that has all of them: it is filled when a read finds it not."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        super().__init__(client, keys)
        self._rebuild = Rebuild(client, keys, journal)
        self._filling: asyncio.Task[None] | None = None
        self._understood = Understood()

    async def _version(self) -> int:
        """Return the number of the latest change."""
        return await self._call("GET", self._keys.version, read=numbers_only) or 0

    async def _call(self, command: str, key: str, *args: Arg, read: Read[T]) -> T:
        """Run a reading command on one key; return what `read` makes of the answer."""
        while not (found := await self._ask_filled(command, key, *args, read=read)):
            await self._until_ready()
        return found[0]

    async def _some(self, task_ids: Sequence[bytes]) -> FoundTasks:
        tasks: list[Task] = []
        unread: list[str] = []
        forgotten: list[str] = []
        keys = [self._keys.tasks, self._keys.forgotten]
        for page in paged(task_ids, TASKS_A_CALL):
            bodies, gone = await self._run(_SOME, keys, page, _bodies_and_forgotten)
            rows = zip(page, bodies, strict=True)
            found = self._understood.read((one.decode(), body) for one, body in rows if body)
            tasks += found[0]
            unread += found[1]
            forgotten += [task_id.decode() for task_id in gone]
        return FoundTasks(tasks, unread, forgotten)

    async def _find(self, wanted: str) -> Task | None:
        """Return the task of this id, key or name; None when there is none."""
        named = f"[{wanted}\0".encode()
        keys = [self._keys.tasks, self._keys.by_key, self._keys.by_name]
        args: list[Arg] = [wanted.encode(), named, named + b"\xff", MOST_NAMED + 1]
        body, keyed, names = await self._run(_FIND, keys, args, _body_key_and_names)
        if body:
            return decode(wanted, body)
        ids = {keyed} if keyed else {name.rpartition(b"\0")[2] for name in names}
        if len(ids) > 1:
            raise await self._ambiguous(wanted, sorted(ids, reverse=True))
        for task_id in ids:
            body = await self._call("HGET", self._keys.tasks, task_id, read=body_or_empty)
            return decode(task_id.decode(), body) if body else None
        return None

    async def _ambiguous(self, name: str, ids: Sequence[bytes]) -> Exception:
        """Return the error that says that the tasks of these ids, newest first, have one name."""
        found = {task.id: task for task in (await self._some(ids)).tasks}
        return ambiguous_task(name, [found.get(one, one) for one in map(bytes.decode, ids)])

    async def _no_such_task(self, wanted: str) -> Exception:
        """Return the error that says that there is no such task, and which are near."""
        latest = await self._call(
            "ZREVRANGE", self._keys.changes, 0, _NEAREST_AMONG - 1, read=words
        )
        found = await self._some(latest)
        near = {word for task in found.tasks for word in (task.id, task.key, task.name) if word}
        return unknown_task(wanted, near)

    async def _run(self, script: str, keys: Sequence[str], args: Sequence[Arg], read: Read[T]) -> T:
        """Run a script that gives nothing when the registry is not filled, until it is."""
        known = [self._keys.version, self._keys.filled, *keys]
        while True:
            found = await self._client.run(
                script, known, args, read=lambda answer: None if answer is None else [read(answer)]
            )
            if found is not None:
                return found[0]
            await self._until_ready()

    async def _until_ready(self) -> None:
        """Wait until the registry is filled. A caller that gives up does not end the filling."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._rebuild.until_ready(), name="fill registry")
        await asyncio.shield(self._filling)


def _bodies_and_forgotten(answer: Any) -> tuple[list[bytes | None], list[bytes]]:
    bodies, forgotten = answer
    return bodies_only(bodies), words(forgotten)


def _body_key_and_names(answer: Any) -> tuple[bytes, bytes, list[bytes]]:
    body, keyed, names = answer
    return body_or_empty(body), body_or_empty(keyed), words(names)


BEGUN_KEPT_MS = 7 * 24 * 3600 * 1000
"""An add that began so long ago is given up: as long as half-made tasks are kept by default."""

_LOOK = LOCK
_LOOK += """
if redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] then return 0 end
return lock(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0
"""

_DROP = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return redis.call('HDEL', KEYS[2], ARGV[2])
"""


class BegunAdds(LockedWrites):
    """Gives up old adds under a key that never ended, as their process or the journal was lost."""

    async def drop_old(self) -> None:
        """Drop those that began over KEPT_MS ago; their ids may be in the journal."""
        before_ms = now_ms() - BEGUN_KEPT_MS
        scan = self._client.redis.hscan_iter(self._keys.adding)
        with self._client.reach():
            found = [(key, body) async for key, body in scan]
        for key, body in found:
            if _is_given_up(key.decode(), body, before_ms):
                await self._drop(key.decode(), body)

    async def _drop(self, key: str, body: bytes) -> None:
        """Drop one, unless it is going on just now."""
        held = Held(self._keys.lock(f"key:{key}"), secrets.token_hex(8))
        keys = [held.lock, self._keys.adding]
        if not await self._client.run(_LOOK, keys, [held.token, LOCK_MS, key, body]):
            return
        async with self._unlocked_on_error(held):
            if begun_id := glimpse(body).id:
                await self._append(begun_id, b"")
            await self._client.run(_DROP, keys, [held.token, key])


def _is_given_up(key: str, body: bytes, before_ms: int) -> bool:
    try:
        return decode(f"of key {key!r}", body).created_at_ms < before_ms
    except DamagedRecord:  # nobody can go on with it
        return True
    except UnknownFormat:  # a newer version has begun it, and gives it up itself
        return False


class RedisRegistry(TaskReads, TaskProgress, RedisPutOff):
    """See `backends.ports.Registry`."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        super().__init__(client, keys, journal)
        self._writes = Writes(client, keys, journal)
        self._begun_adds = BegunAdds(client, keys, journal)
        self._follower = JournalFollower(client, keys, journal)
        self._change_signal = ChangeSignal(client, keys.change_channel)
        self._journal_answers = JournalAnswers(journal)

    async def add(self, task: Task) -> Task:
        return await self._writes.add(task)

    async def get(self, task_id: str) -> Task:
        found = await self._find(task_id)
        if found is None:
            raise await self._no_such_task(task_id)
        return found

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        changed = await self._writes.change(task_id, edit, fence)
        if changed is None:  # a key or a name, or no task at all
            changed = await self._writes.change((await self.get(task_id)).id, edit, fence)
        if changed is None:
            raise await self._no_such_task(task_id)
        return changed

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        """See `backends.ports.TaskStore.page`. A page ends at the id of its last task."""
        start = f"({after}" if after else "+"
        order = self._keys.open if query.is_of_active else self._keys.order
        ids = await self._call(
            "ZRANGE", order, start, "-", "BYLEX", "REV", "LIMIT", 0, most, read=words
        )
        found = await self._some(ids)
        last = ids[-1].decode() if len(ids) == most else ""
        tasks = [task for task in found.tasks if query.fits(task)]
        return TaskPage(tasks, last, [task.id for task in tasks], found.unread)

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        return await self._some([task_id.encode() for task_id in task_ids])

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        found = await self.some(task_ids)
        unknown = _unknown(task_ids, found)
        if not unknown:
            return found
        lacking = await self._journal_answers.lacking(unknown)
        again = await self.some(unknown)  # it may have come back meanwhile
        gone = lacking & {*_unknown(unknown, again)}
        return FoundTasks(
            [*found.tasks, *again.tasks],
            [*found.unread, *again.unread],
            [*found.forgotten, *again.forgotten, *gone],
        )

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        span = ("-inf", f"({before_ms}", "BYSCORE", "LIMIT", skip, most)
        ids = await self._call("ZRANGE", self._keys.ended, *span, read=words)
        return await self._some(ids)

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        is_forgotten = await self._writes.forget(task_id, fence)
        if is_forgotten:
            await self._client.call("DEL", self._keys.put_off(task_id))
        return is_forgotten

    async def discard(self, task_id: str) -> bool:
        return await self._writes.discard(task_id)

    async def tidy(self) -> None:
        await self._version()
        await self._rebuild.trim()
        await self._begun_adds.drop_old()

    async def keep_up(self) -> None:
        await self._follower.look()

    async def weights(self) -> Weights:
        kept = await self._call("GET", self._keys.weights, read=body_or_empty)
        with self._client.understood():
            return Weights.parse(kept.decode()) if kept else Weights()

    async def set_weights(self, weights: Weights, over: Weights | None = None) -> bool:
        stored = () if over is None else (encode_weights(over).encode(),)
        unset = (b"",) if over == Weights() else ()
        return await self._writes.set_weights(weights, (*stored, *unset))

    async def changes(self, since: int, timeout_s: float) -> Changes:
        deadline = time.monotonic() + timeout_s
        version = await self._version()
        while version == since and (left_s := deadline - time.monotonic()) > 0:
            await self._change_signal.wait(left_s)
            version = await self._version()
        # Tasks are read after the version: what changes in between comes again, and is not missed.
        found = await self._changed(since, version)
        return Changes(version, found.tasks, await self.weights(), found.unread, found.forgotten)

    async def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        return await finished_seqs(self, task_id, seqs)

    async def counted_since_ms(self) -> int:
        return await self._client.call("GET", self._keys.counted, read=numbers_only) or 0

    async def close(self) -> None:
        await self._change_signal.close()
        await self._follower.close()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])

    async def _changed(self, since: int, version: int) -> FoundTasks:
        """Return what is new of tasks since then."""
        if since == version:
            return FoundTasks([])
        if since == 0 or since > version:  # a first look, or a registry that was set back
            return await self._some(await self._call("SMEMBERS", self._keys.active, read=words))
        span = (self._keys.changes, f"({since}", "+inf")
        return await self._some(await self._call("ZRANGEBYSCORE", *span, read=words))


def _unknown(task_ids: Sequence[str], found: FoundTasks) -> list[str]:
    """Return those of which nothing was found."""
    known = {*(task.id for task in found.tasks), *found.unread, *found.forgotten}
    return [task_id for task_id in task_ids if task_id not in known]
