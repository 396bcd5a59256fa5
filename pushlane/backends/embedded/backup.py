"""Copies the embedded store into one file while others use it, and puts such a copy in place.

The embedded store is no copy: it is never rebuilt, and says so.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pushlane.backends.embedded.database import code_of, translated
from pushlane.backends.embedded.schema import prepare
from pushlane.backends.operations import Beside, RegistryGap
from pushlane.core.errors import BadInput, UserError
from pushlane.settings import STORE_FILE, Settings
from pushlane.util.files import sync


async def back_up(settings: Settings, file: Path) -> int:
    """Copy the store as it is at one moment, lanes and all, and return how many tasks it has.

    Raises:
        BadInput: there is no store, or the file is there already.
        Unreachable: the store or the file's folder cannot be used.
    """
    return await asyncio.to_thread(_back_up, settings.data_dir, file)


async def restore(settings: Settings, file: Path) -> int:
    """Put a copy in place of a store that is not there; return how many tasks it has.

    Raises:
        BadInput: a store is there already, or the file is none.
        Unreachable: the file is damaged, or the folder cannot be used.
    """
    return await asyncio.to_thread(_restore, settings.data_dir, file)


def _back_up(folder: Path, file: Path) -> int:
    store = folder / STORE_FILE
    if not store.is_file():
        raise BadInput(f"there is no store in {folder}; give another --data-dir")
    if not file.parent.is_dir():
        raise BadInput(f"there is no folder {file.parent}; make it, or give another file")
    with translated(file.parent):
        return _copy(store, file, "mode=ro")


def _restore(folder: Path, file: Path) -> int:
    if not file.is_file():
        raise BadInput(f"there is no file {file}; give one that `pushlane backup` has made")
    with translated(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (folder / STORE_FILE).exists():
            raise BadInput(
                f"a store is in {folder} already, and is left as it is; move it away, or give "
                "another --data-dir"
            )
        _require_alone(folder / STORE_FILE, "move it away too, with the store that it belongs to")
        _require_alone(file, "it is a store in use: copy that with `pushlane backup`")
        return _copy(file, folder / STORE_FILE, "immutable=1")


def _require_alone(store: Path, mend: str) -> None:
    """Raise BadInput where a log lies beside: SQLite would put what it holds into the store."""
    for kind in ("wal", "journal"):
        log = store.with_name(f"{store.name}-{kind}")
        if log.exists():
            raise BadInput(f"there is a log of changes in {log}: {mend}")


def _copy(source: Path, target: Path, opened: str) -> int:
    """Copy a store, opened so, look whether it is whole, and name it last; it is durable then."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        unfinished = Path(folder) / STORE_FILE
        unfinished.touch(mode=0o600)
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?{opened}", uri=True)) as old,
            closing(sqlite3.connect(unfinished, isolation_level=None)) as new,
        ):
            tasks = _filled(new, old, source)
        sync(unfinished)
        try:
            os.link(unfinished, target)
        except FileExistsError as error:
            raise BadInput(f"{target} is there already; give another file") from error
    sync(target.parent)
    return tasks


def _filled(new: sqlite3.Connection, old: sqlite3.Connection, source: Path) -> int:
    """Fill a new store from another one; return how many tasks it has."""
    damaged = BadInput(f"{source} is damaged, or no copy of a store; take an older copy")
    try:
        old.backup(new)
        if new.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise damaged
        if not new.execute("PRAGMA user_version").fetchone()[0]:
            raise damaged
        prepare(new, source)
        new.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
        return int(new.execute("SELECT count(*) FROM tasks").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if code_of(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise damaged from error
        raise


async def compare_registry(settings: Settings) -> RegistryGap:
    """Refuse to. Raises UserError."""
    raise _nothing_to_rebuild(settings)


async def rebuild_registry(settings: Settings, beside: Beside) -> None:
    """Refuse to. Raises UserError."""
    raise _nothing_to_rebuild(settings)


def _nothing_to_rebuild(settings: Settings) -> UserError:
    return UserError(
        f"there is nothing to rebuild: the embedded store in {settings.data_dir} is one file, "
        "and no copy of anything; `pushlane doctor` checks whether it is damaged, and `pushlane "
        "restore` puts a copy in place. For a registry in Redis give --broker pulsar://HOST:PORT"
    )
