"""Every outcome leaves a receipt, which is durable before the push's message is acked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.core.endings import Ending
from pushlane.core.errors import Unreachable
from pushlane.core.lane import Job, Lane
from pushlane.core.ports import Taken
from pushlane.core.push import DELIVERED, Kind, Outcome, Push, encode
from pushlane.core.task import Level, Task, Weights, now_ms
from pushlane.dispatcher import receipts as receipts_module
from pushlane.dispatcher.receipts import (
    BEHIND_AFTER_S,
    MOST_A_BODY,
    REASON_LONGEST,
    ReceiptQueue,
    Receipts,
)
from pushlane.dispatcher.stats import Stats
from pushlane.dispatcher.waits import Waits
from pushlane.model import task_changes
from pushlane.model.due import eligible_ms
from pushlane.model.receipt import ReceiptBatch, decode_receipts, masked_recipients
from pushlane.model.recipients import Hasher
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    until,
)

Row = dict[str, Any]


async def batches(backend: Backend) -> list[ReceiptBatch]:
    log = backend.receipts
    start = await log.first()
    end = await log.advance(start)
    return [
        decode_receipts(body)
        for partition in range(len(start))
        async for page in log.read(partition, start[partition], end[partition])
        for body in page
    ]


async def receipts(backend: Backend) -> list[Row]:
    """All receipts in the log, as rows in the order of their seqs."""
    rows = []
    for batch in await batches(backend):
        columns = {
            name: column
            for name in ReceiptBatch.__struct_fields__
            if isinstance(column := getattr(batch, name), list) and name != "tasks" and column
        }
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            rows.append({**row, "task": batch.tasks[row["task"]], "sink": batch.sink})
    return sorted(rows, key=lambda row: (row["seq"], row["attempt"]))


@asynccontextmanager
async def writing(receipts: Receipts) -> AsyncIterator[None]:
    running = asyncio.create_task(receipts.run())
    try:
        yield
    finally:
        running.cancel()


async def test_a_delivered_push_leaves_what_a_report_needs(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=2, name="sale", app="shop", quota=3)
        before = now_ms()

        await drain(backend, MemorySink(), settings)

        first, second = await receipts(backend)
        assert (first["task"].task_id, first["task"].app, first["task"].name) == (
            task.id,
            "shop",
            "sale",
        )
        assert (first["seq"], second["seq"]) == (1, 2)
        assert (first["outcome"], first["attempt"], first["level"]) == ("delivered", 1, "high")
        assert (first["quota"], first["weight"], first["sink"]) == (3, 6, "default")
        assert before <= first["dispatched_at_ms"] <= first["responded_at_ms"] <= now_ms()


async def test_retries_and_deaths_are_told_with_reason_and_attempt(tmp_path: Path) -> None:
    def answer(delivery: Any) -> Outcome:
        retried = delivery.push.attempt == 1
        return Outcome.retry("HTTP 503", after_s=0.0) if retried else Outcome.dead("HTTP 410")

    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=1)

        await drain(backend, MemorySink(answer), settings)

        found = [(row["outcome"], row["reason"], row["attempt"]) for row in await receipts(backend)]
        assert found == [("retry", "HTTP 503", 1), ("dead", "HTTP 410", 2)]


async def test_the_wait_of_a_retry_begins_when_its_delay_has_ended(tmp_path: Path) -> None:
    def answer(delivery: Any) -> Outcome:
        return Outcome.retry("busy", after_s=0.2) if delivery.push.attempt == 1 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=1)

        await drain(backend, MemorySink(answer), settings)

        retry, delivered = await receipts(backend)
        assert delivered["eligible_at_ms"] - retry["responded_at_ms"] >= 200
        assert delivered["eligible_at_ms"] <= delivered["dispatched_at_ms"]


async def test_what_expired_or_was_cancelled_leaves_a_receipt_too(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=1, push_expires_at_ms=1)
        cancelled = await add_task(backend, Level.LOW, pushes=1)
        await backend.registry.change(cancelled.id, task_changes.cancel)

        async with dispatching(backend, MemorySink(), settings), asyncio.timeout(DEADLINE_S):
            while len(found := await receipts(backend)) < 2:
                pass

        outcomes = {(row["outcome"], row["reason"]) for row in found}
        assert outcomes == {("expired", "past its expiry"), ("dropped", "task cancelled")}
        assert {row["dispatched_at_ms"] for row in found} == {0}


async def test_a_duplicate_says_that_it_is_one(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=1, seal=False, dedupe=True)
        await backend.broker.publish(task.lane, [encode(Push(task.id, 2, "to-1"))])
        await backend.registry.change(task.id, task_changes.seal(2))

        await drain(backend, MemorySink(), settings)

        found = sorted((row["outcome"], row["reason"]) for row in await receipts(backend))
        assert found == [("delivered", ""), ("dropped", "duplicate")]


async def test_attributes_and_trace_ids_go_along(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False)
        pushes = [
            Push(task.id, 1, "a", attributes={"region": "eu"}, trace_id="t-1"),
            Push(task.id, 2, "b"),
        ]
        await backend.broker.publish(task.lane, [encode(push) for push in pushes])
        await backend.registry.change(task.id, task_changes.seal(2))

        await drain(backend, MemorySink(), settings)

        rows = await receipts(backend)
        assert [row["attributes"] for row in rows] == [{"region": "eu"}, None]
        assert [row["trace_ids"] for row in rows] == ["t-1", ""]


async def test_receipts_are_told_apart_by_a_key_but_hold_no_recipient(tmp_path: Path) -> None:
    recipient = "+491701234567"

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False)
        pushes = [Push(task.id, seq, recipient) for seq in (1, 2)]
        await backend.broker.publish(task.lane, [encode(push) for push in pushes])
        await backend.registry.change(task.id, task_changes.seal(2))
        sink = MemorySink(lambda delivery: Outcome.dead(f"no such number {recipient}"))

        await drain(backend, sink, settings)

        first, second = await receipts(backend)
        assert first["recipient"] == "+4…67"
        assert first["recipient_hash"] == second["recipient_hash"]
        assert first["reason"] == "no such number ***"
        assert recipient not in str(first)


async def test_without_receipts_the_log_is_never_touched(tmp_path: Path) -> None:
    async with backend_in(tmp_path, receipts="off") as (backend, settings):
        await add_task(backend, pushes=3)

        await drain(backend, MemorySink(), settings)

        assert not (settings.data_dir / "receipts").exists()


async def test_long_reasons_are_cut(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=1)

        await drain(backend, MemorySink(lambda _: Outcome.dead("x" * 5_000)), settings)

        (row,) = await receipts(backend)
        assert row["reason"] == "x" * REASON_LONGEST


class AwayLog(Wrapped):
    """A log that is away until it is told to come back; half of its failures have written."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.is_away = True
        self.tried = asyncio.Event()
        self._turns = 0

    async def append(self, bodies: Sequence[bytes]) -> None:
        if self.is_away:
            self._turns += 1
            if self._turns % 2:
                await self._real.append(bodies)
            self.tried.set()
            raise Unreachable("the log of receipts is away")
        await self._real.append(bodies)


