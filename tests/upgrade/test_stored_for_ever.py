"""What a version has stored is read by every later one (see tests/fixtures/*/README.md)."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from pushlane.backends.backend import connect
from pushlane.backends.formats import min_format
from pushlane.backends.guard_ports import (
    ClaimResult,
    RecipientTurn,
)
from pushlane.backends.ports import listed
from pushlane.backends.redis import connect_redis
from pushlane.backends.redis.client import RedisClient
from pushlane.core.push import DeadPush, Push, decode
from pushlane.core.push import encode as encode_push
from pushlane.core.task import (
    TERMINAL_STATES,
    DeliveryMode,
    Level,
    OnUnknown,
    Progress,
    Span,
    State,
    Task,
    Weights,
    now_ms,
)
from pushlane.model.dead_letters import RetryMark, decode_dead, decode_mark
from pushlane.model.presence import decode_all
from pushlane.model.receipt import decode_receipts
from pushlane.model.recipients import collapse_mark, dedupe_mark
from pushlane.model.task_bytes import decode as decode_task
from pushlane.model.task_bytes import encode as encode_task
from pushlane.pipeline.alerts.alert_rule import decode_rule as decode_alert
from pushlane.pipeline.alerts.alert_store import AlertGroup, AlertStore
from pushlane.pipeline.fanout.fan_out import bundles_of
from pushlane.pipeline.fanout.stage import FanoutStage
from pushlane.pipeline.rules.history import RunState
from pushlane.pipeline.rules.rule import decode_rule
from pushlane.pipeline.rules.rule_store import RuleStore
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import Added
from pushlane.settings import Settings
from pushlane.wire import bodies_of, open_message, packed
from tests.backends.redis.memory_journal import MemoryJournal
from tests.contract.reading import Reading
from tests.upgrade.stored_documents import ALERT, AT, RULE

STORED = Path(__file__).parents[1] / "fixtures" / "0.2.0"

PLAIN = Push("plain", 1, "to-1")
FULL = Push(
    "full",
    7,
    "to-7",
    title="A title",
    body="A body",
    data={"order": 12},
    expires_at_ms=AT + 9,
    submitted_at_ms=AT,
    attempt=2,
    not_before_ms=AT + 1,
    zone="Europe/Paris",
    after_seq=6,
    collapse="cart",
    strikes=1,
    attributes={"plan": "gold"},
    trace_id="trace-1",
    due_at_ms=AT + 5,
)
FOLLOWING = [Push("full", seq, f"to-{seq}", "A title") for seq in (1, 2, 3)]
APART = [msgspec.structs.replace(FULL, seq=seq) for seq in (4, 7, 9)]
PLAIN_TASK = Task(id="plain", level=Level.LOW, lane="pool-7", bundle=1)
FULL_TASK = Task(
    id="full",
    level=Level.HIGH,
    lane="task-full",
    name="Sale",
    key="sale-7",
    fingerprint="f" * 16,
    app="shop",
    quota=3,
    state=State.RUNNING,
    total=9,
    max_attempts=4,
    delivery=DeliveryMode.ONCE,
    on_unknown=OnUnknown.BURY,
    not_before_ms=AT,
    quiet="22:00-08:00",
    zone="Europe/Paris",
    ordered=True,
    dedupe=True,
    is_fed=True,
    has_later=True,
    first_lane="task-full",
    retention_s=60.0,
    reason="a reason",
    created_at_ms=AT,
    expires_at_ms=2 * AT,
    bundle=32,
)


def stored(name: str) -> bytes:
    return (STORED / f"{name}.bin").read_bytes()


def journal() -> MemoryJournal:
    found = MemoryJournal()
    records = json.loads((STORED / "journal.json").read_text())
    found.records = {key: base64.b64decode(body) for key, body in records}
    return found


async def check_backend(ports) -> None:
    """What make.py put in every backend."""
    registry, documents = ports.registry, ports.documents
    tasks = {task.id: task for task in await listed(registry)}
    assert len(tasks) == 2 + len(State)
    assert {tasks[state].state for state in State} == set(State)
    for task in (PLAIN_TASK, FULL_TASK):
        found = await registry.get(task.id)
        assert msgspec.structs.replace(found, version=0) == task
        assert found.unknown is UNSET
    assert (await registry.get("sale-7")).id == "full"
    assert {task.id for task in (await registry.ended(2 * AT, 9)).tasks} == {*TERMINAL_STATES}
    assert await registry.weights() == Weights(5, 4, 1)
    assert await min_format(documents) == 2

    page = await RuleStore(documents).record("weekly")
    assert page.rule == RULE
    [run] = page.history.runs
    assert (run.at_ms, run.state, run.rule) == (AT, RunState.RUNNING, RULE)
    alerts = AlertStore(documents)
    assert await alerts.rules() == [ALERT]
    assert (await alerts.load_state("dead")).state == {
        "app=shop": AlertGroup(AT, told=True, told_at_ms=AT)
    }


async def check_counts(registry) -> None:
    """What is counted of tasks, which no journal has."""
    assert await registry.progress(["full"]) == [Progress("full", delivered=2, dead=1)]
    assert list(await registry.finished("full", [1, 2, 3, 7])) == [True, True, False, True]
    both = [Span("full", 1, 9, moves) for moves in (False, True)]
    assert list(await registry.gone(both)) == [0b0_0100_0011, 0b0_1100_0011]


async def check_guards(ports) -> None:
    """Claims, whose time is long over, marks of recipients, and a lease."""
    claimed = await ports.ledger.claim([PLAIN, FULL], "two", 60.0)
    assert claimed == [ClaimResult.UNKNOWN, ClaimResult.CONFIRMED]
    windows, newer = ports.recipient_windows, msgspec.structs.replace(FULL, seq=8)
    assert list(await windows.first([dedupe_mark(FULL), dedupe_mark(newer)])) == [True, False]
    older = msgspec.structs.replace(FULL, seq=6)
    assert await windows.enter([collapse_mark("shop", older)], "two", 60.0) == [RecipientTurn.OVER]


@pytest.mark.parametrize(("name", "push"), [("push-plain", PLAIN), ("push-full", FULL)])
def test_pushes(name: str, push: Push) -> None:
    assert decode(stored(name)) == push
    assert encode_push(push, stored(name)) == encode_push(push)


@pytest.mark.parametrize(
    ("name", "pushes"), [("bundle-following", FOLLOWING), ("bundle-apart", APART)]
)
def test_bundles(name: str, pushes: list[Push]) -> None:
    bundle = open_message(stored(name))

    assert (bundle.task_id, list(bundle.seqs)) == ("full", [push.seq for push in pushes])
    assert [decode(body) for body in bundle.bodies()] == pushes
    assert [one.message for one in packed(map(encode_push, pushes), 32)] == [stored(name)]


def test_dead_pushes_and_marks_of_retries() -> None:
    reason = "gave up after 2 attempts: busy"
    assert decode_dead(stored("dead")) == DeadPush("full", 7, 2, reason, AT, stored("push-full"))
    assert decode_mark(stored("mark")) == RetryMark("full", "heir", [(7, AT), (9, AT + 1)])


@pytest.mark.parametrize(("name", "task"), [("task-plain", PLAIN_TASK), ("task-full", FULL_TASK)])
def test_tasks(name: str, task: Task) -> None:
    assert decode_task(task.id, stored(name)) == task
    assert decode_task(task.id, encode_task(task)) == task


def test_receipts() -> None:
    check_receipts(stored("receipts"))


def check_receipts(body: bytes) -> None:
    batch = decode_receipts(body)
    assert (batch.version, batch.seq, batch.outcome) == (1, [7, 8], ["delivered", "retry"])
    assert batch.attributes == [{"plan": "gold"}, None]


def test_documents() -> None:
    assert decode_rule("weekly", stored("rule")) == RULE
    assert decode_alert("dead", stored("alert")) == ALERT


def test_what_a_process_says_of_itself() -> None:
    [process] = decode_all([stored("process")])

    assert (process.id, process.version, process.format, process.lanes) == ("one", "0.2.0", 2, 3)
    assert process.sink_names == ("default",)
    assert [one.why for one in process.resting] == ["HTTP 503"]
    assert [one.lane for one in process.slow] == ["task-full"]


def test_a_spool(tmp_path: Path) -> None:
    shutil.copytree(STORED / "spool", tmp_path / "spool")
    folder = SpoolFolder(tmp_path / "spool")
    try:
        [spool] = folder.spools
        assert (spool.header.task, spool.header.batch) == (FULL_TASK, 1000)
        assert (spool.header.collapses, spool.header.added) == (True, Added.UNKNOWN)
        [left] = spool.next()
        assert (left.first_seq, left.bodies) == (3, [b"three"])
        assert (spool.waiting, spool.published, folder.corrupt) == (1, 2, [])
    finally:
        folder.close()


def test_a_frozen_fan_out(tmp_path: Path) -> None:
    stage = FanoutStage(Settings(data_dir=tmp_path), "frozen")
    shutil.copytree(STORED / "fanout", stage.path)
    manifest = stage.manifest()
    assert manifest is not None
    assert (manifest.task.key, manifest.task.bundle, manifest.collapses) == ("frozen", 2, True)
    [part] = manifest.parts

    bundles = list(bundles_of(stage.frozen("frozen"), "frozen", part))

    pushes = [decode(body) for one in bundles for body in bodies_of(one.message)]
    assert [push.recipient for push in pushes] == [f"to-{seq}" for seq in range(1, 6)]
    assert [push.seq for push in pushes] == [1, 2, 3, 4, 5]
    assert {push.title for push in pushes} == {"Hello Rome"}


async def test_an_embedded_store(tmp_path: Path) -> None:
    shutil.copytree(STORED / "store", tmp_path, dirs_exist_ok=True)
    (tmp_path / "store.sqlite").rename(tmp_path / "pushlane.db")
    with closing(sqlite3.connect(tmp_path / "pushlane.db")) as store, store:  # as just written
        for table in ("ledger", "marks"):
            store.execute(f"UPDATE {table} SET forget_at_ms = ?", (now_ms() + 600_000,))
    async with connect(Settings(broker="embedded", data_dir=tmp_path)) as backend:
        await check_backend(backend)
        await check_counts(backend.registry)
        await check_guards(backend)
        bodies = {
            lane: [message.body for message in await messages(backend, lane, most)]
            for lane, most in [("task-full", 2), ("task-full-later", 1), ("task-full-dead", 1)]
        }
        assert bodies["task-full"] == [stored("bundle-following"), stored("push-full")]
        assert bodies["task-full-later"] == [stored("push-full")]
        assert bodies["task-full-dead"] == [stored("dead")]
        assert (await backend.lease.acquire("janitor", "two", 60.0)).number > 1
        log = backend.receipts
        start, end = await log.first(), await log.advance(await log.first())
        found = [
            body
            for partition, ends in enumerate(zip(start, end, strict=True))
            async for page in log.read(partition, *ends)
            for body in page
        ]
    [batch] = found
    check_receipts(batch)


async def messages(backend, lane: str, most: int):
    reading = await Reading.of(backend.broker, lane)
    found = await reading.take(most)
    await reading.close()
    return found


async def test_a_journal(redis_url: str) -> None:
    async with (
        prefix(redis_url) as client,
        connect_redis(redis_url, "fixture", journal(), 600.0) as redis,
    ):
        await check_backend(redis)
        assert not (await client.call("EXISTS", "{fixture}:counts:full"))


async def test_a_redis_that_it_has_filled(redis_url: str) -> None:
    kept = journal()
    async with prefix(redis_url) as client:
        for key, kind, values in json.loads((STORED / "redis.json").read_text()):
            await client.call(*PUT[kind], key, *arguments(kind, values))
        server = await client.call("INFO", "server")
        await client.call("SET", "{fixture}:filled", server["run_id"])
        await client.call("ZADD", "{fixture}:processes", now_ms() + 60_000, "one")

        async with connect_redis(redis_url, "fixture", kept, 600.0) as redis:
            await check_backend(redis)
            await check_counts(redis.registry)
            await check_guards(redis)
            assert [process.id for process in await redis.presence.list()] == ["one"]
            assert list((await redis.registry.changes(1, 0)).forgotten) == ["gone"]
            assert await redis.lease.acquire("janitor", "two", 60.0) is None
            await redis.lease.release("janitor", "one")
            fence = int(await client.call("GET", "{fixture}:fence:janitor"))
            assert (await redis.lease.acquire("janitor", "two", 60.0)).number > fence
        assert kept.readings == 0


PUT = {"string": ["SET"], "hash": ["HSET"], "set": ["SADD"], "zset": ["ZADD"]}


def arguments(kind: str, values: list[str]) -> list[bytes]:
    """What the command takes; of a sorted set scores come first."""
    found = [base64.b64decode(value) for value in values]
    if kind != "zset":
        return found
    return [part for at in range(0, len(found), 2) for part in (found[at + 1], found[at])]


@asynccontextmanager
async def prefix(redis_url: str) -> AsyncIterator[RedisClient]:
    """A client, after which nothing is left of what was kept meanwhile."""
    client = RedisClient(redis_url)
    try:
        yield client
    finally:
        for key in await client.call("KEYS", "{fixture}:*"):
            await client.call("DEL", key)
        await client.close()
