"""The parts that both logs of segments share: appends that are whole or absent, and search."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pushlane.util import files
from pushlane.util.files import append, marks


@pytest.mark.parametrize("durably", [False, True])
def test_an_append_gives_the_new_size(tmp_path: Path, durably: bool) -> None:
    path = tmp_path / "log"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)

    sizes = [append(handle, b"abc", 0, durably=durably), append(handle, b"de", 3, durably=durably)]

    os.close(handle)
    assert (sizes, path.read_bytes()) == ([3, 5], b"abcde")


@pytest.mark.parametrize("fails", ["write_all", "os.fdatasync"])
def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch, fails) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    handle = os.open(path, os.O_RDWR)

    def fail(*given: object) -> None:
        os.pwrite(handle, b"d", 3)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"{files.__name__}.{fails}", fail)
    with pytest.raises(OSError, match="No space"):
        append(handle, b"de", 3, durably=True)

    os.close(handle)
    assert path.read_bytes() == b"abc"


def test_every_mark_is_found_from_the_start_on() -> None:
    assert list(marks(b"xaaxaa", b"aa")) == [1, 4]
    assert list(marks(b"aaa", b"aa", 1)) == [1]
    assert list(marks(b"", b"aa")) == []
