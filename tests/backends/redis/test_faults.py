"""What Redis may answer when it is ill: always one of our own errors, in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from pushlane.backends.cells import CellDocuments, CellLease
from pushlane.backends.ports import ALL
from pushlane.backends.redis.cells import RedisDocumentCells, RedisLeaseCells
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.ledger import RedisLedger
from pushlane.backends.redis.recipients import (
    RedisDeadAddresses,
    RedisRecipientWindows,
    RedisSuppressions,
)
from pushlane.backends.redis.registry import ChangeSignal, RedisRegistry
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.push import Kind, Push
from pushlane.core.task import Finished, Level, Task, Weights
from pushlane.model import task_changes
from pushlane.model.recipients import EVERYWHERE, AddressDeath, Cap, CapDay, DeadAddressQuery, Mark

DEADLINE_S = 30
KEYS = Keys("test")
PUSH = Push("t", 1, "somebody")
TASK = Task(id="t", level=Level.LOW, lane="pool-0")

Call = Callable[[RedisClient], Awaitable[Any]]


def lease(client: RedisClient) -> CellLease:
    return CellLease(RedisLeaseCells(client, KEYS))


def documents(client: RedisClient) -> CellDocuments:
    return CellDocuments(RedisDocumentCells(client, KEYS, None))


CALLS: dict[str, Call] = {
    "ping": lambda client: client.ping(),
    "lease acquire": lambda client: lease(client).acquire("a", "b", 1),
    "lease is_held": lambda client: lease(client).is_held("a"),
    "ledger claim": lambda client: RedisLedger(client, KEYS, 60).claim([PUSH], "me", 1),
    "windows first": lambda client: RedisRecipientWindows(client, KEYS, 60).first([Mark("k", "1")]),
    "windows enter": lambda client: RedisRecipientWindows(client, KEYS, 60).enter(
        [Mark("k", "1")], "me", 1
    ),
    "windows count": lambda client: RedisRecipientWindows(client, KEYS, 60).count(
        CapDay(20_600, Level.LOW, Cap(1, 1)), {"t-1": 7}
    ),
    "suppressions add": lambda client: RedisSuppressions(client, KEYS).add(EVERYWHERE, [7]),
    "suppressions counts": lambda client: RedisSuppressions(client, KEYS).counts(),
    "suppressions find": lambda client: RedisSuppressions(client, KEYS).find({EVERYWHERE: [7]}),
    "dead record": lambda client: RedisDeadAddresses(client, KEYS).record(
        "fcm", [AddressDeath(7, 1, "gone")], 1
    ),
    "dead register": lambda client: RedisDeadAddresses(client, KEYS).register("fcm", [7], 1),
    "dead page": lambda client: RedisDeadAddresses(client, KEYS).page(DeadAddressQuery()),
    "registry get": lambda client: RedisRegistry(client, KEYS, None).get("t"),
    "registry page": lambda client: RedisRegistry(client, KEYS, None).page(ALL),
    "registry some": lambda client: RedisRegistry(client, KEYS, None).some(["t"]),
    "registry ended": lambda client: RedisRegistry(client, KEYS, None).ended(1, 1),
    "registry forget": lambda client: RedisRegistry(client, KEYS, None).forget("t"),
    "registry add": lambda client: RedisRegistry(client, KEYS, None).add(TASK),
    "registry change": lambda client: RedisRegistry(client, KEYS, None).change(
        "t", task_changes.start
    ),
    "registry weights": lambda client: RedisRegistry(client, KEYS, None).weights(),
    "registry set_weights": lambda client: RedisRegistry(client, KEYS, None).set_weights(Weights()),
    "registry changes": lambda client: RedisRegistry(client, KEYS, None).changes(1, 0.1),
    "registry counted": lambda client: RedisRegistry(client, KEYS, None).counted_since_ms(),
    "registry progress": lambda client: RedisRegistry(client, KEYS, None).progress(["t"]),
    "registry record": lambda client: RedisRegistry(client, KEYS, None).record(
        [Finished("t", Kind.DEAD, [1])]
    ),
    "registry finished": lambda client: RedisRegistry(client, KEYS, None).finished("t", [1, 2]),
    "documents get": lambda client: documents(client).get("kind", "name"),
    "documents put": lambda client: documents(client).put("kind", "name", b"body", None),
    "documents list": lambda client: documents(client).list("kind"),
    "change signal": lambda client: ChangeSignal(client, "channel").wait(0.1),
}

# Every command gets the same reply; "" is a connection that is cut instead.
REFUSALS = {
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "read-only": b"-READONLY You can't write against a read only replica.\r\n",
    "moved": b"-MOVED 3999 127.0.0.1:6381\r\n",
    "cluster down": b"-CLUSTERDOWN The cluster is down\r\n",
    "out of memory": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "wrong type": b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    "cut": b"",
    "cut in the middle": b"*2\r\n$10\r\nabc",
    "no Redis": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "broken number": b":many\r\n",
}
ODDITIES = {
    "a list of lists": b"*2\r\n*1\r\n:7\r\n*0\r\n",
    "a short list": b"*1\r\n$5\r\nhello\r\n",
    "a text": b"$5\r\nhello\r\n",
}


class Answering:
    """A server that says the same to everything."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.url = ""
        self.subscribed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                words = [await self._word(reader) for _ in range(int(line[1:]))]
                if words[0] == b"SUBSCRIBE":
                    self.subscribed.set()
                writer.write(b"+OK\r\n" if words[0] == b"CLIENT" else self.reply)
                if not self.reply.endswith(b"\n") and words[0] != b"CLIENT":
                    break
        except (OSError, EOFError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    async def _word(self, reader: asyncio.StreamReader) -> bytes:
        length = int((await reader.readline())[1:])
        return (await reader.readexactly(length + 2))[:-2]


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[Answering]:
    server = Answering(reply)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"redis://me:hush-hush@127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
    async with listener:
        yield server


def play(reply: bytes, scenario: Callable[[RedisClient, Answering], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), answering(reply) as server:
            client = RedisClient(server.url.replace("me:hush-hush@", ""))
            await scenario(client, server)
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("reply", REFUSALS.values(), ids=REFUSALS)
def test_a_redis_that_is_ill_is_unreachable_whatever_is_asked(reply: bytes) -> None:
    async def scenario(client: RedisClient, _: Answering) -> None:
        async def ask(call: Call) -> None:
            with pytest.raises(Unreachable, match="Redis at redis://127"):
                await call(client)

        await asyncio.gather(*map(ask, CALLS.values()))

    play(reply, scenario)


@pytest.mark.parametrize("reply", ODDITIES.values(), ids=ODDITIES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_answer_of_the_wrong_type_never_gets_further_than_the_adapter(
    call: Call, reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, or it is one that may be given; a lock or a rebuild is not waited for."""
    monkeypatch.setattr("pushlane.backends.redis.rebuild.PATIENCE_S", 0.1)
    monkeypatch.setattr("pushlane.backends.redis.writes.PATIENCE_S", 0.1)

    async def scenario(client: RedisClient, _: Answering) -> None:
        try:
            await call(client)
        except PushlaneError:
            return

    play(reply, scenario)


def test_a_cancellation_that_redis_py_swallows_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task that goes on until it is cancelled, as who keeps a lease, goes on for ever."""

    async def scenario(client: RedisClient, _: Answering) -> None:
        sent = asyncio.Event()

        async def swallows(*_: object) -> bytes:
            sent.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return b"PONG"

        monkeypatch.setattr(client.redis, "execute_command", swallows)
        calling = asyncio.create_task(client.call("PING"))
        await sent.wait()
        calling.cancel()
        await asyncio.wait([calling])

        assert calling.cancelled()

    play(b"", scenario)


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane.backends.redis.client._ANY_ANSWER_S", 0.0)

    async def scenario(client: RedisClient, _: Answering) -> None:
        with pytest.raises(Unreachable, match=r"does not answer \(TimeoutError\); start it"):
            await client.ping()

    play(b"", scenario)


def test_a_cluster_that_was_taken_for_one_server_names_the_url_of_clusters() -> None:
    async def scenario(client: RedisClient, _: Answering) -> None:
        with pytest.raises(Unreachable, match=r"redis\+cluster://HOST"):
            await client.ping()

    play(REFUSALS["moved"], scenario)


def test_a_first_subscription_that_failed_is_made_anew() -> None:
    async def scenario(client: RedisClient, server: Answering) -> None:
        signal = ChangeSignal(client, "channel")
        with pytest.raises(Unreachable):
            await signal.wait(0.1)
        server.subscribed.clear()
        server.reply = b"*3\r\n$9\r\nsubscribe\r\n$7\r\nchannel\r\n:1\r\n"

        await signal.wait(0.1)

        assert server.subscribed.is_set()
        await signal.close()

    play(REFUSALS["loading"], scenario)
