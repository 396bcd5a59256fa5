"""Reads tasks from a Redis that is known to have all of them.

Each read asks in the same script whether the registry is filled: a server that lost its data, or
took over from another, between a question of that and the read would seem to have no tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pushlane.backends.redis.client import RedisClient, bodies_only, numbers_only, words
from pushlane.backends.redis.keys import Keys
from pushlane.core.task import Task
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import FoundTasks
from pushlane.lanes.redis.codec import READY
from pushlane.lanes.suggestions import ambiguous_task, unknown_task
from pushlane.model.task_bytes import Understood, decode

T = TypeVar("T")

TASKS_A_CALL = 200  # so many are read without a pause: two or three ms
_NEAREST_AMONG = 1_000

_ANY = READY + "return ready(KEYS[1], KEYS[2]) and {redis.call(ARGV[1], KEYS[3], unpack(ARGV, 2))}"

_SOME = (
    READY
    + """
if not ready(KEYS[1], KEYS[2]) then return false end
local bodies, forgotten = redis.call('HMGET', KEYS[3], unpack(ARGV)), {}
for at, body in ipairs(bodies) do
  if not body and redis.call('ZSCORE', KEYS[4], ARGV[at]) then
    forgotten[#forgotten + 1] = ARGV[at]
  end
end
return {bodies, forgotten}
"""
)

_FIND = (
    READY
    + """
if not ready(KEYS[1], KEYS[2]) then return false end
local body, keyed = redis.call('HGET', KEYS[3], ARGV[1]), redis.call('HGET', KEYS[4], ARGV[1])
local names = redis.call('ZRANGEBYLEX', KEYS[5], ARGV[2], ARGV[3], 'LIMIT', 0, 3)
return {body or '', keyed or '', names}
"""
)


class TaskReads:
    """`until_ready` returns once the registry is filled, and is called when a read finds it not."""

    def __init__(
        self, client: RedisClient, keys: Keys, until_ready: Callable[[], Awaitable[None]]
    ) -> None:
        self._client = client
        self._keys = keys
        self._until_ready = until_ready
        self._understood = Understood()

    async def version(self) -> int:
        """Return the number of the latest change."""
        return await self.call("GET", self._keys.version, read=numbers_only) or 0

    async def call(
        self, command: str, key: str, *args: str | bytes | int, read: Callable[[Any], T]
    ) -> T:
        """Run a reading command on one key; return what `read` makes of the answer."""
        return await self._run(_ANY, [key], [command, *args], lambda answer: read(answer[0]))

    async def some(self, task_ids: Sequence[bytes]) -> FoundTasks:
        """See `core.ports.TaskStore.some`."""
        tasks: list[Task] = []
        unread: list[str] = []
        forgotten: list[str] = []
        keys = [self._keys.tasks, self._keys.forgotten]
        for page in paged(task_ids, TASKS_A_CALL):
            bodies, gone = await self._run(_SOME, keys, page, _bodies_and_forgotten)
            pairs = zip(page, bodies, strict=True)
            found = self._understood.read(
                (task_id.decode(), body) for task_id, body in pairs if body
            )
            tasks += found[0]
            unread += found[1]
            forgotten += [task_id.decode() for task_id in gone]
        return FoundTasks(tasks, unread, forgotten)

    async def find(self, wanted: str) -> Task | None:
        """Return the task of this id, key or name; None when there is none."""
        named = f"[{wanted}\0".encode()
        keys = [self._keys.tasks, self._keys.by_key, self._keys.by_name]
        args = [wanted.encode(), named, named + b"\xff"]
        body, keyed, names = await self._run(_FIND, keys, args, _body_key_and_names)
        if body:
            return decode(wanted, body)
        ids = {keyed} if keyed else {name.rpartition(b"\0")[2] for name in names}
        if len(ids) > 1:
            raise ambiguous_task(wanted, sorted(task_id.decode() for task_id in ids))
        for task_id in ids:
            body = await self.call("HGET", self._keys.tasks, task_id, read=_body)
            return decode(task_id.decode(), body) if body else None
        return None

    async def unknown(self, wanted: str) -> Exception:
        """Return the error that says that there is no such task, and which are near."""
        latest = await self.call("ZREVRANGE", self._keys.changes, 0, _NEAREST_AMONG - 1, read=words)
        found = await self.some(latest)
        near = {word for task in found.tasks for word in (task.id, task.key, task.name) if word}
        return unknown_task(wanted, near)

    async def _run(
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[str | bytes | int],
        read: Callable[[Any], T],
    ) -> T:
        """Run a script that gives nothing when the registry is not filled, until it is."""
        known = [self._keys.version, self._keys.filled, *keys]
        while True:
            found = await self._client.run(
                script, known, args, read=lambda answer: None if answer is None else [read(answer)]
            )
            if found is not None:
                return found[0]
            await self._until_ready()


def _body(answer: Any) -> bytes:
    """Read a body; an empty one when there is none."""
    return words([answer or b""])[0]


def _bodies_and_forgotten(answer: Any) -> tuple[list[bytes | None], list[bytes]]:
    bodies, forgotten = answer
    return bodies_only(bodies), words(forgotten)


def _body_key_and_names(answer: Any) -> tuple[bytes, bytes, list[bytes]]:
    body, keyed, names = answer
    return _body(body), _body(keyed), words(names)
