"""Pushing from an application's own code: what is accepted, refused, kept and sealed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pushlane.backends.backend import Backend, connect
from pushlane.client.client import Client
from pushlane.core.errors import BadInput, PushlaneError, TaskConflict, Unreachable
from pushlane.core.task import Edit, Level, State, Task, now_ms, seal
from pushlane.dispatcher.leader.janitor import GONE_MS, HalfMade
from pushlane.model.names import submit_lease
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from pushlane.util.errors import BufferFull, OversizedPush, StorageFull
from tests.contract.reading import until as until_answered
from tests.lane_content import lane_of, pushes_of, task_of
from tests.processes import until

PUSH = {"title": "Paid", "body": "Thank you", "data": {"order": 7}}
SMALL = ProducerOptions(max_batch=4, linger_s=0.001, max_block_s=0.0, max_buffer_bytes=64 * 1024)
BODY = "x" * 10_000


@pytest.fixture
def make(settings: Settings, tmp_path: Path) -> Callable[..., Producer]:
    """A producer of this store; `spooled=True` gives it the test's spool."""

    def producer(*, spooled: bool = False, **options) -> Producer:
        options.setdefault("settings", settings)
        options.setdefault("options", SMALL)
        options.setdefault("level", Level.HIGH)
        return Producer("orders", spool=tmp_path / "spool" if spooled else None, **options)

    return producer


