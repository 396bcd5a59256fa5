"""What became of single pushes: each attempt, end and event once, in the order of their times."""

from __future__ import annotations

import pytest

from pushlane.backends.memory import MemoryBackend
from pushlane.diagnosis import story
from pushlane.diagnosis.story import Story, Wanted, story_of
from tests.receipt_bodies import NOON_MS, body


async def told(wanted: Wanted, *bodies: bytes) -> Story:
    async with MemoryBackend().connect() as backend:
        await backend.receipts.append(list(bodies))
        return await story_of(backend.receipts, wanted)


async def test_a_push_has_its_attempts_its_end_and_its_events() -> None:
    found = await told(
        Wanted(task_id="a", seq=2),
        body("a", [2], "clicked", at_ms=NOON_MS + 900),
        body("a", [1, 2], at_ms=NOON_MS + 100, attempt=2),
        body("a", [2], "retry", at_ms=NOON_MS, attempt=1, reason="HTTP 503"),
        body("a", [2], at_ms=NOON_MS + 50, attempt=3),
        body("b", [2], "dead"),
    )

    assert [(row.outcome, row.attempt) for row in found.rows] == [
        ("retry", 1),
        ("delivered", 3),
        ("clicked", 1),
    ]
    assert {row.push_id for row in found.rows} == {"a-2"}


async def test_a_recipient_is_found_in_all_tasks_or_in_one() -> None:
    bodies = [body("a", [1, 2]), body("b", [2, 3], "dead")]

    everywhere = await told(Wanted(recipient_hash=2 * 7_919), *bodies)
    there = await told(Wanted(task_id="a", recipient_hash=2 * 7_919), *bodies)

    assert sorted(row.push_id for row in everywhere.rows) == ["a-2", "b-2"]
    assert [row.push_id for row in there.rows] == ["a-2"]


async def test_a_body_that_cannot_be_read_is_counted() -> None:
    found = await told(Wanted(task_id="a", seq=1), b"no receipts", body("a", [1]))

    assert (found.unread, len(found.rows)) == (1, 1)


async def test_there_is_a_bound_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "MOST_ROWS", 2)
    same = {"at_ms": NOON_MS, "attempt": 1}

    found = await told(Wanted(task_id="a", seq=1), *(body("a", [1], w, **same) for w in OUTCOMES))

    assert (len(found.rows), found.is_cut) == (2, True)


OUTCOMES = ("retry", "delivered", "displayed")
