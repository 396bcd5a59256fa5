"""The embedded store itself: who may open it, and what its errors say."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.cells import CellPresence
from pushlane.backends.embedded.broker import EmbeddedBroker
from pushlane.backends.embedded.cells import EmbeddedPresenceCells
from pushlane.backends.embedded.database import Database, Session
from pushlane.backends.embedded.schema import use_log
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.push import Kind
from pushlane.core.task import Finished
from pushlane.model.presence import Process
from pushlane.settings import STORE_FILE, Settings
from pushlane.util.errors import StorageFull

LANE = "task-a"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "store"


async def opened(folder, **options) -> Database:
    database = Database(folder, **options)
    await database.open()
    return database


async def test_its_folder_is_made_for_the_user_alone(folder):
    async with connect(Settings(data_dir=folder)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_nothing_is_left_behind_but_the_store(folder):
    async with connect(Settings(data_dir=folder)) as backend:
        await backend.broker.open_lane(LANE)
        await backend.broker.read(LANE, lambda _: None)

    assert [path.name for path in folder.rglob("*") if path.is_file()] == [STORE_FILE]


async def test_it_is_watched_only_once_somebody_waits_for_changes(folder, monkeypatch):
    watched = []
    monkeypatch.setattr(Database, "on_change", lambda self, listener: watched.append(listener))
    async with connect(Settings(data_dir=folder)) as backend:
        known = await backend.registry.changes(0, 0.0)
        await backend.registry.changes(known.version, 0.0)
        assert not watched

        await backend.registry.changes(0, 1.0)
        assert len(watched) == 1


async def test_a_path_that_is_a_file_is_refused_with_the_path(tmp_path):
    path = tmp_path / "file"
    path.write_text("")

    with pytest.raises(Unreachable, match=f"{path}.*--data-dir"):
        await opened(path)


async def test_a_file_that_is_no_store_is_refused_with_the_path(tmp_path):
    (tmp_path / STORE_FILE).write_bytes(b"no database" * 1000)

    with pytest.raises(Unreachable, match=f"{tmp_path}.*not a pushlane store"):
        await opened(tmp_path)


async def test_a_store_of_a_newer_version_is_refused(folder):
    await (await opened(folder)).close()
    with sqlite3.connect(folder / STORE_FILE) as connection:
        connection.execute("PRAGMA user_version = 99")

    with pytest.raises(Unreachable, match="format 99"):
        await opened(folder)


async def test_a_store_from_before_deaths_had_reasons_counts_them_from_now_on(folder):
    settings = Settings(broker="embedded", data_dir=folder)
    async with connect(settings) as backend:
        await backend.registry.record([Finished("t", Kind.DEAD, [1], "HTTP 404")])
    with sqlite3.connect(folder / STORE_FILE) as connection:
        connection.execute("ALTER TABLE progress DROP COLUMN failed")
        connection.execute("ALTER TABLE progress DROP COLUMN deaths")
        connection.execute("ALTER TABLE progress DROP COLUMN reasons")

    async with connect(settings) as backend:
        [now] = await backend.registry.record([Finished("t", Kind.DEAD, [1, 2], "HTTP 404")])
        [reasons] = await backend.registry.reasons(["t"])

    assert (now.dead, now.failed, reasons.dead) == (2, 1, {"HTTP 404": 1})


async def test_rows_of_processes_whose_time_is_over_go(folder):
    database = await opened(folder)
    clock = [1_000]
    presence = CellPresence(EmbeddedPresenceCells(database, lambda: clock[0]))
    for number in range(3):
        process = Process(id=str(number), kind="dispatcher", pid=1, version="1")
        await presence.announce(process, 1.0)
        clock[0] += 1_000

    kept = await database.read(lambda store: store.execute("SELECT id FROM presence").fetchall())
    await database.close()
    assert kept == [("2",)]


async def test_two_that_make_it_at_once_both_open_it(folder):
    databases = await asyncio.gather(*(opened(folder) for _ in range(4)))

    for database in databases:
        await database.close()


@asynccontextmanager
async def on_a_full_disk(folder):
    """A broker with one lane and two messages on it, whose store cannot grow much more."""
    database = await opened(folder)
    broker = EmbeddedBroker(database, depth=16)
    await broker.open_lane(LANE)
    await broker.publish(LANE, [b"1", b"2"])
    await database.read(lambda c: c.execute("PRAGMA max_page_count = 100").fetchone())
    yield broker
    await broker.close()
    await database.close()


async def test_a_full_disk_says_which_folder(folder):
    async with on_a_full_disk(folder) as broker:
        with pytest.raises(StorageFull, match=str(folder)):
            await broker.publish(LANE, [b"x" * 10_000] * 200)


async def test_what_was_published_before_the_disk_was_full_is_kept(folder):
    async with on_a_full_disk(folder) as broker:
        with pytest.raises(StorageFull):
            await broker.publish(LANE, [b"x" * 10_000] * 200)

        assert await broker.backlog(LANE) == 2


async def test_a_store_that_another_holds_too_long_says_so(folder):
    database = await opened(folder, busy_timeout_s=0.01)
    holder = sqlite3.connect(folder / STORE_FILE, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(Unreachable, match=f"{folder}.*another process has locked it"):
        await database.write(lambda connection: connection.execute("DELETE FROM leases"))

    holder.close()
    await database.close()


async def test_a_job_that_fails_does_not_undo_those_beside_it(folder):
    database = await opened(folder)

    def refuse(connection):
        raise ValueError("refused")

    jobs = [_count_up, refuse, _count_up]
    answers = await asyncio.gather(*map(database.write, jobs), return_exceptions=True)

    assert answers[0] is answers[2] is None
    assert isinstance(answers[1], ValueError)
    assert await database.read(_stamp) == 2
    await database.close()


async def test_a_closed_store_says_so(folder):
    database = await opened(folder)
    await database.close()

    with pytest.raises(Unreachable, match="closed"):
        await database.read(_stamp)


async def test_a_wrong_statement_is_no_reason_to_try_again(folder):
    database = await opened(folder)

    with pytest.raises(PushlaneError, match="report") as caught:
        await database.read(lambda connection: connection.execute("SELECT nonsense"))

    assert not isinstance(caught.value, Unreachable)
    await database.close()


def _count_up(connection) -> None:
    connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'stamp'")


def _stamp(connection) -> int:
    return connection.execute("SELECT value FROM counters WHERE name = 'stamp'").fetchone()[0]


async def test_a_job_of_the_store_itself_goes_on_while_the_event_loop_is_busy(folder):
    database = await opened(folder)
    runs, told = [], []
    has_run = threading.Semaphore(0)

    def job(connection) -> int:
        runs.append(connection.in_transaction)
        has_run.release()
        return len(runs)

    database.repeat(job, 0.001, told.append)
    for _ in range(3):
        assert has_run.acquire(timeout=60)  # blocks the loop
    assert told == []

    database.repeat_no_more()
    await database.read(_stamp)

    assert all(runs)
    assert told == list(range(1, len(runs) + 1))
    await database.close()


def test_a_new_store_is_opened_while_another_process_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(tmp_path / STORE_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tries = 0

    def use_log_while_it_is_made(connection: sqlite3.Connection) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            other.execute("COMMIT")
        use_log(connection)

    monkeypatch.setattr("pushlane.backends.embedded.database.use_log", use_log_while_it_is_made)
    Session(tmp_path, 60.0).close()

    assert tries == 3
    other.close()
