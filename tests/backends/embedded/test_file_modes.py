"""The store's files are their owner's alone, whoever made the folder, and what is not is told."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.embedded.database import StoreModes, keep_private, openings
from pushlane.settings import STORE_FILE, Settings

_WRITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The usual one, by which files are readable by all."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that was there before the store, as systemd makes its StateDirectory."""
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def files(folder: Path) -> list[Path]:
    return list(folder.glob(f"{STORE_FILE}*"))


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(file.stat().st_mode) for file in files(folder)}


def make_store(folder: Path, mode: int) -> None:
    (folder / STORE_FILE).touch()
    (folder / STORE_FILE).chmod(mode)


def share(folder: Path, mode: int) -> Path:
    folder.chmod(mode)
    return folder


async def open_store(folder: Path) -> set[int]:
    """Open a store and write to it; return the modes that its files have meanwhile."""
    async with connect(Settings(data_dir=folder)) as backend:
        await backend.broker.open_lane("task-a")
        assert len(files(folder)) == 3  # with its log and the log's index
        return modes(folder)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pushlane.embedded"]


async def test_a_new_store_is_its_owners_alone_in_a_folder_that_is_not(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await open_store(folder) == {0o600}
    assert logged(caplog) == []


async def test_a_store_of_an_earlier_version_is_closed_at_its_opening(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(folder / STORE_FILE)) as earlier:
        earlier.execute("PRAGMA journal_mode = WAL")
        earlier.execute("CREATE TABLE open_to_all (id)")
        assert modes(folder) == {0o644}

        keep_private(folder / STORE_FILE)

        assert modes(folder) == {0o600}
        assert logged(caplog) == []


@pytest.mark.parametrize(("folder_mode", "kept"), [(0o2755, 0o640), (0o775, 0o660)])
async def test_what_a_folder_shares_with_its_group_stays_with_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, folder_mode: int, kept: int
) -> None:
    make_store(folder, kept | 0o004)

    assert await open_store(share(folder, folder_mode)) == {kept}

    assert f"{STORE_FILE} in {folder}: open to its group" in logged(caplog)[0]
    assert f"chmod 600 {folder / STORE_FILE}" in logged(caplog)[0]


async def test_files_of_another_user_are_used_and_told(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    make_store(folder, 0o644)
    monkeypatch.setattr(Path, "chmod", refuse)

    assert await open_store(folder) == {0o644}

    [said] = logged(caplog)
    assert "open to all users of this machine" in said
    assert "as their owner" in said


async def test_a_folder_in_which_others_can_replace_the_store_is_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await open_store(share(folder, 0o777))

    [said] = logged(caplog)
    assert f"{folder} can be written to by all users" in said
    assert f"chmod go-w {folder}" in said


def test_locks_of_this_process_are_kept(folder: Path) -> None:
    """A file that is opened and closed again loses all that its process has locked in it."""
    store = folder / STORE_FILE
    with closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("BEGIN IMMEDIATE")

        keep_private(store)

        other = subprocess.run([sys.executable, "-c", _WRITE, store], capture_output=True)
        assert b"database is locked" in other.stderr


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "severities"),
    [
        (0o700, 0o600, []),
        (0o755, 0o600, ["note"]),
        (0o1777, 0o600, ["note"]),
        (0o777, 0o600, ["warning"]),
        (0o700, 0o640, ["warning"]),
        (0o770, 0o660, ["warning", "warning"]),
    ],
)
def test_doctor_tells_what_others_can_do(
    tmp_path: Path, folder_mode: int, file_mode: int, severities: list[str]
) -> None:
    found = list(openings(tmp_path, StoreModes(folder_mode, {STORE_FILE: file_mode})))

    assert [one.severity for one in found] == severities
