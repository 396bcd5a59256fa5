"""Addresses that are registered, one a line."""

from __future__ import annotations

from pathlib import Path

from pushlane.model.recipients import SuppressionScope, kept_hasher
from pushlane.producers.suppress import changed_by, line_pages, register_values
from tests.core.support import backend_in


async def test_lines_that_no_push_can_have_are_left_out_and_named(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        hashes = (await kept_hasher(backend.documents)).hashes(["one", "zwölf"])
        await backend.suppressions.add(SuppressionScope("sink", "fcm"), hashes)
        lines = [b"one\n", b"\n", b"\xff\xfe\n", b"one\n", "zwölf".encode()]

        done = await changed_by(
            line_pages(lines), lambda some: register_values(backend, "fcm", some)
        )

        assert (done.given, done.changed) == (2, 2)
        assert (done.left_out, done.first_left_out) == (1, "line 3")
        assert await backend.suppressions.counts() == {}