class HangingLog(Wrapped):
    """A log whose appends never come back."""

    async def append(self, bodies: Sequence[bytes]) -> None:
        await asyncio.Event().wait()


class KeylessLog(Wrapped):
    """A log that lets nobody have the key until it is told to."""

    has_key = False

    async def secret(self) -> bytes:
        if not self.has_key:
            raise Unreachable("the key is away")
        return await self._real.secret()


class WatchedAcks(Wrapped):
    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.acked: list[Taken] = []

    async def ack(self, taken: Sequence[Taken]) -> None:
        self.acked += taken
        await self._real.ack(taken)


async def test_nothing_is_acked_or_counted_while_a_required_log_is_away(tmp_path: Path) -> None:
    async with backend_in(tmp_path, receipts="required") as (backend, settings):
        task = await add_task(backend, pushes=5)
        log, broker = AwayLog(backend.receipts), WatchedAcks(backend.broker)
        backend = with_other(backend, receipts=log, broker=broker)
        sink = MemorySink()

        async with dispatching(backend, sink, settings, drain=True):
            await sink.until_received(5)
            for _ in range(3):
                log.tried.clear()
                await log.tried.wait()
            counted = (await backend.registry.progress([task.id]))[0].finished
            acked_before = len(broker.acked)
            log.is_away = False

        assert (counted, acked_before) == (0, 0)
        assert len(broker.acked) == 5


