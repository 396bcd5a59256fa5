"""What is kept of a target: by whatever process, once, and not lost to a newer version's fields."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pushlane.core.errors import UnknownFormat
from pushlane.model.targets import TargetHistory, accept, note_delivered, target_history
from tests.core.support import backend_in

TARGET = "6f1d"


async def test_nothing_is_known_of_a_target_at_first(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        assert await target_history(backend.documents, TARGET) == TargetHistory()


async def test_the_first_delivery_is_kept_once_for_each_target(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        for at_ms in (1_000, 2_000):
            await note_delivered(backend.documents, TARGET, at_ms)

        [kept] = await backend.documents.list("target")
        assert (kept.name, kept.version) == (TARGET, 1)
        assert (await target_history(backend.documents, TARGET)).delivered_at_ms == 1_000
        assert await target_history(backend.documents, "another") == TargetHistory()


async def test_what_is_accepted_can_be_taken_back_and_does_not_touch_the_rest(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await accept(backend.documents, TARGET, 3_000)
        assert (await target_history(backend.documents, TARGET)).accepted_at_ms == 3_000
        await note_delivered(backend.documents, TARGET, 4_000)

        await accept(backend.documents, TARGET, 0)

        assert await target_history(backend.documents, TARGET) == TargetHistory(4_000, 0)


async def test_fields_of_a_newer_version_stay(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await backend.documents.put("target", TARGET, b'{"seen_by":"v9"}', None)

        await note_delivered(backend.documents, TARGET, 1_000)

        found = await backend.documents.get("target", TARGET)
        assert found is not None
        assert msgspec.json.decode(found.body) == {"seen_by": "v9", "delivered_at_ms": 1_000}


@pytest.mark.parametrize("body", [b"not json", b'{"delivered_at_ms":"yesterday"}', b"[]"])
async def test_what_cannot_be_read_is_left_as_it_is(tmp_path: Path, body: bytes) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await backend.documents.put("target", TARGET, body, None)

        with pytest.raises(UnknownFormat):
            await note_delivered(backend.documents, TARGET, 1_000)

        found = await backend.documents.get("target", TARGET)
        assert found is not None
        assert found.body == body
