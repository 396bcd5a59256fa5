"""Looks at an embedded store for `doctor`. It is opened to be read alone, and never made."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pushlane.backends.backend import missing_store
from pushlane.backends.embedded.cells import live_processes
from pushlane.backends.embedded.database import StoreModes, modes_of, openings, translated
from pushlane.backends.embedded.schema import OLDEST_SQLITE
from pushlane.backends.operations import MOST_UNREAD, NO_STORE, Bounds, Inspection, Live
from pushlane.core.errors import UnknownFormat, UserError
from pushlane.core.task import now_ms
from pushlane.model.limits import KIND as LIMIT_KIND
from pushlane.model.limits import limit_faults
from pushlane.model.presence import Process, decode_all, newer_than_ours
from pushlane.model.task_bytes import faults
from pushlane.settings import STORE_FILE, Settings
from pushlane.util.checks import Check, Fact, Finding, Remark, examined, fact_of, outside

AREA = "store"
CHECK_S = 5.0
ANSWER_S = 10.0
LARGE_WAL = 256 * 1024**2
_STEPS = 20_000  # of SQLite's virtual machine between two looks at the clock
_MIB = 1024**2

T = TypeVar("T")


@dataclass(frozen=True)
class StoreFacts:
    """What was seen of the store. `integrity` is `ok`, a problem, or empty: not through in time."""

    settings: Settings
    integrity: Fact[str]
    modes: Fact[StoreModes]
    size: int
    wal_size: int

    @property
    def folder(self) -> Path:
        return self.settings.data_dir


async def inspect(settings: Settings, bounds: Bounds) -> Inspection:
    """See `backends.operations.Examiner`."""
    folder = settings.data_dir
    path = folder / STORE_FILE
    if settings.is_store_missing:
        missing: Fact[Any] = Fact(why_not=f"there is no store in {folder} yet")
        nobody: Fact[list[Process]] = Fact([])
        facts = StoreFacts(settings, missing, missing, 0, 0)
        return Inspection(examined(CHECKS, facts), Live(nobody, nobody, Fact(1)))
    integrity, processes, lowest, newer, unread = await asyncio.gather(
        _read(path, _integrity),
        _read(path, _processes),
        _read(path, _min_format),
        _read(path, _newer),
        _read(path, _unread),
    )
    later = processes
    if processes.get_or([]):
        await asyncio.sleep(bounds.look_again_s)
        later = await _read(path, _processes)
    wal_size = _size(path.with_name(f"{path.name}-wal"))
    facts = StoreFacts(settings, integrity, _modes(path), _size(path), wal_size)
    said = {
        "store": {"bytes": facts.size, "wal_bytes": facts.wal_size, "check": integrity.get_or("")}
    }
    return Inspection(examined(CHECKS, facts), Live(processes, later, lowest, newer, unread), said)


async def mend(settings: Settings, finding: Finding) -> str:
    """See `backends.operations.Examiner`: of a store there is nothing to mend."""
    raise UserError(f"{finding.check} cannot be fixed by `pushlane doctor`")


async def _read(path: Path, job: Callable[[sqlite3.Connection], T]) -> Fact[T]:
    def work() -> T:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with (
            translated(path.parent),
            closing(sqlite3.connect(uri, uri=True, timeout=2)) as connection,
        ):
            return job(connection)

    return await fact_of(asyncio.to_thread(work), ANSWER_S)


def _integrity(connection: sqlite3.Connection) -> str:
    """Let SQLite check the pages for some seconds; return the first problem."""
    until = time.monotonic() + CHECK_S
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        if time.monotonic() > until:
            return ""
        raise
    except sqlite3.DatabaseError as error:
        return type(error).__name__


def _processes(connection: sqlite3.Connection) -> list[Process]:
    return decode_all(live_processes(connection, now_ms()))


def _newer(connection: sqlite3.Connection) -> Sequence[str]:
    return newer_than_ours(live_processes(connection, now_ms()))


def _unread(connection: sqlite3.Connection) -> Sequence[UnknownFormat]:
    tasks = connection.execute("SELECT id, body FROM tasks")
    limits = connection.execute("SELECT name, body FROM shelf WHERE kind = ?", (LIMIT_KIND,))
    return [*islice(faults(tasks), MOST_UNREAD), *islice(limit_faults(limits), MOST_UNREAD)]


def _min_format(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT body FROM shelf WHERE kind = 'format' AND name = 'min'")
    row = found.fetchone()
    return msgspec.json.decode(row[0], type=int) if row else 1


def _modes(path: Path) -> Fact[StoreModes]:
    try:
        return Fact(modes_of(path))
    except OSError as error:
        return Fact(why_not=f"the permissions of {path} cannot be read ({error.strerror})")


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _there(facts: StoreFacts) -> Iterator[Remark]:
    if facts.settings.is_store_missing:
        yield Remark("error", *missing_store(facts.settings))


def _sound(facts: StoreFacts) -> Iterator[Remark]:
    found = facts.integrity.get()
    if not found:
        what = f"the check of {facts.size / _MIB:,.0f} MiB was not through within {CHECK_S:g} s"
        mend = f"sqlite3 {facts.folder / STORE_FILE} 'PRAGMA quick_check'"
        yield Remark("note", what, mend)
    elif found != "ok":
        what = f"the database in {facts.folder} is damaged: {found[:200]}"
        mend = f"stop all processes, then sqlite3 {facts.folder / STORE_FILE} .recover"
        yield Remark("error", what, mend)


def _wal(facts: StoreFacts) -> Iterator[Remark]:
    if facts.wal_size >= LARGE_WAL:
        what = f"the write-ahead log has {facts.wal_size / _MIB:,.0f} MiB"
        yield Remark("warning", what, "end what reads the database for long (fuser pushlane.db)")


def _private(facts: StoreFacts) -> Iterator[Remark]:
    yield from openings(facts.folder, facts.modes.get())


def _sqlite(_: StoreFacts) -> Iterator[Remark]:
    yield from outside("SQLite", sqlite3.sqlite_version, OLDEST_SQLITE, (3,))


CHECKS = (
    Check(
        NO_STORE,
        AREA,
        "that there is a store in `data_dir`",
        "a command that looks where no store is sees no task of the one that is meant",
        _there,
    ),
    Check(
        "store-integrity",
        AREA,
        f"SQLite's quick_check of the store, for at most {CHECK_S:g} s",
        "tasks and pushes on damaged pages are lost, and what uses them stops",
        _sound,
    ),
    Check(
        "store-wal",
        AREA,
        f"size of the write-ahead log: under {LARGE_WAL // _MIB} MiB",
        "a reader that never ends keeps it growing, and all reads slow down",
        _wal,
    ),
    Check(
        "store-private",
        AREA,
        "permissions of the database, its logs and its folder: its owner's alone",
        "it holds recipients and content of pushes, and the key of the hashes",
        _private,
    ),
    Check("sqlite-version", AREA, "SQLite's version: 3.33 or later", "others lack SQL", _sqlite),
)
