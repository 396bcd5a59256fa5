"""What a version has stored is read by every later one (see tests/fixtures/*/README.md)."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from pushlane.lanes.backend import connect
from pushlane.lanes.naming import DEAD_LANE, later_lane, own_lane
from pushlane.lanes.ports import ClaimResult
from pushlane.lanes.push import DeadPush, Push, RetryMark, decode, decode_dead, decode_mark
from pushlane.lanes.push import encode as encode_push
from pushlane.lanes.receipt import decode_receipts
from pushlane.lanes.redis import connect_redis
from pushlane.lanes.redis.client import RedisClient
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.search import listed
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import DeliveryMode, Level, OnUnknown, Progress, State, Task, Weights
from pushlane.lanes.task_bytes import decode as decode_task
from pushlane.lanes.task_bytes import encode as encode_task
from pushlane.pipeline.alerts.alert_rule import decode_rule as decode_alert
from pushlane.pipeline.alerts.alert_store import AlertStore
from pushlane.pipeline.rules.history import RunState
from pushlane.pipeline.rules.rule import decode_rule
from pushlane.pipeline.rules.rule_store import RuleStore
from pushlane.producers.outbox.folder import SpoolFolder
from tests.contract.reading import Reading
from tests.unit.lanes.redis.memory_journal import MemoryJournal
from tests.unit.lanes.stored_documents import ALERT, AT, RULE

STORED = Path(__file__).parents[2] / "fixtures" / "42cdeb2"

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
PLAIN_TASK = Task(id="plain", level=Level.LOW, lane="pool-7")
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
)


def stored(name: str) -> bytes:
    return (STORED / f"{name}.bin").read_bytes()


def journal() -> MemoryJournal:
    found = MemoryJournal()
    records = json.loads((STORED / "journal.json").read_text())
    found.records = {key: base64.b64decode(body) for key, body in records}
    return found


async def check_tasks(registry, documents) -> None:
    """What make.py put in every registry."""
    tasks = {task.id: task for task in await listed(registry)}
    assert len(tasks) == 2 + len(State)
    assert {tasks[state].state for state in State} == set(State)
    for task in (PLAIN_TASK, FULL_TASK):
        found = await registry.get(task.id)
        assert msgspec.structs.replace(found, version=0) == task
        assert found.unknown is UNSET
    assert (await registry.get("sale-7")).id == "full"
    assert await registry.weights() == Weights(5, 4, 1)

    page = await RuleStore(documents).record("weekly")
    assert page.rule == RULE
    [run] = page.history.runs
    assert (run.at_ms, run.state, run.rule) == (AT, RunState.RUNNING, RULE)
    assert await AlertStore(documents).rules() == [ALERT]


@pytest.mark.parametrize(("name", "push"), [("push-plain", PLAIN), ("push-full", FULL)])
def test_pushes(name: str, push: Push) -> None:
    assert decode(stored(name)) == push
    assert encode_push(push, stored(name)) == encode_push(push)


def test_dead_pushes_and_marks_of_retries() -> None:
    reason = "gave up after 2 attempts: busy"
    assert decode_dead(stored("dead")) == DeadPush("full", 7, 2, reason, AT, stored("push-full"))
    assert decode_mark(stored("mark")) == RetryMark("full", "heir", [(7, AT), (9, AT + 1)])


@pytest.mark.parametrize(("name", "task"), [("task-plain", PLAIN_TASK), ("task-full", FULL_TASK)])
def test_tasks(name: str, task: Task) -> None:
    assert decode_task(task.id, stored(name)) == task
    assert decode_task(task.id, encode_task(task)) == task


def test_receipts() -> None:
    batch = decode_receipts(stored("receipts"))

    assert (batch.version, batch.seq, batch.outcome) == (1, [7, 8], ["delivered", "retry"])
    assert batch.attributes == [{"plan": "gold"}, None]


def test_documents() -> None:
    assert decode_rule("weekly", stored("rule")) == RULE
    assert decode_alert("dead", stored("alert")) == ALERT


def test_a_spool(tmp_path: Path) -> None:
    shutil.copytree(STORED / "spool", tmp_path / "spool")
    folder = SpoolFolder(tmp_path / "spool")
    try:
        [spool] = folder.spools
        assert (spool.header.task, spool.header.batch) == (FULL_TASK, 1000)
        [left] = spool.next()
        assert (left.first_seq, left.bodies) == (3, [b"three"])
        assert (spool.waiting, spool.published, folder.corrupt) == (1, 2, [])
    finally:
        folder.close()


async def test_an_embedded_store(tmp_path: Path) -> None:
    shutil.copy(STORED / "store.sqlite", tmp_path / "pushlane.db")
    async with connect(Settings(broker="embedded", data_dir=tmp_path)) as backend:
        await check_tasks(backend.registry, backend.documents)
        progress = await backend.registry.progress(["full"])
        assert progress == [Progress("full", delivered=2, dead=1)]
        bodies = {}
        for lane in (own_lane("full"), later_lane(own_lane("full")), DEAD_LANE):
            reading = await Reading.of(backend.broker, lane)
            [bodies[lane]] = [one.body for one in await reading.take(1)]
            await reading.close()
        assert [*bodies.values()] == [stored("push-full"), stored("push-full"), bodies[DEAD_LANE]]
        assert decode_dead(bodies[DEAD_LANE]).body == stored("push-full")
        assert (await backend.lease.acquire("janitor", "two", 60.0)).number > 1


async def test_a_journal_and_claims(redis_url: str) -> None:
    client = RedisClient(redis_url)
    async with connect_redis(redis_url, "for-ever", journal(), 600.0) as redis:
        await check_tasks(redis.registry, redis.documents)
        for push_id, value in json.loads((STORED / "claims.json").read_text()).items():
            await client.call("SET", Keys("for-ever").claim(push_id), value)
        claimed = await redis.ledger.claim([PLAIN, FULL], "two", 60.0)
        assert claimed == [ClaimResult.UNKNOWN, ClaimResult.CONFIRMED]  # its time is long over
    for key in await client.call("KEYS", "{for-ever}:*"):
        await client.call("DEL", key)
    await client.close()