async def test_a_log_that_is_away_stops_no_delivery_and_has_all_once_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=5)
        log, broker = AwayLog(backend.receipts), WatchedAcks(backend.broker)
        away = with_other(backend, receipts=log, broker=broker)
        sink = MemorySink()

        async with dispatching(away, sink, settings) as dispatcher:
            await until(lambda: len(broker.acked) == 5)
            counted = (await backend.registry.progress([task.id]))[0].finished
            [remark] = dispatcher.remarks()
            written = dispatcher.stats.receipts_written
            log.is_away = False
            await until(lambda: not dispatcher.remarks())

        assert (counted, written) == (5, 0)
        assert re.fullmatch(
            r"sink default: receipts: their log has been behind for \d+ s; 5 wait in memory "
            r"\(0\.0 MiB\)",
            remark,
        )
        by_id = {batch.batch_id: batch for batch in await batches(backend)}
        assert sorted(seq for batch in by_id.values() for seq in batch.seq) == [1, 2, 3, 4, 5]
        assert dispatcher.stats.receipts_written == 5
        assert caplog.text.count("the log of receipts is behind") == 1


async def test_a_log_that_never_answered_is_said_to_lack_what_was_left_at_the_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_module, "_DRAIN_S", 0.01)
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=5)
        away = with_other(backend, receipts=HangingLog(backend.receipts))
        sink = MemorySink()

        async with dispatching(away, sink, settings, drain=True) as dispatcher:
            await sink.until_received(5)

        assert (await backend.registry.progress([task.id]))[0].finished == 5
        assert dispatcher.stats.receipts_lost == {"full": 0, "key": 0, "stopped": 5}
        assert "5 outcomes of sink default have no receipt" in caplog.text


async def test_required_receipts_that_wait_at_a_stop_are_not_lost(tmp_path: Path) -> None:
    async with backend_in(tmp_path, receipts="required") as (backend, settings):
        stats, task = Stats(), Task(id="t", level=Level.HIGH, lane="l")
        hanging = HangingLog(backend.receipts)
        written = Receipts(hanging, settings, "app", Weights().by_level, Waits(), stats)
        job = Job(Lane("l", Level.HIGH), cast(Any, None), 0, Push("t", 1, "a"), task=task)

        async with writing(written):
            writes = asyncio.create_task(
                written.write([Ending(job, Kind.DELIVERED, Kind.DELIVERED)])
            )
            await until(lambda: written.queue.waiting)
            await written.drain()
            writes.cancel()

        assert not any(stats.receipts_lost.values())
        assert written.remark() == ""


async def test_without_the_key_of_hashes_no_receipt_is_made_until_it_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=5)
        log = KeylessLog(backend.receipts)
        keyless = with_other(backend, receipts=log)
        sink = MemorySink()

        async with dispatching(keyless, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.receipts_lost["key"] == 5)
            said = dispatcher.remarks()
            log.has_key = True
            await until(lambda: not dispatcher.remarks())
            await add_task(backend, pushes=2)
            await until(lambda: dispatcher.stats.receipts_written == 2)

        assert said == [
            "sink default: receipts: none are made, as the key of their hashes cannot be read"
        ]
        assert len(await receipts(backend)) == 2
        assert [record.levelname for record in caplog.records if "key of the hashes" in record.msg]


async def test_what_waits_is_bounded_and_the_oldest_goes_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        log, stats = AwayLog(backend.receipts), Stats()
        queue = ReceiptQueue(log, most_bytes=30, patience_s=BEHIND_AFTER_S, stats=stats)
        running = asyncio.create_task(queue.run())
        queue.fall_behind()
        for number in range(10):
            await queue.put([b"%010d" % number], receipts=1)
            await log.tried.wait()  # the first is in hand of the log

        waiting, size = queue.waiting, queue.bytes
        log.is_away = False
        await queue.drain(DEADLINE_S)
        running.cancel()

        start = await backend.receipts.first()
        end = await backend.receipts.advance(start)
        found = {
            int(body)
            for part in range(len(start))
            async for page in backend.receipts.read(part, start[part], end[part])
            for body in page
        }
        assert (waiting, size) == (3, 30)
        assert found == {0, 8, 9}
        assert stats.receipts_lost["full"] == 7
        assert caplog.text.count("receipts_buffer_bytes") == 1


