"""`backup` and `restore` of the embedded store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def test_a_restored_store_delivers_what_was_not_sent(
    command: Command, copy: Path, tmp_path: Path
) -> None:
    task, log = command.submit("high", 3), tmp_path / "delivered"
    made = command("backup", str(copy))
    command("cancel", task, "--yes")

    new = ("--data-dir", str(tmp_path / "new"))
    command("restore", str(copy), *new)
    command("dispatch", "--drain", "--sink", f"log:{log}", *new)

    assert (made.exit_code, made.stderr) == (
        0,
        f"tasks in {copy}: 1, with all else of the store\n",
    )
    assert len(log.read_text().splitlines()) == 3
    (restored,) = command("tasks", "--all", "--json", *new).json
    assert (restored["id"], restored["state"]) == (task, "done")
    assert command("task", "show", task, "--json").json["state"] == "cancelled"


def test_a_copy_is_one_file_for_its_owner_alone(command: Command, copy: Path) -> None:
    command.submit("high", 3)

    command("backup", str(copy))

    assert copy.stat().st_mode & 0o777 == 0o600
    assert [path for path in copy.parent.iterdir() if path.name.startswith(copy.name)] == [copy]


def test_what_is_restored_is_its_owners_alone_in_a_folder_that_is_not(
    command: Command, copy: Path, tmp_path: Path
) -> None:
    command.submit("high", 3)
    command("backup", str(copy))
    copy.chmod(0o644)
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o755)

    command("restore", str(copy), "--data-dir", str(folder))

    assert (folder / "pushlane.db").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_not_replaced(command: Command, copy: Path) -> None:
    command.submit("high", 3)
    copy.write_text("precious")

    ran = command("backup", str(copy))

    assert (ran.exit_code, copy.read_text()) == (1, "precious")
    assert f"{copy} is there already" in ran.stderr


def test_a_store_that_is_there_is_not_replaced(command: Command, copy: Path) -> None:
    command.submit("high", 3)
    command("backup", str(copy))
    later = command.submit("high", 3)

    ran = command("restore", str(copy))

    assert ran.exit_code == 1
    assert "is left as it is" in ran.stderr
    assert command("task", "show", later).exit_code == 0


@pytest.mark.parametrize("beside", ["-wal", "-journal"])
def test_the_log_of_another_store_is_not_put_into_a_copy(
    command: Command, copy: Path, tmp_path: Path, beside: str
) -> None:
    command.submit("high", 3)
    command("backup", str(copy))
    left = tmp_path / "new" / f"pushlane.db{beside}"
    left.parent.mkdir()
    left.write_bytes(b"of a store that was moved away")

    into = command("restore", str(copy), "--data-dir", str(left.parent))
    left.rename(f"{copy}{beside}")
    of = command("restore", str(copy), "--data-dir", str(left.parent))

    assert (into.exit_code, of.exit_code) == (1, 1)
    assert f"there is a log of changes in {left}: move it away too" in into.stderr
    assert "copy that with `pushlane backup`" in of.stderr
    assert list(left.parent.iterdir()) == []


def cut(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def emptied(whole: bytes) -> bytes:
    return b""


def flipped(whole: bytes) -> bytes:
    return bytes(255 - byte for byte in whole)


@pytest.mark.parametrize("damage", [cut, emptied, flipped])
def test_a_damaged_copy_leaves_no_store(command: Command, copy: Path, damage) -> None:
    command.submit("high", 3)
    command("backup", str(copy))
    copy.write_bytes(damage(copy.read_bytes()))
    new = copy.parent / "new"

    ran = command("restore", str(copy), "--data-dir", str(new))

    assert ran.exit_code == 1
    assert f"{copy} is damaged" in ran.stderr
    assert list(new.iterdir()) == []


def test_what_is_not_there_is_named(command: Command, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    command.submit("high", 3)

    without_store = command("backup", str(tmp_path / "copy"), "--data-dir", nowhere)
    without_folder = command("backup", str(tmp_path / "no" / "copy"))
    without_copy = command("restore", nowhere, "--data-dir", str(tmp_path / "new"))

    assert f"there is no store in {nowhere}" in without_store.stderr
    assert f"there is no folder {tmp_path / 'no'}" in without_folder.stderr
    assert f"there is no file {nowhere}" in without_copy.stderr
