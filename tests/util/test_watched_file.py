"""A file that others replace: its text is the present one, or the last that could be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pushlane.core.errors import BadInput
from pushlane.util.files import WatchedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("one\n")
    return file


def test_white_space_around_it_does_not_count(path: Path) -> None:
    assert WatchedFile("pulsar_token_file", path).text() == "one"


def test_a_file_that_was_replaced_is_read_again(path: Path) -> None:
    watched = WatchedFile("pulsar_token_file", path)
    before = watched.text()

    new = path.with_name("new")
    new.write_text("two")
    os.replace(new, path)

    assert (before, watched.text()) == ("one", "two")


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_that_cannot_be_used_is_named_and_the_last_text_stays(
    path: Path, content: bytes | None
) -> None:
    watched = WatchedFile("pulsar_token_file", path)
    watched.text()
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(BadInput, match=f"pulsar_token_file {path} "):
        watched.text()
    assert watched.last_text() == "one"


def test_without_a_text_ever_the_last_one_is_empty(tmp_path: Path) -> None:
    assert WatchedFile("pulsar_token_file", tmp_path / "none").last_text() == ""