async def test_a_batch_that_is_appended_again_keeps_its_id(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=5)
        log = AwayLog(backend.receipts)
        away = with_other(backend, receipts=log)
        sink = MemorySink()

        async with dispatching(away, sink, settings, drain=True):
            for _ in range(3):
                log.tried.clear()
                await log.tried.wait()
            log.is_away = False

        found = await batches(backend)
        by_id = {batch.batch_id: batch for batch in found}
        assert len(found) > len(by_id)
        assert sorted(seq for batch in by_id.values() for seq in batch.seq) == [1, 2, 3, 4, 5]


async def test_many_outcomes_go_in_few_bodies_of_a_bounded_size(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=3_000)

        await drain(backend, MemorySink(batch_size=500), settings)

        sizes = [len(batch) for batch in await batches(backend)]
        assert sum(sizes) == 3_000
        assert max(sizes) <= MOST_A_BODY
        assert len(sizes) < 300


async def test_a_push_of_which_no_receipt_can_be_made_keeps_none_from_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        stats = Stats()
        weights = Weights().by_level
        written = Receipts(backend.receipts, settings, "app", weights, Waits(), stats)
        task = Task(id="t", level=Level.HIGH, lane="l")
        pushes = [Push("t", seq, "anna@example.org") for seq in range(1, 9)]
        pushes[4] = replace(pushes[4], trace_id="half a character \ud800")
        lane, message = Lane("l", Level.HIGH), cast(Any, None)
        jobs = [Job(lane, message, 0, push, task=task) for push in pushes]

        async with writing(written):
            await written.write([Ending(job, Kind.DELIVERED, Kind.DELIVERED) for job in jobs])

        assert [row["seq"] for row in await receipts(backend)] == [1, 2, 3, 4, 6, 7, 8]
        assert (stats.receipts_written, stats.receipts_left_out) == (7, 1)
        assert "push t-5 has no receipt" in caplog.text
        assert "anna" not in caplog.text


async def test_numbers_in_a_receipt_are_within_what_reports_can_hold(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False)
        times = {"submitted_at_ms": 2**64 - 1, "due_at_ms": -(2**63)}
        bodies = [encode(Push(task.id, 1, "a", attempt=2**63)), encode(Push(task.id, 2, "b"))]
        bodies.append(encode(Push(task.id, 3, "c", attempt=-1, **times)))
        await backend.broker.publish(task.lane, bodies)
        await backend.registry.change(task.id, task_changes.seal(3))

        await drain(backend, MemorySink(), settings)

        rows = await receipts(backend)
        assert sorted((row["seq"], row["attempt"]) for row in rows) == [
            (1, 2**31 - 1),
            (2, 1),
            (3, 0),
        ]
        [last] = [row for row in rows if row["seq"] == 3]
        assert (last["submitted_at_ms"], last["eligible_at_ms"]) == (253_402_300_799_999, 0)


@pytest.mark.parametrize(
    ("recipient", "shown"),
    [
        ("", "…"),
        ("a", "…"),
        ("short", "…"),
        ("anna@x", "a…x"),
        ("anna@example.org", "an…rg"),
    ],
)
def test_at_most_a_third_of_a_recipient_is_shown(recipient: str, shown: str) -> None:
    assert masked_recipients([recipient]) == [shown]


def test_another_key_gives_other_hashes() -> None:
    recipients = ["anna@example.org", "bob@example.org"]

    mine, others = Hasher(b"mine").hashes(recipients), Hasher(b"others").hashes(recipients)

    assert len({*mine, *others}) == 4
    assert Hasher(b"mine").hashes(recipients) == mine
    assert all(-(2**63) <= number < 2**63 for number in mine)


def test_a_push_could_first_be_sent_after_its_quiet_hours() -> None:
    night = 3 * 3_600_000  # 03:00 UTC
    task = Task(id="t", level=Level.HIGH, lane="l", quiet="22:00-08:00")

    assert eligible_ms(task, Push("t", 1, "a", submitted_at_ms=night)) == 8 * 3_600_000
    assert eligible_ms(task, Push("t", 1, "a", submitted_at_ms=night, zone="Asia/Tokyo")) == night
