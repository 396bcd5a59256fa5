"""Front-end files that lie in the clone are those that were taken from npm, and no others."""

from __future__ import annotations

from hashlib import sha256

import pytest

from scripts.vendor import LISTS, Vendored, vendored


@pytest.mark.parametrize("one", list(vendored()), ids=lambda one: one.path.name)
def test_a_file_is_as_its_hash_says(one: Vendored) -> None:
    assert sha256(one.path.read_bytes()).hexdigest() == one.sha256


def test_no_file_lies_there_that_is_not_listed() -> None:
    there = {path for at in LISTS for path in at.parent.iterdir()}
    assert there == {*LISTS, *(one.path for one in vendored())}
