"""Where there is no store of reports, the log itself gives the answers that a store would give."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from pushlane.backends.memory import MemoryBackend
from pushlane.backends.ports import ReceiptLog
from pushlane.core.errors import BadInput
from pushlane.model.read_bounds import ReadBounds
from pushlane.model.receipt import ReceiptBatch, TaskLabel, encode_receipts
from pushlane.pipeline.reports import from_log, query_runner
from pushlane.pipeline.reports.answers import AnswerOptions
from pushlane.pipeline.reports.query import Period
from pushlane.pipeline.store import open_store
from pushlane.util.errors import UnknownTask
from tests.receipt_bodies import NOON_MS, body
from tests.receipt_stores import make_store
from tests.report_queries import query

_COLUMNS = ReceiptBatch.__struct_fields__[5:18]
_IN_BODY = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("reports"), receipts=2_000, batches=3)


@asynccontextmanager
async def logged(*bodies: bytes) -> AsyncIterator[ReceiptLog]:
    async with MemoryBackend().connect() as backend:
        await backend.receipts.append(list(bodies))
        yield backend.receipts


def bodies_of(root: Path) -> Iterator[bytes]:
    """The receipts and events of a store, as they were in the log: every third body twice."""
    store = open_store(root)
    pushes = {}
    rows: list[dict[str, Any]] = pq.ParquetDataset(store.files("detail")).read().to_pylist()
    for row in rows:
        pushes[row["task_id"], row["seq"]] = row
    nothing = {"outcome": "", "reason": "", "attempt": 0, "recipient_hash": 0, "sink": ""}
    nothing |= dict.fromkeys(("submitted_at_ms", "eligible_at_ms", "dispatched_at_ms"), 0)
    for event in pq.ParquetDataset(store.files("events")).read().to_pylist():
        push = pushes[event["task_id"], event["seq"]]
        said = {"outcome": event["outcome"], "responded_at_ms": event["at_ms"], "waits": None}
        rows.append({**push, **nothing, **said})
    by_sink: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_sink.setdefault(row["sink"], []).append(row)
    for sink, found in by_sink.items():
        for number, first in enumerate(range(0, len(found), _IN_BODY)):
            one = encode_receipts(batch_of(sink, found[first : first + _IN_BODY]))
            yield from [one] * (2 if number % 3 == 0 else 1)


def batch_of(sink: str, rows: list[dict[str, Any]]) -> ReceiptBatch:
    labels = [TaskLabel(row["task_id"], row["app"], row["task_name"]) for row in rows]
    columns = {name: [row[name] for row in rows] for name in _COLUMNS}
    attributes = [dict(row["attributes"]) for row in rows]
    places = list(range(len(rows)))
    told = [dict(row["waits"] or ()) for row in rows]
    waits = {cause: [one.get(cause, 0) for one in told] for one in told for cause in one}
    more = {"attributes": attributes, "waits": waits or None}
    return ReceiptBatch(1, "b", sink, labels, places, **columns, **more)


@pytest.mark.parametrize(
    ("by", "where"),
    [
        ("", ()),
        ("level,outcome", ()),
        ("task,hour,reason", ()),
        ("minute,level", ("outcome=delivered",)),
        ("attribute:version,level", ()),
        ("app", ("outcome!=retry", "task=spring|news")),
        ("sink", ("attribute:version=2.0",)),
        ("task", ("app!=shop",)),
    ],
)
async def test_counts_are_those_of_the_store(store: Path, by: str, where: tuple[str, ...]) -> None:
    asked, options = query(by, *where), AnswerOptions(1_000, with_latency="minute" not in by)

    async with logged(*bodies_of(store)) as log:
        found = await from_log.counts_of(log, asked, options)

    stored = query_runner.counts_of(store, asked, options)
    assert found.table.headings == stored.table.headings
    assert found.table.rows == stored.table.rows


async def test_a_report_is_that_of_the_store_without_its_pictures(store: Path) -> None:
    asked = query("task,level", "outcome!=dropped")

    async with logged(*bodies_of(store)) as log:
        found, table = await from_log.report_of(log, asked, AnswerOptions(40), 1_500)

    stored, stored_table = query_runner.report_of(store, asked, AnswerOptions(40), 1_500)
    assert (found.title, found.total, found.funnel) == (stored.title, stored.total, stored.funnel)
    assert found.deaths == stored.deaths
    assert found.waits == stored.waits
    assert {part.cause for _, part in found.waits} == {"waited", "delay", "share", "slot"}
    assert sorted(found.latency, key=str) == sorted(stored.latency, key=str)
    assert abs(found.recipients - stored.recipients) <= 0.04 * found.recipients
    assert table.rows == stored_table.rows


async def test_rows_are_the_last_that_fit(store: Path) -> None:
    asked = query("", "outcome=dead,task=spring")

    async with logged(*bodies_of(store)) as log:
        found = await from_log.rows_of(log, asked, 7)

    stored = query_runner.rows_of(store, asked, 7)
    assert [(row["at_ms"], row["seq"]) for row in found.rows] == [
        (row["at_ms"], row["seq"]) for row in stored.rows
    ]


async def test_a_period_leaves_out_what_was_before_and_after() -> None:
    minute = 60_000
    bodies = [body("a", [n], at_ms=NOON_MS + n * minute) for n in range(1, 6)]
    period = Period(NOON_MS + 2 * minute, NOON_MS + 4 * minute)

    async with logged(*bodies) as log:
        found = await from_log.rows_of(log, query(period=period), 10)

    assert [row["seq"] for row in found.rows] == [3, 2]


async def test_a_task_without_receipts_is_unknown_with_the_nearest() -> None:
    async with logged(body("spring", [1])) as log:
        with pytest.raises(UnknownTask, match=r"no receipts of a task 'sprng'.*did you mean"):
            await from_log.counts_of(log, query("", "task=sprng"), AnswerOptions(1))


async def test_very_many_receipts_are_left_to_the_pipeline() -> None:
    most = ReadBounds(most_receipts=3)

    async with logged(body("a", range(1, 5)), body("b", [1])) as log:
        with pytest.raises(BadInput, match=r"more than 3 receipts: `pushlane pipeline run`"):
            await from_log.counts_of(log, query("task"), AnswerOptions(1), most)
        few = await from_log.counts_of(log, query("task", "task=b"), AnswerOptions(1), most)

    assert few.counts.rows[0].n == 1


async def test_a_read_that_gives_way_sleeps_as_long_as_it_works_in_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock goes on by 1/128 s at each look, so each body takes that, and three a step."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    looks = count()
    monkeypatch.setattr(from_log, "time", SimpleNamespace(monotonic=lambda: next(looks) / 128))
    monkeypatch.setattr(from_log, "asyncio", SimpleNamespace(sleep=sleep))
    bodies = [body("t", [seq]) for seq in range(1, 61)]
    bounds = ReadBounds(gives_way=True)

    async with logged(*bodies) as log:
        await from_log.counts_of(log, query("outcome"), AnswerOptions(1), bounds)

    assert slept == [3 / 128] * 40  # it reads them twice
