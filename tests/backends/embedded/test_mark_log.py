"""The log of new marks: what a process knows of it, and the way of marks to their table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.mark_log import MarkLog, move, trim
from pushlane.backends.embedded.recipients import EmbeddedRecipientWindows
from pushlane.backends.embedded.schema import prepare, use_log
from pushlane.model.recipients import Mark
from pushlane.settings import STORE_FILE
from tests.contract.reading import until

NOW, LATER = 1_000, 2_000
WINDOW_S = 600.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / STORE_FILE, isolation_level=None)) as connection:
        use_log(connection)
        prepare(connection, tmp_path)
        yield connection


def first(log: MarkLog, store: sqlite3.Connection, key: str, token: str, at_ms: int = NOW) -> bool:
    [is_first] = log.first(store, [Mark(key, token)], at_ms, at_ms + 1_000)
    return is_first


def test_what_was_undone_is_not_known_though_another_writes_its_row(
    store: sqlite3.Connection,
) -> None:
    here, there = MarkLog(), MarkLog()
    first(here, store, "a", "1")
    store.execute("BEGIN")
    assert first(here, store, "b", "1")
    store.execute("ROLLBACK")

    assert first(there, store, "b", "2")

    assert not first(here, store, "b", "1")
    assert not first(here, store, "a", "2")


def test_what_was_undone_is_written_when_it_is_asked_for_again(store: sqlite3.Connection) -> None:
    here, there = MarkLog(), MarkLog()
    store.execute("BEGIN")
    assert first(here, store, "a", "1")
    store.execute("ROLLBACK")

    assert first(here, store, "a", "1")

    assert not first(there, store, "a", "2")


def test_a_trim_that_was_undone_loses_no_mark(store: sqlite3.Connection) -> None:
    log = MarkLog()
    for key in "abc":
        first(log, store, key, "1")
    store.execute("BEGIN")
    trim(store, log.parts(store)[0])
    first(log, store, "c", "1")
    store.execute("ROLLBACK")

    assert [first(log, store, key, "2") for key in "abc"] == [False] * 3


def test_a_row_keeps_its_number_when_the_log_was_trimmed_by_another(
    store: sqlite3.Connection,
) -> None:
    here, there = MarkLog(), MarkLog()
    first(here, store, "a", "1")
    first(here, store, "b", "1")
    last, parts = there.parts(store)
    for part in parts:
        move(store, part, NOW)
    trim(store, last)
    first(there, store, "c", "1")

    assert [first(here, store, key, "2") for key in "abc"] == [False] * 3
    assert [row for (row,) in store.execute("SELECT n FROM mark_log")] == [2, 3]


def test_an_older_mark_replaces_none_that_came_to_the_table_before_it(
    store: sqlite3.Connection,
) -> None:
    slow, fast = MarkLog(), MarkLog()
    first(slow, store, "a", "1")
    _, [old] = slow.parts(store)
    assert first(fast, store, "a", "2", LATER)
    last, [new] = fast.parts(store)
    move(store, new, LATER)
    first(fast, store, "b", "1", LATER)
    trim(store, last + 1)

    move(store, old, NOW)

    assert not first(slow, store, "a", "1", LATER)


def test_what_is_over_does_not_come_to_the_table(store: sqlite3.Connection) -> None:
    log = MarkLog()
    first(log, store, "a", "1")
    _, [part] = log.parts(store)

    move(store, part, LATER)

    assert store.execute("SELECT count(*) FROM marks").fetchone() == (0,)


async def test_marks_go_to_their_table_by_themselves_and_are_known_all_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.backends.embedded.recipients._MOVED_AT_ONCE", 20)
    database = Database(tmp_path)
    await database.open()
    windows = EmbeddedRecipientWindows(database, WINDOW_S)
    marks = [Mark(f"{place % 16:x}{place}", "1") for place in range(30)]
    others = [Mark(key, "2") for key, _ in marks]
    for mark in marks:
        assert await windows.first([mark], WINDOW_S) == [True]

        assert await windows.first([Mark(mark.key, "2")], WINDOW_S) == [False]

    async def is_moved() -> bool:
        assert await windows.first(others, WINDOW_S) == [False] * 30
        return await database.read(_logged_rows) < 20

    await until(is_moved)
    assert await windows.first(marks, WINDOW_S) == [True] * 30
    await database.close()


def _logged_rows(store: sqlite3.Connection) -> int:
    return int(store.execute("SELECT count(*) FROM mark_log").fetchone()[0])
