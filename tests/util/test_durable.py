"""Files are written whole, and locks on files are held by one at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dev import alone
from pushlane.util.files import FileLock, create_durably, is_locked, write_durably


def test_a_file_that_is_written_again_has_the_new_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"a longer one")
    write_durably(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_that_create_a_file_the_first_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_durably(path, b"first")
    with pytest.raises(FileExistsError):
        create_durably(path, b"second")

    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    create_durably(tmp_path / "file", b"secret", 0o600)

    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    first, second = FileLock(path), FileLock(path)
    assert first.acquire()
    assert is_locked(path)
    assert not second.acquire()
    assert not second.acquire(timeout_s=0.005)

    first.release()
    assert second.acquire()

    second.close()
    assert not is_locked(path)
    first.close()


def test_a_lock_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert not lock.is_removed
    (tmp_path / "lock").unlink()
    assert lock.is_removed
    lock.close()


def test_the_lock_of_a_block_ends_with_it_and_nobody_waits_for_nothing(tmp_path: Path) -> None:
    path, waits = tmp_path / "folder" / "lock", []
    for _ in range(2):
        with alone(path, lambda: waits.append("waits")):
            assert is_locked(path)
    assert not is_locked(path)
    assert waits == []


def test_a_lock_that_is_closed_is_free_though_a_child_has_its_file_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    assert lock.acquire()
    until_told, told = os.pipe()
    child = os.fork()
    if not child:
        os.read(until_told, 1)
        os._exit(0)

    lock.close()
    is_free = FileLock(path).acquire()

    os.write(told, b".")
    os.waitpid(child, 0)
    assert is_free


def test_a_child_that_closes_its_copy_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    assert lock.acquire()
    child = os.fork()
    if not child:
        lock.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert is_locked(path)
    lock.close()
    assert not is_locked(path)
