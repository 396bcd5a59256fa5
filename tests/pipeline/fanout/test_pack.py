"""Rows of a partition become bundles of the task's size, whose first seqs are left open."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pushlane.core.push import decode
from pushlane.core.task import Level, Task
from pushlane.pipeline.fanout.writer import packing
from pushlane.producers.request import SubmitRequest
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.wire import bodies_of, numbered


def rows(first: int, last: int) -> pa.RecordBatch:
    return pa.record_batch({"recipient": [f"user-{number}" for number in range(first, last + 1)]})


def frozen(*batches: pa.RecordBatch, bundle: int = 4) -> list[dict[str, Any]]:
    """The rows that a partition of these batches is frozen as."""
    request = SubmitRequest(source=(), level=Level.HIGH, silent=True)
    task = Task(id="t1", level=Level.HIGH, lane="task-t1", bundle=bundle)
    step = packing(request, task, PayloadLimits(), ["recipient"])
    return [row for made in step(batches) for row in made.to_pylist()]


def places(made: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["place"], row["pushes"]) for row in made]


def recipients(made: list[dict[str, Any]]) -> list[list[str]]:
    """Those of each bundle."""
    messages = [numbered("t1", row["place"] + 1, row["packed"]) for row in made]
    return [[decode(body).recipient for body in bodies_of(message)] for message in messages]


def test_a_row_is_a_bundle_of_the_tasks_size_with_its_place_in_the_partition() -> None:
    made = frozen(rows(1, 10))

    assert places(made) == [(0, 4), (4, 4), (8, 2)]
    assert recipients(made) == [
        ["user-1", "user-2", "user-3", "user-4"],
        ["user-5", "user-6", "user-7", "user-8"],
        ["user-9", "user-10"],
    ]
    assert {row["reason"] for row in made} == {None}


@pytest.mark.parametrize("first", [1, 3, 4, 5, 9])
def test_bundles_are_the_same_however_spark_hands_the_rows_over(first: int) -> None:
    assert frozen(rows(1, first), rows(first + 1, 10)) == frozen(rows(1, 10))


def test_a_task_of_single_pushes_has_one_in_each_row() -> None:
    assert places(frozen(rows(1, 3), bundle=1)) == [(0, 1), (1, 1), (2, 1)]


def test_a_row_that_cannot_be_used_takes_no_place() -> None:
    bad = pa.record_batch({"recipient": ["a", "", "b", "c"]})

    told, *made = frozen(bad, rows(1, 2))

    assert (told["packed"], told["pushes"]) == (None, 0)
    assert "recipient" in told["reason"]
    assert places(made) == [(0, 4), (4, 1)]
    assert recipients(made) == [["a", "b", "c", "user-1"], ["user-2"]]


def test_a_bundle_takes_no_more_bytes_than_a_message_may(monkeypatch: pytest.MonkeyPatch) -> None:
    [first, *_] = frozen(rows(1, 4), bundle=1)
    monkeypatch.setattr("pushlane.wire.MOST_BYTES", 3 * len(first["packed"]))

    assert places(frozen(rows(1, 9), bundle=8)) == [(0, 3), (3, 3), (6, 3)]


def test_a_partition_without_rows_has_no_bundle() -> None:
    assert frozen(rows(1, 0)) == []
