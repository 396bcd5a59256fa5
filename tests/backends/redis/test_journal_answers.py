"""What is asked of the journal: one reading answers many, and never out of date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from pushlane.backends.ports import JournalPage
from pushlane.backends.redis import journal as journal_answers
from pushlane.backends.redis.journal import KEPT_S, JournalAnswers
from pushlane.core.errors import Unreachable
from tests.backends.redis.memory_journal import MemoryJournal


class SlowJournal(MemoryJournal):
    """Each reading waits, behind its records, until it is let go; it may fail then."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.fails = False

    async def pages(self) -> AsyncGenerator[JournalPage, None]:
        async for page in super().pages():
            yield page
        self.begun.set()
        await self.go_on.wait()
        if self.fails:
            raise Unreachable("the journal is away")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_it_has_what_was_appended_and_not_removed_since() -> None:
    journal = MemoryJournal()
    for key, body in (("a", b"1"), ("b", b"1"), ("b", b""), ("c", b""), ("c", b"2")):
        await journal.append(key, body)

    assert await JournalAnswers(journal).lacking(["a", "b", "c", "d"]) == {"b", "d"}


async def test_an_empty_journal_proves_nothing() -> None:
    journal = MemoryJournal()

    assert await JournalAnswers(journal).lacking(["a"]) == set()

    await journal.append("b", b"")
    assert await JournalAnswers(journal).lacking(["a"]) == set()


async def test_without_a_journal_redis_is_the_truth() -> None:
    assert await JournalAnswers(None).lacking(["a"]) == {"a"}


async def test_an_answer_holds_for_a_minute() -> None:
    clock, journal = Clock(), MemoryJournal()
    await journal.append("a", b"1")
    answers = JournalAnswers(journal, clock)
    await answers.lacking(["b"])
    clock.now_s += KEPT_S - 1
    assert await answers.lacking(["b"]) == {"b"}
    assert journal.readings == 1

    await journal.append("b", b"1")
    clock.now_s += 2
    assert await answers.lacking(["b"]) == set()
    assert journal.readings == 2


async def test_one_reading_answers_all_who_wait_for_it() -> None:
    journal = SlowJournal()
    await journal.append("a", b"1")
    answers = JournalAnswers(journal)
    first = asyncio.create_task(answers.lacking(["first"]))
    await journal.begun.wait()
    others = [asyncio.create_task(answers.lacking([f"other-{n}", "a"])) for n in range(50)]
    await asyncio.sleep(0)
    journal.go_on.set()

    assert await first == {"first"}
    assert [await one for one in others] == [{f"other-{n}"} for n in range(50)]
    assert journal.readings == 2


async def test_what_is_asked_during_a_reading_is_not_answered_by_it() -> None:
    """It may have been appended behind the place that this has passed."""
    journal = SlowJournal()
    await journal.append("a", b"1")
    answers = JournalAnswers(journal)
    first = asyncio.create_task(answers.lacking(["first"]))
    await journal.begun.wait()
    await journal.append("late", b"1")
    late = asyncio.create_task(answers.lacking(["late"]))
    await asyncio.sleep(0)
    journal.go_on.set()

    assert await first == {"first"}
    assert await late == set()


async def test_one_that_fails_answers_nobody_and_leaves_nothing_behind() -> None:
    journal = SlowJournal()
    await journal.append("a", b"1")
    answers = JournalAnswers(journal)
    journal.fails = True
    journal.go_on.set()
    with pytest.raises(Unreachable):
        await answers.lacking(["b"])

    journal.fails = False
    assert await answers.lacking(["c"]) == {"c"}
    assert "b" not in answers._answers
    assert answers._questions == []


async def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_answers, "MOST_KEPT", 10)
    journal = MemoryJournal()
    await journal.append("a", b"1")
    answers = JournalAnswers(journal)
    for first in range(0, 100, 5):
        asked = [f"{number}" for number in range(first, first + 5)]
        assert await answers.lacking(asked) == set(asked)

    assert len(answers._answers) <= 15