class Away:
    """The services, which are not there until told otherwise."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_back = False
        self.tries = 0

    @asynccontextmanager
    async def connect(self, settings: Settings) -> AsyncIterator[Backend]:
        self.tries += 1
        if not self.is_back:
            raise self.error
        async with connect(settings) as backend:
            yield backend


@pytest.fixture
def away(monkeypatch) -> Away:
    away = Away(Unreachable("no answer from the broker"))
    monkeypatch.setattr("pushlane.producers.outbox.sender.connect", away.connect)
    return away


def push_until_full(producer: Producer) -> int:
    """How many it accepted."""
    count = 0
    while True:
        try:
            producer.push("user", body=BODY)
        except BufferFull:
            return count
        count += 1
        assert count < 1_000, "it has no bound"


def test_a_push_arrives_with_all_it_was_given(make, settings) -> None:
    with make() as producer:
        labels = {"attributes": {"region": "eu"}, "trace_id": "t-1"}
        push_id = producer.push("user-1", **PUSH, expires_at_ms=2_000_000_000_000, **labels)

    [push] = pushes_of(settings, producer.task_id)
    assert push.push_id == push_id
    assert (push.recipient, push.title, push.body, push.data) == ("user-1", *PUSH.values())
    assert push.expires_at_ms == 2_000_000_000_000
    assert (push.attributes, push.trace_id) == ({"region": "eu"}, "t-1")


def test_pushes_of_many_threads_are_numbered_without_a_gap(make, settings) -> None:
    with make(spooled=True) as producer:
        threads = [
            threading.Thread(target=lambda: [producer.push("user") for _ in range(100)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [push.seq for push in pushes_of(settings, producer.task_id)] == list(range(1, 401))


async def test_it_serves_an_event_loop(make, settings) -> None:
    async with make() as producer:
        await producer.apush("user-1", title="Paid")
        assert await producer.aflush()

    async with connect(settings) as backend:
        pushes = await lane_of(backend, producer.task_id)
    assert [push.recipient for push in pushes] == ["user-1"]


async def test_a_loop_goes_on_while_a_push_waits_for_room(make, away) -> None:
    producer = make(options=replace(SMALL, max_block_s=20.0)).open()
    for _ in range(7):
        await producer.apush("user", body=BODY)
    waiting = asyncio.create_task(producer.apush("user", body=BODY))
    await asyncio.sleep(0)  # it has begun to wait
    away.is_back = True
    await waiting
    await asyncio.to_thread(producer.close)


def test_a_flush_does_not_wait_for_the_linger_time(make) -> None:
    with make(options=replace(SMALL, linger_s=60.0)) as producer:
        producer.push("user")

        assert producer.flush()
        assert producer.stats().sent == 1


def test_without_a_spool_the_task_is_sealed_at_the_end(make, settings) -> None:
    with make() as producer:
        for _ in range(5):
            producer.push("user")

    assert task_of(settings, producer.task_id).total == 5


def test_with_a_spool_the_next_producer_goes_on_with_the_task(make, settings) -> None:
    with make(spooled=True) as first:
        first.push("user-1")
    with make(spooled=True) as second:
        second.push("user-2")
        second.close(seal=True)

    assert first.task_id == second.task_id
    assert task_of(settings, first.task_id).total == 2
    found = [(push.seq, push.recipient) for push in pushes_of(settings, first.task_id)]
    assert found == [(1, "user-1"), (2, "user-2")]


def test_after_a_seal_the_next_producer_begins_a_new_task(make, settings, tmp_path) -> None:
    first = make(spooled=True).open()
    first.push("user")
    first.close(seal=True)

    with make(spooled=True) as second:
        assert second.task_id != first.task_id
    assert [path.name for path in (tmp_path / "spool").iterdir() if path.is_dir()] == [
        second.task_id
    ]


def test_other_options_begin_a_new_task_and_seal_the_old_one(make, settings) -> None:
    with make(spooled=True) as first:
        first.push("user-1")
    with make(spooled=True, level=Level.LOW) as second:
        second.push("user-2")

    assert task_of(settings, first.task_id).total == 1
    assert task_of(settings, second.task_id).level is Level.LOW


def test_what_is_pushed_while_the_broker_is_away_arrives_when_it_is_back(
    make, away, settings
) -> None:
    with make(spooled=True) as producer:
        for number in range(10):
            producer.push(f"user-{number}")
        until(lambda: producer.stats().spooled == 10 and away.tries > 0)
        assert producer.stats().trouble == "no answer from the broker"

        away.is_back = True

        assert producer.flush()
        assert producer.stats().trouble == ""
    recipients = [push.recipient for push in pushes_of(settings, producer.task_id)]
    assert recipients == [f"user-{number}" for number in range(10)]


def test_a_full_disk_of_the_broker_is_waited_for_too(make, away) -> None:
    away.error = StorageFull("the store is full")
    with make(spooled=True) as producer:
        producer.push("user")
        until(lambda: producer.stats().failed_sends > 1)

        away.is_back = True

        assert producer.flush()


def test_what_was_not_sent_at_the_end_is_sent_by_the_next_producer(make, away, settings) -> None:
    producer = make(spooled=True).open()
    producer.push("user-1")
    producer.close(timeout_s=0)
    away.is_back = True

    with make(spooled=True) as later:
        assert later.flush()

    assert [push.recipient for push in pushes_of(settings, producer.task_id)] == ["user-1"]


def test_a_seal_holds_when_a_later_producer_sends_the_rest(make, away, settings) -> None:
    producer = make(spooled=True).open()
    for _ in range(3):
        producer.push("user")
    producer.close(seal=True, timeout_s=0)
    away.is_back = True

    with make(spooled=True) as later:
        later.push("user")
        assert later.flush()

    assert task_of(settings, producer.task_id).total == 3
    assert later.task_id != producer.task_id


def test_without_a_spool_pushes_that_were_not_sent_are_told_as_lost(make, away) -> None:
    producer = make().open()
    producer.push("user")
    producer.push("user")
    until(lambda: producer.stats().trouble != "")

    with pytest.raises(Unreachable, match=r"2 pushes .* lost: no answer from the broker"):
        producer.close(timeout_s=0)


def test_a_full_buffer_refuses_with_its_limit_and_the_reason(make, away) -> None:
    producer = make().open()

    accepted = push_until_full(producer)

    assert accepted == 7  # of 10 kB each, in 64 kB
    stats = producer.stats()
    assert (stats.buffered, stats.refused) == (7, 1)
    with pytest.raises(BufferFull, match="max_buffer_bytes=65,536"):
        producer.push("user")
    with pytest.raises(Unreachable):
        producer.close(timeout_s=0)


def test_a_full_spool_fills_the_buffer_and_says_so(make, away, settings) -> None:
    options = replace(SMALL, max_batch_bytes=10_000, max_spool_bytes=400_000)
    producer = make(spooled=True, options=options).open()
    accepted = 0

    def is_full() -> bool:
        nonlocal accepted
        accepted += push_until_full(producer)
        return "max_spool_bytes=400,000" in producer.stats().trouble

    until(is_full)
    assert producer.stats().spooled_bytes + 10_500 > 390_000
    assert producer.stats().spooled_bytes <= 400_000

    away.is_back = True
    assert producer.flush()
    producer.close()
    assert len(pushes_of(settings, producer.task_id)) == accepted


def test_a_push_waits_for_room_as_long_as_it_may(make, away) -> None:
    producer = make(options=replace(SMALL, max_block_s=0.05)).open()
    begun = time.monotonic()

    push_until_full(producer)

    assert time.monotonic() - begun >= 0.05
    assert producer.stats().longest_block_s >= 0.05
    with pytest.raises(Unreachable):
        producer.close(timeout_s=0)


def test_a_spool_serves_one_producer_at_a_time(make, tmp_path) -> None:
    with make(spooled=True), pytest.raises(TaskConflict, match=str(tmp_path / "spool")):
        make(spooled=True).open()

    make(spooled=True).open().close()


def test_a_cancelled_task_ends_its_producer(make, settings) -> None:
    producer = make(spooled=True).open()
    producer.push("user")
    assert producer.flush()
    cancel(settings, producer.task_id)

    with pytest.raises(TaskConflict, match=f"{producer.task_id} is cancelled.*open the producer"):
        until(lambda: not producer.push("user"))
    with pytest.raises(TaskConflict):
        producer.close()


def test_after_a_cancel_the_next_producer_begins_a_new_task(make, settings) -> None:
    with make(spooled=True) as first:
        first.push("user")
    cancel(settings, first.task_id)
    ended = make(spooled=True).open()
    with pytest.raises(TaskConflict):
        until(lambda: not ended.push("user"))
    with pytest.raises(TaskConflict):
        ended.close()

    with make(spooled=True) as second:
        second.push("user")
        assert second.flush()

    assert second.task_id != first.task_id


def cancel(settings: Settings, task_id: str) -> None:
    async def work() -> None:
        async with Client(settings) as client:
            assert (await client.cancel(task_id)).state == State.CANCELLED

    asyncio.run(work())


@pytest.mark.parametrize(
    ("push", "error"),
    [
        ({"recipient": " "}, BadInput),
        ({"recipient": 7}, BadInput),
        ({"recipient": "user", "title": 7}, BadInput),
        ({"recipient": "user", "data": {"file": object()}}, BadInput),
        ({"recipient": "user", "data": {7: 7}}, BadInput),
        ({"recipient": "user", "data": "order 7"}, BadInput),
        ({"recipient": "user", "attributes": {"age": 7}}, BadInput),
        ({"recipient": "user", "attributes": {"x": "y" * 257}}, BadInput),
        ({"recipient": "user", "attributes": dict.fromkeys(map(str, range(17)), "")}, BadInput),
        ({"recipient": "user", "trace_id": "a\nb"}, BadInput),
        ({"recipient": "user", "body": "\ud800"}, BadInput),
        ({"recipient": "user", "expires_at_ms": 1_700_000_000}, BadInput),
        ({"recipient": "user", "expires_at_ms": 1_700_000_000_000_000}, BadInput),
        ({"recipient": "user", "expires_at_ms": -1}, BadInput),
        ({"recipient": "user", "expires_at_ms": True}, BadInput),
        ({"recipient": "user", "expires_at_ms": 1.7e12 + 0.5}, BadInput),
        ({"recipient": "user", "body": "x" * 65_536}, OversizedPush),
    ],
)
def test_a_push_that_cannot_travel_is_refused_and_takes_no_seq(make, push, error) -> None:
    with make() as producer:
        with pytest.raises(error) as refused:
            producer.push(**push)
        assert "user" not in str(refused.value)

        assert producer.push("user").endswith("-1")


def test_it_is_used_while_it_is_open(make) -> None:
    producer = make()
    with pytest.raises(PushlaneError, match="not open"):
        producer.push("user")
    with producer:
        producer.push("user")

    with pytest.raises(PushlaneError, match="not open"):
        producer.push("user")


def test_it_does_not_go_through_a_fork(make, monkeypatch) -> None:
    with make() as producer, monkeypatch.context() as patch:
        patch.setattr("pushlane.producers.producer.os.getpid", lambda: -1)
        with pytest.raises(PushlaneError, match="before a fork"):
            producer.push("user")


@pytest.mark.parametrize("spooled", [False, True])
def test_a_child_that_closes_it_ends_nothing_of_its_parent(make, settings, spooled: bool) -> None:
    with make(spooled=spooled) as producer:
        producer.push("user-1")
        if (child := os.fork()) == 0:
            code = 1
            try:
                producer.close(seal=True)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0) == (child, 0)
        producer.push("user-2")
        assert producer.flush()
        task_id = producer.task_id
        assert task_of(settings, task_id).total is None

    assert [push.seq for push in pushes_of(settings, task_id)] == [1, 2]
    if spooled:
        with make(spooled=True) as back:
            assert back.task_id == task_id


_ENDED = """
import os, signal
from pushlane import Producer
producer = Producer("orders", level="high").open()
producer.push("user-1")
producer.flush()
print(producer.task_id, flush=True)
{}
"""


def ended_by(code: str, settings: Settings) -> tuple[int, str]:
    """The exit code of a process that pushes and then does this, and the id of its task."""
    ran = subprocess.run(
        [sys.executable, "-c", _ENDED.format(code)],
        env=os.environ | {"PUSHLANE_DATA_DIR": str(settings.data_dir)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return ran.returncode, ran.stdout.strip()


def test_a_process_that_was_killed_leaves_its_task_to_the_leader(settings: Settings) -> None:
    code, left = ended_by("os._exit(0)", settings)
    killed_code, killed = ended_by("os.kill(os.getpid(), signal.SIGKILL)", settings)

    assert (code, killed_code) == (0, -signal.SIGKILL)
    for task_id in (left, killed):
        task = asyncio.run(seen_by_the_leader(settings, task_id))
        assert (task.total, task.stalled_at_ms) == (1, 0)
        assert len(pushes_of(settings, task_id)) == 1


async def seen_by_the_leader(settings: Settings, task_id: str) -> Task:
    """A task after the leader has looked at it twice, once its producer holds it no more."""
    now = [now_ms()]
    async with connect(settings) as backend:

        async def change(task: Task, edit: Edit) -> None:
            await backend.registry.change(task.id, edit)

        watching = HalfMade(backend, change, 86_400, lambda: now[0], lambda: now[0] / 1_000)

        async def is_left() -> bool:
            return not await backend.lease.is_held(submit_lease(task_id))

        await until_answered(is_left)
        for _ in range(2):
            now[0] += GONE_MS
            watching.on_task(await backend.registry.get(task_id))
            await watching.step()
        return await backend.registry.get(task_id)


async def test_one_that_stood_still_says_that_its_task_is_sealed(
    make, settings, monkeypatch
) -> None:
    monkeypatch.setattr("pushlane.producers.outbox.sender._LATE_MS", 0)
    producer = make().open()
    producer.push("user-1")
    assert await producer.aflush()
    async with connect(settings) as backend:
        await backend.registry.change(producer.task_id, seal(1))
    producer.push("user-2")

    with pytest.raises(TaskConflict, match=r"was closed with 1 pushes.*open the producer again"):
        await producer.aflush()
    with pytest.raises(TaskConflict, match="was closed"):
        producer.close()


def test_a_thread_that_dies_is_told_at_the_next_push(make, monkeypatch, caplog) -> None:
    held = "+49 151 23456789"

    def broken(settings: Settings) -> None:
        raise RuntimeError(held)

    monkeypatch.setattr("pushlane.producers.outbox.sender.connect", broken)
    producer = make().open()

    with pytest.raises(PushlaneError, match=r"died with RuntimeError$"):
        until(lambda: not producer.push("user"))
    assert "in broken" in caplog.text
    assert held not in caplog.text


@pytest.mark.parametrize(
    "bounds", [{"max_batch": 0}, {"linger_s": -1}, {"max_spool_bytes": 1}, {"max_buffer_bytes": 1}]
)
def test_bounds_that_cannot_be_are_refused_by_name(bounds) -> None:
    [name] = bounds

    with pytest.raises(BadInput, match=name):
        ProducerOptions(**bounds)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"quota": 0}, "quota"), ({"level": "hgh"}, "high"), ({"app": ""}, "app")],
)
def test_a_bad_option_of_the_task_is_refused_at_once(settings, options, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        Producer("orders", settings=settings, **options)


def test_its_stats_are_for_prometheus_too(make) -> None:
    with make() as producer:
        producer.push("user")
        producer.flush()
        registry = CollectorRegistry()
        registry.register(producer.collector())

        shown = generate_latest(registry).decode()

    assert 'pushlane_producer_sent_total{producer="orders"} 1.0' in shown
    assert 'pushlane_producer_longest_block_seconds{producer="orders"} 0.0' in shown


def test_of_every_16th_push_it_is_measured_how_long_it_takes_to_be_accepted(make) -> None:
    with make() as producer:
        for _ in range(33):
            producer.push("user")

        assert producer.stats().enqueue.count == 2


def test_the_next_producer_goes_on_with_a_task_that_names_its_sinks(make) -> None:
    with make(spooled=True, sink="fcm,sms") as first:
        first.push("user", title="Paid")
        first.close(timeout_s=0.0)

    with make(spooled=True, sink="fcm,sms") as second:
        assert second.task_id == first.task_id
        assert second.flush()
        assert second.push("user", title="Paid").endswith("-2")


def test_a_corrupt_head_is_set_aside_and_a_new_task_begun(make, tmp_path) -> None:
    with make(spooled=True) as first:
        pass
    head = tmp_path / "spool" / first.task_id / "task.json"
    head.write_bytes(b"{")

    with make(spooled=True) as second:
        assert second.task_id != first.task_id
        [aside] = second.stats().corrupt

    assert Path(aside).name == f"{first.task_id}.corrupt"


async def kept_task(settings: Settings, task_id: str) -> Task:
    async with connect(settings) as backend:
        return await backend.registry.get(task_id)


def test_a_task_whose_producer_was_closed_is_open_and_says_how_much_it_has(make, settings) -> None:
    with make(spooled=True) as producer:
        for _ in range(3):
            producer.push("user", title="Paid")

    task = asyncio.run(kept_task(settings, producer.task_id))
    assert (task.total, task.left_with, task.is_half_made) == (None, 3, False)


def test_a_task_that_goes_on_is_open_no_longer(make, settings) -> None:
    with make(spooled=True):
        pass
    with make(spooled=True) as producer:
        assert producer.flush()
        task_id = producer.task_id
        producer.push("user", title="Paid")
        assert producer.flush()
        task = asyncio.run(kept_task(settings, task_id))
        assert (task.left_with, task.is_half_made) == (None, True)

    assert asyncio.run(kept_task(settings, task_id)).left_with == 1


def test_a_task_whose_producer_left_pushes_in_its_spool_is_not_open(
    make, settings, monkeypatch
) -> None:
    async def refuse(*_: object) -> None:
        raise Unreachable("no answer from the broker")

    producer = make(spooled=True).open()
    producer.push("user", title="Paid")
    assert producer.flush()
    monkeypatch.setattr("pushlane.producers.outbox.sender.Sender._publish", refuse)
    producer.push("user", title="Paid")
    producer.close(timeout_s=0.0)

    task = asyncio.run(kept_task(settings, producer.task_id))
    assert (task.left_with, task.is_half_made) == (None, True)


_EXITS = """
import sys
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer
from pushlane.settings import load

settings = load({"data_dir": sys.argv[1]})
options = ProducerOptions(linger_s=30)
producer = Producer("orders", spool=sys.argv[2] or None, settings=settings, options=options).open()
for number in range(5):
    producer.push(f"user-{number}", title="Paid")
print(producer.task_id)
"""


@pytest.mark.parametrize(("spool", "total", "left_with"), [("spool", None, 5), ("", 5, None)])
def test_a_producer_is_closed_at_the_interpreters_exit(
    settings, tmp_path, spool: str, total: int | None, left_with: int | None
) -> None:
    folder = str(tmp_path / spool) if spool else ""
    words = [sys.executable, "-c", _EXITS, str(settings.data_dir), folder]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)

    assert ran.stderr == ""
    task = asyncio.run(kept_task(settings, ran.stdout.strip()))
    assert (task.total, task.left_with) == (total, left_with)
    assert len(pushes_of(settings, task.id)) == 5
