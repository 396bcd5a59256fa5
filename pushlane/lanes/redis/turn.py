"""The turn to fill a registry: one process at a time has it, and says how far it is.

It is one key: the token of who has it, and how many tasks that has filled in. It is renewed for as
long as its process lives, and ends by itself after that.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from pushlane.backends.redis.client import RedisClient, turn
from pushlane.backends.redis.keys import Keys
from pushlane.core.errors import Unreachable
from pushlane.lanes.redis.codec import READY

log = logging.getLogger("pushlane.registry")

GUARD_MS = 20_000
KEEP_S = 5.0
PATIENCE_S = 120.0
TELL_S = 5.0

# Every script that fills begins with it, so that who has lost the turn writes nothing more.
# Processes of an earlier version have a token alone, and take any other value for somebody else's.
HOLD = """
local function holds(guard, token)
  return string.sub(redis.call('GET', guard) or '', 1, #token) == token
end
local function hold(guard, token, ttl_ms, tasks)
  if not holds(guard, token) then return false end
  redis.call('SET', guard, token .. ' ' .. tasks, 'PX', ttl_ms)
  return true
end
"""

# A registry that an earlier version of pushlane has filled lacks only the indexes it did not know.
_TAKE = (
    READY
    + HOLD
    + """
if ready(KEYS[1], KEYS[3]) then return {'ready'} end
local refused = ARGV[3] == '1' and redis.call('GET', KEYS[5])
if refused then return {'refused', refused} end
local guard = redis.call('GET', KEYS[2])
if guard and not holds(KEYS[2], ARGV[1]) then return {'busy', guard} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {ready(KEYS[1], KEYS[4]) and 'index' or 'fill'}
"""
)

_KEEP = HOLD + "return hold(KEYS[1], ARGV[1], ARGV[2], ARGV[3])"

_GIVE_UP = HOLD + "return holds(KEYS[1], ARGV[1]) and redis.call('DEL', KEYS[1])"


class Turn:
    """The turn of one process, which it has once `take` says so. `tasks` are those it has done."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self.token = secrets.token_hex(8)
        self.tasks = 0

    async def take(self, *, heeds_refusal: bool = True) -> tuple[bytes, bytes]:
        """Return what is to be done: nothing (ready), index, fill, or wait for another (busy).

        Besides, return the key's value while another process has the turn. Where the last one was
        refused, return `refused` and why.
        """
        keys = [self._keys.version, self._keys.rebuilding, self._keys.filled, self._keys.server]
        keys.append(self._keys.refused)
        args: list[str | bytes | int] = [self.token, GUARD_MS, int(heeds_refusal)]
        return await self._client.run(_TAKE, keys, args, read=turn)

    async def take_at_rest(self) -> bool:
        """Take the turn though the registry may be ready. False while another process has it."""
        command = ("SET", self._keys.rebuilding, self.token, "NX", "PX", GUARD_MS)
        return bool(await self._client.call(*command))

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep the turn while the block lasts, however slow it is, and give it up in the end."""
        keeper = asyncio.create_task(self._keep(), name="keep the turn to fill the registry")
        try:
            yield
        finally:
            keeper.cancel()
            with suppress(Unreachable):  # then it ends by itself
                await self._client.run(_GIVE_UP, [self._keys.rebuilding], [self.token])

    def args(self) -> list[str | bytes | int]:
        """Return the first arguments of a script that fills: the token, its time, and the tasks."""
        return [self.token, GUARD_MS, self.tasks]

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            tell(self._client.where, self.tasks)
            with suppress(Unreachable):  # it is tried again, and what is written now fails as well
                await self._client.run(_KEEP, [self._keys.rebuilding], self.args())


class Patience:
    """Waits for the process that has the turn for as long as that goes on."""

    def __init__(self, where: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._where = where
        self._clock_s = clock_s
        self._seen = b""
        self._moved_s = self._told_s = clock_s()

    def look(self, value: bytes) -> None:
        """Look at the value of the key, and tell how far it is every few seconds.

        Raises:
            Unreachable: it has been the same for PATIENCE_S.
        """
        now_s, tasks = self._clock_s(), _tasks(value)
        if value != self._seen:
            self._seen, self._moved_s = value, now_s
        if now_s - self._moved_s >= PATIENCE_S:
            raise Unreachable(
                f"{_refilled(self._where, tasks)}, and none more for {PATIENCE_S:.0f} s; look at "
                "the process that does it, then try again"
            )
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            tell(self._where, tasks)


def tell(where: str, tasks: int) -> None:
    """Log how far a registry is refilled; as a warning, which commands show as well."""
    log.warning("%s", _refilled(where, tasks), extra={"action": "registry_refilling"})


def _refilled(where: str, tasks: int) -> str:
    return f"the registry in Redis at {where} is being refilled: {tasks:,} tasks so far"


def _tasks(value: bytes) -> int:
    """Read the tasks behind a token; none of an earlier version, which says nothing of them."""
    count = value.partition(b" ")[2]
    return int(count) if count.isdigit() else 0
