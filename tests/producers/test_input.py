"""Copying a stream that may be silent."""

from __future__ import annotations

import io
import os

from pushlane.producers.request import copy_stream


def test_a_silent_pipe_gives_control_back_and_loses_nothing() -> None:
    reading, writing = os.pipe()
    copy = io.BytesIO()
    with open(reading, "rb") as stream:
        copying = copy_stream(stream, copy)

        assert next(copying) == 0
        os.write(writing, b"recipient\n")
        assert next(copying) == 10
        os.write(writing, b"a\n")
        os.close(writing)
        assert list(copying) == [12]

    assert copy.getvalue() == b"recipient\na\n"


def test_a_stream_in_memory_is_copied_whole() -> None:
    copy = io.BytesIO()

    assert list(copy_stream(io.BytesIO(b"x" * 3_000_000), copy))[-1] == 3_000_000
    assert len(copy.getvalue()) == 3_000_000
