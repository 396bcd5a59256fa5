"""Fills a registry from the journal: tasks, keys, names, weights and documents.

That is needed when Redis has lost its data, and whenever its server is another one than before,
since the data of that may be old. One process does it while the others wait. Pages of the journal
are written as they are read, each task as it stands by the rule of `model.task_bytes`; readers
trust none of it before the end. Counts (`backends.redis.progress`) are not in the journal: they
start from zero, or from those of an old copy.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from pushlane.backends.operations import Beside, is_loss, refusal
from pushlane.backends.ports import Journal
from pushlane.backends.redis.client import (
    NOW,
    Arg,
    OnRedis,
    RedisClient,
    bodies_only,
    body_or_empty,
    numbers_only,
    turn,
    words,
)
from pushlane.backends.redis.journal import DOCUMENT_KEY, WEIGHTS_KEY, JournalSum
from pushlane.backends.redis.keys import (
    KEPT_MS,
    PUT_DOCUMENT,
    READY,
    REMOVE,
    STORE,
    Keys,
    remove_args,
    store_args,
)
from pushlane.core.errors import UnknownFormat, Unreachable
from pushlane.model.task_bytes import Merged, glimpse, merged
from pushlane.util.errors import RefillRefused
from pushlane.util.texts import paged

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

_TAKE = READY + HOLD
_TAKE += """
if ready(KEYS[1], KEYS[3]) then return {'ready'} end
local refused = ARGV[3] == '1' and redis.call('GET', KEYS[4])
if refused then return {'refused', refused} end
local guard = redis.call('GET', KEYS[2])
if guard and not holds(KEYS[2], ARGV[1]) then return {'busy', guard} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'fill'}
"""

_KEEP = HOLD + "return hold(KEYS[1], ARGV[1], ARGV[2], ARGV[3])"

_GIVE_UP = HOLD + "return holds(KEYS[1], ARGV[1]) and redis.call('DEL', KEYS[1])"


class Turn(OnRedis):
    """The turn of one process to fill, which it has once `take` says so.

    It is one key: the token of who has it, and how many `tasks` that has filled in. It is renewed
    for as long as its process lives, and ends by itself after that.
    """

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        super().__init__(client, keys)
        self.token = secrets.token_hex(8)
        self.tasks = 0

    async def take(self, *, heeds_refusal: bool = True) -> tuple[bytes, bytes]:
        """Return what is to be done: nothing (ready), fill, or wait for another (busy).

        Besides, return the key's value while another process has the turn. Where the last one was
        refused, return `refused` and why.
        """
        keys = [self._keys.version, self._keys.rebuilding, self._keys.filled, self._keys.refused]
        args: list[Arg] = [self.token, GUARD_MS, int(heeds_refusal)]
        return await self._client.run(_TAKE, keys, args, read=turn)

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

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Arg] = ()) -> bool:
        """Run a script that fills. False when the turn went to another process."""
        first: list[Arg] = [self.token, GUARD_MS, self.tasks]
        return bool(await self._client.run(script, keys, [*first, *args]))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            tell(self._client.where, self.tasks)
            with suppress(Unreachable):  # it is tried again, and what is written now fails as well
                await self.run(_KEEP, [self._keys.rebuilding])


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


REFUSED_MS = 30_000
"""Meanwhile nobody reads the journal to no end."""

_IDS_A_CALL = 1_000
_TASKS_A_CALL = 200


async def stored_tasks(client: RedisClient, keys: Keys) -> AsyncIterator[dict[str, bytes]]:
    """Yield all tasks that Redis has, in pages; a task may come twice."""
    cursor, is_over = 0, False
    while not is_over:
        cursor, page = await client.call(
            "HSCAN", keys.tasks, cursor, "COUNT", _TASKS_A_CALL, read=_page
        )
        is_over = cursor == 0
        if page:
            yield page


def _page(answer: Any) -> tuple[int, dict[str, bytes]]:
    cursor, found = answer
    words([*found, *found.values()])
    return int(cursor), {task_id.decode(): body for task_id, body in found.items()}


TASKS_A_CALL = 200
DOCUMENTS_A_CALL = 20
POLL_S = 0.1

# The news that a task was forgotten is kept for a day.
_TRIM = NOW
_TRIM += """
local before_ms = now_ms - ARGV[1]
local old = redis.call('ZRANGE', KEYS[2], '-inf', before_ms, 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(old) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
return #old
"""

# Refuses when the turn went to somebody else, so that old tasks never overwrite newer ones.
# Tasks whose lane may still be read count as just changed: who followed the registry before the
# loss hears of them.
_FILL = NOW + STORE + HOLD
_FILL += """
if not hold(KEYS[11], ARGV[1], ARGV[2], ARGV[3]) then return 0 end
for at = 4, #ARGV, 7 do
  store(at)
  redis.call('ZADD', KEYS[6], ARGV[at + 6] == 'open' and now_ms or 1, ARGV[at])
end
return 1
"""

# A task that only the old copy holds was forgotten since.
_EMPTY = REMOVE + HOLD
_EMPTY += """
if not hold(KEYS[11], ARGV[1], ARGV[2], ARGV[3]) then return 0 end
local counts = 12
for at = 4, #ARGV, 3 do
  remove(ARGV[at], ARGV[at + 1], ARGV[at + 2], unpack(KEYS, counts, counts + 2))
  redis.call('ZREM', KEYS[6], ARGV[at])
  counts = counts + 3
end
return 1
"""

# A document that is in Redis alone was removed from the journal since.
_CLEAR = HOLD
_CLEAR += """
if not holds(KEYS[1], ARGV[1]) then return 0 end
redis.call('DEL', KEYS[2])
return 1
"""

_FILL_DOCUMENTS = PUT_DOCUMENT + HOLD
_FILL_DOCUMENTS += """
if not hold(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then return 0 end
for at = 4, #ARGV, 2 do put_document(KEYS[2], ARGV[at], ARGV[at + 1]) end
return 1
"""

# Versions start at the server's time in ms, so that they are higher than any from before a loss.
_OPEN = NOW + HOLD
_OPEN += """
if not holds(KEYS[11], ARGV[1]) then return 0 end
if ARGV[2] ~= '' then redis.call('SET', KEYS[12], ARGV[2]) end
redis.call('SET', KEYS[16], ARGV[3])
local version = math.max(now_ms, tonumber(redis.call('GET', KEYS[1]) or 0) + 1)
redis.call('SET', KEYS[1], string.format('%.0f', version))
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('SET', KEYS[13], run_id)
redis.call('SET', KEYS[14], run_id)
redis.call('SET', KEYS[15], string.format('%.0f', now_ms))
redis.call('DEL', KEYS[11])
redis.call('PUBLISH', KEYS[7], version)
return 1
"""


class Rebuild(OnRedis):
    """Makes a registry that is empty, or perhaps old, ready for use.

    It refuses a journal that lacks unfinished tasks which Redis has: one whose topic was made anew
    would else empty a good registry at the next failover.
    """

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        super().__init__(client, keys)
        self._journal = journal

    async def until_ready(self, beside: Beside = Beside.REFUSED) -> None:
        """Return once the registry is ready, whoever made it so.

        Raises:
            RefillRefused: the journal lacks too many of the tasks that Redis has.
            Unreachable: another process is at it, and has got no further for PATIENCE_S.
        """
        patience = Patience(self._client.where)
        while True:
            turn = Turn(self._client, self._keys)
            how, far = await turn.take(heeds_refusal=beside is Beside.REFUSED)
            if how == b"ready":
                return
            if how == b"refused":
                raise RefillRefused(far.decode())
            if how != b"busy":
                async with turn.kept():
                    if await self._fill(turn, beside):
                        return
                far = b"%d" % turn.tasks
            patience.look(far)
            await asyncio.sleep(POLL_S)

    async def again(self, beside: Beside = Beside.REFUSED) -> None:
        """Fill the registry anew, though it may be ready."""
        await self._client.call("DEL", self._keys.filled, self._keys.server, self._keys.refused)
        await self.until_ready(beside)

    async def trim(self) -> None:
        """Drop old news of forgotten tasks."""
        keys, args = [self._keys.changes, self._keys.forgotten], [KEPT_MS, TASKS_A_CALL]
        while await self._client.run(_TRIM, keys, args):
            pass

    async def _fill(self, turn: Turn, beside: Beside) -> bool:
        """Fill the registry. False when the turn went to another process before the end."""
        started_s, read = time.monotonic(), JournalSum()
        if self._journal is not None:
            active = self._keys.active
            unfinished = await self._client.call("SCARD", active, read=numbers_only) or 0
            async with aclosing(self._journal.pages()) as pages:
                async for page in pages:
                    if page.is_first:
                        holds_tasks = bool(await self._client.call("HLEN", self._keys.tasks))
                        read = JournalSum(is_beside_others=holds_tasks)
                    if not await self._fill_tasks(turn, read, read.take(page)):
                        return False
            if read.is_beside_others:
                if beside is Beside.REFUSED:
                    await self._check(unfinished, read)
                elif beside is Beside.KEPT:
                    await self._keep(self._journal, read)
                if not await self._empty(turn, read.known):
                    return False
            await self._journal_again(self._journal, read)
        if not await self._fill_documents(turn, read.documents):
            return False
        keys = [*self._filled_keys(), self._keys.weights, self._keys.filled, self._keys.server]
        keys += [self._keys.counted, self._keys.followed]
        if not await self._client.run(_OPEN, keys, [turn.token, read.weights, read.position]):
            return False
        text, taken_s = "the registry was filled: %s tasks in %.1f s", time.monotonic() - started_s
        log.info(text, f"{len(read.known):,}", taken_s, extra={"action": "registry_refilled"})
        return True

    async def _check(self, unfinished: int, read: JournalSum) -> None:
        """Let the fill go on that removes what is not known to the journal.

        `unfinished` is how many Redis had before. Those that the journal says to be gone are not
        lost.

        Raises:
            RefillRefused: it would lose more than few; the registry stays as it is, not ready.
        """
        active = self._client.redis.sscan_iter(self._keys.active, count=_IDS_A_CALL)
        with self._client.reach():
            unfinished_ids = {task_id.decode() async for task_id in active}
        lost = [task_id for task_id in unfinished_ids if not read.tells_of(task_id)]
        if not is_loss(len(lost), unfinished, is_journal_empty=not read.known):
            return
        text = refusal(self._client.where, len(lost), max(unfinished, len(lost)))
        await self._client.call("SET", self._keys.refused, text, "PX", REFUSED_MS)
        raise RefillRefused(text)

    async def _keep(self, journal: Journal, read: JournalSum) -> None:
        """Journal again what Redis alone has."""
        async for page in self._stored():
            for task_id, body in page.items():
                if not read.tells_of(task_id):
                    await journal.append(task_id, body)
                    read.known.add(task_id)
        scan = self._client.redis.hscan_iter(self._keys.documents)
        with self._client.reach():
            stored = {field.decode(): value async for field, value in scan}
        for field in stored.keys() - read.documents.keys():
            read.documents[field] = stored[field].partition(b"\n")[2]
            await journal.append(DOCUMENT_KEY + field, read.documents[field])
        if not read.weights:
            read.weights = await self._client.call("GET", self._keys.weights, read=body_or_empty)
            if read.weights:
                await journal.append(WEIGHTS_KEY, read.weights)

    async def _fill_tasks(self, turn: Turn, read: JournalSum, found: Mapping[str, Merged]) -> bool:
        """Fill in tasks, with bytes as they were written, which may be a newer version's."""
        for page in paged([*found.items()], TASKS_A_CALL):
            tasks = await self._against_stored(read, page)
            args: list[Arg] = []
            for task_id, body in tasks:
                lane = "gone" if glimpse(body).lane_dropped else "open"
                args += [*store_args(task_id, body), lane]
            turn.tasks += len(page)
            if not await turn.run(_FILL, self._filled_keys(), args):
                return False
        return True

    async def _against_stored(
        self, read: JournalSum, page: Sequence[tuple[str, Merged]]
    ) -> list[tuple[str, bytes]]:
        """Return for each of these tasks the value that stands, with what Redis has of it."""
        stored: dict[str, bytes | None] = {}
        if asked := [task_id for task_id, _ in page if task_id not in read.fresh]:
            bodies = await self._client.call("HMGET", self._keys.tasks, *asked, read=bodies_only)
            stored = dict(zip(asked, bodies, strict=True))
        tasks = []
        for task_id, found in page:
            body = _standing(task_id, found.behind(merged(stored.get(task_id) or b"")))
            read.note_stored(task_id, is_last=body == found.last)
            tasks.append((task_id, body))
        return tasks

    async def _journal_again(self, journal: Journal, read: JournalSum) -> None:
        """Journal what stands over the last value that the journal has."""
        for page in paged(sorted(read.overruling), TASKS_A_CALL):
            bodies = await self._client.call("HMGET", self._keys.tasks, *page, read=bodies_only)
            pairs = zip(page, bodies, strict=True)
            await asyncio.gather(*(journal.append(one, body) for one, body in pairs if body))

    async def _empty(self, turn: Turn, known: Container[str]) -> bool:
        async for page in self._stored():
            old = [(task_id, body) for task_id, body in page.items() if task_id not in known]
            progress = [key for task_id, _ in old for key in self._keys.progress(task_id)]
            args = [arg for task_id, body in old for arg in remove_args(task_id, body)]
            if not await turn.run(_EMPTY, [*self._filled_keys(), *progress], args):
                return False
        return True

    def _stored(self) -> AsyncIterator[dict[str, bytes]]:
        return stored_tasks(self._client, self._keys)

    async def _fill_documents(self, turn: Turn, documents: Mapping[str, bytes]) -> bool:
        keys = [self._keys.rebuilding, self._keys.documents]
        if not await self._client.run(_CLEAR, keys, [turn.token]):
            return False
        for page in paged([*documents.items()], DOCUMENTS_A_CALL):
            args = [arg for document in page for arg in document]
            if not await turn.run(_FILL_DOCUMENTS, keys, args):
                return False
        return True

    def _filled_keys(self) -> list[str]:
        return [*self._keys.index, self._keys.rebuilding]


def _standing(task_id: str, found: Merged) -> bytes:
    try:
        return found.standing(task_id)
    except UnknownFormat:  # it stands as it is
        return found.body
